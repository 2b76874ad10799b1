"""Mooncake's TransferEngine between two processes, without an engine: the end that runs in .venv-engine."""
