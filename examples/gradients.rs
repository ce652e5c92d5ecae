//! Linear regression by gradient descent, with gradient nodes that `gradients` adds to the graph.
//!
//! It prints the loss, which falls to zero, and the line: `y = 3.00 x + -1.00`.

use thalweg::{Graph, Init, Result, Variable, feed, gradients};

fn main() -> Result<()> {
    let g = Graph::new();
    let x = g.placeholder::<f32>("x", [None]);
    let y = g.placeholder::<f32>("y", [None]);
    let slope: Variable<f32> = g.variable("slope", Init::zeros([]));
    let offset: Variable<f32> = g.variable("offset", Init::zeros([]));
    let loss = (&x * &slope + &offset).squared_difference(&y).mean();

    // What the loss changes by when a variable changes, and a step in the other direction.
    let (by_slope, by_offset) = gradients(&loss, (&slope, &offset));
    let steps = [slope.assign_sub(by_slope * 0.1), offset.assign_sub(by_offset * 0.1)];

    let session = g.session()?;
    let points: Vec<f32> = (0..20).map(|i| i as f32 / 10.0).collect();
    let values: Vec<f32> = points.iter().map(|x| 3.0 * x - 1.0).collect();
    for step in 0..=200 {
        let feeds = feed! { x: &points, y: &values };
        let loss: f32 = session.run(&loss, feeds, &[&steps[0], &steps[1]])?;
        if step % 50 == 0 {
            println!("step {step}: loss {loss:.5}");
        }
    }
    let (slope, offset): (f32, f32) = session.run((&slope, &offset), (), &[])?;
    println!("y = {slope:.2} x + {offset:.2}");
    assert!((slope - 3.0).abs() < 0.05 && (offset + 1.0).abs() < 0.05);
    Ok(())
}
