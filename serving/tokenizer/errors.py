"""Why a prompt is estimated and not counted."""


class Uncountable(Exception):
    """This prompt cannot be counted exactly; the message says why, in half a sentence."""
