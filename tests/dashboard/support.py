"""Dashboards and clusters under test."""

import json
import os
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request

START_SECONDS_MAX = 60
STOP_SECONDS_MAX = 20


class World:
    def __init__(self, thalweg, browser, folder):
        self.thalweg, self.browser, self.root = os.path.abspath(thalweg), browser, folder

    def folder(self):
        return tempfile.mkdtemp(dir=self.root)

    def file(self, content):
        descriptor, path = tempfile.mkstemp(dir=self.root)
        with os.fdopen(descriptor, "wb") as f:
            f.write(content)
        return path

    def dashboard(self, *args):
        return Dashboard(self.thalweg, *args)

    def cluster(self, **jobs):
        return Cluster(self.thalweg, jobs)

    def open(self, dashboard, tab="", **options):
        return self.browser.open(dashboard.url, tab, **options)

    def command(self, *args, **options):
        return subprocess.Popen(
            [self.thalweg, *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
        )


class Process:
    """One command, stopped at the end of the block."""

    def __init__(self, command, **options):
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, text=True, **options)

    def said(self):
        self.log.seek(0)
        return self.log.read()

    def line(self, beginning):
        """What follows `beginning` in the first line of standard output."""
        line = self.process.stdout.readline()
        assert line.startswith(beginning), (line, self.said())
        return line[len(beginning) :].strip()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        """Stops it with a signal, and checks that it ended well."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        said = self.said()
        self.process.stdout.close()
        self.log.close()
        assert "panicked at" not in said, said
        return self.process.returncode

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


class Dashboard(Process):
    """`thalweg dashboard` on a free port."""

    def __init__(self, thalweg, *args):
        super().__init__([thalweg, "dashboard", "--port", "0", *args])
        self.url = self.line("dashboard at ")

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=START_SECONDS_MAX) as response:
            return json.load(response)

    def __exit__(self, kind, *_):
        code = self.stop()
        assert kind is not None or code == 0, f"the dashboard ended with {code}"


class Cluster:
    """A server of ours for each task, stopped at the end of the block."""

    def __init__(self, thalweg, jobs):
        self.thalweg = thalweg
        addresses = {job: [free_address() for _ in range(n)] for job, n in jobs.items()}
        self.spec = ";".join(f"{job}={','.join(hosts)}" for job, hosts in addresses.items())
        self.addresses = {f"{job}/{i}": a for job, hosts in addresses.items() for i, a in enumerate(hosts)}
        self.tasks = {}
        for name in self.addresses:
            self.start(name)
        for task in self.tasks.values():
            task.line("listening on ")

    def start(self, name):
        job, index = name.split("/")
        command = [self.thalweg, "server", "--cluster", self.spec, "--job-name", job, "--task-index", index]
        self.tasks[name] = Process(command)

    def kill(self, name):
        """Kills the process of a task; returns when it was done."""
        self.tasks[name].kill()
        return time.monotonic()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for task in self.tasks.values():
            task.stop()


def free_address():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{s.getsockname()[1]}"
