"""Records tensor lists, tensor arrays and stacks into lists.jsonl.gz.

Run it as record.py says; both share the recorder. A case is a chain: each of its ops runs after the previous
one, and the outputs of the last one, or the error of the chain, are recorded.
"""

import os

import numpy as np
import recorder
import tensorflow as tf
from recorder import f32, record, write

recorder.OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lists.jsonl.gz")
raw = tf.raw_ops
F, I, L = tf.float32, tf.int32, tf.int64
NONE = np.zeros([0], np.int32)
DTYPES = [tf.float32, tf.float64, tf.half, tf.bfloat16, tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8,
          tf.uint16, tf.uint32, tf.uint64, tf.bool, tf.complex64, tf.complex128, tf.string]


def hidden(value, dtype=None):
    """A value whose shape is unknown until the step runs, so that the kernel and not the shape function reports
    an error."""
    return tf.compat.v1.placeholder_with_default(tf.constant(value, dtype), None)


def values(dtype, *shape):
    if dtype == tf.string:
        words = [b"w%d" % i for i in range(int(np.prod(shape, dtype=int)))]
        return np.array(words, object).reshape(shape)
    if dtype == tf.bool:
        return recorder.random.randint(0, 2, shape).astype(bool)
    return np.array(recorder.random.randint(0, 100, shape)).astype(dtype.as_numpy_dtype)


def flat(step):
    return [t for t in tf.nest.flatten(list(step) if isinstance(step, tuple) else step)]


# Graphs of a later version may not contain the recorded version of the array ops.
OLDEST = {"": 15, "V2": 25}


def of_version(producer):
    """Sets the version of the empty graph."""
    definition = tf.compat.v1.GraphDef()
    definition.versions.producer = producer
    definition.node.add(name="old", op="NoOp")
    tf.graph_util.import_graph_def(definition, name="")


def case(op, build, kind="value", tol=(0, 0), producer=None):
    """`build` yields the ops in the order of execution."""
    with tf.Graph().as_default() as graph:
        if producer:
            of_version(producer)
        before, steps = [], build()
        while True:
            with tf.control_dependencies(before):
                step = next(steps, None)
            if step is None:
                break
            last = step
            if isinstance(step, tf.Operation):
                before = [step]
            else:
                before = [t.op for t in flat(step)]
        if isinstance(last, tf.Operation):
            record(op, kind, graph, [([], [last])], tol)
        else:
            record(op, kind, graph, [(flat(last), [])], tol)


def one(op, build, **options):
    """A case without control edges: `build` returns the fetches."""
    def steps():
        yield build()

    case(op, steps, **options)


# Lists.


def empty(shape=-1, most=-1, dtype=F):
    return raw.EmptyTensorList(element_shape=shape, max_num_elements=most, element_dtype=dtype)


def reserve(n, shape=-1, dtype=F):
    return raw.TensorListReserve(element_shape=shape, num_elements=n, element_dtype=dtype)


def push(items, value):
    return raw.TensorListPushBack(input_handle=items, tensor=value)


def pop(items, shape=-1, dtype=F):
    return raw.TensorListPopBack(input_handle=items, element_shape=shape, element_dtype=dtype)


def put(items, i, value, **options):
    return raw.TensorListSetItem(input_handle=items, index=i, item=value, **options)


def get(items, i, shape=-1, dtype=F):
    return raw.TensorListGetItem(input_handle=items, index=i, element_shape=shape, element_dtype=dtype)


def stack(items, shape=-1, dtype=F, n=-1):
    return raw.TensorListStack(input_handle=items, element_shape=shape, element_dtype=dtype, num_elements=n)


def length(items):
    return raw.TensorListLength(input_handle=items)


def resize(items, n):
    return raw.TensorListResize(input_handle=items, size=n)


def shape_of(items, dtype=I):
    return raw.TensorListElementShape(input_handle=items, shape_type=dtype)


def whole(tensor, shape=-1):
    return raw.TensorListFromTensor(tensor=tensor, element_shape=shape)


def concat1(items, shape=None):
    return raw.TensorListConcat(input_handle=items, element_dtype=F, element_shape=shape)


def concat(items, shape=-1, leading=(), dtype=F):
    leading = tf.constant(list(leading), L) if isinstance(leading, tuple) else leading
    return raw.TensorListConcatV2(input_handle=items, element_shape=shape, leading_dims=leading, element_dtype=dtype)


def split(tensor, shape=-1, lengths=()):
    lengths = tf.constant(list(lengths), L) if isinstance(lengths, tuple) else lengths
    return raw.TensorListSplit(tensor=tensor, element_shape=shape, lengths=lengths)


