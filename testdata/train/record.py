"""Records what TensorFlow's optimizers, averages, sampled losses and Keras's layers give, for crates/train/tests.

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

class ClippedAdam(train.AdamOptimizer):
    """All gradients together have a norm of 2 at most."""

    def compute_gradients(self, *args, **kwargs):
        gradients, variables = zip(*super().compute_gradients(*args, **kwargs))
        return list(zip(tf.clip_by_global_norm(gradients, 2.0)[0], variables))


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
    "adam_clipped": lambda: ClippedAdam(0.1),
    "ftrl": lambda: train.FtrlOptimizer(0.1, l1_regularization_strength=0.01,
                                        l2_regularization_strength=0.02),
    "ftrl_shrunk": lambda: train.FtrlOptimizer(0.1, l1_regularization_strength=0.01,
                                               l2_shrinkage_regularization_strength=0.03),
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


KERAS_OPTIMIZERS = {
    "adamw": lambda: tf.keras.optimizers.AdamW(0.1, weight_decay=0.02, epsilon=1e-8),
    "adamax": lambda: tf.keras.optimizers.Adamax(0.1, epsilon=1e-8),
    "sgd_decay": lambda: tf.keras.optimizers.SGD(0.1, weight_decay=0.02),
}


def keras_optimizer(make):
    """The same problem, for what only Keras has."""
    vector = tf.Variable(np.array([1, -2, 3], np.float32))
    table = tf.Variable(np.arange(8, dtype=np.float32).reshape(4, 2))
    made = make()
    for _ in range(STEPS):
        with tf.GradientTape() as tape:
            rows = tf.gather(table, np.array([1, 3, 1]))
            loss = tf.reduce_sum(tf.square(vector - [0.5, 0.25, 0.125])) + 0.5 * tf.reduce_sum(
                tf.square(rows))
        variables = [vector, table]
        gradients = [tf.convert_to_tensor(g) for g in tape.gradient(loss, variables)]
        made.apply_gradients(zip(gradients, variables))
    return {"vector": vector.numpy().tolist(), "table": table.numpy().ravel().tolist()}


def averages(warming):
    """Averages of the vector that gradient descent changes, after each step."""
    with tf.Graph().as_default(), v1.Session() as session:
        vector = v1.get_variable(
            "vector", initializer=np.array([1, -2, 3], np.float32), use_resource=True)
        loss = tf.reduce_sum(tf.square(vector - [0.5, 0.25, 0.125]))
        count = train.get_or_create_global_step()
        step = train.GradientDescentOptimizer(0.1).minimize(loss, global_step=count)
        with tf.control_dependencies([step]):
            now = tf.identity(count) if warming else None
            average = tf.train.ExponentialMovingAverage(0.8, num_updates=now)
            follow = average.apply([vector])
        session.run(v1.global_variables_initializer())
        found = []
        for _ in range(STEPS):
            session.run(follow)
            found.append(session.run(average.average(vector)).tolist())
        return {"name": average.average_name(vector), "values": found}


CLASSES = 20
SEEDS = (7, 3)


def sampled(kind):
    """Losses over drawn classes, and what gradient descent makes of the variables."""
    random = np.random.RandomState(11)
    first = {
        "weights": random.randn(CLASSES, 4).astype(np.float32),
        "biases": random.randn(CLASSES, 1).astype(np.float32),
    }
    inputs = random.randn(5, 4).astype(np.float32)
    labels = np.array([0, 3, 19, 1, 3], np.int64)
    with tf.Graph().as_default(), v1.Session() as session:
        weights = v1.get_variable("weights", initializer=first["weights"], use_resource=True)
        biases = v1.get_variable("biases", initializer=first["biases"], use_resource=True)
        drawn = tf.raw_ops.LogUniformCandidateSampler(
            true_classes=labels[:, None], num_true=1, num_sampled=6, unique=True, range_max=CLASSES,
            seed=SEEDS[0], seed2=SEEDS[1])
        loss = {"softmax": tf.nn.sampled_softmax_loss, "nce": tf.nn.nce_loss}[kind](
            weights=weights, biases=tf.reshape(biases, [-1]), labels=labels[:, None], inputs=inputs,
            num_sampled=6, num_classes=CLASSES, sampled_values=tuple(drawn),
            remove_accidental_hits=kind == "softmax")
        loss = tf.reduce_mean(loss)
        step = train.GradientDescentOptimizer(0.5).minimize(loss)
        session.run(v1.global_variables_initializer())
        losses = [float(session.run([loss, step])[0]) for _ in range(STEPS)]
        after = {v.op.name: session.run(v).ravel().tolist() for v in [weights, biases]}
    return {
        "first": {name: value.ravel().tolist() for name, value in first.items()},
        "inputs": inputs.ravel().tolist(), "labels": labels.tolist(), "losses": losses, "after": after,
    }


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
        "keras_optimizers": {name: keras_optimizer(make) for name, make in KERAS_OPTIMIZERS.items()},
        "averages": {name: averages(name == "warming") for name in ["plain", "warming"]},
        "sampled": {kind: sampled(kind) for kind in ["softmax", "nce"]},
        "rates": {name: rate(make) for name, make in RATES.items()},
        "layers": layers(),
    }, indent=1))


main()
