//! Linear regression by gradient descent, with gradient nodes that `gradients` adds to the graph.
//!
//! It prints the loss, which falls to zero, and the line: `y = 3.00 x + -1.00`.

use thalweg::prelude::*;

fn main() -> Result<()> {
    let mut scope = thalweg::scope();
    let x = scope.placeholder(DType::Float, &PartialShape::new([None]))?;
    let y = scope.placeholder(DType::Float, &PartialShape::new([None]))?;
    let (slope, init_slope) = variable(&mut scope, "slope")?;
    let (offset, init_offset) = variable(&mut scope, "offset")?;
    let scaled = scope.add("Mul", &[x, slope])?;
    let line = scope.add("AddV2", &[scaled, offset])?;
    let error = scope.add("SquaredDifference", &[line, y])?;
    let axis = scope.constant(&Tensor::scalar(0i32))?;
    let loss = scope.add("Mean", &[error, axis])?;

    // What the loss changes by when a variable changes, and a step in the other direction.
    let by = gradients(&mut scope, &[loss], &[slope, offset], &GradientOptions::default())?;
    let mut updates = Vec::new();
    for (variable, adjoint) in [slope, offset].into_iter().zip(by) {
        let adjoint = adjoint.to_dense(&mut scope)?;
        let rate = scope.constant(&Tensor::scalar(0.1f32))?;
        let update = scope.add("ApplyGradientDescent", &[variable, rate, adjoint])?;
        updates.push(scope.name_of(update));
    }

    let session = thalweg::session(&scope)?;
    session.run(&[], &[], &[&init_slope, &init_offset])?;
    let points: Vec<f32> = (0..20).map(|i| i as f32 / 10.0).collect();
    let values: Vec<f32> = points.iter().map(|x| 3.0 * x - 1.0).collect();
    let (x, y, loss) = (scope.name_of(x), scope.name_of(y), scope.name_of(loss));
    let feeds = [(&*x, Tensor::vector(&points)?), (&*y, Tensor::vector(&values)?)];
    let updates: Vec<&str> = updates.iter().map(String::as_str).collect();
    for step in 0..=200 {
        let results = session.run(&feeds, &[&loss], &updates)?;
        if step % 50 == 0 {
            println!("step {step}: loss {:.5}", results[0].scalar_value::<f32>()?);
        }
    }
    let fitted = session.run(&[], &[&scope.name_of(slope), &scope.name_of(offset)], &[])?;
    let (slope, offset) = (fitted[0].scalar_value::<f32>()?, fitted[1].scalar_value::<f32>()?);
    println!("y = {slope:.2} x + {offset:.2}");
    assert!((slope - 3.0).abs() < 0.05 && (offset + 1.0).abs() < 0.05);
    Ok(())
}

/// A scalar variable, and the name of its initializer.
fn variable(scope: &mut Scope, name: &str) -> Result<(Output, String)> {
    let shape = PartialShape::scalar();
    let variable = scope.op("VariableV2").name(name).attr("shape", &shape);
    let variable = variable.attr("dtype", DType::Float).build()?;
    let zero = scope.constant(&Tensor::scalar(0.0f32))?;
    let init = scope.add("Assign", &[variable, zero])?;
    Ok((variable, scope.name_of(init)))
}
