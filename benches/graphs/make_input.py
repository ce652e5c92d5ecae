"""Writes the graphs of the `input` rows: pipelines over a file of 30,000 examples, drained within one step.

    python3 -m venv venv && venv/bin/pip install tensorflow-cpu==2.21.0
    venv/bin/python benches/graphs/make_input.py

They are the graphs that tf.data writes for the programs below. The driver sets the constant `filenames` to the
file that our peer makes, and runs the node `node_0`. A reduction counts the output, in batches everywhere, so
that its function runs too seldom to affect the measurement.
"""

import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

HERE = pathlib.Path(__file__).resolve().parent
FEATURES = {
    "image": tf.io.FixedLenFeature([], tf.string),
    "label": tf.io.FixedLenFeature([], tf.int64),
}


def parse_single(serialized):
    return tf.io.parse_single_example(serialized, FEATURES)


def parse_batch(serialized):
    return tf.io.parse_example(serialized, FEATURES)


def digit(serialized):
    example = parse_single(serialized)
    pixels = tf.io.decode_raw(example["image"], tf.uint8)
    return tf.cast(pixels, tf.float32) / 255.0, example["label"]


PIPELINES = {
    "tfrecord_read": lambda records: records.batch(1000),
    "parse_example_batched": lambda records: records.batch(128).map(parse_batch),
    "parse_single": lambda records: records.map(parse_single).batch(1000),
    "mnist_pipeline": lambda records: records.map(digit).shuffle(10_000, seed=1).batch(128).prefetch(2),
}


def write(name, pipeline):
    with tf.Graph().as_default() as graph:
        records = tf.data.TFRecordDataset(tf.constant(["the file"], name="filenames"))
        count = pipeline(records).reduce(tf.constant(0, tf.int64), lambda count, _, *more: count + 1)
        with tf.control_dependencies([count.op]):
            tf.no_op(name="node_0")
        content = graph.as_graph_def().SerializeToString()
        (HERE / f"input_{name}.pb").write_bytes(content)
        print(f"{name}: {len(content)} bytes, {len(graph.as_graph_def().node)} nodes")


for name, pipeline in PIPELINES.items():
    write(name, pipeline)
