"""The training rows as TensorFlow's graphs.

Inputs are variables, so that nothing is fed and constant folding cannot precompute a step.
"""

import numpy
import tensorflow as tf

v1 = tf.compat.v1
v1.disable_v2_behavior()
DRAWS = numpy.random.default_rng(1)


def resident(name, values):
    return v1.get_variable(name, initializer=values, trainable=False)


def floats(*shape):
    return DRAWS.random(shape, dtype=numpy.float32)


def integers(limit, *shape):
    return DRAWS.integers(0, limit, shape)


def weights(name, *shape):
    return v1.get_variable(name, shape, initializer=v1.glorot_uniform_initializer())


def biases(name, count):
    return v1.get_variable(name, [count], initializer=v1.zeros_initializer())


def dense(name, x, inputs, units):
    return tf.nn.bias_add(tf.matmul(x, weights(name + "/kernel", inputs, units)), biases(name + "/bias", units))


def loss_of(scores, labels):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores))


def mlp():
    x = resident("x", floats(128, 784))
    x = tf.nn.relu(dense("a", x, 784, 512))
    x = tf.nn.relu(dense("b", x, 512, 512))
    return loss_of(dense("c", x, 512, 10), resident("labels", integers(10, 128)))


def convolved(name, x, inputs, filters):
    x = tf.nn.conv2d(x, weights(name + "/kernel", 5, 5, inputs, filters), 1, "SAME")
    return tf.nn.max_pool2d(tf.nn.relu(tf.nn.bias_add(x, biases(name + "/bias", filters))), 2, 2, "VALID")


def lenet():
    x = resident("x", floats(64, 28, 28, 1))
    x = convolved("b", convolved("a", x, 1, 32), 32, 64)
    x = tf.nn.relu(dense("c", tf.reshape(x, [64, 3136]), 3136, 1024))
    return loss_of(dense("d", x, 1024, 10), resident("labels", integers(10, 64)))


def layer(name, rows):
    """An LSTM unrolled over time, like TensorFlow's own cells."""
    kernel, bias = weights(name + "/kernel", 1024, 2048), biases(name + "/bias", 2048)
    c = h = tf.zeros([20, 512])
    results = []
    for x in rows:
        i, j, f, o = tf.split(tf.nn.bias_add(tf.matmul(tf.concat([x, h], 1), kernel), bias), 4, 1)
        c = tf.sigmoid(f + 1.0) * c + tf.sigmoid(i) * tf.tanh(j)
        h = tf.sigmoid(o) * tf.tanh(c)
        results.append(h)
    return results


def lstm():
    words, following = resident("words", integers(10_000, 35, 20)), resident("following", integers(10_000, 700))
    rows = tf.unstack(tf.nn.embedding_lookup(weights("embedding", 10_000, 512), words))
    x = tf.concat(layer("b", layer("a", rows)), 0)
    return loss_of(dense("c", x, 512, 10_000), following)


ROWS = {"train/mlp": mlp, "train/lenet": lenet, "train/lstm": lstm}


def prepare(name, threads):
    """A step of a warmed-up session with default options except the thread count."""
    train = v1.train.GradientDescentOptimizer(0.01).minimize(ROWS[name]())
    config = v1.ConfigProto(intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads)
    session = v1.Session(config=config)
    session.run(v1.global_variables_initializer())
    step = session.make_callable(train)
    for _ in range(5):
        step()
    return step
