"""The main job as a user sees it: dpsctl against a real daemon with managed trainers."""
import signal
import subprocess
import time

import numpy
import pytest

import harness
from harness import DPSCTL, check_metrics, parse_json, read_npz, same_rows, wait_until

STATUS_NAMES = {"id", "name", "state", "reason", "model", "policy", "interval", "round", "step", "epoch",
                "samples", "loss", "lr", "seed", "device", "checksum", "trainers"}
TRAINER_NAMES = {"rank", "state", "step", "loss", "device", "waiting_s", "waiting_for"}
METRICS_NAMES = {"round", "rank", "step", "loss", "samples", "compute_ms", "wait_ms", "bytes_in", "bytes_out",
                 "lr", "contributed"}
CHECKPOINT_NAMES = {"id", "job", "step", "round", "created", "bytes", "valid"}

# mnist-cnn as the example has it.
SHAPES = {
    "conv1.weight": (32, 1, 3, 3), "conv1.bias": (32,),
    "conv2.weight": (64, 32, 3, 3), "conv2.bias": (64,),
    "fc1.weight": (128, 9216), "fc1.bias": (128,),
    "fc2.weight": (10, 128), "fc2.bias": (10,),
}


def submit(dpsctl, data, *options):
    reply = dpsctl("submit", "--model", "mnist-cnn", "--data", data, "--batch", 8, "--seed", 1, *options)
    assert isinstance(reply["id"], int) and reply["id"] > 0
    return reply["id"]


def last_steps(rows):
    """rank → the step that it ended with."""
    return {row["rank"]: row["step"] for row in sorted(rows, key=lambda row: row["round"])}


@pytest.mark.threads
def test_from_submit_to_completed(dpsd, dpsctl, small_digits, tmp_path):
    job = submit(dpsctl, small_digits, "--trainers", 2, "--interval", 5, "--epochs", 1, "--name", "first")
    status = dpsd.wait_done(job)

    assert STATUS_NAMES <= set(status)
    assert (status["id"], status["name"], status["model"]) == (job, "first", "mnist-cnn")
    assert (status["policy"], status["interval"], status["seed"]) == ("average", 5, 1)
    assert status["samples"] == 640 and status["step"] == 40 and status["round"] == 8
    assert len(status["checksum"]) == 16 and int(status["checksum"], 16)
    assert status["device"]

    listed = dpsctl("list")
    assert [j["id"] for j in listed] == [job] and listed[0]["state"] == "COMPLETED"

    rows = dpsctl("metrics", job)
    assert METRICS_NAMES <= set(rows[0])
    assert check_metrics(rows, ranks=2, interval=5) == 8
    assert len(rows) == 16 and sum(r["samples"] for r in rows) == 640
    assert all(r["contributed"] is True and abs(r["lr"] - 0.03) < 1e-6 for r in rows)
    assert all(r["compute_ms"] > 0 and r["bytes_in"] > 0 and r["bytes_out"] > 0 for r in rows), rows
    assert sum(r["bytes_in"] for r in rows) >= 640 * 784
    table = dpsctl("metrics", job, "--csv", parse=False).strip().splitlines()
    assert table[0].split(",")[:2] == ["round", "rank"] and len(table) == 17

    checkpoints = dpsctl("checkpoints", job)
    assert checkpoints and CHECKPOINT_NAMES <= set(checkpoints[0])
    assert all(c["valid"] is True and c["job"] == job and c["bytes"] > 0 for c in checkpoints)

    score = dpsctl("eval", job, "--data", small_digits)
    assert score["samples"] == 200 and 0 <= score["accuracy"] <= 1 and score["loss"] > 0

    out = tmp_path / "model.npz"
    dpsctl("export", job, "-o", out)
    arrays = read_npz(out)
    assert {name: array.shape for name, array in arrays.items()} == SHAPES
    assert all(a.dtype == numpy.float32 and numpy.isfinite(a).all() for a in arrays.values())
    over_grpc = dpsd.export(job)
    assert all(numpy.array_equal(over_grpc[name], arrays[name]) for name in SHAPES)


def test_status_shows_each_trainer(dpsd, dpsctl, small_digits):
    job = submit(dpsctl, small_digits, "--trainers", 3, "--interval", 5, "--steps", 100000)
    status = dpsd.wait_progress(job, round=2)
    assert status["state"] == "RUNNING" and status["device"].startswith("cpu")
    assert [t["rank"] for t in status["trainers"]] == [0, 1, 2]
    for trainer in status["trainers"]:
        assert TRAINER_NAMES <= set(trainer)
        assert trainer["step"] >= 5 and trainer["loss"] > 0 and trainer["device"].startswith("cpu")
        assert trainer["state"] in ("computing", "waiting", "reading")
    dpsctl("cancel", job)


