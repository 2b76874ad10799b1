"""Executable runbooks for people on call (see docs/architecture.md for what lands here)."""
