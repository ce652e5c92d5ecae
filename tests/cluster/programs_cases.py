"""The classic programs of distributed TensorFlow 1."""

import numpy as np
import tensorflow as tf

from cluster import OURS, THEIRS, tasks, transports
from support import Elsewhere, close, equal, v1

PS0, PS1, W0, W1 = ("/job:ps/task:0", "/job:ps/task:1", "/job:worker/task:0", "/job:worker/task:1")
WEIGHTS = np.array([[1.0], [-2.0], [3.0]], np.float32)
WORKERS = 3


def setter(cluster, worker):
    spec = tf.train.ClusterSpec(cluster.spec())
    return v1.train.replica_device_setter(cluster=spec, worker_device=f"/job:worker/task:{worker}")


def batches(seed):
    rng = np.random.default_rng(seed)
    while True:
        x = rng.normal(size=(16, 3)).astype(np.float32)
        yield x, x @ WEIGHTS


def loss_of(x, y, use_resource):
    w = v1.get_variable("w", [3, 1], initializer=v1.zeros_initializer(), use_resource=use_resource)
    return w, tf.reduce_mean(tf.square(tf.matmul(x, w) - y))


def synchronous_worker(cluster, worker, use_resource, steps, pipe=None):
    """One replica of synchronous training; every step takes all replicas' gradients."""
    target = cluster.target(f"worker:{worker}")
    with tf.Graph().as_default(), v1.device(setter(cluster, worker)):
        x, y = v1.placeholder(tf.float32, [None, 3]), v1.placeholder(tf.float32, [None, 1])
        w, loss = loss_of(x, y, use_resource)
        step = v1.train.get_or_create_global_step()
        optimizer = v1.train.SyncReplicasOptimizer(
            v1.train.GradientDescentOptimizer(0.05), replicas_to_aggregate=WORKERS,
            total_num_replicas=WORKERS)
        train = optimizer.minimize(loss, global_step=step)
        hooks = [optimizer.make_session_run_hook(worker == 0), v1.train.StopAtStepHook(steps)]
        source = batches(worker)
        with v1.train.MonitoredTrainingSession(
                target, is_chief=worker == 0, hooks=hooks, checkpoint_dir=None,
                max_wait_secs=60, stop_grace_period_secs=2) as s:
            while not s.should_stop():
                a, b = next(source)
                values = s.run([train, w, step], {x: a, y: b})
    return values[1].ravel().tolist(), int(values[2])


def synchronous_training(cluster, use_resource):
    """SyncReplicasOptimizer in MonitoredTrainingSessions, one client for each worker."""
    others = [Elsewhere(synchronous_worker, cluster, worker, use_resource, 60)
              for worker in range(1, WORKERS)]
    weights, step = synchronous_worker(cluster, 0, use_resource, 60)
    close(weights, WEIGHTS.ravel(), 0.05)
    assert step >= 59, step
    for other in others:
        other.kill()


def case_synchronous_training_of_reference_variables(cluster):
    synchronous_training(cluster, False)


def case_synchronous_training_of_resource_variables(cluster):
    synchronous_training(cluster, True)


def asynchronous_worker(cluster, worker, steps, pipe=None):
    with tf.Graph().as_default(), v1.device(setter(cluster, worker)):
        x, y = v1.placeholder(tf.float32, [None, 3]), v1.placeholder(tf.float32, [None, 1])
        w, loss = loss_of(x, y, True)
        step = v1.train.get_or_create_global_step()
        train = v1.train.AdagradOptimizer(0.5).minimize(loss, global_step=step)
        source = batches(worker)
        with v1.train.MonitoredTrainingSession(
                cluster.target(f"worker:{worker}"), is_chief=worker == 0, checkpoint_dir=None,
                max_wait_secs=60) as s:
            for _ in range(steps):
                a, b = next(source)
                s.run(train, {x: a, y: b})
            values = s.run([w, step])
        return values[0].ravel().tolist(), int(values[1])


def case_asynchronous_training(cluster):
    """Every step counts once, on whichever worker."""
    others = [Elsewhere(asynchronous_worker, cluster, worker, 100) for worker in range(1, WORKERS)]
    asynchronous_worker(cluster, 0, 100)
    for other in others:
        other.result()
    weights, step = asynchronous_worker(cluster, 1, 1)
    assert step == 100 * WORKERS + 1, step
    close(weights, WEIGHTS.ravel(), 0.05)


