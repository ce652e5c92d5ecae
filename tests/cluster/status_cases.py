"""`thalweg cluster status`: states of tasks, step counters, waits."""

import signal
import threading
import time

import tensorflow as tf

from cluster import OURS, THEIRS, tasks
from support import equal, v1

PS0, W0 = "/job:ps/task:0", "/job:worker/task:0"


def by_task(status):
    return {task["task"]: task for task in status["tasks"]}


def case_step_counters(cluster):
    """Every step counts once on its master and once on each worker that ran a partition of it."""
    with tf.Graph().as_default():
        with v1.device(PS0):
            v = v1.get_variable("v", [100], tf.float32, v1.zeros_initializer(), use_resource=False)
            r = v1.get_variable("r", [50], tf.float32, v1.zeros_initializer(), use_resource=True)
        with v1.device(W0):
            one = tf.ones([100])
        add = v1.assign_add(v, one)
        with v1.Session(cluster.target("worker:0")) as s:
            s.run([v.initializer, r.initializer])
            code, before = cluster.status()
            equal(code, 0)
            before = by_task(before)
            for _ in range(25):
                s.run(add.op)
            after = by_task(cluster.status()[1])
            difference = {
                task: tuple(after[task]["steps"][of] - before[task]["steps"][of]
                            for of in ("as_master", "as_worker"))
                for task in after}
            equal(difference, {"ps/0": (0, 25), "ps/1": (0, 0), "worker/0": (25, 0),
                               "worker/1": (0, 0), "worker/2": (0, 0)})
            equal(after["ps/0"]["variables"], {"count": 2, "bytes": 600})
            equal(after["worker/0"]["sessions"], {"of_clients": 1, "of_masters": 0})
            equal(after["ps/0"]["sessions"], {"of_clients": 0, "of_masters": 1})
            equal(after["ps/0"]["devices"], ["/job:ps/replica:0/task:0/device:CPU:0"])
            assert after["ps/0"]["memory"]["resident_bytes"] > 1 << 20


def wait_until(holds):
    end = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.05)


def case_waits_between_tasks(cluster):
    """Every task that a blocked step affects reports the wait."""
    with tf.Graph().as_default():
        with v1.device(PS0):
            queue = v1.FIFOQueue(10, [tf.int32], [[]], shared_name="jobs", name="jobs")
            put = queue.enqueue([20])
            got = queue.dequeue(name="take")
        with v1.device(W0):
            y = tf.add(got, 1, name="y")
        with v1.Session(cluster.target("worker:0")) as s:
            s.run(queue.size())
            results = []
            thread = threading.Thread(target=lambda: results.append(s.run(y)))
            thread.start()

            def waits():
                return {w["kind"]: w for w in cluster.status("--waits")[1]["waits"]}
            wait_until(lambda: {"node", "tensor", "part"} <= waits().keys())
            found = waits()
            node, tensor, part = found["node"], found["tensor"], found["part"]
            equal((node["task"], node["what"], node["op"], node["on"]),
                  ("ps/0", "take", "QueueDequeueV2", "jobs"))
            equal((tensor["task"], tensor["of"]), ("worker/0", "ps/0"))
            assert "take" in tensor["what"], tensor
            equal((part["task"], part["of"]), ("worker/0", "ps/0"))
            assert node["step"] == tensor["step"] == part["step"] != 0
            s.run(put)
            thread.join(10)
            equal(results, [21])
            wait_until(lambda: not cluster.status("--waits")[1]["waits"])


@tasks({"ps:0": OURS, "ps:1": OURS, "worker:0": OURS, "worker:1": THEIRS})
def case_tasks_that_do_not_answer(cluster):
    """A stopped task is silent, a killed task is dead, neither delays the command; TensorFlow's is alive."""
    cluster.signal("ps:0", signal.SIGSTOP)
    cluster.kill("ps:1")
    begin = time.monotonic()
    code, status = cluster.status("--waits")
    took = time.monotonic() - begin
    cluster.signal("ps:0", signal.SIGCONT)
    assert took < 4, f"it took {took:.1f} s"
    equal(code, 1)
    states = {name: task["state"] for name, task in by_task(status).items()}
    equal(states, {"ps/0": "silent", "ps/1": "dead", "worker/0": "alive", "worker/1": "alive"})
    theirs = by_task(status)["worker/1"]
    equal(theirs["version"], None)
    equal(theirs["devices"], ["/job:worker/replica:0/task:1/device:CPU:0"])


def case_health(cluster):
    def health(task):
        return cluster.health(task)[0]
    equal(health("ps:0"), 0)
    equal(cluster.health("ps:0")[1]["serving"], True)
    cluster.signal("ps:0", signal.SIGSTOP)
    begin = time.monotonic()
    equal(health("ps:0"), 1)
    assert time.monotonic() - begin < 5
    cluster.signal("ps:0", signal.SIGCONT)
    cluster.kill("ps:0")
    equal(health("ps:0"), 1)
