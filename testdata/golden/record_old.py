"""Records graphs of TensorFlow 1.x programs into old.jsonl.gz: control flow ops, arrays and stacks behind
references, reference variables, ops that later versions renamed.

Run it as record.py says; both share the recorder. Each graph has the producer version of its time, so that it
may contain ops that were removed later.
"""

import os

import numpy as np
import recorder
import tensorflow as tf
from recorder import f32, i32, record, write

recorder.OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "old.jsonl.gz")
v1, raw = tf.compat.v1, tf.raw_ops
F, I = tf.float32, tf.int32
CLOSE = (1e-4, 1e-5)
v1.disable_control_flow_v2()
v1.disable_resource_variables()


def play(op, build, producer=20):
    """`build` builds the graph and lists steps: tensors to fetch, or operations to run."""
    with tf.Graph().as_default() as graph:
        definition = v1.GraphDef()
        definition.versions.producer = producer
        definition.node.add(name="old", op="NoOp")
        tf.graph_util.import_graph_def(definition, name="")
        steps = []
        for step in build():
            if isinstance(step, tf.Operation):
                steps.append(([], [step]))
            else:
                steps.append((tf.nest.flatten(step), []))
        record(op, "multi", graph, steps, CLOSE)


def variable(value, name=None):
    """A `Variable` (V1), and the op that initializes it."""
    value = np.asarray(value)
    made = raw.Variable(shape=value.shape, dtype=value.dtype, shared_name=name or "", name=name)
    return made, raw.Assign(ref=made, value=tf.constant(value)).op


def shaped(tensor, *shape):
    """Sets the shape of the output of an op without a shape function."""
    tensor.set_shape(shape)
    return tensor


def loops():
    def counted():
        i, total = v1.while_loop(lambda i, _: i < 10, lambda i, t: [i + 1, t + i * i], [tf.constant(0), tf.constant(0)])
        return [[i, total]]

    play("While", counted)

    def nested():
        def outer(i, total):
            _, inner = v1.while_loop(lambda j, _: j < i, lambda j, s: [j + 1, s + j], [tf.constant(0), tf.constant(0)])
            return [i + 1, total + inner]

        return [v1.while_loop(lambda i, _: i < 7, outer, [tf.constant(0), tf.constant(0)])]

    play("While", nested)

    def differentiated():
        x = tf.constant(f32(3))
        w = tf.constant(f32(3, 3))
        _, y = v1.while_loop(
            lambda i, _: i < 4, lambda i, y: [i + 1, tf.tanh(tf.linalg.matvec(w, y) + x)], [tf.constant(0), x]
        )
        return [[y] + tf.gradients(tf.reduce_sum(y * y), [x, w])]

    play("While", differentiated)

    def serial():
        x = tf.constant(f32(4))
        _, y = v1.while_loop(
            lambda i, _: i < 5, lambda i, y: [i + 1, y * x + 1.0], [tf.constant(0), x], parallel_iterations=1,
            swap_memory=True,
        )
        return [[y] + tf.gradients(y, [x])]

    play("While", serial)

    def none():
        return [v1.while_loop(lambda i: i < 0, lambda i: [i + 1], [tf.constant(3)], return_same_structure=False)]

    play("While", none)

    def growing():
        return [v1.while_loop(
            lambda i, _: i < 4, lambda i, x: [i + 1, tf.concat([x, x], 0)], [tf.constant(0), tf.constant([1.0])],
            shape_invariants=[tf.TensorShape([]), tf.TensorShape([None])],
        )]

    play("While", growing)


