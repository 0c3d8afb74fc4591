"""`dpsctl trainer` against an independent server: grpcio's, from the .proto alone (fake_server.py)."""
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import grpc
import numpy
import pytest

import harness
from fake_server import WINDOW, FakeServer, Plan, Wire
from harness import wait_until

pytestmark = pytest.mark.threads

NOBODY = "tcp:127.0.0.1:1"
SAMPLES = 100


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return harness.digits(tmp_path_factory.mktemp("trainer"), train=SAMPLES, test=20)


@pytest.fixture(scope="module")
def arrays():
    images, labels = harness.patterns(SAMPLES, 1)
    return images, labels


@pytest.fixture
def trainer():
    """trainer(address, data, *options): starts one; what is left at the end is killed."""
    started = []

    def start(address, data, *options, job=1, env=None, flags=()):
        process = subprocess.Popen(
            [harness.DPSCTL, "--address", address, *flags, "trainer", "--job", str(job), "--data",
             str(data), *map(str, options)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, **harness.sanitizer_environment(), **(env or {})})
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def ends(process, status, seconds=30):
    out, err = process.communicate(timeout=seconds * harness.SCALE)
    assert process.returncode == status, f"status {process.returncode}\n{out}{err}"
    return out, err


def leases(count, size=8, samples=SAMPLES, seed=5):
    random = numpy.random.default_rng(seed)
    return [random.permutation(samples)[:size].tolist() for _ in range(count)]


def check_batches(batches, plan, x, y, first=0):
    """Each batch has just the samples of its lease, byte by byte."""
    for step, batch in enumerate(batches, first):
        want = plan.leases[step]
        assert batch.step == step
        assert list(batch.x.dims) == [len(want), *plan.input_dims]
        assert batch.x.data == x[want].tobytes()
        assert list(batch.y.dims) == [len(want)]
        assert batch.y.data == y[want].tobytes()


# ---- what is sent -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_sends_exactly_the_leased_samples(trainer, folder, arrays, tmp_path, kind, stubs):
    images, labels = arrays
    plan = Plan(leases(30) + [[7], [99, 0, 99]])
    with FakeServer(plan, path=tmp_path / "s" if kind == "unix" else None) as server:
        out, err = ends(trainer(server.address, folder, "--rank", 2), 0)
    check_batches(plan.batches, plan, images, labels)
    assert len(plan.batches) == 32 and err == ""
    assert {b.x.dtype for b in plan.batches} == {b.y.dtype for b in plan.batches} == {stubs.pb.U8}
    assert [j.rank for j in plan.joins] == [2] and "dpsctl" in plan.joins[0].client
    assert "completed" in out and "32 batches" in out
    assert plan.leaves == []


def test_sends_mnist_as_numpy_reads_it(trainer, mnist):
    import gzip
    images = numpy.frombuffer(gzip.open(mnist / "train-images-idx3-ubyte.gz").read(), numpy.uint8, -1, 16)
    labels = numpy.frombuffer(gzip.open(mnist / "train-labels-idx1-ubyte.gz").read(), numpy.uint8, -1, 8)
    plan = Plan(leases(20, size=32, samples=len(labels)), samples=len(labels))
    with FakeServer(plan) as server:
        ends(trainer(server.address, mnist), 0)
    check_batches(plan.batches, plan, images.reshape(-1, 784), labels)
    assert len(plan.batches) == 20


def test_sends_floats_and_wide_classes_of_an_npz(trainer, tmp_path, stubs):
    random = numpy.random.default_rng(1)
    x, y = random.normal(size=(40, 3, 5)), random.integers(0, 300, 40)
    y[3] = 299
    numpy.savez_compressed(tmp_path / "set.npz", x=x, y=y)
    plan = Plan(leases(10, samples=40), samples=40, input_dims=(3, 5), output_dims=(300,))
    with FakeServer(plan) as server:
        ends(trainer(server.address, tmp_path / "set.npz"), 0)
    check_batches(plan.batches, plan, x.astype(numpy.float32), y.astype(numpy.int64))
    assert plan.batches[0].x.dtype == stubs.pb.F32 and plan.batches[0].y.dtype == stubs.pb.I64


