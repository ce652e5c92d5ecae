//! Every gradient function, checked twice: against the gradient that TensorFlow recorded, and
//! against the slope of the op itself.
//!
//! `GOLDEN=Mul cargo test -p thalweg-ops --test gradients` looks at the cases of one op.
#![allow(clippy::unwrap_used, reason = "a test may stop where it stands")]

#[path = "support/cases.rs"]
mod cases;
mod support;

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::Value as Json;
use support::Interpreter;
use thalweg_graph::*;
use thalweg_ops::{FAMILIES, kernel_registry, op_registry};
use thalweg_proto as pb;
use thalweg_tensor::*;

/// Ops whose gradient is not their slope, and why.
const NOT_THE_SLOPE: &[(&str, &str)] =
    &[("TensorScatterUpdate", "of updates of one element all get its adjoint, the last one wins")];

/// Elements of each input whose slope is measured.
const PROBES: usize = 12;

struct Differentiated {
    interpreter: Interpreter,
    /// Inputs, and the adjoints that our gradient function gives them.
    xs: Vec<(String, String)>,
    /// Outputs with the adjoints that the case gives them.
    ys: Vec<(String, String)>,
}

/// The case's forward graph with our own gradients added; `None` if there is none to be had yet.
fn differentiate(case: &Json, def: pb::GraphDef) -> Result<Option<Differentiated>> {
    let registry = op_registry(FAMILIES)?;
    let seeds: Vec<String> = def
        .node
        .iter()
        .filter(|n| n.name.starts_with("gradients/grad_ys_") && n.name.matches('/').count() == 1)
        .map(|n| n.input.first().cloned().unwrap_or_else(|| n.name.clone()))
        .collect();
    let forward = ancestors(def, seeds.iter().map(String::as_str).chain(["op"]));
    let scope = Scope::of(Graph::from_def(registry, forward)?);
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
    let mut scope = scope;
    let options = GradientOptions { grad_ys: &grad_ys, ..Default::default() };
    let adjoints = match connected_gradients(&mut scope, &ys, &xs, &options) {
        Err(e) if e.message().contains("no gradient is defined") => return Ok(None),
        other => other?,
    };
    let mut pairs = Vec::new();
    for (&x, adjoint) in xs.iter().zip(adjoints) {
        let adjoint =
            adjoint.ok_or_else(|| err!(Unknown, "{} got no adjoint", scope.name_of(x)))?;
        let dense = adjoint.to_dense(&mut scope)?;
        pairs.push((scope.name_of(x), scope.name_of(dense)));
    }
    let ys = ys.iter().zip(&seeds).map(|(&y, &s)| (scope.name_of(y), scope.name_of(s))).collect();
    let interpreter = Interpreter::new(scope.to_graph(), kernel_registry(FAMILIES));
    Ok(Some(Differentiated { interpreter, xs: pairs, ys }))
}

/// The part of a graph that these nodes depend on.
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

