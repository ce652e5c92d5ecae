//! What [`gradients`] does with whole graphs: sums over paths, rows that stay rows, paths that end,
//! gradients of gradients, and a network that learns by them.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use thalweg::graph::{
    Adjoint, GradientOptions, IndexedSlices, Output, connected_gradients, gradients,
};
use thalweg::prelude::*;

fn numbers(t: &Tensor) -> Vec<f64> {
    match t.dtype() {
        DType::Float => t.as_slice::<f32>().unwrap().iter().map(|&x| x.into()).collect(),
        DType::Double => t.as_slice::<f64>().unwrap().to_vec(),
        DType::Int32 => t.as_slice::<i32>().unwrap().iter().map(|&x| x.into()).collect(),
        other => panic!("{other} is no number here"),
    }
}

/// The values of these tensors in a step that feeds nothing.
fn run(scope: &Scope, fetches: &[Output]) -> Vec<Vec<f64>> {
    let names: Vec<String> = fetches.iter().map(|&o| scope.name_of(o)).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let session = thalweg::session(scope).unwrap();
    session.run(&[], &names, &[]).unwrap().iter().map(numbers).collect()
}

fn vector(scope: &mut Scope, values: &[f32]) -> Output {
    scope.constant(&Tensor::vector(values).unwrap()).unwrap()
}

fn scalar(scope: &mut Scope, value: f64) -> Output {
    scope.constant(&Tensor::scalar(value)).unwrap()
}

fn dense(adjoint: &Adjoint) -> Output {
    let Adjoint::Dense(output) = adjoint else { panic!("rows: {adjoint:?}") };
    *output
}

fn rows(adjoint: &Adjoint) -> IndexedSlices {
    let Adjoint::Sparse(rows) = adjoint else { panic!("whole: {adjoint:?}") };
    *rows
}

/// Derivatives of the sum of `ys`, which must be whole tensors.
fn derive(scope: &mut Scope, ys: &[Output], xs: &[Output]) -> Vec<Output> {
    let adjoints = gradients(scope, ys, xs, &GradientOptions::default()).unwrap();
    adjoints.iter().map(dense).collect()
}

fn mul(scope: &mut Scope, x: Output, y: Output) -> Output {
    scope.add("Mul", &[x, y]).unwrap()
}

#[test]
fn uses_add_up() {
    let mut s = thalweg::scope();
    let (x, c) = (vector(&mut s, &[1.0, 2.0, 3.0]), vector(&mut s, &[5.0, 5.0, 5.0]));
    let (a, b) = (mul(&mut s, x, x), mul(&mut s, x, c));
    // x is used three times here, and once more as a y of its own.
    let dx = derive(&mut s, &[a, b, x], &[x]);
    assert_eq!(run(&s, &dx), [[2.0 + 6.0, 4.0 + 6.0, 6.0 + 6.0]]);
}

#[test]
fn a_y_that_is_given_twice_counts_twice() {
    let mut s = thalweg::scope();
    let x = scalar(&mut s, 3.0);
    let y = mul(&mut s, x, x);
    let dx = derive(&mut s, &[y, y], &[x]);
    assert_eq!(run(&s, &dx), [[12.0]]);
}

#[test]
fn xs_on_one_anothers_path() {
    let mut s = thalweg::scope();
    let (a, c) = (scalar(&mut s, 3.0), scalar(&mut s, 2.0));
    let b = mul(&mut s, a, c);
    let y = mul(&mut s, b, a);
    // y = 2 a²; by b alone it is a. The y itself is an x, too.
    let d = derive(&mut s, &[y], &[a, b, y]);
    assert_eq!(run(&s, &d), [[12.0], [3.0], [1.0]]);
}

#[test]
fn adjoints_of_ys_may_be_given() {
    let mut s = thalweg::scope();
    let x = vector(&mut s, &[1.0, 2.0]);
    let (y, z) = (mul(&mut s, x, x), mul(&mut s, x, x));
    let weight = vector(&mut s, &[10.0, 100.0]);
    let options = GradientOptions { grad_ys: &[Some(weight), None], ..Default::default() };
    let d = gradients(&mut s, &[y, z], &[x], &options).unwrap();
    assert_eq!(run(&s, &[dense(&d[0])]), [[22.0, 404.0]]);

    let long = vector(&mut s, &[1.0, 2.0, 3.0]);
    for (grad_ys, what) in
        [(&[Some(weight)][..], "1 grad_ys for 2 ys"), (&[Some(long), None], "grad_ys 0")]
    {
        let options = GradientOptions { grad_ys, ..Default::default() };
        let e = gradients(&mut s, &[y, z], &[x], &options).unwrap_err();
        assert_eq!(e.code(), Code::InvalidArgument);
        assert!(e.message().contains(what), "{e}");
    }
}