def gather(items, indices, shape=-1):
    return raw.TensorListGather(input_handle=items, indices=indices, element_shape=shape, element_dtype=F)


def scatter(tensor, indices, shape=-1):
    return raw.TensorListScatter(tensor=tensor, indices=indices, element_shape=shape)


def scatter2(tensor, indices, shape=-1, n=-1):
    return raw.TensorListScatterV2(tensor=tensor, indices=indices, element_shape=shape, num_elements=n)


def scatter_into(items, tensor, indices):
    return raw.TensorListScatterIntoExistingList(input_handle=items, tensor=tensor, indices=indices)


def concat_lists(a, b):
    return raw.TensorListConcatLists(input_a=a, input_b=b, element_dtype=F)


def push_batch(items, tensor):
    return raw.TensorListPushBackBatch(input_handles=items, tensor=tensor)


def ragged():
    return raw.RaggedTensorToVariant(
        rt_nested_splits=[tf.constant([0, 1, 2], L)], rt_dense_values=[1.0, 2.0], batched_input=False
    )


def pair():
    return push(push(empty(), hidden([1.0, 2.0])), hidden([3.0, 4.0]))


def some(*items):
    """A list of these elements, some of which are uninitialized."""
    made = reserve(len(items))
    for i, item in enumerate(items):
        if item is not None:
            made = put(made, i, hidden(item))
    return made


ROW, ROWS = [[1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]]


def list_items():
    for dtype in DTYPES:
        one("TensorListPushBack", lambda: stack(push(push(empty([2], dtype=dtype), values(dtype, 2)), values(dtype, 2)), dtype=dtype))
        one("TensorListGetItem", lambda: get(put(reserve(3, [2], dtype), 1, values(dtype, 2)), 2, dtype=dtype))
        one("TensorListStack", lambda: stack(put(reserve(3, [2], dtype), 1, values(dtype, 2)), dtype=dtype))
        one("TensorListConcatV2", lambda: concat(push(push(empty(dtype=dtype), values(dtype, 2)), values(dtype, 3)), dtype=dtype))
    one("TensorListReserve", lambda: stack(reserve(hidden(-1), [2])))
    one("TensorListReserve", lambda: stack(reserve(hidden([2]), [2])))
    for bad in [-2, 3, [[3]], [-2]]:
        one("TensorListReserve", lambda: stack(reserve(2, hidden(bad)), [2]))
    one("EmptyTensorList", lambda: stack(empty([2, 3])))
    one("EmptyTensorList", lambda: stack(empty([1], hidden([2]))))
    one("EmptyTensorList", lambda: stack(push(empty([1], hidden(-5)), [1.0])))
    one("EmptyTensorList", lambda: length(empty(tf.constant([4], L))))
    one("TensorListPushBack", lambda: stack(push(empty(hidden([2])), hidden([1.0]))))
    one("TensorListPushBack", lambda: stack(push(push(empty(most=1), hidden([1.0])), hidden([1.0]))))
    one("TensorListPushBack", lambda: stack(push(ragged(), hidden([1.0]))))
    one("TensorListPopBack", lambda: pop(empty())[1])
    one("TensorListPopBack", lambda: pop(reserve(2, [2]))[1])
    one("TensorListPopBack", lambda: pop(put(reserve(2), 0, hidden([1.0, 2.0])))[1])
    one("TensorListPopBack", lambda: pop(reserve(2), [3])[1])
    one("TensorListPopBack", lambda: pop(reserve(2))[1])
    one("TensorListPopBack", lambda: pop(push(empty(), hidden([1.0, 2.0])), hidden([3]))[1])
    one("TensorListPopBack", lambda: (stack(pop(pair())[0]), pop(pair())[1]))
    one("TensorListGetItem", lambda: get(push(empty(), hidden([1.0, 2.0])), 0, hidden([3])))
    one("TensorListGetItem", lambda: get(reserve(2, hidden([2])), 0, hidden([3])))
    for i in [1, -1, [0]]:
        one("TensorListGetItem", lambda: get(push(empty(), hidden([1.0, 2.0])), hidden(i)))
    one("TensorListGetItem", lambda: get(put(reserve(2), 0, hidden([1.0, 2.0])), 1))
    one("TensorListGetItem", lambda: get(reserve(2), 1))
    one("TensorListGetItem", lambda: get(reserve(2), 1, tf.constant([2, 1], L)))
    one("TensorListGetItem", lambda: get(put(put(reserve(3), 0, hidden([1.0, 2.0])), 1, hidden([1.0])), 2))
    for i in [2, -1, [1]]:
        one("TensorListSetItem", lambda: stack(put(reserve(2), hidden(i), hidden([1.0]))))
    one("TensorListSetItem", lambda: stack(put(reserve(2), hidden(4), hidden([1.0]), resize_if_index_out_of_bounds=True)))
    one("TensorListSetItem", lambda: stack(put(reserve(2, hidden([2])), 1, hidden([1.0]))))
    one("TensorListSetItem", lambda: stack(put(reserve(2, dtype=I), 1, hidden([1.0])), dtype=I))
    one("TensorListLength", lambda: (length(pair()), length(empty())))
    one("TensorListLength", lambda: length(tf.stack([pair(), pair()])))
    one("TensorListLength", lambda: length(get(reserve(2, NONE, tf.variant), 0, dtype=tf.variant)))
    for n in [0, 1, 4, -1, [3]]:
        one("TensorListResize", lambda: stack(resize(push(empty([1]), [1.0]), hidden(n))))
    for dtype in [I, L]:
        one("TensorListElementShape", lambda: shape_of(empty(), dtype))
        one("TensorListElementShape", lambda: shape_of(push(empty([-1, 2]), tf.ones([3, 2])), dtype))
        one("TensorListElementShape", lambda: shape_of(empty(NONE), dtype))

    def unchanged():
        first = pair()
        second = push(first, hidden([5.0, 6.0]))
        return length(first), length(second), stack(put(first, 0, hidden([9.0, 9.0]))), stack(first), stack(second)

    one("TensorListPushBack", unchanged)


