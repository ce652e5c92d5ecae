"""Savers: checkpoints written and read by the server, and by TensorFlow in this process."""

import contextlib
import glob
import os
import tempfile
import threading

import numpy as np
import tensorflow as tf
from support import close, equal, fresh, pairs, raises, session, v1

HERE = ""  # The target of TensorFlow's own session, in this process.
DTYPES = [tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8,
          tf.uint16, tf.uint32, tf.uint64, tf.complex64, tf.complex128, tf.bool]
NOT_IN_V1 = (tf.bfloat16, tf.uint32, tf.uint64)


@contextlib.contextmanager
def folder():
    with tempfile.TemporaryDirectory(prefix="thalweg-saver-") as path:
        yield path


def weights(is_resource, scale=1.0):
    """A matrix, a vector and a counter."""
    make = lambda name, value: v1.get_variable(name, initializer=value, use_resource=is_resource)
    return [make("w", tf.constant(scale * np.arange(12, dtype=np.float32).reshape(3, 4))),
            make("layer/b", tf.constant(scale * np.array([1.5, -2.5], np.float32))),
            make("n", tf.constant(np.int64(7 * scale)))]


def values(s, variables):
    return s.run([tf.identity(v) for v in variables])


def same(got, wanted):
    for a, b in pairs(got, wanted):
        assert a.dtype == b.dtype and a.shape == b.shape, (a, b)
        equal(a, b)


def zeroed(s, variables):
    s.run([v1.assign(v, tf.zeros_like(v)) for v in variables])


def case_save_and_restore(target):
    for is_resource in (True, False):
        fresh(target)
        with folder() as path, session(target) as s:
            made = weights(is_resource)
            saver = v1.train.Saver()
            s.run(v1.global_variables_initializer())
            before = values(s, made)
            prefix = saver.save(s, f"{path}/model")
            assert prefix == f"{path}/model"
            assert sorted(os.listdir(path)) == ["checkpoint", "model.data-00000-of-00001", "model.index", "model.meta"]
            zeroed(s, made)
            saver.restore(s, prefix)
            same(values(s, made), before)


def case_a_new_session_restores_into_nothing(target):
    with folder() as path:
        fresh(target)
        with session(target) as s:
            made = weights(True)
            s.run(v1.global_variables_initializer())
            before = values(s, made)
            v1.train.Saver().save(s, f"{path}/model", global_step=30)
        fresh(target)
        with session(target) as s:
            made = weights(True, scale=0.0)
            saver = v1.train.Saver()
            with raises(tf.errors.FailedPreconditionError):
                values(s, made)
            found = v1.train.latest_checkpoint(path)
            assert found == f"{path}/model-30"
            saver.restore(s, found)
            same(values(s, made), before)


def case_sharded(target):
    """Each device string has a shard of its own; they are merged under one name."""
    with folder() as path:
        fresh(target)
        with session(target) as s:
            with tf.device("/cpu:0"):
                first = weights(True)
            with v1.variable_scope("other"):
                second = weights(True, scale=3.0)
            saver = v1.train.Saver(sharded=True)
            s.run(v1.global_variables_initializer())
            before = values(s, first + second)
            for step in (1, 2):
                prefix = saver.save(s, f"{path}/model", global_step=step)
                names = {os.path.basename(p) for p in glob.glob(prefix + ".*")}
                assert names == {f"model-{step}.index", f"model-{step}.meta", f"model-{step}.data-00000-of-00002",
                                 f"model-{step}.data-00001-of-00002"}, names
            assert not [n for n in os.listdir(path) if "temp" in n], os.listdir(path)
            zeroed(s, first + second)
            saver.restore(s, prefix)
            same(values(s, first + second), before)
        # The sharded checkpoint is restored by an unsharded saver.
        fresh(target)
        with session(target) as s:
            with v1.variable_scope("other"):
                second = weights(True, scale=0.0)
            v1.train.Saver().restore(s, prefix)
            same(values(s, second), before[3:])


