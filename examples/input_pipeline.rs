//! Reads TFRecords, shuffles and batches them, on its own and into a graph:
//! `cargo run --example input_pipeline`.
//!
//! It prints batches of records, then two batches of a custom source in a graph.

use std::sync::Arc;

use thalweg::formats::record::{Compression, RecordWriter};
use thalweg::formats::{LocalStorage, Storage};
use thalweg::ops::dataset::{Dataset, ElementIter, InputSource, in_graph};
use thalweg::tensor::PartialShape;
use thalweg::{Code, DType, Error, Graph, Result, RunSteps, Tensor};

/// A custom source: numbers in a text file, separated by spaces.
struct Numbers(String);

impl InputSource for Numbers {
    fn open(&self, files: &Arc<dyn Storage>) -> Result<ElementIter> {
        let content = files.read(&self.0, 1 << 20)?;
        let number = |word: &str| match word.parse::<f32>() {
            Ok(number) => Ok(vec![Tensor::scalar(number)]),
            Err(e) => Err(Error::new(Code::DataLoss, format!("{}: '{word}': {e}", self.0))),
        };
        let text = String::from_utf8_lossy(&content);
        let numbers: Vec<Result<Vec<Tensor>>> = text.split_whitespace().map(number).collect();
        Ok(Box::new(numbers.into_iter()))
    }
}

fn main() -> Result<()> {
    let folder = std::env::temp_dir().join(format!("thalweg-input-{}", std::process::id()));
    let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let storage = LocalStorage::default();
    storage.create_folder(&folder.to_string_lossy())?;
    let mut writer = RecordWriter::new(storage.replace(&path("words"))?, Compression::None);
    for word in ["ash", "beech", "cedar", "elm", "fir"] {
        writer.write(word.as_bytes())?;
    }
    writer.finish()?;

    // On its own: elements are vectors of tensors.
    let words = Dataset::tfrecords([path("words")])
        .shuffle(100, 42)
        .parallel_map(2, |element| {
            let length = element[0].strings()?[0].len() as i64;
            Ok(vec![element[0].clone(), Tensor::scalar(length)])
        })
        .batch(2)
        .prefetch(1);
    for batch in thalweg::elements(&words)? {
        let batch = batch?;
        println!("{:?} {:?}", batch[0].strings()?, batch[1].as_slice::<i64>()?);
    }

    // Into a graph: a step that needs an element draws one.
    storage.write(&path("numbers"), b"1 2 3.5 4 5")?;
    let g = Graph::new();
    let element = [(DType::Float, PartialShape::new([None]))];
    let input = in_graph(&mut g.as_scope().clone(), &element)?;
    let squares = g.output::<f32>(input.components[0]).square();
    let session = g.session()?;
    let numbers = Dataset::from_source(Numbers(path("numbers"))).batch(3).into_tensor()?;
    session.run_step(&[(&input.dataset, numbers)], &[], &[&input.initializer])?;
    let next = || session.run::<_, Vec<f32>>(&squares, (), &[]);
    println!("{:?} {:?}", next()?, next()?);
    assert_eq!(next().expect_err("there are two batches").code(), Code::OutOfRange);
    std::fs::remove_dir_all(folder).ok();
    Ok(())
}
