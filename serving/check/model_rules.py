"""What the served model makes of images, and what SGLang makes of the model."""

import json
from collections.abc import Iterator
from typing import Any

from serving.access.budget import budget_of
from serving.check.facts import Engine, Facts
from serving.check.fix import Drop, Put, Set, Shell
from serving.check.rule import Needs, Rule, Severity, Source, Trouble
from serving.config import MB

BACKEND, MEMORY = "--image-processor-backend", "--mem-fraction-static"
QUANTIZATION, IGNORED = "--quantization", "SGLANG_FP8_IGNORED_LAYERS"
ONLINE_FP8 = ("fp8", "mxfp8")
QUANTIZED_TOWERS = {"qwen2_vl": "visual", "qwen2_5_vl": "visual"}
"""model_type -> the vision tower that SGLang builds with the model's quantization (models/qwen2_vl.py, qwen2_5_vl.py)."""
ENCODER, LANGUAGE, ENCODER_CACHE = "--encoder-only", "--language-only", "--enable-prefix-mm-cache"
BLIND = "--language-model-only"
MODE, LIMIT, PROCESS = "--disaggregation-mode", "--limit-mm-data-per-request", "--mm-process-config"
CONTEXT = "--context-length"
ENCODABLE = frozenset(
    {
        "Qwen2VLForConditionalGeneration",
        "Qwen3VLForConditionalGeneration",
        "Qwen2_5_VLForConditionalGeneration",
        "Qwen3VLMoeForConditionalGeneration",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForConditionalGeneration",
        "InternS2PreviewForConditionalGeneration",
        "Qwen3OmniMoeForConditionalGeneration",
        "Qwen2AudioForConditionalGeneration",
        "Qwen2_5OmniForConditionalGeneration",
        "Dots3NoteForCausalLM",
        "KimiVLForConditionalGeneration",
        "KimiK25ForConditionalGeneration",
        "KimiK3ForConditionalGeneration",
        "MiMoV2ForCausalLM",
        "Glm5NextForConditionalGeneration",
        "MiniMaxM3SparseForConditionalGeneration",
        "MuseSparkForConditionalGeneration",
    }
)
"""Architectures that SGLang 0.5.23 serves with an encoder of its own (pd_disaggregation_hook.py); a test compares them."""
BYTES_PER_PIXEL = 4
"""Of a picture handed over without loss: 3 bytes, in base64."""
TEXT_ROOM = 2048
"""Tokens kept for the question and the answer."""