def case_the_old_format(target):
    version = v1.train.SaverDef.V1
    for is_sharded in (False, True):
        with folder() as path:
            fresh(target)
            with session(target) as s:
                with tf.device("/cpu:0"):
                    first = weights(True)
                with v1.variable_scope("other"):
                    second = weights(True, scale=3.0)
                saver = v1.train.Saver(sharded=is_sharded, write_version=version)
                s.run(v1.global_variables_initializer())
                before = values(s, first + second)
                prefix = saver.save(s, f"{path}/old", global_step=5)
                data = [n for n in os.listdir(path) if n.startswith("old") and not n.endswith("meta")]
                assert len(data) == (2 if is_sharded else 1), data
                zeroed(s, first + second)
                saver.restore(s, prefix)
                same(values(s, first + second), before)
                # A saver of the new format reads the old one as well.
                zeroed(s, first + second)
                v1.train.Saver().restore(s, prefix)
                same(values(s, first + second), before)
            # TensorFlow reads the old format too.
            reader = v1.train.NewCheckpointReader(prefix)
            equal(reader.get_tensor("other/w"), before[3])


def case_some_variables_under_other_names(target):
    with folder() as path:
        fresh(target)
        with session(target) as s:
            w, b, n = weights(True)
            s.run(v1.global_variables_initializer())
            prefix = v1.train.Saver().save(s, f"{path}/model")
            before = values(s, [w, b, n])
        fresh(target)
        with session(target) as s:
            mine = v1.get_variable("mine", [3, 4], use_resource=True)
            n = v1.get_variable("n", [], tf.int64, use_resource=True)
            old = v1.get_variable("old", [3], use_resource=False)
            left = v1.get_variable("left", initializer=5.0, use_resource=True)
            s.run(v1.global_variables_initializer())
            v1.train.Saver({"w": mine}).restore(s, prefix)
            v1.train.Saver([n]).restore(s, prefix)
            same(values(s, [mine, n, left]), [before[0], before[2], np.float32(5.0)])
            with raises(tf.errors.NotFoundError, "left", "not found in checkpoint"):
                v1.train.Saver().restore(s, prefix)
            with raises(tf.errors.InvalidArgumentError):
                v1.train.Saver({"w": n}).restore(s, prefix)
            with raises(tf.errors.InvalidArgumentError):
                v1.train.Saver({"layer/b": old}).restore(s, prefix)
            # The failed restore has changed nothing.
            same(values(s, [mine, n, left]), [before[0], before[2], np.float32(5.0)])
            with raises(ValueError, "not a valid checkpoint"):
                v1.train.Saver([n]).restore(s, f"{path}/nothing")


def case_only_the_last_are_kept(target):
    fresh(target)
    with folder() as path, session(target) as s:
        step = v1.train.create_global_step()
        w = v1.get_variable("w", initializer=0.0, use_resource=True)
        saver = v1.train.Saver(max_to_keep=2)
        s.run(v1.global_variables_initializer())
        for i in range(1, 6):
            s.run([v1.assign(w, float(i)), v1.assign(step, i)])
            saver.save(s, f"{path}/m", global_step=step)
        kept = sorted(os.path.basename(p) for p in glob.glob(f"{path}/m-*.index"))
        assert kept == ["m-4.index", "m-5.index"], kept
        assert len(glob.glob(f"{path}/m-*.data*")) == 2
        assert saver.last_checkpoints == [f"{path}/m-4", f"{path}/m-5"]
        assert v1.train.latest_checkpoint(path) == f"{path}/m-5"
        saver.restore(s, f"{path}/m-4")
        assert values(s, [w, step]) == [4.0, 4]
        # Another saver continues from the state of this one.
        again = v1.train.Saver(max_to_keep=2)
        again.recover_last_checkpoints(v1.train.get_checkpoint_state(path).all_model_checkpoint_paths)
        s.run(v1.assign(step, 6))
        again.save(s, f"{path}/m", global_step=step)
        kept = sorted(os.path.basename(p) for p in glob.glob(f"{path}/m-*.index"))
        assert kept == ["m-5.index", "m-6.index"], kept


def case_one_an_hour_is_kept(target):
    fresh(target)
    with folder() as path, session(target) as s:
        v1.get_variable("w", initializer=0.0, use_resource=True)
        # Saves follow each other within this fraction of an hour.
        saver = v1.train.Saver(max_to_keep=1, keep_checkpoint_every_n_hours=1e-9)
        s.run(v1.global_variables_initializer())
        for i in range(4):
            saver.save(s, f"{path}/m", global_step=i)
        assert len(glob.glob(f"{path}/m-*.index")) == 4
        assert len(saver.last_checkpoints) == 1


