"""Compares predicted with measured step times, and placement by the cost model with the default rules.

    python benches/placement/run.py --thalweg target/release/thalweg [--rounds N] [--json FILE]

Prints the two tables of docs/src/concepts/placement.md. Predicted: after `thalweg calibrate` and a few traced steps,
by `thalweg simulate`. Placement: on two tasks of which one gets a fraction of a processor, since it is stopped and
continued again and again. Nothing else should run meanwhile.
"""

import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests/cluster"))

from cluster import Cluster, OURS

MODELS = ["mlp", "cnn", "lstm", "transformer"]
FREE = ["mlp", "cnn", "towers"]
STEPS = 80
# Of every period the slow task runs this share.
PERIOD, SHARE = 0.002, 0.3


class Slowed:
    """Stops and continues a process, so that it runs a share of the time."""

    def __init__(self, pid):
        self.pid, self.is_over = pid, threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.is_over.is_set():
            os.kill(self.pid, signal.SIGSTOP)
            time.sleep(PERIOD * (1 - SHARE))
            os.kill(self.pid, signal.SIGCONT)
            time.sleep(PERIOD * SHARE)

    def end(self):
        self.is_over.set()
        self.thread.join()


def started(thalweg, tasks, **flags):
    """A cluster of tasks of ours with further flags."""
    cluster = Cluster(thalweg, dict.fromkeys(tasks, OURS), start=False)
    cluster.flags = {task.replace("_", ":"): list(map(str, more)) for task, more in flags.items()}
    cluster.start_all()
    return cluster


def two_workers(thalweg, *flags):
    """Two workers, each with a processor and a thread of its own, the first slowed; how to end them."""
    one = ["--threads", "1"]
    cluster = started(thalweg, ["worker:0", "worker:1"], worker_0=[*flags, *one], worker_1=one)
    for processor, process in zip(sorted(os.sched_getaffinity(0)), cluster.processes.values()):
        for thread in os.listdir(f"/proc/{process.pid}/task"):
            os.sched_setaffinity(int(thread), {processor})
    slowed = Slowed(cluster.processes["worker:0"].pid)

    def end():
        slowed.end()
        cluster.stop()

    return cluster.target("worker:0").removeprefix("grpc://"), end


class Bench:
    def __init__(self, thalweg, folder):
        self.thalweg, self.folder = os.path.abspath(thalweg), pathlib.Path(folder)

    def call(self, *arguments):
        command = [self.thalweg, *map(str, arguments)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=900)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}: {done.stderr}")
        return done.stdout

    def path(self, name):
        return self.folder / name

    def measured(self, graph, *flags, steps=STEPS, target="train"):
        """The median step in seconds."""
        out = self.call("run", self.path(f"{graph}.pb"), "--init", "init", "--target", target, "--repeat", steps,
                        "--json", *flags)
        return json.loads(out)["seconds"]

    def simulated(self, graph, devices, *flags):
        out = self.call("simulate", self.path(f"{graph}.pb"), "--target", "train", "--devices", devices, "--json", *flags)
        return json.loads(out)

    def predicted(self, rounds):
        """Rows of (model, measured, predicted, estimated without measurements)."""
        devices = self.path("local.toml")
        self.call("calibrate", "--output", devices)
        rows = []
        for model in MODELS:
            costs = self.path(f"{model}.costs")
            self.measured(model, "--placement", "greedy", "--costs", costs)
            times = [self.measured(model) for _ in range(rounds)]
            flags = ["--placement", "default"]
            after = self.simulated(model, devices, "--costs", costs, *flags)["step_seconds"]
            before = self.simulated(model, devices, *flags)["step_seconds"]
            rows.append((model, statistics.median(times), after, before))
        rows.append(self.predicted_embedding(rounds))
        return rows

    def predicted_embedding(self, rounds):
        """Over a parameter server and a worker, whose master measures."""
        costs, devices = self.path("embedding.costs"), self.path("two.toml")
        cluster = started(self.thalweg, ["ps:0", "worker:0"], worker_0=["--placement", "greedy", "--costs", costs])
        try:
            server = cluster.target("worker:0").removeprefix("grpc://")
            self.call("calibrate", "--server", server, "--output", devices)
            self.measured("embedding", "--server", server, steps=300)
            times = []
            for _ in range(rounds):
                # What the client and its calls take is no part of the step.
                nothing = self.measured("embedding", "--server", server, target="nothing")
                times.append(self.measured("embedding", "--server", server) - nothing)
        finally:
            worker = cluster.processes["worker:0"]
            worker.terminate()
            worker.wait(timeout=30)
            cluster.stop()
        reordered = self.client_first(devices)
        after = self.simulated("embedding", reordered, "--costs", costs, "--placement", "default")
        before = self.simulated("embedding", reordered, "--placement", "default")
        return "embedding, ps and worker", statistics.median(times), after["step_seconds"], before["step_seconds"]

    def client_first(self, devices):
        """The file with the worker before the parameter server: its task is the client's."""
        parts = devices.read_text().split("\n\n")
        parts.sort(key=lambda part: "[[device]]" not in part or "job:ps" in part.split("\n")[1])
        path = self.path("client_first.toml")
        path.write_text("\n\n".join(parts))
        return path

    def placed(self, rounds):
        """Rows of (program, default, auto, by hand, and what was predicted of the first two)."""
        rows = []
        devices = self.path("slowed.toml")
        server, end = two_workers(self.thalweg)
        try:
            self.call("calibrate", "--server", server, "--output", devices)
        finally:
            end()
        for program in FREE:
            found = {}
            for choice, graph in [("default", f"free_{program}"), ("auto", f"free_{program}"), ("hand", f"hand_{program}")]:
                algorithm = "auto" if choice == "auto" else "default"
                flags = ["--placement", algorithm, "--devices", str(devices)]
                server, end = two_workers(self.thalweg, *flags)
                try:
                    times = [self.measured(graph, "--server", server, steps=40) for _ in range(rounds)]
                    found[choice] = statistics.median(times)
                finally:
                    end()
            for choice in ("default", "auto"):
                simulated = self.simulated(f"free_{program}", devices, "--placement", choice)
                found[f"predicted {choice}"] = simulated["step_seconds"]
            rows.append((program, found))
        return rows


def milliseconds(seconds):
    return f"{seconds * 1e3:.2f} ms"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--thalweg", required=True, help="the thalweg command, a release build")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", help="file for the numbers")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, HERE / "graphs.py", folder], check=True, stderr=subprocess.DEVNULL)
        bench = Bench(arguments.thalweg, folder)
        predicted, placed = bench.predicted(arguments.rounds), bench.placed(arguments.rounds)
    print("| step | measured | predicted | ratio | estimated without measurements |\n|---|---|---|---|---|")
    for model, real, after, before in predicted:
        print(f"| {model} | {milliseconds(real)} | {milliseconds(after)} | {after / real:.2f} | {milliseconds(before)} |")
    print("\n| program | default rules | auto | by hand | faster by | predicted |\n|---|---|---|---|---|---|")
    for program, found in placed:
        gain, expected = found["default"] / found["auto"], found["predicted default"] / found["predicted auto"]
        columns = [milliseconds(found[choice]) for choice in ("default", "auto", "hand")]
        print(f"| {program} | {' | '.join(columns)} | {gain:.2f} | {expected:.2f} |")
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps({"predicted": predicted, "placed": placed}, indent=1))


if __name__ == "__main__":
    main()
