"""KServe's protocol: Triton's own client over gRPC, plain HTTP, against TensorFlow's own answers."""

import base64
import json
import struct
import urllib.request

import numpy as np
import tritonclient.grpc as triton
import tritonclient.http as triton_http
from grpc import StatusCode
from tritonclient.grpc import service_pb2 as pb
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

import models
from support import example, refused, same

SERVICE = "/inference.GRPCInferenceService/"
X = np.array([[1.0], [2.0], [5.0]], np.float32)


def client(server):
    return triton.InferenceServerClient(server.grpc_address)


def given(inputs):
    """Inputs in the form of Triton's client, which sends them raw."""
    made = []
    for name, value in inputs.items():
        one = triton.InferInput(name, value.shape, np_to_triton_dtype(value.dtype))
        made.append(one.set_data_from_numpy(value))
    return made


def infer(server, model, inputs, outputs=None, **options):
    """Outputs by name, over gRPC, raw in both directions."""
    asked = outputs and [triton.InferRequestedOutput(name) for name in outputs]
    with client(server) as asking:
        result = asking.infer(model, given(inputs), outputs=asked, **options)
        names = [output.name for output in result.get_response().outputs]
        return {name: result.as_numpy(name) for name in names}


def model_infer(server):
    return server.channel.unary_unary(
        SERVICE + "ModelInfer", pb.ModelInferRequest.SerializeToString,
        pb.ModelInferResponse.FromString)


def typed(model, **inputs):
    """A request with its values in typed fields: name -> (datatype, shape, field, values)."""
    request = pb.ModelInferRequest(model_name=model, id="7")
    for name, (datatype, shape, field, values) in inputs.items():
        one = request.inputs.add(name=name, datatype=datatype, shape=shape)
        getattr(one.contents, field).extend(values)
    return request


def case_the_server_and_its_models(world):
    with client(world.server) as asking:
        assert asking.is_server_live() and asking.is_server_ready()
        assert asking.is_model_ready("mlp") and asking.is_model_ready("mlp", "1")
        assert not asking.is_model_ready("mlp", "2")
        assert asking.get_server_metadata().name == "thalweg"
        found = asking.get_model_metadata("shapes")
        assert (found.platform, list(found.versions)) == ("tensorflow_savedmodel", ["1"])
        inputs = {t.name: (t.datatype, list(t.shape)) for t in found.inputs}
        assert inputs == {"a": ("FP32", [-1, -1]), "b": ("INT64", [-1]), "c": ("BOOL", [-1])}
        assert {t.name: t.datatype for t in found.outputs}["half"] == "FP16"
    ready = world.server.channel.unary_unary(
        SERVICE + "ModelReady", pb.ModelReadyRequest.SerializeToString)
    refused(StatusCode.NOT_FOUND, "unknown model 'x'", lambda: ready(pb.ModelReadyRequest(name="x")))
    call = world.server.channel.unary_unary(SERVICE + "ModelStatistics")
    refused(StatusCode.UNIMPLEMENTED, "ModelStatistics", lambda: call(b""))


def case_tritons_client(world):
    same(infer(world.server, "half_plus_two", {"x": X}), {"y": X / 2 + 2})
    x = np.random.default_rng(2).normal(size=(50, 4)).astype(np.float32)
    wanted = world.reference("mlp")(features=x)
    same(infer(world.server, "mlp", {"features": x}), wanted)
    same(infer(world.server, "mlp", {"features": x}, model_version="1"), wanted)
    # Large enough for separate memory; the sums do not depend on the order.
    large = np.random.default_rng(3).integers(-9, 9, (300, 400)).astype(np.float32)
    small = {"b": np.array([-3, 16], np.int64), "c": np.array([True, False])}
    wanted = world.reference("shapes")(a=large, **small)
    same(infer(world.server, "shapes", {"a": large, **small}), wanted)
    some = infer(world.server, "shapes", {"a": large, **small}, ["square", "half"])
    same(some, {name: wanted[name] for name in ["square", "half"]})
    assert list(some) == ["square", "half"]
    empty = large[:0]
    same(infer(world.server, "shapes", {"a": empty, **small}),
         world.reference("shapes")(a=empty, **small))


def encoded(array):
    """Strings as bytes: Triton's client decodes strings in JSON to text."""
    if array.dtype != object:
        return array
    items = [item.encode() if isinstance(item, str) else item for item in array.ravel()]
    return np.array(items, object).reshape(array.shape)


