"""Tasks that restart at another address."""

import shutil
import tempfile
import time

import tensorflow as tf

from cluster import OURS, tasks
from support import equal, raises, v1

PS0, W0 = "/job:ps/task:0", "/job:worker/task:0"
LATE = {"ps:0": "late " + OURS, "worker:0": "late " + OURS}


def start(cluster):
    cluster.write_file()
    cluster.start("ps:0")
    cluster.start("worker:0")


def restart_at_new_address(cluster):
    """Kills the parameter server and starts it at another address, which the cluster file names."""
    cluster.kill("ps:0")
    before = cluster.addresses["ps:0"]
    cluster.move("ps:0")
    assert cluster.addresses["ps:0"] != before
    cluster.write_file()
    cluster.start("ps:0")


@tasks(LATE)
def case_a_program_continues_with_a_task_that_moved(cluster):
    """MonitoredTrainingSession finds the parameter server at its new address, and restores its checkpoint."""
    start(cluster)
    folder = tempfile.mkdtemp(prefix="thalweg-moved-")
    try:
        with tf.Graph().as_default():
            with v1.device(PS0):
                step = v1.train.get_or_create_global_step()
                v = v1.get_variable("v", [], tf.float32, v1.zeros_initializer())
            with v1.device(W0):
                one = tf.constant(1.0) + 0.0
            train = tf.group(v1.assign_add(v, one), v1.assign_add(step, 1))
            config = v1.ConfigProto(device_filters=["/job:ps", "/job:worker/task:0"])
            seen = []
            with v1.train.MonitoredTrainingSession(
                    cluster.target("worker:0"), checkpoint_dir=folder, save_checkpoint_secs=None,
                    save_checkpoint_steps=10, config=config) as session:
                while not seen or seen[-1] < 60:
                    session.run(train)
                    seen.append(int(session.run(step)))
                    if len(seen) == 25:
                        restart_at_new_address(cluster)
                equal(session.run(v), float(seen[-1]))
            # It restored the last checkpoint, once.
            back = [(a, b) for a, b in zip(seen, seen[1:]) if b != a + 1]
            equal(len(back), 1)
            assert back[0][0] == 25 and 15 <= back[0][1] <= 26, back
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@tasks(LATE)
def case_a_step_that_waits_for_a_task_that_moved(cluster):
    """Calls to the old address fail; a new session uses the new one, within seconds."""
    start(cluster)
    with tf.Graph().as_default():
        with v1.device(PS0):
            v = v1.get_variable("v", [], tf.int32, v1.constant_initializer(21), use_resource=False)
        with v1.device(W0):
            z = v + 1
        session = v1.Session(cluster.target("worker:0"))
        session.run(v.initializer)
        equal(session.run(z), 22)
        restart_at_new_address(cluster)
        with raises((tf.errors.UnavailableError, tf.errors.AbortedError)):
            session.run(z)
        session.close()
        begin = time.monotonic()
        with v1.Session(cluster.target("worker:0")) as again:
            again.run(v.initializer)
            equal(again.run(z), 22)
        assert time.monotonic() - begin < 3, "it took long to find the task"