def list_rows():
    one("TensorListStack", lambda: stack(reserve(3)))
    one("TensorListStack", lambda: stack(empty()))
    one("TensorListStack", lambda: stack(empty([2, 3]), n=2))
    one("TensorListStack", lambda: stack(put(reserve(3), 1, hidden([1.0, 2.0]))))
    one("TensorListStack", lambda: stack(push(empty(), hidden([1.0, 2.0])), hidden([3])))
    one("TensorListStack", lambda: stack(push(push(empty(), hidden([1.0, 2.0])), hidden([1.0]))))
    one("TensorListStack", lambda: stack(push(empty(hidden([2])), hidden([1.0, 2.0])), hidden([3])))
    one("TensorListFromTensor", lambda: stack(whole(hidden(1.0))))
    one("TensorListFromTensor", lambda: stack(whole(hidden([1.0, 2.0]), hidden([3]))))
    one("TensorListFromTensor", lambda: stack(whole(f32(3, 2, 2))))
    one("TensorListFromTensor", lambda: stack(whole(hidden(f32(0, 2))), [2]))
    for shape in [None, [None, 2], [None, 3], [1, 2]]:
        one("TensorListConcat", lambda: concat1(some(ROW, ROWS), shape))
        one("TensorListConcat", lambda: concat1(some(ROWS, None), shape))
        one("TensorListConcat", lambda: concat1(some(ROW, None, ROWS), shape))
        one("TensorListConcat", lambda: concat1(empty(), shape))
    one("TensorListConcat", lambda: concat1(push(empty(), hidden(1.0))))
    for shape in [-1, [1, 2], [-1, 2], [5, 2], [-1, -1], [5, -1], NONE]:
        for leading in [(), (1, 1), (7, 8, 2)]:
            one("TensorListConcatV2", lambda: concat(some(ROW, ROWS), hidden(shape), leading))
            one("TensorListConcatV2", lambda: concat(some(ROWS, None), hidden(shape), leading))
            one("TensorListConcatV2", lambda: concat(some(ROW, ROWS, None), hidden(shape), leading))
            one("TensorListConcatV2", lambda: concat(reserve(2), hidden(shape), leading))
            one("TensorListConcatV2", lambda: concat(empty(), hidden(shape), leading))
    one("TensorListConcatV2", lambda: concat(push(empty(), hidden(1.0))))
    one("TensorListConcatV2", lambda: concat(some(ROW, ROWS, [[1.0]])))
    one("TensorListConcatV2", lambda: concat(some(ROW, ROWS, [1.0])))
    for lengths in [(2, 1), (2, 0, 1), (2,), (2, 3), (4, -1)]:
        one("TensorListSplit", lambda: concat(split(hidden([1.0, 2.0, 3.0]), -1, lengths)))
    one("TensorListSplit", lambda: concat(split(hidden(1.0))))
    one("TensorListSplit", lambda: concat(split(hidden(NONE, F)), hidden([-1])))
    one("TensorListSplit", lambda: concat(split(hidden([1.0]), -1, hidden(1, L))))
    for shape in [NONE, [-1, 2], [2, 1], [-1, 1]]:
        one("TensorListSplit", lambda: concat(split(hidden([[1.0]]), hidden(shape), (1,))))
        one("TensorListSplit", lambda: shape_of(split(hidden([[1.0]]), hidden(shape), (1,))))
    for indices in [[1, 0, 1], [[1, 0], [1, 1]], 1, NONE, [2], [-1]]:
        for shape in [-1, [2], [3]]:
            one("TensorListGather", lambda: gather(pair(), hidden(indices), hidden(shape)))
    one("TensorListGather", lambda: gather(push(pair(), hidden([1.0])), hidden([0, 1])))
    one("TensorListGather", lambda: gather(push(pair(), hidden([1.0])), hidden([0, 2])))
    one("TensorListGather", lambda: gather(some(None, [1.0, 2.0]), hidden([0, 1])))
    one("TensorListGather", lambda: gather(some(None, [1.0, 2.0]), hidden([0])))
    for indices in [[3, 0], [1, 1], [3, -1], [3], [[3, 0]]]:
        one("TensorListScatter", lambda: stack(scatter(hidden([1.0, 2.0]), hidden(indices))))
        for n in [5, 2, -1, -2]:
            one("TensorListScatterV2", lambda: stack(scatter2(hidden([1.0, 2.0]), hidden(indices), -1, hidden(n))))
    one("TensorListScatter", lambda: stack(scatter(hidden(1.0), hidden([3]))))
    one("TensorListScatter", lambda: stack(scatter(hidden([[1.0, 2.0]]), hidden([0]), hidden([3]))))
    one("TensorListScatter", lambda: length(scatter(hidden(NONE, F), hidden(NONE))))
    for indices in [[1, 0], [1], [3, 0]]:
        one("TensorListScatterIntoExistingList", lambda: stack(scatter_into(reserve(2), hidden([1.0, 2.0]), hidden(indices))))
        one("TensorListScatterIntoExistingList", lambda: length(scatter_into(reserve(2), hidden([1.0, 2.0]), hidden(indices))))
    one("TensorListScatterIntoExistingList", lambda: stack(scatter_into(reserve(2), hidden(1.0), hidden([1]))))


