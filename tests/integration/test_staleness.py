"""The interleaving that kills the original example: A forward, B forward, A backward and step, then B
backward and step. In every mode its gradients are right, or it is told which parameter has moved on.
"""
import grpc
import numpy
import pytest

from harness import patterns
from trainers import nll, pixels, refused

LR = 0.05
STALE = grpc.StatusCode.FAILED_PRECONDITION


@pytest.fixture
def submit(dpsd):
    def make(policy, trainers=2, interval=100, settings=None, **kwargs):
        settings = {key: str(value) for key, value in (settings or {}).items()}
        return dpsd.submit(policy=policy, trainers=trainers, interval=interval, steps=1000, settings=settings,
                           options={"dropout": "0"}, lr=LR, **kwargs)
    return make


@pytest.fixture
def plain_gradient(dpsd, clients):
    """plain_gradient(seed, count): of the initial weights, by a job that nothing else happens to."""
    def compute(seed, count=8):
        job = dpsd.submit(policy="average", steps=10, options={"dropout": "0"}, lr=LR)
        client = clients(dpsd, job)
        context, gradient = forward(client, seed, count)
        client.backward(context, gradient)
        gradients = client.gradients(context)
        dpsd.ctl("cancel", job)
        return gradients
    return compute


def forward(client, seed, count=8):
    images, labels = patterns(count, seed=seed)
    context, output, _ = client.forward(pixels(images))
    return context, nll(output, labels)[1]


def close(one, other, most=1e-6):
    assert one.keys() == other.keys()
    for name in one:
        assert numpy.abs(one[name] - other[name]).max() <= most, name


def moved(start, *gradients):
    """start − lr · (the sum of the gradients)"""
    return {name: array - LR * sum(g[name].astype(numpy.float64) for g in gradients)
            for name, array in start.items()}


@pytest.mark.threads
def test_async_applies_the_gradient_of_what_the_forward_saw(dpsd, submit, clients, plain_gradient):
    job = submit("async", settings={"sync.max_staleness": 0, "sync.on_stale": "apply"})
    a, b = clients(dpsd, job, rank=0), clients(dpsd, job, rank=1)
    start = dpsd.export(job)
    (a_context, a_output), (b_context, b_output) = forward(a, 1), forward(b, 2)
    a.backward(a_context, a_output)
    a.step(a_context)
    between = dpsd.export(job)
    close(between, moved(start, plain_gradient(1)))
    b.backward(b_context, b_output)
    gradient = b.gradients(b_context)
    close(gradient, plain_gradient(2), 1e-7)  # of p0, though the parameters are at p1 by now
    b.step(b_context)
    close(dpsd.export(job), moved(start, plain_gradient(1), plain_gradient(2)))


@pytest.mark.threads
def test_async_rejects_what_is_too_old(dpsd, submit, clients, plain_gradient):
    job = submit("async", settings={"sync.max_staleness": 0})
    a, b = clients(dpsd, job, rank=0), clients(dpsd, job, rank=1)
    start = dpsd.export(job)
    (a_context, a_output), (b_context, b_output) = forward(a, 1), forward(b, 2)
    a.backward(a_context, a_output)
    version = a.step(a_context).version
    sentences = []

    def late():
        b.backward(b_context, b_output)
        b.step(b_context)

    sentences.append(refused(late, STALE))
    assert (f"conv1.weight is at version {version}; this gradient was computed at version {version - 1} "
            "(max_staleness 0)") in sentences[0], sentences[0]
    close(dpsd.export(job), moved(start, plain_gradient(1)))  # nothing of it was applied
    context, output = forward(b, 2)  # and the trainer goes on from the weights of now
    b.backward(context, output)
    b.step(context)
    assert dpsd.get(job).samples == 16


@pytest.mark.parametrize("steps,fine", [(1, True), (2, True), (3, False)])
def test_async_bounds_staleness_by_versions(dpsd, submit, clients, steps, fine):
    """max_staleness 2: a gradient that is 2 versions old counts, one that is 3 old does not."""
    job = submit("async", settings={"sync.max_staleness": 2})
    a, b = clients(dpsd, job, rank=0), clients(dpsd, job, rank=1)
    b_context, b_output = forward(b, 2)
    for seed in range(steps):
        context, output = forward(a, seed)
        a.backward(context, output)
        a.step(context)

    def late():
        b.backward(b_context, b_output)
        b.step(b_context)

    if fine:
        late()
    else:
        assert "(max_staleness 2)" in refused(late, STALE)


def test_async_a_gradient_grows_old_between_backward_and_step(dpsd, submit, clients):
    job = submit("async", settings={"sync.max_staleness": 0})
    a, b = clients(dpsd, job, rank=0), clients(dpsd, job, rank=1)
    (a_context, a_output), (b_context, b_output) = forward(a, 1), forward(b, 2)
    a.backward(a_context, a_output)
    b.backward(b_context, b_output)
    a.step(a_context)
    sentence = refused(lambda: b.step(b_context), STALE, "conv1.weight", "max_staleness 0")
    assert "this gradient was computed at version" in sentence
    refused(lambda: b.step(b_context), STALE)  # asked again, the same answer
    b.discard(b_context)