def test_it_learns(dpsd, dpsctl, small_digits):
    job = submit(dpsctl, small_digits, "--trainers", 2, "--interval", 10, "--epochs", 4)
    dpsd.wait_done(job)
    rows = dpsctl("metrics", job)
    last = max(r["round"] for r in rows)
    first_loss = numpy.mean([r["loss"] for r in rows if r["round"] == 1])
    last_loss = numpy.mean([r["loss"] for r in rows if r["round"] == last])
    assert last_loss < 0.6 * first_loss
    assert dpsctl("eval", job, "--data", small_digits)["accuracy"] > 0.8


def test_synthetic_digits_need_no_files(dpsd, dpsctl):
    job = submit(dpsctl, "synthetic", "--trainers", 1, "--interval", 5, "--steps", 10)
    status = dpsd.wait_done(job)
    assert status["step"] == 10 and status["samples"] == 80
    assert dpsctl("eval", job, "--data", "synthetic")["samples"] > 0


def test_steps_count_the_batches_of_each_trainer(dpsd, dpsctl, small_digits):
    job = submit(dpsctl, small_digits, "--trainers", 3, "--interval", 4, "--steps", 10)
    status = dpsd.wait_done(job)
    assert last_steps(dpsctl("metrics", job)) == {0: 10, 1: 10, 2: 10}
    assert status["samples"] == 3 * 10 * 8
    # 4, 8 and the meeting at the end
    assert status["round"] == 3


def test_uneven_epoch_uses_every_sample_once(dpsd, dpsctl, uneven_digits):
    """650 samples over 3 ranks in batches of 32: 21 batches, the last of 10."""
    job = dpsctl("submit", "--model", "mnist-cnn", "--data", uneven_digits, "--trainers", 3,
                 "--interval", 3, "--epochs", 1, "--seed", 3)["id"]
    status = dpsd.wait_done(job)
    assert status["samples"] == 650
    rows = dpsctl("metrics", job)
    assert sum(r["samples"] for r in rows) == 650
    assert last_steps(rows) == {0: 7, 1: 7, 2: 7}


def test_watch_prints_plain_lines_in_a_pipe(dpsd, dpsctl, small_digits):
    job = submit(dpsctl, small_digits, "--trainers", 2, "--interval", 5, "--steps", 20)
    text = dpsctl("watch", job, parse=False)
    assert text.strip() and "\x1b" not in text and "\r" not in text
    assert "COMPLETED" in text.strip().splitlines()[-1]


def test_watch_as_json_ends_with_the_final_status(dpsd, dpsctl, small_digits):
    job = submit(dpsctl, small_digits, "--trainers", 1, "--interval", 5, "--steps", 10)
    updates = dpsctl("watch", job)
    updates = updates if isinstance(updates, list) else [updates]
    assert updates[-1]["state"] == "COMPLETED" and updates[-1]["step"] == 10
    steps = [u["step"] for u in updates]
    assert steps == sorted(steps)


def test_submit_watch_waits_for_the_end(dpsd, dpsctl, small_digits):
    dpsctl("submit", "--model", "mnist-cnn", "--data", small_digits, "--batch", 8, "--steps", 6,
           "--interval", 3, "--watch", parse=False)
    assert dpsctl("list")[0]["state"] == "COMPLETED"


def test_pause_holds_and_resume_goes_on(dpsd, dpsctl, small_digits):
    job = submit(dpsctl, small_digits, "--trainers", 2, "--interval", 5, "--steps", 400)
    dpsd.wait_progress(job, round=2)
    dpsctl("pause", job)
    dpsd.wait_state(job, "PAUSED")
    time.sleep(1.0)
    held = dpsctl("status", job)["step"]
    time.sleep(1.5)
    assert dpsctl("status", job)["step"] == held, "a paused job goes on"
    dpsctl("resume", job)
    wait_until(lambda: dpsctl("status", job)["step"] > held, 60, "steps after resume")
    dpsctl("cancel", job)
    dpsd.wait_state(job, "CANCELLED")


def test_cancel_ends_job_and_trainers(dpsd, dpsctl, small_digits):
    job = submit(dpsctl, small_digits, "--trainers", 2, "--interval", 5, "--steps", 100000)
    dpsd.wait_progress(job, step=4)
    assert len(dpsd.trainers()) == 2
    dpsctl("cancel", job)
    dpsd.wait_state(job, "CANCELLED")
    wait_until(lambda: not dpsd.trainers(), 20, "the trainers to end")
    dpsd.fails(1, "resume", job)


def test_a_pipe_of_jobs_runs_side_by_side(dpsd, dpsctl, small_digits):
    jobs = [submit(dpsctl, small_digits, "--trainers", 1, "--interval", 5, "--steps", 15) for _ in range(3)]
    checksums = {dpsd.wait_done(job)["checksum"] for job in jobs}
    assert len(set(jobs)) == 3 and len(checksums) == 1