def list_sums():
    one("TensorListConcatLists", lambda: stack(concat_lists(pair(), pair())))
    one("TensorListConcatLists", lambda: stack(concat_lists(push(empty([2]), [1.0, 2.0]), pair())))
    one("TensorListConcatLists", lambda: stack(concat_lists(ragged(), pair())))
    one("TensorListConcatLists", lambda: [stack(x) for x in tf.unstack(concat_lists(tf.stack([pair(), empty()]), tf.stack([pair(), pair()])))])
    one("TensorListConcatLists", lambda: length(push(concat_lists(push(empty(most=1), hidden([1.0])), pair()), hidden([1.0]))))
    two = lambda: tf.stack([pair(), pair()])
    one("TensorListPushBackBatch", lambda: [stack(x) for x in tf.unstack(push_batch(two(), hidden([[5.0, 6.0], [7.0, 8.0]])), num=2)])
    one("TensorListPushBackBatch", lambda: stack(push_batch(hidden_handle(pair()), hidden([[5.0, 6.0]]))))
    one("TensorListPushBackBatch", lambda: tf.unstack(push_batch(two(), hidden([[5.0, 6.0]])), num=2) and length(push_batch(two(), hidden([[5.0, 6.0]]))[0]))
    one("TensorListPushBackBatch", lambda: length(push_batch(two(), hidden(5.0))[0]))
    shaped = lambda most=-1: tf.stack([push(empty(hidden([1]), most), hidden([1.0]))] * 2)
    one("TensorListPushBackBatch", lambda: length(push_batch(shaped(), hidden([[5.0, 6.0], [5.0, 6.0]]))[0]))
    one("TensorListPushBackBatch", lambda: stack(push_batch(shaped(1), hidden([[5.0], [6.0]]))[1]))
    add = lambda *lists: raw.AddN(inputs=list(lists))
    one("AddN", lambda: stack(add(pair(), pair(), pair())))
    one("AddN", lambda: stack(add(some([1.0, 2.0], None), pair())))
    one("AddN", lambda: stack(add(some([1.0, 2.0], None), some([1.0, 2.0], None))))
    one("AddN", lambda: stack(add(pair(), empty())))
    one("AddN", lambda: stack(add(push(empty([2]), [1.0, 2.0]), push(empty(hidden([3])), [1.0, 2.0, 3.0]))))
    one("AddN", lambda: shape_of(add(empty([2, -1]), empty(hidden([-1, 3])))))
    one("AddN", lambda: stack(add(push(empty(), hidden([1.0])), push(empty(), hidden([1.0, 2.0])))))
    for dtype in DTYPES:
        lists = lambda: push(empty(dtype=dtype), hidden(values(dtype, 2)))
        one("AddN", lambda: stack(add(lists(), lists()), dtype=dtype))
        one("ZerosLike", lambda: stack(raw.ZerosLike(x=lists()), dtype=dtype))
    nested = lambda: push(empty(dtype=tf.variant), pair())
    one("AddN", lambda: stack(get(add(nested(), nested()), 0, dtype=tf.variant)))
    one("AddN", lambda: stack(add(pair(), ragged())))
    back = lambda x: raw.RaggedTensorFromVariant(encoded_ragged=x, input_ragged_rank=1, output_ragged_rank=1, Tvalues=F)
    one("AddN", lambda: back(add(ragged(), ragged())))
    one("ZerosLike", lambda: back(raw.ZerosLike(x=ragged())))
    one("ZerosLike", lambda: stack(raw.ZerosLike(x=some([1.0, 2.0], None))))
    one("ZerosLike", lambda: stack(raw.ZerosLike(x=reserve(2))))
    one("ZerosLike", lambda: stack(get(raw.ZerosLike(x=nested()), 0, dtype=tf.variant)))
    one("ZerosLike", lambda: length(push(raw.ZerosLike(x=push(empty(most=1), hidden([1.0]))), hidden([1.0]))))
    one("DeepCopy", lambda: stack(raw.DeepCopy(x=pair())))
    one("Identity", lambda: stack(raw.Identity(input=pair())))
    one("TensorListStack", lambda: stack(get(whole(stack(push(nested(), pair()), NONE, tf.variant)), 1, dtype=tf.variant)))


