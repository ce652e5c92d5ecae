"""`thalweg cluster trace` and `trace_level`: steps over several tasks in one trace, and what their time went into."""

import json
import os
import queue
import socket
import subprocess
import threading
import time

import tensorflow as tf

from cluster import OURS, THEIRS, tasks, transports
from support import equal, v1

PS0, PS1, W0 = "/job:ps/task:0", "/job:ps/task:1", "/job:worker/task:0"
PAIR = {"ps:0": OURS, "worker:0": OURS}
CHARGED_MIN = 0.95
DELAY_SECONDS = 0.020
TRACE_SECONDS_MAX = 60
CHUNK = 1 << 18


class DelayingProxy:
    """A TCP proxy that forwards the bytes of each direction after a delay, in order."""

    def __init__(self, address):
        self.target = address.split(":")
        self.to = self.back = 0.0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def delay(self, to=0.0, back=0.0):
        """Delays bytes to the server, and those that come back, by so many seconds."""
        self.to, self.back = to, back

    def _accept(self):
        while True:
            try:
                ours, _ = self.listener.accept()
            except OSError:
                return
            theirs = socket.create_connection(self.target)
            for s in (ours, theirs):
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._pump(ours, theirs, lambda: self.to)
            self._pump(theirs, ours, lambda: self.back)

    @staticmethod
    def _pump(source, sink, delay):
        chunks = queue.Queue()

        def read():
            data = True
            while data:
                try:
                    data = source.recv(CHUNK)
                except OSError:
                    data = b""
                chunks.put((time.monotonic() + delay(), data))

        def write():
            while True:
                due, data = chunks.get()
                time.sleep(max(0.0, due - time.monotonic()))
                try:
                    if not data:
                        return sink.shutdown(socket.SHUT_WR)
                    sink.sendall(data)
                except OSError:
                    return
        for body in (read, write):
            threading.Thread(target=body, daemon=True).start()

    def stop(self):
        self.listener.close()


