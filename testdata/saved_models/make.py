"""Writes the SavedModels of this folder and what TensorFlow computes with them.

Run with TensorFlow 2.21: python testdata/saved_models/make.py. Each NAME/ has a NAME.json: a list of
arguments of `thalweg run NAME`, each with the outputs that it must print.
"""

import json
import os
import shutil
import tempfile

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
HERE = os.path.dirname(os.path.abspath(__file__))
FILES = tempfile.mkdtemp()


def listed(array):
    if array.dtype == object:
        return np.vectorize(lambda b: b.decode(), otypes=[object])(array).tolist()
    return array.tolist()


def folder(name):
    path = os.path.join(HERE, name)
    shutil.rmtree(path, ignore_errors=True)
    return path


def vocabulary(*words):
    path = os.path.join(FILES, "vocabulary.txt")
    with open(path, "w") as out:
        out.write("\n".join(words) + "\n")
    return path


def lines(path):
    index = tf.lookup.TextFileIndex
    return tf.lookup.TextFileInitializer(path, tf.string, index.WHOLE_LINE, tf.int64, index.LINE_NUMBER)


def case(args, inputs, outputs):
    args = args + [f"--input={name}={json.dumps(value)}" for name, value in inputs.items()]
    outputs = {name: np.asarray(value) for name, value in outputs.items()}
    return {"args": args, "outputs": {n: {"shape": list(v.shape), "values": listed(v)} for n, v in outputs.items()}}


def write(name, cases):
    with open(os.path.join(HERE, name + ".json"), "w") as out:
        json.dump(cases, out, indent=1)
        out.write("\n")


class Module(tf.Module):
    """Two variables of one name, a table from a file, a captured constant."""

    def __init__(self):
        super().__init__()
        self.w = tf.Variable([[1.0, 2.0], [3.0, 4.0]], name="same")
        self.b = tf.Variable([0.5, -0.5], name="same")
        self.c = tf.constant([10.0, 20.0])
        self.file = tf.saved_model.Asset(vocabulary("one", "two"))
        self.table = tf.lookup.StaticVocabularyTable(lines(self.file), 1)

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, "x")])
    def serve(self, x):
        return {"y": x @ self.w + self.b, "z": x + self.c}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "words")])
    def look(self, words):
        return {"ids": self.table.lookup(words), "upper": tf.strings.upper(words)}

    @tf.function(input_signature=[tf.TensorSpec([2], tf.float32, "x")])
    def scaled(self, x):
        return x * self.b


def second():
    model = Module()
    signatures = {"serving_default": model.serve, "look": model.look}
    tf.saved_model.save(model, folder("v2"), signatures=signatures)
    x, words = [[1.0, 2.0], [-1.0, 0.5]], ["two", "three", "one"]
    look = {name: value.numpy() for name, value in model.look(tf.constant(words)).items()}
    write("v2", [
        case([], {"x": x}, model.serve(tf.constant(x))),
        case(["--signature=look", "--tag=serve"], {"words": words}, look),
        case(["--signature=scaled"], {"x": [3.0, 4.0]}, {"output_0": model.scaled(tf.constant([3.0, 4.0]))}),
    ])


def first():
    predict = v1.saved_model.predict_signature_def
    with tf.Graph().as_default(), v1.Session() as session:
        words = v1.placeholder(tf.string, [None], name="words")
        path = tf.constant(vocabulary("a", "b", "c"), name="vocabulary")
        v1.add_to_collection(v1.GraphKeys.ASSET_FILEPATHS, path)
        ids = tf.lookup.StaticHashTable(lines(path), 3).lookup(words)
        rows = v1.get_variable("rows", [4, 2], initializer=v1.random_uniform_initializer(seed=4),
                               partitioner=v1.fixed_size_partitioner(2))
        shift = v1.get_variable("shift", [2], initializer=v1.constant_initializer(0.25), use_resource=False)
        found = v1.nn.embedding_lookup(rows, ids, partition_strategy="div") + shift
        session.run([v1.global_variables_initializer(), v1.tables_initializer()])
        builder = v1.saved_model.Builder(folder("v1"))
        signatures = {"serving_default": predict({"words": words}, {"found": found}),
                      "ids": predict({"words": words}, {"ids": ids})}
        builder.add_meta_graph_and_variables(
            session, ["serve"], signatures, main_op=v1.tables_initializer(),
            assets_collection=v1.get_collection(v1.GraphKeys.ASSET_FILEPATHS))
        doubled = predict({"words": words}, {"found": found * 2.0})
        builder.add_meta_graph(["serve", "twice"], {"serving_default": doubled})
        builder.save()
        given = ["c", "x", "a"]
        got, numbers = session.run([found, ids], {words: given})
    write("v1", [
        case([], {"words": given}, {"found": got}),
        case(["--signature=ids"], {"words": given}, {"ids": numbers}),
        case(["--tag=twice", "--tag=serve"], {"words": given}, {"found": 2 * got}),
    ])


first()
second()
shutil.rmtree(FILES)
