"""Reads of reference variables: ops that only forward their input forward the variable's buffer, so
a read of their output after an update sees the update; a fetch sees all updates of its step."""

import tensorflow as tf
from support import close, equal, fresh, raises, session, v1

STEPS = 20


def variable(name, value, **options):
    return v1.get_variable(name, initializer=tf.constant(value), use_resource=False, **options)


def forwarded(target, forward):
    """A read through `forward`, then an update, then a use of the read: the read and the use."""
    fresh(target)
    with session(target) as s:
        v = variable("v", [[1.0, 2.0]])
        read = forward(v)
        with tf.control_dependencies([read]):
            update = v1.assign_add(v, [[10.0, 20.0]])
        with tf.control_dependencies([update]):
            use = read * 2.0
        for _ in range(STEPS):
            s.run(v.initializer)
            yield s.run([read, use])


def case_a_read_sees_a_later_update(target):
    for forward in (tf.identity, lambda v: v.read_value(), lambda v: tf.identity(tf.identity(v))):
        for read, use in forwarded(target, forward):
            equal(read, [[11.0, 22.0]])
            equal(use, [[22.0, 44.0]])


def case_a_branch_forwards_a_variable(target):
    for choice in (True, False):
        def forward(v):
            read = v.read_value()
            return v1.cond(tf.constant(choice), lambda: tf.identity(read), lambda: read)

        for read, use in forwarded(target, forward):
            equal(read, [[11.0, 22.0]])
            equal(use, [[22.0, 44.0]])


def case_what_computes_takes_the_value_of_its_time(target):
    for compute in (lambda v: v + 0.0, lambda v: tf.gather(v, [0]), lambda v: v[:, :1]):
        for read, use in forwarded(target, compute):
            equal(read, [[1.0, 2.0][: read.shape[1]]])
            equal(use, 2.0 * read)


def case_a_loop_squares_a_variable_in_a_branch(target):
    fresh(target)
    with session(target) as s:
        v = variable("v", 2.0)

        def body(i):
            squared = v1.cond(i < 10, lambda: v1.assign(v, tf.square(v)), lambda: tf.identity(v))
            with tf.control_dependencies([squared]):
                return i + 1

        end = v1.while_loop(lambda i: i < 4, body, [0])
        with tf.control_dependencies([end]):
            after = v.read_value()
        for _ in range(STEPS):
            s.run(v.initializer)
            assert s.run([end, after, v]) == [4, 65536.0, 65536.0]


def case_a_read_outside_a_loop_is_live_inside(target):
    fresh(target)
    with session(target) as s:
        v = variable("v", 1.0)
        read = v.read_value()

        def body(i, total):
            update = v1.assign_add(v, 1.0)
            with tf.control_dependencies([update]):
                return i + 1, total + read

        loop = v1.while_loop(lambda i, t: i < 4, body, [0, 0.0], parallel_iterations=1)
        for _ in range(STEPS):
            s.run(v.initializer)
            # 2 + 3 + 4 + 5
            assert s.run([loop, read]) == [(4, 14.0), 5.0]


def case_a_loop_variable_is_a_variable(target):
    fresh(target)
    with session(target) as s:
        v = variable("v", 1.0)

        def body(i, x):
            with tf.control_dependencies([x]):
                update = v1.assign_add(v, 1.0)
            with tf.control_dependencies([update]):
                return i + 1, tf.identity(x)

        loop = v1.while_loop(lambda i, x: i < 4, body, [0, v.read_value()], parallel_iterations=1)
        for _ in range(STEPS):
            s.run(v.initializer)
            assert s.run(loop) == (4, 5.0)


def case_a_step_of_training_fetches_new_weights(target):
    fresh(target)
    with session(target) as s:
        w = variable("w", [1.0, 2.0])
        train = v1.train.GradientDescentOptimizer(0.25).minimize(tf.reduce_sum(w * w))
        fetches = [train, w, w.value(), tf.identity(w), w.read_value()]
        run = s.make_callable(fetches)
        s.run(v1.global_variables_initializer())
        for step in range(1, STEPS):
            for got in (s.run(fetches) if step % 2 else run())[1:]:
                close(got, [0.5**step, 2 * 0.5**step])


