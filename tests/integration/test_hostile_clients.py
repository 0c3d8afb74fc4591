"""Peers that do not keep to the rules: raw HTTP/2 over sockets. Each gets the right status or is cut
off, and an honest client beside it notices nothing."""
import contextlib
import socket
import struct
import threading
import time

import grpc
import numpy
import pytest

import harness
from harness import CALL_S, to_tensor, wait_until

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST, SETTINGS, PING, GOAWAY, WINDOW = 0, 1, 3, 4, 6, 7, 8
END_STREAM, END_HEADERS, ACK = 1, 4, 1


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def text(value):
    raw = value.encode()
    assert len(raw) < 127
    return bytes([len(raw)]) + raw


def headers(method, extra=()):
    """A request's header block: literal fields without indexing, without Huffman."""
    fields = [(":method", "POST"), (":scheme", "http"), (":path", f"/dps.v1.{method}"), (":authority", "localhost"),
              ("content-type", "application/grpc"), ("te", "trailers"), *extra]
    return b"".join(b"\x00" + text(name) + text(value) for name, value in fields)


def message(body, compressed=0, length=None):
    return bytes([compressed]) + struct.pack(">I", len(body) if length is None else length) + body


class Raw:
    """One raw connection. Frames of the server are read by a thread."""

    def __init__(self, daemon, handshake=True, reading=True):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(CALL_S)
        self.socket.connect(str(daemon.socket))
        self.frames, self.closed = [], threading.Event()
        if handshake:
            self.send(PREFACE + frame(SETTINGS, 0, 0))
        if reading:
            threading.Thread(target=self.read, daemon=True).start()

    def send(self, data):
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the server has had enough already: what is read next says so

    def call(self, stream, method, body=b"", flags=END_STREAM, extra=()):
        self.send(frame(HEADERS, END_HEADERS, stream, headers(method, extra)))
        self.send(frame(DATA, flags, stream, body))

    def read(self):
        buffer = b""
        with contextlib.suppress(OSError):
            while data := self.socket.recv(65536):
                buffer += data
                while len(buffer) >= 9 and len(buffer) >= 9 + (length := int.from_bytes(buffer[:3], "big")):
                    self.frames.append((buffer[3], buffer[4], int.from_bytes(buffer[5:9], "big"), buffer[9:9 + length]))
                    if buffer[3] == SETTINGS and not buffer[4] & ACK:
                        self.send(frame(SETTINGS, ACK, 0))
                    buffer = buffer[9 + length:]
        self.closed.set()

    def ended(self, stream):
        """Whether the server has ended the stream (or the connection)."""
        return self.closed.is_set() or any(
            s == stream and (kind == RST or flags & END_STREAM) for kind, flags, s, _ in list(self.frames))

    def status(self, stream):
        """The grpc-status of a stream that has ended. nghttp2 sends it as a literal; a digit or two."""
        wait_until(lambda: self.ended(stream), 20, f"the end of stream {stream}")
        block = b"".join(payload for kind, _, s, payload in self.frames if kind == HEADERS and s == stream)
        return hpack_status(block)

    def close(self):
        self.socket.close()


def huffman_digits(raw):
    """Digits of HPACK's Huffman code: 0–2 have five bits (00000–00010), 3–9 six (011001–011111)."""
    bits = "".join(f"{byte:08b}" for byte in raw)
    codes = {**{f"{i:05b}": str(i) for i in range(3)}, **{f"{0b011001 + i:06b}": str(3 + i) for i in range(7)}}
    out = ""
    while bits and set(bits) != {"1"}:
        size = 5 if bits[:5] in codes else 6
        out += codes[bits[:size]]
        bits = bits[size:]
    return out