def trace(cluster, step, master="worker:0"):
    """Runs steps until one was traced from outside: the command's JSON and the timeline's events."""
    for _ in range(3):
        step()
    path = os.path.join(cluster.logs, "trace.json")
    command = [cluster.server, "cluster", "trace", cluster.addresses[master], "--json",
               "--output", path, "--timeout", "30"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    end = time.monotonic() + TRACE_SECONDS_MAX
    try:
        while process.poll() is None:
            assert time.monotonic() < end, "no step was traced"
            step()
    finally:
        process.kill()
    printed, errors = process.communicate()
    assert process.returncode == 0, errors.decode()
    with open(path) as f:
        return json.loads(printed), json.load(f)["traceEvents"]


def check_charged(traced):
    """What is charged adds up to the share that the command states, which is large."""
    assert traced["charged_share"] >= CHARGED_MIN, traced
    parts = [row["seconds"] for key in ("compute", "queueing", "waiting") for row in traced[key]]
    parts += [link["critical_seconds"] for link in traced["links"]]
    charged = sum(parts) / traced["seconds"]
    assert abs(charged - traced["charged_share"]) < 1e-6, (charged, traced)


def by_key(rows, key):
    return {row[key]: row["seconds"] for row in rows}


def link(traced, source, destination):
    found = [x for x in traced["links"] if (x["from"], x["to"]) == (source, destination)]
    assert len(found) == 1, traced["links"]
    return found[0]


def dense_model():
    """Two dense layers with weights on the parameter server, trained on the worker."""
    with v1.device(PS0):
        w1 = v1.get_variable("w1", [256, 128], initializer=v1.ones_initializer())
        w2 = v1.get_variable("w2", [128, 10], initializer=v1.ones_initializer())
    with v1.device(W0):
        x = tf.random.uniform([64, 256])
        loss = tf.reduce_mean(tf.matmul(tf.nn.relu(tf.matmul(x, w1)), w2))
        return v1.train.GradientDescentOptimizer(0.01).minimize(loss)


def embedding_model():
    """A lookup of few rows of a large table on the parameter server, which is updated sparsely."""
    with v1.device(PS0):
        table = v1.get_variable("table", [20_000, 64], initializer=v1.ones_initializer())
    with v1.device(W0):
        ids = tf.random.uniform([128], 0, 20_000, tf.int32)
        loss = tf.reduce_sum(tf.square(tf.nn.embedding_lookup(table, ids)))
        return v1.train.GradientDescentOptimizer(0.01).minimize(loss)


def large_model():
    """50 MB of weights that the worker reads in each step."""
    with v1.device(PS0):
        w = v1.get_variable("w", [12_500_000], initializer=v1.ones_initializer())
    with v1.device(W0):
        return tf.reduce_sum(w).op


def check_model(cluster, build):
    with tf.Graph().as_default():
        train, init = build(), v1.global_variables_initializer()
        with v1.Session(cluster.target("worker:0")) as s:
            s.run(init)
            return trace(cluster, lambda: s.run(train))


@transports("auto", "grpc")
@tasks(PAIR)
def case_most_of_a_dense_step_is_charged(cluster):
    traced, _ = check_model(cluster, dense_model)
    check_charged(traced)
    equal(traced["master"], "/job:worker/replica:0/task:0")
    assert traced["step"] != 0, traced
    assert link(traced, "ps/0", "worker/0")["bytes"] >= 4 * (256 * 128 + 128 * 10)
    assert link(traced, "worker/0", "ps/0")["bytes"] >= 4 * (256 * 128 + 128 * 10)
    clock, = traced["clocks"]
    equal(clock["task"], "/job:ps/replica:0/task:0")
    # Both tasks run on this machine.
    equal((clock["offset_seconds"], clock["error_seconds"]), (0, 0))
    assert 0 < clock["round_trip_seconds"] < 1, clock


@transports("auto", "grpc")
@tasks(PAIR)
def case_most_of_an_embedding_step_is_charged(cluster):
    traced, _ = check_model(cluster, embedding_model)
    check_charged(traced)
    assert link(traced, "ps/0", "worker/0")["bytes"] >= 128 * 64 * 4


@transports("auto", "grpc")
@tasks(PAIR)
def case_most_of_a_step_with_large_transfers_is_charged(cluster):
    traced, _ = check_model(cluster, large_model)
    check_charged(traced)
    way = link(traced, "ps/0", "worker/0")
    assert way["bytes"] >= 50_000_000 and way["critical_seconds"] > 0, way


@tasks({"ps:0": THEIRS, "worker:0": OURS})
def case_a_task_of_tensorflow_is_in_the_trace(cluster):
    """Its clock is taken for right, and its nodes come with its own times."""
    traced, _ = check_model(cluster, dense_model)
    check_charged(traced)
    clock, = traced["clocks"]
    equal(clock["error_seconds"], None)
    assert link(traced, "ps/0", "worker/0")["bytes"] >= 4 * 256 * 128


@tasks(PAIR)
def case_a_slow_task_is_named(cluster):
    """The worker waits for a product on the parameter server."""
    with tf.Graph().as_default():
        with v1.device(PS0):
            a = v1.get_variable("a", [300, 300], initializer=v1.ones_initializer())
            slow = tf.matmul(tf.matmul(a, a), a, name="slow")
            total = tf.reduce_sum(slow)
        with v1.device(W0):
            y = tf.sqrt(total) + 1.0
        with v1.Session(cluster.target("worker:0")) as s:
            s.run(a.initializer)
            traced, _ = trace(cluster, lambda: s.run(y))
    check_charged(traced)
    compute = by_key(traced["compute"], "device")
    assert compute["ps/0 CPU:0"] > 0.8 * traced["seconds"], traced
    longest = traced["critical_path"][0]
    equal((longest["kind"], longest["at"], longest["op"]), ("compute", "ps/0 CPU:0", "MatMul"))
    wait, = [w for w in traced["waits"] if (w["task"], w["of"]) == ("worker/0", "ps/0")]
    assert wait["seconds"] > 0.8 * traced["seconds"], traced["waits"]


@tasks(PAIR)
def case_a_queue_that_is_empty_is_waited_for(cluster):
    with tf.Graph().as_default():
        with v1.device(PS0):
            jobs = v1.FIFOQueue(10, [tf.float32], [[]], shared_name="jobs")
            put, take = jobs.enqueue([2.0]), jobs.dequeue(name="take")
        with v1.device(W0):
            y = take * 2.0
        with v1.Session(cluster.target("worker:0")) as s, \
                v1.Session(cluster.target("ps:0")) as other:
            def step():
                timer = threading.Timer(0.1, lambda: other.run(put))
                timer.start()
                equal(s.run(y), 4.0)
                timer.join()
            traced, _ = trace(cluster, step)
    check_charged(traced)
    waiting = by_key(traced["waiting"], "device")
    assert 0.05 < waiting["ps/0 CPU:0"] <= traced["seconds"], traced
    equal(traced["critical_path"][0]["node"], "take")


def start_behind_proxies(cluster):
    """Starts the tasks; the worker reaches each parameter server through a proxy."""
    servers = [task for task in cluster.kinds if task.startswith("ps")]
    proxies = {task: DelayingProxy(cluster.addresses[task]) for task in servers}

    def address(task):
        return proxies[task].address if task in proxies else cluster.addresses[task]
    for task in cluster.kinds:
        with open(os.path.join(cluster.logs, task.replace(":", "-") + ".log"), "ab") as log:
            command = cluster.command(task, address if task == "worker:0" else None)
            cluster.processes[task] = subprocess.Popen(command, stdout=log, stderr=log)
    for task in cluster.kinds:
        cluster.wait_for(task)
    return proxies


def least(cluster, step, source, destination, count=5):
    """The trace among several in which a link took the least time: whatever else runs only adds."""
    found = [trace(cluster, step)[0] for _ in range(count)]
    for traced in found:
        check_charged(traced)
    return min(found, key=lambda t: link(t, source, destination)["critical_seconds"])


@transports("grpc")
@tasks({"ps:0": "late " + OURS, "ps:1": "late " + OURS, "worker:0": "late " + OURS})
def case_a_slow_link_is_named_with_the_amount(cluster):
    """20 ms on the way from one of two parameter servers, and then on the way to it."""
    proxies = start_behind_proxies(cluster)
    with tf.Graph().as_default():
        weights = []
        for i, task in enumerate((PS0, PS1)):
            with v1.device(task):
                w = v1.get_variable(f"w{i}", [100, 100], initializer=v1.ones_initializer())
                weights.append(tf.matmul(w, w))
        with v1.device(W0):
            y = tf.reduce_sum(tf.matmul(weights[0], weights[1]))
        with v1.Session(cluster.target("worker:0")) as s:
            s.run(v1.global_variables_initializer())

            def step():
                s.run(y)
            for way, delays in [(("ps/1", "worker/0"), {"back": DELAY_SECONDS}),
                                (("worker/0", "ps/1"), {"to": DELAY_SECONDS})]:
                proxies["ps:1"].delay()
                fast = link(least(cluster, step, *way), *way)
                assert fast["critical_seconds"] < DELAY_SECONDS / 2, fast
                proxies["ps:1"].delay(**delays)
                slow = least(cluster, step, *way)
                named = max(slow["links"], key=lambda x: x["critical_seconds"])
                equal((named["from"], named["to"]), way)
                amount = named["critical_seconds"] / named["critical_messages"]
                assert abs(amount - DELAY_SECONDS) < 0.1 * DELAY_SECONDS, (amount, slow)
            # Both directions, as a longer cable would.
            proxies["ps:1"].delay(DELAY_SECONDS, DELAY_SECONDS)
            for way in [("ps/1", "worker/0"), ("worker/0", "ps/1")]:
                named = link(least(cluster, step, *way), *way)
                amount = named["critical_seconds"] / named["critical_messages"]
                assert abs(amount - DELAY_SECONDS) < 0.1 * DELAY_SECONDS, (way, amount)
    for proxy in proxies.values():
        proxy.stop()


@tasks(PAIR)
def case_the_timeline_opens_in_perfetto(cluster):
    traced, events = check_model(cluster, dense_model)
    named = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    equal(sorted(named.values()), ["/job:ps/replica:0/task:0", "/job:worker/replica:0/task:0",
                                   "critical path"])
    slices = [e for e in events if e["ph"] == "X"]
    for e in slices:
        assert e["pid"] in named and e["ts"] >= 0 and e["dur"] >= 0, e
        assert e["ts"] + e["dur"] <= traced["seconds"] * 1e6 + 0.01, e
    names = {(named[e["pid"]], e["args"]["op"]) for e in slices if e["cat"] == "op"}
    assert ("/job:worker/replica:0/task:0", "MatMul") in names, names
    equal({e["cat"] for e in slices}, {"op", "transfer", "dispatch", "critical"})
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    assert starts and starts.keys() == ends.keys()
    for i, start in starts.items():
        assert start["ts"] <= ends[i]["ts"] + 0.002, (start, ends[i])
    # Slices of one row lie within or beside each other.
    rows = {}
    for e in slices:
        rows.setdefault((e["pid"], e["tid"]), []).append((e["ts"], -e["dur"]))
    for row in rows.values():
        row.sort()
        open_ends = []
        for ts, negative in row:
            while open_ends and open_ends[-1] <= ts + 0.002:
                open_ends.pop()
            assert not open_ends or ts - negative <= open_ends[-1] + 0.002, row
            open_ends.append(ts - negative)


@tasks(PAIR)
def case_a_client_gets_the_aligned_report(cluster):
    """StepStats of both tasks by one clock: a node is scheduled, then starts; what is received was sent before."""
    with tf.Graph().as_default():
        train, init = dense_model(), v1.global_variables_initializer()
        options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
        with v1.Session(cluster.target("worker:0")) as s:
            s.run(init)
            s.run(train)
            metadata = v1.RunMetadata()
            before = time.time_ns()
            s.run(train, options=options, run_metadata=metadata)
            after = time.time_ns()
    times = {}
    for device in metadata.step_stats.dev_stats:
        for node in device.node_stats:
            start = node.all_start_nanos
            assert before <= node.scheduled_nanos <= start <= after, node
            assert start + node.all_end_rel_nanos <= after, node
            if " @" in node.timeline_label:
                tensor = node.timeline_label.rsplit("(", 1)[1].split(" @")[0].rsplit(", ", 1)[-1]
                kind = "_Send" if "= _Send(" in node.timeline_label else "_Recv"
                times[kind, tensor] = (start, start + node.all_end_rel_nanos)
    received = [tensor for kind, tensor in times if kind == "_Recv"]
    assert len(received) >= 4, times
    for tensor in received:
        # A `_Send` may deliver its tensor before it ends.
        assert times["_Send", tensor][0] <= times["_Recv", tensor][1], tensor


@tasks(PAIR)
def case_a_trace_without_steps_ends_at_its_deadline(cluster):
    command = [cluster.server, "cluster", "trace", cluster.addresses["worker:0"], "--timeout", "0.5"]
    done = subprocess.run(command, capture_output=True, timeout=30)
    equal(done.returncode, 1)
    assert b"no client ran a whole step" in done.stderr, done.stderr


@tasks(PAIR)
def case_the_command_run_traces_a_step_on_a_server(cluster):
    """All tasks are in the timeline, and the object says what the time went into."""
    with tf.Graph().as_default() as graph:
        with v1.device(PS0):
            x = v1.placeholder(tf.float32, [2, 2], name="x")
            square = tf.matmul(x, x)
        with v1.device(W0):
            tf.negative(square, name="y")
        path = os.path.join(cluster.logs, "graph.pb")
        with open(path, "wb") as f:
            f.write(graph.as_graph_def().SerializeToString())
    output = os.path.join(cluster.logs, "step.json")
    command = [cluster.server, "run", path, "--server", cluster.addresses["worker:0"], "--feed",
               "x=[[1,2],[3,4]]", "--fetch", "y", "--trace", output, "--repeat", "3"]
    done = subprocess.run([*command, "--json"], capture_output=True, timeout=60, check=True)
    traced = json.loads(done.stdout)["trace"]
    check_charged(traced)
    assert link(traced, "ps/0", "worker/0")["bytes"] == 16, traced["links"]
    with open(output) as f:
        events = json.load(f)["traceEvents"]
    named = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    equal(sorted(named), ["/job:ps/replica:0/task:0", "/job:worker/replica:0/task:0",
                          "critical path"])
    text = subprocess.run(command, capture_output=True, timeout=60, check=True).stderr.decode()
    assert "are charged:" in text and "link ps/0 -> worker/0" in text, text
