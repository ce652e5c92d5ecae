"""Training with variables on parameter servers and gradients on workers."""

import math

import numpy as np
import tensorflow as tf

from cluster import OURS, THEIRS, tasks
from support import Elsewhere, close, equal, v1

STEPS = 40


def setter(cluster, worker):
    spec = tf.train.ClusterSpec(cluster.spec())
    return v1.train.replica_device_setter(cluster=spec, worker_device=f"/job:worker/task:{worker}")


def counters_and_adds(use_resource):
    """Two variables, on two parameter servers, and the ops that add to them."""
    counters = [v1.get_variable(f"counter{i}", [4], tf.int64, v1.zeros_initializer(),
                                use_resource=use_resource) for i in range(2)]
    x = v1.placeholder(tf.int64, [4], name="x")
    adds = [v1.assign_add(c, x * (i + 1), use_locking=True) for i, c in enumerate(counters)]
    return counters, x, adds


def add_to_counters(cluster, worker, pipe):
    """Another worker's client, for each kind of variable."""
    for use_resource in [False, True]:
        with tf.Graph().as_default(), v1.device(setter(cluster, worker)):
            _, x, adds = counters_and_adds(use_resource)
            pipe.recv()
            with v1.Session(cluster.target(f"worker:{worker}")) as s:
                for step in range(STEPS):
                    s.run(adds, {x: np.arange(4) + step})
            pipe.send(("added", None))


def case_sums_are_exact(cluster):
    """Three clients add to the same variables, each through its own worker."""
    others = [Elsewhere(add_to_counters, cluster, worker) for worker in (1, 2)]
    for use_resource in [False, True]:
        with tf.Graph().as_default(), v1.device(setter(cluster, 0)):
            counters, x, adds = counters_and_adds(use_resource)
            with v1.Session(cluster.target("worker:0")) as s:
                s.run(v1.global_variables_initializer())
                for other in others:
                    other.say("go")
                for step in range(STEPS):
                    s.run(adds, {x: np.arange(4) + step})
                assert [other.result() for other in others] == ["added", "added"]
                once = sum(np.arange(4) + step for step in range(STEPS))
                equal(s.run(counters[0]), 3 * once)
                equal(s.run(counters[1]), 6 * once)
        v1.Session.reset(cluster.target("worker:0"))


def case_variables_are_where_they_were_put(cluster):
    with tf.Graph().as_default(), v1.device(setter(cluster, 0)):
        first = v1.get_variable("first", [2], use_resource=False)
        second = v1.get_variable("second", [2], use_resource=False)
        total = first + second
        with v1.Session(cluster.target("worker:0")) as s:
            names = [d.name for d in s.list_devices()]
            wanted = {f"/job:{j}/replica:0/task:{i}/device:CPU:0"
                      for j, count in (("ps", 2), ("worker", 3)) for i in range(count)}
            assert set(names) == wanted, names
            assert names[0].startswith("/job:worker/replica:0/task:0/"), names
            s.run(v1.global_variables_initializer())
            metadata = v1.RunMetadata()
            options = v1.RunOptions(output_partition_graphs=True,
                                    trace_level=v1.RunOptions.FULL_TRACE)
            s.run(total, options=options, run_metadata=metadata)
            place = {n.name: n.device for g in metadata.partition_graphs for n in g.node}
            assert place["first"].startswith("/job:ps/replica:0/task:0"), place
            assert place["second"].startswith("/job:ps/replica:0/task:1"), place
            assert place["add"].startswith("/job:worker/replica:0/task:0"), place
            traced = {d.device for d in metadata.step_stats.dev_stats}
            assert len(traced) == 3, traced


def regression(use_resource, optimizer):
    """y = x . [1, -2, 3] + 0.5, and the ops that train it."""
    x = v1.placeholder(tf.float32, [None, 3])
    y = v1.placeholder(tf.float32, [None, 1])
    w = v1.get_variable("w", [3, 1], use_resource=use_resource)
    b = v1.get_variable("b", [1], initializer=v1.zeros_initializer(), use_resource=use_resource)
    step = v1.train.get_or_create_global_step()
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w) + b - y))
    return x, y, w, b, loss, optimizer.minimize(loss, global_step=step)


