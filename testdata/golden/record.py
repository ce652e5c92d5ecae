"""Records further cases from TensorFlow 2.21 into ours.jsonl.gz, in the format of the others.

    python3 -m venv venv && venv/bin/pip install tensorflow-cpu==2.21.0
    venv/bin/python testdata/golden/record.py

They cover ops and gradients that the other files do not: each op that `thalweg ops` lists as implemented has at
least one case, and so does every gradient function. One call of `case` records one case; `grad` names the
inputs whose gradients are recorded as well.
"""

import struct

import numpy as np
import tensorflow as tf
from recorder import c64, case, f32, f64, i32, i64, old, record, training, write
from tensorflow.python.ops import gen_array_ops, gen_state_ops


def special_functions():
    small = dict(low=0.2, high=3.0)
    for op in "BesselI0 BesselI1 BesselJ0 BesselJ1 Dawsn FresnelCos FresnelSin".split():
        case(op, x=f32(3, 4), grad=["x"])
        case(op, x=f64(7), grad=["x"])
    for op in "BesselK0 BesselK0e BesselK1 BesselK1e BesselY0 BesselY1 Expint".split():
        case(op, x=f32(3, 4, **small), grad=["x"])
        case(op, x=f64(7, **small), grad=["x"])
    case("Spence", x=f64(6, **small), grad=["x"])
    case("Zeta", x=f64(6, low=2.0, high=5.0), q=f64(6, low=1.0, high=4.0), grad=["q"])
    for op in "Ceil Floor Rint Round".split():
        case(op, x=f32(8), grad=["x"])
    case("TruncateDiv", x=f32(4), y=f32(4, low=1.0), grad=["x", "y"])
    case("FloorDiv", x=f32(4), y=f32(4, low=1.0), grad=["x", "y"])


def complex_parts():
    z = c64(3, 2)
    for op in "Real Imag Angle Conj".split():
        case(op, input=z, grad=["input"])
    case("ComplexAbs", x=z, grad=["x"])
    case("Complex", real=f32(4), imag=f32(4), grad=["real", "imag"])
    case("ConjugateTranspose", x=z, perm=i32([1, 0]), grad=["x"])
    case("Mul", x=c64(3, 1), y=c64(1, 2), grad=["x", "y"])
    case("MatMul", a=c64(2, 3), b=c64(3, 2), grad=["a", "b"])
    case("RealDiv", x=c64(4), y=c64(4), grad=["x", "y"])
    case("Pow", x=c64(4), y=c64(4), grad=["x", "y"], tol=(1e-3, 1e-3))


def arrays():
    for op in "ArgMax ArgMin".split():
        case(op, input=f32(3, 4), dimension=i32(1))
    case("EnsureShape", input=f32(2, 3), shape=[None, 3], grad=["input"])
    case("PreventGradient", input=f32(2))
    case("CheckNumericsV2", tensor=f32(3), message="x", grad=["tensor"])
    case("DebugGradientIdentity", input=f32(3))
    case("ReverseV2", tensor=f32(2, 3), axis=i32([0, 1]), grad=["tensor"])
    case("Reverse", tensor=f32(2, 3), dims=np.array([True, False]), grad=["tensor"])
    case("Reverse", tensor=f32(2, 3, 4), dims=np.array([False, True, True]))
    case("CumulativeLogsumexp", x=f32(2, 4), axis=i32(1), grad=["x"])
    case("CumulativeLogsumexp", x=f64(2, 4), axis=i32(0), exclusive=True, reverse=True)
    case(
        "TensorStridedSliceUpdate",
        input=f32(4, 5),
        begin=i32([0, 1]),
        end=i32([4, 5]),
        strides=i32([2, 2]),
        value=f32(2, 2),
        grad=["input", "value"],
    )
    case(
        "ScatterNdNonAliasingAdd",
        input=f32(4, 2),
        indices=i32([[1], [3]]),
        updates=f32(2, 2),
        grad=["input", "updates"],
    )
    case("ParallelConcat", values=[f32(1, 3), f32(1, 3)], shape=[2, 3])
    case("NthElement", input=f32(3, 5), n=i32(2), grad=["input"])
    case("NthElement", input=f32(3, 5), n=i32(1), reverse=True)
    case("MatrixDiagV2", diagonal=f32(2, 3), k=i32(0), num_rows=i32(3), num_cols=i32(4),
         padding_value=np.float32(0), grad=["diagonal"])
    case("MatrixSetDiagV2", input=f32(2, 3, 4), diagonal=f32(2, 3), k=i32(0),
         grad=["input", "diagonal"])
    case("DepthToSpace", input=f32(1, 2, 2, 8), block_size=2, grad=["input"])
    case("UnravelIndex", indices=i32([5, 7]), dims=i32([3, 4]))
    case("SparseMatMul", a=f32(2, 3), b=f32(3, 4), grad=["a", "b"])
    case("BatchMatMulV3", x=f32(2, 2, 3), y=f32(1, 3, 2), Tout=tf.float32, grad=["x", "y"])
    case("Bitcast", input=f32(3), type=tf.int32)


