"""Builds models with TensorFlow's Keras and compares `thalweg run` with TensorFlow's results.

    python tests/models/run.py --thalweg target/debug/thalweg            # small models
    python tests/models/run.py --thalweg target/release/thalweg --all    # and those of the papers
    python tests/models/run.py --thalweg ... --folder F --only lstm      # one, its files kept in F

Every model is written as two GraphDefs, each with its function library. In the frozen one the weights are
constants. The other has variables and an `init` op with seeded random values, which both sides run.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import numpy as np
import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

from keras_models import PUBLISHED, SMALL, difference, example

keras = tf.keras
SECONDS_MAX = 600


def traced(model, x):
    function = tf.function(lambda x: model(x, training=False))
    return function.get_concrete_function(tf.TensorSpec(x.shape, x.dtype, "x"))


def write_frozen(model, x, path):
    """The model with its weights as constants; returns the names of its input and output, and TensorFlow's
    result."""
    function = convert_variables_to_constants_v2(traced(model, x), lower_control_flow=False)
    path.write_bytes(function.graph.as_graph_def().SerializeToString())
    expected = model(x, training=False).numpy()
    return function.inputs[0].name, function.outputs[0].name, expected


def initial(value, seed):
    """The initial value in `init` of a variable: random numbers at the scale of a fresh model, or `value`
    itself if it is small."""
    if value.ndim < 2 or value.dtype.kind != "f":
        return tf.constant(value)
    bound = float(np.sqrt(3.0 / max(1, np.prod(value.shape[:-1]))))
    return tf.random.stateless_uniform(value.shape, [seed, 7], -bound, bound, value.dtype)


def write_unfrozen(model, x, path):
    """The model with variables and an `init` op; returns names and result as above."""
    function = traced(model, x)
    definition = function.graph.as_graph_def()
    weights = {id(v.handle): v.numpy() for v in function.variables}
    captured = [(inner.name, id(outer) in weights, weights[id(outer)] if id(outer) in weights else outer.numpy())
                for outer, inner in function.graph.captures]
    with tf.Graph().as_default() as graph:
        fed = tf.compat.v1.placeholder(x.dtype, x.shape, name="x")
        inputs, inits = {function.inputs[0].name: fed}, []
        for i, (inner, is_weight, value) in enumerate(captured):
            if not is_weight:
                inputs[inner] = tf.constant(value)
                continue
            made = tf.compat.v1.Variable(
                lambda: initial(value, i), use_resource=True, name=f"weight_{i}", dtype=value.dtype
            )
            inits.append(made.initializer)
            inputs[inner] = made.handle
        outputs = tf.graph_util.import_graph_def(
            definition, input_map=inputs, return_elements=[function.outputs[0].name], name="model"
        )
        tf.group(*inits, name="init")
        path.write_bytes(graph.as_graph_def().SerializeToString())
        with tf.compat.v1.Session(graph=graph) as session:
            session.run("init")
            expected = session.run(outputs[0], {fed: x})
        return fed.name, outputs[0].name, expected


def run(thalweg, graph, fed, fetched, x, inits, folder):
    """The result of `thalweg run`, and its duration."""
    given, got = folder / "x.npy", folder / "got.npy"
    np.save(given, x)
    command = [thalweg, "run", graph, "--feed", f"{fed}=@{given}", "--save", f"{fetched}={got}"]
    for init in inits:
        command += ["--init", init]
    start = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX)
    if done.returncode != 0:
        raise AssertionError(done.stderr.strip() or f"exit status {done.returncode}")
    return np.load(got), time.monotonic() - start


def check(name, build, thalweg, folder):
    """Runs one model in both forms; returns the differences, if any."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(20261115)
    model = build()
    x = example(model, np.random.RandomState(5))
    wrong = []
    for form, write, inits in [("frozen", write_frozen, []), ("unfrozen", write_unfrozen, ["init"])]:
        graph = folder / f"{name}_{form}.pb"
        fed, fetched, expected = write(model, x, graph)
        try:
            got, seconds = run(thalweg, graph, fed.split(":")[0], fetched, x, inits, folder)
            problem = difference(got, expected)
        except (AssertionError, subprocess.TimeoutExpired) as error:
            problem, seconds = str(error), 0.0
        print(f"{name:18} {form:9} {seconds:7.2f} s  {problem or 'ok'}", flush=True)
        if problem:
            wrong.append(f"{name} ({form})")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--thalweg", required=True, help="the binary")
    parser.add_argument("--all", action="store_true", help="the published models too")
    parser.add_argument("--only", action="append", help="models whose name contains this")
    parser.add_argument("--folder", type=pathlib.Path, help="where to leave the graphs")
    args = parser.parse_args()
    models = {**SMALL, **(PUBLISHED if args.all else {})}
    if args.only:
        models = {n: b for n, b in {**SMALL, **PUBLISHED}.items() if any(o in n for o in args.only)}
    if not models:
        sys.exit(f"no model has a name with any of {args.only}")
    wrong = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or pathlib.Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name, build in models.items():
            wrong += check(name, build, args.thalweg, folder)
    if wrong:
        sys.exit("wrong: " + ", ".join(wrong))


main()
