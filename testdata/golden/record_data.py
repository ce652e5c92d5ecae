"""Records datasets and iterators into data.jsonl.gz.

Run it as record.py says; both share the recorder.
"""

import os

import numpy as np
import recorder
import tensorflow as tf
from dataset_recorder import (
    INT,
    D,
    built,
    data,
    func,
    handle,
    hidden,
    numbers,
    once,
    play,
    raw,
    some,
    v1,
)
from recorder import i64, write

recorder.OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data.jsonl.gz")


def sources():
    play("TensorDataset", lambda: D.from_tensors(([1, 2], "a")), 2)
    play("TensorSliceDataset", lambda: D.from_tensor_slices(([1, 2, 3], [[1.0], [2.0], [3.0]])), 4, 2)
    play("TensorSliceDataset", lambda: (
        raw.TensorSliceDataset(components=[hidden([1, 2]), hidden([1, 2, 3])], output_shapes=[[], []]),
        dict(output_types=[tf.int32, tf.int32], output_shapes=[[], []])), 1)
    play("TensorSliceDataset", lambda: (
        raw.TensorSliceDataset(components=[hidden(1)], output_shapes=[[]]),
        dict(output_types=[tf.int32], output_shapes=[[]])), 1)
    sparse = tf.compat.v1.SparseTensorValue(
        i64([[0, 1], [0, 2], [2, 0]]), np.array([1.0, 2.0, 3.0], np.float32), i64([4, 3]))
    kinds = dict(output_types=[tf.int64, tf.float32, tf.int64],
                 output_shapes=[[None, 1], [None], [1]])
    play("SparseTensorSliceDataset", lambda: (
        raw.SparseTensorSliceDataset(indices=sparse.indices, values=sparse.values,
                                     dense_shape=sparse.dense_shape), kinds), 5)
    for indices in ([[2, 1], [0, 2], [2, 0]], [[0, 5], [0, 2], [2, 0]]):
        play("SparseTensorSliceDataset", lambda: (
            raw.SparseTensorSliceDataset(indices=hidden(i64(indices)), values=sparse.values,
                                         dense_shape=sparse.dense_shape), kinds), 2)
    for args in [(0, 5, 2), (5, 0, -2), (3, 3, 1), (0, 2, 5), (0, 5, -1), (0, 5, 0)]:
        def made():
            start, stop, step = [hidden(i64(x)) for x in args]
            return raw.RangeDataset(start=start, stop=stop, step=step, **INT), INT
        play("RangeDataset", made, 4)
    for dtype in [tf.int32, tf.float32, tf.uint8, tf.float64]:
        play("RangeDataset", lambda: D.range(3, output_type=dtype), 4)
    play("RandomDataset", lambda: (raw.RandomDataset(seed=i64(3), seed2=i64(5), **INT), INT), 6, 3)
    some("ExperimentalRandomDataset", lambda: (
        raw.ExperimentalRandomDataset(seed=i64(3), seed2=i64(5), **INT), INT), 4)
    for again in [False, True]:
        play("RandomDatasetV2", lambda: (raw.RandomDatasetV2(
            seed=i64(3), seed2=i64(5), seed_generator=raw.DummySeedGenerator(),
            rerandomize_each_iteration=again, **INT), INT), 6, 3)
        play("RandomDatasetV2", lambda: (raw.RepeatDataset(count=i64(2), **INT, input_dataset=raw.TakeDataset(
            count=i64(3), **INT, input_dataset=raw.RandomDatasetV2(
                seed=i64(3), seed2=i64(5), seed_generator=raw.DummySeedGenerator(),
                rerandomize_each_iteration=again, **INT))), INT), 7)