@pytest.mark.threads
def test_interval_changes_at_the_next_round_for_all(dpsd, dpsctl, small_digits):
    steps = 80 if harness.SANITIZER else 200
    job = submit(dpsctl, small_digits, "--trainers", 2, "--interval", 10, "--steps", steps)
    dpsd.wait_progress(job, round=2)
    dpsctl("set", job, "sync.interval=4")
    status = dpsd.wait_done(job)
    assert status["interval"] == 4 and status["step"] == steps

    rows = dpsctl("metrics", job)
    check_metrics(rows, ranks=2)
    ends = {}
    for row in rows:
        ends.setdefault(row["round"], set()).add(row["step"])
    assert all(len(steps) == 1 for steps in ends.values()), "ranks met at different steps"
    steps = [0] + [min(ends[r]) for r in sorted(ends)]
    lengths = [b - a for a, b in zip(steps, steps[1:])]
    change = lengths.index(4)
    assert change >= 2 and set(lengths[:change]) == {10}
    assert set(lengths[change:-1]) == {4} and lengths[-1] <= 4

    changes = [e for e in dpsd.events(job) if e.kind == "setting"]
    assert len(changes) == 1
    assert "sync.interval" in changes[0].text and "4" in changes[0].text
    assert "uid=" in changes[0].who and abs(changes[0].unix_ms / 1000 - time.time()) < 600 * harness.SCALE
    assert changes[0].round in (change, change + 1)


def test_learning_rate_changes_at_a_round(dpsd, dpsctl, small_digits):
    job = submit(dpsctl, small_digits, "--trainers", 2, "--interval", 5, "--steps", 150)
    dpsd.wait_progress(job, round=2)
    dpsctl("set", job, "optimizer.lr=0.01")
    dpsd.wait_done(job)
    rates = {}
    for row in dpsctl("metrics", job):
        rates.setdefault(row["round"], set()).add(round(row["lr"], 6))
    assert all(len(r) == 1 for r in rates.values())
    sequence = [min(rates[r]) for r in sorted(rates)]
    assert sequence[0] == 0.03 and sequence[-1] == 0.01 and sequence == sorted(sequence, reverse=True)


def test_checkpoint_on_request_and_restore(dpsd, dpsctl, small_digits):
    """Back to a checkpoint and on again: the same end, and no row of metrics twice."""
    job = submit(dpsctl, small_digits, "--trainers", 2, "--interval", 5, "--steps", 60)
    dpsctl("set", job, "checkpoint.keep=100")
    dpsd.wait_progress(job, round=2)
    taken = dpsctl("checkpoint", job)
    assert taken["id"] > 0 and taken["valid"] and taken["step"] > 0
    final = dpsd.wait_done(job)
    rows = dpsctl("metrics", job)
    assert taken["id"] in [c["id"] for c in dpsctl("checkpoints", job)]
    dpsctl("restore", job, "--checkpoint", taken["id"])
    again = dpsd.wait_done(job)
    assert again["checksum"] == final["checksum"] and again["samples"] == final["samples"]
    again_rows = dpsctl("metrics", job)
    check_metrics(again_rows, ranks=2)
    assert same_rows(again_rows, rows)


def test_server_says_what_it_is(dpsd, dpsctl):
    info = dpsctl("server")
    assert info["version"]
    assert any("cpu" in str(device) for device in info["devices"])
    assert {"mnist-cnn", "mlp", "resnet-small"} <= set(info["models"])
    assert "average" in info["policies"]
    assert any("dpsd.sock" in listener for listener in info["listeners"])


@pytest.mark.parametrize("model", ["mlp", "resnet-small"])
def test_the_other_models_are_there(dpsd, model):
    job = dpsd.submit(model=model, trainers=1, steps=2, interval=1)
    status = dpsd.get(job)
    assert list(status.input_dims) and list(status.output_dims)


# ---- wrong use ----------------------------------------------------------------------------------


def test_unknown_model_lists_the_known(dpsd, small_digits):
    sentence = dpsd.fails(1, "submit", "--model", "mnist-cnm", "--data", small_digits)
    assert "mnist-cnm" in sentence and "mnist-cnn" in sentence and "mlp" in sentence


@pytest.mark.parametrize("option,value", [
    ("--interval", "0"), ("--trainers", "0"), ("--batch", "0"), ("--epochs", "-1"), ("--lr", "fast"),
    ("--interval", "25x"), ("--batch", "99999999999999999999")])