def case_tritons_client_over_http(world):
    """Its tensors are sent raw after the JSON, which is its default, or in the JSON; compressed on request."""
    words = np.array([b"beta", "d\u00e9lta".encode(), b""], object)
    asked = [
        ("half_plus_two", {"x": X}),
        ("words", {"word": words}),
        ("shapes", {"a": np.full((3, 2), 1.5, np.float32), "b": np.array([-3, 16], np.int64),
                    "c": np.array([True, False])}),
    ]
    with triton_http.InferenceServerClient(world.server.rest_address) as asking:
        assert asking.is_server_live() and asking.is_server_ready()
        assert asking.is_model_ready("mlp") and not asking.is_model_ready("mlp", "2")
        assert "binary_tensor_data" in asking.get_server_metadata()["extensions"]
        found = asking.get_model_metadata("half_plus_two", "1")
        assert found["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 1]}], found
        for model, inputs in asked:
            wanted = world.reference(model)(**inputs)
            for binary, packed in [(True, None), (False, None), (True, "gzip"), (False, "gzip")]:
                # Triton's client cannot send FP16 as JSON.
                names = [n for n, value in wanted.items() if binary or value.dtype != np.float16]
                given = []
                for name, value in inputs.items():
                    one = triton_http.InferInput(name, value.shape, np_to_triton_dtype(value.dtype))
                    given.append(one.set_data_from_numpy(value, binary_data=binary))
                outputs = [triton_http.InferRequestedOutput(n, binary_data=binary) for n in names]
                result = asking.infer(
                    model, given, outputs=outputs, request_id="7",
                    request_compression_algorithm=packed, response_compression_algorithm=packed)
                assert result.get_response()["id"] == "7"
                same({n: encoded(result.as_numpy(n)) for n in names}, {n: wanted[n] for n in names})
        for call in [lambda: asking.get_model_config("mlp"), lambda: asking.infer("no", given)]:
            try:
                call()
                raise AssertionError("it should have been refused")
            except InferenceServerException as error:
                assert error.message(), error


def case_strings(world):
    words = np.array(["beta".encode(), "d\u00e9lta".encode(), b"", b"\xff"], object)
    wanted = world.reference("words")(word=words)
    same(infer(world.server, "words", {"word": words}), wanted)
    response = model_infer(world.server)(
        typed("words", word=("BYTES", [4], "bytes_contents", list(words))))
    assert not response.raw_output_contents
    found = {o.name: list(o.contents.bytes_contents or o.contents.int64_contents)
             for o in response.outputs}
    assert found == {name: value.tolist() for name, value in wanted.items()}
    picture = np.array([models.picture()], object)
    same(infer(world.server, "image", {"image_bytes": picture}),
         world.reference("image")(image_bytes=picture))
    body = {"inputs": [{"name": "word", "shape": [2], "datatype": "BYTES",
                        "data": ["beta", {"b64": base64.b64encode(words[1]).decode()}]}]}
    status, _, answer = world.server.post("/v2/models/words/infer", body)
    assert status == 200, answer
    found = {o["name"]: o["data"] for o in answer["outputs"]}
    assert found == {"id": [1, 3], "next": ["gamma", "?"], "next_bytes": ["beta", "d\u00e9lta"]}


def case_typed_contents(world):
    infer = model_infer(world.server)
    response = infer(typed("half_plus_two", x=("FP32", [3, 1], "fp32_contents", [1, 2, 5])))
    assert (response.model_name, response.model_version, response.id) == ("half_plus_two", "1", "7")
    [y] = response.outputs
    assert (y.name, y.datatype, list(y.shape)) == ("y", "FP32", [3, 1])
    assert list(y.contents.fp32_contents) == [2.5, 3.0, 4.5]
    request = typed(
        "shapes", a=("FP32", [1, 2], "fp32_contents", [1, 2]),
        b=("INT64", [2], "int64_contents", [-3, 16]), c=("BOOL", [1], "bool_contents", [True]))
    for name in ["wide", "small", "square", "other"]:
        request.outputs.add(name=name)
    found = {o.name: o for o in infer(request).outputs}
    assert list(found) == ["wide", "small", "square", "other"]
    assert list(found["wide"].contents.fp64_contents) == [1 / 3, 2 / 3]
    assert list(found["small"].contents.uint_contents) == [253, 16]
    assert list(found["square"].contents.int64_contents) == [9, 256]
    assert list(found["other"].contents.bool_contents) == [False]
    # Half precision has no typed form, so the whole response is raw.
    request.outputs.add(name="half")
    response = infer(request)
    assert np.frombuffer(response.raw_output_contents[4], np.float16).tolist() == [1.0, 2.0]
    assert len(response.raw_output_contents) == 5 and not response.outputs[0].HasField("contents")


def case_signatures(world):
    examples = [example(x=[4.0]).SerializeToString()]
    request = typed("half_plus_two", inputs=("BYTES", [1], "bytes_contents", examples))
    request.parameters["signature_name"].string_param = "regress_x_to_y"
    request.parameters["priority"].int64_param = 1
    assert list(model_infer(world.server)(request).outputs[0].contents.fp32_contents) == [4.0]
    body = {"parameters": {"signature_name": "regress_x_to_y"},
            "inputs": [{"name": "inputs", "shape": [1], "datatype": "BYTES",
                        "data": [{"b64": base64.b64encode(examples[0]).decode()}]}]}
    status, _, answer = world.server.post("/v2/models/half_plus_two/infer", body)
    assert (status, answer["outputs"][0]["data"]) == (200, [4.0]), answer
    request.parameters["signature_name"].string_param = "nothing"
    refused(StatusCode.FAILED_PRECONDITION, '"nothing" not found',
            lambda: model_infer(world.server)(request))


def case_over_http(world):
    server = world.server
    assert server.get("/v2")[2]["name"] == "thalweg"
    assert server.get("/v2/health/live")[2] == {"live": True}
    assert server.get("/v2/health/ready")[2] == {"ready": True}
    assert server.get("/v2/models/mlp/ready")[::2] == (200, {"name": "mlp", "ready": True})
    assert server.get("/v2/models/mlp/versions/9/ready")[0] == 503
    status, _, found = server.get("/v2/models/half_plus_two/versions/1")
    assert (status, found) == (200, {
        "name": "half_plus_two", "versions": ["1"], "platform": "tensorflow_savedmodel",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 1]}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 1]}]})
    for data in [[1.0, 2.0, 5.0], [[1.0], [2.0], [5.0]]]:
        body = {"id": "a\"b", "inputs": [
            {"name": "x", "shape": [3, 1], "datatype": "FP32", "data": data}]}
        for path in ["/v2/models/half_plus_two/infer", "/v2/models/half_plus_two/versions/1/infer"]:
            status, _, answer = server.post(path, body)
            assert (status, answer) == (200, {
                "model_name": "half_plus_two", "model_version": "1", "id": "a\"b",
                "outputs": [{"name": "y", "shape": [3, 1], "datatype": "FP32",
                             "data": [2.5, 3.0, 4.5]}]}), answer


