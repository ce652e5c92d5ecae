"""The commands on an accelerator: run, check, quickstart, launch, cluster."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
SECONDS_MAX = 300


def thalweg(arguments, *words, environment=None, succeeds=True):
    """What a command prints on standard output."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **(environment or {})}
    command = [arguments.server, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=SECONDS_MAX)
    assert (done.returncode == 0) == succeeds, (done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout + done.stderr if not succeeds else done.stdout


def gpu(arguments, count=1):
    return ["--accelerator", f"{arguments.plugin}=GPU:{count}"]


def graph_file(folder):
    """A GraphDef in binary: the book's."""
    path = os.path.join(folder, "graph.pb")
    with open(ROOT / "docs/files/graph.pbtxt") as text, open(path, "w") as file:
        file.write(text.read())
    return path


def case_run_uses_the_accelerator(arguments):
    with tempfile.TemporaryDirectory() as folder:
        graph, trace = graph_file(folder), os.path.join(folder, "trace.json")
        step = ["run", graph, "--feed", "x=[[1,2],[3,4]]", "--feed", "keep=3", "--fetch", "y", "--trace", trace]
        found = {"THALWEG_ACCELERATOR": f"{arguments.plugin}=GPU"}
        text = thalweg(arguments, *step, "--device", "gpu", environment=found)
        assert "[[ 3  6]\n [ 9 12]]" in text, text
        with open(trace) as file:
            events = json.load(file)["traceEvents"]
        names = [e["args"]["name"] for e in events if e["ph"] == "M"]
        assert any(name.startswith("GPU:0 ") for name in names), names
        assert "_Region" in [e["name"] for e in events], events
        # --device cpu overrides --accelerator.
        thalweg(arguments, *step, "--device", "cpu", *gpu(arguments))
        with open(trace) as file:
            assert "GPU" not in file.read()


def case_a_demanded_gpu_that_is_not_there(arguments):
    nothing = {"THALWEG_ACCELERATOR": "none"}
    with tempfile.TemporaryDirectory() as folder:
        step = ["run", graph_file(folder), "--feed", "x=[[1,2]]", "--fetch", "y"]
        text = thalweg(arguments, *step, "--device", "gpu", environment=nothing, succeeds=False)
        assert "NOT_FOUND: --device gpu: there is no accelerator; `thalweg devices` says" in text, text
        thalweg(arguments, *step, "--accelerator", "auto", environment=nothing)
        text = thalweg(arguments, "quickstart", "--device", "gpu", "--images", 100, "--output", folder,
                       environment=nothing, succeeds=False)
        assert "there is no accelerator" in text, text
        text = thalweg(arguments, *step, "--accelerator", "/nowhere.so", succeeds=False)
        assert "no PJRT plugin at /nowhere.so" in text, text
    text = thalweg(arguments, "devices", environment=nothing)
    assert "no accelerator" in text and 'pip install "jax[cuda13]"' in text, text


def case_check_names_what_stays_on_the_cpu(arguments):
    model = ROOT / "testdata/saved_models/v2"
    found = json.loads(thalweg(arguments, "check", model, "--device", "gpu", "--json"))["placement"]
    on_cpu = {entry["op"]: entry for entry in found["on_cpu"]}
    assert on_cpu["LookupTableFindV2"]["why"] == "it has no lowering", on_cpu
    assert on_cpu["ReadVariableOp"]["why"] == "its dtypes have no lowering", on_cpu
    assert "MatMul" not in on_cpu and found["nodes_on_device"] > 20, found
    assert "placement" not in json.loads(thalweg(arguments, "check", model, "--json"))


def case_quickstart_trains_and_serves_there(arguments):
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--images", 1000, "--epochs", 1, "--test-images", 100, "--filters", 4, "--output", folder]
        text = thalweg(arguments, "quickstart", "--device", "gpu", *gpu(arguments), *flags)
        assert "/job:worker/replica:0/task:1/device:GPU:0" in text and "/job:ps/replica:0/task:0/device:GPU" not in text
        summary = json.loads(text.splitlines()[-1])
        assert summary["updates_lost"] == 0 and len(summary["served_classes"]) == 10, summary
        for process, expected in [("ps-0", False), ("worker-0", True), ("serve", True)]:
            log = pathlib.Path(folder, "logs", f"{process}.log").read_text()
            assert ("uses GPU (cpu)" in log) == expected, log


def case_launch_gives_workers_the_accelerator(arguments):
    with tempfile.TemporaryDirectory() as folder:
        program = [sys.executable, ROOT / "tests/cluster/train.py"]
        flags = ["--workers", 2, "--log-dir", folder, *gpu(arguments)]
        text = thalweg(arguments, "launch", *flags, "--", *program)
        assert "[worker/0] counts [200, 200]" in text, text
        for task, expected in [("ps-0", False), ("worker-0", True), ("worker-1", True)]:
            log = pathlib.Path(folder, f"{task}.log").read_text()
            assert ("uses GPU (cpu)" in log) == expected, log


def case_a_cluster_file_gives_jobs_accelerators(arguments):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "mixed.toml")
        with open(path, "w") as file:
            file.write(f'[job.ps]\ntasks = 1\n[job.worker]\ntasks = 1\naccelerator = "{arguments.plugin}=GPU:2"\n')
        state = ["--state-dir", folder]
        try:
            thalweg(arguments, "cluster", "up", path, *state)
            tasks = json.loads(thalweg(arguments, "cluster", "status", path, "--json", *state))["tasks"]
            devices = {t["task"]: [d.partition("/device:")[2] for d in t["devices"]] for t in tasks}
            assert devices == {"ps/0": ["CPU:0"], "worker/0": ["CPU:0", "GPU:0", "GPU:1"]}, devices
            accelerators = {t["task"]: t["accelerators"] for t in tasks}
            assert accelerators["ps/0"] == [] and len(accelerators["worker/0"]) == 2, accelerators
            assert accelerators["worker/0"][0]["compilations"] == 0, accelerators
            assert "CPU:0,GPU:0-1" in thalweg(arguments, "cluster", "status", path, *state)
        finally:
            thalweg(arguments, "cluster", "down", path, *state)


