"""gRPC reflection: clients without .proto files."""

import queue

from google.protobuf import descriptor_pool, message_factory
from grpc import StatusCode
from grpc_reflection.v1alpha import reflection_pb2 as pb
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase)

from support import eventually, refused

SERVICES = [
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
    "inference.GRPCInferenceService",
    "tensorflow.serving.ModelService",
    "tensorflow.serving.PredictionService",
]


def stream(server, version):
    return server.channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        pb.ServerReflectionRequest.SerializeToString, pb.ServerReflectionResponse.FromString)


def case_a_call_from_descriptions_alone(world):
    """Finds a method, builds its messages from the server's descriptors, and calls it."""
    database = ProtoReflectionDescriptorDatabase(world.server.channel)
    assert sorted(database.get_services()) == SERVICES
    pool = descriptor_pool.DescriptorPool(database)
    for name in SERVICES:
        assert pool.FindServiceByName(name).methods, name

    def call(service, method, **fields):
        found = pool.FindServiceByName(service).FindMethodByName(method)
        request = message_factory.GetMessageClass(found.input_type)(**fields)
        response = message_factory.GetMessageClass(found.output_type)
        path = f"/{service}/{method}"
        return world.server.channel.unary_unary(
            path, lambda m: m.SerializeToString(), response.FromString)(request, timeout=60)

    answer = call(
        "inference.GRPCInferenceService", "ModelInfer", model_name="half_plus_two",
        inputs=[{"name": "x", "datatype": "FP32", "shape": [2, 1],
                 "contents": {"fp32_contents": [1, 5]}}])
    assert list(answer.outputs[0].contents.fp32_contents) == [2.5, 4.5]
    # Its messages come from many files.
    answer = call(
        "tensorflow.serving.PredictionService", "Predict", model_spec={"name": "half_plus_two"},
        inputs={"x": {"dtype": 1, "float_val": [1, 5], "tensor_shape": {
            "dim": [{"size": 2}, {"size": 1}]}}})
    assert list(answer.outputs["y"].float_val) == [2.5, 4.5]


def case_both_versions(world):
    for version in ["v1", "v1alpha"]:
        asked = [
            pb.ServerReflectionRequest(host="h", list_services="*"),
            pb.ServerReflectionRequest(file_by_filename="inference/inference.proto"),
            pb.ServerReflectionRequest(file_containing_symbol="no.Such"),
            pb.ServerReflectionRequest(),
        ]
        found = list(stream(world.server, version)(iter(asked), timeout=60))
        assert [one.original_request for one in found] == asked
        assert [s.name for s in found[0].list_services_response.service] == SERVICES
        assert len(found[1].file_descriptor_response.file_descriptor_proto) == 1
        assert found[2].error_response.error_code == StatusCode.NOT_FOUND.value[0]
        assert found[3].error_response.error_code == StatusCode.INVALID_ARGUMENT.value[0]


def case_hostile_streams(world):
    call = world.server.channel.stream_stream(
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
    refused(StatusCode.RESOURCE_EXHAUSTED, "at most",
            lambda: list(call(iter([b"\x0a" + b"x" * 100000]), timeout=60)))
    refused(StatusCode.INVALID_ARGUMENT, "cannot be decoded",
            lambda: list(call(iter([b"\xff"]), timeout=60)))
    other = world.server.channel.stream_stream("/grpc.reflection.v1.ServerReflection/Other")
    refused(StatusCode.UNIMPLEMENTED, "Other", lambda: list(other(iter([b""]), timeout=60)))


def case_an_open_stream_does_not_delay_shutdown(world):
    with world.start(f"--model=m={world.root}/half_plus_two") as server:
        waiting = queue.Queue()
        waiting.put(pb.ServerReflectionRequest(list_services="*"))
        answers = stream(server, "v1")(iter(waiting.get, None))
        assert next(answers).list_services_response.service
        server.process.terminate()
        eventually(lambda: server.process.poll() is not None, seconds=20)
        assert server.process.returncode == 0
        waiting.put(None)
