"""Writes TFRecord files of two examples each: `python3 tfrecord.py FILE...`, for the book's shell blocks."""

import struct
import sys


def crc32c(data):
    """CRC-32C, bit by bit, masked as TFRecord files have it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def record(data):
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", crc32c(length)) + data + struct.pack("<I", crc32c(data))


# A tf.Example with one feature: label, the integer 7.
EXAMPLE = b"\n\x10\n\x0e\n\x05label\x12\x05\x1a\x03\n\x01\x07"

for path in sys.argv[1:]:
    with open(path, "wb") as file:
        file.write(record(EXAMPLE) * 2)