def case_every_type_over_http(world):
    a = np.random.default_rng(4).normal(size=(2, 3)).astype(np.float32)
    inputs = {"a": a, "b": np.array([-3, 16], np.int64), "c": np.array([True, False])}
    wanted = world.reference("shapes")(**inputs)
    body = {"inputs": [
        {"name": name, "shape": value.shape, "datatype": np_to_triton_dtype(value.dtype),
         "data": value.tolist()} for name, value in inputs.items()]}
    _, _, answer = world.server.post("/v2/models/shapes/infer", body)
    found = {}
    for output in answer["outputs"]:
        dtype = wanted[output["name"]].dtype
        assert output["datatype"] == np_to_triton_dtype(dtype)
        found[output["name"]] = np.array(output["data"], dtype).reshape(output["shape"])
    same(found, wanted)
    body["outputs"] = [{"name": "square"}]
    _, _, answer = world.server.post("/v2/models/shapes/infer", body)
    assert [output["name"] for output in answer["outputs"]] == ["square"]


def case_raw_tensors_over_http(world):
    """In the encoding of Triton's client: JSON, followed by bytes."""
    head = {"parameters": {"binary_data_output": True},
            "inputs": [{"name": "x", "shape": [3, 1], "datatype": "FP32",
                        "parameters": {"binary_data_size": 12}}]}
    text = json.dumps(head).encode()
    request = urllib.request.Request(
        f"http://{world.server.rest_address}/v2/models/half_plus_two/infer", text + X.tobytes(),
        {"Inference-Header-Content-Length": str(len(text))})
    with urllib.request.urlopen(request, timeout=60) as response:
        data = response.read()
        size = int(response.headers["Inference-Header-Content-Length"])
    [output] = json.loads(data[:size])["outputs"]
    assert output == {"name": "y", "shape": [3, 1], "datatype": "FP32",
                      "parameters": {"binary_data_size": 12}}
    assert struct.unpack("<3f", data[size:]) == (2.5, 3.0, 4.5)


