"""Records what TensorFlow's v1 optimizers and Keras's layers give, for crates/train/tests.

    python testdata/train/record.py > crates/train/tests/recorded.json
"""

import json
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
train = v1.train
STEPS = 5

OPTIMIZERS = {
    "adagrad_da": lambda: train.AdagradDAOptimizer(
        0.1, train.get_or_create_global_step(), l1_regularization_strength=0.01),
    "sgd": lambda: train.GradientDescentOptimizer(0.1),
    "momentum": lambda: train.MomentumOptimizer(0.1, 0.9),
    "nesterov": lambda: train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
    "adagrad": lambda: train.AdagradOptimizer(0.1),
    "adadelta": lambda: train.AdadeltaOptimizer(1.0),
    "rmsprop": lambda: train.RMSPropOptimizer(0.05, momentum=0.5),
    "rmsprop_centered": lambda: train.RMSPropOptimizer(0.05, centered=True),
    "adam": lambda: train.AdamOptimizer(0.1),
    "ftrl": lambda: train.FtrlOptimizer(0.1, l1_regularization_strength=0.01,
                                        l2_regularization_strength=0.02),
    "proximal": lambda: train.ProximalGradientDescentOptimizer(
        0.1, l1_regularization_strength=0.01, l2_regularization_strength=0.02),
    "proximal_adagrad": lambda: train.ProximalAdagradOptimizer(
        0.1, l1_regularization_strength=0.01, l2_regularization_strength=0.02),
}


def optimizer(make):
    """A dense vector and a table of which some rows are used, one of them twice."""
    with tf.Graph().as_default(), v1.Session() as session:
        vector = v1.get_variable(
            "vector", initializer=np.array([1, -2, 3], np.float32), use_resource=True)
        table = v1.get_variable(
            "table", initializer=np.arange(8, dtype=np.float32).reshape(4, 2), use_resource=True)
        rows = tf.gather(table, np.array([1, 3, 1]))
        loss = tf.reduce_sum(tf.square(vector - [0.5, 0.25, 0.125])) + 0.5 * tf.reduce_sum(
            tf.square(rows))
        step = make().minimize(loss, global_step=train.get_or_create_global_step())
        session.run(v1.global_variables_initializer())
        for _ in range(STEPS):
            session.run(step)
        return {v.op.name: session.run(v).ravel().tolist() for v in v1.global_variables()}


RATES = {
    "exponential": lambda s: train.exponential_decay(0.1, s, 10, 0.5),
    "staircase": lambda s: train.exponential_decay(0.1, s, 10, 0.5, staircase=True),
    "polynomial": lambda s: train.polynomial_decay(0.1, s, 20, 0.01, power=2.0),
    "cosine": lambda s: train.cosine_decay(0.1, s, 20, alpha=0.1),
    "piecewise": lambda s: train.piecewise_constant(s, [3, 11], [0.1, 0.05, 0.01]),
}


def rate(make):
    with tf.Graph().as_default(), v1.Session() as session:
        step = v1.placeholder(tf.int64, [])
        value = make(step)
        return [float(session.run(value, {step: s})) for s in range(0, 26)]


def layer(make, shape, seed):
    """Output of a Keras layer on fixed numbers, with its weights."""
    rng = np.random.RandomState(seed)
    made = make()
    x = rng.randn(*shape).astype(np.float32)
    made(x)
    values = {}
    for weight in made.weights:
        if weight.name == "seed_generator_state":
            continue
        value = rng.uniform(0.1, 0.9, weight.shape).astype(np.float32)
        weight.assign(value)
        values[weight.name] = value.ravel().tolist()
    return {"x": x.ravel().tolist(), "y": made(x).numpy().ravel().tolist(), "weights": values}


def layers():
    keras = tf.keras.layers
    return {
        "dense": layer(lambda: keras.Dense(3, activation="relu"), (2, 4), 1),
        "dense_rows": layer(lambda: keras.Dense(3), (2, 2, 4), 2),
        "conv": layer(lambda: keras.Conv2D(2, (3, 2), padding="same"), (1, 4, 4, 2), 3),
        "lstm": layer(lambda: keras.LSTM(3), (2, 4, 2), 4),
        "lstm_sequence": layer(lambda: keras.LSTM(3, return_sequences=True), (2, 4, 2), 5),
        "gru": layer(lambda: keras.GRU(3), (2, 4, 2), 6),
        "layer_norm": layer(lambda: keras.LayerNormalization(), (2, 4), 7),
        "batch_norm": layer(lambda: keras.BatchNormalization(), (2, 3, 3, 2), 8),
    }


def main():
    print(json.dumps({
        "optimizers": {name: optimizer(make) for name, make in OPTIMIZERS.items()},
        "rates": {name: rate(make) for name, make in RATES.items()},
        "layers": layers(),
    }, indent=1))


main()
