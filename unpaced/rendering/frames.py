"""Messages between server and template process: four bytes of length, little-endian, then JSON."""

import struct
from typing import BinaryIO, Final

CPU_LIMIT_S: Final = 1.0
"""CPU time for one answer."""
LENGTH: Final = struct.Struct("<I")


def read_frame(stream: BinaryIO) -> bytes | None:
    """One message; None at the end of the stream."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    return stream.read(*LENGTH.unpack(head))


def write_frame(stream: BinaryIO, data: bytes) -> None:
    """One message."""
    stream.write(LENGTH.pack(len(data)) + data)
    stream.flush()
