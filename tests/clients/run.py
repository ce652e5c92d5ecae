"""Runs the client programs in this folder against a server, each in a process of its own.

    python tests/clients/run.py --server target/debug/thalweg      # starts a server of ours
    python tests/clients/run.py --target grpc://127.0.0.1:2222     # uses one that is there
    python tests/clients/run.py --tensorflow                       # starts TensorFlow's own

A case is a function `case_*` in a module here that takes a session's target. TensorFlow is imported
once; every case runs in a fork with a fresh graph, and fails by an exception or by taking too long.
"""

import argparse
import importlib
import multiprocessing
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
# Cases that TensorFlow's own server does not pass, and why.
OURS_ALONE = {
    "basics/several_devices": "its devices are fixed when the server starts",
}
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


def start(command):
    """Starts a server that prints `listening on HOST:PORT` first; returns it and its target."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    line = process.stdout.readline()
    if not line.startswith("listening on "):
        process.kill()
        sys.exit(f"{command[0]} did not say where it listens: {line!r}")
    return process, "grpc://" + line.split()[-1]


def in_fork(case, target, report):
    """What the child does: no graph, no threads of the parent's, just the case."""
    try:
        case(target)
        report.send(None)
    except BaseException:
        report.send(traceback.format_exc())


def play(name, case, target):
    ours, theirs = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=in_fork, args=(case, target, theirs))
    begin = time.monotonic()
    child.start()
    theirs.close()
    failure = "it ended without a word"
    try:
        if ours.poll(CASE_SECONDS_MAX):
            failure = ours.recv()
        else:
            failure = f"it took more than {CASE_SECONDS_MAX} s"
    except EOFError:
        pass
    child.kill()
    child.join()
    seconds = time.monotonic() - begin
    print(f"{'ok    ' if failure is None else 'FAILED'} {name} ({seconds:.1f} s)", flush=True)
    if failure is not None:
        print("    " + failure.strip().replace("\n", "\n    "), flush=True)
    return failure is None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", help="the thalweg command, to be started for the run")
    parser.add_argument("--target", help="a server that is there already")
    parser.add_argument("--tensorflow", action="store_true", help="start TensorFlow's server")
    parser.add_argument("names", nargs="*", help="parts of the names of cases to run")
    args = parser.parse_args()
    server, target = None, args.target
    if args.server:
        server, target = start([args.server, "server", "--port", "0"])
    elif args.tensorflow:
        server, target = start([sys.executable, str(HERE / "tensorflow_server.py")])
    if not target:
        parser.error("say --server, --target or --tensorflow")
    sys.path.insert(0, str(HERE))
    try:
        chosen = cases(args.names)
        if args.tensorflow:
            chosen = [c for c in chosen if c[0] not in OURS_ALONE]
        results = [play(name, case, target) for name, case in chosen]
    finally:
        if server:
            server.send_signal(signal.SIGTERM)
            try:
                code = server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()
                code = "none: it did not end"
    if args.server and code != 0:
        sys.exit(f"the server's exit code was {code}")
    print(f"{sum(results)} of {len(results)} client programs pass")
    sys.exit(0 if results and all(results) else 1)


if __name__ == "__main__":
    main()
