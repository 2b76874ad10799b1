"""From URLs to pictures: all at once, each once, first error wins, always in time."""

import asyncio
import base64
from collections.abc import Awaitable, Callable
from hashlib import sha256
from io import BytesIO

import pytest
from PIL import Image

from serving.access.fetch import Fetched, Fetcher
from serving.access.grids import QwenGrid, TextGrid
from serving.access.picture import Task
from serving.access.prepare import Access
from serving.access.workers import DecodePool, LateError, Made
from serving.config import AccessConfig
from tests.serving.access import pictures
from tests.serving.access.pictures import saved
from toolkit.core.clock import SystemClock
from toolkit.core.errors import Busy, InvalidRequest, OutOfTime, ToolkitError

GRID = QwenGrid("qwen2_vl", 28, 56 * 56, 1280 * 28 * 28)
CLOCK = SystemClock()


class ScriptedFetcher(Fetcher):
    """Answers http URLs from a table; a Future in it is waited for. Data URIs are the real thing."""

    def __init__(self, config: AccessConfig, pool: DecodePool, pages: dict[str, object]) -> None:
        super().__init__(config, pool, CLOCK)
        self.pages = pages
        self.asked: list[str] = []
        self.given_up: list[str] = []

    async def fetch(
        self, url: str, deadline: float | None = None, held: Callable[[bytes], bool] = bool
    ) -> Fetched:
        if url.startswith("data:"):
            return await super().fetch(url, deadline)
        self.asked.append(url)
        page = self.pages[url]
        try:
            page = await page if isinstance(page, asyncio.Future) else page
        except asyncio.CancelledError:
            self.given_up.append(url)
            raise
        if isinstance(page, Exception):
            raise page
        assert isinstance(page, bytes)
        return Fetched(page, sha256(page).digest(), read="downloaded")


def run(
    scenario: Callable[[Access, ScriptedFetcher], Awaitable[None]],
    pages: dict[str, object] | None = None,
    grid: object = GRID,
    **config: object,
) -> None:
    async def main() -> None:
        limits = AccessConfig(**config)
        pool = DecodePool(limits, CLOCK)
        fetcher = ScriptedFetcher(limits, pool, pages if pages is not None else {})
        access = Access(limits, grid, fetcher, pool, CLOCK)
        await scenario(access, fetcher)
        await access.close()
        await access.close()

    asyncio.run(main())


def soon() -> float:
    return CLOCK.monotonic() + 30


def uri(data: bytes) -> str:
    return "data:image/any;base64," + base64.b64encode(data).decode()


def test_prepared_image_and_its_record() -> None:
    """A file of the processor's size travels; the record tells about the source, upright."""
    data = saved(pictures.photo(), "JPEG", exif=pictures.with_orientation(6))

    async def scenario(access: Access, fetcher: ScriptedFetcher) -> None:
        begun = CLOCK.monotonic()
        result = await access.prepare([uri(data)], soon())

        (image,) = result.images
        head, _, payload = image.data_uri.partition(",")
        with Image.open(BytesIO(base64.b64decode(payload))) as picture:
            assert (picture.format, picture.mode, picture.size) == ("PPM", "RGB", (420, 644))
        assert head == "data:image/ppm;base64"
        record = image.record
        assert (record.width, record.height, record.format, record.origin) == (427, 640, "jpeg", "data")
        assert (record.prepared_width, record.prepared_height, record.tokens) == (420, 644, 345)
        assert record.size_bytes == len(data)
        assert begun <= result.fetched_at <= result.prepared_at <= CLOCK.monotonic()

    run(scenario)


def test_order_is_kept_and_equal_urls_are_prepared_once() -> None:
    """The same URL twice in a request is one download and one decode."""
    pages = {"http://a/": saved(pictures.arrow(), "PNG"), "http://b/": saved(pictures.photo(), "GIF")}

    async def scenario(access: Access, fetcher: ScriptedFetcher) -> None:
        result = await access.prepare(["http://b/", "http://a/", "http://b/"], soon())

        assert [image.record.format for image in result.images] == ["gif", "png", "gif"]
        assert result.images[0] is result.images[2]
        assert sorted(fetcher.asked) == ["http://a/", "http://b/"]
        assert result.images[0].record.origin == "url"

    run(scenario, pages)


def test_no_images_is_no_work() -> None:
    """A text request passes straight through."""

    async def scenario(access: Access, fetcher: ScriptedFetcher) -> None:
        assert (await access.prepare([], CLOCK.monotonic() - 1)).images == ()

    run(scenario, grid=TextGrid())


def test_jpeg_handover() -> None:
    """Where configured, a JPEG travels instead."""

    async def scenario(access: Access, fetcher: ScriptedFetcher) -> None:
        (image,) = (await access.prepare([uri(saved(pictures.arrow(), "PNG"))], soon())).images
        assert image.data_uri.startswith("data:image/jpeg;base64,/9j/")

    run(scenario, handover="jpeg")


