"""Trainers that join a running job and leave it: at round boundaries, with the mean, and no sample is
lost or used twice."""
import concurrent.futures
import time

import grpc
import numpy
import pytest

from harness import patterns, wait_until
from trainers import Client, Feeder, check_all_used_once, feed, join_later, pixels, refused

SAMPLES = 480
POLICIES = ["average", "average-async", "barrier", "async", "elastic", "diloco"]


@pytest.fixture(scope="module")
def data():
    return patterns(SAMPLES, seed=1)


def submit(daemon, policy="average", **kwargs):
    return daemon.submit(model="mlp", policy=policy, batch=8, samples=SAMPLES, lr=0.01,
                         **{"trainers": 2, "max_trainers": 4, "interval": 3, "epochs": 2, **kwargs})


def check_rows(daemon, job, samples):
    rows = daemon.ctl("metrics", job)
    assert sum(row["samples"] for row in rows) == samples
    assert len({(row["round"], row["rank"]) for row in rows}) == len(rows), "two rows for a rank in a round"
    for rank in {row["rank"] for row in rows}:
        steps = [row["step"] for row in rows if row["rank"] == rank]
        assert steps == sorted(steps)
    return rows


@pytest.mark.threads
@pytest.mark.parametrize("policy", POLICIES)
def test_a_late_trainer_joins_and_takes_its_share(dpsd, data, policy):
    job, used = submit(dpsd, policy), []
    feeders = [Feeder(dpsd, job, *data, used, pause=0.01) for _ in range(2)]
    for feeder in feeders:
        feeder.start()
    dpsd.wait_progress(job, round=3)
    feeders.append(Feeder(dpsd, job, *data, used, late=True))
    feeders[-1].start()
    for feeder in feeders:
        feeder.finish()
    dpsd.wait_done(job)
    late = feeders[-1]
    assert late.joined.rank == 2 and late.joined.round > 1 and late.done > 0
    check_all_used_once(used, SAMPLES, epochs=2)
    rows = check_rows(dpsd, job, 2 * SAMPLES)
    assert min(row["round"] for row in rows if row["rank"] == 2) > 1
    assert any("rank 2" in e.text and "taken in" in e.text for e in dpsd.events(job))


@pytest.mark.threads
@pytest.mark.parametrize("policy", POLICIES)
def test_a_trainer_leaves_and_the_others_take_over(dpsd, data, policy):
    job, used = submit(dpsd, policy, trainers=3), []
    feeders = [Feeder(dpsd, job, *data, used, pause=0.005, steps=7 if rank == 1 else None, rank=rank)
               for rank in range(3)]
    for feeder in feeders:
        feeder.start()
    for feeder in feeders:
        feeder.finish()
    dpsd.wait_done(job)
    assert feeders[1].done == 7
    check_all_used_once(used, SAMPLES, epochs=2)
    check_rows(dpsd, job, 2 * SAMPLES)


@pytest.mark.parametrize("policy", ["average", "elastic", "diloco", "average-async"])
def test_a_late_trainer_begins_with_the_current_model(dpsd, clients, data, policy):
    """At its first forward it has the mean (with elastic: the centre) that the job has by then."""
    images, labels = data
    job = dpsd.submit(policy=policy, trainers=1, max_trainers=2, interval=2, steps=1000, lr=0.05,
                      options={"dropout": "0"})
    first = clients(dpsd, job)
    for _ in range(3):
        feed(first, pixels(images[:8]), labels[:8])
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        coming = pool.submit(join_later, dpsd, job)
        if policy != "average-async":  # where nobody meets, who comes is taken in at once
            time.sleep(0.5)
            assert not coming.done(), "it was taken in within a round"
            feed(first, pixels(images[:8]), labels[:8])  # ends the round
        second = coming.result(60)
    try:
        assert second.joined.rank == 1 and second.joined.step >= 3
        other = dpsd.submit(trainers=1, steps=10, lr=0.05, options={"dropout": "0"})
        fresh = clients(dpsd, other)
        x = pixels(images[100:108])
        _, output, _ = second.forward(x)
        _, initial, _ = fresh.forward(x)
        assert numpy.abs(output - initial).max() > 1e-3, "it has the initial weights"
        if policy != "elastic":  # there replicas differ
            _, expected, _ = first.forward(x)
            assert numpy.array_equal(output, expected)
    finally:
        second.close()


def test_there_is_no_room_beyond_the_most(dpsd, clients):
    job = submit(dpsd, trainers=1, max_trainers=1)
    clients(dpsd, job, own_data=False)
    refused(lambda: Client(dpsd, job, own_data=False), grpc.StatusCode.FAILED_PRECONDITION, "all 1 ranks")


