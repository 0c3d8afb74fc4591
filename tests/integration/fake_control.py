"""A Control service of grpcio's own server with canned replies, to see what dpsctl does with any
server that keeps to the .proto.

    with FakeControl({"List": pb.ListReply(jobs=[job])}) as server:
        ... dpsctl --address server.address list ...
        server.calls            [("List", request)], in order

An answer is a message, a list of messages (streams), or a function (request or iterator of requests,
context) → one of these.
"""
import contextlib
import threading
from concurrent import futures

import grpc

import harness

STREAMS_OUT = {"Watch", "Export", "Metrics", "Events"}
STREAMS_IN = {"Evaluate"}


def servicer(answers, calls):
    base = harness.stubs().grpc

    def method(name):
        def find(request, context):
            answer = answers.get(name)
            if answer is None:
                context.abort(grpc.StatusCode.UNIMPLEMENTED, f"{name} has no answer here")
            return answer(request, context) if callable(answer) else answer

        def unary(_self, request, context):
            calls.append((name, request))
            return find(request, context)

        def stream(_self, request, context):
            calls.append((name, request))
            yield from find(request, context)

        return stream if name in STREAMS_OUT else unary

    names = [name for name in dir(base.ControlServicer) if name[0].isupper()]
    return type("Control", (base.ControlServicer,), {name: method(name) for name in names})()


class FakeControl:
    """Listens on a Unix socket (path) or on TCP (port 0: any)."""

    def __init__(self, answers, path=None, port=0, options=()):
        self.calls = []
        self.stopping = threading.Event()
        self.server = grpc.server(futures.ThreadPoolExecutor(8), options=[
            ("grpc.so_reuseport", 0), ("grpc.max_send_message_length", -1), *options])
        harness.stubs().grpc.add_ControlServicer_to_server(servicer(answers, self.calls), self.server)
        if path:
            assert self.server.add_insecure_port(f"unix:{path}")
            self.address = f"unix:{path}"
        else:
            self.port = self.server.add_insecure_port(f"127.0.0.1:{port}")
            assert self.port
            self.address = f"tcp:127.0.0.1:{self.port}"
        self.server.start()

    def requests(self, name):
        return [request for called, request in self.calls if called == name]

    def stop(self, grace=0):
        self.stopping.set()
        self.server.stop(grace=grace).wait(10)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(Exception):
            self.stop()
