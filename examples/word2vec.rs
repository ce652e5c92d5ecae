//! Word vectors by skip-gram with sampled softmax, over partitioned tables.
//!
//! `cargo run --release --example word2vec -- [STEPS]`
//!
//! It prints the mean loss of both halves of the training, about 3.0 and 2.8, and the nearest
//! neighbours of some words.

use std::collections::BTreeMap;

use thalweg::prelude::*;

const TEXT: &str = concat!(
    include_str!("../docs/src/tutorial/graphs.md"),
    include_str!("../docs/src/concepts/control-flow.md")
);
const WIDTH: usize = 16;
const WINDOW: usize = 2;
const BATCH: usize = 64;

fn main() -> Result<()> {
    // A build for development is a hundred times slower: it takes a look.
    let default = if cfg!(debug_assertions) { 60 } else { 500 };
    let steps: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(default);
    let (words, ids) = vocabulary(TEXT);
    let classes = words.len();
    let mut model = Model::new(thalweg::scope());
    let centre = model.input("centre", DType::Int64, &[None])?;
    let context = model.input("context", DType::Int64, &[None])?;
    let vectors = Embedding::new(classes, WIDTH).shards(2);
    let x = vectors.apply(&mut model, centre)?;
    let weights = Embedding::new(classes, WIDTH).shards(2).tables(&model.layer("softmax"))?;
    let biases = Embedding::new(classes, 1).shards(2).tables(&model.layer("bias"))?;
    let sampled = losses::Sampled { count: 16, classes, removes_hits: true };
    let loss = losses::sampled_softmax(&mut model, &weights, &biases, x, context, sampled)?;
    let train = Optimizer::adagrad(0.5).minimize(&mut model, loss)?;
    let init = model.init()?;
    let (x, loss) = (model.name_of(x), model.name_of(loss));

    let session = thalweg::session(&model)?;
    session.run(&[], &[], &[&model.node_name(init)])?;
    let pairs = pairs(&ids);
    let mut rng = Rng::new(4);
    let mut sums = [0.0f32; 2];
    for step in 0..steps {
        let batch = (0..BATCH).map(|_| pairs[rng.below(pairs.len())]);
        let (centres, contexts): (Vec<i64>, Vec<i64>) = batch.unzip();
        let feeds =
            [("centre:0", Tensor::vector(&centres)?), ("context:0", Tensor::vector(&contexts)?)];
        let results = session.run(&feeds, &[&loss], &[&model.node_name(train)])?;
        sums[step * 2 / steps] += results[0].scalar_value::<f32>()?;
    }
    let half = steps as f32 / 2.0;
    println!("{classes} words; mean loss {:.2}, then {:.2}", sums[0] / half, sums[1] / half);
    assert!(sums[1] < sums[0], "it learnt nothing");

    let all: Vec<i64> = (0..classes as i64).collect();
    let table = session.run(&[("centre:0", Tensor::vector(&all)?)], &[&x], &[])?;
    let rows: Vec<&[f32]> = table[0].as_slice::<f32>()?.chunks(WIDTH).collect();
    for word in ["graph", "loop", "tensor"] {
        if let Some(id) = words.iter().position(|w| w == word) {
            println!("{word}: {}", nearest(&rows, id).map(|i| words[i].as_str()).join(", "));
        }
    }
    Ok(())
}

/// The vocabulary by descending frequency, and the text as word indices.
fn vocabulary(text: &str) -> (Vec<String>, Vec<i64>) {
    let lower = text.to_lowercase();
    let split = || lower.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty());
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    split().for_each(|word| *counts.entry(word).or_default() += 1);
    let mut words: Vec<&str> = counts.keys().copied().collect();
    words.sort_by_key(|word| std::cmp::Reverse(counts[word]));
    let numbers: BTreeMap<&str, i64> = words.iter().copied().zip(0..).collect();
    let ids = split().map(|word| numbers[word]).collect();
    (words.into_iter().map(str::to_owned).collect(), ids)
}

/// Skip-gram pairs: every word with each of its neighbours.
fn pairs(ids: &[i64]) -> Vec<(i64, i64)> {
    let near = |at: usize| at.saturating_sub(WINDOW)..(at + WINDOW + 1).min(ids.len());
    let around = |at: usize| near(at).filter(move |other| *other != at);
    (0..ids.len()).flat_map(|at| around(at).map(move |other| (ids[at], ids[other]))).collect()
}

/// The four words with the highest cosine similarity to `id`.
fn nearest(rows: &[&[f32]], id: usize) -> [usize; 4] {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f32>();
    let likeness = |i: usize| dot(rows[id], rows[i]) / dot(rows[i], rows[i]).sqrt();
    let mut others: Vec<usize> = (0..rows.len()).filter(|i| *i != id).collect();
    others.sort_by(|a, b| likeness(*b).total_cmp(&likeness(*a)));
    [others[0], others[1], others[2], others[3]]
}
