"""A program that knows only the .proto: grpcio and numpy join a job, compute the loss gradient
themselves, and see the loss fall. And what the server says to programs that get it wrong."""
import queue
import threading

import grpc
import numpy
import pytest

import harness
from harness import CALL_S, patterns, to_tensor
from trainers import Client, feed, nll, pixels, refused


@pytest.fixture
def job(dpsd):
    """A job of one rank on plain SGD without dropout, which meets after every step."""
    return dpsd.submit(steps=1000, interval=1, options={"dropout": "0"}, lr=0.05)


@pytest.mark.threads
@pytest.mark.parametrize("tcp", [False, True], ids=["unix", "tcp"])
def test_the_loss_falls(dpsd, job, clients, tcp):
    client = clients(dpsd, job, tcp=tcp)
    joined = client.joined
    assert list(joined.input_dims) == [1, 28, 28] and list(joined.output_dims) == [10]
    assert joined.step == 0 and joined.rank == 0 and joined.loss == "nll"
    assert joined.max_contexts >= 1 and joined.window >= 2 and joined.lease_ms > 0
    images, labels = patterns(16, seed=3)
    losses = [feed(client, pixels(images), labels) for _ in range(20)]
    assert 1.8 < losses[0] < 3.0
    assert losses[-1] < 0.5 * losses[0]
    assert dpsd.get(job).step == 20
    client.leave()


def test_output_is_log_probabilities(dpsd, job, clients):
    client = clients(dpsd, job)
    _, output, _ = client.forward(pixels(patterns(5, seed=1)[0]))
    assert output.shape == (5, 10) and output.dtype == numpy.float32
    assert numpy.allclose(numpy.exp(output).sum(1), 1, atol=1e-5)


def test_a_step_is_plain_sgd(dpsd, job, clients):
    client = clients(dpsd, job)
    images, labels = patterns(16, seed=4)
    feed(client, pixels(images), labels)
    before = dpsd.export(job)
    context, output, version = client.forward(pixels(images))
    _, gradient = nll(output, labels)
    norm = client.backward(context, gradient)
    gradients = client.gradients(context)
    reply = client.step(context)
    assert reply.version > version and reply.step == 2 and reply.done is False
    after = dpsd.export(job)

    assert set(gradients) == set(before) == set(after)
    for name, array in gradients.items():
        assert array.shape == before[name].shape, name
        expected = before[name] - numpy.float32(0.05) * array
        assert numpy.abs(after[name] - expected).max() <= 1e-7, name
    square = sum(float((g.astype(numpy.float64) ** 2).sum()) for g in gradients.values())
    assert norm == pytest.approx(square ** 0.5, rel=1e-5)


def test_gradient_agrees_with_a_finite_difference(dpsd, job, clients):
    """The loss moves along the step as the gradient says: f(w - t·g) ≈ f(w) - t·|g|²."""
    client = clients(dpsd, job)
    images, labels = patterns(8, seed=5)
    context, output, _ = client.forward(pixels(images))
    before, gradient = nll(output, labels)
    norm = client.backward(context, gradient)
    dpsd.ctl("set", job, "optimizer.lr=0.0005")
    client.step(context, before)
    context, output, _ = client.forward(pixels(images))  # after this round lr is 0.0005
    middle, gradient = nll(output, labels)
    norm = client.backward(context, gradient)
    client.step(context, middle)
    _, output, _ = client.forward(pixels(images))
    after, _ = nll(output, labels)
    assert (middle - after) / (0.0005 * norm ** 2) == pytest.approx(1, abs=0.15)


@pytest.mark.threads
def test_averaging_each_step_is_averaging_gradients(dpsd, clients):
    """K = 1 with plain SGD: w' = w - lr · mean of the ranks' gradients, to 1e-6."""
    job = dpsd.submit(steps=100, interval=1, trainers=2, options={"dropout": "0"}, lr=0.05)
    ranks = [clients(dpsd, job, rank=r) for r in (0, 1)]
    data = [patterns(16, seed=10 + r) for r in (0, 1)]
    before = dpsd.export(job)
    for _ in range(3):
        gradients, contexts = [], []
        for client, (images, labels) in zip(ranks, data):
            context, output, _ = client.forward(pixels(images))
            client.backward(context, nll(output, labels)[1])
            gradients.append(client.gradients(context))
            contexts.append(context)
        steps = [threading.Thread(target=client.step, args=(context,)) for client, context in zip(ranks, contexts)]
        for thread in steps:
            thread.start()
        for thread in steps:
            thread.join(CALL_S)
            assert not thread.is_alive()
        after = dpsd.export(job)
        for name in before:
            mean = (gradients[0][name].astype(numpy.float64) + gradients[1][name]) / 2
            assert numpy.abs(after[name] - (before[name] - 0.05 * mean)).max() < 1e-6, name
        before = after


