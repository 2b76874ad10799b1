"""A stand-in for an SGLang engine: its dialect, queues and failures, with computed time instead of a model."""
