"""Runs the table of failures: each cell is a cluster of its own in which one task fails.

    python tests/cluster/failures.py --server target/debug/thalweg                # every cell
    python tests/cluster/failures.py --server target/debug/thalweg --short        # some, within a minute
    python tests/cluster/failures.py --server target/debug/thalweg ps/killed      # those with this in the name

In each cell four clients train: the chief and another worker's, with Monitored and with plain
sessions. `failure_table.py` has the expected outcomes; cells mostly wait, so many run concurrently.
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "clients"), str(HERE.parent / "support")]

import failure_checks  # noqa: E402
import failure_clients  # noqa: E402
import failure_table as table  # noqa: E402
from cluster import OURS, THEIRS, Cluster, free_ports  # noqa: E402
from links import CLIENTS, Links, Namespaces, namespaces_unavailable  # noqa: E402
from skips import skipped  # noqa: E402

TASKS = {"ps:0": OURS, "worker:0": OURS, "worker:1": OURS, "worker:2": OURS}
TASK_OF = {"ps": "ps:0", "stock": "ps:0", "chief": "worker:0", "worker": "worker:1", "idle": "worker:2"}
# The order of a row's outcomes.
CLIENT_ORDER = ("monitored/chief", "monitored/other", "plain/chief", "plain/other")
SHORT = ("ps/killed", "ps/restarted", "ps/elsewhere", "ps/beside", "ps/full", "ps/silent", "chief/restarted", "worker/restarted",
         "idle/killed")
WARM_STEPS, WARM_SECONDS_MAX, END_SECONDS_MAX, CELL_SECONDS_MAX = 10, 60, 10, 150


class ProxiedCluster(Cluster):
    """A cluster whose tasks reach each other and their clients by `Links`."""

    def __init__(self, server, kinds, logs, start):
        # A unix socket would bypass the proxies.
        super().__init__(server, kinds, logs, start, transport="grpc")
        self.links = Links(self.addresses)

    def command(self, task):
        def seen(t):
            return self.addresses[t] if t == task else self.links.address(task, t)
        return [*super().command(task, seen), "--port", self.addresses[task].split(":")[1]]

    def target(self, task):
        return "grpc://" + self.links.address(CLIENTS, task)

    def stop(self):
        super().stop()
        self.links.stop()


class NamespaceCluster(Cluster):
    """A cluster with a network namespace for each task."""

    def __init__(self, server, kinds, logs, start):
        self.wires = Namespaces(kinds)
        super().__init__(server, kinds, logs, start)
        self.addresses = {t: f"{self.wires.addresses[t]}:2222" for t in kinds}
        self.wires.join()

    def command(self, task):
        return [*self.wires.prefix(task), *super().command(task), "--host", "0.0.0.0"]

    def stop(self):
        super().stop()
        self.wires.stop()


class FileCluster(Cluster):
    """A cluster whose tasks read the others' addresses from a file, again whenever it changes."""

    def start_all(self, arguments=()):
        self.write()
        super().start_all(arguments)

    def path(self):
        return os.path.join(self.logs, "cluster.json")

    def write(self):
        with open(self.path() + ".new", "w") as f:
            json.dump(self.spec(), f)
        os.rename(self.path() + ".new", self.path())

    def command(self, task):
        command = super().command(task)
        command[command.index("--cluster") + 1] = "@" + self.path()
        return command

    def move(self, task):
        """Assigns the task another address."""
        self.addresses[task] = f"127.0.0.1:{free_ports(1)[0]}"
        self.write()


class SupervisedCluster(Cluster):
    """A cluster that `thalweg cluster up` started and supervises."""

    def start_all(self, arguments=()):
        assert not arguments, "the cluster file has the flags of the tasks"
        path = os.path.join(self.logs, "cluster.toml")
        with open(path, "w") as f:
            f.write('name = "it"\nrestarts = 5\n')
            for job, addresses in self.spec().items():
                f.write(f"[job.{job}]\ntasks = {json.dumps(addresses)}\n")
        self.run_command("up", path)

    def run_command(self, verb, *args):
        subprocess.run([self.server, "cluster", verb, *args, "--state-dir", self.logs], check=True,
                       stdout=subprocess.DEVNULL)

    def kill(self, task):
        """Kills the process of a task, which the supervisor started."""
        job, index = task.split(":")
        with open(os.path.join(self.logs, "it", "cluster.json")) as f:
            supervisor = json.load(f)["supervisor"]
        for pid in pathlib.Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split():
            words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
            if f"--job-name {job} --task-index {index}" in " ".join(words):
                os.kill(int(pid), signal.SIGKILL)
                return
        raise AssertionError(f"the supervisor has no {task}")

    def log(self, task):
        path = pathlib.Path(self.logs, "it", task.replace(":", "-") + ".log")
        return path.read_text() if path.exists() else ""

    def stop(self):
        self.run_command("down", os.path.join(self.logs, "cluster.toml"))


