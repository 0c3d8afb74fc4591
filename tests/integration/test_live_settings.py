"""`dpsctl set` on a running job: each setting holds from the next round on, for all ranks alike, is in
the events with who and when, and survives kill -9."""
import math
import os
import pwd
import time

import pytest

import harness
from harness import patterns, wait_until
from trainers import feed, nll, pixels

# key → (what it is by default, another value)
SETTINGS = {
    "sync.interval": ("5", "3"),
    "sync.weights": ("uniform", "samples"),
    "sync.state": ("keep", "average"),
    "sync.wait": ("all", "quorum:1"),
    "sync.timeout": ("10", "30"),
    "sync.max_staleness": ("64", "2"),
    "sync.on_stale": ("reject", "apply"),
    "sync.alpha": (None, "0.125"),
    "sync.outer_lr": ("0.7", "0.5"),
    "sync.outer_momentum": ("0.9", "0.25"),
    "optimizer.lr": ("0.002", "0.001"),
    "optimizer.schedule": ("constant", "step,every=50,gamma=0.5"),
    "optimizer.clip": ("0", "2.5"),
    "guard.norm": ("0", "100"),
    "guard.strikes": ("3", "5"),
    "checkpoint.rounds": ("4", "2"),
    "checkpoint.keep": ("3", "2"),
}


def submit(daemon, data, *words, trainers=2, interval=5, steps=100000, lr=0.002):
    return daemon.ctl("submit", "--model", "mnist-cnn", "--data", data, "--trainers", trainers, "--interval",
                      interval, "--steps", steps, "--batch", 8, "--lr", lr, "--seed", 1, *words)["id"]


def change(daemon, job, *words):
    """Returns the round from which the change holds."""
    return daemon.ctl("set", job, *words)["round"]


def paused(daemon, job):
    daemon.ctl("pause", job)
    daemon.wait_state(job, "PAUSED")


def by_round(rows, key):
    """round → the set of that value over ranks"""
    values = {}
    for row in rows:
        values.setdefault(row["round"], set()).add(row[key])
    return values


def setting_events(daemon, job):
    return [event for event in daemon.events(job) if event.kind == "setting"]


@pytest.mark.threads
def test_each_setting_holds_from_the_next_round_and_survives_a_kill(daemons, small_digits):
    daemon = daemons().start()
    job = submit(daemon, small_digits)
    status = daemon.wait_progress(job, round=2)
    for key, (default, _) in SETTINGS.items():
        assert default is None or status["settings"][key] == default, key
    begin, rounds = time.time(), {}
    for key, (_, value) in SETTINGS.items():
        rounds[key] = change(daemon, job, f"{key}={value}")
    status = daemon.wait_progress(job, round=max(rounds.values()) + 2)
    for key, (_, value) in SETTINGS.items():
        assert status["settings"][key] == value, key
    assert status["interval"] == 3 and status["lr"] == pytest.approx(0.001)

    events = setting_events(daemon, job)
    assert len(events) == len(SETTINGS)
    me = pwd.getpwuid(os.getuid()).pw_name
    for (key, (_, value)), event in zip(SETTINGS.items(), events):
        assert key in event.text and value in event.text and event.who == f"uid={os.getuid()} ({me})", event
        assert begin - 2 <= event.unix_ms / 1000 <= time.time() + 2 and event.round <= rounds[key]

    daemon.kill()
    daemon.start()
    status = daemon.wait_progress(job, round=status["round"] + 1)
    for key, (_, value) in SETTINGS.items():
        assert status["settings"][key] == value, key
    assert len(setting_events(daemon, job)) == len(SETTINGS)
    steps, last = by_round(daemon.ctl("metrics", job), "step"), rounds["sync.interval"]
    assert all(len(values) == 1 for values in steps.values()), "ranks changed K in different rounds"
    ends = {round_: values.pop() for round_, values in steps.items()}
    for round_ in sorted(ends):
        length = ends[round_] - ends.get(round_ - 1, 0)
        assert length == (5 if round_ < last else 3), f"round {round_} has {length} steps"
    daemon.ctl("cancel", job)


