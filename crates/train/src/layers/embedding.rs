//! A row of numbers for each of many things.

use thalweg_graph::Output;
use thalweg_tensor::{Result, ensure};

use super::Layer;
use crate::{Initializer, Model, Variable};

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

    /// Cuts the table: row `i` lies in part `i % shards`, and each part is placed on its own.
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
            return Ok(vec![model.variable(
                "embeddings",
                &[self.rows, self.width],
                &self.first,
            )?]);
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

/// The rows that `ids` name in a table cut into `tables`.
pub(crate) fn lookup(model: &mut Model, tables: &[Variable], ids: Output) -> Result<Output> {
    if let [table] = tables {
        return table.gather(model, ids);
    }
    let dtype = model.dtype(ids);
    let flat = model.ints(&[-1])?;
    let flat = model.add("Reshape", &[ids, flat])?;
    let count = model.number(dtype, tables.len() as f64)?;
    let part = model.add("FloorMod", &[flat, count])?;
    let part = model.cast(part, thalweg_tensor::DType::Int32)?;
    let row = model.add("FloorDiv", &[flat, count])?;
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
    let width = model.ints(&[tables[0].shape.dims()[1] as i32])?;
    let axis = model.int(0)?;
    let shape = model.op("ConcatV2").inputs(&[shape, width, axis]).build()?;
    model.add("Reshape", &[together, shape])
}
