"""Expected outcomes when a task fails: the table that `failures.py` runs and docs/src/concepts/failures.md prints.

    python tests/cluster/failure_table.py                        # the table, as the book has it
    python tests/cluster/failure_table.py --check docs/src/concepts/failures.md     # is it there?
    python tests/cluster/failure_table.py --write docs/src/concepts/failures.md     # puts it there

Two clients train, each by way of its own worker: the chief by worker 0, the other by worker 1. Both
keep their variables on one parameter server. Worker 2 has nothing to do. A client has a
MonitoredTrainingSession, or a plain Session that it keeps as long as it can.
"""

import collections
import sys

# Times, in seconds.
NOTICED_MAX = 1.0       # a killed task is reported to its callers
REPORTED_MAX = 3.5      # silence is logged: after 3 s, plus half a second of polling
CLOSED_MAX = 1.0        # CloseSession has returned
HEALED_MAX = 4.0        # after a pause steps continue; the chief may save a checkpoint first
BACK_MAX = 5.0          # after a restart, a new session trains
GAP_MAX = 2.0           # between the steps of clients that do not need the task
PAUSE, LIMIT, DELAY = 20, 6, 2
MEMORY_MB = 64

SLOW_MAX = 16.0         # one step and a checkpoint, when each of their calls takes 2 s longer
LIMIT_SLACK = 1.5       # how much later than the limit a loss may be reported

Fault = collections.namedtuple("Fault", "text network seconds after heals_within",
                               defaults=[HEALED_MAX])
FAULTS = {
    "killed": Fault("killed (-9), for good", None, 8, 0),
    "restarted": Fault("killed, back after 3 s", None, 3, 9),
    "elsewhere": Fault("killed, back after 3 s at another address, which the cluster file says", "file", 3, 9),
    "supervised": Fault("killed; `thalweg cluster up` starts it again", "supervised", 0.3, 8),
    "paused": Fault(f"stopped (SIGSTOP) for {PAUSE} s", None, PAUSE, 4),
    "cut": Fault(f"partitioned from all other tasks for {PAUSE} s", "links", PAUSE, 4),
    "parted": Fault(f"partitioned from the parameter server for {PAUSE} s", "links", PAUSE, 4),
    "deaf": Fault(f"nothing reaches it for {PAUSE} s", "links", PAUSE, 4),
    "mute": Fault(f"nothing comes from it for {PAUSE} s", "links", PAUSE, 4),
    "unplugged": Fault(f"its packets are dropped for {PAUSE} s", "wires", PAUSE, 14, HEALED_MAX + 8),
    "unplugged_longer": Fault("its packets are dropped for 27 s, so that TCP retransmits only at 51 s", "wires", 27, 30, 28),
    "slow": Fault(f"{DELAY} s longer for each call, for 20 s", "links", 20, 6),
    "replaced": Fault("its packets are dropped, it is killed and restarted, and 6 s later its packets arrive",
                      "wires", 6, 12),
    "beside": Fault("killed, back after 3 s, while a worker that no graph names is dead", None, 3, 9),
    "full": Fault("another client requests more memory than it has", None, 5, 1),
    "silent": Fault(f"partitioned from all other tasks for 12 s, with --heartbeat-timeout {LIMIT}", "links", 12, 6),
}

# Outcomes of a client. docs/src/concepts/failures.md prints the text; `failure_checks.py` has the check of the same name.
OUTCOMES = {
    "on": "continues",
    "heals": "waits; continues in the same session, nothing lost",
    "slow": "slower; no error, nothing lost",
    "fails": "UNAVAILABLE within 1 s, with the task's name, for every step",
    "fails_then_new": "UNAVAILABLE within 1 s; when the task is back a new session works",
    "cut_then_new": "waits, then UNAVAILABLE or ABORTED; a new session works",
    "aborted": "ABORTED when the task is back; a new session works, nothing lost",
    "lost_then_same": f"UNAVAILABLE after {LIMIT} s, with the task's name; the same session works when the task "
                      "is back, nothing lost",
    "waits": "waits for the task, which the master's log names",
    "recovers": "continues by itself with a new session",
    "restored": "continues by itself with a new session, from the checkpoint",
    "turned_back": "continues; the chief has restored the checkpoint under it",
    "blocked": "waits in its own RPC: TensorFlow's client retries the former address of its master without end",
}

