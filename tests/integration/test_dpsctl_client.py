"""dpsctl's verbs and its gRPC client against an independent server: grpcio's, from the .proto alone."""
import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import termios
import threading
import time
from concurrent import futures

import grpc
import numpy
import pytest

import harness
from fake_control import FakeControl
from fake_server import Wire

PROBE = harness.BUILD / "tests" / "client_probe"


@pytest.fixture(scope="module")
def pb():
    return harness.stubs().pb


@pytest.fixture
def digits(tmp_path):
    """digits(train, test) makes a directory of IDX files."""
    def make(train, test):
        (tmp_path / "set").mkdir()
        return harness.digits(tmp_path / "set", train=train, test=test)
    return make


@pytest.fixture
def serve(tmp_path):
    """serve({method: answer}, …) starts a server that ends with the test."""
    with contextlib.ExitStack() as stack:
        def start(answers, unix=False, **kwargs):
            path = tmp_path / "ctl.sock" if unix else None
            return stack.enter_context(FakeControl(answers, path=path, **kwargs))
        yield start


def environment(**more):
    clean = {k: v for k, v in os.environ.items() if k not in ("DPS_ADDRESS", "NO_COLOR")}
    return {**clean, **harness.sanitizer_environment(), "LC_ALL": "C.UTF-8", "TERM": "xterm", **more}


def ctl(address, *words, status=0, flags=(), env=None, seconds=30):
    """Runs dpsctl; returns (stdout, stderr)."""
    done = subprocess.run([harness.DPSCTL, "--address", address, *flags, *map(str, words)],
                          capture_output=True, text=True, env=environment(**(env or {})), check=False,
                          stdin=subprocess.DEVNULL, timeout=seconds * harness.SCALE)
    assert done.returncode == status, f"status {done.returncode}, not {status}\n{done.stdout}{done.stderr}"
    return done.stdout, done.stderr


def ctl_json(address, *words, **kwargs):
    return json.loads(ctl(address, *words, flags=["--json"], **kwargs)[0])


def a_job(pb, **changes):
    trainers = [pb.TrainerStatus(rank=0, state="computing", step=31, loss=0.25, device="cpu:0"),
                pb.TrainerStatus(rank=1, state="waiting", step=30, loss=0.5, device="cpu:0",
                                 waiting_s=1.5, waiting_for="rank 0")]
    fields = dict(id=3, name="first", state=pb.RUNNING, model="mnist-cnn", policy="average", interval=25,
                  round=2, step=30, epoch=1, samples=1920, samples_total=4000, loss=0.1, lr=0.03,
                  seed=2**64 - 1, device="cpu", checksum="00ff00ff00ff00ff", trainers=trainers,
                  samples_per_s=1234.5, eta_s=61, created_unix_ms=1_700_000_000_123, running_s=12,
                  optimizer="sgd,momentum=0.9", batch=32, data="/data/mnist")
    return pb.JobStatus(**{**fields, **changes})


# ---- what is printed ----------------------------------------------------------------------------


@pytest.mark.parametrize("unix", [False, True])
def test_status_as_json_has_the_names_and_all_digits(pb, serve, unix):
    server = serve({"Get": a_job(pb)}, unix=unix)
    status = ctl_json(server.address, "status", 3)
    wanted = {"id": 3, "name": "first", "state": "RUNNING", "reason": "", "model": "mnist-cnn",
              "policy": "average", "interval": 25, "round": 2, "step": 30, "epoch": 1, "samples": 1920,
              "loss": 0.1, "lr": 0.03, "seed": 2**64 - 1, "device": "cpu", "checksum": "00ff00ff00ff00ff"}
    assert {name: status[name] for name in wanted} == wanted
    assert status["created"] == "2023-11-14T22:13:20.123Z" and status["created_unix_ms"] == 1_700_000_000_123
    assert [t["rank"] for t in status["trainers"]] == [0, 1]
    assert {"rank": 1, "state": "waiting", "step": 30, "loss": 0.5, "device": "cpu:0", "waiting_s": 1.5,
            "waiting_for": "rank 0"}.items() <= status["trainers"][1].items()
    assert server.requests("Get") == [pb.JobRequest(job=3)]


