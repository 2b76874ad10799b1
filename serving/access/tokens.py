"""How many tokens a text is likely to be, without the model's tokenizer."""

BYTES_PER_TOKEN = 3
"""UTF-8 bytes counted as one token.

English is 4 to 4.5 bytes a token in today's byte-pair vocabularies and Chinese 3 to 6 (three bytes a
character, 1 to 2 characters a token), so 3 leans to the upper side for prose. Digits, dense code and rare scripts
can be up to one token a byte: this estimate sorts requests, it does not bound them.
"""


def tokens_in(size_bytes: int) -> int:
    """Estimated prompt tokens of that many bytes of UTF-8 text, rounded up, without the chat template's own."""
    return -(-size_bytes // BYTES_PER_TOKEN)
