"""Versions: loading and unloading, policies, labels, configuration, warm-up."""

import os
import shutil
import tempfile
import threading

import numpy as np
import tensorflow as tf
from grpc import StatusCode
from tensorflow_serving.apis import (
    get_model_metadata_pb2, get_model_status_pb2, model_management_pb2, prediction_log_pb2)

import models
from support import Bucket, eventually, refused

X = np.array([[2.0]], np.float32)
AVAILABLE, END = 30, 50


class Folder:
    """A folder for models of one case."""

    def __enter__(self):
        self.path = tempfile.mkdtemp(prefix="thalweg-versions-")
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.path)

    def add(self, version, add=None, **options):
        """Adds a version whose output for 2 is 1 + version; the folder appears atomically."""
        hidden = os.path.join(self.path, f".{version}")
        models.half_plus_two(hidden, version if add is None else add, **options)
        os.rename(hidden, os.path.join(self.path, str(version)))

    def remove(self, version):
        gone = os.path.join(self.path, f".gone{version}")
        os.rename(os.path.join(self.path, str(version)), gone)
        shutil.rmtree(gone)


def states(server, model="m"):
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = model
    response = server.models.GetModelStatus(request, 60)
    return {s.version: (s.state, s.status.error_code) for s in response.model_version_status}


def answer(server, **options):
    return float(server.predict("m", {"x": X}, **options)["y"][0, 0])


def config(folder, policy="", labels=()):
    labels = "".join(f'version_labels {{ key: "{k}" value: {v} }}' for k, v in labels)
    return ('model_config_list { config { name: "m" base_path: "%s" model_platform: "tensorflow" '
            '%s %s } }' % (folder, policy and f"model_version_policy {{ {policy} }}", labels))


def case_the_newest_version_is_served(world):
    with Folder() as folder:
        folder.add(1)
        with world.start(f"--model=m={folder.path}") as server:
            assert answer(server) == 2.0
            folder.add(3)
            eventually(lambda: answer(server) == 4.0)
            eventually(lambda: states(server)[1] == (END, 0))
            assert states(server)[3] == (AVAILABLE, 0)
            refused(StatusCode.NOT_FOUND, "m, 1", lambda: answer(server, version=1))
            # A removed version is unloaded, and the newest remaining one is loaded again.
            folder.remove(3)
            eventually(lambda: answer(server) == 2.0)


def case_no_request_fails_while_versions_change(world):
    with Folder() as folder:
        folder.add(1)
        with world.start(f"--model=m={folder.path}") as server:
            failures, stop = [], threading.Event()

            def ask():
                while not stop.is_set():
                    try:
                        assert answer(server) in (2.0, 3.0, 4.0, 5.0)
                    except Exception as error:
                        failures.append(error)

            threads = [threading.Thread(target=ask) for _ in range(4)]
            for thread in threads:
                thread.start()
            try:
                for version in (2, 3, 4):
                    folder.add(version)
                    eventually(lambda: version in states(server)
                               and states(server)[version][0] == AVAILABLE)
            finally:
                stop.set()
                for thread in threads:
                    thread.join()
            assert not failures, failures[:3]


def case_policies_and_labels(world):
    with Folder() as folder:
        for version in (1, 2, 3):
            folder.add(version)
        file = os.path.join(folder.path, "models.config")

        def write(*args):
            with open(file, "w") as f:
                f.write(config(folder.path, *args))

        write("specific { versions: 1 versions: 2 }", [("stable", 1), ("canary", 2)])
        args = ["--model_config_file", file, "--model_config_file_poll_wait_seconds", "1"]
        with world.start(*args) as server:
            eventually(lambda: len(states(server)) == 2)
            eventually(lambda: all(s == (AVAILABLE, 0) for s in states(server).values()))
            assert answer(server, label="stable") == 2.0
            assert answer(server, label="canary") == 3.0
            status, _, body = server.post(
                "/v1/models/m/labels/canary:predict", {"instances": X.tolist()})
            assert (status, body) == (200, {"predictions": [[3.0]]})
            assert answer(server) == 3.0
            refused(StatusCode.INVALID_ARGUMENT, "label", lambda: answer(server, label="other"))
            write("all {}", [("stable", 3)])
            eventually(lambda: states(server).get(3) == (AVAILABLE, 0))
            assert answer(server, label="stable") == 4.0
            assert [answer(server, version=v) for v in (1, 2, 3)] == [2.0, 3.0, 4.0]
            write("latest { num_versions: 2 }")
            eventually(lambda: states(server)[1][0] == END)
            assert answer(server, version=2) == 3.0