def hpack_status(block):
    """grpc-status out of a header block: after the name, plain or in Huffman code."""
    plain, coded = b"grpc-status", bytes.fromhex("9acac8b21234da8f")
    for name, at in ((plain, block.rfind(plain)), (coded, block.rfind(coded))):
        if at >= 0:
            size = block[at + len(name)]
            value = block[at + len(name) + 1:at + len(name) + 1 + (size & 0x7f)]
            return int(huffman_digits(value) if size & 0x80 else value)
    return None


@pytest.fixture
def raw(dpsd):
    made = []

    def connect(**kwargs):
        made.append(Raw(dpsd, **kwargs))
        return made[-1]

    yield connect
    for connection in made:
        connection.close()


@pytest.fixture
def honest(dpsd):
    """At the end of each test an honest client must be served at once."""
    yield
    start = time.monotonic()
    assert dpsd.info().version
    assert time.monotonic() - start < 2 * harness.SCALE


pytestmark = pytest.mark.usefixtures("honest")


def test_the_raw_client_itself_works(raw):
    connection = raw()
    connection.call(1, "Control/ServerInfo", message(b""))
    assert connection.status(1) == 0


def test_compressed_message(raw):
    connection = raw()
    connection.call(1, "Control/ServerInfo", message(b"\x1f\x8b", compressed=1))
    assert connection.status(1) in (12, 13)  # UNIMPLEMENTED, INTERNAL


def test_truncated_message(raw):
    connection = raw()
    connection.call(1, "Control/Get", message(b"\x08\x01", length=100))
    assert connection.status(1) in (3, 13)  # INVALID_ARGUMENT, INTERNAL


def test_truncated_length(raw):
    connection = raw()
    connection.call(1, "Control/Get", b"\x00\x00")
    assert connection.status(1) in (3, 13)


def test_no_message_at_all(raw):
    connection = raw()
    connection.call(1, "Control/Get", b"")
    assert connection.status(1) in (3, 12, 13)


def test_two_messages_on_a_unary_call(raw):
    connection = raw()
    connection.call(1, "Control/Get", message(b"\x08\x01") * 2)
    assert connection.status(1) in (3, 5, 12, 13)


def test_message_that_is_no_protobuf(raw):
    connection = raw()
    connection.call(1, "Control/Submit", message(b"\xff" * 50))
    assert connection.status(1) in (3, 13)


def test_length_of_four_gigabytes(dpsd, raw):
    connection = raw()
    before = dpsd.rss()
    connection.call(1, "Training/Forward", message(b"x", length=0xffffffff), flags=0)
    assert connection.status(1) == 8  # RESOURCE_EXHAUSTED
    assert dpsd.rss() - before < (64 << 20) * harness.SCALE


@pytest.mark.parametrize("method", ["Control/Nothing", "Nothing/Get", "Control", ""])
def test_unknown_method(raw, method):
    connection = raw()
    connection.call(1, method, message(b""))
    assert connection.status(1) == 12


def test_malformed_timeout(raw):
    connection = raw()
    connection.call(1, "Control/ServerInfo", message(b""), extra=[("grpc-timeout", "soon")])
    assert connection.status(1) in (0, 3, 13)


def test_timeout_that_has_passed(raw):
    connection = raw()
    connection.call(1, "Control/Watch", message(b"\x08\x01"), extra=[("grpc-timeout", "1n")])
    assert connection.status(1) in (4, 5)


def test_not_http2(raw):
    connection = raw(handshake=False)
    connection.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert connection.closed.wait(CALL_S), "the connection stays open"


def test_silence_before_the_handshake(raw):
    """Takes at most ServerLimits.handshake_us; here only that others are served meanwhile."""
    for _ in range(5):
        raw(handshake=False)


def test_a_byte_a_second(dpsd, raw):
    """A message that trickles in is held against message_us; nobody else waits for it."""
    connection = raw()
    connection.send(frame(HEADERS, END_HEADERS, 1, headers("Control/Get")))
    for byte in message(b"\x08\x01", length=50)[:3]:
        with contextlib.suppress(OSError):
            connection.send(frame(DATA, 0, 1, bytes([byte])))
        start = time.monotonic()
        dpsd.info()
        assert time.monotonic() - start < 1 * harness.SCALE
        time.sleep(1)


