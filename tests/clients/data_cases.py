"""tf.data in graphs: every way to make an iterator, and the idioms of input pipelines."""

import os
import tempfile
import threading
import time

import numpy as np
import tensorflow as tf
from support import close, equal, raises, session, v1

D = v1.data.Dataset


def drained(s, tensor, limit=1000):
    values = []
    try:
        for _ in range(limit):
            values.append(s.run(tensor))
    except tf.errors.OutOfRangeError:
        pass
    return values


def case_one_shot_iterator(target):
    with session(target) as s:
        x = v1.data.make_one_shot_iterator(D.range(5).map(lambda x: x * x)).get_next()
        assert drained(s, x) == [0, 1, 4, 9, 16]
        with raises(tf.errors.OutOfRangeError, "End of sequence", "IteratorGetNext"):
            s.run(x)


def case_initializable_iterator_with_placeholder(target):
    with session(target) as s:
        n = v1.placeholder(tf.int64, [])
        iterator = v1.data.make_initializable_iterator(D.range(n).batch(2))
        x = iterator.get_next()
        with raises(tf.errors.FailedPreconditionError, "has not been initialized"):
            s.run(x)
        for count in (3, 5):
            s.run(iterator.initializer, {n: count})
            equal(np.concatenate(drained(s, x)), np.arange(count))


def case_reinitializable_iterator(target):
    with session(target) as s:
        train, check = D.range(100).shuffle(10).repeat(), D.range(3)
        iterator = v1.data.Iterator.from_structure(tf.int64, [])
        x = iterator.get_next()
        to_train, to_check = iterator.make_initializer(train), iterator.make_initializer(check)
        for _ in range(2):
            s.run(to_train)
            for _ in range(5):
                assert 0 <= s.run(x) < 20
            s.run(to_check)
            assert drained(s, x) == [0, 1, 2]


def case_feedable_iterator(target):
    with session(target) as s:
        handle = v1.placeholder(tf.string, [])
        x = v1.data.Iterator.from_string_handle(handle, tf.int64, []).get_next()
        first = v1.data.make_one_shot_iterator(D.range(10))
        second = v1.data.make_initializable_iterator(D.range(100, 110))
        a, b = s.run([first.string_handle(), second.string_handle()])
        s.run(second.initializer)
        got = [s.run(x, {handle: h}) for h in (a, b, a, a, b)]
        assert got == [0, 100, 1, 2, 101], got
        with raises(tf.errors.InvalidArgumentError):
            s.run(x, {handle: b"nonsense"})


def case_an_input_pipeline(target):
    with session(target) as s:
        images = np.random.RandomState(0).randint(0, 256, (64, 28, 28)).astype(np.uint8)
        labels = np.arange(64, dtype=np.int32)
        dataset = D.from_tensor_slices((images, labels))
        dataset = dataset.map(lambda i, l: (tf.cast(i, tf.float32) / 255.0, l), num_parallel_calls=4)
        dataset = dataset.shuffle(64, seed=1).repeat(2).batch(16).prefetch(2)
        image, label = v1.data.make_one_shot_iterator(dataset).get_next()
        seen = []
        for _ in range(8):
            i, l = s.run([image, label])
            assert i.shape == (16, 28, 28)
            close(i[3], images[l[3]] / 255.0)
            seen.extend(l.tolist())
        assert sorted(seen) == sorted(labels.tolist() * 2)
        assert seen[:64] != seen[64:]
        with raises(tf.errors.OutOfRangeError):
            s.run(image)


def case_shuffle_is_tensorflows(target):
    def order(where):
        with session(where) as s:
            v1.set_random_seed(3)
            x = v1.data.make_one_shot_iterator(D.range(50).shuffle(10, seed=7).repeat(2)).get_next()
            return drained(s, x)
    assert order(target) == order("")


