"""From a parsed request to what the engines get: images prepared, tokens counted, and made lighter where that is what helps."""

from math import ceil

from serving.access.classify import classify
from serving.access.fit import fit
from serving.access.grid import ImageGrid
from serving.access.prepare import PreparedImages
from serving.affinity import key_of
from serving.chat import ChatRequest
from serving.engine_body import EngineBody, compose
from serving.parts import Parts
from serving.recording import Recording
from serving.result import Result
from serving.schedule.degrade import Allowed, Size, lighter
from serving.schedule.lease import Need
from toolkit.core.errors import NotFound, OutOfTime
from toolkit.core.sample import Degradation, Degraded

LEASE, LATE = "lease", "late"


class Packer:
    """Of one gateway."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def pack(self, recording: Recording, request: ChatRequest) -> EngineBody:
        """Raises InvalidRequest, TooLarge, NotFound, Busy and OutOfTime."""
        parts = self._parts
        check_model(request, parts.model)
        if parts.spending.left_s(recording, "body") <= 0:
            raise parts.spending.out(recording, "body")
        recording.parsed = parts.clock.monotonic()
        prepared = await self._prepare(recording, request)
        await self._count(recording, request, prepared)
        prepared = await self._fit(recording, request, prepared)
        prepared = await self._hurry(recording, request, prepared)
        return compose(
            request, [image.data_uri for image in prepared.images], recording.max_tokens, parts.model
        )

    async def _prepare(
        self, recording: Recording, request: ChatRequest, grid: ImageGrid | None = None
    ) -> PreparedImages:
        try:
            prepared = await self._parts.access.prepare(
                [slot.url for slot in request.images],
                self._parts.spending.by(recording, "prepare"),
                grid,
                keep=not recording.own,
            )
        except OutOfTime as error:
            raise self._parts.spending.out(recording, error.hop or "prepare") from error
        if self._parts.keep_result is not None and not recording.own:
            recording.result = Result(request, prepared.digests)
        recording.images = tuple(image.record for image in prepared.images)
        recording.fetched, recording.prepared = prepared.fetched_at, prepared.prepared_at
        return prepared

    async def _count(self, recording: Recording, request: ChatRequest, prepared: PreparedImages) -> None:
        config = self._parts.config
        left_s = recording.deadline - self._parts.clock.monotonic()
        text = await self._parts.tokens.of(request.document, len(request.images), request.text_bytes, left_s)
        recording.text_tokens, recording.tokens_counted = text.tokens, text.exact
        recording.image_tokens = sum(image.record.tokens for image in prepared.images)
        sizes = [(image.record.width, image.record.height) for image in prepared.images]
        recording.workload_class = classify(sizes, recording.text_tokens, config.access.high_res_pixels)
        recording.max_tokens = request.max_tokens or config.default_max_tokens.of(recording.workload_class)
        recording.key = key_of(request, prepared.digests, recording.text_tokens)

    def lightens(self, recording: Recording) -> bool:
        """Whether the request's images, if it has any, may be made smaller."""
        section = self._parts.config.slo(recording.promise.slo_class)
        return section.degrade and Degradation.IMAGES in recording.promise.degrade and not recording.own

    def _allowed(self, recording: Recording, request: ChatRequest) -> Allowed:
        """What operator and client bear."""
        section, borne = self._parts.config.slo(recording.promise.slo_class), recording.promise.degrade
        least = section.degrade_max_tokens if Degradation.MAX_TOKENS in borne and not recording.own else 0
        return Allowed(
            image_share=section.degrade_floor if self.lightens(recording) else 1.0,
            answer=max(least, request.document.get("min_tokens") or 0) if least else 0,
        )

    async def _fit(
        self, recording: Recording, request: ChatRequest, prepared: PreparedImages
    ) -> PreparedImages:
        """Within the KV that one request may have: by smaller images, then by a lower max_tokens. Raises TooLarge."""
        leases = self._parts.admission.leases
        most = leases.most_each(recording.choices)
        if most is None or recording.need.each <= most:
            return prepared
        allowed = self._allowed(recording, request)
        fixed = recording.need.each - recording.image_tokens
        prepared = await self._smaller(recording, request, prepared, most - fixed, allowed, LEASE)
        room = most - recording.text_tokens - recording.image_tokens
        if 0 < allowed.answer <= room < recording.max_tokens:
            _shorten(recording, room, LEASE)
        leases.refuse_too_large(
            recording.need,
            estimated=not recording.tokens_counted,
            unasked=request.max_tokens is None,
            action=self._remedy(recording, prepared, allowed, max(0, most - fixed)),
        )
        return prepared

    def _remedy(self, recording: Recording, prepared: PreparedImages, allowed: Allowed, room: int) -> str:
        """What helps a request over the cap. room: tokens that text and answer leave for its images."""
        slo, borne = recording.promise.slo_class, recording.promise.degrade
        section = self._parts.config.slo(slo)
        less = ["less text", "a smaller max_tokens" + (" or n" if recording.choices > 1 else "")]
        if prepared.images:
            less.insert(0, "fewer or smaller images")
        told = [f"Send {', '.join(less[:-1])} or {less[-1]}: the message has the arithmetic."]
        able = "The operator can raise lease.cap."
        if prepared.images and not section.degrade:
            able = f"The operator can raise lease.cap, or set {slo.value}.degrade so that images are made smaller."
        elif prepared.images and Degradation.IMAGES not in borne:
            told.append("Your x-toolkit-degrade forbids smaller images.")
        elif prepared.images:
            tokens = [image.record.tokens for image in prepared.images]
            least = sum(ceil(allowed.image_share * one) for one in tokens)
            told.append(
                f"The images could shrink from {sum(tokens)} to {least} tokens at least ({slo.value}.degrade_floor;"
                f" the model's own least size may be more), and there is room for {room}."
            )
        if section.degrade_max_tokens and Degradation.MAX_TOKENS not in borne:
            told.append("Your x-toolkit-degrade forbids a lower max_tokens.")
        return " ".join([*told, able])

    async def _hurry(
        self, recording: Recording, request: ChatRequest, prepared: PreparedImages
    ) -> PreparedImages:
        """In time for its first token, where giving something up makes it so."""
        parts, allowed = self._parts, self._allowed(recording, request)
        if allowed == Allowed():
            return prepared
        admission, now = parts.admission, parts.clock.monotonic()

        def outlook(size: Size) -> float:
            each = size.prompt + size.answer
            need = Need(each, recording.choices, size.prompt)
            tokens = size.prompt + size.answer * recording.choices
            return admission.outlook_s(
                recording.request_id, recording.workload_class, tokens, parts.clock.monotonic(), need
            )

        asked = Size(recording.text_tokens, recording.image_tokens, recording.max_tokens)
        remake_s = prepared.prepared_at - (recording.body_read or now)
        chosen = lighter(asked, recording.deadline - now, allowed, outlook, remake_s)
        if chosen is None or chosen == asked:
            return prepared
        if chosen.images < asked.images:
            prepared = await self._smaller(recording, request, prepared, chosen.images, allowed, LATE)
        if chosen.answer < asked.answer:
            _shorten(recording, chosen.answer, LATE)
        return prepared

    async def _smaller(
        self,
        recording: Recording,
        request: ChatRequest,
        prepared: PreparedImages,
        most: int,
        allowed: Allowed,
        why: str,
    ) -> PreparedImages:
        """The images in so many tokens at most; as they are where that is not allowed or cannot be."""
        before = recording.image_tokens
        if allowed.image_share == 1.0 or not before or most < 1:
            return prepared
        sizes = [(image.record.width, image.record.height) for image in prepared.images]
        grid = fit(self._parts.access.grid, sizes, most, allowed.image_share)
        if grid is None or grid == self._parts.access.grid:
            return prepared
        prepared = await self._prepare(recording, request, grid)
        recording.image_tokens = sum(image.record.tokens for image in prepared.images)
        recording.degraded.append(Degraded(Degradation.IMAGES, why, before, recording.image_tokens))
        return prepared


def check_model(request: ChatRequest, model: str) -> None:
    """Raises NotFound where the request asks for another."""
    if request.model not in ("", model):
        raise NotFound(
            f"The model {request.model!r:.100} is not served here; this gateway serves {model!r}.",
            param="model",
            action="Use a model of GET /v1/models, or leave the field out.",
        )


def _shorten(recording: Recording, most: int, why: str) -> None:
    recording.degraded.append(Degraded(Degradation.MAX_TOKENS, why, recording.max_tokens, most))
    recording.max_tokens = most
