//! A row of numbers for each of many things.

use thalweg_graph::Output;
use thalweg_tensor::{Result, ensure};

use super::Layer;
use crate::{Initializer, Model, Part, Variable};

/// A table of rows, looked up by number; its gradient has the used rows alone.
#[derive(Clone, Debug)]
pub struct Embedding {
    rows: usize,
    width: usize,
    shards: usize,
    first: Initializer,
}

impl Embedding {
    /// So many rows, so wide.
    pub fn new(rows: usize, width: usize) -> Embedding {
        Embedding { rows, width, shards: 1, first: Initializer::Uniform(-0.05, 0.05) }
    }

    /// Cuts the table: row `i` lies in part `i % shards`, and each part is placed on its own. The
    /// parts are variables of their own in checkpoints too; [`Model::partitioned`] is the other way,
    /// with runs of rows that are saved as one.
    #[must_use]
    pub fn shards(self, shards: usize) -> Embedding {
        Embedding { shards, ..self }
    }

    /// How the rows begin.
    #[must_use]
    pub fn first(self, first: Initializer) -> Embedding {
        Embedding { first, ..self }
    }

    /// The parts of the table, as variables of the layer `model`.
    pub fn tables(&self, model: &Model) -> Result<Vec<Variable>> {
        ensure!(
            self.shards >= 1 && self.shards <= self.rows.max(1),
            InvalidArgument,
            "a table of {} rows cannot be cut into {} parts",
            self.rows,
            self.shards
        );
        if self.shards == 1 {
            let dims = [self.rows, self.width];
            return Ok(model.parameter("embeddings", &dims, &self.first)?.parts);
        }
        let part = |i: usize| {
            let rows = self.rows / self.shards + usize::from(i < self.rows % self.shards);
            model.variable(&format!("embeddings/part_{i}"), &[rows, self.width], &self.first)
        };
        (0..self.shards).map(part).collect()
    }
}

impl Layer for Embedding {
    fn apply(&self, model: &mut Model, x: Output) -> Result<Output> {
        let mut layer = model.layer("embedding");
        let tables = self.tables(&layer)?;
        lookup(&mut layer, &tables, x)
    }
}

/// The rows that `ids` name in a table that is held by `tables`: parts of it along an axis, or, where
/// they are variables of their own, every so many rows of it.
pub(crate) fn lookup(model: &mut Model, tables: &[Variable], ids: Output) -> Result<Output> {
    if let [table] = tables {
        return table.gather(model, ids);
    }
    match tables.first().and_then(|table| table.part.as_ref()) {
        Some(part) if part.axis > 0 => columns(model, tables, ids, part),
        Some(part) => {
            let rows = part.whole.dims()[0];
            rows_by(model, tables, ids, |model, ids| in_runs(model, ids, rows, tables.len()))
        }
        None => rows_by(model, tables, ids, |model, ids| in_turn(model, ids, tables.len())),
    }
}

/// Parts that have all rows, but not all of each: they are looked up everywhere and joined.
fn columns(model: &mut Model, tables: &[Variable], ids: Output, part: &Part) -> Result<Output> {
    let mut found = Vec::with_capacity(tables.len());
    for table in tables {
        found.push(table.gather(&mut model.on(&table.device), ids)?);
    }
    // From the end, since that does not depend on the rank of the ids.
    let axis = model.int(part.axis as i32 - part.whole.rank() as i32)?;
    model.op("ConcatV2").inputs(&found).inputs(&[axis]).build()
}

/// Which of `parts` a row is in, and where: they take turns.
fn in_turn(model: &mut Model, ids: Output, parts: usize) -> Result<[Output; 2]> {
    let dtype = model.dtype(ids);
    let count = model.number(dtype, parts as f64)?;
    Ok([model.add("FloorMod", &[ids, count])?, model.add("FloorDiv", &[ids, count])?])
}

/// Which of `parts` a row is in, and where: each has a run of rows, the first ones one row more.
fn in_runs(model: &mut Model, ids: Output, rows: usize, parts: usize) -> Result<[Output; 2]> {
    let dtype = model.dtype(ids);
    let number = |model: &mut Model, value: usize| model.number(dtype, value as f64);
    let (size, larger) = (rows / parts, rows % parts);
    let (short, long) = (number(model, size)?, number(model, size + 1)?);
    let larger = number(model, larger)?;
    let behind = model.add("Sub", &[ids, larger])?;
    let in_long = model.add("FloorDiv", &[ids, long])?;
    let in_short = model.add("FloorDiv", &[behind, short])?;
    let part = model.add("Maximum", &[in_long, in_short])?;
    let is_long = model.add("Less", &[part, larger])?;
    let [of_long, of_short] =
        [model.add("FloorMod", &[ids, long])?, model.add("FloorMod", &[behind, short])?];
    Ok([part, model.add("SelectV2", &[is_long, of_long, of_short])?])
}

/// Rows of which `find` says in which part they are, and where in it.
fn rows_by(
    model: &mut Model,
    tables: &[Variable],
    ids: Output,
    find: impl FnOnce(&mut Model, Output) -> Result<[Output; 2]>,
) -> Result<Output> {
    let flat = model.ints(&[-1])?;
    let flat = model.add("Reshape", &[ids, flat])?;
    let [part, row] = find(model, flat)?;
    let part = model.cast(part, thalweg_tensor::DType::Int32)?;
    let size = model.add("Size", &[flat])?;
    let (zero, one) = (model.int(0)?, model.int(1)?);
    let positions = model.add("Range", &[zero, size, one])?;
    let cut = |model: &mut Model, what: Output| {
        let node = model.op("DynamicPartition").inputs(&[what, part]);
        node.attr("num_partitions", tables.len() as i64).build_all()
    };
    let rows = cut(model, row)?;
    let positions = cut(model, positions)?;
    let mut found = Vec::with_capacity(tables.len());
    for (table, rows) in tables.iter().zip(rows) {
        // Rows are looked up where the part lives, so that only they travel.
        let mut beside = model.on(&table.device);
        found.push(table.gather(&mut beside, rows)?);
    }
    let node = model.op("ParallelDynamicStitch").inputs(&positions).inputs(&found);
    let together = node.attr("N", tables.len() as i64).build()?;
    if model.shape(ids).rank() == Some(1) {
        return Ok(together);
    }
    let shape = model.shape_of(ids)?;
    let row: Vec<i32> = tables[0].shape.dims()[1..].iter().map(|size| *size as i32).collect();
    let row = model.ints(&row)?;
    let axis = model.int(0)?;
    let shape = model.op("ConcatV2").inputs(&[shape, row, axis]).build()?;
    model.add("Reshape", &[together, shape])
}
