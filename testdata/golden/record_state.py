"""Records tables, accumulators, generators and mutexes into state.jsonl.gz.

Run it as record.py says; both share the recorder.
"""

import os

import numpy as np
import recorder
import tensorflow as tf
from recorder import i32, i64, record, write

recorder.OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "state.jsonl.gz")
raw = tf.raw_ops
EXACT = (0, 0)
CLOSE = (1e-5, 1e-6)

STRING, INT64, INT32, FLOAT, DOUBLE, BOOL = (
    tf.string,
    tf.int64,
    tf.int32,
    tf.float32,
    tf.float64,
    tf.bool,
)
KEYS = {
    STRING: np.array([b"one", b"", b"three", b"four"], object),
    INT64: i64([1, -(2**40), 3, 4]),
    INT32: i32([1, -2, 3, 4]),
}
VALUES = {
    STRING: np.array([b"a", b"bb", b"", b"dddd"], object),
    INT64: i64([10, 2**40, -30, 0]),
    INT32: i32([10, 20, -30, 0]),
    FLOAT: np.array([1.5, -0.0, np.inf, 2.5], np.float32),
    DOUBLE: np.array([1.5, -0.0, np.inf, 2.5], np.float64),
    BOOL: np.array([True, False, True, False]),
}
STATIC = {
    STRING: [STRING, INT64, INT32, FLOAT, DOUBLE, BOOL],
    INT64: [STRING, INT64, INT32, FLOAT, DOUBLE],
    INT32: [STRING, INT32, FLOAT, DOUBLE],
}
MUTABLE = {
    STRING: [INT64, INT32, FLOAT, DOUBLE, BOOL],
    INT64: [STRING, INT64, INT32, FLOAT, DOUBLE],
    INT32: [INT32, FLOAT, DOUBLE],
}
DENSE = {
    STRING: [INT64, INT32, FLOAT, DOUBLE, BOOL],
    INT64: [INT64, INT32, FLOAT, DOUBLE, BOOL],
    INT32: [INT32, FLOAT, DOUBLE],
}
SPECIAL = {
    STRING: [np.array(b"E", object), np.array(b"D", object)],
    INT64: [np.int64(-1), np.int64(-2)],
    INT32: [np.int32(-11), np.int32(-12)],
}


def constant(value, dtype):
    return tf.constant(value, dtype=dtype)


def hidden(value):
    """A value whose shape is unknown until the step runs, so that the kernel and not the shape function reports
    an error."""
    return tf.compat.v1.placeholder_with_default(value, None)


def table(op, key, value, width=None, **more):
    """A table and the version suffix of the ops that take its handle."""
    attrs = {"value_dtype": value}
    if "Dense" in op:
        empty, deleted = SPECIAL[key]
        attrs["empty_key"] = constant(empty, key)
        if op != "MutableDenseHashTable":
            attrs["deleted_key"] = constant(deleted, key)
        attrs["initial_num_buckets"] = 4
    else:
        attrs["key_dtype"] = key
    if width is not None:
        attrs["value_shape"] = [width]
    is_new = op.endswith("V2") or op.startswith("Anonymous")
    if not op.startswith("Anonymous"):
        attrs["use_node_name_sharing"] = True
    handle = getattr(raw, op)(name="table", **{**attrs, **more})
    return handle, "V2" if is_new else ""


def rows(value, width, n):
    values = VALUES[value][:n]
    return values if width is None else np.stack([values] * width, axis=1)


def missing(value, width):
    default = VALUES[value][3]
    return default if width is None else np.array([default] * width)


