"""Speed of TensorFlow's client with our server, compared with TensorFlow's server and with one that computes
nothing: `cargo xtask bench server` builds what is needed and runs this program.

    python benches/server/speed.py --server target/release/thalweg \\
        --null target/release/thalweg-null-server [--rounds N] [--json FILE] [--large]

All servers are measured in turn in each round, each in its own process; the result is the median of the rounds'
ratios. CPU time is the server's, as the kernel accounts it.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/clients"))

import numpy as np
import run
import tensorflow as tf
from support import v1

MEGABYTE = 1 << 20
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(process):
    """User and system time of a process so far, in seconds."""
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out) + bytes([number])


def field(number, content):
    """A length-delimited field of a message."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def step_answer(name, value):
    """A RunStepResponse with one tensor, in gRPC's framing."""
    proto = tf.make_tensor_proto(value).SerializeToString()
    message = field(1, field(1, name.encode()) + field(2, proto))
    return b"\0" + len(message).to_bytes(4, "big") + message


class Row:
    """A step to measure, and its number of repetitions."""

    def __init__(self, name, size, repeats):
        self.name, self.size, self.repeats = name, size, repeats

    def build(self):
        """The initializer, feeds and fetch of the graph, and the expected result."""
        if self.name.startswith("feed"):
            x = v1.placeholder(tf.uint8, [None])
            value = np.arange(self.size // 4, dtype=np.uint32).view("B")
            return None, {x: value}, tf.size(x), np.int32(self.size)
        if self.name.startswith("fetch"):
            # A variable on the server, so that the step computes nothing.
            v = v1.get_variable("kept", initializer=tf.zeros([self.size // 4], tf.float32),
                                use_resource=True)
            return v.initializer, {}, v.read_value(), np.zeros(self.size // 4, "f")
        return None, {}, tf.constant(3.0), np.float32(3.0)


class Peer:
    """A session on one server that can repeat a row."""

    def __init__(self, name, row, command):
        self.name, self.row = name, row
        graph = tf.Graph()
        with graph.as_default():
            start, self.feeds, self.fetch, self.answer = row.build()
        if name == "null":
            self.file = tempfile.NamedTemporaryFile()
            self.file.write(step_answer(self.fetch.name, self.answer))
            self.file.flush()
            command = [*command, self.file.name]
        self.process, target = run.start(command)
        self.session = v1.Session(target, graph=graph)
        if start is not None and name != "null":
            self.session.run(start)
        self.measure()

    def measure(self):
        """Wall and CPU seconds per repetition."""
        cpu, begin = cpu_seconds(self.process), time.perf_counter()
        for _ in range(self.row.repeats):
            got = self.session.run(self.fetch, self.feeds)
        wall = (time.perf_counter() - begin) / self.row.repeats
        assert np.size(got) == np.size(self.answer)
        assert np.ravel(got)[-1] == np.ravel(self.answer)[-1]
        return wall, (cpu_seconds(self.process) - cpu) / self.row.repeats

    def end(self):
        self.session.close()
        if self.name == "null":
            self.process.kill()
            self.process.wait()
        else:
            run.stop(self.process)


def measure_row(row, commands, rounds):
    """Wall and CPU seconds of each round, by server."""
    peers = [Peer(name, row, command) for name, command in commands.items()]
    results = {peer.name: [] for peer in peers}
    for i in range(rounds):
        for k in range(len(peers)):
            peer = peers[(i + k) % len(peers)]
            results[peer.name].append(peer.measure())
    for peer in peers:
        peer.end()
    return results


def median_ratio(results, other, part):
    """Our value divided by another server's, round by round."""
    pairs = zip(results["ours"], results[other])
    return statistics.median(a[part] / max(b[part], 1e-9) for a, b in pairs)


def describe(row, results):
    """Prints and returns the results of one row."""
    walls = {name: statistics.median(r[0] for r in rounds) for name, rounds in results.items()}
    shown = {name: f"{row.size / wall / 1e6:.0f} MB/s" if row.size else f"{wall * 1e6:.0f} us"
             for name, wall in walls.items()}
    line = {"row": row.name, **{f"{name}_seconds": wall for name, wall in walls.items()}}
    line["of_tensorflow_time"] = median_ratio(results, "tensorflow", 0)
    cpu = {name: sum(r[1] for r in rounds) for name, rounds in results.items()}
    # Over all rounds: the clock tick of CPU accounting is long compared with a step.
    line["of_tensorflow_cpu"] = cpu["ours"] / max(cpu["tensorflow"], 1e-9)
    line["of_null_rate"] = 1 / median_ratio(results, "null", 0)
    print(f"{row.name:14} {shown['ours']:>12} {shown['tensorflow']:>12} {shown['null']:>12} "
          f"{line['of_tensorflow_time']:10.2f} {line['of_tensorflow_cpu']:10.2f} "
          f"{line['of_null_rate']:10.2f}", flush=True)
    return line


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True, help="the thalweg command")
    parser.add_argument("--null", required=True, help="the null server")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", help="a file for the results")
    parser.add_argument("--large", action="store_true", help="a gigabyte too")
    args = parser.parse_args()
    commands = {
        "ours": [args.server, "server", "--port", "0"],
        "tensorflow": [sys.executable, str(run.HERE / "tensorflow_server.py")],
        "null": [args.null],
    }
    rows = [Row("scalar", 0, 300), Row("feed 16 MB", 16 * MEGABYTE, 4),
            Row("fetch 16 MB", 16 * MEGABYTE, 4), Row("feed 100 MB", 100 * MEGABYTE, 1),
            Row("fetch 100 MB", 100 * MEGABYTE, 1)]
    if args.large:
        rows += [Row("feed 1 GB", 1 << 30, 1), Row("fetch 1 GB", 1 << 30, 1)]
    print(f"{'row':14} {'ours':>12} {'tensorflow':>12} {'null':>12} {'time / TF':>10} "
          f"{'CPU / TF':>10} {'rate/null':>10}")
    lines = []
    for row in rows:
        rounds = args.rounds if row.size <= 100 * MEGABYTE else min(args.rounds, 3)
        lines.append(describe(row, measure_row(row, commands, rounds)))
    if args.large:
        by_name = {line["row"]: line["ours_seconds"] for line in lines}
        for way in ("feed", "fetch"):
            ratio = by_name[f"{way} 16 MB"] * 64 / by_name[f"{way} 1 GB"]
            print(f"{way}: the rate at 1 GB is {ratio:.2f} of that at 16 MB")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(lines, indent=1) + "\n")


if __name__ == "__main__":
    main()