def case_saving_over_a_checkpoint(target):
    """The same name again, with other contents: readers of the new see nothing of the old."""
    fresh(target)
    with folder() as path, session(target) as s:
        w = v1.get_variable("w", initializer=tf.zeros([1000]), use_resource=True)
        s.run(v1.global_variables_initializer())
        saver = v1.train.Saver()
        for i in range(5):
            s.run(v1.assign(w, tf.fill([1000], float(i))))
            prefix = saver.save(s, f"{path}/same")
            equal(v1.train.NewCheckpointReader(prefix).get_tensor("w"), np.full(1000, i, np.float32))
        # One data file is there at the end, whatever its name.
        names = sorted(os.listdir(path))
        assert [n.split("-")[0] for n in names] == ["checkpoint", "same.data", "same.index", "same.meta"], names


def partitioned(partitioner, zero=False):
    rows = np.arange(70, dtype=np.float32).reshape(10, 7)

    def initial(shape, dtype, partition_info=None):
        begin = partition_info.var_offset if partition_info else [0, 0]
        part = rows[begin[0]:begin[0] + shape[0], begin[1]:begin[1] + shape[1]]
        return tf.zeros(shape, dtype) if zero else tf.constant(part)

    return v1.get_variable("table", [10, 7], initializer=initial, partitioner=partitioner, use_resource=True), rows


def case_partitions(target):
    ways = [v1.fixed_size_partitioner(3), v1.fixed_size_partitioner(7, axis=1), v1.fixed_size_partitioner(10),
            v1.min_max_variable_partitioner(max_partitions=4, min_slice_size=8),
            v1.variable_axis_size_partitioner(max_shard_bytes=100), None]
    with folder() as path:
        for i, way in enumerate(ways):
            fresh(target)
            with session(target) as s:
                table, rows = partitioned(way)
                s.run(v1.global_variables_initializer())
                v1.train.Saver(sharded=i % 2 == 1).save(s, f"{path}/m-{i}")
        for i, _ in enumerate(ways):
            other = ways[(i + 1) % len(ways)]
            fresh(target)
            with session(target) as s:
                table, rows = partitioned(other, zero=True)
                v1.train.Saver().restore(s, f"{path}/m-{i}")
                equal(s.run(tf.convert_to_tensor(table)), rows)
            reader = v1.train.NewCheckpointReader(f"{path}/m-{i}")
            equal(reader.get_tensor("table"), rows)


def of_every_dtype():
    made, wanted = [], []
    rng = np.random.RandomState(1)
    for dtype in DTYPES:
        numpy = dtype.as_numpy_dtype
        if dtype.is_integer:
            bounds = np.iinfo(numpy)
            value = np.array([[bounds.min, 0, 1], [2, bounds.max - 1, bounds.max]], numpy)
        elif dtype.is_complex:
            value = (rng.randn(2, 3) + 1j * rng.randn(2, 3)).astype(numpy)
        elif dtype == tf.bool:
            value = np.array([[True, False, True], [False, False, True]])
        else:
            value = np.array([[1.5, -0.0, np.inf], [np.nan, 3e-5, -7]], np.float64).astype(numpy)
        made.append(v1.get_variable(f"of/{dtype.name}", initializer=tf.constant(value), use_resource=True))
        wanted.append(value)
    return made, wanted


def of_version(version):
    """A variable of every dtype that files of a version can hold."""
    absent = NOT_IN_V1 if version == v1.train.SaverDef.V1 else ()
    return [m for m in of_every_dtype()[0] if m.dtype.base_dtype not in absent]


def case_every_dtype(target):
    for version in (v1.train.SaverDef.V2, v1.train.SaverDef.V1):
        absent = NOT_IN_V1 if version == v1.train.SaverDef.V1 else ()
        fresh(target)
        with folder() as path, session(target) as s:
            made, wanted = of_every_dtype()
            kept = [(m, w) for m, w in pairs(made, wanted) if m.dtype.base_dtype not in absent]
            saver = v1.train.Saver([m for m, _ in kept], write_version=version)
            s.run(v1.global_variables_initializer())
            prefix = saver.save(s, f"{path}/all")
            s.run([v1.assign(m, tf.cast(tf.zeros([2, 3], tf.int32), m.dtype.base_dtype)) for m in made])
            saver.restore(s, prefix)
            for (m, w), got in pairs(kept, values(s, [m for m, _ in kept])):
                assert got.dtype == w.dtype and got.tobytes() == w.tobytes(), (m, got, w)


