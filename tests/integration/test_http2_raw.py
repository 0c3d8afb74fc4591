"""The gRPC server against clients that no library would be: frames written by hand to echo_server."""
import contextlib
import struct
import time

import pytest

from echo_fixture import (CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, PRIORITY, RST, SETTINGS, US,
                          WINDOW, EchoServer, Raw, frame, header_block, message, settles, stubs)
from harness import SCALE, wait_until

UNARY, COLLECT, CHUNKS = "/dps.test.Echo/Unary", "/dps.test.Echo/Collect", "/dps.test.Echo/Chunks"
CALM_DOWN, FLOW_CONTROL = 11, 3
INVALID_ARGUMENT, DEADLINE, EXHAUSTED, UNIMPLEMENTED = 3, 4, 8, 12
MIB = 1 << 20


@pytest.fixture(scope="module")
def server():
    made = EchoServer(tcp=True)
    yield made
    made.close()


@pytest.fixture(scope="module")
def hasty():
    """A server whose patience is short."""
    made = EchoServer(handshake_us=US, message_us=US, write_stall_us=US, resets=100, control_frames=500)
    yield made
    made.close()


@contextlib.contextmanager
def raw_client(server, **kwargs):
    raw = Raw(server, **kwargs)
    try:
        yield raw
    finally:
        raw.close()


def still_serves(server):
    reply = server.echo().Unary(stubs().echo.EchoRequest(text="still here"), timeout=30 * SCALE)
    assert reply.text == "still here"
    server.channels.pop().close()


def call(raw, body, path=UNARY, stream=1, **kwargs):
    """A whole request; its status."""
    raw.open(stream, path, **kwargs)
    raw.send(frame(DATA, END_STREAM, stream, body))
    return raw.status(stream)


# ---- requests that are none -----------------------------------------------------------------------


def test_by_hand_works_at_all(server):
    with raw_client(server) as raw:
        assert call(raw, message(b"\x0a\x01x")) == (0, "")
        assert raw.data[1].startswith(message(b"\x0a\x01x")[:1])
        assert raw.headers[1]["content-type"] == "application/grpc"


@pytest.mark.parametrize("kind", ["application/json", "application/grpc-web", "application/grpc+json", "text/html"])
def test_wrong_content_type_is_415(server, kind):
    with raw_client(server) as raw:
        raw.open(1, UNARY, END_STREAM, content_type=kind)
        wait_until(lambda: 1 in raw.headers, 15, "headers")
        assert raw.headers[1][":status"] == "415"


@pytest.mark.parametrize("kind", ["application/grpc", "application/grpc+proto", "application/grpc;charset=utf-8",
                                  "Application/GRPC"])
def test_right_content_types(server, kind):
    with raw_client(server) as raw:
        assert call(raw, message(b""), content_type=kind)[0] == 0


def test_other_method_than_post_is_405(server):
    with raw_client(server) as raw:
        raw.open(1, UNARY, END_STREAM, method="GET")
        wait_until(lambda: 1 in raw.headers, 15, "headers")
        assert raw.headers[1][":status"] == "405"
        assert raw.headers[1]["allow"] == "POST"


@pytest.mark.parametrize("timeout", ["1", "S", "-1S", "123456789S", "1 S", "1s"])
def test_malformed_timeout_is_named(server, timeout):
    with raw_client(server) as raw:
        status, sentence = call(raw, message(b""), extra=[("grpc-timeout", timeout)])
        assert status == INVALID_ARGUMENT and "grpc-timeout" in sentence


def test_timeout_of_nothing_has_passed(server):
    with raw_client(server) as raw:
        raw.open(1, COLLECT, extra=[("grpc-timeout", "0n")])
        assert raw.status(1)[0] == DEADLINE


def test_compressed_frame_says_what_is_taken(server):
    with raw_client(server) as raw:
        status, sentence = call(raw, message(b"\x0a\x01x", compressed=1))
        assert status == UNIMPLEMENTED and "compressed" in sentence
        assert raw.headers[1]["grpc-accept-encoding"] == "identity"


@pytest.mark.parametrize("path", [UNARY, COLLECT])
@pytest.mark.parametrize("cut", [1, 4, 6])
def test_request_that_ends_within_a_message(server, path, cut):
    with raw_client(server) as raw:
        status, sentence = call(raw, message(b"\x0a\x01x")[:cut], path)
        assert status == INVALID_ARGUMENT and path in sentence


def test_request_without_a_message(server):
    with raw_client(server) as raw:
        assert call(raw, b"")[0] == INVALID_ARGUMENT