# Outcomes after which the state may be that of a checkpoint, or uninitialized.
LOSES_STATE = ("restored", "turned_back", "fails_then_new", "cut_then_new")

# By role and fault: the outcomes of the chief's and the other Monitored session, then of the two plain
# sessions; and the measured behaviour of TensorFlow 2.21 for the two Monitored sessions.
Row = collections.namedtuple("Row", "role fault outcomes theirs")


def rows():
    """The rows, in the order of docs/src/concepts/failures.md."""
    return [Row(*line) for line in ROWS]


def is_reported(row, outcome):
    """Whether a log must report the task as silent: a task of ours waits for it."""
    return row.role in ("ps", "stock") and outcome in ("heals", "lost_then_same")


HANG = "hangs indefinitely"
NO_GAP = "continues"
UNMEASURED = "not measured"
NO_OTHER = "its addresses are fixed"
ROWS = [
    ("ps", "killed", ("waits", "waits", "fails", "fails"), (HANG + " in `close()`", HANG + " in `close()`")),
    ("ps", "restarted", ("restored", "restored", "fails_then_new", "fails_then_new"),
     ("new session 3.4 s after the kill, from the checkpoint", "the same, or after 33 s")),
    ("ps", "elsewhere", ("restored", "restored", "fails_then_new", "fails_then_new"), (NO_OTHER,) * 2),
    ("ps", "beside", ("restored", "restored", "fails_then_new", "fails_then_new"), (HANG,) * 2),
    ("ps", "replaced", ("restored", "restored", "cut_then_new", "cut_then_new"), (UNMEASURED,) * 2),
    ("ps", "paused", ("heals",) * 4, ("waits, nothing is logged; nothing lost",) * 2),
    ("ps", "cut", ("heals",) * 4, ("waits, nothing is logged; nothing lost",) * 2),
    ("ps", "deaf", ("heals",) * 4, (UNMEASURED,) * 2),
    ("ps", "mute", ("heals",) * 4, (UNMEASURED,) * 2),
    ("ps", "unplugged", ("heals",) * 4, (UNMEASURED,) * 2),
    ("ps", "unplugged_longer", ("heals",) * 4, (UNMEASURED,) * 2),
    ("ps", "slow", ("slow",) * 4, ("1 step in 20 s", "3 steps in 20 s")),
    ("ps", "silent", ("restored", "restored", "lost_then_same", "lost_then_same"),
     ("waits, nothing is logged, for the whole 120 s",) * 2),
    ("ps", "full", ("on",) * 4, (UNMEASURED,) * 2),
    ("stock", "killed", ("waits", "waits", "fails", "fails"), (UNMEASURED,) * 2),
    ("stock", "restarted", ("restored", "restored", "fails_then_new", "fails_then_new"), (UNMEASURED,) * 2),
    ("stock", "paused", ("heals",) * 4, (UNMEASURED,) * 2),
    ("chief", "killed", ("blocked", "on", "blocked", "on"), (HANG, NO_GAP)),
    ("chief", "restarted", ("restored", "turned_back", "aborted", "on"),
     ("new session 3.5 s after the kill; 34 updates lost to the checkpoint", "continues; turned back by the chief")),
    ("chief", "elsewhere", ("blocked", "on", "blocked", "on"), (NO_OTHER,) * 2),
    ("chief", "supervised", ("restored", "turned_back", "aborted", "on"), (UNMEASURED,) * 2),
    ("chief", "paused", ("heals", "on", "heals", "on"), ("waits; nothing lost", NO_GAP)),
    ("chief", "cut", ("heals", "on", "heals", "on"), ("waits; nothing lost", NO_GAP)),
    ("chief", "deaf", ("heals", "on", "heals", "on"), (UNMEASURED,) * 2),
    ("chief", "mute", ("heals", "on", "heals", "on"), (UNMEASURED,) * 2),
    ("chief", "unplugged", ("heals", "on", "heals", "on"), (UNMEASURED,) * 2),
    ("chief", "slow", ("slow", "on", "slow", "on"), ("no step in 20 s", NO_GAP)),
    ("worker", "killed", ("on", "blocked", "on", "blocked"), (NO_GAP, HANG)),
    ("worker", "restarted", ("on", "recovers", "on", "aborted"), (NO_GAP, "new session 3.4 s after the kill")),
    ("worker", "elsewhere", ("on", "blocked", "on", "blocked"), (NO_OTHER,) * 2),
    ("worker", "paused", ("on", "heals", "on", "heals"), (NO_GAP, "waits; nothing lost")),
    ("worker", "cut", ("on", "heals", "on", "heals"), (NO_GAP, "waits; nothing lost")),
    ("worker", "parted", ("on", "heals", "on", "heals"), (UNMEASURED,) * 2),
    ("worker", "deaf", ("on", "heals", "on", "heals"), (UNMEASURED,) * 2),
    ("worker", "mute", ("on", "heals", "on", "heals"), (UNMEASURED,) * 2),
    ("worker", "unplugged", ("on", "heals", "on", "heals"), (UNMEASURED,) * 2),
    ("worker", "slow", ("on", "slow", "on", "slow"), (NO_GAP, "2 steps in 20 s")),
    ("idle", "killed", ("on",) * 4, (NO_GAP,) * 2),
    ("idle", "restarted", ("on",) * 4, (NO_GAP,) * 2),
    ("idle", "elsewhere", ("on",) * 4, (NO_OTHER,) * 2),
    ("idle", "paused", ("on",) * 4, (NO_GAP,) * 2),
    ("idle", "cut", ("on",) * 4, (NO_GAP,) * 2),
    ("idle", "unplugged", ("on",) * 4, (UNMEASURED,) * 2),
    ("idle", "slow", ("on",) * 4, (NO_GAP,) * 2),
]

