"""What the fixtures are made of; tests/bench and tests/quickstart use parts of it, too.

A Daemon is one dpsd with a state and a runtime directory of its own. Every process that it starts
inherits DPS_TEST_ID, by which close() finds what is left, whoever its parent is by then.
"""
import contextlib
import functools
import gzip
import importlib
import io
import json
import math
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import types
import uuid

import grpc
import numpy

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("DPS_BUILD", ROOT / "build/release")).resolve()
DPSD = BUILD / "dpsd"
DPSCTL = BUILD / "dpsctl"


def sanitizer():
    """address, thread or "", as CMake's cache says."""
    with contextlib.suppress(OSError):
        for line in (BUILD / "CMakeCache.txt").read_text().splitlines():
            if line.startswith("DPS_SANITIZE:"):
                return line.split("=", 1)[1].split(",")[0]
    return ""


SANITIZER = sanitizer()
# How much longer everything may take than on an idle machine in a release build.
SCALE = float(os.environ.get("DPS_TIME_SCALE", 0)) or {"": 1.0, "address": 4.0, "thread": 8.0}.get(
    SANITIZER, 4.0)
# Above the tests' real needs by far: a limit that a busy machine meets is a flaky test.
READY_S = 30 * SCALE
CALL_S = 60 * SCALE
STOP_S = 45 * SCALE


def sanitizer_environment():
    """A finding ends the process with status 66, which Daemon.close reports."""
    suppressions = ROOT / "tests/integration/tsan.supp"
    return {
        "ASAN_OPTIONS": "exitcode=66:abort_on_error=0:detect_leaks=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        "TSAN_OPTIONS": f"exitcode=66:halt_on_error=0:second_deadlock_stack=1:suppressions={suppressions}",
    }


def wait_until(condition, seconds, what, every=0.05):
    """Waits for condition() to be true (× SCALE) and returns its value."""
    end = time.monotonic() + seconds * SCALE
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"waited {seconds * SCALE:g} s for {what}"
        time.sleep(every)


@functools.lru_cache(maxsize=None)
def stubs():
    """Modules made by grpc_tools.protoc from proto/dps.proto: .pb (messages) and .grpc (stubs)."""
    from grpc_tools import protoc
    import grpc_tools
    out = tempfile.mkdtemp(prefix="dps-stubs-")
    try:
        status = protoc.main(["protoc", f"-I{ROOT / 'proto'}",
                              f"-I{pathlib.Path(grpc_tools.__file__).parent / '_proto'}",
                              f"--python_out={out}", f"--grpc_python_out={out}",
                              str(ROOT / "proto/dps.proto")])
        assert status == 0, "protoc failed on proto/dps.proto"
        sys.path.insert(0, out)
        return types.SimpleNamespace(pb=importlib.import_module("dps_pb2"),
                                     grpc=importlib.import_module("dps_pb2_grpc"))
    finally:
        if out in sys.path:
            sys.path.remove(out)
        shutil.rmtree(out, ignore_errors=True)


# ---- processes ----------------------------------------------------------------------------------


def processes_with(test_id):
    """[(pid, command)] of the live processes that carry DPS_TEST_ID=test_id."""
    mark = b"DPS_TEST_ID=" + test_id.encode()
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            environ = pathlib.Path("/proc", entry, "environ").read_bytes().split(b"\0")
            if mark in environ and not is_zombie(entry):
                command = pathlib.Path("/proc", entry, "cmdline").read_bytes()
                found.append((int(entry), command.replace(b"\0", b" ").decode(errors="replace").strip()))
    return found


def is_zombie(pid):
    stat = pathlib.Path("/proc", str(pid), "stat").read_text()
    return stat.rsplit(")", 1)[1].split()[0] in "ZX"


