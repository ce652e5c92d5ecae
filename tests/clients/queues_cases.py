"""Queues and their runners, staging areas, barriers, conditional accumulators."""

import threading
import time

import numpy as np
import tensorflow as tf
from support import close, equal, fresh, raises, session, v1
from tensorflow.python.ops import data_flow_ops


def case_fifo_keeps_order(target):
    with session(target) as s:
        queue = tf.queue.FIFOQueue(10, [tf.int32, tf.float32], shapes=[[], [2]])
        a, b = v1.placeholder(tf.int32), v1.placeholder(tf.float32)
        put, put_many = queue.enqueue([a, b]), queue.enqueue_many([a, b])
        s.run(put, {a: 7, b: [1, 2]})
        s.run(put_many, {a: [8, 9, 10], b: np.arange(6).reshape(3, 2)})
        assert s.run(queue.size()) == 4
        first = s.run(queue.dequeue())
        assert first[0] == 7
        close(first[1], [1, 2])
        many = s.run(queue.dequeue_many(2))
        equal(many[0], [8, 9]), close(many[1], [[0, 1], [2, 3]])
        s.run(queue.close())
        equal(s.run(queue.dequeue_up_to(5))[0], [10])
        assert s.run(queue.is_closed())
        with raises(tf.errors.OutOfRangeError, "is closed and has insufficient elements"):
            s.run(queue.dequeue())
        with raises(tf.errors.CancelledError, "is closed"):
            s.run(put, {a: 1, b: [0, 0]})


def case_a_full_queue_holds_up_who_puts(target):
    with session(target) as s:
        queue = tf.queue.FIFOQueue(2, tf.int64, shapes=[])
        x = v1.placeholder(tf.int64)
        put, take = queue.enqueue(x), queue.dequeue()
        assert s.run(queue.size()) == 0
        done = []

        def producer():
            for i in range(20):
                s.run(put, {x: i})
                done.append(i)

        thread = threading.Thread(target=producer)
        thread.start()
        time.sleep(0.5)
        assert len(done) <= 2, done
        got = [s.run(take) for _ in range(20)]
        thread.join(10)
        assert got == list(range(20)) and done == got, (got, done)


def case_shuffle_queue_gives_each_once(target):
    with session(target) as s:
        queue = tf.queue.RandomShuffleQueue(100, 10, tf.int32, shapes=[], seed=7)
        s.run(queue.enqueue_many([tf.range(50)]))
        take = queue.dequeue_many(40)
        first = s.run(take)
        assert len(set(first.tolist())) == 40 and sorted(first.tolist()) != first.tolist()
        s.run(queue.close())
        rest = s.run(queue.dequeue_up_to(50))
        assert sorted(first.tolist() + rest.tolist()) == list(range(50))


def case_padding_queue(target):
    with session(target) as s:
        queue = tf.queue.PaddingFIFOQueue(10, tf.int32, shapes=[[None]])
        x = v1.placeholder(tf.int32, [None])
        put = queue.enqueue(x)
        for value in ([1, 2, 3], [4], []):
            s.run(put, {x: value})
        equal(s.run(queue.dequeue_many(3)), [[1, 2, 3], [4, 0, 0], [0, 0, 0]])


def case_priority_queue(target):
    with session(target) as s:
        queue = tf.queue.PriorityQueue(10, tf.string, shapes=[[]])
        s.run(queue.enqueue_many([tf.constant([5, 1, 3], tf.int64), ["five", "one", "three"]]))
        assert [s.run(queue.dequeue())[1] for _ in range(3)] == [b"one", b"three", b"five"]


def case_a_queue_refuses_wrong_shapes(target):
    with session(target) as s:
        queue = tf.queue.FIFOQueue(2, tf.float32, shapes=[[2]])
        x = v1.placeholder(tf.float32)
        with raises(tf.errors.InvalidArgumentError, "[3]"):
            s.run(queue.enqueue(x), {x: [1.0, 2.0, 3.0]})
        s.run(queue.enqueue(x), {x: [1.0, 2.0]})
        close(s.run(queue.dequeue()), [1, 2])


def case_shared_queues_join_sessions(target):
    fresh(target)

    def queue():
        return tf.queue.FIFOQueue(5, tf.string, shapes=[[]], shared_name="between")

    with session(target) as s:
        s.run(queue().enqueue("hello"))
    with session(target) as s:
        assert s.run(queue().dequeue()) == b"hello"
        # A queue without a shared name is the session's own.
        alone = tf.queue.FIFOQueue(5, tf.string, shapes=[[]], name="own")
        s.run(alone.enqueue("mine"))
    with session(target) as s:
        alone = tf.queue.FIFOQueue(5, tf.string, shapes=[[]], name="own")
        assert s.run(alone.size()) == 0


