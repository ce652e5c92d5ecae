"""Records the flops that TensorFlow has registered for ops, for crates/ops/tests/work.rs.

    venv/bin/python testdata/golden/record_flops.py
"""

import os

import tensorflow as tf
from tensorflow.python.framework import op_def_registry
from tensorflow.python.framework import ops as framework
from tensorflow.python.ops import nn_ops  # noqa: F401, registers statistics
from tensorflow.python.profiler.internal import flops_registry  # noqa: F401

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "../../crates/ops/tests/work_tensorflow.txt")
raw = tf.raw_ops


def x(*shape, dtype=tf.float32):
    return tf.compat.v1.placeholder(dtype, shape)


def ints(*values):
    return tf.constant(values, tf.int32)


def same(*strides, padding="SAME", **attrs):
    return {"strides": [1, *strides, 1], "padding": padding, **attrs}


def cases():
    for op in [raw.Reciprocal, raw.Square, raw.Rsqrt, raw.Log, raw.Neg]:
        op(x=x(30, 50))
    for op in [raw.Add, raw.AddV2, raw.Sub, raw.Mul, raw.RealDiv, raw.Maximum, raw.Minimum, raw.Pow,
               raw.SquaredDifference, raw.Equal, raw.NotEqual, raw.Less, raw.LessEqual, raw.Greater,
               raw.GreaterEqual]:
        op(x=x(30, 50), y=x(50))
    raw.RsqrtGrad(y=x(30, 50), dy=x(30, 50))
    raw.AddN(inputs=[x(30, 50)] * 4)
    raw.L2Loss(t=x(30, 50))
    raw.Softmax(logits=x(30, 50))
    for op in [raw.Sum, raw.Mean]:
        op(input=x(30, 50), axis=ints(1))
        op(input=x(8, 9, 10), axis=ints(0, 1), keep_dims=True)
    for op in [raw.ArgMax, raw.ArgMin]:
        op(input=x(30, 50), dimension=tf.constant(1))
    raw.BiasAdd(value=x(4, 6, 6, 8), bias=x(8))
    raw.BiasAddGrad(out_backprop=x(4, 6, 6, 8))
    raw.MatMul(a=x(30, 40), b=x(40, 50))
    raw.MatMul(a=x(40, 30), b=x(50, 40), transpose_a=True, transpose_b=True)
    for op in [raw.BatchMatMul, raw.BatchMatMulV2]:
        op(x=x(2, 3, 30, 40), y=x(2, 3, 40, 50))
        op(x=x(2, 3, 40, 30), y=x(2, 3, 40, 50), adj_x=True)
    raw.BatchMatMulV2(x=x(7, 1, 30, 40), y=x(3, 50, 40), adj_y=True)
    raw.BatchMatMulV3(x=x(3, 30, 40), y=x(40, 50), Tout=tf.float32)
    raw.Conv2D(input=x(2, 12, 12, 4), filter=x(3, 3, 4, 8), **same(1, 1))
    raw.Conv2D(input=x(2, 12, 12, 4), filter=x(3, 3, 4, 8), **same(2, 2, padding="VALID"))
    raw.Conv2D(input=x(2, 12, 12, 4), filter=x(3, 3, 4, 8), **same(1, 1, dilations=[1, 2, 2, 1]))
    raw.Conv2D(input=x(2, 12, 12, 8), filter=x(3, 3, 4, 8), **same(1, 1))
    raw.Conv3D(input=x(2, 6, 6, 6, 4), filter=x(3, 2, 3, 4, 8), **same(1, 2, 1))
    for strides in [(1, 1), (2, 2)]:
        size = 12 // strides[0]
        raw.Conv2DBackpropInput(input_sizes=ints(2, 12, 12, 4), filter=x(3, 3, 4, 8),
                                out_backprop=x(2, size, size, 8), **same(*strides))
        raw.Conv2DBackpropFilter(input=x(2, 12, 12, 4), filter_sizes=ints(3, 3, 4, 8),
                                 out_backprop=x(2, size, size, 8), **same(*strides))
    raw.Conv2DBackpropInput(input_sizes=ints(2, 12, 12, 4), filter=x(3, 3, 4, 8),
                            out_backprop=x(2, 10, 10, 8), **same(1, 1, padding="VALID"))
    raw.DepthwiseConv2dNative(input=x(2, 12, 12, 4), filter=x(3, 3, 4, 2), **same(1, 1))
    raw.Dilation2D(input=x(2, 12, 12, 4), filter=x(3, 3, 4), rates=[1, 1, 1, 1], **same(1, 1))
    pool = {"ksize": [1, 3, 2, 1], **same(2, 2)}
    raw.MaxPool(input=x(2, 12, 12, 4), **pool)
    raw.AvgPool(value=x(2, 12, 12, 4), **pool)
    out = (2, 6, 6, 4)
    raw.MaxPoolGrad(orig_input=x(2, 12, 12, 4), orig_output=x(*out), grad=x(*out), **pool)
    raw.AvgPoolGrad(orig_input_shape=ints(2, 12, 12, 4), grad=x(*out), **pool)
    variable = tf.compat.v1.Variable(tf.zeros([30, 50]), use_resource=False)
    raw.AssignAdd(ref=variable._ref(), value=x(30, 50))
    raw.AssignSub(ref=variable._ref(), value=x(30, 50))


def shown(kind, value):
    if kind.startswith("list("):
        return ",".join(map(str, value))
    return {"type": lambda v: v.name, "string": lambda v: v.decode()}.get(kind, str)(value)


def line(graph, op):
    definition = op_def_registry.get(op.type)
    arguments = []
    for tensor in op.inputs:
        value = tf.get_static_value(tensor)
        name = tensor.dtype.base_dtype.name.replace("float32", "float")
        if value is None:
            arguments.append(f"{name}[{','.join(map(str, tensor.shape))}]")
        else:
            arguments.append(f"{name}={value.tolist()}".replace(" ", ""))
    attrs = []
    for attr in definition.attr:
        value = op.get_attr(attr.name)
        if attr.type == "type":
            attrs.append(f"{attr.name}={value.name.replace('float32', 'float')}")
        elif not attr.HasField("default_value") or op.node_def.attr[attr.name] != attr.default_value:
            attrs.append(f"{attr.name}={shown(attr.type, value)}")
    flops = framework.get_stats_for_node_def(graph, op.node_def, "flops").value
    return f"{op.type}({', '.join(arguments)}; {'; '.join(attrs)}) = {int(flops)}"


def main():
    with tf.Graph().as_default() as graph:
        cases()
        helpers = {"Placeholder", "Const", "VariableV2", "Assign", "Identity", "Fill"}
        lines = [line(graph, op) for op in graph.get_operations() if op.type not in helpers]
    with open(OUT, "w") as out:
        out.write("# Written by testdata/golden/record_flops.py: flops that TensorFlow "
                  f"{tf.__version__} has registered.\n")
        out.writelines(line + "\n" for line in lines)


if __name__ == "__main__":
    main()
