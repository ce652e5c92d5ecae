//! Checks of every gradient function: against the gradient that TensorFlow recorded, against finite
//! differences of the op, and the gradient of the gradient against finite differences of the
//! gradient.
//!
//! `GOLDEN=Mul cargo test -p thalweg-ops --test gradients` checks the cases of one op.
#![allow(clippy::unwrap_used, reason = "a test may stop where it stands")]

#[path = "support/cases.rs"]
mod cases;
mod support;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, LazyLock};

use serde_json::Value as Json;
use support::Interpreter;
use thalweg_graph::*;
use thalweg_kernel::KernelRegistry;
use thalweg_ops::{FAMILIES, kernel_registry, op_registry};
use thalweg_proto as pb;
use thalweg_tensor::*;

/// Ops whose gradient is not the derivative, and why.
const NOT_THE_DERIVATIVE: &[(&str, &str)] = &[
    ("Cholesky", "both triangles of the matrix get half, though one is read"),
    ("TensorScatterUpdate", "of updates of one element all get its adjoint, the last one wins"),
    ("FakeQuantWithMinMaxArgs", "the gradient passes as if nothing were rounded"),
    ("FakeQuantWithMinMaxVars", "the gradient passes as if nothing were rounded"),
    ("FakeQuantWithMinMaxVarsPerChannel", "the gradient passes as if nothing were rounded"),
    ("QuantizeAndDequantizeV2", "the gradient passes as if nothing were rounded"),
    ("QuantizeAndDequantizeV3", "the gradient passes as if nothing were rounded"),
    ("QuantizeAndDequantizeV4", "the gradient passes as if nothing were rounded"),
    ("TopKV2", "of equal elements the first gets the adjoint, and any of them may grow"),
    ("FusedBatchNormGrad", "the moments that it is given count as functions of x"),
    ("FusedBatchNormGradV2", "as FusedBatchNormGrad"),
    ("FusedBatchNormGradV3", "as FusedBatchNormGrad"),
    ("CropAndResize", "the slope by the boxes jumps where a sample passes a pixel"),
    ("ImageProjectiveTransformV2", "the adjoint is an image too, seen through the inverse"),
    ("ImageProjectiveTransformV3", "as ImageProjectiveTransformV2"),
];

/// Ops whose gradient TensorFlow does not conjugate where it should, or for whose complex values it
/// treats the argument as constant.
const NOT_THE_COMPLEX_DERIVATIVE: &[&str] = &[
    "Cumprod",
    "EuclideanNorm",
    "MulNoNan",
    "Sign",
    "SquaredDifference",
    "Xdivy",
    "Xlog1py",
    "Xlogy",
];

/// Ops whose gradient is the derivative, but whose second gradient is not the second derivative.
const NOT_THE_SECOND_DERIVATIVE: &[(&str, &str)] = &[
    ("TensorArrayWriteV3", "an array of gradients has no gradients, in TensorFlow neither"),
    ("TensorArrayReadV3", "as TensorArrayWriteV3"),
    ("TensorArrayGatherV3", "as TensorArrayWriteV3"),
    ("TensorArrayScatterV3", "as TensorArrayWriteV3"),
    ("TensorArrayConcatV3", "as TensorArrayWriteV3"),
    ("TensorArraySplitV3", "as TensorArrayWriteV3"),
    ("Cholesky", "both triangles of the matrix get half, though one is read"),
    (
        "SoftmaxCrossEntropyWithLogits",
        "TensorFlow takes the second output not to depend on the labels",
    ),
];

/// Ops whose derivative may be NaN because of elements that do not affect the gradient, as in
/// TensorFlow.
const NAN_FROM_UNUSED_ELEMENTS: &[(&str, &str)] =
    &[("CumulativeLogsumexp", "an exclusive sum begins with the logarithm of zero")];

/// Ops in gradients that TensorFlow cannot differentiate either.
const UNDIFFERENTIABLE: &[&str] = &[
    "IgammaGradA",
    "LRNGrad",
    "MaxPoolGradGradV2",
    "MaxPoolGradWithArgmax",
    "RandomGammaGrad",
    "ResizeBicubicGrad",
    "ResizeNearestNeighborGrad",
    "SoftsignGrad",
    "SparseSegmentMeanGrad",
    "SparseSegmentMeanGradV2",
    "SparseSegmentSqrtNGrad",
    "SparseSegmentSqrtNGradV2",
    "SparseSegmentSumGrad",
    "SparseSegmentSumGradV2",
];