def test_status_with_settings_and_an_evaluation(pb, serve):
    settings = {"sync.policy": "elastic", "sync.alpha": "0.25", "sync.wait": "quorum:3", "optimizer.clip": "0",
                "eval.every": "2"}
    job = a_job(pb, policy="elastic", settings=settings, accuracy=0.9125, accuracy_round=4, max_trainers=6)
    job.trainers[0].state = "quarantined (2 strikes)"
    job.trainers[1].waiting_for = "rank 2 (no word for 12 s), rank 3 (reading data)"
    server = serve({"Get": job, "List": pb.ListReply(jobs=[job])})
    status = ctl_json(server.address, "status", 3)
    assert status["settings"] == settings
    assert (status["accuracy"], status["accuracy_round"], status["max_trainers"]) == (0.9125, 4, 6)
    out, _ = ctl(server.address, "status", 3)
    assert "Sync: elastic every 25 steps, wait quorum:3, alpha 0.25\n" in out, out
    assert "Accuracy: 0.9125, of round 4\n" in out and "clip" not in out
    assert "Waiting for: rank 2 (no word for 12 s), rank 3 (reading data), for 1.5 s\n" in out
    assert "quarantined (2 strikes)" in out and "Trainers: 2, at most 6\n" in out
    out, _ = ctl(server.address, "list")
    assert re.search(r"0\.1000 +0\.9125 +mnist-cnn +elastic every 25 ", out), out


def test_no_evaluation_yet_is_null(pb, serve):
    status = ctl_json(serve({"Get": a_job(pb, accuracy=-1)}).address, "status", 3)
    assert (status["accuracy"], status["accuracy_round"], status["settings"]) == (None, None, {})


def test_numbers_that_are_none_are_null(pb, serve):
    server = serve({"Get": a_job(pb, loss=float("nan"), lr=float("inf"), eta_s=-1)})
    status = ctl_json(server.address, "status", 3)
    assert (status["loss"], status["lr"], status["eta_s"]) == (None, None, None)


def test_status_for_people(pb, serve):
    out, _ = ctl(serve({"Get": a_job(pb)}).address, "status", "3")
    assert "RUNNING" in out and "average every 25 steps" in out and "for rank 0" not in out.splitlines()[0]
    assert re.search(r"1 +waiting +30 +0\.5000 +cpu:0 +rank 0, 1\.5 s", out), out
    assert "\x1b" not in out


def test_text_of_the_server_cannot_steer_the_terminal(pb, serve):
    nasty = "a\x1b[2Jb\x07c\u202ed\x9be\r\n"
    job = a_job(pb, name=nasty, reason=nasty, device=nasty)
    job.trainers[0].state = nasty
    server = serve({"Get": job, "List": pb.ListReply(jobs=[job]), "Watch": [a_job(pb, state=pb.FAILED, reason=nasty)]})
    for words, status in ((["status", "3"], 0), (["list"], 0), (["watch", "3"], 1)):
        out, err = ctl(server.address, *words, status=status)
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", out + err), repr(out + err)
    assert "\x1b" not in ctl_json(server.address, "status", 3)["name"]


def test_list_and_finding_by_name(pb, serve):
    jobs = [a_job(pb, id=1, name="a"), a_job(pb, id=2, name="twice"), a_job(pb, id=3, name="twice")]
    server = serve({"List": pb.ListReply(jobs=jobs), "Get": lambda request, _: a_job(pb, id=request.job)})
    assert [job["id"] for job in ctl_json(server.address, "list")] == [1, 2, 3]
    assert ctl_json(server.address, "status", "a")["id"] == 1
    assert "2, 3" in ctl(server.address, "status", "twice", status=2)[1]
    assert "'b'" in ctl(server.address, "status", "b", status=4)[1]


def test_one_reply_of_almost_the_limit_and_one_above(pb, serve):
    page = pb.ListReply(jobs=[a_job(pb, id=i, reason="x" * 1000) for i in range(2800)])
    assert 3_000_000 < page.ByteSize() < 4 << 20
    assert len(ctl_json(serve({"List": page}).address, "list")) == 2800
    page.jobs[0].reason = "x" * (2 << 20)
    _, err = ctl(serve({"List": page}).address, "list", status=1)
    assert "message of" in err and "more than 4194304" in err


def test_verbs_call_their_methods(pb, serve):
    checkpoint = pb.CheckpointInfo(id=7, job=3, step=50, round=2, created_unix_ms=1_700_000_000_000, bytes=4 << 20,
                                   valid=True)
    torn = pb.CheckpointInfo(id=6, job=3, step=25, round=1, bytes=1, valid=False, problem="torn")
    paused = a_job(pb, state=pb.PAUSED)
    server = serve({"Pause": paused, "Resume": a_job(pb), "Cancel": a_job(pb, state=pb.CANCELLED),
                    "Checkpoint": checkpoint, "Restore": a_job(pb), "Update": pb.UpdateReply(round=4),
                    "ListCheckpoints": pb.CheckpointList(checkpoints=[checkpoint, torn])})
    assert "PAUSED" in ctl(server.address, "pause", 3)[0]
    assert ctl_json(server.address, "resume", 3)["state"] == "RUNNING"
    assert "CANCELLED" in ctl(server.address, "cancel", 3)[0]
    assert ctl_json(server.address, "checkpoint", 3)["id"] == 7
    ctl(server.address, "restore", 3, "--checkpoint", 6)
    ctl(server.address, "restore", 3)
    assert "round 4" in ctl(server.address, "set", 3, "sync.interval=50", "optimizer.lr=a=b")[0]
    assert ctl_json(server.address, "set", 3, "sync.interval=50") == {"round": 4}
    listed = ctl_json(server.address, "checkpoints", 3)
    assert {"id": 7, "job": 3, "step": 50, "round": 2, "created": "2023-11-14T22:13:20.000Z", "bytes": 4 << 20,
            "valid": True}.items() <= listed[0].items()
    assert listed[1]["valid"] is False and listed[1]["problem"] == "torn"
    assert "4.0 MiB" in ctl(server.address, "checkpoints", 3)[0]
    assert [name for name, _ in server.calls[:3]] == ["Pause", "Resume", "Cancel"]
    assert [r.checkpoint for r in server.requests("Restore")] == [6, 0]
    assert dict(server.requests("Update")[0].settings) == {"sync.interval": "50", "optimizer.lr": "a=b"}