def test_unary_request_of_two_messages(server):
    with raw_client(server) as raw:
        assert call(raw, message(b"") * 2)[0] == INVALID_ARGUMENT


def test_declared_length_is_not_believed(server):
    before = server.stats().rss_bytes
    with raw_client(server) as raw:
        for stream in range(1, 101, 2):  # 60 MiB each, by their own word
            raw.open(stream, UNARY)
            raw.send(frame(DATA, 0, stream, message(b"x", length=60 * MIB)))
        status, sentence = call(raw, message(b"", length=0xffffffff), stream=201)
        assert status == EXHAUSTED and "4294967295" in sentence
        assert server.stats().rss_bytes - before < 50 * MIB


def test_large_headers_are_refused(server):
    with raw_client(server) as raw:
        raw.open(1, UNARY, END_STREAM, extra=[(f"x-{n}", "y" * 1000) for n in range(15)])
        assert raw.status(1)[0] != 0  # taken as they are, or refused: nothing breaks
        block = header_block(UNARY, extra=[(f"x-{n}", "y" * 1000) for n in range(20)])
        raw.send(frame(HEADERS, 0, 3, block[:16_000]) + frame(CONTINUATION, END_HEADERS, 3, block[16_000:]))
        raw.send(frame(DATA, END_STREAM, 3, message(b"")))
        status, sentence = raw.status(3)
        assert status == EXHAUSTED and "16384" in sentence
    still_serves(server)


# ---- flow control ---------------------------------------------------------------------------------


