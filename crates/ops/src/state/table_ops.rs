//! Lookup table ops: static tables that are initialized once, mutable tables, and dense tables.

use std::sync::Arc;

use thalweg_graph::{OpDef, Work, shape};
use thalweg_kernel::{AnyKernel, Constraint, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{DType, PartialShape, Result, Shape, Tensor, bail, ensure};

use super::handle::{anonymous_kernel, state_input, state_kernel, two_strings};
use super::ledger::Ledger;
use super::table::{Content, Table};
use super::table_buckets::{Buckets, Layout};
use super::table_rows::Rows;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        HASH_TABLE.without_gradient(),
        HASH_TABLE_V2.without_gradient(),
        ANONYMOUS_HASH_TABLE,
        OpDef { name: "MutableHashTable", ..HASH_TABLE }.without_gradient(),
        OpDef { name: "MutableHashTableV2", ..HASH_TABLE_V2 }.without_gradient(),
        OpDef { name: "AnonymousMutableHashTable", ..ANONYMOUS_HASH_TABLE },
        MUTABLE_HASH_TABLE_OF_TENSORS.without_gradient(),
        MUTABLE_HASH_TABLE_OF_TENSORS_V2.without_gradient(),
        ANONYMOUS_MUTABLE_HASH_TABLE_OF_TENSORS,
        MUTABLE_DENSE_HASH_TABLE.without_gradient(),
        MUTABLE_DENSE_HASH_TABLE_V2.without_gradient(),
        ANONYMOUS_MUTABLE_DENSE_HASH_TABLE,
        LOOKUP_TABLE_FIND.without_gradient(),
        LOOKUP_TABLE_FIND_V2.without_gradient(),
        LOOKUP_TABLE_INSERT.without_gradient(),
        LOOKUP_TABLE_INSERT_V2.without_gradient(),
        OpDef::new("LookupTableRemoveV2", shape::unknown).with_work(Work::serial::<50>),
        LOOKUP_TABLE_SIZE.without_gradient(),
        LOOKUP_TABLE_SIZE_V2.without_gradient(),
        LOOKUP_TABLE_EXPORT,
        LOOKUP_TABLE_EXPORT_V2,
        OpDef { name: "LookupTableImport", ..LOOKUP_TABLE_INSERT },
        OpDef { name: "LookupTableImportV2", ..LOOKUP_TABLE_INSERT_V2 },
        INITIALIZE_TABLE.without_gradient(),
        INITIALIZE_TABLE_V2.without_gradient(),
    ],
    kernels: &[
        table("HashTable", STATIC[0], hash_table),
        table("HashTable", STATIC[1], hash_table),
        table("HashTable", STATIC[2], hash_table),
        table("HashTableV2", STATIC[0], hash_table),
        table("HashTableV2", STATIC[1], hash_table),
        table("HashTableV2", STATIC[2], hash_table),
        table("AnonymousHashTable", STATIC[0], hash_table),
        table("AnonymousHashTable", STATIC[1], hash_table),
        table("AnonymousHashTable", STATIC[2], hash_table),
        table("MutableHashTable", MUTABLE[0], mutable_hash_table),
        table("MutableHashTable", MUTABLE[1], mutable_hash_table),
        table("MutableHashTable", MUTABLE[2], mutable_hash_table),
        table("MutableHashTableV2", MUTABLE[0], mutable_hash_table),
        table("MutableHashTableV2", MUTABLE[1], mutable_hash_table),
        table("MutableHashTableV2", MUTABLE[2], mutable_hash_table),
        table("AnonymousMutableHashTable", MUTABLE[0], mutable_hash_table),
        table("AnonymousMutableHashTable", MUTABLE[1], mutable_hash_table),
        table("AnonymousMutableHashTable", MUTABLE[2], mutable_hash_table),
        table("MutableHashTableOfTensors", OF_TENSORS[0], mutable_hash_table),
        table("MutableHashTableOfTensors", OF_TENSORS[1], mutable_hash_table),
        table("MutableHashTableOfTensors", OF_TENSORS[2], mutable_hash_table),
        table("MutableHashTableOfTensorsV2", OF_TENSORS[0], mutable_hash_table),
        table("MutableHashTableOfTensorsV2", OF_TENSORS[1], mutable_hash_table),
        table("MutableHashTableOfTensorsV2", OF_TENSORS[2], mutable_hash_table),
        table("AnonymousMutableHashTableOfTensors", OF_TENSORS[0], mutable_hash_table),
        table("AnonymousMutableHashTableOfTensors", OF_TENSORS[1], mutable_hash_table),
        table("AnonymousMutableHashTableOfTensors", OF_TENSORS[2], mutable_hash_table),
        table("MutableDenseHashTable", DENSE[0], dense_hash_table),
        table("MutableDenseHashTable", DENSE[1], dense_hash_table),
        table("MutableDenseHashTable", DENSE[2], dense_hash_table),
        table("MutableDenseHashTableV2", DENSE[0], dense_hash_table),
        table("MutableDenseHashTableV2", DENSE[1], dense_hash_table),
        table("MutableDenseHashTableV2", DENSE[2], dense_hash_table),
        table("AnonymousMutableDenseHashTable", DENSE[0], dense_hash_table),
        table("AnonymousMutableDenseHashTable", DENSE[1], dense_hash_table),
        table("AnonymousMutableDenseHashTable", DENSE[2], dense_hash_table),
        KernelSpec { op: "LookupTableFind", create: find, ..KernelSpec::CPU },
        KernelSpec { op: "LookupTableFindV2", create: find, ..KernelSpec::CPU },
        KernelSpec { op: "LookupTableInsert", create: insert, ..KernelSpec::CPU },
        KernelSpec { op: "LookupTableInsertV2", create: insert, ..KernelSpec::CPU },
        KernelSpec { op: "LookupTableRemoveV2", create: remove, ..KernelSpec::CPU },
        KernelSpec { op: "LookupTableSize", create: size, ..KernelSpec::CPU },
        KernelSpec { op: "LookupTableSizeV2", create: size, ..KernelSpec::CPU },
        KernelSpec { op: "LookupTableExport", create: export, ..KernelSpec::CPU },
        KernelSpec { op: "LookupTableExportV2", create: export, ..KernelSpec::CPU },
        KernelSpec { op: "LookupTableImport", create: import, ..KernelSpec::CPU },
        KernelSpec { op: "LookupTableImportV2", create: import, ..KernelSpec::CPU },
        KernelSpec { op: "InitializeTable", create: initialize, ..KernelSpec::CPU },
        KernelSpec { op: "InitializeTableV2", create: initialize, ..KernelSpec::CPU },
    ],
};

