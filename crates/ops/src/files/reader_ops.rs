//! Reader ops, with reference handles and, as `V2`, with resource handles.

use std::sync::Arc;

use thalweg_formats::record::Compression;
use thalweg_graph::{OpDef, ShapeContext, Work, shape};
use thalweg_kernel::{AnyKernel, AsyncCall, AsyncKernel, Family, KernelInit, KernelSpec};
use thalweg_tensor::{Code, PartialShape, Result, Tensor, bail, ensure};

use super::reader::{READS, Reader, ReaderState, Request, outputs, run_dequeues};
use super::sources::{FixedLength, Lines, Names, Records, Source, Whole, checked_sizes};
use crate::parsing::{scalar_string, set_scalar_string};
use crate::queues::gate::update;
use crate::queues::queue::Queue;
use crate::state::handle::{state_input, state_kernel, state_of_call, two_strings};

pub(crate) static FAMILY: Family = Family {
    ops: &[
        TEXT_LINE_READER,
        TEXT_LINE_READER_V2,
        WHOLE_FILE_READER,
        WHOLE_FILE_READER_V2,
        FIXED_LENGTH_RECORD_READER,
        FIXED_LENGTH_RECORD_READER_V2,
        TF_RECORD_READER,
        TF_RECORD_READER_V2,
        IDENTITY_READER,
        IDENTITY_READER_V2,
        READER_READ,
        READER_READ_V2,
        READER_READ_UP_TO,
        READER_READ_UP_TO_V2,
        READER_NUM_RECORDS_PRODUCED,
        READER_NUM_RECORDS_PRODUCED_V2,
        READER_NUM_WORK_UNITS_COMPLETED,
        READER_NUM_WORK_UNITS_COMPLETED_V2,
        READER_SERIALIZE_STATE,
        READER_SERIALIZE_STATE_V2,
        READER_RESTORE_STATE,
        READER_RESTORE_STATE_V2,
        READER_RESET,
        READER_RESET_V2,
    ],
    kernels: &[
        KernelSpec { op: "TextLineReader", create: text_line, ..CHEAP },
        KernelSpec { op: "TextLineReaderV2", create: text_line, ..CHEAP },
        KernelSpec { op: "WholeFileReader", create: whole_file, ..CHEAP },
        KernelSpec { op: "WholeFileReaderV2", create: whole_file, ..CHEAP },
        KernelSpec { op: "FixedLengthRecordReader", create: fixed_length, ..CHEAP },
        KernelSpec { op: "FixedLengthRecordReaderV2", create: fixed_length_v2, ..CHEAP },
        KernelSpec { op: "TFRecordReader", create: tf_record, ..CHEAP },
        KernelSpec { op: "TFRecordReaderV2", create: tf_record, ..CHEAP },
        KernelSpec { op: "IdentityReader", create: identity, ..CHEAP },
        KernelSpec { op: "IdentityReaderV2", create: identity, ..CHEAP },
        KernelSpec { op: "ReaderRead", create: read, ..KernelSpec::CPU },
        KernelSpec { op: "ReaderReadV2", create: read, ..KernelSpec::CPU },
        KernelSpec { op: "ReaderReadUpTo", create: read_up_to, ..KernelSpec::CPU },
        KernelSpec { op: "ReaderReadUpToV2", create: read_up_to, ..KernelSpec::CPU },
        KernelSpec { op: "ReaderNumRecordsProduced", create: records_produced, ..KernelSpec::CPU },
        KernelSpec {
            op: "ReaderNumRecordsProducedV2",
            create: records_produced,
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "ReaderNumWorkUnitsCompleted",
            create: units_completed,
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "ReaderNumWorkUnitsCompletedV2",
            create: units_completed,
            ..KernelSpec::CPU
        },
        KernelSpec { op: "ReaderSerializeState", create: serialize_state, ..KernelSpec::CPU },
        KernelSpec { op: "ReaderSerializeStateV2", create: serialize_state, ..KernelSpec::CPU },
        KernelSpec { op: "ReaderRestoreState", create: restore_state, ..KernelSpec::CPU },
        KernelSpec { op: "ReaderRestoreStateV2", create: restore_state, ..KernelSpec::CPU },
        KernelSpec { op: "ReaderReset", create: reset, ..KernelSpec::CPU },
        KernelSpec { op: "ReaderResetV2", create: reset, ..KernelSpec::CPU },
    ],
};

const CHEAP: KernelSpec = KernelSpec { is_cheap: true, ..KernelSpec::CPU };

