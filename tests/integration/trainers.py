"""A trainer that knows only the .proto: grpcio and numpy, one connection a trainer.

Client has a method for each call of the Training service; Feeder is a thread that feeds a job to its
end, with leases or with data of its own.
"""
import queue
import threading
import time

import grpc
import numpy

import harness
from harness import CALL_S, assemble, to_array, to_tensor


class Client:
    """One joined trainer on a connection of its own."""

    def __init__(self, daemon, job, rank=None, tcp=False, own_data=True):
        self.pb = harness.stubs().pb
        self.channel = daemon.new_channel(tcp)
        self.training = harness.stubs().grpc.TrainingStub(self.channel)
        want = {} if rank is None else {"rank": rank}
        try:
            self.joined = self.training.Join(
                self.pb.JoinRequest(job=job, client="grpcio test", own_data=own_data, **want), timeout=CALL_S)
        except grpc.RpcError:
            self.channel.close()
            raise
        self.session = self.joined.session

    def close(self):
        self.channel.close()

    def forward(self, x):
        tensor = to_tensor(x) if isinstance(x, numpy.ndarray) else x
        reply = self.training.Forward(self.pb.ForwardRequest(session=self.session, x=tensor), timeout=CALL_S)
        return reply.context, to_array(reply.output), reply.version

    def backward(self, context, gradient):
        tensor = to_tensor(gradient) if isinstance(gradient, numpy.ndarray) else gradient
        request = self.pb.BackwardRequest(session=self.session, context=context, output_gradient=tensor)
        return self.training.Backward(request, timeout=CALL_S).gradient_norm

    def gradients(self, context):
        request = self.pb.ContextRequest(session=self.session, context=context)
        return assemble(self.training.Gradients(request, timeout=CALL_S))

    def step(self, context, loss=0.0):
        request = self.pb.StepRequest(session=self.session, context=context, loss=loss)
        return self.training.Step(request, timeout=CALL_S)

    def step_later(self, context, loss=0.0):
        """The call's future: steps that wait for other ranks."""
        request = self.pb.StepRequest(session=self.session, context=context, loss=loss)
        return self.training.Step.future(request, timeout=CALL_S)

    def discard(self, context):
        self.training.Discard(self.pb.ContextRequest(session=self.session, context=context), timeout=CALL_S)

    def lease(self):
        """The next Lease, or None at the end."""
        reply = self.training.NextLease(self.pb.SessionRequest(session=self.session), timeout=CALL_S)
        return reply.lease if reply.WhichOneof("kind") == "lease" else None

    def leave(self):
        self.training.Leave(self.pb.SessionRequest(session=self.session), timeout=CALL_S)
        self.close()

    def stream(self):
        return Stream(self)


class Stream:
    """A Train stream: send(batch), then next() for what comes back."""

    def __init__(self, client):
        self.pb = client.pb
        self.requests = queue.Queue()
        self.requests.put(self.pb.TrainRequest(start=self.pb.TrainStart(session=client.session)))
        self.replies = client.training.Train(iter(self.requests.get, None), timeout=CALL_S)

    def send(self, step, x, labels, hold=False):
        self.requests.put(self.pb.TrainRequest(batch=self.pb.Batch(
            step=step, x=to_tensor(x), y=to_tensor(labels.astype(numpy.int64)), hold=hold)))

    def next(self):
        return next(self.replies)

    def result(self):
        """The next BatchResult; leases in between are let go by."""
        while True:
            reply = self.next()
            kind = reply.WhichOneof("kind")
            assert kind != "done", f"the stream is over: {reply.done.reason}"
            if kind == "result":
                return reply.result

    def end(self):
        self.requests.put(None)


def join_later(daemon, job, seconds=60, **kwargs):
    """Client, as soon as the job takes it in: a rank that comes late is told to try again."""
    end = time.monotonic() + seconds * harness.SCALE
    while True:
        try:
            return Client(daemon, job, **kwargs)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE or time.monotonic() > end:
                raise
            time.sleep(0.05)


def pixels(images):
    return ((images.astype(numpy.float32) / 255 - 0.1307) / 0.3081)[:, None].astype(numpy.float32)


def nll(output, labels):
    """Mean negative log-likelihood of log-probabilities, and its gradient."""
    rows = numpy.arange(len(labels))
    gradient = numpy.zeros_like(output)
    gradient[rows, labels] = -1.0 / len(labels)
    return -output[rows, labels].mean(dtype=numpy.float64), gradient


def feed(client, x, labels):
    """One step; returns the loss before it."""
    context, output, _ = client.forward(x)
    loss, gradient = nll(output, labels)
    client.backward(context, gradient)
    client.step(context, loss)
    return loss


class Feeder(threading.Thread):
    """Feeds leases by unary calls until there is none; `pause` seconds before each step. `used` gets
    (epoch, indices) of each batch whose step was done. stop() has it leave after its step."""

    def __init__(self, daemon, job, images, labels, used=None, pause=0.0, late=False, steps=None, **kwargs):
        super().__init__(daemon=True)
        self.daemon_, self.job, self.images, self.labels = daemon, job, images, labels
        self.used, self.pause, self.late, self.kwargs = used, pause, late, {"own_data": False, **kwargs}
        self.steps, self.left = steps, threading.Event()
        self.error, self.joined, self.done, self.refused = None, None, 0, 0

    def run(self):
        try:
            make = join_later if self.late else Client
            client = make(self.daemon_, self.job, **self.kwargs)
            self.joined = client.joined
            try:
                self.feed(client)
            finally:
                client.close()
        except Exception as error:  # reported by finish()
            self.error = error

    def feed(self, client):
        while not self.left.is_set() and (self.steps is None or self.done < self.steps):
            lease = client.lease()
            if lease is None:
                break
            time.sleep(self.pause)
            indices = list(lease.indices)
            feed(client, pixels(self.images[indices]), self.labels[indices])
            self.done += 1
            if self.used is not None:
                self.used.append((lease.epoch, tuple(indices)))
        client.leave()

    def stop(self):
        self.left.set()

    def finish(self, seconds=120):
        self.join(seconds * harness.SCALE)
        assert not self.is_alive(), "a trainer hangs"
        if self.error:
            raise self.error


def check_all_used_once(used, samples, epochs):
    for epoch in sorted({e for e, _ in used}):
        indices = sorted(i for e, batch in used if e == epoch for i in batch)
        assert indices == list(range(samples)), f"epoch {epoch}"
    assert len({e for e, _ in used}) == epochs


def refused(call, code, *words):
    """call() must fail with the status, and its sentence must have the words."""
    try:
        call()
    except grpc.RpcError as error:
        assert error.code() is code, f"{error.code()}: {error.details()}"
        for word in words:
            assert str(word) in error.details(), error.details()
        return error.details()
    raise AssertionError("it was not refused")
