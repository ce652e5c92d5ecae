//! On which threads programs are compiled.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use std::fmt;
use std::sync::Mutex;

use thalweg_graph::Scope;
use thalweg_ops::{FAMILIES, kernel_registry, op_registry};
use thalweg_runtime::Session;
use thalweg_tensor::{DType, Tensor};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Names of the threads that said that they compile.
static COMPILING: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Threads;

impl Subscriber for Threads {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "thalweg::accelerator"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Threads);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Visit for Threads {
    fn record_debug(&mut self, _: &Field, value: &dyn fmt::Debug) {
        if format!("{value:?}").starts_with("compiling the region") {
            let name = std::thread::current().name().unwrap_or_default().to_owned();
            COMPILING.lock().unwrap().push(name);
        }
    }
}

/// Steps of other sessions go on meanwhile: also a program for other shapes is compiled elsewhere.
#[test]
fn no_thread_of_the_executor_compiles() {
    let Some(accelerator) = support::accelerator("no_thread_of_the_executor_compiles") else {
        return;
    };
    tracing::subscriber::set_global_default(Threads).unwrap();
    let mut s = Scope::new(op_registry(FAMILIES).unwrap());
    let x = s.op("Placeholder").name("x").attr("dtype", DType::Float).build().unwrap();
    s.op("AddV2").name("y").inputs(&[x, x]).build().unwrap();
    let options = support::options(&accelerator);
    let session = Session::new(s.to_graph(), kernel_registry(FAMILIES), options).unwrap();
    for length in [1, 2, 3, 2, 1] {
        let fed = Tensor::vector(&vec![1f32; length]).unwrap();
        let got = session.run(&[("x:0", fed)], &["y:0"], &[]).unwrap();
        assert_eq!(got[0].as_slice::<f32>().unwrap(), vec![2f32; length]);
    }
    let threads = COMPILING.lock().unwrap();
    assert_eq!(threads.len(), 3, "{threads:?}");
    assert!(threads.iter().all(|name| name.starts_with("thalweg-files")), "{threads:?}");
}
