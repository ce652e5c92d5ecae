"""Several clients on one server: shared and private state, clients that exit or are killed."""

import signal
import threading
import time

import numpy as np
import tensorflow as tf
from support import Elsewhere, close, equal, fresh, pairs, session, v1


def hold(target, pipe):
    """A client whose session is reset under it."""
    s = v1.Session(target)
    v = v1.get_variable("held", initializer=1.0, use_resource=True)
    s.run(v.initializer)
    pipe.send(("ready", None))
    pipe.recv()
    try:
        s.run(v)
    except tf.errors.OpError as error:
        return type(error).__name__
    return "it went on"


def case_a_reset_reaches_other_clients(target):
    others = [Elsewhere(hold, target) for _ in range(3)]
    assert [other.result() for other in others] == ["ready"] * 3
    fresh(target)
    for other in others:
        other.say("go")
    assert [other.result() for other in others] == ["AbortedError"] * 3


def increment(target, amount, times, pipe):
    with session(target) as s:
        v = v1.get_variable("sum", initializer=0, use_resource=True)
        add = v.assign_add(amount, read_value=False)
        for _ in range(times):
            s.run(add)
    return "done"


def initialize(target, pipe):
    fresh(target)
    with session(target) as s:
        v = v1.get_variable("sum", initializer=0, use_resource=True)
        s.run(v.initializer)
    return "done"


def case_no_addition_is_lost(target):
    assert Elsewhere(initialize, target).result() == "done"
    others = [Elsewhere(increment, target, 1000**i, 60) for i in range(3)]
    assert [other.result() for other in others] == ["done"] * 3
    with session(target) as s:
        assert s.run(v1.get_variable("sum", initializer=0, use_resource=True)) == 60060060


def consume(target, count, pipe):
    with session(target) as s:
        queue = tf.queue.FIFOQueue(3, tf.int32, shapes=[], shared_name="between_processes")
        take = queue.dequeue()
        return [int(s.run(take)) for _ in range(count)]


def case_a_queue_between_processes(target):
    consumers = [Elsewhere(consume, target, 25) for _ in range(2)]
    with session(target) as s:
        queue = tf.queue.FIFOQueue(3, tf.int32, shapes=[], shared_name="between_processes")
        x = v1.placeholder(tf.int32, [])
        put = queue.enqueue(x)
        for i in range(50):
            s.run(put, {x: i})
        got = [c.result() for c in consumers]
    assert sorted(got[0] + got[1]) == list(range(50))
    assert all(part == sorted(part) for part in got)


def wait_for_ever(target, pipe):
    with session(target) as s:
        queue = tf.queue.FIFOQueue(3, tf.int32, shapes=[], shared_name="never_filled")
        x = v1.placeholder(tf.float32)
        v = v1.get_variable("held", initializer=1.0, use_resource=True)
        s.run(v.initializer)
        s.run(queue.size())
        pipe.send(("waiting", None))
        s.run([queue.dequeue(), x], {x: np.ones(1 << 20, "f")})


def case_a_client_is_killed_in_a_step(target):
    for _ in range(3):
        other = Elsewhere(wait_for_ever, target)
        assert other.result() == "waiting"
        time.sleep(0.5)
        other.kill()
        assert other.process.exitcode == -signal.SIGKILL
    time.sleep(0.5)
    with session(target) as s:
        # The killed clients' dequeues are cancelled: enqueued elements stay.
        queue = tf.queue.FIFOQueue(3, tf.int32, shapes=[], shared_name="never_filled")
        s.run(queue.enqueue(42))
        assert s.run(queue.size()) == 1 and s.run(queue.dequeue()) == 42
        close(s.run(v1.get_variable("held", initializer=0.0, use_resource=True)), 1)


def train_apart(target, seed, pipe):
    with session(target) as s:
        with v1.container(f"client{seed}"):
            w = v1.get_variable("w", initializer=float(seed), use_resource=True)
        step = w.assign_add(1.0)
        s.run(w.initializer)
        for _ in range(20):
            s.run(step)
        return float(s.run(w))


def case_containers_keep_clients_apart(target):
    others = [Elsewhere(train_apart, target, seed) for seed in range(4)]
    assert [other.result() for other in others] == [20, 21, 22, 23]
    v1.Session.reset(target, ["client1"])
    with session(target) as s:
        with v1.container("client1"):
            gone = v1.get_variable("w", initializer=0.0, use_resource=True)
        with v1.container("client2"):
            kept = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], shared_name="w")
        assert not s.run(v1.is_variable_initialized(gone))
        close(s.run(tf.raw_ops.ReadVariableOp(resource=kept, dtype=tf.float32)), 22)