def steps_of_table(op, key, value, width=None):
    """Inserts or imports, looks up, and removes entries in steps of one session."""
    is_static = op.startswith("HashTable")
    with tf.Graph().as_default() as graph:
        handle, suffix = table(op, key, value, width)
        keys, values = constant(KEYS[key][:3], key), constant(rows(value, width, 3), value)
        query = constant(KEYS[key][[2, 3, 0, 1]].reshape(2, 2), key)
        if "Dense" in op:
            query = tf.reshape(query, [4])
        default = constant(missing(value, width), value)
        call = lambda name, **named: getattr(raw, name + suffix)(table_handle=handle, **named)
        find = call("LookupTableFind", keys=query, default_value=default)
        size = call("LookupTableSize")
        if is_static:
            fill = call("InitializeTable", keys=keys, values=values)
            other = call("InitializeTable", keys=keys[:2], values=values[:2])
            steps = [([find], []), ([size], []), ([], [fill]), ([find, size], []), ([], [other])]
        else:
            fill = call("LookupTableInsert", keys=keys, values=values)
            again = call("LookupTableInsert", keys=keys[1:2], values=values[:1])
            steps = [([find, size], []), ([], [fill]), ([find, size], []), ([], [again])]
            steps.append(([find, size], []))
            if suffix:
                gone = call("LookupTableRemove", keys=keys[:2])
                steps += [([], [gone]), ([find, size], [])]
            export = call("LookupTableExport", Tkeys=key, Tvalues=value)
            if "Dense" in op:
                steps.append(([export.keys, export.values], []))
            else:
                one = call("LookupTableImport", keys=keys[:1], values=values[:1])
                steps += [([], [one]), ([export.keys, export.values], [])]
        record(op, "multi", graph, steps, EXACT)


for op in ("HashTable", "HashTableV2"):
    for key, values in STATIC.items():
        for value in values if op.endswith("V2") else values[:2]:
            steps_of_table(op, key, value)
for op in ("MutableHashTable", "MutableHashTableV2"):
    for key, values in MUTABLE.items():
        for value in values if op.endswith("V2") else values[:2]:
            steps_of_table(op, key, value)
for op in ("MutableHashTableOfTensors", "MutableHashTableOfTensorsV2"):
    for key, values in MUTABLE.items():
        for value in values if op.endswith("V2") else values[:2]:
            steps_of_table(op, key, value, 2)
steps_of_table("MutableDenseHashTable", INT64, FLOAT)
for key, values in DENSE.items():
    for value in values:
        steps_of_table("MutableDenseHashTableV2", key, value)
    steps_of_table("MutableDenseHashTableV2", key, FLOAT, 3)


def anonymous(op, width=None):
    """An anonymous table lives as long as its step."""
    with tf.Graph().as_default() as graph:
        handle, suffix = table(op, INT64, FLOAT, width)
        keys, values = constant(KEYS[INT64][:3], INT64), constant(rows(FLOAT, width, 3), FLOAT)
        fill = raw.LookupTableImportV2 if op == "AnonymousHashTable" else raw.LookupTableInsertV2
        with tf.control_dependencies([fill(table_handle=handle, keys=keys, values=values)]):
            find = raw.LookupTableFindV2(
                table_handle=handle,
                keys=constant(KEYS[INT64], INT64),
                default_value=constant(missing(FLOAT, width), FLOAT),
            )
            size = raw.LookupTableSizeV2(table_handle=handle)
        record(op, "multi", graph, [([find, size], []), ([find, size], [])], EXACT)


anonymous("AnonymousHashTable")
anonymous("AnonymousMutableHashTable")
anonymous("AnonymousMutableHashTableOfTensors", 2)
anonymous("AnonymousMutableDenseHashTable")


def wrong(op, target, keys, values, **named):
    """One call that fails."""
    with tf.Graph().as_default() as graph:
        handle, suffix = table(op, INT64, FLOAT, **named)
        call = getattr(raw, target + suffix)
        arguments = {"keys": hidden(keys)}
        if values is not None:
            arguments["values"] = hidden(values)
        record(op, "multi", graph, [([], [call(table_handle=handle, **arguments)])], EXACT)


def floats(*values):
    return np.array(values, np.float32)


