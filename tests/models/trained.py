"""Output of a training run, read by TensorFlow and TensorBoard: a checkpoint of partitioned variables, and
summaries.

    python tests/models/trained.py --sharded target/debug/examples/sharded
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
import tensorflow as tf
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator

v1 = tf.compat.v1
SECONDS_MAX = 120
MODEL = {"dense/kernel": [784, 64], "dense/bias": [64], "dense_1/kernel": [64, 10], "dense_1/bias": [10]}
# Tags, and the plugin of each.
SHOWN = {
    "hidden": "histograms", "accuracy of a batch": "scalars", "digits/image/0": "images",
    "digits/image/2": "images", "read as": "text", "loss": "scalars",
}


def check(is_right, what):
    if not is_right:
        sys.exit(f"wrong: {what}")


def names(prefix):
    """TensorFlow finds the model's variables, their slots and the state of the run, and nothing else."""
    shapes = tf.train.load_checkpoint(prefix).get_variable_to_shape_map()
    wanted = dict(MODEL)
    for name, shape in MODEL.items():
        wanted |= {f"{name}/Adam": shape, f"{name}/Adam_1": shape}
    wanted |= {"global_step": [], "beta1_power": [], "beta2_power": [], "leases": [12, 3]}
    check(shapes == wanted, f"the checkpoint has {shapes}, not {wanted}")


def restored(prefix, partitioner):
    """The variables as TensorFlow's saver restores them, whole or with another partitioner."""
    with tf.Graph().as_default(), v1.Session() as session:
        with v1.variable_scope("", partitioner=partitioner, use_resource=True):
            variables = {name: v1.get_variable(name, shape) for name, shape in MODEL.items()}
        if partitioner:
            check(len(list(variables["dense/kernel"])) == 3, "TensorFlow did not cut the kernel")
        v1.train.Saver().restore(session, prefix)
        return {name: session.run(tf.convert_to_tensor(variable)) for name, variable in variables.items()}


def summaries(folder):
    """TensorBoard's reader finds every summary with its plugin, every 20 updates."""
    events = EventAccumulator(folder, size_guidance={"tensors": 0})
    events.Reload()
    found = {tag: events.SummaryMetadata(tag).plugin_data.plugin_name for tag in events.Tags()["tensors"]}
    for tag, plugin in SHOWN.items():
        check(found.get(tag) == plugin, f"'{tag}' is shown by {found.get(tag)}, not {plugin}")
    steps = [event.step for event in events.Tensors("hidden")]
    gaps = np.diff(steps)
    check(steps[0] <= 3 and len(steps) >= 5 and all((20 <= gaps) & (gaps < 30)), f"steps {steps}")
    picture = events.Tensors("digits/image/0")[0].tensor_proto.string_val
    check(picture[:2] == [b"28", b"28"] and picture[2].startswith(b"\x89PNG"), f"picture {picture[:2]}")
    texts = tf.make_ndarray(events.Tensors("read as")[0].tensor_proto)
    check(len(texts) == 50 and all(text.isdigit() for text in texts), f"texts {texts}")
    buckets = tf.make_ndarray(events.Tensors("hidden")[0].tensor_proto)
    check(buckets[:, 2].sum() == 50 * 64, f"a histogram of {buckets[:, 2].sum()} numbers")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sharded", required=True, help="the program of examples/sharded.rs")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([args.sharded, folder], capture_output=True, text=True, timeout=SECONDS_MAX)
        check(done.returncode == 0, done.stdout + done.stderr)
        prefix = tf.train.latest_checkpoint(folder)
        names(prefix)
        whole = restored(prefix, None)
        parts = restored(prefix, v1.fixed_size_partitioner(3))
        model = tf.saved_model.load(str(pathlib.Path(folder) / "model" / "1"))
        x = np.random.RandomState(1).uniform(size=[4, 28, 28, 1]).astype(np.float32)
        hidden = np.maximum(x.reshape(4, 784) @ whole["dense/kernel"] + whole["dense/bias"], 0)
        wanted = hidden @ whole["dense_1/kernel"] + whole["dense_1/bias"]
        got = model.signatures["serving_default"](images=tf.constant(x))["logits"]
        check(np.allclose(got, wanted, atol=1e-4), f"the exported model gives {got}, not {wanted}")
        for name in MODEL:
            check(np.array_equal(whole[name], parts[name]), f"'{name}' in parts is not as a whole")
        check(np.abs(whole["dense/kernel"]).max() > 0, "the kernel is zero")
        summaries(os.path.join(folder, "events"))
    print("a checkpoint in parts, an exported model and summaries: ok")


main()
