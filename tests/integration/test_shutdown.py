"""SIGTERM: running jobs are checkpointed, the daemon ends in time, and the next one goes on. What
systemd is told on the way (sd_notify) is read from a socket of the test's own."""
import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time

import pytest

import harness
from harness import check_metrics, wait_until


class Notify:
    """A NOTIFY_SOCKET: collects messages with the time of arrival."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.messages, self.path = [], str(path)
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                text = self.socket.recv(65536).decode()
                for line in text.splitlines():
                    self.messages.append((time.monotonic(), line))

    def lines(self, prefix):
        return [line for _, line in list(self.messages) if line.startswith(prefix)]

    def close(self):
        self.socket.close()


@pytest.fixture
def notify():
    with tempfile.TemporaryDirectory(prefix="dps-notify-") as folder:
        listener = Notify(os.path.join(folder, "notify"))
        yield listener
        listener.close()


def submit(daemon, data, steps=120, trainers=2):
    return daemon.ctl("submit", "--model", "mnist-cnn", "--data", data, "--trainers", trainers, "--interval", 5,
                      "--steps", steps, "--batch", 8, "--seed", 1)["id"]


@pytest.mark.threads
def test_sigterm_checkpoints_and_restart_goes_on(daemons, small_digits):
    daemon = daemons().start()
    expected = daemon.wait_done(submit(daemon, small_digits))
    job = submit(daemon, small_digits)
    daemon.wait_progress(job, step=23)
    reached = daemon.ctl("status", job)["step"]
    start = time.monotonic()
    assert daemon.terminate() == 0
    assert time.monotonic() - start < 20 * harness.SCALE
    wait_until(lambda: not harness.processes_with(daemon.test_id), 10, "the trainers to end with it")

    daemon.start()
    latest = daemon.ctl("checkpoints", job)[0]
    assert latest["valid"] and latest["step"] >= reached, "SIGTERM lost steps"
    status = daemon.wait_done(job)
    assert status["checksum"] == expected["checksum"]
    check_metrics(daemon.ctl("metrics", job), ranks=2, interval=5)


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_idle_daemon_ends_at_once(daemons, sig):
    daemon = daemons().start()
    start = time.monotonic()
    assert daemon.kill(sig) == 0
    assert time.monotonic() - start < 3 * harness.SCALE
    assert not daemon.socket.exists(), "the socket file stays behind"


def test_second_sigterm_changes_nothing(daemons, small_digits):
    daemon = daemons().start()
    job = submit(daemon, small_digits, steps=100000)
    daemon.wait_progress(job, step=5)
    daemon.process.terminate()
    with contextlib.suppress(ProcessLookupError):
        daemon.process.terminate()
    assert daemon.process.wait(harness.STOP_S) == 0
    daemon.close_channel()
    daemon.start()
    assert daemon.ctl("checkpoints", job)[0]["valid"]
    daemon.ctl("cancel", job)


def test_stale_socket_is_replaced(daemons):
    daemon = daemons().start()
    daemon.kill()
    assert daemon.socket.exists()
    daemon.start()
    assert daemon.ctl("list") == []


def test_live_socket_is_not_taken(daemons, dpsd):
    second = daemons(options=["--listen", f"unix:{dpsd.socket}"])
    second.start(wait=False)
    assert second.process.wait(harness.READY_S) != 0
    assert "dpsd.sock" in second.log_text()
    second.process = None
    assert dpsd.ctl("list") == []


def test_systemd_is_told(daemons, notify, small_digits):
    daemon = daemons(env={"NOTIFY_SOCKET": notify.path}).start()
    wait_until(lambda: notify.lines("READY=1"), 10, "READY=1")
    assert len(notify.lines("READY=1")) == 1
    job = submit(daemon, small_digits, steps=100000)
    wait_until(lambda: any("1 job" in line or "running" in line.lower() for line in notify.lines("STATUS=")), 30,
               f"a STATUS about the job in {notify.messages}")
    daemon.wait_progress(job, step=1)
    daemon.terminate()
    assert notify.lines("STOPPING=1")
    order = [line.split("=")[0] for _, line in notify.messages]
    assert order.index("READY") < order.index("STOPPING")


def test_watchdog_is_fed(daemons, notify):
    """WATCHDOG_USEC: a sign of life at least twice as often."""
    daemon = daemons(env={"NOTIFY_SOCKET": notify.path, "WATCHDOG_USEC": str(int(2e6 * harness.SCALE))}).start()
    wait_until(lambda: len(notify.lines("WATCHDOG=1")) >= 4, 20, "four signs of life")
    times = [t for t, line in notify.messages if line == "WATCHDOG=1"]
    assert max(b - a for a, b in zip(times, times[1:])) < 2 * harness.SCALE
    before = len(times)
    os.kill(daemon.process.pid, signal.SIGSTOP)  # a daemon that hangs feeds nothing
    time.sleep(2.5)
    silent = len(notify.lines("WATCHDOG=1")) - before
    os.kill(daemon.process.pid, signal.SIGCONT)
    assert silent <= 1


def test_no_word_without_systemd(daemons, notify):
    daemon = daemons().start()
    daemon.terminate()
    assert notify.messages == []


def test_config_file_and_its_errors(daemons):
    broken = daemons(config="[trainer]\nleese = 5\n")
    broken.start(wait=False)
    try:
        status = broken.process.wait(harness.READY_S / 3)
    except subprocess.TimeoutExpired:
        status = None
    if status is not None:
        assert status != 0 and "leese" in broken.log_text()
        broken.process = None
    else:
        assert "leese" in broken.log_text(), "an unknown key is at least a warning"


def test_missing_config_file(daemons, tmp_path):
    daemon = daemons(options=["--config", str(tmp_path / "none.conf")])
    daemon.start(wait=False)
    assert daemon.process.wait(harness.READY_S) != 0
    assert "none.conf" in daemon.log_text()
    daemon.process = None


def test_unknown_option(daemons):
    daemon = daemons(options=["--frobnicate"])
    daemon.start(wait=False)
    assert daemon.process.wait(harness.READY_S) == 2
    daemon.process = None
