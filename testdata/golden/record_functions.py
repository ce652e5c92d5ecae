"""Records calls, branches and loops of functions: functions.jsonl.gz.

Hand-written graphs, run without lowering, test results and errors of each op; programs traced by TensorFlow's
Python are recorded with the gradients that TensorFlow builds for them."""

import base64
import gzip
import json
import os

import recorder
from recorder import config, encoded, tf

import numpy as np
from google.protobuf import text_format
from tensorflow.core.framework import graph_pb2
from tensorflow.python.framework import function as old_function

HERE = os.path.dirname(os.path.abspath(__file__))
cases, counts = [], {}
v1 = tf.compat.v1


def record(op, graph, fetches, tol=(1e-5, 1e-5), wrt=None):
    """Runs each fetch in its own step, or all in one step if gradients are recorded."""
    steps = [list(fetches)] if wrt else [[f] for f in fetches]
    recorded = []
    with v1.Session(graph=graph, config=config()) as session:
        for names in steps:
            step = {"fetch": [t.name for t in names], "targets": []}
            try:
                values = session.run(names)
                step["expect"] = [encoded(v, t.dtype.base_dtype) for v, t in zip(values, names)]
            except tf.errors.OpError as error:
                step["error"] = {"code": error.error_code, "name": type(error).__name__}
            recorded.append(step)
    definition = graph.as_graph_def()
    names = {f.signature.name for f in definition.library.function}
    nodes = list(definition.node) + [n for f in definition.library.function for n in f.node_def]
    counts[op] = counts.get(op, 0) + 1
    entry = {
        "op": op,
        "kind": "multi",
        "graph": base64.b64encode(definition.SerializeToString()).decode(),
        "steps": recorded,
        "tol": list(tol),
        "id": f"functions/{op}/{counts[op]}",
        "ops": sorted({n.op for n in nodes} - names),
    }
    if wrt:
        entry["wrt"] = [x.name for x in wrt]
    cases.append(entry)


# --- graphs written by hand ---

F, I, B, S = "DT_FLOAT", "DT_INT32", "DT_BOOL", "DT_STRING"


def attr(name, value):
    return 'attr { key: "%s" value { %s } } ' % (name, value)


def func(name):
    return 'func { name: "%s" }' % name


def types(*names):
    return "list { %s }" % " ".join("type: " + n for n in names)


def const(name, dtype, value, keyword="node"):
    return keyword + ' { name: "%s" op: "Const" %s } ' % (
        name, attr("dtype", "type: " + dtype) + attr("value", "tensor { dtype: %s %s }" % (dtype, value)))


def function(name, ins, outs, nodes, results):
    arg = lambda kind, pairs: " ".join('%s { name: "%s" type: %s }' % (kind, n, t) for n, t in pairs)
    ret = " ".join('ret { key: "%s" value: "%s" }' % item for item in results.items())
    return 'function { signature { name: "%s" %s %s } %s %s } ' % (
        name, arg("input_arg", ins), arg("output_arg", outs), nodes, ret)


def binary(name, op, dtype=F):
    t = attr("T", "type: " + dtype)
    return lambda a, b: 'node_def { name: "%s" op: "%s" input: "%s" input: "%s" %s } ' % (name, op, a, b, t)


