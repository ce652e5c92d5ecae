"""Programs over sequences, with loops as TensorFlow 1 and as TensorFlow 2 writes them: recurrent
networks, beam search, arrays that grow, and loops and branches within each other."""

import numpy as np
import tensorflow as tf
from control_cases import version_2
from support import close, equal, fresh, pairs, session, v1


class Lstm:
    """An RNN cell for `dynamic_rnn`."""

    def __init__(self, units, weights):
        self.output_size, self.units, self.weights = units, units, weights
        self.state_size = (units, units)

    def zero_state(self, batch_size, dtype):
        return (tf.zeros([batch_size, self.units], dtype),) * 2

    def __call__(self, x, state, scope=None):
        c, h = state
        i, j, f, o = tf.split(tf.matmul(tf.concat([x, h], 1), self.weights), 4, 1)
        c = tf.sigmoid(f + 1.0) * c + tf.sigmoid(i) * tf.tanh(j)
        h = tf.sigmoid(o) * tf.tanh(c)
        return h, (c, h)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm_by_hand(x, lengths, weights, units):
    """Outputs and last state, where rows end at their length."""
    batch, steps, _ = x.shape
    c, h = np.zeros((batch, units)), np.zeros((batch, units))
    rows = np.zeros((batch, steps, units))
    for t in range(steps):
        i, j, f, o = np.split(np.concatenate([x[:, t], h], 1) @ weights, 4, 1)
        new_c = sigmoid(f + 1) * c + sigmoid(i) * np.tanh(j)
        new_h = sigmoid(o) * np.tanh(new_c)
        goes_on = (t < lengths)[:, None]
        rows[:, t] = np.where(goes_on, new_h, 0)
        c, h = np.where(goes_on, new_c, c), np.where(goes_on, new_h, h)
    return rows, c, h


def check_dynamic_rnn(target):
    fresh(target)
    random = np.random.RandomState(1)
    batch, steps, width, units = 3, 6, 2, 4
    values = random.randn(batch, steps, width)
    start = random.randn(width + units, 4 * units) * 0.5
    lengths = np.array([6, 2, 4])
    with session(target) as s:
        x = v1.placeholder(tf.float64, [None, None, width])
        n = v1.placeholder(tf.int32, [None])
        weights = v1.get_variable("w", initializer=start, use_resource=True)
        rows, (c, h) = v1.nn.dynamic_rnn(Lstm(units, weights), x, n, dtype=tf.float64)
        loss = tf.reduce_sum(rows * rows) + tf.reduce_sum(c * h)
        slope, back = tf.gradients(loss, [weights, x])
        s.run(weights.initializer)
        feeds = {x: values, n: lengths}
        got = s.run([rows, c, h], feeds)
        for one, wanted in pairs(got, lstm_by_hand(values, lengths, start, units)):
            close(one, wanted, 1e-9)

        def loss_at(w, v):
            rows, c, h = lstm_by_hand(v, lengths, w, units)
            return np.sum(rows * rows) + np.sum(c * h)

        slopes = s.run([slope, back], feeds)
        # Numerical derivatives in a few directions.
        for _ in range(3):
            dw, dx = random.randn(*start.shape), random.randn(*values.shape)
            e = 1e-6
            measured = (loss_at(start + e * dw, values + e * dx) - loss_at(start - e * dw, values - e * dx)) / (2 * e)
            close(np.sum(slopes[0] * dw) + np.sum(slopes[1] * dx), measured, 1e-5)


def case_dynamic_rnn(target):
    check_dynamic_rnn(target)


def case_dynamic_rnn_v2(target):
    with version_2():
        check_dynamic_rnn(target)