/// Ops whose gradient has no gradient, as in TensorFlow.
const NO_SECOND_GRADIENT: &[&str] = &[
    "Dilation2D",
    "FractionalAvgPool",
    "FractionalMaxPool",
    "RaggedFillEmptyRows",
    "SparseFillEmptyRows",
    "SparseSlice",
];

/// Ops that cannot be computed with 64-bit floats only, and why.
const ONLY_32_BITS: &[(&str, &str)] = &[
    ("CropAndResize", "boxes are float"),
    ("FakeQuantWithMinMaxArgs", "inputs are float"),
    ("FakeQuantWithMinMaxVars", "inputs are float"),
    ("FakeQuantWithMinMaxVarsPerChannel", "inputs are float"),
    ("FusedBatchNorm", "T is float"),
    ("FusedBatchNormGrad", "T is float"),
    ("FusedBatchNormGradV2", "T is at most float"),
    ("FusedBatchNormGradV3", "T is at most float"),
    ("FusedBatchNormV2", "T is at most float"),
    ("FusedBatchNormV3", "T is at most float"),
    ("LRN", "T is at most float"),
    ("MaxPool3D", "T is at most float"),
    ("MaxPool3DGrad", "T is at most float"),
    ("MaxPool3DGradGrad", "TensorFlow has no CPU kernel for double"),
    ("ResizeBicubic", "the output is float"),
    ("ResizeBilinear", "the output is float"),
    ("ScaleAndTranslate", "scales and translations are float"),
    ("SparseMatMul", "inputs are at most float"),
];

/// Elements of each input that are compared with finite differences.
const PROBES: usize = 12;

/// Elements of each input whose second derivative is compared.
const SECOND_ORDER_PROBES: usize = 3;

/// All op definitions, shared by all cases.
static OPS: LazyLock<Arc<OpRegistry>> = LazyLock::new(|| op_registry(FAMILIES).unwrap());

static KERNELS: LazyLock<Arc<KernelRegistry>> = LazyLock::new(|| kernel_registry(FAMILIES));

/// Beginning of the error for an op without a gradient function.
const NO_GRADIENT: &str = "no gradient is defined for";

/// Text of the error of an op, or a gradient function, that prevents differentiation.
const PREVENTED: &str = "Gradient explicitly disabled";

/// The forward graph of a case with our gradients added.
struct Differentiated {
    scope: Scope,
    /// Inputs, and their adjoints by our gradient functions.
    xs: Vec<(Output, Output)>,
    /// Outputs, and their adjoints in the case.
    ys: Vec<(Output, Output)>,
}

impl Differentiated {
    fn interpreter(&self) -> Interpreter {
        Interpreter::new(self.scope.to_graph(), KERNELS.clone())
    }

    /// The names of both components of a list of pairs.
    fn names(&self, pairs: &[(Output, Output)]) -> (Vec<String>, Vec<String>) {
        pairs.iter().map(|&(a, b)| (self.scope.name_of(a), self.scope.name_of(b))).unzip()
    }
}

/// Differentiates the forward graph of a case; `None` if an op on a path has no gradient function.
fn differentiate(case: &Json, def: pb::GraphDef) -> Result<Option<Differentiated>> {
    let (forward, seeds) = forward_part(def);
    let mut scope = Scope::of(Graph::from_def(OPS.clone(), forward)?);
    let endpoint = |name: &str| {
        let name = TensorName::parse(name)?;
        let node = scope
            .with_graph(|g| g.find(name.node))
            .ok_or_else(|| err!(NotFound, "{}", name.node))?;
        Ok(Endpoint { node, index: name.index })
    };
    let op = endpoint("op")?;
    let ys: Vec<Output> = scope.with_graph(|g| {
        let outputs = (0..).zip(&g.node(op.node).outputs);
        let smooth = outputs.filter(|(_, o)| o.dtype.is_floating() || o.dtype.is_complex());
        smooth.map(|(index, _)| Endpoint { node: op.node, index }).take(seeds.len()).collect()
    });
    let seeds: Vec<Output> = seeds.iter().map(|s| endpoint(s)).collect::<Result<_>>()?;
    let xs: Vec<Output> =
        cases::strings(&case["wrt"]).iter().map(|x| endpoint(x)).collect::<Result<_>>()?;
    let grad_ys: Vec<Option<Output>> = seeds.iter().map(|&s| Some(s)).collect();
    let options = GradientOptions { grad_ys: &grad_ys, ..Default::default() };
    let adjoints = match connected_gradients(&mut scope, &ys, &xs, &options) {
        Err(e) if e.message().contains(NO_GRADIENT) => return Ok(None),
        other => other?,
    };
    let mut pairs = Vec::new();
    for (&x, adjoint) in xs.iter().zip(adjoints) {
        let adjoint =
            adjoint.ok_or_else(|| err!(Unknown, "{} got no adjoint", scope.name_of(x)))?;
        pairs.push((x, adjoint.to_dense(&mut scope)?));
    }
    Ok(Some(Differentiated { scope, xs: pairs, ys: ys.into_iter().zip(seeds).collect() }))
}

