//! Reinforcement learning by policy gradients (REINFORCE) on a corridor environment.
//!
//! `cargo run --release --example policy_gradient -- [EPISODES]`
//!
//! It prints how many of the last 50 episodes reached the right end: nearly all after 50, all after 100.

use thalweg::train::{Activation, Dense, Layer, Model, Rng};
use thalweg::{Adam, Result, feed, tf};

/// The number of states. The agent begins in the middle; the right end has reward 1, the left end
/// 0.
const CELLS: usize = 9;
const STEPS_MAX: usize = 30;

fn main() -> Result<()> {
    let episodes: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(200);
    let model = Model::new();
    let places = model.placeholder::<i64>("places", [None]);
    let actions = model.placeholder::<i64>("actions", [None]);
    let returns = model.placeholder::<f32>("returns", [None]);
    let x = tf::one_hot(&places, CELLS as i32, 1.0f32, 0.0f32);
    let x = Dense::new(16).activation(Activation::Tanh).apply(&model, &x);
    let logits = Dense::new(2).apply(&model, &x);
    let policy = logits.softmax();
    // Actions are made more likely by what came of them.
    let loss = (logits.softmax_cross_entropy(&actions) * &returns).mean();
    let train = Adam::new(0.05).minimize(&loss);

    let session = model.session()?;
    let choose = session.prepare(&places, &policy, &[])?;
    let mut rng = Rng::new(7);
    let (mut wins, mut last) = (Vec::new(), 0);
    for episode in 0..episodes {
        let (mut visited, mut taken, mut place) = (Vec::new(), Vec::new(), CELLS / 2);
        while visited.len() < STEPS_MAX && (1..CELLS - 1).contains(&place) {
            let [policy]: [[f32; 2]; 1] = choose.run([place as i64])?;
            let goes_right = rng.unit() < policy[1];
            visited.push(place as i64);
            taken.push(i64::from(goes_right));
            place = if goes_right { place + 1 } else { place - 1 };
        }
        let reward = if place == CELLS - 1 { 1.0 } else { -1.0 };
        // What comes soon counts more.
        let count = visited.len();
        let earned: Vec<f32> =
            (0..count).map(|at| reward * 0.95f32.powi((count - at) as i32)).collect();
        session.run((), feed! { places: visited, actions: taken, returns: earned }, &[&train])?;
        wins.push(reward > 0.0);
        last = wins.iter().rev().take(50).filter(|won| **won).count();
        if (episode + 1) % 50 == 0 {
            println!("episode {}: {last} of the last 50 reached the right end", episode + 1);
        }
    }
    assert!(episodes < 200 || last >= 45, "it did not learn: {last} of 50");
    Ok(())
}
