"""Writes ops.jsonl.gz: graphs of XLA's ops, and what TensorFlow computes with them when it compiles them.

Run with TensorFlow 2.21: python testdata/xla/make_ops.py. Each line is a case: its name, a GraphDef in base64 whose
placeholders are x0, x1... and whose results are y0, y1..., and the values of both.
"""

import base64
import gzip
import json
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops as raw
from tensorflow.compiler.tf2xla.python import xla

v1 = tf.compat.v1
HERE = os.path.dirname(os.path.abspath(__file__))
rng = np.random.RandomState(0)
messages = xla.xla_data_pb2
cases = {}


def normal(*shape):
    return np.round(rng.randn(*shape), 4).astype(np.float32)


def case(*args, by=None):
    """Arguments of a function, and what computes its results if TensorFlow does not compile the op."""

    def add(function):
        cases[function.__name__] = (function, args, by)
        return function

    return add


def function_of(python, *dtypes):
    """A function of scalars, for ops that call one on elements."""
    return tf.function(python, autograph=False).get_concrete_function(*[tf.TensorSpec([], d) for d in dtypes])


add = function_of(lambda a, b: a + b, tf.float32, tf.float32)
maximum = function_of(tf.maximum, tf.float32, tf.float32)
at_least = function_of(lambda a, b: a >= b, tf.float32, tf.float32)
indices = np.array([[1], [0], [2]], np.int32)


@case(normal(2, 3, 4), normal(2, 4, 5))
def dot(x, y):
    numbers = messages.DotDimensionNumbers(
        lhs_contracting_dimensions=[2], rhs_contracting_dimensions=[1],
        lhs_batch_dimensions=[0], rhs_batch_dimensions=[0]).SerializeToString()
    old = raw.xla_dot(lhs=x, rhs=y, dimension_numbers=numbers, precision_config="")
    new = raw.xla_dot_v2(lhs=x, rhs=y, dimension_numbers=numbers, precision_config="",
                       preferred_element_type=tf.float32)
    return old, new


@case(normal(2, 7, 6, 4), normal(3, 2, 2, 6))
def convolution(x, y):
    numbers = messages.ConvolutionDimensionNumbers(
        input_batch_dimension=0, input_spatial_dimensions=[1, 2], input_feature_dimension=3,
        kernel_spatial_dimensions=[0, 1], kernel_input_feature_dimension=2, kernel_output_feature_dimension=3,
        output_batch_dimension=0, output_spatial_dimensions=[1, 2], output_feature_dimension=3)
    settings = dict(
        window_strides=[2, 1], padding=[[1, 0], [0, 2]], lhs_dilation=[1, 2], rhs_dilation=[2, 1],
        feature_group_count=2, dimension_numbers=numbers.SerializeToString(), precision_config="")
    new = raw.xla_conv_v2(lhs=x, rhs=y, preferred_element_type=tf.float32, **settings)
    return raw.xla_conv(lhs=x, rhs=y, **settings), new


@case(normal(3, 4), normal(4, 2))
def einsum(x, y):
    return raw.xla_einsum(a=x, b=y, equation="ab,bc->ca")


@case(normal(3, 4))
def pad(x):
    return raw.xla_pad(input=x, padding_value=7.0, padding_low=[1, -1], padding_high=[0, 2],
                             padding_interior=[2, 1])


@case(normal(5, 4), np.array([1, 2], np.int32), normal(2, 1))
def slices(x, start, update):
    return (raw.xla_dynamic_slice(input=x, start_indices=start, size_indices=[2, 3]),
            raw.xla_dynamic_update_slice(input=x, update=update, indices=start))


@case(normal(4, 5), indices)
def gather(x, places):
    numbers = messages.GatherDimensionNumbers(
        offset_dims=[1], collapsed_slice_dims=[0], start_index_map=[0], index_vector_dim=1)
    return raw.xla_gather(operand=x, start_indices=places, slice_sizes=[1, 3],
                                dimension_numbers=numbers.SerializeToString(), indices_are_sorted=False)


@case(normal(4, 5), np.array([[1], [1], [3]], np.int32), normal(3, 5))
def scatter(x, places, updates):
    numbers = messages.ScatterDimensionNumbers(
        update_window_dims=[1], inserted_window_dims=[0], scatter_dims_to_operand_dims=[0], index_vector_dim=1)
    return raw.xla_scatter(operand=x, scatter_indices=places, updates=updates, update_computation=add,
                                 dimension_numbers=numbers.SerializeToString(), indices_are_sorted=False)


