"""How many tokens a text is likely to be, without the model's tokenizer: the estimate that the workloads share."""

from toolkit.core.classify import BYTES_PER_TOKEN, tokens_in

__all__ = ["BYTES_PER_TOKEN", "tokens_in"]
