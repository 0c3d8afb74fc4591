"""Evaluation while training: --eval-every, --stop-when, the best checkpoint; restarts; a dying evaluator."""
import os
import re
import signal
import subprocess
import time

import grpc
import numpy
import pytest

from harness import CALL_S, DPSCTL, processes_with, to_tensor, wait_until


def submit(daemon, data, **more):
    """Small batches and meetings, so that there are many rounds; options as keywords."""
    options = {"trainers": 2, "interval": 5, "steps": 60, "batch": 8, "seed": 1, "eval_every": 3,
               "eval_data": data, **more}
    words = [word for name, value in options.items() if value is not None
             for word in (f"--{name.replace('_', '-')}", value)]
    return daemon.ctl("submit", "--model", "mnist-cnn", "--data", data, *words)["id"]


def evaluations(daemon, job):
    rows = daemon.ctl("evaluations", job)
    assert [row["round"] for row in rows] == sorted({row["round"] for row in rows}), "each round once, in order"
    return rows


def evaluators(daemon):
    return [pid for pid, command in processes_with(daemon.test_id) if "--record" in command]


def evaluation_events(daemon, job):
    return [event.text for event in daemon.events(job) if event.kind == "evaluation"]


# ---- rows -----------------------------------------------------------------------------------------


@pytest.mark.threads
def test_rounds_are_evaluated_and_listed(dpsd, small_digits):
    job = submit(dpsd, small_digits)
    status = dpsd.wait_done(job)
    rows = evaluations(dpsd, job)
    assert rows and rows[-1]["round"] == 12, "the last round is evaluated, however busy it was"
    assert all(row["round"] % 3 == 0 for row in rows) or "still under way" in str(evaluation_events(dpsd, job))
    assert all(row["samples"] == 200 and 0 <= row["accuracy"] <= 1 and row["loss"] > 0 for row in rows)
    assert status["accuracy"] == rows[-1]["accuracy"] and status["accuracy_round"] == 12
    assert sum(row["best"] for row in rows) == 1
    text = dpsd.ctl("evaluations", job, "--csv", parse=False).splitlines()
    assert text[0] == "round,checkpoint,accuracy,loss,samples,best" and len(text) == len(rows) + 1
    assert "best" in dpsd.ctl("evaluations", job, parse=False)
    assert dpsd.ctl("evaluations", job, "--after", 11)[0]["round"] == 12


def test_what_is_recorded_is_what_eval_says(dpsd, small_digits):
    job = submit(dpsd, small_digits)
    dpsd.wait_done(job)
    kept = {one["id"]: one for one in dpsd.ctl("checkpoints", job)}
    compared = 0
    for row in evaluations(dpsd, job):
        if row["checkpoint"] not in kept:
            continue
        assert kept[row["checkpoint"]]["round"] == row["round"]
        again = dpsd.ctl("eval", job, "--data", small_digits, "--checkpoint", row["checkpoint"])
        assert (again["accuracy"], again["loss"], again["samples"]) == (row["accuracy"], row["loss"], row["samples"])
        compared += 1
    assert compared >= 1
    dpsd.fails(1, "eval", job, "--data", small_digits, "--checkpoint", 999)


def test_evaluating_changes_nothing_of_the_training(dpsd, small_digits):
    with_it = dpsd.wait_done(submit(dpsd, small_digits))
    without = dpsd.wait_done(submit(dpsd, small_digits, eval_every=None, eval_data=None))
    assert with_it["checksum"] == without["checksum"]
    assert dpsd.ctl("evaluations", without["id"]) == []
    assert "no evaluations" in dpsd.ctl("evaluations", without["id"], parse=False)
    assert "accuracy" not in without or without["accuracy"] is None


def test_every_policy_can_be_evaluated(dpsd, small_digits):
    for policy in ("average-async", "elastic", "diloco", "barrier", "async"):
        job = submit(dpsd, small_digits, sync=policy, steps=30)
        status = dpsd.wait_done(job)
        assert evaluations(dpsd, job), f"{policy}: {evaluation_events(dpsd, job)}"
        assert status["accuracy"] > 0, policy


