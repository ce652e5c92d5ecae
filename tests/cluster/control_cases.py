"""Order, branches and loops over several tasks."""

import tensorflow as tf

from cluster import OURS, THEIRS, tasks
from support import close, equal, raises, v1

PS0, PS1, W0, W1 = ("/job:ps/task:0", "/job:ps/task:1", "/job:worker/task:0", "/job:worker/task:1")
MIXED = ({"ps:0": OURS, "ps:1": OURS, "worker:0": OURS, "worker:1": OURS},
         {"ps:0": THEIRS, "ps:1": OURS, "worker:0": OURS, "worker:1": THEIRS},
         {"ps:0": OURS, "ps:1": THEIRS, "worker:0": THEIRS, "worker:1": OURS})


@tasks(*MIXED)
def case_order_holds_across_tasks(cluster):
    """Each update waits for the one before it, on another task."""
    with tf.Graph().as_default():
        with v1.device(PS0):
            v = v1.get_variable("v", [], tf.int64, v1.zeros_initializer(), use_resource=False)
        last = v.op
        for i in range(6):
            with tf.control_dependencies([last]), v1.device([W0, W1, PS1][i % 3]):
                factor = tf.identity(tf.constant(10, tf.int64))
            with tf.control_dependencies([last]), v1.device(PS0):
                last = v1.assign(v, v.read_value() * factor + i).op
        with v1.Session(cluster.target("worker:0")) as s:
            for _ in range(5):
                s.run(v1.global_variables_initializer())
                s.run(last)
                equal(s.run(v), 12345)


@tasks(*MIXED)
def case_branches(cluster):
    """The branch not taken is dead on every task that has nodes of it."""
    with tf.Graph().as_default():
        with v1.device(W0):
            p = v1.placeholder(tf.bool, [])
            x = v1.placeholder(tf.float32, [])

        def taken(sign):
            def branch():
                with v1.device(PS0):
                    y = x * sign
                with v1.device(W1):
                    return y + 1.0
            return branch
        with v1.device(PS1):
            v1.disable_control_flow_v2()
            y = v1.cond(p, taken(2.0), taken(-3.0))
            z = y * 10.0
        with v1.Session(cluster.target("worker:0")) as s:
            for _ in range(10):
                close(s.run(z, {p: True, x: 4.0}), 90)
                close(s.run(z, {p: False, x: 4.0}), -110)


def loop(body_device, condition_device, v2):
    """Doubles until the value exceeds 100; body and condition on the given devices."""
    def condition(i, x):
        with v1.device(condition_device):
            return x < 100.0

    def body(i, x):
        with v1.device(body_device):
            return i + 1, x * 2.0
    (v1.enable_control_flow_v2 if v2 else v1.disable_control_flow_v2)()
    start = v1.placeholder(tf.float32, [])
    return start, v1.while_loop(condition, body, [0, start])


@tasks(*MIXED)
def case_a_loop_with_its_body_on_another_task(cluster):
    for v2 in [False, True]:
        for body, condition in [(W1, W0), (PS0, PS0), (W0, PS1), (PS0, W1)]:
            with tf.Graph().as_default(), v1.device(W0):
                start, (i, x) = loop(body, condition, v2)
                with v1.Session(cluster.target("worker:0")) as s:
                    equal(s.run([i, x], {start: 1.0}), [7, 128])
                    equal(s.run([i, x], {start: 200.0}), [0, 200])
                    equal(s.run([i, x], {start: 3.0}), [6, 192])


@tasks(*MIXED)
def case_loops_in_loops(cluster):
    v1.disable_control_flow_v2()
    with tf.Graph().as_default(), v1.device(W0):
        def inner(k):
            def body(j, total):
                with v1.device(PS0):
                    return j + 1, total + k
            return v1.while_loop(lambda j, _: j < 3, body, [0, 0])[1]

        def outer(i, total):
            with v1.device(W1):
                more = total * 2
            return i + 1, more + inner(i)
        result = v1.while_loop(lambda i, _: i < 4, outer, [0, 0])[1]
        with v1.Session(cluster.target("worker:0")) as s:
            total = 0
            for i in range(4):
                total = total * 2 + 3 * i
            for _ in range(3):
                equal(s.run(result), total)


