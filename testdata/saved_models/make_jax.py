"""Writes the SavedModels of JAX: `jax2tf`, a function converted by jax2tf, and `keras_jax`, a Keras model on JAX.

Run with TensorFlow 2.21 and JAX 0.10: python testdata/saved_models/make_jax.py. Both take batches of any size.
Each NAME.json has what JAX itself computes, as those of make.py have TensorFlow's outputs.
"""

import json
import os
import shutil

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", KERAS_BACKEND="jax", JAX_PLATFORMS="cpu")
import jax
import numpy as np
import tensorflow as tf
from jax.experimental import jax2tf

import keras

# Modules without the paths of files here.
jax.config.update("jax_traceback_in_locations_limit", 0)
HERE = os.path.dirname(os.path.abspath(__file__))


def folder(name):
    path = os.path.join(HERE, name)
    shutil.rmtree(path, ignore_errors=True)
    return path


def rounded(array):
    return np.round(np.asarray(array, np.float64), 7).tolist()


def case(inputs, outputs):
    args = [f"--input={name}={json.dumps(rounded(value))}" for name, value in inputs.items()]
    outputs = {n: {"shape": list(v.shape), "values": rounded(v)} for n, v in outputs.items()}
    return {"args": args, "outputs": outputs}


def write(name, cases):
    with open(os.path.join(HERE, name + ".json"), "w") as out:
        json.dump(cases, out, indent=1)
        out.write("\n")


def network(weights, x):
    hidden = jax.nn.gelu(x @ weights["first"] + weights["bias"], approximate=False)
    attended = jax.nn.softmax(hidden @ hidden.T) @ hidden
    return {"probabilities": jax.nn.softmax(attended @ weights["second"]), "mean": x.mean(0)}


class Converted(tf.Module):
    def __init__(self, weights):
        super().__init__()
        self.weights = tf.nest.map_structure(tf.Variable, weights)
        self.converted = jax2tf.convert(network, polymorphic_shapes=[None, "(b, 4)"])

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, name="inputs")], autograph=False)
    def serve(self, inputs):
        return self.converted(self.weights, inputs)


def converted():
    rng = np.random.RandomState(2)

    def normal(*shape):
        return (0.5 * rng.randn(*shape)).astype(np.float32)

    weights = {"first": normal(4, 6), "bias": normal(6), "second": normal(6, 3)}
    model = Converted(weights)
    tf.saved_model.save(model, folder("jax2tf"), signatures={"serving_default": model.serve})
    batches = [np.round(rng.randn(n, 4), 3).astype(np.float32) for n in (1, 5)]
    write("jax2tf", [case({"inputs": x}, network(weights, x)) for x in batches])


def keras_model():
    keras.utils.set_random_seed(1)
    layers = keras.layers
    model = keras.Sequential([
        keras.Input((6, 6, 1)),
        layers.Conv2D(3, 3, padding="same", activation="relu"),
        layers.BatchNormalization(),
        layers.MaxPooling2D(),
        layers.Flatten(),
        layers.Dense(5, activation="gelu"),
        layers.Dropout(0.3),
        layers.Dense(3, activation="softmax"),
    ])
    model.export(folder("keras_jax"), verbose=False)
    rng = np.random.RandomState(3)
    batches = [np.round(rng.randn(n, 6, 6, 1), 3).astype(np.float32) for n in (1, 4)]
    name = model.inputs[0].name
    write("keras_jax", [case({name: x}, {"output_0": np.asarray(model(x))}) for x in batches])
    restored = tf.saved_model.load(os.path.join(HERE, "keras_jax"))
    np.testing.assert_allclose(restored.serve(batches[1]), model(batches[1]), rtol=1e-5, atol=1e-5)


converted()
keras_model()