@pytest.mark.threads
def test_average_keeps_ranks_apart(dpsd, submit, clients, plain_gradient):
    """A replica each: A's step does not touch what B's context read."""
    job = submit("average", interval=1)
    a, b = clients(dpsd, job, rank=0), clients(dpsd, job, rank=1)
    start = dpsd.export(job)
    (a_context, a_output), (b_context, b_output) = forward(a, 1), forward(b, 2)
    a.backward(a_context, a_output)
    first = a.step_later(a_context)
    b.backward(b_context, b_output)
    close(b.gradients(b_context), plain_gradient(2), 1e-7)
    b.step(b_context)
    first.result()
    one, other = plain_gradient(1), plain_gradient(2)
    close(dpsd.export(job), moved(start, {name: (one[name] + other[name]) / 2 for name in one}))


def test_average_refuses_a_context_of_before_the_step(dpsd, submit, clients):
    job = submit("average", trainers=1)
    client = clients(dpsd, job)
    (early, early_output), (context, output) = forward(client, 1), forward(client, 2)
    client.backward(context, output)
    client.step(context)
    refused(lambda: client.backward(early, early_output), STALE, "conv1.weight", "version")


@pytest.mark.threads
def test_barrier_makes_one_step_of_both(dpsd, submit, clients, plain_gradient):
    job = submit("barrier")
    a, b = clients(dpsd, job, rank=0), clients(dpsd, job, rank=1)
    start = dpsd.export(job)
    (a_context, a_output), (b_context, b_output) = forward(a, 1), forward(b, 2)
    a.backward(a_context, a_output)
    first = a.step_later(a_context)
    b.backward(b_context, b_output)
    close(b.gradients(b_context), plain_gradient(2), 1e-7)
    assert not first.done(), "a step of one rank went ahead without the other"
    second = b.step(b_context)
    assert first.result().version == second.version and first.result().step == second.step == 1
    one, other = plain_gradient(1), plain_gradient(2)
    close(dpsd.export(job), moved(start, {name: (one[name] + other[name]) / 2 for name in one}))


def test_barrier_weighs_by_samples(dpsd, submit, clients, plain_gradient):
    """6 samples and 2: the gradient is that of a batch of 8."""
    job = submit("barrier")
    a, b = clients(dpsd, job, rank=0), clients(dpsd, job, rank=1)
    start = dpsd.export(job)
    steps = []
    for client, count in ((a, 6), (b, 2)):
        context, output = forward(client, count, count)
        client.backward(context, output)
        steps.append(client.step_later(context))
    for step in steps:
        step.result()
    six, two = plain_gradient(6, 6), plain_gradient(2, 2)
    close(dpsd.export(job), moved(start, {name: 0.75 * six[name] + 0.25 * two[name] for name in six}))


@pytest.mark.parametrize("policy", ["async", "barrier"])
def test_two_contexts_of_one_rank(dpsd, submit, clients, policy):
    """Where one set of parameters is shared a rank's own steps make its older contexts stale, too."""
    job = submit(policy, trainers=1, settings={"sync.max_staleness": 0})
    client = clients(dpsd, job)
    (early, early_output), (context, output) = forward(client, 1), forward(client, 2)
    client.backward(context, output)
    client.step(context)

    def late():
        client.backward(early, early_output)
        client.step(early)

    refused(late, STALE, "conv1.weight", "version")


@pytest.mark.threads
def test_a_train_stream_computes_refused_gradients_anew(dpsd, small_digits):
    """async with reject: managed trainers collide all the time, and no batch fails or is lost."""
    job = dpsd.ctl("submit", "--model", "mnist-cnn", "--data", small_digits, "--trainers", 4, "--sync", "async",
                   "--max-staleness", 0, "--on-stale", "reject", "--epochs", 2, "--batch", 8)["id"]
    status = dpsd.wait_done(job)
    assert status["samples"] == 2 * 640
    assert all(trainer["restarts"] == 0 for trainer in status["trainers"])
    assert sum(row["samples"] for row in dpsd.ctl("metrics", job)) == 2 * 640


@pytest.mark.threads
def test_a_train_stream_beside_unary_steps(dpsd, submit, clients):
    """B's stream under `reject` while A steps by calls: each of B's batches is answered once."""
    job = submit("async", settings={"sync.max_staleness": 0})
    a, b = clients(dpsd, job, rank=0), clients(dpsd, job, rank=1)
    stream = b.stream()
    images, labels = patterns(8, seed=3)
    answered = []
    for step in range(12):
        stream.send(step, images[:, None], labels)
        context, output = forward(a, step)
        a.backward(context, output)
        try:
            a.step(context)
        except grpc.RpcError as error:
            assert error.code() is STALE, error.details()
        answered.append(stream.result().step)
    stream.end()
    assert answered == list(range(12))
    assert dpsd.get(job).samples >= 12 * 8