def mapped():
    play("MapDataset", lambda: numbers().map(lambda x: (x * 2, tf.as_string(x))), 3, 2)
    play("MapDataset", lambda: numbers(3).map(lambda x: tf.debugging.check_numerics(
        1.0 / tf.cast(x, tf.float32), "bad")), 4)
    play("MapDataset", lambda: numbers(2).map(lambda x: tf.random.uniform([], seed=3)).repeat(3), 7)
    captured = lambda five: numbers(3).map(lambda x: x + five)
    play("MapDataset", lambda: captured(tf.constant(5, tf.int64)), 4)
    play("MapDataset", lambda: numbers(4).map(lambda x: tf.random.uniform([], seed=3)), 5, 3)

    play("ParallelMapDatasetV2", lambda: numbers().map(lambda x: x + 1, num_parallel_calls=4), 11, 2)
    play("ParallelMapDatasetV2", lambda: numbers(3).map(lambda x: tf.debugging.check_numerics(
        1.0 / tf.cast(x, tf.float32), "bad"), num_parallel_calls=2), 4)
    play("ParallelMapDatasetV2", lambda: numbers(3).map(lambda x: x, num_parallel_calls=tf.data.AUTOTUNE), 4)
    with_f = lambda ds, **more: dict(input_dataset=handle(ds), other_arguments=[], **more)

    double = lambda: func(lambda x: x * 2, tf.int64)
    for op, more in [
        ("MapDataset", {}),
        ("ParallelMapDataset", dict(num_parallel_calls=np.int32(2))),
        ("ParallelMapDataset", dict(num_parallel_calls=lambda: hidden(np.int32(0)))),
        ("ParallelMapDatasetV2", dict(num_parallel_calls=i64(2))),
        ("MapAndBatchDataset", dict(batch_size=i64(2), num_parallel_calls=i64(2), drop_remainder=False)),
        ("ExperimentalMapAndBatchDataset", dict(batch_size=i64(2), num_parallel_calls=i64(2), drop_remainder=True)),
        ("MapAndBatchDataset", dict(batch_size=lambda: hidden(i64(0)), num_parallel_calls=i64(2), drop_remainder=True)),
    ]:
        kinds = dict(output_types=[tf.int64], output_shapes=[[None] if "Batch" in op else []])
        play(op, lambda: (getattr(raw, op)(f=double(), **with_f(numbers(5), **built(more)), **kinds), kinds), 6)
    even = lambda: func(lambda x: tf.equal(x % 2, 0), tf.int64)
    small = lambda: func(lambda x: x < 3, tf.int64)
    for op, predicate, more in [
        ("FilterDataset", even, {}),
        ("TakeWhileDataset", small, {}), ("ExperimentalTakeWhileDataset", small, {}),
    ]:
        play(op, lambda: (getattr(raw, op)(predicate=predicate(), **with_f(numbers(6), **more), **INT), INT), 5)
    some("ParallelFilterDataset", lambda: (raw.ParallelFilterDataset(
        predicate=even(), num_parallel_calls=i64(2), **with_f(numbers(6)), **INT), INT), 4)
    play("FilterDataset", lambda: numbers(20).filter(lambda x: x > 17), 3)
    running = lambda: func(lambda s, x: (s + x, s * 10 + x), tf.int64, tf.int64)
    for op in ["ScanDataset", "ExperimentalScanDataset"]:
        play(op, lambda: (getattr(raw, op)(
            f=running(), initial_state=[i64(1)], **with_f(numbers(4)), **INT), INT), 5)


