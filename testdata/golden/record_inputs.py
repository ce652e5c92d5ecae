"""Records datasets that read files, and the rarer transformations, into inputs.jsonl.gz.

Run it as record.py says; all share the recorder. Files are in the folder golden_files, which the program that
runs the cases provides: each case writes the files that it reads.
"""

import gzip
import os
import shutil
import zlib

import numpy as np
import recorder
import tensorflow as tf
from dataset_recorder import INT, D, drain, func, handle, hidden, numbers, once, play, raw, some, types_of
from recorder import i64, write

recorder.OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "inputs.jsonl.gz")
FOLDER = "golden_files"
TEXT = dict(output_types=[tf.string], output_shapes=[[]])


def path(name):
    return f"{FOLDER}/{name}"


def put(name, content):
    return raw.WriteFile(filename=path(name), contents=content)


def with_files(op, files, build, steps=6, again=0, is_single=False, goes_on=False):
    """Writes files, then draws from the dataset that `build` makes, and again after initializing the iterator
    again.

    Datasets that TensorFlow's MakeIterator cannot serialize are drawn element by element (`is_single`).
    Elements after an error are not recorded unless `goes_on`: TensorFlow retries the same file forever."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    os.makedirs(FOLDER)

    def listed():
        made = [put(name, content) for name, content in files.items()]
        dataset = build()
        variant, kinds = dataset if isinstance(dataset, tuple) else (handle(dataset), types_of(dataset))
        if is_single:
            return made + [raw.DatasetToSingleElement(dataset=raw.TakeDataset(
                input_dataset=raw.SkipDataset(input_dataset=variant, count=i64(i), **kinds),
                count=i64(1), **kinds), **kinds) for i in range(steps)]
        played, init, values = drain(variant, kinds["output_types"], kinds["output_shapes"], steps)
        return made + [init] + [values] * steps + ([init] + [values] * again if again else [])

    once(op, listed)
    recorded = recorder.cases[-1]["steps"]
    failed = [i for i, s in enumerate(recorded) if s.get("error", {}).get("code", 11) != 11]
    if failed and not is_single and not goes_on:
        del recorded[failed[0] + 1:]


def framed(*records):
    """TFRecords as bytes."""
    name = path("frames")
    with tf.io.TFRecordWriter(name) as writer:
        for record in records:
            writer.write(record)
    with open(name, "rb") as file:
        return file.read()


def records():
    os.makedirs(FOLDER, exist_ok=True)
    first, second = framed(b"one", b"", b"three" * 50), framed(b"four", b"five")
    broken = bytearray(first)
    broken[14] ^= 1
    for offsets in [[], [0, 0], [19, 0], [19, 20], [0, len(second)], [0, 5], [0], [-1, 0], [0, 1000]]:
        with_files("TFRecordDatasetV2", {"a": first, "b": second}, lambda: (raw.TFRecordDatasetV2(
            filenames=[path("a"), path("b")], compression_type="", buffer_size=i64(0),
            byte_offsets=hidden(i64(offsets))), TEXT), 6, is_single=True)
    with_files("TFRecordDatasetV2", {"a": gzip.compress(first), "b": gzip.compress(second)}, lambda: (
        raw.TFRecordDatasetV2(filenames=[path("a"), path("b")], compression_type="GZIP",
                              buffer_size=i64(100), byte_offsets=i64([])), TEXT), 6, is_single=True)
    with_files("TFRecordDatasetV2", {"a": bytes(broken), "b": second}, lambda: (
        raw.TFRecordDatasetV2(filenames=[path("a"), path("b")], compression_type="",
                              buffer_size=i64(100), byte_offsets=i64([0, 0])), TEXT), 1, is_single=True)


def fixed_lengths():
    content = b"HHaaabbbcccddF"
    plain = lambda name, header, record, footer, buffer=0: (raw.FixedLengthRecordDataset(
        filenames=name if isinstance(name, list) else path(name), header_bytes=hidden(i64(header)),
        record_bytes=hidden(i64(record)), footer_bytes=hidden(i64(footer)),
        buffer_size=hidden(i64(buffer))), TEXT)
    packed = lambda names, kind, header, record, footer: (raw.FixedLengthRecordDatasetV2(
        filenames=[path(name) for name in names], header_bytes=i64(header), record_bytes=i64(record),
        footer_bytes=i64(footer), buffer_size=i64(0), compression_type=kind), TEXT)
    op = "FixedLengthRecordDataset"
    files = {"a": content[:11], "b": content, "empty": b""}
    for case in [("a", 2, 3, 0), ("a", 0, 11, 0), ("a", 2, 9, 0), ("b", 2, 3, 3), ("b", 2, 3, 0),
                 ("b", 2, 3, 1), ("a", 11, 3, 0), ("a", 5, 3, 6), ("a", 0, 12, 0),
                 ("empty", 0, 3, 0), ("missing", 0, 3, 0), ("a", -1, 3, 0), ("a", 2, 0, 0),
                 ("a", 2, -3, 0), ("a", 2, 3, -1), ("a", 2, 3, 0, -1), ("a", 2, 3, 0, 1)]:
        with_files(op, files, lambda: plain(*case), 4, is_single=True)
    with_files(op, files, lambda: plain([path("a"), path("a")], 2, 3, 0), 7, is_single=True)
    with_files(op, files, lambda: plain([], 2, 3, 0), 1, is_single=True)
    op = "FixedLengthRecordDatasetV2"
    for kind, pack in [("", bytes), ("GZIP", gzip.compress), ("ZLIB", zlib.compress)]:
        files = {"a": pack(content[:11]), "b": pack(content), "empty": pack(b"")}
        for header, record, footer in [(2, 3, 0), (2, 3, 3), (2, 3, 1), (0, 11, 0), (5, 3, 6), (11, 1, 0)]:
            with_files(op, files, lambda: packed("a", kind, header, record, footer), 5)
            with_files(op, files, lambda: packed("b", kind, header, record, footer), 5)
        with_files(op, files, lambda: packed(["a", "b", "a"], kind, 2, 3, 3), 9, 1)
    with_files(op, {"a": content}, lambda: packed("a", "GZIP", 2, 3, 0), 2)
    with_files(op, {"a": content}, lambda: packed("a", "nosuch", 2, 3, 0), 2)


def caches():
    kept = lambda n=3: numbers(n).map(lambda x: (x + 1, tf.as_string(x))).cache(path("kept"))
    with_files("CacheDataset", {}, lambda: kept().repeat(2), 7, 4)
    with_files("CacheDataset", {}, lambda: kept(0), 1, 1)
    with_files("CacheDatasetV2", {}, lambda: (raw.RepeatDataset(count=i64(2), input_dataset=raw.CacheDatasetV2(
        input_dataset=handle(numbers(3)), filename=path("x/kept"), cache=raw.DummyMemoryCache(), **INT), **INT), INT), 7)
    with_files("CacheDatasetV2", {}, lambda: (raw.CacheDatasetV2(
        input_dataset=handle(numbers(3)), filename=path("kept"), cache=raw.DummyMemoryCache(), **INT), INT), 4, 4)
    # A failed element is not cached, the next one is.
    with_files("CacheDataset", {}, lambda: numbers(3).map(lambda x: tf.debugging.check_numerics(
        1.0 / tf.cast(x - 1, tf.float32), "bad")).cache(path("kept")), 4)


def matched():
    files = {"b.txt": b"", "a.txt": b"", "d/c.txt": b"", "x.bin": b""}
    for op in ["MatchingFilesDataset", "ExperimentalMatchingFilesDataset"]:
        build = lambda *patterns: lambda: (getattr(raw, op)(patterns=[path(p) for p in patterns]), TEXT)
        for patterns in [["*.txt"], ["*/*.txt"], ["*.bin", "*.txt"], ["a.txt"], ["nosuch"], ["nofolder/*"],
                         ["nosuch", "*.bin"], ["*.txt", "a*"]]:
            with_files(op, files, build(*patterns), 4, is_single=op.startswith("Exp"))
    with_files("MatchingFilesDataset", files, lambda: (raw.MatchingFilesDataset(patterns=path("?.txt")), TEXT), 3)


def separated():
    number, word, real = (lambda d=None: tf.constant([] if d is None else [d], tf.int32),
                          lambda d=None: tf.constant([] if d is None else [d], tf.string),
                          lambda d=None: tf.constant([] if d is None else [d], tf.float32))

    def table(op, text, defaults, columns=(), excluded=None, header=False, delimiter=",", quotes=True, missing="",
              kind="", buffer=100):
        def build():
            made = [d() for d in defaults]
            more = {} if excluded is None else dict(exclude_cols=hidden(i64(list(excluded))))
            shapes = [[] for _ in made]
            return getattr(raw, op)(
                filenames=[path("a"), path("a")], compression_type=kind, buffer_size=hidden(i64(buffer)),
                header=header, field_delim=hidden(delimiter), use_quote_delim=quotes, na_value=missing,
                select_cols=hidden(i64(list(columns))), record_defaults=made, output_shapes=shapes, **more,
            ), dict(output_types=[d.dtype for d in made], output_shapes=shapes)
        with_files(op, {"a": gzip.compress(text) if kind else text}, build, 8, goes_on=True)

    both = [number, word]
    optional = [lambda: number(7), lambda: word("d")]
    for text in [b"1,a\n2,b\n", b"1,a\r\n2,b\r\n", b"1,a\r2,b", b"1,a\n\n2,b\n", b"\n1,a", b"1,\n,b\n",
                 b'1,"a,b"\n2,"x""y"\n3,"l1\nl2"\n', b'1,a"b\n2,b\n', b'1,"a"b\n2,b\n', b'1,"ab\n2,b\n',
                 b"1,a,3\n2,b\n", b"1\n2,b\n", b"x,a\n2,b\n", b" 1 , a \n", b"", b'"1",2\n', b'"",2\n', b"1,\n",
                 b"1,a\r\r\n2,b", b"99999999999,a\n"]:
        table("CSVDataset", text, both)
        table("CSVDatasetV2", text, optional, excluded=[])
    table("ExperimentalCSVDataset", b"1,a\n", both)
    table("CSVDataset", b"1.5,2\n1e3,4\nnan,5\n", [real, number])
    table("CSVDataset", b"\n", [lambda: number(5)])
    three = b"1,a,x\n2,b,y\n"
    table("CSVDataset", three, both, columns=[0, 2])
    table("CSVDataset", b"1,a\n2\n", optional, columns=[0, 1])
    table("CSVDatasetV2", three, both, excluded=[1])
    table("CSVDatasetV2", three, both, excluded=[1], columns=[0, 1])
    table("CSVDataset", three, both, columns=[0])
    table("CSVDataset", three, both, columns=[1, 0])
    table("CSVDataset", three, both, columns=[-1, 0])
    table("CSVDataset", b"h1,h2\n1,a\n", both, header=True)
    table("CSVDataset", b'"h\n1",h2\n1,a\n', both, header=True)
    table("CSVDataset", b"1;a\n", both, delimiter=";")
    table("CSVDataset", b"1;a\n", both, delimiter=";;")
    table("CSVDataset", b'1,"a\n2,b"\n', both, quotes=False)
    table("CSVDataset", b"NA,NA\n1,b\n", optional, missing="NA")
    table("CSVDataset", b"1,a\n", both, kind="GZIP")
    table("CSVDataset", b"1,a\n", both, buffer=0)
    table("CSVDataset", b"1,a\n", [lambda: hidden(np.array([1, 2], np.int32)), word])


def rebatched():
    pairs = lambda n, size: numbers(n).map(lambda x: (x, tf.as_string(x))).batch(size)
    kinds = dict(output_types=[tf.int64, tf.string], output_shapes=[[None], [None]])
    v2 = lambda dataset, sizes, drop: (raw.RebatchDatasetV2(
        input_dataset=handle(dataset), batch_sizes=hidden(i64(sizes)), drop_remainder=drop, **kinds), kinds)
    for n, size, sizes in [(10, 4, [2]), (10, 4, [3]), (10, 4, [1, 2, 3]), (10, 2, [5]), (7, 3, [3, 0]),
                           (7, 3, [4, 0, 2]), (5, 5, [1, 1, 3]), (0, 3, [2]), (9, 4, [9]), (9, 4, [20])]:
        for drop in [False, True]:
            play("RebatchDatasetV2", lambda: v2(pairs(n, size), sizes, drop), 9)
    # An empty list and negative sizes crash TensorFlow's process.
    for sizes in [[0], [[1]]]:
        play("RebatchDatasetV2", lambda: v2(pairs(4, 2), sizes, False), 3)
    play("RebatchDatasetV2", lambda: v2(D.from_tensor_slices((i64([1, 2]), ["a", "b"])), [2], False), 2)
    play("RebatchDatasetV2", lambda: v2(D.from_tensors((i64([1, 2]), ["a"])), [2], False), 2)
    ints = dict(output_types=[tf.int64], output_shapes=[[None]])
    for op in ["RebatchDataset"]:
        for n, size, replicas in [(8, 4, 2), (8, 4, 4), (10, 4, 2), (8, 4, 3), (10, 5, 2), (6, 2, 4), (8, 4, 0), (8, 4, -1)]:
            play(op, lambda: (getattr(raw, op)(
                input_dataset=handle(numbers(n).batch(size)), num_replicas=hidden(i64(replicas)), **ints), ints), 12)
    some("ExperimentalRebatchDataset", lambda: (raw.ExperimentalRebatchDataset(
        input_dataset=handle(numbers(8).batch(4)), num_replicas=i64(2), **ints), ints), 4)


def sparse_batched():
    variant = dict(output_types=[tf.variant], output_shapes=[None])

    def entries(dataset, steps, dtype=tf.int64):
        iterator = raw.IteratorV2(shared_name="", container="", **variant)
        init = raw.MakeIterator(dataset=dataset, iterator=iterator)
        serialized = raw.IteratorGetNext(iterator=iterator, **variant)[0]
        parts = raw.DeserializeSparse(serialized_sparse=serialized, dtype=dtype)
        return [init] + [list(parts)] * steps

    def batch(source, size, row, op="DenseToSparseBatchDataset"):
        return getattr(raw, op)(input_dataset=handle(source), batch_size=hidden(i64(size)),
                                row_shape=hidden(i64(row)), **variant)

    filled = lambda n=5: numbers(n).map(lambda x: tf.fill([x], x))
    grids = lambda: numbers(4).map(lambda x: tf.fill([2, x], tf.as_string(x)))
    for size, row in [(2, [6]), (2, [-1]), (10, [-1]), (2, [2]), (1, [4]), (0, [4]), (2, []), (2, [-2])]:
        once("DenseToSparseBatchDataset", lambda: entries(batch(filled(), size, row), 4))
    for row in [[2, 4], [-1, -1], [3, -1], [1, 9]]:
        once("DenseToSparseBatchDataset", lambda: entries(batch(grids(), 3, row), 3, tf.string))
    once("DenseToSparseBatchDataset", lambda: entries(batch(numbers(3), 2, []), 3))
    once("ExperimentalDenseToSparseBatchDataset", lambda: entries(
        batch(filled(), 2, [6], "ExperimentalDenseToSparseBatchDataset"), 3))


def parsed():
    def example(**features):
        made = {}
        for name, values in features.items():
            if values and isinstance(values[0], bytes):
                made[name] = tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
            elif values and isinstance(values[0], float):
                made[name] = tf.train.Feature(float_list=tf.train.FloatList(value=values))
            else:
                made[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=values))
        return tf.train.Example(features=tf.train.Features(feature=made)).SerializeToString(deterministic=True)

    rows = [example(a=[1], w=[b"x", b"y"], r=[1.0, 2.0]), example(a=[2], w=[], r=[3.0]),
            example(w=[b"z"]), example(a=[4, 5], w=[b"q"])]
    features = {"a": tf.io.FixedLenFeature([], tf.int64, -1), "w": tf.io.VarLenFeature(tf.string)}
    ragged = {"a": tf.io.FixedLenFeature([1], tf.int64), "r": tf.io.RaggedFeature(tf.float32)}

    def draws(build, steps):
        def listed():
            iterator = tf.compat.v1.data.make_initializable_iterator(build())
            return [iterator.initializer] + [tf.nest.flatten(iterator.get_next(), expand_composites=True)] * steps
        return listed
    apply = lambda n, size, spec, calls=1: D.from_tensor_slices(rows[:n]).batch(size).apply(
        tf.data.experimental.parse_example_dataset(spec, num_parallel_calls=calls))
    once("ParseExampleDatasetV2", draws(lambda: apply(3, 2, features), 3))
    once("ParseExampleDatasetV2", draws(lambda: apply(4, 2, features, 3), 3))
    once("ParseExampleDatasetV2", draws(lambda: apply(2, 2, ragged), 2))
    once("ParseExampleDatasetV2", draws(lambda: apply(3, 1, ragged, 2), 4))
    dense = lambda op, calls, default, rows=rows, more={}: (getattr(raw, op)(
        input_dataset=handle(D.from_tensor_slices(rows).batch(2)), num_parallel_calls=hidden(i64(calls)),
        dense_defaults=[hidden(default)], sparse_keys=[], dense_keys=["a"], sparse_types=[], dense_shapes=[[]],
        output_types=[tf.int64], output_shapes=[[None]], **more), dict(output_types=[tf.int64], output_shapes=[[None]]))
    nothing = dict(ragged_keys=[], ragged_value_types=[], ragged_split_types=[])
    for op, more in [("ParseExampleDataset", nothing), ("ParseExampleDatasetV2", nothing)]:
        for calls, default in [(1, i64(7)), (2, i64([])), (1, i64([1, 2])), (0, i64(7)), (-1, i64(7)), (-2, i64(7))]:
            play(op, lambda: dense(op, calls, default, rows[:3], more), 3)
        play(op, lambda: dense(op, 1, i64(7), [b"\n\x20abc", rows[0], rows[1]], more), 3)
    play("ParseExampleDatasetV2", lambda: (raw.ParseExampleDatasetV2(
        input_dataset=handle(D.from_tensor_slices(rows[:2])), num_parallel_calls=i64(1), dense_defaults=[i64(1)],
        sparse_keys=[], dense_keys=["a"], sparse_types=[], dense_shapes=[[]], output_types=[tf.int64],
        output_shapes=[[None]], **nothing), dict(output_types=[tf.int64], output_shapes=[[None]])), 2)
    some("ExperimentalParseExampleDataset", lambda: dense("ExperimentalParseExampleDataset", 1, i64(7), rows[:3]), 2)


def rest():
    for op in ["UniqueDataset", "ExperimentalUniqueDataset"]:
        for values in [i64([1, 2, 1, 3, 3, 1]), ["a", "b", "a", ""], np.int32([5, 5])]:
            kinds = dict(output_types=[tf.as_dtype(np.array(values).dtype) if not isinstance(values, list) else tf.string], output_shapes=[[]])
            play(op, lambda: (getattr(raw, op)(input_dataset=handle(D.from_tensor_slices(values)), **kinds), kinds), 5, 2)
    floats = dict(output_types=[tf.float32], output_shapes=[[]])
    play("UniqueDataset", lambda: (raw.UniqueDataset(input_dataset=handle(D.from_tensor_slices([1.0])), **floats), floats), 2)
    vectors = dict(output_types=[tf.int64], output_shapes=[[2]])
    play("UniqueDataset", lambda: (raw.UniqueDataset(
        input_dataset=handle(D.from_tensor_slices(i64([[1, 2], [1, 2], [2, 1]]))), **vectors), vectors), 4)
    pairs = dict(output_types=[tf.int64, tf.int64], output_shapes=[[], []])
    play("UniqueDataset", lambda: (raw.UniqueDataset(
        input_dataset=handle(D.zip((numbers(2), numbers(2)))), **pairs), pairs), 2)
    for op in ["AssertNextDataset", "ExperimentalAssertNextDataset"]:
        for names in [["Range"], ["Batch"], [], ["Range", "Batch"]]:
            play(op, lambda: (getattr(raw, op)(
                input_dataset=handle(numbers(2)), transformations=tf.constant(names, tf.string), **INT), INT), 3)
    for names in [["Range"], ["Map"], []]:
        play("AssertPrevDataset", lambda: (raw.AssertPrevDataset(
            input_dataset=handle(numbers(2)), transformations=tf.constant(names, tf.string), **INT), INT), 3)
    for op in ["LatencyStatsDataset", "ExperimentalLatencyStatsDataset", "BytesProducedStatsDataset",
               "ExperimentalBytesProducedStatsDataset"]:
        play(op, lambda: (getattr(raw, op)(input_dataset=handle(numbers(2)), tag="t", **INT), INT), 3)
    for op in ["ChooseFastestDataset", "ExperimentalChooseFastestDataset"]:
        play(op, lambda: (getattr(raw, op)(
            input_datasets=[handle(numbers(3)), handle(numbers(3))], num_experiments=2, **INT), INT), 4)
    batch = dict(output_types=[tf.int64], output_shapes=[[None]])
    for op in ["SlidingWindowDataset", "ExperimentalSlidingWindowDataset"]:
        for size, shift, stride in [(3, 2, 1), (2, 3, 2), (9, 1, 1), (0, 1, 1), (1, 0, 1), (1, 1, 0)]:
            play(op, lambda: (getattr(raw, op)(
                input_dataset=handle(numbers(7)), window_size=hidden(i64(size)), window_shift=hidden(i64(shift)),
                window_stride=hidden(i64(stride)), **batch), batch), 4)
    play("SlidingWindowDataset", lambda: (raw.SlidingWindowDataset(
        input_dataset=handle(numbers(7)), window_size=i64(3), window_shift=i64(3), window_stride=i64(1),
        drop_remainder=False, **batch), batch), 4)
    for rate, seed in [(0.5, 1), (0.1, 3), (1.0, 2), (0.0, 2)]:
        play("SamplingDataset", lambda: (raw.SamplingDataset(
            input_dataset=handle(numbers(20)), rate=rate, seed=i64(seed), seed2=i64(7), **INT), INT), 21, 6)
    play("ListDataset", lambda: (raw.ListDataset(tensors=[i64(4), i64(5)], **INT), INT), 3, 1)
    started = func(lambda: tf.constant(5, tf.int64))
    doubled = func(lambda state: state * 2, tf.int64)
    ended = func(lambda last: last, tf.int64)
    play("GeneratorDataset", lambda: (raw.GeneratorDataset(
        init_func_other_args=[], next_func_other_args=[], finalize_func_other_args=[], init_func=started,
        next_func=doubled, finalize_func=ended, **INT), INT), 4)


def written():
    def listed(dataset, name=path("out"), kind=""):
        write_it = raw.DatasetToTFRecord(input_dataset=handle(dataset), filename=name, compression_type=kind)
        with tf.control_dependencies([write_it]):
            back = raw.TFRecordDataset(filenames=name, compression_type=kind, buffer_size=i64(0))
        iterator = raw.IteratorV2(shared_name="", container="", **TEXT)
        return [write_it, raw.MakeIterator(dataset=back, iterator=iterator)] + [
            raw.IteratorGetNext(iterator=iterator, **TEXT)] * 4
    words = lambda: D.from_tensor_slices(["a", "", "ccc"])
    for kind in ["", "GZIP"]:
        once("DatasetToTFRecord", lambda: listed(words(), kind=kind))
    once("DatasetToTFRecord", lambda: [raw.DatasetToTFRecord(
        input_dataset=handle(numbers(2)), filename=path("out"), compression_type="")])
    once("ExperimentalDatasetToTFRecord", lambda: [raw.ExperimentalDatasetToTFRecord(
        input_dataset=handle(words()), filename=path("out"), compression_type=""), raw.ReadFile(filename=path("out"))])


def several_devices():
    cpu = "/job:localhost/replica:0/task:0/device:CPU:0"

    def dealt(shards, count, buffer):
        def steps():
            it = raw.MultiDeviceIterator(devices=[cpu] * shards, shared_name="", container="", **INT)
            init = raw.MultiDeviceIteratorInit(dataset=handle(numbers(count)), multi_device_iterator=it, max_buffer_size=i64(buffer))
            known = tf.compat.v1.get_variable("known", shape=[], dtype=tf.int64, initializer=tf.zeros_initializer(), use_resource=True)
            start = known.assign(init).op
            get = lambda shard, number=None: raw.MultiDeviceIteratorGetNextFromShard(
                multi_device_iterator=it, shard_num=hidden(np.int32(shard)),
                incarnation_id=known.read_value() if number is None else i64(number), **INT)
            order = [0, 1, 1, 0, 2, 2][:2 * shards] if shards > 1 else [0, 0]
            # A shard out of range, and drawing before initialization, crash TensorFlow's process.
            return [start] + [get(s) for s in order] + [get(0, 77)] + [
                get(s) for s in range(shards)] * 3 + [start, get(0), get(shards - 1)]
        return steps
    for shards, count, buffer in [(2, 6, 2), (3, 7, 3), (1, 3, 1)]:
        once("MultiDeviceIterator", dealt(shards, count, buffer))

    def by_name():
        it = raw.MultiDeviceIterator(devices=[cpu], shared_name="m", container="", **INT)
        text = raw.MultiDeviceIteratorToStringHandle(multi_device_iterator=it)
        again = raw.MultiDeviceIteratorFromStringHandle(string_handle=text, **INT)
        init = raw.MultiDeviceIteratorInit(dataset=handle(numbers(3)), multi_device_iterator=it, max_buffer_size=i64(2))
        get = raw.MultiDeviceIteratorGetNextFromShard(multi_device_iterator=again, shard_num=0, incarnation_id=i64(1), **INT)
        return [init, get, get]
    once("MultiDeviceIteratorFromStringHandle", by_name)
    for op in ["AnonymousMultiDeviceIterator", "AnonymousMultiDeviceIteratorV3"]:
        def anonymous():
            made = getattr(raw, op)(devices=[cpu, cpu], **INT)
            it = made if op.endswith("V3") else made[0]
            number = raw.MultiDeviceIteratorInit(dataset=handle(numbers(3)), multi_device_iterator=it, max_buffer_size=i64(2))
            get = lambda shard: raw.MultiDeviceIteratorGetNextFromShard(multi_device_iterator=it, shard_num=shard, incarnation_id=number, **INT)
            steps = [get(0), get(1)]
            if not op.endswith("V3"):
                with tf.control_dependencies([get(0)[0] if isinstance(get(0), (list, tuple)) else get(0)]):
                    steps.append(raw.DeleteMultiDeviceIterator(multi_device_iterator=it, iterators=[], deleter=made[1]))
            return steps
        once(op, anonymous)


def places():
    def steps():
        it = raw.IteratorV2(shared_name="", container="", **INT)
        return [raw.IteratorGetDevice(resource=it), raw.ExperimentalIteratorGetDevice(resource=it)]
    once("IteratorGetDevice", steps)


FAMILIES = [records, fixed_lengths, caches, matched, separated, rebatched, sparse_batched, parsed, rest, written,
            several_devices, places]
for family in FAMILIES:
    if os.environ.get("ONLY") and family.__name__ not in os.environ["ONLY"].split(","):
        continue
    before = len(recorder.cases)
    family()
    print(family.__name__, len(recorder.cases) - before)
shutil.rmtree(FOLDER, ignore_errors=True)
if os.environ.get("SHOW"):
    for entry in recorder.cases:
        print(entry["id"], [s.get("error", {}).get("code", "." if "expect" in s else "-") for s in entry["steps"]])
write()
