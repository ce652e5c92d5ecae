"""The recorder of record.py: builds a graph around one op, runs it in TensorFlow, and records the results."""

import base64
import gzip
import json
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.ops import (
    gen_array_ops,
    gen_resource_variable_ops,
    gen_state_ops,
    gen_training_ops,
)

tf.compat.v1.disable_v2_behavior()

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ours.jsonl.gz")
random = np.random.RandomState(20261115)
cases = []
counts = {}


def f32(*shape, low=-2.0, high=2.0):
    return random.uniform(low, high, shape).astype(np.float32)


def f64(*shape, low=-2.0, high=2.0):
    return random.uniform(low, high, shape).astype(np.float64)


def i32(values):
    return np.array(values, np.int32)


def i64(values):
    return np.array(values, np.int64)


def c64(*shape):
    return (f32(*shape) + 1j * f32(*shape)).astype(np.complex64)


def config():
    options = config_pb2.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    options.graph_options.optimizer_options.opt_level = -1
    options.graph_options.rewrite_options.disable_meta_optimizer = True
    return options


def encoded(value, dtype):
    proto = tf.make_tensor_proto(value, dtype=dtype)
    return base64.b64encode(proto.SerializeToString()).decode()


def number(op):
    counts[op] = counts.get(op, 0) + 1
    return counts[op]


def record(op, kind, graph, steps, tol, wrt=None):
    """Runs the steps in one session and records their results. A step is (fetches, targets)."""
    recorded = []
    with tf.compat.v1.Session(graph=graph, config=config()) as session:
        for fetches, targets in steps:
            step = {"fetch": [t.name for t in fetches]}
            if targets:
                step["targets"] = [t.name for t in targets]
            try:
                values = session.run([list(fetches), list(targets)])[0]
                step["expect"] = [
                    encoded(v, t.dtype.base_dtype) for v, t in zip(values, fetches)
                ]
            except tf.errors.OpError as error:
                step["error"] = {"code": error.error_code, "name": type(error).__name__}
            recorded.append(step)
    definition = graph.as_graph_def()
    entry = {
        "op": op,
        "kind": "error" if kind == "value" and "error" in recorded[0] else kind,
        "graph": base64.b64encode(definition.SerializeToString()).decode(),
        "steps": recorded,
        "tol": list(tol),
        "id": f"ours/{op}/{number(op)}",
        "ops": sorted({n.op for n in definition.node}),
    }
    if wrt:
        entry["wrt"] = wrt
    cases.append(entry)


def inputs_of(arguments):
    """Constants for arrays and lists of arrays, named as in the other files."""
    made = {}
    for i, (name, value) in enumerate(arguments.items()):
        if isinstance(value, np.ndarray) or isinstance(value, np.generic):
            made[name] = tf.constant(value, name=f"in{i}")
        elif isinstance(value, list) and value and isinstance(value[0], np.ndarray):
            made[name] = [tf.constant(v, name=f"in{i}_{j}") for j, v in enumerate(value)]
        else:
            made[name] = value
    return made


def case(op, grad=(), tol=(1e-4, 1e-4), kind="value", fetch=None, arguments=None, is_slope=True, **named):
    """One case of an op by its raw name; `fetch` selects outputs, by default all.

    The op's arguments are passed by name, or all in `arguments` if a name is a keyword. `is_slope` is false for
    gradients that TensorFlow defines differently from the derivative."""
    arguments = arguments or named
    with tf.Graph().as_default() as graph:
        built = getattr(tf.raw_ops, op)(name="op", **inputs_of(arguments))
        node = graph.get_operation_by_name("op")
        assert built is not None
        outputs = [node.outputs[i] for i in fetch] if fetch else list(node.outputs)
        record(op, kind, graph, [(outputs, [])] if outputs else [([], [node])], tol)
    if not grad:
        return
    with tf.Graph().as_default() as graph:
        made = inputs_of(arguments)
        getattr(tf.raw_ops, op)(name="op", **made)
        node = graph.get_operation_by_name("op")
        smooth = [o for o in node.outputs if o.dtype.is_floating or o.dtype.is_complex]
        xs = []
        for name in grad:
            xs.extend(made[name] if isinstance(made[name], list) else [made[name]])
        with tf.compat.v1.Session(graph=graph, config=config()) as session:
            shapes = [v.shape for v in session.run(smooth)]
        ys, seeds = smooth_outputs(op, smooth, shapes)
        pairs = [(x, g) for x, g in zip(xs, tf.gradients(ys, xs, grad_ys=seeds)) if g is not None]
        results = [tf.convert_to_tensor(g) for _, g in pairs]
        if results:
            record(op, "grad", graph, [(results, [])], tol, wrt=[x.op.name for x, _ in pairs])
            if not is_slope:
                cases[-1]["smooth"] = False


