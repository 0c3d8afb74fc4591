#!/usr/bin/python3
"""Writes the seeds of corpus/: requests as clients send them, and some that no client would."""
import pathlib
import struct
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "integration"))

from echo_fixture import (CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, RST, SETTINGS,  # noqa: E402
                          WINDOW, frame, header_block, message)

CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
REFLECT, TRAIN = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "/dps.v1.Training/Train"


def opened(stream, path, flags=0, **kwargs):
    return frame(HEADERS, END_HEADERS | flags, stream, header_block(path, **kwargs))


def sent(stream, body, flags=END_STREAM):
    return frame(DATA, flags, stream, body)


GREETING = frame(SETTINGS)
BATCH = message(b"\x12\x0b\x08\x01\x12\x07\x08\x04\x12\x01\x02\x1a\x00")
HTTP2 = {
    "check": GREETING + opened(1, CHECK) + sent(1, message(b"")),
    "check-unknown": GREETING + opened(1, CHECK) + sent(1, message(b"\x0a\x01x")),
    "watch-reset": GREETING + opened(1, WATCH) + sent(1, message(b"")) + frame(RST, 0, 1, struct.pack(">I", 8)),
    "list": GREETING + opened(1, REFLECT) + sent(1, message(b"\x3a\x00"), 0) + sent(1, b""),
    "symbol": GREETING + opened(1, REFLECT) + sent(1, message(b"\x22\x0edps.v1.Control")),
    "train": GREETING + opened(1, TRAIN) + sent(1, message(b"\x0a\x02\x08\x01") + BATCH * 3, 0) + sent(1, BATCH),
    "train-cut": GREETING + opened(1, TRAIN) + sent(1, BATCH[:7]),
    "compressed": GREETING + opened(1, TRAIN) + sent(1, message(b"x", compressed=1)),
    "too-large": GREETING + opened(1, CHECK) + sent(1, message(b"", length=0xffffffff)),
    "get": GREETING + opened(1, CHECK, END_STREAM, method="GET"),
    "json": GREETING + opened(1, CHECK, END_STREAM, content_type="application/json"),
    "timeout": GREETING + opened(1, TRAIN, extra=[("grpc-timeout", "1m")]) + sent(1, BATCH, 0),
    "bad-timeout": GREETING + opened(1, CHECK, END_STREAM, extra=[("grpc-timeout", "x")]),
    "continuation": GREETING + frame(HEADERS, 0, 1, header_block(CHECK)[:20])
    + frame(CONTINUATION, END_HEADERS, 1, header_block(CHECK)[20:]) + sent(1, message(b"")),
    "trailers": GREETING + opened(1, TRAIN) + frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\x00\x01x\x01y"),
    "ping": GREETING + frame(PING, payload=bytes(8)) * 5,
    "no-window": frame(SETTINGS, payload=struct.pack(">HI", 4, 0)) + opened(1, REFLECT)
    + sent(1, message(b"\x22\x0edps.v1.Control") * 3) + frame(WINDOW, 0, 1, struct.pack(">I", 5)),
    "data-without-headers": GREETING + sent(1, message(b"")),
    "interleaved": GREETING + opened(1, TRAIN) + opened(3, CHECK) + sent(1, BATCH[:5], 0) + sent(3, message(b""))
    + sent(1, BATCH[5:]),
    "resets": GREETING + b"".join(opened(n, CHECK) + frame(RST, 0, n, bytes(4)) for n in range(1, 41, 2)),
}
TENSOR = b"\x08\x01\x12\x02\x02\x03\x1a\x18" + bytes(24)
FRAMES = {
    "tensor": message(TENSOR),
    "short-data": message(TENSOR[:-4].replace(b"\x1a\x18", b"\x1a\x14")),
    "huge-dim": message(b"\x08\x01\x12\x0a" + b"\x80" * 9 + b"\x01" + b"\x1a\x00"),
    "overflow": message(b"\x08\x01\x12\x0a" + b"\x80\x80\x80\x80\x10" * 2),
    "nine-dims": message(b"\x08\x04\x12\x09" + b"\x01" * 9 + b"\x1a\x01\x07"),
    "batch": BATCH * 2,
    "spec": message(b"\x12\x03mlp\xaa\x01\x06\x0a\x01a\x12\x01b"),
    "empty": message(b""),
    "compressed": message(b"x", compressed=1),
    "too-large": message(b"x", length=1 << 30),
    "timeout": message(b"250m"),
    "text": message("grüß %".encode() + b"\xff\xed\xa0\x80"),
}


def main():
    for name, seeds, manners in (("http2", HTTP2, (0, 1, 3, 7)), ("tensor_frame", FRAMES, (0, 3))):
        folder = HERE / "corpus" / name
        folder.mkdir(parents=True, exist_ok=True)
        for seed, data in seeds.items():
            for manner in manners:
                (folder / f"{seed}-{manner}").write_bytes(bytes([manner]) + data)


main()
