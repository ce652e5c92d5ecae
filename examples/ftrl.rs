//! Sparse logistic regression on hashed keys, with FTRL-proximal.
//!
//! Every example has a few 64-bit keys out of very many; a handful of them determine the label. L1
//! regularization keeps the weights of all others at zero.
//!
//! It prints the loss, which falls from 0.693 to below 0.1, and the number of nonzero weights: some
//! 30 of 16384, for the 20 informative keys and a few hash collisions.

use thalweg::train::{Embedding, Initializer, Model, Optimizer, Rng, Rule, losses};
use thalweg::{Result, feed, tf};

/// The number of hash buckets.
const BUCKETS: usize = 1 << 14;
const KEYS: usize = 8;

fn main() -> Result<()> {
    let model = Model::new();
    let keys = model.placeholder::<i64>("keys", [None, Some(KEYS)]);
    let labels = model.placeholder::<f32>("labels", [None]);
    let buckets = tf::string_to_hash_bucket_fast(tf::as_string(&keys), BUCKETS as i64);
    let table = Embedding::new(BUCKETS, 1).initializer(Initializer::Zeros).table(&model);
    let logits = table.lookup(&model, &buckets).sum_axes([1, 2]);
    let loss = losses::sigmoid_cross_entropy(&logits, &labels);
    let rule = Rule::Ftrl { initial: 0.1, l1: 0.02, l2: 0.0, power: -0.5, shrinkage: 0.0 };
    let train = Optimizer::new(rule, 0.5).minimize(&loss);
    let used = table.values(&model)[0].not_equal(0.0).cast::<i64>().sum();

    let session = model.session()?;
    let mut rng = Rng::new(5);
    let mut all: Vec<f32> = Vec::new();
    for step in 0..300 {
        let (some, right) = batch(&mut rng);
        all.push(session.run(&loss, feed! { keys: some, labels: right }, &[&train])?);
        if step % 100 == 0 {
            println!("step {step}: loss {:.3}", all[step]);
        }
    }
    let used: i64 = session.run(&used, (), &[])?;
    println!("loss {:.3}; {used} of {BUCKETS} weights are not zero", all[299]);
    assert!(all[299] < 0.6 * all[0] && used < BUCKETS as i64 / 4, "it did not learn");
    Ok(())
}

/// Examples whose label is 1 if they have a key below 10.
fn batch(rng: &mut Rng) -> (Vec<[i64; KEYS]>, Vec<f32>) {
    let mut example = |_| {
        let is_good = rng.below(2) == 0;
        let telling = if is_good { rng.below(10) } else { 10 + rng.below(10) };
        // The rest says nothing, and hardly ever comes again.
        let keys = std::array::from_fn(|i| if i == 0 { telling as i64 } else { rng.bits() as i64 });
        (keys, f32::from(u8::from(is_good)))
    };
    (0..128).map(&mut example).unzip()
}
