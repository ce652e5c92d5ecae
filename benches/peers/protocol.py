"""The peers' line protocol (README.md) for peers in Python."""

import sys
import time


def serve(prepare):
    """Answers commands until the input ends. `prepare(row)` gives a step, or none, and the answer."""
    step = None
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
