"""The workload class of a request, by the rule that the workloads share."""

from toolkit.core.classify import LONG_TEXT_TOKENS, classify

__all__ = ["LONG_TEXT_TOKENS", "classify"]
