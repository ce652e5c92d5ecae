//! Trains a small model and writes it as a SavedModel that TensorFlow loads and serves:
//! `cargo run --example export -- FOLDER`. Without a folder it is written to a temporary one, loaded
//! again and removed.
//!
//! It prints the model's folder and its prediction for one row: about 5.50.

use thalweg::prelude::*;

const WORDS: [&str; 3] = ["down", "steady", "up"];

fn main() -> Result<()> {
    let folder = std::env::args().nth(1);
    let temporary = std::env::temp_dir().join(format!("thalweg-export-{}", std::process::id()));
    let base = folder.clone().unwrap_or_else(|| temporary.display().to_string());

    let mut scope = thalweg::scope();
    let x = scope.op("Placeholder").name("x").attr("dtype", DType::Float);
    let x = x.attr("shape", &PartialShape::new([None, Some(2)])).build()?;
    let wanted = scope.placeholder(DType::Float, &PartialShape::new([None, Some(1)]))?;
    let (w, init_w) = variable(&mut scope, "line/w", &[2, 1])?;
    let (b, init_b) = variable(&mut scope, "line/b", &[1])?;
    let (w_now, b_now) = (read(&mut scope, w)?, read(&mut scope, b)?);
    let product = scope.add("MatMul", &[x, w_now])?;
    let y = scope.op("AddV2").name("y").inputs(&[product, b_now]).build()?;
    let train = training_step(&mut scope, y, wanted, &[(w, w_now), (b, b_now)])?;

    // Words are looked up in a table, which is filled from a file that goes with the model.
    let vocabulary = std::env::temp_dir().join(format!("thalweg-words-{}.txt", std::process::id()));
    std::fs::write(&vocabulary, WORDS.join("\n"))
        .map_err(|e| Error::new(Code::Unknown, e.to_string()))?;
    let file = Tensor::scalar_string(vocabulary.display().to_string());
    let file = scope.constant(&file)?;
    lookup(&mut scope, file)?;

    let session = thalweg::session(&scope)?;
    session.run(&[], &[], &[&init_w, &init_b, "fill"])?;
    let rows = Shape::new(&[4, 2])?;
    let examples = Tensor::from_slice(rows, &[0.0f32, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0])?;
    let targets = Tensor::from_slice(Shape::new(&[4, 1])?, &[0.5f32, 3.5, -0.5, 2.5])?;
    let feeds = [("x", examples), (&*scope.name_of(wanted), targets)];
    let train: Vec<&str> = train.iter().map(String::as_str).collect();
    for _ in 0..300 {
        session.run(&feeds, &[], &train)?;
    }

    let version = SavedModelBuilder::new(&session)
        .signature("serving_default", &[("x", "x")], &[("y", "y")])?
        .signature("lookup", &[("words", "words")], &[("ids", "ids")])?
        .asset(&scope.name_of(file), &vocabulary.display().to_string())
        .init_op("fill")
        .save_version(&base)?;
    println!("wrote {base}/{version}");

    let model = thalweg::saved_model(&format!("{base}/{version}"))?;
    let given = Tensor::from_slice(Shape::new(&[1, 2])?, &[2.0f32, 1.0])?;
    let y = model.run("serving_default", &[("x", given)])?["y"].as_slice::<f32>()?[0];
    println!("3 * 2 - 1 + 0.5 is {y:.2}");
    assert!((y - 5.5).abs() < 0.05);
    if folder.is_none() {
        let _ = std::fs::remove_dir_all(temporary);
    }
    let _ = std::fs::remove_file(vocabulary);
    Ok(())
}

/// A variable, and the name of its initializer.
fn variable(scope: &mut Scope, name: &str, dims: &[usize]) -> Result<(Output, String)> {
    let shape = Shape::new(dims)?;
    let handle = scope.op("VarHandleOp").name(name).attr("dtype", DType::Float);
    let handle = handle.attr("shape", &PartialShape::from(&shape)).build()?;
    let zeros = scope.constant(&Tensor::zeros(DType::Float, shape)?)?;
    let init = format!("{name}/init");
    scope.op("AssignVariableOp").name(&init).inputs(&[handle, zeros]).build_node()?;
    Ok((handle, init))
}

fn read(scope: &mut Scope, variable: Output) -> Result<Output> {
    scope.op("ReadVariableOp").input(variable).attr("dtype", DType::Float).build()
}

/// The names of the nodes of a gradient descent step, for variables with their values.
fn training_step(
    scope: &mut Scope,
    y: Output,
    wanted: Output,
    variables: &[(Output, Output)],
) -> Result<Vec<String>> {
    let error = scope.add("SquaredDifference", &[y, wanted])?;
    let axes = scope.constant(&Tensor::vector(&[0i32, 1])?)?;
    let loss = scope.add("Mean", &[error, axes])?;
    let values: Vec<Output> = variables.iter().map(|&(_, value)| value).collect();
    let slopes = gradients(scope, &[loss], &values, &GradientOptions::default())?;
    let mut updates = Vec::new();
    for (i, (&(variable, _), slope)) in variables.iter().zip(slopes).enumerate() {
        let slope = slope.to_dense(scope)?;
        let rate = scope.constant(&Tensor::scalar(0.5f32))?;
        let name = format!("train_{i}");
        let update = scope.op("ResourceApplyGradientDescent").name(&name);
        update.inputs(&[variable, rate, slope]).build_node()?;
        updates.push(name);
    }
    Ok(updates)
}

/// A lookup table from `words` to `ids`, initialized from the lines of a file.
fn lookup(scope: &mut Scope, file: Output) -> Result<()> {
    let table = scope.op("HashTableV2").name("table").attr("shared_name", "words");
    let table = table.attr("key_dtype", DType::String).attr("value_dtype", DType::Int64).build()?;
    let fill = scope.op("InitializeTableFromTextFileV2").name("fill").inputs(&[table, file]);
    // The key is the whole line, the value its number.
    fill.attr("key_index", -2i64).attr("value_index", -1i64).build_node()?;
    let words = scope.op("Placeholder").name("words").attr("dtype", DType::String);
    let words = words.attr("shape", &PartialShape::new([None])).build()?;
    let unknown = scope.constant(&Tensor::scalar(-1i64))?;
    scope.op("LookupTableFindV2").name("ids").inputs(&[table, words, unknown]).build()?;
    Ok(())
}
