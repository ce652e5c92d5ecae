//! Readers whose queue of file names is empty: they wait without a thread, and can be cancelled.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use std::sync::mpsc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use support::*;
use thalweg_graph::Scope;
use thalweg_kernel::Cancellation;
use thalweg_ops::{FAMILIES, kernel_registry, op_registry};
use thalweg_runtime::{RunOptions, Session, SessionOptions};
use thalweg_tensor::{Code, DType, Error, PartialShape, Result, Tensor};

/// A queue of file names and a reader of their lines.
struct Lines {
    session: Session,
    value: String,
    name: String,
    put: String,
}

impl Lines {
    fn new() -> Lines {
        let mut scope = Scope::new(op_registry(FAMILIES).unwrap());
        let queue = scope
            .op("FIFOQueueV2")
            .attr("component_types", &[DType::String][..])
            .attr("shapes", &[PartialShape::scalar()][..])
            .build()
            .unwrap();
        let reader = scope.op("TextLineReaderV2").build().unwrap();
        let read = scope.op("ReaderReadV2").inputs(&[reader, queue]).build_all().unwrap();
        let name = scope.placeholder(DType::String, &PartialShape::scalar()).unwrap();
        let put = scope.op("QueueEnqueueV2").name("put").inputs(&[queue, name]);
        put.attr("Tcomponents", &[DType::String][..]).build_node().unwrap();
        let (value, name) = (scope.name_of(read[1]), scope.name_of(name));
        let options = SessionOptions { inter_threads: 2, ..Default::default() };
        let kernels = kernel_registry(FAMILIES);
        let session = Session::new(scope.to_graph(), kernels, options).unwrap();
        Lines { session, value, name, put: "put".into() }
    }

    fn put(&self, path: &str) {
        let path = Tensor::scalar_string(path.to_owned());
        self.session.run(&[(&self.name, path)], &[], &[&self.put]).unwrap();
    }

    fn read(&self, options: &RunOptions) -> Result<String> {
        let (values, _) = self.session.run_with(options, &[], &[&self.value], &[])?;
        Ok(String::from_utf8_lossy(&values[0].strings()?[0]).into_owned())
    }
}

fn file(name: &str, content: &str) -> String {
    let path = std::env::temp_dir().join(format!("thalweg-readers-{}-{name}", std::process::id()));
    std::fs::write(&path, content).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_wait_ends_with_its_deadline_and_loses_nothing() {
    watched("a deadline", || {
        let lines = Lines::new();
        let soon = RunOptions { timeout: Some(Duration::from_millis(100)), ..Default::default() };
        let path = file("deadline", "a\nb\n");
        for round in 0..3 {
            for _ in 0..2 {
                let e = lines.read(&soon).unwrap_err();
                assert_eq!(e.code(), Code::DeadlineExceeded, "{round}: {e}");
            }
            lines.put(&path);
            let default = RunOptions::default();
            assert_eq!(lines.read(&default).unwrap(), "a", "{round}");
            assert_eq!(lines.read(&default).unwrap(), "b", "{round}");
        }
        std::fs::remove_file(path).unwrap();
    });
}

#[test]
fn waiting_reads_can_be_cancelled() {
    watched("cancelled readers", || {
        let lines = Lines::new();
        let cancellations: Vec<Cancellation> = (0..5).map(|_| Cancellation::default()).collect();
        let (sender, receiver) = mpsc::channel();
        for (i, cancellation) in cancellations.iter().enumerate() {
            let (sender, cancellation) = (sender.clone(), Some(cancellation.clone()));
            let options = RunOptions { cancellation, ..Default::default() };
            let done = move |result: Result<_>| sender.send((i, result.map(drop))).unwrap();
            lines.session.start(options, vec![], vec![lines.value.clone()], vec![], done);
        }
        assert!(matches!(
            receiver.recv_timeout(Duration::from_millis(100)),
            Err(RecvTimeoutError::Timeout)
        ));
        for i in [2, 0, 4, 3, 1] {
            cancellations[i].cancel(Error::new(Code::Cancelled, "enough".to_owned()));
            let (ended, result) = receiver.recv().unwrap();
            assert_eq!((ended, result.unwrap_err().code()), (i, Code::Cancelled));
        }
        // The reader works again.
        let path = file("cancelled", "x\n");
        lines.put(&path);
        assert_eq!(lines.read(&RunOptions::default()).unwrap(), "x");
        std::fs::remove_file(path).unwrap();
    });
}

#[test]
fn a_file_that_is_not_there_costs_its_read_only() {
    watched("a missing file", || {
        let lines = Lines::new();
        let path = file("there", "y\n");
        lines.put("/no/such/file");
        lines.put(&path);
        let e = lines.read(&RunOptions::default()).unwrap_err();
        assert!(e.code() == Code::NotFound && e.message().contains("/no/such/file"), "{e}");
        assert_eq!(lines.read(&RunOptions::default()).unwrap(), "y");
        std::fs::remove_file(path).unwrap();
    });
}