def networks():
    image, small = f32(2, 5, 5, 2), dict(low=0.1, high=2.0)
    window = dict(ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="SAME")
    pooled = f32(2, 3, 3, 2)
    case("MaxPoolV2", input=image, ksize=i32([1, 2, 2, 1]), strides=i32([1, 2, 2, 1]),
         padding="SAME", grad=["input"])
    volume = f32(1, 4, 4, 4, 2)
    cube = dict(ksize=[1, 2, 2, 2, 1], strides=[1, 2, 2, 2, 1], padding="VALID")
    raw("AvgPoolGrad", dict(orig_input_shape=i32([2, 5, 5, 2]), grad=pooled), window, ["grad"])
    raw("AvgPool3DGrad", dict(orig_input_shape=i32([1, 4, 4, 4, 2]), grad=f32(1, 2, 2, 2, 2)),
        cube, ["grad"])
    best = image_pool(image, window)
    raw("MaxPoolGrad", dict(orig_input=image, orig_output=best, grad=pooled), window, ["grad"])
    raw("MaxPoolGradV2", dict(orig_input=image, orig_output=best, grad=pooled,
                              ksize=i32([1, 2, 2, 1]), strides=i32([1, 2, 2, 1])),
        dict(padding="SAME"), ["grad"])
    raw("MaxPoolGradGrad", dict(orig_input=image, orig_output=best, grad=image), window, ["grad"])
    raw("MaxPoolGradGradV2", dict(orig_input=image, orig_output=best, grad=image,
                                  ksize=i32([1, 2, 2, 1]), strides=i32([1, 2, 2, 1])),
        dict(padding="SAME"), [])
    best = volume_pool(volume, cube)
    raw("MaxPool3DGrad", dict(orig_input=volume, orig_output=best, grad=best), cube, ["grad"])
    raw("MaxPool3DGradGrad", dict(orig_input=volume, orig_output=best, grad=volume), cube, ["grad"])
    conv = dict(strides=[1, 1, 1, 1, 1], padding="SAME")
    raw("Conv3DBackpropInputV2", dict(input_sizes=i32([1, 4, 4, 4, 2]), filter=f32(2, 2, 2, 2, 3),
                                      out_backprop=f32(1, 4, 4, 4, 3)), conv,
        ["filter", "out_backprop"])
    raw("Conv3DBackpropFilterV2", dict(input=volume, filter_sizes=i32([2, 2, 2, 2, 3]),
                                       out_backprop=f32(1, 4, 4, 4, 3)), conv,
        ["input", "out_backprop"])
    for op in "Conv3DBackpropInput Conv3DBackpropFilter".split():
        old(op, 9, dict(input=volume, filter=f32(2, 2, 2, 2, 3),
                        out_backprop=f32(1, 4, 4, 4, 3)), conv, tf.float32)
    for op in "FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3".split():
        for training_mode in (True, False):
            case(op, x=image, scale=f32(2, **small), offset=f32(2),
                 mean=f32(0) if training_mode else f32(2),
                 variance=f32(0) if training_mode else f32(2, **small),
                 is_training=training_mode, grad=["x", "scale", "offset"], fetch=[0, 1, 2])
    for op in "FusedBatchNormGrad FusedBatchNormGradV2".split():
        case(op, y_backprop=image, x=f32(2, 5, 5, 2), scale=f32(2, **small),
             reserve_space_1=f32(2), reserve_space_2=f32(2, **small), is_training=False,
             fetch=[0, 1, 2])
    case("SoftmaxCrossEntropyWithLogits", features=f32(3, 4), labels=f32(3, 4, low=0.1),
         grad=["features"], is_slope=False)
    old("BatchNormWithGlobalNormalization", 8,
        dict(t=image, m=f32(2), v=f32(2, **small), beta=f32(2), gamma=f32(2, **small)),
        dict(variance_epsilon=1e-3, scale_after_normalization=True), tf.float32)
    case("Dilation2D", input=f32(1, 5, 5, 2), filter=f32(2, 2, 2), strides=[1, 1, 1, 1],
         rates=[1, 1, 1, 1], padding="SAME", grad=["input", "filter"])
    case("ExtractVolumePatches", input=volume, ksizes=[1, 2, 2, 2, 1], strides=[1, 1, 1, 1, 1],
         padding="VALID", grad=["input"])
    case("FakeQuantWithMinMaxVarsPerChannel", inputs=f32(3, 2), min=f32(2, low=-1.5, high=-1.0),
         max=f32(2, low=1.0, high=1.5), grad=["inputs", "min", "max"])
    case("IsotonicRegression", input=f32(2, 5), output_dtype=tf.float32, grad=["input"])
    case("FractionalMaxPool", value=f32(1, 6, 6, 2), pooling_ratio=[1.0, 1.5, 1.5, 1.0],
         deterministic=True, seed=1, seed2=2, grad=["value"], kind="seeded")
    case("FractionalAvgPool", value=f32(1, 6, 6, 2), pooling_ratio=[1.0, 1.5, 1.5, 1.0],
         deterministic=True, seed=1, seed2=2, grad=["value"], kind="seeded")


