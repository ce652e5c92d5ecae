//! Concurrent steps of one session: `cargo run --example many_threads`.
//!
//! It prints that four threads counted to 1000: no update is lost.

use thalweg::{Graph, Init, Result, Variable};

const THREADS: usize = 4;
const STEPS: usize = 250;

fn main() -> Result<()> {
    let g = Graph::new();
    let counter: Variable<i64> = g.variable("counter", Init::zeros([]));
    let count = counter.assign_add(1);
    let session = g.session()?;
    // A prepared step looks nothing up: handles were resolved and the plan was made once.
    let step = session.prepare((), (), &[&count])?;
    std::thread::scope(|threads| {
        for _ in 0..THREADS {
            threads.spawn(|| (0..STEPS).try_for_each(|_| step.run::<()>(())));
        }
    });
    let total: i64 = session.run(&counter, (), &[])?;
    println!("{THREADS} threads counted to {total}");
    assert_eq!(total, (THREADS * STEPS) as i64);
    Ok(())
}