def nested():
    repeated = lambda: func(lambda x: handle(D.from_tensors(x).repeat(x + 1)), tf.int64)
    play("FlatMapDataset", lambda: numbers(4).flat_map(lambda x: D.from_tensors(x).repeat(x)), 7)
    play("FlatMapDataset", lambda: numbers(3).flat_map(lambda x: D.range(0)), 1)
    for cycle, block, n in [(1, 1, 4), (2, 1, 5), (3, 2, 7), (7, 3, 4), (2, 4, 6)]:
        play("InterleaveDataset", lambda: numbers(n).interleave(
            lambda x: D.from_tensors(x).repeat(x + 1), cycle_length=cycle, block_length=block), 30)
        play("ParallelInterleaveDatasetV4", lambda: numbers(n).interleave(
            lambda x: D.from_tensors(x).repeat(x + 1), cycle_length=cycle, block_length=block,
            num_parallel_calls=cycle, deterministic=True), 30)
        for op, more in [
            ("ParallelInterleaveDataset", dict(sloppy=False, buffer_output_elements=i64(2), prefetch_input_elements=i64(2))),
            ("ExperimentalParallelInterleaveDataset", dict(sloppy=False, buffer_output_elements=i64(2), prefetch_input_elements=i64(2))),
            ("LegacyParallelInterleaveDatasetV2", dict(deterministic="true", buffer_output_elements=i64(2), prefetch_input_elements=i64(1))),
            ("ParallelInterleaveDatasetV2", dict(num_parallel_calls=i64(cycle))),
            ("ParallelInterleaveDatasetV3", dict(num_parallel_calls=i64(1), deterministic="true")),
        ]:
            # InterleaveDataset V1 ends in an order that depends on its threads, unless blocks are short.
            if block > 1 and "num_parallel_calls" not in more:
                continue
            play(op, lambda: (getattr(raw, op)(
                input_dataset=handle(numbers(n)), other_arguments=[], f=repeated(),
                cycle_length=i64(cycle), block_length=i64(block), **more, **INT), INT), 30)
    for cycle, block in [(0, 1), (1, 0)]:
        play("InterleaveDataset", lambda: (raw.InterleaveDataset(
            input_dataset=handle(numbers()), other_arguments=[], f=repeated(),
            cycle_length=hidden(i64(cycle)), block_length=hidden(i64(block)), **INT), INT), 1)


def batched():
    kinds = dict(output_types=[tf.int64], output_shapes=[[None]])
    some("BatchDataset", lambda: (raw.BatchDataset(
        input_dataset=handle(numbers()), batch_size=i64(4), **kinds), kinds), 4)
    for drop in [False, True]:
        play("BatchDatasetV2", lambda: numbers().map(lambda x: (x, tf.as_string(x))).batch(4, drop_remainder=drop), 4, 2)
        play("ParallelBatchDataset", lambda: numbers().batch(4, drop_remainder=drop, num_parallel_calls=2), 4)
    for size in [0, -1]:
        play("BatchDatasetV2", lambda: (raw.BatchDatasetV2(
            input_dataset=handle(numbers()), batch_size=hidden(i64(size)), drop_remainder=False, **kinds), kinds), 1)
    play("BatchDatasetV2", lambda: numbers().map(lambda x: tf.fill([x + 1], x)).batch(2), 2)
    play("BatchDatasetV2", lambda: numbers(6).map(lambda x: tf.debugging.check_numerics(
        1.0 / tf.cast(x - 2, tf.float32), "bad")).batch(2), 5)
    fails = lambda: numbers(6).map(lambda x: tf.debugging.check_numerics(
        1.0 / tf.cast(x - 2, tf.float32), "bad"))
    play("ParallelBatchDataset", lambda: fails().batch(2, num_parallel_calls=1), 5)
    play("PaddedBatchDatasetV2", lambda: fails().padded_batch(2, padded_shapes=[]), 5)
    play("MapAndBatchDataset", lambda: numbers(6).apply(tf.data.experimental.map_and_batch(
        lambda x: tf.debugging.check_numerics(1.0 / tf.cast(x - 2, tf.float32), "bad"), 2)), 5)
    play("UnbatchDataset", lambda: fails().batch(2).unbatch(), 6)
    play("ZipDataset", lambda: D.zip((fails(), numbers(6))), 5)
    play("InterleaveDataset", lambda: fails().interleave(lambda x: D.from_tensors(x).repeat(2), 2), 12)
    filled = lambda: numbers(5).map(lambda x: (tf.fill([x], x), tf.fill([2, x], tf.as_string(x))))
    play("PaddedBatchDatasetV2", lambda: filled().padded_batch(
        2, padded_shapes=([None], [3, None]), padding_values=(np.int64(-1), "?")), 4)
    play("PaddedBatchDatasetV2", lambda: filled().padded_batch(
        2, padded_shapes=([6], [None, 5]), drop_remainder=True), 4)
    play("PaddedBatchDatasetV2", lambda: filled().padded_batch(2, padded_shapes=([2], [2, 9])), 4)
    some("PaddedBatchDataset", lambda: (raw.PaddedBatchDataset(
        input_dataset=handle(numbers(3)), batch_size=i64(2), padded_shapes=[np.zeros([0], np.int64)],
        padding_values=[i64(0)], output_shapes=[[None]]), kinds), 3)
    for op in ["UnbatchDataset", "ExperimentalUnbatchDataset"]:
        play(op, lambda: (getattr(raw, op)(
            input_dataset=handle(numbers(5).batch(2)), **INT), INT), 6)


