"""The gRPC server as a stock client sees it: grpcio against echo_server."""
import contextlib
import threading
import time

import grpc
import pytest

from echo_fixture import US, EchoServer, settles, stubs
from harness import SCALE, SANITIZER, wait_until

CALL_S = 60 * SCALE
MIB = 1 << 20


@contextlib.contextmanager
def echo_server(**kwargs):
    server = EchoServer(**kwargs)
    try:
        yield server
    finally:
        server.close()


@pytest.fixture(scope="module", params=["unix", "tcp"])
def server(request):
    with echo_server(tcp=request.param == "tcp") as made:
        yield made


@pytest.fixture(scope="module")
def pb():
    return stubs().echo


@contextlib.contextmanager
def fails(code):
    """The call in the block fails with that code; the yielded list gets the sentence."""
    sentence = []
    with pytest.raises(grpc.RpcError) as info:
        yield sentence
    assert info.value.code() == code, info.value
    sentence.append(info.value.details())


# ---- the four kinds of call ----------------------------------------------------------------------


def test_unary(server, pb):
    reply = server.echo().Unary(pb.EchoRequest(text="grüße", data=b"\0" * 100_000), timeout=CALL_S)
    assert reply.text == "grüße" and len(reply.data) == 100_000
    assert reply.peer.startswith("uid=" if server.target.startswith("unix:") else "tcp 127.0.0.1:")


def test_empty_message(server, pb):
    assert server.echo().Unary(pb.EchoRequest(), timeout=CALL_S).text == ""


def test_server_stream(server, pb):
    sizes = [len(reply.data) for reply in server.echo().Chunks(pb.ChunksRequest(count=50, size=MIB), timeout=CALL_S)]
    assert sizes == [MIB] * 50


def test_server_stream_without_a_message(server, pb):
    assert list(server.echo().Chunks(pb.ChunksRequest(), timeout=CALL_S)) == []


def test_client_stream(server, pb):
    reply = server.echo().Collect((pb.EchoRequest(data=bytes(n * 1000)) for n in range(100)), timeout=CALL_S)
    assert (reply.messages, reply.bytes) == (100, 4950 * 1000)


def test_client_stream_without_a_message(server, pb):
    assert server.echo().Collect(iter([]), timeout=CALL_S).messages == 0


def test_bidi_answers_while_the_client_still_sends(server, pb):
    asked, answered = threading.Semaphore(1), []

    def requests():
        for number in range(20):
            asked.acquire()  # only after the answer to the one before
            yield pb.EchoRequest(text=str(number))

    for reply in server.echo().Bidi(requests(), timeout=CALL_S):
        answered.append(reply.text)
        asked.release()
    assert answered == [str(number) for number in range(20)]


def test_many_calls_at_once_on_one_connection(server, pb):
    stub = server.echo()
    calls = [stub.Unary.future(pb.EchoRequest(text=str(n), delay_ms=n % 7), timeout=CALL_S) for n in range(500)]
    assert [call.result().text for call in calls] == [str(n) for n in range(500)]


def test_200_connections_at_once(server, pb):
    stubs_ = [server.echo() for _ in range(200)]
    calls = [stub.Unary.future(pb.EchoRequest(text=str(n), delay_ms=200, data=bytes(10_000)), timeout=CALL_S)
             for n, stub in enumerate(stubs_)]
    assert [call.result().text for call in calls] == [str(n) for n in range(200)]
    while server.channels:
        server.channels.pop().close()
    settles(server, connections=1, open_calls=0)


# ---- endings --------------------------------------------------------------------------------------


def test_deadline_ends_the_call_on_both_sides(server, pb):
    before = server.stats().cancelled
    with fails(grpc.StatusCode.DEADLINE_EXCEEDED):
        server.echo().Unary(pb.EchoRequest(never=True), timeout=0.2)
    settles(server, cancelled=before + 1, open_calls=0)


def test_deadline_ends_a_stream(server, pb):
    before = server.stats().cancelled
    with fails(grpc.StatusCode.DEADLINE_EXCEEDED):
        list(server.echo().Bidi(iter([pb.EchoRequest(text="a"), pb.EchoRequest(delay_ms=60_000)]), timeout=0.5))
    settles(server, cancelled=before + 1, open_calls=0)


