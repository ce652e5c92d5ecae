"""Tasks that crash, start late, or restart."""

import signal
import threading
import time

import numpy as np
import tensorflow as tf

from cluster import OURS, tasks, transports
from support import equal, raises, v1

# Elements of a large variable: 32 MB.
SIZE = 8 << 20
PS0, PS1, W0, W1 = ("/job:ps/task:0", "/job:ps/task:1", "/job:worker/task:0", "/job:worker/task:1")


class Within:
    """The block must end within this time."""

    def __init__(self, seconds):
        self.seconds = seconds

    def __enter__(self):
        self.begin = time.monotonic()

    def __exit__(self, kind, *_):
        took = time.monotonic() - self.begin
        assert kind or took < self.seconds, f"it took {took:.2f} s, not {self.seconds}"


def counter():
    with v1.device(PS0):
        v = v1.get_variable("v", [], tf.int64, v1.zeros_initializer(), use_resource=False)
    with v1.device(W1):
        one = tf.identity(v1.placeholder_with_default(tf.constant(1, tf.int64), []))
    return v, v1.assign_add(v, one)


def case_a_killed_parameter_server(cluster):
    """Steps that need it fail at once with its name; a new session finds it after the restart."""
    with tf.Graph().as_default(), v1.device(W0):
        v, add = counter()
        session = v1.Session(cluster.target("worker:0"))
        session.run(v1.global_variables_initializer())
        equal(session.run(add), 1)
        cluster.kill("ps:0")
        for _ in range(3):
            with Within(1), raises(tf.errors.UnavailableError, "/job:ps/replica:0/task:0"):
                session.run(add)
        cluster.start("ps:0")
        with Within(2), raises((tf.errors.AbortedError, tf.errors.UnavailableError)):
            session.run(add)
        with Within(1):
            session.close()
        with v1.Session(cluster.target("worker:0")) as s:
            s.run(v1.global_variables_initializer())
            equal(s.run(add), 1)


@transports("auto", "grpc")
def case_killed_in_the_middle_of_a_step(cluster):
    """A step that waits for another task ends when that task is killed."""
    for victim, device in [("ps:0", PS0), ("worker:1", W1)]:
        with tf.Graph().as_default(), v1.device(device):
            queue = v1.FIFOQueue(10, [tf.int32], [[]], shared_name="never")
            with v1.device(PS1):
                got = queue.dequeue() + 1
            with v1.Session(cluster.target("worker:0")) as s:
                s.run(queue.size())
                failed = []

                def wait():
                    try:
                        s.run(got)
                    except tf.errors.OpError as e:
                        failed.append((e, time.monotonic()))
                thread = threading.Thread(target=wait)
                thread.start()
                time.sleep(0.5)
                killed = time.monotonic()
                cluster.kill(victim)
                thread.join(5)
                assert failed, "the step goes on"
                error, at = failed[0]
                assert isinstance(error, tf.errors.UnavailableError), error
                name = "/job:{}/replica:0/task:{}".format(*victim.split(":"))
                assert name in str(error), error
                assert at - killed < 1, f"{at - killed:.2f} s"
                begin = time.monotonic()
            assert time.monotonic() - begin < 1, "it took long to close"


def shares_memory(cluster, task):
    """Whether a task has mapped the shared memory of the stream protocol."""
    with open(f"/proc/{cluster.processes[task].pid}/maps") as f:
        return "memfd:thalweg-ring" in f.read()


class Adding(threading.Thread):
    """Adds a large variable of worker 1 to one of the parameter server until that fails."""

    def __init__(self, target):
        super().__init__(daemon=True)
        self.count, self.error, self.ended = 0, None, None
        with v1.device(PS0):
            total = v1.get_variable("total", [SIZE], tf.int32, v1.zeros_initializer(),
                                    use_resource=False)
            self.sums = tf.stack([tf.reduce_min(total), tf.reduce_max(total)])
        with v1.device(W1):
            added = v1.get_variable("added", [SIZE], tf.int32, v1.ones_initializer(),
                                    use_resource=False)
        self.add = v1.assign_add(total, added).op
        self.session = v1.Session(target)
        self.session.run(v1.global_variables_initializer())
        # The first step sets up the connection between the two tasks.
        self.session.run(self.add)
        self.count += 1

    def run(self):
        try:
            while True:
                self.session.run(self.add)
                self.count += 1
        except tf.errors.OpError as e:
            self.error, self.ended = e, time.monotonic()