/// The graph without its gradients, and the names of the adjoints of its outputs.
fn forward_part(def: pb::GraphDef) -> (pb::GraphDef, Vec<String>) {
    let seeds: Vec<String> = def
        .node
        .iter()
        .filter(|n| n.name.starts_with("gradients/grad_ys_") && n.name.matches('/').count() == 1)
        .map(|n| n.input.first().cloned().unwrap_or_else(|| n.name.clone()))
        .collect();
    let forward = ancestors(def, seeds.iter().map(String::as_str).chain(["op"]));
    (forward, seeds)
}

/// The subgraph that these nodes depend on.
fn ancestors<'a>(mut def: pb::GraphDef, of: impl Iterator<Item = &'a str>) -> pb::GraphDef {
    let mut wanted: HashSet<String> = HashSet::new();
    let mut stack: Vec<String> = of.map(str::to_owned).collect();
    while let Some(input) = stack.pop() {
        let name = input.trim_start_matches('^').split(':').next().unwrap();
        let node = def.node.iter().find(|n| n.name == name).unwrap();
        if wanted.insert(name.to_owned()) {
            stack.extend(node.input.iter().cloned());
        }
    }
    def.node.retain(|n| wanted.contains(&n.name));
    def
}

/// Result of a check that did not fail.
enum Checked {
    /// It compared this many numbers.
    Compared(usize),
    /// It had nothing to compare, for this reason.
    NotComparable(&'static str),
    /// An op on a path has no gradient function.
    NoGradient,
}

use Checked::{Compared, NoGradient, NotComparable};

/// Applies `check` to the recorded gradients. Fails if a case fails, if an op outside of `without`
/// has no gradient function, or if no number of an op is compared and its cases do not say why.
fn for_each_case(what: &str, without: &[&str], mut check: impl FnMut(&Json) -> Result<Checked>) {
    let filter = std::env::var("GOLDEN").ok();
    let (mut passed, mut failures) = (0, Vec::new());
    let mut waiting: BTreeMap<String, usize> = BTreeMap::new();
    let mut compared: BTreeMap<String, (usize, BTreeSet<&str>)> = BTreeMap::new();
    for case in cases::cases() {
        let op = case["op"].as_str().unwrap();
        let is_wanted = filter.as_ref().is_none_or(|f| f == op);
        if case["kind"] != "grad" || case["wrt"].is_null() || !is_wanted {
            continue;
        }
        match check(&case) {
            Ok(Compared(numbers)) => {
                passed += 1;
                compared.entry(op.to_owned()).or_default().0 += numbers;
            }
            Ok(NotComparable(why)) => {
                passed += 1;
                compared.entry(op.to_owned()).or_default().1.insert(why);
            }
            Ok(NoGradient) => *waiting.entry(op.to_owned()).or_default() += 1,
            Err(e) => failures.push(format!("{}: {e}", case["id"])),
        }
    }
    waiting.retain(|op, _| !without.contains(&op.as_str()));
    println!("{what}: {passed} pass, {} fail, without a gradient: {waiting:?}", failures.len());
    assert!(waiting.is_empty(), "{what}: no gradient function for {waiting:?}");
    assert!(failures.is_empty(), "{} cases failed:\n{}", failures.len(), failures.join("\n"));
    assert!(passed > 0, "{what}: no recorded gradient is of the op {filter:?}");
    compared.retain(|_, (numbers, reasons)| *numbers == 0 && reasons.is_empty());
    assert!(compared.is_empty(), "{what}: no number was compared of {:?}", compared.keys());
}

#[test]
fn recorded_gradients() {
    for_each_case("as recorded", &[], |case| {
        let Some(d) = differentiate(case, cases::graph_of(case))? else { return Ok(NoGradient) };
        let (_, fetches) = d.names(&d.xs);
        let got = d.interpreter().run(&HashMap::new(), &fetches, &[])?;
        cases::compare_step(case, &got)?;
        Ok(Compared(got.len()))
    });
}

#[test]
fn recorded_gradients_of_unknown_shapes() {
    for_each_case("of unknown shapes", &[], |case| {
        let (mut def, mut feeds) = (cases::graph_of(case), HashMap::new());
        let (forward, _) = forward_part(def.clone());
        let given: HashSet<String> = forward.node.into_iter().map(|n| n.name).collect();
        for node in def.node.iter_mut().filter(|n| given.contains(&n.name)) {
            erase(node, &mut feeds)?;
        }
        let Some(d) = differentiate(case, def)? else { return Ok(NoGradient) };
        let (_, fetches) = d.names(&d.xs);
        let got = d.interpreter().run(&feeds, &fetches, &[])?;
        cases::compare_step(case, &got)?;
        Ok(Compared(got.len()))
    });
}

/// Replaces a constant by a placeholder of unknown shape, whose value is fed.
fn erase(node: &mut pb::NodeDef, feeds: &mut HashMap<String, Tensor>) -> Result<()> {
    if node.op != "Const" {
        return Ok(());
    }
    if let Some(pb::attr_value::Value::Tensor(value)) =
        node.attr.remove("value").and_then(|a| a.value)
    {
        feeds.insert(format!("{}:0", node.name), Tensor::from_proto(&value, None)?);
        node.op = "Placeholder".into();
    }
    Ok(())
}

#[test]
fn slopes() {
    for_each_case("as measured", &[], |case| {
        if is_listed(NOT_THE_DERIVATIVE, case) || !is_differentiable(case) {
            return Ok(NotComparable("the gradient is not the slope, or there is none"));
        }
        // Finite differences use 64-bit floats if the op supports them.
        match widened(case)? {
            Some(precise) => check_derivatives(case, precise, 1e-6, 1e-4),
            None => check_derivatives(case, cases::graph_of(case), 1e-2, 5e-2),
        }
    });
}

/// Compares the adjoints with finite differences of the outputs, weighted by their adjoints;
/// returns the number of adjoints compared.
fn check_derivatives(case: &Json, def: pb::GraphDef, step: f64, tolerance: f64) -> Result<Checked> {
    let Some(d) = differentiate(case, def)? else { return Ok(NoGradient) };
    let mut interpreter = d.interpreter();
    let (ys, seeds) = d.names(&d.ys);
    let seeds = interpreter.run(&HashMap::new(), &seeds, &[])?;
    let Some(mut sum) = WeightedSum::new(interpreter, ys, &seeds)? else {
        return Ok(NotComparable("its outputs have fewer than 32 bits"));
    };
    let (xs, adjoints) = d.names(&d.xs);
    let mut compared = 0;
    for (x, adjoint) in xs.iter().zip(&adjoints) {
        let both = [x.clone(), adjoint.clone()];
        let values = sum.interpreter.run(&HashMap::new(), &both, &[])?;
        let (value, Some(adjoint)) = (&values[0], numbers(&values[1])?) else { continue };
        for i in probes(adjoint.len(), PROBES) {
            let (above, below) = (sum.at(x, value, i, step)?, sum.at(x, value, i, -step)?);
            let slope = sum.difference(&above, &below) / (2.0 * step);
            let (got, far) = (adjoint[i], (adjoint[i] - slope).abs());
            let is_near = far <= tolerance * (1.0 + slope.abs());
            // Gradient formulas may have values outside of the op's domain.
            let is_defined = slope.is_finite() && (is_near || !has_nan(&above));
            let close = is_near || !is_defined;
            ensure!(close, Unknown, "{x}[{i}]: the gradient is {got}, the slope {slope}");
            compared += usize::from(is_defined);
        }
    }
    Ok(Compared(compared))
}

#[test]
fn second_derivatives() {
    for_each_case("second order", NO_SECOND_GRADIENT, |case| {
        // The gradient of Prod contains Cumprod.
        let is_prod = case["op"] == "Prod" && is_complex(case);
        if is_listed(NOT_THE_SECOND_DERIVATIVE, case) || !is_differentiable(case) || is_prod {
            return Ok(NotComparable("the gradient's gradient is not its slope, or there is none"));
        }
        let may_be_nan = is_listed(NAN_FROM_UNUSED_ELEMENTS, case);
        // Second differences need 64-bit floats.
        let Some(precise) = widened(case)? else { return Ok(NotComparable("it has 32 bits")) };
        match differentiate(case, precise)? {
            Some(d) => check_second_derivatives(d, may_be_nan),
            None => Ok(NoGradient),
        }
    });
}

/// Differentiates a weighted sum of the adjoints, and compares the result with finite differences
/// of the sum; returns the number of derivatives compared.
fn check_second_derivatives(mut d: Differentiated, may_be_nan: bool) -> Result<Checked> {
    const STEP: f64 = 1e-5;
    let (_, adjoints) = d.names(&d.xs);
    let values = d.interpreter().run(&HashMap::new(), &adjoints, &[])?;
    let weights: Option<Vec<Tensor>> = values.iter().map(weights_like).collect::<Result<_>>()?;
    let Some(weights) = weights else {
        return Ok(NotComparable("its gradients have fewer than 64 bits"));
    };
    let grad_ys: Vec<Option<Output>> =
        weights.iter().map(|w| d.scope.constant(w).map(Some)).collect::<Result<_>>()?;
    let ys: Vec<Output> = d.xs.iter().map(|&(_, adjoint)| adjoint).collect();
    // The adjoints depend on the inputs and on the adjoints of the outputs.
    let xs: Vec<Output> = d.xs.iter().map(|&(x, _)| x).chain(d.ys.iter().map(|y| y.1)).collect();
    let options = GradientOptions { grad_ys: &grad_ys, ..Default::default() };
    let second = match gradients(&mut d.scope, &ys, &xs, &options) {
        Err(e) if UNDIFFERENTIABLE.iter().any(|op| is_without_gradient(&e, op)) => {
            return Ok(NotComparable("TensorFlow cannot differentiate its gradient"));
        }
        Err(e) if e.message().contains(PREVENTED) => {
            return Ok(NotComparable("its second gradient is disabled, as in TensorFlow"));
        }
        Err(e) if e.message().contains(NO_GRADIENT) => return Ok(NoGradient),
        other => other?,
    };
    let Some(mut sum) = WeightedSum::new(d.interpreter(), adjoints, &weights)? else {
        return Ok(NotComparable("its gradients have fewer than 64 bits"));
    };
    let mut compared = 0;
    let second: Vec<Output> =
        second.iter().map(|s| s.to_dense(&mut d.scope)).collect::<Result<_>>()?;
    let (xs, second) = d.names(&xs.into_iter().zip(second).collect::<Vec<_>>());
    sum.interpreter = d.interpreter();
    for (x, second) in xs.iter().zip(&second) {
        let both = [x.clone(), second.clone()];
        let values = sum.interpreter.run(&HashMap::new(), &both, &[])?;
        let (value, Some(second)) = (&values[0], numbers(&values[1])?) else { continue };
        for i in probes(second.len(), SECOND_ORDER_PROBES) {
            let below = sum.at(x, value, i, -STEP)?;
            let here = sum.at(x, value, i, 0.0)?;
            let above = sum.at(x, value, i, STEP)?;
            let slope = sum.difference(&above, &below) / (2.0 * STEP);
            let bend = sum.difference(&above, &here) / STEP - slope;
            let (got, tolerance) = (second[i], 1e-4 * (1.0 + slope.abs()));
            // At a discontinuity or kink the gradient has no derivative.
            let is_near = (got - slope).abs() <= tolerance;
            let is_defined = slope.is_finite() && (is_near || !has_nan(&above));
            let is_smooth = is_defined && bend.abs() < 0.1 * (1.0 + slope.abs());
            let close = is_near || !is_smooth;
            let close = close || (may_be_nan && got.is_nan() && slope == 0.0);
            ensure!(close, Unknown, "{x}[{i}]: the derivative is {got}, the slope {slope}");
            compared += usize::from(is_smooth);
        }
    }
    Ok(Compared(compared))
}

fn is_listed(list: &[(&str, &str)], case: &Json) -> bool {
    list.iter().any(|(op, _)| case["op"] == *op)
}

fn is_complex(case: &Json) -> bool {
    case["dtype"].as_str().is_some_and(|dtype| dtype.starts_with("complex"))
}

/// Whether the op is smooth at the inputs of the case: no kinks, poles, ties or random numbers.
fn is_differentiable(case: &Json) -> bool {
    let is_listed = NOT_THE_COMPLEX_DERIVATIVE.iter().any(|op| case["op"] == *op);
    case["smooth"] != false && !(is_listed && is_complex(case))
}

fn is_without_gradient(error: &Error, op: &str) -> bool {
    error.message().ends_with(&format!("{NO_GRADIENT} {op}"))
}

/// A weighted sum of the elements of a graph's tensors.
struct WeightedSum {
    interpreter: Interpreter,
    of: Vec<String>,
    weights: Vec<Vec<f64>>,
}

impl WeightedSum {
    /// `None` if a weight is not finite.
    fn new(
        interpreter: Interpreter,
        of: Vec<String>,
        weights: &[Tensor],
    ) -> Result<Option<WeightedSum>> {
        let weights: Option<Vec<_>> = weights.iter().map(numbers).collect::<Result<_>>()?;
        Ok(weights.map(|weights| WeightedSum { interpreter, of, weights }))
    }