wrong("HashTableV2", "LookupTableInsert", i64([1]), floats(1))
wrong("HashTableV2", "LookupTableRemove", i64([1]), None)
wrong("HashTableV2", "InitializeTable", i64([1, 2]), floats(1))
wrong("HashTableV2", "InitializeTable", i64([1, 1]), floats(1, 2))
wrong("HashTableV2", "InitializeTable", i64([1, 1]), floats(np.nan, np.nan))
wrong("HashTableV2", "InitializeTable", i64([]), floats())
wrong("HashTableV2", "InitializeTable", np.int64(1), np.float32(1))
wrong("HashTableV2", "InitializeTable", i32([1]), floats(1))
wrong("MutableHashTableV2", "InitializeTable", i64([1]), floats(1))
wrong("MutableHashTableV2", "LookupTableInsert", i64([1, 2]), floats(1))
wrong("MutableHashTableV2", "LookupTableInsert", i64([1]), i64([1]))
wrong("MutableHashTableV2", "LookupTableRemove", i32([1]), None)
wrong("MutableHashTableOfTensorsV2", "LookupTableInsert", i64([1]), floats(1), width=2)
wrong("MutableHashTableOfTensorsV2", "LookupTableInsert", i64([1]), floats(1), value_shape=[])
wrong("MutableDenseHashTableV2", "LookupTableInsert", i64([-1]), floats(1))
wrong("MutableDenseHashTableV2", "LookupTableInsert", i64([-2]), floats(1))
wrong("MutableDenseHashTableV2", "LookupTableRemove", i64([-1]), None)
wrong("MutableDenseHashTableV2", "LookupTableInsert", i64([[1, 2]]), floats([1, 2]))
wrong("MutableDenseHashTableV2", "LookupTableInsert", i64([1]), floats(1), initial_num_buckets=6)
wrong("MutableDenseHashTableV2", "LookupTableInsert", i64([1]), floats(1), max_load_factor=1.0)


def uninitialized_export():
    with tf.Graph().as_default() as graph:
        handle, _ = table("HashTableV2", INT64, FLOAT)
        export = raw.LookupTableExportV2(table_handle=handle, Tkeys=INT64, Tvalues=FLOAT)
        record("LookupTableExportV2", "multi", graph, [(list(export), [])], EXACT)


uninitialized_export()


def buckets(keys, initial, key=INT64):
    """Insertions, growth and removals of a dense table; exports show the buckets."""
    with tf.Graph().as_default() as graph:
        value = INT32 if key == INT32 else INT64
        handle, _ = table("MutableDenseHashTableV2", key, value, initial_num_buckets=initial)
        export = raw.LookupTableExportV2(table_handle=handle, Tkeys=key, Tvalues=value)
        steps = []
        for start in range(0, len(keys), 5):
            part = constant(keys[start : start + 5], key)
            values = constant(np.arange(start, start + min(5, len(keys) - start)), value)
            insert = raw.LookupTableInsertV2(table_handle=handle, keys=part, values=values)
            steps += [([], [insert]), (list(export), [])]
        gone = raw.LookupTableRemoveV2(table_handle=handle, keys=constant(keys[1:4], key))
        imported = raw.LookupTableImportV2(
            table_handle=handle,
            keys=hidden(constant([[keys[0]], [keys[1]]], key)),
            values=hidden(constant([[7], [8]], value)),
        )
        steps += [([], [gone]), (list(export), []), ([], [imported]), (list(export), [])]
        record("MutableDenseHashTableV2", "multi", graph, steps, EXACT)


buckets(i64([3, 11, 19, 2, 3, 27, 100, 101, 102, 103, 104, 105, 106]), 8)
buckets(i32([-5, 7, 15, 23, 2**31 - 1, -(2**31)]), 4, INT32)
buckets(np.array([f"word{i}".encode() for i in range(40)], object), 16, STRING)


def from_file(op, key, value, key_index, value_index, **named):
    with tf.Graph().as_default() as graph:
        path = f"golden_files/{op}_{recorder.counts.get(op, 0)}.txt"
        lines = raw.WriteFile(filename=path, contents=named.pop("text", b"a 1\nb 2\r\nc 3"))
        handle, suffix = table("HashTable" + op[27:], key, value)
        fill = getattr(raw, op)(
            table_handle=handle,
            filename=path,
            key_index=key_index,
            value_index=value_index,
            delimiter=" ",
            **named,
        )
        size = getattr(raw, "LookupTableSize" + suffix)(table_handle=handle)
        find = getattr(raw, "LookupTableFind" + suffix)(
            table_handle=handle,
            keys=constant([b"a", b"c", b"c 3", b"zz"] if key == STRING else [0, 2, 3, 9], key),
            default_value=constant({STRING: b"?", BOOL: False}.get(value, -1), value),
        )
        record(op, "multi", graph, [([], [lines]), ([], [fill]), ([find, size], [])], EXACT)


