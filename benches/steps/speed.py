"""Rate of small steps on our cluster, compared with TensorFlow's: `cargo xtask bench steps` builds what is
needed and runs this program.

    python benches/steps/speed.py --server target/release/thalweg [--rounds N] [--only ROW] [--json FILE] [--large]

Each cluster has one parameter server and two workers, each in its own process; each worker has a client
process. The clusters take turns in each round; the result is the median of the rounds' ratios.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests/cluster"))

from cluster import Cluster, OURS, THEIRS

TICKS = os.sysconf("SC_CLK_TCK")
# Row, row name for the clients, number of workers, steps per batch.
ROWS = [("null step, 1 worker", "null", 1, 300),
        ("null step, 2 workers", "null", 2, 300),
        ("weights of 8 layers", "pull", 1, 60),
        ("32 rows of 4 MB", "sparse/4", 1, 200)]
# Four gigabytes are measured with our cluster only, on request.
LARGE = ("32 rows of 4 GB", "sparse/4000", 1, 200)


class Peer:
    """A cluster and its clients."""

    def __init__(self, name, kind, server):
        self.name = name
        self.cluster = Cluster(server, {"ps:0": kind, "worker:0": kind, "worker:1": kind})
        self.clients = [self.client(i) for i in range(2)]

    def client(self, worker):
        command = [sys.executable, str(HERE / "client.py"), self.cluster.target(f"worker:{worker}"), str(worker)]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, count, text):
        """Sends `text` to `count` clients, then collects their answers."""
        for client in self.clients[:count]:
            client.stdin.write(text + "\n")
            client.stdin.flush()
        return [client.stdout.readline().strip() for client in self.clients[:count]]

    def prepare(self, row, workers):
        for client in range(workers):
            # The first client initializes the variables.
            self.clients[client].stdin.write(f"prepare {row}\n")
            self.clients[client].stdin.flush()
            answer = self.clients[client].stdout.readline()
            if not answer.startswith("ready"):
                sys.exit(f"{self.name} cannot prepare {row}: {answer}")

    def measure(self, workers, steps):
        """Steps per second of all workers together, and CPU seconds of all tasks per step."""
        begin = self.cpu_seconds()
        rate = sum(steps / float(seconds) for seconds in self.ask(workers, f"run {steps}"))
        return rate, (self.cpu_seconds() - begin) / (steps * workers)

    def cpu_seconds(self):
        total = 0
        for process in self.cluster.processes.values():
            fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
            total += int(fields[11]) + int(fields[12])
        return total / TICKS

    def end(self):
        for client in self.clients:
            client.stdin.close()
            client.kill()
            client.wait()
        self.cluster.stop()


def measure_row(row, peers, rounds):
    """Results of each round, by peer."""
    _, prepared, workers, steps = row
    for peer in peers:
        peer.prepare(prepared, workers)
        peer.measure(workers, steps)
    results = {peer.name: [] for peer in peers}
    for i in range(rounds):
        for k in range(len(peers)):
            peer = peers[(i + k) % len(peers)]
            results[peer.name].append(peer.measure(workers, steps))
    for peer in peers:
        peer.prepare("reset", 1)
    return results


def describe(row, results):
    """Prints and returns the results of one row."""
    rates = {name: statistics.median(rate for rate, _ in rounds) for name, rounds in results.items()}
    line = {"row": row[0], **{f"{name}_steps_per_second": rate for name, rate in rates.items()}}
    text = f"{row[0]:22} {rates['ours']:12.0f}"
    if "tensorflow" in results:
        pairs = list(zip(results["ours"], results["tensorflow"]))
        line["of_tensorflow_rate"] = statistics.median(a[0] / b[0] for a, b in pairs)
        line["of_tensorflow_cpu"] = sum(a[1] for a, _ in pairs) / max(sum(b[1] for _, b in pairs), 1e-9)
        text += f" {rates['tensorflow']:12.0f} {line['of_tensorflow_rate']:10.2f} {line['of_tensorflow_cpu']:10.2f}"
    print(text, flush=True)
    return line


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True, help="the thalweg command")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="", help="rows with this in their name")
    parser.add_argument("--large", action="store_true", help="a table of four gigabytes too")
    parser.add_argument("--alone", action="store_true", help="without TensorFlow's cluster")
    parser.add_argument("--json", help="a file for the results")
    args = parser.parse_args()
    kinds = {"ours": OURS} if args.alone else {"ours": OURS, "tensorflow": THEIRS}
    peers = [Peer(name, kind, os.path.abspath(args.server)) for name, kind in kinds.items()]
    print(f"{'steps/s':22} {'ours':>12} {'tensorflow':>12} {'rate / TF':>10} {'CPU / TF':>10}", flush=True)
    lines = []
    try:
        for row in ROWS:
            if args.only in row[0]:
                lines.append(describe(row, measure_row(row, peers, args.rounds)))
        if args.large:
            lines.append(describe(LARGE, measure_row(LARGE, peers[:1], args.rounds)))
    finally:
        for peer in peers:
            peer.end()
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(lines, indent=1) + "\n")


if __name__ == "__main__":
    main()
