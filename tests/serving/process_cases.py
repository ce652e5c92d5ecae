"""The server process: flags, environment, health, metrics, shutdown; hostile requests."""

import json
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

import grpc
import numpy as np
from grpc import StatusCode
from tensorflow_serving.apis import predict_pb2, session_service_pb2

import tensorflow as tf
from skips import skipped
from support import eventually, refused

X = np.array([[2.0]], np.float32)
PREDICT = "/v1/models/half_plus_two:predict"


def case_flags_and_environment(world):
    folder = f"{world.root}/half_plus_two"
    with world.start("--model_name=m", f"--model_base_path={folder}") as server:
        assert server.predict("m", {"x": X})["y"][0, 0] == 3.0
    with world.start(f"--model_base_path={folder}", "--tensorflow_session_parallelism=2") as server:
        assert server.predict("default", {"x": X})["y"][0, 0] == 3.0
        assert "--tensorflow_session_parallelism has no effect" in server.stop()
    environment = {"MODEL_NAME": "half_plus_two", "MODEL_BASE_PATH": world.root}
    with world.start(environment=environment) as server:
        assert server.predict("half_plus_two", {"x": X})["y"][0, 0] == 3.0
    # A folder that is itself a SavedModel.
    with world.start(f"--model=m={folder}/1") as server:
        assert server.predict("m", {"x": X}, version=1)["y"][0, 0] == 3.0
    ended = subprocess.run([world.thalweg, "serve"], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2 and "no model to serve" in ended.stderr, ended


def case_check(world):
    run = lambda folder, *flags: subprocess.run(
        [world.thalweg, "serve", "--check", folder, *flags], capture_output=True, text=True, timeout=60)
    ended = run(f"{world.root}/half_plus_two")
    assert ended.returncode == 0, ended
    assert "version 1" in ended.stdout and "signature 'classify_x'" in ended.stdout, ended
    found = json.loads(run(f"{world.root}/half_plus_two", "--json").stdout)
    assert (found["model"], found["version"]) == ("default", 1), found
    assert found["seconds"] > 0 and found["memory_bytes"] > 0, found
    default = found["signatures"]["serving_default"]
    assert default["inputs"] == {"x": {"dtype": "float", "shape": [-1, 1]}}, default
    ended = run(world.root)
    assert ended.returncode == 1 and "not a SavedModel" in ended.stderr, ended


def case_health(world):
    check = world.server.channel.unary_unary("/grpc.health.v1.Health/Check")
    assert check(b"") == b"\x08\x01"
    service = b"tensorflow.serving.PredictionService"
    assert check(b"\x0a" + bytes([len(service)]) + service) == b"\x08\x01"
    refused(StatusCode.NOT_FOUND, "no", lambda: check(b"\x0a\x02no"))
    watch = world.server.channel.unary_stream("/grpc.health.v1.Health/Watch")
    stream = watch(b"")
    assert next(stream) == b"\x08\x01"
    stream.cancel()
    assert world.server.get("/healthz")[0] == 200
    assert world.server.get("/readyz")[0] == 200
    with world.start("--model=m=/no/such/folder", wait=False) as server:
        assert server.get("/healthz")[0] == 200
        eventually(lambda: server.get("/v1/models/m")[0] == 404)
        status, _, text = server.get("/readyz")
        assert status == 503 and "'m'" in text
        check = server.channel.unary_unary("/grpc.health.v1.Health/Check")
        assert check(b"", wait_for_ready=True) == b"\x08\x02"


def case_metrics(world):
    with world.start(f"--model=m={world.root}/half_plus_two") as server:
        for _ in range(3):
            server.predict("m", {"x": X})
        server.post("/v1/models/m:predict", {"instances": [[1.0]]})
        server.post("/v1/models/m:predict", {})
        server.post("/v1/models/nothing:predict", {})
        # It runs no model, so it is not counted there.
        server.get("/v1/models/m")
        status, _, text = server.get("/monitoring/prometheus/metrics")
        assert status == 200
        for line in [
            ':tensorflow:serving:request_count{model_name="m",status="OK"} 4',
            ':tensorflow:serving:request_count{model_name="m",status="INVALID_ARGUMENT"} 1',
            ':tensorflow:serving:request_latency_count{model_name="m",API="Predict",entrypoint="GRPC"} 3',
            ':tensorflow:serving:runtime_latency_count{model_name="m",API="Predict",runtime="Thalweg"}',
            f':tensorflow:cc:saved_model:load_attempt_count{{model_path="{world.root}/half_plus_two/1",status="success"}} 1',
            'thalweg_serve_version_state{model="m",version="1",state="AVAILABLE"} 1',
        ]:
            assert line in text, text
        assert "nothing" not in text
        sample = re.compile(r'[a-zA-Z_:][a-zA-Z0-9_:]*(\{[a-zA-Z_]+="[^"]*"(,[a-zA-Z_]+="[^"]*")*\})? [-+.0-9eE]+')
        for line in text.splitlines():
            assert line.startswith("# ") or sample.fullmatch(line), line


def case_metrics_as_promtool_wants_them(world):
    if not shutil.which("promtool"):
        skipped("serving: metrics_as_promtool_wants_them",
                "promtool is not installed (apt-get install prometheus)")
        return
    flags = ["--enable_batching", f"--model=m={world.root}/half_plus_two", "--model=n=/no/such/folder"]
    with world.start(*flags, wait=False) as server:
        eventually(lambda: server.get("/v1/models/m/versions/1")[0] == 200)
        eventually(lambda: server.post("/v1/models/m:predict", {"instances": [[1.0]]})[0] == 200)
        server.predict("m", {"x": X})
        server.post("/v1/models/m:regress", {"signature_name": "regress_x_to_y", "examples": [{"x": 1.0}]})
        server.post("/v2/models/m/infer", {})
        _, _, text = server.get("/monitoring/prometheus/metrics")
        checked = subprocess.run(
            ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=60)
        # promtool suggests other names for TensorFlow Serving's metrics, which dashboards rely on.
        of_names = (" metric names should not contain ':'", ' counter metrics should have "_total" suffix',
                    ' metrics should not have "_count" suffix')
        complaints = checked.stderr.splitlines()
        ours = [c for c in complaints if not (c.startswith(":tensorflow:") and c.endswith(of_names))]
        assert checked.returncode in (0, 3) and not [c for c in ours if c], checked


def case_where_metrics_are(world):
    with tempfile.NamedTemporaryFile("w", suffix=".config") as file:
        file.write('prometheus_config { enable: true, path: "/metrics" }')
        file.flush()
        args = [f"--model=m={world.root}/half_plus_two", "--monitoring_config_file", file.name]
        with world.start(*args) as server:
            assert server.get("/metrics")[0] == 200
            assert server.get("/monitoring/prometheus/metrics")[0] == 404


def case_cors(world):
    assert "Access-Control-Allow-Origin" not in world.server.get("/v1/models/mlp")[1]
    args = [f"--model=m={world.root}/half_plus_two", "--rest_api_enable_cors_support"]
    with world.start(*args) as server:
        status, headers, _ = server.ask("OPTIONS", PREDICT, None, {})
        assert (status, headers["Access-Control-Allow-Origin"]) == (200, "*")
        assert server.get("/v1/models/m")[1]["Access-Control-Allow-Origin"] == "*"


def case_the_session_service(world):
    request = session_service_pb2.SessionRunRequest(fetch=["y:0", "x:0"])
    request.model_spec.name = "half_plus_two"
    feed = request.feed.add(name="x:0")
    feed.tensor.CopyFrom(tf.make_tensor_proto(X))
    refused(StatusCode.UNIMPLEMENTED, "SessionRun", lambda: world.server.session_run(request, 60))
    folder = f"--model=half_plus_two={world.root}/half_plus_two"
    with world.start(folder, "--enable_session_service") as server:
        response = server.session_run(request, 60)
        found = {t.name: tf.make_ndarray(t.tensor).tolist() for t in response.tensor}
        assert found == {"y:0": [[3.0]], "x:0": [[2.0]]}
        assert response.model_spec.version.value == 1
        assert not response.metadata.step_stats.dev_stats
        request.options.trace_level = tf.compat.v1.RunOptions.FULL_TRACE
        [device] = server.session_run(request, 60).metadata.step_stats.dev_stats
        assert any(node.node_name == "y" for node in device.node_stats), device
        # Models cannot write files.
        save = session_service_pb2.SessionRunRequest(fetch=["save/control_dependency:0"])
        save.model_spec.name = "half_plus_two"
        save.feed.add(name="save/Const:0").tensor.CopyFrom(tf.make_tensor_proto("/tmp/thalweg-no"))
        refused(StatusCode.PERMISSION_DENIED, "change files", lambda: server.session_run(save, 60))


def case_requests_in_flight_are_answered_at_shutdown(world):
    with world.start(f"--model=loop={world.root}/loop") as server:
        count = lambda n: server.predict("loop", {"n": np.int64(n)})["i"]
        begin = time.monotonic()
        assert count(20000) == 20000
        # Runs for about two seconds.
        n = max(20000, int(20000 * 2 / (time.monotonic() - begin)))
        results = []
        thread = threading.Thread(target=lambda: results.append(count(n)))
        before = server.cpu_seconds()
        thread.start()
        # On a busy machine the loop may run longer than two seconds.
        eventually(lambda: server.cpu_seconds() > before + 0.05)
        server.process.send_signal(signal.SIGTERM)
        host, port = server.rest_address.rsplit(":", 1)

        def is_closed():
            try:
                socket.create_connection((host, int(port)), timeout=5).close()
            except ConnectionError:
                return True
            return False

        eventually(is_closed)
        assert not results
        thread.join()
        assert results == [n], results
        assert server.process.wait(40) == 0


def case_lame_duck(world):
    with world.start(f"--model=m={world.root}/half_plus_two", "--lame_duck_seconds", "3") as server:
        server.process.send_signal(signal.SIGTERM)
        eventually(lambda: server.get("/readyz")[0] == 503)
        check = server.channel.unary_unary("/grpc.health.v1.Health/Check")
        assert check(b"") == b"\x08\x02"
        # Clients that have not seen the health change are still served.
        assert server.predict("m", {"x": X})["y"].tolist() == [[3.0]]
        assert server.post("/v1/models/m:predict", {"instances": [[2.0]]})[0] == 200
        assert server.process.wait(40) == 0


def case_flags_of_tensorflow_serving_are_taken(world):
    flags = ["--platform_config_file=/no", "--thread_pool_factory_config_file=/no", "--mixed_precision=bfloat16",
             "--num_tflite_pools=1", "--num_tflite_interpreters_per_pool=1", "--enable_grpc_healthcheck_service",
             "--enable_serialization_as_tensor_content=true", "--prefer_tflite_model=false",
             "--remove_unused_fields_from_bundle_metagraph=true", "--tensorflow_session_parallelism=2",
             "--grpc_max_threads=4", "--enable_model_warmup=true", "--flush_filesystem_caches"]
    with world.start("--model_name=m", f"--model_base_path={world.root}/half_plus_two", *flags) as server:
        assert server.predict("m", {"x": X})["y"].tolist() == [[3.0]]
        said = server.stop()
    assert "--mixed_precision has no effect here" in said, said
    # A server that was asked for TLS must not fall back to plain text.
    ended = subprocess.run([world.thalweg, "serve", "--ssl_config_file=/no", "--model=m=/no"],
                           capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2 and "ssl_config_file" in ended.stderr, ended


def case_hostile_requests(world):
    host, port = world.server.rest_address.rsplit(":", 1)
    grpc_host, grpc_port = world.server.grpc_address.rsplit(":", 1)
    connect = lambda: socket.create_connection((host, int(port)), timeout=30)
    head = f"POST {PREDICT} HTTP/1.1\r\nHost: x\r\n"

    def answered(data):
        with connect() as s:
            s.sendall(data)
            return s.recv(200)

    # A huge Content-Length, an empty request, bytes that are not HTTP.
    assert b" 429 " in answered((head + "Content-Length: 1000000000000\r\n\r\n{").encode())
    assert b" 400 " in answered((head + "Content-Length: 2\r\n\r\n{}").encode())
    assert b" 200 " not in answered(b"\x00\xff\r\n\r\n")
    # An incomplete request does not delay others.
    halves = [connect() for _ in range(200)]
    for s in halves:
        s.sendall((head + "Content-Length: 100\r\n\r\n{").encode())
    idle = [socket.create_connection((grpc_host, int(grpc_port))) for _ in range(200)]
    for s in idle:
        s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    begin = time.monotonic()
    assert world.server.predict("half_plus_two", {"x": X})["y"][0, 0] == 3.0
    assert world.server.post(PREDICT, {"instances": [[2.0]]})[0] == 200
    assert time.monotonic() - begin < 10
    for s in halves + idle:
        s.close()
    # A huge number of digits, shapes without content.
    deep = "[" * 1000000 + "]" * 1000000
    for body in [f'{{"instances": {deep}}}', '{"instances": [' + "9" * 100000 + "]}",
                 '{"instances": [["' + "\\" * 99999 + "]]}", '{"signature_name": ' + deep]:
        status, _, answer = world.server.post(PREDICT, body)
        assert status == 400 and len(answer["error"]) < 2000, (status, len(answer["error"]))
    claim = tf.compat.v1.make_tensor_proto(1.0)
    claim.tensor_shape.dim.add(size=1 << 40)
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "half_plus_two"
    request.inputs["x"].CopyFrom(claim)
    for size in [1 << 40, -5, 1 << 62]:
        request.inputs["x"].tensor_shape.dim[0].size = size
        try:
            world.server.prediction.Predict(request, 60)
            raise AssertionError("it was not refused")
        except grpc.RpcError as error:
            assert error.code() in (StatusCode.INVALID_ARGUMENT, StatusCode.RESOURCE_EXHAUSTED)
    assert world.server.predict("half_plus_two", {"x": X})["y"][0, 0] == 3.0