def rss_bytes(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


class CtlError(AssertionError):
    """dpsctl ended with a status other than 0."""

    def __init__(self, args, status, stdout, stderr):
        super().__init__(f"dpsctl {' '.join(args)}: status {status}\n{stdout}{stderr}")
        self.status, self.stdout, self.stderr = status, stdout, stderr


class Daemon:
    def __init__(self, name="dpsd", options=(), env=None, wrapper=(), state=None, config=None):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="dps-"))
        self.state = pathlib.Path(state) if state else self.home / "state"
        self.runtime = self.home / "run"
        self.socket = self.runtime / "dpsd.sock"
        self.log = self.home / "dpsd.log"
        self.name, self.options, self.wrapper = name, list(options), list(wrapper)
        self.test_id = uuid.uuid4().hex
        self.env = {**os.environ, **sanitizer_environment(), **(env or {}), "DPS_TEST_ID": self.test_id}
        self.env.pop("NOTIFY_SOCKET", None)
        self.env.update(env or {})
        self.process, self.problems, self.channel_ = None, [], None
        self.state.mkdir(parents=True, exist_ok=True)
        self.runtime.mkdir()
        self.config = None
        if config is not None:
            self.config = self.home / "dpsd.conf"
            self.config.write_text(config)

    # -- life --

    def command(self):
        config = ["--config", str(self.config)] if self.config else []
        return [*self.wrapper, str(DPSD), *config, "--state-dir", str(self.state),
                "--runtime-dir", str(self.runtime), "--listen", f"unix:{self.socket}",
                "--listen", "tcp:127.0.0.1:0", "--device", "cpu", *self.options]

    def start(self, wait=True):
        assert self.process is None or self.process.poll() is not None, "already running"
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, env=self.env, cwd=self.home,
                                            start_new_session=True)
        if wait:
            self.wait_ready()
        return self

    def wait_ready(self):
        def answers():
            assert self.process.poll() is None, (
                f"dpsd ended with {self.process.returncode} at start\n{self.log_tail()}")
            try:
                return self.info(timeout=2 * SCALE)
            except grpc.RpcError:
                self.close_channel()
                return None
        wait_until(answers, READY_S / SCALE, f"dpsd to answer\n{self.log_tail()}")

    def kill(self, sig=signal.SIGKILL):
        """kill -9 of the daemon alone; its trainers are left to themselves."""
        self.close_channel()
        self.process.send_signal(sig)
        self.process.wait(STOP_S)
        return self.process.returncode

    def terminate(self):
        """SIGTERM; returns the exit status."""
        return self.kill(signal.SIGTERM)

    def close(self):
        """Stops it the civil way and returns what was wrong, as sentences."""
        problems = list(self.problems)
        self.close_channel()
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                problems.append(f"dpsd was still there {STOP_S:g} s after SIGTERM")
                self.process.kill()
                self.process.wait()
        if self.process is not None and self.process.returncode not in (0, -signal.SIGKILL):
            problems.append(f"dpsd ended with status {self.process.returncode}")
        problems += self.sweep()
        for text in ("ERROR: AddressSanitizer", "ERROR: LeakSanitizer", "runtime error:",
                     "WARNING: ThreadSanitizer"):
            if text in self.log_text():
                problems.append(f"{text} in the log")
        if problems:
            problems.append(f"--- log of {self.name} ---\n{self.log_tail(120)}")
        self.keep_log()
        shutil.rmtree(self.home, ignore_errors=True)
        return problems

    def sweep(self):
        """Ends what the daemon left behind; a sentence for each."""
        end = time.monotonic() + 10 * SCALE
        while (left := processes_with(self.test_id)) and time.monotonic() < end:
            time.sleep(0.1)
        for pid, _ in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return [f"left behind: {pid} {command}" for pid, command in left]

    def keep_log(self):
        folder = os.environ.get("DPS_TEST_LOGS")
        if folder and self.log.exists():
            pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
            name = "".join(c if c.isalnum() or c in "-_." else "_" for c in self.name)
            shutil.copyfile(self.log, pathlib.Path(folder) / f"{name}-{self.test_id[:6]}.log")

    def log_text(self):
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def log_tail(self, lines=40):
        return "\n".join(self.log_text().splitlines()[-lines:])

    def rss(self):
        return rss_bytes(self.process.pid)

    def trainers(self, job=None):
        """[(pid, command)] of the trainers that this daemon started."""
        return [(pid, command) for pid, command in processes_with(self.test_id)
                if "trainer" in command and (job is None or f" --job {job} " in command + " ")]

    # -- talking to it --

    @property
    def channel(self):
        if self.channel_ is None:
            self.channel_ = self.new_channel()
        return self.channel_

    def new_channel(self, tcp=False):
        """A channel with a connection of its own (sessions are tied to connections)."""
        target = f"unix:{self.socket}" if not tcp else self.tcp_target()
        return grpc.insecure_channel(target, options=[
            ("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0),
            ("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 500)])

    def close_channel(self):
        if self.channel_ is not None:
            self.channel_.close()
            self.channel_ = None

    def tcp_target(self):
        listener = next(x for x in self.info().listeners if x.startswith("tcp:"))
        return listener[len("tcp:"):]

    @property
    def control(self):
        return stubs().grpc.ControlStub(self.channel)

    def info(self, timeout=CALL_S):
        return self.control.ServerInfo(stubs().pb.Empty(), timeout=timeout, wait_for_ready=True)

    def submit(self, **spec):
        """Control.Submit with an external trainer and a fast model unless told otherwise."""
        spec = {"model": "mnist-cnn", "external_trainers": True, "batch": 8, "seed": 1, **spec}
        return self.control.Submit(stubs().pb.JobSpec(**spec), timeout=CALL_S).id

    def get(self, job):
        return self.control.Get(stubs().pb.JobRequest(job=job), timeout=CALL_S)

    def state_of(self, job):
        return stubs().pb.JobState.Name(self.get(job).state)

    def events(self, job):
        return [event for page in self.control.Events(stubs().pb.JobRequest(job=job), timeout=CALL_S)
                for event in page.events]

    def export(self, job, checkpoint=0):
        """name → array of the averaged parameters, by the Export call."""
        request = stubs().pb.ExportRequest(job=job, checkpoint=checkpoint)
        return assemble(self.control.Export(request, timeout=CALL_S))

    def ctl(self, *args, parse=True, check=True, timeout=None, input_text=None, env=None):
        """Runs dpsctl. Returns what it printed: parsed JSON with parse (the default), text without.
        A failure raises CtlError, which holds status, stdout and stderr."""
        words = [str(a) for a in args]
        command = [str(DPSCTL), "--address", f"unix:{self.socket}", *(["--json"] if parse else []), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env={**self.env, **(env or {})},
                              timeout=timeout or CALL_S, input=input_text,
                              stdin=subprocess.DEVNULL if input_text is None else None)
        if check and done.returncode != 0:
            raise CtlError(words, done.returncode, done.stdout, done.stderr)
        if not check:
            return done
        return parse_json(done.stdout) if parse else done.stdout

    def fails(self, status, *args, **kwargs):
        """Runs dpsctl, which must end with that status; returns the error's sentence."""
        done = self.ctl(*args, parse=False, check=False, **kwargs)
        assert done.returncode == status, f"status {done.returncode}, not {status}: {done.stderr}"
        lines = done.stderr.strip().splitlines()
        assert len(lines) == 1 or status == 2, f"an error is one line: {done.stderr!r}"
        assert lines and lines[0].startswith("dpsctl: "), done.stderr
        return done.stderr.strip()

    def wait_state(self, job, *states, seconds=120):
        """Waits until the job is in one of the states; returns its status (dpsctl status)."""
        bad = {"FAILED", "CANCELLED"} - set(states)

        def reached():
            status = self.ctl("status", job)
            assert status["state"] not in bad, f"{status['state']}: {status['reason']}\n{self.log_tail()}"
            return status if status["state"] in states else None
        return wait_until(reached, seconds, f"job {job} to be {' or '.join(states)}\n{self.log_tail()}",
                          every=0.1)

    def wait_progress(self, job, seconds=60, **least):
        """Waits until status values such as round or step are at least what is given; returns the status."""
        def reached():
            status = self.ctl("status", job)
            if all(status[name] >= value for name, value in least.items()):
                return status
            assert status["state"] not in ("FAILED", "CANCELLED", "COMPLETED"), (
                f"{status['state']} before {least}: {status['reason']}\n{self.log_tail()}")
            return None
        return wait_until(reached, seconds, f"job {job} to reach {least}\n{self.log_tail()}")

    def wait_done(self, job, seconds=180):
        return self.wait_state(job, "COMPLETED", seconds=seconds)


def parse_json(text):
    """One JSON value, or a list of them where each line is one (watch)."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return [json.loads(line) for line in text.splitlines() if line.strip()]


# ---- tensors ------------------------------------------------------------------------------------

DTYPES = {"F32": "<f4", "F16": "<f2", "U8": "|u1", "I32": "<i4", "I64": "<i8"}


def to_tensor(array):
    """numpy → dps.v1.Tensor."""
    pb = stubs().pb
    name = {"float32": "F32", "float16": "F16", "uint8": "U8", "int32": "I32", "int64": "I64"}[array.dtype.name]
    return pb.Tensor(dtype=pb.DType.Value(name), dims=array.shape, data=numpy.ascontiguousarray(array).tobytes())


def to_array(tensor):
    pb = stubs().pb
    dtype = DTYPES[pb.DType.Name(tensor.dtype)]
    return numpy.frombuffer(tensor.data, dtype).reshape(tuple(tensor.dims))


def assemble(chunks):
    """A stream of TensorChunk → {name: array}, checking that each is whole and in order."""
    pb = stubs().pb
    data, shapes, dtypes = {}, {}, {}
    for chunk in chunks:
        assert len(chunk.data) <= 1 << 20, "a chunk of more than 1 MiB"
        so_far = data.setdefault(chunk.name, bytearray())
        assert chunk.offset == len(so_far), f"{chunk.name}: offset {chunk.offset} after {len(so_far)} bytes"
        so_far += chunk.data
        if chunk.offset == 0:
            shapes[chunk.name], dtypes[chunk.name] = tuple(chunk.dims), DTYPES[pb.DType.Name(chunk.dtype)]
    return {name: numpy.frombuffer(bytes(raw), dtypes[name]).reshape(shapes[name])
            for name, raw in data.items()}


# ---- data ---------------------------------------------------------------------------------------


def write_idx(path, array):
    """uint8 array → IDX file, gzipped if the name says so."""
    header = struct.pack(">BBBB", 0, 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    opener = gzip.open if str(path).endswith(".gz") else open
    with opener(path, "wb") as file:
        file.write(header + array.tobytes())


def patterns(count, seed):
    """Images that a small net can learn: a blob whose place tells the class, and noise."""
    rng = numpy.random.default_rng(seed)
    labels = rng.integers(0, 10, count).astype(numpy.uint8)
    images = rng.integers(0, 60, (count, 28, 28)).astype(numpy.uint8)
    for i, label in enumerate(labels):
        row, column = 3 + 12 * (label // 5), 1 + 5 * (label % 5)
        images[i, row:row + 9, column:column + 5] = 190 + images[i, row:row + 9, column:column + 5] % 60
    return images, labels


def digits(folder, train, test, compress=True):
    """Writes the four usual files into folder and returns it."""
    end = ".gz" if compress else ""
    for stem, count, seed in (("train", train, 1), ("t10k", test, 2)):
        images, labels = patterns(count, seed)
        write_idx(folder / f"{stem}-images-idx3-ubyte{end}", images)
        write_idx(folder / f"{stem}-labels-idx1-ubyte{end}", labels)
    return folder


def submit_victim(daemon, data):
    """The job of the tests that kill daemons and trainers over and over; its number. DPS_KILL_EPOCHS=E
    makes it the main job, E epochs of DPS_KILL_DATA (or `data`)."""
    epochs = os.environ.get("DPS_KILL_EPOCHS")
    length = ("--interval", 25, "--epochs", epochs) if epochs else ("--interval", 5, "--batch", 8, "--epochs", 4)
    return daemon.ctl("submit", "--model", "mnist-cnn", "--data", os.environ.get("DPS_KILL_DATA", data),
                      "--trainers", 4, "--seed", 1, *length)["id"]


def read_npz(path):
    with numpy.load(io.BytesIO(pathlib.Path(path).read_bytes()), allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


# ---- reading what a job left --------------------------------------------------------------------


def check_metrics(rows, ranks, interval=None):
    """Every round from 1 on once per rank, no gap, no double row, steps only growing."""
    assert rows, "no metrics"
    seen = {}
    for row in rows:
        key = (row["round"], row["rank"])
        assert key not in seen, f"two rows for round {key[0]} rank {key[1]}"
        seen[key] = row
    last = max(row["round"] for row in rows)
    for rank in range(ranks):
        previous = 0
        for round_ in range(1, last + 1):
            row = seen.get((round_, rank))
            if row is None:  # a rank without a batch in the last round sits it out
                assert round_ == last, f"no row for round {round_} rank {rank}"
                continue
            assert row["step"] >= previous, f"rank {rank} goes back to step {row['step']} in round {round_}"
            if interval and round_ < last:
                assert row["step"] == round_ * interval
            previous = row["step"]
    return last


def same_rows(rows, expected):
    """Whether metrics agree but for what depends on the clock. A mean loss that was carried through a
    checkpoint may differ in its last digit; everything else is equal."""
    keys = ("round", "rank", "step", "samples", "lr", "contributed")
    return len(rows) == len(expected) and all(
        all(a[key] == b[key] for key in keys) and math.isclose(a["loss"], b["loss"], rel_tol=1e-12)
        for a, b in zip(rows, expected))
