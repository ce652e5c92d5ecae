"""Latency of one caller of a model over gRPC, compared with a TensorFlow session in its own process: `cargo
xtask bench serving latency` builds what is needed and runs this program.

    python benches/serving/latency.py --server target/release/thalweg --load target/release/thalweg-load \\
        [--rounds N] [--seconds S] [--threads N] [--batch N] [--json FILE]

The models are a Keras MLP and MobileNetV2 with random weights, with one example or --batch of them, one call at
a time. In each round the server, TensorFlow's session (by its fastest API: a callable made once) and the loaded
signature are measured in turn for a short time, all with the same number of threads. The goal is the session's
latency plus 5 % plus 100 microseconds.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

from speed import METHOD, Process, until_ready

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2

v1 = tf.compat.v1
ALLOWED = (1.05, 100.0)


def mlp():
    layers = [tf.keras.Input((784,), name="x")]
    layers += [tf.keras.layers.Dense(512, activation="relu") for _ in range(2)]
    return tf.keras.Sequential(layers + [tf.keras.layers.Dense(10, activation="softmax", name="y")])


def mobilenet():
    return tf.keras.applications.MobileNetV2(weights=None, input_shape=(224, 224, 3))


MODELS = {"mlp": mlp, "mobilenet_v2": mobilenet}


class InProcess:
    """A SavedModel in this process: its session and its function."""

    def __init__(self, folder, example, threads):
        config = v1.ConfigProto(intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads)
        self.session = v1.Session(graph=tf.Graph(), config=config)
        with self.session.graph.as_default():
            meta = v1.saved_model.loader.load(self.session, ["serve"], folder)
        signature = meta.signature_def["serving_default"]
        (self.input, given), = signature.inputs.items()
        (_, wanted), = signature.outputs.items()
        self.run = self.session.make_callable(wanted.name, [given.name])
        self.loaded = tf.saved_model.load(folder)
        self.function = self.loaded.signatures["serving_default"]
        self.example = example

    def by_session(self):
        return self.run(self.example)

    def by_signature(self):
        outputs = self.function(**{self.input: tf.constant(self.example)})
        return [value.numpy() for value in outputs.values()][0]


def request(model, name, example):
    made = predict_pb2.PredictRequest()
    made.model_spec.name = model
    made.inputs[name].CopyFrom(tf.make_tensor_proto(example))
    return made.SerializeToString()


def timed(call, seconds):
    """Median and 99th percentile of sequential calls, in microseconds."""
    times = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.perf_counter()
        call()
        times.append((time.perf_counter() - begin) * 1e6)
    times.sort()
    return {"p50_us": statistics.median(times), "p99_us": times[int(len(times) * 0.99)]}


def served(args, server, message):
    command = [args.load, "call", server.address, METHOD, message, str(args.seconds), "1"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def rounds_of(args, server, message, local):
    ways = {
        "server": lambda: served(args, server, message),
        "session": lambda: timed(local.by_session, args.seconds),
        "signature": lambda: timed(local.by_signature, args.seconds),
    }
    for way in ways.values():
        way()
    rounds = []
    for i in range(args.rounds):
        names = list(ways)[i % 3:] + list(ways)[:i % 3]
        rounds.append({name: ways[name]() for name in names})
    return rounds


def report(model, rounds):
    middle = {way: statistics.median(r[way]["p50_us"] for r in rounds) for way in rounds[0]}
    tail = {way: statistics.median(r[way]["p99_us"] for r in rounds) for way in rounds[0]}
    ratio = statistics.median(r["server"]["p50_us"] / r["session"]["p50_us"] for r in rounds)
    over = statistics.median(
        r["server"]["p50_us"] - ALLOWED[0] * r["session"]["p50_us"] - ALLOWED[1] for r in rounds)
    for way in middle:
        print(f"{model:14}{way:12}{middle[way]:10.0f}{tail[way]:10.0f}")
    verdict = "within" if over <= 0 else "beyond"
    print(f"{model:14}server is {ratio:.2f} of the session; {verdict} the goal by {abs(over):.0f} us")
    return {"p50_us": middle, "p99_us": tail, "ratio": ratio, "over_us": over}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True)
    parser.add_argument("--load", required=True)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=1, help="examples in a call")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--keep", help="a folder for the models, used again if they are there")
    parser.add_argument("--json")
    args = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory(prefix="thalweg-serving-") as scratch:
        folder = pathlib.Path(args.keep or scratch)
        names = args.models.split(",")
        examples = {}
        for name in names:
            tf.keras.utils.set_random_seed(11)
            exported = folder / name / "1"
            if not exported.exists():
                MODELS[name]().export(str(exported), verbose=False)
            shape = (784,) if name == "mlp" else (224, 224, 3)
            examples[name] = np.random.default_rng(5).random((args.batch, *shape), np.float32)
        serve = [args.server, "serve", "--port", "any", "--rest_api_port", "0", "--threads", str(args.threads)]
        with Process("thalweg", *serve, *(f"--model={n}={folder}/{n}" for n in names)) as server:
            print(f"{'':26}{'p50 us':>10}{'p99 us':>10}")
            for name in names:
                local = InProcess(str(folder / name / "1"), examples[name], args.threads)
                message = f"{scratch}/{name}.message"
                pathlib.Path(message).write_bytes(request(name, local.input, examples[name]))
                until_ready(args, server, message)
                found[name] = report(name, rounds_of(args, server, message, local))
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
