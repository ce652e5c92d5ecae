"""Messages between client and server: sizes, dtypes, callables, large graphs, reports."""

import json
import threading

import numpy as np
import tensorflow as tf
from support import close, equal, raises, session, v1
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.client import timeline

MEGABYTE = 1 << 20


def case_half_a_gigabyte_in(target):
    with session(target) as s:
        x = v1.placeholder(tf.uint8, [None])
        value = np.arange(125 * MEGABYTE, dtype=np.uint32).view("B")
        value[-3:] = (1, 2, 250)
        picked = tf.gather(x, [0, 4, 1024, 500 * MEGABYTE - 2, 500 * MEGABYTE - 1])
        got, size = s.run([picked, tf.size(x, out_type=tf.int64)], {x: value})
        equal(got, [0, 1, 0, 2, 250])
        assert size == 500 * MEGABYTE


def case_half_a_gigabyte_out(target):
    with session(target) as s:
        n = v1.placeholder(tf.int64, [])
        got = s.run(tf.range(n), {n: 500 * MEGABYTE // 8})
        assert got.nbytes == 500 * MEGABYTE
        equal(got[::999983], np.arange(0, len(got), 999983))
        assert got[-1] == len(got) - 1


def case_round_trips(target):
    with session(target) as s:
        x = v1.placeholder(tf.float64)
        value = np.random.RandomState(0).rand(2000, 3000)
        equal(s.run(tf.identity(x), {x: value}), value)
        equal(s.run(tf.transpose(x), {x: value}), value.T)
        # A view that is not contiguous.
        equal(s.run(tf.identity(x), {x: value[::3, ::-2]}), value[::3, ::-2])


def case_constants_travel_with_the_graph(target):
    with session(target) as s:
        value = np.random.RandomState(1).rand(1 << 20).astype("f")
        equal(s.run(tf.constant(value) * 1.0), value)
        equal(s.run(tf.constant(7.5, shape=[100, 3])), np.full((100, 3), 7.5))
        text = ["", "x" * 100000, "\u00fc"]
        assert s.run(tf.constant(text)).tolist() == [t.encode() for t in text]


def case_values_of_every_type_are_computed(target):
    with session(target) as s:
        for dtype in (tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.complex64,
                      tf.complex128, tf.int32, tf.int64):
            x = v1.placeholder(dtype)
            value = np.array([1, 2, 3]).astype(dtype.as_numpy_dtype)
            got = s.run(x * x + x, {x: value})
            assert got.dtype == value.dtype
            close(got.astype("D"), [2, 6, 12])
        flags = v1.placeholder(tf.bool)
        got = s.run([tf.logical_not(flags), tf.reduce_any(flags)], {flags: [True, False]})
        assert got[0].tolist() == [False, True] and got[1]
        z = v1.placeholder(tf.complex64)
        close(s.run([tf.abs(z), tf.math.angle(z)], {z: [3 + 4j, 1j]}),
              [[5, 1], [np.arctan2(4, 3), np.pi / 2]])


def case_numbers_at_the_edges(target):
    with session(target) as s:
        values = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-45, 3.4e38], "f")
        x = v1.placeholder(tf.float32)
        got = s.run(tf.identity(x), {x: values})
        assert got.tobytes() == values.tobytes()
        whole = np.array([np.iinfo("q").min, np.iinfo("q").max], "q")
        y = v1.placeholder(tf.int64)
        equal(s.run(y + 0, {y: whole}), whole)


def case_many_feeds_and_fetches(target):
    with session(target) as s:
        fed = [v1.placeholder(tf.float32, []) for _ in range(500)]
        sums = [a + b for a, b in zip(fed, fed[1:] + fed[:1])]
        got = s.run(sums, {x: float(i) for i, x in enumerate(fed)})
        close(got, [2 * i + 1 for i in range(499)] + [499])


def case_nested_fetches(target):
    with session(target) as s:
        a, b = tf.constant(1), tf.constant("two")
        got = s.run({"pair": (a, [b, a]), "none": a.op, "name": "Const:0"})
        assert got == {"pair": (1, [b"two", 1]), "none": None, "name": 1}, got


def case_callables_of_several_kinds(target):
    with session(target) as s:
        x, y = v1.placeholder(tf.float32), v1.placeholder(tf.float32)
        counter = v1.get_variable("calls", initializer=0, use_resource=False)
        s.run(counter.initializer)
        count = v1.assign_add(counter, 1).op
        many = s.make_callable({"sum": x + y, "product": x * y}, [x, y])
        got = many(3.0, [1.0, 2.0])
        close(got["sum"], [4, 5]), close(got["product"], [3, 6])
        options = config_pb2.CallableOptions(
            feed=[y.name, x.name], fetch=[(x - y).name], target=[count.name])
        call = s._make_callable_from_options(options)
        for i in range(5):
            close(call(np.float32(1), np.float32(i))[0], i - 1)
        assert s.run(counter) == 5
        only = s._make_callable_from_options(config_pb2.CallableOptions(target=[count.name]))
        only()
        assert s.run(counter) == 6
        with raises(tf.errors.OpError):
            s._make_callable_from_options(config_pb2.CallableOptions(fetch=["absent:0"]))()


