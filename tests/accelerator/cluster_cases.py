"""Clusters in which some tasks have an accelerator: parameter servers on CPUs, TensorFlow's own tasks, towers."""

import contextlib
import pathlib
import sys

import numpy as np
import tensorflow as tf

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "cluster"))

from cluster import OURS, THEIRS, Cluster  # noqa: E402

v1 = tf.compat.v1
STEPS = 1000


@contextlib.contextmanager
def cluster(arguments, kinds, accelerated=(), count=1):
    """Tasks, some of which have `count` accelerators each."""
    tasks = Cluster(arguments.server, kinds, start=False)
    flags = ["--accelerator", f"{arguments.plugin}=GPU:{count}"]
    tasks.flags = {task: flags for task in accelerated}
    try:
        tasks.start_all()
        yield tasks
        assert not tasks.crashes(), tasks.crashes()
    finally:
        tasks.stop()


def model():
    """A net whose loss falls, from seeds."""
    rng = np.random.RandomState(3)
    x, y = v1.placeholder(tf.float32, [None, 12]), v1.placeholder(tf.int64, [None])
    w1 = v1.get_variable("w1", initializer=rng.randn(12, 24).astype(np.float32) * 0.3)
    b1 = v1.get_variable("b1", initializer=np.zeros(24, np.float32), use_resource=True)
    w2 = v1.get_variable("w2", initializer=rng.randn(24, 4).astype(np.float32) * 0.3, use_resource=True)
    logits = tf.matmul(tf.nn.tanh(tf.matmul(x, w1) + b1), w2)
    return x, y, tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))


def batch(rng, size=16):
    x = rng.randn(size, 12).astype(np.float32)
    return x, np.abs(x[:, :4]).argmax(1).astype(np.int64)


def losses_of(target, steps, place=None):
    rng = np.random.RandomState(5)
    with tf.Graph().as_default(), v1.device(place):
        x, y, loss = model()
        step = v1.train.get_or_create_global_step()
        train = v1.train.MomentumOptimizer(0.05, 0.9).minimize(loss, global_step=step)
        with v1.Session(target) as session:
            session.run(v1.global_variables_initializer())
            losses = []
            for _ in range(steps):
                xs, ys = batch(rng)
                losses.append(session.run([loss, train], {x: xs, y: ys})[0])
            assert session.run(step) == steps
            return np.array(losses)


def ran(tasks, task):
    """Programs that the accelerators of a task compiled and ran."""
    _, status = tasks.status()
    found = {t["task"].replace("/", ":"): t.get("accelerators", []) for t in status["tasks"]}[task]
    return [(a["compilations"], a["executions"]) for a in found]


def case_a_thousand_steps_with_a_cpu_ps_end_with_the_loss_of_the_cpu(arguments):
    place = v1.train.replica_device_setter(ps_tasks=1, worker_device="/job:worker/task:0")
    kinds = {"ps:0": OURS, "worker:0": OURS}
    with cluster(arguments, kinds) as tasks:
        wanted = losses_of(tasks.target("worker:0"), STEPS, place)
    with cluster(arguments, kinds, ["worker:0"]) as tasks:
        got = losses_of(tasks.target("worker:0"), STEPS, place)
        [(compiled, executed)] = ran(tasks, "worker:0")
        assert executed >= STEPS and compiled < 20, (compiled, executed)
        assert ran(tasks, "ps:0") == []
    assert abs(got[-1] - wanted[-1]) < 1e-3, (got[-1], wanted[-1])
    np.testing.assert_allclose(got, wanted, atol=1e-3)
    assert wanted[-50:].mean() < 0.5 * wanted[:50].mean(), (wanted[:50].mean(), wanted[-50:].mean())


