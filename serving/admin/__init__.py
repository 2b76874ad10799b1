"""Changing a running gateway: what may change, who changed it, and how it is undone."""
