"""Predict over gRPC and REST, against TensorFlow's own answers."""

import base64
import gzip
import json
import time

import grpc
import numpy as np
import tensorflow as tf
from grpc import StatusCode
from tensorflow_serving.apis import predict_pb2

import models
from support import eventually, refused, same


def case_half_plus_two(world):
    x = np.array([[1.0], [2.0], [5.0]], np.float32)
    response = world.server.predict_message("half_plus_two", {"x": x})
    # Many clients read only the typed field.
    assert list(response.outputs["y"].float_val) == [2.5, 3.0, 4.5]
    spec = response.model_spec
    assert (spec.name, spec.version.value, spec.signature_name) == (
        "half_plus_two", 1, "serving_default")
    status, _, body = world.server.post(
        "/v1/models/half_plus_two:predict", {"instances": [[1.0], [2.0], [5.0]]})
    assert (status, body) == (200, {"predictions": [[2.5], [3.0], [4.5]]})


def case_a_keras_model(world):
    x = np.random.default_rng(1).normal(size=(33, 4)).astype(np.float32)
    wanted = world.reference("mlp")(features=x)
    same(world.server.predict("mlp", {"features": x}), wanted)
    name = next(iter(wanted))
    _, _, body = world.server.post("/v1/models/mlp:predict", {"instances": x.tolist()})
    same({name: np.array(body["predictions"], np.float32)}, wanted)
    _, _, body = world.server.post("/v1/models/mlp:predict", {"inputs": {"features": x.tolist()}})
    same({name: np.array(body["outputs"], np.float32)}, wanted)


def case_strings_and_tables(world):
    words = np.array(["beta", "d\u00e9lta", "nothing"], object)
    wanted = world.reference("words")(word=words)
    same(world.server.predict("words", {"word": words}), wanted)
    _, _, body = world.server.post(
        "/v1/models/words:predict", {"instances": [{"word": w} for w in words]})
    rows = body["predictions"]
    assert [row["id"] for row in rows] == wanted["id"].tolist()
    assert [row["next"].encode() for row in rows] == wanted["next"].tolist()
    coded = [base64.b64decode(row["next_bytes"]["b64"]) for row in rows]
    assert coded == wanted["next_bytes"].tolist()


def case_an_image(world):
    data = models.picture()
    wanted = world.reference("image")(image_bytes=np.array([data, data], object))
    same(world.server.predict("image", {"image_bytes": np.array([data, data], object)}), wanted)
    coded = {"b64": base64.b64encode(data).decode()}
    for body in [{"instances": [coded, coded]}, {"instances": [{"image_bytes": coded}] * 2}]:
        status, _, answer = world.server.post("/v1/models/image:predict", body)
        assert status == 200, answer
        same({"mean": np.array(answer["predictions"], np.float32)}, wanted)


def case_dynamic_shapes_and_dtypes(world):
    for rows, columns in [(1, 1), (3, 5), (2, 0)]:
        a = np.linspace(-3, 900, rows * columns, dtype=np.float32).reshape(rows, columns)
        b = np.arange(rows, dtype=np.int64) + 250
        c = b % 2 == 0
        wanted = world.reference("shapes")(a=a, b=b, c=c)
        same(world.server.predict("shapes", {"a": a, "b": b, "c": c}), wanted)
        inputs = {"a": a.tolist(), "b": b.tolist(), "c": c.tolist()}
        status, _, body = world.server.post("/v1/models/shapes:predict", {"inputs": inputs})
        assert status == 200, body
        found = {n: np.array(v, wanted[n].dtype).reshape(wanted[n].shape)
                 for n, v in body["outputs"].items()}
        same(found, wanted)


def sized_plans(server, model):
    """The number of plans for specific shapes that the server keeps for a model."""
    lines = server.get("/monitoring/prometheus/metrics")[2].splitlines()
    start = f'thalweg_serve_sized_plans{{model="{model}"'
    return sum(int(line.split()[-1]) for line in lines if line.startswith(start))