def hidden_handle(handle):
    return tf.compat.v1.placeholder_with_default(handle, None)


def grad(op, build, *shapes):
    """The gradient of the result of `build` for random tensors of these shapes."""
    with tf.Graph().as_default() as graph:
        xs = [tf.constant(f32(*shape), name=f"in{i}") for i, shape in enumerate(shapes)]
        y = tf.identity(build(*xs), name="op")
        with tf.compat.v1.Session(graph=graph) as session:
            shape = session.run(y).shape
        found = tf.gradients([y], xs, grad_ys=[tf.constant(f32(*shape))])
        pairs = [(x, g) for x, g in zip(xs, found) if g is not None]
        record(op, "grad", graph, [([g for _, g in pairs], [])], (1e-5, 1e-5), wrt=[x.op.name for x, _ in pairs])


def list_gradients():
    grad("TensorListPushBack", lambda a, b: stack(push(push(empty([2]), a), b)), (2,), (2,))
    grad("TensorListPopBack", lambda a, b: pop(push(push(empty([2]), a), b))[1] * 2.0, (2,), (2,))
    grad("TensorListPopBack", lambda a, b: stack(pop(push(push(empty([2]), a), b))[0]), (2,), (2,))
    grad("TensorListGetItem", lambda a: get(whole(a, [2]), 1, [2]) * get(whole(a, [2]), 0, [2]), (3, 2))
    grad("TensorListGetItem", lambda a: get(whole(a, [2]), 1, [2]), (3, 2))
    grad("TensorListSetItem", lambda a, b: stack(put(whole(a, [2]), 1, b)), (3, 2), (2,))
    grad("TensorListSetItem", lambda a, b: stack(put(whole(a, [2]), 4, b, resize_if_index_out_of_bounds=True), [2]), (3, 2), (2,))
    grad("TensorListResize", lambda a: stack(resize(whole(a, [2]), 2)), (3, 2))
    grad("TensorListResize", lambda a: stack(resize(whole(a, [2]), 5)), (3, 2))
    grad("TensorListStack", lambda a: stack(whole(a, [2])), (3, 2))
    grad("TensorListFromTensor", lambda a: get(whole(a, [2]), 2, [2]), (3, 2))
    grad("TensorListConcatV2", lambda a, b: concat(push(push(empty([-1, 2]), a), b), [-1, 2])[0], (3, 2), (1, 2))
    grad("TensorListConcat", lambda a, b: concat1(push(push(empty([-1, 2]), a), b), [None, 2])[0], (3, 2), (1, 2))
    grad("TensorListSplit", lambda a: get(split(a, [-1, 2], (2, 1)), 1, [1, 2]), (3, 2))
    grad("TensorListSplit", lambda a: concat(split(a, [-1, 2], (2, 1)), [-1, 2])[0], (3, 2))
    grad("TensorListGather", lambda a: gather(whole(a, [2]), [2, 0], [2]), (3, 2))
    grad("TensorListScatter", lambda a: stack(scatter(a, [2, 0, 1], [2])), (3, 2))
    grad("TensorListScatterV2", lambda a: stack(scatter2(a, [2, 0, 5], [2], 7)), (3, 2))
    grad("TensorListScatterIntoExistingList", lambda a, b: stack(scatter_into(whole(a, [2]), b, [2, 0])), (3, 2), (2, 2))
    grad("TensorListStack", lambda a, b: stack(raw.AddN(inputs=[whole(a, [2]), whole(b, [2])])), (3, 2), (3, 2))