def branches():
    for flag in [True, False]:
        def chosen():
            x = tf.constant(f32(3))
            p = v1.placeholder_with_default(tf.constant(flag), [])
            y = v1.cond(p, lambda: tf.exp(x), lambda: v1.cond(tf.logical_not(p), lambda: x * x, lambda: x))
            return [[y] + tf.gradients(y, [x])]

        play("Cond", chosen)

        def updated():
            value, begin = variable(np.float32(5.0), "v")
            p = v1.placeholder_with_default(tf.constant(flag), [])
            update = v1.cond(p, lambda: tf.identity(raw.AssignAdd(ref=value, value=2.0)), lambda: tf.constant(-1.0))
            return [begin, update, tf.identity(value), update, tf.identity(value)]

        play("Cond", updated)

    def looped():
        def body(i, x):
            return [i + 1, v1.cond(tf.equal(i % 3, 0), lambda: x * 2.0, lambda: x + 1.0)]

        x = tf.constant(f32(2))
        y = v1.while_loop(lambda i, _: i < 7, body, [tf.constant(0), x])[1]
        return [[y] + tf.gradients(y, [x])]

    play("Cond", looped)

    def chosen_by_number():
        p = v1.placeholder_with_default(tf.constant(2), [])
        return [v1.case([(tf.equal(p, k), lambda k=k: tf.constant(10 * k)) for k in range(4)], exclusive=True)]

    play("Cond", chosen_by_number)


def arrays():
    def written(generation, producer):
        suffix = generation

        def build():
            made = getattr(raw, "TensorArray" + suffix)(size=0, dtype=F, dynamic_size=True, clear_after_read=False)
            handle, flow = made if suffix == "V3" else (made, tf.constant(0.0))
            x = tf.constant(f32(2))

            def body(i, flow):
                value = x * tf.cast(i, F)
                flow = getattr(raw, "TensorArrayWrite" + suffix)(handle=handle, index=i, value=value, flow_in=flow)
                return [i + 1, shaped(flow)]

            _, flow = v1.while_loop(lambda i, _: i < 5, body, [tf.constant(0), flow])
            with tf.control_dependencies([flow]):
                size = getattr(raw, "TensorArraySize" + suffix)(handle=handle, flow_in=flow)
                rows = getattr(raw, "TensorArrayGather" + suffix)(handle=handle, indices=[4, 0, 3], flow_in=flow, dtype=F)
            return [[size, rows]]

        play("TensorArray" + suffix, build, producer)

    written("", 15)
    written("V2", 25)
    written("V3", 25)

    def packed():
        handle = raw.TensorArray(size=3, dtype=F)
        flow = shaped(raw.TensorArrayUnpack(handle=handle, value=tf.constant(f32(3, 2)), flow_in=0.0))

        def body(i, flow, total):
            row = raw.TensorArrayRead(handle=handle, index=i, flow_in=flow, dtype=F)
            return [i + 1, shaped(flow), total + shaped(row, 2)]

        return [v1.while_loop(lambda i, *_: i < 3, body, [tf.constant(0), flow, tf.zeros([2])])[2]]

    play("TensorArray", packed, 15)

    def recurrent():
        steps, batch, width, units = 5, 2, 3, 4
        x = tf.constant(f32(steps, batch, width))
        w, b = tf.constant(f32(width + units, 4 * units)), tf.constant(f32(4 * units))
        inputs = tf.TensorArray(F, steps).unstack(x)
        outputs = tf.TensorArray(F, steps)

        def body(t, c, h, outputs):
            gates = tf.matmul(tf.concat([inputs.read(t), h], 1), w) + b
            i, j, f, o = tf.split(gates, 4, 1)
            c = tf.sigmoid(f + 1.0) * c + tf.sigmoid(i) * tf.tanh(j)
            h = tf.sigmoid(o) * tf.tanh(c)
            return [t + 1, c, h, outputs.write(t, h)]

        zero = tf.zeros([batch, units])
        _, c, h, outputs = v1.while_loop(lambda t, *_: t < steps, body, [tf.constant(0), zero, zero, outputs])
        rows = outputs.stack()
        return [[c, h, rows] + tf.gradients(tf.reduce_sum(rows * rows) + tf.reduce_sum(c), [x, w, b])]

    play("TensorArrayV3", recurrent, 25)


