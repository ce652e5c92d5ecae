//! Attention in a region's graph: softmax(scale q kᵀ + mask) v and its gradient become fused calls where the plugin
//! has them.
//!
//! Nodes are recognised as they are lowered. The product with v becomes the output of the call, and the products that
//! are the adjoints of q, k and v become results of the gradient's call. What lies between is lowered as usual: nothing
//! reads it then, unless the program has another use for it, and the compiler drops it.

use rustc_hash::FxHashMap;
use thalweg_graph::{Endpoint, Node, NodeId, Role};
use thalweg_hlo::{Attention, Value};
use thalweg_kernel::{Operand, Value as EdgeValue};
use thalweg_plan::Evaluator;
use thalweg_tensor::{DType, Tensor, bf16, f16};

use crate::compile::Body;

/// Most elements of a mask that is evaluated.
const MASK_ELEMENTS_MAX: usize = 1 << 24;
/// Most bytes of tensors while masks are evaluated.
const MASK_BYTES_MAX: usize = 512 << 20;
/// Longest path from a mask to its constants.
const MASK_DEPTH_MAX: usize = 16;
/// Most nodes between the scores and their softmax, and between its adjoint and that of the scores.
const STEPS_MAX: usize = 16;
/// A score with this much added has no weight: e to this power is 0 in every dtype.
const BLOCKED: f32 = -1e4;

/// The attentions of a graph so far.
#[derive(Default)]
pub(crate) struct Attentions {
    /// Whether they are looked for.
    pub(crate) is_enabled: bool,
    found: Vec<Found>,
    /// What masks evaluate to.
    known: FxHashMap<Endpoint, Option<Tensor>>,
    evaluator: Option<Evaluator>,
}

impl Attentions {
    pub(crate) fn new(is_enabled: bool) -> Attentions {
        Attentions { is_enabled, ..Attentions::default() }
    }
}

/// An attention whose call is part of the program.
struct Found {
    attention: Attention,
    /// The softmax.
    weights: Endpoint,
    q: Endpoint,
    k: Endpoint,
    v: Endpoint,
    output: Value,
    statistics: Value,
    /// The adjoints of q, k and v by adjoints of the output.
    gradients: Vec<(Endpoint, [Value; 3])>,
}

/// A product of stacks of matrices.
struct Product {
    x: Endpoint,
    adj_x: bool,
    y: Endpoint,
    adj_y: bool,
}

/// What happens to each score.
enum Step {
    Scale(f32),
    Multiply(Tensor),
    Add(Tensor, f32),
    /// Where the condition is not `keeps`, the score is replaced.
    Select {
        condition: Tensor,
        keeps: bool,
        other: Tensor,
    },
}

