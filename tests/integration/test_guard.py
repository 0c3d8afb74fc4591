"""Quarantine: what is not a number, or far too large, is left out and named; it ruins nothing."""
import numpy
import pytest

from harness import patterns, wait_until
from trainers import nll, pixels

LR = 0.02
POLICIES = ["average", "average-async", "barrier", "async", "elastic", "diloco"]


def submit(daemon, policy="average", trainers=2, interval=4, guard=10, **settings):
    values = {"guard.norm": str(guard), **{key.replace("__", "."): str(value) for key, value in settings.items()}}
    return daemon.submit(policy=policy, trainers=trainers, interval=interval, steps=1000, batch=16, lr=LR,
                         options={"dropout": "0"}, settings=values)


def begin(client, seed, spoil=None):
    """Forward and backward; the output's gradient as `spoil` makes it. Returns the step's future."""
    images, labels = patterns(16, seed=seed)
    context, output, _ = client.forward(pixels(images))
    loss, gradient = nll(output, labels)
    if spoil is not None:
        gradient = spoil(gradient)
    client.backward(context, gradient)
    return client.step_later(context, 1.0 if spoil else loss)


def train(ranks, steps, spoilt=()):
    """`steps` steps of all ranks side by side; spoilt: (rank, step) → what happens to that gradient."""
    spoilt = dict(spoilt)
    for step in range(steps):
        pending = [begin(client, 100 * rank + step % 5, spoilt.get((rank, step))) for rank, client in enumerate(ranks)]
        for future in pending:
            future.result(timeout=60)


def nan(gradient):
    return numpy.full_like(gradient, numpy.nan)


def infinite(gradient):
    broken = gradient.copy()
    broken[0, 0] = numpy.inf
    return broken


def huge(gradient):
    return gradient * numpy.float32(1e5)


def finite(arrays):
    return all(numpy.isfinite(array).all() for array in arrays.values())


def quarantines(daemon, job):
    return [event.text for event in daemon.events(job) if event.kind == "quarantine"]


@pytest.mark.threads
@pytest.mark.parametrize("policy", POLICIES)
def test_a_gradient_that_is_no_number_is_left_out(dpsd, clients, policy):
    """Named in events at once, and in status until the rank does well again; the others are unharmed."""
    job = submit(dpsd, policy)
    ranks = [clients(dpsd, job, rank=rank) for rank in (0, 1)]
    train(ranks, 1)
    train(ranks, 1, {(1, 0): nan})
    texts = quarantines(dpsd, job)
    assert len(texts) == 1 and "rank 1" in texts[0] and "NaN" in texts[0], texts
    assert "rank 1" in dpsd.ctl("status", job)["reason"]
    train(ranks, 6)
    status = dpsd.ctl("status", job)
    assert status["state"] == "RUNNING" and status["reason"] == "", status["reason"]
    assert finite(dpsd.export(job)) and len(quarantines(dpsd, job)) == 1
    assert all(row["contributed"] for row in dpsd.ctl("metrics", job))


@pytest.mark.parametrize("spoil", [nan, infinite, huge])
def test_the_step_that_is_left_out_changes_nothing(dpsd, clients, spoil):
    """One rank: the parameters after a spoilt step are those before it."""
    job = submit(dpsd, trainers=1, interval=1)
    ranks = [clients(dpsd, job)]
    train(ranks, 10)  # so that a median is known
    before = dpsd.export(job)
    train(ranks, 1, {(0, 0): spoil})
    after = dpsd.export(job)
    assert all(numpy.array_equal(before[name], after[name]) for name in before)
    train(ranks, 1)
    moved = dpsd.export(job)
    assert any((moved[name] != before[name]).any() for name in before)
    assert len(quarantines(dpsd, job)) == 1


def test_a_huge_gradient_is_no_quarantine_before_a_median_is_known(dpsd, clients):
    job = submit(dpsd, trainers=1)
    ranks = [clients(dpsd, job)]
    train(ranks, 2, {(0, 1): lambda gradient: gradient * numpy.float32(30)})
    assert quarantines(dpsd, job) == []


