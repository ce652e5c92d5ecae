//! Federated averaging on MNIST: clients train on their own images, and a server averages their
//! weights by the number of samples. Clients drop out at random; a round continues without them.
//!
//! `cargo run --release --example federated -- [ROUNDS]`
//!
//! It prints a line per round: with four to six clients in each, the test accuracy is about 95 %
//! after fifteen rounds.

use thalweg::prelude::*;
use thalweg::train::{Weights, mnist};

const CLIENTS: usize = 6;
const BATCH: usize = 32;
/// In how many of ten rounds a client drops out.
const DROPOUTS: usize = 3;

/// A client: its own session and its own images.
struct Client {
    session: Session,
    digits: Vec<usize>,
}

fn main() -> Result<()> {
    // A build for development is a hundred times slower: it takes a look.
    let (default, count) = if cfg!(debug_assertions) { (2, 600) } else { (15, 60_000) };
    let rounds: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(default);
    let mut model = Model::new(thalweg::scope());
    let side = Some(mnist::SIDE);
    let images = model.input("images", DType::Float, &[None, side, side, Some(1)])?;
    let labels = model.input("labels", DType::Int64, &[None])?;
    let net = Sequential::new().then(Flatten).then(Dense::new(32).relu()).then(Dense::new(10));
    let scores = net.apply(&mut model, images)?;
    let loss = losses::softmax_cross_entropy(&mut model, scores, labels)?;
    let train = Optimizer::sgd(0.1).minimize(&mut model, loss)?;
    let accuracy = metrics::accuracy(&mut model, scores, labels)?;
    let weights = Weights::new(&mut model)?;
    let init = model.init()?;
    let (init, train) = (model.node_name(init), model.node_name(train));
    let accuracy = model.name_of(accuracy);

    // The server's session holds what all begin with.
    let server = thalweg::session(&model)?;
    server.run(&[], &[], &[&init])?;
    let mut shared = server.run(&[], &weights.reads(), &[])?;
    let (digits, unseen) = (mnist::train()?.first(count), mnist::test()?.first(count / 3));
    let mut rng = Rng::new(3);
    let parts = deal(&digits, &mut rng)?;
    let mut clients = Vec::new();
    for digits in parts {
        let session = thalweg::session(&model)?;
        session.run(&[], &[], &[&init])?;
        clients.push(Client { session, digits });
    }
    let mut reached = 0.0;
    for round in 1..=rounds {
        let mut returned = Vec::new();
        for client in &mut clients {
            client.session.run(&weights.feeds(&shared)?, &[], &[weights.set()])?;
            rng.shuffle(&mut client.digits);
            for batch in client.digits.chunks(BATCH) {
                let (images, labels) = digits.batch(batch)?;
                let feeds = [("images:0", images), ("labels:0", labels)];
                client.session.run(&feeds, &[], &[&train])?;
            }
            if rng.below(10) >= DROPOUTS {
                let learnt = client.session.run(&[], &weights.reads(), &[])?;
                returned.push((client.digits.len(), learnt));
            }
        }
        // A round of which nothing came back changes nothing.
        shared = average(&returned)?.unwrap_or(shared);
        server.run(&weights.feeds(&shared)?, &[], &[weights.set()])?;
        let all: Vec<usize> = (0..unseen.len()).collect();
        let (images, labels) = unseen.batch(&all)?;
        let feeds = [("images:0", images), ("labels:0", labels)];
        reached = server.run(&feeds, &[&accuracy], &[])?[0].scalar_value::<f32>()?;
        let (came, percent) = (returned.len(), 100.0 * reached);
        println!(
            "round {round}: {came} of {CLIENTS} clients, {percent:.1} % of unseen digits read"
        );
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

/// The average of the returned weights, weighted by the number of samples.
fn average(returned: &[(usize, Vec<Tensor>)]) -> Result<Option<Vec<Tensor>>> {
    let Some((_, like)) = returned.first() else { return Ok(None) };
    let all: usize = returned.iter().map(|(count, _)| count).sum();
    let mean = |i: usize| {
        let mut sum = vec![0.0; like[i].num_elements()];
        for (count, weights) in returned {
            let part = *count as f32 / all as f32;
            let weights = weights[i].as_slice::<f32>()?;
            sum.iter_mut().zip(weights).for_each(|(sum, weight)| *sum += part * weight);
        }
        Tensor::from_slice(like[i].shape().clone(), &sum)
    };
    (0..like.len()).map(mean).collect::<Result<Vec<_>>>().map(Some)
}