def case_bidirectional_rnn_learns(target):
    fresh(target)
    random = np.random.RandomState(2)
    values = random.rand(8, 5, 2).astype("f")
    wanted = (values[:, 0, 0] - values[:, -1, 1]).astype("f")
    for way in (0, 1):
        if way:
            v1.enable_control_flow_v2()
        with session(target) as s:
            x = v1.placeholder(tf.float32, [8, None, 2])
            cells = [Lstm(4, v1.get_variable(f"{way}_{i}", initializer=random.rand(6, 16).astype("f") - 0.5))
                     for i in range(2)]
            rows, _ = v1.nn.bidirectional_dynamic_rnn(*cells, x, dtype=tf.float32, sequence_length=[5] * 8)
            loss = tf.reduce_mean(tf.square(tf.reduce_sum(tf.concat(rows, 2)[:, 0], 1) - wanted))
            train = v1.train.AdamOptimizer(0.05).minimize(loss)
            s.run(v1.global_variables_initializer())
            first = s.run(loss, {x: values})
            for _ in range(30):
                s.run(train, {x: values})
            last = s.run(loss, {x: values})
            assert last < 0.5 * first, (way, first, last)
        v1.disable_control_flow_v2()


def beams_by_hand(table, start, width, steps):
    """The best sequences by summed scores; of equals the first, as TopK has it."""
    beams = [(0.0, [start])]
    for _ in range(steps):
        grown = [(score + table[b[-1], word], k, b + [word])
                 for k, (score, b) in enumerate(beams) for word in range(table.shape[1])]
        grown.sort(key=lambda g: -g[0])
        beams = [(score, b) for score, _, b in grown[:width]]
    return beams


def check_beam_search(target):
    random = np.random.RandomState(4)
    words, width, steps, start = 7, 3, 6, 2
    table = np.log(random.dirichlet(np.ones(words), words)).astype("f")
    with session(target) as s:
        scores = v1.placeholder(tf.float32, [words, words])
        first = v1.placeholder(tf.int32, [])

        def body(t, sums, last, chosen, parents):
            grown = tf.reshape(sums[:, None] + tf.gather(scores, last), [-1])
            best, at = tf.nn.top_k(grown, width)
            return (t + 1, best, at % words, chosen.write(t, at % words), parents.write(t, at // words))

        # Only the first beam counts at the beginning: the others are the same.
        begin = tf.concat([[0.0], tf.fill([width - 1], -1e9)], 0)
        chosen = tf.TensorArray(tf.int32, 0, dynamic_size=True, clear_after_read=False)
        parents = tf.TensorArray(tf.int32, 0, dynamic_size=True, clear_after_read=False)
        t, sums, _, chosen, parents = tf.while_loop(
            lambda t, *_: t < steps, body, (tf.constant(0), begin, tf.fill([width], first), chosen, parents))

        def back(t, beam, found):
            t = t - 1
            found = found.write(t, tf.gather(chosen.read(t), beam))
            return t, tf.gather(parents.read(t), beam), found

        _, _, found = tf.while_loop(
            lambda t, *_: t > 0, back, (t, tf.range(width), tf.TensorArray(tf.int32, steps)))
        got_sums, got = s.run([sums, tf.transpose(found.stack())], {scores: table, first: start})
    wanted = beams_by_hand(table, start, width, steps)
    close(got_sums, [score for score, _ in wanted], 1e-4)
    equal(got, [beam[1:] for _, beam in wanted])


def case_beam_search(target):
    check_beam_search(target)


def case_beam_search_v2(target):
    with version_2():
        check_beam_search(target)


def check_loops_in_branches(target):
    """A branch in a loop in a branch, and its gradient."""
    with session(target) as s:
        x = v1.placeholder(tf.float64, [])
        n = v1.placeholder(tf.int32, [])

        def body(i, y):
            return i + 1, tf.cond(tf.equal(i % 2, 0), lambda: y * x, lambda: tf.sin(y) + x)

        def spun():
            return tf.while_loop(lambda i, y: i < n, body, (tf.constant(0), x))[1]

        y = tf.cond(x > 0, spun, lambda: -x)
        slope = tf.gradients(y, x)[0]

        def by_hand(v):
            if v <= 0:
                return -v
            y = v
            for i in range(5):
                y = y * v if i % 2 == 0 else np.sin(y) + v
            return y

        for value in (0.7, 1.3, -2.0):
            e = 1e-6
            measured = (by_hand(value + e) - by_hand(value - e)) / (2 * e)
            close(s.run([y, slope], {x: value, n: 5}), [by_hand(value), measured], 1e-6)


def case_loops_in_branches(target):
    check_loops_in_branches(target)


def case_loops_in_branches_v2(target):
    with version_2():
        check_loops_in_branches(target)


def check_curvature(target):
    """The second derivative through a loop."""
    with session(target) as s:
        x = v1.placeholder(tf.float64, [])
        _, y = tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * y), (tf.constant(0), x))
        first = tf.gradients(y, x)[0]
        second = tf.gradients(first, x)[0]
        close(s.run([y, first, second], {x: 1.1}), [1.1**8, 8 * 1.1**7, 56 * 1.1**6], 1e-9)


