"""kill -9 of trainers: the job completes, every sample of the epoch is used exactly once.

DPS_KILLS=N (default 3) kills, of the job of harness.submit_victim. Managed trainers are killed by pid;
the external ones are threads of this test that record what they were leased and what was accepted, and
vanish without Leave.
"""
import contextlib
import os
import random
import signal
import threading
import time

import numpy
import pytest

import harness
from harness import check_metrics, to_array, to_tensor, wait_until
from trainers import check_all_used_once

KILLS = int(os.environ.get("DPS_KILLS", "3"))
SEED = int(os.environ.get("DPS_KILL_SEED", "1"))


@pytest.mark.threads
def test_killed_trainers_come_back_and_nothing_is_lost(dpsd, dpsctl, small_digits):
    """Against the same job undisturbed: same bits, same samples, no round without a rank."""
    start = time.monotonic()
    expected = dpsd.wait_done(harness.submit_victim(dpsd, small_digits), seconds=900)
    took = time.monotonic() - start

    rng = random.Random(SEED)
    jobs, landed = [harness.submit_victim(dpsd, small_digits)], 0
    while landed < KILLS:
        time.sleep(rng.uniform(0.1, max(0.2, took / KILLS)))
        trainers = dpsd.trainers(jobs[-1])
        if not trainers and dpsd.ctl("status", jobs[-1])["state"] == "COMPLETED":
            jobs.append(harness.submit_victim(dpsd, small_digits))  # it was too fast: another one
        with contextlib.suppress(ProcessLookupError, IndexError):
            os.kill(rng.choice(trainers)[0], signal.SIGKILL)
            landed += 1
    print(f"{landed} kills landed in {len(jobs)} job(s)")
    for job in jobs:
        status = dpsd.wait_done(job, seconds=900)
        assert status["samples"] == expected["samples"]
        assert status["checksum"] == expected["checksum"]
        rows = dpsctl("metrics", job)
        check_metrics(rows, ranks=4)
        assert sum(row["samples"] for row in rows) == expected["samples"]
    restarts = sum(t.get("restarts", 0) for job in jobs for t in dpsctl("status", job)["trainers"])
    assert 0 < restarts <= landed
    assert any(e.kind == "trainer" for job in jobs for e in dpsd.events(job)), "a death is an event"


class Trainer(threading.Thread):
    """An external trainer on unary calls; dies after `lives` batches without a word."""

    def __init__(self, dpsd, job, rank, used, lives=None):
        super().__init__(daemon=True)
        self.dpsd, self.job, self.rank, self.used, self.lives = dpsd, job, rank, used, lives
        self.error = None

    def run(self):
        channel = self.dpsd.new_channel()
        try:
            self.train(harness.stubs().grpc.TrainingStub(channel))
        except Exception as error:  # reported by the test
            self.error = error
        finally:
            channel.close()

    def train(self, training):
        pb = harness.stubs().pb
        joined = training.Join(pb.JoinRequest(job=self.job, rank=self.rank, client="test"), timeout=harness.CALL_S)
        while True:
            reply = training.NextLease(pb.SessionRequest(session=joined.session), timeout=harness.CALL_S)
            if reply.WhichOneof("kind") == "done":
                training.Leave(pb.SessionRequest(session=joined.session), timeout=harness.CALL_S)
                return
            if self.lives is not None and self.lives == 0:
                return  # leased, never trained on: the lease must go to somebody else
            self.step(training, joined, reply.lease)
            if self.lives is not None:
                self.lives -= 1

    def step(self, training, joined, lease):
        pb = harness.stubs().pb
        count = len(lease.indices)
        x = numpy.zeros((count, 1, 28, 28), numpy.float32)
        forward = training.Forward(pb.ForwardRequest(session=joined.session, x=to_tensor(x)), timeout=harness.CALL_S)
        gradient = numpy.full(to_array(forward.output).shape, -1e-3, numpy.float32)
        training.Backward(pb.BackwardRequest(session=joined.session, context=forward.context,
                                             output_gradient=to_tensor(gradient)), timeout=harness.CALL_S)
        training.Step(pb.StepRequest(session=joined.session, context=forward.context, loss=1.0),
                      timeout=harness.CALL_S)
        self.used.append((lease.epoch, tuple(lease.indices)))