@pytest.mark.threads
def test_two_hundred_connections(dpsd, raw):
    connections = [raw() for _ in range(200)]
    for connection in connections:
        with contextlib.suppress(OSError):
            connection.call(1, "Control/ServerInfo", message(b""))
    answered = sum(connection.status(1) == 0 for connection in connections)
    assert answered == 200 or answered >= 100 and any(c.closed.is_set() for c in connections)


def test_many_streams_on_one_connection(dpsd, raw):
    connection = raw()
    with contextlib.suppress(OSError):
        for i in range(500):
            connection.call(2 * i + 1, "Control/ServerInfo", message(b""))
    wait_until(lambda: connection.closed.is_set() or all(connection.ended(2 * i + 1) for i in range(500)), 30,
               "500 streams to end")


def test_peer_dies_in_mid_message(dpsd, raw):
    for _ in range(20):
        connection = raw()
        connection.send(frame(HEADERS, END_HEADERS, 1, headers("Training/Forward")))
        connection.send(frame(DATA, 0, 1, message(b"x" * 1000, length=100000)))
        connection.close()
    wait_until(lambda: dpsd.info().connections <= 2, 20, "the dead connections to go")


def test_peer_dies_in_mid_frame(dpsd, raw):
    connection = raw()
    connection.send(frame(DATA, 0, 1, b"x" * 100)[:40])
    connection.close()
    wait_until(lambda: dpsd.info().connections <= 2, 20, "the dead connection to go")


@pytest.mark.threads
def test_client_that_stops_reading(dpsd, raw):
    """Asks for exports (5 MB each) and reads nothing: queues must not grow without bound."""
    job = dpsd.submit(steps=10)
    before = dpsd.rss()
    connection = raw(reading=False)
    connection.send(frame(WINDOW, 0, 0, struct.pack(">I", 0x7fff0000 - 65535)))
    request = message(bytes([8, job]))
    with contextlib.suppress(OSError):
        connection.socket.settimeout(5)
        for i in range(40):
            connection.call(2 * i + 1, "Control/Export", request)
    time.sleep(2)
    assert dpsd.rss() - before < (300 << 20) * harness.SCALE
    assert dpsd.get(job).id == job


def test_rapid_resets(dpsd, raw):
    """Open, reset, open, reset: nothing may pile up."""
    connection = raw()
    before = dpsd.rss()
    with contextlib.suppress(OSError):
        for i in range(2000):
            connection.send(frame(HEADERS, END_HEADERS, 2 * i + 1, headers("Control/Watch"))
                            + frame(RST, 0, 2 * i + 1, struct.pack(">I", 8)))
    time.sleep(0.5)
    assert dpsd.rss() - before < (64 << 20) * harness.SCALE


@pytest.mark.threads
def test_trainer_dies_between_forward_and_backward(dpsd):
    """As in the example's discussion: the others go on, the context goes with the session."""
    job = dpsd.submit(steps=10, interval=5)
    pb, grpc_stubs = harness.stubs().pb, harness.stubs().grpc
    for _ in range(5):
        channel = dpsd.new_channel()
        training = grpc_stubs.TrainingStub(channel)
        joined = wait_until(lambda t=training: try_join(t, job), 20, "a free rank")
        training.Forward(pb.ForwardRequest(session=joined.session, x=to_tensor(numpy.zeros((2, 1, 28, 28), "f4"))),
                         timeout=CALL_S)
        channel.close()
    wait_until(lambda: dpsd.info().sessions == 0, 20, "the sessions to end")


def try_join(training, job):
    try:
        return training.Join(harness.stubs().pb.JoinRequest(job=job, own_data=True), timeout=CALL_S)
    except grpc.RpcError:
        return None
