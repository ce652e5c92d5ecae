"""Summaries, parsed back."""

import numpy as np
import tensorflow as tf
from support import close, fresh, session, v1


def parsed(text):
    return {value.tag: value for value in v1.Summary.FromString(text).value}


def case_scalars_and_histograms(target):
    with session(target) as s:
        x = v1.placeholder(tf.float32, name="x")
        v1.summary.scalar("average", tf.reduce_mean(x))
        v1.summary.histogram("spread", x)
        values = parsed(s.run(v1.summary.merge_all(), {x: [1.0, 2.0, 6.0]}))
        close(values["average"].simple_value, 3.0)
        spread = values["spread"].histo
        assert (spread.num, spread.min, spread.max) == (3, 1, 6)
        close([spread.sum, spread.sum_squares], [9, 41])
        # Every number lies in the bucket that ends above it.
        limits = np.array(spread.bucket_limit)
        counts = np.zeros(len(limits))
        for number in (1.0, 2.0, 6.0):
            counts[np.searchsorted(limits, number, side="right")] += 1
        close(spread.bucket, counts)


def case_images(target):
    with session(target) as s:
        x = v1.placeholder(tf.uint8, [2, 4, 6, 3])
        pixels = np.random.RandomState(0).randint(0, 255, (2, 4, 6, 3)).astype("B")
        values = parsed(s.run(v1.summary.image("pictures", x, max_outputs=2), {x: pixels}))
        assert sorted(values) == ["pictures/image/0", "pictures/image/1"]
        for i in range(2):
            image = values[f"pictures/image/{i}"].image
            assert (image.height, image.width, image.colorspace) == (4, 6, 3)
            decoded = s.run(tf.image.decode_png(tf.constant(image.encoded_image_string)))
            np.testing.assert_array_equal(decoded, pixels[i])


def case_text_and_tensors(target):
    with session(target) as s:
        text = v1.summary.text("note", tf.constant(["one", "two"]))
        value = v1.Summary.FromString(s.run(text)).value[0]
        assert value.tag == "note" and value.metadata.plugin_data.plugin_name == "text"
        assert tf.make_ndarray(value.tensor).tolist() == [b"one", b"two"]
        tensor = v1.summary.tensor_summary("numbers", tf.constant([[1.5, 2.5]]))
        value = v1.Summary.FromString(s.run(tensor)).value[0]
        close(tf.make_ndarray(value.tensor), [[1.5, 2.5]])


def case_merging(target):
    with session(target) as s:
        parts = [v1.summary.scalar(f"part{i}", tf.constant(float(i))) for i in range(5)]
        values = parsed(s.run(v1.summary.merge([v1.summary.merge(parts[:3]), *parts[3:]])))
        assert [values[f"part{i}"].simple_value for i in range(5)] == [0, 1, 2, 3, 4]


def case_summaries_of_training(target):
    fresh(target)
    with session(target) as s:
        w = v1.get_variable("w", initializer=8.0, use_resource=True)
        loss = tf.square(w)
        v1.summary.scalar("loss", loss)
        merged = v1.summary.merge_all()
        train = v1.train.GradientDescentOptimizer(0.25).minimize(loss)
        s.run(w.initializer)
        seen = []
        for _ in range(4):
            seen.append(parsed(s.run(merged))["loss"].simple_value)
            s.run(train)
        close(seen, [64, 16, 4, 1])
