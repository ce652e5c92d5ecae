"""Records ops that save and restore checkpoints into checkpoints.jsonl.gz.

Run it as record.py says; both share the recorder. Files are in the folder golden_files, which the program that
runs the cases provides: each case writes the files that it reads. What a case saves is restored in every way,
so the recorded numbers are those read from the files.
"""

import os
import shutil
import tempfile

import numpy as np
import recorder
import tensorflow as tf
from recorder import f32, record, write

recorder.OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "checkpoints.jsonl.gz")
raw = tf.raw_ops
FOLDER = "golden_files"
EXACT = (0, 0)
# Quantized elements are fetched as integers of the same bytes.
PLAIN = {1: tf.int8, 2: tf.int16, 4: tf.int32}


def hidden(value):
    """A value whose shape is unknown until the step runs, so that the kernel and not the shape function reports
    an error."""
    return tf.compat.v1.placeholder_with_default(value, None)


def path(name):
    return f"{FOLDER}/{name}"


def play(op, steps):
    """`steps` builds the graph and returns its steps: each entry fetches tensors or runs an op."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    os.makedirs(FOLDER)
    with tf.Graph().as_default() as graph:
        listed = []
        for step in steps():
            if isinstance(step, tf.Operation):
                listed.append(([], [step]))
            else:
                listed.append((tf.nest.flatten(list(step) if isinstance(step, tuple) else step), []))
        record(op, "multi", graph, listed, EXACT)


def save(prefix, tensors, slices=None):
    """Saves named tensors; `slices` are their slice specifications."""
    slices = slices or [""] * len(tensors)
    return raw.SaveV2(prefix=path(prefix), tensor_names=list(tensors), shape_and_slices=slices,
                      tensors=[tf.convert_to_tensor(t) for t in tensors.values()])


def restore(prefix, names, dtypes, slices=None):
    slices = slices or [""] * len(names)
    return raw.RestoreV2(prefix=path(prefix), tensor_names=names, shape_and_slices=hidden(slices), dtypes=dtypes)


def merge(prefixes, destination, **attrs):
    return raw.MergeV2Checkpoints(checkpoint_prefixes=[path(p) for p in prefixes],
                                  destination_prefix=path(destination), **attrs)


def match(pattern="*"):
    return raw.MatchingFiles(pattern=path(pattern))


def old_save(name, tensors, slices=None):
    values = [tf.convert_to_tensor(t) for t in tensors.values()]
    if slices is None:
        return raw.Save(filename=path(name), tensor_names=list(tensors), data=values)
    return raw.SaveSlices(filename=path(name), tensor_names=list(tensors), shapes_and_slices=slices,
                          data=values)


def old_restore(pattern, name, dtype, **attrs):
    return raw.Restore(file_pattern=path(pattern), tensor_name=name, dt=dtype, **attrs)


def old_slice(pattern, name, dtype, slice_, **attrs):
    return raw.RestoreSlice(file_pattern=path(pattern), tensor_name=name, shape_and_slice=hidden(slice_), dt=dtype,
                            **attrs)


def written(name, saver):
    """The bytes of files that TensorFlow writes to its own folder, as steps that write them again."""
    with tempfile.TemporaryDirectory() as folder:
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            session.run(saver(os.path.join(folder, name)))
        made = []
        for found, _, files in os.walk(folder):
            for file in sorted(files):
                full = os.path.join(found, file)
                with open(full, "rb") as opened:
                    content = opened.read()
                made.append(raw.WriteFile(filename=path(os.path.relpath(full, folder)), contents=content))
        return made


def every_dtype():
    """A small tensor of each dtype that checkpoints support."""
    values = [1, 0, 1, 1, 0, 1]
    made = {}
    for dtype in [tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.int8, tf.int16, tf.int32, tf.int64,
                  tf.uint8, tf.uint16, tf.uint32, tf.uint64, tf.complex64, tf.complex128, tf.bool]:
        made[dtype.name] = tf.cast(tf.constant(values, tf.int32, [2, 3]), dtype)
    for dtype in [tf.qint8, tf.quint8, tf.qint16, tf.quint16, tf.qint32]:
        made[dtype.name] = tf.bitcast(tf.constant([1, 2, 3], PLAIN[dtype.size]), dtype)
    made["string"] = tf.constant([b"", b"one", b"\x00\xff", b"x" * 300], shape=[2, 2])
    made["empty"] = tf.zeros([0, 3])
    made["scalar"] = tf.constant(5.0)
    made["no strings"] = tf.zeros([0], tf.string)
    made["one string"] = tf.constant(b"alone")
    return made


def saving():
    def steps():
        tensors = every_dtype()
        dtypes = [t.dtype for t in tensors.values()]
        names = list(tensors)
        shown = [n for n in names if not n.startswith("q")]
        again = lambda: [t if not n.startswith("q") else tf.bitcast(t, PLAIN[t.dtype.size])
                         for n, t in zip(names, restore("all", names, dtypes))]
        return [save("all", tensors), again(), match(),
                restore("all", shown[::-1], [tensors[n].dtype for n in shown[::-1]]), 
                restore("all", ["scalar", "scalar"], [tf.float32] * 2), save("all", {"scalar": tf.constant(6.0)}),
                restore("all", ["scalar"], [tf.float32]), restore("all", ["empty"], [tf.float32]), match("*.index"),
                save("sub/folder/a", {"x": f32(2)}), restore("sub/folder/a", ["x"], [tf.float32]),
                match("sub/folder/*")]

    play("SaveV2", steps)

    def refused():
        x, y = tf.constant([1.0, 2.0]), tf.constant([3, 4])
        put = lambda **changed: raw.SaveV2(**{**dict(
            prefix=path("a"), tensor_names=["x", "y"], shape_and_slices=["", ""], tensors=[x, y]), **changed})
        bad = ["3", "2 ", " 0,2", "2 0,3", "2 1,2", "2 0,1", "3 0,2", "2 -", "4 2 0,2", "2 0,-1", "2 a,b",
               "x 0,2", "2 0,2:0,1", "2 0,2 ", "2  0,2", "4294967296 0,2", "4 2,2", "4 3,2", "4 1,2", "2 0:2", "2 :",
               "2 0,2,1", "-", "+2 0,2", "2 +0,2", "2 0x0,2", "2\t0,2"]
        return [
            put(prefix=hidden([path("a"), path("b")])), put(prefix=hidden([path("v")])), put(tensor_names=hidden("x")),
            put(tensor_names=hidden(["x"])), put(tensor_names=hidden(["x", "y", "z"])),
            put(shape_and_slices=hidden("")), 
            put(shape_and_slices=hidden([""])), put(tensor_names=["x", "x"]),
            put(tensor_names=hidden([["x", "y"]])), put(prefix="/proc/nothing/a"), put(prefix=hidden([[path("w")]])),
            put(prefix="nosuch://a/b"), match("*.index"),
            *[put(shape_and_slices=[b, ""]) for b in bad], match("*.index"),
        ]

    play("SaveV2", refused)

    def strings():
        long = [b"a" * n for n in (0, 1, 127, 128, 300, 70000)]
        return [save("s", {"long": tf.constant(long), "x": tf.constant([1.0])}),
                restore("s", ["x", "long"], [tf.float32, tf.string]),
                save("t", {"p": tf.constant([b"one", b"two"]), "q": tf.constant([b"three"])}, ["3 0,2", "3 2,1"]),
                restore("t", ["p"], [tf.string]), restore("t", ["p"], [tf.string], ["3 0,2"])]

    play("SaveV2", strings)


def restoring():
    def steps():
        w = tf.reshape(tf.range(24, dtype=tf.float32), [4, 6])
        get = lambda slices, name="w", dtype=tf.float32: restore("a", [name], [dtype], [slices])
        ask = lambda **changed: raw.RestoreV2(**{**dict(
            prefix=path("a"), tensor_names=["w"], shape_and_slices=[""], dtypes=[tf.float32]), **changed})
        good = ["4 6 -:-", "4 6 0,2:-", "4 6 -:2,3", "4 6 1,2:3,2", "4 6 3,1:5,1", "4 6 0,4:0,6", "4 6 -:0,6",
                "4 6 2,0:-", "4 6 -:6,0", "4 6 0,4:-"]
        bad = ["4 6", "4 6 ", "4 6 0,5:-", "4 6 4,1:-", "4 6 -", "4 6 -:-:-", "6 4 -:-", "4 5 -:-", "24 -",
               "4 6 -1,2:-", 
               "4 6 0,2:6,1", "4 6 0,2 :-", "4  6 -:-", " 4 6 -:-", "4 6 -:- ", "a b -:-", "4 6 ,:-", "4 6 0:0", "-"]
        return [
            save("a", {"w": w, "n": tf.constant([1, 2]), "e": tf.zeros([0, 2]), "s": tf.constant(3.0)}),
            *[get(s) for s in good], *[get(s) for s in bad], get("0 2 -:-", "e"), get("0 2 -:0,1", "e"), get("-", "s"),
            get(" -", "s"), get("", "missing"), get("4 6 -:-", "missing"), get("", "n"), get("", "w", tf.int32),
            get("", "w", tf.string), get("", "w", tf.float64), restore("a", ["w", "missing"], [tf.float32] * 2),
            restore("a", ["missing", "gone"], [tf.float32] * 2), restore("nothing", ["w"], [tf.float32]),
            restore("a.index", ["w"], [tf.float32]), restore("a.data-00000-of-00001", ["w"], [tf.float32]),
            restore("a.*", ["w"], [tf.float32]), restore("no/folder", ["w"], [tf.float32]),
            ask(prefix=hidden([path("a"), path("a")])), ask(prefix=hidden([path("a")])),
            ask(prefix=hidden([[path("a")]])), 
            ask(tensor_names=hidden("w")), ask(tensor_names=hidden([["w"]])), ask(shape_and_slices=hidden("")),
            ask(tensor_names=hidden(["w", "n"])), ask(shape_and_slices=hidden(["", ""])),
            ask(tensor_names=hidden(["n", "w"]), shape_and_slices=hidden(["", ""])), 
            ask(prefix="nosuch://a/b"),
            restore("a", ["w", "n", "s"], [tf.float32, tf.float32, tf.float32]),
            restore("a", ["w", "w"], [tf.float32] * 2, ["4 6 0,1:-", "4 6 1,1:-"]),
        ]

    play("RestoreV2", steps)

    def shapes():
        return [restore("a", ["w"], [tf.float32], ["4 6 -:-"]), restore("a", ["w"], [tf.float32])]

    play("RestoreV2", shapes)

    def damaged():
        whole = lambda: written("a", lambda prefix: raw.SaveV2(
            prefix=prefix, tensor_names=["w", "s"], shape_and_slices=["", ""],
            tensors=[tf.constant([1.0, 2.0]), tf.constant([b"one", b"two"])]))
        get = lambda: restore("a", ["w"], [tf.float32])
        strings = lambda: restore("a", ["s"], [tf.string])
        def change(suffix, content):
            return raw.WriteFile(filename=path("a" + suffix), contents=content)
        made = whole()
        with tf.compat.v1.Session() as session:
            contents = {session.run(op.inputs[0]).decode(): session.run(op.inputs[1]) for op in made}
        index = next(v for k, v in contents.items() if k.endswith(".index"))
        data = next(v for k, v in contents.items() if ".data" in k)
        flip = lambda b, i: b[:i] + bytes([b[i] ^ 1]) + b[i + 1:]
        name = ".data-00000-of-00001"
        steps = [*made, get(), strings()]
        for broken in [flip(data, 0), flip(data, len(data) - 1), data[:4], b""]:
            steps += [change(name, broken), get(), strings()]
        steps += [change(name, data), get()]
        for broken in [flip(index, 3), flip(index, len(index) - 1), index[:-1], index[:20], b"", b"junk" * 30]:
            steps += [change(".index", broken), get()]
        return steps

    play("RestoreV2", damaged)


def merging():
    def steps():
        a, b = tf.constant([1.0, 2.0]), tf.constant([3, 4])
        both = lambda prefix: restore(prefix, ["a", "b"], [tf.float32, tf.int32])
        return [
            save("t/0", {"a": a}), save("t/1", {"b": b}), merge(["t/0", "t/1"], "m"), both("m"), match(), match("t"),
            match("t/*"), 
            save("t/0", {"a": a}), save("t/1", {"b": b}), merge(["t/0", "t/1"], "n", delete_old_dirs=False), both("n"),
            match("t/*"), match("n*"),
            save("u/0", {"a": a}), save("v/1", {"b": b}), merge(["u/0", "v/1"], "deep/folder/m"), both("deep/folder/m"),
            match("u"), match("v"), match("deep/folder/*"),
            save("w/0", {"a": a}), save("w/other", {"b": b}), merge(["w/0"], "one"),
            restore("one", ["a"], [tf.float32]), match("w/*"), 
            save("s", {"a": a}), merge(["s"], "s2"), match("s*"), restore("s2", ["a"], [tf.float32]),
        ]

    play("MergeV2Checkpoints", steps)

    def refused():
        a, b = tf.constant([1.0, 2.0]), tf.constant([3, 4])
        return [
            merge(["missing"], "m"), merge(["missing"], "m", allow_missing_files=True), match("*.index"),
            save("p", {"a": a}), merge(["p", "missing"], "m", delete_old_dirs=False), match("*.index"),
            save("p", {"a": a}), merge(["p", "missing"], "m", delete_old_dirs=False, allow_missing_files=True),
            restore("m", ["a"], [tf.float32]), match("*.index"), 
            save("p", {"a": a}), save("q", {"a": b}), merge(["p", "q"], "m2", delete_old_dirs=False), match("*.index"),
            save("p", {"a": a}), save("q", {"a": a}), merge(["p", "q"], "m3", delete_old_dirs=False),
            match("*.index"),
            raw.MergeV2Checkpoints(checkpoint_prefixes=hidden(path("p")), destination_prefix=path("d")),
            match("*.index"),
            raw.MergeV2Checkpoints(checkpoint_prefixes=[path("p")],
                                   destination_prefix=hidden([path("d"), path("e")])),
            raw.MergeV2Checkpoints(checkpoint_prefixes=hidden([[path("p")]]), destination_prefix=path("d2")),
            raw.MergeV2Checkpoints(checkpoint_prefixes=hidden(tf.zeros([0], tf.string)), destination_prefix=path("d3")),
            match("*.index"), 
            raw.MergeV2Checkpoints(checkpoint_prefixes=[path("q")], destination_prefix=hidden([path("d4")])),
            match("*.index"),
        ]

    play("MergeV2Checkpoints", refused)

    def slices():
        top, bottom = tf.constant(f32(2, 3)), tf.constant(f32(3, 3))
        get = lambda p, s: restore(p, ["w"], [tf.float32], [s])
        parts = {"x": tf.constant(f32(3, 2)), "y": tf.constant(f32(3, 3))}
        return [
            save("t/0", {"w": top, "k": tf.constant(1)}, ["5 3 0,2:-", ""]), get("t/0", ""), get("t/0", "5 3 0,2:-"),
            get("t/0", "5 3 1,1:1,1"), get("t/0", "5 3 1,2:-"), get("t/0", "5 3 -:-"), get("t/0", "2 3 -:-"),
            save("t/1", {"w": bottom}, ["5 3 2,3:-"]), merge(["t/0", "t/1"], "m"), get("m", ""), get("m", "5 3 1,3:-"),
            get("m", "5 3 -:1,1"), get("m", "5 3 0,2:0,3"), get("m", "5 3 4,1:2,1"), get("m", "5 3 0,0:-"),
            restore("m", ["w", "k"], [tf.float32, tf.int32]), restore("m", ["w"], [tf.float64]),
            # Two slices in one file, split along the other axis.
            save("c", {"x": tf.constant(f32(3, 2)), "y": tf.constant(f32(3, 3))}, ["3 5 -:0,2", "3 5 -:2,3"]),
            restore("c", ["x"], [tf.float32]), restore("c", ["x"], [tf.float32], ["3 5 -:0,2"]),
            raw.SaveV2(prefix=path("d"), tensor_names=["x", "x"], shape_and_slices=["3 5 -:0,2", "3 5 -:2,3"],
                       tensors=list(parts.values())),
            restore("d", ["x"], [tf.float32]), restore("d", ["x"], [tf.float32], ["3 5 1,1:1,3"]),
            # The same slice twice, and the whole tensor as a slice.
            raw.SaveV2(prefix=path("e"), tensor_names=["x", "x"], shape_and_slices=["3 5 -:0,2", "3 5 -:0,2"],
                       tensors=[parts["x"], parts["x"]]), restore("e", ["x"], [tf.float32]),
            raw.SaveV2(prefix=path("j"), tensor_names=["x"], shape_and_slices=["3 2 -:-"],
                       tensors=[parts["x"]]), restore("j", ["x"], [tf.float32]), restore("j", ["x"], [tf.float32],
                       ["3 2 -:1,1"]),
        ]

    play("MergeV2Checkpoints", slices)


def old_format():
    def steps():
        all_ = every_dtype()
        tensors = {n: t for n, t in all_.items()}
        one = lambda n: old_restore("one-" + n.replace(" ", "_"), n, tensors[n].dtype)
        shown = [n for n in tensors if not n.startswith("q")]
        made = []
        for n in tensors:
            made.append(old_save("one-" + n.replace(" ", "_"), {n: tensors[n]}))
            if n in shown:
                made.append(one(n))
        return made + [match()]

    play("Save", steps)

    def several():
        w, n = tf.reshape(tf.range(24, dtype=tf.float32), [4, 6]), tf.constant([1, 2])
        x, y = tf.constant([1.0, 2.0]), tf.constant([3, 4])
        put = lambda **changed: raw.Save(**{**dict(filename=path("r"), tensor_names=["x", "y"],
            data=[x, y]), **changed})
        return [
            old_save("a", {"w": w, "n": n}), match(), old_restore("a", "w", tf.float32),
            old_restore("a", "n", tf.int32), 
            old_restore("a", "missing", tf.float32), old_restore("a", "w", tf.int32), old_restore("b", "w", tf.float32),
            old_restore("?", "w", tf.float32), old_restore("*", "n", tf.int32),
            old_restore("a*", "n", tf.int32, preferred_shard=0), 
            old_restore("a", "n", tf.int32, preferred_shard=3), restore("a", ["w", "n"], [tf.float32, tf.int32]),
            restore("a", ["w"], [tf.float32], ["4 6 1,2:-"]), restore("a", ["missing"], [tf.float32]),
            restore("a", ["w"], [tf.int32]), 
            old_slice("a", "w", tf.float32, "4 6 1,2:2,2"), old_slice("a", "w", tf.float32, ""),
            old_slice("a", "w", tf.float32, "4 5 -:-"), 
            old_slice("a", "w", tf.float32, "4 6 0,5:-"), old_slice("a", "w", tf.float32, "junk"),
            old_slice("a", "w", tf.int32, "4 6 -:-"), 
            save("v2", {"w": w}), old_restore("v2", "w", tf.float32), old_restore("v2.index", "w", tf.float32),
            old_restore("v2*", "w", tf.float32), 
            put(tensor_names=hidden(["x"])), put(tensor_names=hidden("x")),
            put(filename=hidden([path("r"), path("s")])), put(filename=hidden([path("r")])), 
            put(tensor_names=["x", "x"]), put(filename=path("no/folder/a")),
            put(filename="nosuch://a"), match(), match("no/folder/*"),
            raw.Restore(file_pattern=hidden([path("a"), path("a")]), tensor_name="w", dt=tf.float32),
            raw.Restore(file_pattern=hidden([path("a")]), tensor_name="w", dt=tf.float32),
            raw.Restore(file_pattern=path("a"), tensor_name=hidden(["w", "n"]), dt=tf.float32),
            raw.Restore(file_pattern=path("a"), tensor_name=hidden(["w"]), dt=tf.float32),
            raw.RestoreSlice(file_pattern=path("a"), tensor_name="w", shape_and_slice=hidden(["", ""]), dt=tf.float32),
            raw.RestoreSlice(file_pattern=path("a"), tensor_name="w", shape_and_slice=hidden(["4 6 -:-"]),
                             dt=tf.float32),
            
            old_restore("", "w", tf.float32), raw.Restore(file_pattern="nosuch://a", tensor_name="w", dt=tf.float32),
            put(), put(data=[y, x]), old_restore("r", "x", tf.int32),
        ]

    play("Restore", several)

    def slices():
        top, bottom = tf.constant(f32(2, 3)), tf.constant(f32(3, 3))
        get = lambda p, s="": old_slice(p, "w", tf.float32, s)
        twice = lambda name, a, b, x=top, y=bottom: raw.SaveSlices(
            filename=path(name), tensor_names=["w", "w"], shapes_and_slices=[a, b], data=[x, y])
        return [
            old_save("p-0", {"w": top}, ["5 3 0,2:-"]), old_save("p-1", {"w": bottom}, ["5 3 2,3:-"]), get("p-?"),
            get("p-*", "5 3 1,3:-"), 
            get("p-0"), get("p-0", "5 3 1,1:-"), get("p-0", "5 3 1,2:-"),
            old_slice("p-?", "w", tf.float32, "5 3 0,1:-", preferred_shard=0), 
            old_slice("p-?", "w", tf.float32, "5 3 0,1:-", preferred_shard=1), restore("p-?", ["w"], [tf.float32]),
            restore("p-?", ["w"], [tf.float32], ["5 3 -:0,1"]), old_restore("p-?", "w", tf.float32),
            twice("q", "5 3 0,2:-", "5 3 2,3:-"), get("q"), get("q", "5 3 -:1,2"), twice("r", "5 3 0,2:-", "5 3 1,3:-"),
            twice("r", "5 3 0,2:-", "6 3 2,3:-"),
            twice("s", "5 3 0,2:-", "5 3 2,3:-", top, tf.constant([[1] * 3] * 3)), get("s"), 
            twice("t", "", "5 3 2,3:-"), twice("u", "", ""), twice("v", "2 3 0,2:-", "5 3 2,3:-"),
            raw.SaveSlices(filename=path("x"), tensor_names=["w"], shapes_and_slices=["5 3"], data=[top]),
            raw.SaveSlices(filename=path("x"), tensor_names=["w"], shapes_and_slices=["5 3 0,3:-"], data=[top]),
            raw.SaveSlices(filename=path("x"), tensor_names=["w"], shapes_and_slices=hidden(["", ""]), data=[top]),
            raw.SaveSlices(filename=path("x"), tensor_names=["w"], shapes_and_slices=hidden(""), data=[top]),
            match(),
        ]

    play("SaveSlices", slices)


def names():
    play("ShardedFilename", lambda: [
        raw.ShardedFilename(basename="a", shard=3, num_shards=10), raw.ShardedFilespec(basename="a", num_shards=10),
        raw.ShardedFilename(basename="", shard=-1, num_shards=0),
        raw.ShardedFilespec(basename="/b/", num_shards=123456), 
        raw.ShardedFilename(basename=hidden(["a", "b"]), shard=0, num_shards=1),
        raw.ShardedFilename(basename="a", shard=hidden([1, 2]), num_shards=1),
        raw.ShardedFilespec(basename="a", num_shards=hidden([1, 2])),
    ])


saving()
restoring()
merging()
old_format()
names()
shutil.rmtree(FOLDER, ignore_errors=True)
if os.environ.get("SHOW"):
    for entry in recorder.cases:
        print(entry["id"], [s.get("error", {}).get("code", 0) for s in entry["steps"]])
write()