def test_cancelled_call_is_told_to_the_handler(server, pb):
    before = server.stats().cancelled
    call = server.echo().Unary.future(pb.EchoRequest(never=True), timeout=CALL_S)
    settles(server, open_calls=1)
    call.cancel()
    settles(server, cancelled=before + 1, open_calls=0)


def test_closed_connection_cancels_its_calls(server, pb):
    before = server.stats()
    channel = server.channel()
    stub = stubs().echo_grpc.EchoStub(channel)
    calls = [stub.Unary.future(pb.EchoRequest(never=True), timeout=CALL_S) for _ in range(10)]
    settles(server, open_calls=10)
    channel.close()
    settles(server, cancelled=before.cancelled + 10, open_calls=0)
    assert all(call.done() for call in calls)
    assert server.stats().disconnected > before.disconnected


@pytest.mark.parametrize("number, code", [
    (22, grpc.StatusCode.INVALID_ARGUMENT), (2, grpc.StatusCode.NOT_FOUND),
    (116, grpc.StatusCode.FAILED_PRECONDITION), (12, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (13, grpc.StatusCode.PERMISSION_DENIED), (11, grpc.StatusCode.UNAVAILABLE),
    (5, grpc.StatusCode.INTERNAL)])
def test_errors_have_status_and_sentence(server, pb, number, code):
    with fails(code) as sentence:
        server.echo().Unary(pb.EchoRequest(fail_errno=number, text="100 % für Ärger\n"), timeout=CALL_S)
    assert sentence == ["100 % für Ärger\n"]


def test_stream_fails_in_the_middle(server, pb):
    replies = server.echo().Bidi(iter([pb.EchoRequest(text="a"), pb.EchoRequest(fail_errno=2, text="gone")]),
                                 timeout=CALL_S)
    assert next(replies).text == "a"
    with fails(grpc.StatusCode.NOT_FOUND) as sentence:
        next(replies)
    assert sentence == ["gone"]


# ---- bad requests ---------------------------------------------------------------------------------


def call_with_bytes(server, path, request):
    return server.channel().unary_unary(path)(request, timeout=CALL_S)


@pytest.mark.parametrize("path, words", [
    ("/dps.test.Echo/Nothing", "no method /dps.test.Echo/Nothing"),
    ("/no.such.Service/Call", "nor such a service"),
    ("/", "no method /")])
def test_unknown_method_is_named(server, path, words):
    with fails(grpc.StatusCode.UNIMPLEMENTED) as sentence:
        call_with_bytes(server, path, b"")
    assert words in sentence[0]


def test_undecodable_message_names_the_method(server):
    with fails(grpc.StatusCode.INVALID_ARGUMENT) as sentence:
        call_with_bytes(server, "/dps.test.Echo/Unary", b"\xff\xff\xff")
    assert "/dps.test.Echo/Unary" in sentence[0] and "dps.test.EchoRequest" in sentence[0]


def test_string_that_is_not_utf8_names_the_field(server):
    with fails(grpc.StatusCode.INVALID_ARGUMENT) as sentence:
        call_with_bytes(server, "/dps.test.Echo/Unary", b"\x0a\x02\xc3\x28")
    assert "text" in sentence[0]


def test_message_that_would_grow_out_of_proportion(server):
    with fails(grpc.StatusCode.RESOURCE_EXHAUSTED):
        call_with_bytes(server, "/dps.test.Echo/Unary", b"\x32\x00" * 1_000_000)


def test_compressed_message_is_unimplemented(server, pb):
    stub = server.echo(compression=grpc.Compression.Gzip)
    with fails(grpc.StatusCode.UNIMPLEMENTED) as sentence:
        stub.Unary(pb.EchoRequest(data=bytes(10_000)), timeout=CALL_S)
    assert "compressed" in sentence[0]


def test_message_over_the_limit_names_size_and_limit(pb):
    with echo_server(message_bytes=100_000) as server:
        stub = server.echo()
        with fails(grpc.StatusCode.RESOURCE_EXHAUSTED) as sentence:
            stub.Unary(pb.EchoRequest(data=bytes(200_000)), timeout=CALL_S)
        assert "200004" in sentence[0] and "100000" in sentence[0]
        with fails(grpc.StatusCode.RESOURCE_EXHAUSTED):
            list(stub.Bidi(iter([pb.EchoRequest(data=bytes(20 * MIB))]), timeout=CALL_S))
        assert len(stub.Unary(pb.EchoRequest(data=bytes(90_000)), timeout=CALL_S).data) == 90_000


def test_large_message_within_the_limit(server, pb):
    big = ("grpc.max_receive_message_length", 64 * MIB)
    assert len(server.echo(big).Unary(pb.EchoRequest(data=bytes(40 * MIB)), timeout=CALL_S).data) == 40 * MIB


# ---- flow control ---------------------------------------------------------------------------------


def test_slow_handler_holds_its_client_back_and_nobody_else(pb):
    with echo_server() as server:
        channel = server.channel()
        stub = stubs().echo_grpc.EchoStub(channel)
        pulled = []

        def requests():
            for number in range(200):
                pulled.append(number)
                yield pb.EchoRequest(data=bytes(MIB), never=True)

        stuck = stub.Collect.future(requests(), timeout=CALL_S)
        settles(server, messages=1)
        rss = server.stats().rss_bytes
        time.sleep(1)
        for _ in range(20):  # on the same connection
            assert len(stub.Unary(pb.EchoRequest(data=bytes(200_000)), timeout=CALL_S).data) == 200_000
        assert len(pulled) < 10, "the client was not held back"
        grown = server.stats().rss_bytes - rss
        # ASan keeps freed memory for a while: quarantine.
        assert grown < (8 if not SANITIZER else 200) * MIB, f"the server holds {grown} bytes more"
        stuck.cancel()
        settles(server, open_calls=0)


def test_slow_handler_gets_all_messages_in_the_end(server, pb):
    requests = (pb.EchoRequest(data=bytes(300_000), delay_ms=5) for _ in range(40))
    reply = server.echo().Collect(requests, timeout=CALL_S)
    assert (reply.messages, reply.bytes) == (40, 40 * 300_000)


def test_client_that_stops_reading_costs_bounded_memory_and_is_given_up(pb):
    with echo_server(write_stall_us=3 * US, send_queue_bytes=2 * MIB) as server:
        before = server.stats().rss_bytes
        replies = server.echo().Chunks(pb.ChunksRequest(count=2000, size=MIB), timeout=CALL_S)
        assert len(next(replies).data) == MIB
        settles(server, open_calls=1)
        grown = server.stats().rss_bytes - before
        assert grown < (16 if not SANITIZER else 200) * MIB, f"the server holds {grown} bytes more"
        settles(server, open_calls=0, cancelled=1)
        with fails(grpc.StatusCode.RESOURCE_EXHAUSTED):
            for _ in replies:
                pass


def test_requests_together_have_a_budget(pb):
    with echo_server(request_bytes=3 * MIB) as server:
        stub = server.echo()
        stuck = [stub.Collect.future(iter([pb.EchoRequest(data=bytes(900_000), never=True)] * 3), timeout=CALL_S)
                 for _ in range(6)]
        wait_until(lambda: any(call.done() for call in stuck), 15, "a call over the budget to fail")
        failed = [call for call in stuck if call.done()]
        assert {call.code() for call in failed} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        assert len(failed) < 6
        assert "in all" in failed[0].details()
        for call in stuck:
            call.cancel()
        settles(server, open_calls=0)
        assert stub.Unary(pb.EchoRequest(data=bytes(MIB)), timeout=CALL_S)


# ---- connections ----------------------------------------------------------------------------------


def test_connections_over_the_limit_are_closed(pb):
    with echo_server(connections=3) as server:
        raws = [server.connect() for _ in range(3)]
        raws[0].recv(1)
        with fails(grpc.StatusCode.UNAVAILABLE):
            server.echo().Unary(pb.EchoRequest(), timeout=CALL_S)
        for raw in raws:
            raw.close()
        assert server.echo().Unary(pb.EchoRequest(text="x"), timeout=CALL_S, wait_for_ready=True).text == "x"


def test_streams_over_the_limit_wait_their_turn(pb):
    with echo_server(streams=5) as server:
        stub = server.echo()
        calls = [stub.Unary.future(pb.EchoRequest(text=str(n), delay_ms=50), timeout=CALL_S) for n in range(20)]
        assert [call.result().text for call in calls] == [str(n) for n in range(20)]


def test_quiet_connection_is_asked_and_its_silence_is_short(pb):
    with echo_server(keepalive_us=US // 5) as server:
        call = server.echo().Unary.future(pb.EchoRequest(delay_ms=int(3000 * SCALE)), timeout=CALL_S)
        time.sleep(2.5 * SCALE)
        assert server.stats().largest_silence_us < 1.5 * SCALE * US
        call.result()


def test_draining_server_finishes_what_is_under_way(pb):
    with echo_server(drain_ms=1000) as server:
        health = stubs().health_grpc.HealthStub(server.channel())
        watch = health.Watch(stubs().health.HealthCheckRequest(), timeout=CALL_S)
        serving = stubs().health.HealthCheckResponse
        assert next(watch).status == serving.SERVING
        call = server.echo().Unary.future(pb.EchoRequest(text="late", delay_ms=2000), timeout=CALL_S)
        assert next(watch).status == serving.NOT_SERVING
        with fails(grpc.StatusCode.UNAVAILABLE):
            server.echo().Unary(pb.EchoRequest(), timeout=CALL_S)
        assert call.result().text == "late"
        watch.cancel()


def test_sigterm_cancels_open_calls_and_ends_clean(pb):
    with echo_server() as server:
        call = server.echo().Unary.future(pb.EchoRequest(never=True), timeout=CALL_S)
        settles(server, open_calls=1)
        server.process.terminate()
        assert server.process.wait(30 * SCALE) == 0
        assert call.code() == grpc.StatusCode.UNAVAILABLE


# ---- the standard services ------------------------------------------------------------------------


def test_health(server):
    health, request = stubs().health_grpc.HealthStub(server.channel()), stubs().health.HealthCheckRequest
    answer = stubs().health.HealthCheckResponse
    assert health.Check(request(), timeout=CALL_S).status == answer.SERVING
    assert health.Check(request(service="dps.test.Echo"), timeout=CALL_S).status == answer.SERVING
    with fails(grpc.StatusCode.NOT_FOUND):
        health.Check(request(service="nothing"), timeout=CALL_S)
    watch = health.Watch(request(service="nothing"), timeout=CALL_S)
    assert next(watch).status == answer.SERVICE_UNKNOWN
    watch.cancel()


@pytest.mark.parametrize("version", ["reflection", "reflection_alpha"])
def test_reflection(server, version):
    from google.protobuf import descriptor_pb2
    pb, service = getattr(stubs(), version), getattr(stubs(), f"{version}_grpc")
    request = pb.ServerReflectionRequest
    stub = service.ServerReflectionStub(server.channel())
    asked = [request(list_services=""), request(file_containing_symbol="dps.v1.Control.Submit"),
             request(file_by_filename="grpc/health/v1/health.proto"),
             request(file_containing_symbol="dps.v1.Nothing"),
             request(all_extension_numbers_of_type="dps.v1.Tensor"),
             request(file_containing_extension=pb.ExtensionRequest(containing_type="dps.v1.Tensor"))]
    listed, contract, health, missing, numbers, extension = \
        stub.ServerReflectionInfo(iter(asked), timeout=CALL_S)
    assert {entry.name for entry in listed.list_services_response.service} == {
        "dps.v1.Control", "dps.v1.Training", "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"}
    file = descriptor_pb2.FileDescriptorProto.FromString(contract.file_descriptor_response.file_descriptor_proto[0])
    assert file.name == "dps.proto" and "Train" in [m.name for m in file.service[0].method]
    assert contract.original_request == asked[1]
    file = descriptor_pb2.FileDescriptorProto.FromString(health.file_descriptor_response.file_descriptor_proto[0])
    assert file.package == "grpc.health.v1"
    assert missing.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]
    assert "dps.v1.Nothing" in missing.error_response.error_message
    assert numbers.all_extension_numbers_response.base_type_name == "dps.v1.Tensor"
    assert extension.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]