def raw(op, tensors, attrs, grad):
    """A case of an op that has an input called `grad`."""
    case(op, grad=grad, arguments={**tensors, **attrs})


def image_pool(image, window):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        return session.run(tf.raw_ops.MaxPool(input=image, **window))


def volume_pool(volume, window):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        return session.run(tf.raw_ops.MaxPool3D(input=volume, **window))


def linear_algebra():
    square = f64(2, 3, 3) + 3 * np.eye(3)
    for op in "FFT IFFT".split():
        case(op, input=c64(2, 5), grad=["input"])
    for op in "FFT2D IFFT2D".split():
        case(op, input=c64(3, 4), grad=["input"])
    for op in "FFT3D IFFT3D".split():
        case(op, input=c64(2, 3, 2), grad=["input"])
    case("RFFT", input=f32(2, 6), fft_length=i32([6]), grad=["input"])
    case("RFFT", input=f32(2, 6), fft_length=i32([8]))
    case("RFFT2D", input=f32(4, 6), fft_length=i32([4, 6]), grad=["input"])
    case("RFFT3D", input=f32(2, 4, 6), fft_length=i32([2, 4, 6]))
    case("IRFFT", input=c64(2, 4), fft_length=i32([6]), grad=["input"])
    case("IRFFT", input=c64(2, 4), fft_length=i32([7]))
    case("IRFFT2D", input=c64(4, 4), fft_length=i32([4, 6]), grad=["input"])
    case("IRFFT3D", input=c64(2, 4, 4), fft_length=i32([2, 4, 6]))
    case("Qr", input=f64(2, 4, 3), grad=["input"])
    case("MatrixSolveLs", matrix=f64(4, 3), rhs=f64(4, 2), l2_regularizer=np.float64(0.1),
         fast=True, grad=["matrix", "rhs"])
    case("MatrixSquareRoot", input=square @ np.transpose(square, (0, 2, 1)), grad=["input"])
    case("MatrixLogarithm", input=(square @ np.transpose(square, (0, 2, 1))).astype(np.complex128))
    case("Lu", input=square)
    case("TridiagonalSolve", diagonals=f64(2, 3, 4) + np.array([[0.0], [6.0], [0.0]]),
         rhs=f64(2, 4, 2), grad=["diagonals", "rhs"])
    case("TridiagonalMatMul", superdiag=f64(2, 1, 4), maindiag=f64(2, 1, 4), subdiag=f64(2, 1, 4),
         rhs=f64(2, 4, 3), grad=["superdiag", "maindiag", "subdiag", "rhs"])
    case("BandedTriangularSolve", matrix=f64(2, 2, 4, low=1.0, high=3.0), rhs=f64(2, 4, 2),
         lower=True, adjoint=False, grad=["matrix", "rhs"])
    symmetric = square + np.transpose(square, (0, 2, 1))
    case("SelfAdjointEigV2", input=symmetric, compute_v=False, grad=["input"])


def sparse():
    indices, values = i64([[0, 1], [1, 0], [1, 2]]), f32(3)
    shape = i64([3, 4])
    case("SparseDenseCwiseAdd", sp_indices=indices, sp_values=values, sp_shape=shape,
         dense=f32(3, 4))
    case("SparseFillEmptyRows", indices=indices, values=values, dense_shape=shape,
         default_value=np.float32(7), grad=["values", "default_value"])
    case("SparseSlice", indices=indices, values=values, shape=shape, start=i64([0, 0]),
         size=i64([2, 2]), grad=["values"])
    for op in "SparseSparseMaximum SparseSparseMinimum".split():
        case(op, a_indices=indices, a_values=values, a_shape=shape,
             b_indices=i64([[0, 1], [2, 2]]), b_values=f32(2), b_shape=shape)