# ---- the end --------------------------------------------------------------------------------------


def test_stop_when_ends_the_job_with_a_meeting_and_a_reason(dpsd, small_digits):
    job = submit(dpsd, small_digits, steps=100000, stop_when="accuracy>=0.9", lr=0.05)
    status = dpsd.wait_done(job, seconds=300)
    match = re.fullmatch(r"accuracy ([0-9.]+) at round (\d+): >= 0\.9", status["reason"])
    assert match, status["reason"]
    rows = evaluations(dpsd, job)
    held = [row for row in rows if row["accuracy"] >= 0.9]
    assert held[0]["round"] == int(match[2]) and held[0]["accuracy"] == pytest.approx(float(match[1]), abs=1e-5)
    assert all(trainer["step"] == status["step"] for trainer in status["trainers"]), "the last meeting had all"
    assert status["step"] % 5 == 0 and status["step"] < 100000
    assert dpsd.ctl("checkpoints", job)[0]["step"] == status["step"], "the result is on disk"
    dpsd.kill()
    dpsd.start()
    after = dpsd.ctl("status", job)
    assert after["reason"] == status["reason"] and after["accuracy"] == status["accuracy"]


def test_stop_when_on_loss(dpsd, small_digits):
    job = submit(dpsd, small_digits, steps=100000, stop_when="loss<2.2", lr=0.05)
    status = dpsd.wait_done(job, seconds=300)
    assert re.fullmatch(r"loss [0-9.]+ at round \d+: < 2\.2", status["reason"])
    rows = evaluations(dpsd, job)
    best = next(row for row in rows if row["best"])
    assert best["loss"] == min(row["loss"] for row in rows)


@pytest.mark.parametrize("stop_when, says", [
    ("accuracy<=0.9", "accuracy grows"), ("loss>0.1", "loss falls"), ("accuracy>=98", "from 0 to 1"),
    ("accuracy>1", "ever above"), ("speed>3", "it takes accuracy"), ("accuracy>=", "it takes accuracy"),
    ("accuracy>=0.9x", "it takes accuracy"), ("accuracy=0.9", "it takes accuracy")])
def test_a_stop_that_makes_no_sense_is_refused(dpsd, small_digits, stop_when, says):
    sentence = dpsd.fails(1, "submit", "--model", "mnist-cnn", "--data", small_digits, "--eval-every", 2,
                          "--eval-data", small_digits, "--stop-when", stop_when)
    assert says in sentence and stop_when in sentence


def test_evaluations_need_data_and_a_stop_needs_evaluations(dpsd, small_digits, stubs):
    for spec in ({"stop_when": "accuracy>=0.9", "eval_data": "synthetic"}, {"settings": {"eval.every": "2"}}):
        with pytest.raises(grpc.RpcError) as caught:
            dpsd.submit(samples=64, **spec)
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert "eval_data" in caught.value.details()
    job = submit(dpsd, small_digits, steps=100000, eval_every=None, eval_data=None)
    assert "eval_data" in dpsd.fails(1, "set", job, "eval.every=2")
    dpsd.ctl("cancel", job)


def test_the_interval_can_be_changed_meanwhile(dpsd, small_digits):
    job = submit(dpsd, small_digits, steps=100000, eval_every=1000000)
    dpsd.wait_progress(job, round=2)
    assert evaluations(dpsd, job) == []
    dpsd.ctl("set", job, "eval.every=2")
    wait_until(lambda: evaluations(dpsd, job), 60, "an evaluation")
    dpsd.ctl("cancel", job)


# ---- the best -------------------------------------------------------------------------------------


