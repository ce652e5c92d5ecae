//! Training jobs in virtual time.

use thalweg_sim::train::{NetDescription, TrainJob};
use thalweg_train::Mode;

fn net() -> NetDescription {
    NetDescription::dense(4_000_000, 4, 3e9, 32)
}

#[test]
fn smoke() {
    for mode in [
        Mode::Async,
        Mode::sync(),
        Mode::Sync { order: thalweg_train::Order::Worker },
        Mode::Backup { spare: 1 },
        Mode::Stale { bound: 2 },
    ] {
        let job = TrainJob::new(4, 2, mode, net());
        let begin = std::time::Instant::now();
        let report = job.run();
        eprintln!("{mode:?} {:?}", begin.elapsed());
        match report {
            Ok(report) => eprintln!("{}", report.to_json()),
            Err(e) => eprintln!("{e}"),
        }
    }
}