def case_tensorflows_ps_and_a_worker_without_an_accelerator(arguments):
    """Two workers share a model on TensorFlow's own parameter server; one of them has an accelerator."""
    kinds = {"ps:0": THEIRS, "worker:0": OURS, "worker:1": OURS}
    with cluster(arguments, kinds, ["worker:0"]) as tasks:
        losses = {}
        for worker in (0, 1):
            place = v1.train.replica_device_setter(ps_tasks=1, worker_device=f"/job:worker/task:{worker}")
            losses[worker] = losses_of(tasks.target(f"worker:{worker}"), 60, place)
        [(_, executed)] = ran(tasks, "worker:0")
        assert executed >= 60 and ran(tasks, "worker:1") == [], executed
        np.testing.assert_allclose(losses[0], losses[1], atol=1e-3)
        # One session over both: a product on the accelerator of one, a sum on the CPU of the other.
        with tf.Graph().as_default(), v1.Session(tasks.target("worker:1")) as session:
            with tf.device("/job:worker/task:0/device:GPU:0"):
                product = tf.matmul(v1.placeholder_with_default(np.eye(3, dtype=np.float32), [3, 3]), np.ones((3, 3), np.float32))
            with tf.device("/job:worker/task:1"):
                total = tf.reduce_sum(product)
            assert session.run(total) == 9
            with tf.device("/job:worker/task:1/device:GPU:0"):
                absent = tf.identity(total)
            try:
                session.run(absent)
            except tf.errors.InvalidArgumentError as e:
                assert "/job:worker/task:1/device:GPU:0" in str(e), e
            else:
                raise AssertionError("a GPU that the task does not have was accepted")


def tower_losses(target, towers, steps, config=None):
    """Towers as TensorFlow's guides build them: the mean of all gradients updates variables on the CPU or the first
    device."""
    rng = np.random.RandomState(5)
    with tf.Graph().as_default():
        optimizer = v1.train.AdamOptimizer(0.01)
        x, y = v1.placeholder(tf.float32, [32, 12]), v1.placeholder(tf.int64, [32])
        xs, ys = tf.split(x, len(towers)), tf.split(y, len(towers))
        losses, gradients = [], []
        seeds = np.random.RandomState(3)
        w1, w2 = seeds.randn(12, 24).astype(np.float32) * 0.3, seeds.randn(24, 4).astype(np.float32) * 0.3
        for i, device in enumerate(towers):
            with tf.device(device), v1.variable_scope("net", reuse=i > 0):
                hidden = tf.nn.tanh(tf.matmul(xs[i], v1.get_variable("w1", initializer=w1)))
                logits = tf.matmul(hidden, v1.get_variable("w2", initializer=w2))
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=ys[i], logits=logits))
                losses.append(loss)
                gradients.append(optimizer.compute_gradients(loss))
        means = [(tf.add_n([g for g, _ in pairs]) / len(towers), pairs[0][1])
                 for pairs in zip(*gradients, strict=True)]
        train, loss = optimizer.apply_gradients(means), tf.add_n(losses) / len(towers)
        with v1.Session(target, config=config) as session:
            session.run(v1.global_variables_initializer())
            found = []
            for _ in range(steps):
                feed = dict(zip((x, y), batch(rng, 32), strict=True))
                found.append(session.run([loss, train], feed)[0])
            return np.array(found)


def case_towers_over_the_devices_of_a_task(arguments):
    with cluster(arguments, {"worker:0": OURS}, ["worker:0"], count=4) as tasks:
        target = tasks.target("worker:0")
        wanted = tower_losses(target, ["/cpu:0"], 100)
        for count in (2, 4):
            before = ran(tasks, "worker:0")
            got = tower_losses(target, [f"/gpu:{i}" for i in range(count)], 100)
            np.testing.assert_allclose(got, wanted, atol=1e-3)
            after = ran(tasks, "worker:0")
            steps = [a[1] - b[1] for a, b in zip(after, before, strict=True)]
            assert all(n >= 100 for n in steps[:count]), steps
            # A few programs for each device, however many steps.
            assert all(a[0] - b[0] < 20 for a, b in zip(after, before, strict=True)), (before, after)
    assert wanted[-1] < wanted[0], wanted
