"""Feeds and fetches, growth of graphs, errors, callables, limits."""

import threading
import time

import numpy as np
import tensorflow as tf
from support import close, fresh, raises, session, v1
from tensorflow.core.protobuf import config_pb2


def case_feeds_and_fetches_of_every_type(target):
    with session(target) as s:
        types = [tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.int8, tf.int16, tf.int32,
                 tf.int64, tf.uint8, tf.uint16, tf.uint32, tf.uint64, tf.bool, tf.complex64,
                 tf.complex128]
        for dtype in types:
            x = v1.placeholder(dtype)
            value = np.array([[0, 1], [1, 0], [1, 1]]).astype(dtype.as_numpy_dtype)
            got = s.run(tf.identity(x), {x: value})
            assert got.dtype == value.dtype and got.shape == (3, 2), dtype
            assert (got == value).all(), dtype


def case_strings(target):
    with session(target) as s:
        x = v1.placeholder(tf.string)
        value = np.array([b"", b"ab", b"\x00\xff" * 1000], dtype=object)
        got = s.run(tf.identity(x), {x: value})
        assert list(got) == list(value)
        assert list(s.run(tf.strings.join([x, x]), {x: value[1:2]})) == [b"abab"]


def case_empty_tensors_and_scalars(target):
    with session(target) as s:
        x = v1.placeholder(tf.float32)
        assert s.run(tf.identity(x), {x: np.zeros((0, 3), "f")}).shape == (0, 3)
        assert s.run(x + 1, {x: 2.0}) == 3.0
        assert s.run(tf.shape(x), {x: np.zeros((2, 0, 5), "f")}).tolist() == [2, 0, 5]


def case_fetch_the_same_twice_and_ops(target):
    with session(target) as s:
        a = tf.constant([1.0, 2.0])
        b = a * 2
        got = s.run([b, b, b.op, {"a": a}])
        close(got[0], [2, 4]), close(got[1], [2, 4]), close(got[3]["a"], [1, 2])
        assert got[2] is None


def case_a_graph_grows_between_steps(target):
    with session(target) as s:
        total = tf.constant(0.0)
        for i in range(20):
            total = total + float(i)
            close(s.run(total), sum(range(i + 1)))


def case_feeding_an_inner_tensor(target):
    with session(target) as s:
        a = tf.constant(3.0)
        b = a * 2
        c = b + 1
        close(s.run(c), 7)
        close(s.run(c, {b: 10.0}), 11)


def case_errors_name_the_node(target):
    with session(target) as s:
        x = v1.placeholder(tf.float32, name="left")
        y = tf.matmul(x, x, name="product")
        with raises(tf.errors.InvalidArgumentError, "product", "[2,3]"):
            s.run(y, {x: np.zeros((2, 3), "f")})
        with raises(tf.errors.InvalidArgumentError, "You must feed a value", "left"):
            s.run(y)
        v = v1.get_variable("unset", [2], use_resource=False)
        with raises(tf.errors.FailedPreconditionError, "unset"):
            s.run(v)
        close(s.run(y, {x: [[1, 2], [3, 4]]}), [[7, 10], [15, 22]])


def case_errors_of_graphs(target):
    with session(target) as s:
        with tf.device("/job:nosuch/task:3"):
            x = tf.constant(1.0) + 1
        with raises(tf.errors.InvalidArgumentError, "nosuch"):
            s.run(x)


def case_callables_from_options(target):
    with session(target) as s:
        x = v1.placeholder(tf.float32)
        y, z = x * 2, x + 1
        options = config_pb2.CallableOptions(feed=[x.name], fetch=[z.name, y.name])
        call = s._make_callable_from_options(options)
        for i in range(10):
            got = call(np.float32(i))
            close(got[0], i + 1), close(got[1], 2 * i)
        public = s.make_callable([y], [x])
        close(public(4.0)[0], 8)


def case_a_timeout_ends_a_step(target):
    with session(target) as s:
        queue = tf.queue.FIFOQueue(1, tf.float32)
        begin = time.monotonic()
        with raises(tf.errors.DeadlineExceededError):
            s.run(queue.dequeue(), options=v1.RunOptions(timeout_in_ms=300))
        assert time.monotonic() - begin < 5
        close(s.run(tf.constant(1.0) + 1), 2)


