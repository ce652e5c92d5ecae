"""Cost of a step: bytes between tasks, time with a large table, memory of received tensors."""

import pathlib
import time

import numpy as np
import tensorflow as tf

from cluster import OURS, tasks
from support import v1
from training_cases import setter

ONE_EACH = tasks({"ps:0": OURS, "worker:0": OURS})


def transfers(metadata):
    """Tensors transferred between tasks in a step: receiving job, name, bytes."""
    found = []
    for device in metadata.step_stats.dev_stats:
        job = device.device.split("/")[1].removeprefix("job:")
        for node in device.node_stats:
            name, _, number = node.node_name.rpartition("_R")
            if name and number.isdigit():
                sizes = [o.tensor_description.allocation_description.requested_bytes for o in node.output]
                found.append((job, name, sum(sizes)))
    return found


@ONE_EACH
def case_an_adam_step_moves_variables_and_gradients_and_no_slots(cluster):
    inputs, units = 300, 200
    with tf.Graph().as_default(), v1.device(setter(cluster, 0)):
        w = v1.get_variable("w", [inputs, units], use_resource=False)
        b = v1.get_variable("b", [units], initializer=v1.zeros_initializer(), use_resource=False)
        v1.get_variable("unused", [inputs, units], use_resource=False)
        x = tf.ones([8, inputs])
        loss = tf.reduce_mean(tf.square(tf.matmul(x, w) + b - 1.0))
        train = v1.train.AdamOptimizer(0.01).minimize(loss)
        metadata = v1.RunMetadata()
        with v1.Session(cluster.target("worker:0")) as s:
            s.run(v1.global_variables_initializer())
            first = s.run(loss)
            for _ in range(20):
                s.run(train)
            assert s.run(loss) < first
            s.run(train, options=v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE), run_metadata=metadata)
    moved = transfers(metadata)
    bytes_to = {job: sum(size for to, _, size in moved if to == job) for job in ("worker", "ps")}
    model = 4 * (inputs * units + units)
    # A few scalars and control tensors are transferred too.
    for job in ("worker", "ps"):
        assert model <= bytes_to[job] <= model + 64, (job, bytes_to, moved)
    large = sorted((to, size) for to, _, size in moved if size > 64)
    assert large == sorted((to, 4 * n) for to in ("worker", "ps") for n in (inputs * units, units)), moved
    assert not any("Adam" in name and size > 64 and to == "worker" for to, name, size in moved), moved


@ONE_EACH
def case_a_tensor_goes_to_a_task_once(cluster):
    with tf.Graph().as_default():
        with v1.device("/job:ps/task:0"):
            w = v1.get_variable("w", [1000], use_resource=False)
            read = tf.identity(w)
        with v1.device("/job:worker/task:0"):
            total = tf.add_n([read * float(i) for i in range(10)])
        with v1.device("/job:ps/task:0"):
            uses = [total + 1.0, total - 1.0, w + total]
            done = tf.group(*uses)
        metadata = v1.RunMetadata()
        with v1.Session(cluster.target("worker:0")) as s:
            s.run(v1.global_variables_initializer())
            s.run(done, options=v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE), run_metadata=metadata)
    large = sorted(to for to, _, size in transfers(metadata) if size == 4000)
    assert large == ["ps", "worker"], transfers(metadata)


def sparse_step_seconds(cluster, megabytes, rows=32, columns=64):
    """The time of a step that reads and changes some rows of a table; the minimum of several.

    A table of zeros would have no memory until its rows are first touched; this one has."""
    height = megabytes * 1_000_000 // (4 * columns)
    with tf.Graph().as_default():
        with v1.device("/job:ps/task:0"):
            table = v1.get_variable("table", [height, columns], initializer=v1.ones_initializer(),
                                    use_resource=False)
            ids = v1.placeholder(tf.int64, [rows])
            read = tf.gather(table, ids)
        with v1.device("/job:worker/task:0"):
            change = read * 0.5 - 1.0
        step = v1.scatter_sub(table, ids, change).op
        check = tf.reduce_sum(tf.gather(table, [0, height - 1]), 1)
        rng = np.random.RandomState(7)
        with v1.Session(cluster.target("worker:0")) as s:
            s.run(table.initializer)
            best = []
            for _ in range(120):
                chosen = rng.randint(1, height - 1, rows)
                begin = time.perf_counter()
                s.run(step, {ids: chosen})
                best.append(time.perf_counter() - begin)
            s.run(step, {ids: [0] + [height - 1] * (rows - 1)})
            ends = s.run(check)
            assert ends[0] == columns * 1.5 and ends[1] == columns * (1 + 0.5 * (rows - 1)), ends
    v1.Session.reset(cluster.target("worker:0"))
    return np.median(sorted(best)[:40])


@ONE_EACH
def case_rows_of_a_large_table_are_as_fast_as_of_a_small_one(cluster):
    small, large = sparse_step_seconds(cluster, 4), sparse_step_seconds(cluster, 256)
    # Copying 256 MB once would take a hundred times as long as such a step.
    assert large < 3 * small + 0.002, (small, large)


def peak_bytes(cluster, task):
    text = pathlib.Path(f"/proc/{cluster.processes[task].pid}/status").read_text()
    [line] = [line for line in text.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


@ONE_EACH
def case_weights_are_received_when_they_are_needed(cluster):
    """A chain of layers whose weights are on the parameter server: the worker never holds all of them."""
    layers, elements = 60, 1_000_000
    with tf.Graph().as_default():
        with v1.device("/job:ps/task:0"):
            weights = [v1.get_variable(f"w{i}", [elements], initializer=v1.constant_initializer(float(i)),
                                       use_resource=False) for i in range(layers)]
        with v1.device("/job:worker/task:0"):
            x = tf.zeros([elements])
            for w in weights:
                x = x + w
            end = x[:3]
        with v1.Session(cluster.target("worker:0")) as s:
            s.run(v1.global_variables_initializer())
            before = peak_bytes(cluster, "worker:0")
            for _ in range(3):
                assert s.run(end).tolist() == [layers * (layers - 1) / 2] * 3
    grown = peak_bytes(cluster, "worker:0") - before
    # Sixty weights are 240 MB; about fifteen are in flight or in use at a time.
    assert grown < 130e6, f"{grown / 1e6:.0f} MB for {layers} weights of {4 * elements / 1e6:.0f} MB"