    /// The terms of the sum without their weights, with element `i` of `x` changed from `value` by
    /// `by`.
    fn at(&mut self, x: &str, value: &Tensor, i: usize, by: f64) -> Result<Vec<Vec<f64>>> {
        let feeds = HashMap::from([(x.to_owned(), moved(value, i, by)?)]);
        let tensors = self.interpreter.run(&feeds, &self.of, &[])?;
        let terms: Vec<Vec<f64>> =
            tensors.iter().map(|t| Ok(numbers(t)?.unwrap_or_default())).collect::<Result<_>>()?;
        let lengths = |lists: &[Vec<f64>]| lists.iter().map(Vec::len).collect::<Vec<_>>();
        let (found, wanted) = (lengths(&terms), lengths(&self.weights));
        ensure!(found == wanted, Internal, "{found:?} elements have {wanted:?} weights");
        Ok(terms)
    }

    /// The sum at `a` minus the sum at `b`. Terms are subtracted first: a large constant term, such
    /// as the lowest number of an empty segment, or the NaN of another element, must not absorb the
    /// others.
    fn difference(&self, a: &[Vec<f64>], b: &[Vec<f64>]) -> f64 {
        let terms = a.iter().flatten().zip(b.iter().flatten()).zip(self.weights.iter().flatten());
        let is_same = |a: &f64, b: &f64| a == b || (a.is_nan() && b.is_nan());
        let changed = terms.filter(|&((a, b), &weight)| weight != 0.0 && !is_same(a, b));
        changed.map(|((a, b), weight)| (a - b) * weight).sum()
    }
}

/// Whether a term is NaN: the op is undefined for some input.
fn has_nan(terms: &[Vec<f64>]) -> bool {
    terms.iter().flatten().any(|term| term.is_nan())
}

/// `count` evenly spaced indices below `len`.
fn probes(len: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..len).step_by(len.div_ceil(count).max(1))
}