impl Body<'_> {
    /// The output of a product that is part of a fused attention or of its gradient.
    pub(crate) fn fused_attention(&mut self, id: NodeId) -> Option<Value> {
        if !self.attentions.is_enabled {
            return None;
        }
        let product = self.product(id)?;
        match (product.adj_x, product.adj_y) {
            (false, false) => {
                self.attention_output(&product).or_else(|| self.score_adjoint_product(&product))
            }
            (true, false) => {
                self.weights_product(&product).or_else(|| self.score_adjoint_product(&product))
            }
            _ => None,
        }
    }

    /// weights v
    fn attention_output(&mut self, product: &Product) -> Option<Value> {
        let weights = self.without_casts(product.x);
        let node = self.graph.node(weights.node);
        if node.op.name != "Softmax" {
            return None;
        }
        let (scores, steps) = self.scores(*node.inputs.first()?)?;
        let (q, k, v) = (scores.x, scores.y, product.y);
        let [q_value, k_value, v_value] = [self.lowered(q)?, self.lowered(k)?, self.lowered(v)?];
        let lengths = match (q_value.dims(), k_value.dims()) {
            (&[_, _, length, _], &[_, _, k_length, _]) => (length, k_length),
            _ => return None,
        };
        let scale = scale_of(&steps);
        let is_causal = is_causal(&steps, scale, lengths)?;
        let attention = Attention { scale: scale.into(), is_causal };
        let is_supported = v_value.dims() == k_value.dims()
            && v_value.dtype() == q_value.dtype()
            && attention.is_supported(
                self.program,
                v_value.dtype(),
                q_value.dims(),
                k_value.dims(),
            );
        if !is_supported {
            return None;
        }
        let (output, statistics) = attention.forward(&q_value, &k_value, &v_value);
        self.attentions.found.push(Found {
            attention,
            weights,
            q,
            k,
            v,
            output: output.clone(),
            statistics,
            gradients: Vec::new(),
        });
        Some(output)
    }

    /// weightsᵀ adjoint: the adjoint of v.
    fn weights_product(&mut self, product: &Product) -> Option<Value> {
        let weights = self.without_casts(product.x);
        let index = self.attentions.found.iter().position(|found| found.weights == weights)?;
        self.gradient(index, product.y).map(|[_, _, v]| v)
    }

    /// The adjoint of the scores by k: that of q; transposed by q: that of k.
    fn score_adjoint_product(&mut self, product: &Product) -> Option<Value> {
        let fits = |found: &Found| match product.adj_x {
            false => found.k == product.y,
            true => found.q == product.y,
        };
        for index in 0..self.attentions.found.len() {
            if !fits(&self.attentions.found[index]) {
                continue;
            }
            if let Some(adjoint) = self.adjoint_behind(index, product.x) {
                let [q, k, _] = self.gradient(index, adjoint)?;
                return Some(if product.adj_x { k } else { q });
            }
        }
        None
    }

    /// The adjoint of the output from which the adjoint of the scores at `e` is computed.
    fn adjoint_behind(&mut self, index: usize, mut e: Endpoint) -> Option<Endpoint> {
        let mut steps = Vec::new();
        let weights_adjoint = loop {
            if steps.len() > STEPS_MAX {
                return None;
            }
            e = self.without_casts(e);
            if let Some(found) = self.softmax_adjoint(e, self.attentions.found[index].weights) {
                break self.without_casts(found);
            }
            let (step, next) = self.step(e)?;
            steps.push(step);
            e = next;
        };
        steps.reverse();
        let product = self.product(weights_adjoint.node)?;
        let found = &self.attentions.found[index];
        let (q, k) = (self.lowered(found.q)?, self.lowered(found.k)?);
        // Scores without weight have no adjoint, whatever the steps do to it.
        let lengths = (*q.dims().get(2)?, *k.dims().get(2)?);
        let scale = found.attention.scale as f32;
        let is_same = !product.adj_x
            && product.adj_y
            && product.y == found.v
            && keeps(&steps, scale, lengths, found.attention.is_causal);
        is_same.then_some(product.x)
    }

    /// weights (adjoint - Σ adjoint weights): the adjoint of the weights.
    fn softmax_adjoint(&self, e: Endpoint, weights: Endpoint) -> Option<Endpoint> {
        let factors = |e: Endpoint| -> Option<Endpoint> {
            let node = self.named(e, &["Mul"])?;
            let [x, y] = [self.plain(node.inputs[0]), self.plain(node.inputs[1])];
            match (x == weights, y == weights) {
                (false, true) => Some(x),
                (true, false) => Some(y),
                _ => None,
            }
        };
        let centred = self.named(factors(e)?, &["Sub"])?;
        let [adjoint, mean] = [self.plain(centred.inputs[0]), self.plain(centred.inputs[1])];
        let sum = self.named(mean, &["Sum"])?;
        let rank = self.lowered(adjoint)?.rank() as i64;
        let axis = match &self.operand(sum.inputs[1]) {
            Operand::Host(axes) if axes.num_elements() == 1 => integer(axes)?,
            _ => return None,
        };
        let is_over_rows =
            (axis == -1 || axis == rank - 1) && sum.attrs().bool("keep_dims").ok()?;
        let weighted = factors(self.plain(sum.inputs[0]))?;
        (is_over_rows && weighted == adjoint).then_some(adjoint)
    }

    /// The product q kᵀ behind the logits of a softmax, and what happens to the scores between, in its order.
    fn scores(&mut self, mut e: Endpoint) -> Option<(Product, Vec<Step>)> {
        let mut steps = Vec::new();
        loop {
            e = self.without_casts(e);
            if let Some(product) = self.product(e.node) {
                steps.reverse();
                return (!product.adj_x && product.adj_y).then_some((product, steps));
            }
            if steps.len() > STEPS_MAX {
                return None;
            }
            let (step, next) = self.step(e)?;
            steps.push(step);
            e = next;
        }
    }

    /// What the node does to scores, and where it has them from.
    fn step(&mut self, e: Endpoint) -> Option<(Step, Endpoint)> {
        let node = self.graph.node(e.node);
        let op = node.op.name.clone();
        let inputs: Vec<Endpoint> = node.inputs.iter().copied().collect();
        let factor = |tensor: Tensor| match tensor.num_elements() {
            1 => Some(Step::Scale(*numbers(&tensor)?.first()?)),
            _ => Some(Step::Multiply(tensor)),
        };
        match (&*op, &inputs[..]) {
            ("Mul", &[x, y]) => match self.known_mask(y, 0) {
                Some(known) => Some((factor(known)?, x)),
                None => Some((factor(self.known_mask(x, 0)?)?, y)),
            },
            ("RealDiv" | "Div", &[x, y]) => {
                let divisor = self.known_mask(y, 0).filter(|t| t.num_elements() == 1)?;
                Some((Step::Scale(numbers(&divisor)?.first()?.recip()), x))
            }
            ("Add" | "AddV2", &[x, y]) => match self.known_mask(y, 0) {
                Some(known) => Some((Step::Add(known, 1.0), x)),
                None => Some((Step::Add(self.known_mask(x, 0)?, 1.0), y)),
            },
            ("Sub", &[x, y]) => Some((Step::Add(self.known_mask(y, 0)?, -1.0), x)),
            ("Select" | "SelectV2", &[condition, x, y]) => {
                let condition = self.known_mask(condition, 0)?;
                // The vector of a `Select` chooses rows of the first dimension.
                if op == "Select" && condition.rank() == 1 {
                    return None;
                }
                let (keeps, other, next) = match self.known_mask(y, 0) {
                    Some(other) => (true, other, x),
                    None => (false, self.known_mask(x, 0)?, y),
                };
                Some((Step::Select { condition, keeps, other }, next))
            }
            _ => None,
        }
    }

    /// The adjoints of q, k and v.
    fn gradient(&mut self, index: usize, adjoint: Endpoint) -> Option<[Value; 3]> {
        let found = &self.attentions.found[index];
        if let Some((_, values)) = found.gradients.iter().find(|(e, _)| *e == adjoint) {
            return Some(values.clone());
        }
        let value = self.lowered(adjoint)?;
        if value.dims() != found.output.dims() || value.dtype() != found.output.dtype() {
            return None;
        }
        let operands = [self.lowered(found.q)?, self.lowered(found.k)?, self.lowered(found.v)?];
        let values = found.attention.gradient(
            operands.each_ref(),
            (&found.output, &found.statistics),
            &value,
        );
        self.attentions.found[index].gradients.push((adjoint, values.clone()));
        Some(values)
    }

    /// A product of stacks of matrices whose operands and result have one dtype of 16 bits.
    fn product(&self, id: NodeId) -> Option<Product> {
        let e = Endpoint { node: id, index: 0 };
        let node = self.named(e, &["BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"])?;
        let dtypes = [node.inputs[0], node.inputs[1], e].map(|e| self.graph.output(e).dtype);
        let is_half = matches!(dtypes[0], DType::BFloat16 | DType::Half);
        if !is_half || dtypes.iter().any(|dtype| *dtype != dtypes[0]) {
            return None;
        }
        let flag = |name| node.attrs().bool(name).unwrap_or(false);
        Some(Product {
            x: self.plain(node.inputs[0]),
            adj_x: flag("adj_x"),
            y: self.plain(node.inputs[1]),
            adj_y: flag("adj_y"),
        })
    }

    /// The node of an endpoint, if its op is one of these.
    fn named(&self, e: Endpoint, ops: &[&str]) -> Option<&Node> {
        let node = self.graph.node(e.node);
        ops.contains(&&*node.op.name).then_some(node)
    }

    /// The value of an endpoint that is lowered and part of the program.
    fn lowered(&self, e: Endpoint) -> Option<Value> {
        match self.operands_of(e.node).get(e.index as usize)? {
            Operand::Value(value) => Some(value.clone()),
            _ => None,
        }
    }

    /// The same tensor nearer to where it comes from: what passes it on is skipped.
    fn plain(&self, mut e: Endpoint) -> Endpoint {
        loop {
            let node = self.graph.node(e.node);
            let Some(&from) = node.inputs.first() else { return e };
            let is_same = match &*node.op.name {
                _ if node.role() == Role::Identity => true,
                "StopGradient" | "PreventGradient" | "EnsureShape" => true,
                // Adjoints of broadcast operands are summed and reshaped, here over nothing.
                "Sum" | "Reshape" => match (self.lowered(e), self.lowered(from)) {
                    (Some(value), Some(source)) => value.dims() == source.dims(),
                    _ => false,
                },
                _ => false,
            };
            if !is_same || e.index != 0 {
                return e;
            }
            e = from;
        }
    }

    /// The same without casts between floats.
    fn without_casts(&self, e: Endpoint) -> Endpoint {
        let mut e = self.plain(e);
        while let Some(node) = self.named(e, &["Cast"]) {
            let from = node.inputs[0];
            if !self.graph.output(from).dtype.is_floating() {
                return e;
            }
            e = self.plain(from);
        }
        e
    }

    /// The tensor of an endpoint that depends on constants alone.
    fn known_mask(&mut self, e: Endpoint, depth: usize) -> Option<Tensor> {
        if let Some(known) = self.attentions.known.get(&e) {
            return known.clone();
        }
        let known = match self.operands_of(e.node).get(e.index as usize)? {
            Operand::Host(tensor) => Some(tensor.clone()),
            Operand::Value(value) if value.num_elements() <= MASK_ELEMENTS_MAX => {
                self.evaluate_mask(e, depth)
            }
            _ => None,
        };
        self.attentions.known.insert(e, known.clone());
        known
    }

    fn evaluate_mask(&mut self, e: Endpoint, depth: usize) -> Option<Tensor> {
        let node = self.graph.node(e.node);
        if depth == MASK_DEPTH_MAX || node.inputs.is_empty() || !self.graph.is_pure(node) {
            return None;
        }
        let node = node.clone();
        let mut inputs: Vec<EdgeValue> = Vec::with_capacity(node.inputs.len());
        for &input in &node.inputs {
            inputs.push(EdgeValue::Tensor(self.known_mask(input, depth + 1)?));
        }
        let kernels = self.kernels();
        let evaluator = self
            .attentions
            .evaluator
            .get_or_insert_with(|| Evaluator::new(kernels, MASK_BYTES_MAX));
        let outputs = evaluator.evaluate(&node, &mut inputs)?;
        outputs.get(e.index as usize).cloned()
    }
}

