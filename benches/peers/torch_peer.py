"""PyTorch behind the peers' line protocol (README.md): the rows of one kernel each, and the training rows.

Outputs go to tensors made in `prepare` wherever torch takes `out=`; shapes are those of
tf_session.c.
"""

import protocol
import torch
import train_torch


def floats(*shape):
    return torch.rand(*shape) * 2 - 1


def matmul(n):
    a, b, out = floats(n, n), floats(n, n), torch.empty(n, n)
    return lambda: torch.mm(a, b, out=out), 2 * n**3


def unary(function, rows, columns):
    x, out = floats(rows, columns), torch.empty(rows, columns)
    return lambda: function(x, out=out), x.numel()


def binary(function, rows, columns):
    a, b, out = floats(rows, columns), floats(rows, columns), torch.empty(rows, columns)
    return lambda: function(a, b, out=out), a.numel()


def sum_all(rows, columns):
    x, out = floats(rows, columns), torch.empty(())
    return lambda: torch.sum(x, dim=(0, 1), out=out), x.numel()


def softmax(rows, columns):
    x, out = floats(rows, columns), torch.empty(rows, columns)
    return lambda: torch.softmax(x, dim=1, out=out), x.numel()


def random_normal(rows, columns):
    out = torch.empty(rows, columns)
    return lambda: out.normal_(), out.numel()


def transpose(rows, columns):
    x, out = floats(rows, columns), torch.empty(columns, rows)
    return lambda: out.copy_(x.t()), x.numel()


def concat(rows, columns):
    parts, out = [floats(rows, columns) for _ in range(8)], torch.empty(rows, 8 * columns)
    return lambda: torch.cat(parts, dim=1, out=out), out.numel()


def gather(count, columns):
    table, out = floats(8 * count, columns), torch.empty(count, columns)
    indices = torch.arange(count) * 40503 % (8 * count)
    return lambda: torch.index_select(table, 0, indices, out=out), out.numel()


ROWS = {
    "matmul/f32/256": lambda: matmul(256),
    "matmul/f32/1024": lambda: matmul(1024),
    "matmul/f32/2048": lambda: matmul(2048),
    "elementwise/add/1M": lambda: binary(torch.add, 1024, 1024),
    "elementwise/mul/1M": lambda: binary(torch.mul, 1024, 1024),
    "elementwise/exp/1M": lambda: unary(torch.exp, 1024, 1024),
    "elementwise/tanh/1M": lambda: unary(torch.tanh, 1024, 1024),
    "reduce/sum/1M": lambda: sum_all(1024, 1024),
    "softmax/128x1000": lambda: softmax(128, 1000),
    "random/normal/1M": lambda: random_normal(1024, 1024),
    "transpose/1024": lambda: transpose(1024, 1024),
    "concat/8x128x1024": lambda: concat(128, 1024),
    "gather/8192x128": lambda: gather(8192, 128),
    **train_torch.ROWS,
}


def prepare(row):
    name, threads = protocol.split_threads(row)
    if name not in ROWS or threads < 1:
        return None, f"absent no row {name} in the PyTorch peer"
    torch.set_num_threads(threads)
    step, units = ROWS[name]()
    for _ in range(10):
        step()
    return step, f"ready {units}"


if __name__ == "__main__":
    with torch.no_grad():
        protocol.serve(prepare)