def combined():
    play("ZipDataset", lambda: D.zip((numbers(3), D.range(5, 9))), 4)
    play("ConcatenateDataset", lambda: numbers(2).concatenate(D.range(5, 7)), 5)
    for count in [-1, 0, 1, 2]:
        play("RepeatDataset", lambda: numbers(2).repeat(count), 5)
        play("TakeDataset", lambda: numbers(3).take(count), 4)
        play("SkipDataset", lambda: numbers(3).skip(count), 4)
    play("RepeatDataset", lambda: numbers(0).repeat(), 1)
    for shards, index in [(3, 0), (3, 2), (20, 15), (0, 0), (2, 2), (2, -1)]:
        play("ShardDataset", lambda: (raw.ShardDataset(
            input_dataset=handle(numbers()), num_shards=hidden(i64(shards)), index=hidden(i64(index)), **INT), INT), 5)
    play("ShardDataset", lambda: (raw.ShardDataset(
        input_dataset=handle(numbers(2)), num_shards=i64(5), index=i64(1), require_non_empty=True, **INT), INT), 3)
    for op in ["DirectedInterleaveDataset", "ExperimentalDirectedInterleaveDataset"]:
        for selector in [[0, 1, 0, 1, 1, 0, 0, 0], [0, 2]]:
            play(op, lambda: (getattr(raw, op)(
                selector_input_dataset=handle(D.from_tensor_slices(i64(selector))),
                data_input_datasets=[handle(numbers(2)), handle(D.range(10, 20))], **INT), INT), 8)
    play("DirectedInterleaveDataset", lambda: (raw.DirectedInterleaveDataset(
        selector_input_dataset=handle(D.from_tensor_slices(i64([0, 0, 0, 1]))),
        data_input_datasets=[handle(numbers(2)), handle(D.range(10, 20))],
        stop_on_empty_dataset=True, **INT), INT), 8)
    play("DirectedInterleaveDataset", lambda: tf.data.Dataset.sample_from_datasets(
        [numbers(5), D.range(100, 105)], [0.5, 0.5], seed=3), 12)


def shuffled():
    for n, buffer, seed in [(10, 3, 1), (20, 20, 5), (7, 100, 0), (9, 1, 2)]:
        for again in [True, False]:
            play("ShuffleDataset", lambda: numbers(n).shuffle(
                buffer, seed=seed, reshuffle_each_iteration=again).repeat(3), 3 * n + 1, n)
            play("ShuffleAndRepeatDataset", lambda: (raw.ShuffleAndRepeatDataset(
                input_dataset=handle(numbers(n)), buffer_size=i64(buffer), seed=i64(seed), seed2=i64(11),
                count=i64(3), reshuffle_each_iteration=again, **INT), INT), 3 * n + 1, n)
            for op in ["ShuffleDatasetV3", "ShuffleAndRepeatDatasetV2"]:
                more = dict(count=i64(2)) if "Repeat" in op else {}
                play(op, lambda: (raw.RepeatDataset(count=i64(2), input_dataset=getattr(raw, op)(
                    input_dataset=handle(numbers(n)), buffer_size=i64(buffer), seed=i64(seed),
                    seed2=i64(11), seed_generator=raw.DummySeedGenerator(),
                    reshuffle_each_iteration=again, **more, **INT), **INT), INT), 4 * n + 1, n)
    for reshuffle in [True, False]:
        def kept():
            generator, deleter = raw.AnonymousSeedGenerator(seed=i64(4), seed2=i64(5), reshuffle=reshuffle)
            del deleter
            return raw.RepeatDataset(count=i64(2), input_dataset=raw.ShuffleDatasetV2(
                input_dataset=handle(numbers(6)), buffer_size=i64(6), seed_generator=generator, **INT), **INT), INT
        play("ShuffleDatasetV2", kept, 13)
    play("ShuffleDataset", lambda: (raw.ShuffleDataset(
        input_dataset=handle(numbers()), buffer_size=hidden(i64(0)), seed=i64(1), seed2=i64(1), **INT), INT), 1)
    play("ShuffleAndRepeatDataset", lambda: (raw.ShuffleAndRepeatDataset(
        input_dataset=handle(numbers(0)), buffer_size=i64(3), seed=i64(1), seed2=i64(1), count=i64(-1), **INT), INT), 1)

    def deleted():
        generator, deleter = raw.AnonymousSeedGenerator(seed=i64(4), seed2=i64(5), reshuffle=True)
        cache, other = raw.AnonymousMemoryCache()
        return [raw.DeleteSeedGenerator(handle=generator, deleter=deleter),
                raw.DeleteMemoryCache(handle=cache, deleter=other)]
    once("AnonymousSeedGenerator", deleted)


