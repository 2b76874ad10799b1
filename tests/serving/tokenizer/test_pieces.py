"""A long text is read in pieces as it is read whole."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, pre_tokenizers

from serving.tokenizer.pieces import can_cut, pieces
from tests.serving.tokenizer.folders import llama_tokenizer, qwen_tokenizer

QWEN, GPT2 = qwen_tokenizer(), qwen_tokenizer()
GPT2.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
WORDS = st.sampled_from(
    ["harbour", "The", " ", "  ", "\n", "\r\n", "\t", "'s", "don't", "1", "234", ".", "é", "e\u0301", "图片", "。", "，天", "かな", "🙂", "{", '",'  , "<|im_end|>", "_"]
)  # fmt: skip


@settings(max_examples=60)
@given(st.lists(WORDS, max_size=60).map("".join), st.integers(1, 30), st.sampled_from([QWEN, GPT2]))
def test_pieces_are_read_as_the_whole(text: str, size: int, tokenizer: Tokenizer) -> None:
    """Token by token, wherever the cuts fall."""
    cut = list(pieces(text, size))

    assert "".join(cut) == text
    assert [token for piece in cut for token in tokenizer.encode(piece).ids] == tokenizer.encode(text).ids


def test_pieces_are_short_where_there_are_words() -> None:
    """So that memory and the time until the next look at the clock are bounded."""
    text = "The ship sails. " * 5000

    assert max(map(len, pieces(text, 1000))) <= 1000
    assert list(pieces("x" * 5000, 1000)) == ["x" * 5000]


def test_only_tokenizers_with_such_word_ends_are_cut() -> None:
    """A sentencepiece vocabulary joins words; an added token may reach over a cut."""
    assert can_cut(QWEN)
    assert can_cut(GPT2)
    assert not can_cut(llama_tokenizer())

    wide = qwen_tokenizer()
    wide.add_tokens([AddedToken("two words", normalized=False)])
    assert not can_cut(wide)

    eager = qwen_tokenizer()
    eager.add_tokens([AddedToken("<x>", rstrip=True, normalized=False)])
    assert not can_cut(eager)