def test_server_and_events(pb, serve):
    info = pb.ServerInfoReply(version="0.1", models=["mnist-cnn"], listeners=["unix:/x"], policies=["average"],
                              devices=[pb.DeviceInfo(name="cpu:0", backend="onednn", busy=0.5)], note="no GPU")
    page = pb.EventPage(events=[pb.Event(id=1, unix_ms=1000, kind="submitted", who="root", text="by dpsctl")])
    server = serve({"ServerInfo": info, "Events": [page, page]})
    assert ctl_json(server.address, "server")["devices"][0]["backend"] == "onednn"
    out, _ = ctl(server.address, "server")
    assert "no GPU" in out and re.search(r"cpu:0 +onednn +0 +0 B +50%", out)
    assert [e["kind"] for e in ctl_json(server.address, "events", 3)] == ["submitted", "submitted"]
    assert "by dpsctl" in ctl(server.address, "events", 3)[0]


# ---- submit -------------------------------------------------------------------------------------


def test_submit_sends_what_was_asked(pb, serve, digits, tmp_path):
    digits(train=100, test=20)
    server = serve({"Submit": a_job(pb, id=9)})
    out, _ = ctl(server.address, "submit", "--model", "mnist-cnn", "--data", os.path.relpath(tmp_path / "set"),
                 "--trainers=4", "-k", 10, "--epochs", 3, "--batch", 16, "--lr", 0.5, "--optimizer",
                 "sgd,momentum=0.9", "--seed", 2**64 - 1, "--name", "x", "--option", "dropout=0", "--option",
                 "a.b=c=d", "--sync", "average", "--threads", 2, "--checkpoint-rounds", 5)
    assert out == "9\n"
    spec = server.requests("Submit")[0]
    assert spec == pb.JobSpec(name="x", model="mnist-cnn", data=str(tmp_path / "set"), samples=100, trainers=4,
                              policy="average", interval=10, epochs=3, batch=16, optimizer="sgd,momentum=0.9", lr=0.5,
                              seed=2**64 - 1, threads=2, checkpoint_rounds=5,
                              options={"dropout": "0", "a.b": "c=d"})
    assert ctl_json(server.address, "submit", "--model", "mlp", "--external-trainers", "--samples", 77) == {"id": 9}
    assert server.requests("Submit")[1] == pb.JobSpec(model="mlp", external_trainers=True, samples=77)
    ctl(server.address, "submit", "--model", "mlp", "--data", "synthetic", "--steps", 5)
    assert server.requests("Submit")[2].data == "synthetic" and server.requests("Submit")[2].samples > 0


def test_submit_sends_settings(pb, serve, digits, tmp_path):
    folder = digits(train=100, test=20)
    server = serve({"Submit": a_job(pb, id=9)})
    ctl(server.address, "submit", "--model", "mlp", "--data", "synthetic", "--sync", "elastic", "--set",
        "sync.state=average", "--set=x.y=a=b", "--alpha", 0.25, "--outer-lr", 1, "--outer-momentum", 0,
        "--max-staleness", 2, "--on-stale", "apply", "--weights", "samples", "--wait", "quorum:3",
        "--sync-timeout", 7, "--schedule", "cosine,steps=100,warmup=5", "--clip", "1e-1", "--guard-norm", 10,
        "--guard-strikes", 4, "--eval-every", 2, "--max-trainers", 8, "--eval-data",
        os.path.relpath(folder), "--stop-when", "accuracy>=0.98")
    spec = server.requests("Submit")[0]
    assert dict(spec.settings) == {
        "sync.state": "average", "x.y": "a=b", "sync.alpha": "0.25", "sync.outer_lr": "1",
        "sync.outer_momentum": "0", "sync.max_staleness": "2", "sync.on_stale": "apply",
        "sync.weights": "samples", "sync.wait": "quorum:3", "sync.timeout": "7",
        "optimizer.schedule": "cosine,steps=100,warmup=5", "optimizer.clip": "1e-1", "guard.norm": "10",
        "guard.strikes": "4", "eval.every": "2"}
    assert (spec.policy, spec.max_trainers, spec.eval_data, spec.stop_when) == (
        "elastic", 8, str(tmp_path / "set"), "accuracy>=0.98")
    ctl(server.address, "submit", "--model", "mlp", "--data", "synthetic", "--eval-data", "synthetic")
    assert server.requests("Submit")[1].eval_data == "synthetic" and not server.requests("Submit")[1].settings


