"""Records further cases from TensorFlow 2.21 into ours.jsonl.gz, in the format of the others.

    python3 -m venv venv && venv/bin/pip install tensorflow-cpu==2.21.0
    venv/bin/python testdata/golden/record.py

They cover ops and gradients that the other files do not: an op that `thalweg ops` lists as had has at
least one case, and so has every gradient function. One call of `case` is one case; `grad` says with
respect to which inputs a gradient is recorded as well.
"""

import numpy as np
import tensorflow as tf
from recorder import c64, case, f32, f64, i32, i64, old, training, write


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
    write()
