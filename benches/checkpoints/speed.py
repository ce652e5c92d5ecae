"""Time to save and to restore a checkpoint on our server, compared with TensorFlow's server and with the disk:
`cargo xtask bench checkpoints` builds what is needed and runs this program.

    python benches/checkpoints/speed.py --server target/release/thalweg \\
        [--megabytes 1000] [--tensors 100] [--rounds 5] [--folder DIR] [--json FILE]

The variables are on the servers; a step saves or restores all of them. The servers take turns in each round;
the result is the median of the rounds' ratios. TensorFlow does not sync its files, so our server does not
either (`--no-sync`) in this comparison; a third server, ours with sync, is compared with a plain write and
sync of the same number of bytes.
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

import run
import tensorflow as tf
from support import v1

MEGABYTE = 1 << 20


class Peer:
    """Variables on one server, and a saver of them."""

    def __init__(self, command, folder, name, args):
        self.server, target = run.start(command)
        self.prefix = os.path.join(folder, name)
        elements = args.megabytes * MEGABYTE // 4 // args.tensors
        with tf.Graph().as_default() as graph:
            variables = [v1.get_variable(f"v{i}", [elements], use_resource=True,
                                         initializer=v1.random_uniform_initializer(seed=i))
                         for i in range(args.tensors)]
            self.saver = v1.train.Saver(max_to_keep=1)
            start = v1.global_variables_initializer()
            self.sum = tf.add_n([tf.reduce_sum(v) for v in variables])
            self.session = v1.Session(target, graph=graph)
            self.session.run(start)
            self.wanted = self.session.run(self.sum)

    def save(self):
        begin = time.perf_counter()
        with self.session.graph.as_default():
            self.saver.save(self.session, self.prefix, write_meta_graph=False, write_state=False)
        return time.perf_counter() - begin

    def restore(self):
        begin = time.perf_counter()
        with self.session.graph.as_default():
            self.saver.restore(self.session, self.prefix)
        seconds = time.perf_counter() - begin
        # TensorFlow's sums differ slightly from run to run.
        assert abs(self.session.run(self.sum) / self.wanted - 1) < 1e-4
        return seconds

    def close(self):
        self.session.close()
        run.stop(self.server)


def plain_write(folder, size):
    """Seconds to write this many bytes sequentially and sync them."""
    chunk = os.urandom(8 * MEGABYTE)
    path = os.path.join(folder, "plain")
    begin = time.perf_counter()
    with open(path, "wb", buffering=0) as file:
        for _ in range(size // len(chunk)):
            file.write(chunk)
        os.fsync(file.fileno())
    seconds = time.perf_counter() - begin
    os.remove(path)
    return seconds


def measure(args, folder):
    """Seconds by row and peer, one list entry per round."""
    theirs = [sys.executable, str(pathlib.Path(run.__file__).parent / "tensorflow_server.py")]
    ours = [args.server, "server", "--port", "0"]
    times = {}
    note = lambda row, seconds: times.setdefault(row, []).append(seconds)
    peers = {"ours": Peer([*ours, "--no-sync"], folder, "ours", args),
             "tensorflow": Peer(theirs, folder, "theirs", args)}
    try:
        for _ in range(args.rounds):
            for name, peer in peers.items():
                note(("save", name), peer.save())
            for name, peer in peers.items():
                note(("restore", name), peer.restore())
    finally:
        for peer in peers.values():
            peer.close()
    synced = Peer(ours, folder, "synced", args)
    try:
        for _ in range(args.rounds):
            os.sync()
            note(("synced save", "disk"), plain_write(folder, args.megabytes * MEGABYTE))
            note(("synced save", "ours"), synced.save())
    finally:
        synced.close()
    return times


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True, help="the thalweg command")
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--tensors", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", help="where the checkpoints go")
    parser.add_argument("--json", help="write what was measured to this file")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        times = measure(args, folder)
    rows = []
    for row, other in (("save", "tensorflow"), ("restore", "tensorflow"), ("synced save", "disk")):
        mine, peer = times[row, "ours"], times[row, other]
        rate = lambda seconds: args.megabytes / statistics.median(seconds)
        ratio = statistics.median(b / a for a, b in zip(mine, peer))
        rows.append({"row": f"checkpoint/{row}", "ours_mb_s": rate(mine), f"{other}_mb_s": rate(peer),
                     "ratio": ratio})
        print(f"checkpoint/{row:12} ours {rate(mine):8.0f} MB/s  {other} {rate(peer):8.0f} MB/s  "
              f"ratio {ratio:.2f}")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
