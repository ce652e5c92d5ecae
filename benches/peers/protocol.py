"""The peers' line protocol (README.md) for peers in Python."""

import sys
import time


def split_threads(row):
    """`name/2t` is (name, 2); a name without a thread count is for one thread."""
    name, _, last = row.rpartition("/")
    if last.endswith("t") and last[:-1].isdigit():
        return name, int(last[:-1])
    return row, 1


def serve(prepare, step=None):
    """Answers commands until the input ends. `prepare(row)` gives a step, or none, and the answer."""
    for line in sys.stdin:
        command, _, argument = line.strip().partition(" ")
        if command == "prepare":
            step, answer = prepare(argument)
        elif command == "run" and step:
            answer = f"{timed(step, int(argument)):.9f}"
        elif command == "quit":
            return
        else:
            answer = f"absent cannot answer '{line.strip()}'"
        print(answer, flush=True)


def timed(step, runs):
    start = time.perf_counter()
    for _ in range(runs):
        step()
    return time.perf_counter() - start
