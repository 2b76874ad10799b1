"""Run by the engine's interpreter: how many prompt tokens SGLang makes of chat requests, without loading the model.

The argument is the folder of the shims for a machine without a GPU. Standard input: a list of {"folder", "requests"};
output: a list of as many lists, one number per request, null where SGLang refuses it.
"""

import asyncio
import json
import os
import sys
from array import array
from types import SimpleNamespace

os.environ["SGLANG_USE_CPU_ENGINE"] = "1"
sys.path.insert(0, sys.argv[1])
import torchvision_ops
import triton_stub

triton_stub.install(sys.path)
torchvision_ops.install()

from sglang.srt.configs.model_config import ModelConfig  # noqa: E402
from sglang.srt.entrypoints.openai.protocol import ChatCompletionRequest  # noqa: E402
from sglang.srt.entrypoints.openai.serving_chat import OpenAIServingChat  # noqa: E402
from sglang.srt.managers.multimodal_processor import get_mm_processor, import_processors  # noqa: E402
from sglang.srt.parser.template_manager import TemplateManager  # noqa: E402
from sglang.srt.runtime_context import publish  # noqa: E402
from sglang.srt.server_args import ServerArgs  # noqa: E402
from sglang.srt.utils.hf_transformers_utils import get_processor, get_tokenizer, get_tokenizer_from_processor  # noqa: E402


class Engine:
    """The parts of SGLang's front that make a prompt."""

    def __init__(self, folder: str) -> None:
        settings = ServerArgs(
            model_path=folder,
            device="cpu",
            attention_backend="torch_native",
            mm_attention_backend="sdpa",
            disable_overlap_schedule=True,
        )
        publish(settings, role="tokenizer")
        config = ModelConfig.from_server_args(settings)
        self.processor = self.images = None
        if config.is_multimodal:
            import_processors("sglang.srt.multimodal.processors")
            self.processor = get_processor(folder)
            self.tokenizer = get_tokenizer_from_processor(self.processor)
            self.images = get_mm_processor(config.hf_config, settings, self.processor, "default")
            inner = getattr(self.images, "inner", self.images)
            inner.cpu_executor = None  # images in this process, not in a pool of forks
        else:
            self.tokenizer = get_tokenizer(folder)
        manager = SimpleNamespace(
            model_config=config,
            tokenizer=self.tokenizer,
            processor=self.processor,
            server_args=settings,
            model_path=folder,
            served_model_name="model",
            config_value=lambda name: None,
            request_logger=SimpleNamespace(log_requests=False),
        )
        templates = TemplateManager()
        templates.load_chat_template(manager, None, folder)
        self.chat = OpenAIServingChat(manager, templates)

    async def count(self, document: dict[str, object]) -> int | None:
        """As tokenizer_manager.py:1096 `_tokenize_one_request` goes on with what the chat endpoint made."""
        try:
            request = ChatCompletionRequest(**document)
            refused = self.chat._validate_request(request)
            if refused:
                raise ValueError(refused)
            made, _ = self.chat._convert_to_internal_request(request, None)
            ids = made.input_ids
            if ids is None:
                ids = self.tokenizer([made.text])["input_ids"][0]
            if made.image_data:
                found = await self.images.process_mm_data_async(
                    image_data=made.image_data,
                    audio_data=None,
                    input_text=made.text or made.input_ids,
                    request_obj=made,
                    max_req_input_len=1 << 20,
                )
                ids = found.input_ids or self.padded(ids, found)
        except Exception as error:  # a server answers 400 or 500 for it
            print("refused:", str(error)[:200], file=sys.stderr)
            return None
        return len(ids)

    def padded(self, ids: list[int], found: object) -> list[int]:
        """LLaVA's scheduler puts the image tokens in (models/llava.py:78)."""
        from sglang.srt.models.llava import LlavaBaseForCausalLM

        vision = self.chat.tokenizer_manager.model_config.hf_config.vision_config
        side = vision.image_size // vision.patch_size
        model = SimpleNamespace(
            _infer_image_aspect_ratio=lambda items: "pad",
            image_feature_len=side * side,
            num_patches_per_side=side,
            image_size=vision.image_size,
            patch_size=vision.patch_size,
            config=self.chat.tokenizer_manager.model_config.hf_config,
        )
        for item in found.mm_items:
            item.pad_value = -1
        return list(
            LlavaBaseForCausalLM.pad_input_ids(
                model, array("q", ids), SimpleNamespace(mm_items=found.mm_items)
            )
        )


async def main() -> None:
    asked = json.load(sys.stdin)
    out = sys.stdout
    sys.stdout = sys.stderr
    counts = []
    for one in asked:
        engine = Engine(one["folder"])
        counts.append([await engine.count(document) for document in one["requests"]])
    json.dump(counts, out)
    out.flush()
    os._exit(0)  # its pools of processes have nothing left to do


if __name__ == "__main__":
    asyncio.run(main())
