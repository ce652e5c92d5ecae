"""Batching: each request gets its own rows, and limits hold."""

import concurrent.futures
import itertools
import os
import tempfile

import grpc
import numpy as np

from support import eventually, same

PARAMETERS = """
max_batch_size { value: 8 }
batch_timeout_micros { value: 20000 }
max_enqueued_batches { value: 100 }
num_batch_threads { value: 2 }
allowed_batch_sizes: 4
allowed_batch_sizes: 8
"""


def counted(server, name):
    """The sum of a metric over its labels."""
    _, _, text = server.get("/monitoring/prometheus/metrics")
    lines = [line for line in text.splitlines() if line.startswith(name + "{")]
    return sum(float(line.split()[-1]) for line in lines)


def check_answers(world, server):
    rng = np.random.default_rng(3)
    inputs = [rng.normal(size=(1 + i % 3, 4)).astype(np.float32) for i in range(60)]
    inputs.append(rng.normal(size=(30, 4)).astype(np.float32))
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda x: server.predict("mlp", {"features": x}), inputs))
    for x, answer in zip(inputs, answers, strict=True):
        same(answer, world.reference("mlp")(features=x))
    return sum(len(x) for x in inputs), len(inputs)


def case_parameters_of_a_file(world):
    with tempfile.NamedTemporaryFile("w", suffix=".config") as file:
        file.write(PARAMETERS)
        file.flush()
        flags = ["--enable_batching=true", "--batching_parameters_file", file.name]
        with world.start(f"--model=mlp={world.root}/mlp", *flags) as server:
            before = counted(server, "thalweg_serve_batched_rows_total")
            began = counted(server, "thalweg_serve_batches_total")
            rows, requests = check_answers(world, server)
            batches = counted(server, "thalweg_serve_batches_total") - began
            assert counted(server, "thalweg_serve_batched_rows_total") - before == rows
            assert rows / 8 <= batches < requests, (batches, requests)


def case_automatic_parameters(world):
    with world.start(f"--model=mlp={world.root}/mlp", "--latency_goal_ms", "50") as server:
        check_answers(world, server)
        assert counted(server, "thalweg_serve_waiting_rows") == 0


def case_a_full_queue_and_deadlines(world):
    slow = PARAMETERS.replace("20000", "3000000").replace("value: 100", "value: 1")
    with tempfile.NamedTemporaryFile("w", suffix=".config") as file:
        file.write(slow)
        file.flush()
        flags = ["--batching_parameters_file", file.name, "--enable_model_warmup=false"]
        with world.start(f"--model=mlp={world.root}/mlp", *flags) as server:
            x = np.zeros((5, 4), np.float32)
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                first = pool.submit(server.predict, "mlp", {"features": x})
                while counted(server, "thalweg_serve_waiting_rows") < 5:
                    pass
                # A batch has at most 8 rows, and one batch may wait.
                status, _, body = server.post("/v1/models/mlp:predict", {"instances": x.tolist()})
                assert status == 429 and "try again later" in body["error"], (status, body)
                try:
                    server.predict("mlp", {"features": x[:1]}, timeout=0.2)
                    raise AssertionError("the deadline should have passed")
                except grpc.RpcError as error:
                    assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED, error
                # The request leaves the queue at its deadline.
                eventually(lambda: counted(server, "thalweg_serve_waiting_rows") == 5, seconds=2)
                same(first.result(timeout=30), world.reference("mlp")(features=x))


def case_bad_parameters_are_named(world):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "bad.config")
        with open(path, "w") as file:
            file.write("max_batch_size { value: 8 } allowed_batch_sizes: 4")
        flags = ["--batching_parameters_file", path]
        try:
            world.start(f"--model=mlp={world.root}/mlp", *flags)
            raise AssertionError("it should have been refused")
        except AssertionError as error:
            assert "must be max_batch_size, 8" in str(error), error


def case_counters_are_independent_of_the_outputs(world):
    flags = ["--enable_batching", "--enable_model_warmup=false"]
    with world.start(f"--model=shapes={world.root}/shapes", *flags) as server:
        names = sorted(world.reference("shapes")(
            a=np.ones((1, 1), np.float32), b=np.ones(1, np.int64), c=np.ones(1, bool)))
        inputs = {"a": np.ones((1, 2), np.float32), "b": np.ones(1, np.int64), "c": np.ones(1, bool)}
        orders = list(itertools.islice(itertools.permutations(names), 300))
        last = -1
        for order in orders:
            server.predict("shapes", inputs, outputs=order)
            count = counted(server, "thalweg_serve_batches_total")
            assert count >= last, (count, last)
            last = count