def images():
    case("CropAndResize", image=f32(1, 5, 5, 2), boxes=f32(2, 4, low=0.1, high=0.9),
         box_ind=i32([0, 0]), crop_size=i32([3, 3]), grad=["image", "boxes"], is_slope=False)
    transform = np.array([[1, 0.1, 0.5, 0.1, 1, 0.2, 0, 0]], np.float32)
    case("ImageProjectiveTransformV2", images=f32(1, 4, 4, 2), transforms=transform,
         output_shape=i32([4, 4]), interpolation="BILINEAR", grad=["images"],
         is_slope=False)
    case("ImageProjectiveTransformV3", images=f32(1, 4, 4, 2), transforms=transform,
         output_shape=i32([4, 4]), fill_value=np.float32(0), interpolation="BILINEAR",
         fill_mode="REFLECT", grad=["images"], is_slope=False)
    case("ScaleAndTranslate", images=f32(1, 4, 4, 2), size=i32([6, 6]),
         scale=np.array([1.5, 1.5], np.float32), translation=np.array([0.1, 0.2], np.float32),
         kernel_type="triangle", grad=["images"])


def random_ops():
    case("StatelessRandomBinomial", shape=i32([6]), seed=i32([1, 2]), counts=f32(6, low=5, high=9),
         probs=f32(6, low=0.2, high=0.8), dtype=tf.float32, kind="seeded")
    case("StatelessRandomPoisson", shape=i32([6]), seed=i32([1, 2]), lam=f32(6, low=1, high=9),
         dtype=tf.int32, kind="seeded")
    case("StatelessRandomGammaV2", shape=i32([3]), seed=i32([1, 2]), alpha=f32(3, low=0.5, high=3),
         kind="seeded", grad=["alpha"], is_slope=False)
    key, counter = np.array([7], np.uint64), np.array([1, 2], np.uint64)
    case("StatelessRandomGammaV3", shape=i32([3]), key=key, counter=counter, alg=i32(1),
         alpha=f32(3, low=0.5, high=3), kind="seeded", grad=["alpha"], is_slope=False)
    case("StatelessRandomUniformFullIntV2", shape=i32([5]), key=key, counter=counter, alg=i32(1),
         dtype=tf.uint64, kind="seeded")
    case("StatelessShuffle", value=f32(6), key=key, counter=counter, alg=i32(1), kind="seeded")
    case("StatelessRandomGetAlg", kind="seeded")
    case("RandomGamma", shape=i32([3]), alpha=f32(2, low=0.5, high=3), seed=1, seed2=2,
         kind="seeded", grad=["alpha"], is_slope=False)
    case("RandomGammaGrad", alpha=f32(5, low=0.5, high=3), sample=f32(5, low=0.1, high=3))
    old("RandomPoisson", 24, dict(shape=i32([6]), rate=f32(2, low=1, high=9)),
        dict(seed=1, seed2=2, S=tf.int32, dtype=tf.float32), None)
    case("AllCandidateSampler", true_classes=i64([[1], [2]]), num_true=1, num_sampled=4,
         unique=True, seed=1, seed2=2, kind="seeded")
    case("ThreadUnsafeUnigramCandidateSampler", true_classes=i64([[1], [2]]), num_true=1,
         num_sampled=4, unique=True, range_max=6, seed=1, seed2=2, kind="seeded", fetch=[0])


def updates():
    var, slot = f32(3, 2), f32(3, 2, low=0.1, high=1.0)
    rate, rows = np.float32(0.1), i32([2, 0])
    grad, some = f32(3, 2), f32(2, 2)
    for prefix in ("", "Resource"):
        training(prefix + "ApplyAdaMax", dict(var=var, m=slot, v=slot), beta1_power=np.float32(0.9),
                 lr=rate, beta1=np.float32(0.9), beta2=np.float32(0.99), epsilon=np.float32(1e-7),
                 grad=grad)
        training(prefix + "ApplyAdagradV2", dict(var=var, accum=slot), lr=rate,
                 epsilon=np.float32(1e-3), grad=grad)
        training(prefix + "SparseApplyAdagradV2", dict(var=var, accum=slot), lr=rate,
                 epsilon=np.float32(1e-3), grad=some, indices=rows)
        training(prefix + "ApplyAddSign", dict(var=var, m=slot), lr=rate, alpha=np.float32(1.0),
                 sign_decay=np.float32(0.9), beta=np.float32(0.9), grad=grad)
        training(prefix + "ApplyPowerSign", dict(var=var, m=slot), lr=rate,
                 logbase=np.float32(1.0), sign_decay=np.float32(0.9), beta=np.float32(0.9),
                 grad=grad)
    training("ResourceApplyAdamWithAmsgrad", dict(var=var, m=slot, v=slot, vhat=slot),
             beta1_power=np.float32(0.9), beta2_power=np.float32(0.99), lr=rate,
             beta1=np.float32(0.9), beta2=np.float32(0.99), epsilon=np.float32(1e-7), grad=grad)
    training("ResourceApplyKerasMomentum", dict(var=var, accum=slot), lr=rate, grad=grad,
             momentum=np.float32(0.9))
    training("ResourceSparseApplyKerasMomentum", dict(var=var, accum=slot), lr=rate, grad=some,
             indices=rows, momentum=np.float32(0.9))
    points = i32([[2], [0]])
    for op in ("ScatterNdMax", "ScatterNdMin", "ResourceScatterNdMax", "ResourceScatterNdMin"):
        training(op, dict(ref=var), indices=points, updates=some)


