"""Whatever ends dpsd or a trainer: under every policy but the two asynchronous ones the result is, bit
for bit, that of a run that nobody disturbed; under those two no sample is lost or used twice.

DPS_KILLS=N (default 2) kills a job, DPS_KILL_SEED to repeat a sequence.
"""
import contextlib
import os
import random
import signal
import time

import pytest

from harness import same_rows

KILLS = int(os.environ.get("DPS_KILLS", "2"))
SEED = int(os.environ.get("DPS_KILL_SEED", "1"))
EPOCHS = os.environ.get("DPS_KILL_EPOCHS", "4")
SYNCHRONOUS = ["average", "elastic", "diloco", "barrier"]
FREE = ["average-async", "async"]


def submit(daemon, data, policy, *words):
    return daemon.ctl("submit", "--model", "mnist-cnn", "--data", os.environ.get("DPS_KILL_DATA", data),
                      "--trainers", 3, "--sync", policy, "--interval", 5, "--batch", 8, "--epochs", EPOCHS,
                      "--lr", 0.003, "--optimizer", "sgd,momentum=0.9", "--seed", 1, "--checkpoint-rounds", 2,
                      "--guard-norm", 50, *words)["id"]


def killed_at_random(daemon, job, took, sig=signal.SIGKILL):
    """KILLS ends of the daemon in the middle of the job; returns how many landed."""
    rng, landed = random.Random(SEED), 0
    for _ in range(KILLS):
        time.sleep(rng.uniform(0.05, max(0.3, took / (KILLS + 1))))
        if daemon.ctl("status", job)["state"] == "COMPLETED":
            break
        daemon.kill(sig)
        daemon.start()
        landed += 1
    return landed


def check_once(daemon, job, status):
    rows = daemon.ctl("metrics", job)
    assert status["samples"] == status["samples_total"] == sum(row["samples"] for row in rows)
    assert len({(row["round"], row["rank"]) for row in rows}) == len(rows)
    return rows


@pytest.mark.threads
@pytest.mark.parametrize("policy", SYNCHRONOUS)
def test_killed_daemons_and_trainers_change_no_bit(daemons, small_digits, policy):
    daemon = daemons().start()
    begin = time.monotonic()
    job = submit(daemon, small_digits, policy)
    expected = daemon.wait_done(job)
    took = time.monotonic() - begin
    rows = daemon.ctl("metrics", job)

    job = submit(daemon, small_digits, policy)
    killed_at_random(daemon, job, took)
    status = daemon.wait_done(job)
    assert status["checksum"] == expected["checksum"], f"{policy}, DPS_KILL_SEED={SEED}"
    assert same_rows(check_once(daemon, job, status), rows)

    job = submit(daemon, small_digits, policy)
    daemon.wait_progress(job, round=2)
    for pid, _ in daemon.trainers(job)[:2]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    killed_at_random(daemon, job, took, signal.SIGTERM)
    status = daemon.wait_done(job)
    assert status["checksum"] == expected["checksum"], policy
    assert same_rows(check_once(daemon, job, status), rows)


@pytest.mark.threads
@pytest.mark.parametrize("policy", FREE)
def test_killed_asynchronous_jobs_use_every_sample_once(daemons, small_digits, policy):
    daemon = daemons().start()
    job = submit(daemon, small_digits, policy)
    killed_at_random(daemon, job, took=4)
    check_once(daemon, job, daemon.wait_done(job))


@pytest.mark.parametrize("policy", SYNCHRONOUS)
def test_a_model_with_buffers_comes_back(daemons, policy):
    """BatchNorm's running statistics and counters are part of it."""
    def run(kill):
        daemon = daemons().start()
        job = daemon.ctl("submit", "--model", "resnet-small", "--data", "synthetic", "--trainers", 2, "--sync",
                         policy, "--interval", 2, "--steps", 8, "--batch", 4, "--seed", 3, "--lr", 0.01,
                         "--checkpoint-rounds", 1)["id"]
        daemon.wait_progress(job, round=2)
        if kill:
            daemon.kill()
            daemon.start()
        checksum, arrays = daemon.wait_done(job)["checksum"], daemon.export(job)
        daemon.terminate()
        return checksum, arrays

    (checksum, arrays), (again, same) = run(False), run(True)
    assert checksum == again
    for name, array in arrays.items():
        assert (array == same[name]).all(), name


@pytest.mark.parametrize("policy", SYNCHRONOUS + FREE)
def test_stopped_in_the_middle_of_a_round(daemons, small_digits, policy):
    """SIGTERM with K so long that no round ends: the position in the round is kept."""
    daemon = daemons().start()
    words = ("--model", "mnist-cnn", "--data", small_digits, "--trainers", 2, "--sync", policy, "--interval", 1000,
             "--steps", 120, "--batch", 8, "--lr", 0.003, "--seed", 1)
    expected = daemon.wait_done(daemon.ctl("submit", *words)["id"])
    job = daemon.ctl("submit", *words)["id"]
    step = daemon.wait_progress(job, step=20)["step"]
    assert daemon.terminate() == 0
    daemon.start()
    assert daemon.wait_progress(job, step=step)["round"] == 1
    status = daemon.wait_done(job)
    assert status["samples"] == 2 * 120 * 8
    if policy in SYNCHRONOUS:
        assert status["checksum"] == expected["checksum"]
