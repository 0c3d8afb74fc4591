"""The same seed gives the same bits, however the trainers are timed.

DPS_RUNS runs (2) of DPS_STEPS steps (20) on batches of DPS_BATCH (8) for each number of trainers; the
full measure is 20 runs of 60 steps on batches of 32.
"""
import os

import pytest

RUNS = int(os.environ.get("DPS_RUNS", "2"))
STEPS = int(os.environ.get("DPS_STEPS", "20"))
BATCH = int(os.environ.get("DPS_BATCH", "8"))


def run(dpsd, data, trainers, seed=1, **options):
    words = [word for key, value in options.items() for word in (f"--{key}", value)]
    job = dpsd.ctl("submit", "--model", "mnist-cnn", "--data", data, "--trainers", trainers, "--interval", 5,
                   "--steps", STEPS, "--batch", BATCH, "--seed", seed, *words)["id"]
    status = dpsd.wait_done(job)
    assert status["step"] == STEPS and status["samples"] == STEPS * trainers * BATCH
    return status["checksum"]


@pytest.mark.threads
@pytest.mark.parametrize("trainers", [1, 2, 4, 8])
def test_same_seed_same_parameters(dpsd, small_digits, trainers):
    checksums = {run(dpsd, small_digits, trainers) for _ in range(RUNS)}
    assert len(checksums) == 1
    assert not dpsd.ctl("list")[RUNS:], "jobs that nobody asked for"


def test_the_seed_matters(dpsd, small_digits):
    assert run(dpsd, small_digits, 2, seed=1) != run(dpsd, small_digits, 2, seed=2)


def test_jobs_beside_it_do_not_matter(dpsd, small_digits):
    """Three jobs at once, so that lanes are shared and timing differs, against one alone."""
    alone = run(dpsd, small_digits, 2)
    jobs = [dpsd.ctl("submit", "--model", "mnist-cnn", "--data", small_digits, "--trainers", 2, "--interval", 5,
                     "--steps", STEPS, "--batch", BATCH, "--seed", 1)["id"] for _ in range(3)]
    assert {dpsd.wait_done(job)["checksum"] for job in jobs} == {alone}


def test_another_daemon_does_not_matter(daemons, small_digits):
    checksums = set()
    for _ in range(2):
        daemon = daemons().start()
        checksums.add(run(daemon, small_digits, 2))
        daemon.terminate()
    assert len(checksums) == 1


@pytest.mark.parametrize("optimizer", ["sgd,momentum=0.9,nesterov=true", "adam", "adamw,weight_decay=0.01"])
def test_every_optimizer_is_deterministic(dpsd, small_digits, optimizer):
    assert len({run(dpsd, small_digits, 2, optimizer=optimizer, lr=0.002) for _ in range(2)}) == 1