def case_ragged_lengths(target):
    with session(target) as s:
        dataset = D.range(1, 8).map(lambda x: tf.fill([x], x))
        padded = v1.data.make_one_shot_iterator(
            dataset.padded_batch(3, padded_shapes=[None])).get_next()
        equal(s.run(padded), [[1, 0, 0], [2, 2, 0], [3, 3, 3]])
        bucketed = dataset.apply(tf.data.experimental.bucket_by_sequence_length(
            lambda x: tf.size(x), [3, 6], [2, 2, 2]))
        shapes = [b.shape for b in drained(s, v1.data.make_one_shot_iterator(bucketed).get_next())]
        assert sorted(shapes) == [(1, 5), (2, 2), (2, 4), (2, 7)], shapes


def case_nested_datasets(target):
    with session(target) as s:
        pairs = D.range(3).flat_map(lambda x: D.range(x).map(lambda y: (x, y)))
        got = drained(s, v1.data.make_one_shot_iterator(pairs).get_next())
        assert got == [(1, 0), (2, 0), (2, 1)], got
        turns = D.range(1, 4).interleave(lambda x: D.from_tensors(x).repeat(3), 2, 1)
        got = drained(s, v1.data.make_one_shot_iterator(turns).get_next())
        assert got == [1, 2, 1, 2, 1, 2, 3, 3, 3], got
        windows = D.range(7).window(3, 2).flat_map(lambda w: w.batch(3))
        got = drained(s, v1.data.make_one_shot_iterator(windows).get_next())
        assert [g.tolist() for g in got] == [[0, 1, 2], [2, 3, 4], [4, 5, 6], [6]], got


def case_a_map_that_dequeues(target):
    with session(target) as s:
        queue = tf.queue.FIFOQueue(10, tf.int64, shapes=[])
        put = queue.enqueue_many([tf.constant([10, 20, 30], tf.int64)])
        dataset = D.range(3).map(lambda x: x + queue.dequeue())
        iterator = v1.data.make_initializable_iterator(dataset)
        x = iterator.get_next()
        s.run(iterator.initializer)
        got = []
        thread = threading.Thread(target=lambda: got.extend(drained(s, x)))
        thread.start()
        time.sleep(0.3)
        assert got == []
        s.run(put)
        thread.join(20)
        assert got == [10, 21, 32], got


def case_a_deadline_ends_a_draw(target):
    with session(target) as s:
        queue = tf.queue.FIFOQueue(10, tf.int64, shapes=[])
        iterator = v1.data.make_initializable_iterator(D.range(3).map(lambda x: x + queue.dequeue()))
        x = iterator.get_next()
        s.run(iterator.initializer)
        for _ in range(2):
            with raises(tf.errors.DeadlineExceededError):
                s.run(x, options=v1.RunOptions(timeout_in_ms=200))
        s.run(queue.enqueue_many([tf.constant([10, 20], tf.int64)]))
        assert s.run(x) == 10


def case_a_search_without_end_is_ended(target):
    with session(target) as s:
        never = D.range(1 << 60).filter(lambda x: x < 0)
        x = v1.data.make_one_shot_iterator(never).get_next()
        with raises(tf.errors.DeadlineExceededError):
            s.run(x, options=v1.RunOptions(timeout_in_ms=500))
        y = v1.data.make_one_shot_iterator(D.range(2)).get_next()
        assert s.run(y) == 0


def case_errors_name_node_and_element(target):
    with session(target) as s:
        bad = D.from_tensor_slices([1.0, 0.0, 4.0]).map(
            lambda x: tf.debugging.check_numerics(1.0 / x, "division"))
        x = v1.data.make_one_shot_iterator(bad).get_next()
        close(s.run(x), 1.0)
        with raises(tf.errors.InvalidArgumentError, "division", "CheckNumerics"):
            s.run(x)
        close(s.run(x), 0.25)
        with raises(tf.errors.OutOfRangeError):
            s.run(x)


def case_several_draws_in_a_step(target):
    with session(target) as s:
        iterator = v1.data.make_one_shot_iterator(D.range(100))
        draws = [iterator.get_next() for _ in range(10)]
        got = s.run(draws) + s.run(draws)
        assert sorted(got) == list(range(20)), got


