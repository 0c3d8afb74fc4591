"""Fixtures: real dpsd processes, dpsctl, and stubs made from the .proto at run time.

    DPS_BUILD=build/asan /usr/bin/python3 -m pytest tests/integration

Nothing here knows the daemon's insides: tests see what a user with grpcio, numpy and dpsctl sees.
"""
import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import harness  # noqa: E402
from harness import Daemon, digits  # noqa: E402
from trainers import Client  # noqa: E402


def pytest_configure(config):
    config.addinivalue_line("markers", "threads: what ThreadSanitizer is to see")
    config.addinivalue_line("markers", "plain: not under sanitizers (too slow, or meaningless there)")


def pytest_collection_modifyitems(config, items):
    """Scales each test's time limit; leaves out, under sanitizers, what is marked `plain`."""
    if not harness.SANITIZER:
        return
    for item in items:
        if item.get_closest_marker("plain"):
            item.add_marker(pytest.mark.skip(reason=f"not under {harness.SANITIZER}"))


def pytest_report_header(config):
    return f"dpsd: {harness.BUILD} (time limits × {harness.SCALE:g})"


def pytest_sessionstart(session):
    """Fails at once where nothing is built, rather than once a test."""
    if not harness.DPSCTL.exists() and not session.config.option.collectonly:
        pytest.exit(f"not built: {harness.DPSCTL} (set DPS_BUILD)", returncode=3)


@pytest.fixture(scope="session")
def stubs():
    """The messages and stubs, from the .proto alone: stubs.pb, stubs.grpc."""
    return harness.stubs()


@pytest.fixture
def daemons(request):
    """Makes daemons: daemons() starts one; at the end all are stopped and nothing may be left."""
    made = []

    def make(**kwargs):
        daemon = Daemon(name=request.node.name, **kwargs)
        made.append(daemon)
        return daemon

    yield make
    problems = []
    for daemon in made:
        problems += daemon.close()
    assert not problems, "\n".join(problems)


@pytest.fixture
def dpsd(daemons):
    """A running daemon with directories of its own."""
    daemon = daemons()
    daemon.start()
    return daemon


@pytest.fixture
def dpsctl(dpsd):
    """dpsctl(VERB, …) against that daemon; see Daemon.ctl."""
    return dpsd.ctl


@pytest.fixture
def clients():
    """clients(daemon, job, …): a joined trainer, see trainers.Client; closed at the end."""
    made = []

    def make(*args, **kwargs):
        made.append(Client(*args, **kwargs))
        return made[-1]

    yield make
    for client in made:
        client.close()


@pytest.fixture(scope="session")
def small_digits(tmp_path_factory):
    """A directory of IDX files: 640 samples to train on, 200 to test on."""
    return digits(tmp_path_factory.mktemp("digits"), train=640, test=200)


@pytest.fixture(scope="session")
def uneven_digits(tmp_path_factory):
    """650 samples: with batches of 32 the last one has 10."""
    return digits(tmp_path_factory.mktemp("uneven"), train=650, test=50)


@pytest.fixture(scope="session")
def mnist():
    """Real digits where they are at hand (DPS_MNIST, or shared/data/mnist beside the checkout)."""
    for folder in (os.environ.get("DPS_MNIST"), harness.ROOT.parent / "shared/data/mnist"):
        if folder and (pathlib.Path(folder) / "train-images-idx3-ubyte.gz").exists():
            return pathlib.Path(folder)
    pytest.skip("no MNIST files here: set DPS_MNIST")


@pytest.fixture(scope="session")
def plain_train():
    """The training loop without a daemon (plain_train.c), or a skip where it was not built."""
    program = harness.BUILD / "tests" / "plain_train"
    if not program.exists():
        pytest.skip(f"{program} is not built")

    def run(*args):
        done = subprocess.run([program, *map(str, args)], capture_output=True, text=True,
                              timeout=120 * harness.SCALE, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run
