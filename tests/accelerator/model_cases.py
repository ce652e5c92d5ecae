"""Whole models: the training steps of `benches/gpu`, small, as TensorFlow's client builds them."""

import pathlib
import sys

import numpy as np
import tensorflow as tf

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "benches" / "gpu"))
import tf_models

v1 = tf.compat.v1
STEPS = 5


def losses(target, graph):
    """The losses of some steps, and what ran in the last: names by device."""
    options, metadata = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE), v1.RunMetadata()
    with v1.Session(target, graph=graph) as session:
        session.run("init")
        all_but_last = [session.run(["loss:0", "step"])[0] for _ in range(STEPS - 1)]
        last = session.run(["loss:0", "step"], options=options, run_metadata=metadata)[0]
    nodes = {d.device: [n.node_name for n in d.node_stats] for d in metadata.step_stats.dev_stats}
    return all_but_last + [last], nodes


def check(target, name, tolerance):
    """A step is one program, and the losses are those of TensorFlow's kernels from the same initial values."""
    v1.enable_resource_variables()
    graph = tf_models.graph_of(name, small=True)
    wanted, _ = losses("", graph)
    got, nodes = losses(target, graph)
    np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)
    regions = [n for device, names in nodes.items() if device.endswith("GPU:0") for n in names if "/region_" in n]
    assert len(regions) == 1, nodes
    program = {node.name for node in graph.as_graph_def().node}
    elsewhere = [n for device, names in nodes.items() if device.endswith("/device:CPU:0") for n in names]
    assert not program.intersection(elsewhere), elsewhere


def check_all(target):
    for name, tolerance in [("mlp", 1e-4), ("lstm", 1e-4), ("resnet50", 5e-2), ("gpt2", 1e-2)]:
        check(target, name, tolerance)
