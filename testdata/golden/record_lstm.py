"""Records whole LSTM layers as one op, and their gradients, into lstm.jsonl.gz.

Run it as record.py says; both share the recorder.
"""

import os

import recorder
import tensorflow as tf
from recorder import f32, record, write

recorder.OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lstm.jsonl.gz")
raw = tf.raw_ops
CLOSE = (1e-4, 1e-5)


def play(op, gradient, peephole, length=None, **attrs):
    """One layer over five steps, forward and backward, with the same inputs."""
    time, batch, inputs, cells = 5, 3, 4, 6
    with tf.Graph().as_default() as graph:
        given = {
            "seq_len_max": tf.constant(time if length is None else length, tf.int64),
            "x": tf.constant(f32(time, batch, inputs)),
            "cs_prev": tf.constant(f32(batch, cells)),
            "h_prev": tf.constant(f32(batch, cells)),
            "w": tf.constant(f32(inputs + cells, 4 * cells, low=-1, high=1)),
            **{w: tf.constant(f32(cells)) for w in ["wci", "wcf", "wco"]},
            "b": tf.constant(f32(4 * cells)),
        }
        forward = op(**given, use_peephole=peephole, **attrs)
        backward = gradient(
            **given, **forward._asdict(), use_peephole=peephole,
            cs_grad=tf.constant(f32(time, batch, cells)),
            h_grad=tf.constant(f32(time, batch, cells)))
        peepholes = ["wci_grad", "wcf_grad", "wco_grad"]
        wanted = [t for n, t in backward._asdict().items() if peephole or n not in peepholes]
        record(op.__name__, "forward", graph, [(list(forward), [])], CLOSE)
        record(gradient.__name__, "backward", graph, [(wanted, [])], CLOSE)


def refused(op, **wrong):
    with tf.Graph().as_default() as graph:
        zeros = {
            "seq_len_max": tf.constant(2, tf.int64), "x": tf.zeros([2, 3, 4]),
            "cs_prev": tf.zeros([3, 5]), "h_prev": tf.zeros([3, 5]), "w": tf.zeros([9, 20]),
            "wci": tf.zeros([5]), "wcf": tf.zeros([5]), "wco": tf.zeros([5]), "b": tf.zeros([20]),
        }
        # The shape is unknown at graph construction, so that the kernel reports the error.
        hidden = {
            name: tf.compat.v1.placeholder_with_default(tf.zeros(shape), None)
            for name, shape in wrong.items()
        }
        record(op.__name__, "refused", graph, [(list(op(**{**zeros, **hidden})), [])], CLOSE)


for peephole in [False, True]:
    play(raw.BlockLSTM, raw.BlockLSTMGrad, peephole)
    play(raw.BlockLSTM, raw.BlockLSTMGrad, peephole, forget_bias=0.0, cell_clip=0.5)
    play(raw.BlockLSTMV2, raw.BlockLSTMGradV2, peephole)
    play(raw.BlockLSTMV2, raw.BlockLSTMGradV2, peephole, cell_clip=0.5)
for op in [raw.BlockLSTM, raw.BlockLSTMV2]:
    refused(op, w=[8, 20])
    refused(op, b=[19])
    refused(op, x=[2, 12])
write()
