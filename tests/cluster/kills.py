"""Asynchronous training while workers are killed and started again, at random.

    python tests/cluster/kills.py --server target/debug/thalweg --steps 10000

Each of four clients trains by way of its own worker and counts its steps on the parameter server. A
step that succeeded must have counted once; one that failed, because its worker was killed under it,
once or not at all. The parameter server's memory must not grow with steps or with kills.
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import random
import shutil
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "clients")]

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from cluster import OURS, Cluster  # noqa: E402
from support import v1  # noqa: E402

WORKERS, SIZE = 4, 1000
# Seconds between two kills, and seconds until a killed worker restarts.
KILL_INTERVAL, DOWNTIME = (0.3, 1.5), (0.05, 0.6)
# Number of steps of each client from which on some steps must have failed.
STEPS_WITH_FAILURES = 5000
GROWTH_MB_MAX = 24
LOST = (tf.errors.UnavailableError, tf.errors.AbortedError)


def model(worker):
    """Every client's counter, and a step of this one: gradient on its worker, updates on the ps."""
    with v1.device("/job:ps/task:0"):
        counts = [v1.get_variable(f"count{i}", [], tf.int64, v1.zeros_initializer(),
                                  use_resource=i % 2 == 1) for i in range(WORKERS)]
        total = v1.get_variable("total", [], tf.int64, v1.zeros_initializer(), use_resource=False)
        w = v1.get_variable("w", [SIZE], initializer=v1.zeros_initializer(), use_resource=True)
    with v1.device(f"/job:worker/task:{worker}"):
        gradient = (w - np.arange(SIZE, dtype=np.float32)) * 0.01
        one = tf.identity(v1.placeholder_with_default(tf.constant(1, tf.int64), []))
    with v1.device("/job:ps/task:0"):
        step = [v1.assign_add(counts[worker], one, use_locking=True), v1.assign_sub(w, gradient),
                v1.assign_add(total, one, use_locking=True)]
    return counts, total, w, [step[0], step[1].op, step[2].op]


def train(worker, target, steps, path):
    """Runs steps until `steps` have succeeded; writes the numbers of successes and failures."""
    done, failed, sessions, last, since = 0, 0, 0, 0, 0
    with tf.Graph().as_default():
        *_, step = model(worker)
        nothing, session = tf.no_op(), None
        while done < steps:
            if session is None:
                session = opened(target, nothing)
                sessions += 1
            try:
                count = session.run(step)[0]
            except LOST:
                failed, since, session = failed + 1, since + 1, None
                continue
            assert last + 1 <= count <= last + 1 + since, f"{count} after {last}, {since} failures"
            done, last, since = done + 1, count, 0
    with open(path, "w") as f:
        json.dump({"done": done, "failed": failed, "sessions": sessions}, f)


def opened(target, nothing):
    """Opens a session, with retries."""
    while True:
        session = v1.Session(target)
        try:
            session.run(nothing)
            return session
        except LOST:
            pass


def in_fork(function, *args):
    process = multiprocessing.get_context("fork").Process(target=function, args=args)
    process.start()
    return process


def initialize(target):
    with tf.Graph().as_default(), v1.Session(target) as session:
        model(0)
        session.run(v1.global_variables_initializer())


def read(target, path):
    with tf.Graph().as_default(), v1.Session(target) as session:
        counts, total, w, _ = model(0)
        values = session.run([*counts, total, w])
    with open(path, "w") as f:
        json.dump({"counts": [int(c) for c in values[:WORKERS]], "total": int(values[WORKERS]),
                   "error": float(np.abs(values[-1] - np.arange(SIZE)).max())}, f)


def resident_mb(process):
    with open(f"/proc/{process.pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS")) / 1024


def kill_workers(cluster, clients, rng):
    """Kills workers and starts them again until the clients are done; returns the number of kills, and samples of
    the parameter server's memory."""
    kills, memory = 0, []
    while any(client.is_alive() for client in clients):
        time.sleep(rng.uniform(*KILL_INTERVAL))
        memory.append(resident_mb(cluster.processes["ps:0"]))
        victim = f"worker:{rng.randrange(WORKERS)}"
        cluster.kill(victim)
        kills += 1
        time.sleep(rng.uniform(*DOWNTIME))
        cluster.start(victim)
    return kills, memory


def growth(memory):
    """Difference of the maxima of the last and the second third."""
    third = len(memory) // 3
    return max(memory[2 * third:]) - max(memory[third:2 * third]) if third else 0.0


def play(cluster, steps, seed, folder):
    def path(name):
        return os.path.join(folder, name)
    first = in_fork(initialize, cluster.target("worker:0"))
    first.join()
    assert first.exitcode == 0, "the variables were not initialized"
    begin = time.monotonic()
    clients = [in_fork(train, i, cluster.target(f"worker:{i}"), steps, path(f"client{i}"))
               for i in range(WORKERS)]
    try:
        kills, memory = kill_workers(cluster, clients, random.Random(seed))
    finally:
        for client in clients:
            client.kill()
            client.join()
    seconds = time.monotonic() - begin
    reader = in_fork(read, cluster.target("worker:0"), path("end"))
    reader.join()
    assert reader.exitcode == 0, "the variables could not be read"
    end, seen = json.load(open(path("end"))), [json.load(open(path(f"client{i}"))) for i in range(WORKERS)]
    print(f"{WORKERS} x {steps} steps in {seconds:.0f} s, {kills} kills, steps that failed "
          f"{[s['failed'] for s in seen]}, sessions {[s['sessions'] for s in seen]}, counts {end['counts']}, "
          f"memory of the parameter server {memory[0]:.0f} to {memory[-1]:.0f} MB")
    for i, (count, s) in enumerate(zip(end["counts"], seen, strict=True)):
        assert s["done"] <= count <= s["done"] + s["failed"], f"worker {i}: {count}, and {s}"
    done, failed = (sum(s[what] for s in seen) for what in ("done", "failed"))
    assert done <= end["total"] <= done + failed, f"{end}, and {seen}"
    assert end["error"] < 1, f"the training did not converge: {end}"
    assert failed <= kills, f"{kills} kills made {failed} steps fail"
    # In a short run on a fast machine all kills may fall between steps.
    assert kills > 0 and (steps < STEPS_WITH_FAILURES or failed > 3), f"{kills} kills made {failed} steps fail"
    assert not cluster.crashes(), cluster.crashes()
    assert growth(memory) < GROWTH_MB_MAX, f"memory grows: {memory}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True, help="the thalweg command")
    parser.add_argument("--steps", type=int, default=500, help="steps of each client")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--logs", help="a folder for what the tasks say")
    args = parser.parse_args()
    folder = args.logs or tempfile.mkdtemp(prefix="thalweg-kills-")
    os.makedirs(folder, exist_ok=True)
    names = {"ps:0": OURS, **{f"worker:{i}": OURS for i in range(WORKERS)}}
    cluster = Cluster(os.path.abspath(args.server), names, folder)
    try:
        play(cluster, args.steps, args.seed, folder)
    finally:
        cluster.stop()
        if not args.logs:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
