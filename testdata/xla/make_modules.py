"""Writes modules.jsonl.gz: StableHLO modules that JAX exports, and what JAX computes with them.

Run with JAX 0.10: python testdata/xla/make_modules.py. Each line is a case: its name, the module's bytes in base64,
and arguments and results as dtype, shape and values. Names end with `static` or, where dimensions were open when
the module was exported, `open`.
"""

import base64
import gzip
import json
import os

os.environ["JAX_PLATFORMS"] = "cpu"
import jax
import jax.numpy as jnp
import numpy as np
from jax import export, lax

# Modules without the paths of files here.
jax.config.update("jax_traceback_in_locations_limit", 0)
HERE = os.path.dirname(os.path.abspath(__file__))
NHWC = ("NHWC", "HWIO", "NHWC")
rng = np.random.RandomState(0)
cases = {}


def normal(*shape):
    return np.round(rng.randn(*shape), 4).astype(np.float32)


def case(name, args, *shapes):
    """A function with its arguments and, if its dimensions can be open, their shapes with names for these."""

    def add(function):
        cases[name] = (function, args, shapes)
        return function

    return add


w, k = normal(8, 3), normal(3, 3, 3, 4)
x, image = normal(4, 8), normal(2, 9, 7, 3)

case("product", [x], "b,8")(lambda x: (jax.nn.softmax(jnp.tanh(x @ w)), x.sum(0)))
case("gelu", [x], "b,8")(lambda x: jax.nn.gelu(x, approximate=False))
case("top_k", [x], "b,8")(lambda x: lax.top_k(x, 3))
case("convolution", [image, k], "b,h,w,3", "3,3,3,4")(
    lambda x, k: lax.conv_general_dilated(x, k, (2, 1), "SAME", dimension_numbers=NHWC))
case("groups", [image, normal(3, 3, 1, 3)], "b,h,w,3", "3,3,1,3")(
    lambda x, k: lax.conv_general_dilated(
        x, k, (1, 1), "SAME", rhs_dilation=(2, 2), feature_group_count=3, dimension_numbers=NHWC))
case("transposed", [image, k], "b,h,w,3", "3,3,3,4")(
    lambda x, k: lax.conv_transpose(x, k, (2, 2), "SAME", dimension_numbers=NHWC))
case("pool", [image], "b,9,7,3")(
    lambda x: (lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"),
               lax.reduce_window(x, 0.0, lax.add, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")))
case("pool_gradient", [image], "b,9,7,3")(
    jax.grad(lambda x: jnp.sum(
        lax.reduce_window(jnp.tanh(x), -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") ** 2)))
case("scan", [normal(5, 4, 3)], "b,4,3")(
    lambda x: lax.scan(lambda c, y: (jnp.tanh(c + y), c * 2), jnp.zeros((x.shape[0], 3)), jnp.swapaxes(x, 0, 1)))
case("loop", [x], "b,8")(
    lambda x: lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, c[1] * 1.5), (0, x)))
case("condition", [x], "b,8")(lambda x: lax.cond(x.sum() > 0, jnp.sin, lambda y: y * 2, x))
case("switch", [x, np.int32(1)], "b,8", "")(
    lambda x, i: lax.switch(i, [jnp.sin, jnp.cos, lambda y: y * 3], x))
case("sort", [x], "b,8")(lambda x: (jnp.sort(x, axis=-1), jnp.argsort(x, axis=0)))
case("gather", [x, np.array([1, 0, 3], np.int32)], "b,8", "n")(
    lambda x, i: (x[i], jnp.take_along_axis(x, jnp.argsort(x, axis=1), axis=1)))
case("scatter", [x, np.array([1, 1, 3], np.int32)], "b,8", "n")(
    lambda x, i: x.at[i].add(1.5).at[:, 2].set(0.0))
case("sums", [x], "b,8")(lambda x: (jnp.cumsum(x, axis=1), jnp.argmax(x, 0), jnp.prod(x, 1), jnp.max(x)))
case("normalization", [x], "b,8")(
    lambda x: (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5))
case("mean", [x], "b,8")(lambda x: x.mean(0) + x.shape[0])


@case("attention", [normal(2, 5, 8)], "b,t,8")
def attention(q):
    scores = jnp.einsum("bqd,bkd->bqk", q, q) / np.sqrt(8.0)
    mask = jnp.tril(jnp.ones((q.shape[1], q.shape[1]), bool))
    return jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(jnp.where(mask, scores, -1e9)), q)


case("random", [np.array([0, 42], np.uint32), x], "2", "b,8")(
    lambda key, x: jax.random.uniform(key, x.shape) + x)
case("fft", [x], "b,8")(lambda x: jnp.abs(jnp.fft.rfft(x)))
case("reshape", [x], "b,8")(
    lambda x: (x.reshape(-1), x.reshape(x.shape[0] * 2, -1).T, jnp.repeat(x, 2, axis=0)))
case("joins", [x], "b,8")(
    lambda x: (jnp.concatenate([x, x * 2], 0)[1:-1], jnp.pad(x, ((1, 2), (0, 1))), jnp.roll(x, 1, axis=0)[::-1]))
case("one_hot", [x], "b,8")(
    lambda x: (jax.nn.one_hot(jnp.argmax(x, 1), 8), jnp.arange(x.shape[0])[:, None] * x))
case("slices", [x, np.int32(1)])(
    lambda x, i: (lax.dynamic_slice(x, (i, 0), (2, 8)), lax.dynamic_update_slice(x, jnp.ones((1, 8)), (i, 0))))
case("bfloat16", [x], "b,8")(
    lambda x: (x.astype(jnp.bfloat16) @ w.astype(jnp.bfloat16)).astype(jnp.float32))
case("integers", [np.arange(-4, 8, dtype=np.int32)], "b")(
    lambda x: (x // 3, x % 3, x << 1, ~x, jnp.bitwise_count(x).astype(jnp.int32), lax.clz(x)))
case("complex", [x], "b,8")(lambda x: (jnp.exp(1j * x).real, jnp.angle(x + 1j)))
case("booleans", [x], "b,8")(
    lambda x: (x > 0, jnp.any(x > 1, axis=1), jnp.array([True, False, True])))
case("calls", [x], "b,8")(
    lambda x: jax.jit(lambda y: jax.nn.relu(y) + jax.jit(jnp.sin)(y))(x) + jax.nn.silu(x))


def encoded(array):
    array = np.asarray(array)
    return {"dtype": str(array.dtype), "shape": list(array.shape), "values": array.ravel().tolist()}


def exported():
    for name, (function, args, shapes) in sorted(cases.items()):
        results = [encoded(r) for r in jax.tree_util.tree_leaves(jax.jit(function)(*args))]
        scope = export.SymbolicScope()
        static = [jax.ShapeDtypeStruct(np.shape(a), a.dtype) for a in args]
        specs = {"static": static}
        if shapes:
            dims = [export.symbolic_shape(s, scope=scope) if s else () for s in shapes]
            specs["open"] = [jax.ShapeDtypeStruct(d, a.dtype) for d, a in zip(dims, args, strict=True)]
        for kind, spec in specs.items():
            module = export.export(jax.jit(function))(*spec).mlir_module_serialized
            yield {"name": f"{name}_{kind}", "module": base64.b64encode(module).decode(),
                   "args": [encoded(a) for a in args], "results": results}


lines = "".join(json.dumps(line) + "\n" for line in exported())
with open(os.path.join(HERE, "modules.jsonl.gz"), "wb") as out:
    out.write(gzip.compress(lines.encode(), mtime=0))
