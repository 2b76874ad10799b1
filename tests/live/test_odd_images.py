"""Odd and hostile images through the running service: each its stated answer, at a bounded cost."""

import pytest

from tests.live.test_serving import asking, data_uri
from tests.serving.access import pictures
from tests.serving.access.pictures import saved, with_orientation

pytestmark = pytest.mark.engine

HALF = 0.5


def cut(data: bytes, share: float = HALF) -> bytes:
    return data[: int(len(data) * share)]


def grey16() -> bytes:
    return pictures.png(64, 64, 16, 0, b"".join(b"\x00" + b"\x80\x00" * 64 for _ in range(64)))


REFUSED = {
    "truncated JPEG": (lambda: cut(saved(pictures.photo(), "JPEG")), 400, "image_invalid"),
    "truncated PNG": (lambda: cut(saved(pictures.photo(), "PNG")), 400, "image_invalid"),
    "truncated WebP": (lambda: cut(saved(pictures.photo(), "WEBP")), 400, "image_invalid"),
    "truncated GIF": (lambda: cut(saved(pictures.photo(), "GIF")), 400, "image_invalid"),
    "zero size": (lambda: pictures.png(0, 0, 8, 2, b""), 400, "image_invalid"),
    "HTML as .jpg": (lambda: b"<html><body>not a picture</body></html>" * 20, 400, "image_invalid"),
    "one byte": (lambda: b"x", 400, "image_invalid"),
    "WebP bomb of 34 bytes": (pictures.webp_bomb, 413, "image_too_large"),
    "PNG bomb of 169 MP": (pictures.png_bomb, 413, "image_too_large"),
    "scan bomb": (pictures.scan_bomb, 400, "image_invalid"),
    "GIF canvas": (lambda: pictures.gif_canvas(60_000, 60_000), 413, "image_too_large"),
    "PDF": (lambda: b"%PDF-1.7\n" + b"x" * 500, 400, "image_invalid"),
    "EPS": (lambda: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", 400, "image_invalid"),
    "SVG": (lambda: b"<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>", 400, "image_invalid"),
}

SERVED = {
    "CMYK JPEG": lambda: saved(pictures.photo().convert("CMYK"), "JPEG"),
    "palette with alpha": lambda: saved(pictures.photo().convert("RGBA").quantize(64), "PNG"),
    "16-bit grey": grey16,
    **{
        f"EXIF {n}": (lambda n=n: saved(pictures.arrow(), "JPEG", exif=with_orientation(n)))
        for n in range(1, 9)
    },
}

REFUSAL_CPU_S = 0.25
"""CPU seconds of the gateway for one refusal, request handling included; the bound on the check itself is 50 ms."""


@pytest.mark.parametrize("name", REFUSED)
def test_a_hostile_image_is_refused_for_little_cpu(running, name):
    """The answer is typed and the decoder never starts on it; the engines are not asked."""
    make, status, code = REFUSED[name]
    data = make()
    gateway = running.root_of("gateway")
    before, dispatched = sum(gateway.cpu_times()[:2]), running.metric("toolkit_leg_aborts_total")
    answer = running.chat(messages=asking(data_uri(data)), max_tokens=4)
    spent = sum(gateway.cpu_times()[:2]) - before

    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert spent < REFUSAL_CPU_S or name.startswith(
        "truncated"
    )  # half a picture is decoded as far as it goes
    assert running.metric("toolkit_leg_aborts_total") == dispatched


@pytest.mark.parametrize("name", SERVED)
def test_an_odd_but_whole_image_is_served(running, name):
    """What browsers show, the model sees."""
    answer = running.chat(
        messages=asking(data_uri(SERVED[name]())), max_tokens=4, headers={"x-slo-class": "batch"}
    )

    assert answer.status_code == 200, answer.text


def test_a_turned_photo_is_the_same_photo(running):
    """EXIF 6 of a turned picture gives the log-probabilities of the upright one."""
    upright = pictures.photo().resize((252, 168))
    turned = upright.rotate(90, expand=True)
    fields = {"max_tokens": 4, "temperature": 0, "logprobs": True}
    plain, by_exif = (
        running.chat(messages=asking(data_uri(data, "png")), **fields).json()["choices"][0]["logprobs"][
            "content"
        ]
        for data in (saved(upright, "PNG"), saved(turned, "PNG", exif=with_orientation(6)))
    )

    assert [t["logprob"] for t in plain] == pytest.approx([t["logprob"] for t in by_exif], abs=1e-4)