def case_strings_and_odd_shapes(target):
    texts = [b"", b"one", b"\x00\xff\x80", b"long" * 5000, "ψ".encode(), b"\n"]
    fresh(target)
    with folder() as path, session(target) as s:
        initial = [tf.constant(texts, shape=[2, 3]), tf.constant(b"alone"), tf.zeros([0, 5]), tf.constant(3.0),
                   tf.constant([[[[[9]]]]]), tf.zeros([0], tf.string)]
        made = [v1.Variable(x, name=f"v{i}", use_resource=i != 1) for i, x in enumerate(initial)]
        s.run(v1.global_variables_initializer())
        before = values(s, made)
        saver = v1.train.Saver()
        prefix = saver.save(s, f"{path}/odd")
        zeroed(s, [made[3], made[4]])
        s.run([v1.assign(made[0], tf.fill([2, 3], b"x")), v1.assign(made[1], b"")])
        saver.restore(s, prefix)
        for got, wanted in pairs(values(s, made), before):
            equal(got, wanted)
        reader = v1.train.NewCheckpointReader(prefix)
        assert [bytes(t) for t in reader.get_tensor("v0").ravel()] == texts
        assert reader.get_variable_to_shape_map()["v2"] == [0, 5]


def case_files_go_both_ways(target):
    """What the server saves TensorFlow restores in this process, and the reverse; V1 as well."""
    with folder() as path:
        for version in (v1.train.SaverDef.V2, v1.train.SaverDef.V1):
            for writer, reader in ((target, HERE), (HERE, target)):
                fresh(target)
                with session(writer) as s:
                    made = of_version(version)
                    table, _ = partitioned(v1.fixed_size_partitioner(4))
                    text = v1.Variable([b"some", b"text"], name="text", use_resource=False)
                    s.run(v1.global_variables_initializer())
                    saver = v1.train.Saver(made + [table, text], sharded=True, write_version=version)
                    before = values(s, made + list(table) + [text])
                    prefix = saver.save(s, f"{path}/m", global_step=int(version))
                    saver.save(s, f"{path}/again", write_meta_graph=False)
                fresh(target)
                with v1.Session(reader, graph=tf.Graph()) as s, s.graph.as_default():
                    made = of_version(version)
                    table, rows = partitioned(v1.fixed_size_partitioner(3, axis=1), zero=True)
                    text = v1.Variable([b"", b""], name="text", use_resource=False)
                    v1.train.Saver(made + [table, text]).restore(s, prefix)
                    for got, wanted in pairs(values(s, made), before[:len(made)]):
                        assert got.tobytes() == wanted.tobytes()
                    equal(s.run(tf.convert_to_tensor(table)), rows)
                    equal(s.run(text), before[-1])


def case_the_same_bytes(target):
    """Data files are TensorFlow's to the byte; index files say the same."""
    with folder() as path:
        for place, name in ((HERE, "theirs"), (target, "ours")):
            fresh(target)
            with session(place) as s:
                weights(True)
                of_every_dtype()
                v1.Variable([b"some", b"text"], name="text", use_resource=False)
                s.run(v1.global_variables_initializer())
                v1.train.Saver().save(s, f"{path}/{name}", write_meta_graph=False)
        suffix = ".data-00000-of-00001"
        with open(f"{path}/ours{suffix}", "rb") as ours, open(f"{path}/theirs{suffix}", "rb") as theirs:
            assert ours.read() == theirs.read()
        ours, theirs = [v1.train.NewCheckpointReader(f"{path}/{n}") for n in ("ours", "theirs")]
        assert ours.debug_string() == theirs.debug_string()