def case_closing_cancels_pending_puts(target):
    with session(target) as s:
        queue = tf.queue.FIFOQueue(1, tf.int32, shapes=[])
        put, close_queue = queue.enqueue(1), queue.close(cancel_pending_enqueues=True)
        s.run(put)
        caught = []

        def blocked():
            try:
                s.run(put)
            except tf.errors.CancelledError as error:
                caught.append(error)

        thread = threading.Thread(target=blocked)
        thread.start()
        time.sleep(0.3)
        s.run(close_queue)
        thread.join(10)
        assert len(caught) == 1
        assert s.run(queue.dequeue()) == 1


def case_runner_and_coordinator(target):
    with session(target) as s:
        counter = v1.get_variable("runner_count", initializer=0, use_resource=True)
        queue = tf.queue.FIFOQueue(4, tf.int32, shapes=[])
        put = queue.enqueue(counter.assign_add(1))
        v1.train.add_queue_runner(v1.train.QueueRunner(queue, [put]))
        take = queue.dequeue()
        s.run(counter.initializer)
        coordinator = v1.train.Coordinator()
        threads = v1.train.start_queue_runners(s, coordinator)
        assert [s.run(take) for _ in range(30)] == list(range(1, 31))
        coordinator.request_stop()
        coordinator.join(threads, stop_grace_period_secs=20)


def case_batches_of_epochs(target):
    with session(target) as s:
        item = v1.train.range_input_producer(6, num_epochs=2, shuffle=False).dequeue()
        batch = v1.train.batch([item, item * item], batch_size=4)
        s.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
        coordinator = v1.train.Coordinator()
        threads = v1.train.start_queue_runners(s, coordinator)
        got = []
        with raises(tf.errors.OutOfRangeError):
            while True:
                got.append(s.run(batch))
        numbers = np.concatenate([g[0] for g in got])
        equal(numbers, [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5])
        equal(np.concatenate([g[1] for g in got]), numbers**2)
        coordinator.request_stop()
        coordinator.join(threads, stop_grace_period_secs=20)


def case_shuffled_batches(target):
    with session(target) as s:
        item = v1.train.range_input_producer(64, num_epochs=1, shuffle=True, seed=3).dequeue()
        batch = v1.train.shuffle_batch([item], 8, capacity=40, min_after_dequeue=16, seed=1)
        s.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
        coordinator = v1.train.Coordinator()
        threads = v1.train.start_queue_runners(s, coordinator)
        got = []
        with raises(tf.errors.OutOfRangeError):
            while True:
                got.extend(s.run(batch).tolist())
        assert sorted(got) == list(range(64)) and got != sorted(got), got
        coordinator.request_stop()
        coordinator.join(threads, stop_grace_period_secs=20)


def case_strings_from_a_producer(target):
    with session(target) as s:
        name = v1.train.string_input_producer(["a", "b", "c"], num_epochs=2, shuffle=False)
        take = name.dequeue()
        s.run(v1.local_variables_initializer())
        coordinator = v1.train.Coordinator()
        threads = v1.train.start_queue_runners(s, coordinator)
        assert [s.run(take) for _ in range(6)] == [b"a", b"b", b"c"] * 2
        with raises(tf.errors.OutOfRangeError):
            s.run(take)
        coordinator.request_stop()
        coordinator.join(threads, stop_grace_period_secs=20)


def case_an_error_in_a_runner_reaches_the_coordinator(target):
    with session(target) as s:
        x = v1.get_variable("runner_x", initializer=[1.0, 2.0], use_resource=True)
        queue = tf.queue.FIFOQueue(4, tf.float32)
        bad = queue.enqueue(tf.gather(x, v1.get_variable("runner_i", initializer=5)))
        runner = v1.train.QueueRunner(queue, [bad])
        s.run(v1.global_variables_initializer())
        coordinator = v1.train.Coordinator()
        threads = runner.create_threads(s, coordinator, start=True)
        with raises(tf.errors.InvalidArgumentError, "5"):
            coordinator.join(threads, stop_grace_period_secs=20)


def case_staging_area(target):
    with session(target) as s:
        area = data_flow_ops.StagingArea([tf.float32, tf.int32], shapes=[[2], []], capacity=3)
        a, b = v1.placeholder(tf.float32, [2]), v1.placeholder(tf.int32, [])
        put, get, size = area.put([a, b]), area.get(), area.size()
        for i in range(3):
            s.run(put, {a: [i, -i], b: i})
        assert s.run(size) == 3
        for i in range(3):
            got = s.run(get)
            close(got[0], [i, -i])
            assert got[1] == i
        s.run(put, {a: [1, 1], b: 1})
        s.run(area.clear())
        assert s.run(size) == 0


def case_map_staging_area(target):
    with session(target) as s:
        area = data_flow_ops.MapStagingArea([tf.float32], shapes=[[]], ordered=True)
        key, x = v1.placeholder(tf.int64, []), v1.placeholder(tf.float32, [])
        put = area.put(key, [x], [0])
        for k in (5, 1, 3):
            s.run(put, {key: k, x: k * 10})
        assert s.run(area.size()) == 3
        close(s.run(area.get(tf.constant(3, tf.int64))[1][0]), 30)
        got = [s.run(area.get()) for _ in range(2)]
        assert [g[0] for g in got] == [1, 5], got


