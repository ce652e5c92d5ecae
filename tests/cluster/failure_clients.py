"""The clients of a cell of the table of failures: they train until the file `stop` exists, and write
a line of JSON for each event: the time, its kind, and details."""

import json
import os
import time

import tensorflow as tf
from tensorflow.python.training import session_manager

v1 = tf.compat.v1
v1.disable_v2_behavior()
v1.logging.set_verbosity(v1.logging.FATAL)
PAUSE_SECONDS = 0.05
SAVE_SECONDS = 2
# How long a plain session that only fails is used after its task is back.
KEEP_SECONDS = 1.5
SESSIONS = ("chief", "other")


class Record:
    def __init__(self, folder, name):
        self.file = open(os.path.join(folder, name.replace("/", "-") + ".record"), "a")
        self.stop = os.path.join(folder, "stop")

    def note(self, *words):
        self.file.write(json.dumps([time.monotonic(), *words]) + "\n")
        self.file.flush()

    def step(self, value):
        self.note("step", int(value))

    def error(self, error, took):
        code = error.error_code
        self.note("error", NAMES.get(code, str(code)), str(error)[:600], took)

    def is_over(self):
        return os.path.exists(self.stop)

    def close(self, session):
        begin = time.monotonic()
        try:
            session.close()
        except tf.errors.AbortedError:
            # Its master has restarted without the session.
            pass
        self.note("closed", time.monotonic() - begin)


NAMES = {tf.errors.UNAVAILABLE: "UNAVAILABLE", tf.errors.ABORTED: "ABORTED",
         tf.errors.DEADLINE_EXCEEDED: "DEADLINE_EXCEEDED",
         tf.errors.FAILED_PRECONDITION: "FAILED_PRECONDITION",
         tf.errors.RESOURCE_EXHAUSTED: "RESOURCE_EXHAUSTED"}


def run(name, target, folder):
    """Runs the client of this name until the file `stop` exists."""
    kind, role = name.split("/")
    record = Record(folder, name)
    {"monitored": monitored, "plain": plain, "greedy": greedy}[kind](role, target, folder, record)


def training(scope, role, names):
    """A variable on the parameter server for each of `names`, and a step that adds one to the client's own:
    the one is computed on the client's worker."""
    with v1.device("/job:ps/task:0"):
        counters = {n: v1.get_variable(f"{scope}/{n}", [], tf.int64, v1.zeros_initializer(),
                                       use_resource=n == "other") for n in names}
        step = v1.train.get_or_create_global_step()
    with v1.device(f"/job:worker/task:{SESSIONS.index(role)}"):
        one = v1.placeholder_with_default(tf.constant(0, tf.int64), []) + 1
    with v1.device("/job:ps/task:0"):
        return v1.assign_add(counters[role], one, use_locking=True), step


class Sessions(v1.train.SessionRunHook):
    """Records every new session."""

    def __init__(self, record):
        self.record = record

    def after_create_session(self, session, coord):
        self.record.note("session")


def monitored(role, target, folder, record):
    # TensorFlow's client checks uninitialized variables again only after 30 s (recovery_wait_secs).
    defaults = session_manager.SessionManager.__init__.__defaults__
    session_manager.SessionManager.__init__.__defaults__ = tuple(
        0.3 if value == 30 else value for value in defaults)
    with tf.Graph().as_default():
        add, _ = training("monitored", role, SESSIONS)
        session = v1.train.MonitoredTrainingSession(
            target, is_chief=role == "chief", checkpoint_dir=os.path.join(folder, "checkpoints"),
            hooks=[Sessions(record)], save_checkpoint_secs=SAVE_SECONDS, save_summaries_steps=None,
            save_summaries_secs=None, log_step_count_steps=None)
        while not record.is_over():
            begin = time.monotonic()
            try:
                record.step(session.run(add))
            except tf.errors.OpError as error:
                record.error(error, time.monotonic() - begin)
                return
            time.sleep(PAUSE_SECONDS)
        # The chief saves once more before it closes, so this time is not that of CloseSession alone.
        session.close()


def plain(role, target, folder, record):
    with tf.Graph().as_default():
        add, _ = training("plain", role, [role])
        initialize, missing = v1.global_variables_initializer(), v1.report_uninitialized_variables()
        failing_since = None
        session = v1.Session(target)
        session.run(initialize)
        record.note("session")
        while not record.is_over():
            begin = time.monotonic()
            try:
                record.step(session.run(add))
                failing_since = None
            except tf.errors.OpError as error:
                record.error(error, time.monotonic() - begin)
                # The task is back, without the session.
                if error.error_code == tf.errors.ABORTED:
                    failing_since = failing_since or time.monotonic()
                time.sleep(0.1)
            if failing_since and time.monotonic() - failing_since > KEEP_SECONDS:
                record.close(session)
                session = v1.Session(target)
                if len(session.run(missing)):
                    session.run(initialize)
                record.note("session")
                failing_since = None
            time.sleep(PAUSE_SECONDS)
        record.close(session)


def greedy(_, target, folder, record):
    """Requests a gigabyte on the parameter server, once."""
    with tf.Graph().as_default(), v1.device("/job:ps/task:0"):
        much = tf.reduce_sum(tf.fill([1 << 28], v1.placeholder_with_default(1.0, [])))
        with v1.Session(target) as session:
            begin = time.monotonic()
            try:
                record.step(session.run(much))
            except tf.errors.OpError as error:
                record.error(error, time.monotonic() - begin)
