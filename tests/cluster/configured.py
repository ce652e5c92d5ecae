"""A program that configures its own servers: devices, threads, a timeout, and options that only some servers use.

It knows nothing of Thalweg. The worker checks that its sessions have what the servers were given.
"""

import argparse

import tensorflow as tf

v1 = tf.compat.v1
v1.disable_v2_behavior()


def config():
    wanted = v1.ConfigProto(device_count={"CPU": 2, "GPU": 0}, inter_op_parallelism_threads=2,
                            operation_timeout_in_ms=3000, log_device_placement=True)
    wanted.gpu_options.allow_growth = True
    wanted.graph_options.place_pruned_graph = True
    wanted.graph_options.optimizer_options.opt_level = v1.OptimizerOptions.L0
    return wanted


def check(session):
    """Each task has two devices, nodes run on the second, and a step that blocks ends with the timeout."""
    with tf.device("/job:ps/task:0/device:CPU:1"):
        count = v1.get_variable("count", initializer=40)
    with tf.device("/job:worker/task:0/device:CPU:1"):
        more = count + 2
    queue = tf.queue.FIFOQueue(1, tf.int32)
    nothing = queue.dequeue()
    session.run(count.initializer)
    assert session.run(more) == 42
    # Started only now: a session whose graph does not name a task does not wait for it.
    devices = {device.name: device for device in session.list_devices()}
    for job in ("ps", "worker"):
        for index in (0, 1):
            assert f"/job:{job}/replica:0/task:0/device:CPU:{index}" in devices, devices
    try:
        session.run(nothing)
    except tf.errors.DeadlineExceededError:
        return {device.memory_limit_bytes for device in devices.values()}
    raise AssertionError("a step without end ended well")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ps_hosts", required=True)
    parser.add_argument("--worker_hosts", required=True)
    parser.add_argument("--job_name", required=True)
    parser.add_argument("--task_index", type=int, required=True)
    flags = parser.parse_args()
    cluster = {"ps": flags.ps_hosts.split(","), "worker": flags.worker_hosts.split(",")}
    server = v1.train.Server(cluster, job_name=flags.job_name, task_index=flags.task_index,
                             config=config())
    if flags.job_name == "ps":
        server.join()
        return
    with v1.Session(server.target) as session:
        print(f"memory {sorted(check(session))}")


if __name__ == "__main__":
    main()