SCALAR = "tensor_shape {}"
HUNDRED = const("c", F, SCALAR + " float_val: 100", "node_def")
FOUR = const("c", F, SCALAR + " float_val: 4", "node_def")
CAST = 'node_def { name: "t" op: "Cast" input: "%s" ' + attr("SrcT", "type: %s") + attr("DstT", "type: %s") + "} "
LIBRARY = "library { " + "".join([
    function("double", [("x", F)], [("y", F)], binary("a", "AddV2")("x", "x"), {"y": "a:z:0"}),
    function("square", [("x", F)], [("y", F)], binary("a", "Mul")("x", "x"), {"y": "a:z:0"}),
    function("less", [("x", F)], [("y", B)], HUNDRED + binary("a", "Less")("x", "c:output:0"), {"y": "a:z:0"}),
    function("minus", [("x", F)], [("y", F)], FOUR + binary("a", "Sub")("x", "c:output:0"), {"y": "a:z:0"}),
    function("same", [("x", F)], [("y", F)], "", {"y": "x"}),
    function("two_args", [("x", F), ("z", F)], [("y", F)], binary("a", "Mul")("x", "z"), {"y": "a:z:0"}),
    function("two_results", [("x", F)], [("y", F), ("w", F)], "", {"y": "x", "w": "x"}),
    function("ints", [("x", I)], [("y", I)], "", {"y": "x"}),
    function("to_int", [("x", F)], [("y", I)], CAST % ("x", F, I), {"y": "t:y:0"}),
    function("add_count", [("i", I), ("x", F)], [("y", F)],
             CAST % ("i", I, F) + binary("a", "AddV2")("x", "t:y:0"), {"y": "a:z:0"}),
]) + "} "
X = const("x", F, SCALAR + " float_val: 3")


def text(op, nodes, fetches=("y",)):
    definition = text_format.Parse(LIBRARY + X + nodes, graph_pb2.GraphDef())
    definition.versions.producer = 2474
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(definition, name="")
        record(op, graph, [graph.get_tensor_by_name(f + ":0") for f in fetches])


def node(op, inputs, attrs, name="y"):
    return 'node { name: "%s" op: "%s" %s %s } ' % (
        name, op, " ".join('input: "%s"' % i for i in inputs), attrs)


ONE = attr("Tin", types(F)) + attr("Tout", types(F))


def if_node(op, dtype, then_branch, else_branch):
    return node(op, ["p", "x"], attr("Tcond", "type: " + dtype) + ONE
                + attr("then_branch", func(then_branch)) + attr("else_branch", func(else_branch)))


def branches():
    conditions = [
        (B, "bool_val: true"), (B, "bool_val: false"), (F, "float_val: 0.5"), (F, "float_val: 0"),
        (F, "float_val: nan"), ("DT_DOUBLE", "double_val: -0.0"), ("DT_INT8", "int_val: 2"), ("DT_INT64", "int64_val: 0"),
        ("DT_UINT8", "int_val: 1"), ("DT_INT16", "int_val: 0"), (S, 'string_val: ""'), (S, 'string_val: "a"'),
    ]
    for op in ["If", "StatelessIf", "_If"]:
        for dtype, value in conditions:
            text(op, const("p", dtype, SCALAR + " " + value) + if_node(op, dtype, "double", "square"))
        for size in [0, 1]:
            vector = "tensor_shape { dim { size: %d } }" % size
            text(op, const("p", B, vector) + if_node(op, B, "double", "square"))
        true = const("p", B, SCALAR + " bool_val: true")
        # Wrong results of functions are an internal error in TensorFlow: not recorded.
        for then_branch in ["two_args", "ints", "nowhere"]:
            text(op, true + if_node(op, B, then_branch, "square"))
        text(op, true + if_node(op, B, "square", "nowhere"))
    for op in ["Case", "StatelessCase"]:
        for index in [0, 1, 2, -1, 7]:
            index = const("i", I, SCALAR + " int_val: %d" % index)
            names = " ".join(func(f) for f in ["double", "square", "minus"])
            text(op, index + node(op, ["i", "x"], ONE + attr("branches", "list { %s }" % names)))
        vector = const("i", I, "tensor_shape { dim { size: 1 } } int_val: 0")
        text(op, vector + node(op, ["i", "x"], ONE + attr("branches", "list { %s }" % func("double"))))


