//! Embedding tables.

use std::panic::Location;

use thalweg_api::{Any, Graph, Output, TensorType, on_behalf_of, tf};
use thalweg_tensor::{DType, Result, ensure};

use super::Layer;
use crate::state::State;
use crate::view::{cast_to, like};
use crate::{Initializer, Model, Part, Variable};

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
    /// [`Model::partitioned`] splits into contiguous rows (`div` strategy) and saves them as one
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
    fn tables(&self, model: &Model) -> Result<Vec<Variable>> {
        ensure!(
            self.shards >= 1 && self.shards <= self.rows.max(1),
            InvalidArgument,
            "a table of {} rows cannot be split into {} shards",
            self.rows,
            self.shards
        );
        if self.shards == 1 {
            let dims = [self.rows, self.width];
            return Ok(model.parts("embeddings", &dims, &self.first)?.parts);
        }
        let part = |i: usize| {
            let rows = self.rows / self.shards + usize::from(i < self.rows % self.shards);
            model.whole(&format!("embeddings/part_{i}"), &[rows, self.width], &self.first)
        };
        (0..self.shards).map(part).collect()
    }

    /// The table as it is shared: by several lookups, or as the weights of a sampled loss.
    #[track_caller]
    pub fn table(&self, model: &Model) -> Table {
        let layer = model.layer("embedding");
        Table { parts: layer.build(|_| self.tables(&layer)).unwrap_or_default() }
    }

    /// As [`Embedding::table`], in one variable that has this name, also in checkpoints.
    #[track_caller]
    pub fn table_named(&self, model: &Model, name: &str) -> Table {
        Table { parts: model.parameter_parts(name, &[self.rows, self.width], &self.first).parts }
    }
}

/// The variables of an embedding table; none if it could not be added. They know their graph: use
/// with the model of another one is a mistake.
#[derive(Clone, Debug)]
pub struct Table {
    pub(crate) parts: Vec<Variable>,
}

impl Table {
    /// Whether all variables belong to this graph; a mistake if not.
    pub(crate) fn is_of(&self, graph: &Graph) -> bool {
        are_of(graph, &self.parts)
    }

    /// The rows of these indices.
    #[track_caller]
    pub fn lookup<I: TensorType>(&self, model: &Model, ids: &Output<I>) -> Output<f32> {
        on_behalf_of(Location::caller(), || lookup(model, &self.parts, &ids.within(model)))
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
        let layer = model.layer("embedding");
        let tables = layer.build(|_| self.tables(&layer)).unwrap_or_default();
        lookup(&layer, &tables, x)
    }
}

/// `embedding_lookup`: the rows of `ids` from a table that `tables` hold, either as partitions
/// along an axis or, where they are separate variables, with the `mod` strategy. Poisoned without
/// tables.
pub(crate) fn lookup<I: TensorType>(
    view: &Graph,
    tables: &[Variable],
    ids: &Output<I>,
) -> Output<f32> {
    let ids = ids.any().within(view);
    match tables {
        [] => Output::poisoned(view),
        _ if !are_of(view, tables) => Output::poisoned(view),
        [table] => State::of(view, table).gather(view, &ids),
        [table, ..] => match &table.part {
            Some(part) if part.axis > 0 => columns(view, tables, &ids, part),
            Some(part) => {
                let rows = part.whole.dims()[0];
                rows_by(tables, &ids, |ids| in_runs(ids, rows, tables.len()))
            }
            None => rows_by(tables, &ids, |ids| in_turn(ids, tables.len())),
        },
    }
}

fn are_of(graph: &Graph, tables: &[Variable]) -> bool {
    let check = |scope: &mut _| tables.iter().try_for_each(|table| table.check_graph(scope));
    graph.build(check).is_some()
}

/// Lookup in a table that is partitioned along its columns: every partition is looked up and the
/// results are concatenated.
fn columns(view: &Graph, tables: &[Variable], ids: &Output<Any>, part: &Part) -> Output<f32> {
    let found = gathered(view, tables, |_| ids);
    // From the end, since that does not depend on the rank of the ids.
    tf::concat_v2(view, &found, part.axis as i32 - part.whole.rank() as i32)
}

/// Rows of each table, gathered on its device, so that only they are transferred.
fn gathered<'a>(
    view: &Graph,
    tables: &[Variable],
    rows: impl Fn(usize) -> &'a Output<Any>,
) -> Vec<Output<f32>> {
    let of = |(i, table): (usize, &Variable)| {
        State::of(view, table).gather(&view.device(&table.device), rows(i))
    };
    tables.iter().enumerate().map(of).collect()
}

/// Shard and row within the shard by the `mod` strategy.
fn in_turn(ids: &Output<Any>, parts: usize) -> [Output<Any>; 2] {
    let count = like(ids, parts as f64);
    [ids.floor_mod(&count), ids.floor_div(&count)]
}

/// Shard and row within the shard by the `div` strategy: contiguous ranges, the first ones longer
/// by one row.
fn in_runs(ids: &Output<Any>, rows: usize, parts: usize) -> [Output<Any>; 2] {
    let size = rows / parts;
    let [short, long, larger] = [size, size + 1, rows % parts].map(|size| like(ids, size as f64));
    let behind = ids - &larger;
    let part = ids.floor_div(&long).maximum(behind.floor_div(&short));
    let row = part.less(&larger).select(ids.floor_mod(&long), behind.floor_mod(&short));
    [part, row]
}

/// Gathers rows from the shards, given the shard of each row and its row there.
fn rows_by(
    tables: &[Variable],
    ids: &Output<Any>,
    find: impl FnOnce(&Output<Any>) -> [Output<Any>; 2],
) -> Output<f32> {
    let (view, count) = (ids.graph(), tables.len());
    let flat = ids.reshape([-1]);
    let [part, row] = find(&flat);
    let part = cast_to(&part, DType::Int32).typed::<i32>();
    let positions = view.range(0, tf::size::<i32, Any>(&flat), 1);
    let rows = tf::dynamic_partition(&row, &part, count as i64);
    let positions = tf::dynamic_partition(&positions, &part, count as i64);
    let found = gathered(view, tables, |i| &rows[i]);
    let together = tf::parallel_dynamic_stitch(view, &positions, &found);
    if ids.shape().rank() == Some(1) {
        return together;
    }
    let row: Vec<i32> = tables[0].shape.dims()[1..].iter().map(|size| *size as i32).collect();
    let shape = [tf::shape::<i32, Any>(ids), view.constant(row)];
    together.reshape(tf::concat_v2(view, &shape, 0))
}