# TensorArray ops, in three versions.


class Array:
    def __init__(self, generation, n=3, dtype=F, **options):
        self.generation, self.dtype = generation, dtype
        made = getattr(raw, "TensorArray" + generation)(size=n() if callable(n) else n, dtype=dtype, **options)
        self.take(made)

    def take(self, made):
        self.handle, self.flow = made if self.generation == "V3" else (made, tf.constant(0.0))

    def on(self, op, **args):
        return getattr(raw, f"TensorArray{op}{self.generation}")(handle=self.handle, **args)

    def write(self, i, value):
        return self.on("Write", index=i, value=value, flow_in=self.flow)

    def read(self, i, dtype=None):
        return self.on("Read", index=i, flow_in=self.flow, dtype=dtype or self.dtype)

    def gather(self, indices, **options):
        return self.on("Gather", indices=indices, flow_in=self.flow, dtype=self.dtype, **options)

    def scatter(self, indices, value):
        return self.on("Scatter", indices=indices, value=value, flow_in=self.flow)

    def concat(self, **options):
        return self.on("Concat", flow_in=self.flow, dtype=self.dtype, **options)

    def split(self, value, lengths):
        lengths = tf.constant(lengths, L) if isinstance(lengths, list) else lengths
        return self.on("Split", value=value, lengths=lengths, flow_in=self.flow)

    def size(self):
        return self.on("Size", flow_in=self.flow)

    def close(self):
        return self.on("Close")

    def grad(self, source="a"):
        made = Array.__new__(Array)
        made.generation, made.dtype = self.generation, self.dtype
        made.take(self.on("Grad", flow_in=self.flow, source=source))
        return made


