"""Each optimizer's update, step by step against the same rule in NumPy: dense and sparse, on
reference and on resource variables."""

import numpy as np
import tensorflow as tf
from support import close, fresh, pairs, session, v1

START = np.array([[1.0, -2.0], [0.5, 3.0], [-1.5, 0.25], [2.0, -0.75]], "f")
DENSE = [np.array([[0.5, -0.25], [1.0, 0.125], [-0.75, 2.0], [0.0, 0.5]], "f") * f
         for f in (1.0, -0.5, 0.75)]
# Rows of a sparse gradient; the row 2 occurs twice and its parts are summed.
ROWS = np.array([2, 0, 2], "i")
SPARSE = [np.array([[0.5, 1.0], [-0.25, 0.75], [0.25, -2.0]], "f") * f for f in (1.0, 0.5, -1.5)]


def summed(values):
    """The sparse gradient as rows and their sums."""
    rows = np.unique(ROWS)
    return rows, np.array([values[ROWS == row].sum(axis=0) for row in rows])


def expected(rule, slots, sparse, decays_all_rows):
    """The variable after each of the steps, by `rule(step, variable, gradient, *slots)`, which
    gives the new variable and the new slots."""
    variable = START.astype("d")
    slots = [np.full_like(variable, start) for start in slots]
    history = []
    for step, gradient in enumerate(SPARSE if sparse else DENSE, 1):
        rows = slice(None)
        if sparse:
            rows, gradient = summed(gradient)
        if sparse and decays_all_rows:
            whole = np.zeros_like(variable)
            whole[rows] = gradient
            rows, gradient = slice(None), whole
        new, *new_slots = rule(step, variable[rows], gradient, *[s[rows] for s in slots])
        variable[rows] = new
        for slot, value in pairs(slots, new_slots):
            slot[rows] = value
        history.append(variable.copy())
    return history


def check(target, make, rule, slots=(), decays_all_rows=False, forms=(True, False)):
    """Trains with the optimizer that `make(step)` gives; compares after every step."""
    for use_resource in forms:
        for sparse in (False, True):
            wanted = expected(rule, slots, sparse, decays_all_rows)
            fresh(target)
            with session(target) as s:
                step = v1.train.get_or_create_global_step()
                v = v1.get_variable("v", initializer=START, use_resource=use_resource)
                fed = v1.placeholder(tf.float32, [None, 2])
                gradient = tf.IndexedSlices(fed, tf.constant(ROWS), tf.constant([4, 2]))
                gradients = [(gradient if sparse else fed, v)]
                train = make(step).apply_gradients(gradients, global_step=step)
                s.run(v1.global_variables_initializer())
                for value, after in pairs(SPARSE if sparse else DENSE, wanted):
                    s.run(train, {fed: value})
                    close(s.run(v), after)
                assert s.run(step) == 3


def case_gradient_descent(target):
    check(target, lambda _: v1.train.GradientDescentOptimizer(0.1), lambda t, v, g: (v - 0.1 * g,))


def momentum(nesterov):
    def rule(_, v, g, a):
        a = 0.9 * a + g
        return v - 0.1 * (g + 0.9 * a if nesterov else a), a

    return rule


def case_momentum(target):
    check(target, lambda _: v1.train.MomentumOptimizer(0.1, 0.9), momentum(False), [0])


def case_nesterov(target):
    check(target, lambda _: v1.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
          momentum(True), [0])


def case_adagrad(target):
    def rule(_, v, g, a):
        a = a + g * g
        return v - 0.3 * g / np.sqrt(a), a

    check(target, lambda _: v1.train.AdagradOptimizer(0.3, 0.1), rule, [0.1])


def case_adagrad_dual_averaging(target):
    def rule(t, v, g, sums, squares):
        sums, squares = sums + g, squares + g * g
        kept = np.sign(sums) * np.maximum(np.abs(sums) - 0.01 * t, 0)
        return -0.3 * kept / (0.02 * t * 0.3 + np.sqrt(squares)), sums, squares

    check(target, lambda step: v1.train.AdagradDAOptimizer(
        0.3, step, initial_gradient_squared_accumulator_value=0.1,
        l1_regularization_strength=0.01, l2_regularization_strength=0.02), rule, [0, 0.1])


def case_adadelta(target):
    def rule(_, v, g, a, u):
        a = 0.9 * a + 0.1 * g * g
        update = np.sqrt(u + 1e-4) / np.sqrt(a + 1e-4) * g
        return v - 2.0 * update, a, 0.9 * u + 0.1 * update * update

    check(target, lambda _: v1.train.AdadeltaOptimizer(2.0, 0.9, 1e-4), rule, [0, 0])