def case_large_tensors_of_paused_and_killed_tasks(cluster):
    """After a pause in the middle of a tensor the step continues; a kill ends the step at once."""
    for victim, other in [("worker:1", "ps:0"), ("ps:0", "worker:1")]:
        with tf.Graph().as_default():
            adding = Adding(cluster.target("worker:0"))
            adding.start()
            has_ring = cluster.transport == "auto"
            assert all(shares_memory(cluster, task) == has_ring for task in (victim, other))
            for i, task in enumerate([victim, other] * 3):
                time.sleep(0.1 + 0.007 * i)
                cluster.signal(task, signal.SIGSTOP)
                time.sleep(0.1)
                cluster.signal(task, signal.SIGCONT)
            # The slots stay filled until the one task continues and the other is killed.
            cluster.signal(other, signal.SIGSTOP)
            time.sleep(0.1)
            assert adding.error is None, adding.error
            cluster.kill(victim)
            killed = time.monotonic()
            cluster.signal(other, signal.SIGCONT)
            adding.join(5)
            assert isinstance(adding.error, tf.errors.UnavailableError), adding.error
            assert "/job:{}/replica:0/task:{}".format(*victim.split(":")) in str(adding.error)
            assert adding.ended - killed < 1, f"{adding.ended - killed:.2f} s"
            adding.session.close()
            end = time.monotonic() + 5
            while shares_memory(cluster, other):
                assert time.monotonic() < end, "the memory is kept"
                time.sleep(0.01)
            cluster.start(victim)
            if victim == "worker:1":
                with v1.Session(cluster.target("ps:0")) as s:
                    least, most = s.run(adding.sums)
                # The last step may have completed although it failed, and no step was applied partly.
                assert least == most and adding.count <= most <= adding.count + 1, (least, most)


def case_a_killed_task_outside_the_graph(cluster):
    cluster.kill("worker:1")
    cluster.kill("ps:1")
    with tf.Graph().as_default(), v1.device(PS0):
        with Within(3), v1.Session(cluster.target("worker:0")) as s:
            equal(s.run(tf.constant(1) + 1), 2)


def case_a_session_opened_while_tasks_are_stopped(cluster):
    """CreateSession waits for the task that its graph names, and not for the other."""
    for task in ("ps:0", "worker:1"):
        cluster.signal(task, signal.SIGSTOP)
    with tf.Graph().as_default():
        with v1.device(PS1), Within(2), v1.Session(cluster.target("worker:0")) as s:
            equal(s.run(tf.constant(1) + 1), 2)
        with v1.device(PS0):
            y = tf.constant(20) + 1
        threading.Timer(4, cluster.signal, ["ps:0", signal.SIGCONT]).start()
        with Within(8), v1.Session(cluster.target("worker:0")) as s:
            equal(s.run(y), 21)
    assert "waits for /job:ps/replica:0/task:0" in cluster.log("worker:0")
    cluster.signal("worker:1", signal.SIGCONT)


@tasks({"ps:0": "late " + OURS, "worker:0": OURS})
def case_a_session_waits_for_a_task_that_starts_late(cluster):
    """CreateSession waits for the task that the graph names, and logs its name."""
    with tf.Graph().as_default():
        with v1.device(PS0):
            y = tf.constant(20) + 1
        threading.Timer(2, cluster.start, ["ps:0"]).start()
        with Within(10), v1.Session(cluster.target("worker:0")) as s:
            begin = time.monotonic()
            equal(s.run(y), 21)
            assert time.monotonic() - begin > 1.5


NONE_STARTED = tasks({"ps:0": "late " + OURS, "worker:0": "late " + OURS})


def open_without_task(cluster, seconds, run):
    """Opens a session whose graph names a task that does not start within `seconds`, the startup wait of the master."""
    cluster.start("worker:0", arguments=["--startup-timeout", str(seconds)])
    with tf.Graph().as_default(), v1.device(PS0):
        y = tf.constant(20) + 1
        begin = time.monotonic()
        missing = ["/job:ps/replica:0/task:0", f"within {seconds} s"]
        with Within(seconds + 6), raises(tf.errors.DeadlineExceededError, *missing):
            run(y)
        assert time.monotonic() - begin > seconds - 0.5, "it was given up too soon"


@NONE_STARTED
def case_a_startup_wait_ends(cluster):
    """A client without a timeout gets an error, after its master has logged twice which task it waits for."""
    open_without_task(cluster, 14, lambda y: v1.Session(cluster.target("worker:0")).run(y))
    # Logged after 3 s, and again 10 s later.
    equal(cluster.log("worker:0").count("a session waits for /job:ps/replica:0/task:0"), 2)


@NONE_STARTED
def case_a_startup_wait_ends_for_monitored_sessions(cluster):
    """Monitored sessions retry a lost session, but not one that cannot be created."""
    def run(y):
        creator = v1.train.ChiefSessionCreator(master=cluster.target("worker:0"))
        v1.train.MonitoredSession(creator).run(y)
    open_without_task(cluster, 2, run)


