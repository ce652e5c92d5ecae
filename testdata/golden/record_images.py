"""Records image and CTC ops for every dtype and mode into images.jsonl.gz.

Run it as record.py says; both share the recorder.
"""

import os

import numpy as np
import recorder
import tensorflow as tf
from recorder import case, f32, i32, i64, write

recorder.OUT = os.path.join(os.path.dirname(recorder.OUT), "images.jsonl.gz")
random = recorder.random
EXACT = (0, 0)
CLOSE = (1e-4, 1e-3)
COARSE = (2e-2, 2e-2)
TYPES = [
    tf.int8, tf.uint8, tf.int16, tf.uint16, tf.int32, tf.int64, tf.half, tf.bfloat16, tf.float32,
    tf.float64,
]
MODES = [{}, {"align_corners": True}, {"half_pixel_centers": True}]
KERNELS = "lanczos1 lanczos3 lanczos5 gaussian box triangle keyscubic mitchellcubic".split()


def images(dtype, *shape):
    if dtype.is_integer:
        values = random.randint(max(dtype.min, -1000), min(dtype.max, 1000) + 1, shape)
    else:
        values = random.randn(*shape) * 3
    return np.array(values.astype(dtype.as_numpy_dtype))


def tolerance(dtype):
    return COARSE if dtype in (tf.half, tf.bfloat16) else CLOSE


def resizing():
    for op in ["ResizeBilinear", "ResizeBicubic", "ResizeNearestNeighbor", "ResizeArea"]:
        modes = MODES[:2] if op == "ResizeArea" else MODES
        tol = (lambda _: EXACT) if op == "ResizeNearestNeighbor" else tolerance
        for dtype in TYPES:
            for mode in modes:
                for size in [(3, 3), (7, 9), (1, 8)]:
                    case(op, images=images(dtype, 1, 4, 5, 2), size=i32(size), tol=tol(dtype), **mode)
        for shape, size in [((1, 1, 1, 1), (5, 5)), ((1, 20, 30, 1), (3, 3)), ((3, 4, 4, 4), (9, 9)),
                            ((1, 3, 40, 2), (8, 2)), ((1, 17, 1, 8), (1, 3)), ((0, 3, 3, 1), (2, 2))]:
            for mode in modes:
                case(op, images=images(tf.float32, *shape), size=i32(size), tol=tol(tf.float32), **mode)
    sizes = [((5, 7), (3, 3)), ((3, 3), (8, 9)), ((1, 1), (4, 4)), ((4, 6), (1, 1))]
    for mode in MODES:
        for old, new in sizes:
            grads = lambda dtype: images(dtype, 2, *new, 3)
            for dtype in [tf.float32, tf.float64, tf.half, tf.bfloat16]:
                original = images(dtype, 2, *old, 3)
                case("ResizeBilinearGrad", grads=grads(tf.float32), original_image=original,
                     tol=(5e-2, 5e-2) if dtype in (tf.half, tf.bfloat16) else CLOSE, **mode)
                if dtype in (tf.float32, tf.float64):
                    case("ResizeBicubicGrad", grads=grads(tf.float32), original_image=original,
                         tol=CLOSE, **mode)
            for dtype in [tf.uint8, tf.int8, tf.int32, tf.half, tf.float32, tf.float64, tf.bfloat16]:
                case("ResizeNearestNeighborGrad", grads=grads(dtype), size=i32(old),
                     tol=EXACT if dtype.is_integer else (5e-2, 5e-2), **mode)