os.makedirs("golden_files", exist_ok=True)
for op in ("InitializeTableFromTextFile", "InitializeTableFromTextFileV2"):
    from_file(op, STRING, INT64, 0, 1)
    from_file(op, STRING, INT64, -2, -1, offset=10)
op = "InitializeTableFromTextFileV2"
from_file(op, INT64, STRING, -1, -2)
from_file(op, INT64, STRING, 1, 0)
from_file(op, STRING, FLOAT, 0, 1)
from_file(op, STRING, DOUBLE, 0, 1)
from_file(op, STRING, INT32, 0, 1, vocab_size=2)
from_file(op, STRING, INT64, 0, 1, vocab_size=5)
from_file(op, STRING, INT64, 0, 1, vocab_size=0)
from_file(op, STRING, INT64, 0, 2)
from_file(op, STRING, INT64, 0, 1, text=b"a 1\n\nb 2\n")
from_file(op, STRING, INT64, 0, 1, text=b"a x\n")
from_file(op, STRING, INT64, 0, 1, text=b"")
from_file(op, STRING, INT64, 0, 1, text=b"a 1\na 2\n")
from_file(op, STRING, INT32, -2, -1)
from_file(op, STRING, BOOL, 0, 1)


def accumulators(is_resource, dtype, reduction):
    prefix = "Resource" if is_resource else ""
    op = prefix + "ConditionalAccumulator"
    with tf.Graph().as_default() as graph:
        handle = getattr(raw, op)(dtype=dtype, shape=[2], reduction_type=reduction, name="acc")
        call = lambda name, **named: getattr(raw, prefix + "Accumulator" + name)(
            handle=handle, **named
        )
        gradient = lambda step, *values: call(
            "ApplyGradient", local_step=np.int64(step), gradient=hidden(constant(values, dtype))
        )
        take = lambda n: call("TakeGradient", num_required=n, dtype=dtype)
        count = call("NumAccumulated")
        steps = [
            ([], [gradient(0, 1.1, 2.2)]),
            ([], [gradient(0, 3.3, -4.4)]),
            ([], [gradient(5, 0.1, 0.2)]),
            ([count], []),
            ([take(2)], []),
            ([], [gradient(0, 9, 9)]),
            ([count], []),
            ([], [call("SetGlobalStep", new_global_step=np.int64(7))]),
            ([], [gradient(6, 9, 9)]),
            ([], [gradient(7, 5, 6)]),
            ([count], []),
            ([take(1)], []),
            ([take(0)], []),
            ([], [call("SetGlobalStep", new_global_step=np.int64(0))]),
            ([], [gradient(0, 1, 2, 3)]),
            ([count], []),
        ]
        record(op, "multi", graph, steps, CLOSE)


for is_resource in (False, True):
    for dtype in (tf.half, FLOAT, DOUBLE):
        for reduction in ("MEAN", "SUM"):
            accumulators(is_resource, dtype, reduction)


def sparse_accumulator(dtype, reduction, shape, gradients):
    op = "SparseConditionalAccumulator"
    with tf.Graph().as_default() as graph:
        handle = raw.SparseConditionalAccumulator(
            dtype=dtype, shape=shape, reduction_type=reduction, name="acc"
        )
        steps = []
        for indices, values, known in gradients:
            apply = raw.SparseAccumulatorApplyGradient(
                handle=handle,
                local_step=np.int64(0),
                gradient_indices=i64(indices),
                gradient_values=hidden(constant(values, dtype)),
                gradient_shape=i64(known or []),
                has_known_shape=known is not None,
            )
            steps.append(([], [apply]))
        count = raw.AccumulatorNumAccumulated(handle=handle)
        take = raw.SparseAccumulatorTakeGradient(handle=handle, num_required=1, dtype=dtype)
        record(op, "multi", graph, steps + [([count], []), (list(take), [])], CLOSE)


a, b = [[1.0, 2.0], [3.0, 4.0]], [[0.5, 0.25], [0.125, 8.0]]
for dtype in (tf.half, FLOAT, DOUBLE):
    for reduction in ("MEAN", "SUM"):
        sparse_accumulator(dtype, reduction, [5, 2], [([0, 3], a, None), ([1, 3], b, [5, 2])])
