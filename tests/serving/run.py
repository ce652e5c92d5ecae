"""Runs the programs in this folder: clients of TensorFlow Serving against `thalweg serve`.

    python tests/serving/run.py --thalweg target/debug/thalweg            # all
    python tests/serving/run.py --thalweg target/debug/thalweg rest       # those with "rest" in the name

A case is a function `case_*` in a `*_cases.py` that takes a `World`: the models that TensorFlow
exported, TensorFlow's own answers, and a server of them all. It fails by an exception. Cases that need
other flags start servers of their own.
"""

import argparse
import importlib
import os
import pathlib
import shutil
import sys
import tempfile
import time
import traceback

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support")]

import models  # noqa: E402
from support import Server  # noqa: E402


class World:
    def __init__(self, thalweg, root):
        self.thalweg, self.root = os.path.abspath(thalweg), root
        names = sorted(os.listdir(root))
        self.server = Server(self.thalweg, *[f"--model={n}={root}/{n}" for n in names])
        self._references = {}

    def reference(self, name):
        """The model, run by TensorFlow itself."""
        if name not in self._references:
            self._references[name] = models.TensorFlowModel(f"{self.root}/{name}/1")
        return self._references[name]

    def start(self, *args, **options):
        return Server(self.thalweg, *args, **options)


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
    root = tempfile.mkdtemp(prefix="thalweg-serving-")
    failed = []
    try:
        models.export_all(root)
        world = World(args.thalweg, root)
        try:
            for name, case in chosen:
                begin = time.monotonic()
                try:
                    case(world)
                    print(f"ok     {name} ({time.monotonic() - begin:.1f} s)", flush=True)
                except Exception:
                    failed.append(name)
                    print(f"FAILED {name}\n{traceback.format_exc()}", flush=True)
        finally:
            said = world.server.stop()
            if failed:
                print(said)
    finally:
        shutil.rmtree(root)
    print(f"{len(chosen) - len(failed)} of {len(chosen)} serving programs pass")
    if failed:
        sys.exit("failed: " + ", ".join(failed))


if __name__ == "__main__":
    main()