/// The factor of scores that count.
fn scale_of(steps: &[Step]) -> f32 {
    let factor = |step: &Step| match step {
        Step::Scale(factor) => *factor,
        _ => 1.0,
    };
    steps.iter().map(factor).product()
}

/// Whether the mask is causal: each position attends to itself and earlier ones; false if each attends to all, `None`
/// if the mask is another one.
fn is_causal(steps: &[Step], scale: f32, (rows, columns): (usize, usize)) -> Option<bool> {
    if steps.iter().all(|step| matches!(step, Step::Scale(_))) {
        return Some(false);
    }
    let scores = Scores::after(steps, rows, columns)?;
    if scores.each().all(|(_, score)| score.counts(scale)) {
        return Some(false);
    }
    let is_causal = scores.each().all(|((row, column), score)| match column <= row {
        true => score.counts(scale),
        false => score.is_blocked(scale),
    });
    (is_causal && rows == columns).then_some(true)
}

/// Whether the steps multiply the scores that the mask allows by `scale` and do nothing else to them.
fn keeps(steps: &[Step], scale: f32, (rows, columns): (usize, usize), is_causal: bool) -> bool {
    if steps.iter().all(|step| matches!(step, Step::Scale(_))) {
        return is_near(scale_of(steps), scale);
    }
    let Some(scores) = Scores::after(steps, rows, columns) else { return false };
    scores.each().all(|((row, column), score)| is_causal && column > row || score.counts(scale))
}