def loops():
    t = attr("T", types(F))
    for op in ["While", "StatelessWhile", "_While"]:
        for cond, body in [("less", "double"), ("less", "square"), ("two_results", "double"),
                           ("two_args", "double"), ("less", "two_results"), ("less", "to_int"),
                           ("less", "ints"), ("less", "nowhere")]:
            text(op, node(op, ["x"], t + attr("cond", func(cond)) + attr("body", func(body))))
        eight = const("x8", F, SCALAR + " float_val: 8")
        text(op, eight + node(op, ["x8"], t + attr("cond", func("double")) + attr("body", func("minus"))))
    for bounds in [(0, 5, 1), (0, 5, 2), (5, 0, -1), (5, 0, 1), (0, 5, -1), (0, 0, 0), (0, 5, 0), (3, 3, 1)]:
        made = "".join(const(n, I, SCALAR + " int_val: %d" % v) for n, v in zip("sld", bounds))
        text("For", made + node("For", ["s", "l", "d", "x"], t + attr("body", func("add_count"))))


def calls():
    for target in ["/device:CPU:0", "", "garbage"]:
        made = const("t", S, SCALAR + ' string_val: "%s"' % target)
        text("RemoteCall", made + node("RemoteCall", ["t", "x"], ONE + attr("f", func("double"))))
    dy = const("dy", F, SCALAR + " float_val: 2")
    pair = attr("Tin", types(F, F)) + attr("Tout", types(F))
    for f in ["square", "double", "same"]:
        text("SymbolicGradient", dy + node("SymbolicGradient", ["x", "dy"], pair + attr("f", func(f))))
    for op in ["PartitionedCall", "StatefulPartitionedCall"]:
        for f in ["double", "same", "ints"]:
            text(op, node(op, ["x"], ONE + attr("f", func(f))))


def small():
    for names in [["CPU", "GPU"], ["GPU", "CPU"], ["GPU"], []]:
        listed = "list { %s }" % " ".join('s: "%s"' % n for n in names)
        text("DeviceIndex", node("DeviceIndex", [], attr("device_names", listed)))
    for shape in ["dim { size: 2 }", "dim { size: -1 }", "unknown_rank: true", "", "dim { size: -1 } dim { size: 3 }"]:
        fake = node("FakeParam", [], attr("dtype", "type: " + F) + attr("shape", "shape { %s }" % shape), "f")
        shown = node("Shape", ["f"], attr("T", "type: " + F) + attr("out_type", "type: " + I))
        text("FakeParam", fake + shown)
    declared = attr("output_types", types(F)) + attr("output_shapes", "list { shape {} }")
    some = node("OptionalFromValue", ["x"], attr("Toutput_types", types(F)), "o")
    for made in [some, node("OptionalNone", [], "", "o")]:
        text("OptionalHasValue", made + node("OptionalHasValue", ["o"], ""))
        text("OptionalGetValue", made + node("OptionalGetValue", ["o"], declared))
    text("OptionalGetValue", some + node("OptionalGetValue", ["o"], declared.replace("shape {}", "shape { dim { size: 1 } }")))
    text("OptionalGetValue", some + node("OptionalGetValue", ["o"], declared.replace(F, I)))
    text("OptionalGetValue", some + node("OptionalGetValue", ["o"], declared.replace(F, F + " type: " + F).replace("shape {}", "shape {} shape {}")))


# --- programs traced by TensorFlow, with gradients ---

random = np.random.RandomState(7)


def program(op, build, tol=(1e-4, 1e-5)):
    """`build` returns a loss and the tensors to differentiate it by."""
    with tf.Graph().as_default() as graph:
        loss, xs = build()
        grads = tf.gradients(loss, xs, unconnected_gradients="zero")
        record(op, graph, [loss, *[tf.convert_to_tensor(g) for g in grads]], tol, wrt=xs)
        if op in ("PartitionedCall", "StatefulPartitionedCall", "SymbolicGradient"):
            return
    with tf.Graph().as_default() as graph:
        loss, xs = build()
        first = tf.gradients(loss, xs)
        total = tf.add_n([tf.reduce_sum(g * g) for g in first if g is not None])
        second = tf.gradients(total, xs, unconnected_gradients="zero")
        record(op, graph, [total, *[tf.convert_to_tensor(g) for g in second]], tol, wrt=xs)


