//! Concurrent steps of one session: `cargo run --example many_threads`.
//!
//! It prints that four threads counted to 1000: no update is lost.

use thalweg::prelude::*;

const THREADS: usize = 4;
const STEPS: usize = 250;

fn main() -> Result<()> {
    let mut scope = thalweg::scope();
    let counter = scope
        .op("VarHandleOp")
        .name("counter")
        .attr("dtype", DType::Int64)
        .attr("shape", &PartialShape::scalar())
        .build()?;
    let zero = scope.constant(&Tensor::scalar(0i64))?;
    let one = scope.constant(&Tensor::scalar(1i64))?;
    scope.op("AssignVariableOp").name("init").inputs(&[counter, zero]).build_node()?;
    scope.op("AssignAddVariableOp").name("count").inputs(&[counter, one]).build_node()?;
    scope.op("ReadVariableOp").name("total").input(counter).attr("dtype", DType::Int64).build()?;

    let session = thalweg::session(&scope)?;
    session.run(&[], &[], &["init"])?;
    // A callable looks nothing up: names were resolved and the plan was made once.
    let count = session.make_callable(&[], &[], &["count"])?;
    std::thread::scope(|threads| {
        for _ in 0..THREADS {
            threads.spawn(|| (0..STEPS).try_for_each(|_| count.call(&[]).map(drop)));
        }
    });
    let total = session.run(&[], &["total"], &[])?[0].scalar_value::<i64>()?;
    println!("{THREADS} threads counted to {total}");
    assert_eq!(total, (THREADS * STEPS) as i64);
    Ok(())
}
