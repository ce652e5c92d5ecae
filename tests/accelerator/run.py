"""Programs of TensorFlow's client on servers with an accelerator: XLA's CPU backend under the name GPU.

    python tests/accelerator/run.py --server target/debug/thalweg --plugin pjrt_c_api_cpu_plugin.so
"""

import argparse
import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import cluster_cases
import command_cases
import jax_cases
import model_cases
import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
STOP_SECONDS_MAX = 20
# Folders of `tests/clients` whose programs run here too: a sample of what such a server must not change.
SAMPLE = ["basics", "control", "training", "optimizers", "live_reads"]
# Programs of the sample that an accelerator cannot pass, and the reason of each.
EXCEPT = {
    "basics/several_devices": "it counts the devices, and there is one more",
    "control/errors_inside_branches_and_loops": "an index out of range gives 0, here an endless loop, as on TensorFlow's GPUs",
    "live_reads/a_variable_that_grows_leaves_reads_alone": "a program has one buffer for a variable, whatever sizes it gets",
}
# Cells of the table of failures whose workers have an accelerator.
CELLS = ["worker/killed", "worker/restarted", "chief/restarted", "idle/killed", "ps/restarted"]
FAILURES = pathlib.Path(__file__).resolve().parents[1] / "cluster" / "failures.py"
CLIENTS = pathlib.Path(__file__).resolve().parents[1] / "clients" / "run.py"


@contextlib.contextmanager
def server(arguments, flags=()):
    """A running server; gives its target."""
    command = [arguments.server, "server", "--port", "0", *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        line = process.stdout.readline()
        if not line.startswith("listening on "):
            sys.exit(f"the server did not say where it listens: {line!r}")
        yield "grpc://" + line.split()[-1]
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            raise


def accelerated(arguments, count=1):
    return ["--accelerator", f"{arguments.plugin}=GPU:{count}"]


def devices_of(metadata):
    """The devices of the nodes of a step, by name."""
    return {n.name: n.device for g in metadata.partition_graphs for n in g.node}


def case_devices_are_listed(arguments):
    with server(arguments, accelerated(arguments, 2)) as target, v1.Session(target) as session:
        names = [d.name for d in session.list_devices()]
        types = [d.device_type for d in session.list_devices()]
    assert types == ["CPU", "GPU", "GPU"], names
    assert names[2].endswith("/device:GPU:1"), names


def case_nodes_run_where_the_program_says(arguments):
    with server(arguments, accelerated(arguments)) as target, tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [None, 3])
        with tf.device("/gpu:0"):
            there = tf.matmul(x, x, transpose_b=True, name="there")
        with tf.device("/cpu:0"):
            here = tf.add(there, 1.0, name="here")
        options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE, output_partition_graphs=True)
        metadata = v1.RunMetadata()
        value = np.arange(6, dtype=np.float32).reshape(2, 3)
        with v1.Session(target) as session:
            got = session.run(here, {x: value}, options=options, run_metadata=metadata)
        np.testing.assert_allclose(got, value @ value.T + 1)
        devices = devices_of(metadata)
        assert devices["here"].endswith("CPU:0"), devices
        steps = [d.device for d in metadata.step_stats.dev_stats]
        assert any("GPU:0" in d for d in steps), steps


def case_a_device_that_is_not_there(arguments):
    with server(arguments, accelerated(arguments)) as target, tf.Graph().as_default():
        with tf.device("/gpu:3"):
            y = tf.add(v1.placeholder_with_default(1.0, []), 1.0)
        with v1.Session(target, config=v1.ConfigProto(allow_soft_placement=False)) as session:
            try:
                session.run(y)
            except tf.errors.InvalidArgumentError as e:
                assert "gpu:3" in str(e).lower(), e
            else:
                raise AssertionError("a device that does not exist was accepted")
        with v1.Session(target, config=v1.ConfigProto(allow_soft_placement=True)) as session:
            assert session.run(y) == 2


