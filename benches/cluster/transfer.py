"""Transfer rate of tensors from a worker to a parameter server: ours over its stream protocol and over gRPC,
compared with TensorFlow's tasks and with plain sockets. `cargo xtask bench transfer` builds what is needed and
runs this program.

    python benches/cluster/transfer.py --server target/release/thalweg [--rounds N] [--json FILE] [--large]

A step adds a variable of the worker to one of the parameter server (`assign_add`), driven by TensorFlow's
client. All peers are measured in turn in each round; the result is the median of the rounds' ratios. The
program asserts that the bytes were transferred: the cut edge is in the executed plan, and the sums on the
parameter server are right. The plain sockets transfer the same number of bytes between two processes. CPU time
is that of both tasks, as the kernel accounts it.
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import socket
import statistics
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
TESTS = pathlib.Path(__file__).resolve().parents[2] / "tests"
sys.path[:0] = [str(TESTS / "cluster"), str(TESTS / "clients")]

import numpy as np
import tensorflow as tf
from cluster import OURS, THEIRS, Cluster

v1 = tf.compat.v1
MEGABYTE = 1 << 20
TICKS = os.sysconf("SC_CLK_TCK")
HEADER = b"\0" * 32


def cpu_seconds(pid):
    """User and system time of a process so far, in seconds."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Tasks:
    """A parameter server and a worker, and a session on the worker that adds its variable."""

    def __init__(self, name, server, size):
        kind = THEIRS if name == "tensorflow" else OURS
        transport = "grpc" if name == "ours, gRPC" else "auto"
        self.name, self.steps = name, 0
        self.cluster = Cluster(server, {"ps:0": kind, "worker:0": kind}, transport=transport)
        self.size = size

    def begin(self):
        size, graph = self.size, tf.Graph()
        with graph.as_default():
            with v1.device("/job:ps/task:0"):
                self.total = v1.get_variable("total", [size // 4], tf.float32,
                                             v1.zeros_initializer(), use_resource=False)
            with v1.device("/job:worker/task:0"):
                self.added = v1.get_variable("added", [size // 4], tf.float32,
                                             v1.ones_initializer(), use_resource=False)
            self.add = v1.assign_add(self.total, self.added).op
            with v1.device("/job:ps/task:0"):
                ends = [self.total[:1], self.total[size // 8:size // 8 + 1], self.total[-1:]]
                self.ends = tf.concat(ends, 0)
            start = v1.global_variables_initializer()
        self.session = v1.Session(self.cluster.target("worker:0"), graph=graph)
        self.session.run(start)
        self.check_plan()
        self.step = self.session.make_callable(self.add)
        self.measure(2)

    def check_plan(self):
        """Asserts that the worker's variable itself crosses the cut."""
        options, report = v1.RunOptions(output_partition_graphs=True), v1.RunMetadata()
        self.session.run(self.add, options=options, run_metadata=report)
        self.steps += 1
        received = [node for part in report.partition_graphs for node in part.node
                    if node.op == "_Recv" and b"worker" in node.attr["send_device"].s
                    and b"added" in node.attr["tensor_name"].s]
        assert received, f"{self.name}: no plan has the edge"

    def processes(self):
        return [process.pid for process in self.cluster.processes.values()]

    def measure(self, repeats):
        """Wall and CPU seconds per step."""
        cpu, begin = sum(map(cpu_seconds, self.processes())), time.perf_counter()
        for _ in range(repeats):
            self.step()
        wall = time.perf_counter() - begin
        cpu = sum(map(cpu_seconds, self.processes())) - cpu
        self.steps += repeats
        return wall / repeats, cpu / repeats

    def check(self):
        got = self.session.run(self.ends)
        assert np.all(got == np.float32(self.steps)), f"{self.name}: {got}, not {self.steps}"
        self.session.close()

    def end(self):
        self.cluster.stop()


class Bare:
    """A process that writes a header and this many bytes on request, and one that reads them."""

    def __init__(self, name, size):
        self.name, self.size = name, size
        self.end_here, there = self.pair()
        self.child = os.fork()
        if self.child == 0:
            self.end_here.close()
            self.write_all(there)
            os._exit(0)
        there.close()

    def begin(self):
        self.target = memoryview(bytearray(self.size + len(HEADER)))
        self.measure(2)

    def pair(self):
        if self.name == "bare unix":
            return socket.socketpair()
        listener = socket.create_server(("127.0.0.1", 0))
        here = socket.create_connection(listener.getsockname())
        there, _ = listener.accept()
        listener.close()
        for end in (here, there):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return here, there

    def write_all(self, there):
        source = memoryview(np.ones(self.size, np.uint8))
        while there.recv(1):
            sent = there.sendmsg([HEADER, source]) - len(HEADER)
            while sent < self.size:
                sent += there.send(source[sent:])

    def measure(self, repeats):
        cpu, begin = cpu_seconds(self.child) + cpu_seconds(os.getpid()), time.perf_counter()
        for _ in range(repeats):
            self.end_here.send(b"x")
            got = 0
            while got < len(self.target):
                got += self.end_here.recv_into(self.target[got:])
        wall = time.perf_counter() - begin
        cpu = cpu_seconds(self.child) + cpu_seconds(os.getpid()) - cpu
        assert self.target[-1] == 1
        return wall / repeats, cpu / repeats

    def check(self):
        """Each measurement has already checked the received bytes."""

    def end(self):
        # Closing is not enough: other child processes have inherited this end.
        self.end_here.shutdown(socket.SHUT_RDWR)
        os.waitpid(self.child, 0)


def measure_size(*args):
    """Wall and CPU seconds of each round, by peer. Runs in a separate process: TensorFlow's servers are forked,
    which must happen before TensorFlow starts threads."""
    here, there = multiprocessing.get_context("fork").Pipe()
    play = lambda: there.send(measure(*args))
    process = multiprocessing.get_context("fork").Process(target=play)
    process.start()
    there.close()
    try:
        return here.recv()
    finally:
        process.join()


def measure(size, names, server, rounds, repeats):
    make = lambda name: Bare(name, size) if name.startswith("bare") else Tasks(name, server, size)
    peers = [make(name) for name in names]
    results = {name: [] for name in names}
    try:
        for peer in peers:
            peer.begin()
        for i in range(rounds):
            for k in range(len(peers)):
                peer = peers[(i + k) % len(peers)]
                results[peer.name].append(peer.measure(repeats))
        for peer in peers:
            peer.check()
        return results
    finally:
        for peer in peers:
            peer.end()


def ratio(results, name, other):
    """Speed relative to another peer, round by round."""
    pairs = zip(results[name], results[other])
    return statistics.median(b[0] / a[0] for a, b in pairs)


def describe(size, results):
    """Prints and returns the results of one size."""
    lines = []
    for name, rounds in results.items():
        wall = statistics.median(r[0] for r in rounds)
        line = {"megabytes": size // MEGABYTE, "peer": name, "seconds": wall,
                "cpu_seconds": statistics.mean(r[1] for r in rounds)}
        text = f"{size // MEGABYTE:5} MB  {name:14} {size / wall / 1e6:7.0f} MB/s" \
               f"  best {size / min(r[0] for r in rounds) / 1e6:7.0f}" \
               f"  CPU {line['cpu_seconds'] * 1e3:6.0f} ms"
        for other in ("tensorflow", "bare unix", "bare TCP"):
            if name.startswith("ours") and other in results:
                line["of " + other] = ratio(results, name, other)
                text += f"  {line['of ' + other]:5.2f} of {other}"
        print(text, flush=True)
        lines.append(line)
    return lines


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True, help="the thalweg command")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", help="a file for the results")
    parser.add_argument("--large", action="store_true", help="a gigabyte too, ours alone")
    args = parser.parse_args()
    server, ours = os.path.abspath(args.server), ["ours", "ours, gRPC"]
    everyone = [*ours, "tensorflow", "bare unix", "bare TCP"]
    lines = []
    for size, names, repeats in [(16 * MEGABYTE, everyone, 6), (100 * MEGABYTE, everyone, 2)]:
        results = measure_size(size, names, server, args.rounds, repeats)
        lines += describe(size, results)
    if args.large:
        for name in ours:
            results = measure_size(1 << 30, [name], server, min(args.rounds, 5), 1)
            lines += describe(1 << 30, results)
            seconds = {line["megabytes"]: line["seconds"] for line in lines if line["peer"] == name}
            print(f"{name}: the rate at 1 GB is {seconds[16] * 64 / seconds[1024]:.2f} of that at 16 MB")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(lines, indent=1) + "\n")


if __name__ == "__main__":
    main()
