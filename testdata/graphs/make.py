"""Writes the graphs of this folder and what TensorFlow computes with them.

Run with TensorFlow 2.21: python testdata/graphs/make.py. Each NAME.pb (or .pbtxt) has a NAME.json
with the arguments of `thalweg run` and the fetched tensors that it must print.
"""

import json
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
HERE = os.path.dirname(os.path.abspath(__file__))


def listed(array):
    if array.dtype == object:
        return np.vectorize(lambda b: b.decode())(array).tolist()
    return array.tolist()


def save(name, graph, feeds, fetches, init=None, text=False):
    """Writes the graph and what a session makes of it; `feeds` by name as nested lists."""
    file = name + (".pbtxt" if text else ".pb")
    tf.io.write_graph(graph.as_graph_def(), HERE, file, as_text=text)
    with v1.Session(graph=graph) as session:
        if init:
            session.run(init)
        values = session.run(
            {fetch: fetch + ":0" for fetch in fetches},
            {feed + ":0": value for feed, value in feeds.items()},
        )
    args = [f"--feed={feed}={json.dumps(value)}" for feed, value in feeds.items()]
    args += [f"--init={init}"] if init else []
    args += [f"--fetch={fetch}" for fetch in fetches]
    expected = {
        fetch: {"shape": list(np.shape(value)), "values": listed(np.asarray(value))}
        for fetch, value in values.items()
    }
    with open(os.path.join(HERE, name + ".json"), "w") as out:
        json.dump({"graph": file, "args": args, "fetches": expected}, out, indent=1)
        out.write("\n")


def dense(x, units, activation, random):
    weights = random.standard_normal((x.shape[-1], units)).astype(np.float32)
    bias = random.standard_normal(units).astype(np.float32)
    return activation(tf.nn.bias_add(tf.matmul(x, weights), bias))


def mlp(name, text):
    random = np.random.default_rng(1)
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None, 4], name="x")
        keep = v1.placeholder(tf.float32, [], name="keep")
        hidden = dense(x, 8, tf.nn.relu, random) * keep
        logits = dense(hidden, 3, tf.identity, random)
        tf.nn.softmax(logits, name="probabilities")
        tf.argmax(logits, axis=1, name="class")
    feeds = {"x": random.standard_normal((5, 4)).round(3).tolist(), "keep": 0.5}
    save(name, graph, feeds, ["probabilities", "class"], text=text)


def variables():
    with tf.Graph().as_default() as graph:
        v1.disable_resource_variables()
        old = v1.get_variable("old", initializer=[1.0, 2.0])
        v1.enable_resource_variables()
        new = v1.get_variable("new", initializer=[[3.0], [4.0]])
        step = v1.assign_add(old, [10.0, 10.0])
        tf.matmul(tf.reshape(tf.identity(step), [1, 2]), new, name="y")
        v1.global_variables_initializer()
    save("variables", graph, {}, ["y"], init="init")


def functions():
    with tf.Graph().as_default() as graph:

        @tf.function
        def square_plus(a, b):
            return a * a + b

        @tf.function
        def outer(a):
            return square_plus(a, 1.0) - square_plus(a, -1.0), a

        x = v1.placeholder(tf.float32, [3], name="x")
        difference, same = outer(x)
        tf.add(difference, same, name="y")
    save("functions", graph, {"x": [1.0, -2.0, 0.5]}, ["y"])


def strings():
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.string, [None], name="x")
        tf.concat([x, tf.constant(["ende", "schl\u00fc\u00dfe"])], axis=0, name="joined")
        tf.equal(x, "b", name="is_b")
    save("strings", graph, {"x": ["a", "b"]}, ["joined", "is_b"])


mlp("mlp", text=False)
mlp("mlp_text", text=True)
variables()
functions()
strings()