@pytest.mark.threads
@pytest.mark.parametrize("policy", POLICIES)
def test_three_in_a_row_pause_the_job(dpsd, clients, policy):
    """Instead of ruining it: the reason names the rank, the rest stands, and the job can go on."""
    job = submit(dpsd, policy, interval=100)
    ranks = [clients(dpsd, job, rank=rank) for rank in (0, 1)]
    train(ranks, 2)
    train(ranks, 2, {(1, 0): nan, (1, 1): nan})
    assert dpsd.state_of(job) == "RUNNING"
    third = [begin(ranks[0], 1), begin(ranks[1], 1, nan)]
    status = dpsd.wait_state(job, "PAUSED")
    assert "rank 1" in status["reason"] and "3 times in a row" in status["reason"]
    assert len(quarantines(dpsd, job)) == 3
    dpsd.ctl("resume", job)
    for future in third:
        future.result(timeout=60)
    train(ranks, 2, {(1, 0): nan})  # counted afresh
    status = dpsd.ctl("status", job)
    assert status["state"] == "RUNNING" and status["step"] == 7
    assert finite(dpsd.export(job))


def test_strikes_in_a_row_only(dpsd, clients):
    job = submit(dpsd, guard__strikes=2, interval=100)
    ranks = [clients(dpsd, job, rank=rank) for rank in (0, 1)]
    train(ranks, 8, {(1, step): nan for step in (1, 3, 5, 7)})
    assert dpsd.state_of(job) == "RUNNING" and len(quarantines(dpsd, job)) == 4
    begin(ranks[1], 1, nan)
    assert "2 times" in dpsd.wait_state(job, "PAUSED")["reason"]


@pytest.mark.threads
def test_left_out_it_counts_for_nobody(dpsd, clients):
    """barrier: the step is that of the other rank alone, as if the spoilt gradient were not there."""
    job, alone = submit(dpsd, "barrier"), submit(dpsd, "barrier", trainers=1)
    ranks = [clients(dpsd, job, rank=rank) for rank in (0, 1)]
    train(ranks, 1, {(1, 0): nan})
    train([clients(dpsd, alone)], 1)
    one, other = dpsd.export(job), dpsd.export(alone)
    assert all(numpy.array_equal(one[name], other[name]) for name in one)


@pytest.mark.threads
@pytest.mark.parametrize("policy", ["average", "elastic", "diloco", "average-async"])
def test_without_a_guard_a_spoilt_replica_is_kept_out_of_the_mean(dpsd, clients, policy):
    """The replica takes the mean of the others and trains on."""
    job = submit(dpsd, policy, guard=0, interval=2)
    ranks = [clients(dpsd, job, rank=rank) for rank in (0, 1)]
    train(ranks, 2)
    train(ranks, 2, {(1, 0): nan})
    texts = quarantines(dpsd, job)
    assert texts and all("rank 1" in text and "replica" in text for text in texts), texts
    assert finite(dpsd.export(job))
    train(ranks, 4)
    assert dpsd.state_of(job) == "RUNNING" and finite(dpsd.export(job))
    rows = {(row["round"], row["rank"]): row for row in dpsd.ctl("metrics", job)}
    assert rows[2, 0]["contributed"] and not rows[2, 1]["contributed"]
    assert rows[4, 0]["contributed"] and rows[4, 1]["contributed"]


def test_when_every_replica_is_spoilt_the_job_pauses(dpsd, clients):
    job = submit(dpsd, guard=0, interval=1, checkpoint__rounds=1)
    ranks = [clients(dpsd, job, rank=rank) for rank in (0, 1)]
    train(ranks, 3)
    wait_until(lambda: dpsd.ctl("checkpoints", job), 30, "a checkpoint")
    pending = [begin(client, 1, nan) for client in ranks]
    status = dpsd.wait_state(job, "PAUSED")
    assert "every replica" in status["reason"] and "restore" in status["reason"]
    for client in ranks:
        client.close()
    del pending
    dpsd.ctl("restore", job)
    dpsd.wait_state(job, "RUNNING")
    assert finite(dpsd.export(job))
