"""TensorFlow's client of one worker behind the peers' line protocol (../peers/README.md).

    python client.py grpc://HOST:PORT WORKER

A row is a graph with its state on `/job:ps/task:0` and its computation on the worker; a run is one step.
"""

import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "peers"))

import protocol
import tensorflow as tf

v1 = tf.compat.v1
v1.disable_v2_behavior()
PS = "/job:ps/task:0"
# Rows of the table that a sparse step reads and updates, and numbers per row.
ROWS, COLUMNS = 32, 64
# Layers of a model whose weights are all on the parameter server, which a step reads.
LAYERS, UNITS = 8, 256


def null_step(worker, _):
    """The smallest training step: a worker adds to a scalar on the parameter server."""
    with tf.device(PS):
        v = v1.get_variable("v", [], initializer=v1.zeros_initializer(), use_resource=False)
    with tf.device(worker):
        one = tf.constant(1.0)
    return v1.assign_add(v, one).op


def sparse_step(worker, megabytes):
    """Some rows of a table are read, and updated with the worker's result.

    The table is initialized with nonzero values: the pages of a table of zeros would not be allocated until a
    row is first written."""
    rows = megabytes * 1_000_000 // (4 * COLUMNS)
    with tf.device(PS):
        table = v1.get_variable("table", [rows, COLUMNS], initializer=v1.ones_initializer(), use_resource=False)
    with tf.device(worker):
        ids = tf.random.uniform([ROWS], maxval=rows, dtype=tf.int64)
        with tf.device(PS):
            read = tf.gather(table, ids)
        change = read * 0.1 + 1.0
    return v1.scatter_sub(table, ids, change).op


def pull_step(worker, _):
    """A model's forward pass on the worker, with weights on the parameter server."""
    with tf.device(PS):
        weights = [v1.get_variable(f"w{i}", [UNITS, UNITS], use_resource=False) for i in range(LAYERS)]
    with tf.device(worker):
        x = tf.ones([16, UNITS])
        for w in weights:
            x = tf.nn.relu(tf.matmul(x, w))
        return tf.reduce_sum(x).op


STEPS = {"null": null_step, "sparse": sparse_step, "pull": pull_step}


class Client:
    def __init__(self, target, worker):
        self.target, self.worker = target, f"/job:worker/task:{worker}"
        self.is_chief, self.session = worker == 0, None

    def prepare(self, row):
        """A row is `NAME[/SIZE][/COPY]`; the chief initializes the variables."""
        name, _, size = row.partition("/")
        if self.session:
            self.session.close()
            self.session = None
        if name == "reset":
            v1.Session.reset(self.target)
            return None, "ready 1"
        with tf.Graph().as_default() as graph:
            step = STEPS[name](self.worker, int(size or 0))
            start = v1.global_variables_initializer()
        self.session = v1.Session(self.target, graph=graph)
        if self.is_chief:
            self.session.run(start)

        def run():
            self.session.run(step)
        return run, "ready 1"


if __name__ == "__main__":
    protocol.serve(Client(sys.argv[1], int(sys.argv[2])).prepare)