def test_sends_targets_for_mse(trainer, tmp_path, stubs):
    random = numpy.random.default_rng(2)
    x, y = random.normal(size=(40, 6)).astype(numpy.float32), random.normal(size=(40, 2))
    numpy.savez(tmp_path / "train.npz", x=x, y=y)
    plan = Plan(leases(5, samples=40), samples=40, input_dims=(6,), output_dims=(2,), loss="mse")
    with FakeServer(plan) as server:
        ends(trainer(server.address, tmp_path), 0)
    assert len(plan.batches) == 5
    for lease, batch in zip(plan.leases, plan.batches):
        assert batch.y.dtype == stubs.pb.F32 and list(batch.y.dims) == [8, 2]
        assert batch.y.data == y[lease].astype(numpy.float32).tobytes()


def test_drawn_digits_are_the_same_in_every_process(trainer):
    plans = [Plan(leases(6, samples=400), samples=400) for _ in range(3)]
    for plan, data in zip(plans, ("synthetic:7:400", "synthetic:7:400", "synthetic:8:400")):
        with FakeServer(plan) as server:
            ends(trainer(server.address, data), 0)
    first, same, other = ([b.x.data for b in plan.batches] for plan in plans)
    assert first == same and first != other


# ---- pipelining ---------------------------------------------------------------------------------


def test_fills_the_window_and_no_more(trainer, folder, arrays):
    plan = Plan(leases(30), ahead=2 * WINDOW, answers=threading.Event())
    with FakeServer(plan) as server:
        process = trainer(server.address, folder)
        plan.wait_for(lambda: len(plan.batches) == WINDOW)
        time.sleep(0.5)
        assert len(plan.batches) == WINDOW, "sent past the window"
        plan.answers.set()
        ends(process, 0)
    check_batches(plan.batches, plan, *arrays)


def test_the_next_batch_is_under_way_before_the_last_answer(trainer, folder):
    plan = Plan(leases(40))
    behind = []

    def on_batch(step, _context):
        time.sleep(0.01)
        behind.append(len(plan.batches) - step - 1)

    plan.on_batch = on_batch
    with FakeServer(plan) as server:
        ends(trainer(server.address, folder), 0)
    assert min(behind[5:-WINDOW]) >= 1, behind


def test_sleeps_while_it_waits(trainer, folder):
    plan = Plan(leases(30), answers=threading.Event())
    with FakeServer(plan) as server:
        process = trainer(server.address, folder)
        plan.wait_for(lambda: len(plan.batches) == WINDOW)

        def wakeups():
            return sum(int(line.split()[1])
                       for task in pathlib.Path(f"/proc/{process.pid}/task").iterdir()
                       for line in (task / "status").read_text().splitlines()
                       if "ctxt_switches" in line)

        time.sleep(0.3)
        before = wakeups()
        time.sleep(2)
        if harness.SANITIZER != "thread":  # which has a thread of its own that wakes up
            assert wakeups() - before <= 4
        plan.answers.set()
        ends(process, 0)


# ---- accumulation -------------------------------------------------------------------------------


def held(plan):
    return "".join("h" if batch.hold else "s" for batch in plan.batches)


@pytest.mark.parametrize("count,size,pattern", [
    (10, 1, "ssssssssss"), (12, 4, "hhhs" * 3), (10, 4, "hhhshhhshs"), (9, 4, "hhhshhhss"),
    (3, 8, "hhs"), (1, 2, "s"), (20, 7, "hhhhhhs" * 2 + "hhhhhs")])
def test_all_but_the_last_batch_of_a_group_are_held(trainer, folder, arrays, count, size, pattern):
    plan = Plan(leases(count))
    with FakeServer(plan) as server:
        ends(trainer(server.address, folder, "--accumulate", size), 0)
    assert held(plan) == pattern
    check_batches(plan.batches, plan, *arrays)


@pytest.mark.parametrize("window,pause", [(2, 0), (2, 0.03), (3, 0.02), (WINDOW, 0.02)])
def test_groups_do_not_depend_on_when_leases_come(trainer, folder, window, pause):
    """The next lease comes with an answer, which may be slow: the group is not closed before."""
    plan = Plan(leases(14), window=window)
    plan.on_batch = lambda *_: time.sleep(pause)
    with FakeServer(plan) as server:
        ends(trainer(server.address, folder, "--accumulate", 5), 0)
    assert held(plan) == "hhhhshhhhshhhs"


def test_a_slow_answer_is_waited_for(trainer, folder):
    plan = Plan(leases(8), window=2)
    plan.on_batch = lambda step, _: time.sleep(1.2 if step == 1 else 0)
    with FakeServer(plan) as server:
        ends(trainer(server.address, folder, "--accumulate", 4), 0)
    assert held(plan) == "hhhshhhs"