NETWORKS = {None: Cluster, "links": ProxiedCluster, "wires": NamespaceCluster, "supervised": SupervisedCluster,
            "file": FileCluster}


class Cell:
    """One row of the table, run against a cluster."""

    def __init__(self, row, server, folder, accelerator=None):
        self.row, self.fault, self.folder = row, table.FAULTS[row.fault], folder
        self.task = TASK_OF[row.role]
        tasks = {**TASKS, "ps:0": THEIRS if row.role == "stock" else OURS}
        self.cluster = NETWORKS[self.fault.network](server, tasks, folder, start=False)
        if accelerator:
            self.cluster.flags = {"worker": ["--accelerator", accelerator]}
        self.reported = None

    def flags(self):
        """Flags of the tasks besides job, index and cluster."""
        if self.fault.network == "wires":
            # The tasks listen on an address other than loopback, and write checkpoints.
            return ["--file-root", self.folder]
        return {"silent": ["--heartbeat-timeout", str(table.LIMIT)],
                "full": ["--memory-limit", str(table.MEMORY_MB)]}.get(self.row.fault, [])

    def play(self):
        self.cluster.start_all(self.flags())
        clients = {name: self.start(name) for name in CLIENT_ORDER}
        try:
            self.wait_until_warm()
            self.begin = time.monotonic()
            self.inject_fault()
            self.watch(self.fault.seconds)
            self.end = time.monotonic()
            self.heal()
            self.watch(self.fault.after)
            self.stop_clients(clients)
            crashes = self.cluster.crashes()
        finally:
            for client in clients.values():
                client.kill()
                client.join()
            self.cluster.stop()
        assert len(self.row.outcomes) == len(CLIENT_ORDER), self.row
        found = [f"{who}: {problem}" for who, outcome in zip(CLIENT_ORDER, self.row.outcomes, strict=True)
                 for problem in failure_checks.problems(outcome, self, self.record(who))]
        found += crashes
        if self.row.fault == "full":
            found += failure_checks.refused(self.record("greedy/other"))
        return found

    def start(self, name):
        worker = "worker:0" if name.endswith("chief") else "worker:1"
        client = multiprocessing.get_context("fork").Process(
            target=failure_clients.run, args=(name, self.cluster.target(worker), self.folder))
        client.start()
        return client

    def record(self, name):
        """The events of a client, in order: [seconds, kind, ...]."""
        path = os.path.join(self.folder, name.replace("/", "-") + ".record")
        if not os.path.exists(path):
            return []
        with open(path) as f:
            return [json.loads(line) for line in f.read().splitlines(keepends=True)
                    if line.endswith("\n")]

    def wait_until_warm(self):
        end = time.monotonic() + WARM_SECONDS_MAX
        while any(sum(e[1] == "step" for e in self.record(n)) < WARM_STEPS for n in CLIENT_ORDER):
            cold = [(n, self.record(n)[-1:]) for n in CLIENT_ORDER]
            assert time.monotonic() < end, f"before anything failed, it did not train: {cold}"
            time.sleep(0.1)

    def inject_fault(self):
        kind, cluster, task = self.row.fault, self.cluster, self.task
        if kind in ("killed", "restarted", "elsewhere", "beside", "supervised"):
            if kind == "beside":
                cluster.kill(TASK_OF["idle"])
            cluster.kill(task)
        elif kind == "full":
            self.start("greedy/other")
        elif kind == "paused":
            cluster.signal(task, signal.SIGSTOP)
        elif self.fault.network == "wires":
            cluster.wires.cut(task)
            if kind == "replaced":
                cluster.kill(task)
                cluster.start(task, wait=False, arguments=self.flags())
        elif kind == "slow":
            cluster.links.delay(task, table.DELAY)
        elif kind == "parted":
            cluster.links.cut_between(task, TASK_OF["ps"])
        else:
            cluster.links.cut(task, to=kind != "mute", back=kind != "deaf")

    def heal(self):
        kind, cluster, task = self.row.fault, self.cluster, self.task
        if kind == "elsewhere":
            cluster.move(task)
        if kind in ("restarted", "elsewhere", "beside"):
            cluster.start(task, arguments=self.flags())
        elif kind == "paused":
            cluster.signal(task, signal.SIGCONT)
        elif self.fault.network == "wires":
            cluster.wires.heal(task)
        elif self.fault.network == "links":
            cluster.links.heal()

    def logs(self):
        """The logs of the other tasks."""
        return [self.cluster.log(t) for t in TASKS if t != self.task]

    def watch(self, seconds):
        """Waits, and records when a log first reports the task as silent."""
        name = "/job:{}/replica:0/task:{} has been silent".format(*self.task.split(":"))
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.reported is None and any(name in log for log in self.logs()):
                self.reported = time.monotonic()
            time.sleep(0.05)

    def stop_clients(self, clients):
        open(os.path.join(self.folder, "stop"), "w").close()
        end = time.monotonic() + END_SECONDS_MAX
        for name, client in clients.items():
            outcome = self.row.outcomes[CLIENT_ORDER.index(name)]
            if outcome not in ("blocked", "waits"):
                client.join(max(0, end - time.monotonic()))