def test_submit_whose_held_out_data_is_not_there(serve, tmp_path):
    words = ["submit", "--model", "mlp", "--data", "synthetic", "--eval-data"]
    assert "nowhere" in ctl("unix:/nowhere", *words, tmp_path / "nowhere", status=1)[1]
    (tmp_path / "train.npz").write_bytes(b"")
    assert str(tmp_path) in ctl("unix:/nowhere", *words, tmp_path, status=1)[1], "it has no test set"


def test_what_set_explains_is_what_dpsd_has():
    """dpsctl shares no code with the daemon, so its list is held to the daemon's table here."""
    table = (harness.ROOT / "daemon/job/settings.c").read_text()
    keys = re.findall(r'^    \{"([a-z_.]+)", KIND_', table, re.M)
    assert "sync.policy" in keys and len(keys) >= 20
    out, _ = ctl("unix:/nowhere", "set", "--help")
    known = (harness.ROOT / "ctl/known_settings.c").read_text()
    for key in keys:
        assert re.search(rf"(^  |, ){re.escape(key)}\b", out, re.M), f"{key} is not explained"
        assert f'{{"{key}", ' in known
    assert len(re.findall(r'^    \{"', known, re.M)) == len(keys)


@pytest.mark.parametrize("verb,method", [(["set", 3], "Update"),
                                         (["submit", "--model", "mlp", "--data", "synthetic", "--set"], "Submit")])
def test_a_misspelt_setting_comes_with_what_was_meant(serve, verb, method):
    def answer(request, context):
        (key, value), = request.settings.items()
        if key == "sync.alpha":
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{key}={value}: it takes a number from 0 to 1")
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"there is no setting '{key}'; a job has: sync.interval")
    address = serve({method: answer}).address
    assert ctl(address, *verb, "sync.intervall=5", status=1)[1] == (
        "dpsctl: there is no setting 'sync.intervall'; a job has: sync.interval; did you mean sync.interval?\n")
    error = json.loads(ctl(address, *verb, "alpha=5", status=1, flags=["--json"])[1])
    assert error["code"] == "INVALID_ARGUMENT" and error["error"].endswith("did you mean sync.alpha?")
    assert "did you mean" not in ctl(address, *verb, "moon.phase=full", status=1)[1]
    assert "did you mean" not in ctl(address, *verb, "sync.alpha=5", status=1)[1]


@pytest.mark.parametrize("words,sentence", [
    (["--data", "synthetic"], "--model"), (["--model", "mlp"], "--data"),
    (["--model", "mlp", "--data", "synthetic", "--epochs", "1", "--steps", "1"], "exclude each other"),
    (["--model", "mlp", "--data", "synthetic", "--modle", "x"], "did you mean --model"),
    (["--model", "mlp", "--data", "synthetic", "--trainers", "x"], "--trainers wants"),
    (["--model", "mlp", "--data", "synthetic", "--option", "dropout"], "KEY=VALUE"),
    (["--model", "mlp", "--data", "synthetic", "--set", "alpha"], "KEY=VALUE"),
    (["--model", "mlp", "--data", "synthetic", "--set", "sync.alpha=1", "--alpha", "1"], "given twice"),
    (["--model", "mlp", "--data", "synthetic", "--set", "sync.interval=1", "-k", "1"], "is --interval"),
    (["--model", "mlp", "--data", "synthetic", "--eval-every", "1"], "--eval-data is missing"),
    (["--model", "mlp", "--data", "synthetic", "--stop-when", "loss<=1"], "--eval-data is missing"),
    (["--model", "mlp", "--data", "synthetic", "more"], "no arguments")])
def test_submit_with_wrong_usage_says_so_without_a_daemon(words, sentence):
    out, err = ctl("unix:/nowhere", "submit", *words, status=2)
    assert not out and err.startswith("dpsctl: ") and err.count("\n") == 1 and sentence in err


def test_submit_that_names_no_model_is_not_a_missing_job(serve):
    def answer(_, context):
        context.abort(grpc.StatusCode.NOT_FOUND, "no model is called x")
    address = serve({"Submit": answer}).address
    assert "no model" in ctl(address, "submit", "--model", "x", "--data", "synthetic", status=1)[1]


def test_onnx_is_refused_in_a_sentence():
    assert "ONNX" in ctl("unix:/nowhere", "submit", "--model", "net.onnx", "--data", "synthetic", status=1)[1]