def network():
    """A small net, its loss and its update, from seeds."""
    rng = np.random.RandomState(3)
    x, y = v1.placeholder(tf.float32, [None, 20]), v1.placeholder(tf.int64, [None])
    w1 = v1.get_variable("w1", initializer=rng.randn(20, 32).astype(np.float32) * 0.2)
    b1 = v1.get_variable("b1", initializer=np.zeros(32, np.float32))
    w2 = v1.get_variable("w2", initializer=rng.randn(32, 5).astype(np.float32) * 0.2)
    hidden = tf.nn.relu(tf.matmul(x, w1) + b1)
    logits = tf.matmul(hidden, w2)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
    step = v1.train.get_or_create_global_step()
    train = v1.train.AdamOptimizer(0.01).minimize(loss, global_step=step)
    return x, y, loss, train, step


def train(target, steps, config=None):
    """The losses of a training run, and the number of updates counted."""
    rng = np.random.RandomState(5)
    with v1.Session(target, config=config) as session:
        x, y, loss, update, step = network()
        session.run(v1.global_variables_initializer())
        losses = []
        for _ in range(steps):
            batch = rng.randn(16, 20).astype(np.float32)
            labels = (np.abs(batch[:, :5]).argmax(1)).astype(np.int64)
            losses.append(session.run([loss, update], {x: batch, y: labels})[0])
        return losses, session.run(step)


def case_training_gives_the_numbers_of_the_cpu(arguments):
    with tf.Graph().as_default(), server(arguments) as target:
        wanted, _ = train(target, 60)
    with tf.Graph().as_default(), server(arguments, accelerated(arguments)) as target:
        got, counted = train(target, 60)
    assert counted == 60, counted
    np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-3)
    assert got[-1] < got[0], (got[0], got[-1])


def case_a_checkpoint_goes_both_ways(arguments):
    with server(arguments, accelerated(arguments)) as target, tempfile.TemporaryDirectory() as folder:
        with tf.Graph().as_default(), v1.Session(target) as session:
            with tf.device("/gpu:0"):
                v = v1.get_variable("v", initializer=np.arange(8, dtype=np.float32), use_resource=True)
            session.run(v.initializer)
            session.run(v.assign_add(np.ones(8, np.float32)))
            path = v1.train.Saver([v]).save(session, os.path.join(folder, "model"))
            saved = tf.train.load_checkpoint(path).get_tensor("v")
            np.testing.assert_array_equal(saved, np.arange(8) + 1)
            session.run(v.assign(np.zeros(8, np.float32)))
            v1.train.Saver([v]).restore(session, path)
            np.testing.assert_array_equal(session.run(v), np.arange(8) + 1)


def case_training_steps_of_whole_models_are_one_program(arguments):
    with server(arguments, accelerated(arguments)) as target:
        model_cases.check_all(target)


def case_the_command_lists_devices(arguments):
    flag = f"{arguments.plugin}=GPU"
    command = [arguments.server, "devices", "--quick", "--accelerator", flag]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert re.search(r"^/device:GPU:0  ", text, re.M) and "PJRT 0." in text, text


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True)
    parser.add_argument("--plugin", required=True)
    parser.add_argument("cases", nargs="*")
    arguments = parser.parse_args()
    failed = []
    everything = {**globals(), **vars(command_cases), **vars(cluster_cases), **vars(jax_cases)}
    cases = {name[5:]: case for name, case in everything.items() if name.startswith("case_")}
    chosen = [n for n in cases if not arguments.cases or any(w in n for w in arguments.cases)]
    for name in chosen:
        try:
            cases[name](arguments)
            print(f"ok     {name.replace('_', ' ')}", flush=True)
        except Exception as e:
            failed.append(name)
            print(f"FAILED {name}: {type(e).__name__}: {str(e)[:2000]}", flush=True)
    if not arguments.cases:
        flags = [f"--server-flag=--accelerator={arguments.plugin}=GPU"]
        flags += [f"--except={name}={reason}" for name, reason in EXCEPT.items()]
        command = [sys.executable, str(CLIENTS), "--server", arguments.server, *flags, *SAMPLE]
        if subprocess.run(command).returncode != 0:
            failed.append("a sample of tests/clients")
        flags = ["--accelerator", f"{arguments.plugin}=GPU"]
        command = [sys.executable, str(FAILURES), "--server", arguments.server, *flags, *CELLS]
        if subprocess.run(command).returncode != 0:
            failed.append("the table of failures")
    if failed:
        sys.exit(f"{len(failed)} of {len(chosen)} failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