@case(normal(4, 5))
def reduce(x):
    index = tf.broadcast_to(tf.range(5), [4, 5])

    def greatest(a, i, b, j):
        return tf.where(a >= b, a, b), tf.where(a >= b, i, j)

    greatest = function_of(greatest, tf.float32, tf.int32, tf.float32, tf.int32)
    return (
        raw.xla_reduce(input=x, init_value=1.0, dimensions_to_reduce=[0], reducer=add),
        *raw.xla_variadic_reduce(input=[x], init_value=[-9.0], dimensions_to_reduce=[1], reducer=maximum),
        *raw.xla_variadic_reduce_v2(inputs=[x, index], init_values=[-9.0, 0], dimensions_to_reduce=[1],
                                 reducer=greatest),
    )


@case(normal(6, 5))
def reduce_window(x):
    return raw.xla_reduce_window(
        input=x, init_value=0.0, window_dimensions=[2, 2], window_strides=[1, 2], base_dilations=[2, 1],
        window_dilations=[1, 2], padding=[[1, 0], [0, 1]], computation=add)


@case(normal(4, 6), normal(2, 3))
def select_and_scatter(x, source):
    return raw.xla_select_and_scatter(
        operand=x, window_dimensions=[2, 2], window_strides=[2, 2], padding=[[0, 0], [0, 0]], source=source,
        init_value=0.5, select=at_least, scatter=add)


@case(normal(3, 6), np.arange(18, dtype=np.int32).reshape(3, 6))
def sort(x, values):
    before = function_of(lambda a, b, i, j: a > b, tf.float32, tf.float32, tf.int32, tf.int32)
    return (raw.xla_sort(input=x), *raw.xla_key_value_sort(keys=x, values=values),
            *raw.xla_variadic_sort(inputs=[x, values], dimension=0, comparator=before, is_stable=True))


@case(normal(3), normal(2, 3, 4))
def broadcast(x, y):
    return raw.xla_broadcast_helper(lhs=x, rhs=y, broadcast_dims=[1])


@case(normal(3, 4))
def small(x):
    return (raw.xla_reduce_precision(operand=x, exponent_bits=5, mantissa_bits=3), raw.xla_sharding(input=x),
            *raw.xla_optimization_barrier(input=[x, x + 1.0]),
            raw.xla_remove_dynamic_dimension_size(input=x, dim_index=0))


@case(normal(4), by=lambda x: x * 2 if x[0] > 0 else x * x)
def branch(x):
    vector = [tf.TensorSpec([4], tf.float32)]
    double = tf.function(lambda v: v * 2.0, input_signature=vector).get_concrete_function()
    square = tf.function(lambda v: v * v, input_signature=vector).get_concrete_function()
    return raw.xla_if(cond=x[0] > 0, inputs=[x], then_branch=double, else_branch=square, Tout=[tf.float32])


@case(normal(4))
def loop(x):
    values = [tf.TensorSpec([], tf.int32), tf.TensorSpec([4], tf.float32)]
    goes_on = tf.function(lambda i, v: i < 5, input_signature=values).get_concrete_function()
    body = tf.function(lambda i, v: (i + 1, v * 1.5), input_signature=values).get_concrete_function()
    return raw.xla_while(input=[tf.constant(0), x], cond=goes_on, body=body)


def listed(array):
    array = np.asarray(array)
    return {"dtype": str(array.dtype), "shape": list(array.shape), "values": array.ravel().tolist()}


def recorded():
    for name, (function, args, by) in sorted(cases.items()):
        compiled = by or tf.function(function, jit_compile=True, autograph=False)
        results = [np.asarray(result) for result in tf.nest.flatten(compiled(*args))]
        with tf.Graph().as_default() as graph:
            inputs = [v1.placeholder(a.dtype, a.shape, name=f"x{i}") for i, a in enumerate(args)]
            for i, result in enumerate(tf.nest.flatten(function(*inputs))):
                tf.identity(result, name=f"y{i}")
        graph = base64.b64encode(graph.as_graph_def().SerializeToString(deterministic=True)).decode()
        yield {"name": name, "graph": graph, "args": [listed(a) for a in args],
               "results": [listed(r) for r in results]}


lines = "".join(json.dumps(line) + "\n" for line in recorded())
with open(os.path.join(HERE, "ops.jsonl.gz"), "wb") as out:
    out.write(gzip.compress(lines.encode(), mtime=0))
