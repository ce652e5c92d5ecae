"""Replaces tf.train.Server (tf.distribute.Server) of this Python by a `thalweg server` child process.

Python imports this module by its name before the program starts. When the program imports TensorFlow's
server_lib, this module replaces its Server class; the rest of TensorFlow is unchanged. The child process
ends when this process ends, even by a signal, because the pipe on its standard input closes.
"""

import atexit
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
import threading
import time

_MODULE = "tensorflow.python.training.server_lib"
_RESTARTS = 10
# After this uptime a server counts as healthy, and its restart count is reset.
_HEALTHY_SECONDS = 300
_STOP_SECONDS = 5
# The fields of a ConfigProto that a thalweg server uses; see `crates/cluster/src/master/config.rs`.
_USED = {
    "allow_soft_placement",
    "cluster_def",
    "device_count",
    "device_filters",
    "graph_options.build_cost_model",
    "graph_options.build_cost_model_after",
    "graph_options.enable_bfloat16_sendrecv",
    "graph_options.optimizer_options.opt_level",
    "inter_op_parallelism_threads",
    "intra_op_parallelism_threads",
    "isolate_session_state",
    "log_device_placement",
    "operation_timeout_in_ms",
}


def _names(value, path):
    """The names of the fields that are set in a message; `path` itself for a value of another type."""
    if not hasattr(value, "ListFields"):
        return [path]
    return [name for field, inner in value.ListFields()
            for name in _names(inner, f"{path}.{field.name}")]


def _drop_ignored(message, prefix=""):
    """Clears the fields of a ConfigProto that the server does not use, and returns their names."""
    ignored = []
    for field, value in message.ListFields():
        path = prefix + field.name
        if path in _USED:
            continue
        if any(name.startswith(path + ".") for name in _USED):
            ignored += _drop_ignored(value, path + ".")
        else:
            ignored += _names(value, path)
            message.ClearField(field.name)
    return ignored


def _session_config(definition):
    """The fields of a server's config that the server uses, and the names of the others that are set."""
    config = type(definition.default_session_config)()
    config.CopyFrom(definition.default_session_config)
    ignored = _drop_ignored(config)
    for kind in [kind for kind in config.device_count if kind != "CPU"]:
        # Asking for no such device is satisfied.
        if config.device_count.pop(kind) > 0:
            ignored.append(f"device_count['{kind}']")
    if definition.protocol not in ("", "grpc"):
        ignored.append(f"protocol '{definition.protocol}'")
    if definition.HasField("cluster_device_filters"):
        ignored += _names(definition.cluster_device_filters, "cluster_device_filters")
    return config, ignored


def _server_class(server_lib):
    class Server:
        """A task of the cluster, in a process of its own; the interface is TensorFlow's."""

        def __init__(self, server_or_cluster_def, job_name=None, task_index=None, protocol=None,
                     config=None, start=True):
            self._server_def = server_lib._make_server_def(
                server_or_cluster_def, job_name, task_index, protocol, config)
            # Imported late: this module is loaded before TensorFlow.
            from google.protobuf import text_format
            config, ignored = _session_config(self._server_def)
            self._config = text_format.MessageToString(config, as_one_line=True)
            if ignored:
                print(f"thalweg: the server ignores {', '.join(ignored)}", file=sys.stderr,
                      flush=True)
            self._address = None
            self._process = None
            self._ended = threading.Event()
            if start:
                self.start()

        def start(self):
            if self._address is not None:
                return
            self._process = self._spawn()
            threading.Thread(target=self._watch, daemon=True).start()
            atexit.register(self._stop)

        def _spawn(self):
            definition = self._server_def
            cluster = server_lib.ClusterSpec(definition.cluster).as_dict()
            command = [
                os.environ["THALWEG_PROGRAM"], "server", "--with-parent",
                "--cluster", json.dumps(cluster),
                "--job-name", definition.job_name, "--task-index", str(definition.task_index),
                "--session-config", self._config,
            ]
            if definition.port > 0:
                command += ["--port", str(definition.port)]
            command += json.loads(os.environ.get("THALWEG_SERVER_FLAGS", "[]"))
            variables = {k: v for k, v in os.environ.items() if k != "TF_CONFIG"}
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=variables)
            line = process.stdout.readline().decode(errors="replace").strip()
            if not line.startswith("listening on "):
                process.wait()
                raise RuntimeError(
                    f"the thalweg server of /job:{definition.job_name}/task:"
                    f"{definition.task_index} did not start (exit {process.returncode}): {line}")
            self._address = line[len("listening on "):]
            return process

        def _stop(self):
            """Shuts the server down gracefully, so that it logs its counts."""
            try:
                self._process.stdin.close()
                self._process.wait(_STOP_SECONDS)
            except (OSError, subprocess.TimeoutExpired):
                self._process.kill()

        def _watch(self):
            """Restarts the server when it dies, at the same address."""
            attempt = 0
            while attempt < _RESTARTS:
                begin = time.monotonic()
                code = self._process.wait()
                if code == 0:
                    break
                if time.monotonic() - begin > _HEALTHY_SECONDS:
                    attempt = 0
                pause = min(0.5 * 2 ** attempt, 30)
                attempt += 1
                print(f"thalweg: the server at {self._address} ended ({code}); "
                      f"it restarts in {pause} s", file=sys.stderr, flush=True)
                time.sleep(pause)
                try:
                    self._process = self._spawn()
                except RuntimeError as error:
                    print(f"thalweg: {error}", file=sys.stderr, flush=True)
            self._ended.set()

        def join(self):
            # In short waits, so that Python can handle signals between them.
            while not self._ended.wait(0.5):
                pass

        @property
        def server_def(self):
            return self._server_def

        @property
        def target(self):
            return f"grpc://{self._address}"

        @staticmethod
        def create_local_server(config=None, start=True):
            cluster = {"localhost": ["127.0.0.1:0"]}
            return Server(cluster, "localhost", 0, "grpc", config, start)

    return Server


class _Loader(importlib.abc.Loader):
    """Loads server_lib unchanged, then replaces its Server class."""

    def __init__(self, inner):
        self._inner = inner

    def create_module(self, spec):
        return self._inner.create_module(spec)

    def exec_module(self, module):
        self._inner.exec_module(module)
        module.Server = _server_class(module)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds server_lib, with a loader that replaces its Server class."""

    def find_spec(self, name, path, target=None):
        if name != _MODULE:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None:
            spec.loader = _Loader(spec.loader)
        return spec


def _next_sitecustomize():
    """Runs the sitecustomize module that Python would have found without this one."""
    here = os.path.dirname(os.path.abspath(__file__))
    paths = [p for p in sys.path if os.path.abspath(p or os.curdir) != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", paths)
    if spec is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


sys.meta_path.insert(0, _Finder())
_next_sitecustomize()
