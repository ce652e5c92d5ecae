//! Linear regression: two variables, their gradients, and gradient descent.
//!
//! It prints the loss, which falls to that of the noise, and the line: about `y = 3.00 x + -1.00`.

use thalweg::{Graph, Init, Result, Sgd, feed};

fn main() -> Result<()> {
    let g = Graph::new();
    let x = g.placeholder::<f32>("x", [None]);
    let y = g.placeholder::<f32>("y", [None]);
    let (slope, offset) =
        (g.variable("slope", Init::zeros([])), g.variable("offset", Init::zeros([])));
    let loss = (&x * &slope + &offset - &y).square().mean();
    let train = Sgd::new(0.3).minimize(&loss);

    let session = g.session()?;
    let points: Vec<f32> = (0..50).map(|i| i as f32 / 25.0 - 1.0).collect();
    let values: Vec<f32> = points.iter().map(|x| 3.0 * x - 1.0 + 0.1 * (20.0 * x).sin()).collect();
    for step in 0..=100 {
        let loss: f32 = session.run(&loss, feed! { x: &points, y: &values }, &[&train])?;
        if step % 25 == 0 {
            println!("step {step}: loss {loss:.5}");
        }
    }
    let (slope, offset): (f32, f32) = session.run((&slope, &offset), (), &[])?;
    println!("y = {slope:.2} x + {offset:.2}");
    assert!((slope - 3.0).abs() < 0.1 && (offset + 1.0).abs() < 0.1);
    Ok(())
}