def case_barrier(target):
    with session(target) as s:
        barrier = data_flow_ops.Barrier([tf.float32, tf.string], shapes=[[], []])
        s.run(barrier.insert_many(0, ["a", "b", "c"], [1.0, 2.0, 3.0]))
        assert s.run(barrier.ready_size()) == 0 and s.run(barrier.incomplete_size()) == 3
        s.run(barrier.insert_many(1, ["b", "a"], ["B", "A"]))
        assert s.run(barrier.ready_size()) == 2
        order, keys, values = s.run(barrier.take_many(2))
        # Complete in the order of their keys' first parts.
        assert sorted(zip(keys, values[0], values[1])) == [(b"a", 1.0, b"A"), (b"b", 2.0, b"B")]
        s.run(barrier.close())
        with raises(tf.errors.OutOfRangeError):
            s.run(barrier.take_many(2))
        assert len(order) == 2


def case_dense_accumulator(target):
    with session(target) as s:
        accumulator = v1.ConditionalAccumulator(tf.float32, shape=[2])
        x, step = v1.placeholder(tf.float32, [2]), v1.placeholder(tf.int64, [])
        apply = accumulator.apply_grad(x, step)
        for value, at in (([1, 2], 0), ([3, 6], 1), ([100, 100], -1)):
            s.run(apply, {x: value, step: at})
        # The last one is stale and was dropped.
        assert s.run(accumulator.num_accumulated()) == 2
        close(s.run(accumulator.take_grad(2)), [2, 4])
        assert s.run(accumulator.num_accumulated()) == 0
        s.run(accumulator.set_global_step(10))
        s.run(apply, {x: [1, 1], step: 9})
        assert s.run(accumulator.num_accumulated()) == 0


def case_sparse_accumulator(target):
    with session(target) as s:
        accumulator = v1.SparseConditionalAccumulator(tf.float32, shape=[4, 2])
        x, rows = v1.placeholder(tf.float32, [None, 2]), v1.placeholder(tf.int64, [None])
        apply = accumulator.apply_indexed_slices_grad(tf.IndexedSlices(x, rows), local_step=0)
        s.run(apply, {x: [[2, 2], [4, 4]], rows: [0, 3]})
        s.run(apply, {x: [[6, 8]], rows: [3]})
        got = s.run(accumulator.take_indexed_slices_grad(2))
        equal(got.indices, [0, 3])
        # The mean of a row is over the gradients that contain it.
        close(got.values, [[2, 2], [5, 6]])


def case_an_accumulator_waits_for_gradients(target):
    with session(target) as s:
        accumulator = v1.ConditionalAccumulator(tf.float32, shape=[])
        apply, take = accumulator.apply_grad(tf.constant(3.0)), accumulator.take_grad(2)
        s.run(apply)
        got = []
        thread = threading.Thread(target=lambda: got.append(s.run(take)))
        thread.start()
        time.sleep(0.3)
        assert not got
        s.run(apply)
        thread.join(10)
        close(got, [3.0])


def case_synchronous_replicas_of_one_worker(target):
    fresh(target)
    with session(target) as s:
        step = v1.train.get_or_create_global_step()
        w = v1.get_variable("w", initializer=[4.0, -2.0], use_resource=True)
        loss = tf.reduce_sum(tf.square(w))
        optimizer = v1.train.SyncReplicasOptimizer(
            v1.train.GradientDescentOptimizer(0.25), replicas_to_aggregate=1, total_num_replicas=1)
        train = optimizer.minimize(loss, global_step=step)
        s.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
        s.run(optimizer.chief_init_op)
        tokens = optimizer.get_init_tokens_op()
        s.run(tokens)
        coordinator = v1.train.Coordinator()
        threads = optimizer.get_chief_queue_runner().create_threads(s, coordinator, start=True)
        # A gradient computed before the update is stale and dropped.
        deadline = time.monotonic() + 30
        while s.run(step) < 4:
            s.run(train, options=v1.RunOptions(timeout_in_ms=20000))
            assert time.monotonic() < deadline, s.run(step)
        # Each update halves the weights. One update may be in progress.
        while True:
            weights, steps = s.run([w, step])
            if np.allclose(weights, np.array([4.0, -2.0]) / 2**steps):
                break
            assert time.monotonic() < deadline, (weights, steps)
        coordinator.request_stop()
        # The runner waits for gradients.
        s.close()
        coordinator.join(threads, stop_grace_period_secs=20)


def case_readers_after_an_update_see_it(target):
    fresh(target)
    for update in (lambda v: v1.assign_add(v, [1.0]), lambda v: v1.assign(v, [2.0]),
                   lambda v: v1.scatter_add(v, [0], [1.0])):
        fresh(target)
        with session(target) as s:
            v = v1.get_variable("v", initializer=[1.0], use_resource=False)
            read = v.value()
            with tf.control_dependencies([read]):
                updated = update(v)
            with tf.control_dependencies([updated]):
                # A reference variable's value is the variable itself.
                twice = read + read
            s.run(v.initializer)
            close(s.run(twice), [4])
