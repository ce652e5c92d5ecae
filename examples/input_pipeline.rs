//! Reads TFRecords, shuffles and batches them, on its own and into a graph:
//! `cargo run --example input_pipeline`.
//!
//! It prints batches of records, then two batches of a custom source in a graph.

use std::sync::Arc;

use thalweg::formats::record::{Compression, RecordWriter};
use thalweg::formats::{LocalStorage, Storage};
use thalweg::ops::dataset::{ElementIter, InputSource, in_graph};
use thalweg::prelude::*;

/// A custom source: numbers in a text file, separated by spaces.
struct Numbers(String);

impl InputSource for Numbers {
    fn open(&self, files: &Arc<dyn Storage>) -> Result<ElementIter> {
        let content = files.read(&self.0, 1 << 20)?;
        let text = String::from_utf8_lossy(&content).into_owned();
        let numbers: Vec<Option<f32>> =
            text.split_whitespace().map(|word| word.parse().ok()).collect();
        let path = self.0.clone();
        Ok(Box::new(numbers.into_iter().map(move |number| match number {
            Some(number) => Ok(vec![Tensor::scalar(number)]),
            None => Err(Error::new(Code::DataLoss, format!("{path}: not a number"))),
        })))
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
    let mut scope = thalweg::scope();
    let input = in_graph(&mut scope, &[(DType::Float, PartialShape::new([None]))])?;
    let squares = scope.add("Square", &[input.components[0]])?;
    let session = thalweg::session(&scope)?;
    let numbers = Dataset::from_source(Numbers(path("numbers"))).batch(3).into_tensor()?;
    session.run(&[(&input.dataset, numbers)], &[], &[&input.initializer])?;
    let squares = scope.name_of(squares);
    let mut batches = 0;
    loop {
        match session.run(&[], &[&squares], &[]) {
            Ok(results) => println!("{:?}", results[0].as_slice::<f32>()?),
            Err(e) if e.code() == Code::OutOfRange => break,
            Err(e) => return Err(e),
        }
        batches += 1;
    }
    assert_eq!(batches, 2);
    std::fs::remove_dir_all(folder).ok();
    Ok(())
}