def learn(cluster, worker, use_resource, optimizer, steps=200):
    rng = np.random.default_rng(worker)
    with tf.Graph().as_default(), v1.device(setter(cluster, worker)):
        x, y, w, b, loss, train = regression(use_resource, optimizer())
        with v1.Session(cluster.target(f"worker:{worker}")) as s:
            s.run(v1.global_variables_initializer())
            for _ in range(steps):
                inputs = rng.normal(size=(16, 3)).astype(np.float32)
                wanted = inputs @ np.array([[1], [-2], [3]], np.float32) + 0.5
                s.run(train, {x: inputs, y: wanted})
            close(s.run(w).ravel(), [1, -2, 3], 2e-2)
            close(s.run(b), [0.5], 2e-2)
            assert s.run(v1.train.get_global_step()) == steps


def case_gradient_descent(cluster):
    for use_resource in [False, True]:
        learn(cluster, 0, use_resource, lambda: v1.train.GradientDescentOptimizer(0.1))
        v1.Session.reset(cluster.target("worker:0"))


def case_adam(cluster):
    learn(cluster, 1, True, lambda: v1.train.AdamOptimizer(0.05), 400)


def shared_queue(target, pipe=None):
    with tf.Graph().as_default(), v1.device("/job:ps/task:0"):
        queue = v1.FIFOQueue(100, [tf.int32], [[]], shared_name="shared")
        with v1.device("/job:worker/task:1"):
            value = v1.placeholder(tf.int32, []) * 2
        put = queue.enqueue([value])
        with v1.Session(target) as s:
            for i in range(20):
                s.run(put, {value.op.inputs[0]: i})
    return "done"


def case_a_shared_queue(cluster):
    other = Elsewhere(shared_queue, cluster.target("worker:1"))
    with tf.Graph().as_default(), v1.device("/job:ps/task:0"):
        queue = v1.FIFOQueue(100, [tf.int32], [[]], shared_name="shared")
        with v1.device("/job:worker/task:0"):
            got = queue.dequeue() + 1
        with v1.Session(cluster.target("worker:0")) as s:
            values = [s.run(got) for _ in range(20)]
    equal(values, [2 * i + 1 for i in range(20)])
    assert other.result() == "done"


@tasks({"ps:0": OURS, "worker:0": THEIRS, "worker:1": OURS})
def case_fused_ops_of_a_tensorflow_master(cluster):
    """Its optimizer fuses MatMul, BiasAdd and activation into one op; our worker expands it."""
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(5, 4)).astype(np.float32), rng.normal(size=(4, 3)).astype(np.float32)
    c, image = rng.normal(size=3).astype(np.float32), rng.normal(size=(2, 6, 6, 4))
    kernel = rng.normal(size=(3, 3, 4, 3)).astype(np.float32)
    with tf.Graph().as_default(), v1.device("/job:worker/task:1"):
        x, w = v1.placeholder(tf.float32, [5, 4]), v1.placeholder(tf.float32, [4, 3])
        bias = v1.placeholder(tf.float32, [3])
        pictures = v1.placeholder(tf.float32, [2, 6, 6, 4])
        products = [act(tf.nn.bias_add(tf.matmul(x, w), bias))
                    for act in (tf.nn.relu, tf.nn.elu, tf.identity)]
        curves = [tf.nn.gelu(tf.nn.bias_add(tf.matmul(x, w), bias), approximate=a)
                  for a in (False, True)]
        maps = tf.nn.relu(tf.nn.bias_add(
            tf.nn.conv2d(pictures, v1.placeholder_with_default(kernel, kernel.shape), 1, "SAME"),
            bias))
        chained = tf.abs(tf.sqrt(tf.exp(tf.tanh(x))))
        with v1.Session(cluster.target("worker:0")) as s:
            feeds = {x: a, w: b, bias: c, pictures: image}
            got = s.run([*products, maps, chained], feeds)
            bent = [s.run(curve, feeds) for curve in curves]
    plain = a @ b + c
    close(got[0], np.maximum(plain, 0))
    close(got[1], np.where(plain > 0, plain, np.expm1(plain)))
    close(got[2], plain)
    assert got[3].shape == (2, 6, 6, 3) and got[3].min() == 0
    close(got[4], np.sqrt(np.exp(np.tanh(a))))
    erf = np.vectorize(math.erf)
    close(bent[0], plain / 2 * (1 + erf(plain / math.sqrt(2))))
    close(bent[1], plain / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (plain + 0.044715 * plain ** 3))))


