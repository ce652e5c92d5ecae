"""SavedModels in both directions: TensorFlow's run by `thalweg run`, ours loaded and run by TensorFlow.

    python tests/models/saved_models.py --thalweg target/debug/thalweg --export target/debug/examples/export
    python tests/models/saved_models.py --thalweg ... --all               # and the models of the papers
    python tests/models/saved_models.py --thalweg ... --folder F --only v1  # some, their files kept in F
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import numpy as np
import tensorflow as tf

import keras_models

keras = tf.keras
v1 = tf.compat.v1
SECONDS_MAX = 600


class Wrong(Exception):
    """A failed check."""


def run(thalweg, folder, *args):
    """The finished process of `thalweg run FOLDER ARGS`."""
    command = [thalweg, "run", folder, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX)


def outputs(thalweg, folder, inputs, names, *args):
    """The outputs of a signature, by name; inputs and outputs are passed in files."""
    with tempfile.TemporaryDirectory() as files:
        options = []
        for i, (name, value) in enumerate(inputs.items()):
            path = f"{files}/in{i}.npy"
            np.save(path, value)
            options += ["--feed", f"{name}=@{path}"]
        for i, name in enumerate(names):
            options += ["--save", f"{name}={files}/out{i}.npy"]
        done = run(thalweg, folder, *options, *args)
        if done.returncode != 0:
            raise Wrong(done.stderr.strip() or f"exit status {done.returncode}")
        return {name: np.load(f"{files}/out{i}.npy") for i, name in enumerate(names)}


def same(got, expected):
    """Fails unless both have the same names, types, shapes and (nearly) the same numbers."""
    if got.keys() != expected.keys():
        raise Wrong(f"outputs {sorted(got)}, not {sorted(expected)}")
    for name, wanted in expected.items():
        wanted = np.asarray(wanted)
        if wanted.dtype.kind in "OSU":
            wanted, found = wanted.astype("S"), got[name].astype("S")
            if wanted.shape != found.shape or not np.array_equal(wanted, found):
                raise Wrong(f"{name} is {found}, not {wanted}")
            continue
        problem = keras_models.difference(got[name], wanted)
        if problem:
            raise Wrong(f"{name}: {problem}")


def holds(thalweg, folder, inputs, signature="serving_default", *args):
    """Asserts that a signature has the same outputs here as in TensorFlow."""
    loaded = tf.saved_model.load(str(folder), tags=list(args[1::2]) or None)
    wanted = loaded.signatures[signature](**{n: tf.constant(v) for n, v in inputs.items()})
    wanted = {name: value.numpy() for name, value in wanted.items()}
    got = outputs(thalweg, folder, inputs, list(wanted), "--signature", signature, *args)
    same(got, wanted)


def refused(thalweg, folder, words, *args):
    done = run(thalweg, folder, *args)
    if done.returncode not in (1, 2) or any(w not in done.stderr + done.stdout for w in words):
        raise Wrong(f"{args} must fail with {words}, said {done.stdout}{done.stderr}")


# --- Keras


def keras_case(build, write):
    def case(thalweg, folder):
        keras.backend.clear_session()
        keras.utils.set_random_seed(20261115)
        model = build()
        x = keras_models.example(model, np.random.RandomState(5))
        write(model, str(folder))
        signature = tf.saved_model.load(str(folder)).signatures["serving_default"]
        (name,) = signature.structured_input_signature[1]
        holds(thalweg, folder, {name: x})

    return case


def export(model, folder):
    model.export(folder, verbose=False)


def save(model, folder):
    """Saves with a signature of unknown batch size."""
    spec = [tf.TensorSpec([None, *t.shape[1:]], t.dtype, "x") for t in model.inputs]
    serve = tf.function(lambda x: {"y": model(x, training=False)}, input_signature=spec)
    tf.saved_model.save(model, folder, signatures=serve.get_concrete_function())


def any_batch(thalweg, folder):
    """One model, batches and sequences of several lengths."""
    x = keras.Input((None, 3))
    model = keras.Model(x, keras.layers.Dense(2)(keras.layers.GRU(4)(x)))
    model.export(str(folder), verbose=False)
    loaded = tf.saved_model.load(str(folder)).signatures["serving_default"]
    (name,) = loaded.structured_input_signature[1]
    for batch, steps in [(1, 1), (3, 5), (2, 9)]:
        holds(thalweg, folder, {name: np.random.RandomState(batch).rand(batch, steps, 3).astype(np.float32)})


# --- TensorFlow 2 without Keras


class Words(tf.Module):
    """Variables of equal names, a table from a file, a captured constant, functions without signatures."""

    def __init__(self, vocabulary):
        super().__init__()
        self.w = tf.Variable([[1.0, 2.0], [3.0, 4.0]], name="same")
        self.b = tf.Variable([0.5, -0.5], name="same")
        self.alone = tf.Variable([7.0], name="alone")
        self.c = tf.constant([10.0, 20.0])
        self.file = tf.saved_model.Asset(vocabulary)
        lines = tf.lookup.TextFileInitializer(
            self.file, tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER
        )
        self.table = tf.lookup.StaticVocabularyTable(lines, 2)

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, "x")])
    def serve(self, x):
        return {"y": x @ self.w + self.b, "z": x + self.c}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "words")])
    def look(self, words):
        upper = tf.strings.upper(words)
        return {"ids": self.table.lookup(words), "upper": upper, "size": tf.strings.length(upper)}

    @tf.function(input_signature=[])
    def lines(self):
        return {"text": tf.io.read_file(self.file)}

    @tf.function
    def scaled(self, x, times=2):
        return x * self.b * float(times), {"more": x + self.alone}


def module(thalweg, folder):
    vocabulary = folder.parent / "vocabulary.txt"
    vocabulary.write_text("one\ntwo\nthree\n")
    model = Words(str(vocabulary))
    model.scaled(tf.ones([2]))
    signatures = {"serving_default": model.serve, "look": model.look, "lines": model.lines}
    tf.saved_model.save(model, str(folder), signatures=signatures)
    vocabulary.unlink()
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    holds(thalweg, folder, {"x": x})
    holds(thalweg, folder, {"words": np.array(["two", "none", ""])}, "look")
    got = outputs(thalweg, folder, {}, ["text"], "--signature", "lines")
    same(got, {"text": np.array(b"one\ntwo\nthree\n")})
    # Functions without a signature, by path and by name.
    same(outputs(thalweg, folder, {"x": x}, ["y", "z"], "--signature", "serve"), model.serve(x))
    first, second = model.scaled(np.array([1.0, 2.0], np.float32))
    got = outputs(thalweg, folder, {"x": np.array([1.0, 2.0], np.float32)}, ["output_0", "output_1.more"],
                  "--signature", "scaled")
    same(got, {"output_0": first, "output_1.more": second["more"]})
    model.scaled(tf.ones([1, 2]))
    again = folder.parent / "traced_twice"
    vocabulary.write_text("one\n")
    tf.saved_model.save(model, str(again), signatures=signatures)
    refused(thalweg, again, ["different arguments", "x: float [2]", "x: float [1,2]"], "--signature", "scaled")
    refused(thalweg, folder, ["'look', 'serving_default'", "'scaled'"], "--signature", "other")
    refused(thalweg, folder, ["input   x  float [?,2]", "--feed x=VALUE"])


def images(thalweg, folder):
    """Encoded images as strings, decoded by the model."""

    class Images(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "images")])
        def serve(self, images):
            one = lambda image: tf.image.resize(tf.io.decode_png(image, 3), [4, 4]) / 255.0
            pixels = tf.map_fn(one, images, fn_output_signature=tf.float32)
            return {"mean": tf.reduce_mean(pixels, [1, 2]), "pixels": pixels}

    model = Images()
    tf.saved_model.save(model, str(folder), signatures=model.serve)
    random = np.random.RandomState(3)
    png = tf.io.encode_png(random.randint(0, 255, [8, 6, 3]).astype(np.uint8)).numpy()
    file = folder.parent / "image.png"
    file.write_bytes(png)
    wanted = model.serve(tf.constant([png]))
    out = folder.parent / "mean.npy"
    done = run(thalweg, folder, "--feed", f"images=@{file}", "--save", f"mean={out}")
    if done.returncode != 0:
        raise Wrong(done.stderr)
    same({"mean": np.load(out)}, {"mean": wanted["mean"]})


# --- TensorFlow 1


def simple(thalweg, folder):
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, 3], name="x")
        w = v1.get_variable("w", [3, 2], initializer=v1.random_uniform_initializer(seed=1), use_resource=False)
        y = tf.nn.relu(x @ w, name="y")
        session.run(v1.global_variables_initializer())
        v1.saved_model.simple_save(session, str(folder), {"x": x}, {"y": y})
    holds(thalweg, folder, {"x": np.random.RandomState(2).randn(4, 3).astype(np.float32)})


def builder(thalweg, folder):
    """Assets, tables, partitioned and reference variables, two signatures, two tag sets."""
    vocabulary = folder.parent / "words.txt"
    vocabulary.write_text("a\nb\nc\n")
    predict = v1.saved_model.predict_signature_def
    with tf.Graph().as_default(), v1.Session() as session:
        words = v1.placeholder(tf.string, [None], name="words")
        path = tf.constant(str(vocabulary), name="vocabulary")
        v1.add_to_collection(v1.GraphKeys.ASSET_FILEPATHS, path)
        lines = tf.lookup.TextFileInitializer(
            path, tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER
        )
        ids = tf.lookup.StaticHashTable(lines, 3).lookup(words)
        rows = v1.get_variable("rows", [4, 2], initializer=v1.random_uniform_initializer(seed=4),
                               partitioner=v1.fixed_size_partitioner(2))
        shift = v1.get_variable("shift", [2], initializer=v1.constant_initializer(0.25), use_resource=False)
        found = v1.nn.embedding_lookup(rows, ids, partition_strategy="div") + shift
        session.run([v1.global_variables_initializer(), v1.tables_initializer()])
        signatures = {"serving_default": predict({"words": words}, {"found": found}),
                      "ids": predict({"words": words}, {"ids": ids})}
        made = v1.saved_model.Builder(str(folder))
        made.add_meta_graph_and_variables(
            session, ["serve"], signatures, main_op=v1.tables_initializer(),
            assets_collection=v1.get_collection(v1.GraphKeys.ASSET_FILEPATHS))
        made.add_meta_graph(["serve", "twice"], {"serving_default": predict({"words": words}, {"found": found * 2.0})})
        made.save(as_text=True)
        wanted = session.run([found, ids], {words: ["c", "x", "a"]})
    vocabulary.unlink()
    given = {"words": np.array(["c", "x", "a"])}
    same(outputs(thalweg, folder, given, ["found"], "--saved-model-tags", "serve"), {"found": wanted[0]})
    same(outputs(thalweg, folder, given, ["ids"], "--saved-model-tags", "serve", "--signature", "ids"), {"ids": wanted[1]})
    got = outputs(thalweg, folder, given, ["found"], "--saved-model-tags", "twice,serve")
    same(got, {"found": 2 * wanted[0]})
    refused(thalweg, folder, ["[other]", "[serve], [serve, twice]"], "--saved-model-tags", "other")
    (folder / "variables" / "variables.index").unlink()
    refused(thalweg, folder, ["variables.index is missing"], "--feed", "words=a")
    (folder / "assets" / "words.txt").unlink()
    refused(thalweg, folder, ["assets/words.txt is missing"], "--feed", "words=a")


def legacy(thalweg, folder):
    """The initializer in the collection `legacy_init_op`."""
    with tf.Graph().as_default(), v1.Session() as session:
        keys = v1.placeholder(tf.string, [None], name="keys")
        pairs = tf.lookup.KeyValueTensorInitializer(["k"], [5], tf.string, tf.int64)
        values = tf.lookup.StaticHashTable(pairs, 0).lookup(keys)
        session.run(v1.tables_initializer())
        made = v1.saved_model.Builder(str(folder))
        signature = v1.saved_model.predict_signature_def({"keys": keys}, {"values": values})
        made.add_meta_graph_and_variables(
            session, ["serve"], {"serving_default": signature}, legacy_init_op=v1.tables_initializer())
        made.save()
    got = outputs(thalweg, folder, {"keys": np.array(["k", "l"])}, ["values"])
    same(got, {"values": np.array([5, 0])})


# --- Written here


def ours(thalweg, folder, program):
    """The output of examples/export.rs runs in TensorFlow with both loaders, and its checkpoint can be
    restored."""
    done = subprocess.run([program, folder], capture_output=True, text=True, timeout=SECONDS_MAX)
    if done.returncode != 0:
        raise Wrong(done.stdout + done.stderr)
    version = folder / "1"
    x = np.array([[2.0, 1.0], [0.0, 0.0]], np.float32)
    wanted = outputs(thalweg, version, {"x": x}, ["y"])["y"]
    if abs(wanted[0, 0] - 5.5) > 0.05:
        raise Wrong(f"it did not learn: {wanted}")
    loaded = tf.saved_model.load(str(version))
    same({"y": loaded.signatures["serving_default"](x=tf.constant(x))["y"].numpy()}, {"y": wanted})
    words = tf.constant(["up", "over", "down"])
    same({"ids": loaded.signatures["lookup"](words=words)["ids"].numpy()}, {"ids": np.array([2, -1, 0])})
    if sorted(v.name for v in loaded.variables) != ["global_step:0", "line/b:0", "line/w:0"]:
        raise Wrong(f"variables {loaded.variables}")
    with tf.Graph().as_default(), v1.Session() as session:
        meta = v1.saved_model.load(session, ["serve"], str(version))
        signature = meta.signature_def["serving_default"]
        got = session.run(signature.outputs["y"].name, {signature.inputs["x"].name: x})
        same({"y": got}, {"y": wanted})
        signature = meta.signature_def["lookup"]
        ids = session.run(signature.outputs["ids"].name, {signature.inputs["words"].name: ["steady"]})
        same({"ids": ids}, {"ids": np.array([1])})
        # Training continues from the checkpoint: the initializers are those of the graph.
        if len(v1.global_variables()) != 3:
            raise Wrong(f"variables {v1.global_variables()}")
    w, b = tf.Variable(tf.zeros([2, 1])), tf.Variable(tf.zeros([1]))
    line = tf.train.Checkpoint(w=w, b=b)
    step = tf.Variable(0, dtype=tf.int64)
    root = tf.train.Checkpoint(line=line, global_step=step)
    root.read(str(version / "variables" / "variables")).assert_consumed()
    if step.numpy() != 300:
        raise Wrong(f"global_step is {step.numpy()} after 300 steps")
    same({"y": x @ w.numpy() + b.numpy()}, {"y": wanted})


def all_cases(args):
    cases = {
        "v1_simple": simple,
        "v1_builder": builder,
        "v1_legacy": legacy,
        "v2_module": module,
        "v2_images": images,
        "v2_any_batch": any_batch,
    }
    if args.export:
        cases["ours"] = lambda thalweg, folder: ours(thalweg, folder, args.export)
    models = {**keras_models.SMALL, **(keras_models.PUBLISHED if args.all else {})}
    for i, (name, build) in enumerate(models.items()):
        # Both formats, alternating.
        for how, write in [("export", export), ("save", save)]:
            if name in keras_models.PUBLISHED or (how == "export") == (i % 2 == 0):
                cases[f"{name}_{how}"] = keras_case(build, write)
    if args.only:
        cases = {name: case for name, case in cases.items() if any(o in name for o in args.only)}
    if not cases:
        sys.exit(f"no case has a name with any of {args.only}")
    return cases


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--thalweg", required=True, help="the binary")
    parser.add_argument("--export", help="the program of examples/export.rs")
    parser.add_argument("--all", action="store_true", help="the published models too")
    parser.add_argument("--only", action="append", help="cases whose name contains this")
    parser.add_argument("--folder", type=pathlib.Path, help="where to leave the models")
    args = parser.parse_args()
    wrong = []
    with tempfile.TemporaryDirectory() as temporary:
        base = args.folder or pathlib.Path(temporary)
        for name, case in all_cases(args).items():
            shutil.rmtree(base / name, ignore_errors=True)
            (base / name).mkdir(parents=True)
            start = time.monotonic()
            try:
                case(args.thalweg, base / name / "model")
                problem = None
            except (Wrong, subprocess.TimeoutExpired) as error:
                problem = str(error)
                wrong.append(name)
            print(f"{name:26} {time.monotonic() - start:7.2f} s  {problem or 'ok'}", flush=True)
    if wrong:
        sys.exit("wrong: " + ", ".join(wrong))


main()
