"""Records branches and loops in TensorFlow 1's form (control flow ops) into frames.jsonl.gz.

Run it as record.py says; both share the recorder. Everything is built by TensorFlow's own
`while_loop`, `cond` and `case`, or node by node where these would reject it.
"""

import os

import numpy as np
import recorder
import tensorflow as tf
from recorder import f32, i32, record, write

recorder.OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "frames.jsonl.gz")
v1 = tf.compat.v1
raw = tf.raw_ops
NEAR = (1e-5, 1e-6)


def play(op, build, tol=NEAR):
    """`build` builds the graph and returns its steps: tensors to fetch, or operations to run."""
    with tf.Graph().as_default() as graph:
        steps = []
        for step in build():
            step = list(step) if isinstance(step, (tuple, list)) else [step]
            operations = [s for s in step if isinstance(s, tf.Operation)]
            steps.append(([s for s in step if not isinstance(s, tf.Operation)], operations))
        record(op, "multi", graph, steps, tol)


def hidden(value):
    """A value that is not a static constant."""
    return v1.placeholder_with_default(value, np.shape(value))


def counting(limit, **options):
    return v1.while_loop(lambda i: i < limit, lambda i: i + 1, [hidden(i32(0))], **options)


def loops():
    for parallel in (1, 2, 10, 32):
        play("Enter", lambda: [counting(7, parallel_iterations=parallel)])
    play("Enter", lambda: [counting(0)])
    play("Enter", lambda: [counting(100, maximum_iterations=13)])

    def fibonacci():
        body = lambda i, a, b: (i + 1, b, a + b)
        return [v1.while_loop(lambda i, a, b: i < 20, body, [i32(0), i32(0), i32(1)])]

    def matrices():
        w = tf.constant(f32(3, 3))
        body = lambda i, x: (i + 1, tf.tanh(tf.matmul(x, w)))
        return [v1.while_loop(lambda i, x: i < 5, body, [i32(0), hidden(f32(2, 3))])[1]]

    def growing():
        body = lambda x: tf.concat([x, x[:1] + x[-1:]], 0)
        shapes = [tf.TensorShape([None])]
        until = lambda x: tf.size(x) < 9
        return [v1.while_loop(until, body, [tf.constant(f32(2))], shape_invariants=shapes)]

    def in_each_other():
        def outer(i, total):
            inner = lambda j, t: (j + 1, t + i * j)
            return i + 1, v1.while_loop(lambda j, t: j < i, inner, [i32(0), total])[1]

        return [v1.while_loop(lambda i, t: i < 6, outer, [i32(0), i32(0)])]

    def three_deep():
        def nest(depth, x):
            if depth == 0:
                return x * 2 + 1
            step = lambda i, y: (i + 1, nest(depth - 1, y))
            return v1.while_loop(lambda i, y: i < depth, step, [i32(0), x], parallel_iterations=3)[1]

        return [nest(3, hidden(i32(1)))]

    def until_small():
        half = lambda x: x / 2.0
        return [v1.while_loop(lambda x: tf.reduce_sum(x) > 0.01, half, [tf.constant(f32(4, low=1))])]

    def strings():
        more = lambda i, s: (i + 1, s + tf.as_string(i))
        return [v1.while_loop(lambda i, s: i < 4, more, [i32(0), tf.constant("n")])]

    def fails_inside():
        checked = lambda i: tf.identity(v1.gather([0, 1, 2], i)) + 2
        return [v1.while_loop(lambda i: i < 100, checked, [hidden(i32(0))])]

    for build in (fibonacci, matrices, growing, in_each_other, three_deep, until_small, strings,
                  fails_inside):
        play("Enter", build)