def model(rate=0.01):
    """A small network with a loss that goes down, trained by Adam with a decaying rate."""
    v1.set_random_seed(5)
    step = v1.train.get_or_create_global_step()
    x = v1.placeholder(tf.float32, [None, 4], name="x")
    y = v1.placeholder(tf.float32, [None, 1], name="y")
    w1 = v1.get_variable("w1", initializer=tf.constant(np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8)),
                         use_resource=True)
    b1 = v1.get_variable("b1", initializer=tf.zeros([8]), use_resource=True)
    w2 = v1.get_variable("w2", initializer=tf.constant(np.linspace(1, -1, 8, dtype=np.float32).reshape(8, 1)),
                         use_resource=False)
    loss = tf.reduce_mean(tf.square(tf.matmul(tf.tanh(tf.matmul(x, w1) + b1), w2) - y))
    decayed = v1.train.exponential_decay(rate, step, 100, 0.9)
    # All that a step reads is read before anything changes, so that every step is the same.
    gradients = tf.gradients(loss, [w1, b1, w2])
    with tf.control_dependencies([decayed, loss, *gradients]):
        momentum = v1.train.MomentumOptimizer(decayed, 0.9).apply_gradients([(gradients[2], w2)])
        adam = v1.train.AdamOptimizer(decayed).apply_gradients(zip(gradients[:2], [w1, b1], strict=True))
    with tf.control_dependencies([momentum, adam]):
        return step, x, y, loss, v1.assign_add(step, 1).op


def batch(i):
    rng = np.random.RandomState(i)
    x = rng.randn(16, 4).astype(np.float32)
    return x, np.sin(x.sum(1, keepdims=True)).astype(np.float32)


def trained(target, steps, prefix, restore_from=None):
    """Trains for so many steps from a checkpoint or from the start; saves; all variables by name."""
    with session(target) as s:
        step, x, y, loss, train = model()
        saver = v1.train.Saver()
        if restore_from:
            saver.restore(s, restore_from)
        else:
            s.run(v1.global_variables_initializer())
        for _ in range(steps):
            xs, ys = batch(int(s.run(step)))
            s.run(train, {x: xs, y: ys})
        saver.save(s, prefix)
        return {v.op.name: value for v, value in zip(v1.global_variables(), s.run(v1.global_variables()), strict=True)}


def case_the_two_way_door(target):
    """Trains on TensorFlow, here, and on TensorFlow again with the results of uninterrupted training: parameters, slots and
    global step. The arithmetic differs in the last bits, which training passes on: 2e-3 relative to the
    largest element of each."""
    n = 500 if os.environ.get("THALWEG_LONG") else 60
    fresh(target)
    with folder() as path:
        undisturbed = trained(HERE, 3 * n, f"{path}/whole")
        trained(HERE, n, f"{path}/first")
        trained(target, n, f"{path}/second", f"{path}/first")
        last = trained(HERE, n, f"{path}/third", f"{path}/second")
        assert set(last) == set(undisturbed) and len(last) == 11, sorted(last)
        assert last["global_step"] == undisturbed["global_step"] == 3 * n
        for name, wanted in undisturbed.items():
            scale = np.abs(wanted).max()
            np.testing.assert_allclose(last[name] / scale, wanted / scale, atol=2e-3, err_msg=name)
        # The other way round as well.
        fresh(target)
        trained(target, n, f"{path}/first")
        trained(HERE, n, f"{path}/second", f"{path}/first")
        fresh(target)
        last = trained(target, n, f"{path}/third", f"{path}/second")
        for name, wanted in undisturbed.items():
            scale = np.abs(wanted).max()
            np.testing.assert_allclose(last[name] / scale, wanted / scale, atol=2e-3, err_msg=name)


def monitored(target, path, last, hooks=(), **options):
    """Trains up to a step in a session that keeps checkpoints; the steps it began and ended with."""
    with tf.Graph().as_default():
        step, x, y, loss, train = model()
        seen = []
        with v1.train.MonitoredTrainingSession(
                master=target, checkpoint_dir=path, hooks=[v1.train.StopAtStepHook(last_step=last), *hooks],
                save_summaries_steps=None, save_summaries_secs=None, log_step_count_steps=None, **options) as s:
            seen.append(int(s.run(step)) if not s.should_stop() else last)
            while not s.should_stop():
                xs, ys = batch(0)
                s.run(train, {x: xs, y: ys})
        return seen[0]


class Feeding(v1.train.SessionRunHook):
    """Feeds the model also when another hook asks for a step."""

    def before_run(self, context):
        xs, ys = batch(0)
        return v1.train.SessionRunArgs(None, {"x:0": xs, "y:0": ys})