def case_towers_in_one_graph(cluster):
    """In-graph replication: one client, one tower on each worker, gradients averaged on ps."""
    with tf.Graph().as_default():
        with v1.device(PS0):
            w = v1.get_variable("w", [3, 1], initializer=v1.zeros_initializer(), use_resource=True)
        inputs, gradients = [], []
        for worker in range(WORKERS):
            with v1.device(f"/job:worker/task:{worker}"):
                x, y = v1.placeholder(tf.float32, [None, 3]), v1.placeholder(tf.float32, [None, 1])
                inputs += [x, y]
                loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - y))
                gradients.append(v1.gradients(loss, [w])[0])
        with v1.device(PS0):
            mean = tf.add_n(gradients) / float(WORKERS)
            train = v1.train.GradientDescentOptimizer(0.1).apply_gradients([(mean, w)])
        with v1.Session(cluster.target("worker:0")) as s:
            s.run(v1.global_variables_initializer())
            sources = [batches(worker) for worker in range(WORKERS)]
            expected = np.zeros((3, 1), np.float32)
            for _ in range(60):
                pairs = [next(source) for source in sources]
                s.run(train, dict(zip(inputs, [value for pair in pairs for value in pair], strict=True)))
                slopes = [2 * a.T @ (a @ expected - b) / 16 for a, b in pairs]
                expected -= 0.1 * sum(slopes) / WORKERS
            close(s.run(w), expected, 1e-4)


def case_embeddings_over_parameter_servers(cluster):
    """A table partitioned over two tasks: a step reads and updates only the rows that it names."""
    with tf.Graph().as_default(), v1.device(setter(cluster, 0)):
        table = v1.get_variable("table", [10, 4], initializer=v1.zeros_initializer(),
                                partitioner=v1.fixed_size_partitioner(2), use_resource=True)
        ids = v1.placeholder(tf.int64, [None])
        rows = v1.nn.embedding_lookup(table, ids, partition_strategy="div")
        train = v1.train.GradientDescentOptimizer(1.0).minimize(tf.reduce_sum(rows))
        with v1.Session(cluster.target("worker:0")) as s:
            s.run(v1.global_variables_initializer())
            s.run(train, {ids: [1, 7, 7]})
            s.run(train, {ids: [9, 1]})
            wanted = np.zeros((10, 4), np.float32)
            for i in [1, 7, 7, 9, 1]:
                wanted[i] -= 1
            equal(s.run(rows, {ids: np.arange(10)}), wanted)


def case_filters_hide_tasks(cluster):
    config = v1.ConfigProto(device_filters=["/job:ps/task:0", "/job:worker/task:0"])
    with tf.Graph().as_default(), v1.Session(cluster.target("worker:0"), config=config) as s:
        names = {d.name for d in s.list_devices()}
        assert names == {f"/job:{j}/replica:0/task:0/device:CPU:0" for j in ("ps", "worker")}


def case_isolated_sessions(cluster):
    """Each of two isolated sessions has its own variable on another task."""
    config = v1.ConfigProto(isolate_session_state=True)
    with tf.Graph().as_default(), v1.device(PS0):
        v = v1.get_variable("v", [], initializer=v1.zeros_initializer(), use_resource=True)
        add = v1.assign_add(v, 1.0)
        sessions = [v1.Session(cluster.target("worker:0"), config=config) for _ in range(2)]
        for i, s in enumerate(sessions):
            s.run(v.initializer)
            for _ in range(i + 1):
                s.run(add)
        equal([s.run(v) for s in sessions], [1, 2])