# All eight combinations of implementations for parameter server, master and other worker; TensorFlow
# alone gives the expected values.
MIXES = [{"ps:0": ps, "worker:0": master, "worker:1": worker}
         for ps in (OURS, THEIRS) for master in (OURS, THEIRS) for worker in (OURS, THEIRS)]


@tasks(*MIXES)
def case_mixed(cluster):
    """A step over a parameter server, the master's task and another worker, in every combination."""
    spec = tf.train.ClusterSpec(cluster.spec())
    for use_resource in [False, True]:
        with tf.Graph().as_default():
            with v1.device(v1.train.replica_device_setter(cluster=spec)):
                w = v1.get_variable("w", [3, 1], use_resource=use_resource)
            x = v1.placeholder(tf.float32, [None, 3])
            with v1.device("/job:worker/task:1"):
                y = tf.matmul(x, w)
                loss = tf.reduce_mean(tf.square(y - tf.reduce_sum(x, 1, keepdims=True)))
            with v1.device("/job:worker/task:0"):
                names = tf.strings.join(["a", v1.placeholder_with_default("b", [])])
            with v1.device("/job:ps/task:0"):
                longer = tf.strings.join([names, "c"])
            train = v1.train.GradientDescentOptimizer(0.1).minimize(loss)
            with v1.Session(cluster.target("worker:0")) as s:
                s.run(v1.global_variables_initializer())
                rng = np.random.default_rng(1)
                for _ in range(100):
                    s.run(train, {x: rng.normal(size=(16, 3))})
                close(s.run(w).ravel(), [1, 1, 1], 1e-2)
                assert s.run(longer) == b"abc"
        v1.Session.reset(cluster.target("worker:0"))
    train_through_a_loop(cluster)


def train_through_a_loop(cluster):
    """The loss is at the end of a loop, one half of whose body lies on the parameter server and the
    other on a worker; so do the halves of the loop of its gradient."""
    v1.disable_control_flow_v2()
    for use_resource in [False, True]:
        with tf.Graph().as_default(), v1.device("/job:worker/task:0"):
            with v1.device("/job:ps/task:0"):
                w = v1.get_variable("w", [2], initializer=v1.constant_initializer([0.5, 1.5]),
                                    use_resource=use_resource)
                # TensorFlow cannot place the stack of a resource that is read in a loop on another task.
                weights = tf.identity(w)
            iterations = v1.placeholder(tf.int32, [])

            def body(i, y):
                with v1.device("/job:worker/task:1"):
                    z = y * weights
                with v1.device("/job:ps/task:0"):
                    return i + 1, z + 0.5
            y = v1.while_loop(lambda i, _: i < iterations, body, [0, tf.ones([2])])[1]
            loss = tf.reduce_sum(tf.square(y - 2.0))
            train = v1.train.GradientDescentOptimizer(0.02).minimize(loss)
            with v1.Session(cluster.target("worker:0")) as s:
                s.run(v1.global_variables_initializer())
                wanted = np.array([0.5, 1.5])
                for step in range(30):
                    got, _ = s.run([loss, train], {iterations: step % 4})
                    error, wanted = descended(wanted, step % 4)
                    close(got, error, 1e-3)
                close(s.run(w), wanted, 1e-3)
        v1.Session.reset(cluster.target("worker:0"))


def descended(w, iterations):
    """The loss of `train_through_a_loop`, and the weights after its step."""
    y, slope = np.ones(2), np.zeros(2)
    for _ in range(iterations):
        y, slope = y * w + 0.5, slope * w + y
    return np.sum((y - 2) ** 2), w - 0.02 * 2 * (y - 2) * slope


@tasks(*MIXES)
def case_a_read_ordered_by_another_task(cluster):
    """A read of a reference variable sees an update that is ordered before it only through a worker."""
    with tf.Graph().as_default():
        with v1.device("/job:ps/task:0"):
            v = v1.get_variable("v", [], initializer=v1.zeros_initializer(), use_resource=False)
            update = v1.assign_add(v, 1.0)
        with v1.device("/job:worker/task:1"):
            passed = tf.identity(update) * 0.0
        with v1.device("/job:ps/task:0"):
            # The variable's own Identity may run before the update; this one runs after it.
            seen = tf.add(v, passed)
        with v1.device("/job:worker/task:0"):
            got = tf.identity(seen)
        with v1.Session(cluster.target("worker:0")) as s:
            s.run(v1.global_variables_initializer())
            equal([s.run(got) for _ in range(5)], [1, 2, 3, 4, 5])
