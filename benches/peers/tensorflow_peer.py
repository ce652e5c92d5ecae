"""TensorFlow's Python client behind the peers' line protocol (README.md): the rows that train models.

TensorFlow fixes a process's thread count at the start, so every row replaces this process by a new one; rows of
other peers do not import TensorFlow.
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
