"""Small Keras models and published architectures, with example inputs and comparison of results."""

import numpy as np
import tensorflow as tf

keras = tf.keras
layers = keras.layers
TOLERANCE = 1e-4


def sequences(steps, width):
    return keras.Input((steps, width), batch_size=2)


def recurrent(layer):
    """A layer that returns its whole output sequence, followed by a second layer over it."""
    def build(steps=7, width=5, units=6):
        x = sequences(steps, width)
        whole = layer(units, return_sequences=True)(x)
        return keras.Model(x, layers.Dense(3)(layer(units)(whole)))

    return build


def bidirectional(steps=6, width=5, units=4):
    x = sequences(steps, width)
    both = layers.Bidirectional(layers.LSTM(units, return_sequences=True))(x)
    return keras.Model(x, layers.Dense(3)(layers.Bidirectional(layers.GRU(units))(both)))


def masked(steps=6, words=11, units=4):
    """Sequences of words with padding, which the loop skips."""
    x = keras.Input((steps,), batch_size=2, dtype="int32")
    y = layers.Embedding(words, 5, mask_zero=True)(x)
    return keras.Model(x, layers.Dense(2)(layers.LSTM(units)(y)))


def transformer(steps=8, words=20, width=16, heads=2, depth=2):
    x = keras.Input((steps,), batch_size=2, dtype="int32")
    y = layers.Embedding(words, width)(x)
    y = y + layers.Embedding(steps, width)(tf.range(steps))
    for _ in range(depth):
        seen = layers.MultiHeadAttention(heads, width // heads)(y, y, use_causal_mask=True)
        y = layers.LayerNormalization()(y + seen)
        inner = layers.Dense(4 * width, activation="gelu")(y)
        y = layers.LayerNormalization()(y + layers.Dense(width)(inner))
    return keras.Model(x, layers.Dense(words, activation="softmax")(y))


def convolved(size):
    return keras.Input((size, size, 3), batch_size=1)


def resnet(size=32, filters=(8, 8, 16, 16)):
    """ResNet50's blocks, one of each width."""
    x = convolved(size)
    y = layers.ZeroPadding2D(3)(x)
    y = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(8, 7, strides=2)(y)))
    y = layers.MaxPooling2D(3, strides=2)(layers.ZeroPadding2D(1)(y))
    for i, width in enumerate(filters):
        stride = 1 if i == 0 else 2
        short = layers.BatchNormalization()(layers.Conv2D(4 * width, 1, strides=stride)(y))
        for j, kernel in enumerate([1, 3]):
            y = layers.Conv2D(width, kernel, strides=stride if j == 0 else 1, padding="same")(y)
            y = layers.ReLU()(layers.BatchNormalization()(y))
        y = layers.BatchNormalization()(layers.Conv2D(4 * width, 1)(y))
        y = layers.ReLU()(y + short)
    return keras.Model(x, layers.Dense(10, activation="softmax")(layers.GlobalAveragePooling2D()(y)))