def case_models_come_and_go_by_request(world):
    with Folder() as folder:
        folder.add(1)
        with world.start(f"--model=m={folder.path}") as server:
            request = model_management_pb2.ReloadConfigRequest()
            for name, path in [("m", folder.path), ("mlp", f"{world.root}/mlp")]:
                request.config.model_config_list.config.add(
                    name=name, base_path=path, model_platform="tensorflow")
            attempts = "/tensorflow/cc/saved_model/load_attempt_count"
            request.metric_names.extend([attempts, "/tensorflow/serving/request_count", "nobody"])
            response = server.models.HandleReloadConfigRequest(request, 60)
            assert response.status.error_code == 0
            # Increases of the counters; unknown names are omitted.
            grown = {metric.name: metric.int64_value_increase for metric in response.metric}
            assert grown == {attempts: 1, "/tensorflow/serving/request_count": 0}, grown
            del request.metric_names[:]
            # After the response the model is available.
            server.predict("mlp", {"features": np.ones((1, 4), np.float32)})
            del request.config.model_config_list.config[0]
            server.models.HandleReloadConfigRequest(request, 60)
            eventually(lambda: server.get("/v1/models/m")[0] == 404)
            refused(StatusCode.NOT_FOUND, "m", lambda: answer(server))
            request.config.model_config_list.config[0].version_labels["stable"] = 7
            refused(StatusCode.FAILED_PRECONDITION, "'stable'",
                    lambda: server.models.HandleReloadConfigRequest(request, 60))
            bad = model_management_pb2.ReloadConfigRequest()
            bad.config.model_config_list.config.add(name="x", base_path="/no/such/folder")
            refused(StatusCode.NOT_FOUND, "/no/such/folder",
                    lambda: server.models.HandleReloadConfigRequest(bad, 60))
            empty = model_management_pb2.ReloadConfigRequest()
            refused(StatusCode.INVALID_ARGUMENT, "config",
                    lambda: server.models.HandleReloadConfigRequest(empty, 60))


def case_a_broken_version_keeps_the_old_one(world):
    with Folder() as folder:
        folder.add(1)
        args = ["--max_num_load_retries", "1", "--load_retry_interval_micros", "100000"]
        with world.start(f"--model=m={folder.path}", *args) as server:
            broken = os.path.join(folder.path, "2")
            os.mkdir(broken)
            with open(os.path.join(broken, "saved_model.pb"), "wb") as f:
                f.write(b"\xff" * 100)
            eventually(lambda: states(server).get(2, (0, 0))[0] == END)
            assert states(server)[2][1] != 0
            status, _, body = server.get("/v1/models/m/versions/2")
            found = body["model_version_status"][0]
            assert (found["state"], found["version"]) == ("END", "2")
            assert "saved_model.pb" in found["status"]["error_message"], found
            assert answer(server) == 2.0


def case_a_version_that_is_copied_slowly(world):
    with Folder() as folder, Folder() as elsewhere:
        folder.add(1)
        elsewhere.add(2)
        # With the default interval of a minute between attempts.
        with world.start(f"--model=m={folder.path}") as server:
            source, target = os.path.join(elsewhere.path, "2"), os.path.join(folder.path, "2")
            os.mkdir(target)
            shutil.copy(os.path.join(source, "saved_model.pb"), target)
            eventually(lambda: states(server).get(2, (0, 0))[1] != 0)
            shutil.copytree(os.path.join(source, "variables"), os.path.join(target, "variables"))
            eventually(lambda: answer(server) == 3.0, 30)


def case_status_and_metadata_over_rest(world):
    status, _, body = world.server.get("/v1/models/half_plus_two")
    assert (status, body) == (200, {"model_version_status": [{
        "version": "1", "state": "AVAILABLE",
        "status": {"error_code": "OK", "error_message": ""}}]})
    status, _, body = world.server.get("/v1/models/half_plus_two/metadata")
    assert body["model_spec"] == {"name": "half_plus_two", "signature_name": "", "version": "1"}
    signature = body["metadata"]["signature_def"]["signature_def"]["serving_default"]
    assert signature["method_name"] == "tensorflow/serving/predict"
    assert signature["inputs"]["x"] == {
        "dtype": "DT_FLOAT", "name": "x:0", "tensor_shape": {
            "unknown_rank": False, "dim": [{"size": "-1", "name": ""}, {"size": "1", "name": ""}]}}
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    request.model_spec.name = "half_plus_two"
    response = world.server.prediction.GetModelMetadata(request, 60)
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert response.metadata["signature_def"].Unpack(signatures)
    assert set(signatures.signature_def) >= {"serving_default", "regress_x_to_y", "classify_x"}
    request.metadata_field[0] = "other"
    refused(StatusCode.INVALID_ARGUMENT, "other",
            lambda: world.server.prediction.GetModelMetadata(request, 60))


