"""What the client programs share."""

import contextlib
import multiprocessing
import traceback

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
v1.disable_v2_behavior()


@contextlib.contextmanager
def session(target, **options):
    """A session on a fresh graph whose state nobody else uses."""
    with tf.Graph().as_default(), v1.Session(target, **options) as opened:
        yield opened


def fresh(target):
    """Forgets all variables on the server: cases share it."""
    v1.Session.reset(target)


def close(got, wanted, tolerance=1e-5):
    np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)


def pairs(*lists):
    """Elements side by side, of lists of equal length: `zip` would end with the shortest."""
    lists = [list(each) for each in lists]
    assert len({len(each) for each in lists}) == 1, f"lengths {[len(each) for each in lists]}"
    return zip(*lists)


def equal(got, wanted):
    np.testing.assert_array_equal(got, wanted)


@contextlib.contextmanager
def raises(kind, *words):
    """The block must fail with this error, and its message must have these words."""
    try:
        yield
    except kind as error:
        for word in words:
            assert word in str(error), f"{word!r} is not in: {error}"
        return
    raise AssertionError(f"{kind.__name__} was expected")


class Elsewhere:
    """A call in another client process. Start it before the case opens a session of its own:
    what TensorFlow has begun does not survive a fork."""

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
        """Sends the process a word, which it takes from `pipe`."""
        self.pipe.send(word)

    def result(self):
        """What the call gave, or its next word; its failure is ours."""
        value, failure = self.pipe.recv()
        assert failure is None, failure
        return value

    def kill(self):
        """Ends the process with signal 9, wherever it is."""
        self.process.kill()
        self.process.join()