def case_a_rate_sees_the_step_that_was_counted(target):
    fresh(target)
    with session(target) as s:
        count = variable("count", 0, trainable=False)
        read = tf.identity(count)
        with tf.control_dependencies([read]):
            counted = v1.assign_add(count, 1)
        with tf.control_dependencies([counted]):
            rate = 0.5 ** tf.cast(read, tf.float32)
        w = variable("w", 0.0)
        train = v1.train.GradientDescentOptimizer(rate).minimize(-w)
        s.run(v1.global_variables_initializer())
        for step in range(1, STEPS):
            _, got, weight = s.run([train, rate, w])
            close(got, 0.5**step)
            close(weight, 1 - 0.5**step)


def case_results_of_assignments_are_the_variable(target):
    fresh(target)
    with session(target) as s:
        v = variable("v", 1.0)
        first = v1.assign_add(v, 1.0)
        read = tf.identity(first)
        with tf.control_dependencies([read]):
            second = v1.assign_add(v, 1.0)
        with tf.control_dependencies([second]):
            use = read * 1.0
        for _ in range(STEPS):
            s.run(v.initializer)
            assert s.run([first, read, second, use]) == [3.0] * 4


def case_another_variable_gets_a_copy(target):
    fresh(target)
    with session(target) as s:
        v, w = variable("v", 1.0), variable("w", 0.0)
        read = tf.identity(v)
        copied = v1.assign(w, read)
        with tf.control_dependencies([copied]):
            update = v1.assign_add(v, 1.0)
        with tf.control_dependencies([update]):
            use = w * 1.0
        for _ in range(STEPS):
            s.run(v1.global_variables_initializer())
            assert s.run([use, read]) == [1.0, 2.0]


def case_a_variable_that_grows_leaves_reads_alone(target):
    fresh(target)
    with session(target) as s:
        v = v1.Variable([1.0], validate_shape=False, use_resource=False)
        read = tf.identity(v)
        with tf.control_dependencies([read]):
            grown = v1.assign(v, tf.concat([v, [5.0]], 0), validate_shape=False)
        with tf.control_dependencies([grown]):
            use = read * 1.0
        for _ in range(STEPS):
            s.run(v.initializer)
            got = s.run([use, read, grown])
            equal(got[0], [1.0])
            equal(got[1], [1.0])
            equal(got[2], [1.0, 5.0])


def case_words_are_live_too(target):
    fresh(target)
    with session(target) as s:
        v = variable("v", ["a"])
        read = tf.identity(v)
        with tf.control_dependencies([read]):
            update = v1.assign(v, ["bb"])
        with tf.control_dependencies([update]):
            use = tf.strings.join([read, "x"])
        for _ in range(STEPS):
            s.run(v.initializer)
            got = s.run([use, read])
            assert got[0][0] == b"bbx" and got[1][0] == b"bb", got


def case_calls_of_a_partial_run_see_their_updates(target):
    fresh(target)
    with session(target) as s:
        v = variable("v", 1.0)
        x, y = v1.placeholder(tf.float32, []), v1.placeholder(tf.float32, [])
        read = tf.identity(v)
        with tf.control_dependencies([read]):
            first = v1.assign_add(v, x)
        second = v1.assign_add(v, y)
        for _ in range(STEPS):
            s.run(v.initializer)
            handle = s.partial_run_setup([read, first, second], [x, y])
            assert s.partial_run(handle, [read, first], {x: 10.0}) == [11.0, 11.0]
            assert s.partial_run(handle, second, {y: 100.0}) == 111.0


def case_the_forwarding_node_says_what_is_not_initialized(target):
    fresh(target)
    with session(target) as s:
        v = v1.get_variable("v", [2], use_resource=False)
        with raises(tf.errors.FailedPreconditionError, "uninitialized value v", "{{node v/read}}"):
            s.run(tf.identity(v, name="later") * 2.0)
        with raises(tf.errors.FailedPreconditionError, "uninitialized value v"):
            s.run(v)
        assert not s.run(v1.is_variable_initialized(v))