def case_reduce_and_optional(target):
    with session(target) as s:
        total = D.range(10).reduce(np.int64(0), lambda s, x: s + x)
        assert s.run(total) == 45
        optional = tf.data.experimental.get_next_as_optional(
            v1.data.make_one_shot_iterator(D.range(1)))
        has, value = optional.has_value(), optional.get_value()
        assert s.run([has, value]) == [True, 0]
        assert s.run(has) == False  # noqa: E712


def case_random_choice_of_datasets(target):
    def order(where):
        with session(where) as s:
            v1.set_random_seed(5)
            mixed = tf.data.experimental.sample_from_datasets(
                [D.range(10), D.range(100, 110)], [0.3, 0.7], seed=4)
            return drained(s, v1.data.make_one_shot_iterator(mixed).get_next())
    assert order(target) == order("")


def case_a_prefetch_that_nobody_drains(target):
    for _ in range(3):
        with session(target) as s:
            endless = D.range(1 << 40).map(lambda x: x + 1, num_parallel_calls=4).prefetch(100)
            x = v1.data.make_one_shot_iterator(endless).get_next()
            assert s.run(x) == 1


def case_python_functions_are_refused(target):
    with session(target) as s:
        called = D.range(3).map(lambda x: v1.py_func(lambda x: x + 1, [x], tf.int64))
        with raises(tf.errors.UnimplementedError, "PyFunc", "Python of the client's process"):
            s.run(v1.data.make_one_shot_iterator(called).get_next())
        generated = D.from_generator(lambda: iter(range(3)), tf.int64)
        with raises(tf.errors.UnimplementedError, "Python of the client's process"):
            s.run(v1.data.make_one_shot_iterator(generated).get_next())


def write_records(path, records, kind=""):
    with tf.io.TFRecordWriter(path, kind) as writer:
        for record in records:
            writer.write(record)


def case_files_interleaved_and_parsed(target):
    """The usual way from sharded TFRecords of tf.Example to batches."""
    with tempfile.TemporaryDirectory() as folder:
        for shard in range(3):
            examples = [tf.train.Example(features=tf.train.Features(feature={
                "x": tf.train.Feature(float_list=tf.train.FloatList(value=[i, -i])),
                "y": tf.train.Feature(int64_list=tf.train.Int64List(value=[i])),
            })).SerializeToString() for i in range(shard * 10, shard * 10 + 10)]
            write_records(os.path.join(folder, f"part-{shard}"), examples, "GZIP" if shard == 1 else "")
        features = {"x": tf.io.FixedLenFeature([2], tf.float32), "y": tf.io.FixedLenFeature([], tf.int64)}
        with session(target) as s:
            plain = D.list_files(os.path.join(folder, "part-[02]"), shuffle=False)
            plain = plain.interleave(v1.data.TFRecordDataset, cycle_length=2, num_parallel_calls=2)
            packed = v1.data.TFRecordDataset(os.path.join(folder, "part-1"), "GZIP")
            dataset = plain.concatenate(packed).map(lambda r: tf.io.parse_single_example(r, features))
            batch = v1.data.make_one_shot_iterator(dataset.shuffle(50, seed=1).batch(7)).get_next()
            found = drained(s, batch)
            assert [len(b["y"]) for b in found] == [7, 7, 7, 7, 2]
            y = np.concatenate([b["y"] for b in found])
            assert sorted(y.tolist()) == list(range(30)) and y.tolist() != list(range(30))
            close(np.concatenate([b["x"] for b in found]), np.stack([y, -y], 1).astype(np.float32))
            batched = D.from_tensors(os.path.join(folder, "part-0")).flat_map(v1.data.TFRecordDataset)
            batched = batched.batch(4).apply(tf.data.experimental.parse_example_dataset(
                {**features, "y": tf.io.VarLenFeature(tf.int64)}, num_parallel_calls=2))
            first = s.run(v1.data.make_one_shot_iterator(batched).get_next())
            close(first["x"][3], [3.0, -3.0])
            equal(first["y"].values, [0, 1, 2, 3])