INPUTS = [[1.0, 2.0], [3.0, 4.0]]


def get(url, body=None):
    with urllib.request.urlopen(url, body and json.dumps(body).encode(), timeout=60) as answer:
        return answer.read().decode()


def case_serve_runs_models_there_and_counts(arguments):
    model = f"m={ROOT / 'testdata/saved_models'}"
    with tempfile.TemporaryDirectory() as folder:
        versions = pathlib.Path(folder, "m")
        versions.mkdir()
        shutil.copytree(ROOT / "testdata/saved_models/v2", versions / "1")
        model = f"m={versions}"
        cache = ["--program-cache", os.path.join(folder, "programs")]
        for compiled in [True, False]:
            flags = ["--no-grpc", "--http-port", "0", "--model", model, "--generated-warmup=false", *cache]
            environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
            server = subprocess.Popen([arguments.server, "serve", *flags, *gpu(arguments)], stdout=subprocess.PIPE,
                                      stderr=subprocess.DEVNULL, text=True, env=environment)
            try:
                address = server.stdout.readline().split()[-1]
                answer = json.loads(until_served(f"http://{address}/v1/models/m:predict"))
                text = get(f"http://{address}/monitoring/prometheus/metrics")
            finally:
                server.terminate()
                server.wait(30)
            counted = dict(re.findall(r'^thalweg_accelerator_(\w+)\{device="GPU:0"\} (\d+)$', text, re.M))
            counted = {name: int(value) for name, value in counted.items()}
            assert answer, answer
            assert (counted["compilations_total"] > 0) == compiled, counted
            assert (counted["loads_total"] > 0) != compiled, counted
            assert counted["executions_total"] > 0 and counted["bytes_from_host_total"] > 0, counted
            assert counted["bytes_to_host_total"] > 0, counted
            assert 0 < counted["memory_peak_bytes"] <= counted["memory_limit_bytes"], counted


def until_served(url):
    """The answer to a request, once the model is there."""
    for _ in range(200):
        try:
            return get(url, {"inputs": INPUTS})
        except urllib.error.HTTPError as e:
            if e.code not in (404, 503):
                raise AssertionError(e.read().decode()) from e
            time.sleep(0.1)
    raise AssertionError("the model is not there after 20 s")