@pytest.mark.threads
@pytest.mark.parametrize("policy", ["average", "average-async", "barrier", "async", "elastic", "diloco"])
def test_k_and_rate_change_under_every_policy(dpsd, small_digits, policy):
    job = submit(dpsd, small_digits, "--sync", policy)
    dpsd.wait_progress(job, round=2)
    first = change(dpsd, job, "sync.interval=2", "optimizer.lr=0.0005")
    dpsd.wait_progress(job, round=first + 2)
    paused(dpsd, job)
    rows = dpsd.ctl("metrics", job)
    for rank in (0, 1):
        mine = {row["round"]: row for row in rows if row["rank"] == rank}
        for round_, row in mine.items():
            before = mine[round_ - 1]["step"] if round_ > 1 else 0
            assert row["step"] - before == (5 if round_ < first else 2), (rank, round_)
            assert row["lr"] == (0.002 if round_ < first else 0.0005), (rank, round_)
        assert max(mine) >= first
    dpsd.ctl("cancel", job)


@pytest.mark.parametrize("text,rate", [
    ("step,every=20,gamma=0.5", lambda t: 0.02 * 0.5 ** (t // 20)),
    ("cosine,steps=60,min=0.002", lambda t: 0.002 + 0.018 * (1 + math.cos(math.pi * min(t, 60) / 60)) / 2),
    ("constant,warmup=15", lambda t: 0.02 * min(t, 15) / 15),
    ("cosine,steps=40,warmup=10",
     lambda t: 0.02 * t / 10 if t < 10 else 0.02 * (1 + math.cos(math.pi * min(t - 10, 40) / 40)) / 2),
])
def test_schedules_show_in_the_metrics(dpsd, small_digits, text, rate):
    job = submit(dpsd, small_digits, "--schedule", text, steps=80, lr=0.02)
    dpsd.wait_done(job)
    rows = dpsd.ctl("metrics", job)
    assert len(rows) == 2 * 16
    for row in rows:
        assert row["lr"] == pytest.approx(rate(row["step"] - 5), rel=1e-5, abs=1e-9), row["step"]


def test_a_schedule_that_comes_later_counts_all_steps(dpsd, small_digits):
    job = submit(dpsd, small_digits, steps=300, lr=0.02)
    dpsd.wait_progress(job, round=2)
    first = change(dpsd, job, "optimizer.schedule=step,every=20,gamma=0.5")
    dpsd.wait_done(job)
    for row in dpsd.ctl("metrics", job):
        start = row["step"] - 5
        expected = 0.02 * (0.5 ** (start // 20) if row["round"] >= first else 1)
        assert row["lr"] == pytest.approx(expected, rel=1e-5, abs=1e-12), row


@pytest.mark.parametrize("policy", ["average", "barrier"])
def test_clipping_bounds_what_a_step_changes(dpsd, clients, policy):
    """A step's length is lr · min(norm, clip)."""
    job = dpsd.submit(policy=policy, interval=1, steps=100, lr=0.5, options={"dropout": "0"})
    client = clients(dpsd, job)
    images, labels = patterns(16, seed=4)
    change(dpsd, job, "optimizer.clip=0.125")
    feed(client, pixels(images), labels)  # the round in progress is not clipped
    before = dpsd.export(job)
    context, output, _ = client.forward(pixels(images))
    norm = client.backward(context, nll(output, labels)[1])
    assert norm > 0.125
    client.step(context)
    after = dpsd.export(job)
    moved = math.sqrt(sum(float(((after[n].astype("f8") - before[n]) ** 2).sum()) for n in before))
    assert moved == pytest.approx(0.5 * 0.125, rel=1e-3)


# ---- changes of policy --------------------------------------------------------------------------


@pytest.mark.threads
@pytest.mark.parametrize("kill", [False, True], ids=["", "killed"])
def test_policies_with_replicas_follow_each_other(daemons, small_digits, kill):
    daemon = daemons().start()
    job = submit(daemon, small_digits, "--checkpoint-rounds", 2)
    for policy, words in (("elastic", ["sync.alpha=0.25"]), ("diloco", ["sync.outer_momentum=0.5"]),
                          ("average", []), ("average-async", [])):
        first = change(daemon, job, f"sync.policy={policy}", *words)
        status = daemon.wait_progress(job, round=first + 3)
        assert status["policy"] == policy == status["settings"]["sync.policy"]
        if kill:
            daemon.kill()
            daemon.start()
            status = daemon.wait_progress(job, round=first + 5)
            assert status["policy"] == policy
    assert daemon.ctl("eval", job, "--data", small_digits)["samples"] == 200
    rows = daemon.ctl("metrics", job)
    assert all(row["contributed"] for row in rows)
    changes = [e.text for e in setting_events(daemon, job) if "sync.policy" in e.text]
    assert len(changes) == 4 and "elastic" in changes[0] and "average-async" in changes[3]
    daemon.ctl("cancel", job)


@pytest.mark.parametrize("now,following", [
    ("average", "barrier"), ("elastic", "async"), ("barrier", "average"), ("async", "diloco"),
    ("average-async", "average"), ("async", "barrier")])
def test_what_replicas_do_not_allow_is_refused(dpsd, small_digits, now, following):
    job = submit(dpsd, small_digits, "--sync", now)
    dpsd.wait_progress(job, round=1)
    sentence = dpsd.fails(1, "set", job, f"sync.policy={following}")
    assert f"cannot go from {now} to {following}" in sentence and "replica" in sentence or "rounds" in sentence
    assert dpsd.ctl("status", job)["policy"] == now and not setting_events(dpsd, job)
    dpsd.ctl("cancel", job)


def test_barrier_may_become_async(dpsd, small_digits):
    job = submit(dpsd, small_digits, "--sync", "barrier")
    dpsd.wait_progress(job, round=2)
    first = change(dpsd, job, "sync.policy=async")
    assert dpsd.wait_progress(job, round=first + 2)["policy"] == "async"
    dpsd.ctl("cancel", job)


# ---- what is no value ---------------------------------------------------------------------------


@pytest.mark.parametrize("setting,words", [
    ("sync.interval=0", "whole number from 1"),
    ("sync.interval=-3", "whole number"),
    ("sync.interval=2.5", "whole number"),
    ("sync.policy=consensus", "there is no sync policy"),
    ("sync.weights=heavy", "uniform, samples"),
    ("sync.state=drop", "keep, average, reset"),
    ("sync.wait=quorum", "all, or quorum:Q"),
    ("sync.wait=quorum:0", "all, or quorum:Q"),
    ("sync.timeout=soon", "whole number"),
    ("sync.max_staleness=-1", "whole number"),
    ("sync.on_stale=maybe", "reject, apply"),
    ("sync.alpha=1.5", "from 0 to 1"),
    ("sync.alpha=nan", "number"),
    ("sync.outer_lr=-1", "number"),
    ("sync.outer_momentum=2", "from 0 to 1"),
    ("optimizer.lr=-0.1", "number of 0 or more"),
    ("optimizer.lr=inf", "number"),
    ("optimizer.schedule=linear", "constant"),
    ("optimizer.schedule=cosine", "steps"),
    ("optimizer.schedule=step,every=0", "every"),
    ("optimizer.clip=-1", "number of 0 or more"),
    ("guard.norm=-1", "number of 0 or more"),
    ("guard.strikes=0", "whole number from 1"),
    ("trainers=0", "whole number from 1"),
    ("trainers=3", "--max-trainers"),
    ("checkpoint.rounds=0", "whole number from 1"),
    ("checkpoint.keep=0", "whole number from 1"),
    ("eval.every=2", "eval"),
    ("nonsense.key=1", "there is no setting"),
])
def test_values_that_are_none(shared_job, setting, words):
    daemon, job = shared_job
    before = daemon.ctl("status", job)["settings"]
    sentence = daemon.fails(1, "set", job, setting)
    assert words in sentence, sentence
    other = "sync.timeout=77" if "sync.timeout" not in setting else "optimizer.lr=0.001"
    assert words in daemon.fails(1, "set", job, other, setting)  # nor is the other one taken
    assert daemon.ctl("status", job)["settings"] == before and not setting_events(daemon, job)


@pytest.fixture(scope="module")
def shared_job(tmp_path_factory):
    """(daemon, job): a paused job for all the wrong values."""
    daemon = harness.Daemon(name="test_values_that_are_none").start()
    data = harness.digits(tmp_path_factory.mktemp("settings"), train=64, test=10)
    job = submit(daemon, data)
    daemon.wait_progress(job, step=1)
    paused(daemon, job)
    yield daemon, job
    daemon.ctl("cancel", job)
    problems = daemon.close()
    assert not problems, "\n".join(problems)


def test_the_history_of_a_job_that_is_over_does_not_change(dpsd, small_digits):
    job = submit(dpsd, small_digits, steps=5)
    dpsd.wait_done(job)
    assert "history" in dpsd.fails(1, "set", job, "optimizer.lr=0.1")


def test_set_before_the_first_step_and_while_paused(dpsd, small_digits):
    job = submit(dpsd, small_digits)
    wait_until(lambda: dpsd.ctl("set", job, "sync.interval=4", check=False, parse=False).returncode == 0, 20, "set")
    dpsd.wait_progress(job, round=3)
    paused(dpsd, job)
    first = change(dpsd, job, "sync.interval=7")
    dpsd.ctl("resume", job)
    assert dpsd.wait_progress(job, round=first + 1)["interval"] == 7
    dpsd.ctl("cancel", job)
