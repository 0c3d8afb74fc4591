"""Every sync policy, end to end, and what the policies have in common where they must agree.

DPS_STEPS (default 24) batches of each trainer.
"""
import math
import os
import threading

import numpy
import pytest

from harness import check_metrics, patterns, read_npz
from test_equivalence import raw  # noqa: F401  pylint: disable=unused-import
from trainers import nll, pixels

STEPS = int(os.environ.get("DPS_STEPS", "24"))
POLICIES = ["average", "average-async", "barrier", "async", "elastic", "diloco"]
FREE = ("average-async", "async")  # ranks do not wait for each other
SHARED = ("barrier", "async")


def submit(daemon, data, policy, trainers, *words, steps=STEPS, interval=5):
    return daemon.ctl("submit", "--model", "mnist-cnn", "--data", data, "--trainers", trainers, "--sync", policy,
                      "--interval", interval, "--steps", steps, "--batch", 8, "--seed", 1, *words)["id"]


@pytest.mark.threads
@pytest.mark.parametrize("trainers", [1, 4])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_runs_to_its_end(dpsd, small_digits, tmp_path, policy, trainers):
    steps = 6 * STEPS
    calm = ("--outer-momentum", 0.5) if policy == "diloco" else ()
    job = submit(dpsd, small_digits, policy, trainers, *calm, steps=steps)
    status = dpsd.wait_progress(job, round=2)
    assert status["policy"] == policy and status["settings"]["sync.policy"] == policy
    assert len(status["trainers"]) == trainers
    assert dpsd.ctl("eval", job, "--data", small_digits)["samples"] == 200  # while it runs
    dpsd.ctl("export", job, "-o", tmp_path / "early.npz")
    made = dpsd.ctl("checkpoint", job)
    assert made["valid"] is not False

    status = dpsd.wait_done(job)
    assert status["step"] == steps and status["samples"] == steps * trainers * 8
    rows = dpsd.ctl("metrics", job)
    check_metrics(rows, ranks=trainers, interval=5)
    assert sum(row["samples"] for row in rows) == status["samples"]
    assert {row["rank"] for row in rows} == set(range(trainers))
    assert all(row["contributed"] and math.isfinite(row["loss"]) for row in rows)
    assert all(row["compute_ms"] > 0 and row["lr"] == 0.03 for row in rows)
    assert all(sum(row["bytes_in"] for row in rows if row["rank"] == rank) > steps * 8 * 784
               for rank in range(trainers))

    after = dpsd.ctl("eval", job, "--data", small_digits)
    assert after["samples"] == 200 and math.isfinite(after["loss"])
    dpsd.ctl("export", job, "-o", tmp_path / "late.npz")
    early, late = read_npz(tmp_path / "early.npz"), read_npz(tmp_path / "late.npz")
    assert early.keys() == late.keys()
    assert any((early[name] != late[name]).any() for name in early)
    assert all(numpy.isfinite(late[name]).all() for name in late)


@pytest.mark.parametrize("policy", POLICIES)
def test_it_learns(dpsd, small_digits, policy):
    job = submit(dpsd, small_digits, policy, 2, "--lr", 0.02, steps=160)
    dpsd.wait_done(job)
    assert dpsd.ctl("eval", job, "--data", small_digits)["accuracy"] > 0.9


@pytest.mark.parametrize("policy", POLICIES)
def test_restored_to_a_checkpoint(dpsd, small_digits, policy):
    """The job runs on from there, and its result is as without it where that does not depend on time."""
    job = submit(dpsd, small_digits, policy, 2, "--checkpoint-rounds", 2)
    done = dpsd.wait_done(job)
    job = submit(dpsd, small_digits, policy, 2, "--checkpoint-rounds", 2, "--checkpoint-keep", 50, steps=4000)
    dpsd.wait_progress(job, round=3)
    dpsd.ctl("pause", job)
    dpsd.wait_state(job, "PAUSED")
    checkpoints = dpsd.ctl("checkpoints", job)
    first = min(checkpoints, key=lambda c: c["id"])
    dpsd.ctl("restore", job, "--checkpoint", first["id"])
    status = dpsd.wait_progress(job, round=first["round"] + 2)
    assert status["policy"] == policy
    for rank in (0, 1):
        rows = [row for row in dpsd.ctl("metrics", job) if row["rank"] == rank]
        assert [row["round"] for row in rows] == list(range(1, len(rows) + 1))
        assert all(row["step"] == 5 * row["round"] for row in rows)
    dpsd.ctl("cancel", job)
    if policy in FREE:
        return
    assert submit_and_restore(dpsd, small_digits, policy) == done["checksum"]


