"""Helpers that the client programs share."""

import contextlib
import multiprocessing
import traceback

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
v1.disable_v2_behavior()


@contextlib.contextmanager
def session(target, **options):
    """A session on a fresh graph, on a server without variables."""
    with tf.Graph().as_default(), v1.Session(target, **options) as opened:
        yield opened


def fresh(target):
    """Drops all variables on the server, which cases share."""
    v1.Session.reset(target)


def close(got, wanted, tolerance=1e-5):
    np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)


def pairs(*lists):
    """`zip` that checks that the lists have the same length."""
    lists = [list(each) for each in lists]
    assert len({len(each) for each in lists}) == 1, f"lengths {[len(each) for each in lists]}"
    return zip(*lists)


def equal(got, wanted):
    np.testing.assert_array_equal(got, wanted)


@contextlib.contextmanager
def raises(kind, *words):
    """Checks that the block fails with this error, and that its message contains these words."""
    try:
        yield
    except kind as error:
        for word in words:
            assert word in str(error), f"{word!r} is not in: {error}"
        return
    raise AssertionError(f"{kind.__name__} was expected")


class Elsewhere:
    """A call in another client process. Start it before the case opens a session of its own:
    TensorFlow's threads do not survive a fork."""

    def __init__(self, function, *args):
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=self._child, args=(function, args, theirs))
        self.process.start()
        theirs.close()

    @staticmethod
    def _child(function, args, pipe):
        try:
            pipe.send((function(*args, pipe=pipe), None))
        except BaseException:
            pipe.send((None, traceback.format_exc()))

    def say(self, word):
        """Sends the process a word over `pipe`."""
        self.pipe.send(word)

    def result(self):
        """The result of the call, or its next word; raises its failure."""
        value, failure = self.pipe.recv()
        assert failure is None, failure
        return value

    def kill(self):
        """Kills the process with SIGKILL."""
        self.process.kill()
        self.process.join()