def case_curvature_of_a_loop_v2(target):
    with version_2():
        check_curvature(target)


def check_rows(target):
    """`map_fn`, `scan` and the two folds, their gradients, and several sequences at once."""
    with session(target) as s:
        x = v1.placeholder(tf.float64, [None, 2])
        values = np.arange(1.0, 9.0).reshape(4, 2) / 4
        pairs = tf.map_fn(lambda row: (tf.reduce_sum(row), row * row), x, dtype=(tf.float64, tf.float64))
        sums = tf.scan(lambda a, e: a * 0.5 + e, x)
        left = tf.foldl(lambda a, e: a * 0.5 + e, x)
        right = tf.foldr(lambda a, e: a * 0.5 + e, x)
        total = tf.reduce_sum(pairs[1]) + tf.reduce_sum(sums) + tf.reduce_sum(left * right)
        slope = tf.gradients(total, x)[0]

        def by_hand(v):
            states, a = [], v[0]
            for e in v[1:]:
                states.append(a)
                a = a * 0.5 + e
            left, a = a, v[-1]
            for e in v[-2::-1]:
                a = a * 0.5 + e
            return np.array(states + [left]), left, a

        got = s.run([pairs, sums, left, right, slope], {x: values})
        close(got[0][0], values.sum(1)), close(got[0][1], values**2)
        for one, wanted in zip(got[1:4], by_hand(values), strict=True):
            close(one, wanted)

        def total_at(v):
            states, left, right = by_hand(v)
            return np.sum(v * v) + np.sum(states) + np.sum(left * right)

        for at in np.ndindex(values.shape):
            e = np.zeros_like(values)
            e[at] = 1e-6
            close(got[4][at], (total_at(values + e) - total_at(values - e)) / 2e-6, 1e-5)


def case_rows(target):
    check_rows(target)


def case_rows_v2(target):
    with version_2():
        check_rows(target)


def check_queues_in_loops(target):
    """A loop that takes from one queue until it is empty, and puts into another."""
    fresh(target)
    with session(target) as s:
        source = v1.FIFOQueue(50, [tf.int32], shapes=[[]])
        drain = v1.FIFOQueue(50, [tf.int32], shapes=[[]])
        total = v1.get_variable("total", initializer=0, use_resource=True)
        s.run([total.initializer, source.enqueue_many([[5, 6, 7, 8]])])

        def body(left):
            value = source.dequeue()
            with tf.control_dependencies([drain.enqueue(value * value), total.assign_add(value)]):
                return left - 1

        loop = tf.while_loop(lambda left: left > 0, body, [source.size()], parallel_iterations=1)
        s.run(loop)
        equal(s.run(drain.dequeue_many(4)), [25, 36, 49, 64])
        assert s.run([total, source.size()]) == [26, 0]


def case_queues_in_loops(target):
    check_queues_in_loops(target)


def case_queues_in_loops_v2(target):
    with version_2():
        check_queues_in_loops(target)


