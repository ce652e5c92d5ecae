"""Classify, Regress and MultiInference with tf.Example."""

import numpy as np
import tensorflow as tf
from grpc import StatusCode
from tensorflow_serving.apis import classification_pb2, inference_pb2, regression_pb2

from support import example, refused

X = [1.0, 2.0, 5.0]
MODEL = "/v1/models/half_plus_two"


def wanted(world, signature):
    reference = world.reference("half_plus_two")
    serialized = [example(x=[x]).SerializeToString() for x in X]
    return reference(signature, inputs=np.array(serialized, object))


def fill(request, signature, context=None):
    request.model_spec.name = "half_plus_two"
    request.model_spec.signature_name = signature
    add_examples(request.input, context)
    return request


def add_examples(target, context=None):
    if context is None:
        target.example_list.examples.extend([example(x=[x]) for x in X])
    else:
        target.example_list_with_context.context.CopyFrom(example(x=[context]))
        target.example_list_with_context.examples.extend([tf.train.Example(), example(x=[5.0])])


def case_classify(world):
    found = wanted(world, "classify_x")
    response = world.server.prediction.Classify(
        fill(classification_pb2.ClassificationRequest(), "classify_x"), 60)
    assert response.model_spec.signature_name == "classify_x"
    rows = response.result.classifications
    labels = [[c.label.encode() for c in row.classes] for row in rows]
    scores = [[c.score for c in row.classes] for row in rows]
    assert labels == found["classes"].tolist()
    assert scores == found["scores"].tolist()
    status, _, body = world.server.post(
        f"{MODEL}:classify",
        {"signature_name": "classify_x", "examples": [{"x": x} for x in X]})
    assert status == 200, body
    assert [[c[0].encode() for c in row] for row in body["results"]] == labels
    assert [[c[1] for c in row] for row in body["results"]] == scores


def case_regress(world):
    found = wanted(world, "regress_x_to_y")["outputs"].reshape(-1).tolist()
    response = world.server.prediction.Regress(
        fill(regression_pb2.RegressionRequest(), "regress_x_to_y"), 60)
    assert [r.value for r in response.result.regressions] == found
    status, _, body = world.server.post(
        f"{MODEL}/versions/1:regress",
        {"signature_name": "regress_x_to_y", "examples": [{"x": [x]} for x in X]})
    assert (status, body) == (200, {"results": found})


def case_context(world):
    request = fill(regression_pb2.RegressionRequest(), "regress_x_to_y", context=3.0)
    response = world.server.prediction.Regress(request, 60)
    assert [r.value for r in response.result.regressions] == [3.5, 4.5]
    _, _, body = world.server.post(f"{MODEL}:regress", {
        "signature_name": "regress_x_to_y", "context": {"x": 3.0}, "examples": [{}, {"x": 5.0}]})
    assert body == {"results": [3.5, 4.5]}


def case_several_heads(world):
    request = inference_pb2.MultiInferenceRequest()
    add_examples(request.input)
    for signature, method in [("regress_x_to_y", "regress"), ("classify_x", "classify")]:
        task = request.tasks.add(method_name=f"tensorflow/serving/{method}")
        task.model_spec.name = "half_plus_two"
        task.model_spec.signature_name = signature
    response = world.server.prediction.MultiInference(request, 60)
    first, second = response.results
    assert [r.value for r in first.regression_result.regressions] == [2.5, 3.0, 4.5]
    assert len(second.classification_result.classifications) == 3
    assert second.model_spec.signature_name == "classify_x"
    request.tasks[1].model_spec.signature_name = "regress_x_to_y"
    refused(StatusCode.INVALID_ARGUMENT, "twice",
            lambda: world.server.prediction.MultiInference(request, 60))
    request.tasks[1].model_spec.name = "mlp"
    refused(StatusCode.INVALID_ARGUMENT, "same model",
            lambda: world.server.prediction.MultiInference(request, 60))


def case_mistakes(world):
    classify = world.server.prediction.Classify
    request = classification_pb2.ClassificationRequest()
    request.model_spec.name = "half_plus_two"
    request.model_spec.signature_name = "classify_x"
    refused(StatusCode.INVALID_ARGUMENT, "empty", lambda: classify(request, 60))
    for signature, words in [("regress_x_to_y", "method_name"), ("", "method_name"), ("no", "no")]:
        wrong = fill(classification_pb2.ClassificationRequest(), signature)
        refused(StatusCode.INVALID_ARGUMENT, words, lambda: classify(wrong, 60))
    for body, words in [
        ({}, "examples"),
        ({"examples": []}, "empty"),
        ({"examples": [1]}, "must be JSON object"),
        ({"examples": [{"x": [1.5, "a"]}]}, "expecting type: float"),
        ({"examples": [{"x": None}]}, "Null"),
    ]:
        status, _, answer = world.server.post(f"{MODEL}:classify", body)
        assert status == 400 and words in answer["error"], (body, answer)