def case_callables_stay_usable_after_an_error(target):
    with session(target) as s:
        x = v1.placeholder(tf.float32)
        call = s._make_callable_from_options(config_pb2.CallableOptions(
            feed=[x.name], fetch=[tf.reshape(x, [2], name="pair").name]))
        with raises(tf.errors.InvalidArgumentError, "pair"):
            call(np.ones(3, "f"))
        close(call(np.ones(2, "f"))[0], [1, 1])


def chain(length):
    """A GraphDef of additions, built without the client."""
    graph = graph_pb2.GraphDef()
    node = graph.node.add(name="n0", op="Placeholder")
    node.attr["dtype"].type = tf.float32.as_datatype_enum
    for i in range(1, length):
        node = graph.node.add(name=f"n{i}", op="AddV2", input=[f"n{i - 1}", "n0"])
        node.attr["T"].type = tf.float32.as_datatype_enum
    return graph


def case_twenty_thousand_nodes(target):
    with session(target) as s:
        tf.import_graph_def(chain(20000), name="")
        close(s.run("n19999:0", {"n0:0": 0.5}), 10000)
        close(s.run("n9999:0", {"n0:0": 2.0}), 20000)


def case_a_hundred_extensions(target):
    with session(target) as s:
        total, parts = tf.constant(0.0), []
        for i in range(100):
            parts.append(tf.constant(float(i)))
            total = total + parts[-1]
            close(s.run(total), i * (i + 1) / 2)
        close(s.run(tf.add_n(parts)), 4950)


def case_a_step_while_the_graph_grows(target):
    with session(target) as s:
        queue = tf.queue.FIFOQueue(2, tf.float32, shapes=[])
        wait, put = queue.dequeue(), queue.enqueue(3.0)
        s.run(queue.size())
        got = []
        thread = threading.Thread(target=lambda: got.append(s.run(wait)))
        thread.start()
        for i in range(10):
            close(s.run(tf.constant(float(i)) + 1), i + 1)
        assert not got
        s.run(put)
        thread.join(20)
        close(got, [3])


def case_reports_of_steps(target):
    with session(target) as s:
        x = v1.placeholder(tf.float32, [64, 64], name="fed")
        y = tf.matmul(x, x, name="square")
        z = tf.reduce_sum(y, name="total")
        options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
        metadata = v1.RunMetadata()
        close(s.run(z, {x: np.eye(64)}, options=options, run_metadata=metadata), 64)
        nodes = {n.node_name: n for d in metadata.step_stats.dev_stats for n in d.node_stats}
        for name in ("square", "total"):
            assert nodes[name].all_start_micros > 1e15 and nodes[name].op_end_rel_micros >= 0
        assert nodes["square"].all_start_micros <= nodes["total"].all_start_micros
        trace = json.loads(
            timeline.Timeline(metadata.step_stats).generate_chrome_trace_format())
        events = [e for e in trace["traceEvents"] if e.get("ph") == "X"]
        assert {"square", "total"} <= {e["args"]["name"] for e in events}
        # A step without trace_level has no report.
        plain = v1.RunMetadata()
        s.run(z, {x: np.eye(64)}, options=v1.RunOptions(), run_metadata=plain)
        assert not plain.step_stats.dev_stats


def case_partition_graphs(target):
    with session(target) as s:
        x = tf.constant([1.0, 2.0], name="x")
        y = tf.multiply(x, 3.0, name="thrice")
        metadata = v1.RunMetadata()
        options = v1.RunOptions(output_partition_graphs=True)
        close(s.run(y, options=options, run_metadata=metadata), [3, 6])
        assert len(metadata.partition_graphs) == 1
        names = {node.name for node in metadata.partition_graphs[0].node}
        assert any("thrice" in name for name in names), names
        assert all(node.device.endswith("CPU:0") for node in metadata.partition_graphs[0].node)


def case_partial_runs(target):
    with session(target) as s:
        a, b, c = (v1.placeholder(tf.float32, []) for _ in range(3))
        sums = a + b
        product = sums * c
        handle = s.partial_run_setup([sums, product], [a, b, c])
        first = s.partial_run(handle, sums, {a: 1.0, b: 2.0})
        close(first, 3)
        close(s.partial_run(handle, product, {c: first * 10}), 90)
        # Two concurrent partial runs are independent.
        one, two = (s.partial_run_setup([sums, product], [a, b, c]) for _ in range(2))
        close(s.partial_run(one, sums, {a: 1.0, b: 1.0}), 2)
        close(s.partial_run(two, sums, {a: 5.0, b: 5.0}), 10)
        close(s.partial_run(one, product, {c: 3.0}), 6)
        close(s.partial_run(two, product, {c: 3.0}), 30)


def case_errors_in_partial_runs(target):
    with session(target) as s:
        a, b = (v1.placeholder(tf.float32, []) for _ in range(2))
        y = a + b
        handle = s.partial_run_setup([y], [a, b])
        with raises(tf.errors.InvalidArgumentError):
            s.partial_run(handle, y, {a: 1.0})
        other = s.partial_run_setup([y], [a, b])
        s.partial_run(other, [], {a: 1.0})
        with raises(tf.errors.InvalidArgumentError, "already been fed"):
            s.partial_run(other, [], {a: 2.0})
        close(s.run(y, {a: 1.0, b: 2.0}), 3)