fn is_near(x: f32, y: f32) -> bool {
    (x - y).abs() <= 1e-6 * y.abs()
}

/// The affine function that the steps apply to a score.
#[derive(Clone, Copy)]
struct Affine {
    factor: f32,
    term: f32,
}

impl Affine {
    fn counts(self, scale: f32) -> bool {
        is_near(self.factor, scale) && self.term == 0.0
    }

    fn is_blocked(self, scale: f32) -> bool {
        self.factor.abs() <= scale.abs() * 1.001 && self.term <= BLOCKED
    }
}

/// The affine functions of all scores of a head.
struct Scores {
    all: Vec<Affine>,
    columns: usize,
}

impl Scores {
    /// `None` if the steps differ between heads or batches, or have tensors of other shapes.
    fn after(steps: &[Step], rows: usize, columns: usize) -> Option<Scores> {
        let count = rows.checked_mul(columns).filter(|&n| n <= MASK_ELEMENTS_MAX)?;
        let mut scores = Scores { all: vec![Affine { factor: 1.0, term: 0.0 }; count], columns };
        for step in steps {
            match step {
                Step::Scale(factor) => scores.update(|score, _| {
                    score.factor *= factor;
                    score.term *= factor;
                }),
                Step::Multiply(tensor) => {
                    let by = Broadcast::of(tensor, rows, columns)?;
                    scores.update(|score, at| {
                        score.factor *= by.get(at);
                        score.term *= by.get(at);
                    });
                }
                Step::Add(tensor, sign) => {
                    let term = Broadcast::of(tensor, rows, columns)?;
                    scores.update(|score, at| score.term += sign * term.get(at));
                }
                Step::Select { condition, keeps, other } => {
                    let condition = Broadcast::of(condition, rows, columns)?;
                    let other = Broadcast::of(other, rows, columns)?;
                    scores.update(|score, at| {
                        if (condition.get(at) != 0.0) != *keeps {
                            *score = Affine { factor: 0.0, term: other.get(at) };
                        }
                    });
                }
            }
        }
        Some(scores)
    }

