"""One trainer on policy average is a plain training loop on the same engine, bit for bit.

K = 1 with plain SGD as averaging of gradients: test_python_trainer.py.
"""
import gzip
import subprocess

import numpy
import pytest

from harness import CALL_S, DPSCTL


def read_idx(path):
    raw = gzip.decompress(path.read_bytes())
    dims = [int.from_bytes(raw[4 + 4 * i:8 + 4 * i], "big") for i in range(raw[3])]
    return numpy.frombuffer(raw, numpy.uint8, offset=4 + 4 * len(dims)).reshape(dims)


@pytest.fixture
def raw(tmp_path):
    """Directory of IDX files → raw files for plain_train."""
    def write(folder):
        images = read_idx(folder / "train-images-idx3-ubyte.gz")
        labels = read_idx(folder / "train-labels-idx1-ubyte.gz")
        (tmp_path / "images").write_bytes(images.tobytes())
        (tmp_path / "labels").write_bytes(labels.tobytes())
        return ["--images", tmp_path / "images", "--labels", tmp_path / "labels", "--samples", len(labels)]
    return write


@pytest.mark.parametrize("interval", [1, 7, 1000])
def test_one_trainer_is_a_plain_loop(dpsd, small_digits, raw, plain_train, interval):
    """Whatever K is: a mean of one replica changes nothing."""
    expected = plain_train(*raw(small_digits), "--epochs", 2, "--seed", 5)
    job = dpsd.ctl("submit", "--model", "mnist-cnn", "--data", small_digits, "--trainers", 1, "--interval", interval,
                   "--epochs", 2, "--seed", 5)["id"]
    assert dpsd.wait_done(job)["checksum"] == expected


@pytest.mark.parametrize("optimizer,lr", [("sgd,momentum=0.9", 0.01), ("adam", 0.001), ("adamw,weight_decay=0.1", 0.001)])
def test_every_optimizer_and_an_uneven_last_batch(dpsd, uneven_digits, raw, plain_train, optimizer, lr):
    expected = plain_train(*raw(uneven_digits), "--epochs", 2, "--seed", 9, "--optimizer", optimizer, "--lr", lr)
    job = dpsd.ctl("submit", "--model", "mnist-cnn", "--data", uneven_digits, "--trainers", 1, "--interval", 10,
                   "--epochs", 2, "--seed", 9, "--optimizer", optimizer, "--lr", lr)["id"]
    assert dpsd.wait_done(job)["checksum"] == expected


def test_external_trainer_equals_managed(dpsd, small_digits):
    """`dpsctl trainer` by hand does what the trainer that dpsd starts does."""
    words = ("submit", "--model", "mnist-cnn", "--data", small_digits, "--trainers", 1, "--interval", 5,
             "--steps", 15, "--batch", 8, "--seed", 2)
    managed = dpsd.wait_done(dpsd.ctl(*words)["id"])
    job = dpsd.ctl(*words, "--external-trainers")["id"]
    done = subprocess.run([DPSCTL, "--address", f"unix:{dpsd.socket}", "trainer", "--job", str(job), "--data",
                           small_digits], env=dpsd.env, capture_output=True, text=True, check=False, timeout=2 * CALL_S)
    assert done.returncode == 0, done.stderr
    assert dpsd.wait_done(job)["checksum"] == managed["checksum"]


@pytest.mark.parametrize("policy", ["average", "barrier"])
def test_two_batches_a_step_are_one_of_twice_the_size(dpsd, small_digits, policy):
    """`dpsctl trainer --accumulate 2` with batch 8 is training with batch 16, to rounding."""
    words = ("submit", "--model", "mnist-cnn", "--data", small_digits, "--trainers", 1, "--sync", policy, "--seed", 2,
             "--lr", 0.02, "--option", "dropout=0")
    large = dpsd.ctl(*words, "--batch", 16, "--steps", 20, "--interval", 5)["id"]
    small = dpsd.ctl(*words, "--batch", 8, "--steps", 40, "--interval", 10, "--external-trainers")["id"]
    managed = dpsd.ctl(*words, "--batch", 8, "--steps", 40, "--interval", 10, "--accumulate", 2)["id"]
    done = subprocess.run([DPSCTL, "--address", f"unix:{dpsd.socket}", "trainer", "--job", str(small), "--data",
                           small_digits, "--accumulate", "2"], env=dpsd.env, capture_output=True, text=True,
                          check=False, timeout=2 * CALL_S)
    assert done.returncode == 0, done.stderr
    for job in (large, small, managed):
        dpsd.wait_done(job)
    expected, arrays, same = dpsd.export(large), dpsd.export(small), dpsd.export(managed)
    for name, array in expected.items():
        assert numpy.abs(arrays[name] - array).max() < 1e-5, name
        assert numpy.array_equal(arrays[name], same[name]), name
    assert dpsd.ctl("status", small)["samples"] == dpsd.ctl("status", large)["samples"] == 320