def case_closing_ends_steps(target):
    graph = tf.Graph()
    with graph.as_default():
        queue = tf.queue.FIFOQueue(1, tf.float32)
        wait = queue.dequeue()
        s = v1.Session(target, graph=graph)
        s.run(queue.size())
        failures = []

        def step():
            try:
                s.run(wait)
            except tf.errors.CancelledError as error:
                failures.append(error)

        thread = threading.Thread(target=step)
        thread.start()
        time.sleep(0.3)
        s.close()
        thread.join(10)
        assert len(failures) == 1


def case_sessions_share_variables(target):
    fresh(target)
    with session(target) as s:
        v = v1.get_variable("shared", initializer=[1.0, 2.0], use_resource=True)
        s.run(v.initializer)
        s.run(v.assign_add([10.0, 10.0]))
    with session(target) as s:
        v = v1.get_variable("shared", initializer=[0.0, 0.0], use_resource=True)
        close(s.run(v), [11, 12])


def case_containers_and_reset(target):
    fresh(target)
    with session(target) as s:
        with v1.container("kept"):
            a = v1.get_variable("a", initializer=1.0, use_resource=False)
        b = v1.get_variable("b", initializer=2.0, use_resource=False)
        s.run(v1.global_variables_initializer())
    v1.Session.reset(target, ["kept"])
    with session(target) as s:
        with v1.container("kept"):
            a = v1.get_variable("a", initializer=1.0, use_resource=False)
        b = v1.get_variable("b", initializer=2.0, use_resource=False)
        close(s.run(b), 2)
        with raises(tf.errors.FailedPreconditionError, "uninitialized"):
            s.run(a)


def case_isolated_sessions_do_not_share(target):
    fresh(target)
    config = v1.ConfigProto(isolate_session_state=True)
    for i in range(2):
        with session(target, config=config) as s:
            v = v1.get_variable("alone", initializer=float(i), use_resource=True)
            assert not s.run(v1.is_variable_initialized(v))
            s.run(v.initializer)
            close(s.run(v), i)


def case_several_devices(target):
    config = v1.ConfigProto(device_count={"CPU": 3})
    with session(target, config=config) as s:
        names = [d.name for d in s.list_devices()]
        assert len(names) == 3 and names[2].endswith("CPU:2"), names
        with tf.device("/cpu:1"):
            a = tf.constant([1.0, 2.0]) * 2
        with tf.device("/cpu:2"):
            b = a + 1
        close(s.run([a, b]), [[2, 4], [3, 5]])


def case_run_metadata(target):
    with session(target) as s:
        x = tf.ones([64, 64])
        y = tf.matmul(x, x, name="traced_product")
        metadata = v1.RunMetadata()
        s.run(y, options=v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE),
              run_metadata=metadata)
        nodes = [n.node_name for d in metadata.step_stats.dev_stats for n in d.node_stats]
        assert "traced_product" in nodes, nodes
        from tensorflow.python.client import timeline

        trace = timeline.Timeline(metadata.step_stats).generate_chrome_trace_format()
        assert "traced_product" in trace


def case_large_tensors(target):
    with session(target) as s:
        x = v1.placeholder(tf.float32)
        value = np.arange(16 << 20, dtype=np.float32).reshape(4096, 4096)
        got = s.run(x * 2, {x: value})
        assert (got == value * 2).all()


def case_many_threads_one_session(target):
    with session(target) as s:
        x = v1.placeholder(tf.float32)
        y = tf.reduce_sum(x * x)
        s.run(y, {x: [1.0]})
        wrong = []

        def work(n):
            for i in range(50):
                got = s.run(y, {x: np.full(100, n + i, "f")})
                if abs(got - 100 * (n + i) ** 2) > 1e-3 * got:
                    wrong.append((n, i, got))

        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        assert not wrong, wrong


def case_many_sessions(target):
    for i in range(50):
        with session(target) as s:
            close(s.run(tf.constant(float(i)) * 2), 2 * i)