def test_the_best_checkpoint_outlives_the_others(dpsd, small_digits):
    """A learning rate that ruins the model: the best is an early one, long past checkpoint.keep."""
    job = submit(dpsd, small_digits, steps=100000, lr=0.05, checkpoint_keep=2)
    wait_until(lambda: any(row["accuracy"] > 0.5 for row in evaluations(dpsd, job)), 200, "a good evaluation")
    dpsd.ctl("set", job, "optimizer.lr=0", "checkpoint.rounds=1")
    dpsd.wait_progress(job, round=dpsd.ctl("status", job)["round"] + 20)
    dpsd.ctl("pause", job)
    wait_until(lambda: not evaluators(dpsd), 60, "the evaluator to end")
    rows = evaluations(dpsd, job)
    best = next(row for row in rows if row["best"])
    assert best["accuracy"] == max(row["accuracy"] for row in rows)
    dpsd.ctl("resume", job)
    dpsd.ctl("set", job, "eval.every=0")
    dpsd.wait_progress(job, round=dpsd.ctl("status", job)["round"] + 10)
    checkpoints = dpsd.ctl("checkpoints", job)
    marked = [one for one in checkpoints if one["best"]]
    assert [one["id"] for one in marked] == [next(row for row in evaluations(dpsd, job) if row["best"])["checkpoint"]]
    assert marked[0]["id"] < min(one["id"] for one in checkpoints if not one["best"])
    assert len(checkpoints) <= 2 + 2, "the best, perhaps one in use, and checkpoint.keep"
    assert "best" in dpsd.ctl("checkpoints", job, parse=False)
    assert dpsd.ctl("eval", job, "--data", small_digits, "--checkpoint", marked[0]["id"])["accuracy"] == best["accuracy"]
    dpsd.ctl("cancel", job)


def test_a_restore_goes_back_with_evaluations_and_best(dpsd, small_digits):
    job = submit(dpsd, small_digits, steps=60, checkpoint_keep=100)
    dpsd.wait_done(job)
    rows = evaluations(dpsd, job)
    assert len(rows) >= 2, "the job was too fast for two evaluations"
    first = rows[0]
    dpsd.ctl("restore", job, "--checkpoint", first["checkpoint"])
    dpsd.wait_done(job)
    again = evaluations(dpsd, job)
    assert again[0] == {**first, "best": again[0]["best"]}
    assert all(row["checkpoint"] > rows[-1]["checkpoint"] for row in again[1:]), "the others were made again"
    assert [row for row in again if row["best"]][0]["accuracy"] == max(row["accuracy"] for row in again)
    assert sum(one["best"] for one in dpsd.ctl("checkpoints", job)) == 1


# ---- what goes wrong ------------------------------------------------------------------------------


def stopped_evaluator(daemon, job):
    """An evaluator, held with SIGSTOP."""
    def catch():
        for pid in evaluators(daemon):
            os.kill(pid, signal.SIGSTOP)
            return pid
        return None
    return wait_until(catch, 60, f"an evaluator of job {job}", every=0.002)


@pytest.mark.threads
def test_a_killed_evaluator_is_a_warning_and_no_more(dpsd, small_digits):
    job = submit(dpsd, small_digits, steps=100000)
    os.kill(stopped_evaluator(dpsd, job), signal.SIGKILL)
    wait_until(lambda: any("training goes on" in text for text in evaluation_events(dpsd, job)), 60, "a warning")
    wait_until(lambda: evaluations(dpsd, job), 60, "the next evaluation")
    assert dpsd.ctl("status", job)["state"] == "RUNNING"
    dpsd.ctl("cancel", job)


def test_one_at_a_time_and_the_next_is_skipped(dpsd, small_digits):
    job = submit(dpsd, small_digits, steps=100000)
    pid = stopped_evaluator(dpsd, job)
    dpsd.wait_progress(job, round=dpsd.ctl("status", job)["round"] + 10)
    assert evaluators(dpsd) == [pid]
    skips = [text for text in evaluation_events(dpsd, job) if "still under way" in text]
    assert len(skips) == 1, "one event, not one a round"
    os.kill(pid, signal.SIGCONT)
    wait_until(lambda: any("were due while" in text for text in evaluation_events(dpsd, job)), 60, "the count")
    dpsd.ctl("cancel", job)
    wait_until(lambda: not evaluators(dpsd), 30, "the evaluator to be gone")


