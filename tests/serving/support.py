"""A server under test, and its clients."""

import email.utils
import gzip
import http.server
import json
import os
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import (
    model_service_pb2_grpc, predict_pb2, prediction_service_pb2_grpc, session_service_pb2)

START_SECONDS_MAX = 60


class Server:
    """A `thalweg serve` on free ports, stopped at the end of the block."""

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
        # The package has the messages of this service, but not its stub.
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
        """Stops it with a signal, checks exit code 0 and that it did not panic; returns its standard error."""
        self.channel.close()
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            _, said = self.process.communicate(timeout=40)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        assert self.process.returncode == 0, (self.process.returncode, said)
        assert "panicked at" not in said, said
        return said

    def cpu_seconds(self):
        """CPU time of the process."""
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
        """Status, headers and body; JSON decoded."""
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


class Bucket:
    """A read-only S3 server with the files of a folder under `models/deep/m/`."""

    PREFIX = "deep/m/"

    def __init__(self, folder):
        self.folder = folder

    def __enter__(self):
        bucket = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_HEAD(self):
                bucket.answer(self)

            def do_GET(self):
                bucket.answer(self)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        host, port = self.server.server_address
        self.environment = {"S3_ENDPOINT": f"http://{host}:{port}", "AWS_ACCESS_KEY_ID": "",
                            "AWS_SECRET_ACCESS_KEY": ""}
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def keys(self):
        """Files by key; files of hidden folders are not listed."""
        found = {}
        for base, folders, files in os.walk(self.folder):
            folders[:] = [f for f in folders if not f.startswith(".")]
            for name in files:
                path = os.path.join(base, name)
                found[self.PREFIX + os.path.relpath(path, self.folder)] = path
        return found

    def answer(self, request):
        url = urllib.parse.urlsplit(request.path)
        query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        key = urllib.parse.unquote(url.path).removeprefix("/models").lstrip("/")
        if "list-type" in query:
            status, body, headers = 200, self.listing(query), {}
        else:
            status, body, headers = self.object(key, request.headers.get("Range"))
        request.send_response(status)
        for name, value in {"Content-Length": len(body), **headers}.items():
            request.send_header(name, value)
        request.end_headers()
        if request.command == "GET":
            request.wfile.write(body)

    def object(self, key, wanted):
        path = self.keys().get(key)
        if path is None:
            return 404, b"", {}
        with open(path, "rb") as file:
            data = file.read()
        headers = {"ETag": f'"{os.stat(path).st_mtime_ns}"',
                   "Last-Modified": email.utils.formatdate(os.stat(path).st_mtime, usegmt=True)}
        if not wanted:
            return 200, data, headers
        first, last = wanted.removeprefix("bytes=").split("-")
        first, last = int(first), min(int(last or len(data) - 1), len(data) - 1)
        if first >= len(data):
            return 416, b"", {}
        headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
        return 206, data[first:last + 1], headers

    def listing(self, query):
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        contents, prefixes = [], set()
        for key, path in sorted(self.keys().items()):
            if not key.startswith(prefix):
                continue
            rest = key[len(prefix):]
            if delimiter and delimiter in rest:
                prefixes.add(prefix + rest.split(delimiter)[0] + delimiter)
            else:
                contents.append(f"<Contents><Key>{key}</Key><Size>{os.path.getsize(path)}</Size></Contents>")
        common = "".join(f"<CommonPrefixes><Prefix>{p}</Prefix></CommonPrefixes>" for p in sorted(prefixes))
        return ("<ListBucketResult><IsTruncated>false</IsTruncated>"
                f"{''.join(contents)}{common}</ListBucketResult>").encode()


def arrays(response):
    return {name: tf.make_ndarray(value) for name, value in response.outputs.items()}


def eventually(holds, seconds=START_SECONDS_MAX, every=0.02):
    """Waits until a condition holds."""
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
    """Checks that the call fails over gRPC with this code and a message that contains these words."""
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
