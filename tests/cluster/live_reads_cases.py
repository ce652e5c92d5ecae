"""Reads of reference variables over parameter server and worker: a reader on the variable's task after an
update sees the update. A fetch has the updates of its step if the tasks are ours; among TensorFlow's the
tensor may leave the parameter server before they are done."""

import tensorflow as tf

from cluster import OURS, THEIRS, tasks
from support import close, v1

EACH = tasks({"ps:0": OURS, "worker:0": OURS}, {"ps:0": THEIRS, "worker:0": THEIRS},
             {"ps:0": OURS, "worker:0": THEIRS}, {"ps:0": THEIRS, "worker:0": OURS})
STEPS = 30


def weights(value, name="w"):
    with v1.device("/job:ps/task:0"):
        return v1.get_variable(name, initializer=tf.constant(value), use_resource=False)


@tasks({"ps:0": OURS, "worker:0": OURS})
def case_a_fetch_has_the_updates_of_its_step(cluster):
    with tf.Graph().as_default():
        w = weights([1.0, 2.0])
        with v1.device("/job:worker/task:0"):
            loss = tf.reduce_sum(w * w)
        with v1.device("/job:ps/task:0"):
            read = tf.identity(w)
        train = v1.train.GradientDescentOptimizer(0.25).minimize(loss)
        fetches = [train, w, read, loss]
        with v1.Session(cluster.target("worker:0")) as s:
            s.run(w.initializer)
            run = s.make_callable(fetches)
            for step in range(1, STEPS):
                got = s.run(fetches) if step % 2 else run()
                wanted = [0.5**step, 2 * 0.5**step]
                close(got[1], wanted)
                close(got[2], wanted)


@EACH
def case_readers_beside_the_variable_see_its_updates(cluster):
    with tf.Graph().as_default():
        count = weights(0, "count")
        with v1.device("/job:ps/task:0"):
            read = tf.identity(count)
        fed = v1.placeholder(tf.int32, [])
        with v1.device("/job:worker/task:0"), tf.control_dependencies([read]):
            one = fed + 0
        counted = v1.assign_add(count, one)
        with v1.device("/job:ps/task:0"), tf.control_dependencies([counted]):
            tens = read * 10
        with v1.Session(cluster.target("worker:0")) as s:
            s.run(count.initializer)
            for step in range(1, STEPS):
                assert s.run([tens, counted], {fed: 1}) == [10 * step, step]


@EACH
def case_a_loop_over_tasks_squares_a_variable(cluster):
    with tf.Graph().as_default():
        v = weights(2.0, "v")

        def body(i):
            with v1.device("/job:ps/task:0"):
                squared = v1.cond(i < 10, lambda: v1.assign(v, tf.square(v)), lambda: tf.identity(v))
            with v1.device("/job:worker/task:0"), tf.control_dependencies([squared]):
                return i + 1

        with v1.device("/job:worker/task:0"):
            end = v1.while_loop(lambda i: i < 4, body, [0])
        with v1.device("/job:ps/task:0"), tf.control_dependencies([end]):
            after = v.read_value()
        with v1.Session(cluster.target("worker:0")) as s:
            for _ in range(5):
                s.run(v.initializer)
                assert s.run([end, after]) == [4, 65536.0]
