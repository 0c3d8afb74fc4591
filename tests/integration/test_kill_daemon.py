"""kill -9 of the daemon at random moments: after restarts the result is that of an undisturbed run.

DPS_KILLS=N (default 2) kills, DPS_KILL_SEED to repeat a sequence; harness.submit_victim says of which
job. Ten kills of the main job: DPS_KILLS=10 DPS_KILL_DATA=DIR DPS_KILL_EPOCHS=3.
"""
import os
import random
import time

import pytest

from harness import check_metrics, same_rows, submit_victim

KILLS = int(os.environ.get("DPS_KILLS", "2"))
SEED = int(os.environ.get("DPS_KILL_SEED", "1"))


def submit(daemon, data, *length, trainers=2, interval=5):
    return daemon.ctl("submit", "--model", "mnist-cnn", "--data", data, "--trainers", trainers,
                      "--interval", interval, "--seed", 1, *length)["id"]


@pytest.fixture
def undisturbed(daemons, small_digits):
    """(seconds, final status, metrics) of the run that nobody disturbs."""
    daemon = daemons().start()
    start = time.monotonic()
    job = submit_victim(daemon, small_digits)
    status = daemon.wait_done(job, seconds=900)
    took = time.monotonic() - start
    result = took, status, daemon.ctl("metrics", job)
    daemon.terminate()
    return result


@pytest.mark.threads
def test_killed_runs_end_with_the_same_bits(undisturbed, daemons, small_digits):
    took, expected, expected_rows = undisturbed
    rng = random.Random(SEED)
    daemon = daemons().start()
    jobs, landed = [submit_victim(daemon, small_digits)], 0
    while landed < KILLS:
        time.sleep(rng.uniform(0.05, max(0.3, took / KILLS)))
        if daemon.ctl("status", jobs[-1])["state"] == "COMPLETED":
            jobs.append(submit_victim(daemon, small_digits))  # it was too fast: another one
            continue
        daemon.kill()
        time.sleep(rng.choice([0, 0, 0.5]))
        daemon.start()
        landed += daemon.ctl("status", jobs[-1])["state"] != "COMPLETED"
        rows = daemon.ctl("metrics", jobs[-1])
        if rows:
            check_metrics(rows, ranks=4)
    print(f"{landed} kills landed in {len(jobs)} job(s)")
    for job in jobs:
        status = daemon.wait_done(job, seconds=900)
        assert status["checksum"] == expected["checksum"], f"after {landed} kills (DPS_KILL_SEED={SEED})"
        assert status["step"] == expected["step"] and status["samples"] == expected["samples"]
        check_metrics(daemon.ctl("metrics", job), ranks=4)
        assert same_rows(daemon.ctl("metrics", job), expected_rows)


def test_killed_at_once_after_submit(daemons, small_digits, undisturbed):
    """A job whose number was printed is never lost."""
    daemon = daemons().start()
    job = submit_victim(daemon, small_digits)
    daemon.kill()
    daemon.start()
    assert daemon.wait_done(job, seconds=900)["checksum"] == undisturbed[1]["checksum"]


def test_killed_while_paused_stays_paused(daemons, small_digits):
    daemon = daemons().start()
    job = submit(daemon, small_digits, "--steps", 100000, "--batch", 8, trainers=2)
    daemon.wait_progress(job, round=2)
    daemon.ctl("pause", job)
    daemon.wait_state(job, "PAUSED")
    daemon.kill()
    daemon.start()
    assert daemon.wait_state(job, "PAUSED")
    daemon.ctl("cancel", job)


def test_killed_after_a_change_of_k_keeps_the_change(daemons, small_digits):
    def disturbed(kill):
        daemon = daemons().start()
        job = submit(daemon, small_digits, "--steps", 150, "--batch", 8, trainers=2, interval=10)
        daemon.ctl("pause", job)
        daemon.wait_state(job, "PAUSED")
        daemon.ctl("set", job, "sync.interval=3")
        daemon.ctl("resume", job)
        if kill:
            daemon.wait_progress(job, round=3)
            daemon.kill()
            daemon.start()
        status = daemon.wait_done(job, seconds=600)
        assert status["interval"] == 3
        assert len([e for e in daemon.events(job) if e.kind == "setting"]) == 1
        check_metrics(daemon.ctl("metrics", job), ranks=2)
        daemon.terminate()
        return status

    assert disturbed(kill=True)["step"] == disturbed(kill=False)["step"] == 150


def test_completed_jobs_survive(daemons, small_digits):
    daemon = daemons().start()
    job = submit(daemon, small_digits, "--steps", 10, "--batch", 8, trainers=1)
    before = daemon.wait_done(job)
    parameters = daemon.export(job)
    rows = daemon.ctl("metrics", job)
    daemon.kill()
    daemon.start()
    after = daemon.ctl("status", job)
    for key in ("state", "checksum", "step", "round", "samples", "name", "model"):
        assert after[key] == before[key], key
    assert daemon.ctl("metrics", job) == rows
    again = daemon.export(job)
    assert all((again[name] == parameters[name]).all() for name in parameters)
    assert daemon.ctl("eval", job, "--data", small_digits)["samples"] == 200