def test_no_batch_is_held_when_no_lease_comes_after_it(trainer, folder):
    plan = Plan(leases(4), ahead=1)  # a server that leases one batch at a time
    with FakeServer(plan) as server:
        ends(trainer(server.address, folder, "--accumulate", 3), 0)
    assert held(plan) == "ssss"


def test_a_group_begins_anew_with_a_session(trainer, folder, arrays):
    plan = Plan(leases(20))
    starts = []

    def on_batch(step, context):
        if step == 6 and plan.streams == 1:
            context.abort(grpc.StatusCode.UNAVAILABLE, "stopping")

    plan.on_batch = on_batch
    plan.on_train = lambda _context, _number: starts.append((len(plan.batches), plan.answered))
    with FakeServer(plan) as server:
        ends(trainer(server.address, folder, "--accumulate", 4), 0)
    (_, (at, first)) = starts
    assert first == 6 and held(plan).startswith("hhhshhh")
    assert held(plan)[at:] == "hhhshhhshhhshs"
    check_batches(plan.batches[at:], plan, *arrays, first=6)


def test_accumulation_needs_leases_ahead(trainer, folder):
    plan = Plan(leases(4), window=1)
    with FakeServer(plan) as server:
        _, err = ends(trainer(server.address, folder, "--accumulate", 2), 1)
    assert "--accumulate" in err and "window is 1" in err and err.count("\n") == 1
    assert plan.leaves == [1001] and not plan.batches
    plan = Plan(leases(4), window=1)
    with FakeServer(plan) as server:
        ends(trainer(server.address, folder), 0)
    assert held(plan) == "ssss"


# ---- coming back --------------------------------------------------------------------------------


def test_comes_back_after_the_server_was_stopped_and_started(trainer, folder, arrays):
    stop = threading.Event()
    plan = Plan(leases(60))
    plan.on_batch = lambda step, _: (time.sleep(0.01), stop.set() if step == 20 else None)
    with FakeServer(plan) as server:
        process = trainer(server.address, folder)
        assert stop.wait(20 * harness.SCALE)
    time.sleep(0.4)
    before, plan.batches = plan.batches, []
    first = plan.answered
    with FakeServer(plan, port=server.port):
        _, err = ends(process, 0)
    check_batches(before, plan, *arrays)
    check_batches(plan.batches, plan, *arrays, first=first)
    assert len(plan.batches) == 60 - first
    assert [j.WhichOneof("want") for j in plan.joins] == [None, "rank"] and plan.joins[1].rank == 3
    assert err.count("trying again") == 1, "says once that it is looking for the daemon"


def test_comes_back_after_each_cut_of_the_wire(trainer, folder, arrays):
    plan = Plan(leases(80))
    with FakeServer(plan) as server:
        wire = Wire(server.port)
        starts = []
        due = [10, 25, 40]

        def on_batch(step, _context):
            time.sleep(0.005)
            if due and step >= due[0]:
                due.pop(0)
                wire.cut()

        plan.on_batch = on_batch
        plan.on_train = lambda _context, _number: starts.append((len(plan.batches), plan.answered))
        ends(trainer(wire.address, folder), 0, seconds=60)
        wire.close()
    assert len(starts) == 4
    for (at, first), (end, _) in zip(starts, starts[1:] + [(len(plan.batches), 80)]):
        check_batches(plan.batches[at:end], plan, *arrays, first=first)
    assert plan.answered == 80


def test_waits_while_the_job_recovers(trainer, folder):
    plan = Plan(leases(3))

    def on_join(_request, context, number):
        if number < 5:
            context.abort(grpc.StatusCode.UNAVAILABLE, "job 1 is RECOVERING; come back in a moment")

    plan.on_join = on_join
    began = time.monotonic()
    with FakeServer(plan) as server:
        # patience with a daemon that is away does not end the wait for one that is there
        _, err = ends(trainer(server.address, folder, "--reconnect", 0), 0)
    assert len(plan.joins) == 5 and 0.3 < time.monotonic() - began
    assert "RECOVERING" in err and err.count("\n") == 1


@pytest.mark.parametrize("code", ["NOT_FOUND", "FAILED_PRECONDITION", "UNAVAILABLE", "CANCELLED"])
def test_joins_again_when_the_session_is_gone(trainer, folder, code):
    plan = Plan(leases(10))

    def on_train(context, number):
        if number == 1:
            context.abort(getattr(grpc.StatusCode, code), "no session 1001; join again")

    plan.on_train = on_train
    with FakeServer(plan) as server:
        ends(trainer(server.address, folder), 0)
    assert [j.rank for j in plan.joins] == [0, 3] and len(plan.batches) == 10


