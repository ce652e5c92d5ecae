"""Writes the graphs of the `lstm` rows: one layer over 35 steps, forward only and with its gradients.

    python3 -m venv venv && venv/bin/pip install tensorflow-cpu==2.21.0
    venv/bin/python benches/graphs/make.py

Three graphs compute the same numbers: a TensorFlow 1 while loop (v1), a While function (v2), and an unrolled
one (unrolled). The driver runs the node `node_0`.
"""

import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

v1 = tf.compat.v1
STEPS, BATCH, WIDTH, UNITS = 35, 20, 64, 64
HERE = pathlib.Path(__file__).resolve().parent
v1.disable_v2_behavior()


def filled(value, *shape):
    """A constant that takes a few bytes in the file: a single value is broadcast."""
    proto = type(tf.make_tensor_proto(0.0))
    tensor = proto(dtype=tf.float32.as_datatype_enum, tensor_shape=tf.TensorShape(shape).as_proto(), float_val=[value])
    return v1.get_default_graph().create_op(
        "Const", [], [tf.float32],
        attrs={"dtype": attr(type=tf.float32.as_datatype_enum), "value": attr(tensor=tensor)},
    ).outputs[0]


def attr(**value):
    return v1.AttrValue(**value)


def cell(x, c, h, w, b):
    i, j, f, o = tf.split(tf.matmul(tf.concat([x, h], 1), w) + b, 4, 1)
    c = tf.sigmoid(f + 1.0) * c + tf.sigmoid(i) * tf.tanh(j)
    return c, tf.sigmoid(o) * tf.tanh(c)


def looped(x, w, b):
    inputs, outputs = tf.TensorArray(tf.float32, STEPS).unstack(x), tf.TensorArray(tf.float32, STEPS)
    zero = tf.zeros([BATCH, UNITS])

    def body(t, c, h, outputs):
        c, h = cell(inputs.read(t), c, h, w, b)
        return [t + 1, c, h, outputs.write(t, h)]

    start = [tf.constant(0), zero, zero, outputs]
    return tf.while_loop(lambda t, *_: t < STEPS, body, start)[3].stack()


def unrolled(x, w, b):
    c = h = tf.zeros([BATCH, UNITS])
    rows = []
    for row in tf.unstack(x):
        c, h = cell(row, c, h, w, b)
        rows.append(h)
    return tf.stack(rows)


def write(name, build, with_gradients):
    with tf.Graph().as_default() as graph:
        x, w, b = filled(0.3, STEPS, BATCH, WIDTH), filled(0.02, WIDTH + UNITS, 4 * UNITS), filled(0.1, 4 * UNITS)
        y = build(x, w, b)
        wanted = tf.gradients(tf.reduce_sum(y * y), [w, b]) if with_gradients else [y]
        with tf.control_dependencies([t.op for t in wanted]):
            tf.no_op(name="node_0")
        definition = graph.as_graph_def()
        content = definition.SerializeToString()
        (HERE / f"{name}.pb").write_bytes(content)
        print(f"{name}: {len(content)} bytes, {len(definition.node)} nodes")


for suffix, with_gradients in [("forward", False), ("training", True)]:
    v1.disable_control_flow_v2()
    write(f"lstm_v1_{suffix}", looped, with_gradients)
    write(f"lstm_unrolled_{suffix}", unrolled, with_gradients)
    v1.enable_control_flow_v2()
    write(f"lstm_v2_{suffix}", looped, with_gradients)
