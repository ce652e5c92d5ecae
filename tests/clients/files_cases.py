"""Files that a server reads and writes, held to what TensorFlow and TensorBoard make of them."""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

import numpy as np
import tensorflow as tf
from support import close, fresh, raises, session, v1

raw = tf.raw_ops
TENSORBOARD_SECONDS_MAX = 90


def case_records_that_tensorflow_wrote(target):
    """Readers fed by a queue runner's queue, plain and compressed."""
    fresh(target)
    records = [b"", b"one", bytes(range(256)) * 40] * 50
    for kind in ["", "GZIP", "ZLIB"]:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "records")
            with tf.io.TFRecordWriter(path, kind) as writer:
                for record in records:
                    writer.write(record)
            with session(target) as s:
                names = v1.train.string_input_producer([path], num_epochs=1, shuffle=False)
                compression = v1.io.TFRecordOptions(kind) if kind else None
                key, value = v1.TFRecordReader(options=compression).read(names)
                s.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
                coordinator = tf.train.Coordinator()
                threads = v1.train.start_queue_runners(s, coordinator)
                found = [s.run([key, value]) for _ in records]
                assert [v for _, v in found] == records
                assert found[1][0] == f"{path}:16".encode(), found[1][0]
                with raises(tf.errors.OutOfRangeError):
                    s.run(value)
                coordinator.request_stop()
                coordinator.join(threads)


def case_lines_shuffled_into_batches(target):
    """The input pipelines of the first generation: files, lines, CSV, shuffled batches."""
    fresh(target)
    with tempfile.TemporaryDirectory() as folder:
        for part in range(3):
            with open(os.path.join(folder, f"part-{part}.csv"), "w") as file:
                file.write("number,square\n")
                file.writelines(f"{i},{i * i}.0\n" for i in range(part * 10, part * 10 + 10))
        with session(target) as s:
            found = tf.io.matching_files(os.path.join(folder, "part-*.csv"))
            names = v1.train.string_input_producer(found, num_epochs=1)
            _, line = v1.TextLineReader(skip_header_lines=1).read(names)
            number, square = tf.io.decode_csv(line, [[0], [0.0]])
            batch = v1.train.shuffle_batch([number, square], 5, 20, 4, allow_smaller_final_batch=True)
            s.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
            coordinator = tf.train.Coordinator()
            threads = v1.train.start_queue_runners(s, coordinator)
            seen = {}
            try:
                while True:
                    numbers, squares = s.run(batch)
                    seen.update(zip(numbers.tolist(), squares.tolist()))
            except tf.errors.OutOfRangeError:
                pass
            coordinator.request_stop()
            coordinator.join(threads)
            assert seen == {i: float(i * i) for i in range(30)}, seen


def write_events(target, folder):
    """Values of every kind through a writer on the server."""
    with session(target) as s:
        writer = raw.SummaryWriter(shared_name="files_cases")
        s.run(raw.CreateSummaryFileWriter(
            writer=writer, logdir=folder, max_queue=10, flush_millis=10000, filename_suffix=".v2"))
        step = v1.placeholder(tf.int64, [])
        value = v1.placeholder(tf.float32, [])
        scalar = raw.WriteScalarSummary(writer=writer, step=step, tag="loss", value=value)
        for i in range(5):
            s.run(scalar, {step: i, value: 1.0 / (i + 1)})
        one = tf.constant(1, tf.int64)
        metadata = v1.SummaryMetadata(plugin_data=v1.SummaryMetadata.PluginData(plugin_name="text"))
        s.run([
            raw.WriteHistogramSummary(writer=writer, step=one, tag="weights", values=tf.constant([1.0, 2.0, 3.0])),
            raw.WriteImageSummary(writer=writer, step=one, tag="picture", tensor=tf.ones([1, 4, 5, 3]),
                                  bad_color=tf.constant([255, 0, 0, 255], tf.uint8)),
            raw.WriteAudioSummary(writer=writer, step=one, tag="sound", tensor=tf.zeros([1, 100, 1]), sample_rate=8000.0),
            raw.WriteSummary(writer=writer, step=one, tensor=tf.constant(["note"]), tag="text",
                             summary_metadata=metadata.SerializeToString()),
            raw.WriteGraphSummary(writer=writer, step=one, tensor=s.graph.as_graph_def().SerializeToString()),
        ])
        s.run(raw.CloseSummaryWriter(writer=writer))


def case_events_that_tensorflow_reads(target):
    fresh(target)
    with tempfile.TemporaryDirectory() as folder:
        write_events(target, folder)
        [name] = os.listdir(folder)
        assert re.fullmatch(r"events\.out\.tfevents\.\d{10}\..*\.v2", name), name
        events = list(v1.train.summary_iterator(os.path.join(folder, name)))
        assert events[0].file_version == "brain.Event:2"
        losses = [(e.step, v.simple_value) for e in events for v in e.summary.value if v.tag == "loss"]
        close([v for _, v in losses], 1 / np.arange(1, 6))
        assert [s for s, _ in losses] == list(range(5))
        tags = {v.tag for e in events for v in e.summary.value}
        assert tags == {"loss", "weights", "picture/image/0", "sound/audio/0", "text"}, tags


def ask(address, path, **query):
    with urllib.request.urlopen(f"{address}data/{path}?{urllib.parse.urlencode(query)}", timeout=30) as answer:
        return json.load(answer)


def case_events_that_tensorboard_shows(target):
    """TensorBoard itself, asked over HTTP."""
    fresh(target)
    with tempfile.TemporaryDirectory() as folder:
        write_events(target, os.path.join(folder, "run"))
        command = [sys.executable, "-m", "tensorboard.main", "--logdir", folder, "--host", "127.0.0.1",
                   "--port", "0", "--load_fast=false"]
        board = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        try:
            address = None
            while address is None:
                line = board.stderr.readline()
                assert line, "TensorBoard ended without an address"
                found = re.search(r"http://127\.0\.0\.1:\d+/", line)
                address = found and found.group()
            end = time.monotonic() + TENSORBOARD_SECONDS_MAX
            while "run" not in ask(address, "plugin/scalars/tags"):
                assert time.monotonic() < end, "TensorBoard found no scalars"
                time.sleep(0.5)
            points = ask(address, "plugin/scalars/scalars", run="run", tag="loss")
            close([value for _, _, value in points], 1 / np.arange(1, 6))
            assert [step for _, step, _ in points] == list(range(5)), points
            assert "weights" in ask(address, "plugin/histograms/tags")["run"]
            assert "picture/image/0" in ask(address, "plugin/images/tags")["run"]
            assert "sound/audio/0" in ask(address, "plugin/audio/tags")["run"]
            assert "text" in ask(address, "plugin/text/tags")["run"]
        finally:
            board.kill()
            board.wait()