@pytest.mark.parametrize("code", ["FAILED_PRECONDITION", "ALREADY_EXISTS"])
def test_takes_its_rank_back_once_the_dead_session_is_noticed(trainer, folder, stubs, code):
    plan = Plan(leases(3), state=stubs.pb.RUNNING)

    def on_join(_request, context, number):
        if number < 4:
            context.abort(getattr(grpc.StatusCode, code), "rank 1 of job 1 has a trainer")

    plan.on_join = on_join
    with FakeServer(plan) as server:
        ends(trainer(server.address, folder, "--rank", 1), 0)
    assert len(plan.joins) == 4 and len(plan.batches) == 3


def test_gives_up_after_the_time_that_it_was_told(trainer, folder):
    began = time.monotonic()
    _, err = ends(trainer(NOBODY, folder, "--reconnect", 1), 5)
    assert 0.9 < time.monotonic() - began < 10 * harness.SCALE
    assert "127.0.0.1" in err


def test_a_server_that_ends_each_stream_does_not_hold_it_for_ever(trainer, folder):
    plan = Plan(leases(3))
    plan.on_train = lambda context, _: context.abort(grpc.StatusCode.INTERNAL, "broken")
    with FakeServer(plan) as server:
        _, err = ends(trainer(server.address, folder, "--reconnect", 1), 1)
    assert 2 <= len(plan.joins) <= 30, "backs off between the tries"
    assert "broken" in err


# ---- the end ------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason,status", [("completed", 0), ("cancelled", 0), ("left", 0),
                                           ("failed", 1)])
def test_ends_with_the_status_of_the_job(trainer, folder, reason, status):
    plan = Plan(leases(2), done=reason)
    with FakeServer(plan) as server:
        out, err = ends(trainer(server.address, folder), status)
    assert (reason in out) if status == 0 else ("failed" in err)


def test_joins_again_when_the_job_was_put_back(trainer, folder):
    plan = Plan(leases(4), done="restored")

    def on_train(_context, number):
        if number == 2:
            plan.answered, plan.done = 1, "completed"

    plan.on_train = on_train
    plan.on_join = lambda _request, _context, number: setattr(plan, "answered", 1 if number > 1 else 0)
    with FakeServer(plan) as server:
        ends(trainer(server.address, folder), 0)
    assert [b.step for b in plan.batches] == [0, 1, 2, 3, 1, 2, 3]


@pytest.mark.parametrize("state,status", [("COMPLETED", 0), ("CANCELLED", 0), ("FAILED", 1)])
def test_a_job_that_has_ended_before(trainer, folder, stubs, state, status):
    plan = Plan([], state=getattr(stubs.pb, state))
    plan.on_join = lambda _request, context, _number: context.abort(
        grpc.StatusCode.FAILED_PRECONDITION, f"job 1 is {state}")
    with FakeServer(plan) as server:
        ends(trainer(server.address, folder), status)
    assert len(plan.joins) == 1


def test_json_says_how_it_ended(trainer, folder):
    plan = Plan(leases(5))
    with FakeServer(plan) as server:
        out, err = ends(trainer(server.address, folder, flags=["--json"]), 0)
    assert err == ""
    assert json.loads(out) == {"job": 1, "rank": 3, "step": 5, "samples": 40, "loss": pytest.approx(0.2),
                               "reason": "completed"}


# ---- what is wrong ------------------------------------------------------------------------------


