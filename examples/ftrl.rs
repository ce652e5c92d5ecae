//! Sparse logistic regression on hashed keys, with FTRL-proximal.
//!
//! Every example has a few 64-bit keys out of very many; a handful of them determine the label. L1
//! regularization keeps the weights of all others at zero.
//!
//! It prints the loss, which falls from 0.693 to below 0.1, and the number of nonzero weights: some
//! 30 of 16384, for the 20 informative keys and a few hash collisions.

use thalweg::prelude::*;

/// The number of hash buckets.
const BUCKETS: usize = 1 << 14;
const KEYS: usize = 8;
const BATCH: usize = 128;

fn main() -> Result<()> {
    let mut model = Model::new(thalweg::scope());
    let keys = model.input("keys", DType::Int64, &[None, Some(KEYS)])?;
    let labels = model.input("labels", DType::Float, &[None])?;
    let text = model.add("AsString", &[keys])?;
    let node = model.op("StringToHashBucketFast").input(text);
    let buckets = node.attr("num_buckets", BUCKETS as i64).build()?;
    let table = model.variable("weights", &[BUCKETS], &Initializer::Zeros)?;
    let weights = table.gather(&mut model, buckets)?;
    let axis = model.ints(&[1])?;
    let logits = model.add("Sum", &[weights, axis])?;
    let loss = losses::sigmoid_cross_entropy(&mut model, logits, labels)?;
    let rule = Rule::Ftrl { initial: 0.1, l1: 0.02, l2: 0.0, power: -0.5, shrinkage: 0.0 };
    let train = Optimizer::new(rule, 0.5).minimize(&mut model, loss)?;
    let init = model.init()?;
    let all = table.read(&mut model)?;
    let (loss, all) = (model.name_of(loss), model.name_of(all));

    let session = thalweg::session(&model)?;
    session.run(&[], &[], &[&model.node_name(init)])?;
    let mut rng = Rng::new(5);
    let mut losses = Vec::new();
    for step in 0..300 {
        let (keys, labels) = batch(&mut rng);
        let feeds = [
            ("keys:0", Tensor::from_slice(Shape::new(&[BATCH, KEYS])?, &keys)?),
            ("labels:0", Tensor::vector(&labels)?),
        ];
        let results = session.run(&feeds, &[&loss], &[&model.node_name(train)])?;
        losses.push(results[0].scalar_value::<f32>()?);
        if step % 100 == 0 {
            println!("step {step}: loss {:.3}", losses[step]);
        }
    }
    let weights = session.run(&[], &[&all], &[])?;
    let used = weights[0].as_slice::<f32>()?.iter().filter(|weight| **weight != 0.0).count();
    println!("loss {:.3}; {used} of {BUCKETS} weights are not zero", losses[299]);
    assert!(losses[299] < 0.6 * losses[0], "it did not learn");
    assert!(used < BUCKETS / 4, "{used} weights are not zero");
    Ok(())
}

/// Examples whose label is 1 if they have a key below 10.
fn batch(rng: &mut Rng) -> (Vec<i64>, Vec<f32>) {
    let mut keys = Vec::new();
    let mut labels = Vec::new();
    for _ in 0..BATCH {
        let is_good = rng.below(2) == 0;
        let telling = if is_good { rng.below(10) } else { 10 + rng.below(10) };
        keys.push(telling as i64);
        // The rest says nothing, and hardly ever comes again.
        keys.extend((1..KEYS).map(|_| rng.bits() as i64));
        labels.push(f32::from(u8::from(is_good)));
    }
    (keys, labels)
}