def sampling():
    places = [((0.7, 1.9), (0.3, -2.0)), ((0.2, 0.3), (1.0, 1.0)), ((3.0, 2.5), (-4.0, 3.5))]
    for kernel in KERNELS:
        for antialias in [True, False]:
            for scale, translation in places:
                case("ScaleAndTranslate", images=images(tf.float32, 1, 4, 5, 2), size=i32([3, 7]),
                     scale=np.float32(scale), translation=np.float32(translation),
                     kernel_type=kernel, antialias=antialias, tol=(1e-3, 1e-3), grad=["images"])
    boxes = np.float32([[0, 0, 1, 1], [0.1, 0.2, 0.7, 0.6], [-0.2, 0.3, 1.3, 0.9],
                        [0.8, 0.9, 0.2, 0.1], [0.5, 0.5, 0.5, 0.5], [2, 2, 3, 3]])
    indices = i32([0, 1, 1, 0, 0, 1])
    for dtype in TYPES:
        if dtype == tf.bfloat16:
            continue
        for method in ["bilinear", "nearest"]:
            for size in [(3, 4), (1, 1), (1, 5)]:
                smooth = ["image"] if dtype == tf.float32 and method == "bilinear" else []
                case("CropAndResize", image=images(dtype, 2, 5, 7, 3), boxes=boxes, box_ind=indices,
                     crop_size=i32(size), method=method, extrapolation_value=1.5,
                     tol=(1e-4, 2e-3), grad=smooth)
    transforms = np.float32([[1.1, 0.1, -0.4, 0.05, 0.9, 0.3, 0.01, 0.02],
                             [0.7, -0.3, 2.4, 0.35, 1.2, -1.3, -0.01, 0.02]])
    for dtype in [tf.uint8, tf.int32, tf.int64, tf.half, tf.bfloat16, tf.float32, tf.float64]:
        for interpolation in ["NEAREST", "BILINEAR"]:
            for fill_mode in ["CONSTANT", "REFLECT", "WRAP", "NEAREST"]:
                settings = {"output_shape": i32([7, 6]), "interpolation": interpolation,
                            "fill_mode": fill_mode, "tol": tolerance(dtype)}
                case("ImageProjectiveTransformV2", images=images(dtype, 2, 6, 5, 2),
                     transforms=transforms, **settings)
                case("ImageProjectiveTransformV3", images=images(dtype, 2, 6, 5, 2),
                     transforms=transforms * np.float32(1.7), fill_value=np.float32(2.5), **settings)


def colors():
    unit = lambda *shape: f32(*shape, low=0.0, high=1.0)
    for shape in [(4, 5, 3), (2, 4, 5, 3)]:
        for factor in [0.0, 0.5, 2.5, -1.0]:
            factor = np.float32(factor)
            case("AdjustContrastv2", images=unit(*shape), contrast_factor=factor, tol=CLOSE)
            case("AdjustSaturation", images=unit(*shape), scale=factor, tol=CLOSE)
            case("AdjustHue", images=unit(*shape), delta=factor / 3, tol=CLOSE)
    for dtype in [tf.half, tf.bfloat16, tf.float32, tf.float64]:
        for op in ["RGBToHSV", "HSVToRGB"]:
            x = np.array(random.rand(4, 5, 3).astype(dtype.as_numpy_dtype))
            case(op, images=x, tol=tolerance(dtype))
    for channels in [1, 3, 4]:
        for dtype in [np.float32, np.float16]:
            drawn = np.array(random.rand(2, 9, 11, channels).astype(dtype))
            boxes = np.array(random.rand(2, 13, 4) * 1.6 - 0.3, np.float32)
            case("DrawBoundingBoxes", images=drawn, boxes=boxes, tol=EXACT)
            case("DrawBoundingBoxesV2", images=drawn, boxes=boxes, colors=unit(3, 4), tol=EXACT)


def boxes_and_scores():
    for i in range(9):
        scores = random.rand(30) if i % 3 else np.round(random.rand(30) * 4) / 4
        boxes, count = random.rand(30, 4), i32([5, 50, 0][i % 3])
        overlap, least = np.float32(0.1 + 0.2 * (i % 4)), np.float32(0.3)
        for dtype in [np.float32, np.float16]:
            given = {"boxes": boxes.astype(dtype), "scores": scores.astype(dtype),
                     "max_output_size": count}
            case("NonMaxSuppressionV2", iou_threshold=overlap, **given)
            limits = {"iou_threshold": overlap, "score_threshold": least}
            case("NonMaxSuppressionV3", **limits, **given)
            case("NonMaxSuppressionV4", pad_to_max_output_size=bool(i % 2), **limits, **given)
            for sigma in [0.0, 0.3]:
                case("NonMaxSuppressionV5", iou_threshold=dtype(overlap), score_threshold=dtype(least),
                     soft_nms_sigma=dtype(sigma), tol=(1e-2, 1e-2), **given)
        case("NonMaxSuppressionWithOverlaps", overlaps=f32(30, 30, low=0.0, high=1.0),
             scores=scores.astype(np.float32), max_output_size=count,
             overlap_threshold=np.float32(0.6), score_threshold=least)
        for sets in [1, 4]:
            case("CombinedNonMaxSuppression", boxes=f32(2, 12, sets, 4, low=-0.1, high=1.1),
                 scores=f32(2, 12, 4, low=0.0, high=1.0), max_output_size_per_class=i32(3),
                 max_total_size=i32(20 if i % 2 else 5), iou_threshold=overlap,
                 score_threshold=least, pad_per_class=bool(i % 2), clip_boxes=bool(i % 3))
    for dtype in [np.int32, np.int64, np.uint8, np.int16, np.int8]:
        for seed in [[1, 2], [7, -9], [100, 200]]:
            given = {"image_size": np.array([90, 120, 3], dtype),
                     "bounding_boxes": np.sort(random.rand(1, 4, 4), -1).astype(np.float32)}
            covered = np.float32(0.3)
            case("StatelessSampleDistortedBoundingBox", min_object_covered=covered, seed=i64(seed),
                 **given)
            case("SampleDistortedBoundingBoxV2", arguments={
                "min_object_covered": covered, "seed": seed[0], "seed2": seed[1], **given})
            case("SampleDistortedBoundingBox", arguments={
                "min_object_covered": 0.3, "seed": seed[0], "seed2": seed[1], "max_attempts": 9,
                "aspect_ratio_range": [0.3, 3.0], "area_range": [0.2, 0.9], **given})