ROLES = {"ps": "the parameter server", "stock": "the parameter server, if TensorFlow's", "chief": "the chief's worker", "worker": "the other worker",
         "idle": "a worker that no graph names"}
BEGIN, END = "<!-- the table of failures begins -->", "<!-- the table of failures ends -->"


def both(first, second, ends=("chief", "other")):
    """The outcomes of two clients, once if they are equal."""
    if first == second:
        return first
    return f"{ends[0]}: {first}; {ends[1]}: {second}"


def markdown_table():
    """The table in Markdown."""
    lines = ["| task | fault | Monitored sessions | plain sessions | TensorFlow 2.21, Monitored |",
             "|---|---|---|---|---|"]
    for row in rows():
        texts = [OUTCOMES[o] for o in row.outcomes]
        cells = [ROLES[row.role], FAULTS[row.fault].text, both(*texts[:2]), both(*texts[2:]),
                 both(*row.theirs)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def with_table(text):
    """The text of docs/src/concepts/failures.md with the current table."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{markdown_table()}\n{END}{rest.split(END)[1]}"


def main(args):
    if args and args[0] in ("--check", "--write"):
        with open(args[1]) as f:
            text = f.read()
        if args[0] == "--write":
            with open(args[1], "w") as f:
                f.write(with_table(text))
        elif with_table(text) != text:
            sys.exit(f"the table in {args[1]} is out of date; run {sys.argv[0]} --write {args[1]}")
    else:
        print(markdown_table())


if __name__ == "__main__":
    main(sys.argv[1:])
