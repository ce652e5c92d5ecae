"""Records array and quantization ops for every dtype and mode into arrays_of_all_dtypes.jsonl.gz.

Run it as record.py says; both share the recorder.
"""

import os

import numpy as np
import recorder
import tensorflow as tf
from recorder import case, f32, i32, i64, write

recorder.OUT = os.path.join(os.path.dirname(recorder.OUT), "arrays_of_all_dtypes.jsonl.gz")
EXACT = (0, 0)
ALIGNMENTS = "LEFT_RIGHT RIGHT_LEFT LEFT_LEFT RIGHT_RIGHT".split()
REALS = [
    tf.float32, tf.float64, tf.half, tf.bfloat16, tf.int8, tf.int16, tf.int32, tf.int64,
    tf.uint8, tf.uint16, tf.uint32, tf.uint64,
]
QUANTIZED = {
    tf.qint8: np.int8, tf.quint8: np.uint8, tf.qint16: np.int16, tf.quint16: np.uint16,
    tf.qint32: np.int32,
}


def numbers(dtype, *shape, low=-8.0, high=8.0):
    values = recorder.random.uniform(low, high, shape)
    if dtype.is_integer:
        values = np.abs(np.round(values)) if dtype.is_unsigned else np.round(values)
    return np.array(values.astype(dtype.as_numpy_dtype))


def moved(dtype):
    x = lambda *shape: numbers(dtype, *shape)
    for align in ALIGNMENTS:
        case("MatrixDiagPartV3", input=x(2, 3, 5), k=i32([-2, 3]), padding_value=x(), align=align,
             tol=EXACT)
        case("MatrixDiagV3", diagonal=x(2, 4, 3), k=i32([-2, 1]), num_rows=i32(-1),
             num_cols=i32(-1), padding_value=x(), align=align, tol=EXACT)
        case("MatrixSetDiagV3", input=x(2, 5, 3), diagonal=x(2, 4, 3), k=i32([-3, 0]),
             align=align, tol=EXACT)
    case("MatrixBandPart", input=x(2, 4, 5), num_lower=i32(1), num_upper=i32(2), tol=EXACT)
    case("SpaceToBatchND", input=x(2, 3, 5, 2), block_shape=i64([2, 3]),
         paddings=i32([[0, 1], [2, 2]]), tol=EXACT)
    case("BatchToSpaceND", input=x(12, 2, 2, 2), block_shape=i32([2, 3]),
         crops=i64([[0, 1], [2, 2]]), tol=EXACT)
    case("DepthToSpace", input=x(2, 2, 3, 18), block_size=3, tol=EXACT)
    case("SpaceToDepth", input=x(2, 4, 6, 3), block_size=2, tol=EXACT)


def computed(dtype):
    x = lambda *shape, **range: numbers(dtype, *shape, **range)
    for shape, k, is_sorted in [((5,), 2, True), ((2, 12), 6, False), ((2, 4), 4, True)]:
        case("TopKV2", input=x(*shape), k=i32(k), sorted=is_sorted, tol=EXACT)
    case("TopKV2", input=x(3, 20), k=np.int16(5), index_type=tf.int64, tol=EXACT)
    case("NthElement", input=x(2, 7), n=i32(3), reverse=True, tol=EXACT)
    case("Cross", a=x(2, 3), b=x(2, 3), tol=(1e-5, 1e-5))
    ordered = np.sort(x(2, 6).astype(np.float64), -1).astype(dtype.as_numpy_dtype)
    for op in "LowerBound UpperBound".split():
        case(op, sorted_inputs=ordered, values=x(2, 5), tol=EXACT)
    for padding in "SAME VALID".split():
        case("ExtractImagePatches", images=x(2, 5, 4, 2), ksizes=[1, 2, 3, 1],
             strides=[1, 2, 1, 1], rates=[1, 2, 1, 1], padding=padding, tol=EXACT)
        case("ExtractVolumePatches", input=x(1, 3, 4, 4, 2), ksizes=[1, 2, 3, 2, 1],
             strides=[1, 2, 1, 2, 1], padding=padding, tol=EXACT)
        case("Dilation2D", input=x(2, 5, 4, 3), filter=x(2, 2, 3, low=-2.0, high=2.0),
             strides=[1, 2, 1, 1], rates=[1, 1, 2, 1], padding=padding, tol=EXACT)


def quantized(dtype):
    limits = np.iinfo(QUANTIZED[dtype])
    close = (1e-6, 1e-6)
    for mode in "MIN_COMBINED MIN_FIRST SCALED".split():
        for ends in [(-2.0, 4.0), (0.0, 3.0), (-5.0, -1.0), (1.0, 1.0)]:
            low, high = np.float32(ends)
            case("QuantizeV2", input=f32(21, low=-6.0, high=6.0), min_range=low, max_range=high,
                 T=dtype, mode=mode, tol=close)
        if mode != "MIN_FIRST":
            case("QuantizeV2", input=f32(2, 3, 4, low=-6.0, high=6.0), min_range=-f32(3, low=1.0),
                 max_range=f32(3, low=1.0), T=dtype, mode=mode, axis=1, narrow_range=True, tol=close)
    stored = recorder.random.randint(limits.min, limits.max, 9, dtype=np.int64)
    for mode in "MIN_COMBINED MIN_FIRST SCALED".split():
        with_dtype = tf.make_ndarray(tf.make_tensor_proto(stored, dtype=dtype))
        case("Dequantize", input=with_dtype, min_range=np.float32(-2), max_range=np.float32(4.5),
             mode=mode, tol=(2e-6, 1e-6))


def pretended():
    close = (1e-6, 1e-6)
    for is_signed in (True, False):
        for is_narrow in (True, False):
            for round_mode in "HALF_TO_EVEN HALF_UP".split():
                for is_given in (True, False):
                    case("QuantizeAndDequantizeV2", input=f32(13, low=-8.0, high=8.0),
                         input_min=np.float32(-3.5), input_max=np.float32(5.25),
                         signed_input=is_signed, narrow_range=is_narrow, range_given=is_given,
                         round_mode=round_mode, num_bits=4, tol=close)
    for low, high, bits in [(-6.0, 6.0, 8), (0.0, 6.0, 4), (-3.0, 0.0, 16), (1.0, 6.0, 8)]:
        x = f32(40, low=-8.0, high=8.0)
        case("FakeQuantWithMinMaxArgs", inputs=x, min=low, max=high, num_bits=bits, tol=close)
        case("FakeQuantWithMinMaxVars", inputs=x, min=np.float32(low), max=np.float32(high),
             num_bits=bits, narrow_range=True, tol=close)


for each in REALS:
    moved(each)
    computed(each)
for each in QUANTIZED:
    quantized(each)
pretended()
for entry in recorder.cases:
    entry["id"] = entry["id"].replace("ours/", "dtypes/")
write()
