"""A cluster of processes on this machine, ours and TensorFlow's."""

import collections
import json
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

# The implementation that runs a task: ours, or TensorFlow's.
OURS, THEIRS = "ours", "theirs"
DEFAULT_TASKS = {task: OURS for task in ("ps:0", "ps:1", "worker:0", "worker:1", "worker:2")}
START_SECONDS_MAX = 60
# Signals that tests send to end tasks, and the exit code of a Rust program whose main thread panicked.
SENT_SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
PANIC_CODE = 101


def tasks(*layouts):
    """Declares the tasks of a case: one or several dicts of "job:index" to the implementation."""
    def mark(case):
        case.layouts = list(layouts)
        return case
    return mark


def transports(*names):
    """Declares the transports between tasks of ours: the case runs once with each."""
    def mark(case):
        case.transports = list(names)
        return case
    return mark


def free_ports(count):
    """Free ports; bound at the same time, so that all differ."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]
    finally:
        for s in sockets:
            s.close()


def tensorflow_task(spec, job, index, log):
    """Runs a TensorFlow server in a forked process until it is killed."""
    os.setpgid(0, 0)
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)
    import tensorflow as tf
    tf.distribute.Server(spec, job_name=job, task_index=index, start=True)
    signal.pause()


class Cluster:
    """Tasks by name, "job:index". Tasks whose kind begins with "late" are started by the case itself."""

    def __init__(self, server, kinds, logs=None, start=True, transport="auto"):
        self.server, self.kinds, self.transport = server, dict(kinds), transport
        ports = free_ports(len(kinds))
        self.addresses = {t: f"127.0.0.1:{port}" for t, port in zip(kinds, ports, strict=True)}
        self.processes = {}
        # Further arguments of tasks of ours, by task or job.
        self.flags = {}
        self.file = None
        self.keeps_logs = logs is not None
        self.logs = logs or tempfile.mkdtemp(prefix="thalweg-cluster-")
        if start:
            self.start_all()

    def start_all(self, arguments=()):
        """Starts all tasks, except those that a case starts itself."""
        for task, kind in self.kinds.items():
            if not kind.startswith("late"):
                self.start(task, wait=False, arguments=arguments)
        for task in list(self.processes):
            self.wait_for(task)

    def spec(self, address=None):
        """The addresses of each job, in the form of TensorFlow's ClusterSpec."""
        jobs = collections.defaultdict(list)
        for task in self.addresses:
            jobs[task.split(":")[0]].append((address or self.addresses.get)(task))
        return dict(jobs)

    def command(self, task, address=None):
        """The command line of a task of ours; `address` maps the other tasks to their addresses."""
        job, index = task.split(":")
        spec = f"@{self.file}" if self.file else self.text(address)
        return [self.server, "server", "--cluster", spec, "--job", job, "--task", index,
                "--transport", self.transport, *self.flags.get(job, []), *self.flags.get(task, [])]

    def text(self, address=None):
        """The addresses of each job, in the form of --cluster."""
        return ";".join(f"{job}={','.join(a)}" for job, a in self.spec(address).items())

    def write_file(self):
        """Writes the cluster file, which tasks of ours that are started later read."""
        self.file = os.path.join(self.logs, "cluster.txt")
        with open(self.file + ".new", "w") as f:
            f.write(self.text())
        os.replace(self.file + ".new", self.file)

    def move(self, task):
        """Assigns another address to a task that is not running."""
        self.addresses[task] = f"127.0.0.1:{free_ports(1)[0]}"

    def target(self, task):
        return "grpc://" + self.addresses[task]

    def start(self, task, wait=True, arguments=()):
        """Starts or restarts a task."""
        job, index = task.split(":")
        log = open(os.path.join(self.logs, task.replace(":", "-") + ".log"), "ab")
        if self.kinds[task].endswith(THEIRS):
            process = multiprocessing.get_context("fork").Process(
                target=tensorflow_task, args=(self.spec(), job, int(index), log))
            process.start()
        else:
            process = subprocess.Popen([*self.command(task), *arguments], stdout=log, stderr=log)
        self.processes[task] = process
        if wait:
            self.wait_for(task)

    def wait_for(self, task):
        """Waits until a task listens."""
        host, port = self.addresses[task].split(":")
        end = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                socket.create_connection((host, int(port)), 1).close()
                return
            except OSError:
                assert time.monotonic() < end, f"{task} does not listen"
                time.sleep(0.02)

    def signal(self, task, number):
        """Sends a signal; after SIGSTOP, waits until the process has stopped."""
        process = self.processes[task].pid
        os.kill(process, number)
        end = time.monotonic() + 10
        while number == signal.SIGSTOP:
            with open(f"/proc/{process}/stat") as f:
                if f.read().rsplit(")", 1)[1].split()[0] in "TZ":
                    return
            assert time.monotonic() < end, f"{task} does not stop"
            time.sleep(0.001)

    def kill(self, task):
        """Kills a task with SIGKILL."""
        self.signal(task, signal.SIGKILL)
        process = self.processes.pop(task)
        # The case runs in a fork of the runner, which cannot wait for a multiprocessing child of its parent.
        if isinstance(process, subprocess.Popen):
            process.poll()

    def status(self, *arguments):
        """Exit code and JSON output of `thalweg cluster status`."""
        command = [self.server, "cluster", "status", "--json", "--cluster", self.text(), *arguments]
        done = subprocess.run(command, stdout=subprocess.PIPE, timeout=30)
        return done.returncode, json.loads(done.stdout)

    def health(self, task):
        """Exit code and JSON output of `thalweg health` for a task."""
        command = [self.server, "health", "--json", "--server", self.addresses[task]]
        done = subprocess.run(command, stdout=subprocess.PIPE, timeout=30)
        return done.returncode, json.loads(done.stdout)

    def log(self, task):
        with open(os.path.join(self.logs, task.replace(":", "-") + ".log")) as f:
            return f.read()

    def crashes(self):
        """Evidence of crashed tasks of ours: panics in their logs, and exits by a signal that no test
        sends."""
        found = []
        for task in self.kinds:
            try:
                panics = [line for line in self.log(task).splitlines() if "panicked at" in line]
            except FileNotFoundError:
                panics = []
            found += [f"{task}: {line}" for line in panics]
            process = self.processes.get(task)
            code = process.poll() if isinstance(process, subprocess.Popen) else None
            if code == PANIC_CODE or (code is not None and code < 0 and -code not in SENT_SIGNALS):
                found.append(f"{task} ended with {code}")
        return found

    def stop(self):
        for process in self.processes.values():
            try:
                os.kill(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for process in self.processes.values():
            process.wait() if isinstance(process, subprocess.Popen) else process.join()
        if not self.keeps_logs:
            shutil.rmtree(self.logs, ignore_errors=True)
