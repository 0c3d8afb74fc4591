"""One trainer stopped, one killed: under every policy the job completes without help, and who is waited
for is named.

DPS_STOP_S (default 8; 20 for the full measure): seconds of SIGSTOP. DPS_STOP_DATA=DIR and
DPS_STOP_EPOCHS=E: of another job than the small one. The full measure takes one policy after the other,
else all jobs run at once.
"""
import concurrent.futures
import contextlib
import os
import re
import signal
import time

import pytest

from harness import patterns, wait_until
from trainers import Feeder, check_all_used_once

STOP_S = float(os.environ.get("DPS_STOP_S", "8"))
POLICIES = ["average", "average-async", "barrier", "async", "elastic", "diloco"]
FREE = ("average-async", "async")


@pytest.fixture(scope="module")
def data():
    return patterns(320, seed=1)


def rank_of(command):
    return int(command.split(" --rank ")[1].split()[0])


def words_about(status, rank):
    """What status says of a rank: to those who wait for it, or of itself."""
    told = [t["waiting_for"] for t in status["trainers"] if f"rank {rank} (" in (t["waiting_for"] or "")]
    return [re.search(rf"rank {rank} \(([^)]*)\)", text).group(1) for text in told]


def name_the_stopped(daemon, job, policy, rank, lease):
    """Waits until it is known that the rank is silent, and somebody can read it."""
    if policy in FREE:  # nobody waits for it: it is named once the lease is over
        wait_until(lambda: any(f"rank {rank} " in e.text for e in daemon.events(job) if e.kind == "trainer"),
                   lease + 20, f"{policy}: the stopped one to be named")
        return
    reasons = set()

    def silent():
        reasons.update(words_about(daemon.ctl("status", job), rank))
        return any(re.match(r"no word for \d+ s", reason) or "no trainer" in reason for reason in reasons)
    wait_until(silent, lease + 20, f"{policy}: status to say why rank {rank} is waited for, not {reasons}")


def stop_one_and_kill_one(daemon, data, policy, lease):
    """Nobody helps. A stopped trainer is silent for trainer.lease, then another takes its place."""
    epochs = os.environ.get("DPS_STOP_EPOCHS", "8")
    job = daemon.ctl("submit", "--model", "mnist-cnn", "--data", os.environ.get("DPS_STOP_DATA", data),
                     "--trainers", 4, "--sync", policy, "--interval", 5, "--epochs", epochs, "--batch", 8,
                     "--lr", 0.002, "--seed", 1)["id"]
    daemon.wait_progress(job, round=2)
    (stopped, command), (killed, _) = daemon.trainers(job)[:2]
    os.kill(stopped, signal.SIGSTOP)
    begin = time.monotonic()
    os.kill(killed, signal.SIGKILL)
    try:
        name_the_stopped(daemon, job, policy, rank_of(command), lease)
        time.sleep(max(0.0, STOP_S - (time.monotonic() - begin)))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(stopped, signal.SIGCONT)
    status = daemon.wait_done(job, seconds=400)
    rows = daemon.ctl("metrics", job)
    assert sum(row["samples"] for row in rows) == status["samples"] == status["samples_total"], policy
    assert len({(row["round"], row["rank"]) for row in rows}) == len(rows), policy
    assert sum(t["restarts"] for t in status["trainers"]) >= 1, policy


@pytest.mark.threads
@pytest.mark.parametrize("policies", [[policy] for policy in POLICIES] if STOP_S >= 15 else [POLICIES],
                         ids=" ".join)
def test_one_stopped_and_one_killed(daemons, small_digits, policies):
    lease = 3 if STOP_S < 15 else 6
    daemon = daemons(config=f"[trainer]\nlease = {lease}\nrejoin = 60\n[jobs]\nrunning = 6\n").start()
    with concurrent.futures.ThreadPoolExecutor(len(policies)) as pool:
        list(pool.map(lambda policy: stop_one_and_kill_one(daemon, small_digits, policy, lease), policies))


def stop_one(daemon, data, policy):
    job = daemon.ctl("submit", "--model", "mnist-cnn", "--data", data, "--trainers", 2, "--sync", policy,
                     "--interval", 5, "--epochs", 8, "--batch", 8, "--lr", 0.002)["id"]
    daemon.wait_progress(job, round=2)
    stopped, command = daemon.trainers(job)[0]
    rank = rank_of(command)
    os.kill(stopped, signal.SIGSTOP)
    try:
        wait_until(lambda: any(re.fullmatch(r"no word for \d+ s", said)
                               for said in words_about(daemon.ctl("status", job), rank)), 40, "the reason")
        event = wait_until(lambda: [e for e in daemon.events(job) if e.kind == "straggler"], 40, "the event")[0]
        assert f"rank {rank} (" in event.text
        other = next(t for t in daemon.ctl("status", job)["trainers"] if t["rank"] != rank)
        assert other["state"] == "waiting" and other["waiting_s"] > 1
    finally:
        os.kill(stopped, signal.SIGCONT)
    assert daemon.wait_done(job)["samples"] == 8 * 640


def test_the_reason_is_the_silence(daemons, small_digits):
    """While the lease lasts: "rank 1 (no word for 5 s)", in status and in the events."""
    daemon = daemons(config="[trainer]\nlease = 60\nrejoin = 60\n").start()
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda policy: stop_one(daemon, small_digits, policy), ("average", "barrier", "diloco")))


@pytest.mark.threads
@pytest.mark.parametrize("policy", ["average", "elastic", "diloco", "barrier"])
def test_a_quorum_goes_on_without_the_slow_one(dpsd, data, policy):
    """quorum:3 of 4 with a timeout of 1 s; the slow one's batches count in a later meeting."""
    job, used = dpsd.submit(model="mlp", policy=policy, trainers=4, interval=2, samples=320, epochs=2, batch=8,
                            lr=0.01, settings={"sync.wait": "quorum:3", "sync.timeout": "1"}), []
    quick = [Feeder(dpsd, job, *data, used, rank=rank) for rank in range(3)]
    # It leaves long before the others, whose rounds take a second, have fed what was dealt to them.
    slow = Feeder(dpsd, job, *data, used, pause=2.5, rank=3, steps=2)
    for feeder in (*quick, slow):
        feeder.start()
    for feeder in (slow, *quick):
        feeder.finish()
    status = dpsd.wait_done(job)
    assert status["samples"] == 640
    check_all_used_once(used, 320, epochs=2)
    rows = dpsd.ctl("metrics", job)
    assert sum(row["samples"] for row in rows) == 640
    assert sum(row["samples"] for row in rows if row["rank"] == 3) == 8 * slow.done == 16
    met = {row["round"]: {r["rank"] for r in rows if r["round"] == row["round"]} for row in rows}
    if policy != "barrier":
        assert any({0, 1, 2} == ranks for ranks in met.values()), met
    assert any("rank 3 is not waited for" in e.text for e in dpsd.events(job))


def test_without_a_quorum_all_are_waited_for(dpsd, data):
    job, used = dpsd.submit(model="mlp", trainers=2, interval=2, samples=320, steps=4, batch=8,
                            settings={"sync.timeout": "1"}), []
    feeders = [Feeder(dpsd, job, *data, used, rank=0), Feeder(dpsd, job, *data, used, rank=1, pause=0.8)]
    for feeder in feeders:
        feeder.start()
    for feeder in feeders:
        feeder.finish()
    dpsd.wait_done(job)
    rows = dpsd.ctl("metrics", job)
    assert sorted((row["round"], row["rank"]) for row in rows) == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert not [e for e in dpsd.events(job) if "not waited for" in e.text]