def old_spellings():
    """Ops that are valid only in graphs of an earlier version."""
    square = f64(2, 3, 3) + 3 * np.eye(3)
    definite = square @ np.transpose(square, (0, 2, 1))
    double = tf.float64
    old("BatchCholesky", 12, dict(input=definite), {}, double)
    old("BatchCholeskyGrad", 12, dict(l=np.linalg.cholesky(definite), grad=f64(2, 3, 3)), {}, double)
    old("BatchMatrixDeterminant", 12, dict(input=square), {}, double)
    old("BatchMatrixInverse", 12, dict(input=square), dict(adjoint=False), double)
    old("BatchMatrixSolve", 12, dict(matrix=square, rhs=f64(2, 3, 2)), dict(adjoint=False), double)
    old("BatchMatrixSolveLs", 12,
        dict(matrix=f64(2, 4, 3), rhs=f64(2, 4, 2), l2_regularizer=np.array(0.1)), dict(fast=True),
        double)
    old("BatchMatrixTriangularSolve", 12, dict(matrix=square, rhs=f64(2, 3, 2)),
        dict(lower=True, adjoint=False), double)
    old("BatchSelfAdjointEigV2", 12, dict(input=definite), dict(compute_v=False), double)
    old("BatchSvd", 12, dict(input=square), dict(compute_uv=False, full_matrices=False), double)
    old("SelfAdjointEig", 10, dict(input=definite[0]), {}, double)
    old("BatchSelfAdjointEig", 10, dict(input=definite), {}, double)
    old("BatchNormWithGlobalNormalizationGrad", 8,
        dict(t=f32(1, 3, 3, 2), m=f32(2), v=f32(2, low=0.1), gamma=f32(2),
             backprop=f32(1, 3, 3, 2)),
        dict(variance_epsilon=1e-3, scale_after_normalization=True), tf.float32)
    old("AdjustContrast", 1, dict(images=f32(1, 3, 3, 2), contrast_factor=np.float32(1.5),
                                  min_value=np.float32(0), max_value=np.float32(1)), {}, tf.float32)
    old("QuantizeAndDequantize", 21, dict(input=f32(6)),
        dict(signed_input=True, num_bits=8, range_given=True, input_min=-2.0, input_max=2.0),
        tf.float32)
    matrix = f32(2, 3, 3)
    old("BatchMatrixBandPart", 13, dict(input=matrix, num_lower=i64(1), num_upper=i64(0)), {},
        tf.float32)
    old("BatchMatrixDiag", 13, dict(diagonal=f32(2, 3)), {}, tf.float32)
    old("BatchMatrixDiagPart", 13, dict(input=matrix), {}, tf.float32)
    old("BatchMatrixSetDiag", 13, dict(input=matrix, diagonal=f32(2, 3)), {}, tf.float32)
    old("PlaceholderV2", 22, {}, dict(dtype=tf.float32, shape=tf.TensorShape([2])), None)


def text():
    words = np.array([b"ab", b"", b"caf\xc3\xa9"], dtype=object)
    case("DecodeBase64", input=np.array([b"YWI", b"", b"_-8"], dtype=object))
    case("DecodeBase64", input=np.array([b"a*"], dtype=object))
    case("Fingerprint", data=f32(3, 2), method=np.array(b"farmhash64"))
    case("UnicodeDecodeWithOffsets", input=words, input_encoding="UTF-8")
    case("UnicodeTranscode", input=words, input_encoding="UTF-8", output_encoding="UTF-16-BE")
    case("UnicodeTranscode", input=np.array([b"a\xff"], dtype=object), input_encoding="UTF-8",
         output_encoding="UTF-8", errors="replace")
    case("DecodePaddedRaw", input_bytes=np.array([b"abcd", b"ef"], dtype=object),
         fixed_length=i32(4), out_type=tf.uint8)
    case("DecodeCompressed", bytes=np.array([b"x\x9cKLJ\x06\x00\x02M\x01'"], dtype=object),
         compression_type="ZLIB")
    case("DecodeJSONExample", json_examples=np.array([b"{}"], dtype=object))
    case("EncodeWav", audio=np.clip(f32(8, 1), -1, 1), sample_rate=i32(8000))
    case("DecodeWav", contents=np.array(wav()), desired_channels=1)


def wav():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        sound = np.linspace(-1, 1, 8, dtype=np.float32).reshape(8, 1)
        return session.run(tf.raw_ops.EncodeWav(audio=sound, sample_rate=i32(8000)))


