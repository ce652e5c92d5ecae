//! Gradients of `TensorArray` ops. Adjoints go through a gradient array, one per call of
//! `gradients`, and the adjoints of flows order its writes.

use thalweg_graph::{GradientContext, Output};
use thalweg_tensor::Result;

/// The version suffix of the differentiated op's name.
fn generation(g: &GradientContext<'_>) -> &'static str {
    match &g.node().op.name {
        name if name.ends_with("V3") => "V3",
        name if name.ends_with("V2") => "V2",
        _ => "",
    }
}

/// The handle of the gradient array, and the flow after its creation.
fn gradient_array(g: &mut GradientContext<'_>, flow: Output) -> Result<(Output, Output)> {
    let op = format!("TensorArrayGrad{}", generation(g));
    let (source, handle) = (g.source().to_owned(), g.input(0));
    let made = g.op(&op).inputs(&[handle, flow]).attr("source", source.as_str()).build_all()?;
    Ok((made[0], made.get(1).copied().unwrap_or(flow)))
}

/// The adjoint of the flow, which exists once the differentiated op has run.
fn flow_after(g: &mut GradientContext<'_>) -> Result<Output> {
    let (flow, node) = (g.grad(0)?, g.output(0).node);
    g.op("Identity").input(flow).after(&[node]).build()
}

fn named(g: &GradientContext<'_>, op: &str) -> String {
    format!("TensorArray{op}{}", generation(g))
}

pub(super) fn read(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, index, flow) = (g.grad(0)?, g.input(1), g.input(2));
    let (array, flow) = gradient_array(g, flow)?;
    let flow = g.add(&named(g, "Write"), &[array, index, grad, flow])?;
    g.set(2, flow)
}

pub(super) fn write(g: &mut GradientContext<'_>) -> Result<()> {
    let (index, value) = (g.input(1), g.input(2));
    let flow = flow_after(g)?;
    let (array, after) = gradient_array(g, flow)?;
    let dtype = g.dtype(value);
    let op = named(g, "Read");
    let grad = g.op(&op).inputs(&[array, index, after]).attr("dtype", dtype).build()?;
    g.set(2, grad)?;
    g.set(3, flow)
}

pub(super) fn gather(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, indices, flow) = (g.grad(0)?, g.input(1), g.input(2));
    let (array, flow) = gradient_array(g, flow)?;
    let flow = g.add(&named(g, "Scatter"), &[array, indices, grad, flow])?;
    g.set(2, flow)
}

pub(super) fn scatter(g: &mut GradientContext<'_>) -> Result<()> {
    let (indices, value) = (g.input(1), g.input(2));
    let flow = flow_after(g)?;
    let (array, after) = gradient_array(g, flow)?;
    let dtype = g.dtype(value);
    let op = named(g, "Gather");
    let grad = g.op(&op).inputs(&[array, indices, after]).attr("dtype", dtype).build()?;
    g.set(2, grad)?;
    g.set(3, flow)
}

pub(super) fn concat(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, lengths, flow) = (g.grad(0)?, g.output(1), g.input(1));
    let (array, flow) = gradient_array(g, flow)?;
    let flow = g.add(&named(g, "Split"), &[array, grad, lengths, flow])?;
    g.set(1, flow)
}

pub(super) fn split(g: &mut GradientContext<'_>) -> Result<()> {
    let value = g.input(1);
    let flow = flow_after(g)?;
    let (array, after) = gradient_array(g, flow)?;
    let dtype = g.dtype(value);
    let op = named(g, "Concat");
    let grad = g.op(&op).inputs(&[array, after]).attr("dtype", dtype).build()?;
    g.set(1, grad)?;
    g.set(3, flow)
}