const fn table(
    op: &'static str,
    constraints: &'static [Constraint],
    create: fn(&KernelInit<'_>) -> Result<AnyKernel>,
) -> KernelSpec {
    KernelSpec { op, constraints, create, is_cheap: true, ..KernelSpec::CPU }
}

const STRING_KEYS: Constraint = ("key_dtype", &[DType::String]);
const INT64_KEYS: Constraint = ("key_dtype", &[DType::Int64]);
const INT32_KEYS: Constraint = ("key_dtype", &[DType::Int32]);

const STRING_TO_NUMBERS: Constraint =
    ("value_dtype", &[DType::Int64, DType::Int32, DType::Float, DType::Double, DType::Bool]);
const INT32_TO_NUMBERS: Constraint = ("value_dtype", &[DType::Int32, DType::Float, DType::Double]);
const INT64_TO_ALL: Constraint =
    ("value_dtype", &[DType::String, DType::Int64, DType::Int32, DType::Float, DType::Double]);

/// The pairs of key and value types of each kind of table.
const STATIC: [&[Constraint]; 3] = [
    &[
        STRING_KEYS,
        (
            "value_dtype",
            &[DType::String, DType::Int64, DType::Int32, DType::Float, DType::Double, DType::Bool],
        ),
    ],
    &[INT64_KEYS, INT64_TO_ALL],
    &[INT32_KEYS, ("value_dtype", &[DType::String, DType::Int32, DType::Float, DType::Double])],
];

const MUTABLE: [&[Constraint]; 3] = [
    &[STRING_KEYS, STRING_TO_NUMBERS],
    &[
        INT64_KEYS,
        (
            "value_dtype",
            &[
                DType::Variant,
                DType::String,
                DType::Int64,
                DType::Int32,
                DType::Float,
                DType::Double,
            ],
        ),
    ],
    &[INT32_KEYS, INT32_TO_NUMBERS],
];

const OF_TENSORS: [&[Constraint]; 3] = [
    &[STRING_KEYS, STRING_TO_NUMBERS],
    &[INT64_KEYS, INT64_TO_ALL],
    &[INT32_KEYS, INT32_TO_NUMBERS],
];

const DENSE: [&[Constraint]; 3] = [
    &[
        STRING_KEYS,
        (
            "value_dtype",
            &[
                DType::Resource,
                DType::Int64,
                DType::Int32,
                DType::Float,
                DType::Double,
                DType::Bool,
            ],
        ),
    ],
    &[
        INT64_KEYS,
        (
            "value_dtype",
            &[DType::Variant, DType::Int64, DType::Int32, DType::Float, DType::Double, DType::Bool],
        ),
    ],
    &[INT32_KEYS, INT32_TO_NUMBERS],
];

const HASH_TABLE: OpDef = OpDef::new("HashTable", two_strings);

const HASH_TABLE_V2: OpDef = OpDef { name: "HashTableV2", shape: shape::scalar, ..HASH_TABLE };

const ANONYMOUS_HASH_TABLE: OpDef = OpDef { name: "AnonymousHashTable", ..HASH_TABLE_V2 };

const MUTABLE_HASH_TABLE_OF_TENSORS: OpDef =
    OpDef { name: "MutableHashTableOfTensors", ..HASH_TABLE };

const MUTABLE_HASH_TABLE_OF_TENSORS_V2: OpDef = OpDef {
    name: "MutableHashTableOfTensorsV2",
    shape: shape::scalar,
    ..MUTABLE_HASH_TABLE_OF_TENSORS
};

const ANONYMOUS_MUTABLE_HASH_TABLE_OF_TENSORS: OpDef =
    OpDef { name: "AnonymousMutableHashTableOfTensors", ..MUTABLE_HASH_TABLE_OF_TENSORS_V2 };

const MUTABLE_DENSE_HASH_TABLE: OpDef = OpDef { name: "MutableDenseHashTable", ..HASH_TABLE };

const MUTABLE_DENSE_HASH_TABLE_V2: OpDef =
    OpDef { name: "MutableDenseHashTableV2", shape: shape::scalar, ..MUTABLE_DENSE_HASH_TABLE };

const ANONYMOUS_MUTABLE_DENSE_HASH_TABLE: OpDef =
    OpDef { name: "AnonymousMutableDenseHashTable", ..MUTABLE_DENSE_HASH_TABLE_V2 };

const LOOKUP_TABLE_FIND: OpDef =
    OpDef::new("LookupTableFind", shape::unknown).with_work(Work::serial::<50>);

const LOOKUP_TABLE_FIND_V2: OpDef = OpDef { name: "LookupTableFindV2", ..LOOKUP_TABLE_FIND };

const LOOKUP_TABLE_INSERT: OpDef =
    OpDef::new("LookupTableInsert", shape::unknown).with_work(Work::serial::<50>);

const LOOKUP_TABLE_INSERT_V2: OpDef = OpDef { name: "LookupTableInsertV2", ..LOOKUP_TABLE_INSERT };

const LOOKUP_TABLE_SIZE: OpDef = OpDef::new("LookupTableSize", shape::scalar);

const LOOKUP_TABLE_SIZE_V2: OpDef = OpDef { name: "LookupTableSizeV2", ..LOOKUP_TABLE_SIZE };

const LOOKUP_TABLE_EXPORT: OpDef =
    OpDef::new("LookupTableExport", shape::unknown).with_work(Work::serial::<50>);

const LOOKUP_TABLE_EXPORT_V2: OpDef = OpDef { name: "LookupTableExportV2", ..LOOKUP_TABLE_EXPORT };

const INITIALIZE_TABLE: OpDef =
    OpDef::new("InitializeTable", shape::unknown).with_work(Work::serial::<50>);

const INITIALIZE_TABLE_V2: OpDef = OpDef { name: "InitializeTableV2", ..INITIALIZE_TABLE };

/// Attrs of a table node.
#[derive(Clone)]
struct Declared {
    key_dtype: DType,
    value_dtype: DType,
    value_shape: Shape,
}

impl Declared {
    fn of(init: &KernelInit<'_>) -> Result<Declared> {
        let attrs = init.attrs();
        let shape = match attrs.get("value_shape") {
            Some(_) => attrs.shape("value_shape")?,
            None => PartialShape::scalar(),
        };
        let Some(value_shape) = shape.to_shape() else {
            bail!(InvalidArgument, "Shape {shape} is not fully defined");
        };
        let (key_dtype, value_dtype) = (attrs.dtype("key_dtype")?, attrs.dtype("value_dtype")?);
        Ok(Declared { key_dtype, value_dtype, value_shape })
    }

    fn check(&self, table: &Table, name: &str) -> Result<()> {
        ensure!(
            table.key_dtype == self.key_dtype && table.value_dtype == self.value_dtype,
            InvalidArgument,
            "Conflicting key/value dtypes {}->{} with {}-{} for table {name}",
            self.key_dtype,
            self.value_dtype,
            table.key_dtype,
            table.value_dtype
        );
        Ok(())
    }

    fn rows(&self, ctx: &KernelContext<'_>) -> Result<Rows> {
        let ledger = Ledger::new(ctx.step().state_budget().clone());
        Rows::new(self.key_dtype, self.value_dtype, self.value_shape.num_elements(), ledger)
    }

    fn table(&self, key_shape: Shape, content: Content) -> Table {
        let Declared { key_dtype, value_dtype, value_shape } = self.clone();
        Table::new(key_dtype, value_dtype, key_shape, value_shape, content)
    }
}

/// A kernel that outputs a handle of a named table, or of an anonymous one if the op has no name.
fn table_kernel(
    init: &KernelInit<'_>,
    declared: Declared,
    create: impl Fn(&KernelContext<'_>) -> Result<Table> + Send + Sync + 'static,
) -> Result<AnyKernel> {
    if init.attrs().get("shared_name").is_none() {
        return anonymous_kernel(move |ctx, _| create(ctx));
    }
    let is_shared_by_node_name = init.attrs().bool("use_node_name_sharing")?;
    state_kernel(
        init,
        is_shared_by_node_name,
        move |ctx, _| create(ctx),
        move |table: &Table, name| declared.check(table, name),
    )
}

fn hash_table(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let declared = Declared::of(init)?;
    table_kernel(init, declared.clone(), move |ctx| {
        let content = Content::Static { rows: declared.rows(ctx)?, is_initialized: false };
        Ok(declared.table(Shape::scalar(), content))
    })
}

fn mutable_hash_table(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let declared = Declared::of(init)?;
    let is_of_tensors = init.attrs().get("value_shape").is_some();
    table_kernel(init, declared.clone(), move |ctx| {
        ensure!(
            !is_of_tensors || declared.value_shape.rank() == 1,
            InvalidArgument,
            "Default value must be a vector, got shape {}",
            declared.value_shape
        );
        Ok(declared.table(Shape::scalar(), Content::Mutable(declared.rows(ctx)?)))
    })
}

fn dense_hash_table(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let declared = Declared::of(init)?;
    let initial_buckets = init.attrs().int("initial_num_buckets")?;
    let max_load_factor = init.attrs().float("max_load_factor")?;
    table_kernel(init, declared.clone(), move |ctx| {
        ensure!(
            declared.value_shape.rank() <= 1,
            InvalidArgument,
            "Empty value must be a scalar or a vector, got shape {}",
            declared.value_shape
        );
        let ledger = Ledger::new(ctx.step().state_budget().clone());
        // Copied: the inputs may be slices of large messages.
        let own = |i: usize| ctx.input(i)?.deep_copy(Some(ledger.budget()));
        // V1 ops have no `deleted_key`, which tables need now that entries can be removed.
        ensure!(ctx.num_inputs() > 1, InvalidArgument, "a dense table needs a deleted_key");
        let (empty_key, deleted_key) = (own(0)?, own(1)?);
        let key_shape = empty_key.shape().clone();
        let layout = Layout {
            key_width: key_shape.num_elements(),
            empty_key,
            deleted_key,
            value_dtype: declared.value_dtype,
            value_width: declared.value_shape.num_elements(),
            max_load_factor,
            initial_buckets,
        };
        let buckets = Buckets::new(layout, ledger)?;
        Ok(declared.table(key_shape, Content::Dense(Box::new(buckets))))
    })
}

fn find(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let table: Arc<Table> = state_input(ctx, 0)?;
        let values = table.find(ctx, ctx.input(1)?, ctx.input(2)?)?;
        ctx.set_output(0, values)
    })
}

