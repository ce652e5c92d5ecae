"""Builds the image of deploy/ around a static program and trains with its compose file.

    python3 tests/container/run.py --program target/x86_64-unknown-linux-gnu/release/thalweg

Needs root and Debian's packages docker.io and docker-compose, which it installs where they are not.
It starts a docker daemon of its own in a temporary folder and ends it again.
"""

import argparse
import contextlib
import itertools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

DEPLOY = pathlib.Path(__file__).resolve().parents[2] / "deploy"
PACKAGES = ["docker.io", "docker-compose", "iptables"]
IMAGE = "thalweg-test"
MEGABYTE = 1 << 20


def run(*command, check=True, seconds=300, **more):
    done = subprocess.run([str(part) for part in command], stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds, **more)
    if check and done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}")
    return done


def install():
    if shutil.which("dockerd") and shutil.which("docker-compose"):
        return
    run("apt-get", "install", "-y", "--no-install-recommends", *PACKAGES, seconds=600)


@contextlib.contextmanager
def daemon(folder):
    """A docker daemon; DOCKER_HOST names it as long as it is there."""
    socket = f"unix://{folder}/docker.sock"
    log = open(folder / "dockerd.log", "w")
    process = subprocess.Popen(
        ["dockerd", "--data-root", folder / "data", "--exec-root", folder / "exec", "-H", socket,
         "--pidfile", folder / "docker.pid"], stdout=log, stderr=log)
    os.environ.update(DOCKER_HOST=socket, DOCKER_BUILDKIT="0", THALWEG_IMAGE=IMAGE)
    try:
        end = time.monotonic() + 60
        while run("docker", "version", check=False).returncode != 0:
            assert process.poll() is None and time.monotonic() < end, (folder / "dockerd.log").read_text()
            time.sleep(0.5)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def build(program, folder):
    context = folder / "image"
    context.mkdir()
    shutil.copy(DEPLOY / "Dockerfile", context)
    shutil.copy(program, context / "thalweg")
    run("strip", context / "thalweg")
    run("docker", "build", "-t", IMAGE, context)
    size = int(run("docker", "image", "inspect", "-f", "{{.Size}}", IMAGE).stdout)
    print(f"ok     the image builds ({size / 1e6:.0f} MB)")


class Project:
    """The compose file's containers."""

    def __init__(self, folder):
        # A project's name is that of its folder.
        self.folder = folder / "deploy"
        shutil.copytree(DEPLOY, self.folder)

    def compose(self, *arguments, **more):
        return run("docker-compose", *arguments, cwd=self.folder, **more)

    def container(self, service):
        return self.compose("ps", "-q", service).stdout.split()[-1]

    def inspect(self, service, what):
        return run("docker", "inspect", "-f", what, self.container(service)).stdout.strip()


def trains(project):
    """The client ends well, the weights are right, and the tasks say that they ran the steps."""
    begin = time.monotonic()
    project.compose("up", "-d", "ps-0", "worker-0", "worker-1")
    project.compose("up", "-d", "train")
    code = run("docker", "wait", project.container("train"), seconds=120).stdout.strip()
    said = run("docker", "logs", project.container("train")).stdout
    assert code == "0", f"the client ended with {code}:\n{said}\n{project.compose('logs').stdout}"
    result = json.loads(said.splitlines()[-1])
    fetches, steps = result["fetches"], result["steps"]
    flat = [row[0] for row in fetches["weights"]["values"]]
    assert steps == 200 and fetches["loss"]["values"] < 1e-6, said
    assert all(abs(a - b) < 1e-3 for a, b in zip(flat, [1, -2, 3])), said
    print(f"ok     the compose file trains ({time.monotonic() - begin:.1f} s)")


def status(project):
    spec = "ps=ps-0:2222;worker=worker-0:2222,worker-1:2222"
    done = run("docker", "exec", project.container("worker-1"), "/thalweg", "cluster", "status",
               "--cluster", spec, "--json")
    return {task["task"]: task for task in json.loads(done.stdout)["tasks"]}


def follows_limits(project):
    """Counters, limits and health, asked from within another container."""
    tasks = status(project)
    assert {task["state"] for task in tasks.values()} == {"alive"}, tasks
    # The initializer is a step too, of the parameter server alone.
    assert tasks["worker/0"]["steps"]["as_master"] == 201, tasks
    assert tasks["ps/0"]["steps"]["as_worker"] == 201, tasks
    assert tasks["worker/1"]["steps"]["as_worker"] == 200, tasks
    for task in tasks.values():
        assert task["memory"]["limit_bytes"] == 512 * MEGABYTE // 10 * 8, task
        assert task["threads"] == 1, task
        assert task["process"] == 1, task
    for service in ("ps-0", "worker-0", "worker-1"):
        assert project.inspect(service, "{{.State.Health.Status}}") == "healthy", service
    print("ok     threads and memory follow the limits of the containers")


def ends_at_once(project):
    """As the first process of its container it heeds SIGTERM."""
    container = project.container("worker-1")
    begin = time.monotonic()
    run("docker", "stop", "-t", "30", container)
    took = time.monotonic() - begin
    assert project.inspect("worker-1", "{{.State.ExitCode}}") == "0"
    assert took < 8, f"it took {took:.1f} s to stop"
    tasks = run("docker", "exec", project.container("ps-0"), "/thalweg", "cluster", "status",
                "--cluster", "worker=worker-0:2222,worker-1:2222", "--json", check=False)
    assert tasks.returncode == 1, tasks.stdout
    print(f"ok     a task ends when it is told to ({took:.1f} s)")


def children(process):
    return pathlib.Path(f"/proc/{process}/task/{process}/children").read_text().split()


def reaps(program, *command, own, begins):
    """Orphans of a container become children of its first process; none is left a zombie.

    `own` children of the process stay; it has begun once it prints a line with `begins`.
    """
    process = subprocess.Popen(
        ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", program, *command],
        stdout=subprocess.PIPE)
    try:
        while begins not in process.stdout.readline():
            assert process.poll() is None, f"{command} ended with {process.returncode}"
        first = children(process.pid)[0]
        orphans = "for i in 1 2 3; do (sleep 0.1 &); done"
        run("nsenter", "--target", first, "--pid", "sh", "-c", orphans)
        time.sleep(1)
        left = children(first)
        assert len(left) == own, f"{command} has {own} children and these: {left}"
    finally:
        process.kill()
        process.wait()
    name = " ".join(itertools.takewhile(lambda word: word.isalpha(), command))
    print(f"ok     {name} as the first process of a container reaps orphans")


def all_reap(program, folder):
    file = folder / "cluster.toml"
    file.write_text("[job.worker]\ntasks = 2\n")
    reaps(program, "server", "--port", "0", own=0, begins=b"listening")
    # Without --foreground too: a container ends with its first process.
    reaps(program, "cluster", "up", str(file), "--state-dir", str(folder / "state"), own=2,
          begins=b"listening")
    reaps(program, "launch", "--ps", "0", "--log-dir", str(folder / "logs"), "--", "sh", "-c",
          "echo listening; sleep 1000", own=1, begins=b"listening")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True, help="a static thalweg")
    args = parser.parse_args()
    program = os.path.abspath(args.program)
    described = run("file", program).stdout if shutil.which("file") else "statically linked"
    assert "statically linked" in described or "static-pie linked" in described, described
    install()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="thalweg-container-"))
    try:
        all_reap(program, folder)
        with daemon(folder):
            build(program, folder)
            project = Project(folder)
            try:
                trains(project)
                follows_limits(project)
                ends_at_once(project)
            finally:
                project.compose("down", "-t", "5", check=False)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