@transports("auto", "grpc")
def case_large_tensors(cluster):
    """Forty megabytes in each direction, and many small tensors beside them."""
    with tf.Graph().as_default():
        with v1.device(PS0):
            v = v1.get_variable("v", [10_000_000], initializer=v1.zeros_initializer(),
                                use_resource=False)
        with v1.device(W1):
            ones = tf.ones([10_000_000])
        add = v1.assign_add(v, ones).op
        with v1.device(W0):
            total = tf.reduce_sum(tf.cast(v, tf.float64))
        small = []
        for i in range(50):
            with v1.device([PS0, PS1, W1][i % 3]):
                small.append(tf.fill([i % 5], float(i)))
        with v1.device(W0):
            joined = tf.concat(small, 0)
        with v1.Session(cluster.target("worker:0")) as s:
            s.run(v1.global_variables_initializer())
            for _ in range(3):
                s.run([add, joined])
            equal(s.run(total), 30_000_000)
            equal(s.run(joined), [float(i) for i in range(50) for _ in range(i % 5)])
        word = "tensors of /job:worker/replica:0/task:1 come by a unix socket"
        assert (word in cluster.log("ps:0")) == (cluster.transport == "auto"), cluster.log("ps:0")


@tasks({"ps:0": OURS, "worker:0": OURS}, {"ps:0": THEIRS, "worker:0": OURS},
       {"ps:0": OURS, "worker:0": THEIRS})
def case_bfloat16_transfers(cluster):
    """With enable_bfloat16_sendrecv, floats lose their lower halves between tasks."""
    options = v1.GraphOptions(enable_bfloat16_sendrecv=True)
    config = v1.ConfigProto(graph_options=options)
    with tf.Graph().as_default():
        value = np.array([1.0, 3.14159265, 1e-3], np.float32)
        with v1.device(PS0):
            x = v1.placeholder(tf.float32, [3])
            there = tf.abs(x)
        with v1.device(W0):
            y = tf.identity(there)
        with v1.Session(cluster.target("worker:0"), config=config) as s:
            bits = value.view(np.uint32) & 0xFFFF0000
            equal(s.run(y, {x: value}), bits.view(np.float32))


@tasks({"ps:0": OURS, "worker:0": OURS}, {"ps:0": THEIRS, "worker:0": OURS})
def case_bfloat16_transfers_of_single_edges(cluster):
    """Only outputs of the marked node lose their lower halves, and only between tasks."""
    with tf.Graph().as_default():
        value = np.array([1.0, 3.14159265, 1e-3], np.float32)
        with v1.device(PS0):
            x = v1.placeholder(tf.float32, [3])
            chosen, other = tf.abs(x), tf.negative(x)
            mark = v1.AttrValue(b=True)
            chosen.op._set_attr("_thalweg_bfloat16_sends", mark)
            stays = chosen * 2.0
            whole = tf.cast(chosen, tf.float64)
            whole.op._set_attr("_thalweg_bfloat16_sends", mark)
        with v1.device(W0):
            got = [tf.identity(y) for y in (chosen, other, stays, whole)]
        with v1.Session(cluster.target("worker:0")) as s:
            cut = (value.view(np.uint32) & 0xFFFF0000).view(np.float32)
            for result, wanted in zip(s.run(got, {x: value}), [cut, -value, value * 2, value], strict=True):
                equal(result, wanted)


DTYPES = [tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.int8, tf.int16, tf.int32, tf.int64,
          tf.uint8, tf.uint16, tf.uint32, tf.uint64, tf.bool, tf.complex64, tf.complex128]


@tasks({"ps:0": OURS, "worker:0": OURS}, {"ps:0": THEIRS, "worker:0": OURS},
       {"ps:0": OURS, "worker:0": THEIRS})
def case_every_dtype_is_transferred(cluster):
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [None, 2])
        there, back = [], []
        for dtype in DTYPES:
            with v1.device(PS0):
                there.append(tf.identity(tf.cast(x, dtype)))
            with v1.device(W0):
                back.append(tf.identity(there[-1]))
        with v1.device(PS0):
            words = tf.strings.as_string(tf.cast(x, tf.int32))
        with v1.device(W0):
            words = tf.strings.join([words, words])
        with v1.Session(cluster.target("worker:0")) as s:
            for value in [np.array([[1, 0], [2, 3]]), np.zeros((0, 2))]:
                for dtype, got in zip(DTYPES, s.run(back, {x: value}), strict=True):
                    equal(got.astype(np.complex128), value.astype(dtype.as_numpy_dtype)
                          .astype(np.complex128))
                wanted = np.array([str(int(v)) * 2 for v in value.ravel()], object)
                got = s.run(words, {x: value})
                assert [w.decode() for w in got.ravel()] == list(wanted)