/// Distinct weights in irregular order for a tensor's elements; `None` if its dtype does not have
/// 64 bits.
fn weights_like(tensor: &Tensor) -> Result<Option<Tensor>> {
    let mut weights = tensor.deep_copy(None)?;
    let numbers = (1..).map(|i| (f64::from(i) * 0.618_034).fract() + 0.25);
    match weights.dtype() {
        DType::Double => fill(weights.as_mut_slice::<f64>()?, numbers),
        DType::Complex128 => {
            let numbers = numbers.map(|x| Complex64::new(x, 1.0 - x));
            fill(weights.as_mut_slice::<Complex64>()?, numbers);
        }
        _ => return Ok(None),
    }
    Ok(Some(weights))
}

fn fill<T>(slice: &mut [T], values: impl Iterator<Item = T>) {
    slice.iter_mut().zip(values).for_each(|(to, from)| *to = from);
}

/// The elements of a float tensor, complex ones as pairs. The derivatives by the real and imaginary
/// parts are the parts of the adjoint.
fn numbers(t: &Tensor) -> Result<Option<Vec<f64>>> {
    Ok(match t.dtype() {
        DType::Float | DType::Double | DType::Complex64 | DType::Complex128 => cases::numbers(t)?,
        _ => None,
    })
}

/// The tensor with element `i` of [`numbers`] changed by `by`.
fn moved(t: &Tensor, i: usize, by: f64) -> Result<Tensor> {
    let mut t = t.deep_copy(None)?;
    match t.dtype() {
        DType::Float => t.as_mut_slice::<f32>()?[i] += by as f32,
        DType::Double => t.as_mut_slice::<f64>()?[i] += by,
        DType::Complex64 => {
            t.as_mut_slice::<Complex32>()?[i / 2] += match i % 2 {
                0 => Complex32::new(by as f32, 0.0),
                _ => Complex32::new(0.0, by as f32),
            }
        }
        _ => {
            t.as_mut_slice::<Complex64>()?[i / 2] += match i % 2 {
                0 => Complex64::new(by, 0.0),
                _ => Complex64::new(0.0, by),
            }
        }
    }
    Ok(t)
}