def _tiles(facts: Facts) -> Iterator[Trouble]:
    if facts.grid is None or facts.grid.family != "internvl_chat":
        return
    tokens, short = facts.grid.tokens(336, 336), facts.config.schedule.short_tokens
    if short < tokens:
        told = f"a picture of 336x336 takes {tokens} tokens, as one of 1344x1344 does, and up to {short} is short"
        yield Trouble("schedule.short_tokens", told, Set("schedule.short_tokens", tokens + TEXT_ROOM // 2))


def _processor(facts: Facts) -> Iterator[Trouble]:
    if not facts.sees or (facts.grid is not None and facts.grid.family == "internvl_chat"):
        return
    for engine in facts.of("decode"):
        if engine.kind == "gpu" and engine.value(BACKEND) != "pil" and not engine.has(MEMORY):
            told = "images are processed on the GPU, in memory that nothing was kept for"
            yield Trouble(engine.name, told, Put(BACKEND, ("pil",), role="decode"))


def _tower(facts: Facts) -> Iterator[Trouble]:
    tower = QUANTIZED_TOWERS.get(str(facts.model.get("model_type", "")))
    if tower is None or "quantization_config" in facts.model:
        return
    for engine in facts.ours:
        ignored = [layer.strip() for layer in engine.environment.get(IGNORED, "").split(",")]
        if engine.value(QUANTIZATION) in ONLINE_FP8 and tower not in ignored:
            told = f"{QUANTIZATION} {engine.value(QUANTIZATION)} also quantizes the vision tower"
            layers = ",".join([*filter(None, ignored), tower])
            yield Trouble(engine.name, told, Shell(f"export {IGNORED}={layers}"))


def _encoder(facts: Facts) -> Iterator[Trouble]:
    architecture = next(iter(facts.model.get("architectures") or ()), "")
    for engine in facts.real:
        asked = [flag for flag in (ENCODER, LANGUAGE) if engine.has(flag)]
        if asked and architecture and architecture not in ENCODABLE:
            told = f"{asked[0]}: SGLang has no separate encoder for {architecture}"
            yield Trouble(
                engine.name,
                told,
                Drop(
                    (
                        ENCODER,
                        LANGUAGE,
                        ENCODER_CACHE,
                    )
                ),
            )


def _encoder_role(facts: Facts) -> Iterator[Trouble]:
    for engine in facts.real:
        for flag in (ENCODER, ENCODER_CACHE):
            if engine.has(flag):
                yield Trouble(engine.name, f"{flag} on a {engine.role} engine", Drop((flag,)))


def _blind(facts: Facts) -> Iterator[Trouble]:
    for engine in facts.real:
        if facts.sees and engine.has(BLIND):
            yield Trouble(engine.name, f"{BLIND}, and the gateway takes images", Drop((BLIND,)))


def _image_limit(facts: Facts) -> Iterator[Trouble]:
    most = facts.config.access.max_images
    for engine in facts.real:
        limit = _json(engine, LIMIT).get("image")
        if isinstance(limit, int) and limit < most:
            told = f"{LIMIT}: {limit} images, and the gateway takes {most}"
            yield Trouble(engine.name, told, Set("access.max_images", limit))


def _process(facts: Facts) -> Iterator[Trouble]:
    for engine in facts.real:
        if _json(engine, PROCESS).get("image"):
            told = f"{PROCESS} changes the image sizes that the model's files state"
            yield Trouble(engine.name, told, Drop((PROCESS,)))


def _context(facts: Facts) -> Iterator[Trouble]:
    most, tokens = facts.config.access.max_images, facts.largest_tokens
    contexts = [int(found) for engine in facts.real if (found := engine.number(CONTEXT))]
    context = min(contexts, default=_context_of(facts.model))
    if context > TEXT_ROOM and most * tokens > context - TEXT_ROOM:
        fits = max(1, (context - TEXT_ROOM) // tokens)
        told = f"{most} images of up to {tokens} tokens, and a context of {context}"
        yield Trouble("access.max_images", told, Set("access.max_images", fits))


def _memory(facts: Facts) -> Iterator[Trouble]:
    access = facts.config.access
    if access.handover == "jpeg":
        return
    pixels = min(facts.largest_pixels, access.max_image_pixels)
    needed, bodies = access.max_images * pixels * BYTES_PER_PIXEL, budget_of(access).bodies
    if needed > bodies:
        memory_mb = -(-(needed * 16 // 5 + access.set_aside_bytes) // MB) + 1
        told = f"{access.max_images} images of {pixels / 1e6:.1f} MP are {needed // MB} MB for the engine; bodies have {bodies // MB} MB"
        yield Trouble("access.memory_mb", told, Set("access.memory_mb", memory_mb))


def _context_of(model: Any) -> int:
    text = model.get("text_config") or model.get("llm_config") or model
    found = text.get("max_position_embeddings") if isinstance(text, dict) else None
    return found if isinstance(found, int) else 0


def _json(engine: Engine, flag: str) -> dict[str, Any]:
    try:
        value = json.loads(" ".join(engine.flags.get(flag, ())))
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


RULES = (
    Rule(
        "internvl-tiles",
        Severity.WARNING,
        "InternVL: small pictures cost as much as large ones",
        "SGLang chooses the tiles by the shape alone, and of equal shapes the one with most tiles: a square takes 3x3 tiles and"
        " a thumbnail, ten times the tokens of the model's own code. The gateway counts as SGLang does, so no request with a"
        " picture is short. Clients that do not need the detail send `max_dynamic_patch`: 1; no flag of SGLang sets it.",
        (Source("srt/multimodal/processors/internvl.py:177", "blocks > best_blocks"),),
        _tiles,
        needs=Needs.MODEL,
    ),
    Rule(
        "image-processor-on-decode",
        Severity.WARNING,
        "a decode engine on a GPU that processes images there",
        "Decode fetches and processes every image too, on its GPU and outside --mem-fraction-static, and SGLang keeps the"
        " memory that it keeps for that on other engines only. Out of memory under image load is what follows. (Or give"
        " --mem-fraction-static for decode yourself.)",
        (
            Source("srt/arg_groups/memory_hook.py:287", 'cfg.disaggregation_mode != "decode"'),
            Source("srt/multimodal/processors/base_processor.py:802", "def _fast_image_processor_device"),
        ),
        _processor,
        flags=(BACKEND, MEMORY),
        needs=Needs.ENGINES,
    ),
    Rule(
        "fp8-vision-tower",
        Severity.WARNING,
        "online FP8 of Qwen2-VL or Qwen2.5-VL with its vision tower",
        "SGLang hands the quantization to the vision tower of these models, whose small layers lose by it; Qwen3-VL's and"
        " InternVL's are left alone, and so are checkpoints that say what to leave out.",
        (
            Source("srt/models/qwen2_5_vl.py:748", "quant_config=quant_config"),
            Source("srt/layers/quantization/fp8.py:289", "SGLANG_FP8_IGNORED_LAYERS"),
        ),
        _tower,
        flags=(QUANTIZATION,),
        variables=(IGNORED,),
        needs=Needs.MODEL,
    ),
    Rule(
        "encoder-unsupported",
        Severity.ERROR,
        "a separate encoder (EPD) for a model without support",
        "SGLang raises ValueError at the start; LLaVA and InternVL are among these.",
        (
            Source(
                "srt/arg_groups/pd_disaggregation_hook.py:352",
                "if (cfg.encoder_only or cfg.language_only) and model_arch not in [",
            ),
        ),
        _encoder,
        flags=(ENCODER, LANGUAGE),
        needs=Needs.MODEL,
    ),
    Rule(
        "encoder-in-a-role",
        Severity.ERROR,
        "an encoder that is a prefill or decode engine too",
        "SGLang refuses both at once; `toolkit serve` starts prefill and decode engines only.",
        (
            Source("srt/arg_groups/pd_disaggregation_hook.py:311", "cfg.encoder_only and not"),
            Source("srt/arg_groups/pd_disaggregation_hook.py:305", "cfg.enable_prefix_mm_cache and not"),
        ),
        _encoder_role,
        flags=(ENCODER, ENCODER_CACHE),
        needs=Needs.ENGINES,
    ),
    Rule(
        "engine-without-eyes",
        Severity.ERROR,
        "an engine that refuses images behind a gateway that takes them",
        "Every request with an image is prepared, and refused at the end.",
        (Source("srt/managers/tokenizer_manager.py:1150", "language_model_only"),),
        _blind,
        flags=(BLIND,),
        needs=Needs.ENGINES,
    ),
    Rule(
        "image-limit-unlike",
        Severity.WARNING,
        "an engine that takes fewer images per request than the gateway",
        "Requests in between are downloaded, decoded and queued, and refused by the engine (400) at the end.",
        (Source("srt/managers/tokenizer_manager.py:1473", "limit_mm_data_per_request"),),
        _image_limit,
        flags=(LIMIT,),
        needs=Needs.ENGINES,
    ),
    Rule(
        "image-size-overridden",
        Severity.WARNING,
        "image sizes changed in the engine alone",
        "The gateway brings each image to the size that the model's files state and counts its tokens; an engine with other"
        " bounds resizes it once more and counts otherwise. Put the bounds into model.min_pixels and model.max_pixels: an"
        " engine leaves alone what is within its own.",
        (Source("srt/multimodal/processors/base_processor.py:303", "self.image_config"),),
        _process,
        flags=(PROCESS,),
        needs=Needs.ENGINES,
    ),
    Rule(
        "images-over-context",
        Severity.WARNING,
        "more image tokens in one request than the model's context holds",
        "The gateway takes the request, prepares every image, and the engine refuses it (400).",
        (Source("srt/arg_groups/fields/model.py:110", "context_length"),),
        _context,
        flags=(CONTEXT,),
        needs=Needs.MODEL,
    ),
    Rule(
        "images-over-memory",
        Severity.WARNING,
        "a request of the largest images that never fits into the gateway's memory",
        "Prepared pixels travel uncompressed in base64; a body that is larger than the part of access.memory_mb for bodies is"
        " refused (413) after its images were prepared.",
        (Source("serving/access/budget.py"),),
        _memory,
    ),
)