def check_updates_in_branches(target):
    """Training that skips a step whose gradient is too large."""
    fresh(target)
    with session(target) as s:
        w = v1.get_variable("w", initializer=[1.0, 2.0], use_resource=True)
        skipped = v1.get_variable("skipped", initializer=0, use_resource=True)
        x = v1.placeholder(tf.float32, [2])
        gradient = tf.gradients(tf.reduce_sum(tf.square(w - x)), w)[0]

        def apply():
            with tf.control_dependencies([w.assign_sub(0.5 * gradient)]):
                return tf.constant(True)

        def skip():
            with tf.control_dependencies([skipped.assign_add(1)]):
                return tf.constant(False)

        step = tf.cond(tf.norm(gradient) < 10.0, apply, skip)
        s.run(v1.global_variables_initializer())
        assert [s.run(step, {x: v}) for v in ([100.0, 0.0], [3.0, 4.0], [0.0, 99.0])] == [False, True, False]
        close(s.run(w), [3, 4])
        assert s.run(skipped) == 2


def case_updates_in_branches(target):
    check_updates_in_branches(target)


def case_updates_in_branches_v2(target):
    with version_2():
        check_updates_in_branches(target)


def check_arrays(target):
    """TensorArrays that are split, joined, unstacked, scattered and grown, with gradients."""
    with session(target) as s:
        x = v1.placeholder(tf.float64, [6, 2])
        values = np.arange(12.0).reshape(6, 2)
        pieces = tf.TensorArray(tf.float64, 3, infer_shape=False).split(x, [1, 2, 3])
        rows = tf.TensorArray(tf.float64, 6).unstack(x)
        grown = tf.TensorArray(tf.float64, 0, dynamic_size=True, element_shape=[2])
        _, grown = tf.while_loop(
            lambda i, a: i < 6, lambda i, a: (i + 1, a.write(i, rows.read(5 - i) * 2.0)), (tf.constant(0), grown))
        spread = tf.TensorArray(tf.float64, 4, element_shape=[2]).scatter([3, 0, 2, 1], x[:4])
        outs = [pieces.concat(), grown.stack(), spread.gather([1, 3]), grown.size()]
        slope = tf.gradients(tf.reduce_sum(outs[1][:3] * x[:3]), x)[0]
        got = s.run(outs + [slope], {x: values})
        close(got[0], values), close(got[1], 2 * values[::-1]), close(got[2], values[[3, 0]])
        assert got[3] == 6
        close(got[4], 2 * values[::-1])


def case_arrays(target):
    check_arrays(target)


def case_arrays_v2(target):
    with version_2():
        check_arrays(target)


def case_forms_of_functions(target):
    """Ops that run functions, as they are written without Python around them."""
    from tensorflow.python.framework import function
    from tensorflow.python.ops import functional_ops

    with session(target) as s:
        @function.Defun(tf.int32, tf.float32)
        def add(i, x):
            return x + tf.cast(i, tf.float32)

        @function.Defun(tf.float32)
        def below(x):
            return x < 100.0

        @function.Defun(tf.float32)
        def double(x):
            return x * 2.0

        @function.Defun(tf.float32)
        def negate(x):
            return -x

        x, n = v1.placeholder(tf.float32, []), v1.placeholder(tf.int32, [])
        counted = functional_ops.For(0, n, 2, [x], add)[0]
        grown = functional_ops.While([x], below, double)[0]
        chosen = functional_ops.If(x > 2.0, [x], double, negate)[0]
        remote = functional_ops.remote_call(target="/cpu:0", args=[x], Tout=[tf.float32], f=double)[0]
        called = double(negate(x))
        slope = functional_ops.symbolic_gradient([x, 1.0], Tout=[tf.float32], f=double)[0]
        got = s.run([counted, grown, chosen, remote, called, slope], {x: 3.0, n: 7})
        close(got, [3 + 0 + 2 + 4 + 6, 192, 6, 6, -6, 2])
        close(s.run(chosen, {x: 1.0}), -1)
