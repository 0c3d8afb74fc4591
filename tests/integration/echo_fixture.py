"""echo_server, its stubs, and a client that writes HTTP/2 frames by hand."""
import contextlib
import ctypes
import ctypes.util
import functools
import importlib
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import types

import grpc

import harness
from harness import SCALE, wait_until

PROGRAM = harness.BUILD / "tests" / "echo_server"
HERE = pathlib.Path(__file__).resolve().parent
US = 1_000_000


@functools.lru_cache(maxsize=None)
def stubs():
    """Modules by grpc_tools.protoc: .echo, .health, .reflection, .reflection_alpha (messages) and
    the same with _grpc."""
    from grpc_tools import protoc
    out = tempfile.mkdtemp(prefix="echo-stubs-")
    root = harness.ROOT / "proto"
    # Python's package grpc is taken: the standard services get a folder of another name.
    moved = {"health": "grpc/health/v1/health.proto", "reflection": "grpc/reflection/v1/reflection.proto",
             "reflection_alpha": "grpc/reflection/v1alpha/reflection.proto"}
    try:
        shutil.copy(HERE / "echo.proto", out)
        for name, path in moved.items():
            shutil.copy(root / path, pathlib.Path(out, f"{name}.proto"))
        names = ["echo", *moved]
        status = protoc.main(["protoc", f"-I{out}", f"--python_out={out}", f"--grpc_python_out={out}",
                              *(f"{out}/{name}.proto" for name in names)])
        assert status == 0
        sys.path.insert(0, out)
        modules = {name: importlib.import_module(f"{name}_pb2") for name in names}
        modules.update({f"{name}_grpc": importlib.import_module(f"{name}_pb2_grpc") for name in names})
        return types.SimpleNamespace(**modules)
    finally:
        if out in sys.path:
            sys.path.remove(out)
        shutil.rmtree(out, ignore_errors=True)


