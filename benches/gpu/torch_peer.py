"""PyTorch on a GPU behind the peers' line protocol: the models of `benches/ours/src/gpu_models.rs` as its users write them.

A name ends in how steps run: `/eager`, `/graph` (as a CUDA graph) or `/compiled` (`torch.compile`); `/small` before it
asks for the small models. `--fast` lets products of 32-bit floats be rounded to TF32.
"""

import sys
import time

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WARM_UP = 10


class Words(nn.Module):
    """Two LSTM layers of 512 units and a vocabulary of 40,000."""

    def __init__(self, words=40_000, units=512):
        super().__init__()
        self.embedding = nn.Embedding(words, units)
        self.layers = nn.LSTM(units, units, num_layers=2, batch_first=True)
        self.scores = nn.Linear(units, words)

    def forward(self, x):
        return self.scores(self.layers(self.embedding(x))[0]).flatten(0, 1)


class Block(nn.Module):
    def __init__(self, heads, width):
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.mixed = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, z):
        batch, time_steps, width = z.shape
        apart = self.attention(self.before(z)).view(batch, time_steps, 3, self.heads, width // self.heads)
        query, key, value = (part.transpose(1, 2) for part in apart.unbind(2))
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        z = z + self.mixed(mixed.transpose(1, 2).reshape(z.shape))
        return z + self.down(nn.functional.gelu(self.up(self.between(z))))


class Gpt2(nn.Module):
    """GPT-2 small with tied embeddings."""

    def __init__(self, words=50_304, width=768, heads=12, layers=12, time_steps=1024):
        super().__init__()
        self.words, self.positions = nn.Embedding(words, width), nn.Embedding(time_steps, width)
        nn.init.normal_(self.words.weight, std=0.02)
        self.blocks = nn.Sequential(*(Block(heads, width) for _ in range(layers)))
        self.last = nn.LayerNorm(width)

    def forward(self, x):
        z = self.words(x) + self.positions.weight[: x.shape[1]]
        return (self.last(self.blocks(z)) @ self.words.weight.t()).flatten(0, 1)


def null():
    count = torch.zeros((), device=DEVICE)
    return lambda: count.add_(1.0), None, 1


def training(net, optimizer, forward, labels, units, is_half=False):
    """A step of training; the loss is a tensor on the device."""

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(DEVICE, torch.bfloat16, enabled=is_half):
            loss = nn.functional.cross_entropy(forward(), labels)
        loss.backward()
        optimizer.step()
        return loss

    return step, net, units


def mlp(wrap, small):
    batch, pixels, units = (8, 20, 16) if small else (128, 784, 512)
    net = nn.Sequential(nn.Linear(pixels, units), nn.ReLU(), nn.Linear(units, units), nn.ReLU(), nn.Linear(units, 10))
    net = net.to(DEVICE)
    images, labels = torch.rand(batch, pixels, device=DEVICE), torch.randint(0, 10, (batch,), device=DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    run = wrap(net)
    return training(net, optimizer, lambda: run(images), labels, batch)


def lstm(wrap, small):
    words, units, time_steps, batch = (50, 16, 5, 4) if small else (40_000, 512, 35, 64)
    net = Words(words, units).to(DEVICE)
    text = torch.randint(0, words, (batch, time_steps + 1), device=DEVICE)
    x, following = text[:, :-1].contiguous(), text[:, 1:].flatten()
    run = wrap(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    return training(net, optimizer, lambda: run(x), following, batch * time_steps)


def resnet50(wrap, small):
    from torchvision.models import resnet50 as model

    batch, size = (2, 32) if small else (256, 224)
    net = model().to(DEVICE, memory_format=torch.channels_last)
    images = torch.rand(batch, 3, size, size, device=DEVICE).to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (batch,), device=DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    run = wrap(net)
    return training(net, optimizer, lambda: run(images), labels, batch, is_half=True)


def gpt2(wrap, small):
    batch, time_steps = (2, 8) if small else (16, 1024)
    words, width, heads, layers = (50, 32, 4, 2) if small else (50_304, 768, 12, 12)
    net = Gpt2(words, width, heads, layers, time_steps).to(DEVICE)
    text = torch.randint(0, words, (batch, time_steps + 1), device=DEVICE)
    x, following = text[:, :-1].contiguous(), text[:, 1:].flatten()
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-4, fused=DEVICE == "cuda")
    run = wrap(net)
    return training(net, optimizer, lambda: run(x), following, batch * time_steps, is_half=True)


ROWS = {"gpu/mlp": mlp, "gpu/lstm": lstm, "gpu/resnet50": resnet50, "gpu/gpt2": gpt2}


def as_graph(step):
    """The step as one CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def synchronize():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def prepare(name):
    row, _, way = name.rpartition("/")
    small = row.endswith("/small")
    row = row.removesuffix("/small")
    if row != "gpu/null" and row not in ROWS or way not in ["eager", "graph", "compiled"]:
        return None, f"absent no row {name} in the PyTorch peer"
    if row == "gpu/null":
        step, _, units = null()
    else:
        wrap = torch.compile if way == "compiled" else lambda net: net
        step, _, units = ROWS[row](wrap, small)
    if way == "graph":
        step = as_graph(step)
    for _ in range(WARM_UP):
        step()
    synchronize()
    return step, f"ready {units}"


def main(step=None):
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = "--fast" in sys.argv
    torch.backends.cudnn.benchmark = True
    for line in sys.stdin:
        command, _, argument = line.strip().partition(" ")
        try:
            if command == "prepare":
                step, answer = prepare(argument)
            elif command == "run" and step:
                start = time.perf_counter()
                for _ in range(int(argument)):
                    step()
                synchronize()
                answer = f"{time.perf_counter() - start:.9f}"
            elif command == "report":
                loss = step()
                peak = torch.cuda.max_memory_allocated() >> 20 if DEVICE == "cuda" else "?"
                answer = f"peak_mib={peak}" + (f" losses={loss.item():.4f}" if loss is not None else "")
            elif command == "quit":
                return
            else:
                answer = f"absent cannot answer '{line.strip()}'"
        except Exception as e:  # The driver prints it and goes on with the next row.
            answer = f"absent {type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}"
        print(answer, flush=True)


if __name__ == "__main__":
    main()
