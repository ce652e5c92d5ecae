"""Functions that recorders of datasets share: iterate over a dataset, or fetch a result computed from
datasets."""

import recorder
import tensorflow as tf
from recorder import i64, record

raw = tf.raw_ops
v1 = tf.compat.v1
data = v1.data
D = data.Dataset
EXACT = (0, 0)


def types_of(dataset):
    return dict(
        output_types=list(tf.nest.flatten(data.get_output_types(dataset))),
        output_shapes=list(tf.nest.flatten(data.get_output_shapes(dataset))),
    )


def handle(dataset):
    return dataset._variant_tensor  # pylint: disable=protected-access


def drain(variant, output_types, output_shapes, steps):
    """An iterator over a dataset's variant: its initializer, then `steps` draws."""
    iterator = raw.IteratorV2(
        shared_name="", container="", output_types=output_types, output_shapes=output_shapes)
    init = raw.MakeIterator(dataset=variant, iterator=iterator)
    values = raw.IteratorGetNext(
        iterator=iterator, output_types=output_types, output_shapes=output_shapes)
    return [([], [init])] + [(values, [])] * steps, init, values


def ops_of(graph):
    definition = graph.as_graph_def()
    found = {n.op for n in definition.node}
    for function in definition.library.function:
        found |= {n.op for n in function.node_def}
    return sorted(found)


def play(op, build, steps=6, again=0):
    """Draws `steps` elements of the dataset that `build` makes, and `again` more after initializing the
    iterator again."""
    with tf.Graph().as_default() as graph:
        v1.set_random_seed(7)
        dataset = build()
        if isinstance(dataset, tuple):
            variant, kinds = dataset
        else:
            variant, kinds = handle(dataset), types_of(dataset)
        listed, init, values = drain(variant, kinds["output_types"], kinds["output_shapes"], steps)
        if again:
            listed += [([], [init])] + [(values, [])] * again
        record(op, "multi", graph, listed, EXACT)
        recorder.cases[-1]["ops"] = ops_of(graph)


def once(op, build):
    """Fetches the result of `build`; a list of results is that many steps."""
    with tf.Graph().as_default() as graph:
        v1.set_random_seed(7)
        built = build()
        steps = []
        for step in built:
            if isinstance(step, tf.Operation):
                steps.append(([], [step]))
            else:
                steps.append((tf.nest.flatten(step), []))
        record(op, "multi", graph, steps, EXACT)
        recorder.cases[-1]["ops"] = ops_of(graph)


def some(op, build, count):
    """As `play`, for datasets that TensorFlow's MakeIterator cannot serialize."""
    def each():
        variant, kinds = build()
        for i in range(count):
            rest = raw.SkipDataset(input_dataset=variant, count=i64(i), **kinds)
            yield raw.DatasetToSingleElement(
                dataset=raw.TakeDataset(input_dataset=rest, count=i64(1), **kinds), **kinds)
    once(op, lambda: list(each()))


INT = dict(output_types=[tf.int64], output_shapes=[[]])


def numbers(n=10):
    return D.range(n)


def hidden(value):
    return v1.placeholder_with_default(tf.constant(value), None)


def built(arguments):
    """Arguments, with those that must be tensors created in the graph."""
    return {name: value() if callable(value) else value for name, value in arguments.items()}


def func(body, *dtypes):
    signature = [tf.TensorSpec([], t) for t in dtypes]
    return tf.function(body, input_signature=signature).get_concrete_function()