def case_frequent_shapes(world):
    """They get plans of their own, with the same results."""
    random = np.random.default_rng(2)
    with world.start(f"--model=mlp={world.root}/mlp") as server:
        def ask():
            for rows in [1, 3, 17]:
                x = random.normal(size=(rows, 4)).astype(np.float32)
                same(server.predict("mlp", {"features": x}), world.reference("mlp")(features=x))
            return sized_plans(server, "mlp") >= 3

        assert sized_plans(server, "mlp") == 0
        eventually(ask)
        ask()


def case_numbers_in_typed_fields(world):
    """As many values as the shape has elements, fewer, more: decoded as TensorFlow does."""
    for values, shape in [([1.0, 2.0, 5.0], [3, 1]), ([4.0], [3, 1]), ([1.0, 2.0, 9.0], [2, 1])]:
        request = predict_pb2.PredictRequest()
        request.model_spec.name = "half_plus_two"
        x = request.inputs["x"]
        x.dtype = tf.float32.as_datatype_enum
        x.tensor_shape.CopyFrom(tf.TensorShape(shape).as_proto())
        x.float_val[:] = values
        padded = (values + values[-1:] * shape[0])[:shape[0]]
        response = world.server.prediction.Predict(request, 60)
        assert list(response.outputs["y"].float_val) == [v / 2 + 2 for v in padded]


def case_an_output_filter(world):
    inputs = {"a": np.ones((2, 3), np.float32), "b": np.ones(2, np.int64), "c": np.ones(2, bool)}
    found = world.server.predict("shapes", inputs, outputs=["sum", "other"])
    assert sorted(found) == ["other", "sum"]
    for outputs, words in [(["nothing"], "not found in signature"), (["sum", "sum"], "duplicate")]:
        refused(StatusCode.INVALID_ARGUMENT, words,
                lambda: world.server.predict("shapes", inputs, outputs=outputs))


def case_mistakes_over_grpc(world):
    ask = world.server.predict
    x = np.ones((1, 1), np.float32)
    refused(StatusCode.NOT_FOUND, "nothing", lambda: ask("nothing", {"x": x}))
    refused(StatusCode.NOT_FOUND, "7", lambda: ask("half_plus_two", {"x": x}, version=7))
    refused(StatusCode.INVALID_ARGUMENT, "label", lambda: ask("half_plus_two", {"x": x}, label="l"))
    refused(StatusCode.INVALID_ARGUMENT, "name", lambda: ask("", {"x": x}))
    refused(StatusCode.FAILED_PRECONDITION, "nosuch", lambda: ask("half_plus_two", {"x": x}, "nosuch"))
    refused(StatusCode.INVALID_ARGUMENT, "z", lambda: ask("half_plus_two", {"z": x}))
    refused(StatusCode.INVALID_ARGUMENT, "x", lambda: ask("half_plus_two", {}))
    refused(StatusCode.INVALID_ARGUMENT, "x", lambda: ask("half_plus_two", {"x": x, "z": x}))
    refused(StatusCode.INVALID_ARGUMENT, "int32", lambda: ask("half_plus_two", {"x": [[1]]}))
    refused(StatusCode.INVALID_ARGUMENT, "shape", lambda: ask("half_plus_two", {"x": x[0]}))


