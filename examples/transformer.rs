//! A character-level language model of this project's book, with a small transformer.
//!
//! `cargo run --release --example transformer -- [STEPS]`
//!
//! It prints the loss, which falls below 1.5 in 600 steps, and two hundred generated characters.

use thalweg::train::{
    Activation, Clip, Dense, Embedding, Layer, LayerNorm, Model, MultiHeadAttention,
    PositionEmbedding, Residual, Rng, Sequential, losses,
};
use thalweg::{AdamW, Result, feed};

const TEXT: &[u8] = include_bytes!("../docs/src/tutorial/graphs.md");
const LETTERS: usize = 128;
const LENGTH: usize = 48;
const WIDTH: usize = 64;

/// Causal self-attention, then a position-wise feed-forward layer.
fn block() -> Sequential {
    let attention =
        Sequential::new().then(LayerNorm::new()).then(MultiHeadAttention::new(4).causal());
    let dense = Sequential::new()
        .then(LayerNorm::new())
        .then(Dense::new(4 * WIDTH).activation(Activation::Gelu))
        .then(Dense::new(WIDTH));
    Sequential::new().then(Residual(attention)).then(Residual(dense))
}

fn main() -> Result<()> {
    // A build for development is a hundred times slower: it takes a look.
    let (default, blocks, size) = if cfg!(debug_assertions) { (6, 1, 4) } else { (600, 2, 16) };
    let steps: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(default);
    let net = Sequential::new().then(Embedding::new(LETTERS, WIDTH)).then(PositionEmbedding);
    let net = (0..blocks).fold(net, |net, _| net.then(block()));
    let net = net.then(LayerNorm::new()).then(Dense::new(LETTERS));
    let model = Model::new();
    let windows = model.placeholder::<i64>("windows", [None, Some(LENGTH + 1)]);
    let (letters, next) = (windows.index((.., ..LENGTH)), windows.index((.., 1..)));
    let loss = losses::softmax_cross_entropy(&net.apply(&model, &letters), &next);
    let train = AdamW::new(3e-3).weight_decay(0.01).clip(Clip::GlobalNorm(1.0)).minimize(&loss);
    let guesses = net.apply(&model.inference(), &letters).argmax(-1);

    let session = model.session()?;
    let text: Vec<i64> = TEXT.iter().map(|byte| i64::from(byte & 127)).collect();
    let mut rng = Rng::new(5);
    let mut all: Vec<f32> = Vec::new();
    for step in 0..steps {
        let begins = (0..size).map(|_| rng.below(text.len() - LENGTH));
        let batch: Vec<&[i64]> = begins.map(|at| &text[at..=at + LENGTH]).collect();
        all.push(session.run(&loss, feed! { windows: batch }, &[&train])?);
        if step % 100 == 0 {
            println!("step {step}: loss {:.3}", all[step]);
        }
    }
    // Greedy generation: continues the text with the most probable character at each step.
    let mut seen = text[..LENGTH].to_vec();
    for _ in 0..if cfg!(debug_assertions) { 5 } else { 200 } {
        let window = &seen[seen.len() - LENGTH..];
        let [guesses]: [[i64; LENGTH]; 1] = session.run(&guesses, letters.feed([window]), &[])?;
        seen.push(guesses[LENGTH - 1]);
    }
    println!("{}", seen.iter().map(|letter| char::from(*letter as u8)).collect::<String>());
    assert!(steps < 2 || all[steps - 1] < all[0], "it learnt nothing");
    assert!(steps < 600 || all[steps - 1] < 1.5, "it learnt little: {}", all[steps - 1]);
    Ok(())
}