/// Changes a table through [`update`], as all state changes are.
pub(super) fn change(
    ctx: &KernelContext<'_>,
    change: impl FnOnce(&Table) -> Result<()>,
) -> Result<()> {
    let table: Arc<Table> = state_input(ctx, 0)?;
    let (op, step) = (&ctx.node().op.name, ctx.step().step_id());
    ctx.resources().update(&*table, op, step, || change(&table))
}

fn insert(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| change(ctx, |table| table.insert(ctx.input(1)?, ctx.input(2)?)))
}

fn remove(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| change(ctx, |table| table.remove(ctx.input(1)?)))
}

fn import(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| change(ctx, |table| table.import(ctx.input(1)?, ctx.input(2)?)))
}

fn size(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let table: Arc<Table> = state_input(ctx, 0)?;
        ctx.set_output(0, Tensor::scalar(table.len() as i64))
    })
}

fn export(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let table: Arc<Table> = state_input(ctx, 0)?;
        ensure!(
            table.key_dtype == ctx.output_dtype(0)? && table.value_dtype == ctx.output_dtype(1)?,
            InvalidArgument,
            "the table holds {}->{}, not {}->{}",
            table.key_dtype,
            table.value_dtype,
            ctx.output_dtype(0)?,
            ctx.output_dtype(1)?
        );
        let (keys, values) = table.export(ctx)?;
        ctx.set_output(0, keys)?;
        ctx.set_output(1, values)
    })
}

fn initialize(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        change(ctx, |table| {
            ensure!(table.is_static(), InvalidArgument, "the table is not initializable");
            let (keys, values) = (ctx.input(1)?, ctx.input(2)?);
            for (tensor, name) in [(keys, "Keys"), (values, "Values")] {
                ensure!(
                    tensor.rank() == 1,
                    InvalidArgument,
                    "{name} must be a vector, but received shape {}",
                    tensor.shape()
                );
            }
            ensure!(
                keys.num_elements() == values.num_elements(),
                InvalidArgument,
                "Keys and values must have the same size {} vs {}",
                keys.num_elements(),
                values.num_elements()
            );
            ensure!(
                keys.num_elements() > 0,
                InvalidArgument,
                "keys and values cannot be empty tensors."
            );
            table.import(keys, values)
        })
    })
}