def case_gradients_of_a_loop(cluster):
    v1.disable_control_flow_v2()
    with tf.Graph().as_default(), v1.device(W0):
        with v1.device(PS0):
            w = v1.get_variable("w", [], initializer=v1.constant_initializer(1.5),
                                use_resource=False)

        def body(i, x):
            with v1.device(W1):
                return i + 1, x * w
        y = v1.while_loop(lambda i, _: i < 4, body, [0, tf.constant(2.0)])[1]
        slope, = v1.gradients(y, [w])
        with v1.Session(cluster.target("worker:0")) as s:
            s.run(v1.global_variables_initializer())
            close(s.run([y, slope]), [2 * 1.5 ** 4, 8 * 1.5 ** 3])


def case_partial_runs(cluster):
    # Repeated: with its last feed a step may end before the fetch is requested.
    partial_runs(cluster, 300)


def partial_runs(cluster, times):
    with tf.Graph().as_default():
        with v1.device(W0):
            a, b = v1.placeholder(tf.float32, []), v1.placeholder(tf.float32, [])
        with v1.device(PS0):
            first = a * 2.0
        with v1.device(PS1):
            second = first + b
        with v1.Session(cluster.target("worker:0")) as s:
            for i in range(times):
                handle = s.partial_run_setup([first, second], [a, b])
                close(s.partial_run(handle, first, {a: 1.0 + i}), 2.0 + 2 * i)
                close(s.partial_run(handle, second, {b: 10.0}), 12.0 + 2 * i)


@tasks({"ps:0": OURS, "ps:1": THEIRS, "worker:0": THEIRS, "worker:1": OURS})
def case_partial_runs_of_a_tensorflow_master(cluster):
    partial_runs(cluster, 5)


@tasks(*MIXED)
def case_errors_name_their_node(cluster):
    with tf.Graph().as_default():
        with v1.device(W0):
            x = v1.placeholder(tf.int32, [None])
        with v1.device(PS0):
            y = tf.reshape(x, [2, 2], name="impossible")
        with v1.device(W1):
            z = y + 1
        with v1.Session(cluster.target("worker:0")) as s:
            for _ in range(3):
                with raises(tf.errors.InvalidArgumentError, "impossible"):
                    s.run(z, {x: [1, 2, 3]})
                equal(s.run(z, {x: [1, 2, 3, 4]}), [[2, 3], [4, 5]])


@tasks({"ps:0": OURS, "worker:0": OURS}, {"ps:0": OURS, "worker:0": THEIRS})
def case_an_unknown_replica(cluster):
    """There is one replica of each task, number 0; others are refused. With soft placement ours
    ignores the replica too, TensorFlow's does not."""
    with tf.Graph().as_default():
        with v1.device("/job:ps/replica:0/task:0"):
            x = tf.constant(20) + v1.placeholder_with_default(1, [])
        with v1.device("/job:ps/replica:1/task:0"):
            y = tf.negative(x, name="y")
        with v1.Session(cluster.target("worker:0")) as s:
            with raises(tf.errors.InvalidArgumentError, "y", "/job:ps/replica:1/task:0"):
                s.run(y)
        if cluster.kinds["worker:0"] == OURS:
            soft = v1.ConfigProto(allow_soft_placement=True)
            with v1.Session(cluster.target("worker:0"), config=soft) as s:
                equal(s.run(y), -21)


@tasks({"ps:0": OURS, "worker:0": OURS})
def case_placement_is_logged(cluster):
    """The client's nodes, also those folded into constants, and none that the planner added."""
    config = v1.ConfigProto(log_device_placement=True)
    with tf.Graph().as_default():
        with v1.device("/job:ps/task:0"):
            folded = tf.add(tf.constant(1.0, name="one"), tf.constant(2.0, name="two"), name="folded")
            v = v1.get_variable("v", [], tf.float32, v1.zeros_initializer(), use_resource=False)
        with v1.device("/job:worker/task:0"):
            x = v1.placeholder(tf.float32, [], name="x")
            y = tf.multiply(folded, x, name="y")
        add = v1.assign_add(v, y, name="add")
        with v1.Session(cluster.target("worker:0"), config=config) as s:
            s.run(v.initializer)
            for _ in range(3):
                s.run(add, {x: 2.0})
    task = "/replica:0/task:0/device:CPU:0"
    logged = cluster.log("worker:0").splitlines()
    lines = [line.partition(" INFO ")[2] for line in logged if "): /job:" in line]
    for line in ["one: (Const): /job:ps", "folded: (AddV2): /job:ps", "v: (VariableV2): /job:ps",
                 "y: (Mul): /job:worker", "add: (AssignAdd): /job:ps"]:
        equal(lines.count(line + task), 2 if line.startswith("v:") else 1)
    assert not [line for line in lines if "_Send" in line or "_Recv" in line], lines
