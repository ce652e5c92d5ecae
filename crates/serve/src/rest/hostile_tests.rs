//! Randomly damaged requests (seeded): every request gets an answer or an error.

use bytes::Bytes;
use thalweg_formats::saved_model::{Signature, TensorSpec};
use thalweg_tensor::{Budget, DType, PartialShape};

use super::kserve::request;
use super::{examples, json, route, tensors};
use crate::growing::GrowingCharge;

const BODIES: &[&str] = &[
    r#"{"signature_name": "serving_default", "instances": [{"a": [1, 2.5], "b": "x"}, {"a": [-3e2, 4], "b": {"b64": "eHk="}}]}"#,
    r#"{"inputs": {"a": [[1, NaN], [-Infinity, 4]], "b": ["x\n\"", "\u00e9\ud83d\ude00"]}}"#,
    r#"{"context": {"c": [1, 2]}, "examples": [{"a": 1.5, "s": ["x", {"b64": "eQ=="}], "t": true}, {}]}"#,
    r#"{"instances": [[[1, 2], [3, 4]], [[5, 6], [7, 8]]], "other": {"x": [null, false, {}]}}"#,
    r#"{"id": "1", "inputs": [{"name": "a", "shape": [2, 2], "datatype": "FP32", "data": [[1, 2], [3, 4]]}], "outputs": [{"name": "y"}]}"#,
    r#"{"parameters": {"x": 1}, "inputs": [{"name": "a", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": 5}}]}        "#,
];
const PATHS: &[&str] =
    &["/v1/models/m/versions/12:predict", "/v1/models/a%20b/labels/stable/metadata"];
/// Fragments that are inserted or written over.
const PARTS: &[&[u8]] = &[
    b"[",
    b"]",
    b"{",
    b"}",
    b"\"",
    b":",
    b",",
    b"\\",
    b"\\u",
    b"-",
    b"e",
    b"1",
    b"NaN",
    b"\xff",
    b"\x00",
    b"{\"b64\":",
    b"[[[[",
    b"9999999999",
    b"null",
    b"%",
    b"/",
];

fn damaged(seed: u64, text: &str) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = |n: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 17) as usize % n.max(1)
    };
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..=next(4) {
        let at = next(bytes.len());
        let end = (at + next(6)).min(bytes.len());
        match next(4) {
            0 => drop(bytes.splice(at..end, [])),
            1 => drop(bytes.splice(at..at, PARTS[next(PARTS.len())].iter().copied())),
            2 => drop(bytes.splice(at..end, PARTS[next(PARTS.len())].iter().copied())),
            _ => bytes.truncate(at),
        }
    }
    bytes
}

#[test]
fn damaged_requests_are_answered() {
    let spec = |dtype| TensorSpec { tensor: "x:0".into(), dtype, shape: PartialShape::unknown() };
    let signature = |inputs: &[(&str, DType)]| Signature {
        inputs: inputs.iter().map(|&(n, dtype)| (n.to_owned(), spec(dtype))).collect(),
        outputs: [("y".to_owned(), spec(DType::Float))].into(),
        ..Default::default()
    };
    let signatures = [
        signature(&[("a", DType::Float), ("b", DType::String)]),
        signature(&[("a", DType::Int8)]),
        signature(&[]),
    ];
    let budget = Budget::new(1 << 20);
    let room = || GrowingCharge::new(&budget);
    let mut read = 0;
    for seed in 0..20_000 {
        let body = damaged(seed, BODIES[seed as usize % BODIES.len()]);
        if let Ok(members) = json::members(&body) {
            let _ = tensors::signature_name(&members);
            read += usize::from(examples::input(&members, &mut room()).is_ok());
            for signature in &signatures {
                read += usize::from(tensors::inputs(&members, signature, &mut room()).is_ok());
            }
        }
        for json_len in [None, Some(body.len().saturating_sub(8))] {
            let body = Bytes::from(body.clone());
            for signature in &signatures {
                read += usize::from(
                    request::read(&body, json_len, &mut room(), |_| Ok(signature)).is_ok(),
                );
            }
        }
        let path = damaged(seed, PATHS[seed as usize % PATHS.len()]);
        let path = String::from_utf8_lossy(&path);
        for method in [http::Method::GET, http::Method::POST] {
            let _ = route::parse(&method, &path);
        }
    }
    // Some damaged requests must be valid: otherwise the parsers stop at the first byte.
    assert!(read > 100, "{read}");
}