def submit_and_restore(dpsd, small_digits, policy):
    """Paused and restored, the job ends with the bits of one that was left alone."""
    job = submit(dpsd, small_digits, policy, 2, "--checkpoint-rounds", 1, "--checkpoint-keep", 50)
    dpsd.wait_progress(job, round=2)
    dpsd.ctl("pause", job, check=False, parse=False)
    dpsd.wait_state(job, "PAUSED", "COMPLETED")
    dpsd.ctl("restore", job, "--checkpoint", min(c["id"] for c in dpsd.ctl("checkpoints", job)))
    return dpsd.wait_done(job)["checksum"]


# ---- equivalences -------------------------------------------------------------------------------


@pytest.mark.parametrize("policy,words", [
    ("average", ()), ("average-async", ()), ("barrier", ()), ("async", ()),
    ("diloco", ("--outer-lr", 1, "--outer-momentum", 0)),
    ("async", ("--max-staleness", 0)),
    ("elastic", ("--alpha", 1)),
], ids=str)
@pytest.mark.parametrize("optimizer,lr", [("sgd", 0.03), ("adam", 0.001)])
def test_one_trainer_is_a_plain_loop(dpsd, small_digits, raw, plain_train, policy, words, optimizer, lr):  # noqa: F811
    expected = plain_train(*raw(small_digits), "--epochs", 1, "--seed", 5, "--batch", 16, "--optimizer", optimizer,
                           "--lr", lr)
    job = dpsd.ctl("submit", "--model", "mnist-cnn", "--data", small_digits, "--trainers", 1, "--interval", 7,
                   "--epochs", 1, "--seed", 5, "--batch", 16, "--optimizer", optimizer, "--lr", lr, "--sync", policy,
                   *words)["id"]
    status = dpsd.wait_done(job)
    if policy == "elastic":  # c + (x − c) is x but for rounding
        return
    assert status["checksum"] == expected


@pytest.mark.parametrize("policy", ["average", "average-async", "barrier", "async"])
def test_one_trainer_and_batch_normalisation(dpsd, policy):
    """Buffers, too: a model with BatchNorm ends the same under all of them."""
    def result(name):
        job = dpsd.ctl("submit", "--model", "resnet-small", "--data", "synthetic", "--trainers", 1, "--sync", name,
                       "--interval", 3, "--steps", 6, "--batch", 4, "--seed", 3)["id"]
        checksum = dpsd.wait_done(job)["checksum"]
        return checksum, dpsd.export(job)

    expected, arrays = result("average")
    checksum, same = result(policy)
    assert checksum == expected and arrays.keys() == same.keys()
    for name, array in arrays.items():
        assert numpy.array_equal(array, same[name]), name


def same_parameters(one, other, most):
    assert one.keys() == other.keys()
    for name in one:
        assert numpy.abs(one[name] - other[name]).max() <= most, name


@pytest.mark.threads
@pytest.mark.parametrize("trainers", [2, 4])
def test_average_of_one_step_is_barrier(dpsd, small_digits, trainers):
    """Plain SGD: the mean of the stepped replicas is a step with the mean gradient."""
    words = ("--lr", 0.02, "--option", "dropout=0")
    average = submit(dpsd, small_digits, "average", trainers, *words, interval=1, steps=12)
    barrier = submit(dpsd, small_digits, "barrier", trainers, *words, interval=1, steps=12)
    longer = submit(dpsd, small_digits, "barrier", trainers, *words, interval=6, steps=12)
    for job in (average, barrier, longer):
        dpsd.wait_done(job)
    same_parameters(dpsd.export(average), dpsd.export(barrier), 1e-6)
    assert dpsd.ctl("status", barrier)["checksum"] == dpsd.ctl("status", longer)["checksum"]


@pytest.mark.parametrize("optimizer", ["sgd", "sgd,momentum=0.9", "adam"])
def test_plain_outer_steps_are_average(dpsd, small_digits, optimizer):
    """diloco with lr 1 and momentum 0, bit for bit."""
    words = ("--optimizer", optimizer, "--lr", 0.002)
    average = submit(dpsd, small_digits, "average", 3, *words)
    diloco = submit(dpsd, small_digits, "diloco", 3, *words, "--outer-lr", 1, "--outer-momentum", 0)
    assert dpsd.wait_done(average)["checksum"] == dpsd.wait_done(diloco)["checksum"]