# ---- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize("code,status", [("NOT_FOUND", 4), ("FAILED_PRECONDITION", 1), ("UNAVAILABLE", 1),
                                         ("INVALID_ARGUMENT", 1), ("RESOURCE_EXHAUSTED", 1)])
def test_statuses_and_their_sentences(pb, serve, code, status):
    def answer(_, context):
        context.abort(getattr(grpc.StatusCode, code), "no job 77: 100 % größer\nthan\x1b[31m")
    server = serve({"Get": answer})
    _, err = ctl(server.address, "status", 77, status=status)
    assert err == "dpsctl: no job 77: 100 % größer?than?[31m\n"
    _, err = ctl(server.address, "status", 77, status=status, flags=["--json"])
    error = json.loads(err)
    assert error["code"] == code and error["error"].startswith("no job 77: 100 % größer")


@pytest.mark.parametrize("address", ["unix:/nowhere/x.sock", "tcp:127.0.0.1:1", "tcp:nowhere.invalid:5"])
def test_nobody_there(address):
    _, err = ctl(address, "list", status=5)
    assert err.startswith("dpsctl: cannot reach dpsd at " + address) and err.count("\n") == 1
    assert json.loads(ctl(address, "list", status=5, flags=["--json"])[1])["code"] == "UNREACHABLE"


@pytest.mark.parametrize("address", ["/run/x", "unix:", "tcp:localhost", "tcp:::1:5", "http://x"])
def test_wrong_addresses(address):
    assert "unix:PATH nor tcp:HOST:PORT" in ctl(address, "list", status=2)[1]


