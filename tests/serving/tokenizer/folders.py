"""Model folders without weights: tokenizers trained here on a few sentences, templates with what real ones do."""

import json
from pathlib import Path

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from serving.tokenizer.folder import QWEN_WORDS

CORPUS = [
    "Describe the picture in one short sentence. What is in the image? The harbour at dawn, and a flower.",
    "You are a helpful assistant. system user assistant tool function name arguments type object string",
    '{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}',
    "Опишите картинку одним предложением. Что на ней изображено?",
    "请描述这张图片。天气怎么样?  写一个简短的句子。",
] * 4
QWEN_TOKENS = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
]

QWEN_TEMPLATE = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content if messages[0].content is string else messages[0].content[0].text }}
        {{- '\\n\\n' }}
    {%- endif %}
    {{- "# Tools\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" + (tool | tojson) }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- elif messages[0].role != 'system' %}
    {{- '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}
{%- endif %}
{%- set images = namespace(value=0) %}
{%- macro render(content) %}
    {%- if content is string %}
        {{- content }}
    {%- else %}
        {%- for part in content %}
            {%- if part.type == 'image' or 'image_url' in part %}
                {%- set images.value = images.value + 1 %}
                {%- if add_vision_id %}Picture {{ images.value }}: {% endif %}
                {{- '<|vision_start|><|image_pad|><|vision_end|>' }}
            {%- elif 'text' in part %}
                {{- part.text }}
            {%- endif %}
        {%- endfor %}
    {%- endif %}
{%- endmacro %}
{%- for message in messages %}
    {%- if tools and loop.first and message.role == 'system' %}{% continue %}{% endif %}
    {%- if message.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' }}
        {%- generation %}
            {{- render(message.content) }}
        {%- endgeneration %}
        {%- for call in message.tool_calls or [] %}
            {{- '\\n<tool_call>\\n' + (call | tojson) + '\\n' }}
            {{- call.function.arguments | tojson(indent=2) }}
            {{- '\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{% endif %}
        {{- '\\n<tool_response>\\n' + render(message.content) + '\\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\\n' }}{% endif %}
    {%- elif message.role == 'developer' %}
        {{- raise_exception('no developer here') }}
    {%- else %}
        {{- '<|im_start|>' + message.role + (' ' + message.name if message.name else '') + '\\n' }}
        {{- render(message.content) + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and not enable_thinking %}{{- '<think>\\n\\n</think>\\n\\n' }}{% endif %}
    {%- if reasoning_effort is defined %}{{- 'effort ' + reasoning_effort | string }}{% endif %}
{%- endif %}
"""

LLAVA_TEMPLATE = """\
{% for message in messages %}{{ message['role'].upper() + ': ' }}\
{% for part in message['content'] | selectattr('type', 'equalto', 'image') %}{{ '<image>\\n' }}{% endfor %}\
{% if message['content'] is string %}{{ message['content'] }}{% else %}\
{% for part in message['content'] | selectattr('type', 'equalto', 'text') %}{{ part['text'] + ' ' }}{% endfor %}\
{% endif %}{{ eos_token if message['role'] == 'assistant' }}{% endfor %}\
{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"""

TEXT_TEMPLATE = """\
{{ bos_token }}{% for m in messages %}[{{ m.role }}]
{{ m.content | trim }}{{ eos_token }}
{% endfor %}{% if tools %}{% for t in tools %}{{ t.name }}({{ t.parameters | tojson }}){% endfor %}{% endif %}
{% if add_generation_prompt %}[assistant]
{% endif %}"""


def qwen_tokenizer() -> Tokenizer:
    """Byte-level BPE with Qwen's words and NFC."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN_WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=[AddedToken(token, normalized=False, special=True) for token in QWEN_TOKENS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def llama_tokenizer() -> Tokenizer:
    """BPE as sentencepiece makes it: spaces as letters, bytes for what is unknown, <s> before every text."""
    alphabet = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    special = [AddedToken(token, normalized=False, special=index < 3) for index, token in enumerate(alphabet)]
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(CORPUS[:2], trainer)
    tokenizer.add_special_tokens([AddedToken("<image>", normalized=False, special=True)])
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A <s> $B", [("<s>", 1)])
    return tokenizer


def qwen(folder: Path, *, template: str = QWEN_TEMPLATE, model_type: str = "qwen2_5_vl") -> Path:
    """A Qwen-VL folder with a template for tools, thinking and images."""
    folder.mkdir(parents=True)
    tokenizer = qwen_tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(template)
    architecture = {
        "qwen2_vl": "Qwen2VLForConditionalGeneration",
        "qwen2_5_vl": "Qwen2_5_VLForConditionalGeneration",
        "qwen3_vl": "Qwen3VLForConditionalGeneration",
    }[model_type]
    three = model_type == "qwen3_vl"
    _write(
        folder,
        tokenizer_config={
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "tokenizer_class": "Qwen2Tokenizer",
        },
        preprocessor_config={
            "image_processor_type": "Qwen2VLImageProcessor",
            "size": {"shortest_edge": 65536 if three else 3136, "longest_edge": 786_432},
            "patch_size": 16 if three else 14,
            "merge_size": 2,
            "temporal_patch_size": 2,
        },
        config={
            "architectures": [architecture],
            "model_type": model_type,
            "image_token_id": tokenizer.token_to_id("<|image_pad|>"),
            "video_token_id": tokenizer.token_to_id("<|video_pad|>"),
            "vision_start_token_id": tokenizer.token_to_id("<|vision_start|>"),
            "vision_end_token_id": tokenizer.token_to_id("<|vision_end|>"),
            "text_config": {**_TEXT, "model_type": f"{model_type}_text"},
            "vision_config": {
                "depth": 2,
                "hidden_size": 64,
                "num_heads": 1,
                "patch_size": 16 if three else 14,
                "spatial_merge_size": 2,
                "temporal_patch_size": 2,
                "out_hidden_size": 64,
                "model_type": model_type,
            },
        },
    )
    if three:
        _write(folder, processor_config={"processor_class": "Qwen3VLProcessor"})
    return folder


def llava(folder: Path) -> Path:
    """LLaVA-1.5 as transformers keeps it."""
    folder.mkdir(parents=True)
    tokenizer = llama_tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    _write(
        folder,
        chat_template={"chat_template": LLAVA_TEMPLATE},
        tokenizer_config={
            "bos_token": "<s>",
            "eos_token": "</s>",
            "unk_token": "<unk>",
            "pad_token": "</s>",
            "add_bos_token": True,
            "tokenizer_class": "LlamaTokenizerFast",
        },
        preprocessor_config={
            "image_processor_type": "CLIPImageProcessor",
            "size": {"shortest_edge": 336},
            "crop_size": {"height": 336, "width": 336},
        },
        processor_config={
            "processor_class": "LlavaProcessor",
            "patch_size": 14,
            "vision_feature_select_strategy": "default",
            "image_token": "<image>",
        },
        config={
            "architectures": ["LlavaForConditionalGeneration"],
            "model_type": "llava",
            "image_token_index": tokenizer.token_to_id("<image>"),
            "text_config": {**_TEXT, "model_type": "llama", "architectures": ["LlamaForCausalLM"]},
            "vision_config": {"model_type": "clip_vision_model", "image_size": 336, "patch_size": 14},
        },
    )
    return folder


def internvl(folder: Path) -> Path:
    """InternVL 2.5 or 3 on Qwen2, with the vocabulary as these folders have it: no tokenizer.json."""
    folder.mkdir(parents=True)
    tokenizer = qwen_tokenizer()
    marks = ["<img>", "</img>", "<IMG_CONTEXT>", "<box>"]
    tokenizer.add_special_tokens([AddedToken(mark, normalized=False, special=True) for mark in marks])
    model = json.loads(tokenizer.to_str())["model"]
    added = {
        str(number): {"content": token.content, "special": token.special, "normalized": False}
        for number, token in tokenizer.get_added_tokens_decoder().items()
    }
    words = {word: number for word, number in model["vocab"].items() if str(number) not in added}
    (folder / "vocab.json").write_text(json.dumps(words))
    (folder / "merges.txt").write_text(
        "\n".join(["#version: 0.2", *(" ".join(pair) for pair in model["merges"])])
    )
    _write(
        folder,
        added_tokens={token["content"]: int(number) for number, token in added.items()},
        tokenizer_config={
            "added_tokens_decoder": added,
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "tokenizer_class": "Qwen2Tokenizer",
        },
        config={
            "architectures": ["InternVLChatModel"],
            "model_type": "internvl_chat",
            "downsample_ratio": 0.5,
            "force_image_size": 448,
            "llm_config": {**_TEXT, "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"},
            "vision_config": {
                "architectures": ["InternVisionModel"],
                "model_type": "intern_vit_6b",
                "image_size": 448,
                "patch_size": 14,
                "hidden_size": 64,
                "num_attention_heads": 4,
                "num_hidden_layers": 2,
                "intermediate_size": 64,
            },
        },
    )
    return folder


def text(folder: Path) -> Path:
    """A text model whose template takes strings, and a tool's function alone."""
    folder.mkdir(parents=True)
    llama_tokenizer().save(str(folder / "tokenizer.json"))
    _write(
        folder,
        tokenizer_config={
            "bos_token": "<s>",
            "eos_token": {"__type": "AddedToken", "content": "</s>", "special": True},
            "chat_template": [{"name": "default", "template": TEXT_TEMPLATE}],
            "tokenizer_class": "PreTrainedTokenizerFast",
        },
        config={"architectures": ["LlamaForCausalLM"], "model_type": "llama", **_TEXT},
    )
    return folder


_TEXT = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "max_position_embeddings": 32768,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "rope_parameters": {"mrope_section": [2, 3, 3], "rope_theta": 10000.0, "rope_type": "default"},
    "vocab_size": 1024,
}


def _write(folder: Path, **files: object) -> None:
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
