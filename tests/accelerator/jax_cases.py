"""Models of JAX and of Keras on JAX, whose SavedModels hold StableHLO, in all that runs models."""

import contextlib
import http.client
import json
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
SAVED_MODELS = pathlib.Path(__file__).resolve().parents[2] / "testdata" / "saved_models"
STOP_SECONDS_MAX = 20


@contextlib.contextmanager
def server(arguments):
    """A server with an accelerator; gives its target."""
    flags = ["--port", "0", "--accelerator", f"{arguments.plugin}=GPU"]
    command = [arguments.server, "server", *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield "grpc://" + process.stdout.readline().split()[-1]
    finally:
        process.terminate()
        process.wait(STOP_SECONDS_MAX)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def saved_models_of_jax():
    """Each folder of a model that JAX wrote, with a case: its inputs and the outputs that JAX computed."""
    for name in ["jax2tf", "keras_jax"]:
        for case in json.loads((SAVED_MODELS / f"{name}.json").read_text()):
            inputs = dict(arg.removeprefix("--input=").split("=", 1) for arg in case["args"])
            outputs = {n: np.array(v["values"]) for n, v in case["outputs"].items()}
            yield SAVED_MODELS / name, {n: json.loads(v) for n, v in inputs.items()}, outputs


def case_models_of_jax_on_the_command_line(arguments):
    for folder, inputs, outputs in saved_models_of_jax():
        given = [f"--input={name}={json.dumps(value)}" for name, value in inputs.items()]
        command = [arguments.server, "run", str(folder), *given, "--json"]
        flags = ["--accelerator", arguments.plugin]
        text = subprocess.run([*command, *flags], capture_output=True, text=True, check=True).stdout
        got = {name: np.array(v["values"]) for name, v in json.loads(text)["fetches"].items()}
        for name, wanted in outputs.items():
            np.testing.assert_allclose(got[name], wanted, rtol=1e-4, atol=1e-5)
        alone = subprocess.run(command, capture_output=True, text=True)
        assert alone.returncode != 0 and "--accelerator" in alone.stderr, alone
    check = subprocess.run([arguments.server, "check", str(folder)], capture_output=True, text=True)
    assert "op XlaCallModule" in check.stdout, check
    command = [arguments.server, "check", str(folder), "--device", "gpu"]
    check = subprocess.run(command, capture_output=True, text=True)
    assert check.returncode == 0, check


def case_models_of_jax_in_sessions(arguments):
    with server(arguments) as target:
        for folder, inputs, outputs in saved_models_of_jax():
            with tf.Graph().as_default(), v1.Session(target) as session:
                model = v1.saved_model.load(session, ["serve"], str(folder))
                signature = model.signature_def["serving_default"]
                feeds = {signature.inputs[name].name: value for name, value in inputs.items()}
                fetches = {name: signature.outputs[name].name for name in outputs}
                got = session.run(fetches, feeds)
            for name, wanted in outputs.items():
                np.testing.assert_allclose(got[name], wanted, rtol=1e-4, atol=1e-5)


def case_models_of_jax_are_served(arguments):
    folder, inputs, outputs = list(saved_models_of_jax())[-1]
    port = free_port()
    base = tempfile.mkdtemp()
    shutil.copytree(folder, os.path.join(base, "1"))
    command = [arguments.server, "serve", "--model", f"model={base}", "--http-port", str(port), "--no-grpc"]
    command += ["--accelerator", f"{arguments.plugin}=GPU"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        [(_, batch)], [(_, wanted)] = inputs.items(), outputs.items()
        body = json.dumps({"instances": batch}).encode()
        for _ in range(200):
            try:
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                connection.request("POST", "/v1/models/model:predict", body)
                response = connection.getresponse()
                answer = response.read()
                if response.status == 200:
                    break
            except OSError:
                pass
            # The model is being loaded.
            assert process.poll() is None, "the model server ended"
            time.sleep(0.1)
        np.testing.assert_allclose(json.loads(answer)["predictions"], wanted, rtol=1e-4, atol=1e-5)
    finally:
        process.terminate()
        process.wait(STOP_SECONDS_MAX)
        shutil.rmtree(base)