def case_mistakes_over_rest(world):
    model = "/v1/models/half_plus_two"
    for path, body, code, words in [
        ("/v1/models/nothing:predict", {"instances": [1]}, 404, "nothing"),
        (f"{model}/versions/7:predict", {"instances": [1]}, 404, "7"),
        (f"{model}/labels/l:predict", {"instances": [1]}, 400, "label"),
        (f"{model}:explain", {}, 400, "Malformed request: POST"),
        (f"{model}:predict", "", 400, "The document is empty"),
        (f"{model}:predict", "{", 400, "JSON Parse error"),
        (f"{model}:predict", "[1]", 400, "Is not object"),
        (f"{model}:predict", {}, 400, "Missing 'inputs' or 'instances' key"),
        (f"{model}:predict", {"instances": 1}, 400, "list/array"),
        (f"{model}:predict", {"instances": []}, 400, "No values"),
        (f"{model}:predict", {"instances": [["a"]]}, 400, "is not of expected type: float"),
        (f"{model}:predict", {"instances": [[1], [1, 2]]}, 400, "unexpected size"),
        (f"{model}:predict", {"instances": [1]}, 400, "shape"),
        (f"{model}:predict", {"instances": [[16777217]]}, 400, "loss of precision"),
        (f"{model}:predict", {"signature_name": "no", "instances": [[1]]}, 400, "no"),
        (f"{model}:predict", "[" * 100000, 400, "Nested deeper"),
        ("/other", {}, 404, "/other"),
    ]:
        status, headers, answer = world.server.post(path, body)
        assert status == code, (path, body, status, answer)
        assert list(answer) == ["error"] and words in answer["error"], (path, answer)
        assert headers["Content-Type"] == "application/json"


def case_deadlines(world):
    with world.start(f"--model=loop={world.root}/loop", "--rest_api_timeout_in_ms=300") as server:
        refused(StatusCode.DEADLINE_EXCEEDED, "", lambda: server.predict(
            "loop", {"n": np.int64(10**12)}, timeout=0.3))
        status, _, body = server.post("/v1/models/loop:predict", {"inputs": 10**12})
        assert status == 504, body
        # The cancelled step has ended.
        def idles():
            before = server.cpu_seconds()
            time.sleep(0.5)
            return server.cpu_seconds() - before < 0.1
        eventually(idles, 20)
        assert server.predict("loop", {"n": np.int64(5)})["i"] == 5


def case_large_tensors(world):
    a = np.random.default_rng(2).normal(size=(2000, 1000)).astype(np.float32)
    b, c = np.zeros(2000, np.int64), np.zeros(2000, bool)
    found = world.server.predict("shapes", {"a": a, "b": b, "c": c}, outputs=["grid"])
    np.testing.assert_array_equal(found["grid"], a * 2)


def case_gzip(world):
    x = np.ones((500, 1)).tolist()
    body = gzip.compress(json.dumps({"instances": x}).encode())
    status, headers, answer = world.server.post(
        "/v1/models/half_plus_two:predict", body,
        Content_Encoding="gzip", Accept_Encoding="gzip")
    assert (status, headers["Content-Encoding"]) == (200, "gzip")
    assert answer == {"predictions": [[2.5]] * 500}
    status, _, answer = world.server.post(
        "/v1/models/half_plus_two:predict", b"no", Content_Encoding="gzip")
    assert status == 400, answer


def case_compressed_messages(world):
    for compression in [grpc.Compression.Gzip, grpc.Compression.Deflate]:
        request = predict_pb2.PredictRequest()
        request.model_spec.name = "half_plus_two"
        request.inputs["x"].CopyFrom(tf.make_tensor_proto(np.zeros((5000, 1), np.float32)))
        response = world.server.prediction.Predict(request, 60, compression=compression)
        assert set(response.outputs["y"].float_val) == {2.0}


def case_concurrent_requests(world):
    futures = []
    for i in range(300):
        request = predict_pb2.PredictRequest()
        request.model_spec.name = "half_plus_two"
        request.inputs["x"].CopyFrom(tf.make_tensor_proto([[float(i)]]))
        futures.append(world.server.prediction.Predict.future(request, 60))
    for i, future in enumerate(futures):
        assert future.result().outputs["y"].float_val[0] == i / 2 + 2


def case_an_unknown_method(world):
    call = world.server.channel.unary_unary("/tensorflow.serving.PredictionService/Nothing")
    refused(StatusCode.UNIMPLEMENTED, "Nothing", lambda: call(b""))
    call = world.server.channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
    refused(StatusCode.INVALID_ARGUMENT, "cannot be decoded", lambda: call(b"\xff\xff"))