    fn update(&mut self, mut change: impl FnMut(&mut Affine, (usize, usize))) {
        let columns = self.columns;
        for (i, score) in self.all.iter_mut().enumerate() {
            change(score, (i / columns, i % columns));
        }
    }

    /// Row, column and function of each score.
    fn each(&self) -> impl Iterator<Item = ((usize, usize), Affine)> + '_ {
        let columns = self.columns;
        self.all.iter().enumerate().map(move |(i, score)| ((i / columns, i % columns), *score))
    }
}

/// A tensor that broadcasts to the scores of each head.
struct Broadcast {
    numbers: Vec<f32>,
    /// How far rows and columns are apart.
    strides: (usize, usize),
}

impl Broadcast {
    fn of(tensor: &Tensor, rows: usize, columns: usize) -> Option<Broadcast> {
        let mut dims = vec![1, 1];
        dims.extend_from_slice(tensor.shape().dims());
        let (leading, last) = dims.split_at(dims.len() - 2);
        if leading.iter().any(|&n| n != 1) {
            return None;
        }
        let stride = |n: usize, wanted: usize, step: usize| match n {
            1 => Some(0),
            n => (n == wanted).then_some(step),
        };
        let strides = (stride(last[0], rows, last[1])?, stride(last[1], columns, 1)?);
        Some(Broadcast { numbers: numbers(tensor)?, strides })
    }

    fn get(&self, (row, column): (usize, usize)) -> f32 {
        self.numbers[row * self.strides.0 + column * self.strides.1]
    }
}

/// The first element of a tensor of indices.
fn integer(tensor: &Tensor) -> Option<i64> {
    match tensor.dtype() {
        DType::Int32 => tensor.as_slice::<i32>().ok()?.first().map(|&x| x.into()),
        DType::Int64 => tensor.as_slice::<i64>().ok()?.first().copied(),
        _ => None,
    }
}

/// The elements of a tensor of floats or truth values.
fn numbers(tensor: &Tensor) -> Option<Vec<f32>> {
    Some(match tensor.dtype() {
        DType::Float => tensor.as_slice::<f32>().ok()?.to_vec(),
        DType::Double => tensor.as_slice::<f64>().ok()?.iter().map(|&x| x as f32).collect(),
        DType::BFloat16 => tensor.as_slice::<bf16>().ok()?.iter().map(|x| x.to_f32()).collect(),
        DType::Half => tensor.as_slice::<f16>().ok()?.iter().map(|x| x.to_f32()).collect(),
        DType::Bool => tensor.as_slice::<bool>().ok()?.iter().map(|&x| x.into()).collect(),
        _ => return None,
    })
}

#[cfg(test)]
#[path = "attention_tests.rs"]
mod tests;