def case_invalid_requests(world):
    infer = model_infer(world.server)
    wrong = [
        (StatusCode.NOT_FOUND, "nothing", typed("nothing")),
        (StatusCode.INVALID_ARGUMENT, "unexpected input 'z'; the inputs are {x",
         typed("half_plus_two", z=("FP32", [1, 1], "fp32_contents", [1]))),
        (StatusCode.INVALID_ARGUMENT, "Missing: {x}", typed("half_plus_two")),
        (StatusCode.INVALID_ARGUMENT, "unknown datatype 'FLOAT'",
         typed("half_plus_two", x=("FLOAT", [1, 1], "fp32_contents", [1]))),
        (StatusCode.INVALID_ARGUMENT, "float was expected",
         typed("half_plus_two", x=("FP64", [1, 1], "fp64_contents", [1]))),
        (StatusCode.INVALID_ARGUMENT, "1 values are not",
         typed("half_plus_two", x=("FP32", [1 << 40, 1], "fp32_contents", [1]))),
        (StatusCode.INVALID_ARGUMENT, "at least 0",
         typed("half_plus_two", x=("FP32", [-1, 1], "fp32_contents", [1]))),
        (StatusCode.INVALID_ARGUMENT, "shape",
         typed("half_plus_two", x=("FP32", [1], "fp32_contents", [1]))),
        (StatusCode.INVALID_ARGUMENT, "belong in fp32_contents",
         typed("half_plus_two", x=("FP32", [1, 1], "int_contents", [1]))),
    ]
    raw = typed("half_plus_two", x=("FP32", [1, 1], "fp32_contents", []))
    raw.inputs[0].ClearField("contents")
    raw.raw_input_contents.append(b"123")
    wrong.append((StatusCode.INVALID_ARGUMENT, "3 bytes are not", raw))
    version = typed("half_plus_two", x=("FP32", [1, 1], "fp32_contents", [1]))
    version.model_version = "9"
    wrong.append((StatusCode.NOT_FOUND, "available versions: {1}", version))
    output = typed("half_plus_two", x=("FP32", [1, 1], "fp32_contents", [1]))
    output.outputs.add(name="z")
    wrong.append((StatusCode.INVALID_ARGUMENT, "unexpected output 'z'", output))
    for code, words, request in wrong:
        refused(code, words, lambda: infer(request, timeout=60))
    with client(world.server) as asking:
        try:
            asking.infer("half_plus_two", given({"x": X}), sequence_id=3)
            raise AssertionError("it was not refused")
        except InferenceServerException as error:
            assert "sequence" in error.message(), error


def case_invalid_bodies(world):
    path = "/v2/models/half_plus_two/infer"
    x = {"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [1]}
    bare = {name: value for name, value in x.items() if name != "data"}
    for status, words, body in [
        (400, "no 'inputs'", {}),
        (400, "neither 'data'", {"inputs": [bare]}),
        (400, "twice", {"inputs": [x, x]}),
        (400, "not a tensor", {"inputs": [{**x, "shape": [1 << 40, 1 << 20]}]}),
        (400, "Nested deeper", '{"inputs": [{"name": "x", "data": ' + "[" * 1000000),
        (400, "are left", {"inputs": [{**bare, "parameters": {"binary_data_size": 1 << 40}}]}),
        (501, "shared memory", {"inputs": [{**x, "parameters": {"shared_memory_region": "r"}}]}),
    ]:
        found, _, answer = world.server.post(path, body)
        assert found == status and words in answer["error"], (words, found, answer)
    text = json.dumps({"inputs": [x]})
    for length, words in [(len(text), "belong to no input"), (1 << 40, "should have"), (-1, "not a number")]:
        found, _, answer = world.server.post(
            path, text + "more", Inference_Header_Content_Length=str(length))
        assert found == 400 and words in answer["error"], (words, found, answer)
    assert world.server.post("/v2/models/nothing/infer", {})[0] == 404
    assert world.server.get("/v2/models/nothing/ready")[0] == 404
    assert world.server.get("/v2/nothing")[0] == 404
