"""What the disk can do to a daemon: full, read-only, newer, torn. It keeps serving and says what is."""
import contextlib
import os
import pathlib
import random
import signal
import sqlite3
import subprocess

import pytest

import harness
from harness import wait_until

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")


@pytest.fixture
def small_disk(tmp_path):
    """mount(size) → a directory on a tmpfs of that size."""
    mounted = []

    def mount(size):
        folder = tmp_path / f"disk{len(mounted)}"
        folder.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True,
                              text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"no mount here: {done.stderr.strip()}")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        if subprocess.run(["umount", folder], check=False, capture_output=True).returncode != 0:
            subprocess.run(["umount", "-l", folder], check=False)


def submit(daemon, data, *options, trainers=2, steps=40, interval=2):
    return daemon.ctl("submit", "--model", "mnist-cnn", "--data", data, "--trainers", trainers, "--interval", interval,
                      "--steps", steps, "--batch", 8, "--seed", 1, *options)["id"]


def fill(disk, leave=0):
    """Fills the disk but for `leave` bytes; returns the file to delete."""
    ballast = disk / "ballast"
    with contextlib.suppress(OSError), open(ballast, "wb", buffering=0) as file:
        while True:
            file.write(b"x" * 65536)
    os.truncate(ballast, ballast.stat().st_size - leave)
    return ballast


@root_only
def test_submit_on_a_full_disk_is_refused_with_a_sentence(daemons, small_disk, small_digits):
    disk = small_disk("24m")
    daemon = daemons(state=disk).start()
    first = daemon.wait_done(submit(daemon, small_digits, steps=10))
    ballast = fill(disk)
    with pytest.raises(harness.CtlError) as caught:
        submit(daemon, small_digits)
    assert caught.value.status == 1 and "no space left" in caught.value.stderr, caught.value.stderr
    assert "dps.db" in caught.value.stderr
    assert [job["id"] for job in daemon.ctl("list")] == [first["id"]]
    ballast.unlink()
    assert daemon.wait_done(submit(daemon, small_digits, steps=10))["checksum"] == first["checksum"]


@root_only
def test_checkpoints_on_a_full_disk(daemons, small_disk, small_digits):
    """Rows fit, checkpoints do not: training goes on, the failure is said, what was saved stays, and
    when there is room again the job's result is saved and the job ends."""
    disk = small_disk("24m")
    daemon = daemons(state=disk).start()
    first = daemon.wait_done(submit(daemon, small_digits, steps=10))
    saved = [c["id"] for c in daemon.ctl("checkpoints", first["id"])]
    ballast = fill(disk, leave=1 << 20)

    job = submit(daemon, small_digits, steps=10)
    wait_until(lambda: "checkpoint not saved" in daemon.log_text(), 60, "a word about the full disk")
    assert "no space left" in daemon.log_text()
    wait_until(lambda: any(e.kind == "checkpoint" and "not saved" in e.text for e in daemon.events(job)), 20,
               "an event about the full disk")
    wait_until(lambda: daemon.ctl("status", job)["step"] == 10, 60, "the last step")
    status = daemon.ctl("status", job)
    assert status["state"] == "RUNNING" and "no space left" in status["reason"]
    assert daemon.ctl("status", first["id"])["checksum"] == first["checksum"]
    assert [c["id"] for c in daemon.ctl("checkpoints", first["id"]) if c["valid"]] == saved

    ballast.unlink()
    assert daemon.wait_done(job, seconds=60)["checksum"] == first["checksum"]
    daemon.kill()
    daemon.start()
    for number in (first["id"], job):
        assert daemon.ctl("status", number)["checksum"] == first["checksum"]
        assert daemon.export(number)


@root_only
def test_read_only_directory_is_refused_with_a_sentence(daemons, small_disk):
    disk = small_disk("8m")
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    daemon = daemons(state=disk)
    daemon.start(wait=False)
    assert daemon.process.wait(harness.READY_S) != 0
    assert str(disk) in daemon.log_text() and "read-only" in daemon.log_text().lower()
    daemon.process = None


def database(daemon):
    return daemon.state / "dps.db"


def test_newer_database_is_left_untouched(daemons):
    daemon = daemons().start()
    daemon.terminate()
    with contextlib.closing(sqlite3.connect(database(daemon))) as db:
        version = db.execute("PRAGMA user_version").fetchone()[0]
        assert version >= 1
        db.execute(f"PRAGMA user_version = {version + 1000}")
        db.commit()
    before = database(daemon).read_bytes()
    daemon.start(wait=False)
    assert daemon.process.wait(harness.READY_S) != 0
    text = daemon.log_text()
    assert "newer" in text and "dps.db" in text and str(version + 1000) in text, text
    assert database(daemon).read_bytes() == before
    daemon.process = None


