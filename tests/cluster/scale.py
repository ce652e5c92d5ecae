"""Many tasks on one machine, and a large table.

    python tests/cluster/scale.py --server target/release/thalweg [--ps 16] [--workers 100] [--table 4000]

16 parameter servers and 100 workers run a null step each: every worker has a session of its own on its task
and adds to a number on one of the parameter servers. What is counted is the memory that the tasks have
together, pages that they share counted once (PSS). Then rows of a table of 4 GB are read and changed beside
those of one of 4 MB.
"""

import argparse
import os
import pathlib
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "clients")]

from cluster import Cluster, OURS  # noqa: E402

BYTES_MAX = 5e9
STEPS = 5


def shared_bytes(process):
    """Proportional set size: shared pages are divided by the number of processes that share them."""
    for line in pathlib.Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("/proc/PID/smaps_rollup has no Pss line")


def counts(process):
    folder = pathlib.Path(f"/proc/{process.pid}")
    return len(os.listdir(folder / "task")), len(os.listdir(folder / "fd"))


def describe(cluster, when):
    """Prints threads, connections and memory of the tasks; returns the sum of their memory."""
    processes = cluster.processes.values()
    total = sum(map(shared_bytes, processes))
    threads, files = zip(*map(counts, processes))
    print(f"{when}: {total / 1e6:.0f} MB in {len(processes)} tasks, at most {max(map(shared_bytes, processes)) / 1e6:.0f} "
          f"MB, {max(threads)} threads and {max(files)} files in one", flush=True)
    return total


def graph(ps, worker):
    import tensorflow as tf
    v1 = tf.compat.v1
    with tf.Graph().as_default() as made:
        with tf.device(f"/job:ps/task:{ps}"):
            v = v1.get_variable("v", [], initializer=v1.zeros_initializer(), use_resource=False)
        with tf.device(f"/job:worker/task:{worker}"):
            one = tf.constant(1.0)
        return made, v, v.initializer, v1.assign_add(v, one, use_locking=True).op


def many_tasks(args):
    tasks = {f"ps:{i}": OURS for i in range(args.ps)} | {f"worker:{i}": OURS for i in range(args.workers)}
    sessions = []
    begin = time.monotonic()
    cluster = Cluster(os.path.abspath(args.server), tasks)
    try:
        print(f"started in {time.monotonic() - begin:.1f} s")
        describe(cluster, "idle")
        import tensorflow as tf
        begin = time.monotonic()
        for worker in range(args.workers):
            made, v, start, add = graph(worker % args.ps, worker)
            session = tf.compat.v1.Session(cluster.target(f"worker:{worker}"), graph=made)
            if worker < args.ps:
                session.run(start)
            sessions.append((session, v, add))
        print(f"sessions in {time.monotonic() - begin:.1f} s")
        begin = time.monotonic()
        for _ in range(STEPS):
            for session, _, add in sessions:
                session.run(add)
        steps = STEPS * len(sessions)
        print(f"{steps} steps, {(time.monotonic() - begin) / steps * 1e3:.2f} ms each")
        total = describe(cluster, "after the steps")
        got = sum(session.run(v) for session, v, _ in sessions[:args.ps])
        assert got == steps, f"{got} of {steps} steps count"
        assert total < BYTES_MAX, f"{total / 1e9:.2f} GB"
        assert all(process.poll() is None for process in cluster.processes.values()), "a task has ended"
    finally:
        # A client would wait for a server that has exited.
        for session, _, _ in sessions:
            session.close()
        cluster.stop()


def large_table(args):
    from steps_cases import sparse_step_seconds
    cluster = Cluster(os.path.abspath(args.server), {"ps:0": OURS, "worker:0": OURS})
    try:
        small, large = (sparse_step_seconds(cluster, megabytes) for megabytes in (4, args.table))
        print(f"32 rows of 4 MB {small * 1e3:.2f} ms, of {args.table} MB {large * 1e3:.2f} ms")
        assert large < 1.5 * small + 0.0005, (small, large)
    finally:
        cluster.stop()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True, help="the thalweg command")
    parser.add_argument("--ps", type=int, default=16)
    parser.add_argument("--workers", type=int, default=100)
    parser.add_argument("--table", type=int, default=4000, help="megabytes")
    args = parser.parse_args()
    many_tasks(args)
    large_table(args)


if __name__ == "__main__":
    main()