@NONE_STARTED
def case_a_session_ends_at_its_clients_deadline(cluster):
    """CreateSession ends with its caller's deadline and leaves no state."""
    cluster.start("worker:0")
    config = v1.ConfigProto(operation_timeout_in_ms=1500)
    with tf.Graph().as_default(), v1.device(PS0):
        y = tf.constant(20) + 1
        with Within(4), raises(tf.errors.DeadlineExceededError):
            v1.Session(cluster.target("worker:0"), config=config).run(y)
    end = time.monotonic() + 5
    while cluster.status("--waits")[1]["waits"]:
        assert time.monotonic() < end, cluster.status("--waits")[1]["waits"]
        time.sleep(0.1)


def case_a_graph_that_grows_to_another_task(cluster):
    with tf.Graph().as_default():
        with v1.Session(cluster.target("worker:0")) as s:
            s.list_devices()
            with v1.device(PS1):
                y = tf.constant(20) + 1
            equal(s.run(y), 21)


def case_the_first_cause_ends_a_step_everywhere(cluster):
    """One task fails while the others wait; all waits end."""
    with tf.Graph().as_default():
        queues = []
        for i, device in enumerate([PS0, PS1, W1]):
            with v1.device(device):
                queue = v1.FIFOQueue(10, [tf.int32], [[]], shared_name=f"q{i}")
                queues.append(queue)
        with v1.device(W1):
            x = v1.placeholder(tf.int32, [None])
            bad = tf.reduce_sum(tf.reshape(x, [2, 2], name="bad"))
        sums = bad + queues[0].dequeue() + queues[1].dequeue()
        puts = [q.enqueue([5]) for q in queues]
        sizes = [q.size() for q in queues]
        with v1.Session(cluster.target("worker:0")) as s:
            for _ in range(3):
                with Within(2), raises(tf.errors.InvalidArgumentError, "bad"):
                    s.run(sums, {x: [1, 2, 3]})
            # An aborted step dequeues nothing.
            s.run(puts)
            time.sleep(0.2)
            equal(s.run(sizes), [1, 1, 1])
            equal(s.run(sums, {x: [1, 2, 3, 4]}), 20)


def case_a_deadline_ends_a_step_everywhere(cluster):
    with tf.Graph().as_default(), v1.device(PS0):
        queue = v1.FIFOQueue(10, [tf.int32], [[]], shared_name="q")
        with v1.device(PS1):
            got = queue.dequeue() + 1
        put, size = queue.enqueue([1]), queue.size()
        with v1.Session(cluster.target("worker:0")) as s:
            with Within(3), raises(tf.errors.DeadlineExceededError):
                s.run(got, options=v1.RunOptions(timeout_in_ms=500))
            time.sleep(0.2)
            s.run(put)
            equal(s.run(size), 1)


def case_a_stopped_task_does_not_delay_a_close(cluster):
    with tf.Graph().as_default(), v1.device(PS0):
        y = tf.constant(1) + 1
        s = v1.Session(cluster.target("worker:0"))
        s.run(y)
        cluster.signal("ps:0", signal.SIGSTOP)
        with Within(1):
            s.close()
        cluster.signal("ps:0", signal.SIGCONT)


def case_a_paused_task_continues(cluster):
    """A stopped task loses nothing: the step continues when it does."""
    with tf.Graph().as_default(), v1.device(W0):
        v, add = counter()
        with v1.Session(cluster.target("worker:0")) as s:
            s.run(v1.global_variables_initializer())
            cluster.signal("ps:0", signal.SIGSTOP)
            threading.Timer(4, cluster.signal, ["ps:0", signal.SIGCONT]).start()
            equal(s.run(add), 1)
            equal(s.run(add), 2)


@tasks({"ps:0": OURS, "worker:0": "late " + OURS})
def case_a_silence_limit(cluster):
    """A task that stays stopped is declared lost after the silence limit, and not before."""
    cluster.start("worker:0", arguments=["--heartbeat-timeout", "4"])
    with tf.Graph().as_default(), v1.device(PS0):
        v = v1.get_variable("v", [], tf.int64, v1.zeros_initializer(), use_resource=False)
        add = v1.assign_add(v, 1)
        with v1.Session(cluster.target("worker:0")) as s:
            s.run(v1.global_variables_initializer())
            cluster.signal("ps:0", signal.SIGSTOP)
            begin = time.monotonic()
            with Within(8), raises(tf.errors.UnavailableError, "silent for"):
                s.run(add)
            assert time.monotonic() - begin > 3, "it was given up too soon"
            assert "silent" in cluster.log("worker:0")
        cluster.signal("ps:0", signal.SIGCONT)