def branches():
    for choice in (True, False):
        def simple():
            x = hidden(f32(3))
            return [v1.cond(hidden(choice), lambda: tf.exp(x), lambda: (x * 2.0) - 1.0)]

        def two_results():
            x = hidden(i32(4))
            yes = lambda: (x + 1, tf.constant(True))
            return [v1.cond(hidden(choice), yes, lambda: (x - 1, tf.constant(False)))]

        def nested():
            x = hidden(i32(4))
            inner = lambda: v1.cond(x > 3, lambda: x * 10, lambda: x * 100)
            return [v1.cond(hidden(choice), inner, lambda: v1.cond(x > 9, lambda: x, lambda: -x))]

        def with_a_loop():
            spin = lambda: v1.while_loop(lambda i: i < 5, lambda i: i + 2, [hidden(i32(0))])
            return [v1.cond(hidden(choice), spin, lambda: tf.constant(-1))]

        def dead():
            s = raw.Switch(data=hidden(i32(3)), pred=hidden(choice))
            return [tf.identity(s.output_true), tf.identity(s.output_false)]

        def order():
            s = raw.Switch(data=hidden(i32(3)), pred=hidden(choice))
            with tf.control_dependencies([tf.identity(s.output_true)]):
                late = raw.NoOp()
            with tf.control_dependencies([raw.ControlTrigger()]):
                always = tf.constant(1)
            with tf.control_dependencies([late]):
                sometimes = tf.constant(2)
            return [always, sometimes]

        for build in (simple, two_results, nested, with_a_loop, dead, order):
            play("Switch", build)
    for x in (1, 5, 9):
        def chosen():
            value = hidden(i32(x))
            pairs = [(value < 3, lambda: value * 2), (value < 7, lambda: value * 3)]
            return [v1.case(pairs, default=lambda: value * 4)]

        play("Switch", chosen)


