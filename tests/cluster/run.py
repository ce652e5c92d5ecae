"""Runs the client programs in this folder, each against a cluster of processes of its own.

    python tests/cluster/run.py --server target/debug/thalweg           # all tasks are ours
    python tests/cluster/run.py --server target/debug/thalweg mixed     # those with "mixed" in the name
    python tests/cluster/run.py --server target/debug/thalweg --transport grpc    # no stream of ours

A case is a function `case_*` in a module here that takes a `Cluster`. Its tasks are those of
`@tasks(...)`, by default two parameter servers and three workers of ours; with several layouts it
runs once with each, and likewise with each transport of `@transports(...)`. Every case runs in a fork with a fresh graph, and fails by an exception or by
taking too long.
"""

import argparse
import importlib
import importlib.util
import itertools
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "clients")]

from cluster import Cluster, DEFAULT_TASKS  # noqa: E402


def client_runner():
    """The runner of the programs for one server, which has the same file name as this one."""
    path = HERE.parent / "clients" / "run.py"
    spec = importlib.util.spec_from_file_location("client_runner", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


clients = client_runner()

# Cases that do not pass yet, and the missing feature of each.
WAITING = {}


def cases(wanted, transport):
    """Every case as (name, function, tasks, transport), in order."""
    found = []
    for path in sorted(HERE.glob("*_cases.py")):
        module = importlib.import_module(path.stem)
        for name in [n for n in vars(module) if n.startswith("case_")]:
            case = getattr(module, name)
            layouts = getattr(case, "layouts", [DEFAULT_TASKS])
            transports = getattr(case, "transports", [transport])
            for tasks, transport_name in itertools.product(layouts, transports):
                full = f"{path.stem[:-6]}/{name[5:]}"
                if len(layouts) > 1:
                    full += " " + ",".join(f"{task}={kind}" for task, kind in tasks.items())
                if len(transports) > 1:
                    full += " " + transport_name
                if not wanted or any(w in full for w in wanted):
                    found.append((full, case, tasks, transport_name))
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True, help="the thalweg command")
    parser.add_argument("--list", action="store_true", help="only print the names of the cases")
    parser.add_argument("--transport", default="auto", choices=["auto", "grpc"],
                        help="transport between tasks of ours, where a case does not set it")
    parser.add_argument("--logs", help="a folder for the logs of the tasks")
    parser.add_argument("names", nargs="*", help="parts of the names of cases to run")
    args = parser.parse_args()
    chosen = cases(args.names, args.transport)
    if args.list:
        print("\n".join(name for name, *_ in chosen))
        return
    clients.WAITING.clear()
    clients.WAITING.update(WAITING)
    results = []
    for name, case, tasks, transport in chosen:
        cluster = Cluster(os.path.abspath(args.server), tasks, args.logs,
                          transport=transport)
        try:
            results += clients.play([(name, case)], [cluster])
            crashes = cluster.crashes()
        finally:
            cluster.stop()
        if crashes:
            print(f"FAILED {name}: tasks crashed\n    " + "\n    ".join(crashes), flush=True)
            results[-1] = (False, False)
    passed, waiting = sum(ok for ok, _ in results), sum(waits for _, waits in results)
    print(f"{passed} of {len(results)} cluster programs pass, {waiting} wait")
    sys.exit(0 if results and passed + waiting == len(results) else 1)


if __name__ == "__main__":
    main()
