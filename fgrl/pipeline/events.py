"""TensorBoard's event files, written without TensorBoard: a sequence of records, each a protocol buffer `Event` with checksums.

A record is its length (8 bytes), the masked CRC-32C of the length, the bytes, and the masked CRC-32C of the bytes
(https://github.com/tensorflow/tensorboard/blob/master/tensorboard/compat/proto/event.proto and TensorFlow's "TFRecords").
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path

_POLYNOMIAL = 0x82F63B78
_BYTES_FIRST, _VARINT, _DOUBLE, _FLOAT = 2, 0, 1, 5
"""Wire types of protocol buffers: length-delimited, variable-length integer, 64 bits, 32 bits."""


class EventFile:
    """Scalars in one `events.out.tfevents...` file, flushed after each call."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}.{time.monotonic_ns()}"
        self._file = (folder / name).open("xb")
        self._write(_field(3, _BYTES_FIRST, b"brain.Event:2"), time.time())

    def scalars(self, values: Mapping[str, float], step: int, when: float) -> None:
        """when: seconds since 1970."""
        summary = b"".join(
            _field(1, _BYTES_FIRST, _field(1, _BYTES_FIRST, tag.encode()) + _field(2, _FLOAT, struct.pack("<f", value)))
            for tag, value in values.items()
        )
        self._write(_field(2, _VARINT, _varint(step)) + _field(5, _BYTES_FIRST, summary), when)

    def close(self) -> None:
        self._file.close()

    def _write(self, content: bytes, when: float) -> None:
        event = _field(1, _DOUBLE, struct.pack("<d", when)) + content
        length = struct.pack("<Q", len(event))
        self._file.write(length + _masked(length) + event + _masked(event))
        self._file.flush()


def _field(number: int, kind: int, content: bytes) -> bytes:
    size = _varint(len(content)) if kind == _BYTES_FIRST else b""
    return _varint(number << 3 | kind) + size + content


def _varint(value: int) -> bytes:
    value &= 2**64 - 1  # a negative step as protocol buffers write it
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def _table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _table()


def _masked(content: bytes) -> bytes:
    """The CRC-32C (Castagnoli), rotated and shifted as TFRecords store it."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
