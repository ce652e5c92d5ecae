//! Trains a small model and writes it as a SavedModel that TensorFlow loads and serves:
//! `cargo run --example export -- FOLDER`. Without a folder it is written to a temporary one, loaded
//! again and removed.
//!
//! It prints the model's folder and its prediction for one row: about 5.50.

use thalweg::runtime::SavedModelBuilder;
use thalweg::{Code, DType, Error, Graph, Init, Result, Sgd, Shape, Tensor, feed, tf};

fn main() -> Result<()> {
    let folder = std::env::args().nth(1);
    let temporary = std::env::temp_dir().join(format!("thalweg-export-{}", std::process::id()));
    let base = folder.clone().unwrap_or_else(|| temporary.display().to_string());

    let g = Graph::new();
    let x = g.placeholder::<f32>("x", [None, Some(2)]);
    let wanted = g.placeholder::<f32>("wanted", [None, Some(1)]);
    let y = x.matmul(g.variable("line/w", Init::zeros([2, 1])))
        + g.variable("line/b", Init::zeros([1]));
    let train = Sgd::new(0.5).minimize(&y.squared_difference(&wanted).mean());

    // Words are looked up in a table, which is filled from a file that goes with the model. The key
    // is the whole line, the value its number.
    let vocabulary = std::env::temp_dir().join(format!("thalweg-words-{}.txt", std::process::id()));
    std::fs::write(&vocabulary, "down\nsteady\nup")
        .map_err(|e| Error::new(Code::Unknown, e.to_string()))?;
    let vocabulary = vocabulary.display().to_string();
    let file = g.constant::<String>(vocabulary.as_str());
    let table = tf::hash_table_v2(&g, DType::String, DType::Int64);
    let fill = tf::initialize_table_from_text_file_v2(&table, &file, -2, -1);
    let words = g.placeholder::<String>("words", [None]);
    let ids = tf::lookup_table_find_v2::<String, i64>(&table, &words, -1i64);

    let session = g.session()?;
    session.run((), (), &[&fill])?;
    let rows = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]];
    for _ in 0..300 {
        session.run((), feed! { x: rows, wanted: [[0.5], [3.5], [-0.5], [2.5]] }, &[&train])?;
    }

    let version = SavedModelBuilder::new(session.local().expect("this session runs here"))
        .signature("serving_default", &[("x", &x.name()?)], &[("y", &y.name()?)])?
        .signature("lookup", &[("words", &words.name()?)], &[("ids", &ids.name()?)])?
        .asset(&file.name()?, &vocabulary)
        .init_op(&fill.name()?)
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
