"""Errors: codes, messages, and that the session stays usable."""

import threading
import time

import numpy as np
import tensorflow as tf
from support import close, fresh, raises, session, v1
from tensorflow.core.framework import graph_pb2


def message_of(kind, function):
    """The message as the server sent it."""
    try:
        got = function()
    except kind as error:
        return error.message, error
    raise AssertionError(f"{kind.__name__} was expected, not {got}")


def case_the_failing_node_is_found(target):
    with session(target) as s:
        x = v1.placeholder(tf.float32, name="x")
        with tf.name_scope("deep/inside"):
            y = tf.reshape(x, [7], name="shaped")
        message, error = message_of(
            tf.errors.InvalidArgumentError, lambda: s.run(y + 1, {x: [1.0]}))
        assert "[[{{node deep/inside/shaped}}]]" in message, message
        assert error.op is y.op and error.node_def.name == "deep/inside/shaped"
        assert error.error_code == 3


def case_codes_of_common_mistakes(target):
    fresh(target)
    with session(target) as s:
        x = v1.placeholder(tf.float32)
        i = v1.placeholder(tf.int32)
        text = v1.placeholder(tf.string)
        f, k = np.ones(3, "f"), np.array([3, 4])
        mistakes = [
            (tf.gather(x, i), {x: f, i: 9}, tf.errors.InvalidArgumentError, "9"),
            (tf.matmul(x, x), {x: np.ones((2, 3))}, tf.errors.InvalidArgumentError, "In[0]"),
            (x + tf.ones([2]), {x: f}, tf.errors.InvalidArgumentError, "[3]"),
            (tf.concat([x, tf.ones([2, 2])], 0), {x: f}, tf.errors.InvalidArgumentError, "Concat"),
            (tf.slice(x, [1], [i]), {x: f, i: 5}, tf.errors.InvalidArgumentError, "lice"),
            (tf.strings.to_number(text), {text: "pig"}, tf.errors.InvalidArgumentError, "pig"),
            (i // 0, {i: k}, tf.errors.InvalidArgumentError, "by zero"),
            (tf.linalg.inv(x), {x: np.zeros((2, 2))}, tf.errors.InvalidArgumentError,
             "not invertible"),
            (tf.debugging.check_numerics(x, "bad things"), {x: [np.nan]},
             tf.errors.InvalidArgumentError, "bad things"),
            (tf.io.decode_raw(text, tf.int32), {text: "abc"}, tf.errors.InvalidArgumentError, "3"),
            (tf.sparse.to_dense(tf.SparseTensor([[5]], [1.0], [3])), {},
             tf.errors.InvalidArgumentError, "5"),
        ]
        for tensor, feeds, kind, word in mistakes:
            message, _ = message_of(kind, lambda: s.run(tensor, feeds))
            assert word in message and "[[{{node " in message, (tensor, message)
            close(s.run(x * 2, {x: f}), f * 2)


def case_unknown_names(target):
    with session(target) as s:
        s.run(tf.constant(1.0))
        call = lambda *names: s._call_tf_sessionrun(None, {}, list(names), [], None)
        # The client checks names itself, also in a separate graph.
        with raises((tf.errors.InvalidArgumentError, tf.errors.NotFoundError, TypeError)):
            call("nothing:0")
        close(s.run(tf.constant(2.0) * 2), 4)


def case_unknown_ops_and_attrs(target):
    import_graph = graph_pb2.GraphDef()
    node = import_graph.node.add(name="a", op="Placeholder")
    node.attr["dtype"].type = tf.float32.as_datatype_enum
    node.attr["_of_the_client"].s = b"kept"
    node = import_graph.node.add(name="b", op="Neg", input=["a"])
    node.attr["T"].type = tf.float32.as_datatype_enum
    with session(target) as s:
        tf.import_graph_def(import_graph, name="")
        close(s.run("b:0", {"a:0": 3.0}), -3)


def case_uninitialized_variables(target):
    fresh(target)
    with session(target) as s:
        old = v1.get_variable("old", [2], use_resource=False)
        new = v1.get_variable("new", [2], use_resource=True)
        with raises(tf.errors.FailedPreconditionError, "Attempting to use uninitialized value old"):
            s.run(old + 1)
        with raises(tf.errors.FailedPreconditionError, "Could not find variable new"):
            s.run(new + 1)
        got = s.run(v1.report_uninitialized_variables())
        assert sorted(got.tolist()) == [b"new", b"old"], got
        s.run(v1.global_variables_initializer())
        assert s.run(v1.report_uninitialized_variables()).size == 0


def case_assignments_of_wrong_shapes(target):
    fresh(target)
    with session(target) as s:
        x = v1.placeholder(tf.float32)
        old = v1.get_variable("old", initializer=[1.0, 2.0], use_resource=False)
        new = v1.get_variable("new", initializer=[1.0, 2.0], use_resource=True)
        s.run(v1.global_variables_initializer())
        old_assign = v1.assign(old, x)
        new_assign = tf.raw_ops.AssignVariableOp(
            resource=new.handle, value=x, validate_shape=True)
        with raises(tf.errors.InvalidArgumentError, "lhs shape= [2] rhs shape= [3]"):
            s.run(old_assign, {x: [1.0, 2.0, 3.0]})
        with raises(tf.errors.InvalidArgumentError):
            s.run(new_assign, {x: [1.0, 2.0, 3.0]})
        close(s.run([old, new]), [[1, 2], [1, 2]])


def case_assertions(target):
    with session(target) as s:
        x = v1.placeholder(tf.int32, [])
        check = tf.raw_ops.Assert(condition=x > 0, data=["x is", x], summarize=3)
        with tf.control_dependencies([check]):
            y = tf.identity(x)
        assert s.run(y, {x: 4}) == 4
        with raises(tf.errors.InvalidArgumentError, "assertion failed: [x is] [-4]"):
            s.run(y, {x: -4})


def case_printing_passes_values_on(target):
    with session(target) as s:
        x = v1.placeholder(tf.float32, [2])
        y = v1.Print(x, [x, tf.shape(x)], "printed: ")
        with tf.control_dependencies([tf.print("formatted:", x, summarize=2)]):
            z = y * 2
        close(s.run(z, {x: [1.0, 2.0]}), [2, 4])


def case_one_step_fails_others_do_not(target):
    with session(target) as s:
        x = v1.placeholder(tf.float32)
        y = tf.reshape(x, [4])
        s.run(y, {x: np.ones(4)})
        outcomes = {}

        def work(n):
            for i in range(20):
                try:
                    outcomes[n, i] = s.run(y, {x: np.full(3 + n % 2, n, "f")})[0]
                except tf.errors.InvalidArgumentError:
                    outcomes[n, i] = "refused"

        threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        assert len(outcomes) == 120
        for (n, _), outcome in outcomes.items():
            assert outcome == (n if n % 2 else "refused"), (n, outcome)


def case_operation_timeouts(target):
    config = v1.ConfigProto(operation_timeout_in_ms=700)
    with session(target, config=config) as s:
        queue = tf.queue.FIFOQueue(1, tf.float32, shapes=[])
        wait, put = queue.dequeue(), queue.enqueue(5.0)
        for _ in range(2):
            begin = time.monotonic()
            with raises(tf.errors.DeadlineExceededError):
                s.run(wait)
            assert 0.5 < time.monotonic() - begin < 10
        # A dequeue that timed out removes nothing.
        s.run(put)
        close(s.run(wait), 5)


def case_session_handles_are_refused(target):
    with session(target) as s:
        handle = v1.get_session_handle(tf.constant([1.0, 2.0]))
        # TensorFlow's servers have no session state, ours no such kernel.
        with raises((tf.errors.FailedPreconditionError, tf.errors.UnimplementedError),
                    "GetSessionHandle"):
            s.run(handle)
        close(s.run(tf.constant([1.0, 2.0])), [1, 2])


def case_closed_sessions(target):
    with tf.Graph().as_default():
        x = tf.constant(1.0)
        s = v1.Session(target)
        s.run(x)
        s.close()
        with raises(RuntimeError, "closed"):
            s.run(x)


def case_reset_ends_sessions(target):
    with tf.Graph().as_default():
        x = tf.constant(1.0)
        s = v1.Session(target)
        close(s.run(x), 1)
        fresh(target)
        with raises((tf.errors.AbortedError, tf.errors.CancelledError)):
            s.run(x)
        again = v1.Session(target)
        close(again.run(x), 1)


def case_conflicting_shapes_of_a_graph(target):
    graph = graph_pb2.GraphDef()
    for name, shape in (("a", [2, 3]), ("b", [4, 5])):
        node = graph.node.add(name=name, op="Placeholder")
        node.attr["dtype"].type = tf.float32.as_datatype_enum
        for size in shape:
            node.attr["shape"].shape.dim.add(size=size)
    node = graph.node.add(name="c", op="MatMul", input=["a", "b"])
    node.attr["T"].type = tf.float32.as_datatype_enum
    with session(target) as s:
        with raises(ValueError, "must be equal"):
            tf.import_graph_def(graph, name="")
        close(s.run(tf.constant(1.0)), 1)
