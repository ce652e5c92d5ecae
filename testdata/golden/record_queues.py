"""Records queues, staging areas and barriers into queues.jsonl.gz.

Run it as record.py says; both share the recorder. Steps run sequentially, so none may wait.
"""

import os

import numpy as np
import recorder
import tensorflow as tf
from recorder import f32, i32, i64, record, write

recorder.OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "queues.jsonl.gz")
raw = tf.raw_ops
EXACT = (0, 0)
DTYPES = [tf.float32, tf.float64, tf.half, tf.bfloat16, tf.int8, tf.int16, tf.int32, tf.int64,
          tf.uint8, tf.uint16, tf.uint32, tf.uint64, tf.bool, tf.complex64, tf.complex128, tf.string]


def hidden(value):
    """A value whose shape is unknown until the step runs, so that the kernel and not the shape function reports
    an error."""
    return tf.compat.v1.placeholder_with_default(value, None)


def values(dtype, *shape):
    if dtype == tf.string:
        words = [b"w%d" % i for i in range(int(np.prod(shape, dtype=int)))]
        return np.array(words, object).reshape(shape)
    if dtype == tf.bool:
        return recorder.random.randint(0, 2, shape).astype(bool)
    return np.array(recorder.random.randint(0, 100, shape)).astype(dtype.as_numpy_dtype)


def play(op, steps, kind="multi"):
    """`steps` builds the graph and returns its steps: each entry fetches tensors or runs an op."""
    with tf.Graph().as_default() as graph:
        listed = []
        for step in steps():
            if isinstance(step, tf.Operation):
                listed.append(([], [step]))
            else:
                listed.append((tf.nest.flatten(list(step) if isinstance(step, tuple) else step), []))
        record(op, kind, graph, listed, EXACT)


class Queue:
    def __init__(self, op, dtypes, shapes, **attrs):
        self.is_v2 = op.endswith("V2")
        payload = dtypes[1:] if op.startswith("Priority") else dtypes
        self.dtypes = dtypes
        self.handle = getattr(raw, op)(component_types=payload, shapes=shapes, **attrs)

    def on(self, op, **args):
        return getattr(raw, op + ("V2" if self.is_v2 else ""))(handle=self.handle, **args)

    def put(self, *components):
        return self.on("QueueEnqueue", components=self.tensors(components))

    def put_many(self, *components):
        return self.on("QueueEnqueueMany", components=self.tensors(components))

    def tensors(self, components):
        return [c if tf.is_tensor(c) else tf.constant(c, d) for c, d in zip(components, self.dtypes)]

    def get(self):
        return self.on("QueueDequeue", component_types=self.dtypes)

    def get_many(self, n):
        return self.on("QueueDequeueMany", n=n, component_types=self.dtypes)

    def get_up_to(self, n):
        return self.on("QueueDequeueUpTo", n=n, component_types=self.dtypes)

    def close(self, cancel=False):
        return self.on("QueueClose", cancel_pending_enqueues=cancel)

    def size(self):
        return self.on("QueueSize")

    def is_closed(self):
        return self.on("QueueIsClosed")


def fifos(v2):
    for dtype in DTYPES:
        def steps():
            q = Queue("FIFOQueue" + v2, [dtype, tf.int64], [[2], []], capacity=6)
            return [
                q.put(values(dtype, 2), 1), q.put_many(values(dtype, 4, 2), [2, 3, 4, 5]), q.size(),
                q.get(), q.get_many(0), q.get_many(2), q.get_up_to(1), q.is_closed(), q.close(),
                q.get_many(2), q.get_up_to(2), q.get_up_to(2), q.get(), q.put(values(dtype, 2), 1),
                q.put_many(values(dtype, 0, 2), []), q.close(), q.is_closed(),
            ]

        play("FIFOQueue" + v2, steps)
    for kind in ["FIFOQueue", "RandomShuffleQueue"]:
        def unshaped():
            seed = dict(seed=5) if kind == "RandomShuffleQueue" else {}
            q = Queue(kind + v2, [tf.int32, tf.string], [], **seed)
            return [
                q.put([1, 2, 3], b"a"), q.put([[4]], [b"b", b"c"]), q.get(), q.get(),
                q.put_many([[1, 2], [3, 4]], [b"d", b"e"]), q.size(), q.get(), q.get_many(1),
                q.put_many(hidden(tf.constant([1, 2])), hidden(tf.constant([b"x"]))),
                q.get_up_to(hidden(-1)), q.size(), q.close(True), q.close(True), q.get(), q.get(),
            ]

        play(kind + v2, unshaped)