def together():
    def odd_and_even():
        def body(i, odd, even):
            is_odd = tf.equal(i % 2, 1)
            return (i + 1, v1.cond(is_odd, lambda: odd + i, lambda: odd),
                    v1.cond(is_odd, lambda: even, lambda: even + i))

        return [v1.while_loop(lambda i, o, e: i < 9, body, [i32(0), i32(0), i32(0)])]

    def collatz():
        step = lambda x, n: (v1.cond(tf.equal(x % 2, 0), lambda: x // 2, lambda: 3 * x + 1), n + 1)
        return [v1.while_loop(lambda x, n: x > 1, step, [hidden(i32(27)), i32(0)])]

    def loop_in_branch_in_loop():
        def body(i, total):
            spin = lambda: v1.while_loop(lambda t: t < 10 * i, lambda t: t + 3, [total])
            return i + 1, v1.cond(i > 2, spin, lambda: total - 1)

        return [v1.while_loop(lambda i, t: i < 6, body, [i32(0), i32(0)])]

    for build in (odd_and_even, collatz, loop_in_branch_in_loop):
        play("Enter", build)


def state():
    def ref_variable():
        v = v1.get_variable("v", initializer=i32(1), use_resource=False)
        def body(i):
            with tf.control_dependencies([v1.assign_add(v, i)]):
                return i + 1
        loop = v1.while_loop(lambda i: i < 5, body, [i32(0)], parallel_iterations=1)
        return [v.initializer, loop, v.read_value(), loop, v.read_value()]

    def resource_variable():
        v = v1.get_variable("v", initializer=i32(1), use_resource=True)
        def body(i):
            with tf.control_dependencies([v.assign_add(i)]):
                return i + 1
        loop = v1.while_loop(lambda i: i < 5, body, [i32(0)], parallel_iterations=1)
        return [v.initializer, loop, v.read_value(), loop, v.read_value()]

    def conditional_update(choice):
        v = v1.get_variable("v", initializer=i32(1), use_resource=False)
        update = v1.cond(hidden(choice), lambda: v1.assign_add(v, 10), lambda: v1.assign_sub(v, 1))
        return [v.initializer, update, update, v.read_value()]

    def references(choice):
        v = v1.get_variable("v", initializer=i32(5), use_resource=False)
        switch = raw.RefSwitch(data=v._ref(), pred=hidden(choice))
        inputs = [v1.assign_add(switch.output_false, 1), v1.assign_add(switch.output_true, 2)]
        merged = raw.RefMerge(inputs=inputs)
        entered = raw.RefEnter(data=merged.output, frame_name="frame")
        left = raw.RefExit(data=entered)
        return [v.initializer, (tf.identity(left), merged.value_index)]

    def queue():
        q = v1.FIFOQueue(20, [tf.int32], shapes=[[]])
        def body(i):
            with tf.control_dependencies([q.enqueue(i * i)]):
                return i + 1
        loop = v1.while_loop(lambda i: i < 5, body, [i32(0)], parallel_iterations=1)
        return [loop, q.dequeue_many(5), q.size()]

    play("Enter", ref_variable)
    play("Enter", resource_variable)
    play("Enter", queue)
    for choice in (True, False):
        play("Switch", lambda: conditional_update(choice))
        play("RefSwitch", lambda: references(choice))


def slopes():
    """Gradients of loops and branches: stacks and control triggers."""
    def of_a_loop():
        x = tf.constant(f32(3))
        y = v1.while_loop(lambda i, y: i < 4, lambda i, y: (i + 1, tf.sin(y) * x), [i32(0), x])[1]
        return [tf.gradients(y, x)]

    def of_a_branch(choice):
        x = tf.constant(f32(3))
        y = v1.cond(hidden(choice), lambda: x * x, lambda: tf.exp(x))
        return [tf.gradients(y, x)]

    def of_nested_loops():
        x = tf.constant(f32(2))
        def outer(i, y):
            inner = lambda j, z: (j + 1, z * x + 0.1)
            return i + 1, v1.while_loop(lambda j, z: j < i, inner, [i32(0), y])[1]
        y = v1.while_loop(lambda i, y: i < 3, outer, [i32(0), x])[1]
        return [tf.gradients(y, x)]

    def of_a_branch_in_a_loop():
        x = tf.constant(f32(2, low=0.5))
        def body(i, y):
            return i + 1, v1.cond(tf.equal(i % 2, 0), lambda: y * x, lambda: y + x)
        y = v1.while_loop(lambda i, y: i < 5, body, [i32(0), x])[1]
        return [tf.gradients(y, x)]

    play("Enter", of_a_loop)
    play("Enter", of_nested_loops)
    play("Enter", of_a_branch_in_a_loop)
    for choice in (True, False):
        play("Switch", lambda: of_a_branch(choice))


def node_by_node():
    for index in (-1, 0, 1, 2, 3):
        def many():
            data, index_tensor = hidden(i32(7)), hidden(i32(index))
            graph = v1.get_default_graph()
            op = graph.create_op("_SwitchN", [data, index_tensor], [tf.int32] * 3, name="s",
                                 attrs={"num_outs": v1.AttrValue(i=3),
                                        "T": v1.AttrValue(type=tf.int32.as_datatype_enum)})
            merged = raw.Merge(inputs=list(op.outputs))
            return [(merged.output, merged.value_index)]

        play("_SwitchN", many)

    def first_of_two():
        return [raw.Merge(inputs=[tf.constant(1)]).value_index]

    def dead_merge():
        s = raw.Switch(data=hidden(i32(3)), pred=hidden(True))
        m = raw.Merge(inputs=[s.output_false, tf.identity(s.output_false)])
        n = raw.Merge(inputs=[m.output, s.output_true])
        return [m.output, (n.output, n.value_index)]

    def entered_and_left():
        return [raw.Exit(data=raw.Enter(data=hidden(i32(4)), frame_name="f"))]

    def left_without_entering():
        return [tf.identity(raw.Exit(data=hidden(i32(4))))]

    def across_frames():
        inside = raw.Enter(data=hidden(i32(4)), frame_name="f")
        return [raw.Exit(data=inside + hidden(i32(1)))]

    def two_parents():
        a, b = (raw.Enter(data=hidden(i32(4)), frame_name=n) for n in "ab")
        c, d = raw.Enter(data=a, frame_name="c"), raw.Enter(data=b, frame_name="c")
        return [raw.Exit(data=raw.Exit(data=c + d))]

    def choice_is_no_scalar():
        choice = v1.placeholder_with_default([True, False], None)
        return [raw.Switch(data=hidden(i32(3)), pred=choice).output_true]

    for op, build in (("Merge", first_of_two), ("Merge", dead_merge), ("Enter", entered_and_left),
                      ("Exit", left_without_entering), ("Enter", across_frames),
                      ("Enter", two_parents), ("Switch", choice_is_no_scalar)):
        play(op, build)


loops()
branches()
together()
state()
slopes()
node_by_node()
write()
