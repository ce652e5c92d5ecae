"""A program as TensorFlow 1.x's guides wrote them: parameter servers, workers, a chief, a Server.

It knows nothing of Thalweg. Every worker counts its own steps on a parameter server; the chief
checks the sums and the fit at the end.
"""

import argparse

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
v1.disable_v2_behavior()
STEPS = 200


def model(worker, workers):
    rng = np.random.RandomState(worker)
    features = rng.rand(256, 3).astype(np.float32)
    labels = features @ np.array([[1.0], [-2.0], [3.0]], np.float32) + 0.5
    weights = v1.get_variable("weights", [3, 1], initializer=v1.zeros_initializer())
    bias = v1.get_variable("bias", [1], initializer=v1.zeros_initializer())
    loss = tf.reduce_mean(tf.square(tf.matmul(features, weights) + bias - labels))
    step = v1.train.get_or_create_global_step()
    train = v1.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)
    counts = v1.get_variable("counts", [workers], initializer=v1.zeros_initializer())
    count = v1.scatter_add(counts, [worker], [1.0], use_locking=True)
    with tf.control_dependencies([train, count]):
        return tf.identity(loss), counts


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ps_hosts", required=True)
    parser.add_argument("--worker_hosts", required=True)
    parser.add_argument("--job_name", required=True)
    parser.add_argument("--task_index", type=int, required=True)
    flags = parser.parse_args()
    workers = flags.worker_hosts.split(",")
    cluster = tf.train.ClusterSpec({"ps": flags.ps_hosts.split(","), "worker": workers})
    server = v1.train.Server(cluster, job_name=flags.job_name, task_index=flags.task_index)
    if flags.job_name == "ps":
        server.join()
        return
    place = v1.train.replica_device_setter(
        cluster=cluster, worker_device=f"/job:worker/task:{flags.task_index}")
    with v1.device(place):
        train, counts = model(flags.task_index, len(workers))
    chief = flags.task_index == 0
    with v1.train.MonitoredTrainingSession(master=server.target, is_chief=chief) as session:
        for _ in range(STEPS):
            loss = session.run(train)
        print(f"worker {flags.task_index} ended at loss {loss:.6f}")
        while chief and (session.run(counts) < STEPS).any():
            pass
        if chief:
            print(f"counts {session.run(counts).astype(int).tolist()}")


if __name__ == "__main__":
    main()
