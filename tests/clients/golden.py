"""Sends every recorded case to a server through TensorFlow's client and compares the answers.

    python tests/clients/golden.py --server target/debug/thalweg [--op MatMul] [CASE ...]
    python tests/clients/golden.py --target grpc://127.0.0.1:2222

A case is a graph and the steps to run on it, as `testdata/golden` has them. Cases that need an op
without a kernel wait and are listed by that op; whatever the published results say passes must pass.
"""

import argparse
import base64
import collections
import gzip
import json
import multiprocessing
import os
import pathlib
import re
import shutil
import sys
import tempfile
import time

import numpy as np
import run  # Sets TensorFlow's environment.
import tensorflow as tf
from support import v1
from tensorflow.core.framework import tensor_pb2

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Elements that TensorFlow computes differently in the remainder of its vector loop: by case, the number of
# elements that may differ.
REMAINDER_ELEMENTS = {"unary/Sign/6": 2, "binary/Pow/33": 4, "binary/Atan2/27": 4}
CASES_PER_TASK = 40
# Cases with these expect an empty folder golden_files where the server runs, and run one by one.
FILE_OPS = {"CacheDataset", "CacheDatasetV2", "CreateSummaryFileWriter", "DatasetToTFRecord",
            "ExperimentalDatasetToTFRecord", "MatchingFiles", "MergeV2Checkpoints", "ReadFile", "Restore",
            "RestoreSlice", "RestoreV2", "Save", "SaveSlices", "SaveV2", "WriteFile"}


def recorded():
    """Every recorded case, as undecoded text."""
    for path in sorted((ROOT / "testdata/golden").glob("*.jsonl.gz")):
        with gzip.open(path, "rt") as lines:
            yield from lines


def array(text):
    return tf.make_ndarray(tensor_pb2.TensorProto.FromString(base64.b64decode(text)))


def numbers(values):
    """Floating-point elements, widened; None for what is compared bit by bit."""
    if values.dtype.kind == "c":
        return values.astype("D").ravel().view("d")
    if values.dtype.kind == "f" or values.dtype.name == "bfloat16":
        return values.astype("d").ravel()
    return None


def difference(got, wanted, case):
    """The difference between `got` and the recorded value, if there is one."""
    got = np.asarray(got)
    if got.shape != wanted.shape:
        return f"shape {got.shape} is not {wanted.shape}"
    if wanted.dtype == object:
        # NumPy arrays drop trailing zero bytes of strings.
        trimmed = [[bytes(s).rstrip(b"\0") for s in np.ravel(a)] for a in (got, wanted)]
        return None if trimmed[0] == trimmed[1] else f"{trimmed[0]} is not {trimmed[1]}"
    if wanted.dtype.names:
        # The client returns quantized types as plain integers.
        wanted = wanted.view(wanted.dtype[0])
    if got.dtype != wanted.dtype:
        return f"{got.dtype} is not {wanted.dtype}"
    a, b = numbers(got), numbers(wanted)
    if a is None:
        return None if got.tobytes() == wanted.tobytes() else f"{got!r} is not {wanted!r}"
    compared = len(a) - REMAINDER_ELEMENTS.get(case["id"], 0) * len(a) // max(got.size, 1)
    relative, absolute = case.get("tol") or (0, 0)
    with np.errstate(invalid="ignore"):
        close = (a == b) | (np.isnan(a) & np.isnan(b)) | (abs(a - b) <= absolute + relative * abs(b))
    wrong = np.flatnonzero(~close[:compared])
    if len(wrong):
        i = wrong[0]
        return f"element {i} is {a[i]}, not {b[i]} ({len(wrong)} of {len(a)} differ)"
    return None


def play_steps(case, session):
    feeds = {name: array(value) for name, value in case.get("feeds", {}).items()}
    for n, step in enumerate(case["steps"]):
        wanted = step.get("error")
        try:
            got = session.run([*step["fetch"], *step.get("targets", [])], feeds)
        except tf.errors.OpError as error:
            if wanted and error.error_code == wanted["code"]:
                continue
            lines = [line for line in error.message.splitlines() if line.strip()]
            return f"step {n}: {type(error).__name__}: " + " | ".join(lines)
        if wanted:
            return f"step {n}: a value, not {wanted['name']}"
        if len(step["expect"]) != len(step["fetch"]):
            return f"step {n}: {len(step['fetch'])} fetches, {len(step['expect'])} recorded answers"
        for fetch, value, answer in zip(step["fetch"], got[:len(step["fetch"])], step["expect"], strict=True):
            failure = difference(value, array(answer), case)
            if failure:
                return f"step {n}: {fetch}: {failure}"
    return None