def refused(v2):
    for op in ["FIFOQueue", "PaddingFIFOQueue", "RandomShuffleQueue", "PriorityQueue"]:
        def steps():
            front = [tf.int64] if op == "PriorityQueue" else []
            first = [7] if front else []
            many = [[7, 8]] if front else []
            q = Queue(op + v2, front + [tf.int32, tf.float32], [[], [2]], capacity=5)
            bad = hidden(tf.constant([1.0, 2.0, 3.0]))
            worse = hidden(tf.constant([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))
            return [
                q.put(*first, 1, bad), q.put_many(*many, [1, 2], worse),
                q.put_many(*many, hidden(tf.constant([1])), hidden(tf.constant(f32(2, 2)))),
                q.put_many(*many, hidden(tf.constant(1)), hidden(tf.constant(f32(2, 2)))),
                q.get_many(hidden(-3)), q.size(),
                q.on("QueueEnqueue", components=[tf.constant(1.0)] + [tf.constant(1)] * len(front)),
                q.on("QueueDequeue", component_types=[tf.int32]), q.size(),
            ]

        play(op + v2, steps)


def declared(v2):
    def made(op, **attrs):
        attrs = {"component_types": [tf.int32], "shapes": [[]], **attrs}
        return lambda: [getattr(raw, "QueueSize" + v2)(handle=getattr(raw, op + v2)(**attrs))]

    play("FIFOQueue" + v2, made("FIFOQueue", shapes=[[], []]))
    play("FIFOQueue" + v2, made("FIFOQueue", shapes=[[None]]))
    play("FIFOQueue" + v2, made("FIFOQueue", capacity=0))
    play("FIFOQueue" + v2, made("FIFOQueue", shared_name="_x"))
    play("PaddingFIFOQueue" + v2, made("PaddingFIFOQueue", shapes=[]))
    play("PaddingFIFOQueue" + v2, made("PaddingFIFOQueue", shapes=[None]))
    play("RandomShuffleQueue" + v2, made("RandomShuffleQueue", capacity=3, min_after_dequeue=3))
    play("RandomShuffleQueue" + v2, made("RandomShuffleQueue", min_after_dequeue=-1))

    def shared():
        same = dict(component_types=[tf.int32], shapes=[[]], shared_name="s")
        size = getattr(raw, "QueueSize" + v2)
        make = lambda op, **attrs: getattr(raw, op + v2)(**{**same, **attrs})
        return [size(handle=q) for q in [
            make("FIFOQueue"), make("FIFOQueue"), make("RandomShuffleQueue"),
            make("FIFOQueue", capacity=4), make("FIFOQueue", shapes=[[1]]),
            make("FIFOQueue", component_types=[tf.int64]), make("PaddingFIFOQueue"),
        ]]

    play("FIFOQueue" + v2, shared)


def padding(v2):
    for dtype in DTYPES:
        def steps():
            q = Queue("PaddingFIFOQueue" + v2, [dtype, tf.int32], [[None, 2], [None]])
            one = lambda rows, n: q.put(values(dtype, rows, 2), i32(range(n)))
            return [
                one(1, 3), one(3, 1), one(0, 0), q.get_many(3), one(2, 2), q.get(), one(1, 1),
                q.put_many(values(dtype, 2, 4, 2), i32([[1], [2]])), q.size(), q.get_many(0),
                q.close(), q.get_many(5), q.get_up_to(5), q.get(),
            ]

        play("PaddingFIFOQueue" + v2, steps)


def shuffling(v2):
    for seed, kept in [(1, 0), (7, 2), (-3, 5)]:
        def steps():
            q = Queue("RandomShuffleQueue" + v2, [tf.int64], [[]], capacity=40,
                      min_after_dequeue=kept, seed=seed, seed2=11)
            return [
                q.put_many(i64(range(20))), q.get(), q.get_many(5), q.put(100), q.get_up_to(4),
                q.size(), q.get_many(0), q.close(), q.get_many(30), q.get(), q.get_up_to(30),
                q.get_many(1), q.size(),
            ]

        play("RandomShuffleQueue" + v2, steps, "seeded")


def priorities(v2):
    for dtype in [tf.float32, tf.string, tf.int8]:
        def steps():
            q = Queue("PriorityQueue" + v2, [tf.int64, dtype], [[2]])
            ranks = i64([4, -1, 4, 2**40, 2, 2, 4, -(2**50), 2, 4])
            return [
                q.put_many(ranks, values(dtype, 10, 2)), q.put(3, values(dtype, 2)), q.size(),
                q.get(), q.get_many(4), q.get_up_to(2), q.get_many(0), q.close(), q.get_many(9),
                q.get_many(4), q.get(), q.put(1, values(dtype, 2)),
            ]

        play("PriorityQueue" + v2, steps)

    def unshaped():
        q = Queue("PriorityQueue" + v2, [tf.int64, tf.int32], [])
        scalar = lambda value: hidden(tf.constant(value, tf.int64))
        return [q.put(scalar([1]), 1), q.put_many(scalar([[1]]), [1]), q.size(), q.put(scalar(1), [1]),
                q.get_many(1), q.get()]

    play("PriorityQueue" + v2, unshaped)


def staging():
    for dtype in DTYPES:
        def steps():
            area = dict(shared_name="area", capacity=5, memory_limit=1 << 20)
            types = [dtype, tf.int32]
            put = lambda n: raw.Stage(values=[tf.constant(values(dtype, n), dtype), n], **area)
            on = lambda op, **args: getattr(raw, op)(dtypes=types, **area, **args)
            return [
                put(2), put(0), put(3), on("StageSize"), on("StagePeek", index=2),
                on("StagePeek", index=hidden([1])), on("Unstage"), on("Unstage"), put(1),
                on("StageSize"), raw.Unstage(dtypes=[dtype], **area), on("StageSize"),
                on("StageClear"), on("StageSize"), put(4), on("Unstage"),
            ]

        play("Stage", steps)

    def limited():
        area = dict(shared_name="small", memory_limit=8)
        put = lambda *xs: raw.Stage(values=[tf.constant(xs, tf.int32)], **area)
        return [put(1, 2), put(1, 2, 3), raw.StageSize(dtypes=[tf.int32], **area)]

    play("Stage", limited)


def by_key(ordered):
    for dtype in [tf.float32, tf.string, tf.int64]:
        def steps():
            area = dict(shared_name="area")
            types = [dtype, tf.int32]
            on = lambda op, **args: getattr(raw, ordered + op)(**{"dtypes": types, **area, **args})
            key = lambda k: tf.constant(k, tf.int64)
            x = lambda: tf.constant(values(dtype, 3), dtype)
            put = lambda k, at, *xs: on("MapStage", key=key(k), indices=i32(at), values=list(xs))
            get = lambda op, k, at, types: on(op, key=key(k), indices=i32(at), dtypes=types)
            return [
                put(3, [0, 1], x(), 30), put(3, [0, 1], x(), 31), on("MapSize"),
                get("MapPeek", 3, [0, 1], types), put(4, [0], x()), on("MapIncompleteSize"),
                put(4, [0], x()), put(4, [5], x()), put(4, [1], 40), on("MapIncompleteSize"),
                on("MapSize"), put(9, [1, 0], 1, x()), put(9, [0, 0], x(), x()),
                get("MapPeek", 3, [1], [tf.int32]), get("MapUnstage", 3, [1], [tf.int32]),
                get("MapPeek", 3, [1], [tf.int32]), on("MapSize"),
                get("MapUnstage", 3, [0], [dtype]), on("MapSize"),
                get("MapUnstage", 4, [7], [dtype]), on("MapUnstageNoKey", indices=i32([0, 1])),
                on("MapSize"), put(1, [0, 1], x(), 10), put(2, [1], 20), on("MapClear"),
                on("MapSize"), on("MapIncompleteSize"),
            ]

        play(ordered + "MapStage", steps)

    if ordered:
        def smallest_first():
            area = dict(dtypes=[tf.int32], shared_name="area")
            put = lambda k: raw.OrderedMapStage(
                key=tf.constant(k, tf.int64), indices=[0], values=[tf.constant(k % 97)], **area)
            return [put(k) for k in [5, -7, 2**40, 0]] + [
                raw.OrderedMapUnstageNoKey(indices=[0], **area) for _ in range(4)]

        play("OrderedMapStage", smallest_first)


def barriers():
    for dtype in [tf.float32, tf.string, tf.int64, tf.bool]:
        def steps():
            types = [dtype, tf.int32]
            b = raw.Barrier(component_types=types, shapes=[[], [2]])
            first = lambda *keys: raw.BarrierInsertMany(
                handle=b, keys=list(keys), values=tf.constant(values(dtype, len(keys)), dtype),
                component_index=0)
            second = lambda *keys: raw.BarrierInsertMany(
                handle=b, keys=list(keys), values=values(tf.int32, len(keys), 2), component_index=1)
            take = lambda n, small=False: raw.BarrierTakeMany(
                handle=b, num_elements=n, component_types=types, allow_small_batch=small)
            sizes = lambda: (raw.BarrierReadySize(handle=b), raw.BarrierIncompleteSize(handle=b))
            return [
                first("a", "b", "c"), sizes(), first("a"), second("c"), second("a", "b"), sizes(),
                take(2), take(0), first("d", "e", "f"), second("f", "e"), take(1), sizes(),
                raw.BarrierClose(handle=b), take(9), take(5, True), first("new"), second("d"),
                sizes(), raw.BarrierClose(handle=b), take(9, True), take(1, True), take(1),
                raw.BarrierClose(handle=b, cancel_pending_enqueues=True),
                raw.BarrierClose(handle=b, cancel_pending_enqueues=True), first("g"),
            ]

        play("Barrier", steps)

    def made(**attrs):
        return lambda: [raw.BarrierReadySize(handle=raw.Barrier(component_types=[tf.int32], **attrs))]

    play("Barrier", made(shapes=[]))
    play("Barrier", made(shapes=[[]], capacity=3))

    def refused():
        b = raw.Barrier(component_types=[tf.float32], shapes=[[]])
        insert = lambda values, index=0: raw.BarrierInsertMany(
            handle=b, keys=["k"], values=values, component_index=index)
        return [insert([1.0], 3), insert([1]), insert(hidden([[1.0]])),
                raw.BarrierTakeMany(handle=b, num_elements=0, component_types=[tf.int32]),
                raw.BarrierReadySize(handle=b)]

    play("Barrier", refused)


for v2 in ["", "V2"]:
    fifos(v2)
    refused(v2)
    declared(v2)
    padding(v2)
    shuffling(v2)
    priorities(v2)
staging()
for ordered in ["", "Ordered"]:
    by_key(ordered)
barriers()
write()
