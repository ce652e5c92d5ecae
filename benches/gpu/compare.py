"""Training steps on one GPU: ours beside PyTorch's, in turns, in one run.

    compare.py BINARY [--graphs FOLDER] [--rows mlp,gpt2] [--sides thalweg,torch] [--rounds 5] [--json FILE]

BINARY is `thalweg-bench-gpu`, FOLDER what `tf_models.py` wrote; without it there are no rows of TensorFlow's client.
The sides of a row are processes, which prepare one after the other (each tunes its kernels, alone on the GPU) and then
run in turns. The table has the medians of the rounds in milliseconds a step.
"""

import argparse
import datetime
import importlib.metadata
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
# Packages whose versions belong to the numbers.
PACKAGES = ["torch", "torchvision", "triton", "jax-cuda13-pjrt", "jax-cuda12-pjrt", "nvidia-cudnn-cu13", "nvidia-cudnn-cu12"]
# Row: ways in which PyTorch runs it, whether 32-bit products may be rounded, steps of a round. What is before a hyphen
# names the model.
ROWS = {
    "null": (["eager", "graph"], False, 2000),
    "mlp": (["eager", "graph"], False, 1000),
    "lstm": (["eager"], False, 100),
    "lstm-tf32": (["eager"], True, 100),
    "resnet50": (["eager"], True, 12),
    "gpt2": (["eager", "compiled"], True, 12),
}
SIDES = ["thalweg", "thalweg-tf", "torch-eager", "torch-compiled", "torch-graph"]


class Peer:
    """A process that answers one line to each line."""

    def __init__(self, command, is_ours):
        self.errors = tempfile.TemporaryFile("w+")
        environment = dict(os.environ)
        libraries = environment.pop("THALWEG_LIBRARIES", "")
        if is_ours and libraries:
            others = environment.get("LD_LIBRARY_PATH")
            environment["LD_LIBRARY_PATH"] = f"{libraries}:{others}" if others else libraries
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True, env=environment
        )

    def ask(self, line, seconds):
        watchdog = threading.Timer(seconds, self.process.kill)
        watchdog.start()
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline().strip()
        except OSError:
            answer = ""
        finally:
            watchdog.cancel()
        return answer or f"absent the process ended: {self.last_error()}"

    def last_error(self):
        self.errors.seek(0)
        lines = [line.strip() for line in self.errors if line.strip()]
        return lines[-1][:300] if lines else "without a word"

    def end(self):
        try:
            self.process.stdin.close()
            self.process.wait(20)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()


def sides_of(row, args):
    """Side, what it is asked to prepare, its command."""
    ways, is_fast, _ = ROWS[row]
    is_fast = {"full": False, "fast": True, None: is_fast}[args.precision]
    flags = ["--fast"] if is_fast else []
    size = "/small" if args.small else ""
    model = f"gpu/{row.split('-')[0]}"
    ours = [args.binary, *flags]
    sides = [("thalweg", f"{model}{size}", ours)]
    if row != "null" and args.graphs:
        sides.append(("thalweg-tf", f"{model}/tf{size}", [*ours, "--graphs", args.graphs]))
    torch = [sys.executable, str(HERE / "torch_peer.py"), *flags]
    sides += [(f"torch-{way}", f"{model}{size}/{way}", torch) for way in ways]
    return [side for side in sides if any(side[0].startswith(asked) for asked in args.sides.split(","))]


def facts(report):
    """`peak_mib=3 programs=1.0` as a dictionary."""
    return dict(fact.split("=", 1) for fact in report.split() if "=" in fact)


def compare(row, args, end):
    """Times, reports and absences of a row's sides."""
    peers, result = {}, {"row": row, "ms": {}, "prepare_seconds": {}, "facts": {}, "absent": {}}
    batch = ROWS[row][2]
    left = lambda: max(end - time.monotonic(), 1)
    try:
        for side, asked, command in sides_of(row, args):
            start = time.monotonic()
            peers[side] = Peer(command, side.startswith("thalweg"))
            answer = peers[side].ask(f"prepare {asked}", left())
            result["prepare_seconds"][side] = round(time.monotonic() - start, 1)
            if not answer.startswith("ready"):
                result["absent"][side] = answer
                peers.pop(side).end()
        for _ in range(args.rounds):
            for side, peer in list(peers.items()):
                answer = peer.ask(f"run {batch}", left())
                if answer.startswith("absent"):
                    result["absent"][side] = answer
                    peers.pop(side).end()
                else:
                    result["ms"].setdefault(side, []).append(float(answer) / batch * 1000)
        result["facts"] = {side: facts(peer.ask("report", 20)) for side, peer in peers.items()}
    finally:
        for peer in peers.values():
            peer.end()
    return result


def surroundings(args):
    """When, where, and with what versions."""
    found = {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")}
    if shutil.which("nvidia-smi"):
        query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
        found["device"] = subprocess.run(query, capture_output=True, text=True).stdout.strip()
    found["thalweg"] = subprocess.run([args.binary, "--version"], capture_output=True, text=True).stdout.strip()
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            pass
    return found


def table(results):
    """As Markdown. The ratio is that of PyTorch's fastest to our time."""
    lines = ["| step | side | median ms | best ms | PyTorch's best / this | peak MiB | of tensors | programs | to enqueue, us | loss |",
             "|---|---|---|---|---|---|---|---|---|---|"]
    for result in results:
        medians = {side: statistics.median(all) for side, all in result["ms"].items()}
        torch = min((ms for side, ms in medians.items() if side.startswith("torch")), default=None)
        for side, ms in medians.items():
            known = result["facts"].get(side, {})
            ratio = f"{torch / ms:.2f}" if torch else ""
            cells = [result["row"], side, f"{ms:.4f}", f"{min(result['ms'][side]):.4f}", ratio,
                     *(known.get(fact, "") for fact in ["peak_mib", "tensors_mib", "programs", "enqueue_us"]),
                     known.get("losses", "").split(",")[-1]]
            lines.append("| " + " | ".join(cells) + " |")
        lines += [f"| {result['row']} | {side} | {why} |" for side, why in result["absent"].items()]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--graphs", help="the folder that tf_models.py wrote")
    parser.add_argument("--rows", default=",".join(ROWS), help=f"of {', '.join(ROWS)}")
    parser.add_argument("--sides", default="thalweg,torch", help=f"by how their names begin: {', '.join(SIDES)}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--precision", choices=["full", "fast"], help="of 32-bit products, instead of the row's own")
    parser.add_argument("--small", action="store_true", help="small models, for CPUs")
    parser.add_argument("--seconds", type=float, default=450, help="no row begins later, and none runs longer")
    parser.add_argument("--json", help="a file for all measurements")
    args = parser.parse_args()
    unknown = set(args.rows.split(",")) - set(ROWS)
    if unknown:
        parser.error(f"no rows {', '.join(sorted(unknown))}; they are {', '.join(ROWS)}")
    end = time.monotonic() + args.seconds
    results = []
    for row in args.rows.split(","):
        if time.monotonic() >= end:
            results.append({"row": row, "ms": {}, "facts": {}, "absent": {"all": "no time was left"}})
            continue
        results.append(compare(row, args, end))
        print(json.dumps(results[-1]), file=sys.stderr, flush=True)
    where = surroundings(args)
    print(", ".join(f"{name} {value}" for name, value in where.items()))
    print()
    print(table(results))
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps({"with": where, "rows": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