def test_file_that_is_no_database(daemons):
    daemon = daemons()
    database(daemon).write_bytes(b"these are not the bytes you are looking for" * 100)
    daemon.start(wait=False)
    assert daemon.process.wait(harness.READY_S) != 0
    assert "dps.db" in daemon.log_text()
    daemon.process = None


def blobs(db):
    """[(table, column)] of the columns that hold large binary values: where checkpoints are."""
    found = []
    tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    for table in tables:
        for column in db.execute(f"PRAGMA table_info('{table}')").fetchall():
            largest = db.execute(f"SELECT max(length(\"{column[1]}\")) FROM \"{table}\" "
                                 f"WHERE typeof(\"{column[1]}\") = 'blob'").fetchone()[0]
            if largest and largest > 100000:
                found.append((table, column[1]))
    return found


def corrupt_newest_blob(path, rng):
    """Flips a byte in the middle of the newest large value."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        places = blobs(db)
        assert places, "no checkpoint data in the database"
        table, column = places[0]
        rowid, value = db.execute(f"SELECT rowid, \"{column}\" FROM \"{table}\" WHERE length(\"{column}\") > 1000 "
                                  f"ORDER BY rowid DESC LIMIT 1").fetchone()
        value = bytearray(value)
        value[rng.randrange(len(value))] ^= 0x40
        db.execute(f"UPDATE \"{table}\" SET \"{column}\" = ? WHERE rowid = ?", (bytes(value), rowid))
        db.commit()


def test_torn_checkpoint_is_skipped_and_named(daemons, small_digits):
    """The daemon is killed, the latest checkpoint's bytes are changed: the one before is used, and the
    job ends as if nothing had been."""
    daemon = daemons().start()
    expected = daemon.wait_done(submit(daemon, small_digits, steps=60), seconds=240)

    job = submit(daemon, small_digits, steps=60)
    daemon.ctl("set", job, "checkpoint.rounds=2")
    wait_until(lambda: len(daemon.ctl("checkpoints", job)) >= 2, 120, "two checkpoints")
    daemon.kill()
    with contextlib.closing(sqlite3.connect(database(daemon))) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    newest = max(c for c in checkpoint_ids(daemon))
    corrupt_newest_blob(database(daemon), random.Random(1))
    daemon.start()
    status = daemon.wait_done(job, seconds=240)
    assert status["checksum"] == expected["checksum"]
    warnings = [line for line in daemon.log_text().splitlines() if f"checkpoint {newest}" in line]
    assert warnings, "no warning names the torn checkpoint"
    harness.check_metrics(daemon.ctl("metrics", job), ranks=2)


def checkpoint_ids(daemon):
    with contextlib.closing(sqlite3.connect(database(daemon))) as db:
        tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        assert "checkpoints" in tables, tables
        return [row[0] for row in db.execute("SELECT id FROM checkpoints")]


def test_all_checkpoints_torn(daemons, small_digits):
    """Nothing to go on from: the job starts anew or fails with a sentence; the daemon serves."""
    daemon = daemons().start()
    job = submit(daemon, small_digits, steps=100000)
    wait_until(lambda: daemon.ctl("checkpoints", job), 120, "a checkpoint")
    daemon.kill()
    rng = random.Random(2)
    with contextlib.closing(sqlite3.connect(database(daemon))) as db:
        for table, column in blobs(db):
            for rowid, value in db.execute(f"SELECT rowid, \"{column}\" FROM \"{table}\" "
                                           f"WHERE length(\"{column}\") > 1000").fetchall():
                value = bytearray(value)
                value[rng.randrange(len(value))] ^= 1
                db.execute(f"UPDATE \"{table}\" SET \"{column}\" = ? WHERE rowid = ?", (bytes(value), rowid))
        db.commit()
    daemon.start()
    status = daemon.wait_state(job, "RUNNING", "FAILED", seconds=60)
    if status["state"] == "FAILED":
        assert "checkpoint" in status["reason"]
    else:
        daemon.ctl("cancel", job)


def test_truncated_database_file_does_not_hang_the_start(daemons, small_digits):
    daemon = daemons().start()
    daemon.wait_done(submit(daemon, small_digits, steps=4))
    daemon.kill()
    for extra in ("dps.db-wal", "dps.db-shm"):
        pathlib.Path(daemon.state / extra).unlink(missing_ok=True)
    with open(database(daemon), "r+b") as file:
        file.truncate(os.path.getsize(database(daemon)) // 2)
    daemon.start(wait=False)
    try:
        status = daemon.process.wait(10 * harness.SCALE)
    except subprocess.TimeoutExpired:
        daemon.process.send_signal(signal.SIGTERM)  # it serves what is left: fine
        status = daemon.process.wait(harness.STOP_S)
    assert status >= 0, f"ended by signal {-status}"
    daemon.process = None
