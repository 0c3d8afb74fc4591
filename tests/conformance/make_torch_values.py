#!/usr/bin/python3
"""Writes data/torch.bin: what PyTorch computes, for conformance_torch to compare with.

Run by hand with Debian's python3-torch when cases are added; the test itself needs no PyTorch.
Inputs and weights are not stored: both sides draw them from the same counter-based generator, which
is written a second time here. PyTorch computes in float64, so the values are good to the float32
that they are stored in.

The file is a sequence of records: name (64 bytes, zero-padded), number of values (uint64), values
(float32), little-endian.
"""

import math
import os
import struct
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

RNG_TEST, RNG_DROPOUT = 0x54455354, 2
records = []


def record(name, values):
    values = np.asarray(values, dtype=np.float32).ravel()
    assert len(name) < 64, name
    records.append(struct.pack("<64sQ", name.encode(), len(values)) + values.astype("<f4").tobytes())


# ---- the generator: base/rng.c ------------------------------------------------------------------


def philox(counter, key_0, key_1):
    c = [np.asarray(x, dtype=np.uint64) for x in counter]
    for _ in range(10):
        p0, p1 = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
        c = [(p1 >> shift) ^ c[1] ^ np.uint64(key_0), p1 & low,
             (p0 >> shift) ^ c[3] ^ np.uint64(key_1), p0 & low]
        key_0, key_1 = (key_0 + 0x9E3779B9) % 2**32, (key_1 + 0xBB67AE85) % 2**32
    return c


