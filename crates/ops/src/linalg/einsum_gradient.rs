//! The gradient of `Einsum`, composed of `Einsum`s.

use thalweg_graph::{GradientContext, Output};
use thalweg_tensor::Result;

use super::gradients::{MatrixArithmetic, ones, size_along};
use crate::gradients::{conj, set_repeated};

/// The adjoint of an operand is the Einstein sum of the result's adjoint and the other operand.
/// Along labels that only this operand has, the adjoint is broadcast.
pub(crate) fn einsum_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let equation = g.attrs().string("equation")?.to_owned();
    let Some((inputs, output)) = equation.split_once("->") else { return Ok(()) };
    let inputs: Vec<&str> = inputs.split(',').collect();
    let has_ellipsis = equation.contains(ELLIPSIS);
    let grad = g.grad(0)?;
    for (i, own) in inputs.iter().enumerate() {
        let other = inputs.iter().enumerate().find(|&(j, _)| j != i);
        let mut operands = vec![grad];
        let mut labels = vec![output.to_owned()];
        if let Some((j, subscripts)) = other {
            operands.push(conj(g, g.input(j))?);
            labels.push((*subscripts).to_owned());
        }
        // Labels that only this operand has are broadcast after the sum.
        let lost: String = unique(own)
            .filter(|&label| !labels.iter().any(|l| names(l).any(|name| name == label)))
            .collect();
        let kept: String = names(own).filter(|label| !lost.contains(*label)).collect();
        let prefix = if has_ellipsis { ELLIPSIS } else { "" };
        let partial = format!("{prefix}{kept}");
        let mut adjoint = g.einsum(&format!("{}->{partial}", labels.join(",")), &operands)?;
        let mut at = partial;
        if !lost.is_empty() {
            let sizes = lost_sizes(g, i, own, &lost)?;
            let repeated = ones(g, sizes, grad)?;
            let whole: String = names(own).collect();
            let next = format!("{prefix}{whole}");
            adjoint = g.einsum(&format!("{at},{lost}->{next}"), &[adjoint, repeated])?;
            at = next;
        }
        set_adjoint(g, i, (adjoint, &at), own)?;
    }
    Ok(())
}

const ELLIPSIS: &str = "...";

/// The labels of an operand, without its ellipsis.
fn names(subscripts: &str) -> impl Iterator<Item = char> + '_ {
    subscripts.chars().filter(|&c| c != '.')
}

/// The distinct labels of an operand.
fn unique(subscripts: &str) -> impl Iterator<Item = char> + '_ {
    let all: Vec<char> = names(subscripts).collect();
    (0..all.len())
        .filter(|&i| !all[..i].contains(&all[i]))
        .map(|i| all[i])
        .collect::<Vec<_>>()
        .into_iter()
}

/// The sizes of these labels of input `i`, as a vector.
fn lost_sizes(g: &mut GradientContext<'_>, i: usize, own: &str, lost: &str) -> Result<Output> {
    let (before, after) = own.split_once(ELLIPSIS).unwrap_or((own, ""));
    let mut sizes = Vec::new();
    for label in lost.chars() {
        let axis = match (
            before.chars().position(|c| c == label),
            after.chars().rev().position(|c| c == label),
        ) {
            (Some(at), _) => at as i32,
            (None, at) => -1 - at.unwrap_or(0) as i32,
        };
        let x = g.input(i);
        sizes.push(size_along(g, x, axis)?);
    }
    if let [size] = sizes[..] {
        return Ok(size);
    }
    let axis = g.int(0)?;
    g.op("ConcatV2").inputs(&sizes).input(axis).build()
}

/// Transposes and broadcasts an adjoint with these labels, whose ellipsis is first and as long as
/// the result's, to the order and shape of input `i`.
fn set_adjoint(
    g: &mut GradientContext<'_>,
    i: usize,
    (adjoint, at): (Output, &str),
    own: &str,
) -> Result<()> {
    let is_in_place = at == own;
    if is_in_place && !own.contains(ELLIPSIS) {
        return g.set(i, adjoint);
    }
    // Broadcasting aligns with the result's ellipsis only if this ellipsis comes first.
    if is_in_place || !own.contains(ELLIPSIS) {
        return set_repeated(g, i, adjoint);
    }
    let x = g.input(i);
    // Only its shape is used; if that is known statically, the node is not computed.
    let turned = g.einsum(&format!("{own}->{at}"), &[x])?;
    let shapes = [g.shape(turned), g.shape(adjoint)];
    let [axes, _] = crate::gradients::repeated_axes(g, [&shapes[0], &shapes[1]], |g| {
        Ok([g.shape_of(turned)?, g.shape_of(adjoint)?])
    })?;
    let summed = crate::gradients::sum_to_shape(g, adjoint, axes, turned)?;
    let back = g.einsum(&format!("{at}->{own}"), &[summed])?;
    g.set(i, back)
}