def run_external(dpsd, deaths, trainers=2, samples=200, epochs=2, interval=3):
    """Runs a job; deaths: rank → batches after which its first trainers die. Returns what was used."""
    job = dpsd.submit(model="mlp", samples=samples, epochs=epochs, trainers=trainers, interval=interval, batch=16)
    used, threads = [], []
    for rank in range(trainers):
        threads.append(Trainer(dpsd, job, rank, used, lives=deaths.get(rank)))
        threads[-1].start()
    for rank in deaths:
        threads[rank].join(harness.CALL_S)
        assert threads[rank].error is None, threads[rank].error
        heir = Trainer(dpsd, job, rank, used)
        heir.start()
        threads.append(heir)
    for thread in threads:
        thread.join(2 * harness.CALL_S)
        assert not thread.is_alive(), "a trainer hangs"
        assert thread.error is None, thread.error
    dpsd.wait_done(job)
    return job, used


@pytest.mark.parametrize("deaths", [{}, {1: 0}, {0: 3}, {0: 2, 1: 5}], ids=str)
def test_leases_of_the_dead_are_dealt_again(dpsd, deaths):
    job, used = run_external(dpsd, deaths)
    check_all_used_once(used, samples=200, epochs=2)
    rows = dpsd.ctl("metrics", job)
    assert sum(row["samples"] for row in rows) == 400


@pytest.mark.threads
def test_a_rank_that_never_returns_is_left_behind(daemons):
    """After trainer.rejoin the meeting goes on without it, and its samples go to the others."""
    daemon = daemons(config="[trainer]\nlease = 2\nrejoin = 2\n").start()
    job = daemon.submit(model="mlp", samples=160, epochs=1, trainers=2, interval=2, batch=16)
    used = []
    dies = Trainer(daemon, job, 1, used, lives=1)
    stays = Trainer(daemon, job, 0, used)
    for thread in (dies, stays):
        thread.start()
    stays.join(2 * harness.CALL_S)
    assert not stays.is_alive() and stays.error is None, stays.error
    status = daemon.wait_done(job)
    assert status["samples"] == 160
    check_all_used_once(used, samples=160, epochs=1)
    assert any("rank 1" in e.text or "1" in e.text for e in daemon.events(job) if e.kind == "trainer")


def test_a_trainer_that_cannot_start_fails_the_job_in_time(dpsd, dpsctl, tmp_path):
    """The data vanishes after submit: restarts have a limit, then the job says why."""
    folder = harness.digits(tmp_path, train=4000, test=10)
    job = dpsctl("submit", "--model", "mnist-cnn", "--data", folder, "--trainers", 1, "--interval", 5,
                 "--epochs", 50, "--batch", 8)["id"]
    dpsd.wait_progress(job, step=1)
    for file in folder.iterdir():
        file.unlink()
    for pid, _ in dpsd.trainers():
        os.kill(pid, signal.SIGKILL)
    status = dpsd.wait_state(job, "FAILED", seconds=240)
    assert status["reason"]


def test_eight_trainers_killed_at_once(dpsd, dpsctl, small_digits):
    job = dpsctl("submit", "--model", "mnist-cnn", "--data", small_digits, "--trainers", 8, "--interval", 5,
                 "--epochs", 2, "--batch", 8, "--seed", 1)["id"]
    dpsd.wait_progress(job, round=2)
    for pid, _ in dpsd.trainers():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    status = dpsd.wait_done(job, seconds=240)
    assert status["samples"] == 2 * 640
    assert sum(row["samples"] for row in dpsctl("metrics", job)) == 2 * 640


def test_a_stopped_trainer_is_named_and_replaced(daemons, small_digits):
    """SIGSTOP: the socket stays open, and nothing comes. trainer.lease finds it, and another takes over."""
    words = ("submit", "--model", "mnist-cnn", "--data", small_digits, "--trainers", 2, "--interval", 5,
             "--epochs", 10, "--batch", 8, "--seed", 1)
    daemon = daemons(config="[trainer]\nlease = 2\nrejoin = 60\n").start()
    expected = daemon.wait_done(daemon.ctl(*words)["id"])
    job = daemon.ctl(*words)["id"]
    daemon.wait_progress(job, round=2)  # both have come
    stopped, command = daemon.trainers(job)[0]
    rank = int(command.split(" --rank ")[1].split()[0])
    os.kill(stopped, signal.SIGSTOP)

    def named():
        other, = (t for t in daemon.ctl("status", job)["trainers"] if t["rank"] != rank)
        return f"rank {rank}" in (other["waiting_for"] or "")
    wait_until(named, 30, "the status to name the one that is waited for")
    status = daemon.wait_done(job, seconds=240)
    assert status["checksum"] == expected["checksum"] and status["samples"] == expected["samples"]
    assert any("hangs" in e.text for e in daemon.events(job) if e.kind == "trainer")
    wait_until(lambda: stopped not in dict(daemon.trainers()), 30, "the stopped process to end")