def losses_by_rank(daemon, clients, job, ranks, steps):
    """Each rank's loss at each of its steps, on data of its own; steps that meet go on together."""
    losses = {}

    def train(rank):
        client = clients(daemon, job, rank=rank)
        images, labels = patterns(8, seed=40 + rank)
        mine = []
        for _ in range(steps):
            context, output, _ = client.forward(pixels(images))
            loss, gradient = nll(output, labels)
            client.backward(context, gradient)
            client.step(context, loss)
            mine.append(float(loss))
        losses[rank] = mine
        client.leave()

    threads = [threading.Thread(target=train, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sorted(losses) == list(range(ranks))
    return losses


@pytest.mark.threads
def test_elastic_without_pull_is_independent_training(dpsd, clients):
    """alpha 0: each rank's losses, step by step, are those of a trainer that never meets anybody."""
    steps, common = 12, {"options": {"dropout": "0"}, "lr": 0.05, "steps": 12, "trainers": 2}
    apart = dpsd.submit(policy="average", interval=1000, **common)
    elastic = dpsd.submit(policy="elastic", interval=3, settings={"sync.alpha": "0"}, **common)
    pulled = dpsd.submit(policy="elastic", interval=3, settings={"sync.alpha": "0.5"}, **common)
    expected = losses_by_rank(dpsd, clients, apart, 2, steps)
    assert losses_by_rank(dpsd, clients, elastic, 2, steps) == expected
    other = losses_by_rank(dpsd, clients, pulled, 2, steps)
    assert all(other[rank][:3] == expected[rank][:3] and other[rank] != expected[rank] for rank in (0, 1))


def test_elastic_pulls_replicas_and_centre(dpsd, clients):
    """One meeting against the formula: the centre moves by alpha times the sum of the differences."""
    job = dpsd.submit(policy="elastic", interval=1, steps=10, trainers=2, options={"dropout": "0"}, lr=0.05,
                      settings={"sync.alpha": "0.25"})
    ranks = [clients(dpsd, job, rank=rank) for rank in (0, 1)]
    centre = dpsd.export(job)
    gradients, steps = [], []
    for rank, client in enumerate(ranks):
        images, labels = patterns(16, seed=60 + rank)
        context, output, _ = client.forward(pixels(images))
        client.backward(context, nll(output, labels)[1])
        gradients.append(client.gradients(context))
        steps.append(client.step_later(context))
    for step in steps:
        step.result()
    after = dpsd.export(job)
    for name, array in centre.items():
        moved = sum(-0.05 * g[name].astype(numpy.float64) for g in gradients)
        assert numpy.abs(after[name] - (array + 0.25 * moved)).max() < 1e-6, name


# ---- how means are weighed ----------------------------------------------------------------------


@pytest.mark.parametrize("weights", ["uniform", "samples"])
def test_weights_of_a_mean(dpsd, clients, weights):
    """12 samples against 4: each rank counts alike, or each sample does."""
    job = dpsd.submit(interval=1, steps=10, trainers=2, options={"dropout": "0"}, lr=0.05, batch=12,
                      settings={"sync.weights": weights})
    ranks = [clients(dpsd, job, rank=rank) for rank in (0, 1)]
    before = dpsd.export(job)
    gradients, steps = [], []
    for client, count in zip(ranks, (12, 4)):
        images, labels = patterns(count, seed=70 + count)
        context, output, _ = client.forward(pixels(images))
        client.backward(context, nll(output, labels)[1])
        gradients.append(client.gradients(context))
        steps.append(client.step_later(context))
    for step in steps:
        step.result()
    after = dpsd.export(job)
    share = (0.75, 0.25) if weights == "samples" else (0.5, 0.5)
    for name, array in before.items():
        mean = sum(s * g[name].astype(numpy.float64) for s, g in zip(share, gradients))
        assert numpy.abs(after[name] - (array - 0.05 * mean)).max() < 1e-6, name


@pytest.mark.parametrize("state", ["keep", "average", "reset"])
def test_optimizer_state_at_meetings(dpsd, small_digits, state):
    words = ("--optimizer", "sgd,momentum=0.9", "--lr", 0.005)
    checksums = set()
    for _ in range(2):
        job = submit(dpsd, small_digits, "average", 2, *words, "--set", f"sync.state={state}")
        checksums.add(dpsd.wait_done(job)["checksum"])
    assert len(checksums) == 1
    if state != "keep":
        kept = submit(dpsd, small_digits, "average", 2, *words)
        assert dpsd.wait_done(kept)["checksum"] not in checksums


def test_an_unknown_policy_is_refused_with_the_list(dpsd, small_digits):
    sentence = dpsd.fails(1, "submit", "--model", "mlp", "--data", small_digits, "--sync", "consensus")
    assert "consensus" in sentence and all(policy in sentence for policy in POLICIES)
    assert sorted(dpsd.info().policies) == sorted(POLICIES)
