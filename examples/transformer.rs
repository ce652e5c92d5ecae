//! A character-level language model of this project's book, with a small transformer.
//!
//! `cargo run --release --example transformer -- [STEPS]`
//!
//! It prints the loss, which falls below 1.5 in 600 steps, and two hundred generated characters.

use thalweg::prelude::*;

const TEXT: &[u8] = include_bytes!("../docs/src/tutorial/graphs.md");
const LETTERS: usize = 128;
const LENGTH: usize = 48;
const WIDTH: usize = 64;

/// Causal self-attention, then a position-wise feed-forward layer.
fn block() -> Sequential {
    let attention = Sequential::new().then(LayerNorm::new()).then(Attention::new(4).causal());
    let dense = Sequential::new()
        .then(LayerNorm::new())
        .then(Dense::new(4 * WIDTH).activation(Activation::Gelu))
        .then(Dense::new(WIDTH));
    Sequential::new().then(Residual(attention)).then(Residual(dense))
}

fn net(blocks: usize) -> Sequential {
    let mut net = Sequential::new().then(Embedding::new(LETTERS, WIDTH)).then(Positions);
    for _ in 0..blocks {
        net = net.then(block());
    }
    net.then(LayerNorm::new()).then(Dense::new(LETTERS))
}

fn main() -> Result<()> {
    // A build for development is a hundred times slower: it takes a look.
    let (default, blocks, batch) = if cfg!(debug_assertions) { (6, 1, 4) } else { (600, 2, 16) };
    let steps: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(default);
    let mut model = Model::new(thalweg::scope());
    let letters = model.input("letters", DType::Int64, &[None, Some(LENGTH)])?;
    let next = model.input("next", DType::Int64, &[None, Some(LENGTH)])?;
    let scores = net(blocks).apply(&mut model, letters)?;
    let loss = losses::softmax_cross_entropy(&mut model, scores, next)?;
    let optimizer = Optimizer::adamw(3e-3, 0.01).clip(Clip::GlobalNorm(1.0));
    let train = optimizer.minimize(&mut model, loss)?;
    let init = model.init()?;
    let guesses = net(blocks).apply(&mut model.inference(), letters)?;
    let (guesses, loss) = (model.name_of(guesses), model.name_of(loss));
    let train = model.node_name(train);

    let session = thalweg::session(&model)?;
    session.run(&[], &[], &[&model.node_name(init)])?;
    let text: Vec<i64> = TEXT.iter().map(|byte| i64::from(byte & 127)).collect();
    let shape = Shape::new(&[batch, LENGTH])?;
    let mut rng = Rng::new(5);
    let mut all = Vec::new();
    for step in 0..steps {
        let places: Vec<usize> = (0..batch).map(|_| rng.below(text.len() - LENGTH)).collect();
        let cut = |by: usize| -> Vec<i64> {
            places.iter().flat_map(|p| text[p + by..p + by + LENGTH].to_vec()).collect()
        };
        let feeds = [
            ("letters:0", Tensor::from_slice(shape.clone(), &cut(0))?),
            ("next:0", Tensor::from_slice(shape.clone(), &cut(1))?),
        ];
        all.push(session.run(&feeds, &[&loss], &[&train])?[0].scalar_value::<f32>()?);
        if step % 100 == 0 {
            println!("step {step}: loss {:.3}", all[step]);
        }
    }
    println!("{}", write(&session, &guesses, &text[..LENGTH])?);
    assert!(steps < 2 || all[steps - 1] < all[0], "it learnt nothing");
    assert!(steps < 600 || all[steps - 1] < 1.5, "it learnt little: {}", all[steps - 1]);
    Ok(())
}

/// Greedy generation: continues `begin` with the most probable character at each step.
fn write(session: &Session, guesses: &str, begin: &[i64]) -> Result<String> {
    let mut seen = begin.to_vec();
    for _ in 0..if cfg!(debug_assertions) { 5 } else { 200 } {
        let window = &seen[seen.len() - LENGTH..];
        let window = Tensor::from_slice(Shape::new(&[1, LENGTH])?, window)?;
        let scores = session.run(&[("letters:0", window)], &[guesses], &[])?;
        let scores = &scores[0].as_slice::<f32>()?[(LENGTH - 1) * LETTERS..];
        let best = (0..LETTERS).max_by(|a, b| scores[*a].total_cmp(&scores[*b]));
        seen.push(best.unwrap_or(0) as i64);
    }
    Ok(seen.iter().map(|letter| char::from(*letter as u8)).collect())
}