sparse_accumulator(FLOAT, "MEAN", [5, 2], [([3, 1], a, None), ([1, 3], b, None), ([3], b[:1], None)])
sparse_accumulator(FLOAT, "MEAN", None, [([3, 1], a, None), ([1, 9], b, None)])
sparse_accumulator(FLOAT, "MEAN", [None, 2], [([3, 3], a, None), ([3], b[:1], None)])
bad = [([5, 0], a, None), ([0], [[1.0]], None), ([0], a, None), ([0], b[:1], [4, 2])]
sparse_accumulator(FLOAT, "MEAN", [5, 2], bad + [([0, 4], a, None), ([4], [[1.0]], None)])


def generator(op, state=(1, 2, 3), algorithm=1, shape=(5,), times=2, **named):
    """Draws from a variable, then reads it."""
    with tf.Graph().as_default() as graph:
        handle = raw.VarHandleOp(dtype=INT64, shape=[None], shared_name="state")
        # Computed by a sum: TensorFlow's binomial does not advance a variable that shares a constant's memory.
        init = raw.AssignVariableOp(resource=handle, value=raw.AddV2(x=i64(state), y=i64(0)))
        read = raw.ReadVariableOp(resource=handle, dtype=INT64)
        named = {**named, "resource": handle}
        if op == "RngReadAndSkip":
            named["alg"] = np.int32(algorithm)
        else:
            named["algorithm"] = np.int64(algorithm)
        if not op.startswith("Rng"):
            # An int64 shape of a binomial crashes TensorFlow's process.
            named["shape"] = i32(shape) if op == "StatefulRandomBinomial" else i64(shape)
        drawn = getattr(raw, op)(**named)
        steps = [([], [init])]
        for _ in range(times):
            steps += [([], [drawn]) if isinstance(drawn, tf.Operation) else ([drawn], [])]
            steps += [([read], [])]
        record(op, "multi", graph, steps, (1e-6, 1e-7))


for dtype in (tf.half, tf.bfloat16, FLOAT, DOUBLE):
    for op in ("StatefulUniform", "StatefulStandardNormalV2", "StatefulTruncatedNormal"):
        generator(op, dtype=dtype)
        generator(op, state=(-1, -1, 2**62), shape=(2, 0, 3), dtype=dtype)
        generator(op, state=(-1, -1, 2**62), shape=(17, 3), dtype=dtype)
for dtype in (INT32, INT64, tf.uint32, tf.uint64):
    generator("StatefulUniformFullInt", dtype=dtype)
for kind in (np.int32, np.int64):
    generator("StatefulUniformInt", minval=kind(-3), maxval=kind(1000))
    generator("StatefulUniformInt", minval=kind(3), maxval=kind(3))
    generator("StatefulUniformInt", shape=(0,), minval=kind(3), maxval=kind(3))
for dtype in (tf.half, FLOAT, DOUBLE, INT32, INT64):
    for kind in (np.float32, np.float64):
        counts, probs = np.array([10, 100], kind), np.array([0.5], kind)
        generator("StatefulRandomBinomial", shape=(5, 2), dtype=dtype, counts=counts, probs=probs)
half = np.float16
generator("StatefulRandomBinomial", shape=(7,), counts=half(10), probs=half(0.5))
generator("StatefulRandomBinomial", shape=(0,), counts=half(10), probs=half(0.5))
generator("StatefulRandomBinomial", shape=(3,), counts=half([1, 2]), probs=half(0.5))
for delta in (5, -1, 2**60):
    generator("RngSkip", delta=np.int64(delta))
    generator("RngSkip", state=(-1, -1, 3), delta=np.int64(delta))
generator("RngReadAndSkip", delta=np.uint64(5))
generator("RngReadAndSkip", delta=np.uint64(2**63 + 1))
for algorithm in (2, 3):
    generator("StatefulUniform", algorithm=algorithm)
    generator("RngSkip", algorithm=algorithm, delta=np.int64(5))
    generator("RngReadAndSkip", algorithm=algorithm, delta=np.uint64(5))
generator("StatefulUniform", state=(1, 2))
generator("StatefulUniform", state=(1, 2, 3, 4, 5))


