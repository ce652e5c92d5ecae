"""Writes the graphs whose step times are predicted: a training step of an MLP, a CNN, an LSTM, a transformer and
an embedding, and three programs without devices.

    python benches/placement/graphs.py FOLDER

Each file has the nodes `init` and `train`. Inputs are variables, so nothing is fed.
"""

import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

v1 = tf.compat.v1
v1.disable_v2_behavior()


def data(name, shape, dtype=tf.float32, highest=None):
    if dtype == tf.float32:
        value = tf.random.normal(shape, stddev=0.5, seed=1)
    else:
        value = tf.random.uniform(shape, maxval=highest, dtype=dtype, seed=1)
    return v1.get_variable(name, initializer=value, trainable=False, use_resource=True)


def weight(name, shape):
    initializer = v1.random_normal_initializer(stddev=0.05, seed=2)
    return v1.get_variable(name, shape, initializer=initializer, use_resource=True)


def classified(logits, labels):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))


def mlp(batch=128, sizes=(784, 1024, 1024, 10)):
    h, labels = data("x", [batch, sizes[0]]), data("y", [batch], tf.int32, 10)
    for i, (rows, columns) in enumerate(zip(sizes, sizes[1:])):
        h = tf.matmul(h, weight(f"w{i}", [rows, columns])) + weight(f"b{i}", [columns])
        if i + 2 < len(sizes):
            h = tf.nn.relu(h)
    return classified(h, labels)


def cnn(batch=32):
    h, labels = data("x", [batch, 28, 28, 1]), data("y", [batch], tf.int32, 10)
    channels = 1
    for i, more in enumerate((32, 64)):
        h = tf.nn.relu(tf.nn.conv2d(h, weight(f"k{i}", [5, 5, channels, more]), 1, "SAME"))
        h, channels = tf.nn.max_pool2d(h, 2, 2, "SAME"), more
    h = tf.reshape(h, [batch, 7 * 7 * 64])
    h = tf.nn.relu(tf.matmul(h, weight("w0", [7 * 7 * 64, 256])))
    return classified(tf.matmul(h, weight("w1", [256, 10])), labels)


def lstm(batch=32, steps=20, width=256):
    x, labels = data("x", [steps, batch, width]), data("y", [batch], tf.int32, 10)
    w, b = weight("w", [2 * width, 4 * width]), weight("b", [4 * width])
    c = h = tf.zeros([batch, width])
    for t in range(steps):
        i, j, f, o = tf.split(tf.matmul(tf.concat([x[t], h], 1), w) + b, 4, 1)
        c = tf.sigmoid(f + 1.0) * c + tf.sigmoid(i) * tf.tanh(j)
        h = tf.sigmoid(o) * tf.tanh(c)
    return classified(tf.matmul(h, weight("out", [width, 10])), labels)


def transformer(batch=8, length=64, width=256, heads=4, layers=2):
    h, labels = data("x", [batch, length, width]), data("y", [batch], tf.int32, 10)

    def norm(x):
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        return (x - mean) * tf.math.rsqrt(variance + 1e-5)

    def dense(x, name, columns):
        flat = tf.matmul(tf.reshape(x, [-1, x.shape[-1]]), weight(name, [x.shape[-1], columns]))
        return tf.reshape(flat, [batch, length, columns])

    def by_heads(x):
        return tf.transpose(tf.reshape(x, [batch, length, heads, width // heads]), [0, 2, 1, 3])

    for i in range(layers):
        x = norm(h)
        q, k, v = (by_heads(dense(x, f"{name}{i}", width)) for name in "qkv")
        scores = tf.nn.softmax(tf.matmul(q, k, transpose_b=True) / (width // heads) ** 0.5)
        mixed = tf.reshape(tf.transpose(tf.matmul(scores, v), [0, 2, 1, 3]), [batch, length, width])
        h = h + dense(mixed, f"o{i}", width)
        h = h + dense(tf.nn.relu(dense(norm(h), f"up{i}", 4 * width)), f"down{i}", width)
    return classified(tf.matmul(tf.reduce_mean(h, 1), weight("out", [width, 10])), labels)


def embedding(batch=256, rows=100_000, width=64):
    """The table lies on a parameter server, the dense layers are computed by a worker."""
    with tf.device("/job:worker/task:0"):
        ids, labels = data("ids", [batch], tf.int32, rows), data("y", [batch], tf.int32, 10)
    with tf.device("/job:ps/task:0"):
        table = weight("table", [rows, width])
        weights = [weight("w0", [width, 512]), weight("w1", [512, 512]), weight("w2", [512, 10])]
    with tf.device("/job:worker/task:0"):
        h = tf.nn.embedding_lookup(table, ids)
        for i, w in enumerate(weights):
            h = tf.matmul(h, w)
            if i < 2:
                h = tf.nn.relu(h)
        return classified(h, labels)


def towers(batch=128, width=1024, count=4):
    """Independent branches, joined at the end."""
    x, labels = data("x", [batch, width]), data("y", [batch], tf.int32, 10)
    ends = []
    for i in range(count):
        h = x
        for j in range(2):
            h = tf.nn.relu(tf.matmul(h, weight(f"w{i}_{j}", [width, width])))
        ends.append(h)
    return classified(tf.matmul(tf.add_n(ends), weight("out", [width, 10])), labels)


def write(folder, name, build, optimizer, device=None):
    graph = tf.Graph()
    with graph.as_default(), tf.device(device):
        loss = build()
        optimizer.minimize(loss, name="train")
        v1.group(v1.global_variables_initializer(), name="init")
        with tf.device("/job:worker/task:0" if build is embedding else None):
            tf.no_op(name="nothing")
    (pathlib.Path(folder) / f"{name}.pb").write_bytes(graph.as_graph_def().SerializeToString())


def main():
    folder = sys.argv[1]
    sgd, adam = v1.train.GradientDescentOptimizer(0.01), v1.train.AdamOptimizer(1e-3)
    for build, optimizer in [(mlp, adam), (cnn, sgd), (lstm, sgd), (transformer, adam), (embedding, sgd)]:
        write(folder, build.__name__, build, optimizer)
    for build in (mlp, cnn, towers):
        write(folder, f"free_{build.__name__}", build, sgd)
        # What a person would write who knows which task is fast.
        write(folder, f"hand_{build.__name__}", build, sgd, "/job:worker/task:1")


if __name__ == "__main__":
    main()