def examples():
    example = tf.train.Example()
    example.features.feature["a"].float_list.value.extend([1.5, 2.5])
    example.features.feature["b"].int64_list.value.extend([3])
    blob = np.array([example.SerializeToString()] * 2, dtype=object)
    names = np.array([b"one", b"two"], dtype=object)
    case("ParseExample", serialized=blob, names=names, sparse_keys=[np.array(b"b")],
         dense_keys=[np.array(b"a")], dense_defaults=[np.zeros(0, np.float32)],
         sparse_types=[tf.int64], dense_shapes=[[2]])
    case("ParseSingleExample", serialized=blob[0:1].reshape(()), num_sparse=1, sparse_keys=["b"],
         dense_keys=["a"], dense_defaults=[np.zeros(2, np.float32)], sparse_types=[tf.int64],
         dense_shapes=[[2]])
    sequence = tf.train.SequenceExample()
    sequence.context.feature["c"].int64_list.value.append(7)
    for x in (1.0, 2.0):
        step = sequence.feature_lists.feature_list["d"].feature.add()
        step.float_list.value.append(x)
    blob = sequence.SerializeToString()
    case("ParseSingleSequenceExample", serialized=np.array(blob),
         feature_list_dense_missing_assumed_empty=np.zeros(0, dtype=object),
         context_sparse_keys=[], context_dense_keys=[np.array(b"c")],
         feature_list_sparse_keys=[], feature_list_dense_keys=[np.array(b"d")],
         context_dense_defaults=[np.zeros(0, np.int64)], debug_name=np.array(b""),
         context_sparse_types=[], feature_list_dense_types=[tf.float32],
         context_dense_shapes=[[1]], feature_list_sparse_types=[], feature_list_dense_shapes=[[1]])
    case("ParseSequenceExampleV2", serialized=np.array([blob, blob], dtype=object),
         debug_name=np.zeros(0, dtype=object), context_sparse_keys=np.zeros(0, dtype=object),
         context_dense_keys=np.array([b"c"], dtype=object),
         context_ragged_keys=np.zeros(0, dtype=object),
         feature_list_sparse_keys=np.zeros(0, dtype=object),
         feature_list_dense_keys=np.array([b"d"], dtype=object),
         feature_list_ragged_keys=np.zeros(0, dtype=object),
         feature_list_dense_missing_assumed_empty=np.array([False]),
         context_dense_defaults=[np.zeros(0, np.int64)], context_sparse_types=[],
         context_ragged_value_types=[], context_ragged_split_types=[], context_dense_shapes=[[1]],
         feature_list_sparse_types=[], feature_list_ragged_value_types=[],
         feature_list_ragged_split_types=[], feature_list_dense_types=[tf.float32],
         feature_list_dense_shapes=[[1]], Ncontext_sparse=0, Nfeature_list_sparse=0,
         Nfeature_list_dense=1)
    case("ParseSequenceExample", serialized=np.array([blob, blob], dtype=object),
         debug_name=np.zeros(0, dtype=object), context_dense_defaults=[np.zeros(0, np.int64)],
         feature_list_dense_missing_assumed_empty=[], context_sparse_keys=[],
         context_dense_keys=["c"], feature_list_sparse_keys=[], feature_list_dense_keys=["d"],
         Ncontext_sparse=0, Ncontext_dense=1, Nfeature_list_sparse=0, Nfeature_list_dense=1,
         context_sparse_types=[], feature_list_dense_types=[tf.float32], context_dense_shapes=[[1]],
         feature_list_sparse_types=[], feature_list_dense_shapes=[[1]])


def summaries():
    old("AudioSummary", 14, dict(tag=np.array(b"t"), tensor=np.clip(f32(1, 8), -1, 1)),
        dict(sample_rate=8000.0, max_outputs=1), None)
    case("TensorSummary", tensor=f32(2), description="d", labels=[], display_name="n")


def counts():
    starts, values = i64([0, 2, 3]), i32([1, 2, 1])
    case("RaggedBincount", splits=starts, values=values, size=i32(4), weights=f32(0))
    case("RaggedCountSparseOutput", splits=starts, values=values, weights=f32(0),
         binary_output=False)
    case("DenseCountSparseOutput", values=i32([[1, 2], [1, 1]]), weights=f32(0),
         binary_output=False)
    indices, shape = i64([[0, 0], [0, 1], [1, 0]]), i64([2, 3])
    case("SparseCountSparseOutput", indices=indices, values=values, dense_shape=shape,
         weights=f32(0), binary_output=False)
    case("SparseBincount", indices=indices, values=values, dense_shape=shape, size=i32(4),
         weights=f32(0))