def generator_of_old():
    """V1 ops, whose variable also contains the algorithm."""
    with tf.Graph().as_default() as graph:
        handle = raw.VarHandleOp(dtype=INT64, shape=[None], shared_name="state", name="state")
        raw.AssignVariableOp(resource=handle, value=i64([1, 1, 2, 3]), name="init")
        raw.ReadVariableOp(resource=handle, dtype=INT64, name="read")
        algorithm, shape = tf.constant(1, INT64, name="alg"), tf.constant([5], INT64, name="shape")
        raw.StatefulStandardNormalV2(resource=handle, algorithm=algorithm, shape=shape, name="op")
        definition = graph.as_graph_def()
    definition.versions.producer = 28
    node = next(n for n in definition.node if n.name == "op")
    node.op = "StatefulStandardNormal"
    del node.input[1]
    with tf.Graph().as_default() as graph:
        tf.graph_util.import_graph_def(definition, name="")
        find = graph.get_operation_by_name
        drawn, read = find("op").outputs[0], find("read").outputs[0]
        steps = [([], [find("init")]), ([drawn], []), ([read], []), ([drawn], [])]
        record("StatefulStandardNormal", "multi", graph, steps, (1e-6, 1e-7))


generator_of_old()
for dtype in (INT32, INT64, tf.uint32, tf.uint64):
    with tf.Graph().as_default() as graph:
        shape = tf.shape(raw.NonDeterministicInts(shape=i64([2, 3]), dtype=dtype))
        record("NonDeterministicInts", "multi", graph, [([shape], [])], EXACT)

with tf.Graph().as_default() as graph:
    lock = raw.MutexLock(mutex=raw.MutexV2(shared_name="mutex"))
    leave = raw.ConsumeMutexLock(mutex_lock=lock)
    record("MutexLock", "multi", graph, [([], [leave]), ([], [leave])], EXACT)
    with graph.control_dependencies([leave]):
        twice = raw.ConsumeMutexLock(mutex_lock=lock)
    record("ConsumeMutexLock", "multi", graph, [([], [twice]), ([], [leave])], EXACT)


def slices(is_resource, dtype):
    prefix = "Resource" if is_resource else ""
    op = prefix + "StridedSliceAssign"
    with tf.Graph().as_default() as graph:
        start = constant(np.arange(12).reshape(3, 4), dtype)
        if is_resource:
            ref = raw.VarHandleOp(dtype=dtype, shape=[3, 4], shared_name="v")
            init = raw.AssignVariableOp(resource=ref, value=start)
            read = raw.ReadVariableOp(resource=ref, dtype=dtype)
        else:
            ref = raw.VariableV2(dtype=dtype, shape=[3, 4])
            init, read = raw.Assign(ref=ref, value=start).op, tf.identity(ref)
        steps = [([], [init])]
        for begin, end, strides, value, masks in [
            ([0, 1], [2, 3], [1, 1], np.full([2, 2], 50), {}),
            ([0, 1], [2, 3], [1, 1], 60, {}),
            ([2], [0], [-1], np.full([1, 4], 70), {}),
            ([1, 3], [2, 4], [1, 1], np.full([1], 80), {"shrink_axis_mask": 1}),
            ([0, 0], [0, 1], [1, 1], np.full([1, 1, 4], 90), {"new_axis_mask": 1}),
            ([0, 0], [3, 4], [2, 3], np.full([2, 2], 33), {"begin_mask": 3, "end_mask": 3}),
            ([2, 2], [2, 2], [1, 1], 1, {}),
            ([0, 1], [2, 3], [1, 1], np.full([3], 1), {}),
            ([5, 0], [6, 1], [1, 1], 1, {"shrink_axis_mask": 1}),
        ]:
            put = getattr(raw, op)(
                ref=ref,
                begin=i32(begin),
                end=i32(end),
                strides=i32(strides),
                value=hidden(constant(value, dtype)),
                **masks,
            )
            target = put if isinstance(put, tf.Operation) else put.op
            steps += [([], [target]), ([read], [])]
        record(op, "multi", graph, steps, EXACT)


for is_resource in (False, True):
    for dtype in (FLOAT, INT64, tf.uint8, tf.half, tf.complex128):
        slices(is_resource, dtype)

write()
