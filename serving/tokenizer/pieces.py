"""A long text in pieces that a tokenizer reads one by one as it reads the whole.

The library keeps some 350 bytes per token until a text is done, and cannot be stopped within one: a text of a megabyte
takes hundreds of megabytes and seconds. Cuts are made only where byte-level tokenizers end a word whatever stands around:
after a newline, and before the one space or Chinese mark between two words, in ASCII or CJK letters.
"""

import re
from collections.abc import Iterator

from tokenizers import Tokenizer, pre_tokenizers

PIECE_CHARS = 32_000
WHOLE_CHARS = 128_000
"""Longest piece, where no cut is found or none is known to be safe."""

_CJK = r"\u3040-\u30ff\u4e00-\u9fff"
_CUT = re.compile(
    rf"(?<=\n)(?=[!-~{_CJK}])|(?<=[A-Za-z{_CJK}])(?=[ \u3001\u3002\uff01\uff0c\uff1a\uff1b\uff1f][A-Za-z{_CJK}])"
)
_PROBES = ("ab cd", "x\nab", ".\n\nAb", "don't stop", " \n ab cd\nEf", "1\nab 2", "é\nab cd", "Ab CD\r\nef", '},\n{"a',
           "9\n8", "\u5929\n\u6c14", "\u5929\u3002\u6e2f\uff0c\u304b ab")  # fmt: skip


def can_cut(tokenizer: Tokenizer) -> bool:
    """Whether the cuts are word ends for this tokenizer, and no added token reaches over one."""
    words = tokenizer.pre_tokenizer
    if words is None or isinstance(words, pre_tokenizers.Metaspace):
        return False
    for token in tokenizer.get_added_tokens_decoder().values():
        if token.lstrip or token.rstrip or token.single_word or set(token.content) & {" ", "\n"}:
            return False
    for probe in _PROBES:
        ends = {end for _, (_, end) in words.pre_tokenize_str(probe)}
        if any(cut.start() not in ends for cut in _CUT.finditer(probe)):
            return False
    return True


def pieces(text: str, piece_chars: int = PIECE_CHARS) -> Iterator[str]:
    """The text cut into pieces of at most about that length; longer where it has no place for a cut."""
    begin = 0
    while len(text) - begin > piece_chars:
        end = begin + piece_chars
        cut = max((found.start() for found in _CUT.finditer(text, end - piece_chars // 2, end)), default=None)
        if cut is None:
            later = _CUT.search(text, end)
            if later is None:
                break
            cut = later.start()
        yield text[begin:cut]
        begin = cut
    yield text[begin:]
