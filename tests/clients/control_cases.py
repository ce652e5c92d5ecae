"""Branches and loops, in the form of version 1 (Switch, Merge, Enter, Exit) and of version 2 (If,
While and functions)."""

import contextlib

import numpy as np
import tensorflow as tf
from support import close, equal, fresh, raises, session, v1


@contextlib.contextmanager
def version_2():
    """Branches and loops become functions."""
    v1.enable_control_flow_v2()
    try:
        yield
    finally:
        v1.disable_control_flow_v2()


def check_cond(target):
    with session(target) as s:
        x = v1.placeholder(tf.float32, [])
        y = tf.cond(x > 0, lambda: x * 2, lambda: x - 1)
        gradient = tf.gradients(y, x)[0]
        close(s.run([y, gradient], {x: 3.0}), [6, 2])
        close(s.run([y, gradient], {x: -3.0}), [-4, 1])


def case_cond(target):
    check_cond(target)


def case_cond_v2(target):
    with version_2():
        check_cond(target)


def check_while(target):
    with session(target) as s:
        n = v1.placeholder(tf.int32, [])
        _, total = tf.while_loop(lambda i, t: i < n, lambda i, t: (i + 1, t + i * i),
                                 (tf.constant(0), tf.constant(0)))
        for limit in (0, 1, 10, 200):
            assert s.run(total, {n: limit}) == sum(i * i for i in range(limit))


def case_while(target):
    check_while(target)


def case_while_v2(target):
    with version_2():
        check_while(target)


def check_loop_gradients(target):
    with session(target) as s:
        x = v1.placeholder(tf.float32, [])
        # x^8 by three squarings.
        _, y = tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * y),
                             (tf.constant(0), x), maximum_iterations=3)
        gradient = tf.gradients(y, x)[0]
        close(s.run([y, gradient], {x: 1.5}), [1.5**8, 8 * 1.5**7], 1e-4)


def case_loop_gradients(target):
    check_loop_gradients(target)


def case_loop_gradients_v2(target):
    with version_2():
        check_loop_gradients(target)