def play(case, target):
    """The failure of the case on the server, if any."""
    graph = v1.GraphDef.FromString(base64.b64decode(case["graph"]))
    config = v1.ConfigProto(isolate_session_state=True, operation_timeout_in_ms=60000)
    try:
        with tf.Graph().as_default():
            tf.import_graph_def(graph, name="")
            with v1.Session(target, config=config) as session:
                return play_steps(case, session)
    except (tf.errors.OpError, ValueError) as error:
        return f"{type(error).__name__}: {error}"


def play_many(job):
    """Outcomes of some cases: (id, op, failure, missing op)."""
    target, lines, folder = job
    outcomes = []
    for line in lines:
        case = json.loads(line)
        if folder:
            shutil.rmtree(folder, ignore_errors=True)
            os.makedirs(folder)
        failure = play(case, target)
        missing = re.search(r"(\w+) has no kernel here", failure or "")
        outcomes.append((case["id"], case["op"], failure, missing and missing.group(1)))
    return outcomes


def published():
    """The number of passing cases of each op without a client."""
    lines = (ROOT / "crates/ops/src/golden_results.txt").read_text().split("\n")
    return {op: int(passed) for op, passed, _ in (line.split() for line in lines if line)}


def report(outcomes, is_all):
    """Prints failures and missing ops; returns whether the run succeeded."""
    passed, waiting, failures = collections.Counter(), collections.defaultdict(list), []
    for name, op, failure, missing in outcomes:
        if failure is None:
            passed[op] += 1
        elif missing:
            waiting[missing].append(name)
        else:
            failures.append(f"{name}: {failure[:600]}")
    for failure in failures:
        print("FAILED", failure)
    for missing, names in sorted(waiting.items()):
        print(f"waits  for {missing}: {', '.join(names)}")
    if is_all:
        for op, count in published().items():
            if passed[op] < count:
                failures.append(op)
                print(f"FAILED {op}: {passed[op]} cases pass here, {count} without a client")
    print(f"{sum(passed.values())} recorded cases pass through the client, {len(failures)} fail, "
          f"{sum(map(len, waiting.values()))} wait for an op")
    return not failures and passed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", help="the thalweg command, to be started for the run")
    parser.add_argument("--target", help="a server that is there already")
    parser.add_argument("--op", help="only the cases of this op")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("names", nargs="*", help="parts of the names of cases to play")
    args = parser.parse_args()
    begin = time.monotonic()
    lines = list(recorded())
    is_all = not args.op and not args.names
    if not is_all:
        cases = ((line, json.loads(line)) for line in lines)
        lines = [line for line, case in cases if args.op in (None, case["op"])
                 and (not args.names or any(name in case["id"] for name in args.names))]
    count = len(lines)
    server, target = None, args.target
    scratch = tempfile.mkdtemp(prefix="thalweg-golden-")
    if args.server:
        # Cases were recorded in a session whose job has this name, and some ask for it.
        command = [os.path.abspath(args.server), "server", "--port", "0", "--job", "localhost"]
        server, target = run.start(command, scratch)
    try:
        with_files = [line for line in lines if FILE_OPS.intersection(json.loads(line)["ops"])]
        lines = [line for line in lines if not FILE_OPS.intersection(json.loads(line)["ops"])]
        jobs = [(target, with_files, os.path.join(scratch, "golden_files"))]
        jobs += [(target, lines[i:i + CASES_PER_TASK], None)
                 for i in range(0, len(lines), CASES_PER_TASK)]
        with multiprocessing.get_context("fork").Pool(args.jobs) as pool:
            outcomes = [o for part in pool.imap(play_many, jobs) for o in part]
    finally:
        code = run.stop(server) if server else 0
        shutil.rmtree(scratch, ignore_errors=True)
    assert len(outcomes) == count, f"{len(outcomes)} of {count} cases were played"
    is_well = report(outcomes, is_all)
    print(f"{time.monotonic() - begin:.0f} s")
    sys.exit(0 if is_well and code == 0 else 1)


if __name__ == "__main__":
    main()
