"""Writes the training steps of the `gpu/.../tf` rows: the models of `torch_peer.py` as users of TensorFlow 1 build them.

    python tf_models.py FOLDER [--small] [--rows mlp,gpt2]

Each file is a GraphDef. Its node `init` initializes the variables, among which are the samples, `step` is a step of
training, and `loss` is the loss. `--small` writes the models at a size that a CPU runs in no time.
"""

import argparse
import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import tensorflow as tf

v1 = tf.compat.v1
HALF = tf.bfloat16


def weights(name, *shape, initializer=None):
    return v1.get_variable(name, shape, initializer=initializer or v1.glorot_uniform_initializer())


def biases(name, count):
    return v1.get_variable(name, [count], initializer=v1.zeros_initializer())


def samples(name, *shape):
    """Floats in a variable, so that they lie in the memory of the device that trains."""
    return v1.get_variable(name, shape, trainable=False, initializer=v1.random_uniform_initializer())


def integers(name, limit, *shape):
    """Integers below `limit` in a variable."""
    first = tf.random.uniform(shape, maxval=limit, dtype=tf.int64)
    return v1.get_variable(name, trainable=False, initializer=first)


def dense(name, x, inputs, units):
    """A layer in the precision of `x`."""
    kernel, bias = weights(name + "/kernel", inputs, units), biases(name + "/bias", units)
    return tf.nn.bias_add(tf.matmul(x, tf.cast(kernel, x.dtype)), tf.cast(bias, x.dtype))


def mean_loss(scores, labels):
    scores = tf.cast(scores, tf.float32)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores))


def mlp(small):
    batch, pixels, units = (8, 20, 16) if small else (128, 784, 512)
    x = samples("samples", batch, pixels)
    x = tf.nn.relu(dense("a", x, pixels, units))
    x = tf.nn.relu(dense("b", x, units, units))
    loss = mean_loss(dense("c", x, units, 10), integers("labels", 10, batch))
    return loss, v1.train.GradientDescentOptimizer(0.01)


def lstm_layer(name, rows, batch, units):
    """An LSTM unrolled over time, like TensorFlow's own cells."""
    kernel, bias = weights(name + "/kernel", 2 * units, 4 * units), biases(name + "/bias", 4 * units)
    c = h = tf.zeros([batch, units])
    results = []
    for x in rows:
        i, j, f, o = tf.split(tf.nn.bias_add(tf.matmul(tf.concat([x, h], 1), kernel), bias), 4, 1)
        c = tf.sigmoid(f + 1.0) * c + tf.sigmoid(i) * tf.tanh(j)
        h = tf.sigmoid(o) * tf.tanh(c)
        results.append(h)
    return results


def lstm(small):
    words, units, time, batch = (50, 16, 5, 4) if small else (40_000, 512, 35, 64)
    text = integers("text", words, batch, time + 1)
    table = weights("embedding", words, units, initializer=v1.random_uniform_initializer(-0.05, 0.05))
    rows = tf.unstack(tf.nn.embedding_lookup(table, text[:, :-1]), axis=1)
    rows = lstm_layer("b", lstm_layer("a", rows, batch, units), batch, units)
    x = tf.reshape(tf.stack(rows, axis=1), [-1, units])
    loss = mean_loss(dense("c", x, units, words), tf.reshape(text[:, 1:], [-1]))
    return loss, v1.train.GradientDescentOptimizer(0.1)


def normalized(name, x, filters, window, stride=1):
    """Convolution in 16 bits, then batch normalization with statistics in 32 bits, as in NVIDIA's and MLPerf's models."""
    shape = [window, window, x.shape.as_list()[-1], filters]
    kernel = weights(name + "/kernel", *shape, initializer=v1.variance_scaling_initializer(2.0))
    x = tf.nn.conv2d(x, tf.cast(kernel, x.dtype), stride, "SAME")
    scale = v1.get_variable(name + "/gamma", [filters], initializer=v1.ones_initializer())
    offset = biases(name + "/beta", filters)
    moving = [v1.get_variable(f"{name}/moving_{what}", [filters], initializer=first, trainable=False)
              for what, first in [("mean", v1.zeros_initializer()), ("variance", v1.ones_initializer())]]
    x, *batch = v1.nn.fused_batch_norm(x, scale, offset, epsilon=1e-5, is_training=True)
    for kept, new in zip(moving, batch):
        v1.add_to_collection(v1.GraphKeys.UPDATE_OPS, v1.assign_sub(kept, (kept - new) * 0.1))
    return x


def bottleneck(name, x, width, stride):
    y = tf.nn.relu(normalized(name + "/a", x, width, 1))
    y = tf.nn.relu(normalized(name + "/b", y, width, 3, stride))
    y = normalized(name + "/c", y, 4 * width, 1)
    if x.shape.as_list()[-1] != 4 * width or stride > 1:
        x = normalized(name + "/shortcut", x, 4 * width, 1, stride)
    return tf.nn.relu(x + y)