def case_warm_up(world):
    log = prediction_log_pb2.PredictionLog()
    request = log.predict_log.request
    request.model_spec.name = "m"
    request.inputs["x"].CopyFrom(tf.make_tensor_proto(X))
    with Folder() as folder:
        folder.add(1, warm_up=[log])
        with world.start(f"--model=m={folder.path}", "--max_num_load_retries", "0") as server:
            assert answer(server) == 2.0
            # Recorded warm-up requests must succeed.
            request.inputs["z"].CopyFrom(tf.make_tensor_proto(X))
            folder.add(2, warm_up=[log])
            eventually(lambda: states(server).get(2, (0, 0))[0] == END)
            _, _, body = server.get("/v1/models/m/versions/2")
            message = body["model_version_status"][0]["status"]["error_message"]
            assert "warm-up request 1" in message and "z" in message, message
            assert answer(server) == 2.0
        with world.start(f"--model=m={folder.path}", "--enable_model_warmup=false") as server:
            assert answer(server) == 3.0


def case_memory_is_bounded(world):
    with Folder() as folder:
        folder.add(1)
        graph = tf.Graph()
        with graph.as_default(), tf.compat.v1.Session(graph=graph) as session:
            x = tf.compat.v1.placeholder(tf.float32, [None, 1], name="x")
            large = tf.compat.v1.get_variable("large", initializer=tf.ones([3 << 20]))
            y = tf.identity(x + large[0], name="y")
            session.run(tf.compat.v1.global_variables_initializer())
            hidden = os.path.join(folder.path, ".2")
            tf.compat.v1.saved_model.simple_save(session, hidden, {"x": x}, {"y": y})
            os.rename(hidden, os.path.join(folder.path, "2"))
        args = ["--memory_limit", "8", "--max_num_load_retries", "0"]
        file = os.path.join(folder.path, "models.config")
        with open(file, "w") as f:
            f.write(config(folder.path, "all {}"))
        with world.start("--model_config_file", file, *args) as server:
            eventually(lambda: states(server).get(2, (0, 0)) == (END, 8))
            _, _, body = server.get("/v1/models/m/versions/2")
            message = body["model_version_status"][0]["status"]["error_message"]
            assert "--memory-limit" in message, message
            assert answer(server) == 2.0


def case_one_version_at_a_time(world):
    with Folder() as folder:
        folder.add(1)
        with world.start(f"--model=m={folder.path}", "--transition", "resources") as server:
            assert answer(server) == 2.0
            folder.add(2)
            eventually(lambda: states(server).get(2, (0, 0))[0] == AVAILABLE)
            assert states(server)[1] == (END, 0)
            assert answer(server) == 3.0


def case_missing_versions_are_named(world):
    with Folder() as folder:
        folder.add(1)
        file = os.path.join(folder.path, "models.config")
        with open(file, "w") as f:
            f.write(config(folder.path, "specific { versions: 1 versions: 7 }"))
        # As in TensorFlow Serving's container: the file takes precedence.
        also = ["--model_name=model", "--model_base_path=/models/model"]
        server = world.start("--model_config_file", file, *also)
        with server:
            assert answer(server) == 2.0
            folder.add(7)
            eventually(lambda: states(server).get(7, (0, 0))[0] == AVAILABLE)
            assert answer(server) == 8.0
            said = server.stop()
        assert said.count("version 7 of model 'm' is configured, but ") == 1, said
        assert "--model-base-path has no effect beside --model-config-file" in said, said


def case_models_in_an_object_store(world):
    with Folder() as folder, Bucket(folder.path) as bucket:
        folder.add(1)
        with world.start("--model=m=s3://models/deep/m", environment=bucket.environment) as server:
            assert answer(server) == 2.0
            folder.add(2)
            eventually(lambda: states(server).get(2, (0, 0))[0] == AVAILABLE)
            assert answer(server) == 3.0
            assert answer(server) == 3.0


def case_versions_run_once_before_the_first_request(world):
    ran = ':tensorflow:serving:runtime_latency_count{model_name="m",API="Predict",runtime="Thalweg"}'
    model = f"--model=m={world.root}/half_plus_two"
    for flags, wanted in [([], True), (["--generated_warmup=false"], False)]:
        with world.start(model, *flags) as server:
            assert (ran in server.get("/monitoring/prometheus/metrics")[2]) == wanted
