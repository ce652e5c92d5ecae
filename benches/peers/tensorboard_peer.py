"""TensorBoard's event file loader behind the peers' line protocol (README.md): the row about event files.

The loader is imported when its row is requested: the import takes seconds, and most runs do not include the
row.
"""

import glob
import os
import struct

import protocol

FOLDER = os.environ.get("THALWEG_BENCH_GRAPHS", ".")


def read_events():
    """Drains the file with the loader that all of TensorBoard's readers use; collects the scalars."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from tensorboard.backend.event_processing import event_file_loader

    [path] = glob.glob(os.path.join(FOLDER, "events", "*tfevents*"))
    with open(os.path.join(FOLDER, "events_read.units")) as file:
        units = int(file.read())

    def read():
        series = {}
        for event in event_file_loader.EventFileLoader(path).Load():
            for value in event.summary.value:
                series.setdefault(value.tag, []).append((event.wall_time, event.step, number(value.tensor)))
        return sum(map(len, series.values()))

    found = read()
    if found != units:
        raise ValueError(f"{found} numbers of {units} were found")
    return read, units


def number(tensor):
    """The float in a tensor; the loader converts all scalars to tensors."""
    return tensor.float_val[0] if tensor.float_val else struct.unpack("<f", tensor.tensor_content)[0]


ROWS = {"events/read": read_events}


def prepare(row):
    if row not in ROWS:
        return None, f"absent no row {row} in the TensorBoard peer"
    try:
        step, units = ROWS[row]()
    except Exception as error:  # whatever is missing, the other rows go on
        return None, f"absent {error}".replace("\n", " ")
    return step, f"ready {units}"


if __name__ == "__main__":
    protocol.serve(prepare)
