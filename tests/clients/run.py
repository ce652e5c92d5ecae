"""Runs the client programs in this folder against a server, each in a process of its own.

    python tests/clients/run.py --server target/debug/thalweg      # starts servers of ours
    python tests/clients/run.py --target grpc://127.0.0.1:2222     # uses one that is there
    python tests/clients/run.py --tensorflow                       # starts TensorFlow's own

A case is a function `case_*` in a module here that takes a session's target. TensorFlow is imported
once; every case runs in a fork with a fresh graph, and fails by an exception or by taking too long.
Cases that run at the same time have servers of their own.
"""

import argparse
import collections
import importlib
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import signal
import subprocess
import sys
import time
import traceback

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
CASE_SECONDS_MAX = 120
# Cases that TensorFlow's server does not pass, and the reason of each; skipped with --tensorflow.
OURS_ALONE = {
    "basics/several_devices": "its devices are fixed when the server starts",
    "data/a_deadline_ends_a_draw": "it loses the elements of draws that timed out",
    "data/python_functions_are_refused": "it looks up the client's Python function in its own process",
}
# Cases that do not pass yet, and the missing feature of each. A listed case that passes fails the run.
WAITING = {}
HERE = pathlib.Path(__file__).resolve().parent


def cases(wanted):
    """Every case as (name, function), in order."""
    found = []
    for path in sorted(HERE.glob("*_cases.py")):
        module = importlib.import_module(path.stem)
        names = [n for n in vars(module) if n.startswith("case_")]
        for name in names:
            full = f"{path.stem[:-6]}/{name[5:]}"
            if not wanted or any(w in full for w in wanted):
                found.append((full, getattr(module, name)))
    return found


def start(command, folder=None):
    """Starts a server that prints `listening on HOST:PORT` first; returns it and its target."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder)
    line = process.stdout.readline()
    if not line.startswith("listening on "):
        process.kill()
        sys.exit(f"{command[0]} did not say where it listens: {line!r}")
    return process, "grpc://" + line.split()[-1]


def stop(server):
    """Sends SIGTERM to a server; returns its exit code."""
    server.send_signal(signal.SIGTERM)
    try:
        return server.wait(20)
    except subprocess.TimeoutExpired:
        server.kill()
        return "none: it did not end"


def in_fork(case, target, report):
    """Runs the case in the forked child, with a fresh graph."""
    os.setpgid(0, 0)
    try:
        case(target)
        report.send(None)
    except BaseException as error:
        error.__context__ = None
        report.send(shortened(traceback.format_exc()))


def shortened(text, lines_max=60):
    """Shortens a message: TensorFlow's repeat where each node was created."""
    lines = text.strip().splitlines()
    half = lines_max // 2
    if len(lines) <= lines_max:
        return text
    return "\n".join([*lines[:half], "...", *lines[-half:]])


class Running:
    """A case in its process."""

    def __init__(self, name, case, target):
        self.name, self.target, self.begin = name, target, time.monotonic()
        self.pipe, theirs = multiprocessing.Pipe(duplex=False)
        self.child = multiprocessing.get_context("fork").Process(
            target=in_fork, args=(case, target, theirs))
        self.child.start()
        theirs.close()

    def seconds(self):
        return time.monotonic() - self.begin

    def outcome(self):
        """Why the case failed, if it did; ends it and what it started."""
        failure = f"it took more than {CASE_SECONDS_MAX} s"
        try:
            if self.pipe.poll():
                failure = self.pipe.recv()
        except EOFError:
            failure = "it ended without a word"
        try:
            os.killpg(self.child.pid, signal.SIGKILL)
        except ProcessLookupError:
            # The child has not created its process group yet.
            self.child.kill()
        self.child.join()
        self.pipe.close()
        return failure


def report_case(name, failure, seconds):
    """Prints the outcome of a case; returns whether it is as expected."""
    waits = WAITING.get(name) if failure is not None else None
    word = "ok    " if failure is None else "waits " if waits else "FAILED"
    print(f"{word} {name} ({seconds:.1f} s)" + (f": {waits}" if waits else ""), flush=True)
    if failure is not None and not waits:
        print("    " + failure.strip().replace("\n", "\n    "), flush=True)
    is_stale = failure is None and name in WAITING
    if is_stale:
        print(f"FAILED {name} passes: WAITING should not name it any more", flush=True)
    return failure is None and not is_stale, bool(waits)


def play(chosen, targets):
    """Runs all cases, one at a time on each target; returns their outcomes."""
    queue, idle, running, results = collections.deque(chosen), list(targets), [], []
    try:
        while queue or running:
            while queue and idle:
                running.append(Running(*queue.popleft(), idle.pop()))
            multiprocessing.connection.wait([r.pipe for r in running], timeout=1)
            for r in list(running):
                if r.pipe.poll() or r.seconds() > CASE_SECONDS_MAX:
                    running.remove(r)
                    idle.append(r.target)
                    seconds = r.seconds()
                    results.append(report_case(r.name, r.outcome(), seconds))
    finally:
        # Ends the cases that still run: their servers are about to be stopped.
        for r in running:
            r.outcome()
    return results


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", help="the thalweg command, to be started for the run")
    parser.add_argument("--server-flag", action="append", default=[], help="a further flag of the server")
    parser.add_argument("--target", help="a server that is there already")
    parser.add_argument("--tensorflow", action="store_true", help="start TensorFlow's server")
    parser.add_argument("--jobs", type=int, default=min(4, os.cpu_count() or 1),
                        help="cases at a time")
    parser.add_argument("--long", action="store_true", help="let cases that can take longer do so")
    parser.add_argument("--except", action="append", default=[], metavar="NAME=REASON", dest="without",
                        help="a case that is skipped, and why")
    parser.add_argument("--list", action="store_true", help="only print the names of the cases")
    parser.add_argument("names", nargs="*", help="parts of the names of cases to run")
    args = parser.parse_args()
    if args.long:
        os.environ["THALWEG_LONG"] = "1"
    command = [args.server, "server", "--port", "0", *args.server_flag]
    if args.tensorflow:
        command = [sys.executable, str(HERE / "tensorflow_server.py")]
        WAITING.clear()
    elif not args.server and not args.target and not args.list:
        parser.error("expected --server, --target or --tensorflow")
    sys.path.insert(0, str(HERE))
    without = dict(case.split("=", 1) for case in args.without)
    if args.tensorflow:
        without.update(OURS_ALONE)
    unknown = {*OURS_ALONE, *WAITING, *without} - {name for name, _ in cases([])}
    assert not unknown, f"there are no cases {unknown}"
    chosen = cases(args.names)
    for name, _ in chosen:
        if name in without and not args.list:
            print(f"skipped {name}: {without[name]}", flush=True)
    chosen = [c for c in chosen if c[0] not in without]
    if args.list:
        print("\n".join(name for name, _ in chosen))
        return
    servers = [] if args.target else [start(command) for _ in range(args.jobs)]
    targets = [target for _, target in servers] or [args.target]
    try:
        results = play(chosen, targets)
    finally:
        codes = [stop(server) for server, _ in servers]
    passed, waiting = sum(ok for ok, _ in results), sum(waits for _, waits in results)
    print(f"{passed} of {len(results)} client programs pass, {waiting} wait")
    if args.server and any(codes):
        sys.exit(f"the servers' exit codes were {codes}")
    sys.exit(0 if results and passed + waiting == len(results) else 1)


if __name__ == "__main__":
    main()
