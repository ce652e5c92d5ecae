"""Hash tables: static, mutable, dense; keys and values from tensors."""

import numpy as np
import tensorflow as tf
from support import close, equal, fresh, pairs, raises, session, v1


def static_table(keys, values, default):
    return tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(tf.constant(keys), tf.constant(values)), default)


def case_static_table(target):
    with session(target) as s:
        table = static_table(["a", "b", "c"], np.array([1, 2, 3], "q"), -1)
        x = v1.placeholder(tf.string)
        found = table.lookup(x)
        with raises(tf.errors.FailedPreconditionError, "nitialized"):
            s.run(found, {x: ["a"]})
        s.run(v1.tables_initializer())
        equal(s.run(found, {x: [["b", "z"], ["c", "a"]]}), [[2, -1], [3, 1]])
        assert s.run(table.size()) == 3
        # Initializing again is not an error.
        s.run(v1.tables_initializer())


def case_static_table_of_sparse_keys(target):
    with session(target) as s:
        table = static_table(np.array([10, 20], "q"), ["ten", "twenty"], "?")
        x = v1.sparse_placeholder(tf.int64)
        found = table.lookup(x)
        s.run(v1.tables_initializer())
        got = s.run(found, {x: v1.SparseTensorValue([[0, 0], [1, 2]], [20, 30], (2, 3))})
        assert got.values.tolist() == [b"twenty", b"?"] and got.indices.tolist() == [[0, 0], [1, 2]]


def case_duplicate_keys_are_refused(target):
    with session(target) as s:
        static_table(["a", "b", "a"], np.array([1, 2, 3], "q"), -1)
        with raises(tf.errors.FailedPreconditionError, "different value for same key"):
            s.run(v1.tables_initializer())


def case_mutable_table(target):
    fresh(target)
    with session(target) as s:
        table = tf.lookup.experimental.MutableHashTable(tf.string, tf.float32, [0.0, 0.0])
        keys, values = v1.placeholder(tf.string), v1.placeholder(tf.float32)
        insert, remove = table.insert(keys, values), table.remove(keys)
        find = table.lookup(keys)
        s.run(insert, {keys: ["x", "y"], values: [[1, 2], [3, 4]]})
        s.run(insert, {keys: ["y", "z"], values: [[5, 6], [7, 8]]})
        equal(s.run(find, {keys: ["z", "y", "none"]}), [[7, 8], [5, 6], [0, 0]])
        s.run(remove, {keys: ["x", "none"]})
        assert s.run(table.size()) == 2
        names, all_values = s.run(table.export())
        got = {name: value.tolist() for name, value in pairs(names, all_values)}
        assert got == {b"y": [5, 6], b"z": [7, 8]}, got


def case_dense_table(target):
    fresh(target)
    with session(target) as s:
        table = tf.lookup.experimental.DenseHashTable(
            tf.int64, tf.int64, default_value=-1, empty_key=0, deleted_key=-2,
            initial_num_buckets=4)
        keys, values = v1.placeholder(tf.int64), v1.placeholder(tf.int64)
        insert, find = table.insert(keys, values), table.lookup(keys)
        many = np.arange(1, 101)
        s.run(insert, {keys: many, values: many * many})
        assert s.run(table.size()) == 100
        equal(s.run(find, {keys: [100, 101, 7]}), [10000, -1, 49])
        s.run(table.erase(keys), {keys: [7, 8]})
        equal(s.run(find, {keys: [7, 8, 9]}), [-1, -1, 81])
        with raises(tf.errors.InvalidArgumentError, "empty_key"):
            s.run(insert, {keys: [0], values: [1]})


def case_vocabulary_with_buckets(target):
    with session(target) as s:
        table = tf.lookup.StaticVocabularyTable(
            tf.lookup.KeyValueTensorInitializer(
                tf.constant(["red", "green"]), tf.constant([0, 1], tf.int64)),
            num_oov_buckets=3)
        x = v1.placeholder(tf.string)
        found = table.lookup(x)
        s.run(v1.tables_initializer())
        got = s.run(found, {x: ["green", "red", "blue", "blue"]})
        equal(got[:2], [1, 0])
        assert got[2] == got[3] and 2 <= got[2] < 5
        assert s.run(table.size()) == 5


def case_index_from_tensor_and_back(target):
    with session(target) as s:
        mapping = tf.constant(["north", "south", "west"])
        to_id = tf.lookup.StaticVocabularyTable(
            tf.lookup.KeyValueTensorInitializer(mapping, tf.range(3, dtype=tf.int64)), 1)
        to_word = static_table(np.arange(3), ["north", "south", "west"], "UNK")
        x = v1.placeholder(tf.string)
        there = to_id.lookup(x)
        back = to_word.lookup(there)
        s.run(v1.tables_initializer())
        assert s.run(back, {x: ["west", "up", "north"]}).tolist() == [b"west", b"UNK", b"north"]


def case_tables_shared_by_name(target):
    fresh(target)

    def make():
        handle = tf.raw_ops.MutableHashTableV2(
            key_dtype=tf.int64, value_dtype=tf.float32, shared_name="shared_counts")
        return handle

    with session(target) as s:
        s.run(tf.raw_ops.LookupTableInsertV2(
            table_handle=make(), keys=tf.constant([1, 2], tf.int64), values=[0.5, 1.5]))
    with session(target) as s:
        got = s.run(tf.raw_ops.LookupTableFindV2(
            table_handle=make(), keys=tf.constant([2, 3], tf.int64), default_value=-1.0))
        close(got, [1.5, -1])
