//! Word vectors by skip-gram with sampled softmax, over partitioned tables.
//!
//! `cargo run --release --example word2vec -- [STEPS]`
//!
//! It prints the mean loss of both halves of the training, about 3.0 and 2.8, and the nearest
//! neighbours of some words.

use std::collections::BTreeMap;

use thalweg::train::{Embedding, Layer, Model, Rng, losses};
use thalweg::{Adagrad, Result, feed, tf};

const TEXT: &str = concat!(
    include_str!("../docs/src/tutorial/graphs.md"),
    include_str!("../docs/src/concepts/control-flow.md")
);
const WIDTH: usize = 16;
const WINDOW: usize = 2;

fn main() -> Result<()> {
    // A build for development is a hundred times slower: it takes a look.
    let default = if cfg!(debug_assertions) { 60 } else { 500 };
    let steps: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(default);
    let (words, ids) = vocabulary(TEXT);
    let classes = words.len();
    let model = Model::new();
    let centre = model.placeholder::<i64>("centre", [None]);
    let context = model.placeholder::<i64>("context", [None]);
    let table = |width| Embedding::new(classes, width).shards(2);
    let x = table(WIDTH).apply(&model, &centre);
    let (weights, biases) =
        (table(WIDTH).table(&model.layer("softmax")), table(1).table(&model.layer("bias")));
    let sampled = losses::Sampled { count: 16, classes, removes_hits: true };
    let loss = losses::sampled_softmax(&model, (&weights, &biases), (&x, &context), sampled);
    let train = Adagrad::new(0.5).minimize(&loss);
    // The words with the highest cosine similarity, first the word itself.
    let unit = &x * x.square().sum_keepdims([-1]).rsqrt();
    let similarity = tf::MatMul::new().transpose_b(true).build(&unit, &unit);
    let (_, nearest) = tf::top_k_v2::<i32, _, _>(&similarity, 5);

    let session = model.session()?;
    let pairs = pairs(&ids);
    let mut rng = Rng::new(4);
    let mut sums = [0.0f32; 2];
    for step in 0..steps {
        let batch = (0..64).map(|_| pairs[rng.below(pairs.len())]);
        let (centres, contexts): (Vec<i64>, Vec<i64>) = batch.unzip();
        let feeds = feed! { centre: centres, context: contexts };
        sums[step * 2 / steps] += session.run::<_, f32>(&loss, feeds, &[&train])?;
    }
    let half = steps as f32 / 2.0;
    println!("{classes} words; mean loss {:.2}, then {:.2}", sums[0] / half, sums[1] / half);
    assert!(sums[1] < sums[0], "it learnt nothing");

    let all: Vec<i64> = (0..classes as i64).collect();
    let nearest: Vec<[i32; 5]> = session.run(&nearest, feed! { centre: all }, &[])?;
    for word in ["graph", "loop", "tensor"] {
        if let Some(id) = words.iter().position(|w| *w == word) {
            println!("{word}: {}", nearest[id].map(|i| words[i as usize])[1..].join(", "));
        }
    }
    Ok(())
}

/// The vocabulary by descending frequency, and the text as word indices.
fn vocabulary(text: &str) -> (Vec<&str>, Vec<i64>) {
    let split = || text.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty());
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    split().for_each(|word| *counts.entry(word).or_default() += 1);
    let mut words: Vec<&str> = counts.keys().copied().collect();
    words.sort_by_key(|word| std::cmp::Reverse(counts[word]));
    let numbers: BTreeMap<&str, i64> = words.iter().copied().zip(0..).collect();
    let ids = split().map(|word| numbers[word]).collect();
    (words, ids)
}

/// Skip-gram pairs: every word with each of its neighbours.
fn pairs(ids: &[i64]) -> Vec<(i64, i64)> {
    let near = |at: usize| at.saturating_sub(WINDOW)..(at + WINDOW + 1).min(ids.len());
    let around = |at: usize| near(at).filter(move |other| *other != at);
    (0..ids.len()).flat_map(|at| around(at).map(move |other| (ids[at], ids[other]))).collect()
}