def test_two_contexts_at_once(dpsd, job, clients):
    """Gradients belong to their context: two forwards on the same weights, backward in any order."""
    client = clients(dpsd, job)
    first, second = patterns(4, seed=1), patterns(4, seed=2)
    one, one_output, _ = client.forward(pixels(first[0]))
    two, two_output, _ = client.forward(pixels(second[0]))
    client.backward(two, nll(two_output, second[1])[1])
    client.backward(one, nll(one_output, first[1])[1])
    a, b = client.gradients(one), client.gradients(two)
    client.discard(one)
    client.discard(two)
    again, output, _ = client.forward(pixels(first[0]))
    client.backward(again, nll(output, first[1])[1])
    c = client.gradients(again)
    assert all(numpy.array_equal(a[n], c[n]) for n in a)
    assert any(not numpy.array_equal(a[n], b[n]) for n in a)


def test_train_stream(dpsd, clients, small_digits):
    """The fast path from Python: leases come ahead, answers in order, Done at the end."""
    job = dpsd.submit(samples=80, epochs=1, interval=2, batch=16)
    client = clients(dpsd, job, own_data=False)
    pb = client.pb
    images, labels = patterns(80, seed=1)
    requests = queue.Queue()
    requests.put(pb.TrainRequest(start=pb.TrainStart(session=client.session)))
    used, steps, reason = [], [], None
    for reply in client.training.Train(iter(requests.get, None), timeout=CALL_S):
        kind = reply.WhichOneof("kind")
        if kind == "lease":
            indices = list(reply.lease.indices)
            used += indices
            requests.put(pb.TrainRequest(batch=pb.Batch(
                step=reply.lease.step, x=to_tensor(images[indices][:, None]),
                y=to_tensor(labels[indices].astype(numpy.int64)))))
        elif kind == "result":
            assert numpy.isfinite(reply.result.loss) and reply.result.compute_us > 0
            steps.append(reply.result.step)
        else:
            reason = reply.done.reason
            requests.put(None)
    assert sorted(used) == list(range(80)) and steps == list(range(5)) and reason == "completed"
    assert dpsd.wait_done(job)["samples"] == 80


# ---- wrong use ----------------------------------------------------------------------------------


def test_stale_context_names_parameter_and_versions(dpsd, job, clients):
    client = clients(dpsd, job)
    images, labels = patterns(4, seed=1)
    stale, output, _ = client.forward(pixels(images))
    feed(client, pixels(images), labels)
    sentence = refused(lambda: client.backward(stale, nll(output, labels)[1]),
                       grpc.StatusCode.FAILED_PRECONDITION, "version")
    assert any(name in sentence for name in ("conv1.weight", "conv2.weight", "fc1.weight", "fc2.weight",
                                             "conv1.bias", "conv2.bias", "fc1.bias", "fc2.bias")), sentence
    assert sum(c.isdigit() for c in sentence) >= 2, sentence
    assert feed(client, pixels(images), labels) > 0, "the session goes on"


def test_second_backward(dpsd, job, clients):
    client = clients(dpsd, job)
    images, labels = patterns(4, seed=1)
    context, output, _ = client.forward(pixels(images))
    client.backward(context, nll(output, labels)[1])
    refused(lambda: client.backward(context, nll(output, labels)[1]),
            grpc.StatusCode.FAILED_PRECONDITION, "backward")
    client.step(context)


def test_step_and_gradients_before_backward(dpsd, job, clients):
    client = clients(dpsd, job)
    context, _, _ = client.forward(pixels(patterns(4, seed=1)[0]))
    refused(lambda: client.step(context), grpc.StatusCode.FAILED_PRECONDITION, "ackward")
    refused(lambda: client.gradients(context), grpc.StatusCode.FAILED_PRECONDITION, "ackward")


