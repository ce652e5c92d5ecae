"""The clients of a cell of the table of failures: they train until they are told to stop, and write
down what they see, a line of JSON for each event: the time, what, and more."""

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
# How long a plain session is used that only fails, once its task is back.
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
            # Its master has started anew and knows nothing of it.
            pass
        self.note("closed", time.monotonic() - begin)


NAMES = {tf.errors.UNAVAILABLE: "UNAVAILABLE", tf.errors.ABORTED: "ABORTED",
         tf.errors.DEADLINE_EXCEEDED: "DEADLINE_EXCEEDED",
         tf.errors.FAILED_PRECONDITION: "FAILED_PRECONDITION",
         tf.errors.RESOURCE_EXHAUSTED: "RESOURCE_EXHAUSTED"}


def run(name, target, folder):
    """Trains; what its name says, and as long as there is no file `stop`."""
    kind, who = name.split("/")
    record = Record(folder, name)
    {"monitored": monitored, "plain": plain, "greedy": greedy}[kind](who, target, folder, record)


def training(scope, who, names):
    """A variable on the parameter server for each of `names`, and a step that adds one to ours: the
    one is computed on the client's own worker."""
    with v1.device("/job:ps/task:0"):
        counters = {n: v1.get_variable(f"{scope}/{n}", [], tf.int64, v1.zeros_initializer(),
                                       use_resource=n == "other") for n in names}
        step = v1.train.get_or_create_global_step()
    with v1.device(f"/job:worker/task:{SESSIONS.index(who)}"):
        one = tf.identity(v1.placeholder_with_default(tf.constant(1, tf.int64), []))
    with v1.device("/job:ps/task:0"):
        return v1.assign_add(counters[who], one, use_locking=True), step


class Sessions(v1.train.SessionRunHook):
    """Notes every new session."""

    def __init__(self, record):
        self.record = record

    def after_create_session(self, session, coord):
        self.record.note("session")


def monitored(who, target, folder, record):
    # A worker that finds variables not yet restored looks again after 30 s: the client's own habit.
    defaults = session_manager.SessionManager.__init__.__defaults__
    session_manager.SessionManager.__init__.__defaults__ = tuple(
        0.3 if value == 30 else value for value in defaults)
    with tf.Graph().as_default():
        add, _ = training("monitored", who, SESSIONS)
        session = v1.train.MonitoredTrainingSession(
            target, is_chief=who == "chief", checkpoint_dir=os.path.join(folder, "checkpoints"),
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
        # The chief saves once more before it closes, so this says nothing of CloseSession.
        session.close()


def plain(who, target, folder, record):
    with tf.Graph().as_default():
        add, _ = training("plain", who, [who])
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
                # The task is back, and knows nothing of the session.
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
    """Asks for a gigabyte on the parameter server, once."""
    with tf.Graph().as_default(), v1.device("/job:ps/task:0"):
        much = tf.reduce_sum(tf.fill([1 << 28], v1.placeholder_with_default(1.0, [])))
        with v1.Session(target) as session:
            begin = time.monotonic()
            try:
                record.step(session.run(much))
            except tf.errors.OpError as error:
                record.error(error, time.monotonic() - begin)
