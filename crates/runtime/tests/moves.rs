//! Buffer reuse: which kernels get an input's buffer to themselves, and which buffers must not be written.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use support::*;
use thalweg_tensor::Tensor;

fn flags(tensors: &[Tensor]) -> Vec<bool> {
    tensors.iter().map(|t| t.scalar_value::<bool>().unwrap()).collect()
}

#[test]
fn the_last_reader_has_the_buffer_to_itself() {
    let mut s = scope();
    let x = feed(&mut s, "x");
    let fresh = toy(&mut s, "ToyAdd", "fresh", &[x, x]);
    let same = toy(&mut s, "Identity", "same", &[fresh]);
    let again = toy(&mut s, "Identity", "again", &[same]);
    toy(&mut s, "ToyUnique", "alone", &[again]);
    // Two readers, one after the other, in either order.
    let shared = toy(&mut s, "ToyAdd", "shared", &[x, x]);
    let a = s.op("ToyUnique").name("a").input(shared).build().unwrap();
    s.op("ToyUnique").name("after_a").input(shared).after(&[a.node]).build().unwrap();
    let twice = toy(&mut s, "ToyAdd", "twice", &[x, x]);
    toy(&mut s, "ToyUnique", "beside_fetch", &[twice]);
    let constant = s.constant(&four(1.0)).unwrap();
    toy(&mut s, "ToyUnique", "constant", &[constant]);
    toy(&mut s, "ToyUnique", "fed", &[x]);
    let mut options = options(1);
    options.plan.optimize = false;
    let s = thalweg_runtime::Session::new(s.to_graph(), registries().1, options).unwrap();
    let run = |fetches: &[&str]| s.run(&[("x", four(1.0))], fetches, &[]).unwrap();
    for _ in 0..3 {
        assert_eq!(flags(&run(&["alone"])), [true]);
        assert_eq!(flags(&run(&["a", "after_a"])), [false, true]);
        assert_eq!(flags(&run(&["constant", "fed"])), [false, false]);
        assert_eq!(flags(&run(&["beside_fetch", "twice"])[..1]), [false]);
    }
}

#[test]
fn feeds_constants_and_variables_keep_their_values() {
    let s = text_session(
        r#"
        node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } }
        node { name: "c" op: "Const" attr { key: "dtype" value { type: DT_FLOAT } } attr { key: "value" value { tensor { dtype: DT_FLOAT tensor_shape { dim { size: 4 } } float_val: 2 } } } }
        node { name: "v" op: "VariableV2" attr { key: "dtype" value { type: DT_FLOAT } } attr { key: "shape" value { shape { dim { size: 4 } } } } }
        node { name: "init" op: "Assign" input: "v" input: "c" attr { key: "T" value { type: DT_FLOAT } } }
        node { name: "nx" op: "Neg" input: "x" attr { key: "T" value { type: DT_FLOAT } } }
        node { name: "nc" op: "Neg" input: "c" attr { key: "T" value { type: DT_FLOAT } } }
        node { name: "nv" op: "Neg" input: "v" attr { key: "T" value { type: DT_FLOAT } } }
        node { name: "grow" op: "AssignAdd" input: "v" input: "c" attr { key: "T" value { type: DT_FLOAT } } }
        "#,
        1,
    )
    .unwrap();
    let x = four(1.0);
    s.run(&[], &[], &["init"]).unwrap();
    let snapshot = s.run(&[], &["v"], &[]).unwrap();
    for i in 0..5 {
        let out = s.run(&[("x", x.clone())], &["nx", "nc", "nv"], &[]).unwrap();
        assert_eq!(numbers(&out), [-1.0, -2.0, -2.0 - 2.0 * i as f32]);
        s.run(&[], &[], &["grow"]).unwrap();
    }
    assert_eq!(x.as_slice::<f32>().unwrap(), [1.0; 4]);
    assert_eq!(numbers(&snapshot), [2.0]);
    assert_eq!(numbers(&s.run(&[], &["c", "v"], &[]).unwrap()), [2.0, 12.0]);
}

#[test]
fn calls_move_their_arguments() {
    // The function's only reader of `x` takes it over.
    let text = r#"
        library { function {
          signature { name: "f" input_arg { name: "x" type: DT_FLOAT } output_arg { name: "y" type: DT_BOOL } }
          node_def { name: "u" op: "ToyUnique" input: "x" }
          ret { key: "y" value: "u:y:0" } } }
        node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } }
        node { name: "fresh" op: "ToyAdd" input: "x" input: "x" }
        node { name: "inner" op: "f" input: "fresh" }
        node { name: "fed" op: "f" input: "x" }"#;
    let s = text_session(text, 1).unwrap();
    let out = s.run(&[("x", four(1.0))], &["inner", "fed"], &[]).unwrap();
    assert_eq!(flags(&out), [true, false]);
}