def variable(*shape):
    return tf.constant(random.uniform(-1, 1, shape).astype(np.float32), name="in")


def cond_program():
    x, y = variable(3), variable(3)
    a = tf.cond(tf.reduce_sum(x) > -10.0, lambda: tf.sin(x) * y, lambda: x - y)
    b = tf.cond(tf.reduce_sum(x) > 10.0, lambda: tf.exp(x) * y, lambda: tf.tanh(x * y))
    return tf.reduce_sum(a * b), [x, y]


def case_program():
    x, y = variable(4), variable(4)
    branches = [lambda: x * x, lambda: tf.exp(x * y), lambda: y]
    out = [tf.switch_case(tf.constant(i), branches) for i in range(3)]
    return tf.reduce_sum(tf.add_n(out) * x), [x, y]


def while_program():
    x, w = variable(3), variable(3)
    i, out = tf.while_loop(lambda i, v: i < 4, lambda i, v: (i + 1, tf.tanh(v * w) + x), (tf.constant(0), x))
    return tf.reduce_sum(out * tf.cast(i, tf.float32)), [x, w]


def shrinking_program():
    x = variable(6)
    body = lambda i, v: (i + 1, v[1:] * v[:-1])
    shapes = (tf.TensorShape([]), tf.TensorShape([None]))
    _, out = tf.while_loop(lambda i, v: i < 3, body, (tf.constant(0), x), shape_invariants=shapes)
    return tf.reduce_sum(out), [x]


def nested_program():
    x, w = variable(2, 2), variable(2, 2)

    def inner(v):
        return tf.while_loop(lambda j, u: j < 2, lambda j, u: (j + 1, tf.sin(tf.matmul(u, w))), (0, v))[1]

    def body(i, v):
        return i + 1, tf.cond(tf.equal(i % 2, 0), lambda: inner(v), lambda: v * v + x)

    out = tf.while_loop(lambda i, v: i < 4, body, (tf.constant(0), x))[1]
    return tf.reduce_sum(out), [x, w]


def rnn_program():
    x, w, u = variable(5, 2, 3), variable(3, 4), variable(4, 4)
    states = tf.scan(lambda h, row: tf.tanh(tf.matmul(row, w) + tf.matmul(h, u)), x, tf.zeros([2, 4]))
    folded = tf.foldl(lambda h, row: h * 0.5 + row, states)
    mapped = tf.map_fn(lambda row: tf.reduce_sum(row * row), states)
    return tf.reduce_sum(folded) + tf.reduce_sum(mapped), [x, w, u]


def call_program():
    x, y = variable(3), variable(3)

    @tf.function
    def f(a, b):
        return tf.sin(a) * b, a + 1.0

    u, v = f(x, y)
    return tf.reduce_sum(u * v), [x, y]


def old_call_program():
    x = variable(3)

    @old_function.Defun(tf.float32, func_name="old_square")
    def f(a):
        return tf.sin(a) * a

    return tf.reduce_sum(f(x)), [x]


def traced():
    program("StatelessIf", cond_program)
    program("StatelessCase", case_program)
    for build in [while_program, shrinking_program, nested_program, rnn_program]:
        program("StatelessWhile", build)
    program("PartitionedCall", call_program)
    program("SymbolicGradient", old_call_program)


branches()
loops()
calls()
small()
v1.enable_control_flow_v2()
v1.enable_tensor_array_v2() if hasattr(v1, "enable_tensor_array_v2") else None
traced()
with gzip.GzipFile(os.path.join(HERE, "functions.jsonl.gz"), "wb", mtime=0) as out:
    for case in cases:
        out.write((json.dumps(case) + "\n").encode())
print(len(cases), "cases", counts)