def in_fork(row, server, folder, accelerator, pipe):
    os.setpgid(0, 0)
    try:
        os.makedirs(folder, exist_ok=True)
        pipe.send(Cell(row, server, folder, accelerator).play())
    except BaseException:
        pipe.send([traceback.format_exc()])


class RunningCell:
    """A cell in a process of its own."""

    def __init__(self, row, server, folder, accelerator):
        self.name, self.begin = f"{row.role}/{row.fault}", time.monotonic()
        self.pipe, theirs = multiprocessing.Pipe(duplex=False)
        self.process = multiprocessing.get_context("fork").Process(
            target=in_fork,
            args=(row, server, os.path.join(folder, f"{row.role}-{row.fault}"), accelerator, theirs))
        self.process.start()
        theirs.close()

    def is_over(self):
        return self.pipe.poll() or time.monotonic() - self.begin > CELL_SECONDS_MAX

    def problems(self):
        try:
            problems = self.pipe.recv() if self.pipe.poll() else ["the cell took too long"]
        except EOFError:
            problems = ["it ended without a word"]
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.join()
        return problems


def chosen_rows(args):
    rows = [r for r in table.rows()
            if not args.names or any(n in f"{r.role}/{r.fault}" for n in args.names)]
    if args.short:
        missing = set(SHORT) - {f"{r.role}/{r.fault}" for r in table.rows()}
        assert not missing, f"the table has no rows {missing}"
        rows = [r for r in rows if f"{r.role}/{r.fault}" in SHORT]
    why_unavailable = namespaces_unavailable() if any(table.FAULTS[r.fault].network == "wires" for r in rows) else None
    if why_unavailable:
        for r in [r for r in rows if table.FAULTS[r.fault].network == "wires"]:
            skipped(f"failures: {r.role}/{r.fault}", why_unavailable)
            rows.remove(r)
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True, help="the thalweg command")
    parser.add_argument("--short", action="store_true", help="only the cells that CI plays")
    parser.add_argument("--jobs", type=int, default=8, help="cells at a time")
    parser.add_argument("--accelerator", help="what all workers have, as `thalweg server --accelerator` takes it")
    parser.add_argument("--logs", help="a folder for what tasks and clients say")
    parser.add_argument("names", nargs="*", help="parts of the names of cells to play")
    args = parser.parse_args()
    folder = args.logs or tempfile.mkdtemp(prefix="thalweg-failures-")
    waiting, playing, failed_cells = chosen_rows(args), [], 0
    count = len(waiting)
    try:
        while waiting or playing:
            while waiting and len(playing) < args.jobs:
                playing.append(RunningCell(waiting.pop(0), os.path.abspath(args.server), folder, args.accelerator))
            time.sleep(0.1)
            for cell in [c for c in playing if c.is_over()]:
                playing.remove(cell)
                seconds, problems = time.monotonic() - cell.begin, cell.problems()
                failed_cells += bool(problems)
                print(f"{'FAILED' if problems else 'ok    '} {cell.name} ({seconds:.1f} s)", flush=True)
                for problem in problems:
                    print("    " + problem.strip().replace("\n", "\n    "), flush=True)
    finally:
        for cell in playing:
            cell.problems()
        if not args.logs:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"{count - failed_cells} of {count} cells are as the table says")
    sys.exit(0 if count and not failed_cells else 1)


if __name__ == "__main__":
    main()