def test_unknown_context_session_and_job(dpsd, job, clients):
    client = clients(dpsd, job)
    output = numpy.zeros((4, 10), numpy.float32)
    refused(lambda: client.backward(4711, output), grpc.StatusCode.NOT_FOUND, 4711)
    refused(lambda: client.step(4711), grpc.StatusCode.NOT_FOUND, 4711)
    refused(lambda: client.gradients(4711), grpc.StatusCode.NOT_FOUND, 4711)
    context, _, _ = client.forward(pixels(patterns(4, seed=1)[0]))
    client.discard(context)
    refused(lambda: client.backward(context, output), grpc.StatusCode.NOT_FOUND)
    client.session += 1
    refused(lambda: client.forward(numpy.zeros((1, 1, 28, 28), numpy.float32)), grpc.StatusCode.NOT_FOUND)
    refused(lambda: Client(dpsd, 4711), grpc.StatusCode.NOT_FOUND, 4711)


def test_sessions_belong_to_their_connection(dpsd, job, clients):
    owner = clients(dpsd, job)
    channel = dpsd.new_channel()
    thief = harness.stubs().grpc.TrainingStub(channel)
    request = owner.pb.ForwardRequest(session=owner.session, x=to_tensor(numpy.zeros((1, 1, 28, 28), "f4")))
    refused(lambda: thief.Forward(request, timeout=CALL_S), grpc.StatusCode.PERMISSION_DENIED)
    channel.close()


def test_session_numbers_cannot_be_guessed(dpsd, clients):
    job = dpsd.submit(steps=10, trainers=8)
    numbers = sorted(clients(dpsd, job).session for _ in range(8))
    assert min(b - a for a, b in zip(numbers, numbers[1:])) > 1 << 32


def test_taken_and_unknown_ranks(dpsd, job, clients):
    clients(dpsd, job, rank=0)
    with pytest.raises(grpc.RpcError) as caught:
        Client(dpsd, job, rank=0)
    assert caught.value.code() in (grpc.StatusCode.ALREADY_EXISTS, grpc.StatusCode.FAILED_PRECONDITION,
                                   grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE)
    with pytest.raises(grpc.RpcError) as caught:
        Client(dpsd, job, rank=5)
    assert caught.value.code() in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT,
                                   grpc.StatusCode.OUT_OF_RANGE)


def test_wrong_shape_is_answered_with_both(dpsd, job, clients):
    client = clients(dpsd, job)
    sentence = refused(lambda: client.forward(numpy.zeros((4, 3, 28, 28), numpy.float32)),
                       grpc.StatusCode.INVALID_ARGUMENT, "(4, 3, 28, 28)")
    assert "1, 28, 28" in sentence
    context, _, _ = client.forward(numpy.zeros((4, 1, 28, 28), numpy.float32))
    sentence = refused(lambda: client.backward(context, numpy.zeros((4, 11), numpy.float32)),
                       grpc.StatusCode.INVALID_ARGUMENT, "(4, 11)", ", 10)")
    refused(lambda: client.backward(context, numpy.zeros((3, 10), numpy.float32)),
            grpc.StatusCode.INVALID_ARGUMENT, "(3, 10)", "(4, 10)")


def bad_tensors():
    pb = harness.stubs().pb
    whole = b"\0" * (4 * 784)
    return {
        "data too short": (pb.Tensor(dtype=pb.F32, dims=[1, 1, 28, 28], data=whole[:-1]), ["3135"]),
        "data too long": (pb.Tensor(dtype=pb.F32, dims=[1, 1, 28, 28], data=whole + b"\0"), ["3137"]),
        "no data": (pb.Tensor(dtype=pb.F32, dims=[1, 1, 28, 28]), []),
        "2^62 twice": (pb.Tensor(dtype=pb.F32, dims=[1 << 62, 1 << 62], data=whole), []),
        "2^63-1": (pb.Tensor(dtype=pb.F32, dims=[(1 << 63) - 1, 1, 28, 28], data=whole), []),
        "product wraps to 784": (pb.Tensor(dtype=pb.F32, dims=[1 << 32, 1 << 32, 28, 28], data=whole), []),
        "negative dim": (pb.Tensor(dtype=pb.F32, dims=[-1, 1, 28, 28], data=whole), ["-1"]),
        "zero batch": (pb.Tensor(dtype=pb.F32, dims=[0, 1, 28, 28]), []),
        "wrong dtype": (pb.Tensor(dtype=pb.I64, dims=[1, 1, 28, 28], data=b"\0" * (8 * 784)), ["I64"]),
        "no dtype": (pb.Tensor(dims=[1, 1, 28, 28], data=whole), []),
        "unknown dtype": (pb.Tensor(dtype=99, dims=[1, 1, 28, 28], data=whole), []),
        "no dims": (pb.Tensor(dtype=pb.F32, data=b"\0" * 4), []),
        "too many dims": (pb.Tensor(dtype=pb.F32, dims=[1] * 40 + [1, 28, 28], data=whole), []),
        "nothing at all": (pb.Tensor(), []),
    }


