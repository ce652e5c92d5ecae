"""MonitoredTrainingSession and its hooks."""

import logging

import numpy as np
import tensorflow as tf
from support import close, fresh, raises, v1


def model():
    """A weight that halves at every step, and its loss."""
    step = v1.train.get_or_create_global_step()
    w = v1.get_variable("w", initializer=64.0, use_resource=True)
    loss = tf.square(w, name="loss")
    train = v1.train.GradientDescentOptimizer(0.25).minimize(loss, global_step=step)
    return step, w, loss, train


def monitored(target, hooks=(), **options):
    return v1.train.MonitoredTrainingSession(
        master=target, hooks=hooks, save_checkpoint_secs=None, save_summaries_steps=None,
        save_summaries_secs=None, log_step_count_steps=None, **options)


def case_stop_at_step(target):
    fresh(target)
    with tf.Graph().as_default():
        step, w, loss, train = model()
        seen = []
        with monitored(target, [v1.train.StopAtStepHook(last_step=5)]) as s:
            while not s.should_stop():
                seen.append(s.run([loss, train])[0])
        assert len(seen) == 5
        # The loss is read before or after the update of its step, but falls by 4 each time.
        close(np.array(seen[1:]) / seen[:-1], [0.25] * 4)


def case_a_second_session_continues(target):
    fresh(target)
    for last in (3, 6):
        with tf.Graph().as_default():
            step, w, loss, train = model()
            # A worker that is not the chief leaves the variables as they are.
            with monitored(target, [v1.train.StopAtStepHook(last_step=last)],
                           is_chief=last == 3) as s:
                while not s.should_stop():
                    _, weight, at = s.run([train, w, step])
        assert at in (last - 1, last)
        assert weight in (64.0 / 2**last, 64.0 / 2 ** (last - 1))


class Recorder(v1.train.SessionRunHook):
    """Counts the calls of the hook, and requests a tensor."""

    def __init__(self):
        self.calls, self.values = [], []

    def begin(self):
        self.calls.append("begin")
        self.tensor = tf.constant(7.0)

    def after_create_session(self, session, coord):
        self.calls.append("created")

    def before_run(self, run_context):
        return v1.train.SessionRunArgs(self.tensor)

    def after_run(self, run_context, run_values):
        self.values.append(float(run_values.results))
        if len(self.values) == 3:
            run_context.request_stop()

    def end(self, session):
        self.calls.append("end")


def case_hooks_of_ones_own(target):
    fresh(target)
    with tf.Graph().as_default():
        _, w, _, train = model()
        recorder = Recorder()
        with monitored(target, [recorder]) as s:
            while not s.should_stop():
                s.run(train)
        assert recorder.calls == ["begin", "created", "end"]
        assert recorder.values == [7.0] * 3


def case_nan_stops_training(target):
    fresh(target)
    with tf.Graph().as_default():
        v1.train.get_or_create_global_step()
        x = v1.placeholder(tf.float32, [])
        loss = tf.math.log(x)
        hook = v1.train.NanTensorHook(loss, fail_on_nan_loss=True)
        with raises(v1.train.NanLossDuringTrainingError):
            with monitored(target, [hook]) as s:
                close(s.run(loss, {x: np.e}), 1.0)
                s.run(loss, {x: -1.0})
        hook = v1.train.NanTensorHook(loss, fail_on_nan_loss=False)
        with monitored(target, [hook]) as s:
            assert np.isnan(s.run(loss, {x: -1.0}))
            assert s.should_stop()


def case_logging_and_counting(target):
    fresh(target)
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logger = v1.logging
    logger.set_verbosity(logger.INFO)
    logging.getLogger("tensorflow").addHandler(handler)
    with tf.Graph().as_default():
        step, w, loss, train = model()
        hooks = [v1.train.LoggingTensorHook({"the_loss": loss}, every_n_iter=2),
                 v1.train.StepCounterHook(every_n_steps=2, output_dir=None, summary_writer=RecordingWriter()),
                 v1.train.StopAtStepHook(num_steps=4)]
        with monitored(target, hooks) as s:
            while not s.should_stop():
                s.run(train)
    said = [line for line in lines if "the_loss" in line]
    assert len(said) == 2, lines
    values = [float(line.split("the_loss = ")[1].split()[0].rstrip(",)")) for line in said]
    close(values[1] / values[0], 1 / 16)