def case_rmsprop(target):
    def rule(_, v, g, ms, mom):
        ms = 0.9 * ms + 0.1 * g * g
        mom = 0.5 * mom + 0.1 * g / np.sqrt(ms + 1e-3)
        return v - mom, ms, mom

    check(target, lambda _: v1.train.RMSPropOptimizer(0.1, 0.9, 0.5, 1e-3), rule, [1, 0])


def case_centered_rmsprop(target):
    def rule(_, v, g, ms, mom, mg):
        ms, mg = 0.9 * ms + 0.1 * g * g, 0.9 * mg + 0.1 * g
        mom = 0.5 * mom + 0.1 * g / np.sqrt(ms - mg * mg + 1e-3)
        return v - mom, ms, mom, mg

    check(target, lambda _: v1.train.RMSPropOptimizer(0.1, 0.9, 0.5, 1e-3, centered=True), rule,
          [1, 0, 0])


def adam(t, v, g, m, s):
    m, s = 0.8 * m + 0.2 * g, 0.9 * s + 0.1 * g * g
    rate = 0.1 * np.sqrt(1 - 0.9**t) / (1 - 0.8**t)
    return v - rate * m / (np.sqrt(s) + 1e-4), m, s


def case_adam(target):
    # Rows without a gradient are updated by their momentum.
    check(target, lambda _: v1.train.AdamOptimizer(0.1, 0.8, 0.9, 1e-4), adam, [0, 0],
          decays_all_rows=True)


def ftrl(shrinkage):
    def rule(_, v, g, a, linear):
        new = a + g * g
        sigma = (np.sqrt(new) - np.sqrt(a)) / 0.5
        linear = linear + g + 2 * shrinkage * v - sigma * v
        quadratic = np.sqrt(new) / 0.5 + 2 * 0.02
        v = np.where(np.abs(linear) > 0.01, (np.sign(linear) * 0.01 - linear) / quadratic, 0)
        return v, new, linear

    return rule


def case_ftrl(target):
    check(target, lambda _: v1.train.FtrlOptimizer(
        0.5, initial_accumulator_value=0.1, l1_regularization_strength=0.01,
        l2_regularization_strength=0.02), ftrl(0.0), [0.1, 0])


def case_ftrl_with_shrinkage(target):
    check(target, lambda _: v1.train.FtrlOptimizer(
        0.5, initial_accumulator_value=0.1, l1_regularization_strength=0.01,
        l2_regularization_strength=0.02, l2_shrinkage_regularization_strength=0.03), ftrl(0.03),
        [0.1, 0])


def shrunk(v, rate):
    return np.sign(v) * np.maximum(np.abs(v) - rate * 0.05, 0) / (1 + rate * 0.02)


def case_proximal_gradient_descent(target):
    check(target, lambda _: v1.train.ProximalGradientDescentOptimizer(
        0.3, l1_regularization_strength=0.05, l2_regularization_strength=0.02),
        lambda t, v, g: (shrunk(v - 0.3 * g, 0.3),))


def case_proximal_adagrad(target):
    def rule(_, v, g, a):
        a = a + g * g
        rate = 0.3 / np.sqrt(a)
        return shrunk(v - rate * g, rate), a

    check(target, lambda _: v1.train.ProximalAdagradOptimizer(
        0.3, initial_accumulator_value=0.1, l1_regularization_strength=0.05,
        l2_regularization_strength=0.02), rule, [0.1])


def check_raw(target, update, rule, slots, ref_update=None):
    """The same for an op without an optimizer: `update(v, slots, gradient, step)` builds it."""
    for use_resource in (True, False):
        make = update if use_resource else ref_update
        if make is None:
            continue
        wanted = expected(rule, slots, False, False)
        fresh(target)
        with session(target) as s:
            v = v1.get_variable("v", initializer=START, use_resource=use_resource)
            state = [v1.get_variable(f"slot{i}", initializer=np.full_like(START, start),
                                     use_resource=use_resource) for i, start in enumerate(slots)]
            fed, step = v1.placeholder(tf.float32, [4, 2]), v1.placeholder(tf.float32, [])
            if use_resource:
                train = make(v.handle, [x.handle for x in state], fed, step)
            else:
                train = make(v._ref(), [x._ref() for x in state], fed, step)
            s.run(v1.global_variables_initializer())
            for t, (value, after) in enumerate(pairs(DENSE, wanted), 1):
                s.run(train.op if hasattr(train, "op") else train, {fed: value, step: t})
                close(s.run(v), after)


