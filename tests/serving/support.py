"""A server to ask, and ways to ask it."""

import gzip
import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import (
    model_service_pb2_grpc, predict_pb2, prediction_service_pb2_grpc, session_service_pb2)

START_SECONDS_MAX = 60


class Server:
    """A `thalweg serve` on ports of its own, ended with the block."""

    def __init__(self, thalweg, *args, wait=True, environment=None):
        command = [thalweg, "serve", "--port", "any", "--rest_api_port", "any", *args]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, **(environment or {})})
        self.grpc_address = self._address("gRPC")
        self.rest_address = self._address("HTTP")
        self.channel = grpc.insecure_channel(
            self.grpc_address, [("grpc.max_receive_message_length", -1),
                                ("grpc.max_send_message_length", -1)])
        self.prediction = prediction_service_pb2_grpc.PredictionServiceStub(self.channel)
        self.models = model_service_pb2_grpc.ModelServiceStub(self.channel)
        # The package has the messages of this service, but no stub.
        self.session_run = self.channel.unary_unary(
            "/tensorflow.serving.SessionService/SessionRun",
            session_service_pb2.SessionRunRequest.SerializeToString,
            session_service_pb2.SessionRunResponse.FromString)
        if wait:
            eventually(lambda: self.get("/readyz")[0] == 200)

    def _address(self, what):
        line = self.process.stdout.readline()
        assert line.startswith(what + " listening on "), (line, self.process.stderr.read())
        return line.split()[-1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self, how=signal.SIGTERM):
        """Ends it in order; what it said on standard error."""
        self.channel.close()
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            _, said = self.process.communicate(timeout=40)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        return said

    def cpu_seconds(self):
        """Time that its threads have run so far."""
        with open(f"/proc/{self.process.pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def get(self, path, **headers):
        return self.ask("GET", path, None, headers)

    def post(self, path, body, **headers):
        if not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        if isinstance(body, str):
            body = body.encode()
        return self.ask("POST", path, body, headers)

    def ask(self, method, path, body, headers):
        """Status, headers and body; JSON as what it stands for."""
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(
            f"http://{self.rest_address}{path}", body, headers, method=method)
        try:
            response = urllib.request.urlopen(request, timeout=60)
        except urllib.error.HTTPError as error:
            response = error
        with response:
            data = response.read()
            if response.headers.get("Content-Encoding") == "gzip":
                data = gzip.decompress(data)
            text = data.decode()
            if response.headers.get("Content-Type") == "application/json":
                text = json.loads(text)
            return response.status, response.headers, text

    def predict(self, model, inputs, signature="", version=None, label=None, outputs=(), **options):
        """Outputs by name, over gRPC."""
        return arrays(self.predict_message(
            model, inputs, signature, version, label, outputs, **options))

    def predict_message(
            self, model, inputs, signature="", version=None, label=None, outputs=(), timeout=60):
        request = predict_pb2.PredictRequest(output_filter=outputs)
        request.model_spec.name = model
        request.model_spec.signature_name = signature
        if version is not None:
            request.model_spec.version.value = version
        if label is not None:
            request.model_spec.version_label = label
        for name, value in inputs.items():
            request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
        return self.prediction.Predict(request, timeout=timeout)


def arrays(response):
    return {name: tf.make_ndarray(value) for name, value in response.outputs.items()}


def eventually(holds, seconds=START_SECONDS_MAX, every=0.02):
    """Waits until something holds."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it never came to hold"
        time.sleep(every)


def same(got, wanted, **tolerance):
    assert sorted(got) == sorted(wanted), (sorted(got), sorted(wanted))
    for name, value in wanted.items():
        assert got[name].dtype.kind == value.dtype.kind, (name, got[name].dtype, value.dtype)
        assert got[name].shape == value.shape, (name, got[name].shape, value.shape)
        if value.dtype.kind == "f":
            np.testing.assert_allclose(got[name], value, **{"rtol": 1e-6, "atol": 1e-6, **tolerance})
        else:
            np.testing.assert_array_equal(got[name], value, name)


def refused(code, words, call):
    """The call fails over gRPC with this code and these words."""
    try:
        call()
    except grpc.RpcError as error:
        assert error.code() == code, (error.code(), error.details())
        assert words in error.details(), error.details()
        return
    raise AssertionError(f"{words}: it was not refused")


def example(**features):
    made = tf.train.Example()
    for name, values in features.items():
        made.features.feature[name].float_list.value.extend(values)
    return made