def arrays(generation):
    def play(op, body, **options):
        def steps():
            array = Array(generation, **options)
            yield array.handle.op
            yield from body(array)

        name = op if op.endswith("Shape") else f"TensorArray{op}{generation}"
        case(name, steps, producer=OLDEST.get(generation))

    def chain(op, *calls, **options):
        """Calls on the array in order; the result of the last one is recorded."""
        def body(array):
            for call in calls:
                yield call(array)

        play(op, body, **options)

    w = lambda i, v: lambda a: a.write(hidden(i), v if tf.is_tensor(v) else hidden(v))
    r = lambda i, dtype=None: lambda a: a.read(hidden(i), dtype)
    for dtype in DTYPES:
        value = values(dtype, 2)
        chain("Read", w(1, value), r(1), dtype=dtype)
        chain("Gather", w(0, value), w(1, value), lambda a: a.gather([1, 0]), dtype=dtype)
        if dtype not in (tf.bool, tf.string):
            chain("Read", r(1), dtype=dtype, element_shape=[2])
    chain("", lambda a: a.size(), n=lambda: hidden(-1))
    chain("", lambda a: a.size(), n=lambda: hidden([2]))
    chain("Size", lambda a: a.size())
    chain("Write", w(3, 1.0))
    chain("Write", w(3, 1.0), lambda a: a.size(), dynamic_size=True)
    chain("Write", w(-1, 1.0), dynamic_size=True)
    chain("Write", w(0, 1.0), w(0, 1.0))
    chain("Write", w([0], 1.0))
    chain("Write", w(0, 1))
    chain("Write", w(0, [1.0]), element_shape=[2])
    keeps = dict(clear_after_read=False)
    for options in [{}, keeps]:
        chain("Read", w(0, 1.0), r(0), r(0), **options)
        chain("Write", w(0, 1.0), r(0), w(0, 1.0), **options)
        chain("Read", r(0), r(0), element_shape=[2], **options)
        chain("Write", r(0), w(0, [1.0, 2.0]), element_shape=[2], **options)
        chain("Gather", w(0, [1.0]), lambda a: a.gather([0, 0]), **options)
    chain("Read", r(0))
    chain("Read", r(5))
    chain("Read", r(-1))
    chain("Read", r(5), dynamic_size=True, element_shape=[2])
    chain("Read", r([0]), element_shape=[2])
    chain("Read", r(0, I), element_shape=[2])
    identical = [dict(identical_element_shapes=True)] if generation == "V3" else []
    for options in [{}, *identical]:
        chain("Write", w(0, [1.0]), w(1, [1.0, 2.0]), **options)
        chain("Read", w(0, [1.0]), r(1), **options)
        chain("Gather", w(0, [1.0]), lambda a: a.gather([0, 1]), **options)
    for shape in [None, [1], [2]]:
        chain("Gather", w(0, [1.0]), lambda a: a.gather([0, 1], element_shape=shape))
        chain("Gather", w(0, [1.0]), lambda a: a.gather([0], element_shape=shape))
        chain("Gather", w(0, [1.0]), lambda a: a.gather([0], element_shape=shape), element_shape=[1])
        chain("Gather", lambda a: a.gather(hidden(NONE), element_shape=shape))
    chain("Gather", w(0, [1.0]), w(1, [1.0, 2.0]), lambda a: a.gather([0, 1]))
    chain("Gather", lambda a: a.gather(hidden(0)), element_shape=[2])
    chain("Concat", w(0, [1.0]), w(1, [1.0, 2.0]), w(2, [3.0]), lambda a: a.concat())
    chain("Concat", w(0, [1.0]), w(1, [1.0, 2.0]), lambda a: a.concat())
    chain("Concat", w(0, [1.0]), w(1, [2.0]), lambda a: a.concat(), element_shape=[1])
    chain("Concat", w(0, 1.0), lambda a: a.concat(), n=1)
    chain("Concat", w(0, ROW), lambda a: a.concat(element_shape_except0=[2]), n=1)
    chain("Concat", w(0, ROW), lambda a: a.concat(element_shape_except0=[3]), n=1)
    chain("Concat", w(0, ROW), w(1, [[1.0]]), lambda a: a.concat(), n=2)
    chain("Concat", lambda a: a.concat(), n=0)
    chain("Concat", lambda a: a.concat(element_shape_except0=[2]), n=0)
    s = lambda i, v: lambda a: a.scatter(hidden(i), hidden(v))
    for options in [{}, dict(dynamic_size=True)]:
        for indices in [[0, 2], [0, 3], [0, -1], [0], 0, [1, 1]]:
            chain("Scatter", s(indices, [1.0, 2.0]), lambda a: a.size(), **options)
        for lengths in [[1, 0, 2], [1, 2], [1, 2, 4], [1, 1, 1, 0]]:
            chain("Split", lambda a: a.split(hidden([1.0, 2.0, 3.0]), lengths), r(1), **options)
    chain("Scatter", s([0, 2], [1.0, 2.0]), r(2))
    chain("Scatter", s([0], 1.0))
    chain("Scatter", s([0], [1]))
    chain("Scatter", lambda a: a.scatter(hidden(NONE), hidden(NONE, F)), lambda a: a.size())
    chain("Split", lambda a: a.split(hidden(1.0), [1, 1, 1]))
    chain("Split", lambda a: a.split(hidden([1.0]), hidden(1, L)))
    chain("Split", lambda a: a.split(hidden([1.0, 2.0]), [1, 1]), lambda a: a.size(), n=0, dynamic_size=True)
    chain("Close", w(0, 1.0), lambda a: a.close(), r(0))
    chain("Close", w(0, 1.0), lambda a: a.close(), w(1, 1.0))
    chain("Close", lambda a: a.close(), lambda a: a.size())
    chain("Close", lambda a: a.close(), lambda a: a.close())

    def gradients(op, before, after, **options):
        def body(array):
            for call in before:
                yield call(array)
            grads = array.grad()
            yield grads.handle.op
            for call in after:
                yield call(grads)

        play(op, body, **options)

    two = [w(0, [1.0, 2.0])]
    gradients("Grad", two, [w(0, [1.0, 1.0]), w(0, [2.0, 3.0]), r(0)])
    gradients("Grad", two, [r(0)])
    gradients("Grad", two, [r(1)])
    gradients("Grad", two, [r(1)], element_shape=[2])
    gradients("Grad", two, [r(0), w(0, [1.0, 1.0])])
    gradients("Grad", two, [w(0, [1.0])])
    gradients("Grad", two, [w(0, [1.0, 2.0]), lambda g: g.grad("b").handle.op])
    gradients("Grad", two, [w(5, [1.0, 2.0])], dynamic_size=True)
    gradients("Grad", [lambda a: a.split(hidden([1.0, 2.0, 3.0]), [1, 0, 2])], [w(0, [5.0]), lambda g: g.concat()])
    gradients("Grad", [s([0, 2], [1.0, 2.0])], [s([0, 2], [1.0, 2.0]), s([2], [5.0]), lambda g: g.gather([2, 0])])
    for dtype in DTYPES:
        if dtype != tf.string:
            value = lambda: hidden(values(dtype, 2))
            gradients("Grad", [lambda a: a.write(0, value())], [lambda g: g.write(0, value())] * 3 + [r(0)], dtype=dtype)

    def twice(array):
        yield array.write(0, hidden([1.0, 2.0]))
        one, other, same = array.grad(), array.grad("b"), array.grad()
        yield [one.handle.op, other.handle.op, same.handle.op][0]
        yield one.write(0, hidden([1.0, 2.0]))
        yield same.write(0, hidden([10.0, 20.0]))
        yield (one.read(0), other.read(0))

    play("Grad", twice)

    def frozen(array):
        yield array.write(0, hidden([1.0]))
        yield array.grad().handle.op
        yield array.write(5, hidden([1.0]))

    play("Grad", frozen, dynamic_size=True)
    if generation == "V3":
        def prefixed(array):
            yield array.write(0, hidden([1.0, 2.0]))
            grads = array.grad()
            grads.take(raw.TensorArrayGradWithShape(handle=array.handle, flow_in=array.flow, shape_to_prepend=[3], source="p"))
            yield grads.handle.op
            yield grads.write(0, hidden(f32(3, 2)))
            yield grads.read(0)

        play("TensorArrayGradWithShape", prefixed)
    if generation == "":
        pack = lambda **options: lambda a: a.on("Pack", flow_in=a.flow, dtype=F, **options)
        unpack = lambda v: lambda a: a.on("Unpack", value=hidden(v), flow_in=a.flow)
        chain("Pack", unpack([[1.0], [2.0], [3.0]]), pack())
        chain("Unpack", unpack([[1.0], [2.0]]), pack())
        chain("Unpack", unpack([[1.0], [2.0]]), pack(), dynamic_size=True, n=0)
        chain("Unpack", unpack(1.0))
        chain("Pack", pack(), n=0)
        chain("Pack", pack(element_shape=[2]), n=0)
        chain("Pack", w(0, [1.0]), w(1, [1.0, 2.0]), pack(), n=2)
        chain("Pack", unpack([[1.0], [2.0], [3.0]]), pack(element_shape=[2]))


