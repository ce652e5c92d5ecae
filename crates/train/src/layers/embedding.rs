//! Embedding tables.

use std::panic::Location;

use thalweg_api::{Any, Output, TensorType, on_behalf_of};
use thalweg_graph::Endpoint;
use thalweg_tensor::{Result, ensure};

use super::Layer;
use crate::{Initializer, Model, ModelScope, Part, Variable};

/// An embedding table: rows looked up by index. Its gradient is sparse (`IndexedSlices`).
#[derive(Clone, Debug)]
pub struct Embedding {
    rows: usize,
    width: usize,
    shards: usize,
    first: Initializer,
}

impl Embedding {
    /// A table of `rows` rows of `width` elements.
    pub fn new(rows: usize, width: usize) -> Embedding {
        Embedding { rows, width, shards: 1, first: Initializer::Uniform(-0.05, 0.05) }
    }

    /// Splits the table with the `mod` strategy: row `i` is in shard `i % shards`, and each shard
    /// is placed on its own. The shards are separate variables in checkpoints too;
    /// [`ModelScope::partitioned`] splits into contiguous rows (`div` strategy) and saves them as one
    /// variable.
    #[must_use]
    pub fn shards(self, shards: usize) -> Embedding {
        Embedding { shards, ..self }
    }

    /// Sets the initializer of the rows.
    #[must_use]
    pub fn initializer(self, first: Initializer) -> Embedding {
        Embedding { first, ..self }
    }

    /// The shards of the table, as variables of the layer `model`.
    pub(crate) fn tables(&self, model: &ModelScope) -> Result<Vec<Variable>> {
        ensure!(
            self.shards >= 1 && self.shards <= self.rows.max(1),
            InvalidArgument,
            "a table of {} rows cannot be split into {} shards",
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

    /// The table as it is shared: by several lookups, or as the weights of a sampled loss.
    #[track_caller]
    pub fn table(&self, model: &Model) -> Table {
        let layer = model.layer("embedding").as_scope();
        let parts = model.graph().build(|_| self.tables(&layer)).unwrap_or_default();
        Table { parts }
    }

    /// As [`Embedding::table`], in one variable that has this name, also in checkpoints.
    #[track_caller]
    pub fn table_named(&self, model: &Model, name: &str) -> Table {
        let dims = [self.rows, self.width];
        let scope = model.as_scope();
        let parts = model.graph().build(|_| Ok(scope.parameter(name, &dims, &self.first)?.parts));
        Table { parts: parts.unwrap_or_default() }
    }
}

/// The variables of an embedding table; none if it could not be added. They know their graph: use
/// with the model of another one is a mistake.
#[derive(Clone, Debug)]
pub struct Table {
    pub(crate) parts: Vec<Variable>,
}

impl Table {
    /// The rows of these indices.
    #[track_caller]
    pub fn lookup<I: TensorType>(&self, model: &Model, ids: &Output<I>) -> Output<f32> {
        let Some(at) = model.endpoint_of(ids) else { return model.poisoned() };
        if self.parts.is_empty() {
            return model.poisoned();
        }
        model.build(|model| lookup(model, &self.parts, at))
    }

    /// The values of the variables that hold the table.
    #[track_caller]
    pub fn values(&self, model: &Model) -> Vec<Output<f32>> {
        let variable = |part: &Variable| model.existing_variable::<f32>(Some(part.clone()));
        on_behalf_of(Location::caller(), || {
            self.parts.iter().map(|part| variable(part).value().clone()).collect()
        })
    }

    /// The variables that hold the table.
    pub fn variables(&self) -> &[Variable] {
        &self.parts
    }
}

impl Layer for Embedding {
    fn build(&self, model: &Model, x: &Output<Any>) -> Output<f32> {
        let Some(at) = model.endpoint_of(x) else { return model.poisoned() };
        model.layer("embedding").build(|layer| {
            let tables = self.tables(layer)?;
            lookup(layer, &tables, at)
        })
    }
}

/// `embedding_lookup`: the rows of `ids` from a table that `tables` hold, either as partitions
/// along an axis or, where they are separate variables, with the `mod` strategy.
pub(crate) fn lookup(
    model: &mut ModelScope,
    tables: &[Variable],
    ids: Endpoint,
) -> Result<Endpoint> {
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

/// Lookup in a table that is partitioned along its columns: every partition is looked up and the
/// results are concatenated.
fn columns(
    model: &mut ModelScope,
    tables: &[Variable],
    ids: Endpoint,
    part: &Part,
) -> Result<Endpoint> {
    let mut found = Vec::with_capacity(tables.len());
    for table in tables {
        found.push(table.gather(&mut model.on(&table.device), ids)?);
    }
    // From the end, since that does not depend on the rank of the ids.
    let axis = model.int(part.axis as i32 - part.whole.rank() as i32)?;
    model.op("ConcatV2").inputs(&found).inputs(&[axis]).build()
}

/// Shard and row within the shard by the `mod` strategy.
fn in_turn(model: &mut ModelScope, ids: Endpoint, parts: usize) -> Result<[Endpoint; 2]> {
    let dtype = model.dtype(ids);
    let count = model.number(dtype, parts as f64)?;
    Ok([model.add("FloorMod", &[ids, count])?, model.add("FloorDiv", &[ids, count])?])
}

/// Shard and row within the shard by the `div` strategy: contiguous ranges, the first ones longer
/// by one row.
fn in_runs(
    model: &mut ModelScope,
    ids: Endpoint,
    rows: usize,
    parts: usize,
) -> Result<[Endpoint; 2]> {
    let dtype = model.dtype(ids);
    let number = |model: &mut ModelScope, value: usize| model.number(dtype, value as f64);
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

/// Gathers rows from the shards, given the shard of each row and its row there.
fn rows_by(
    model: &mut ModelScope,
    tables: &[Variable],
    ids: Endpoint,
    find: impl FnOnce(&mut ModelScope, Endpoint) -> Result<[Endpoint; 2]>,
) -> Result<Endpoint> {
    let flat = model.ints(&[-1])?;
    let flat = model.add("Reshape", &[ids, flat])?;
    let [part, row] = find(model, flat)?;
    let part = model.cast(part, thalweg_tensor::DType::Int32)?;
    let size = model.add("Size", &[flat])?;
    let (zero, one) = (model.int(0)?, model.int(1)?);
    let positions = model.add("Range", &[zero, size, one])?;
    let cut = |model: &mut ModelScope, what: Endpoint| {
        let node = model.op("DynamicPartition").inputs(&[what, part]);
        node.attr("num_partitions", tables.len() as i64).build_all()
    };
    let rows = cut(model, row)?;
    let positions = cut(model, positions)?;
    let mut found = Vec::with_capacity(tables.len());
    for (table, rows) in tables.iter().zip(rows) {
        // Rows are gathered on the shard's device, so that only they are transferred.
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