def case_a_monitored_session_resumes(target):
    with folder() as path:
        begins = []
        for last in (5, 12, 20):
            fresh(target)  # The server has lost its variables.
            begins.append(monitored(target, path, last, save_checkpoint_steps=3, save_checkpoint_secs=None))
        assert begins == [0, 5, 12], begins
        assert v1.train.latest_checkpoint(path) == f"{path}/model.ckpt-20"
        reader = v1.train.NewCheckpointReader(f"{path}/model.ckpt-20")
        assert reader.get_tensor("global_step") == 20
        # TensorFlow resumes from that checkpoint, and this session resumes from TensorFlow's.
        assert monitored(HERE, path, 25, save_checkpoint_steps=3, save_checkpoint_secs=None) == 20
        fresh(target)
        assert monitored(target, path, 30, save_checkpoint_steps=3, save_checkpoint_secs=None) == 25


class Listener(v1.train.CheckpointSaverListener):
    def __init__(self):
        self.saved = []

    def before_save(self, session, step):
        self.saved.append(("before", int(step)))

    def after_save(self, session, step):
        self.saved.append(("after", int(step)))


def case_a_saver_hook_and_its_listener(target):
    fresh(target)
    listener = Listener()
    with folder() as path:
        hook = v1.train.CheckpointSaverHook(path, save_steps=4, listeners=[listener])
        with tf.Graph().as_default():
            step, x, y, loss, train = model()
            with v1.train.MonitoredSession(
                    v1.train.ChiefSessionCreator(master=target),
                    hooks=[hook, v1.train.StopAtStepHook(last_step=10)]) as s:
                while not s.should_stop():
                    xs, ys = batch(0)
                    s.run(train, {x: xs, y: ys})
        steps = [at for word, at in listener.saved if word == "after"]
        assert steps[0] == 0 and steps[-1] == 10 and len(steps) >= 4, steps
        assert v1.train.latest_checkpoint(path) == f"{path}/model.ckpt-10"


def case_object_graphs(target):
    """tf.train.Checkpoint: variables under the paths of objects, with the graph of objects beside."""
    def build(scale):
        root = tf.train.Checkpoint()
        root.layer = tf.Module()
        root.layer.w = v1.Variable(scale * np.arange(6, dtype=np.float32).reshape(2, 3), use_resource=True)
        root.step = v1.Variable(int(4 * scale), dtype=tf.int64, use_resource=True)
        return root

    with folder() as path:
        prefixes = []
        for place in (target, HERE):
            fresh(target)
            with session(place) as s:
                root = build(1.0)
                s.run([root.layer.w.initializer, root.step.initializer])
                prefixes.append(root.save(f"{path}/{'ours' if place else 'theirs'}"))
        for prefix in prefixes:
            keys = {n for n, _ in tf.train.list_variables(prefix)}
            assert "_CHECKPOINTABLE_OBJECT_GRAPH" in keys, keys
            for place in (target, HERE):
                fresh(target)
                with session(place) as s:
                    root = build(0.0)
                    root.restore(prefix).assert_consumed().run_restore_ops(s)
                    w, step = s.run([root.layer.w, root.step])
                    equal(w, np.arange(6, dtype=np.float32).reshape(2, 3))
                    assert step == 4


def case_a_meta_graph_brings_its_saver(target):
    with folder() as path:
        fresh(target)
        with session(target) as s:
            step, x, y, loss, train = model()
            v1.add_to_collection("train", train)
            s.run(v1.global_variables_initializer())
            xs, ys = batch(0)
            for _ in range(3):
                s.run(train, {x: xs, y: ys})
            v1.train.Saver(sharded=True).save(s, f"{path}/m", global_step=step)
            before = s.run(loss, {x: xs, y: ys})
        fresh(target)
        with session(target) as s:
            saver = v1.train.import_meta_graph(f"{path}/m-3.meta")
            saver.restore(s, f"{path}/m-3")
            feeds = {"x:0": xs, "y:0": ys}
            close(s.run("Mean:0", feeds), before)
            s.run(v1.get_collection("train"), feeds)
            assert s.run("global_step:0") == 4


