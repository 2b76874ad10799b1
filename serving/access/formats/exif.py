"""The one Exif field that changes a picture: its orientation.

A reader of its own because general ones load every field of a directory, and a crafted directory of 65,535
fields that all point at the same megabytes stalls them. This one looks at 512 twelve-byte entries at most.
"""

import struct

_ORIENTATION = 0x0112
_SHORT = 3
_ENTRIES = 512


def orientation_of(tiff: bytes) -> int:
    """Orientation 1 to 8 from a TIFF block (what follows "Exif" and two zeros); 1 where it says nothing usable."""
    order = {b"II": "<", b"MM": ">"}.get(tiff[:2])
    if order is None:
        return 1
    try:
        (directory,) = struct.unpack_from(f"{order}I", tiff, 4)
        (count,) = struct.unpack_from(f"{order}H", tiff, directory)
        for index in range(min(count, _ENTRIES)):
            tag, kind, _, value = struct.unpack_from(f"{order}HHIH", tiff, directory + 2 + 12 * index)
            if tag == _ORIENTATION:
                return value if kind == _SHORT and 1 <= value <= 8 else 1
    except struct.error:
        return 1
    return 1