def test_first_error_names_the_image_and_ends_the_others() -> None:
    """Downloads that are still running are given up."""

    async def scenario(access: Access, fetcher: ScriptedFetcher) -> None:
        fetcher.pages["http://slow/"] = asyncio.get_running_loop().create_future()
        with pytest.raises(InvalidRequest, match=r"^image 2 of 3: ") as caught:
            await access.prepare(["http://slow/", uri(b"<html>"), "http://slow/"], soon())

        assert caught.value.code.code == "image_invalid"
        assert fetcher.given_up == ["http://slow/"]

    run(scenario, {})


def test_every_field_of_an_error_survives_the_naming() -> None:
    """Retry time and hop reach the caller."""
    busy = Busy("full.", retry_after_s=7)

    async def scenario(access: Access, fetcher: ScriptedFetcher) -> None:
        with pytest.raises(Busy, match=r"^image 1 of 1: full\.$") as caught:
            await access.prepare(["http://busy/"], soon())
        assert caught.value.retry_after_s == 7

    run(scenario, {"http://busy/": busy})


def test_too_many_images() -> None:
    """Refused before anything is fetched; the message has both numbers."""

    async def scenario(access: Access, fetcher: ScriptedFetcher) -> None:
        with pytest.raises(InvalidRequest, match=r"3 images.*2") as caught:
            await access.prepare(["http://a/"] * 3, soon())
        assert caught.value.code.code == "too_many_images"
        assert fetcher.asked == []

    run(scenario, max_images=2)


def test_text_model_refuses_images_unseen() -> None:
    """Nothing is fetched for a model without eyes."""

    async def scenario(access: Access, fetcher: ScriptedFetcher) -> None:
        with pytest.raises(InvalidRequest, match="text only"):
            await access.prepare(["http://a/"], soon())
        assert fetcher.asked == []

    run(scenario, grid=TextGrid())


def test_deadline_during_fetch_and_during_decode() -> None:
    """OutOfTime says which hop spent the time."""

    async def scenario(access: Access, fetcher: ScriptedFetcher) -> None:
        fetcher.pages["http://slow/"] = asyncio.get_running_loop().create_future()
        with pytest.raises(OutOfTime, match="image 1 of 1") as caught:
            await access.prepare(["http://slow/"], CLOCK.monotonic() + 0.02)
        assert caught.value.hop == "fetch"

        with pytest.raises(OutOfTime) as caught:
            await access.prepare([uri(saved(pictures.arrow(), "PNG"))], CLOCK.monotonic() - 1)
        assert caught.value.hop == "prepare"

    run(scenario, {})


def test_cancelled_request_gives_up_its_images() -> None:
    """A caller that leaves takes its downloads along."""

    async def scenario(access: Access, fetcher: ScriptedFetcher) -> None:
        fetcher.pages["http://slow/"] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(access.prepare(["http://slow/"], soon()))
        while not fetcher.asked:
            await asyncio.sleep(0)
        task.cancel()

        with pytest.raises(asyncio.CancelledError):
            await task
        assert fetcher.given_up == ["http://slow/"]

    run(scenario, {})


@pytest.mark.parametrize("make", [pictures.webp_bomb, pictures.scan_bomb, lambda: b"", lambda: b"%PDF-1.7"])
def test_bad_images_are_typed_errors(make: Callable[[], bytes]) -> None:
    """The whole path answers with a 4xx."""

    async def scenario(access: Access, fetcher: ScriptedFetcher) -> None:
        with pytest.raises(ToolkitError) as caught:
            await access.prepare([uri(make())], soon())
        assert caught.value.status in (400, 413)

    run(scenario)


def test_who_has_more_time_does_not_give_up_with_who_has_less() -> None:
    """Both ask for one image at once; it cannot be ready for the hurried one, who is told when to come back."""
    picture = uri(saved(pictures.photo(), "JPEG"))

    async def scenario(access: Access, fetcher: ScriptedFetcher) -> None:
        soon_at, later_at = CLOCK.monotonic() + 20, CLOCK.monotonic() + 60
        make = access._pool.make

        async def late(data: bytes, task: Task, deadline: float, begin: Callable[[], None]) -> Made:
            if deadline < later_at:
                raise LateError(7.0, deadline)
            return await make(data, task, deadline, begin)

        access._pool.make = late  # type: ignore[method-assign]
        hurried, patient = await asyncio.gather(
            access.prepare([picture], soon_at), access.prepare([picture], later_at), return_exceptions=True
        )
        assert isinstance(hurried, LateError)
        assert (hurried.status, hurried.retry_after_s) == (429, 7.0)
        assert not isinstance(patient, BaseException)
        assert patient.images[0].record.width == 640

    run(scenario, {})