def old(op, producer, tensors, attrs, dtype):
    """A case of an op that is valid only in graphs up to this version."""
    definition = tf.compat.v1.GraphDef()
    definition.versions.producer = producer
    for i, value in enumerate(tensors.values()):
        node = definition.node.add(name=f"in{i}", op="Const")
        node.attr["dtype"].type = tf.as_dtype(value.dtype).as_datatype_enum
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
    node = definition.node.add(name="op", op=op)
    node.input.extend(f"in{i}" for i in range(len(tensors)))
    if dtype is not None:
        node.attr["T"].type = dtype.as_datatype_enum
    for name, value in attrs.items():
        attr = node.attr[name]
        if isinstance(value, bool):
            attr.b = value
        elif isinstance(value, int):
            attr.i = value
        elif isinstance(value, float):
            attr.f = value
        elif isinstance(value, str):
            attr.s = value.encode()
        elif isinstance(value, list):
            attr.list.i.extend(value)
        elif isinstance(value, tf.TensorShape):
            attr.shape.CopyFrom(value.as_proto())
        else:
            attr.type = value.as_datatype_enum
    with tf.Graph().as_default() as graph:
        tf.graph_util.import_graph_def(definition, name="")
        node = graph.get_operation_by_name("op")
        record(op, "value", graph, [(list(node.outputs), [])], (1e-4, 1e-4))


# Ops of which only the first outputs are differentiable.
FIRST_OUTPUT = {
    "FusedBatchNorm": 1,
    "FusedBatchNormV2": 1,
    "FusedBatchNormV3": 1,
    "SoftmaxCrossEntropyWithLogits": 1,
    "SparseFillEmptyRows": 1,
    "CTCLossV2": 1,
    "FractionalAvgPool": 1,
    "FractionalMaxPool": 1,
}


def smooth_outputs(op, outputs, shapes):
    count = FIRST_OUTPUT.get(op, len(outputs))
    ys = outputs[:count]
    seeds = []
    for y, shape in zip(ys, shapes):
        value = f64(*shape)
        if y.dtype.is_complex:
            value = value + 1j * f64(*shape)
        seeds.append(tf.constant(value.astype(y.dtype.as_numpy_dtype)))
    return ys, seeds


def training(op, state, **arguments):
    """An update of reference variables, or of resource variables for Resource ops."""
    is_resource = op.startswith("Resource")
    with tf.Graph().as_default() as graph:
        made, inits, reads = {}, [], []
        for name, value in state.items():
            if is_resource:
                handle = gen_resource_variable_ops.var_handle_op(
                    dtype=value.dtype, shape=value.shape, shared_name=name, name=name
                )
                inits.append(
                    gen_resource_variable_ops.assign_variable_op(handle, tf.constant(value))
                )
                reads.append((handle, value.dtype))
            else:
                handle = gen_state_ops.variable_v2(
                    shape=value.shape, dtype=value.dtype, name=name, shared_name=name
                )
                inits.append(gen_state_ops.assign(handle, tf.constant(value)).op)
                reads.append((handle, None))
            made[name] = handle
        for name, value in arguments.items():
            made[name] = tf.constant(value) if isinstance(value, (np.ndarray, np.generic)) else value
        snake = "".join("_" + c.lower() if c.isupper() else c for c in op).lstrip("_")
        snake = snake.replace("_r_m_s_", "_rms_").replace("_d_a", "_da").replace("_v2", "_v2")
        for module in (gen_training_ops, gen_state_ops, gen_resource_variable_ops, gen_array_ops):
            if hasattr(module, snake):
                built = getattr(module, snake)(name="op", **made)
                break
        else:
            raise ValueError(snake)
        assert built is not None
        node = graph.get_operation_by_name("op")
        with tf.control_dependencies([node]):
            after = [
                gen_resource_variable_ops.read_variable_op(handle, dtype)
                if dtype is not None
                else tf.identity(handle)
                for handle, dtype in reads
            ]
        record(op, "multi", graph, [([], inits), (after, [])], (1e-5, 1e-6))


def write():
    with gzip.GzipFile(OUT, "wb", mtime=0) as file:
        for entry in cases:
            file.write((json.dumps(entry) + "\n").encode())
    print(f"{len(cases)} cases of {len(counts)} ops in {OUT}")