def array_gradients():
    array = lambda n, **options: tf.TensorArray(F, n, clear_after_read=False, **options)
    grad("TensorArrayWriteV3", lambda a, b: array(2).write(0, a).write(1, b).stack(), (2,), (2,))
    grad("TensorArrayReadV3", lambda a: (lambda t: t.read(1) * t.read(0) + t.read(1))(array(3).unstack(a)), (3, 2))
    grad("TensorArrayGatherV3", lambda a: array(3).unstack(a).gather([2, 0, 2]), (3, 2))
    grad("TensorArrayScatterV3", lambda a: array(4, element_shape=[2]).scatter([3, 0, 1], a).stack(), (3, 2))
    grad("TensorArrayConcatV3", lambda a, b: array(2, infer_shape=False).write(0, a).write(1, b).concat(), (2, 2), (1, 2))
    grad("TensorArraySplitV3", lambda a: array(2, infer_shape=False).split(a, [2, 1]).concat(), (3, 2))


# Stack ops, in two versions.


def stacks(generation):
    def chain(op, *calls, most=-1, dtype=F):
        def steps():
            limit = dict(max_size=most) if generation else {}
            handle = getattr(raw, "Stack" + generation)(elem_type=dtype, **limit)
            yield handle.op
            for call in calls:
                yield call(handle)

        case(f"Stack{op}{generation}", steps)

    push_ = lambda v: lambda h: getattr(raw, "StackPush" + generation)(handle=h, elem=hidden(v))
    pop_ = lambda dtype=F: lambda h: getattr(raw, "StackPop" + generation)(handle=h, elem_type=dtype)
    close = lambda h: getattr(raw, "StackClose" + generation)(handle=h)
    for dtype in DTYPES:
        chain("Pop", push_(values(dtype, 2)), push_(values(dtype, 3, 1)), pop_(dtype), pop_(dtype), dtype=dtype)
    if generation:
        for most in [0, 1, 2, -3]:
            chain("", push_(1.0), push_([2.0]), pop_(), pop_(), most=most)
    chain("Pop", pop_())
    chain("Pop", push_(1.0), pop_(), pop_())
    chain("Push", push_(1), pop_())
    chain("Push", push_(1.0))
    chain("Pop", push_(1.0), pop_(I))
    chain("Close", push_(1.0), close, pop_())
    chain("Close", close, close)
    chain("Close", close, push_(1.0))


list_items()
list_rows()
list_sums()
list_gradients()
for which in ["", "V2", "V3"]:
    arrays(which)
array_gradients()
for which in ["", "V2"]:
    stacks(which)
write()
