"""Embeddings: lookups, partitioned tables, sparse gradients, slices fed and fetched."""

import numpy as np
import tensorflow as tf
from support import close, equal, fresh, raises, session, v1
from tensorflow.python.framework.indexed_slices import IndexedSlicesValue

TABLE = np.arange(24, dtype="f").reshape(8, 3)


def partitioned(parts):
    """The table in a variable of several parts, each of which starts as its rows."""
    def rows(shape, dtype=None, partition_info=None):
        first = partition_info.var_offset[0]
        return tf.constant(TABLE[first:first + shape[0]], dtype)

    return v1.get_variable("table", [8, 3], initializer=rows, use_resource=True,
                           partitioner=v1.fixed_size_partitioner(parts))


def case_lookup(target):
    fresh(target)
    with session(target) as s:
        ids = v1.placeholder(tf.int32)
        for use_resource in (True, False):
            table = v1.get_variable(f"table{use_resource}", initializer=TABLE,
                                    use_resource=use_resource)
            got = tf.nn.embedding_lookup(table, ids)
            s.run(table.initializer)
            equal(s.run(got, {ids: [[1, 7], [0, 1]]}), TABLE[[[1, 7], [0, 1]]])
            with raises(tf.errors.InvalidArgumentError, "8"):
                s.run(got, {ids: [8]})


def case_partitioned_tables(target):
    for strategy in ("mod", "div"):
        fresh(target)
        with session(target) as s:
            table = partitioned(3)
            parts = list(table)
            assert len(parts) == 3
            ids = v1.placeholder(tf.int64, [None])
            got = v1.nn.embedding_lookup(table, ids, partition_strategy=strategy)
            s.run(v1.global_variables_initializer())
            whole = s.run(tf.convert_to_tensor(table))
            equal(whole, TABLE)
            if strategy == "div":
                equal(s.run(got, {ids: [5, 0, 7, 2]}), TABLE[[5, 0, 7, 2]])
            else:
                # Id i is row i // 3 of partition i % 3.
                values = s.run(parts)
                wanted = [values[i % 3][i // 3] for i in (5, 0, 7, 2)]
                equal(s.run(got, {ids: [5, 0, 7, 2]}), wanted)


def case_training_partitioned_tables(target):
    fresh(target)
    with session(target) as s:
        table = partitioned(2)
        ids = v1.placeholder(tf.int32, [None])
        rows = v1.nn.embedding_lookup(table, ids, partition_strategy="div")
        train = v1.train.GradientDescentOptimizer(0.5).minimize(tf.reduce_sum(rows))
        s.run(v1.global_variables_initializer())
        s.run(train, {ids: [1, 6, 6]})
        wanted = TABLE.copy()
        wanted[1] -= 0.5
        wanted[6] -= 1.0
        close(s.run(tf.convert_to_tensor(table)), wanted)


def case_sparse_lookup_with_weights(target):
    fresh(target)
    with session(target) as s:
        table = v1.get_variable("table", initializer=TABLE, use_resource=True)
        ids = tf.SparseTensor([[0, 0], [0, 1], [2, 0]], tf.constant([1, 3, 5], tf.int64), [3, 2])
        weights = tf.SparseTensor([[0, 0], [0, 1], [2, 0]], [2.0, 1.0, 4.0], [3, 2])
        results = {c: tf.nn.embedding_lookup_sparse(table, ids, weights, combiner=c)
                   for c in ("sum", "mean", "sqrtn")}
        s.run(table.initializer)
        got = s.run(results)
        first, third = 2 * TABLE[1] + TABLE[3], 4 * TABLE[5]
        close(got["sum"], [first, np.zeros(3), third])
        close(got["mean"], [first / 3, np.zeros(3), third / 4])
        close(got["sqrtn"], [first / np.sqrt(5), np.zeros(3), third / 4])


def case_safe_sparse_lookup(target):
    fresh(target)
    with session(target) as s:
        table = v1.get_variable("table", initializer=TABLE, use_resource=True)
        # The ids below zero are dropped; the row without ids gets row 2 of the table.
        ids = tf.SparseTensor([[0, 0], [1, 0], [1, 1]], tf.constant([-1, 4, 6], tf.int64), [2, 2])
        got = v1.nn.safe_embedding_lookup_sparse(table, ids, default_id=2, combiner="sum")
        s.run(table.initializer)
        close(s.run(got), [TABLE[2], TABLE[4] + TABLE[6]])


def case_gradients_are_slices(target):
    fresh(target)
    with session(target) as s:
        table = v1.get_variable("table", initializer=TABLE, use_resource=True)
        rows = tf.gather(table, [4, 1, 4])
        gradient = tf.gradients(tf.reduce_sum(rows * [[1.0], [2.0], [3.0]]), table)[0]
        s.run(table.initializer)
        got = s.run(gradient)
        assert isinstance(got, IndexedSlicesValue)
        equal(got.indices, [4, 1, 4])
        close(got.values, [[1] * 3, [2] * 3, [3] * 3])


def case_slices_and_sparse_tensors_are_fed(target):
    with session(target) as s:
        sparse = v1.sparse_placeholder(tf.float32, [3, 4])
        dense = v1.sparse_tensor_to_dense(sparse)
        value = v1.SparseTensorValue(np.array([[0, 1], [2, 3]]), np.array([5, 7], "f"), (3, 4))
        wanted = np.zeros((3, 4), "f")
        wanted[0, 1], wanted[2, 3] = 5, 7
        equal(s.run(dense, {sparse: value}), wanted)
        back = s.run(v1.sparse_reduce_sum_sparse(sparse, 1), {sparse: value})
        equal(back.values, [5, 7])
        again = s.run(sparse, {sparse: value})
        equal(again.indices, value.indices), equal(again.dense_shape, [3, 4])
        slices = tf.IndexedSlices(v1.placeholder(tf.float32, [None, 2]),
                                  v1.placeholder(tf.int64, [None]), v1.placeholder(tf.int64, [2]))
        total = tf.convert_to_tensor(slices) * 2
        got = s.run(total, {slices: IndexedSlicesValue(
            np.ones((2, 2), "f"), np.array([2, 0]), np.array([3, 2]))})
        equal(got, [[2, 2], [0, 0], [2, 2]])


def case_skip_grams_learn(target):
    fresh(target)
    random = np.random.RandomState(5)
    with session(target) as s:
        words = v1.get_variable("words", initializer=random.rand(20, 8).astype("f") - 0.5)
        weights = v1.get_variable("weights", initializer=np.zeros((20, 8), "f"))
        biases = v1.get_variable("biases", initializer=np.zeros(20, "f"))
        center = tf.constant([1, 2, 3, 4])
        context = tf.constant([[2], [3], [4], [5]], tf.int64)
        sampled = (tf.constant([7, 9, 11], tf.int64), tf.ones([4, 1]), tf.ones([3]))
        loss = tf.reduce_mean(v1.nn.nce_loss(
            weights, biases, context, tf.nn.embedding_lookup(words, center), 3, 20,
            sampled_values=sampled))
        train = v1.train.AdagradOptimizer(1.0).minimize(loss)
        s.run(v1.global_variables_initializer())
        # All logits are zero: four times log 2 (one true, three sampled).
        close(s.run(loss), 4 * np.log(2), 1e-4)
        for _ in range(30):
            s.run(train)
        assert s.run(loss) < 0.3
        touched = {2, 3, 4, 5, 7, 9, 11}
        still = [i for i in range(20) if i not in touched]
        equal(s.run(weights)[still], np.zeros((len(still), 8)))