@pytest.mark.threads
def test_the_end_waits_for_the_last_evaluation(dpsd, small_digits):
    job = submit(dpsd, small_digits, steps=15)  # three rounds: the one evaluation is the last round's
    pid = stopped_evaluator(dpsd, job)
    time.sleep(1)
    assert dpsd.ctl("status", job)["state"] == "RUNNING"
    os.kill(pid, signal.SIGCONT)
    dpsd.wait_done(job)
    assert [row["round"] for row in evaluations(dpsd, job)] == [3]


def test_an_evaluation_cut_off_by_a_kill_is_made_again(dpsd, small_digits):
    job = submit(dpsd, small_digits, steps=15)
    pid = stopped_evaluator(dpsd, job)
    dpsd.kill()
    os.kill(pid, signal.SIGCONT)  # to see that its parent is gone
    dpsd.start()
    dpsd.wait_done(job)
    assert [row["round"] for row in evaluations(dpsd, job)] == [3]


def test_kills_lose_no_evaluation_twice(daemons, small_digits):
    """Rounds are evaluated at most once and never out of order, however often dpsd is killed."""
    daemon = daemons().start()
    job = submit(daemon, small_digits, steps=200)
    for _ in range(3):
        time.sleep(1.5)
        daemon.kill()
        daemon.start()
        evaluations(daemon, job)
    daemon.wait_done(job, seconds=300)
    rows = evaluations(daemon, job)
    assert rows[-1]["round"] in (39, 40)
    for one in daemon.ctl("checkpoints", job):
        if one["best"]:
            assert one["id"] in [row["checkpoint"] for row in rows]


def test_a_stop_survives_a_kill(dpsd, small_digits):
    """Killed between the evaluation and the meeting that it leads to: the job still ends."""
    job = submit(dpsd, small_digits, steps=100000, stop_when="loss<=1000")
    wait_until(lambda: evaluations(dpsd, job) or None, 60, "the evaluation", every=0.01)
    dpsd.kill()
    dpsd.start()
    status = dpsd.wait_done(job)
    assert status["reason"].startswith("loss ")


def test_sigterm_with_an_evaluation_under_way_is_quick(dpsd, small_digits):
    job = submit(dpsd, small_digits, steps=100000)
    stopped_evaluator(dpsd, job)
    assert dpsd.terminate() == 0
    dpsd.start()
    wait_until(lambda: evaluations(dpsd, job), 60, "it to be evaluated after all")
    dpsd.ctl("cancel", job)


def test_nobody_else_records(dpsd, small_digits, stubs):
    job = submit(dpsd, small_digits, steps=100000)
    pid = stopped_evaluator(dpsd, job)
    checkpoint = dpsd.get(job).checkpoint
    request = stubs.pb.EvaluateRequest(job=job, checkpoint=checkpoint, record=True, token="0" * 32,
                                       x=to_tensor(numpy.zeros((4, 1, 28, 28), numpy.float32)),
                                       y=to_tensor(numpy.zeros(4, numpy.int64)))
    with pytest.raises(grpc.RpcError) as caught:
        dpsd.control.Evaluate(iter([request]), timeout=CALL_S)
    assert caught.value.code() == grpc.StatusCode.PERMISSION_DENIED
    request.record = False
    assert dpsd.control.Evaluate(iter([request]), timeout=CALL_S).samples == 4
    assert evaluations(dpsd, job) == []
    os.kill(pid, signal.SIGCONT)
    dpsd.ctl("cancel", job)


def test_the_hidden_options_are_not_told():
    text = subprocess.run([DPSCTL, "eval", "--help"], capture_output=True, text=True, check=True).stdout
    assert "--checkpoint" in text and "--record" not in text and "--parent" not in text