def case_adamax(target):
    def rule(t, v, g, m, u):
        m, u = 0.8 * m + 0.2 * g, np.maximum(0.9 * u, np.abs(g))
        return v - 0.1 / (1 - 0.8**t) * m / (u + 1e-4), m, u

    def update(op):
        return lambda v, slots, g, t: op(
            var=v, m=slots[0], v=slots[1], beta1_power=tf.pow(0.8, t), lr=0.1, beta1=0.8,
            beta2=0.9, epsilon=1e-4, grad=g)

    check_raw(target, update(tf.raw_ops.ResourceApplyAdaMax), rule, [0, 0],
              update(tf.raw_ops.ApplyAdaMax))


def case_amsgrad(target):
    def rule(t, v, g, m, s, high):
        m, s = 0.8 * m + 0.2 * g, 0.9 * s + 0.1 * g * g
        high = np.maximum(high, s)
        rate = 0.1 * np.sqrt(1 - 0.9**t) / (1 - 0.8**t)
        return v - rate * m / (np.sqrt(high) + 1e-4), m, s, high

    check_raw(target, lambda v, slots, g, t: tf.raw_ops.ResourceApplyAdamWithAmsgrad(
        var=v, m=slots[0], v=slots[1], vhat=slots[2], beta1_power=tf.pow(0.8, t),
        beta2_power=tf.pow(0.9, t), lr=0.1, beta1=0.8, beta2=0.9, epsilon=1e-4, grad=g), rule,
        [0, 0, 0])


def case_power_sign(target):
    def rule(_, v, g, m):
        m = 0.8 * m + 0.2 * g
        return v - 0.1 * np.exp(0.7 * 0.5 * np.sign(g) * np.sign(m)) * g, m

    def update(op):
        return lambda v, slots, g, t: op(
            var=v, m=slots[0], lr=0.1, logbase=0.7, sign_decay=0.5, beta=0.8, grad=g)

    check_raw(target, update(tf.raw_ops.ResourceApplyPowerSign), rule, [0],
              update(tf.raw_ops.ApplyPowerSign))


def case_add_sign(target):
    def rule(_, v, g, m):
        m = 0.8 * m + 0.2 * g
        return v - 0.1 * (1.5 + 0.5 * np.sign(g) * np.sign(m)) * g, m

    def update(op):
        return lambda v, slots, g, t: op(
            var=v, m=slots[0], lr=0.1, alpha=1.5, sign_decay=0.5, beta=0.8, grad=g)

    check_raw(target, update(tf.raw_ops.ResourceApplyAddSign), rule, [0],
              update(tf.raw_ops.ApplyAddSign))


def case_adagrad_v2(target):
    def rule(_, v, g, a):
        a = a + g * g
        return v - 0.3 * g / (np.sqrt(a) + 1e-3), a

    def update(op):
        return lambda v, slots, g, t: op(var=v, accum=slots[0], lr=0.3, epsilon=1e-3, grad=g)

    check_raw(target, update(tf.raw_ops.ResourceApplyAdagradV2), rule, [0.1],
              update(tf.raw_ops.ApplyAdagradV2))


def case_keras_momentum(target):
    def rule(_, v, g, a):
        a = 0.9 * a - 0.1 * g
        return v + 0.9 * a - 0.1 * g, a

    check_raw(target, lambda v, slots, g, t: tf.raw_ops.ResourceApplyKerasMomentum(
        var=v, accum=slots[0], lr=0.1, grad=g, momentum=0.9, use_nesterov=True), rule, [0])


def case_adam_with_nesterov(target):
    def rule(t, v, g, m, s):
        m, s = 0.8 * m + 0.2 * g, 0.9 * s + 0.1 * g * g
        rate = 0.1 * np.sqrt(1 - 0.9**t) / (1 - 0.8**t)
        return v - rate * (0.8 * m + 0.2 * g) / (np.sqrt(s) + 1e-4), m, s

    def update(op):
        return lambda v, slots, g, t: op(
            var=v, m=slots[0], v=slots[1], beta1_power=tf.pow(0.8, t),
            beta2_power=tf.pow(0.9, t), lr=0.1, beta1=0.8, beta2=0.9, epsilon=1e-4, grad=g,
            use_nesterov=True)

    check_raw(target, update(tf.raw_ops.ResourceApplyAdam), rule, [0, 0],
              update(tf.raw_ops.ApplyAdam))
