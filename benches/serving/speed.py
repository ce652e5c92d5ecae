"""Requests per second of CPU time on our model server, compared with a server that echoes requests: `cargo
xtask bench serving` builds what is needed and runs this program.

    python benches/serving/speed.py --server target/release/thalweg --load target/release/thalweg-load \\
        [--rounds N] [--seconds S] [--json FILE]

The calls are Predict on half_plus_two over gRPC, with many calls in flight. The load generator is a separate
process. Both servers are measured in turn in each round; the result is the number of requests per second of CPU
time that the server used, and the median of the rounds' ratios. Then calls are sent at half of the maximum
rate, and their latency is measured.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/serving"))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import models
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2

METHOD = "/tensorflow.serving.PredictionService/Predict"
TICKS = os.sysconf("SC_CLK_TCK")
IN_FLIGHT = 32


class Process:
    """A server process that ends with the `with` block."""

    def __init__(self, name, *command):
        self.name = name
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.address = self.process.stdout.readline().split()[-1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(60)

    def cpu_seconds(self):
        text = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text()
        fields = text.rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS


def request():
    made = predict_pb2.PredictRequest()
    made.model_spec.name = "half_plus_two"
    made.inputs["x"].CopyFrom(tf.make_tensor_proto([[1.0], [2.0], [5.0]]))
    return made.SerializeToString()


def measured(args, server, message, in_flight, rate=None):
    """The output of the load generator, with the CPU time that the server used."""
    before = server.cpu_seconds()
    command = [args.load, "call", server.address, METHOD, message, str(args.seconds), str(in_flight)]
    ended = subprocess.run(
        command + ([str(rate)] if rate else []), capture_output=True, text=True,
        timeout=args.seconds + 60)
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout)
    result["cpu_seconds"] = server.cpu_seconds() - before
    result["per_second"] = result["calls"] / result["seconds"]
    result["per_core_second"] = result["calls"] / result["cpu_seconds"]
    return result


def until_ready(args, server, message):
    for _ in range(100):
        ended = subprocess.run(
            [args.load, "call", server.address, METHOD, message, "0.05", "1"], capture_output=True)
        if ended.returncode == 0:
            return
    raise SystemExit(f"{server.name} never answered: {ended.stderr}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True)
    parser.add_argument("--load", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--json")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="thalweg-serving-") as folder:
        models.half_plus_two(f"{folder}/half_plus_two/1")
        message = f"{folder}/message"
        pathlib.Path(message).write_bytes(request())
        serve = [args.server, "serve", "--port", "any", "--rest_api_port", "0",
                 f"--model=half_plus_two={folder}/half_plus_two"]
        with Process("thalweg", *serve) as ours, Process("echo", args.load, "echo") as echo:
            both = [ours, echo]
            for server in both:
                until_ready(args, server, message)
                measured(args, server, message, IN_FLIGHT)
            rounds = []
            for i in range(args.rounds):
                order = both if i % 2 == 0 else both[::-1]
                rounds.append({s.name: measured(args, s, message, IN_FLIGHT) for s in order})
            rate = statistics.median(r["thalweg"]["per_second"] for r in rounds) / 2
            half = [{s.name: measured(args, s, message, IN_FLIGHT, rate) for s in both}
                    for _ in range(args.rounds)]
    report(args, rounds, half, rate)


def report(args, rounds, half, rate):
    middle = lambda found, server, what: statistics.median(r[server][what] for r in found)
    ratio = statistics.median(
        r["thalweg"]["per_core_second"] / r["echo"]["per_core_second"] for r in rounds)
    print(f"{'':10}{'requests/s':>12}{'per core':>12}{'p50 us':>9}{'p99 us':>9}"
          f"   at {rate:.0f}/s: {'p50 us':>8}{'p99 us':>9}")
    for server in ["thalweg", "echo"]:
        print(f"{server:10}{middle(rounds, server, 'per_second'):12.0f}"
              f"{middle(rounds, server, 'per_core_second'):12.0f}"
              f"{middle(rounds, server, 'p50_us'):9.0f}{middle(rounds, server, 'p99_us'):9.0f}"
              f"   {'':12}{middle(half, server, 'p50_us'):8.0f}{middle(half, server, 'p99_us'):9.0f}")
    print(f"requests per core and second: {ratio:.2f} of the bare server's")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(
            {"ratio": ratio, "rate": rate, "rounds": rounds, "half": half}, indent=1))


if __name__ == "__main__":
    main()
