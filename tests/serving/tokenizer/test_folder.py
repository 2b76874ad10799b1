"""Tokenizer, special tokens and template are found where transformers and SGLang find them."""

import json
from pathlib import Path

import pytest

from serving.tokenizer.errors import Uncountable
from serving.tokenizer.folder import read
from serving.tokenizer.prompt import load
from tests.serving.tokenizer import folders

HI = {"messages": [{"role": "user", "content": "hi"}]}


def template_of(folder: Path, *, multimodal: bool = True) -> str:
    return read(folder, multimodal=multimodal).template


def settings(folder: Path, **values: object) -> None:
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_where_the_template_is(tmp_path: Path) -> None:
    """The processor's before the tokenizer's: processor_config.json, chat_template.json, chat_template.jinja, then
    tokenizer_config.json; a text model has no processor."""
    folder = folders.qwen(tmp_path / "m")
    settings(folder, chat_template="of the tokenizer")
    (folder / "chat_template.jinja").write_text("a file")
    assert template_of(folder) == template_of(folder, multimodal=False) == "a file"

    (folder / "chat_template.json").write_text('{"chat_template": "older file"}')
    assert template_of(folder) == "older file"
    assert template_of(folder, multimodal=False) == "a file"

    (folder / "processor_config.json").write_text('{"chat_template": "in the config"}')
    assert template_of(folder) == "in the config"

    for name in ("chat_template.jinja", "chat_template.json", "processor_config.json"):
        (folder / name).unlink()
    assert template_of(folder) == template_of(folder, multimodal=False) == "of the tokenizer"


def test_of_several_templates_the_first(tmp_path: Path) -> None:
    """As SGLang does, whatever they are called."""
    folder = folders.text(tmp_path / "m")
    settings(folder, chat_template=[{"name": "rag", "template": "1"}, {"name": "default", "template": "2"}])

    assert template_of(folder, multimodal=False) == "1"


@pytest.mark.parametrize("missing", ["tokenizer.json", "chat_template.jinja"])
def test_without_its_files_nothing_is_counted(tmp_path: Path, missing: str) -> None:
    """The reason names the folder."""
    folder = folders.qwen(tmp_path / "m")
    (folder / missing).unlink()

    with pytest.raises(Uncountable, match=str(tmp_path)):
        read(folder, multimodal=True)


@pytest.mark.parametrize(
    "name", ["InternVL3-8B", "check-points/qwen", "llava-v1.5-7b", "deepseek-ai-vl2", "MiniCPM-V-4.5"]
)
def test_where_sglang_takes_a_template_of_its_own(tmp_path: Path, name: str) -> None:
    """It goes by the path, and would not use the folder's template."""
    with pytest.raises(Uncountable, match="template of its own"):
        read(folders.qwen(tmp_path / name), multimodal=True)


def test_prompts_that_sglang_writes_in_python(tmp_path: Path) -> None:
    """By the architecture."""
    folder = folders.text(tmp_path / "m")
    (folder / "config.json").write_text('{"architectures": ["KimiK3ForCausalLM"], "model_type": "kimi_k3"}')

    with pytest.raises(Uncountable, match="KimiK3"):
        read(folder, multimodal=False)


def test_internvl_needs_no_template_and_no_tokenizer_json(tmp_path: Path) -> None:
    """SGLang brings its conversation, and its folders hold Qwen's vocabulary and merges."""
    folder = folders.internvl(tmp_path / "InternVL3-8B")

    assert read(folder, multimodal=True).template is None
    assert load(folder, "internvl_chat").count(HI, 0) > 100

    settings(folder, tokenizer_class="InternLM2Tokenizer")
    with pytest.raises(Uncountable, match=r"tokenizer\.json"):
        read(folder, multimodal=True)


def test_a_newer_minicpm_has_its_own(tmp_path: Path) -> None:
    """SGLang's built-in template is for the older ones."""
    assert read(folders.qwen(tmp_path / "MiniCPM-V-4.6"), multimodal=True).template


def test_special_tokens_by_name(tmp_path: Path) -> None:
    """As text or as an object; the tokenizer's own file wins over the older one."""
    folder = folders.qwen(tmp_path / "m")
    settings(folder, bos_token={"content": "<b>"}, unk_token=None)
    (folder / "special_tokens_map.json").write_text('{"eos_token": "old", "cls_token": {"content": "<c>"}}')

    found = read(folder, multimodal=True).special_tokens

    assert found == {
        "cls_token": "<c>",
        "bos_token": "<b>",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
    }


def test_added_tokens_of_the_config(tmp_path: Path) -> None:
    """Tokens that tokenizer.json does not hold are added, as transformers does."""
    folder = folders.qwen(tmp_path / "m", template="{{ messages[0].content }}")
    asked = {"messages": [{"role": "user", "content": "<tool_call>"}]}
    before = load(folder, "qwen2_5_vl").count(asked, 0)
    settings(
        folder,
        added_tokens_decoder={"600": {"content": "<tool_call>", "special": False, "normalized": False}},
    )

    assert before > 1
    assert load(folder, "qwen2_5_vl").count(asked, 0) == 1


def test_a_broken_tokenizer_is_told(tmp_path: Path) -> None:
    """With its folder."""
    folder = folders.qwen(tmp_path / "m")
    (folder / "tokenizer.json").write_text("{}")

    with pytest.raises(ValueError, match="tokenizer cannot be read"):
        read(folder, multimodal=True)