def case_lines_and_records_of_one_length(target):
    with tempfile.TemporaryDirectory() as folder:
        lines, pieces = os.path.join(folder, "lines"), os.path.join(folder, "pieces")
        with open(lines, "w") as file:
            file.write("number\n1\n2\n\n3")
        with open(pieces, "wb") as file:
            file.write(b"head" + np.arange(6, dtype="<i2").tobytes() + b"!")
        with session(target) as s:
            text = v1.data.TextLineDataset(lines).skip(1).filter(lambda l: tf.strings.length(l) > 0)
            text = text.map(lambda l: tf.strings.to_number(l, tf.int32))
            assert drained(s, v1.data.make_one_shot_iterator(text).get_next()) == [1, 2, 3]
            fixed = v1.data.FixedLengthRecordDataset(pieces, 4, header_bytes=4, footer_bytes=1)
            fixed = fixed.map(lambda r: tf.io.decode_raw(r, tf.int16))
            found = drained(s, v1.data.make_one_shot_iterator(fixed).get_next())
            equal(found, [[0, 1], [2, 3], [4, 5]])


def case_tables_of_text(target):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "table.csv")
        with open(path, "w") as file:
            file.write('name,size,weight\nash,1,0.5\n"elm, tall",2,\nfir,3,1.5\n')
        with session(target) as s:
            rows = tf.data.experimental.CsvDataset(path, [tf.string, tf.int32, [0.0]], header=True)
            found = drained(s, v1.data.make_one_shot_iterator(rows).get_next())
            assert found == [(b"ash", 1, 0.5), (b"elm, tall", 2, 0.0), (b"fir", 3, 1.5)], found
            batches = v1.data.experimental.make_csv_dataset(
                path, 2, label_name="size", num_epochs=1, shuffle=False)
            iterator = v1.data.make_initializable_iterator(batches)
            s.run(iterator.initializer)
            features, sizes = s.run(iterator.get_next())
            equal(sizes, [1, 2])
            close(features["weight"], [0.5, 0.0])


def case_damaged_records_name_their_file(target):
    with tempfile.TemporaryDirectory() as folder:
        good, bad = os.path.join(folder, "good"), os.path.join(folder, "bad")
        write_records(good, [b"a", b"b"])
        write_records(bad, [b"c", b"d"])
        with open(bad, "r+b") as file:
            file.seek(17 + 12)
            file.write(b"X")
        with session(target) as s:
            dataset = v1.data.TFRecordDataset([good, bad])
            x = v1.data.make_one_shot_iterator(dataset).get_next()
            assert [s.run(x) for _ in range(3)] == [b"a", b"b", b"c"]
            with raises(tf.errors.DataLossError):
                s.run(x)
            missing = v1.data.TFRecordDataset(os.path.join(folder, "nosuch"))
            with raises(tf.errors.NotFoundError, "nosuch"):
                s.run(v1.data.make_one_shot_iterator(missing).get_next())
            kept = dataset.apply(tf.data.experimental.ignore_errors()).take(3)
            assert drained(s, v1.data.make_one_shot_iterator(kept).get_next(), 3) == [b"a", b"b", b"c"]


def case_caches_in_memory_and_in_files(target):
    with tempfile.TemporaryDirectory() as folder, session(target) as s:
        for name in ["", os.path.join(folder, "kept")]:
            made = tf.queue.FIFOQueue(100, tf.int64, shapes=[])
            put = made.enqueue_many([tf.range(4, dtype=tf.int64)])
            dataset = D.range(4).map(lambda x: x * 10 + made.dequeue()).cache(name)
            iterator = v1.data.make_initializable_iterator(dataset.repeat(3))
            s.run([put, iterator.initializer])
            assert drained(s, iterator.get_next()) == [0, 11, 22, 33] * 3
            assert s.run(made.size()) == 0


def case_an_iterators_place_is_saved(target):
    with session(target) as s:
        dataset = D.range(50).shuffle(10, seed=4).map(lambda x: x * 2).batch(3)
        iterator = v1.data.make_initializable_iterator(dataset)
        x = iterator.get_next()
        state = tf.raw_ops.SerializeIterator(resource_handle=iterator._iterator_resource)
        queue = tf.queue.FIFOQueue(10, tf.variant)
        put = queue.enqueue(state)
        back = tf.raw_ops.DeserializeIterator(
            resource_handle=iterator._iterator_resource, serialized=queue.dequeue())
        s.run(iterator.initializer)
        for _ in range(2):
            s.run(x)
        s.run(put)
        wanted = [s.run(x).tolist() for _ in range(4)]
        s.run(back)
        assert [s.run(x).tolist() for _ in range(4)] == wanted


