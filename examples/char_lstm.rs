//! A character-level language model of this project's tutorial, with an LSTM.
//!
//! `cargo run --release --example char_lstm -- [STEPS]`
//!
//! It prints the loss, which falls from 4.9 to below 1 in 2,000 steps, and a hundred generated
//! characters.

use thalweg::train::{Clip, Dense, Embedding, Layer, Lstm, Model, Rng, Sequential, losses};
use thalweg::{Adam, Result, feed};

const TEXT: &[u8] = include_bytes!("../docs/src/tutorial/graphs.md");
const LENGTH: usize = 32;

fn main() -> Result<()> {
    // A build for development is a hundred times slower: it takes a look.
    let (default, written) = if cfg!(debug_assertions) { (15, 10) } else { (2000, 100) };
    let steps: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(default);
    let net = Sequential::new()
        .then(Embedding::new(128, 16))
        .then(Lstm::new(64).return_sequences())
        .then(Dense::new(128));
    let model = Model::new();
    let windows = model.placeholder::<i64>("windows", [None, Some(LENGTH + 1)]);
    let (letters, next) = (windows.index((.., ..LENGTH)), windows.index((.., 1..)));
    let loss = losses::softmax_cross_entropy(&net.apply(&model, &letters), &next);
    let train = Adam::new(0.01).clip(Clip::GlobalNorm(5.0)).minimize(&loss);
    let guesses = net.apply(&model.inference(), &letters).argmax(-1);

    let session = model.session()?;
    let text: Vec<i64> = TEXT.iter().map(|byte| i64::from(byte & 127)).collect();
    let mut rng = Rng::new(2);
    let mut all: Vec<f32> = Vec::new();
    for step in 0..steps {
        let begins = (0..16).map(|_| rng.below(text.len() - LENGTH));
        let batch: Vec<&[i64]> = begins.map(|at| &text[at..=at + LENGTH]).collect();
        all.push(session.run(&loss, feed! { windows: batch }, &[&train])?);
        if step % 250 == 0 {
            println!("step {step}: loss {:.3}", all[step]);
        }
    }
    // Greedy generation: continues the text with the most probable character at each step.
    let mut seen = text[..LENGTH].to_vec();
    for _ in 0..written {
        let window = &seen[seen.len() - LENGTH..];
        let [guesses]: [[i64; LENGTH]; 1] = session.run(&guesses, letters.feed([window]), &[])?;
        seen.push(guesses[LENGTH - 1]);
    }
    println!("{}", seen.iter().map(|letter| char::from(*letter as u8)).collect::<String>());
    assert!(steps < 2 || all[steps - 1] < all[0], "it learnt nothing");
    assert!(steps < 2000 || all[steps - 1] < 1.0, "it learnt little: {}", all[steps - 1]);
    Ok(())
}