def case_sixty_four_sessions_at_once(target):
    graphs, sessions, wrong = [], [], []
    for n in range(64):
        graph = tf.Graph()
        with graph.as_default():
            x = v1.placeholder(tf.float32, [None])
            y = tf.reduce_sum(x) * float(n + 1)
            sessions.append((v1.Session(target, graph=graph), x, y))
        graphs.append(graph)

    def work(n):
        s, x, y = sessions[n]
        for i in range(15):
            got = s.run(y, {x: np.full(i + 1, n, "f")})
            if got != (i + 1) * n * (n + 1):
                wrong.append((n, i, got))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(64)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    [s.close() for s, _, _ in sessions]
    assert not wrong, wrong


def case_sixty_four_steps_that_wait(target):
    with session(target) as s:
        queues = [tf.queue.FIFOQueue(1, tf.int32, shapes=[]) for _ in range(64)]
        takes = [queue.dequeue() for queue in queues]
        puts = [queue.enqueue(n) for n, queue in enumerate(queues)]
        s.run(queues[0].size())
        got = [None] * 64

        def work(n):
            got[n] = s.run(takes[n])

        threads = [threading.Thread(target=work, args=(n,)) for n in range(64)]
        [t.start() for t in threads]
        time.sleep(0.5)
        assert got == [None] * 64
        for put in reversed(puts):
            s.run(put)
        [t.join(30) for t in threads]
        assert got == list(range(64)), got


def case_reference_variables_are_shared_too(target):
    fresh(target)
    with session(target) as s:
        v = v1.get_variable("shared_ref", initializer=[1.0, 2.0], use_resource=False)
        s.run(v.initializer)
        s.run(v1.scatter_add(v, [1], [5.0]))
    with session(target) as s:
        v = v1.get_variable("shared_ref", initializer=[0.0, 0.0], use_resource=False)
        close(s.run(v), [1, 7])


def case_isolated_state_is_private(target):
    fresh(target)
    config = v1.ConfigProto(isolate_session_state=True)
    with session(target) as s:
        v = v1.get_variable("same_name", initializer=1.0, use_resource=True)
        s.run(v.initializer)
        with session(target, config=config) as inner:
            w = v1.get_variable("same_name", initializer=5.0, use_resource=True)
            assert not inner.run(v1.is_variable_initialized(w))
            inner.run(w.initializer)
            inner.run(w.assign_add(1.0))
            close(inner.run(w), 6)
        close(s.run(v), 1)


def case_seeds_repeat(target):
    def draw():
        with session(target) as s:
            v1.set_random_seed(4)
            a, b = tf.random.uniform([3], seed=1), tf.random.normal([3], seed=2)
            c = tf.random.uniform([4], 0, 100, tf.int32, seed=3)
            return [s.run([a, b, c]) for _ in range(2)]

    first, second = draw(), draw()
    for one, other in pairs(first, second):
        for x, y in pairs(one, other):
            equal(x, y)
    assert (first[0][0] != first[1][0]).any()
    with tf.Graph().as_default(), v1.Session() as local:
        v1.set_random_seed(4)
        a, b = tf.random.uniform([3], seed=1), tf.random.normal([3], seed=2)
        c = tf.random.uniform([4], 0, 100, tf.int32, seed=3)
        wanted = local.run([a, b, c])
    equal(first[0][0], wanted[0]), close(first[0][1], wanted[1]), equal(first[0][2], wanted[2])


def case_moving_averages(target):
    fresh(target)
    with session(target) as s:
        v = v1.get_variable("v", initializer=10.0, use_resource=True)
        average = tf.train.ExponentialMovingAverage(0.9)
        update = average.apply([v])
        s.run(v1.global_variables_initializer())
        wanted = 10.0
        for i in range(5):
            s.run(v.assign(float(i)))
            s.run(update)
            wanted = 0.9 * wanted + 0.1 * i
        close(s.run(average.average(v)), wanted)


def case_learning_rates_that_decay(target):
    fresh(target)
    with session(target) as s:
        step = v1.train.get_or_create_global_step()
        rate = v1.train.exponential_decay(1.0, step, 10, 0.5, staircase=False)
        w = v1.get_variable("w", initializer=0.0, use_resource=True)
        train = v1.train.GradientDescentOptimizer(rate).apply_gradients(
            [(tf.constant(-1.0), w)], global_step=step)
        s.run(v1.global_variables_initializer())
        for _ in range(6):
            s.run(train)
        close(s.run(w), sum(0.5 ** (i / 10) for i in range(6)))
        close(s.run(rate), 0.5**0.6)