class EchoServer:
    """A process of echo_server; limits as in ServerLimits."""

    def __init__(self, tcp=False, **limits):
        self.folder = tempfile.mkdtemp(prefix="echo-")
        address = "tcp:127.0.0.1:0" if tcp else f"unix:{self.folder}/socket"
        self.log = open(pathlib.Path(self.folder, "log"), "w+", encoding="utf-8")
        self.process = subprocess.Popen(
            [PROGRAM, address, *(f"{name}={value}" for name, value in limits.items())],
            stdout=subprocess.PIPE, stderr=self.log, text=True,
            env={**os.environ, **harness.sanitizer_environment()})
        line = self.process.stdout.readline().strip()
        assert line, self.output()
        self.target = line[4:] if tcp else line
        self.channels = []

    def channel(self, *options, **kwargs):
        channel = grpc.insecure_channel(
            self.target, options=[("grpc.use_local_subchannel_pool", 1), *options], **kwargs)
        self.channels.append(channel)
        return channel

    def echo(self, *options, **kwargs):
        return stubs().echo_grpc.EchoStub(self.channel(*options, **kwargs))

    def stats(self):
        channel = grpc.insecure_channel(self.target, options=[("grpc.use_local_subchannel_pool", 1)])
        with contextlib.closing(channel):
            stub = stubs().echo_grpc.EchoStub(channel)
            return stub.Stats(stubs().echo.StatsRequest(), timeout=30 * SCALE)

    def connect(self):
        if self.target.startswith("unix:"):
            raw = socket.socket(socket.AF_UNIX)
            raw.connect(self.target[5:])
        else:
            raw = socket.create_connection(self.target.rsplit(":", 1))
        raw.settimeout(30 * SCALE)
        return raw

    def output(self):
        self.log.seek(0)
        return self.log.read()

    def close(self):
        """Stops it; anything but a clean end is a failure."""
        for channel in self.channels:
            channel.close()
        self.process.terminate()
        try:
            status = self.process.wait(30 * SCALE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        output = self.output()
        self.process.stdout.close()
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        assert status == 0, f"echo_server ended with {status}:\n{output[-4000:]}"


def settles(server, **expected):
    """Waits until the server's counters are as expected."""
    def reached():
        stats = server.stats()
        return all(getattr(stats, name) == value for name, value in expected.items())
    wait_until(reached, 15, f"{expected}, have {server.stats()}")


# ---- HTTP/2 by hand -------------------------------------------------------------------------------

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST, SETTINGS, PING, GOAWAY, WINDOW, CONTINUATION = 0, 1, 2, 3, 4, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS = 1, 1, 4


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def message(body, compressed=0, length=None):
    return bytes([compressed]) + struct.pack(">I", len(body) if length is None else length) + body


def _integer(value):
    """HPACK's integer with a prefix of 7 bits."""
    if value < 127:
        return bytes([value])
    out, value = b"\x7f", value - 127
    while value >= 128:
        out, value = out + bytes([value % 128 + 128]), value // 128
    return out + bytes([value])


def header_block(path, method="POST", content_type="application/grpc", extra=()):
    """A header block: literal fields, no index, no Huffman."""
    fields = [(":method", method), (":scheme", "http"), (":path", path), (":authority", "localhost"),
              ("content-type", content_type), ("te", "trailers"), *extra]
    return b"".join(b"\x00" + b"".join(_integer(len(text.encode())) + text.encode() for text in field)
                    for field in fields)


class _Nv(ctypes.Structure):
    _fields_ = [("name", ctypes.POINTER(ctypes.c_uint8)), ("value", ctypes.POINTER(ctypes.c_uint8)),
                ("namelen", ctypes.c_size_t), ("valuelen", ctypes.c_size_t), ("flags", ctypes.c_uint8)]


class Inflater:
    """nghttp2's HPACK decoder."""

    def __init__(self):
        self.lib = ctypes.CDLL(ctypes.util.find_library("nghttp2") or "libnghttp2.so.14")
        self.lib.nghttp2_hd_inflate_hd2.restype = ctypes.c_ssize_t
        self.inflater = ctypes.c_void_p()
        assert self.lib.nghttp2_hd_inflate_new(ctypes.byref(self.inflater)) == 0

    def inflate(self, block):
        headers, at = {}, 0
        while True:
            nv, flags = _Nv(), ctypes.c_int(0)
            rest = block[at:]
            n = self.lib.nghttp2_hd_inflate_hd2(self.inflater, ctypes.byref(nv), ctypes.byref(flags),
                                                rest, ctypes.c_size_t(len(rest)), 1)
            assert n >= 0
            at += n
            if flags.value & 2:  # emitted
                headers[ctypes.string_at(nv.name, nv.namelen).decode()] = \
                    ctypes.string_at(nv.value, nv.valuelen).decode()
            if flags.value & 1 or (n == 0 and not flags.value):  # final
                self.lib.nghttp2_hd_inflate_end_headers(self.inflater)
                return headers

    def __del__(self):
        self.lib.nghttp2_hd_inflate_del(self.inflater)


class Raw:
    """A connection whose frames are written by hand; a thread reads what the server sends, unless
    reading is False."""

    def __init__(self, server, greet=True, reading=True, window=None):
        self.socket = server.connect()
        self.headers, self.data, self.resets, self.goaway = {}, {}, {}, None
        self.windows, self.pongs = {}, 0
        self.over, self.agreed = threading.Event(), threading.Event()
        self.sending = threading.Lock()
        self.inflater = Inflater()
        if greet:
            settings = struct.pack(">HI", 4, window) if window is not None else b""
            self.send(PREFACE + frame(SETTINGS, payload=settings))
        if reading:
            threading.Thread(target=self._read, daemon=True).start()
        if greet and reading:  # until then the server's windows are the protocol's small ones
            assert self.agreed.wait(15 * SCALE)

    def send(self, data):
        """False when the server has closed."""
        try:
            with self.sending:
                self.socket.sendall(data)
            return True
        except OSError:
            return False

    def open(self, stream, path, flags=0, **kwargs):
        return self.send(frame(HEADERS, END_HEADERS | flags, stream, header_block(path, **kwargs)))

    def status(self, stream, seconds=15):
        """(grpc-status, grpc-message) of a stream."""
        wait_until(lambda: "grpc-status" in self.headers.get(stream, {}) or self.over.is_set(), seconds,
                   f"the status of stream {stream}")
        headers = self.headers.get(stream, {})
        return int(headers.get("grpc-status", -1)), headers.get("grpc-message", "")

    def _exactly(self, size):
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data

    def _read(self):
        with contextlib.suppress(OSError, EOFError):
            while True:
                head = self._exactly(9)
                kind, stream = head[3], struct.unpack(">I", head[5:])[0]
                payload = self._exactly(int.from_bytes(head[:3], "big"))
                self._take(kind, head[4], stream, payload)
        self.over.set()

    def _take(self, kind, flags, stream, payload):
        if kind == HEADERS:
            self.headers.setdefault(stream, {}).update(self.inflater.inflate(payload))
        elif kind == DATA:
            self.data[stream] = self.data.get(stream, b"") + payload
        elif kind == RST:
            self.resets[stream] = struct.unpack(">I", payload)[0]
        elif kind == GOAWAY:
            self.goaway = struct.unpack(">I", payload[4:8])[0]
        elif kind == WINDOW:
            self.windows[stream] = self.windows.get(stream, 0) + struct.unpack(">I", payload)[0]
        elif kind == SETTINGS and not flags & ACK:
            self.send(frame(SETTINGS, ACK))
            self.agreed.set()
        elif kind == PING and flags & ACK:
            self.pongs += 1
        elif kind == PING:
            self.send(frame(PING, ACK, payload=payload))

    def is_closed(self, seconds=15):
        return self.over.wait(seconds * SCALE)

    def close(self):
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # the reading thread would keep a closed one open
        self.socket.close()