def more_sparse():
    indices, shape = i64([[0, 0], [0, 1], [1, 0]]), i64([2, 3])
    values = i32([3, 1, 3])
    for op in "SparseReduceMaxSparse SparseReduceSumSparse".split():
        case(op, input_indices=indices, input_values=f32(3), input_shape=shape,
             reduction_axes=i32([1]))
    case("DenseToSparseSetOperation", set1=i32([[1, 3], [2, 3]]), set2_indices=indices,
         set2_values=values, set2_shape=shape, set_operation="intersection")
    case("SparseToSparseSetOperation", set1_indices=indices, set1_values=values, set1_shape=shape,
         set2_indices=indices, set2_values=i32([1, 2, 3]), set2_shape=shape,
         set_operation="union")
    text = np.array([b"a", b"b", b"a"], dtype=object)
    sparse_lists = dict(indices=[indices], values=[text], shapes=[shape])
    case("SparseCrossV2", dense_inputs=[], sep=np.array(b"_X_"), **sparse_lists)
    case("SparseCrossHashed", dense_inputs=[], num_buckets=i64(10), strong_hash=np.array(False),
         salt=i64([1, 2]), **sparse_lists)
    case("RaggedCross", ragged_values=[text], ragged_row_splits=[i64([0, 2, 3])],
         sparse_indices=[], sparse_values=[], sparse_shape=[], dense_inputs=[],
         input_order="R", hashed_output=False, num_buckets=0, hash_key=1,
         out_values_type=tf.string, out_row_splits_type=tf.int64)
    case("RaggedFillEmptyRows", value_rowids=i64([0, 2]), values=f32(2), nrows=i64(3),
         default_value=np.float32(9), grad=["values", "default_value"])
    case("RaggedFillEmptyRowsGrad", arguments=dict(reverse_index_map=i64([0, 2]), grad_values=f32(3)))
    with_round_trip("RaggedTensorToVariant", "RaggedTensorFromVariant")


def with_round_trip(*ops):
    """Ragged tensors converted to variants and back, since variants cannot be recorded."""
    with tf.Graph().as_default() as graph:
        encoded = tf.raw_ops.RaggedTensorToVariant(
            rt_nested_splits=[tf.constant(i64([0, 2, 3]))], rt_dense_values=tf.constant(f32(3)),
            batched_input=True)
        back = tf.raw_ops.RaggedTensorFromVariant(
            encoded_ragged=encoded, input_ragged_rank=0, output_ragged_rank=1, Tvalues=tf.float32,
            Tsplits=tf.int64)
        rows = tf.raw_ops.RaggedTensorToVariantGradient(
            encoded_ragged_grad=tf.raw_ops.RaggedTensorToVariant(
                rt_nested_splits=[tf.constant(i64([0, 2, 3]))], rt_dense_values=tf.constant(f32(3)),
                batched_input=True),
            row_splits=tf.constant(i64([0, 2, 3])), dense_values_shape=tf.constant(i32([3])),
            Tvalues=tf.float32)
        fetches = [back.output_nested_splits[0], back.output_dense_values, rows]
        for op in ops:
            record(op, "value", graph, [(fetches, [])], (0, 0))
    with tf.Graph().as_default() as graph:
        serialized = tf.raw_ops.SerializeSparse(
            sparse_indices=i64([[0, 1]]), sparse_values=f32(1), sparse_shape=i64([2, 2]),
            out_type=tf.string)
        back = tf.raw_ops.DeserializeSparse(serialized_sparse=serialized, dtype=tf.float32)
        record("DeserializeSparse", "value", graph, [(list(back), [])], (0, 0))


def quantized():
    wide = np.array([-1000, 0, 500, 1000], np.int32)
    with tf.Graph().as_default() as graph:
        values = tf.raw_ops.Bitcast(input=tf.constant(wide), type=tf.qint32)
        limits = [tf.constant(np.float32(-2)), tf.constant(np.float32(2))]
        span = tf.raw_ops.RequantizationRange(input=values, input_min=limits[0],
                                              input_max=limits[1])
        record("RequantizationRange", "value", graph, [(list(span), [])], (1e-6, 1e-6))
        narrow = tf.raw_ops.Requantize(
            input=values, input_min=limits[0], input_max=limits[1],
            requested_output_min=span[0], requested_output_max=span[1], out_type=tf.quint8)
        shown = tf.raw_ops.Bitcast(input=narrow[0], type=tf.uint8)
        record("Requantize", "value", graph, [([shown, narrow[1], narrow[2]], [])], (1e-6, 1e-6))
        shrunk = tf.raw_ops.QuantizeDownAndShrinkRange(
            input=values, input_min=limits[0], input_max=limits[1], out_type=tf.quint8)
        shown = tf.raw_ops.Bitcast(input=shrunk[0], type=tf.uint8)
        record("QuantizeDownAndShrinkRange", "value", graph,
               [([shown, shrunk[1], shrunk[2]], [])], (1e-6, 1e-6))
    given = dict(input=f32(6), input_min=np.float32(-1.5), input_max=np.float32(1.5))
    case("QuantizeAndDequantizeV3", num_bits=i32(6), grad=["input"], is_slope=False, **given)
    case("QuantizeAndDequantizeV4", range_given=True, grad=["input"], is_slope=False, **given)
    case("QuantizeAndDequantizeV4Grad", gradients=f32(6), **given)