def file(op, image, **settings):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        return np.array(session.run(getattr(tf.raw_ops, op)(image=image, **settings)), object)


def codecs():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        smooth = session.run(tf.image.resize(random.rand(6, 8, 3) * 255, [18, 22])).astype(np.uint8)
    noise = random.randint(0, 256, (11, 13, 3)).astype(np.uint8)
    for image in [smooth, noise, smooth[:1, :1], smooth[:3, :2], smooth[..., :1], smooth[:17, :16]]:
        for settings in [{}, {"quality": 30, "progressive": True}, {"chroma_downsampling": False},
                         {"optimize_size": True, "quality": 100}]:
            jpeg = file("EncodeJpeg", image, **settings)
            for ratio in [1, 2, 4, 8]:
                case("DecodeJpeg", contents=jpeg, ratio=ratio, tol=EXACT)
            case("DecodeJpeg", contents=jpeg, fancy_upscaling=False, tol=EXACT)
            case("DecodeJpeg", contents=jpeg, dct_method="INTEGER_ACCURATE", tol=EXACT)
            case("DecodeJpeg", contents=jpeg, channels=1, tol=EXACT)
            case("DecodeImage", contents=jpeg, dtype=tf.float32, tol=(1e-6, 1e-6))
            case("DecodeImage", contents=jpeg, dtype=tf.uint16, tol=EXACT)
            height, width = image.shape[:2]
            window = [height // 3, width // 4, max(1, height // 2), max(1, width // 2)]
            case("DecodeAndCropJpeg", contents=jpeg, crop_window=i32(window), tol=EXACT)
            case("ExtractJpegShape", contents=jpeg)
            case("DecodeGif", contents=jpeg, tol=EXACT)
    for channels in [1, 2, 3, 4]:
        for dtype in [np.uint8, np.uint16]:
            image = random.randint(0, np.iinfo(dtype).max, (7, 9, channels)).astype(dtype)
            png = file("EncodePng", image)
            for wanted in [0, 1, 3, 4]:
                for out in [tf.uint8, tf.uint16]:
                    case("DecodePng", contents=png, channels=wanted, dtype=out, tol=EXACT)
                case("DecodeImage", contents=png, channels=wanted, dtype=tf.float32, tol=(1e-6, 1e-6))


def sequences():
    for i in range(8):
        times, batch, classes = [(6, 3, 5), (12, 2, 4), (4, 4, 3), (20, 1, 30)][i % 4]
        inputs = random.randn(times, batch, classes).astype([np.float32, np.float64][i // 4]) * 2
        indices = [[b, j] for b in range(batch) for j in range(1 + (b + i) % 3)]
        labels = {"labels_indices": i64(indices),
                  "labels_values": i32(random.randint(0, classes - 1, len(indices)))}
        given = {"inputs": inputs, "sequence_length": i32([times - b % 2 for b in range(batch)])}
        for settings in [{}, {"ctc_merge_repeated": False}, {"preprocess_collapse_repeated": True},
                         {"ignore_longer_outputs_than_inputs": True}]:
            case("CTCLoss", tol=CLOSE, **labels, **given, **settings)
        for settings in [{}, {"merge_repeated": True}, {"blank_index": 0}]:
            case("CTCGreedyDecoder", **given, **settings)
        for width, paths in [(1, 1), (4, 2), (10, 3)]:
            for merges in [True, False]:
                case("CTCBeamSearchDecoder", beam_width=width, top_paths=paths,
                     merge_repeated=merges, **given)


resizing()
sampling()
colors()
boxes_and_scores()
codecs()
sequences()
write()
