"""Memory does not grow: joins and leaves, contexts that nobody steps, jobs that come and go.

1000 joins and 10000 contexts, or what DPS_JOINS and DPS_CONTEXTS say; a tenth under sanitizers. The
same under valgrind is a step of tests/run of its own (DPS_VALGRIND=1).
"""
import os
import shutil

import grpc
import numpy
import pytest

import harness
from harness import CALL_S, to_tensor, wait_until

SHARE = 10 if harness.SANITIZER else 1
JOINS = int(os.environ.get("DPS_JOINS", 1000 // SHARE))
CONTEXTS = int(os.environ.get("DPS_CONTEXTS", 10000 // SHARE))
VALGRIND = os.environ.get("DPS_VALGRIND") == "1"
MB = 1 << 20


class Joined:
    def __init__(self, daemon, job):
        self.pb = harness.stubs().pb
        self.channel = daemon.new_channel()
        self.training = harness.stubs().grpc.TrainingStub(self.channel)
        self.reply = self.join(job)

    def join(self, job):
        def try_to():
            try:
                return self.training.Join(self.pb.JoinRequest(job=job, own_data=True), timeout=CALL_S)
            except grpc.RpcError as error:  # the last one's place is not free yet
                assert error.code() is not grpc.StatusCode.NOT_FOUND, error.details()
                return None
        return wait_until(try_to, 20, "a free rank", every=0.005)

    def forward(self, x):
        request = self.pb.ForwardRequest(session=self.reply.session, x=x)
        return self.training.Forward(request, timeout=CALL_S).context

    def discard(self, context):
        self.training.Discard(self.pb.ContextRequest(session=self.reply.session, context=context), timeout=CALL_S)

    def leave(self):
        self.training.Leave(self.pb.SessionRequest(session=self.reply.session), timeout=CALL_S)
        self.channel.close()

    def vanish(self):
        self.channel.close()


def one_image(dpsd, job):
    dims = list(dpsd.get(job).input_dims)
    return to_tensor(numpy.zeros([1, *dims], numpy.float32))


def joins_and_leaves(dpsd, job, count):
    x = one_image(dpsd, job)
    for i in range(count):
        trainer = Joined(dpsd, job)
        trainer.forward(x)
        trainer.vanish() if i % 2 else trainer.leave()  # pylint: disable=expression-not-assigned
    wait_until(lambda: dpsd.info().sessions == 0, 60, "the sessions to end")


def abandoned_contexts(dpsd, job, count):
    """Sessions that fill their contexts and go, or discard them one by one."""
    x = one_image(dpsd, job)
    made, round_ = 0, 0
    while made < count:
        trainer = Joined(dpsd, job)
        for _ in range(min(trainer.reply.max_contexts, count - made)):
            context = trainer.forward(x)
            if round_ % 3 == 0:
                trainer.discard(context)
            made += 1
        trainer.leave() if round_ % 2 else trainer.vanish()  # pylint: disable=expression-not-assigned
        round_ += 1
    wait_until(lambda: dpsd.info().sessions == 0, 60, "the sessions to end")


def growth(dpsd, action, warm_up, count):
    """Bytes by which the daemon's memory grows over `count`, after `warm_up` as a preparation. Under a
    sanitizer it keeps freed memory aside, so only its own search for leaks counts there: 0."""
    action(warm_up)
    before = dpsd.rss()
    action(count)
    return 0 if harness.SANITIZER else dpsd.rss() - before


@pytest.fixture
def job(dpsd):
    return dpsd.submit(model="mlp", steps=1000000, interval=1000)


@pytest.mark.threads
def test_joins_and_leaves_leave_nothing(dpsd, job):
    grown = growth(dpsd, lambda n: joins_and_leaves(dpsd, job, n), max(20, JOINS // 5), JOINS)
    assert grown < 4 * MB + JOINS * 1024, f"{grown / MB:.1f} MB over {JOINS} joins"
    assert dpsd.info().sessions == 0


def test_abandoned_contexts_leave_nothing(dpsd, job):
    grown = growth(dpsd, lambda n: abandoned_contexts(dpsd, job, n), max(50, CONTEXTS // 5), CONTEXTS)
    assert grown < 4 * MB + CONTEXTS * 128, f"{grown / MB:.1f} MB over {CONTEXTS} contexts"
    memory = [device.memory_bytes for device in dpsd.info().devices]
    again = [device.memory_bytes for device in dpsd.info().devices]
    assert memory == again


def test_jobs_that_have_ended_give_memory_back(dpsd, small_digits):
    def run(count):
        for _ in range(count):
            job = dpsd.ctl("submit", "--model", "mnist-cnn", "--data", small_digits, "--trainers", 2, "--interval", 2,
                           "--steps", 4, "--batch", 8)["id"]
            dpsd.wait_done(job)
    grown = growth(dpsd, run, 3, 6)
    assert grown < 40 * MB, f"{grown / MB:.1f} MB over 6 jobs"


def test_old_checkpoints_are_pruned_and_space_given_back(dpsd, small_digits):
    job = dpsd.ctl("submit", "--model", "mnist-cnn", "--data", small_digits, "--trainers", 2,
                                         "--interval", 2, "--steps", 40, "--batch", 8)["id"]
    dpsd.ctl("set", job, "checkpoint.rounds=1", "checkpoint.keep=2")
    dpsd.wait_done(job)
    checkpoints = dpsd.ctl("checkpoints", job)
    assert 1 <= len([c for c in checkpoints if c["valid"]]) <= 3
    parameters = 4 * 1199882
    size = sum(f.stat().st_size for f in dpsd.state.rglob("*") if f.is_file())
    assert size < 12 * parameters, f"{size / MB:.0f} MB of state for checkpoints of {parameters / MB:.1f} MB"


@pytest.mark.plain
@pytest.mark.skipif(not VALGRIND, reason="DPS_VALGRIND=1 runs it")
def test_valgrind_finds_no_leak(daemons):
    if not shutil.which("valgrind"):
        pytest.skip("no valgrind")
    wrapper = ["valgrind", "--quiet", "--leak-check=full", "--show-leak-kinds=definite,possible",
               "--errors-for-leak-kinds=definite", "--error-exitcode=67", "--num-callers=30",
               f"--suppressions={harness.ROOT / 'tests/integration/valgrind.supp'}"]
    daemon = daemons(wrapper=wrapper)
    daemon.start(wait=False)
    harness.wait_until(lambda: daemon.socket.exists(), 120, "dpsd under valgrind", every=0.2)
    daemon.wait_ready()
    job = daemon.submit(model="mlp", steps=1000000, interval=1000, backend="ref")
    joins_and_leaves(daemon, job, JOINS)
    abandoned_contexts(daemon, job, CONTEXTS)
    daemon.ctl("checkpoint", job)
    daemon.ctl("cancel", job)
    assert daemon.terminate() == 0, daemon.log_tail(120)
    assert "definitely lost" not in daemon.log_text()