const TEXT_LINE_READER: OpDef = OpDef::new("TextLineReader", two_strings);

const TEXT_LINE_READER_V2: OpDef =
    OpDef { name: "TextLineReaderV2", shape: shape::scalar, ..TEXT_LINE_READER };

const WHOLE_FILE_READER: OpDef = OpDef { name: "WholeFileReader", ..TEXT_LINE_READER };

const WHOLE_FILE_READER_V2: OpDef = OpDef { name: "WholeFileReaderV2", ..TEXT_LINE_READER_V2 };

const FIXED_LENGTH_RECORD_READER: OpDef =
    OpDef { name: "FixedLengthRecordReader", ..TEXT_LINE_READER };

const FIXED_LENGTH_RECORD_READER_V2: OpDef =
    OpDef { name: "FixedLengthRecordReaderV2", ..TEXT_LINE_READER_V2 };

const TF_RECORD_READER: OpDef = OpDef { name: "TFRecordReader", ..TEXT_LINE_READER };

const TF_RECORD_READER_V2: OpDef = OpDef { name: "TFRecordReaderV2", ..TEXT_LINE_READER_V2 };

const IDENTITY_READER: OpDef = OpDef { name: "IdentityReader", ..WHOLE_FILE_READER };

const IDENTITY_READER_V2: OpDef = OpDef { name: "IdentityReaderV2", ..WHOLE_FILE_READER_V2 };

const READER_READ: OpDef = OpDef::new("ReaderRead", shape::scalar).with_work(Work::fixed::<20>);

const READER_READ_V2: OpDef = OpDef { name: "ReaderReadV2", ..READER_READ };

const READER_READ_UP_TO: OpDef =
    OpDef::new("ReaderReadUpTo", two_vectors).with_work(Work::fixed::<20>);

const READER_READ_UP_TO_V2: OpDef = OpDef { name: "ReaderReadUpToV2", ..READER_READ_UP_TO };

fn two_vectors(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(2, "num_records", 0)?;
    c.set_output(0, PartialShape::new([None]));
    c.set_output(1, PartialShape::new([None]));
    Ok(())
}

const READER_NUM_RECORDS_PRODUCED: OpDef = OpDef::new("ReaderNumRecordsProduced", shape::scalar);

const READER_NUM_RECORDS_PRODUCED_V2: OpDef =
    OpDef { name: "ReaderNumRecordsProducedV2", ..READER_NUM_RECORDS_PRODUCED };

const READER_NUM_WORK_UNITS_COMPLETED: OpDef =
    OpDef { name: "ReaderNumWorkUnitsCompleted", ..READER_NUM_RECORDS_PRODUCED };

const READER_NUM_WORK_UNITS_COMPLETED_V2: OpDef =
    OpDef { name: "ReaderNumWorkUnitsCompletedV2", ..READER_NUM_RECORDS_PRODUCED_V2 };

const READER_SERIALIZE_STATE: OpDef =
    OpDef { name: "ReaderSerializeState", ..READER_NUM_RECORDS_PRODUCED };

const READER_SERIALIZE_STATE_V2: OpDef =
    OpDef { name: "ReaderSerializeStateV2", ..READER_NUM_RECORDS_PRODUCED_V2 };

const READER_RESTORE_STATE: OpDef = OpDef::new("ReaderRestoreState", scalar_state);

const READER_RESTORE_STATE_V2: OpDef =
    OpDef { name: "ReaderRestoreStateV2", ..READER_RESTORE_STATE };

fn scalar_state(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(1, "state", 0)?;
    Ok(())
}

const READER_RESET: OpDef = OpDef::new("ReaderReset", shape::unknown);

const READER_RESET_V2: OpDef = OpDef { name: "ReaderResetV2", ..READER_RESET };

/// A kernel that creates a reader of this kind.
fn reader<S: Source + 'static>(
    init: &KernelInit<'_>,
    kind: &'static str,
    source: impl Fn() -> S + Send + Sync + 'static,
) -> Result<AnyKernel> {
    // A name that another node gave to a reader refers to that reader, of any kind.
    let check = |_: &Reader, _: &str| Ok(());
    state_kernel(init, false, move |_, _| Ok(Reader::new(kind, Box::new(source()))), check)
}

fn text_line(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let skipped = init.attrs().int("skip_header_lines")?;
    ensure!(skipped >= 0, InvalidArgument, "skip_header_lines must be >= 0 not {skipped}");
    reader(init, "TextLineReader", move || Lines::new(skipped))
}