def test_slow_streams_keep_their_windows_and_the_connection_gets_its_back(server):
    body = message(b"\x28\x01" + b"\x12\xf0\x3f" + bytes(8176))  # never, data
    slow = range(1, 41, 2)
    with raw_client(server) as raw:
        for stream in slow:  # together more than the connection's window
            raw.open(stream, COLLECT)
            for _ in range(MIB // len(body)):
                raw.send(frame(DATA, 0, stream, body))
        wait_until(lambda: raw.windows.get(0, 0) > 24 * MIB, 15, "the connection's window")
        assert max(raw.windows.get(stream, 0) for stream in slow) < 2 * len(body), "a slow stream's window came back"
        assert call(raw, message(b""), stream=101)[0] == 0
    settles(server, open_calls=0)


def test_client_that_ignores_the_window_loses_the_stream(server):
    with raw_client(server) as raw:
        raw.open(1, COLLECT)
        raw.send(frame(DATA, 0, 1, message(b"\x28\x01")))
        for _ in range(80):
            raw.send(frame(DATA, 0, 1, message(bytes(16_000), length=100 * MIB)[:16_000]))
        wait_until(lambda: 1 in raw.resets or raw.over.is_set() or 1 in raw.headers, 15, "the stream's end")
    settles(server, open_calls=0)
    still_serves(server)


def test_client_without_a_window_is_given_up(hasty):
    with raw_client(hasty, window=0) as raw:
        raw.open(1, CHUNKS)
        raw.send(frame(DATA, END_STREAM, 1, message(b"\x08\x64\x10\xe8\x07")))  # 100 of 1000 bytes
        wait_until(lambda: 1 in raw.resets, 15, "the reset")
        assert raw.resets[1] == CALM_DOWN
        assert not raw.over.is_set()
    settles(hasty, open_calls=0)


def test_client_that_reads_no_socket_is_closed(hasty):
    before = hasty.stats().disconnected
    with raw_client(hasty, reading=False, window=0x7fffffff) as raw:
        raw.send(frame(WINDOW, 0, 0, struct.pack(">I", 0x7fff0000)))
        raw.open(1, CHUNKS)
        raw.send(frame(DATA, END_STREAM, 1, message(b"\x08\x90\x4e\x10\x80\x80\x40")))  # 10000 of 1 MiB
        settles(hasty, open_calls=1)
        wait_until(lambda: hasty.stats().open_calls == 0, 15, "the connection to be closed")
        assert hasty.stats().disconnected > before
    still_serves(hasty)


# ---- slow clients ---------------------------------------------------------------------------------


def trickle(raw, data, pause=0.25):
    """A byte now and then, until the server has had enough."""
    for byte in data:
        if raw.over.is_set() or not raw.send(bytes([byte])):
            return
        time.sleep(pause)


def test_silent_client_is_closed(hasty):
    with raw_client(hasty, greet=False) as raw:
        assert raw.is_closed()


def test_greeting_a_byte_at_a_time_is_closed(hasty):
    with raw_client(hasty, greet=False) as raw:
        trickle(raw, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" * 3)
        assert raw.is_closed()


@pytest.mark.parametrize("path", [UNARY, COLLECT])
def test_message_a_byte_at_a_time_is_ended(hasty, path):
    with raw_client(hasty) as raw:
        raw.open(1, path)
        for byte in message(bytes(40)):
            raw.send(frame(DATA, 0, 1, bytes([byte])))
            time.sleep(0.25)
            if "grpc-status" in raw.headers.get(1, {}):
                break
        status, sentence = raw.status(1)
        assert status == DEADLINE and path in sentence
        assert not raw.over.is_set()


def test_frame_a_byte_at_a_time_is_closed(hasty):
    with raw_client(hasty) as raw:
        time.sleep(0.2)
        trickle(raw, frame(PING, payload=bytes(8)) * 4, pause=0.6)
        assert raw.is_closed()


def test_endless_headers_are_closed(hasty):
    with raw_client(hasty) as raw:
        raw.send(frame(HEADERS, 0, 1, header_block(UNARY)))
        for _ in range(60):
            if not raw.send(frame(CONTINUATION, 0, 1, b"")) or raw.over.is_set():
                break
            time.sleep(0.25)
        assert raw.is_closed(1)


def test_quiet_stream_is_no_slow_client(hasty):
    with raw_client(hasty) as raw:
        raw.open(1, COLLECT)
        raw.send(frame(DATA, 0, 1, message(b"")))
        time.sleep(3)
        raw.send(frame(DATA, END_STREAM, 1, message(b"")))
        assert raw.status(1)[0] == 0


def test_client_that_answers_no_ping_is_closed():
    server = EchoServer(keepalive_us=US // 2, write_stall_us=US)
    try:
        with raw_client(server, reading=False) as raw:
            wait_until(lambda: server.stats().disconnected > 3 and "answers no PING" in server.output(), 20,
                       "the connection to be closed")
            assert raw
    finally:
        server.close()


# ---- deaths ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [UNARY, COLLECT])
def test_client_that_dies_in_the_middle_of_a_message(server, path):
    for cut in range(1, 30, 7):
        with raw_client(server) as raw:
            raw.open(1, path)
            raw.send(frame(DATA, 0, 1, message(bytes(1000)))[:9 + cut])
    settles(server, open_calls=0, connections=1)
    still_serves(server)


def test_client_that_dies_in_the_middle_of_headers(server):
    with raw_client(server) as raw:
        raw.send(frame(HEADERS, END_HEADERS, 1, header_block(UNARY))[:30])
    settles(server, open_calls=0, connections=1)


def test_other_protocols_are_closed(server):
    for greeting in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", bytes(1000)):
        with raw_client(server, greet=False) as raw:
            raw.send(greeting)
            assert raw.is_closed()
    still_serves(server)


# ---- floods ---------------------------------------------------------------------------------------


def flood(server, frames, first=b""):
    """Sends until the server closes; the GOAWAY's code."""
    with raw_client(server) as raw:
        raw.send(first)
        for piece in frames:
            if not raw.send(piece) or raw.over.is_set():
                break
        assert raw.is_closed(), "the flood was borne"
        still_serves(server)
        return raw.goaway


def test_rapid_reset(hasty):
    block = header_block(UNARY)
    frames = (frame(HEADERS, END_HEADERS, stream, block) + frame(RST, 0, stream, struct.pack(">I", 8))
              for stream in range(1, 4001, 2))
    assert flood(hasty, frames) == CALM_DOWN
    settles(hasty, open_calls=0)


@pytest.mark.parametrize("piece", [frame(PING, payload=bytes(8)), frame(SETTINGS),
                                   frame(PRIORITY, 0, 1, struct.pack(">IB", 3, 1))], ids=["ping", "settings", "priority"])
def test_flood_of_control_frames(hasty, piece):
    assert flood(hasty, (piece for _ in range(2000))) == CALM_DOWN


def test_flood_of_empty_data(hasty):
    first = frame(HEADERS, END_HEADERS, 1, header_block(COLLECT))
    assert flood(hasty, (frame(DATA, 0, 1) for _ in range(2000)), first) == CALM_DOWN


def test_flood_of_invalid_frames(hasty):
    block = header_block(UNARY)
    frames = (frame(HEADERS, END_HEADERS, stream, block) + frame(WINDOW, 0, stream, bytes(4))
              for stream in range(1, 4001, 2))
    flood(hasty, frames)


def test_some_pings_are_answered(hasty):
    with raw_client(hasty) as raw:
        for _ in range(50):
            raw.send(frame(PING, payload=bytes(8)))
        wait_until(lambda: raw.pongs == 50, 15, "the answers")
        assert call(raw, message(b""))[0] == 0
