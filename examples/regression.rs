//! Linear regression with a model of one layer.
//!
//! It prints the loss, which falls to that of the noise, and the line: about `y = 3.00 x + -1.00`.

use thalweg::prelude::*;

fn main() -> Result<()> {
    let mut model = Model::new(thalweg::scope());
    let x = model.input("x", DType::Float, &[None, Some(1)])?;
    let y = model.input("y", DType::Float, &[None, Some(1)])?;
    let line = Dense::new(1).apply(&mut model, x)?;
    let loss = losses::mean_squared_error(&mut model, line, y)?;
    let train = Optimizer::sgd(0.3).minimize(&mut model, loss)?;
    let init = model.init()?;
    let fitted = [model.find("dense/kernel"), model.find("dense/bias")].map(|variable| {
        let value = variable.expect("the layer made it").read(&mut model)?;
        Ok(model.name_of(value))
    });
    let [kernel, bias] = fitted;
    let (kernel, bias, loss) = (kernel?, bias?, model.name_of(loss));

    let session = thalweg::session(&model)?;
    session.run(&[], &[], &[&model.node_name(init)])?;
    let points: Vec<f32> = (0..50).map(|i| i as f32 / 25.0 - 1.0).collect();
    let values: Vec<f32> = points.iter().map(|x| 3.0 * x - 1.0 + 0.1 * (20.0 * x).sin()).collect();
    let column = Shape::new(&[50, 1])?;
    let feeds = [
        ("x:0", Tensor::from_slice(column.clone(), &points)?),
        ("y:0", Tensor::from_slice(column, &values)?),
    ];
    for step in 0..=100 {
        let results = session.run(&feeds, &[&loss], &[&model.node_name(train)])?;
        if step % 25 == 0 {
            println!("step {step}: loss {:.5}", results[0].scalar_value::<f32>()?);
        }
    }
    let fitted = session.run(&[], &[&kernel, &bias], &[])?;
    let (slope, offset) = (fitted[0].as_slice::<f32>()?[0], fitted[1].as_slice::<f32>()?[0]);
    println!("y = {slope:.2} x + {offset:.2}");
    assert!((slope - 3.0).abs() < 0.1 && (offset + 1.0).abs() < 0.1);
    Ok(())
}
