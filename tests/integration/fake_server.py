"""A Training service of grpcio's own server, to see what `dpsctl trainer` does with any server that
keeps to the .proto, and with some that do not.

    with FakeServer(Plan(leases=[[0, 1], [2]])) as server:
        ... dpsctl --address server.address trainer --job 1 ...
        server.plan.batches     what came, in order

A Plan is the job: it outlives servers, so that one can be stopped and another started.
"""
import contextlib
import dataclasses
import queue
import socket
import struct
import threading
from concurrent import futures

import grpc

import harness

WINDOW = 4


@dataclasses.dataclass
class Plan:
    """One rank's job. Hooks may abort by context.abort, as a real server does."""
    leases: list                        # of lists of sample indices; lease i is step i
    samples: int = 100
    batch: int = 32
    window: int = WINDOW
    ahead: int = 0                      # leases sent ahead; 0: as many as the window
    input_dims: tuple = (1, 28, 28)
    output_dims: tuple = (10,)
    loss: str = "nll"
    done: str = "completed"
    state: int = 0                      # what Get answers; 0: not asked for
    answers: threading.Event = None     # results wait for it
    on_join: object = None              # (request, context, number of the join)
    on_train: object = None             # (context, number of the stream): after TrainStart
    on_batch: object = None             # (step, context): before it is answered
    answered: int = 0                   # batches done: JoinReply.step
    batches: list = dataclasses.field(default_factory=list)
    joins: list = dataclasses.field(default_factory=list)
    leaves: list = dataclasses.field(default_factory=list)
    streams: int = 0
    come: threading.Condition = dataclasses.field(default_factory=threading.Condition)

    def wait_for(self, condition, seconds=20):
        with self.come:
            assert self.come.wait_for(condition, seconds * harness.SCALE), self


def service(plan):
    pb, base = harness.stubs().pb, harness.stubs().grpc

    class Training(base.TrainingServicer):
        def Join(self, request, context):
            with plan.come:
                plan.joins.append(request)
                plan.come.notify_all()
            if plan.on_join:
                plan.on_join(request, context, len(plan.joins))
            return pb.JoinReply(
                session=1000 + len(plan.joins), rank=request.rank or 3, step=plan.answered,
                samples=plan.samples, input_dims=plan.input_dims, output_dims=plan.output_dims,
                batch=plan.batch, window=plan.window, max_contexts=4, lease_ms=10000,
                loss=plan.loss)

        def Leave(self, request, context):
            with plan.come:
                plan.leaves.append(request.session)
                plan.come.notify_all()
            return pb.Empty()

        def Train(self, requests, context):
            start = next(requests).start
            plan.streams += 1
            assert start.session == 1000 + len(plan.joins)
            if plan.on_train:
                plan.on_train(context, plan.streams)
            arrived = queue.Queue()
            threading.Thread(target=self.receive, args=(requests, arrived), daemon=True).start()
            sent = plan.answered
            while plan.answered < len(plan.leases):
                while sent < min(len(plan.leases), plan.answered + (plan.ahead or plan.window)):
                    yield pb.TrainReply(lease=pb.Lease(step=sent, epoch=0,
                                                       indices=plan.leases[sent]))
                    sent += 1
                batch = arrived.get()
                if batch is None:
                    return
                if plan.answers:
                    plan.answers.wait(60)
                if plan.on_batch:
                    plan.on_batch(batch.step, context)
                plan.answered = batch.step + 1
                yield pb.TrainReply(result=pb.BatchResult(step=batch.step, loss=1 / plan.answered,
                                                          round=batch.step // 25))
            yield pb.TrainReply(done=pb.Done(reason=plan.done))

        @staticmethod
        def receive(requests, arrived):
            with contextlib.suppress(grpc.RpcError):
                for request in requests:
                    with plan.come:
                        plan.batches.append(request.batch)
                        plan.come.notify_all()
                    arrived.put(request.batch)
            arrived.put(None)

    class Control(base.ControlServicer):
        def Get(self, request, context):
            return pb.JobStatus(id=request.job, state=plan.state)

    return Training(), Control()


class FakeServer:
    """Listens on a Unix socket (path) or on TCP (port 0: any)."""

    def __init__(self, plan, path=None, port=0):
        base = harness.stubs().grpc
        training, control = service(plan)
        self.plan = plan
        self.server = grpc.server(futures.ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
        base.add_TrainingServicer_to_server(training, self.server)
        base.add_ControlServicer_to_server(control, self.server)
        if path:
            assert self.server.add_insecure_port(f"unix:{path}")
            self.address = f"unix:{path}"
        else:
            self.port = self.server.add_insecure_port(f"127.0.0.1:{port}")
            assert self.port
            self.address = f"tcp:127.0.0.1:{self.port}"

    def __enter__(self):
        self.server.start()
        return self

    def __exit__(self, *_):
        if self.plan.answers:
            self.plan.answers.set()
        self.server.stop(grace=0).wait(10)


class Wire:
    """A TCP relay whose connections can be cut in the middle, as by a dying host."""

    def __init__(self, port):
        self.target = port
        self.pairs = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "tcp:127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                far = socket.create_connection(("127.0.0.1", self.target))
                self.pairs.append((near, far))
                for a, b in ((near, far), (far, near)):
                    threading.Thread(target=self.relay, args=(a, b), daemon=True).start()

    @staticmethod
    def relay(a, b):
        with contextlib.suppress(OSError):
            while data := a.recv(65536):
                b.sendall(data)
        with contextlib.suppress(OSError):
            b.shutdown(socket.SHUT_WR)

    def cut(self):
        """Resets every connection that is open."""
        pairs, self.pairs = self.pairs, []
        for pair in pairs:
            for end in pair:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()

    def close(self):
        self.listener.close()
        self.cut()
