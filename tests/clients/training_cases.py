"""Models that learn, with every optimizer, on reference and resource variables."""

import numpy as np
import tensorflow as tf
from support import close, fresh, session, v1


def regression(target, optimizer, use_resource, steps=60):
    """Fits a line; the loss must fall to a tenth. Returns the weights."""
    fresh(target)
    random = np.random.RandomState(1)
    points = random.rand(64, 3).astype("f")
    values = points @ np.array([[1.0], [-2.0], [0.5]], "f") + 0.3
    with session(target) as s:
        x, y = v1.placeholder(tf.float32, [None, 3]), v1.placeholder(tf.float32, [None, 1])
        w = v1.get_variable("w", initializer=tf.zeros([3, 1]), use_resource=use_resource)
        b = v1.get_variable("b", initializer=tf.zeros([1]), use_resource=use_resource)
        loss = tf.reduce_mean(tf.square(tf.matmul(x, w) + b - y))
        train = optimizer.minimize(loss)
        s.run(v1.global_variables_initializer())
        first = s.run(loss, {x: points, y: values})
        for _ in range(steps):
            s.run(train, {x: points, y: values})
        last = s.run(loss, {x: points, y: values})
        assert last < 0.5 * first, (first, last)
        return s.run(w)


def both(target, make):
    close(regression(target, make(), True), regression(target, make(), False), 1e-4)


def case_gradient_descent(target):
    both(target, lambda: v1.train.GradientDescentOptimizer(0.1))


def case_momentum(target):
    both(target, lambda: v1.train.MomentumOptimizer(0.05, 0.9))


def case_nesterov(target):
    both(target, lambda: v1.train.MomentumOptimizer(0.05, 0.9, use_nesterov=True))


def case_adagrad(target):
    both(target, lambda: v1.train.AdagradOptimizer(0.5))


def case_adadelta(target):
    both(target, lambda: v1.train.AdadeltaOptimizer(50.0))


def case_rmsprop(target):
    both(target, lambda: v1.train.RMSPropOptimizer(0.05))


def case_centered_rmsprop(target):
    both(target, lambda: v1.train.RMSPropOptimizer(0.05, centered=True))


def case_adam(target):
    both(target, lambda: v1.train.AdamOptimizer(0.1))


def case_ftrl(target):
    both(target, lambda: v1.train.FtrlOptimizer(0.5))


def case_proximal_adagrad(target):
    both(target, lambda: v1.train.ProximalAdagradOptimizer(0.5))


def case_proximal_gradient_descent(target):
    both(target, lambda: v1.train.ProximalGradientDescentOptimizer(0.1))


def case_adagrad_dual_averaging(target):
    fresh(target)
    with session(target) as s:
        w = v1.get_variable("w", initializer=[1.0, -1.0], use_resource=False)
        step = v1.train.get_or_create_global_step()
        loss = tf.reduce_sum(tf.square(w - 3.0))
        train = v1.train.AdagradDAOptimizer(0.5, step).minimize(loss, global_step=step)
        s.run(v1.global_variables_initializer())
        first = s.run(loss)
        for _ in range(40):
            s.run(train)
        assert s.run(loss) < 0.5 * first


def case_embedding_with_sparse_gradients(target):
    fresh(target)
    with session(target) as s:
        ids = v1.placeholder(tf.int32, [None])
        table = v1.get_variable("table", initializer=tf.ones([100, 4]), use_resource=True)
        loss = tf.reduce_sum(tf.square(tf.nn.embedding_lookup(table, ids)))
        train = v1.train.AdamOptimizer(0.1).minimize(loss)
        s.run(v1.global_variables_initializer())
        for _ in range(30):
            s.run(train, {ids: [3, 7, 3]})
        got = s.run(table)
        assert abs(got[[3, 7]]).max() < 0.5
        close(got[0], np.ones(4))


def case_convolutional_network(target):
    fresh(target)
    random = np.random.RandomState(0)
    images = random.rand(32, 8, 8, 1).astype("f")
    labels = (images.mean(axis=(1, 2, 3)) > 0.5).astype("i")
    with session(target) as s:
        x, y = v1.placeholder(tf.float32, [None, 8, 8, 1]), v1.placeholder(tf.int32, [None])
        filters = v1.get_variable("filters", [3, 3, 1, 8],
                                  initializer=v1.truncated_normal_initializer(0, 0.1, seed=1))
        hidden = tf.nn.relu(tf.nn.conv2d(x, filters, 1, "SAME"))
        pooled = tf.reshape(tf.nn.max_pool2d(hidden, 2, 2, "SAME"), [-1, 128])
        w = v1.get_variable("w", [128, 2], initializer=v1.zeros_initializer())
        logits = tf.matmul(pooled, w)
        loss = tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
        train = v1.train.AdamOptimizer(0.01).minimize(loss)
        s.run(v1.global_variables_initializer())
        feeds = {x: images, y: labels}
        first = s.run(loss, feeds)
        for _ in range(60):
            s.run(train, feeds)
        assert s.run(loss, feeds) < 0.7 * first


def case_clipping_by_norm(target):
    fresh(target)
    with session(target) as s:
        w = v1.get_variable("w", initializer=[5.0, -5.0], use_resource=True)
        loss = tf.reduce_sum(tf.square(w))
        optimizer = v1.train.GradientDescentOptimizer(0.5)
        pairs = optimizer.compute_gradients(loss)
        clipped, norm = tf.clip_by_global_norm([g for g, _ in pairs], 1.0)
        train = optimizer.apply_gradients(zip(clipped, [v for _, v in pairs], strict=True))
        s.run(v1.global_variables_initializer())
        close(s.run(norm), np.sqrt(200.0), 1e-4)
        s.run(train)
        half = 0.5 / np.sqrt(2)
        close(s.run(w), [5 - half, -5 + half], 1e-4)
