"""What kind of image bytes are."""


def media_type(image: bytes) -> str:
    """By the first bytes: PNG, WebP, else JPEG."""
    if image.startswith(b"\x89PNG"):
        return "image/png"
    return "image/webp" if image[8:12] == b"WEBP" else "image/jpeg"