def words(n, seed, stream, purpose=RNG_TEST, b=0, c=0):
    folded = [int(x) for x in philox([purpose, stream, c, 0x64707321], seed % 2**32, seed >> 32)]
    index = np.arange((n + 3) // 4, dtype=np.uint64)
    same = np.zeros_like(index)
    block = philox([index, same + np.uint64(b % 2**32), same + np.uint64(b >> 32),
                    same + np.uint64(folded[2])], folded[0], folded[1])
    return np.stack(block, axis=1).ravel()[:n]


def unit(w):
    return (w >> np.uint64(8)).astype(np.float32) * np.float32(2**-24)


def uniform(shape, seed, stream):
    n = int(np.prod(shape))
    return (2 * unit(words(n, seed, stream)) - np.float32(1)).reshape(shape)


def grid(shape, seed, stream):
    n = int(np.prod(shape))
    return (((words(n, seed, stream) % np.uint64(65)).astype(np.float32) - 32) / 32).reshape(shape)


def stream_of(name):
    """FNV-1a."""
    h = 0x811C9DC5
    for byte in name.encode():
        h = (h ^ byte) * 0x01000193 % 2**32
    return h


def double(array):
    return torch.tensor(np.asarray(array, dtype=np.float64))


# ---- operators: names and shapes are those of cases.c -------------------------------------------

SEED = 42


def conv(channels, kernel, stride, padding, dilation, groups, bias):
    def make(c):
        return nn.Conv2d(c, channels, kernel, stride, padding, dilation, groups, bias)
    return make


def module(make, *args, **kwargs):
    return lambda c: make(*args, **kwargs)


def relu_after(make):
    return lambda c: nn.Sequential(make(c), nn.ReLU())


OPERATORS = [
    ("conv 3x3", (2, 3, 8, 8), conv(5, 3, 1, 0, 1, 1, True)),
    ("conv 3x3 padded no bias", (3, 4, 7, 6), conv(6, 3, 1, 1, 1, 1, False)),
    ("conv 1x1 batch 1", (1, 5, 4, 3), conv(7, 1, 1, 0, 1, 1, True)),
    ("conv uneven kernel and stride", (2, 3, 9, 11), conv(4, (2, 5), (3, 2), (1, 2), 1, 1, True)),
    ("conv dilated", (2, 2, 11, 9), conv(3, (3, 2), 1, (2, 1), (2, 3), 1, True)),
    ("conv dilated strided", (2, 2, 12, 13), conv(3, 3, (2, 3), 2, (3, 2), 1, True)),
    ("conv groups", (2, 6, 6, 5), conv(9, 3, 1, 1, 1, 3, True)),
    ("conv depthwise", (2, 6, 6, 6), conv(6, 3, (2, 1), 1, 1, 6, True)),
    ("conv relu", (2, 3, 6, 6), relu_after(conv(8, 3, 1, 1, 1, 1, True))),
    ("linear", (4, 9), lambda c: nn.Linear(c, 7)),
    ("linear no bias", (3, 16), lambda c: nn.Linear(c, 32, bias=False)),
    ("linear relu", (5, 33), relu_after(lambda c: nn.Linear(c, 17))),
    ("maxpool 2", (2, 3, 6, 6), module(nn.MaxPool2d, 2)),
    ("maxpool overlapping padded", (2, 5, 7, 8), module(nn.MaxPool2d, 3, (2, 1), 1)),
    ("maxpool uneven", (1, 16, 9, 7), module(nn.MaxPool2d, (3, 2), (2, 3), (1, 0))),
    ("avgpool 2", (2, 3, 6, 6), module(nn.AvgPool2d, 2)),
    ("avgpool padding counted", (2, 5, 7, 8), module(nn.AvgPool2d, 3, (2, 1), 1)),
    ("avgpool padding not counted", (2, 5, 7, 8),
     module(nn.AvgPool2d, 3, (2, 1), 1, count_include_pad=False)),
    ("relu", (2, 5, 4, 3), module(nn.ReLU)),
    ("batchnorm", (4, 3, 5, 5), lambda c: nn.BatchNorm2d(c)),
    ("batchnorm batch 1", (1, 17, 3, 2), lambda c: nn.BatchNorm2d(c)),
    ("batchnorm other settings", (2, 6, 3, 3), lambda c: nn.BatchNorm2d(c, 1e-2, 0.7)),
    ("flatten", (2, 5, 3, 4), module(nn.Flatten)),
    ("logsoftmax", (4, 10), module(nn.LogSoftmax, dim=1)),
    ("logsoftmax batch 1", (1, 37), module(nn.LogSoftmax, dim=1)),
]


class Add(nn.Module):
    """branch(x) + x"""

    def __init__(self, channels):
        super().__init__()
        self.branch = nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        return self.branch(x) + x


class Mask(nn.Module):
    """Dropout with the mask that our generator draws for node 0, seed 42, rank 3, step 17."""

    def __init__(self, shape, p, by_channel):
        super().__init__()
        n = int(np.prod(shape[:2] if by_channel else shape))
        keep = unit(words(n, SEED, 3, RNG_DROPOUT, 17, 0)) >= np.float32(p)
        keep = keep.reshape(list(shape[:2]) + [1] * (len(shape) - 2) if by_channel else shape)
        self.mask = double(keep) / (1 - p if p < 1 else 1)

    def forward(self, x):
        return x * self.mask


OPERATORS += [
    ("add branch", (2, 5, 4, 4), Add),
    ("dropout", (3, 7, 5, 3), module(Mask, (3, 7, 5, 3), 0.5, False)),
    ("dropout of rows", (4, 33), module(Mask, (4, 33), np.float32(0.3), False)),
    ("dropout 1", (2, 3, 2, 2), module(Mask, (2, 3, 2, 2), 1, False)),
    ("dropout2d", (3, 19, 3, 3), module(Mask, (3, 19, 3, 3), 0.25, True)),
    ("dropout2d of rows", (4, 21), module(Mask, (4, 21), 0.5, True)),
]


def set_parameters(net, rename):
    """Draws every parameter and buffer from the stream of its name in our graph."""
    for name, p in net.named_parameters():
        p.data = double(grid(tuple(p.shape), SEED, stream_of(rename(name))))
    for name, b in net.named_buffers():
        if b.dtype.is_floating_point:
            values = grid(tuple(b.shape), SEED, stream_of(rename(name)))
            b.data = double(np.abs(values) + np.float32(0.5) if "var" in name else values)


def write_operator(name, shape, make):
    net = make(shape[1]).double()
    relu = isinstance(net, nn.Sequential)
    is_add = isinstance(net, Add)

    def rename(param):
        param = param.removeprefix("0.") if relu else param
        return param if is_add else "op." + param

    x = double(grid(shape, SEED, 0)).requires_grad_()
    set_parameters(net, rename)
    net.eval()
    record(f"{name}|evaluation", 0 * x.detach() if isinstance(net, Mask) else net(x).detach())
    net.train()
    out = net(x)
    out.backward(double(grid(tuple(out.shape), SEED, 3)))
    record(f"{name}|output", out.detach())
    record(f"{name}|input", x.grad)
    for param, p in net.named_parameters():
        record(f"{name}|{rename(param)}", p.grad)
    for buffer, b in net.named_buffers():
        record(f"{name}|{rename(buffer)}", b)


# ---- losses and optimizers ----------------------------------------------------------------------

LOSSES = [("nll", F.nll_loss), ("cross-entropy", F.cross_entropy), ("mse", F.mse_loss)]


def write_losses():
    for name, function in LOSSES:
        for batch, width in ((1, 1), (5, 7), (32, 10)):
            out = double(3 * uniform((batch, width), SEED, 0)).requires_grad_()
            classes = torch.tensor((words(batch, SEED, 1) % np.uint64(width)).astype(np.int64))
            target = double(uniform((batch, width), SEED, 2)) if name == "mse" else classes
            loss = function(out, target)
            loss.backward()
            record(f"{name}|{batch}x{width}|loss", [loss.item()])
            record(f"{name}|{batch}x{width}|gradient", out.grad)


OPTIMIZERS = [
    ("sgd", torch.optim.SGD, {}),
    ("sgd,weight_decay=0.1", torch.optim.SGD, dict(weight_decay=0.1)),
    ("sgd,momentum=0.9", torch.optim.SGD, dict(momentum=0.9)),
    ("sgd,momentum=0.9,dampening=0.5", torch.optim.SGD, dict(momentum=0.9, dampening=0.5)),
    ("sgd,momentum=0.9,nesterov=true", torch.optim.SGD, dict(momentum=0.9, nesterov=True)),
    ("sgd,momentum=0.9,nesterov=true,weight_decay=0.01", torch.optim.SGD,
     dict(momentum=0.9, nesterov=True, weight_decay=0.01)),
    ("sgd,momentum=0.5,dampening=0.25,weight_decay=0.1", torch.optim.SGD,
     dict(momentum=0.5, dampening=0.25, weight_decay=0.1)),
    ("adam", torch.optim.Adam, {}),
    ("adam,weight_decay=0.1", torch.optim.Adam, dict(weight_decay=0.1)),
    ("adam,beta1=0.5,beta2=0.9,eps=1e-3", torch.optim.Adam, dict(betas=(0.5, 0.9), eps=1e-3)),
    ("adamw", torch.optim.AdamW, {}),
    ("adamw,weight_decay=0.1,beta1=0.8", torch.optim.AdamW,
     dict(weight_decay=0.1, betas=(0.8, 0.999))),
]


def write_optimizers():
    n, steps = 37, 6
    for text, make, options in OPTIMIZERS:
        p = double(uniform((n,), SEED, 0)).requires_grad_()
        optimizer = make([p], lr=0.05, **options)
        path = []
        for t in range(1, steps + 1):
            p.grad = double(uniform((n,), SEED, t))
            optimizer.step()
            path.append(p.detach().clone())
        record(text, torch.stack(path))


# ---- whole models: those of daemon/model/zoo_*.c ------------------------------------------------


class MnistCnn(nn.Module):
    """The net of PyTorch's RPC parameter-server example, without its dropout."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, 1)
        self.conv2 = nn.Conv2d(32, 64, 3, 1)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(self.conv2(x), 2)
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        return F.log_softmax(self.fc2(x), dim=1)


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(784, 128)
        self.out = nn.Linear(128, 10)

    def forward(self, x):
        return self.out(F.relu(self.fc1(torch.flatten(x, 1))))


class Block(nn.Module):
    def __init__(self, channels_in, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.stride = stride
        if stride != 1:
            self.shortcut = nn.Conv2d(channels_in, channels, 1, stride, bias=False)
            self.shortcut_bn = nn.BatchNorm2d(channels)

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (x if self.stride == 1 else self.shortcut_bn(self.shortcut(x))))


class Stem(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(1, width, 3, 1, 1, bias=False)
        self.bn = nn.BatchNorm2d(width)

    def forward(self, x):
        return F.relu(self.bn(self.conv(x)))


class ResnetSmall(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.stem = Stem(width)
        self.block1 = Block(width, width, 1)
        self.block2 = Block(width, 2 * width, 2)
        self.block3 = Block(2 * width, 4 * width, 2)
        self.fc = nn.Linear(4 * width, 10)

    def forward(self, x):
        x = self.block3(self.block2(self.block1(self.stem(x))))
        return self.fc(torch.flatten(F.avg_pool2d(x, 7), 1))


MODELS = {"mnist-cnn": MnistCnn, "mlp": Mlp, "resnet-small": ResnetSmall}


def write_initialisation():
    """What PyTorch draws at seed 1: elements, minimum, maximum, mean, standard deviation."""
    for model, make in MODELS.items():
        torch.manual_seed(1)
        for name, p in make().named_parameters():
            p = p.detach().double()
            record(f"init|{model}|{name}",
                   [p.numel(), p.min(), p.max(), p.mean(), p.std(unbiased=False)])


def fan_in(net, name):
    """That of the layer: of a bias it is its weight's."""
    weight = dict(net.named_parameters())[name.rsplit(".", 1)[0] + ".weight"]
    return weight[0].numel()


def set_curve_parameters(net):
    for name, p in net.named_parameters():
        layer = net.get_submodule(name.rsplit(".", 1)[0])
        if isinstance(layer, nn.BatchNorm2d):
            continue  # ones and zeros
        bound = np.float32(1 / math.sqrt(fan_in(net, name)))
        p.data = double(uniform(tuple(p.shape), SEED, stream_of(name)) * bound)


def curve_batch(step, batch):
    """A fixed drawing for each class, with noise."""
    classes = (words(batch, SEED, 1000 + step) % np.uint64(10)).astype(np.int64)
    drawings = np.stack([uniform((1, 28, 28), SEED, 500 + k) for k in range(10)])
    noise = uniform((batch, 1, 28, 28), SEED, 2000 + step)
    return double(drawings[classes] + np.float32(0.5) * noise), torch.tensor(classes)


def write_curve(model, loss_of, lr, steps, batch):
    net = MODELS[model]().double()
    set_curve_parameters(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    losses = []
    for step in range(steps):
        x, classes = curve_batch(step, batch)
        optimizer.zero_grad()
        loss = loss_of(net(x), classes)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(model, "losses:", " ".join(f"{x:.4f}" for x in losses))
    record(f"curve|{model}|losses", losses)
    for name, p in net.named_parameters():
        record(f"curve|{model}|{name}", p.detach().ravel()[:32])
    for name, b in net.named_buffers():
        record(f"curve|{model}|{name}", b.detach().ravel()[:32])


def main():
    torch.set_num_threads(1)
    for operator in OPERATORS:
        write_operator(*operator)
    write_losses()
    write_optimizers()
    write_initialisation()
    write_curve("mnist-cnn", F.nll_loss, 0.03, 50, 4)
    write_curve("resnet-small", F.cross_entropy, 0.05, 10, 4)
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "torch.bin")
    with open(path, "wb") as file:
        file.write(b"".join(records))
    print(len(records), "records,", os.path.getsize(path), "bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