def kept():
    play("CacheDataset", lambda: numbers(3).map(lambda x: x + 1).cache().repeat(2), 7, 3)
    play("CacheDatasetV2", lambda: (raw.RepeatDataset(count=i64(2), input_dataset=raw.CacheDatasetV2(
        input_dataset=handle(numbers(3)), filename="", cache=raw.DummyMemoryCache(), **INT), **INT), INT), 7)
    for size in [0, 1, 100, -1]:
        play("PrefetchDataset", lambda: numbers(5).prefetch(size), 6, 2)
    play("PrefetchDataset", lambda: (raw.PrefetchDataset(
        input_dataset=handle(numbers()), buffer_size=hidden(i64(-2)), **INT), INT), 1)
    for size, shift, stride, drop in [(3, 3, 1, False), (3, 1, 2, True), (2, 4, 1, False), (3, 2, 3, False), (4, 9, 2, True)]:
        play("WindowDataset", lambda: numbers(7).window(size, shift, stride, drop).flat_map(
            lambda w: w.batch(9)), 8)
    play("WindowDataset", lambda: D.zip((numbers(4), numbers(4))).window(2).flat_map(
        lambda a, b: D.zip((a, b))), 5)
    variant = dict(output_types=[tf.variant], output_shapes=[[]])
    for size, shift, stride in [(0, 1, 1), (1, 0, 1), (1, 1, 0)]:
        play("WindowDataset", lambda: (raw.BatchDatasetV2(batch_size=i64(1), drop_remainder=False, **variant, input_dataset=raw.WindowDataset(
            input_dataset=handle(numbers()), size=hidden(i64(size)), shift=hidden(i64(shift)),
            stride=hidden(i64(stride)), drop_remainder=False, **variant)), variant), 1)
    play("WindowOp", lambda: (raw.WindowOp(inputs=[i64(4), i64(5)], **INT), INT), 3)


def no_strings():
    return tf.constant([], tf.string)


def passed():
    for op, more in [
        ("OptionsDataset", dict(serialized_options=b"")), ("ModelDataset", {}),
        ("OptimizeDataset", dict(optimizations=no_strings)),
        ("OptimizeDatasetV2", dict(optimizations_enabled=no_strings,
                                   optimizations_disabled=no_strings,
                                   optimizations_default=no_strings)),
        ("FinalizeDataset", {}), ("RewriteDataset", dict(rewrite_name="")),
        ("MaxIntraOpParallelismDataset", dict(max_intra_op_parallelism=i64(1))),
        ("ExperimentalMaxIntraOpParallelismDataset", dict(max_intra_op_parallelism=i64(1))),
        ("PrivateThreadPoolDataset", dict(num_threads=i64(1))),
        ("ExperimentalPrivateThreadPoolDataset", dict(num_threads=i64(1))),
        ("NonSerializableDataset", {}), ("ExperimentalNonSerializableDataset", {}),
    ]:
        play(op, lambda: (getattr(raw, op)(input_dataset=handle(numbers(2)), **built(more), **INT), INT), 3)
    play("WrapDatasetVariant", lambda: (raw.UnwrapDatasetVariant(
        input_handle=raw.WrapDatasetVariant(input_handle=handle(numbers(2)))), INT), 3)
    for count in [3, 2, 4, -1, -2]:
        play("AssertCardinalityDataset", lambda: (raw.AssertCardinalityDataset(
            input_dataset=handle(numbers(3)), cardinality=i64(count), **INT), INT), 5)
    for op in ["IgnoreErrorsDataset", "ExperimentalIgnoreErrorsDataset"]:
        kinds = dict(output_types=[tf.float32], output_shapes=[[]])
        play(op, lambda: (getattr(raw, op)(input_dataset=handle(numbers(4).map(
            lambda x: tf.debugging.check_numerics(1.0 / tf.cast(x % 2, tf.float32), "bad"))), **kinds), kinds), 3)


