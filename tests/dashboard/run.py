"""Runs the programs in this folder: the page of `thalweg dashboard`, driven in a browser without a window.

    python tests/dashboard/run.py --thalweg target/debug/thalweg            # all
    python tests/dashboard/run.py --thalweg target/debug/thalweg graph      # those with "graph" in the name

A case is a function `case_*` in a `*_cases.py` that takes a `World`: the command and a browser. It fails by
an exception; so does any page that logs an error, or asks another address than the dashboard's. The
package `playwright` drives the system's Chromium; where there is none, all cases are skipped by name.
"""

import argparse
import importlib
import pathlib
import shutil
import sys
import tempfile
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support")]

import browser  # noqa: E402
from skips import skipped  # noqa: E402
from support import World  # noqa: E402


def cases(wanted):
    found = []
    for path in sorted(HERE.glob("*_cases.py")):
        module = importlib.import_module(path.stem)
        for name in [n for n in vars(module) if n.startswith("case_")]:
            full = f"{path.stem[:-6]}/{name[5:]}"
            if not wanted or any(w in full for w in wanted):
                found.append((full, getattr(module, name)))
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--thalweg", required=True, help="the thalweg command")
    parser.add_argument("--list", action="store_true", help="only print the names of the cases")
    parser.add_argument("names", nargs="*", help="parts of the names of cases to run")
    args = parser.parse_args()
    chosen = cases(args.names)
    if args.list:
        print("\n".join(name for name, _ in chosen))
        return
    if not chosen:
        sys.exit(f"no case has a name with any of {args.names}")
    program, why = browser.find()
    if program is None:
        for name, _ in chosen:
            skipped(f"dashboard {name}", why)
        return
    folder = tempfile.mkdtemp(prefix="thalweg-dashboard-")
    failed = []
    try:
        with browser.Browser(program) as running:
            world = World(args.thalweg, running, folder)
            for name, case in chosen:
                begin = time.monotonic()
                try:
                    case(world)
                    print(f"ok     {name} ({time.monotonic() - begin:.1f} s)", flush=True)
                except Exception:
                    failed.append(name)
                    print(f"FAILED {name}\n{traceback.format_exc()}", flush=True)
    finally:
        shutil.rmtree(folder)
    print(f"{len(chosen) - len(failed)} of {len(chosen)} dashboard programs pass")
    if failed:
        sys.exit("failed: " + ", ".join(failed))


if __name__ == "__main__":
    main()
