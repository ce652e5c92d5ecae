"""Latency that callers see while a large model is replaced repeatedly: `cargo xtask bench serving reload`
builds what is needed and runs this program.

    python benches/serving/reload.py --server target/release/thalweg --load target/release/thalweg-load \\
        [--rounds N] [--seconds S] [--every S] [--rate N] [--megabytes N] [--json FILE]

A table of 500 MB is queried for rows at a constant rate. Phases without replacement alternate with phases in
which a new version is loaded every ten seconds; each phase is measured by itself. A failed request ends the
program. Then the server's memory is compared with its memory before the first replacement, and the memory after
the model was unloaded with that before it was first loaded.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import threading
import time

from speed import METHOD, Process, request, until_ready

import grpc
import models
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import model_management_pb2, predict_pb2
from tensorflow_serving.apis import get_model_status_pb2, model_service_pb2_grpc

WIDTH = 125


class Table(tf.Module):
    def __init__(self, rows):
        super().__init__()
        values = np.random.default_rng(3).random((rows, WIDTH), np.float32)
        self.values = tf.Variable(values)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)])
    def look_up(self, rows):
        return {"sum": tf.reduce_sum(tf.gather(self.values, rows), 1)}


def table_request():
    made = predict_pb2.PredictRequest()
    made.model_spec.name = "table"
    made.inputs["rows"].CopyFrom(tf.make_tensor_proto(np.arange(0, 100, 7)))
    return made.SerializeToString()


class Models:
    """The server's models, over gRPC."""

    def __init__(self, server, folder):
        channel = grpc.insecure_channel(server.address)
        self.service = model_service_pb2_grpc.ModelServiceStub(channel)
        self.folder, self.server = folder, server

    def have(self, *names):
        wanted = model_management_pb2.ReloadConfigRequest()
        for name in names:
            config = wanted.config.model_config_list.config.add()
            config.name, config.base_path, config.model_platform = name, f"{self.folder}/{name}", "tensorflow"
        answer = self.service.HandleReloadConfigRequest(wanted, timeout=120)
        assert answer.status.error_code == 0, answer

    def versions(self):
        """The versions of the table that serve requests or still hold memory."""
        asked = get_model_status_pb2.GetModelStatusRequest()
        asked.model_spec.name = "table"
        states = self.service.GetModelStatus(asked, timeout=60).model_version_status
        return sorted(s.version for s in states if s.state in (20, 30, 40))

    def settle(self, version):
        for _ in range(600):
            if self.versions() == [version]:
                break
            time.sleep(0.1)
        assert self.versions() == [version], self.versions()

    def resident(self):
        """Resident megabytes, after freed memory was returned to the system."""
        time.sleep(3)
        status = pathlib.Path(f"/proc/{self.server.process.pid}/status").read_text()
        line, = (line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) / 1024


class Replacing:
    """Adds a new version every few seconds, and removes old ones."""

    def __init__(self, folder, every, version):
        self.folder, self.every, self.version = pathlib.Path(folder), every, version
        self.end = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while True:
            self.replace()
            if self.end.wait(self.every):
                return

    def replace(self):
        made, ready = self.folder / "next", self.folder / str(self.version + 1)
        source = self.folder / str(self.version)
        for file in source.rglob("*"):
            target = made / file.relative_to(source)
            if file.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                os.link(file, target)
        made.rename(ready)
        self.version += 1

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.end.set()
        self.thread.join()


def load(args, server, message):
    command = [args.load, "call", server.address, METHOD, message, str(args.seconds), "32", str(args.rate)]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, f"a request failed: {ended.stderr}"
    return json.loads(ended.stdout)


def measured(args, server, folder, message):
    them = Models(server, folder)
    them.have("half_plus_two")
    without = them.resident()
    them.have("half_plus_two", "table")
    until_ready(args, server, message)
    load(args, server, message)
    before, version, rounds = them.resident(), 1, []
    for _ in range(args.rounds):
        found = {"quiet": load(args, server, message)}
        with Replacing(f"{folder}/table", args.every, version) as replacing:
            found["replaced"] = load(args, server, message)
        found["replacements"] = replacing.version - version
        version = replacing.version
        them.settle(version)
        rounds.append(found)
        print(json.dumps(found), flush=True)
    after = them.resident()
    them.have("half_plus_two")
    memory = {"without_mb": without, "before_mb": before, "after_mb": after, "unloaded_mb": them.resident()}
    return {"rounds": rounds, "memory": memory}


def report(found):
    for phase in ["quiet", "replaced"]:
        of = [r[phase] for r in found["rounds"]]
        print(f"{phase:10} calls {sum(r['calls'] for r in of):8}"
              f"  p50 {statistics.median(r['p50_us'] for r in of):7.0f} us"
              f"  p99 {statistics.median(r['p99_us'] for r in of):7.0f} us")
    found["p99_ratio"] = statistics.median(
        r["replaced"]["p99_us"] / r["quiet"]["p99_us"] for r in found["rounds"])
    memory = found["memory"]
    print(f"p99 while it is replaced: {found['p99_ratio']:.2f} of the quiet one; replaced "
          f"{sum(r['replacements'] for r in found['rounds'])} times, no request failed")
    print(f"resident: {memory['before_mb']:.0f} MB before, {memory['after_mb']:.0f} MB after; without the "
          f"model {memory['without_mb']:.0f} MB before, {memory['unloaded_mb']:.0f} MB after")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True)
    parser.add_argument("--load", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--every", type=float, default=10)
    parser.add_argument("--rate", type=float, default=5000)
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--json")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="thalweg-serving-") as folder:
        models.half_plus_two(f"{folder}/half_plus_two/1")
        table = Table(args.megabytes * 1_000_000 // (4 * WIDTH))
        tf.saved_model.save(table, f"{folder}/table/1", signatures=table.look_up)
        del table
        message = pathlib.Path(folder, "message")
        message.write_bytes(table_request())
        serve = [args.server, "serve", "--port", "any", "--rest_api_port", "0",
                 f"--model=half_plus_two={folder}/half_plus_two"]
        with Process("thalweg", *serve) as server:
            small = pathlib.Path(folder, "small")
            small.write_bytes(request())
            until_ready(args, server, str(small))
            found = measured(args, server, folder, str(message))
    report(found)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