@contextlib.contextmanager
def raw_server(answer):
    """Takes connections and answers them by a function (socket)."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept():
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection:
                    answer(connection)
    threading.Thread(target=accept, daemon=True).start()
    try:
        yield "tcp:127.0.0.1:%d" % listener.getsockname()[1]
    finally:
        listener.close()


def test_a_server_that_does_not_speak_http2():
    def answer(connection):
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        connection.recv(65536)
    with raw_server(answer) as address:
        assert "no HTTP/2" in ctl(address, "list", status=5)[1]


def test_a_server_that_hangs_up():
    with raw_server(lambda connection: connection.recv(100)) as address:
        assert "is lost" in ctl(address, "list", status=5)[1]


def test_a_server_without_the_service(serve):
    server = grpc.server(futures.ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    _, err = ctl(f"tcp:127.0.0.1:{port}", "list", status=1, flags=["--json"])
    assert json.loads(err)["code"] == "UNIMPLEMENTED"
    server.stop(0)


def test_a_reply_that_is_no_message(serve):
    class Handler(grpc.GenericRpcHandler):
        def service(self, details):
            return grpc.unary_unary_rpc_method_handler(lambda *_: b"\xff\xff\xff")
    server = grpc.server(futures.ThreadPoolExecutor(1), handlers=[Handler()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    assert "is not a ListReply" in ctl(f"tcp:127.0.0.1:{port}", "list", status=1)[1]
    server.stop(0)


# ---- streams ------------------------------------------------------------------------------------


def metrics_pages(pb, pages, rows):
    for page in range(pages):
        yield pb.MetricsPage(rows=[
            pb.MetricsRow(round=page * rows + i + 1, rank=1, step=25, loss=0.1, samples=800, compute_ms=1.5,
                          wait_ms=0.5, bytes_in=10, bytes_out=20, lr=0.03, contributed=True) for i in range(rows)])


def test_metrics_of_a_long_job(pb, serve):
    server = serve({"Metrics": lambda request, _: metrics_pages(pb, 60, 1000)})
    lines = ctl(server.address, "metrics", 3, "--csv")[0].splitlines()
    assert lines[0] == "round,rank,step,loss,samples,compute_ms,wait_ms,bytes_in,bytes_out,lr,contributed"
    assert len(lines) == 60_001 and lines[-1] == "60000,1,25,0.1,800,1.500,0.500,10,20,0.03,1"
    server = serve({"Metrics": lambda request, _: metrics_pages(pb, 2, 10)})
    rows = ctl_json(server.address, "metrics", 3, "--after", 5)
    assert rows[0] == {"round": 1, "rank": 1, "step": 25, "loss": 0.1, "samples": 800, "compute_ms": 1.5,
                       "wait_ms": 0.5, "bytes_in": 10, "bytes_out": 20, "lr": 0.03, "contributed": True}
    assert len(rows) == 20 and server.requests("Metrics")[0].after_round == 5
    assert len(ctl(server.address, "metrics", 3)[0].splitlines()) == 21


def chunks(pb, arrays, size=1 << 20):
    for name, array in arrays.items():
        data = array.tobytes()
        for offset in range(0, max(len(data), 1), size):
            yield pb.TensorChunk(name=name, dtype=pb.F32 if array.dtype == numpy.float32 else pb.I64,
                                 dims=array.shape, offset=offset, data=data[offset:offset + size])


def test_export_can_be_read_by_numpy(pb, serve, tmp_path):
    arrays = {"big.weight": numpy.random.default_rng(1).random((3_000_001,), dtype=numpy.float32),
              "count": numpy.array(5, dtype=numpy.int64), "small": numpy.ones((2, 3), dtype=numpy.float32)}
    server = serve({"Export": lambda request, _: chunks(pb, arrays)})
    out = tmp_path / "model.npz"
    assert "3 arrays" in ctl(server.address, "export", 3, "-o", out, "--checkpoint", 4)[0]
    assert server.requests("Export")[0] == pb.ExportRequest(job=3, checkpoint=4)
    with numpy.load(out) as loaded:
        assert set(loaded.files) == set(arrays)
        assert all(numpy.array_equal(loaded[name], array) for name, array in arrays.items())


def test_export_with_a_piece_missing_leaves_no_file(pb, serve, tmp_path):
    pieces = list(chunks(pb, {"w": numpy.zeros(1 << 19, dtype=numpy.float32)}, size=1 << 19))
    server = serve({"Export": [pieces[0], *pieces[2:]]})
    assert "missing" in ctl(server.address, "export", 3, "-o", tmp_path / "x.npz", status=1)[1]
    server = serve({"Export": pieces[:-1]})
    ctl(server.address, "export", 3, "-o", tmp_path / "x.npz", status=1)
    assert not list(tmp_path.iterdir())


def test_eval_streams_the_test_split(pb, serve, digits):
    folder = digits(train=10, test=3000)
    got = {"x": [], "y": [], "jobs": []}

    def evaluate(requests, _):
        for request in requests:
            time.sleep(0.01)  # slower than the client: its window fills
            got["jobs"].append(request.job)
            got["x"].append(harness.to_array(request.x))
            got["y"].append(harness.to_array(request.y))
        return pb.EvaluateReply(accuracy=0.9125, loss=0.25, samples=sum(len(y) for y in got["y"]))

    server = serve({"Get": a_job(pb, input_dims=[1, 28, 28]), "Evaluate": evaluate})
    assert ctl_json(server.address, "eval", 3, "--data", folder) == {"accuracy": 0.9125, "loss": 0.25, "samples": 3000}
    x, y = numpy.concatenate(got["x"]), numpy.concatenate(got["y"])
    assert x.shape == (3000, 1, 28, 28) and x.dtype == numpy.uint8 and y.dtype == numpy.int64
    assert got["jobs"] == [3] + [0] * 11
    assert y.min() >= 0 and y.max() <= 9


def test_eval_ends_when_the_server_refuses(pb, serve, digits):
    folder = digits(train=10, test=3000)

    def evaluate(requests, context):
        next(requests)
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "x is (256, 1, 28, 28), the model takes (1, 32, 32)")
    server = serve({"Get": a_job(pb), "Evaluate": evaluate})
    assert "(1, 32, 32)" in ctl(server.address, "eval", 3, "--data", folder, status=1)[1]
    server = serve({"Get": a_job(pb, input_dims=[3, 32, 32]), "Evaluate": evaluate})
    assert "3072" in ctl(server.address, "eval", 3, "--data", folder, status=1)[1]


def test_a_connection_cut_in_the_middle_of_a_stream(pb, serve):
    come = threading.Event()

    def slowly(_, context):
        yield from metrics_pages(pb, 3, 10)
        come.set()
        time.sleep(5)
    server = serve({"Metrics": slowly})
    wire = Wire(server.port)
    process = subprocess.Popen([harness.DPSCTL, "--address", wire.address, "metrics", "3", "--csv"], text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
    assert come.wait(10 * harness.SCALE)
    time.sleep(0.3)
    wire.cut()
    _, err = process.communicate(timeout=20 * harness.SCALE)
    assert process.returncode == 5 and "is lost" in err and err.count("\n") == 1
    wire.close()


def test_pings_are_answered_while_watching(pb, serve):
    def quiet(_, context):
        yield a_job(pb)
        time.sleep(3)
        yield a_job(pb, state=pb.COMPLETED)
    server = serve({"Watch": quiet}, options=[("grpc.keepalive_time_ms", 300), ("grpc.keepalive_timeout_ms", 700)])
    assert "reconnecting" not in ctl(server.address, "watch", 3)[1]


# ---- watch --------------------------------------------------------------------------------------


def progress(pb, steps, pause=0.0, end=None, **changes):
    def answer(request, _):
        for step in range(steps):
            yield a_job(pb, step=step, round=step // 5, samples=step * 64, samples_total=steps * 64, **changes)
            time.sleep(pause)
        yield a_job(pb, step=steps, samples=steps * 64, samples_total=steps * 64, state=end or pb.COMPLETED,
                    reason="" if end is None else "rank 1 has NaN", **changes)
    return answer


def test_watch_in_a_pipe_is_plain_and_short(pb, serve):
    server = serve({"Watch": progress(pb, 50, pause=0.01)})
    out, err = ctl(server.address, "watch", 3)
    lines = out.splitlines()
    assert "\x1b" not in out and "\r" not in out and 2 <= len(lines) <= 4 and not err
    assert lines[0].startswith("job 3  RUNNING    0%") and lines[-1].startswith("job 3  COMPLETED  100%")
    updates = [json.loads(line) for line in ctl(server.address, "watch", 3, flags=["--json"])[0].splitlines()]
    assert updates[-1]["state"] == "COMPLETED" and updates[-1]["step"] == 50


def test_watch_in_a_pipe_says_who_is_waited_for_and_how_good_it_is(pb, serve):
    def answer(request, _):
        yield a_job(pb)
        time.sleep(0.5 * harness.SCALE)  # statuses that come together are one
        yield a_job(pb, accuracy=0.75, accuracy_round=2)
        time.sleep(0.5 * harness.SCALE)
        job = a_job(pb, accuracy=0.75, accuracy_round=2)
        for second in range(5, 20):
            job.trainers[1].waiting_s = second
            job.trainers[1].waiting_for = f"rank 0 (no word for {second} s)"
            yield job
            time.sleep(0.5)
        yield a_job(pb, state=pb.COMPLETED)
    out, _ = ctl(serve({"Watch": answer}).address, "watch", 3)
    lines = out.splitlines()
    assert len(lines) == 4, out
    assert "accuracy" not in lines[0] and "accuracy 0.7500 (round 2)" in lines[1]
    assert re.search(r"waiting \d+ s for rank 0 \(no word for \d+ s\)$", lines[2]), out


def test_watch_of_a_job_that_fails(pb, serve):
    server = serve({"Watch": progress(pb, 2, end=pb.FAILED), "Submit": a_job(pb, id=3)})
    out, err = ctl(server.address, "watch", 3, status=1)
    assert "FAILED" in out and err == "dpsctl: job 3 is FAILED: rank 1 has NaN\n"
    out, _ = ctl(server.address, "submit", "--model", "mlp", "--data", "synthetic", "--watch", status=1)
    assert out.splitlines()[0] == "3" and "FAILED" in out


def test_watch_survives_a_daemon_that_is_started_again(pb, serve):
    second = threading.Event()

    def answer(request, context):
        yield a_job(pb, step=1)
        if not second.is_set():
            time.sleep(30)
        yield a_job(pb, state=pb.COMPLETED)
    server = serve({"Watch": answer})
    wire = Wire(server.port)
    process = subprocess.Popen([harness.DPSCTL, "--address", wire.address, "watch", "3"], text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
    assert "RUNNING" in process.stdout.readline()
    second.set()
    wire.cut()
    out, err = process.communicate(timeout=30 * harness.SCALE)
    assert process.returncode == 0 and "COMPLETED" in out
    assert err == "dpsctl: daemon away, reconnecting\n"
    wire.close()


def test_watch_survives_a_daemon_that_says_goodbye(pb, serve, tmp_path):
    """A graceful stop: GOAWAY first; another server takes the socket later."""
    def cut(request, context):
        yield a_job(pb)
        server.stopping.wait(30)
    server = serve({"Watch": cut}, unix=True)
    process = subprocess.Popen([harness.DPSCTL, "--address", server.address, "watch", "3"], text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
    assert "RUNNING" in process.stdout.readline()
    server.stop(grace=0.5)
    time.sleep(1)
    serve({"Watch": [a_job(pb, state=pb.COMPLETED)]}, unix=True)
    out, err = process.communicate(timeout=30 * harness.SCALE)
    assert process.returncode == 0, err
    assert err.count("reconnecting") == 1 and "COMPLETED" in out


def test_watch_of_a_job_that_is_gone(pb, serve):
    def answer(request, context):
        context.abort(grpc.StatusCode.NOT_FOUND, "no job 77")
        yield
    assert "77" in ctl(serve({"Watch": answer}).address, "watch", 77, status=4)[1]


class Terminal:
    """dpsctl on a pseudo-terminal of some size."""

    def __init__(self, address, *words, columns=100, rows=30, **env):
        self.master, slave = pty.openpty()
        self.resize(columns, rows)
        self.process = subprocess.Popen([harness.DPSCTL, "--address", address, *map(str, words)], stdin=slave,
                                        stdout=slave, stderr=slave, env=environment(**env), start_new_session=True)
        os.close(slave)
        self.text = ""

    def resize(self, columns, rows):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, until=None, seconds=20):
        end = time.monotonic() + seconds * harness.SCALE
        while time.monotonic() < end and not (until and until in self.text):
            if not select.select([self.master], [], [], 0.1)[0]:
                continue
            try:
                data = os.read(self.master, 65536)
            except OSError:
                break
            self.text += data.decode(errors="replace")
        return self.text

    def wait(self):
        self.read()
        status = self.process.wait(20 * harness.SCALE)
        os.close(self.master)
        return status


def plain(text):
    return re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", text)


@pytest.mark.parametrize("columns,rows", [(100, 30), (40, 10), (20, 4)])
def test_watch_on_a_terminal_keeps_within_it(pb, serve, columns, rows):
    terminal = Terminal(serve({"Watch": progress(pb, 4, pause=0.05)}).address, "watch", 3, columns=columns, rows=rows)
    assert terminal.wait() == 0, terminal.text
    text = terminal.text
    assert text.startswith("\x1b[?25l") and text.rstrip().endswith("\x1b[?25h")
    frames = re.split(r"\x1b\[\d+A\x1b\[J", text)
    assert len(frames) >= 3
    for frame in frames:
        lines = plain(frame).strip("\r\n").split("\r\n")
        assert len(lines) < rows and all(len(line) < columns for line in lines), frame
    assert "COMPLETED" in plain(frames[-1]) and "100%" in plain(frames[-1])
    if columns == 100:
        assert "loss 0.1000" in plain(frames[1]) and "samples/s" in plain(frames[1])
        assert re.search(r"1 +waiting +30 +0\.5000 +cpu:0 +rank 0, 1\.5 s", plain(frames[1]))
        assert "█" in text and "\x1b[32m" in text


def test_no_colour_when_asked(pb, serve):
    terminal = Terminal(serve({"Watch": progress(pb, 1)}).address, "watch", 3, NO_COLOR="1")
    assert terminal.wait() == 0
    assert not re.search(r"\x1b\[\d*m", terminal.text)


def test_ctrl_c_gives_the_cursor_back(pb, serve):
    terminal = Terminal(serve({"Watch": progress(pb, 1000, pause=0.05)}).address, "watch", 3)
    terminal.read(until="samples/s")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.wait() == -signal.SIGINT
    assert "\x1b[?25h" in terminal.text and "job 3 goes on" in terminal.text


def test_a_terminal_that_changes_its_size(pb, serve):
    terminal = Terminal(serve({"Watch": progress(pb, 30, pause=0.1)}).address, "watch", 3, columns=100)
    terminal.read(until="samples/s")
    before = len(terminal.text)
    terminal.resize(30, 20)
    terminal.process.send_signal(signal.SIGWINCH)
    assert terminal.wait() == 0
    frames = re.split(r"\x1b\[\d+A\x1b\[J", terminal.text[before:])
    assert all(len(line) < 30 for line in plain(frames[-1]).strip("\r\n").split("\r\n"))


# ---- the client's own interface -----------------------------------------------------------------


def probe(address, what):
    done = subprocess.run([PROBE, address, what], capture_output=True, text=True, check=False, env=environment(),
                          timeout=60 * harness.SCALE)
    assert done.returncode == 0, f"status {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture
def probes():
    if not PROBE.exists():
        pytest.skip(f"{PROBE} is not built")


def test_a_deadline_ends_a_call_here_and_reaches_the_server(pb, serve, probes):
    left = []

    def slow(_, context):
        left.append(context.time_remaining())
        time.sleep(2)
        return pb.ListReply()
    server = serve({"List": slow})
    assert "DEADLINE_EXCEEDED" in probe(server.address, "deadline")
    assert 0.05 < left[0] <= 0.31
    with raw_server(lambda connection: time.sleep(1)) as address:  # never says a word
        assert "DEADLINE_EXCEEDED" in probe(address, "deadline")


def test_sending_is_bounded_and_told_when_there_is_room(pb, serve, probes):
    """The server reads nothing until the client's queue is full."""
    go = threading.Event()
    sizes = []

    def evaluate(requests, _):
        go.wait(5)
        for request in requests:
            sizes.append(len(request.x.data))
        return pb.EvaluateReply(samples=len(sizes))
    server = serve({"Evaluate": evaluate}, options=[("grpc.max_receive_message_length", -1)])
    threading.Timer(1, go.set).start()
    out = probe(server.address, "flood")
    assert "full after" in out and "writable" in out and "200 answered" in out, out
    assert sizes == [100_000] * 200


def test_calls_go_side_by_side_and_can_be_cancelled(pb, serve, probes):
    ended = threading.Event()

    def watch(request, context):
        context.add_callback(ended.set)
        while context.is_active():
            yield a_job(pb, id=request.job)
            time.sleep(0.02)
    server = serve({"Watch": watch, "List": pb.ListReply(jobs=[a_job(pb)])})
    assert "10 statuses, 5 lists" in probe(server.address, "both")
    assert ended.wait(5 * harness.SCALE), "the server was not told that the watch was cancelled"


def test_descriptors_and_wakes_end_the_wait(pb, serve, probes):
    assert "woken by descriptor, by thread, by time" in probe(serve({}).address, "wait")
