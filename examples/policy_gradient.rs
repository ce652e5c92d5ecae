//! Reinforcement learning by policy gradients (REINFORCE) on a corridor environment.
//!
//! `cargo run --release --example policy_gradient -- [EPISODES]`
//!
//! It prints how many of the last 50 episodes reached the right end: nearly all after 50, all after 100.

use thalweg::prelude::*;

/// The number of states. The agent begins in the middle; the right end has reward 1, the left end
/// 0.
const CELLS: usize = 9;
const STEPS_MAX: usize = 30;

fn main() -> Result<()> {
    let episodes: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(200);
    let mut model = Model::new(thalweg::scope());
    let places = model.input("places", DType::Int64, &[None])?;
    let actions = model.input("actions", DType::Int64, &[None])?;
    let returns = model.input("returns", DType::Float, &[None])?;
    let cells = model.int(CELLS as i32)?;
    let (on, off) = (model.float(1.0)?, model.float(0.0)?);
    let x = model.op("OneHot").inputs(&[places, cells, on, off]).build()?;
    let x = Dense::new(16).activation(Activation::Tanh).apply(&mut model, x)?;
    let logits = Dense::new(2).apply(&mut model, x)?;
    let policy = model.add("Softmax", &[logits])?;
    // Actions are made more likely by what came of them.
    let node = model.op("SparseSoftmaxCrossEntropyWithLogits").inputs(&[logits, actions]);
    let surprise = node.build()?;
    let weighted = model.add("Mul", &[surprise, returns])?;
    let loss = losses::mean(&mut model, weighted)?;
    let train = Optimizer::adam(0.05).minimize(&mut model, loss)?;
    let init = model.init()?;

    let session = thalweg::session(&model)?;
    session.run(&[], &[], &[&model.node_name(init)])?;
    let choose = session.make_callable(&["places:0"], &[&model.name_of(policy)], &[])?;
    let mut rng = Rng::new(7);
    let mut wins = Vec::new();
    for episode in 0..episodes {
        let (mut visited, mut taken, mut place) = (Vec::new(), Vec::new(), CELLS / 2);
        while visited.len() < STEPS_MAX && (1..CELLS - 1).contains(&place) {
            let policy = choose.call(&[Tensor::vector(&[place as i64])?])?;
            let goes_right = rng.unit() < policy[0].as_slice::<f32>()?[1];
            visited.push(place as i64);
            taken.push(i64::from(goes_right));
            place = if goes_right { place + 1 } else { place - 1 };
        }
        let reward = if place == CELLS - 1 { 1.0 } else { -1.0 };
        // What comes soon counts more.
        let count = visited.len();
        let returns: Vec<f32> =
            (0..count).map(|at| reward * 0.95f32.powi((count - at) as i32)).collect();
        let feeds = [
            ("places:0", Tensor::vector(&visited)?),
            ("actions:0", Tensor::vector(&taken)?),
            ("returns:0", Tensor::vector(&returns)?),
        ];
        session.run(&feeds, &[], &[&model.node_name(train)])?;
        wins.push(reward > 0.0);
        if (episode + 1) % 50 == 0 {
            let last = wins.iter().rev().take(50).filter(|won| **won).count();
            println!("episode {}: {last} of the last 50 reached the right end", episode + 1);
        }
    }
    let last = wins.iter().rev().take(50).filter(|won| **won).count();
    assert!(episodes < 200 || last >= 45, "it did not learn: {last} of 50");
    Ok(())
}