WRONG = {
    "shape": (dict(input_dims=(3, 32, 32)), ["(1, 28, 28)", "(3, 32, 32)"]),
    "too few samples": (dict(samples=200), ["has 100 samples", "deals out 200"]),
    "no leases": (dict(samples=0), ["deals out no samples"]),
    "mse with classes": (dict(loss="mse"), ["mse", "classes"]),
    "fewer classes": (dict(output_dims=(2,)), ["label", "2 classes"]),
    "lease past the end": (dict(leases=[[1, 100]]), ["100 samples"]),
    "lease larger than a batch": (dict(batch=4), ["leased 8 samples", "1 to 4"]),
    "empty lease": (dict(leases=[[]]), ["leased 0 samples"]),
    "leases without end": (dict(leases=leases(200), ahead=200), ["further ahead than 32"]),
    "no window": (dict(window=0, ahead=4), ["0 of them under way"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_data_that_does_not_fit_is_said_and_not_tried_again(trainer, folder, name):
    changes, words = WRONG[name]
    answers = threading.Event() if "without end" in name else None
    plan = Plan(**{"leases": leases(5), "answers": answers, **changes})
    with FakeServer(plan) as server:
        _, err = ends(trainer(server.address, folder), 1)
    for word in words:
        assert word in err
    assert len(plan.joins) == 1 and len(err.splitlines()) == 1 and err.startswith("dpsctl: ")
    assert plan.leaves == [1001], "leaves, so that the rank is free"


@pytest.mark.parametrize("code,status", [("NOT_FOUND", 4), ("PERMISSION_DENIED", 1),
                                         ("INVALID_ARGUMENT", 1), ("UNIMPLEMENTED", 1)])
def test_a_join_that_is_refused_is_not_tried_again(trainer, folder, code, status):
    plan = Plan([])
    plan.on_join = lambda _request, context, _number: context.abort(
        getattr(grpc.StatusCode, code), "the reason")
    with FakeServer(plan) as server:
        _, err = ends(trainer(server.address, folder), status)
    assert "the reason" in err and len(plan.joins) == 1


@pytest.mark.parametrize("options,word", [
    (["--rank", "x"], "rank"), (["--accumulate", 0], "--accumulate wants"), (["--rank", 2 ** 40], "too large"), (["--nonsense"], "nonsense"),
    (["and", "more"], "")])
def test_wrong_usage(trainer, folder, options, word):
    _, err = ends(trainer(NOBODY, folder, *options), 2)
    assert word in err


def test_data_that_cannot_be_read(trainer, tmp_path):
    _, err = ends(trainer(NOBODY, tmp_path / "none"), 1)
    assert "none" in err and "No such file" in err
    (tmp_path / "train.npz").write_bytes(b"not a zip file")
    _, err = ends(trainer(NOBODY, tmp_path), 1)
    assert "train.npz" in err


# ---- signals, and being managed -----------------------------------------------------------------


@pytest.mark.parametrize("number,status", [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_makes_it_leave(trainer, folder, number, status):
    plan = Plan(leases(30), answers=threading.Event())
    with FakeServer(plan) as server:
        process = trainer(server.address, folder)
        plan.wait_for(lambda: len(plan.batches) == WINDOW)
        process.send_signal(number)
        ends(process, status)
        assert plan.leaves == [1001]


def test_a_signal_ends_the_search_for_a_daemon(trainer, folder):
    process = trainer(NOBODY, folder)
    assert "trying again" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    ends(process, 0, seconds=5)


def test_managed_sends_its_token_says_nothing_and_does_not_leave(trainer, folder):
    plan = Plan(leases(30), answers=threading.Event())
    with FakeServer(plan) as server:
        process = trainer(server.address, folder, "--managed", "--parent", os.getpid(),
                          env={"DPS_TRAINER_TOKEN": "secret"})
        plan.wait_for(lambda: len(plan.batches) == WINDOW)
        process.send_signal(signal.SIGTERM)
        assert ends(process, 0) == ("", "")
        assert plan.joins[0].token == "secret" and plan.leaves == []


def test_managed_is_silent_when_all_is_well(trainer, folder):
    plan = Plan(leases(10))
    with FakeServer(plan) as server:
        assert ends(trainer(server.address, folder, "--managed"), 0) == ("", "")


def test_another_parent_than_it_was_told(trainer, folder):
    plan = Plan(leases(3))
    with FakeServer(plan) as server:
        ends(trainer(server.address, folder, "--managed", "--parent", 1), 1)
    assert plan.joins == []


def test_ends_with_its_parent(folder, tmp_path):
    plan = Plan(leases(30), answers=threading.Event())
    script = ("import os, subprocess, sys\n"
              "p = subprocess.Popen(sys.argv[1:] + ['--managed', '--parent', str(os.getpid())])\n"
              "print(p.pid, flush=True)\np.wait()\n")
    with FakeServer(plan) as server:
        parent = subprocess.Popen(
            [sys.executable, "-c", script, harness.DPSCTL, "--address", server.address, "trainer",
             "--job", "1", "--data", str(folder)], stdout=subprocess.PIPE, text=True)
        child = int(parent.stdout.readline())
        plan.wait_for(lambda: len(plan.batches) == WINDOW)
        parent.kill()
        parent.communicate()

        def gone():
            with contextlib.suppress(OSError):
                return harness.is_zombie(child)
            return True

        wait_until(gone, 5, "the trainer to end with its parent")
