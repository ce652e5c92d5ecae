"""Records files, readers and summary writers into files.jsonl.gz.

Run it as record.py says; both share the recorder. Files are in the folder golden_files, which the program that
runs the cases provides: each case writes the files that it reads. Steps run sequentially, so none may wait.
"""

import gzip
import os
import shutil
import struct
import tempfile
import zlib

import recorder
import tensorflow as tf
from recorder import f32, record, write

recorder.OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "files.jsonl.gz")
raw = tf.raw_ops
FOLDER = "golden_files"
EXACT = (0, 0)


def hidden(value):
    """A value whose shape is unknown until the step runs, so that the kernel and not the shape function reports
    an error."""
    return tf.compat.v1.placeholder_with_default(value, None)


class Queue:
    def __init__(self, op, dtypes, shapes, **attrs):
        self.v2 = "V2" if op.endswith("V2") else ""
        self.dtypes = dtypes
        self.handle = getattr(raw, op)(component_types=dtypes, shapes=shapes, **attrs)

    def on(self, op, **args):
        return getattr(raw, op + self.v2)(handle=self.handle, **args)

    def put(self, *components):
        return self.on("QueueEnqueue", components=[tf.constant(c, d) for c, d in zip(components, self.dtypes)])

    def put_many(self, *components):
        return self.on("QueueEnqueueMany", components=[tf.constant(c, d) for c, d in zip(components, self.dtypes)])

    def close(self):
        return self.on("QueueClose")