#[test]
fn stopped_at_a_tensor() {
    let mut s = thalweg::scope();
    let (a, c) = (scalar(&mut s, 3.0), scalar(&mut s, 2.0));
    let b = mul(&mut s, a, c);
    let y = mul(&mut s, b, a);
    let options = GradientOptions { stop_gradients: &[b], ..Default::default() };
    let d = gradients(&mut s, &[y], &[a, b], &options).unwrap();
    // b counts as a constant, and still has a derivative of its own.
    assert_eq!(run(&s, &[dense(&d[0]), dense(&d[1])]), [[6.0], [3.0]]);
}

#[test]
fn zeros_where_no_path_leads() {
    let mut s = thalweg::scope();
    let (x, other) = (scalar(&mut s, 3.0), vector(&mut s, &[1.0, 2.0]));
    let shape = PartialShape::new([Some(3)]);
    let handle =
        s.op("VarHandleOp").attr("dtype", DType::Float).attr("shape", &shape).build().unwrap();
    let value = vector(&mut s, &[7.0, 8.0, 9.0]);
    let init = s.op("AssignVariableOp").inputs(&[handle, value]).build_node().unwrap();
    let y = mul(&mut s, x, x);
    let none = connected_gradients(&mut s, &[y], &[x, other, handle], &Default::default()).unwrap();
    assert_eq!(none.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, false]);
    let d = derive(&mut s, &[y], &[other, handle]);
    let (names, init) = (
        d.iter().map(|&d| s.name_of(d)).collect::<Vec<_>>(),
        s.with_graph(|g| g.node(init).name.clone()),
    );
    let session = thalweg::session(&s).unwrap();
    session.run(&[], &[], &[&init]).unwrap();
    let zeros = session.run(&[], &[&names[0], &names[1]], &[]).unwrap();
    assert_eq!(numbers(&zeros[0]), [0.0; 2]);
    assert_eq!(numbers(&zeros[1]), [0.0; 3]);
}

/// Rows `indices` of `table`.
fn gather(s: &mut Scope, table: Output, indices: &[i32]) -> Output {
    let indices = s.constant(&Tensor::vector(indices).unwrap()).unwrap();
    let axis = s.constant(&Tensor::scalar(0i32)).unwrap();
    s.add("GatherV2", &[table, indices, axis]).unwrap()
}

fn matrix(s: &mut Scope, rows: usize, columns: usize, values: &[f32]) -> Output {
    let shape = Shape::new(&[rows, columns]).unwrap();
    s.constant(&Tensor::from_slice(shape, values).unwrap()).unwrap()
}

