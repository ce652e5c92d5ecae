"""Writes the checkpoints of this folder with TensorFlow 2.21.

Usage: python record.py [FOLDER]

Each holds few bytes; `large.txt` has length and CRC-32C of the files of larger ones, which a test
writes again and compares.
"""

import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2

v1 = tf.compat.v1
FOLDER = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))


def path(name):
    return os.path.join(FOLDER, name)


def crc32c(data):
    table = []
    for i in range(256):
        for _ in range(8):
            i = (i >> 1) ^ (0x82F63B78 if i & 1 else 0)
        table.append(i)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def constant(graph, dtype):
    """Three elements; byte i of them is i % 7 + 1, or 0 and 1 for bools."""
    proto = tensor_pb2.TensorProto(dtype=dtype.as_datatype_enum)
    proto.tensor_shape.dim.add(size=3)
    content = bytes(i % 7 + 1 for i in range(3 * dtype.size))
    proto.tensor_content = b"\1\0\1" if dtype == tf.bool else content
    attrs = {
        "value": v1.AttrValue(tensor=proto),
        "dtype": v1.AttrValue(type=dtype.as_datatype_enum),
    }
    return graph.create_op("Const", [], [dtype], attrs=attrs, name="c").outputs[0]


def save(name, tensors, slices=None):
    with tf.Graph().as_default() as graph, v1.Session() as session:
        built = [(key, make(graph) if callable(make) else make) for key, make in tensors]
        names = [key for key, _ in built]
        values = [value for _, value in built]
        op = tf.raw_ops.SaveV2(
            prefix=path(name),
            tensor_names=names,
            shape_and_slices=slices or [""] * len(names),
            tensors=values,
        )
        session.run(op)


def save_v1(name, tensors, slices=None):
    with tf.Graph().as_default() as graph, v1.Session() as session:
        names = [key for key, _ in tensors]
        values = [make(graph) if callable(make) else make for _, make in tensors]
        if slices is None:
            op = tf.raw_ops.Save(filename=path(name), tensor_names=names, data=values)
        else:
            op = tf.raw_ops.SaveSlices(
                filename=path(name), tensor_names=names, shapes_and_slices=slices, data=values
            )
        session.run(op)


def tensor_list(_):
    return tf.raw_ops.TensorListFromTensor(tensor=[[1.0, 2.0], [3.0, 4.0]], element_shape=[2])


def objects():
    class Model(tf.Module):
        def __init__(self):
            super().__init__()
            self.kernel = tf.Variable([[1.0, 2.0]], name="kernel")
            self.layers = [tf.Variable(3, name="count"), tf.Variable(["text"], name="words")]

    model = Model()
    checkpoint = tf.train.Checkpoint(model=model, step=tf.Variable(7, dtype=tf.int64))
    checkpoint.write(path("objects"))


def large():
    many = [("layer_%05d/some/kernel" % i, float(i)) for i in range(9000)]
    odd = {"a" * 40 + chr(97 + i % 26) + "%04d" % i + "\u00ff" * 3 for i in range(4500)}
    odd = sorted(odd | {"b/%d" % i for i in range(4500)})
    lines = []
    for name, tensors in [("many", many), ("odd", [(key, 1.0) for key in odd])]:
        save(name, tensors)
        for suffix in [".index", ".data-00000-of-00001"]:
            with open(path(name) + suffix, "rb") as file:
                data = file.read()
            os.remove(path(name) + suffix)
            lines.append("%s %d %08x\n" % (name + suffix, len(data), crc32c(data)))
    with open(path("large.txt"), "w") as file:
        file.writelines(lines)


def arrays():
    values = {
        "rows": np.arange(12, dtype=np.float32).reshape(4, 3),
        "a/b": np.int64([1, -2]),
        "words": np.array([b"a", b"bb"]),
        "fortran": np.asfortranarray(np.arange(6, dtype=np.uint16).reshape(2, 3)),
        "empty": np.zeros([0, 2]),
    }
    np.savez(path("plain.npz"), **values)
    np.savez_compressed(path("compressed.npz"), **values)


def main():
    arrays()
    objects()
    v1.disable_eager_execution()
    plain = [tf.dtypes.as_dtype(i) for i in [*range(1, 7), *range(8, 20), *range(22, 31)]]
    save("dtypes", [(d.name, lambda g, d=d: constant(g, d)) for d in plain])
    strings = [b"abc", b"", b"x" * 200, "\u00e9".encode(), b"\0\xff"]
    save(
        "mixed",
        [
            ("z", np.float32([1, 2, 3])),
            ("b/x", np.int64([[1, 2], [3, 4]])),
            ("strings", np.array(strings, object)),
            ("empty", np.zeros([0, 3], np.float32)),
            ("no strings", np.zeros([2, 0], object)),
            ("scalar", np.bool_(True)),
            ("word", np.array(b"word", object)),
        ],
    )
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    words = np.array([b"a", b"bb", b"ccc"], object)
    long = np.arange(200, dtype=np.int32)
    save(
        "slices",
        [
            ("rows", rows[0:1]),
            ("rows", rows[1:4]),
            ("columns", rows[:, :2]),
            ("columns", rows[:, 2:]),
            ("words", words[:2]),
            ("words", words[2:]),
            ("half", rows[:2]),
            ("whole", rows),
            ("long", long[:63]),
            ("long", long[63:128]),
            ("long", long[128:]),
        ],
        [
            "4 3 0,1:-",
            "4 3 1,3:-",
            "4 3 -:0,2",
            "4 3 -:2,1",
            "3 0,2",
            "3 2,1",
            "4 3 0,2:-",
            "4 3 -:-",
            "200 0,63",
            "200 63,65",
            "200 128,72",
        ],
    )
    save("variants", [("list", tensor_list), ("two", lambda g: tf.stack([tensor_list(g)] * 2))])
    in_v1 = [tf.dtypes.as_dtype(i) for i in [*range(1, 7), *range(8, 14), 17, 18, 19]]
    in_v1 = [(d.name, lambda g, d=d: constant(g, d)) for d in in_v1]
    negative = [("negative", np.int32([-1, -(2**31)])), ("bytes", np.int8([-128, 127]))]
    save_v1("first", in_v1 + negative + [("strings", np.array(strings, object))])
    save_v1(
        "first-slices",
        [("rows", rows[0:1]), ("rows", rows[1:4]), ("words", words), ("scalar", np.float64(2.5))],
        ["4 3 0,1:-", "4 3 1,3:-", "", ""],
    )
    large()


main()