def play(op, steps, kind="multi", is_old=False):
    """`steps` builds the graph and returns its steps: each entry fetches tensors or runs an op."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    os.makedirs(FOLDER)
    if os.environ.get("SHOW"):
        print(op, flush=True)
    with tf.Graph().as_default() as graph:
        if is_old:
            # Readers with reference handles are invalid in newer graphs.
            tf.graph_util.import_graph_def(tf.compat.v1.GraphDef(versions={"producer": 20}), name="")
        listed = []
        for step in steps():
            if isinstance(step, tf.Operation):
                listed.append(([], [step]))
            else:
                listed.append((tf.nest.flatten(list(step) if isinstance(step, tuple) else step), []))
        record(op, kind, graph, listed, EXACT)


def path(name):
    return f"{FOLDER}/{name}"


def put(name, content):
    return raw.WriteFile(filename=path(name), contents=content)


def get(name):
    return raw.ReadFile(filename=name)


def match(*patterns):
    return raw.MatchingFiles(pattern=[path(p) for p in patterns])


def whole_files():
    play("WriteFile", lambda: [
        put("a.txt", b"one"), get(path("a.txt")), put("a.txt", b""), get(path("a.txt")),
        put("x/y/b.bin", b"\x01\x00\xff\x02"), get(path("x/y/b.bin")), get(path("x/./y//b.bin")),
        get(path("x/y/../y/b.bin")), put("x", b"a folder"), put("a.txt/b", b"under a file"),
        get(path("missing")), get(path("x")), get(path("a.txt/b")), get(""), put("", b""),
        raw.WriteFile(filename="", contents=b"x"),
        raw.WriteFile(filename=hidden(["p", "q"]), contents=b"x"),
        raw.WriteFile(filename=path("c"), contents=hidden(["p", "q"])),
        raw.ReadFile(filename=hidden([path("a.txt")])), raw.ReadFile(filename=hidden(["a", "b"])),
        get("nosuch://x/y"), raw.WriteFile(filename="nosuch://x/y", contents=b""),
        get("file://golden_files/a.txt"),
    ])
    play("ReadFile", lambda: [get("golden_files"), get("golden_files/"), get("/"), get("/no/such")])


def patterns():
    names = ["a.txt", "b.txt", "ab.txt", "c.bin", "d/a.txt", "d/e/a.txt", "f/a.txt", ".hidden",
             "[x].txt", "a*b", "z-9", "back\\slash"]
    asked = [
        ["*"], ["*.txt"], ["?.txt"], ["a.txt"], ["missing"], ["*/a.txt"], ["d/*"], ["*/*/a.txt"],
        ["**/a.txt"], ["d/**"], ["[ab].txt"], ["[a-c].*"], ["[^a].txt"], ["[!a].txt"], ["\\[x\\].txt"],
        ["[[]x].txt"], ["a\\*b"], ["a.txt", "*.txt", "b.txt"], [""], ["d"], ["d/"], ["*/"], [".*"],
        ["a[.]txt"], ["[]"], ["["], ["[a"], ["a["], ["{a,b}.txt"], ["d//a.txt"], ["./a.txt"],
        ["d/../a.txt"], ["nofolder/*"], ["a.txt/*"], ["?"], ["z[-]9"], ["[z-]*"], ["*[0-9]"], ["A.TXT"],
        ["back\\\\slash"], ["back\\slash"], ["*\\"], ["[]a].txt"], ["[^]a].txt"], ["[b-a].txt"],
    ]

    def steps():
        made = [put(name, b"x") for name in names]
        return made + [match(*patterns) for patterns in asked] + [
            raw.MatchingFiles(pattern="golden_files/*.bin"), raw.MatchingFiles(pattern="golden_*"),
            raw.MatchingFiles(pattern=hidden([["golden_files/*.bin"]])),
            raw.MatchingFiles(pattern=hidden(tf.zeros([0], tf.string))),
            raw.MatchingFiles(pattern="nosuch://x/*"), raw.MatchingFiles(pattern="/nosuchfolder/*"),
            raw.MatchingFiles(pattern="./golden_files/*.bin"), raw.MatchingFiles(pattern=""),
            raw.MatchingFiles(pattern="golden_files"), raw.MatchingFiles(pattern="golden_files/"),
        ]

    play("MatchingFiles", steps)


class Reader:
    def __init__(self, op, v2, **attrs):
        self.v2 = v2
        self.handle = getattr(raw, op + v2)(**attrs)

    def on(self, op, **args):
        return getattr(raw, "Reader" + op + self.v2)(reader_handle=self.handle, **args)

    def work(self, *names):
        """Later reads take only these files: the queue is closed."""
        self.queue = Queue("FIFOQueue" + self.v2, [tf.string], [[]], capacity=20)
        return [self.queue.put_many([path(n) for n in names]), self.queue.close()]

    def read(self):
        return self.on("Read", queue_handle=self.queue.handle)

    def up_to(self, n):
        return self.on("ReadUpTo", queue_handle=self.queue.handle, num_records=n)

    def counts(self):
        return [self.on("NumRecordsProduced"), self.on("NumWorkUnitsCompleted")]

    def state(self):
        return self.on("SerializeState")

    def restore(self, state):
        return self.on("RestoreState", state=state)

    def reset(self):
        return self.on("Reset")


def reading(op, v2, files, more, **attrs):
    """Reads files to their end with every read op."""
    def steps():
        r = Reader(op, v2, **attrs)
        made = [put(name, content) for name, content in files.items()]
        names = list(files)
        return made + [
            r.counts(), r.state(), *r.work(*names), r.read(), r.counts(), r.state(), r.read(), r.read(),
            r.read(), r.counts(), r.up_to(2), r.counts(), r.up_to(3), r.reset(), r.counts(),
            *r.work(*names), r.up_to(100), r.up_to(100), r.counts(), *r.work(names[-1], "missing", names[0]),
            r.read(), r.up_to(100), r.read(), r.read(), r.up_to(100), r.counts(), r.reset(), *more(r),
            *r.work(*names), r.up_to(4), r.up_to(100), r.up_to(100), r.read(), r.up_to(100), r.counts(),
            r.state(), r.reset(), r.restore(b""), r.restore(b"junk"), r.restore(hidden([b"x", b"y"])),
            r.counts(), r.up_to(hidden(tf.constant(0, tf.int64))), r.read(),
        ]

    play(op + v2, steps, is_old=not v2)


def nothing(_):
    return []


def restored(r):
    """The state of an earlier moment is restored later."""
    kept = tf.compat.v1.placeholder_with_default(b"\x08\x03\x10\x02\x18\x05\x22\x05thing", [])
    return [r.restore(kept), r.counts(), r.state(), r.restore(b"\x08\x02\x10\x02\x18\x02\x22\x00"), r.counts(),
            r.state(), r.reset()]


def text_lines(v2):
    files = {"a.txt": b"x\ny\r\nz", "b.txt": b"", "c.txt": b"one\n\ntwo\r\n\n", "d.txt": b"\rq\r\rw\n\x00e\n"}
    reading("TextLineReader", v2, files, nothing)
    reading("TextLineReader", v2, files, restored, skip_header_lines=1)
    reading("TextLineReader", v2, files, nothing, skip_header_lines=-1)
    reading("TextLineReader", v2, files, nothing, skip_header_lines=100)


def fixed_lengths():
    """The kernel requires an attr that V1 of the op does not have, so V1 never runs."""
    v2 = "V2"
    files = {"a": b"Habcdef", "b": b"Hx", "c": b"", "d": b"Habcdefghijk"}
    for attrs in [dict(record_bytes=2), dict(record_bytes=3, header_bytes=1),
                  dict(record_bytes=2, header_bytes=1, footer_bytes=2), dict(record_bytes=2, hop_bytes=1),
                  dict(record_bytes=2, hop_bytes=3, header_bytes=1), dict(record_bytes=100),
                  dict(record_bytes=1, header_bytes=50), dict(record_bytes=0), dict(record_bytes=-1),
                  dict(record_bytes=1, header_bytes=-1), dict(record_bytes=1, footer_bytes=-1),
                  dict(record_bytes=1, hop_bytes=-1), dict(record_bytes=4, header_bytes=1, footer_bytes=1),
                  dict(record_bytes=2, header_bytes=1, footer_bytes=2, hop_bytes=1)]:
        reading("FixedLengthRecordReader", v2, files, nothing, **attrs)
        packed = {n: zlib.compress(c) for n, c in files.items()}
        reading("FixedLengthRecordReader", v2, packed, nothing, encoding="ZLIB", **attrs)
    packed = {n: gzip.compress(c, mtime=0) for n, c in files.items()}
    reading("FixedLengthRecordReader", v2, packed, nothing, encoding="GZIP", record_bytes=2, header_bytes=1)
    reading("FixedLengthRecordReader", v2, packed, nothing, encoding="BROTLI", record_bytes=2)
    reading("FixedLengthRecordReader", v2, files, nothing, encoding="ZLIB", record_bytes=2)


def whole(v2):
    files = {"a.txt": b"one\ntwo", "b.txt": b"", "c.txt": b"\x01\x02\x03"}
    reading("WholeFileReader", v2, files, nothing)
    reading("WholeFileReader", v2, files, restored)
    reading("IdentityReader", v2, files, nothing)
    reading("IdentityReader", v2, files, restored)


def framed(records):
    """The content of a TFRecord file written by TensorFlow."""
    with tempfile.TemporaryDirectory() as folder:
        name = os.path.join(folder, "r")
        with tf.io.TFRecordWriter(name) as writer:
            for r in records:
                writer.write(r)
        with open(name, "rb") as file:
            return file.read()


def records(v2):
    plain = {"a": framed([b"one", b"", b"three" * 9]), "b": framed([]), "c": framed([b"x", b"y"])}
    reading("TFRecordReader", v2, plain, nothing)
    reading("TFRecordReader", v2, plain, restored)
    for kind, pack in [("ZLIB", zlib.compress), ("GZIP", lambda c: gzip.compress(c, mtime=0))]:
        packed = {n: pack(c) for n, c in plain.items()}
        reading("TFRecordReader", v2, packed, nothing, compression_type=kind)
    reading("TFRecordReader", v2, plain, nothing, compression_type="GZIP")
    reading("TFRecordReader", v2, plain, nothing, compression_type="ZLIB")
    reading("TFRecordReader", v2, plain, nothing, compression_type="gzip")
    good = framed([b"one", b"two", b"three"])
    bad_length = good[:19] + b"\x07" + good[20:]
    bad_data = good[:32] + b"!" + good[33:]
    bad_sum = good[:15] + b"!" + good[16:]
    long_length = struct.pack("<Q", 1 << 60)
    crc = framed([b"\x00"])
    for broken in [bad_length, bad_data, bad_sum, good[:5], good[:11], good[:14], good[:20], good[:-1],
                   good[:-6], long_length + good[8:], b"junk", crc[:12]]:
        reading("TFRecordReader", v2, {"a": broken, "b": good}, nothing)


def shared():
    def steps():
        a = raw.TextLineReaderV2(shared_name="s", container="c")
        b = raw.TextLineReaderV2(shared_name="s", container="c")
        wrong = raw.WholeFileReaderV2(shared_name="s", container="c")
        q = Queue("FIFOQueueV2", [tf.string], [[]], capacity=20)
        floats = Queue("FIFOQueueV2", [tf.float32], [[]], capacity=20)
        pairs = Queue("FIFOQueueV2", [tf.string, tf.string], [[], []], capacity=20)
        vectors = Queue("FIFOQueueV2", [tf.string], [[2]], capacity=20)
        anything = Queue("FIFOQueueV2", [tf.string], [], capacity=20)
        read = lambda r, queue: raw.ReaderReadV2(reader_handle=r, queue_handle=queue.handle)
        return [
            put("a.txt", b"1\n2\n3"), q.put(path("a.txt")), q.put(path("a.txt")), q.close(), read(a, q), read(b, q),
            read(wrong, q), read(a, q), floats.put(1.0), floats.close(), read(a, floats), pairs.put(b"p", b"q"),
            pairs.close(), read(a, pairs), vectors.put([b"p", b"q"]), vectors.close(), read(a, vectors),
            anything.put([path("a.txt")]), anything.put(path("a.txt")), anything.close(), read(a, anything),
            read(a, anything), raw.ReaderResetV2(reader_handle=q.handle),
            raw.ReaderNumRecordsProducedV2(reader_handle=b),
        ]

    play("TextLineReaderV2", steps)


def tables():
    for op, handle_op in [("InitializeTableFromTextFile", "HashTable"), ("InitializeTableFromTextFileV2", "HashTableV2")]:
        def steps():
            made = lambda: getattr(raw, handle_op)(key_dtype=tf.string, value_dtype=tf.int64)
            fill = lambda table, name: getattr(raw, op)(
                table_handle=table, filename=path(name), key_index=-2, value_index=-1)
            a, b = made(), made()
            size = getattr(raw, "LookupTableSizeV2" if op.endswith("V2") else "LookupTableSize")
            return [put("v.txt", b"a\nb\nc\n"), fill(a, "v.txt"), size(table_handle=a), fill(b, "missing"),
                    fill(b, "."), size(table_handle=b)]

        play(op, steps)


def writers():
    def made(folder="logs", **attrs):
        w = raw.SummaryWriter(**attrs)
        return w, raw.CreateSummaryFileWriter(
            writer=w, logdir=path(folder), max_queue=10, flush_millis=100000, filename_suffix=".v2")

    metadata = tf.compat.v1.SummaryMetadata()
    metadata.plugin_data.plugin_name = "scalars"
    metadata = metadata.SerializeToString()
    event = tf.compat.v1.Event(step=3, wall_time=5.0, file_version="x").SerializeToString()
    graph = tf.compat.v1.GraphDef().SerializeToString()
    summary = tf.compat.v1.Summary(value=[tf.compat.v1.Summary.Value(tag="t", simple_value=2.0)]).SerializeToString()

    def steps():
        w, create = made()
        step = tf.constant(7, tf.int64)
        files = tf.size(raw.MatchingFiles(pattern=path("logs/events.out.tfevents.*.v2")))
        flush = lambda: raw.FlushSummaryWriter(writer=w)
        scalar = lambda v, tag=b"t", step=step: raw.WriteScalarSummary(writer=w, step=step, tag=tag, value=v)
        histogram = lambda v, tag=b"t": raw.WriteHistogramSummary(writer=w, step=step, tag=tag, values=v)
        image = lambda v, bad=hidden(tf.constant([255, 0, 0, 255], tf.uint8)): raw.WriteImageSummary(
            writer=w, step=step, tag=b"i", tensor=v, bad_color=bad)
        audio = lambda v, rate=8000.0: raw.WriteAudioSummary(
            writer=w, step=step, tag=b"a", tensor=v, sample_rate=rate)
        scalars = [scalar(tf.constant(1, d)) for d in [
            tf.float32, tf.float64, tf.half, tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8,
            tf.uint16, tf.uint32, tf.uint64]]
        histograms = [histogram(tf.constant([1, 2], d)) for d in [
            tf.float32, tf.float64, tf.half, tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8,
            tf.uint16, tf.uint32, tf.uint64]]
        return [
            scalar(tf.constant(1.0)), flush(), create, files, create, flush(), files, *scalars, *histograms,
            histogram(tf.constant([True])), histogram([float("nan")]), histogram([float("inf")]), histogram(tf.zeros([0])),
            scalar(hidden([1.0])),
            raw.WriteSummary(writer=w, step=step, tensor=f32(2, 2), tag=b"s", summary_metadata=metadata),
            raw.WriteSummary(writer=w, step=step, tensor=tf.constant(["x"]), tag=b"s", summary_metadata=b""),
            raw.WriteSummary(writer=w, step=step, tensor=f32(2), tag=b"s", summary_metadata=b"junk"),
            raw.WriteRawProtoSummary(writer=w, step=step, tensor=summary),
            raw.WriteRawProtoSummary(writer=w, step=step, tensor=[summary, summary]),
            raw.WriteRawProtoSummary(writer=w, step=step, tensor=b"junk"),
            raw.WriteRawProtoSummary(writer=w, step=step, tensor=[[summary, b"junk"]]),
            image(f32(1, 2, 3, 1)), image(f32(4, 2, 3, 3)), image(f32(1, 2, 3, 4)), image(tf.zeros([1, 2, 2, 3], tf.uint8)),
            image(tf.zeros([1, 2, 2, 1], tf.half)), image(tf.zeros([1, 2, 2, 1], tf.float64)),
            image(hidden(f32(1, 2, 3, 2))), image(hidden(f32(2, 3, 1))),
            image(f32(1, 2, 3, 4), hidden(tf.constant([255], tf.uint8))), image(f32(1, 2, 3, 1), hidden(tf.constant(1, tf.uint8))),
            image(f32(0, 2, 3, 1)), image(tf.fill([1, 2, 2, 1], float("nan"))),
            audio(f32(2, 10)), audio(f32(1, 10, 2)), audio(f32(1, 10), -1.0), audio(f32(1, 10), hidden([1.0])),
            raw.WriteGraphSummary(writer=w, step=step, tensor=graph), raw.WriteGraphSummary(writer=w, step=step, tensor=b"junk"),
            raw.ImportEvent(writer=w, event=event), raw.ImportEvent(writer=w, event=b"junk"), flush(), files,
            raw.CloseSummaryWriter(writer=w), flush(), scalar(tf.constant(1.0)), raw.CloseSummaryWriter(writer=w), create, flush(),
        ]

    play("SummaryWriter", steps)

    def refused():
        w, create = made("file/logs")
        other = lambda **args: raw.CreateSummaryFileWriter(writer=raw.SummaryWriter(), **{
            "logdir": path("logs"), "max_queue": 10, "flush_millis": 1000, "filename_suffix": "", **args})
        q = Queue("FIFOQueueV2", [tf.string], [[]])
        return [
            put("file", b"x"), create, raw.FlushSummaryWriter(writer=w),
            other(max_queue=-5), other(flush_millis=-5), other(max_queue=0), other(flush_millis=0),
            raw.FlushSummaryWriter(writer=q.handle), raw.CloseSummaryWriter(writer=q.handle),
        ]

    play("CreateSummaryFileWriter", refused)

    def named():
        a, create = made("logs", shared_name="w", container="c")
        b, again = made("other", shared_name="w", container="c")
        count = lambda folder: tf.size(raw.MatchingFiles(pattern=path(folder + "/*")))
        return [create, again, raw.WriteScalarSummary(writer=b, step=tf.constant(1, tf.int64), tag=b"t", value=1.0),
                raw.FlushSummaryWriter(writer=a), count("logs"), count("other"), raw.CloseSummaryWriter(writer=b),
                raw.FlushSummaryWriter(writer=a), again]

    play("SummaryWriter", named)


whole_files()
patterns()
for version in ["", "V2"]:
    text_lines(version)
    whole(version)
    records(version)
fixed_lengths()
shared()
tables()
writers()
shutil.rmtree(FOLDER, ignore_errors=True)
if os.environ.get("SHOW"):
    for entry in recorder.cases:
        print(entry["id"], [s.get("error", {}).get("code", 0) for s in entry["steps"]])
write()
