//! Arrays of `testdata/xla`: dtype, shape and values.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;
use serde_json::Value as Json;
use thalweg_tensor::{DType, Shape, Tensor};

/// The lines of a file.
pub(crate) fn lines(file: &str) -> Vec<Json> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/xla").join(file);
    let mut text = String::new();
    GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub(crate) fn tensor(json: &Json) -> Tensor {
    let (shape, values) = (Shape::new(&dims(json)).unwrap(), numbers(json));
    match json["dtype"].as_str().unwrap() {
        "float32" => Tensor::from_slice(shape, &map(&values, |x| x as f32)),
        "int32" => Tensor::from_slice(shape, &map(&values, |x| x as i32)),
        "uint32" => Tensor::from_slice(shape, &map(&values, |x| x as u32)),
        other => panic!("{other}"),
    }
    .unwrap()
}

/// The first difference between tensors and what they should be, if there is one.
pub(crate) fn difference(got: &[Tensor], wanted: &[Json], tolerance: f64) -> Option<String> {
    if got.len() != wanted.len() {
        return Some(format!("{} results instead of {}", got.len(), wanted.len()));
    }
    for (got, wanted) in got.iter().zip(wanted) {
        if got.shape().dims() != dims(wanted) {
            return Some(format!("shape {} instead of {}", got.shape(), wanted["shape"]));
        }
        for (got, wanted) in floats(got).into_iter().zip(numbers(wanted)) {
            if (got - wanted).abs() > tolerance * wanted.abs().max(1.0) {
                return Some(format!("{got} instead of {wanted}"));
            }
        }
    }
    None
}

fn dims(json: &Json) -> Vec<usize> {
    json["shape"].as_array().unwrap().iter().map(|d| d.as_u64().unwrap() as usize).collect()
}

fn numbers(json: &Json) -> Vec<f64> {
    let number = |v: &Json| v.as_f64().unwrap_or_else(|| f64::from(v.as_bool().unwrap()));
    json["values"].as_array().unwrap().iter().map(number).collect()
}

fn map<T>(values: &[f64], f: impl Fn(f64) -> T) -> Vec<T> {
    values.iter().map(|&x| f(x)).collect()
}

fn floats(tensor: &Tensor) -> Vec<f64> {
    match tensor.dtype() {
        DType::Float => tensor.as_slice::<f32>().unwrap().iter().map(|&x| x.into()).collect(),
        DType::Int32 => tensor.as_slice::<i32>().unwrap().iter().map(|&x| x.into()).collect(),
        DType::UInt32 => tensor.as_slice::<u32>().unwrap().iter().map(|&x| x.into()).collect(),
        DType::Bool => tensor.as_slice::<bool>().unwrap().iter().map(|&x| x.into()).collect(),
        other => panic!("{other}"),
    }
}
