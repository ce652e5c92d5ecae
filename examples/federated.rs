//! Federated averaging on MNIST: clients train on their own images, and a server averages their
//! weights by the number of samples. Clients drop out at random; a round continues without them.
//!
//! `cargo run --release --example federated -- [ROUNDS]`
//!
//! It prints a line per round: with four to six clients in each, the test accuracy is about 95 %
//! after fifteen rounds.

use thalweg::train::{
    Dense, Flatten, Layer, Model, Rng, Sequential, Weights, losses, metrics, mnist, weighted_mean,
};
use thalweg::{Result, Sgd, Tensor, feed};

const CLIENTS: usize = 6;
const BATCH: usize = 32;
/// In how many of ten rounds a client drops out.
const DROPOUTS: usize = 3;

fn main() -> Result<()> {
    // A build for development is a hundred times slower: it takes a look.
    let (default, count) = if cfg!(debug_assertions) { (2, 600) } else { (15, 60_000) };
    let rounds: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(default);
    let model = Model::new();
    let (images, labels) = mnist::inputs(&model);
    let net = Sequential::new().then(Flatten).then(Dense::new(32).relu()).then(Dense::new(10));
    let logits = net.apply(&model, &images);
    let train = Sgd::new(0.1).minimize(&losses::softmax_cross_entropy(&logits, &labels));
    let accuracy = metrics::accuracy(&logits, &labels);
    let weights = Weights::new(&model);

    // The server's session holds what all begin with.
    let server = model.session()?;
    let mut shared: Vec<Tensor> = server.run(weights.values(), (), &[])?;
    let (digits, unseen) = (mnist::train()?.first(count), mnist::test()?.first(count / 3));
    let mut rng = Rng::new(3);
    // A client has its own session and its own images.
    let clients = deal(&digits, &mut rng)?.into_iter();
    let mut clients = clients.map(|own| Ok((model.session()?, own))).collect::<Result<Vec<_>>>()?;
    let mut reached = 0.0;
    for round in 1..=rounds {
        let mut returned = Vec::new();
        for (session, own) in &mut clients {
            session.run((), weights.feeds(&shared)?, &[weights.set()])?;
            rng.shuffle(own);
            for batch in own.chunks(BATCH) {
                let (pixels, classes) = digits.batch(batch)?;
                session.run((), feed! { images: pixels, labels: classes }, &[&train])?;
            }
            if rng.below(10) >= DROPOUTS {
                let learnt: Vec<Tensor> = session.run(weights.values(), (), &[])?;
                returned.push((own.len() as f32, learnt));
            }
        }
        // A round of which nothing came back changes nothing.
        if !returned.is_empty() {
            shared = weighted_mean(&returned)?;
        }
        server.run((), weights.feeds(&shared)?, &[weights.set()])?;
        let (pixels, classes) = unseen.all()?;
        reached = server.run(&accuracy, feed! { images: pixels, labels: classes }, &[])?;
        println!("round {round}: {} clients, {:.1} % read", returned.len(), 100.0 * reached);
    }
    assert!(rounds < 2 || reached > 0.2, "they did not learn: {reached}");
    assert!(rounds < 15 || reached > 0.92, "they did not learn: {reached}");
    Ok(())
}

/// A non-IID split of the images: mostly two classes per client, with different counts.
fn deal(digits: &mnist::Digits, rng: &mut Rng) -> Result<Vec<Vec<usize>>> {
    let mut parts = vec![Vec::new(); CLIENTS];
    for index in 0..digits.len() {
        let own = usize::from(digits.label(index)?) / 2;
        let client = if rng.below(10) < 6 { own } else { rng.below(CLIENTS) };
        parts[client].push(index);
    }
    Ok(parts)
}