def stacks():
    def pushed():
        handle = raw.Stack(elem_type=F)
        x = tf.constant(f32(2))

        def push(i, last):
            with tf.control_dependencies([last]):
                return [i + 1, shaped(raw.StackPush(handle=handle, elem=x * tf.cast(i, F)), 2)]

        _, last = v1.while_loop(lambda i, _: i < 4, push, [tf.constant(0), x], parallel_iterations=1)

        def pop(i, total):
            with tf.control_dependencies([total]):
                return [i + 1, total * 2.0 + shaped(raw.StackPop(handle=handle, elem_type=F), 2)]

        with tf.control_dependencies([last]):
            start = tf.zeros([2])
        _, total = v1.while_loop(lambda i, _: i < 4, pop, [tf.constant(0), start], parallel_iterations=1)
        return [total]

    play("Stack", pushed)


def names():
    def arithmetic():
        a, b = tf.constant(f32(2, 3)), tf.constant(f32(2, 3, low=1.0))
        batch = tf.constant(f32(2, 2, 3)), tf.constant(f32(2, 3, 2))
        return [[
            raw.Add(x=a, y=b), raw.Sub(x=a, y=b), raw.Div(x=a, y=b), raw.BatchMatMul(x=batch[0], y=batch[1]),
            raw.Select(condition=a > 0, x=a, y=b), raw.Gather(params=a, indices=[1, 0]),
            raw.Concat(concat_dim=1, values=[a, b]), raw.Reverse(tensor=a, dims=[False, True]),
            raw.Split(axis=1, value=a, num_split=3), raw.Pack(values=[a, b]), raw.Unpack(value=a, num=2),
            raw.Mean(input=a, axis=[0]), raw.ArgMax(input=a, dimension=1), raw.MatrixDiag(diagonal=a),
            raw.ListDiff(x=[1, 2, 3], y=[2]), raw.Where(condition=a > 0), raw.Cross(a=a, b=b),
        ]]

    play("Add", arithmetic, 15)

    def trained():
        w, begin_w = variable(f32(3, 2), "w")
        b, begin_b = variable(np.zeros([2], np.float32), "b")
        x, labels = tf.constant(f32(8, 3)), tf.constant(i32([0, 1, 1, 0, 1, 0, 0, 1]))
        logits = tf.matmul(x, tf.identity(w)) + tf.identity(b)
        loss, backprop = raw.SparseSoftmaxCrossEntropyWithLogits(features=logits, labels=labels)
        mean = tf.reduce_mean(loss)
        grads = tf.matmul(x, backprop, transpose_a=True), tf.reduce_sum(backprop, 0)
        step = tf.group(
            raw.ApplyGradientDescent(var=w, alpha=0.1, delta=grads[0]).op,
            raw.ApplyGradientDescent(var=b, alpha=0.1, delta=grads[1]).op,
        )
        return [tf.group(begin_w, begin_b), mean, step, step, step, mean, [tf.identity(w), tf.identity(b)]]

    play("ApplyGradientDescent", trained, 15)

    def queued():
        handle = raw.FIFOQueue(component_types=[F], shapes=[[]], capacity=10)
        put = raw.QueueEnqueueMany(handle=handle, components=[tf.constant(f32(6))])
        total = v1.while_loop(
            lambda i, _: i < 6,
            lambda i, t: [i + 1, t + shaped(raw.QueueDequeue(handle=handle, component_types=[F])[0])],
            [tf.constant(0), tf.constant(0.0)], parallel_iterations=1,
        )[1]
        return [put, total, raw.QueueSize(handle=handle)]

    play("FIFOQueue", queued, 15)

    def counted():
        value, begin = variable(np.int32(0), "n")

        def body(i):
            with tf.control_dependencies([raw.AssignAdd(ref=value, value=i)]):
                return [i + 1]

        loop = v1.while_loop(lambda i: i < 5, body, [tf.constant(0)], return_same_structure=False)
        return [begin, loop, tf.identity(value), loop, tf.identity(value)]

    play("AssignAdd", counted, 15)


loops()
branches()
arrays()
stacks()
names()
write()