class RecordingWriter:
    """A summary writer that records its calls."""

    def __init__(self):
        self.added = []

    def add_summary(self, summary, step):
        self.added.append((summary, step))


def case_feeds_and_final_operations(target):
    fresh(target)
    with tf.Graph().as_default():
        step, w, loss, train = model()
        x = v1.placeholder(tf.float32, [])
        twice = x * 2
        hook = v1.train.FinalOpsHook(w + x, final_ops_feed_dict={x: 1.0})
        feed = v1.train.FeedFnHook(lambda: {x: 3.0})
        with monitored(target, [hook, feed, v1.train.StopAtStepHook(2)]) as s:
            while not s.should_stop():
                got = s.run([train, twice])[1]
                close(got, 6)
        close(hook.final_ops_values, 64 / 4 + 1)


def case_step_functions(target):
    fresh(target)
    with tf.Graph().as_default():
        step, w, loss, train = model()

        def one(step_context):
            before = step_context.session.run(w)
            step_context.run_with_hooks(train)
            if before < 10:
                # request_stop raises, which leaves this function.
                step_context.request_stop()
            return before

        seen = []
        with monitored(target) as s:
            while not s.should_stop():
                seen.append(float(s.run_step_fn(one)))
        assert seen == [64, 32, 16], seen


def case_scaffolds(target):
    fresh(target)
    with tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(["a"], tf.constant([5], tf.int64)), 0)
        local = v1.get_variable("seen", initializer=3, collections=["local_variables"])
        fed = v1.placeholder(tf.float32, [2])
        v = v1.get_variable("v", initializer=fed, use_resource=True)
        found = table.lookup(tf.constant("a"))
        scaffold = v1.train.Scaffold(init_feed_dict={fed: [1.5, 2.5]})
        with monitored(target, scaffold=scaffold) as s:
            assert s.run(found) == 5
            close(s.run(v), [1.5, 2.5])
            assert s.run(local) == 3 and s.run(step) == 0


def case_synchronous_replicas_with_their_hook(target):
    fresh(target)
    with tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        w = v1.get_variable("w", initializer=[4.0, -2.0], use_resource=True)
        optimizer = v1.train.SyncReplicasOptimizer(
            v1.train.GradientDescentOptimizer(0.25), replicas_to_aggregate=1, total_num_replicas=1)
        train = optimizer.minimize(tf.reduce_sum(tf.square(w)), global_step=step)
        hooks = [optimizer.make_session_run_hook(is_chief=True), v1.train.StopAtStepHook(4)]
        # The chief's runner waits for gradients when the others stop.
        with monitored(target, hooks, stop_grace_period_secs=1) as s:
            while not s.should_stop():
                s.run(train)
    with tf.Graph().as_default(), v1.Session(target) as s:
        step = v1.train.get_or_create_global_step()
        w = v1.get_variable("w", initializer=[4.0, -2.0], use_resource=True)
        weights, steps = s.run([w, step])
        assert steps >= 4
        close(weights, np.array([4.0, -2.0]) / 2.0**steps)


def case_an_exception_ends_the_session(target):
    fresh(target)
    with tf.Graph().as_default():
        step, w, loss, train = model()
        x = v1.placeholder(tf.float32)
        bad = tf.reshape(x, [3])
        with raises(tf.errors.InvalidArgumentError, "requested shape"):
            with monitored(target) as s:
                s.run(train)
                s.run(bad, {x: [1.0, 2.0]})
        # Variables outlive the session.
    with tf.Graph().as_default(), v1.Session(target) as s:
        close(s.run(v1.get_variable("w", initializer=0.0, use_resource=True)), 32)