def grouped():
    play("GroupByWindowDataset", lambda: numbers(11).apply(tf.data.experimental.group_by_window(
        lambda x: x % 3, lambda k, w: w.batch(10).map(lambda b: b + 100 * k), window_size=2)), 8)
    play("GroupByWindowDataset", lambda: numbers(11).apply(tf.data.experimental.group_by_window(
        lambda x: x % 3, lambda k, w: w.batch(10), window_size_func=lambda k: k + 1)), 9)
    play("GroupByWindowDataset", lambda: numbers(3).apply(tf.data.experimental.group_by_window(
        lambda x: x % 3, lambda k, w: w.batch(10), window_size_func=lambda k: k)), 3)
    play("GroupByWindowDataset", lambda: numbers(9).map(lambda x: tf.fill([x], x)).apply(
        tf.data.experimental.bucket_by_sequence_length(
            lambda x: tf.size(x), [3, 6], [2, 2, 2])), 6)

    by_reducer = lambda op: (getattr(raw, op)(
        input_dataset=handle(numbers(5)), key_func_other_arguments=[], init_func_other_arguments=[],
        reduce_func_other_arguments=[], finalize_func_other_arguments=[],
        key_func=func(lambda x: x % 2, tf.int64), init_func=func(lambda k: k * 100, tf.int64),
        reduce_func=func(lambda s, x: s + x, tf.int64, tf.int64),
        finalize_func=func(lambda s: s * 2, tf.int64), **INT), INT)
    for op in ["GroupByReducerDataset", "ExperimentalGroupByReducerDataset"]:
        play(op, lambda: by_reducer(op), 3)

    def windowed(op):
        reduce = tf.function(
            lambda k, w: raw.BatchDatasetV2(input_dataset=w, batch_size=i64(10), drop_remainder=False,
                                            output_types=[tf.int64], output_shapes=[[None]]),
            input_signature=[tf.TensorSpec([], tf.int64), tf.TensorSpec([], tf.variant)])
        kinds = dict(output_types=[tf.int64], output_shapes=[[None]])
        return getattr(raw, op)(
            input_dataset=handle(numbers(5)), key_func_other_arguments=[],
            reduce_func_other_arguments=[], window_size_func_other_arguments=[],
            key_func=func(lambda x: x % 2, tf.int64), reduce_func=reduce.get_concrete_function(),
            window_size_func=func(lambda k: tf.constant(2, tf.int64), tf.int64), **kinds), kinds
    play("ExperimentalGroupByWindowDataset", lambda: windowed("ExperimentalGroupByWindowDataset"), 4)


