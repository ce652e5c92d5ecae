//! Results depend on the seed, and not on the number of threads, bit for bit.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use support::*;
use thalweg_tensor::{Shape, Tensor};

#[test]
fn threads_do_not_change_bits() {
    let mut s = scope();
    let shape = s.constant(&Tensor::vector(&[300i32, 257]).unwrap()).unwrap();
    let random = |op: &str, s: &mut thalweg_graph::Scope| {
        s.op(op)
            .input(shape)
            .attr("dtype", thalweg_tensor::DType::Float)
            .attr("seed", 7i64)
            .attr("seed2", 11i64)
            .build()
            .unwrap()
    };
    let (a, b) = (random("RandomUniform", &mut s), random("RandomStandardNormal", &mut s));
    let product =
        s.op("MatMul").name("m").inputs(&[a, b]).attr("transpose_b", true).build().unwrap();
    let axes = s.constant(&Tensor::vector(&[0i32, 1]).unwrap()).unwrap();
    s.op("Sum").name("sum").inputs(&[product, axes]).build().unwrap();
    let row = s.constant(&Tensor::vector(&[0i32]).unwrap()).unwrap();
    s.op("Mean").name("mean").inputs(&[product, row]).build().unwrap();
    let softmax = s.op("Softmax").name("softmax").input(product).build().unwrap();
    s.op("Tanh").name("tanh").input(softmax).build().unwrap();
    let names =
        [s.name_of(a), s.name_of(b), "m".into(), "sum".into(), "mean".into(), "tanh".into()];
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let bits = |threads: usize| -> Vec<Vec<u8>> {
        let s = session(s.to_graph(), threads);
        (0..2)
            .flat_map(|_| s.run(&[], &names, &[]).unwrap())
            .map(|t: Tensor| t.as_bytes().unwrap().to_vec())
            .collect()
    };
    let one = bits(1);
    assert_ne!(one[0], one[names.len()], "the second step draws other numbers");
    for threads in [2, 4] {
        assert!(bits(threads) == one, "{threads} threads");
    }
    assert_eq!(Shape::new(&[300, 257]).unwrap().num_elements() * 4, one[0].len());
}