def resnet50(small):
    batch, size, classes, blocks = (2, 32, 10, [1, 1]) if small else (256, 224, 1000, [3, 4, 6, 3])
    x = tf.cast(samples("samples", batch, size, size, 3), HALF)
    x = tf.nn.relu(normalized("first", x, 64, 7, 2))
    x = tf.nn.max_pool2d(x, 3, 2, "SAME")
    for stage, count in enumerate(blocks):
        for i in range(count):
            x = bottleneck(f"block_{stage}_{i}", x, 64 << stage, 2 if i == 0 and stage > 0 else 1)
    x = tf.reduce_mean(x, [1, 2])
    loss = mean_loss(dense("scores", x, x.shape.as_list()[-1], classes), integers("labels", classes, batch))
    return loss, v1.train.MomentumOptimizer(0.1, 0.9)


def layer_norm(name, x):
    """In 32 bits."""
    width = x.shape.as_list()[-1]
    scale = v1.get_variable(name + "/gamma", [width], initializer=v1.ones_initializer())
    x = tf.cast(x, tf.float32)
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    return tf.nn.batch_normalization(x, mean, variance, biases(name + "/beta", width), scale, 1e-5)


def attention(name, x, heads):
    batch, time, width = x.shape.as_list()
    apart = tf.reshape(dense(name + "/qkv", x, width, 3 * width), [batch, time, 3, heads, width // heads])
    query, key, value = tf.unstack(tf.transpose(apart, [2, 0, 3, 1, 4]))
    scores = tf.matmul(query, key, transpose_b=True) * tf.cast((width // heads) ** -0.5, x.dtype)
    seen = tf.linalg.band_part(tf.ones([time, time], x.dtype), -1, 0)
    scores = tf.cast(scores * seen - tf.cast(1e9, x.dtype) * (1 - seen), tf.float32)
    mixed = tf.matmul(tf.cast(tf.nn.softmax(scores), x.dtype), value)
    mixed = tf.reshape(tf.transpose(mixed, [0, 2, 1, 3]), [batch, time, width])
    return dense(name + "/mixed", mixed, width, width)


def gelu(x):
    return 0.5 * x * (1.0 + tf.tanh((2 / 3.141592653589793) ** 0.5 * (x + 0.044715 * x * x * x)))


def gpt2(small):
    batch, time, layers = (2, 8, 2) if small else (16, 1024, 12)
    width, heads, words = (32, 4, 50) if small else (768, 12, 50_304)
    text = integers("text", words, batch, time + 1)
    first = v1.random_normal_initializer(stddev=0.02)
    table = weights("words", words, width, initializer=first)
    z = tf.nn.embedding_lookup(table, text[:, :-1]) + weights("positions", time, width, initializer=first)
    for i in range(layers):
        x = tf.cast(layer_norm(f"block_{i}/before", z), HALF)
        z += tf.cast(attention(f"block_{i}/attention", x, heads), tf.float32)
        x = tf.cast(layer_norm(f"block_{i}/between", z), HALF)
        x = gelu(dense(f"block_{i}/up", x, width, 4 * width))
        z += tf.cast(dense(f"block_{i}/down", x, 4 * width, width), tf.float32)
    x = tf.reshape(tf.cast(layer_norm("last", z), HALF), [-1, width])
    loss = mean_loss(tf.matmul(x, tf.cast(table, HALF), transpose_b=True), tf.reshape(text[:, 1:], [-1]))
    return loss, v1.train.AdamOptimizer(3e-4)


MODELS = {"mlp": mlp, "lstm": lstm, "resnet50": resnet50, "gpt2": gpt2}


def graph_of(name, small):
    """The graph of a model, with nodes `init`, `step` and `loss`."""
    with tf.Graph().as_default() as graph:
        v1.set_random_seed(1)
        loss, optimizer = MODELS[name](small)
        tf.identity(loss, name="loss")
        with tf.control_dependencies(v1.get_collection(v1.GraphKeys.UPDATE_OPS)):
            step = optimizer.minimize(loss)
        tf.group(step, name="step")
        tf.group(v1.global_variables_initializer(), name="init")
    return graph


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--rows", default=",".join(MODELS))
    args = parser.parse_args()
    v1.disable_v2_behavior()
    v1.enable_resource_variables()
    args.folder.mkdir(parents=True, exist_ok=True)
    for name in args.rows.split(","):
        path = args.folder / f"{name}{'-small' if args.small else ''}.pb"
        path.write_bytes(graph_of(name, args.small).as_graph_def().SerializeToString())
        print(path)


if __name__ == "__main__":
    main()