def bitmap():
    """Two by two pixels, 24 bits each, rows bottom-up and padded to four bytes."""
    pixels = bytes(range(1, 7)) + b"\0\0" + bytes(range(7, 13)) + b"\0\0"
    header = struct.pack("<2sIHHI", b"BM", 54 + len(pixels), 0, 0, 54)
    info = struct.pack("<IiiHHIIiiII", 40, 2, 2, 1, 24, 0, len(pixels), 0, 0, 0, 0)
    return header + info + pixels


def others():
    old("MatrixExponential", 26, dict(input=f64(3, 3)), {}, tf.float64)
    case("RandomIndexShuffle", index=i32([0, 1, 5]), seed=i32([[1, 2, 3]] * 3), max_index=i32(9))
    image = (np.arange(48) * 5 % 256).astype(np.uint8).reshape(4, 4, 3)
    with tf.Graph().as_default() as graph:
        png = tf.raw_ops.DecodePng(contents=tf.raw_ops.EncodePng(image=image))
        record("EncodePng", "value", graph, [([png], [])], (0, 0))
    case("DecodeBmp", contents=np.array(bitmap(), dtype=object))
    for op, more in (("EncodeJpeg", {}), ("EncodeJpegVariableQuality", dict(quality=i32(90)))):
        with tf.Graph().as_default() as graph:
            name = "image" if op == "EncodeJpeg" else "images"
            encoded = getattr(tf.raw_ops, op)(**{name: image}, **more)
            shape = tf.shape(tf.raw_ops.DecodeJpeg(contents=encoded))
            record(op, "value", graph, [([shape], [])], (0, 0))
    with tf.Graph().as_default() as graph:
        later = tf.raw_ops.Timestamp() >= 0.0
        record("Timestamp", "value", graph, [([later], [])], (0, 0))
    with tf.Graph().as_default() as graph:
        summary = tf.raw_ops.ImageSummary(tag="t", tensor=tf.constant(image[None]))
        record("ImageSummary", "value", graph, [([tf.shape(summary)], [])], (0, 0))


def variables():
    table = f32(4, 2)
    with tf.Graph().as_default() as graph:
        handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[4, 2], shared_name="t")
        init = tf.raw_ops.AssignVariableOp(resource=handle, value=table)
        rows = tf.raw_ops.ResourceGatherNd(resource=handle, indices=i32([[1, 0], [3, 1]]),
                                           dtype=tf.float32)
        gone = tf.raw_ops.DestroyResourceOp(resource=handle)
        steps = [([], [init]), ([rows], []), ([], [gone]), ([rows], [])]
        record("ResourceGatherNd", "multi", graph, steps, (0, 0))
        record("DestroyResourceOp", "multi", graph, steps, (0, 0))
    with tf.Graph().as_default() as graph:
        counter = tf.raw_ops.VarHandleOp(dtype=tf.int32, shape=[], shared_name="c")
        init = tf.raw_ops.AssignVariableOp(resource=counter, value=i32(0))
        count = tf.raw_ops.ResourceCountUpTo(resource=counter, limit=2, T=tf.int32)
        steps = [([], [init]), ([count], []), ([count], []), ([count], [])]
        record("ResourceCountUpTo", "multi", graph, steps, (0, 0))
    with tf.Graph().as_default() as graph:
        temporary = gen_state_ops.temporary_variable(shape=[2], dtype=tf.float32, var_name="v")
        given = gen_state_ops.assign(temporary, [1.0, 2.0])
        value = gen_state_ops.destroy_temporary_variable(given, var_name="v")
        for op in ("TemporaryVariable", "DestroyTemporaryVariable"):
            record(op, "multi", graph, [([value], [])], (0, 0))
    with tf.Graph().as_default() as graph:
        old_variable = gen_state_ops.variable(shape=[2], dtype=tf.float32, name="o")
        init = gen_state_ops.assign(old_variable, [1.0, 2.0])
        same = gen_array_ops.ref_identity(old_variable)
        watched = gen_array_ops.debug_gradient_ref_identity(old_variable)
        steps = [([], [init.op]), ([tf.identity(same), tf.identity(watched)], [])]
        for op in ("Variable", "RefIdentity", "DebugGradientRefIdentity"):
            record(op, "multi", graph, steps, (0, 0))


if __name__ == "__main__":
    special_functions()
    complex_parts()
    arrays()
    networks()
    linear_algebra()
    sparse()
    images()
    random_ops()
    updates()
    old_spellings()
    text()
    examples()
    summaries()
    counts()
    more_sparse()
    quantized()
    others()
    variables()
    write()