fn whole_file(init: &KernelInit<'_>) -> Result<AnyKernel> {
    reader(init, "WholeFileReader", || Whole)
}

fn identity(init: &KernelInit<'_>) -> Result<AnyKernel> {
    reader(init, "IdentityReader", || Names)
}

fn tf_record(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let compression = compression(init.attrs().string("compression_type")?)?;
    reader(init, "TFRecordReader", move || Records::new(compression))
}

fn fixed_length(init: &KernelInit<'_>) -> Result<AnyKernel> {
    fixed_length_with(init, Compression::None)
}

fn fixed_length_v2(init: &KernelInit<'_>) -> Result<AnyKernel> {
    fixed_length_with(init, compression(init.attrs().string("encoding")?)?)
}

/// The compression of that name; as in TensorFlow, unknown names mean none.
fn compression(name: &str) -> Result<Compression> {
    match Compression::from_name(name) {
        Err(e) if e.code() == Code::InvalidArgument => Ok(Compression::None),
        other => other,
    }
}

fn fixed_length_with(init: &KernelInit<'_>, compression: Compression) -> Result<AnyKernel> {
    let attrs = init.attrs();
    let sizes = checked_sizes(
        attrs.int("header_bytes")?,
        attrs.int("record_bytes")?,
        attrs.int("footer_bytes")?,
        attrs.int("hop_bytes")?,
    )?;
    reader(init, "FixedLengthRecordReader", move || FixedLength::new(sizes, compression))
}

/// `ReaderRead` and `ReaderReadUpTo`.
struct Read {
    op: String,
    is_up_to: bool,
}

impl Read {
    fn request(&self, call: &AsyncCall) -> Result<(Arc<Reader>, Request)> {
        let reader: Arc<Reader> = state_of_call(call, 0)?;
        let queue: Arc<Queue> = state_of_call(call, 1)?;
        let mut up_to = None;
        if self.is_up_to {
            let count = call.input(2)?.scalar_value::<i64>()?;
            let Ok(count) = usize::try_from(count) else {
                bail!(InvalidArgument, "num_records must be >= 0, got {count}");
            };
            up_to = Some(count);
        }
        Ok((reader, Request::new(queue, up_to, &call.step)))
    }
}

impl AsyncKernel for Read {
    fn start(&self, call: AsyncCall) {
        let (reader, request) = match self.request(&call) {
            Ok((_, request)) if request.is_empty() => {
                return call.complete(outputs(Vec::new(), true));
            }
            Ok(found) => found,
            Err(e) => return call.complete(Err(e)),
        };
        let (resources, step_id) = (call.step.resources().clone(), call.step.step_id());
        let mut left = Some((call, request));
        let result = resources.update(&*reader, &self.op, step_id, || {
            if let Some((call, request)) = left.take() {
                reader.gate.submit(READS, request, call);
                run_dequeues(&reader.gate);
            }
            Ok(())
        });
        if let (Err(e), Some((call, _))) = (result, left) {
            call.complete(Err(e));
        }
    }
}

fn read(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let op = init.node.op.name.clone();
    Ok(AnyKernel::Async(Arc::new(Read { op, is_up_to: false })))
}

fn read_up_to(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let op = init.node.op.name.clone();
    Ok(AnyKernel::Async(Arc::new(Read { op, is_up_to: true })))
}

fn records_produced(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let reader: Arc<Reader> = state_input(ctx, 0)?;
        let (records, _) = reader.gate.inspect(ReaderState::counts);
        ctx.set_output(0, Tensor::scalar(records))
    })
}

fn units_completed(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let reader: Arc<Reader> = state_input(ctx, 0)?;
        let (_, units) = reader.gate.inspect(ReaderState::counts);
        ctx.set_output(0, Tensor::scalar(units))
    })
}

fn serialize_state(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let reader: Arc<Reader> = state_input(ctx, 0)?;
        let state = reader.gate.inspect(ReaderState::state)?;
        set_scalar_string(ctx, 0, state)
    })
}

fn restore_state(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let reader: Arc<Reader> = state_input(ctx, 0)?;
        let state = scalar_string(ctx, 1, "state")?;
        update(ctx, &*reader, || reader.gate.change(|reader_state| reader_state.restore(&state)))?
    })
}

fn reset(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let reader: Arc<Reader> = state_input(ctx, 0)?;
        update(ctx, &*reader, || reader.gate.change(ReaderState::reset))
    })
}