@pytest.mark.parametrize("name", [
    "data too short", "data too long", "no data", "2^62 twice", "2^63-1", "product wraps to 784", "negative dim",
    "zero batch", "wrong dtype", "no dtype", "unknown dtype", "no dims", "too many dims", "nothing at all"])
def test_broken_tensors(dpsd, job, clients, name):
    client = clients(dpsd, job)
    tensor, words = bad_tensors()[name]
    sentence = refused(lambda: client.forward(tensor), grpc.StatusCode.INVALID_ARGUMENT, *words)
    assert len(sentence) > 10
    context, output, _ = client.forward(numpy.zeros((2, 1, 28, 28), numpy.float32))
    refused(lambda: client.backward(context, tensor), grpc.StatusCode.INVALID_ARGUMENT, *words)
    client.backward(context, numpy.zeros_like(output))  # nothing else broke
    client.step(context)


def test_broken_batches_on_the_stream(dpsd, clients):
    job = dpsd.submit(steps=100, interval=5)
    pb = harness.stubs().pb
    x = numpy.zeros((4, 1, 28, 28), numpy.uint8)
    y = numpy.zeros(4, numpy.int64)
    cases = [
        (x, numpy.full(4, 10, numpy.int64), "10"),      # a class that the model has not
        (x, numpy.full(4, -1, numpy.int64), "-1"),
        (x, numpy.zeros(3, numpy.int64), "3"),          # fewer labels than images
        (x, numpy.zeros(4, numpy.float32), "F32"),
        (x[:, :, :27], y, "27"),
    ]
    for images, labels, word in cases:
        client = clients(dpsd, job)
        messages = [pb.TrainRequest(start=pb.TrainStart(session=client.session)),
                    pb.TrainRequest(batch=pb.Batch(step=0, x=to_tensor(images), y=to_tensor(labels)))]
        refused(lambda c=client, m=messages: list(c.training.Train(iter(m), timeout=CALL_S)),
                grpc.StatusCode.INVALID_ARGUMENT, word)
        client.close()
        harness.wait_until(lambda: dpsd.info().sessions == 0, 20, "the session to end with its connection")
    assert dpsd.get(job).step == 0


def test_too_many_contexts(dpsd, job, clients):
    client = clients(dpsd, job)
    x = numpy.zeros((1, 1, 28, 28), numpy.float32)
    contexts = [client.forward(x)[0] for _ in range(client.joined.max_contexts)]
    assert len(set(contexts)) == len(contexts)
    refused(lambda: client.forward(x), grpc.StatusCode.RESOURCE_EXHAUSTED, client.joined.max_contexts)
    client.discard(contexts[0])
    client.forward(x)


def test_deadline_while_others_are_waited_for(dpsd, clients):
    """Rank 0's Step waits for rank 1, which never comes: the deadline is honoured."""
    job = dpsd.submit(steps=100, interval=1, trainers=2)
    client = clients(dpsd, job, rank=0)
    context, output, _ = client.forward(numpy.zeros((1, 1, 28, 28), numpy.float32))
    client.backward(context, numpy.zeros_like(output))
    request = client.pb.StepRequest(session=client.session, context=context)
    with pytest.raises(grpc.RpcError) as caught:
        client.training.Step(request, timeout=1.0)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert dpsd.info().sessions == 1


def test_large_message_is_refused_not_swallowed(dpsd, job, clients):
    client = clients(dpsd, job)
    huge = client.pb.Tensor(dtype=client.pb.F32, dims=[1, 1, 28, 28], data=b"\0" * (300 << 20))
    with pytest.raises(grpc.RpcError) as caught:
        client.forward(huge)
    assert caught.value.code() in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INVALID_ARGUMENT)
    assert dpsd.rss() < (2 << 30) * harness.SCALE