def case_other_sizes_of_batches(target):
    with session(target) as s:
        batches = D.range(10).batch(4).apply(tf.data.experimental.unbatch()).batch(5)
        equal(drained(s, v1.data.make_one_shot_iterator(batches).get_next()), np.arange(10).reshape(2, 5))
        again = tf.data.Dataset.range(10).batch(4).rebatch([2, 3])
        sizes = [len(b) for b in drained(s, v1.data.make_one_shot_iterator(again).get_next())]
        assert sizes == [2, 3, 2, 3], sizes
        sparse = D.range(1, 4).map(lambda x: tf.fill([x], x)).apply(
            tf.data.experimental.dense_to_sparse_batch(3, [5]))
        found = s.run(v1.data.make_one_shot_iterator(sparse).get_next())
        equal(found.values, [1, 2, 2, 3, 3, 3])
        equal(found.dense_shape, [3, 5])
        together = D.range(7).apply(tf.data.experimental.map_and_batch(lambda x: x + 1, 3, num_parallel_calls=2))
        assert [b.tolist() for b in drained(s, v1.data.make_one_shot_iterator(together).get_next())] == [
            [1, 2, 3], [4, 5, 6], [7]]


def case_sources_and_parts(target):
    def all_of(s, dataset):
        return drained(s, v1.data.make_one_shot_iterator(dataset).get_next())
    with session(target) as s:
        assert all_of(s, D.from_tensors((1, "a"))) == [(1, b"a")]
        grid = tf.sparse.SparseTensor([[0, 1], [2, 0]], [5, 6], [3, 2])
        rows = all_of(s, D.from_tensor_slices(grid))
        assert [r.values.tolist() for r in rows] == [[5], [], [6]]
        assert all_of(s, D.range(10).shard(3, 1)) == [1, 4, 7]
        assert all_of(s, D.range(10).take_while(lambda x: x < 3)) == [0, 1, 2]
        running = D.range(5).scan(np.int64(0), lambda state, x: (state + x, state + x))
        assert all_of(s, running) == [0, 1, 3, 6, 10]
        assert all_of(s, D.from_tensor_slices([3, 1, 3, 2, 1]).apply(tf.data.experimental.unique())) == [3, 1, 2]
        chosen = tf.data.experimental.choose_from_datasets(
            [D.range(3), D.range(10, 13)], D.from_tensor_slices(tf.constant([0, 1, 1, 0], tf.int64)))
        assert all_of(s, chosen) == [0, 10, 11, 1]
        repeated = D.range(4).apply(tf.data.experimental.shuffle_and_repeat(4, 2, seed=3))
        assert sorted(all_of(s, repeated)) == [0, 0, 1, 1, 2, 2, 3, 3]
        counted = D.range(7).apply(tf.data.experimental.assert_cardinality(7))
        assert s.run(tf.data.experimental.cardinality(counted)) == 7
        options = tf.data.Options()
        options.deterministic = True
        assert all_of(s, D.range(3).with_options(options)) == [0, 1, 2]


def case_a_table_from_a_file(target):
    with tempfile.TemporaryDirectory() as folder, session(target) as s:
        path = os.path.join(folder, "words")
        with open(path, "w") as file:
            file.write("ash\nelm\nfir\n")
        table = tf.lookup.StaticHashTable(tf.lookup.TextFileInitializer(
            path, tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64,
            tf.lookup.TextFileIndex.LINE_NUMBER), -1)
        names = D.from_tensor_slices(["fir", "oak", "ash"]).map(table.lookup)
        iterator = v1.data.make_initializable_iterator(names)
        s.run([v1.tables_initializer()])
        s.run(iterator.initializer)
        assert drained(s, iterator.get_next()) == [2, -1, 0]
