"""A program whose parameter server is killed during training, and which does not handle that itself.

Where `thalweg launch` runs it, the server is started again under the program, and the session of the
worker opens itself anew from its last checkpoint.
"""

import json
import os
import pathlib
import signal
import tempfile

import tensorflow as tf

v1 = tf.compat.v1
v1.disable_v2_behavior()
STEPS = 60


def kill_server():
    """Kills the parameter server's process, which has `--job-name ps` on its command line, with SIGKILL."""
    address = json.loads(os.environ["TF_CONFIG"])["cluster"]["ps"][0]
    for entry in pathlib.Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"--job-name" not in words or words[words.index(b"--job-name") + 1] != b"ps":
            continue
        if any(address.encode() in word for word in words):
            os.kill(int(entry.name), signal.SIGKILL)


def main():
    config = json.loads(os.environ["TF_CONFIG"])
    cluster, task = tf.train.ClusterSpec(config["cluster"]), config["task"]
    server = v1.train.Server(cluster, job_name=task["type"], task_index=task["index"])
    if task["type"] == "ps":
        server.join()
        return
    with v1.device(v1.train.replica_device_setter(cluster=cluster)):
        step = v1.train.get_or_create_global_step()
        train = v1.assign_add(step, 1)
    seen = []
    with tempfile.TemporaryDirectory() as folder, v1.train.MonitoredTrainingSession(
            server.target, checkpoint_dir=folder, save_checkpoint_secs=None,
            save_checkpoint_steps=10) as session:
        while not seen or seen[-1] < STEPS:
            seen.append(int(session.run(train)))
            if len(seen) == 25:
                kill_server()
    back = [(a, b) for a, b in zip(seen, seen[1:]) if b != a + 1]
    assert all(a - b < 20 for a, b in back), back
    print(f"carried on to {seen[-1]} after {len(back)}")


if __name__ == "__main__":
    main()
