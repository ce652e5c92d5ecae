"""The models of the programs in this folder, exported by TensorFlow.

    half_plus_two   TensorFlow 1, with signatures for tf.Example: classify, regress
    mlp             Keras, any number of examples
    words           strings through a table that is filled from an asset, and back
    image           an encoded picture
    loop            counts, for as long as it is asked to
    shapes          several inputs and outputs of several types, shapes known at run time only
"""

import os

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1


def half_plus_two(folder, add=2.0, warm_up=()):
    """y = x / 2 + add, by tensors and by examples."""
    graph = tf.Graph()
    with graph.as_default(), v1.Session(graph=graph) as session:
        a = v1.get_variable("a", initializer=0.5)
        b = v1.get_variable("b", initializer=float(add))
        serialized = v1.placeholder(tf.string, [None], name="tf_example")
        parsed = v1.parse_example(serialized, {"x": v1.FixedLenFeature([1], tf.float32, [0.0])})
        x = tf.identity(parsed["x"], name="x")
        y = tf.add(a * x, b, name="y")
        names = tf.constant(["low", "high"])
        best = tf.reshape(tf.cast(y > 3.0, tf.int32), [-1, 1])
        order = tf.concat([best, 1 - best], 1)
        scores = tf.concat([y, -y], 1)
        classes = tf.gather(names, order)
        info = v1.saved_model.build_tensor_info
        signature = v1.saved_model.build_signature_def
        signatures = {
            "serving_default": signature(
                {"x": info(x)}, {"y": info(y)}, "tensorflow/serving/predict"),
            "regress_x_to_y": signature(
                {"inputs": info(serialized)}, {"outputs": info(y)}, "tensorflow/serving/regress"),
            "classify_x": signature(
                {"inputs": info(serialized)},
                {"classes": info(classes), "scores": info(scores)},
                "tensorflow/serving/classify"),
        }
        session.run(v1.global_variables_initializer())
        builder = v1.saved_model.Builder(folder)
        builder.add_meta_graph_and_variables(session, ["serve"], signatures)
        builder.save()
    if warm_up:
        os.makedirs(os.path.join(folder, "assets.extra"))
        path = os.path.join(folder, "assets.extra", "tf_serving_warmup_requests")
        with tf.io.TFRecordWriter(path) as writer:
            for log in warm_up:
                writer.write(log.SerializeToString())


def mlp(folder):
    tf.keras.utils.set_random_seed(7)
    model = tf.keras.Sequential([
        tf.keras.Input((4,), name="features"),
        tf.keras.layers.Dense(8, activation="relu"),
        tf.keras.layers.Dense(3, activation="softmax", name="probabilities"),
    ])
    model.export(folder, verbose=False)
    return model


class Words(tf.Module):
    def __init__(self, file):
        super().__init__()
        keys = tf.lookup.TextFileInitializer(
            file, tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64,
            tf.lookup.TextFileIndex.LINE_NUMBER)
        names = tf.lookup.TextFileInitializer(
            file, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER, tf.string,
            tf.lookup.TextFileIndex.WHOLE_LINE)
        self.ids = tf.lookup.StaticHashTable(keys, -1)
        self.words = tf.lookup.StaticHashTable(names, "?")
        self.file = tf.saved_model.Asset(file)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="word")])
    def __call__(self, word):
        ids = self.ids.lookup(word)
        return {"id": ids, "next": self.words.lookup(ids + 1), "next_bytes": self.words.lookup(ids)}


def words(folder):
    file = folder + ".txt"
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    with open(file, "w") as f:
        f.write("alpha\nbeta\ngamma\nd\u00e9lta\n")
    module = Words(file)
    tf.saved_model.save(module, folder)
    os.remove(file)


def image(folder):
    class Image(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="image_bytes")])
        def __call__(self, image_bytes):
            def one(data):
                pixels = tf.io.decode_png(data, channels=3)
                return tf.reduce_mean(tf.cast(pixels, tf.float32), [0, 1])
            return {"mean": tf.map_fn(one, image_bytes, fn_output_signature=tf.float32)}

    tf.saved_model.save(Image(), folder)


def picture():
    pixels = np.arange(5 * 7 * 3, dtype=np.uint8).reshape(5, 7, 3)
    return tf.io.encode_png(pixels).numpy()


def shapes(folder):
    class Shapes(tf.Module):
        @tf.function(input_signature=[
            tf.TensorSpec([None, None], tf.float32, name="a"),
            tf.TensorSpec([None], tf.int64, name="b"),
            tf.TensorSpec([None], tf.bool, name="c"),
        ])
        def __call__(self, a, b, c):
            return {
                "sum": tf.reduce_sum(a, 1),
                "grid": a * 2.0,
                "square": b * b,
                "small": tf.cast(b, tf.uint8),
                "other": tf.logical_not(c),
                "wide": tf.cast(a, tf.float64) / 3.0,
                "half": tf.cast(a, tf.float16),
            }

    tf.saved_model.save(Shapes(), folder)


def loop(folder):
    class Loop(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([], tf.int64, name="n")])
        def __call__(self, n):
            return {"i": tf.while_loop(lambda i: i < n, lambda i: i + 1, [tf.constant(0, tf.int64)])[0]}

    tf.saved_model.save(Loop(), folder)


def export_all(root):
    """Exports every model as version 1 under its name."""
    half_plus_two(os.path.join(root, "half_plus_two", "1"))
    mlp(os.path.join(root, "mlp", "1"))
    words(os.path.join(root, "words", "1"))
    image(os.path.join(root, "image", "1"))
    shapes(os.path.join(root, "shapes", "1"))
    loop(os.path.join(root, "loop", "1"))


class TensorFlowModel:
    """A model that TensorFlow itself runs."""

    def __init__(self, folder):
        self.model = tf.saved_model.load(folder)

    def __call__(self, signature="serving_default", **inputs):
        run = self.model.signatures[signature]
        found = run(**{name: tf.constant(value) for name, value in inputs.items()})
        return {name: value.numpy() for name, value in found.items()}