def case_initial_values_out_of_a_checkpoint(target):
    with folder() as path:
        fresh(target)
        with session(target) as s:
            made = weights(True)
            s.run(v1.global_variables_initializer())
            before = values(s, made)
            prefix = v1.train.Saver().save(s, f"{path}/m")
        fresh(target)
        with session(target) as s:
            with v1.variable_scope("new"):
                made = weights(True, scale=0.0)
            table = v1.get_variable("parts", [3, 4], partitioner=v1.fixed_size_partitioner(3), use_resource=True)
            v1.train.init_from_checkpoint(prefix, {"/": "new/", "w": "parts"})
            s.run(v1.global_variables_initializer())
            same(values(s, made)[1:], before[1:])
            equal(s.run(tf.convert_to_tensor(table)), before[0])


def case_tables_are_saved_too(target):
    with folder() as path:
        for place, other in ((target, HERE), (HERE, target)):
            fresh(target)
            with session(place) as s:
                table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1, name="t", checkpoint=True)
                saver = v1.train.Saver()
                s.run(table.insert(tf.constant(["a", "b", "c"]), tf.constant([1, 2, 3], tf.int64)))
                prefix = saver.save(s, f"{path}/t")
            fresh(target)
            with session(other) as s:
                table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1, name="t", checkpoint=True)
                saver = v1.train.Saver()
                saver.restore(s, prefix)
                equal(s.run(table.lookup(tf.constant(["c", "a", "x"]))), [3, 1, -1])


def case_many_variables(target):
    fresh(target)
    with folder() as path, session(target) as s:
        made = [v1.get_variable(f"scope{i % 7}/v{i}", initializer=float(i), use_resource=True) for i in range(300)]
        saver = v1.train.Saver()
        s.run(v1.global_variables_initializer())
        prefix = saver.save(s, f"{path}/many")
        zeroed(s, made)
        saver.restore(s, prefix)
        equal(s.run([v.read_value() for v in made]), np.arange(300))
        assert len(tf.train.list_variables(prefix)) == 300


def case_large_variables(target):
    fresh(target)
    with folder() as path, session(target) as s:
        made = [v1.get_variable(f"v{i}", initializer=tf.random.uniform([4 << 20], seed=i), use_resource=True)
                for i in range(4)]
        saver = v1.train.Saver()
        s.run(v1.global_variables_initializer())
        sums = [tf.bitwise.bitwise_xor(tf.reduce_sum(tf.bitcast(v, tf.int32)), 0) for v in made]
        before = s.run(sums)
        prefix = saver.save(s, f"{path}/large")
        # In one data file or in several that were written at the same time.
        assert sum(os.path.getsize(p) for p in glob.glob(prefix + ".data-*")) == 64 << 20
        zeroed(s, made)
        saver.restore(s, prefix)
        equal(s.run(sums), before)


def case_steps_go_on_while_one_saves(target):
    fresh(target)
    with folder() as path, session(target) as s:
        big = v1.get_variable("big", initializer=tf.zeros([8 << 20]), use_resource=True)
        count = v1.get_variable("count", initializer=0, use_resource=True)
        more = count.assign_add(1, read_value=False)
        saver = v1.train.Saver([big])
        s.run(v1.global_variables_initializer())
        is_over, counted = threading.Event(), []

        def steps():
            while not is_over.is_set():
                s.run(more)
                counted.append(1)

        thread = threading.Thread(target=steps)
        thread.start()
        for i in range(3):
            saver.save(s, f"{path}/m", global_step=i, write_meta_graph=False)
        is_over.set()
        thread.join()
        assert s.run(count) == len(counted) > 3


def case_damage_is_told(target):
    fresh(target)
    with folder() as path, session(target) as s:
        w = v1.get_variable("w", initializer=tf.range(1000.0), use_resource=True)
        s.run(v1.global_variables_initializer())
        saver = v1.train.Saver()
        prefix = saver.save(s, f"{path}/m")
        data = f"{prefix}.data-00000-of-00001"
        with open(data, "r+b") as file:
            file.seek(2000)
            file.write(b"\x55")
        with raises(tf.errors.DataLossError, "m"):
            saver.restore(s, prefix)
        os.truncate(data, 1000)
        with raises(tf.errors.OutOfRangeError):
            saver.restore(s, prefix)
        os.truncate(f"{prefix}.index", 10)
        with raises(tf.errors.DataLossError, "m"):
            saver.restore(s, prefix)
        equal(s.run(w), np.arange(1000, dtype=np.float32))
