"""Sessions that bring their own cluster: cluster_def of the session's config."""

import contextlib

import tensorflow as tf

from cluster import Cluster, OURS, THEIRS, tasks
from support import equal, raises, v1


def config(addresses):
    definition = tf.compat.v1.train.ClusterSpec({"worker": addresses}).as_cluster_def()
    return v1.ConfigProto(cluster_def=definition)


class SingleTaskServers:
    """Independent servers, each a cluster of one task, /job:local/task:0."""

    def __init__(self, cluster, kinds):
        self.servers = [Cluster(cluster.server, {"local:0": kind}) for kind in kinds]
        self.addresses = [server.addresses["local:0"] for server in self.servers]
        self.target = self.servers[0].target("local:0")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for server in self.servers:
            server.stop()


def check(servers, logs):
    with tf.Graph().as_default():
        with v1.device("/job:worker/task:1"):
            v = v1.get_variable("v", [4], tf.float32, v1.ones_initializer(), use_resource=False)
            x = v1.placeholder(tf.float32, [4], name="x")
            total = v1.assign_add(v, x)
        with v1.device("/job:worker/task:0"):
            y = tf.reduce_sum(total) * 2
        with v1.device("/job:worker/task:1"):
            z = y + tf.reduce_sum(v)
        names = config(servers.addresses)
        with v1.Session(servers.target, config=names) as s:
            s.run(v.initializer)
            metadata = v1.RunMetadata()
            options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
            equal(s.run(y, {x: [1, 2, 3, 4]}, options, metadata), 28)
            devices = {d.device for d in metadata.step_stats.dev_stats}
            for task in (0, 1):
                name = f"/job:worker/replica:0/task:{task}/device:CPU:0"
                assert name in devices, devices
                assert name in {d.name for d in s.list_devices()}
            if logs:
                # A tracing master asks its workers which tensors they received: x, and how fast.
                labels = [n.timeline_label for d in metadata.step_stats.dev_stats
                          for n in d.node_stats if n.node_name == "RecvTensor"]
                assert any("[16B]" in label and "_recv_x_0" in label for label in labels), labels
            # Several transfers in both directions.
            for _ in range(5):
                s.run(z, {x: [0, 0, 0, 0]})
            equal(s.run(z, {x: [0, 0, 0, 0]}), 42)


@tasks({"ps:0": "late " + OURS})
def case_a_cluster_that_the_session_brings(cluster):
    layouts = [(OURS, OURS), (OURS, THEIRS), (THEIRS, OURS)]
    # Started first: TensorFlow's threads do not survive a fork.
    with contextlib.ExitStack() as stack:
        groups = [stack.enter_context(SingleTaskServers(cluster, kinds)) for kinds in layouts]
        for kinds, servers in zip(layouts, groups, strict=True):
            try:
                check(servers, logs=kinds[0] == THEIRS)
            except Exception as error:
                raise AssertionError(f"with {kinds}") from error


@tasks({"ps:0": "late " + OURS})
def case_a_session_may_not_name_its_own_server(cluster):
    with SingleTaskServers(cluster, [OURS]) as servers:
        definition = tf.compat.v1.train.ClusterSpec({"local": servers.addresses})
        wrong = v1.ConfigProto(cluster_def=definition.as_cluster_def())
        with tf.Graph().as_default():
            y = tf.constant(1) + 1
            with raises(tf.errors.InvalidArgumentError, "/job:local/replica:0/task:0"):
                v1.Session(servers.target, config=wrong).run(y)
