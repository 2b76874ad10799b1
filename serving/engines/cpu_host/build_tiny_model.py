"""Make a tiny Qwen2.5-VL with random weights, offline: python build_tiny_model.py FOLDER (in the engine environment).

Everything about it is fixed by this file: the tokenizer is trained on the sentences below, the weights come from
one seed. So two machines serve the same model, and greedy answers can be compared. What it says is noise.
"""

import sys
from pathlib import Path

import torch
import torchvision_ops
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

torchvision_ops.install()  # transformers' image classes import torchvision

from transformers import (  # noqa: E402
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2_5_VLProcessor,
    Qwen2VLImageProcessor,
    Qwen2VLVideoProcessor,
)

SEED = 0
VOCABULARY = 512
CONTEXT_TOKENS = 32_768
PATCH = 14
MERGE = 2
IMAGE_TOKEN_PIXELS = (PATCH * MERGE) ** 2  # one image token stands for 28 x 28 pixels
MIN_IMAGE_TOKENS, MAX_IMAGE_TOKENS = 4, 256

SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
SENTENCES = (
    "The quick brown fox jumps over the lazy dog. The quick brown fox jumps over the lazy dog.",
    "What is in this image? Describe the picture in one short sentence.",
    "Hello world, this is a tiny tokenizer for a tiny model.",
    "system user assistant prefill decode latency throughput cache token",
)
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for part in message['content'] %}"
    "{% if part['type'] in ('image', 'image_url') %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif part['type'] == 'text' %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level tokenizer: any text can be encoded, in about one token per two characters."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(SENTENCES * 20, trainer)
    made = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token="<|im_end|>",  # noqa: S106 (a token of the vocabulary)
        pad_token="<|endoftext|>",  # noqa: S106
        additional_special_tokens=list(SPECIAL_TOKENS),
    )
    made.chat_template = CHAT_TEMPLATE
    return made


def config(ids: dict[str, int]) -> Qwen2_5_VLConfig:
    """Two layers of 64 in the language model and in the vision tower: 380,736 weights with this vocabulary."""
    return Qwen2_5_VLConfig(
        text_config={
            "vocab_size": VOCABULARY,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": CONTEXT_TOKENS,
            "bos_token_id": ids["<|endoftext|>"],
            "eos_token_id": ids["<|im_end|>"],
            "pad_token_id": ids["<|endoftext|>"],
            "tie_word_embeddings": False,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]},
        },
        vision_config={
            "depth": 2,
            "hidden_size": 64,
            "intermediate_size": 128,
            # One head: SGLang's sdpa attention (vision.py:437) builds a full square over all patches of a request, so
            # four 448x448 images cost 2.6 s with four heads on one core of a small machine.
            "num_heads": 1,
            "patch_size": PATCH,
            "spatial_merge_size": MERGE,
            "temporal_patch_size": 2,
            "window_size": 56,
            "fullatt_block_indexes": [1],
            "out_hidden_size": 64,
            "in_channels": 3,
        },
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=False,
    )


def build(folder: Path) -> None:
    """Write weights, tokenizer and processor files into the folder."""
    words = tokenizer()
    ids = {token: words.convert_tokens_to_ids(token) for token in SPECIAL_TOKENS}
    torch.manual_seed(SEED)
    Qwen2_5_VLForConditionalGeneration(config(ids)).to(torch.float32).save_pretrained(folder)
    images = Qwen2VLImageProcessor(
        patch_size=PATCH,
        merge_size=MERGE,
        temporal_patch_size=2,
        min_pixels=MIN_IMAGE_TOKENS * IMAGE_TOKEN_PIXELS,
        max_pixels=MAX_IMAGE_TOKENS * IMAGE_TOKEN_PIXELS,
    )
    images.save_pretrained(folder)  # preprocessor_config.json, which published checkpoints have
    Qwen2_5_VLProcessor(
        image_processor=images,
        video_processor=Qwen2VLVideoProcessor(patch_size=PATCH, merge_size=MERGE, temporal_patch_size=2),
        tokenizer=words,
        chat_template=words.chat_template,
    ).save_pretrained(folder)


if __name__ == "__main__":
    build(Path(sys.argv[1]))
