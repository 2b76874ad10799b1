"""The execution layer: SGLang prefill and decode engines, as commands, as processes, as peers."""
