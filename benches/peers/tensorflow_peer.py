"""TensorFlow's Python client behind the peers' line protocol (README.md): the rows that train models.

A process keeps the threads it began with, so every row has a fresh one, which replaces this; rows of
other peers cost no import.
"""

import os
import sys

import protocol


def prepare(row):
    if not row.startswith("train/"):
        return None, f"absent no row {row} in this peer of TensorFlow"
    os.execv(sys.executable, [sys.executable, __file__, row])


def begin(row):
    import train_tensorflow

    name, threads = protocol.split_threads(row)
    if name not in train_tensorflow.ROWS:
        return None, f"absent no row {name} in this peer of TensorFlow"
    return train_tensorflow.prepare(name, threads), "ready 1"


if __name__ == "__main__":
    step = None
    if len(sys.argv) > 1:
        step, answer = begin(sys.argv[1])
        print(answer, flush=True)
    protocol.serve(prepare, step)