/// The 64-bit dtype of the same kind.
fn wide(dtype: i32) -> i32 {
    match DType::from_proto(dtype) {
        Ok(DType::Float) => DType::Double.to_proto(),
        Ok(DType::Complex64) => DType::Complex128.to_proto(),
        _ => dtype,
    }
}

/// The case's graph with double in place of float; `None` if an op has no 64-bit kernel, which must
/// be one of [`ONLY_32_BITS`].
fn widened(case: &Json) -> Result<Option<pb::GraphDef>> {
    let narrow = cases::graph_of(case);
    let def = with_doubles(narrow.clone());
    if def == narrow {
        return Ok(Some(def));
    }
    let tried = Graph::from_def(OPS.clone(), forward_part(def.clone()).0).and_then(|graph| {
        let is_structural = |op: &str| matches!(op, "Const" | "Identity" | "NoOp");
        let computed = graph.nodes().iter().filter(|node| !is_structural(&node.op.name));
        for node in computed {
            KERNELS.find(node, "CPU")?;
            // The flow of a TensorArray is a float without a numeric meaning.
            let has_flow = node.op.name.starts_with("TensorArray");
            let is_narrow = |o: &OutputInfo| matches!(o.dtype, DType::Float | DType::Complex64);
            let narrow = node.outputs.iter().find(|o| is_narrow(o));
            ensure!(
                has_flow || narrow.is_none(),
                Unimplemented,
                "{} has outputs of 32 bits",
                node.op.name
            );
        }
        Ok(())
    });
    match (tried, is_listed(ONLY_32_BITS, case)) {
        (Ok(()), false) => Ok(Some(def)),
        (Err(_), true) => Ok(None),
        (Ok(()), true) => bail!(Unknown, "it has 64 bits: ONLY_32_BITS should not name it"),
        (Err(e), false) => Err(e),
    }
}

fn with_doubles(mut def: pb::GraphDef) -> pb::GraphDef {
    use pb::attr_value::Value;
    for value in
        def.node.iter_mut().flat_map(|n| n.attr.values_mut()).filter_map(|a| a.value.as_mut())
    {
        match value {
            Value::Type(t) => *t = wide(*t),
            Value::List(list) => list.r#type.iter_mut().for_each(|t| *t = wide(*t)),
            Value::Tensor(t) if wide(t.dtype) != t.dtype => {
                let tensor = Tensor::from_proto(t, None).unwrap();
                **t = widened_tensor(&tensor).unwrap().to_proto().unwrap();
            }
            _ => {}
        }
    }
    def
}

fn widened_tensor(tensor: &Tensor) -> Result<Tensor> {
    let elements = numbers(tensor)?.unwrap_or_default();
    if tensor.dtype() == DType::Float {
        return Tensor::from_slice(tensor.shape().clone(), &elements);
    }
    let pairs: Vec<Complex64> =
        elements.chunks_exact(2).map(|pair| Complex64::new(pair[0], pair[1])).collect();
    Tensor::from_slice(tensor.shape().clone(), &pairs)
}
