"""Prefill/decode disaggregated multimodal serving: the preprocessing gateway and the engines behind it."""