def results():
    once("ReduceDataset", lambda: [numbers().reduce(np.int64(3), lambda s, x: s + x)])
    once("ReduceDataset", lambda: [numbers(0).reduce((np.int64(3), "a"), lambda s, x: (s[0] + x, s[1]))])
    for n in [0, 1, 2]:
        once("DatasetToSingleElement", lambda: [tf.data.experimental.get_single_element(numbers(n))])
    sets = [
        lambda: numbers(5), lambda: numbers(5).repeat(), lambda: numbers(5).repeat(3),
        lambda: numbers(0).repeat(), lambda: numbers(5).filter(lambda x: x > 1),
        lambda: numbers(5).batch(2), lambda: numbers(5).batch(2, drop_remainder=True),
        lambda: numbers(5).map(lambda x: x), lambda: numbers(5).flat_map(lambda x: D.range(x)),
        lambda: numbers(5).take(3), lambda: numbers(5).take(-1), lambda: numbers(5).take(9),
        lambda: numbers(5).skip(3), lambda: numbers(5).skip(-1), lambda: numbers(5).skip(9),
        lambda: numbers(5).repeat().take(3), lambda: numbers(5).repeat().skip(3),
        lambda: numbers(5).concatenate(numbers(3)), lambda: numbers(5).concatenate(numbers(3).repeat()),
        lambda: D.zip((numbers(5), numbers(3))), lambda: D.zip((numbers(5), numbers(3).repeat())),
        lambda: numbers(5).shuffle(3), lambda: numbers(5).prefetch(3), lambda: numbers(5).cache(),
        lambda: numbers(5).shard(3, 1), lambda: numbers(5).window(2), lambda: numbers(5).window(3, 1, 1, True),
        lambda: numbers(5).window(3, 1, 2, True), lambda: numbers(5).window(9, 1, 1, True),
        lambda: numbers(6).batch(2, drop_remainder=True).unbatch(), lambda: numbers(6).batch(2).unbatch(),
        lambda: numbers(5).padded_batch(2, padded_shapes=[]),
        lambda: numbers(5).interleave(lambda x: D.range(x), cycle_length=2),
        lambda: tf.data.experimental.choose_from_datasets([numbers(3), numbers(4)], numbers(2)),
        lambda: numbers(5).take_while(lambda x: x < 3), lambda: D.from_tensors(1),
        lambda: numbers(5).scan(np.int64(0), lambda s, x: (s, x)),
    ]
    for i in range(0, len(sets), 6):
        once("DatasetCardinality", lambda: [
            [raw.DatasetCardinality(input_dataset=handle(build())) for build in sets[i:i + 6]]])
    once("ExperimentalDatasetCardinality", lambda: [
        raw.ExperimentalDatasetCardinality(input_dataset=handle(numbers(4)))])
    once("GetOptions", lambda: [raw.GetOptions(input_dataset=raw.OptionsDataset(
        input_dataset=handle(numbers(4)), serialized_options=b"", **INT))])


def optionals():
    def made():
        full = raw.OptionalFromValue(components=[i64(4), tf.constant("a")])
        none = raw.OptionalNone()
        kinds = dict(output_types=[tf.int64, tf.string], output_shapes=[[], []])
        bad = dict(output_types=[tf.int64, tf.int64], output_shapes=[[], []])
        return [
            [raw.OptionalHasValue(optional=full), raw.OptionalHasValue(optional=none)],
            raw.OptionalGetValue(optional=full, **kinds), raw.OptionalGetValue(optional=none, **kinds),
            raw.OptionalGetValue(optional=full, **bad),
        ]
    once("OptionalFromValue", made)

    def drawn():
        iterator = raw.IteratorV2(shared_name="", container="", **INT)
        init = raw.MakeIterator(dataset=handle(numbers(2)), iterator=iterator)
        optional = raw.IteratorGetNextAsOptional(iterator=iterator, **INT)
        has = raw.OptionalHasValue(optional=optional)
        value = raw.OptionalGetValue(optional=optional, **INT)
        return [has, init, [has, value], [has, value], has, has]
    once("IteratorGetNextAsOptional", drawn)


