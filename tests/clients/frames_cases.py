"""Branches and loops as TensorFlow 1 writes them: frames."""

import time

import numpy as np
import tensorflow as tf
from support import close, fresh, raises, session, v1
from tensorflow.core.protobuf import config_pb2


def case_a_loop_from_a_feed(target):
    with session(target) as s:
        n = v1.placeholder(tf.int32, [])
        i, total = v1.while_loop(
            lambda i, t: i < n, lambda i, t: (i + 1, t + i * i), [tf.constant(0), tf.constant(0)])
        for limit in (0, 1, 5, 1000):
            got = s.run([i, total], {n: limit})
            assert got == [limit, sum(k * k for k in range(limit))], (limit, got)


def case_loops_in_loops(target):
    with session(target) as s:
        n = v1.placeholder(tf.int32, [])

        def outer(i, count):
            inner = lambda j, c: (j + 1, c + tf.cast(tf.equal(i % (j + 1), 0), tf.int32))
            return i + 1, v1.while_loop(lambda j, c: j < i, inner, [tf.constant(0), count])[1]

        _, divisors = v1.while_loop(lambda i, c: i < n, outer, [tf.constant(1), tf.constant(0)])
        wanted = sum(i % d == 0 for i in range(1, 30) for d in range(1, i + 1))
        assert s.run(divisors, {n: 30}) == wanted


def case_branches(target):
    with session(target) as s:
        x = v1.placeholder(tf.float32, [])
        y = v1.cond(x > 0, lambda: tf.sqrt(x), lambda: v1.cond(x < -10, lambda: x * 0, lambda: -x))
        for value, wanted in ((4.0, 2.0), (-3.0, 3.0), (-20.0, 0.0)):
            close(s.run(y, {x: value}), wanted)
        picked = v1.case([(x < 1, lambda: tf.constant("few")), (x < 9, lambda: tf.constant("some"))],
                         default=lambda: tf.constant("many"))
        assert [s.run(picked, {x: v}) for v in (0.0, 5.0, 50.0)] == [b"few", b"some", b"many"]


def case_a_loop_in_a_branch_in_a_loop(target):
    with session(target) as s:
        def body(i, total):
            spin = lambda: v1.while_loop(lambda t: t < 10 * i, lambda t: t + 3, [total])
            return i + 1, v1.cond(i > 2, spin, lambda: total - 1)

        got = s.run(v1.while_loop(lambda i, t: i < 6, body, [tf.constant(0), tf.constant(0)]))
        total = 0
        for i in range(6):
            if i > 2:
                while total < 10 * i:
                    total += 3
            else:
                total -= 1
        assert got[1] == total, (got, total)


def case_newtons_square_root(target):
    with session(target) as s:
        a = v1.placeholder(tf.float64, [None])
        step = lambda x: (x + a / x) / 2
        far = lambda x: tf.reduce_any(tf.abs(x * x - a) > 1e-9)
        root = v1.while_loop(far, step, [tf.ones_like(a)])
        close(s.run(root, {a: [2.0, 9.0, 1e4]}), [2 ** 0.5, 3.0, 100.0], 1e-9)


def case_updates_only_where_the_branch_goes(target):
    fresh(target)
    with session(target) as s:
        go = v1.placeholder(tf.bool, [])
        v = v1.get_variable("v", initializer=[1.0, 2.0], use_resource=False)
        r = v1.get_variable("r", initializer=10, use_resource=True)
        s.run(v1.global_variables_initializer())
        update = v1.cond(go, lambda: tf.group(v.assign_add([1.0, 1.0]), r.assign_sub(1)),
                         lambda: tf.no_op())
        for value in (True, False, True):
            s.run(update, {go: value})
        close(s.run(v), [3.0, 4.0])
        assert s.run(r) == 8


def case_a_loop_over_variables_and_a_queue(target):
    fresh(target)
    with session(target) as s:
        q = v1.FIFOQueue(100, [tf.int32], shapes=[[]])
        v = v1.get_variable("v", initializer=0, use_resource=True)
        s.run(v1.global_variables_initializer())

        def body(i):
            with tf.control_dependencies([q.enqueue(i * 2), v.assign_add(i)]):
                return i + 1

        s.run(v1.while_loop(lambda i: i < 6, body, [tf.constant(0)], parallel_iterations=1))
        assert s.run(q.dequeue_many(6)).tolist() == [0, 2, 4, 6, 8, 10]
        assert s.run(v) == 15


def case_gradients_of_branches(target):
    with session(target) as s:
        x = v1.placeholder(tf.float32, [])
        y = v1.cond(x > 0, lambda: x * x * x, lambda: tf.exp(x))
        slope = tf.gradients(y, x)[0]
        close(s.run(slope, {x: 2.0}), 12.0)
        close(s.run(slope, {x: -1.0}), np.exp(-1.0))


def case_a_dead_fetch(target):
    with session(target) as s:
        switch = tf.raw_ops.Switch(data=tf.constant(1), pred=tf.constant(True))
        assert s.run(tf.identity(switch.output_true)) == 1
        # TensorFlow's local sessions give InvalidArgument, its servers Internal.
        with raises(tf.errors.OpError):
            s.run(tf.identity(switch.output_false))


def case_an_endless_loop_ends_in_time(target):
    with session(target) as s:
        zero = v1.placeholder(tf.int32, [])
        endless = v1.while_loop(lambda i: i < 1, lambda i: i + zero, [tf.constant(0)])
        begin = time.time()
        with raises(tf.errors.DeadlineExceededError):
            s.run(endless, {zero: 0}, options=config_pb2.RunOptions(timeout_in_ms=300))
        assert time.time() - begin < 20
        assert s.run(endless, {zero: 5}) == 5


def case_edges_between_frames_are_refused(target):
    with session(target) as s:
        inside = tf.raw_ops.Enter(data=tf.constant(1), frame_name="frame")
        bad = tf.raw_ops.Exit(data=inside + v1.placeholder_with_default(1, []))
        with raises(tf.errors.InvalidArgumentError, "has inputs from different frames"):
            s.run(bad)


def case_a_graph_grows_by_loops(target):
    with session(target) as s:
        total = tf.constant(1)
        for k in range(1, 6):
            total = v1.while_loop(lambda t: t < 100 * k, lambda t: t * 3, [total])
            wanted = next(3 ** e for e in range(20) if 3 ** e >= 100 * k)
            assert s.run(total) == wanted
