"""What the client programs share."""

import contextlib

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