#[test]
fn gathered_rows_stay_rows() {
    let mut s = thalweg::scope();
    let table = matrix(&mut s, 4, 2, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    let (a, b) = (gather(&mut s, table, &[2, 0]), gather(&mut s, table, &[2, 3, 3]));
    let weights = matrix(&mut s, 2, 2, &[10.0, 20.0, 30.0, 40.0]);
    let y = mul(&mut s, a, weights);
    let d = gradients(&mut s, &[y, b], &[table], &Default::default()).unwrap();
    let found = rows(&d[0]);
    let whole = d[0].to_dense(&mut s).unwrap();
    let results = run(&s, &[found.values, found.indices, found.dense_shape, whole]);
    // The order of the two gathers is not promised.
    let pairs = |indices: &[f64], values: &[f64]| {
        let rows = indices.iter().zip(values.chunks(2)).map(|(i, v)| (*i, v[0], v[1]));
        let mut rows: Vec<_> = rows.collect();
        rows.sort_by(|x, y| x.partial_cmp(y).unwrap());
        rows
    };
    assert_eq!(
        pairs(&results[1], &results[0]),
        [(0.0, 30.0, 40.0), (2.0, 1.0, 1.0), (2.0, 10.0, 20.0), (3.0, 1.0, 1.0), (3.0, 1.0, 1.0)]
    );
    assert_eq!(results[2], [4.0, 2.0]);
    assert_eq!(results[3], [30.0, 40.0, 0.0, 0.0, 11.0, 21.0, 2.0, 2.0]);
}

#[test]
fn rows_and_a_whole_make_a_whole() {
    let mut s = thalweg::scope();
    let table = matrix(&mut s, 3, 2, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let (a, squares) = (gather(&mut s, table, &[1, 1]), mul(&mut s, table, table));
    let d = derive(&mut s, &[a, squares], &[table]);
    assert_eq!(run(&s, &d), [[2.0, 4.0, 6.0 + 2.0, 8.0 + 2.0, 10.0, 12.0]]);
}

#[test]
fn rows_pass_a_concatenation() {
    for (axis, expected) in [
        (0, [[0.0, 0.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]),
        (1, [[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 2.0, 2.0]]),
    ] {
        let mut s = thalweg::scope();
        let parts = [
            matrix(&mut s, 2, 2, &[1.0, 2.0, 3.0, 4.0]),
            matrix(&mut s, 2, 2, &[5.0, 6.0, 7.0, 8.0]),
        ];
        let at = s.constant(&Tensor::scalar(axis)).unwrap();
        let table = s.op("ConcatV2").inputs(&parts).input(at).build().unwrap();
        let picked = if axis == 0 { vec![3, 1, 2] } else { vec![1, 1] };
        let y = gather(&mut s, table, &picked);
        let d = gradients(&mut s, &[y], &parts, &Default::default()).unwrap();
        d.iter().for_each(|d| assert!(matches!(d, Adjoint::Sparse(_)), "axis {axis}"));
        let whole: Vec<Output> = d.iter().map(|d| d.to_dense(&mut s).unwrap()).collect();
        assert_eq!(run(&s, &whole), expected, "axis {axis}");
    }
}

#[test]
fn variables_by_their_handles() {
    let mut s = thalweg::scope();
    let shape = PartialShape::new([Some(3), Some(2)]);
    let handle =
        s.op("VarHandleOp").attr("dtype", DType::Float).attr("shape", &shape).build().unwrap();
    let value = matrix(&mut s, 3, 2, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let init = s.op("AssignVariableOp").inputs(&[handle, value]).build_node().unwrap();
    let init = s.with_graph(|g| g.node(init).name.clone());
    let indices = s.constant(&Tensor::vector(&[2i64, 0]).unwrap()).unwrap();
    let node = s.op("ResourceGather").inputs(&[handle, indices]);
    let picked = node.attr("dtype", DType::Float).build().unwrap();
    let d = gradients(&mut s, &[picked], &[handle], &Default::default()).unwrap();
    let sparse = rows(&d[0]);
    let read = s.op("ReadVariableOp").input(handle).attr("dtype", DType::Float).build().unwrap();
    let squares = mul(&mut s, read, read);
    // Read twice, by different ops: the sum is whole. By the value that was read, it is not all.
    let d = derive(&mut s, &[picked, squares], &[handle, read]);
    let fetches = [sparse.values, sparse.indices, sparse.dense_shape, d[0], d[1]];
    let names: Vec<String> = fetches.iter().map(|&f| s.name_of(f)).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let session = thalweg::session(&s).unwrap();
    session.run(&[], &[], &[&init]).unwrap();
    let results = session.run(&[], &names, &[]).unwrap();
    assert_eq!(numbers(&results[0]), [1.0; 4]);
    assert_eq!(results[1].as_slice::<i64>().unwrap(), [2, 0]);
    assert_eq!(numbers(&results[2]), [3.0, 2.0]);
    assert_eq!(numbers(&results[3]), [2.0 + 1.0, 4.0 + 1.0, 6.0, 8.0, 10.0 + 1.0, 12.0 + 1.0]);
    assert_eq!(numbers(&results[4]), [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]);
}

#[test]
fn a_program_brings_gradients_along() {
    let mut s = thalweg::scope();
    let x = scalar(&mut s, 3.0);
    let plain = mul(&mut s, x, x);
    let node = s.op("Identity").input(x).attr("_gradient_op_type", "TimesHundred");
    let marked = node.build().unwrap();
    s.set_gradient("TimesHundred", |g| {
        let (grad, hundred) = (g.grad(0)?, g.number(DType::Double, 100.0)?);
        let adjoint = g.add("Mul", &[grad, hundred])?;
        g.set(0, adjoint)
    });
    let d = derive(&mut s, &[marked, plain], &[x]);
    assert_eq!(run(&s, &d), [[106.0]]);

    // Under the name of an op it replaces the op's own.
    s.set_gradient("Mul", |g| {
        let grad = g.grad(0)?;
        g.set(0, grad)
    });
    let d = derive(&mut s, &[plain], &[x]);
    assert_eq!(run(&s, &d), [[1.0]]);

    let node = s.op("Identity").input(x).attr("_gradient_op_type", "NobodyKnows");
    let lost = node.name("lost").build().unwrap();
    let e = gradients(&mut s, &[lost], &[x], &Default::default()).unwrap_err();
    assert_eq!(e.code(), Code::NotFound);
    assert!(e.message().contains("lost") && e.message().contains("NobodyKnows"), "{e}");
}

#[test]
fn derivatives_of_derivatives() {
    let mut s = thalweg::scope();
    let x = scalar(&mut s, 5.0);
    let square = mul(&mut s, x, x);
    let cube = mul(&mut s, square, x);
    let first = derive(&mut s, &[cube], &[x])[0];
    let second = derive(&mut s, &[first], &[x])[0];
    let third = derive(&mut s, &[second], &[x])[0];
    let fourth = derive(&mut s, &[third], &[x])[0];
    assert_eq!(run(&s, &[first, second, third, fourth]), [[75.0], [30.0], [6.0], [0.0]]);
}

#[test]
fn an_op_without_a_gradient_is_named() {
    let mut s = thalweg::scope();
    let (x, two) = (vector(&mut s, &[1.0, 1.0, 2.0]), vector(&mut s, &[2.0]));
    let twice = mul(&mut s, x, two);
    let y = s.op("Unique").name("tell_apart").input(twice).build().unwrap();
    let e = gradients(&mut s, &[y], &[x], &Default::default()).unwrap_err();
    assert_eq!(e.code(), Code::NotFound);
    assert!(e.message().contains("'tell_apart' (Unique)"), "{e}");
    // Only a path through it matters.
    let d = derive(&mut s, &[twice, two], &[x]);
    assert_eq!(run(&s, &d), [[2.0; 3]]);
}

#[test]
fn integers_end_a_path() {
    let mut s = thalweg::scope();
    let x = vector(&mut s, &[1.0, 2.0]);
    let shape = s.add("Shape", &[x]).unwrap();
    let one = s.constant(&Tensor::scalar(1.0f32)).unwrap();
    let y = s.add("Fill", &[shape, one]).unwrap();
    let none = connected_gradients(&mut s, &[y], &[x], &Default::default()).unwrap();
    assert_eq!(none, [None]);
    let d = derive(&mut s, &[y], &[one]);
    assert_eq!(run(&s, &d), [[2.0]]);
}

#[test]
fn a_long_chain() {
    const LENGTH: usize = 10_000;
    let mut s = thalweg::scope();
    let (x, near_one) = (scalar(&mut s, 2.0), scalar(&mut s, 1.0 + 1.0 / LENGTH as f64));
    let mut y = x;
    for _ in 0..LENGTH {
        y = mul(&mut s, y, near_one);
    }
    let d = derive(&mut s, &[y], &[x, near_one]);
    let results = run(&s, &d);
    let power = (1.0 + 1.0 / LENGTH as f64).powi(LENGTH as i32);
    let by_factor = 2.0 * LENGTH as f64 * power / (1.0 + 1.0 / LENGTH as f64);
    assert!((results[0][0] - power).abs() < 1e-9, "{results:?}");
    assert!((results[1][0] / by_factor - 1.0).abs() < 1e-9, "{results:?}");
}

/// A program that trains: variables, and how they start and change.
#[derive(Default)]
struct Model {
    handles: Vec<Output>,
    initial: Vec<String>,
}

impl Model {
    /// The value of a new variable that starts with numbers between -1 and 1, times `scale`.
    fn variable(&mut self, s: &mut Scope, dims: &[usize], scale: f32) -> Output {
        let shape = Shape::new(dims).unwrap();
        let handle =
            s.op("VarHandleOp").attr("dtype", DType::Float).attr("shape", &shape).build().unwrap();
        // Multiples of the golden ratio lie scattered and are the same in every run.
        let number = |i: usize| ((i + 1) as f32 * 0.618_034).fract() * 2.0 - 1.0;
        let values: Vec<f32> = (0..shape.num_elements()).map(|i| number(i) * scale).collect();
        let value = s.constant(&Tensor::from_slice(shape, &values).unwrap()).unwrap();
        let init = s.op("AssignVariableOp").inputs(&[handle, value]).build_node().unwrap();
        self.initial.push(s.with_graph(|g| g.node(init).name.to_string()));
        self.handles.push(handle);
        s.op("ReadVariableOp").input(handle).attr("dtype", DType::Float).build().unwrap()
    }

    /// The loss at the first and at the last of some steps of gradient descent.
    fn train(&self, s: &mut Scope, loss: Output, rate: f32, steps: usize) -> [f64; 2] {
        let adjoints = gradients(s, &[loss], &self.handles, &Default::default()).unwrap();
        assert_eq!(adjoints.len(), self.handles.len());
        let rate = s.constant(&Tensor::scalar(rate)).unwrap();
        let mut updates = Vec::new();
        for (&handle, adjoint) in self.handles.iter().zip(&adjoints) {
            let inputs = [handle, rate, dense(adjoint)];
            let node = s.op("ResourceApplyGradientDescent").inputs(&inputs).build_node().unwrap();
            updates.push(s.with_graph(|g| g.node(node).name.to_string()));
        }
        let (loss, session) = (s.name_of(loss), thalweg::session(s).unwrap());
        let initial: Vec<&str> = self.initial.iter().map(String::as_str).collect();
        session.run(&[], &[], &initial).unwrap();
        let updates: Vec<&str> = updates.iter().map(String::as_str).collect();
        let mut losses = Vec::new();
        for _ in 0..steps {
            let now = session.run(&[], &[&loss], &[]).unwrap();
            losses.push(numbers(&now[0])[0]);
            session.run(&[], &[], &updates).unwrap();
        }
        [losses[0], losses[steps - 1]]
    }
}

#[test]
fn a_perceptron_learns_exclusive_or() {
    let mut s = thalweg::scope();
    let mut model = Model::default();
    let x = matrix(&mut s, 4, 2, &[0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0]);
    let wanted = matrix(&mut s, 4, 1, &[0.0, 1.0, 1.0, 0.0]);
    let (w1, b1) = (model.variable(&mut s, &[2, 8], 1.0), model.variable(&mut s, &[8], 0.5));
    let (w2, b2) = (model.variable(&mut s, &[8, 1], 1.0), model.variable(&mut s, &[1], 0.5));
    let hidden = s.add("MatMul", &[x, w1]).unwrap();
    let hidden = s.add("BiasAdd", &[hidden, b1]).unwrap();
    let hidden = s.add("Tanh", &[hidden]).unwrap();
    let result = s.add("MatMul", &[hidden, w2]).unwrap();
    let result = s.add("AddV2", &[result, b2]).unwrap();
    let error = s.add("SquaredDifference", &[result, wanted]).unwrap();
    let axes = s.constant(&Tensor::vector(&[0i32, 1]).unwrap()).unwrap();
    let loss = s.add("Mean", &[error, axes]).unwrap();
    let [first, last] = model.train(&mut s, loss, 0.3, 400);
    assert!(first > 0.1 && last < 0.01, "from {first} to {last}");
}

#[test]
fn a_convolutional_network_learns() {
    let mut s = thalweg::scope();
    let mut model = Model::default();
    // Horizontal and vertical bars.
    let mut bars = vec![0.0f32; 4 * 6 * 6];
    for i in 0..6 {
        bars[12 + i] = 1.0;
        bars[36 + 24 + i] = 1.0;
        bars[72 + 6 * i + 1] = 1.0;
        bars[108 + 6 * i + 4] = 1.0;
    }
    let shape = Shape::new(&[4, 6, 6, 1]).unwrap();
    let images = s.constant(&Tensor::from_slice(shape, &bars).unwrap()).unwrap();
    let labels = s.constant(&Tensor::vector(&[0i32, 0, 1, 1]).unwrap()).unwrap();
    let filter = model.variable(&mut s, &[3, 3, 1, 4], 0.5);
    let (scale, offset) = (model.variable(&mut s, &[4], 1.0), model.variable(&mut s, &[4], 0.1));
    let weights = model.variable(&mut s, &[36, 2], 0.3);
    let node = s.op("Conv2D").inputs(&[images, filter]).attr("padding", "SAME");
    let maps = node.attr("strides", &[1i64, 1, 1, 1][..]).build().unwrap();
    let none = s.constant(&Tensor::vector::<f32>(&[]).unwrap()).unwrap();
    let maps = s.add("FusedBatchNormV3", &[maps, scale, offset, none, none]).unwrap();
    let maps = s.add("Relu", &[maps]).unwrap();
    let window = &[1i64, 2, 2, 1][..];
    let node = s.op("MaxPool").input(maps).attr("ksize", window).attr("strides", window);
    let maps = node.attr("padding", "VALID").build().unwrap();
    let flat = s.constant(&Tensor::vector(&[4i32, -1]).unwrap()).unwrap();
    let features = s.add("Reshape", &[maps, flat]).unwrap();
    let logits = s.add("MatMul", &[features, weights]).unwrap();
    let losses = s.add("SparseSoftmaxCrossEntropyWithLogits", &[logits, labels]).unwrap();
    let axis = s.constant(&Tensor::scalar(0i32)).unwrap();
    let loss = s.add("Mean", &[losses, axis]).unwrap();
    let [first, last] = model.train(&mut s, loss, 0.1, 60);
    assert!(first > 0.3 && last < 0.05, "from {first} to {last}");
}