def test_more_than_the_most_is_refused_with_the_remedy(dpsd, small_digits):
    job = dpsd.ctl("submit", "--model", "mlp", "--data", small_digits, "--trainers", 1, "--max-trainers", 2,
                   "--steps", 100000)["id"]
    assert "--max-trainers" in dpsd.fails(1, "set", job, "trainers=3")
    assert dpsd.ctl("status", job)["max_trainers"] == 2
    dpsd.ctl("cancel", job)


@pytest.mark.threads
@pytest.mark.parametrize("policy", POLICIES)
def test_managed_trainers_grow_and_shrink(dpsd, small_digits, policy):
    job = dpsd.ctl("submit", "--model", "mnist-cnn", "--data", small_digits, "--trainers", 1, "--max-trainers", 4,
                   "--sync", policy, "--interval", 5, "--epochs", 40, "--batch", 8, "--lr", 0.002)["id"]

    def computing(count):
        def reached():
            status = dpsd.ctl("status", job)
            assert status["state"] in ("QUEUED", "RUNNING"), status
            working = [t["rank"] for t in status["trainers"] if t["state"] not in ("spare", "dropped", "starting")]
            return working == list(range(count)) and all(
                status["trainers"][rank]["step"] > 0 for rank in working)
        wait_until(reached, 60, f"{count} trainers to be at work")
        wait_until(lambda: len(dpsd.trainers(job)) == count, 30, f"{count} processes")

    computing(1)
    dpsd.ctl("set", job, "trainers=4")
    computing(4)
    dpsd.ctl("set", job, "trainers=2")
    computing(2)
    dpsd.ctl("set", job, "trainers=3")
    computing(3)
    assert dpsd.ctl("status", job)["settings"]["trainers"] == "3"
    dpsd.ctl("cancel", job)
    wait_until(lambda: not dpsd.trainers(job), 30, "the trainers to end")


@pytest.mark.threads
@pytest.mark.parametrize("policy", ["average", "barrier", "async"])
def test_every_sample_is_used_once_however_many_there_are(dpsd, small_digits, policy):
    epochs = 6
    job = dpsd.ctl("submit", "--model", "mnist-cnn", "--data", small_digits, "--trainers", 2, "--max-trainers", 4,
                   "--sync", policy, "--interval", 5, "--epochs", epochs, "--batch", 8, "--lr", 0.002)["id"]
    dpsd.wait_progress(job, round=2)
    dpsd.ctl("set", job, "trainers=4", check=False, parse=False)
    dpsd.wait_progress(job, round=6)
    dpsd.ctl("set", job, "trainers=1", check=False, parse=False)
    status = dpsd.wait_done(job)
    assert status["samples"] == epochs * 640
    rows = check_rows(dpsd, job, epochs * 640)
    assert {row["rank"] for row in rows} >= {0, 1, 2, 3}


def test_who_left_may_come_back(dpsd, data):
    job, used = submit(dpsd, trainers=2, max_trainers=2), []
    stays = Feeder(dpsd, job, *data, used, pause=0.02, rank=0)
    goes = Feeder(dpsd, job, *data, used, steps=3, rank=1)
    stays.start()
    goes.start()
    goes.finish()
    back = Feeder(dpsd, job, *data, used, late=True, rank=1)
    back.start()
    for feeder in (stays, back):
        feeder.finish()
    dpsd.wait_done(job)
    assert back.done > 0
    check_all_used_once(used, SAMPLES, epochs=2)


@pytest.mark.parametrize("policy", ["average", "async"])
def test_the_number_of_trainers_survives_a_kill(daemons, small_digits, policy):
    daemon = daemons().start()
    job = daemon.ctl("submit", "--model", "mnist-cnn", "--data", small_digits, "--trainers", 1, "--max-trainers", 3,
                     "--sync", policy, "--interval", 5, "--epochs", 12, "--batch", 8, "--lr", 0.002,
                     "--checkpoint-rounds", 2)["id"]
    daemon.wait_progress(job, round=2)
    daemon.ctl("set", job, "trainers=3")
    wait_until(lambda: len(daemon.trainers(job)) == 3, 30, "three trainers")
    daemon.kill()
    daemon.start()
    status = daemon.wait_done(job)
    assert status["settings"]["trainers"] == "3" and status["samples"] == 12 * 640
    rows = check_rows(daemon, job, 12 * 640)
    assert {row["rank"] for row in rows} == {0, 1, 2}