def test_numbers_out_of_range_are_named(dpsd, small_digits, option, value):
    done = dpsd.ctl("submit", "--model", "mnist-cnn", "--data", small_digits, option, value,
                    parse=False, check=False)
    assert done.returncode in (1, 2) and done.stderr.startswith("dpsctl: ")
    assert option.lstrip("-") in done.stderr
    assert dpsd.ctl("list") == []


@pytest.mark.parametrize("option,value,names", [
    ("--optimizer", "sdg", "sgd"), ("--optimizer", "sgd,momentun=0.9", "momentum"),
    ("--sync", "averge", "average"), ("--device", "tpu", "cpu")])
def test_wrong_names_are_answered_with_the_right_ones(dpsd, small_digits, option, value, names):
    done = dpsd.ctl("submit", "--model", "mnist-cnn", "--data", small_digits, option, value,
                    parse=False, check=False)
    assert done.returncode in (1, 2) and names in done.stderr, done.stderr


def test_missing_data_directory(dpsd, tmp_path):
    sentence = dpsd.fails(1, "submit", "--model", "mnist-cnn", "--data", tmp_path / "nowhere")
    assert "nowhere" in sentence


def test_directory_without_data(dpsd, tmp_path):
    assert str(tmp_path) in dpsd.fails(1, "submit", "--model", "mnist-cnn", "--data", tmp_path)


def test_truncated_data_file_is_named_with_offset(dpsd, tmp_path):
    folder = harness.digits(tmp_path, train=40, test=10, compress=False)
    images = folder / "train-images-idx3-ubyte"
    images.write_bytes(images.read_bytes()[:-100])
    sentence = dpsd.fails(1, "submit", "--model", "mnist-cnn", "--data", folder)
    assert "train-images-idx3-ubyte" in sentence and any(c.isdigit() for c in sentence)


@pytest.mark.parametrize("verb", ["status", "watch", "pause", "resume", "cancel", "checkpoint", "checkpoints",
                                  "metrics"])
def test_no_such_job(dpsd, verb):
    assert "77" in dpsd.fails(4, verb, 77)


def test_no_such_job_elsewhere(dpsd, small_digits, tmp_path):
    dpsd.fails(4, "eval", 77, "--data", small_digits)
    dpsd.fails(4, "export", 77, "-o", tmp_path / "x.npz")
    dpsd.fails(4, "set", 77, "sync.interval=5")
    dpsd.fails(4, "restore", 77)


def test_wrong_settings_change_nothing(dpsd, dpsctl, small_digits):
    job = submit(dpsctl, small_digits, "--trainers", 1, "--interval", 5, "--steps", 3000)
    dpsd.wait_progress(job, step=1)
    assert "sync.interval" in dpsd.fails(1, "set", job, "sync.interval=0")
    assert "sync.intervall" in dpsd.fails(1, "set", job, "sync.intervall=5")
    done = dpsd.ctl("set", job, "sync.interval", parse=False, check=False)
    assert done.returncode in (1, 2)
    assert dpsctl("status", job)["interval"] == 5
    assert not [e for e in dpsd.events(job) if e.kind == "setting"]
    dpsctl("cancel", job)


@pytest.mark.parametrize("words", [[], ["frobnicate"], ["status"], ["submit"],
                                   ["submit", "--modell", "x"], ["export", "1"]])
def test_wrong_usage(dpsd, words):
    done = dpsd.ctl(*words, parse=False, check=False)
    assert done.returncode == 2 and done.stderr


def test_daemon_not_reachable(dpsd, tmp_path):
    done = subprocess.run([DPSCTL, "--address", f"unix:{tmp_path}/none.sock", "list"], capture_output=True,
                          text=True, check=False, timeout=harness.CALL_S)
    assert done.returncode == 5 and done.stderr.startswith("dpsctl: ") and "none.sock" in done.stderr


def test_address_from_the_environment(dpsd):
    done = subprocess.run([DPSCTL, "--json", "list"], capture_output=True, text=True, check=False,
                          timeout=harness.CALL_S, env={**dpsd.env, "DPS_ADDRESS": f"tcp:{dpsd.tcp_target()}"})
    assert done.returncode == 0 and parse_json(done.stdout) == []


def test_errors_as_json(dpsd):
    done = dpsd.ctl("status", 77, check=False)
    assert done.returncode == 4
    error = parse_json(done.stderr)
    assert "77" in error["error"] and error["code"]


def test_second_daemon_on_the_same_state_is_refused(dpsd, daemons):
    second = daemons(state=dpsd.state)
    second.start(wait=False)
    assert second.process.wait(harness.READY_S) != 0
    assert "dps.db" in second.log_text() or str(dpsd.state) in second.log_text()
    second.process = None
    assert dpsd.ctl("list") == []


def test_sighup_does_not_end_it(dpsd):
    dpsd.process.send_signal(signal.SIGHUP)
    time.sleep(0.3)
    assert dpsd.ctl("list") == []
