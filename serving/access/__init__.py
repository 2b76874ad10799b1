"""The access layer: from untrusted image bytes to pixels of exactly the size the served model wants."""
