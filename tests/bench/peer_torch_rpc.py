#!/usr/bin/python3
"""The same training with PyTorch's RPC, to be measured beside dps.

    peer_torch_rpc.py [--trainers N] [--steps S] [--interval K] [--batch B]

One server process holds a replica of the model for each trainer; N trainer processes call forward by
RPC, compute the loss, run dist_autograd's backward through the server and step a DistributedOptimizer
there; every K steps the replicas are averaged on the server. One thread of computation a process.
Prints one line of JSON; status 3 where PyTorch, or its RPC, is not installed.
"""
import argparse
import json
import os
import socket
import subprocess
import sys
import threading
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
os.environ.setdefault("TP_SOCKET_IFNAME", "lo")

try:
    import torch
    import torch.distributed.autograd as dist_autograd
    import torch.distributed.rpc as rpc
    import torch.nn.functional as F
    from torch import nn, optim
    from torch.distributed.optim import DistributedOptimizer
    HAVE_RPC = rpc.is_available()
except ImportError:
    HAVE_RPC = False

if HAVE_RPC:
    class Net(nn.Module):
        """The net that dps calls mnist-cnn (no ReLU after conv2 there, either)."""

        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(1, 32, 3)
            self.conv2 = nn.Conv2d(32, 64, 3)
            self.drop1 = nn.Dropout2d(0.25)
            self.drop2 = nn.Dropout2d(0.5)
            self.fc1 = nn.Linear(9216, 128)
            self.fc2 = nn.Linear(128, 10)

        def forward(self, x):
            x = F.relu(self.conv1(x))
            x = F.max_pool2d(self.conv2(x), 2)
            x = torch.flatten(self.drop1(x), 1)
            x = F.relu(self.fc1(x))
            x = self.drop2(x[:, :, None, None])[:, :, 0, 0]
            return F.log_softmax(self.fc2(x), dim=1)

    class Server:
        """Replicas, one a trainer, and the meeting in which they are averaged."""

        def __init__(self, trainers):
            torch.manual_seed(1)
            first = Net()
            self.replicas = [first] + [Net() for _ in range(trainers - 1)]
            for replica in self.replicas[1:]:
                replica.load_state_dict(first.state_dict())
            self.barrier = threading.Barrier(trainers, action=self.average)

        def forward(self, rank, x):
            return self.replicas[rank](x)

        def parameters(self, rank):
            return [rpc.RRef(p) for p in self.replicas[rank].parameters()]

        def average(self):
            with torch.no_grad():
                for same in zip(*(replica.parameters() for replica in self.replicas)):
                    mean = torch.stack([p.data for p in same]).mean(0)
                    for parameter in same:
                        parameter.data.copy_(mean)

        def meet(self):
            self.barrier.wait(300)


def options(threads):
    return rpc.TensorPipeRpcBackendOptions(num_worker_threads=threads, rpc_timeout=300)


def serve(args):
    rpc.init_rpc("server", rank=0, world_size=args.trainers + 1, rpc_backend_options=options(4 * args.trainers + 4))
    rpc.shutdown()


def make_server(trainers):
    """Runs on the server: the first trainer's call makes the one Server."""
    global the_server
    the_server = Server(trainers)
    return True


def call_forward(rank, x):
    return the_server.forward(rank, x)


def call_parameters(rank):
    return the_server.parameters(rank)


def call_meet():
    the_server.meet()


def step(rank, optimizer, x, y):
    with dist_autograd.context() as context:
        output = rpc.rpc_sync("server", call_forward, args=(rank, x))
        loss = F.nll_loss(output, y)
        dist_autograd.backward(context, [loss])
        optimizer.step(context)
    return loss.item()


def train(args, rank):
    torch.set_num_threads(1)
    rpc.init_rpc(f"trainer{rank}", rank=rank + 1, world_size=args.trainers + 1, rpc_backend_options=options(4))
    if rank == 0:
        rpc.rpc_sync("server", make_server, args=(args.trainers,))
    rpc.api._barrier({f"trainer{r}" for r in range(args.trainers)})
    optimizer = DistributedOptimizer(optim.SGD, rpc.rpc_sync("server", call_parameters, args=(rank,)), lr=0.03)
    torch.manual_seed(rank)
    x, y = torch.randn(args.batch, 1, 28, 28), torch.randint(0, 10, (args.batch,))
    for _ in range(args.warmup):
        step(rank, optimizer, x, y)
    rpc.rpc_sync("server", call_meet)
    start = time.monotonic()
    for i in range(1, args.steps + 1):
        loss = step(rank, optimizer, x, y)
        if i % args.interval == 0:
            rpc.rpc_sync("server", call_meet)
    print(json.dumps({"rank": rank, "seconds": time.monotonic() - start, "loss": loss}), flush=True)
    rpc.shutdown()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def measure(args):
    env = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    base = [sys.executable, __file__, "--trainers", str(args.trainers), "--steps", str(args.steps), "--interval",
            str(args.interval), "--batch", str(args.batch), "--warmup", str(args.warmup), "--role"]
    processes = [subprocess.Popen(base + ["server"], env=env, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)]
    processes += [subprocess.Popen(base + [str(rank)], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True) for rank in range(args.trainers)]
    try:
        outputs = [p.communicate(timeout=args.timeout) for p in processes[1:]]
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill() if process is not processes[0] else process.terminate()
        for process in processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    results = []
    for out, err in outputs:
        lines = [line for line in out.splitlines() if line.startswith("{")]
        if not lines:
            sys.exit(f"a trainer failed:\n{err[-2000:]}")
        results.append(json.loads(lines[-1]))
    seconds = max(r["seconds"] for r in results)
    print(json.dumps({"steps_per_s": args.trainers * args.steps / seconds, "trainers": args.trainers,
                      "steps": args.steps, "seconds": seconds, "torch": torch.__version__}))


def main():
    parser = argparse.ArgumentParser(description="dps's pattern of training with PyTorch RPC.")
    parser.add_argument("--trainers", type=int, default=4)
    parser.add_argument("--steps", type=int, default=75, help="of each trainer, measured")
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--interval", type=int, default=25)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--timeout", type=float, default=600)
    parser.add_argument("--role", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not HAVE_RPC:
        print("PyTorch with RPC is not installed (Debian: python3-torch)", file=sys.stderr)
        return 3
    torch.set_num_threads(1)
    if args.role is None:
        measure(args)
    elif args.role == "server":
        serve(args)
    else:
        train(args, int(args.role))
    return 0


if __name__ == "__main__":
    sys.exit(main())