/// Applies `check` to the recorded gradients; prints which ops have no gradient function yet.
fn for_each_case(what: &str, mut check: impl FnMut(&Json) -> Result<Option<()>>) {
    let filter = std::env::var("GOLDEN").ok();
    let (mut passed, mut failures) = (0, Vec::new());
    let mut waiting: BTreeMap<String, usize> = BTreeMap::new();
    for case in cases::cases() {
        let op = case["op"].as_str().unwrap();
        let is_wanted = filter.as_ref().is_none_or(|f| f == op);
        if case["kind"] != "grad" || case["wrt"].is_null() || !is_wanted {
            continue;
        }
        match check(&case) {
            Ok(Some(())) => passed += 1,
            Ok(None) => *waiting.entry(op.to_owned()).or_default() += 1,
            Err(e) => failures.push(format!("{}: {e}", case["id"])),
        }
    }
    println!("{what}: {passed} pass, {} fail, waiting for a gradient: {waiting:?}", failures.len());
    assert!(failures.is_empty(), "{} cases failed:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn recorded_gradients() {
    for_each_case("as recorded", |case| {
        let Some(mut d) = differentiate(case, cases::graph_of(case))? else { return Ok(None) };
        let fetches: Vec<String> = d.xs.iter().map(|(_, adjoint)| adjoint.clone()).collect();
        let got = d.interpreter.run(&HashMap::new(), &fetches, &[])?;
        cases::compare_step(case, &got)?;
        Ok(Some(()))
    });
}

#[test]
fn slopes() {
    for_each_case("as measured", |case| {
        let op = case["op"].as_str().unwrap();
        if NOT_THE_SLOPE.iter().any(|(name, _)| *name == op) {
            return Ok(Some(()));
        }
        let def = cases::graph_of(case);
        // Measured with 64 bits where the op has them.
        let precise = widened(&def);
        match check_slopes(case, precise, 1e-6, 1e-4) {
            Err(e) if matches!(e.code(), Code::Unknown | Code::Internal) => Err(e),
            Err(_) => check_slopes(case, def, 1e-2, 5e-2),
            done => done,
        }
    });
}

/// Compares the adjoints with differences of the outputs, weighted by their adjoints.
fn check_slopes(case: &Json, def: pb::GraphDef, step: f64, tolerance: f64) -> Result<Option<()>> {
    let Some(mut d) = differentiate(case, def)? else { return Ok(None) };
    let (xs, fetches): (Vec<String>, Vec<String>) = d.xs.iter().cloned().unzip();
    let nothing = HashMap::new();
    let adjoints = d.interpreter.run(&nothing, &fetches, &[])?;
    let values = d.interpreter.run(&nothing, &xs, &[])?;
    let (ys, seeds): (Vec<String>, Vec<String>) = d.ys.iter().cloned().unzip();
    let seeds = d.interpreter.run(&nothing, &seeds, &[])?;
    let mut weighted = |feeds: &HashMap<String, Tensor>| -> Result<Option<f64>> {
        let outputs = d.interpreter.run(feeds, &ys, &[])?;
        let mut total = 0.0;
        for (y, seed) in outputs.iter().zip(&seeds) {
            let (Some(y), Some(seed)) = (reals(y)?, reals(seed)?) else { return Ok(None) };
            total +=
                y.iter().zip(seed).map(|(y, s)| if s == 0.0 { 0.0 } else { y * s }).sum::<f64>();
        }
        Ok(Some(total))
    };
    for ((x, value), adjoint) in xs.iter().zip(&values).zip(&adjoints) {
        let (Some(value_at), Some(adjoint)) = (reals(value)?, reals(adjoint)?) else { continue };
        let every = value_at.len().div_ceil(PROBES).max(1);
        for i in (0..value_at.len()).step_by(every) {
            let mut at = |by: f64| {
                let feeds = HashMap::from([(x.clone(), moved(value, i, by)?)]);
                weighted(&feeds)
            };
            let (Some(above), Some(below)) = (at(step)?, at(-step)?) else { return Ok(Some(())) };
            let slope = (above - below) / (2.0 * step);
            let (got, far) = (adjoint[i], (adjoint[i] - slope).abs());
            let close = far <= tolerance * (1.0 + slope.abs()) || !slope.is_finite();
            ensure!(close, Unknown, "{x}[{i}]: the gradient is {got}, the slope {slope}");
        }
    }
    Ok(Some(()))
}

/// The elements of a tensor of 32 or 64 bit floats.
fn reals(t: &Tensor) -> Result<Option<Vec<f64>>> {
    Ok(match t.dtype() {
        DType::Float => Some(t.as_slice::<f32>()?.iter().map(|&x| x.into()).collect()),
        DType::Double => Some(t.as_slice::<f64>()?.to_vec()),
        _ => None,
    })
}

fn moved(t: &Tensor, i: usize, by: f64) -> Result<Tensor> {
    let mut t = t.deep_copy(None)?;
    match t.dtype() {
        DType::Float => t.as_mut_slice::<f32>()?[i] += by as f32,
        _ => t.as_mut_slice::<f64>()?[i] += by,
    }
    Ok(t)
}

/// The graph with every float a double.
fn widened(def: &pb::GraphDef) -> pb::GraphDef {
    use pb::attr_value::Value;
    let (narrow, wide) = (DType::Float.to_proto(), DType::Double.to_proto());
    let mut def = def.clone();
    for value in
        def.node.iter_mut().flat_map(|n| n.attr.values_mut()).filter_map(|a| a.value.as_mut())
    {
        match value {
            Value::Type(t) if *t == narrow => *t = wide,
            Value::List(list) => {
                list.r#type.iter_mut().filter(|t| **t == narrow).for_each(|t| *t = wide);
            }
            Value::Tensor(t) if t.dtype == narrow => {
                let tensor = Tensor::from_proto(t, None).unwrap();
                let elements: Vec<f64> = reals(&tensor).unwrap().unwrap();
                let tensor = Tensor::from_slice(tensor.shape().clone(), &elements).unwrap();
                **t = tensor.to_proto().unwrap();
            }
            _ => {}
        }
    }
    def
}
