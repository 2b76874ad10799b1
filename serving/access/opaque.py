"""Pictures as they look on white paper."""

from PIL import Image


def opaque(image: Image.Image) -> Image.Image:
    """The picture on white, 8 bits a channel: RGB, or L where it is grey."""
    if image.mode.startswith("I"):
        return _from_16_bit(image)
    if image.has_transparency_data:
        key = image.info.get("transparency")
        if isinstance(key, tuple) and max(key) > 255:
            # The colour key of a 16-bit file, whose pixels Pillow has cut to their upper 8 bits already.
            image.info["transparency"] = tuple(level >> 8 for level in key)
        over = image if image.mode in ("RGBA", "LA") else image.convert("RGBA")
        base = Image.new("RGB" if over.mode == "RGBA" else "L", over.size, "white")
        base.paste(over.convert(base.mode), mask=over.getchannel("A"))
        return base
    if image.mode == "1":
        return image.convert("L")
    return image if image.mode in ("RGB", "L") else image.convert("RGB")


def is_plain(image: Image.Image) -> bool:
    """Whether `opaque` would change nothing."""
    return image.mode in ("RGB", "L") and not image.has_transparency_data


def _from_16_bit(image: Image.Image) -> Image.Image:
    """Pillow's own conversion clips 16-bit grey at 255, which makes nearly every pixel white."""
    import numpy as np  # for this rare kind alone: importing it takes a sixth of the gateway's start

    levels = np.asarray(image)
    grey = (levels >> 8).astype(np.uint8)
    transparent = image.info.get("transparency")
    if isinstance(transparent, int):
        grey[levels == transparent] = 255
    return Image.fromarray(grey)