def densenet(size=32, growth=8, blocks=(2, 2, 2)):
    """DenseNet's dense blocks and transition blocks."""
    x = convolved(size)
    y = layers.Conv2D(16, 3, strides=2, padding="same", use_bias=False)(x)
    for i, depth in enumerate(blocks):
        for _ in range(depth):
            z = layers.ReLU()(layers.BatchNormalization(epsilon=1.001e-5)(y))
            z = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(4 * growth, 1, use_bias=False)(z)))
            y = layers.Concatenate()([y, layers.Conv2D(growth, 3, padding="same", use_bias=False)(z)])
        if i + 1 < len(blocks):
            y = layers.AveragePooling2D(2)(layers.Conv2D(y.shape[-1] // 2, 1)(layers.ReLU()(y)))
    return keras.Model(x, layers.Dense(10)(layers.GlobalAveragePooling2D()(y)))


def inception(size=24):
    """InceptionV3's kinds of branches: factorized kernels, pooling, concatenation."""
    x = convolved(size)
    conv = lambda y, n, *kernel, **options: layers.ReLU()(
        layers.BatchNormalization(scale=False)(layers.Conv2D(n, kernel, use_bias=False, **options)(y)))
    y = conv(x, 8, 3, 3, strides=2, padding="valid")
    a = conv(y, 8, 1, 1)
    b = conv(conv(y, 6, 1, 1), 8, 5, 5, padding="same")
    c = conv(conv(conv(y, 6, 1, 1), 8, 1, 7, padding="same"), 8, 7, 1, padding="same")
    d = conv(layers.AveragePooling2D(3, strides=1, padding="same")(y), 8, 1, 1)
    y = layers.Concatenate()([a, b, c, d])
    y = layers.Concatenate()([conv(y, 8, 3, 3, strides=2), layers.MaxPooling2D(3, strides=2)(y)])
    return keras.Model(x, layers.Dense(10)(layers.GlobalMaxPooling2D()(y)))


def mobilenet(size=32):
    return keras.applications.MobileNetV2((size, size, 3), alpha=0.35, weights=None, classes=10)


def efficientnet(size=32):
    """EfficientNet's block: expansion, depthwise convolution, squeeze-and-excitation, projection."""
    x = convolved(size)
    y = layers.Rescaling(1.0 / 255.0)(x)
    y = layers.Activation("swish")(layers.BatchNormalization()(layers.Conv2D(8, 3, strides=2, padding="same")(y)))
    for stride in [1, 2]:
        before = y
        z = layers.Activation("swish")(layers.BatchNormalization()(layers.Conv2D(32, 1)(y)))
        z = layers.ZeroPadding2D(((0, 1), (0, 1)))(z) if stride == 2 else z
        z = layers.DepthwiseConv2D(3, strides=stride, padding="same" if stride == 1 else "valid")(z)
        z = layers.Activation("swish")(layers.BatchNormalization()(z))
        squeezed = layers.Reshape((1, 1, 32))(layers.GlobalAveragePooling2D()(z))
        squeezed = layers.Conv2D(32, 1, activation="sigmoid")(layers.Conv2D(2, 1, activation="swish")(squeezed))
        y = layers.BatchNormalization()(layers.Conv2D(8, 1)(layers.Multiply()([z, squeezed])))
        y = layers.Add()([y, before]) if stride == 1 else y
    return keras.Model(x, layers.Dense(10)(layers.GlobalAveragePooling2D()(y)))


def published(name, size):
    return lambda: getattr(keras.applications, name)(input_shape=(size, size, 3), weights=None)


SMALL = {
    "lstm": recurrent(layers.LSTM),
    "gru": recurrent(layers.GRU),
    "bidirectional": bidirectional,
    "masked": masked,
    "transformer": transformer,
    "resnet": resnet,
    "mobilenet": mobilenet,
    "efficientnet": efficientnet,
    "inception": inception,
    "densenet": densenet,
}
PUBLISHED = {
    "large_lstm": lambda: recurrent(layers.LSTM)(35, 64, 128),
    "large_gru": lambda: recurrent(layers.GRU)(35, 64, 128),
    "large_bidirectional": lambda: bidirectional(35, 64, 128),
    "large_transformer": lambda: transformer(64, 1000, 128, 8, 4),
    "resnet50": published("ResNet50", 224),
    "mobilenet_v2": published("MobileNetV2", 224),
    "efficientnet_b0": published("EfficientNetB0", 224),
    "inception_v3": published("InceptionV3", 299),
    "densenet121": published("DenseNet121", 224),
}


def example(model, random):
    """An input of the model's shape; some words are padding."""
    spec = model.inputs[0]
    shape = [1 if d is None else d for d in spec.shape]
    if spec.dtype == "int32":
        return random.randint(0, 5, shape).astype(np.int32)
    return random.uniform(0, 1, shape).astype(np.float32)


def difference(got, expected):
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return f"{got.dtype}{got.shape}, not {expected.dtype}{expected.shape}"
    off = np.abs(got - expected) - TOLERANCE * np.abs(expected)
    if not np.all(off <= TOLERANCE):
        return f"off by {np.max(np.abs(got - expected))}"
    return None