def iterators():
    def one_shot():
        it = data.make_one_shot_iterator(numbers(3).map(lambda x: x * x).batch(2))
        return [it.get_next()] * 4
    once("OneShotIterator", one_shot)

    def mistaken():
        it = data.make_one_shot_iterator(numbers(3).map(lambda x: tf.debugging.check_numerics(
            1.0 / tf.cast(x, tf.float32), "bad")))
        return [it.get_next()] * 5
    once("OneShotIterator", mistaken)

    def reinitializable():
        it = data.Iterator.from_structure(tf.int64, [])
        first, second = it.make_initializer(numbers(2)), it.make_initializer(D.range(10, 12))
        x = it.get_next()
        return [x, first, x, x, x, second, x, first, x, x, x]
    once("Iterator", reinitializable)

    def initializable():
        it = data.make_initializable_iterator(numbers(2).map(lambda x: x + 1))
        return [it.initializer, it.get_next(), it.get_next(), it.get_next(), it.initializer, it.get_next()]
    once("IteratorV2", initializable)
    for op in ["Iterator", "IteratorV2"]:
        def shared():
            make = lambda: getattr(raw, op)(shared_name="shared", container="", **INT)
            a, b = make(), make()
            init = raw.MakeIterator(dataset=handle(numbers(4)), iterator=a)
            get = lambda it: raw.IteratorGetNext(iterator=it, **INT)
            return [init, get(a), get(b), raw.IteratorGetNextSync(iterator=a, **INT), get(b), get(a)]
        once(op, shared)
    for op in ["AnonymousIterator", "AnonymousIteratorV2", "AnonymousIteratorV3"]:
        def anonymous():
            made = getattr(raw, op)(**INT)
            iterator = made[0] if op.endswith("V2") else made
            init = raw.MakeIterator(dataset=handle(numbers(4)), iterator=iterator)
            with tf.control_dependencies([init]):
                x = raw.IteratorGetNext(iterator=iterator, **INT)
            steps = [x, x]
            if op.endswith("V2"):
                steps.append(raw.DeleteIterator(handle=made[0], deleter=made[1]))
            return steps
        once(op, anonymous)

    def feedable(op):
        def steps():
            first = data.make_one_shot_iterator(numbers(3))
            second = data.make_initializable_iterator(D.range(10, 13))
            strings = tf.stack([first.string_handle(), second.string_handle()])
            pick = v1.get_variable("pick", initializer=0, use_resource=True)
            resource = getattr(raw, op)(string_handle=strings[pick], **INT)
            x = raw.IteratorGetNext(iterator=resource, **INT)
            return [pick.initializer, second.initializer, x, pick.assign(1).op, x, x, pick.assign(0).op, x]
        return steps
    once("IteratorFromStringHandle", feedable("IteratorFromStringHandle"))
    once("IteratorFromStringHandleV2", feedable("IteratorFromStringHandleV2"))
    once("IteratorFromStringHandle", lambda: [raw.IteratorGetNext(
        iterator=raw.IteratorFromStringHandle(string_handle=hidden("nonsense"), **INT), **INT)])

    def wrong_types():
        it = raw.IteratorV2(shared_name="", container="", **INT)
        return [raw.MakeIterator(dataset=handle(D.from_tensors(1.0)), iterator=it),
                raw.MakeIterator(dataset=handle(D.from_tensors(i64([1]))), iterator=it),
                raw.MakeIterator(dataset=hidden_variant(), iterator=it)]

    def hidden_variant():
        return raw.OptionalNone()
    once("MakeIterator", wrong_types)

    def wrong_draw():
        it = raw.IteratorV2(shared_name="", container="", **INT)
        init = raw.MakeIterator(dataset=handle(numbers()), iterator=it)
        return [init, raw.IteratorGetNext(iterator=it, output_types=[tf.int32], output_shapes=[[]])]
    once("IteratorGetNext", wrong_draw)

    def saved():
        it = raw.IteratorV2(shared_name="", container="", **INT)
        init = raw.MakeIterator(
            dataset=handle(numbers(20).shuffle(7, seed=3).map(lambda x: x * 2)), iterator=it)
        x = raw.IteratorGetNext(iterator=it, **INT)
        state = raw.SerializeIterator(resource_handle=it)
        queue = raw.FIFOQueueV2(component_types=[tf.variant], shapes=[])
        put = raw.QueueEnqueueV2(handle=queue, components=[state])
        get = raw.QueueDequeueV2(handle=queue, component_types=[tf.variant])
        get = get[0] if isinstance(get, (list, tuple)) else get
        back = raw.DeserializeIterator(resource_handle=it, serialized=get)
        return [init, x, x, x, put, x, x, x, init, back, x, x, x]
    once("SerializeIterator", saved)


for family in [sources, mapped, nested, batched, combined, shuffled, kept, passed, grouped, results,
               optionals, iterators]:
    before = len(recorder.cases)
    family()
    print(family.__name__, len(recorder.cases) - before)
write()