def check_nested(target):
    with session(target) as s:
        def outer(i, total):
            _, inner = tf.while_loop(lambda j, t: j < i, lambda j, t: (j + 1, t + j),
                                     (tf.constant(0), tf.constant(0)))
            odd = tf.equal(i % 2, 1)
            return i + 1, total + tf.cond(odd, lambda: inner, lambda: -inner)

        _, total = tf.while_loop(lambda i, t: i < 9, outer, (tf.constant(0), tf.constant(0)))
        wanted = sum((1 if i % 2 else -1) * i * (i - 1) // 2 for i in range(9))
        assert s.run(total) == wanted


def case_nested(target):
    check_nested(target)


def case_nested_v2(target):
    with version_2():
        check_nested(target)


def check_map_and_scan(target):
    with session(target) as s:
        x = v1.placeholder(tf.float32, [None])
        squares = tf.map_fn(lambda e: e * e + 1, x)
        sums = tf.scan(lambda a, e: a + e, x)
        folded = tf.foldl(lambda a, e: a * 2 + e, x)
        values = np.arange(1, 6, dtype="f")
        got = s.run([squares, sums, folded], {x: values})
        close(got[0], values**2 + 1), close(got[1], np.cumsum(values))
        wanted = values[0]
        for value in values[1:]:
            wanted = wanted * 2 + value
        close(got[2], wanted)


def case_map_and_scan(target):
    check_map_and_scan(target)


def case_map_and_scan_v2(target):
    with version_2():
        check_map_and_scan(target)


def case_case_and_switch(target):
    with session(target) as s:
        i = v1.placeholder(tf.int32, [])
        y = tf.switch_case(i, [lambda: tf.constant(10.0), lambda: tf.constant(20.0)],
                           default=lambda: tf.constant(-1.0))
        z = tf.case([(i < 0, lambda: tf.constant("less")), (i > 5, lambda: tf.constant("more"))],
                    default=lambda: tf.constant("between"))
        assert [s.run([y, z], {i: k}) for k in (-2, 0, 1, 9)] == [
            [-1, b"less"], [10, b"between"], [20, b"between"], [-1, b"more"]]


def case_a_loop_updates_a_variable(target):
    fresh(target)
    for use_resource in (True, False):
        with session(target) as s:
            v = v1.get_variable(f"v{use_resource}", initializer=0.0, use_resource=use_resource)

            def body(i):
                with tf.control_dependencies([v1.assign_add(v, tf.cast(i, tf.float32))]):
                    return i + 1

            loop = tf.while_loop(lambda i: i < 6, body, [tf.constant(0)], parallel_iterations=1)
            s.run(v.initializer)
            equal(np.ravel(s.run(loop)), [6])
            close(s.run(v), 15)


def case_only_the_taken_branch_has_effects(target):
    fresh(target)
    with session(target) as s:
        p = v1.placeholder(tf.bool, [])
        a = v1.get_variable("a", initializer=0.0, use_resource=True)
        b = v1.get_variable("b", initializer=0.0, use_resource=True)
        choice = tf.cond(p, lambda: a.assign_add(1.0), lambda: b.assign_add(10.0))
        s.run(v1.global_variables_initializer())
        for flag in (True, False, True):
            s.run(choice, {p: flag})
        close(s.run([a, b]), [2, 10])


def case_errors_inside_branches_and_loops(target):
    with session(target) as s:
        x = v1.placeholder(tf.float32)
        p = v1.placeholder(tf.bool, [])
        y = tf.cond(p, lambda: tf.reshape(x, [3], name="shaped"), lambda: tf.zeros([3]))
        close(s.run(y, {x: [1.0], p: False}), [0, 0, 0])
        with raises(tf.errors.InvalidArgumentError, "shaped"):
            s.run(y, {x: [1.0], p: True})
        n = tf.while_loop(lambda i: i < 5, lambda i: i + tf.gather([1, 1, 1], i), [tf.constant(0)])
        with raises(tf.errors.InvalidArgumentError, "3"):
            s.run(n)


def case_a_recurrent_network_learns(target):
    fresh(target)
    random = np.random.RandomState(3)
    inputs = random.rand(16, 5, 2).astype("f")
    wanted = inputs.sum(axis=(1, 2)).astype("f")
    with session(target) as s:
        x, y = v1.placeholder(tf.float32, [16, 5, 2]), v1.placeholder(tf.float32, [16])
        weights = v1.get_variable("w", initializer=random.rand(6, 4).astype("f") * 0.3)
        output = v1.get_variable("o", initializer=random.rand(4, 1).astype("f"))
        steps = tf.transpose(x, [1, 0, 2])

        def cell(state, step):
            return tf.tanh(tf.matmul(tf.concat([step, state], 1), weights))

        states = tf.scan(cell, steps, initializer=tf.zeros([16, 4]))
        loss = tf.reduce_mean(tf.square(tf.matmul(states[-1], output)[:, 0] - y))
        train = v1.train.AdamOptimizer(0.05).minimize(loss)
        s.run(v1.global_variables_initializer())
        feeds = {x: inputs, y: wanted}
        # The first loss, by hand.
        state = np.zeros((16, 4), "f")
        start = s.run([weights, output])
        for i in range(5):
            state = np.tanh(np.concatenate([inputs[:, i], state], 1) @ start[0])
        first = np.mean(np.square((state @ start[1])[:, 0] - wanted))
        close(s.run(loss, feeds), first, 1e-4)
        for _ in range(60):
            s.run(train, feeds)
        last = s.run(loss, feeds)
        assert last < 0.3 * first, (first, last)


def case_endless_loops_end_with_their_time(target):
    with session(target) as s:
        loop = tf.while_loop(lambda i: i >= 0, lambda i: i * 0, [tf.constant(0)])
        with raises(tf.errors.DeadlineExceededError):
            s.run(loop, options=v1.RunOptions(timeout_in_ms=500))
        equal(s.run(tf.constant(3)), 3)


def case_functions(target):
    with session(target) as s:
        @tf.function
        def square_and_more(x):
            return x * x, x + 1

        x = v1.placeholder(tf.float32, [None])
        a, b = square_and_more(x)
        gradient = tf.gradients(a, x)[0]
        got = s.run([a, b, gradient], {x: [1.0, 2.0, 3.0]})
        close(got[0], [1, 4, 9]), close(got[1], [2, 3, 4]), close(got[2], [2, 4, 6])


def case_lists_of_tensors(target):
    with session(target) as s:
        n = v1.placeholder(tf.int32, [])
        array = tf.TensorArray(tf.float32, size=n, element_shape=[2], clear_after_read=False)
        _, array = tf.while_loop(
            lambda i, a: i < n,
            lambda i, a: (i + 1, a.write(i, tf.cast(tf.stack([i, i * i]), tf.float32))),
            (tf.constant(0), array))
        stacked, joined = array.stack(), array.concat()
        got = s.run([stacked, joined], {n: 4})
        wanted = np.array([[i, i * i] for i in range(4)])
        close(got[0], wanted), close(got[1], wanted.ravel())
