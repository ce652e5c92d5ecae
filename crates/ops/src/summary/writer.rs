//! Summary writers: resources that write event files.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prost::Message;
use thalweg_formats::events::EventWriter;
use thalweg_graph::{OpDef, Work, shape};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_proto::event::What;
use thalweg_proto::summary::value::Value as Content;
use thalweg_proto::{self as pb, Codec};
use thalweg_tensor::{DType, Resource, Result, Tensor, ensure, err};

use super::audio::audio_values;
use super::histogram::histogram_value;
use super::image::image_values;
use super::{for_each_number, text, value};
use crate::files::path_of;
use crate::parsing::scalar_string;
use crate::queues::gate::update;
use crate::state::handle::{state_input, state_kernel};
use crate::work;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        OpDef::new("SummaryWriter", shape::scalar),
        OpDef::new("CreateSummaryFileWriter", shape::unknown).with_work(work::file),
        FLUSH_SUMMARY_WRITER,
        CLOSE_SUMMARY_WRITER,
        OpDef::new("WriteSummary", shape::unknown).with_work(Work::fixed::<20>),
        WRITE_RAW_PROTO_SUMMARY,
        OpDef::new("WriteScalarSummary", shape::unknown).with_work(Work::fixed::<20>),
        OpDef::new("WriteHistogramSummary", shape::unknown).with_work(Work::fixed::<20>),
        OpDef::new("WriteImageSummary", shape::unknown).with_work(Work::fixed::<20>),
        OpDef::new("WriteAudioSummary", shape::unknown).with_work(Work::fixed::<20>),
        WRITE_GRAPH_SUMMARY,
        OpDef::new("ImportEvent", shape::unknown).with_work(Work::fixed::<20>),
    ],
    kernels: &[
        KernelSpec { op: "SummaryWriter", create: writer, is_cheap: true, ..KernelSpec::CPU },
        KernelSpec { op: "CreateSummaryFileWriter", create: create_file, ..KernelSpec::CPU },
        KernelSpec { op: "FlushSummaryWriter", create: flush, ..KernelSpec::CPU },
        KernelSpec { op: "CloseSummaryWriter", create: close, ..KernelSpec::CPU },
        KernelSpec { op: "WriteSummary", create: write_tensor, ..KernelSpec::CPU },
        KernelSpec { op: "WriteRawProtoSummary", create: write_raw, ..KernelSpec::CPU },
        KernelSpec { op: "WriteScalarSummary", create: write_scalar, ..KernelSpec::CPU },
        KernelSpec { op: "WriteHistogramSummary", create: write_histogram, ..KernelSpec::CPU },
        KernelSpec { op: "WriteImageSummary", create: write_image, ..KernelSpec::CPU },
        KernelSpec { op: "WriteAudioSummary", create: write_audio, ..KernelSpec::CPU },
        KernelSpec { op: "WriteGraphSummary", create: write_graph, ..KernelSpec::CPU },
        KernelSpec { op: "ImportEvent", create: import_event, ..KernelSpec::CPU },
    ],
};

const FLUSH_SUMMARY_WRITER: OpDef =
    OpDef::new("FlushSummaryWriter", shape::unknown).with_work(work::file);

const CLOSE_SUMMARY_WRITER: OpDef = OpDef { name: "CloseSummaryWriter", ..FLUSH_SUMMARY_WRITER };

const WRITE_RAW_PROTO_SUMMARY: OpDef =
    OpDef::new("WriteRawProtoSummary", shape::unknown).with_work(Work::fixed::<20>);

const WRITE_GRAPH_SUMMARY: OpDef = OpDef { name: "WriteGraphSummary", ..WRITE_RAW_PROTO_SUMMARY };

/// A writer; `None` before it has a file.
#[derive(Default)]
struct Writer(Mutex<Option<Open>>);

struct Open {
    file: EventWriter,
    /// Maximum number of events before a flush.
    queued_max: i64,
    queued: i64,
    flush_after: Duration,
    flushed: Duration,
}

impl Resource for Writer {
    fn kind(&self) -> &'static str {
        "SummaryWriter"
    }
}

impl Writer {
    /// Calls a function with the open file.
    fn with<R>(
        self: &Arc<Self>,
        ctx: &KernelContext<'_>,
        work: impl FnOnce(&mut Open) -> Result<R>,
    ) -> Result<R> {
        update(ctx, &**self, || match &mut *self.0.lock() {
            Some(open) => work(open),
            None => Err(err!(NotFound, "the summary writer has no file, or was closed")),
        })?
    }
}

impl Open {
    fn write(&mut self, event: &pb::Event, now: Duration) -> Result<()> {
        self.file.write(event)?;
        self.queued += 1;
        if self.queued > self.queued_max || now.saturating_sub(self.flushed) > self.flush_after {
            self.flush(now)?;
        }
        Ok(())
    }

    fn flush(&mut self, now: Duration) -> Result<()> {
        (self.queued, self.flushed) = (0, now);
        self.file.flush()
    }
}

fn writer(init: &KernelInit<'_>) -> Result<AnyKernel> {
    state_kernel(init, true, |_, _| Ok(Writer::default()), |_: &Writer, _| Ok(()))
}

fn create_file(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let writer: Arc<Writer> = state_input(ctx, 0)?;
        let folder = scalar_string(ctx, 1, "logdir")?;
        let queued_max = ctx.scalar_int(2, "max_queue")?;
        let flush_millis = ctx.scalar_int(3, "flush_millis")?;
        let suffix = scalar_string(ctx, 4, "filename_suffix")?;
        let environment = ctx.step().environment();
        update(ctx, &*writer, || {
            let mut open = writer.0.lock();
            if open.is_some() {
                return Ok(());
            }
            let wall = environment.clock.wall();
            let storage = &*environment.storage;
            let file = EventWriter::create(storage, path_of(&folder)?, wall, path_of(&suffix)?)?;
            let flush_after = Duration::from_millis(u64::try_from(flush_millis).unwrap_or(0));
            let flushed = environment.clock.monotonic();
            *open = Some(Open { file, queued_max, queued: 0, flush_after, flushed });
            Ok(())
        })?
    })
}

fn flush(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let writer: Arc<Writer> = state_input(ctx, 0)?;
        let now = ctx.step().environment().clock.monotonic();
        writer.with(ctx, |open| open.flush(now))
    })
}

fn close(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let writer: Arc<Writer> = state_input(ctx, 0)?;
        let open = update(ctx, &*writer, || writer.0.lock().take())?;
        match open {
            Some(open) => open.file.finish(),
            None => Err(err!(NotFound, "the summary writer has no file, or was closed")),
        }
    })
}

/// Writes an event for the step in input 1.
fn write(ctx: &KernelContext<'_>, what: What) -> Result<()> {
    let step = ctx.scalar_int(1, "step")?;
    let wall_time = ctx.step().environment().clock.wall().as_secs_f64();
    write_event(ctx, &pb::Event { wall_time, step, what: Some(what), ..Default::default() })
}

fn write_event(ctx: &KernelContext<'_>, event: &pb::Event) -> Result<()> {
    let writer: Arc<Writer> = state_input(ctx, 0)?;
    let now = ctx.step().environment().clock.monotonic();
    ctx.budget().check(event.encoded_len())?;
    writer.with(ctx, |open| open.write(event, now))
}

fn write_values(ctx: &KernelContext<'_>, value: Vec<pb::summary::Value>) -> Result<()> {
    write(ctx, What::Summary(pb::Summary { value }))
}

/// The handle is checked before the tag.
fn tag(ctx: &KernelContext<'_>, i: usize) -> Result<String> {
    let writer: Arc<Writer> = state_input(ctx, 0)?;
    writer.with(ctx, |_| Ok(()))?;
    text(&scalar_string(ctx, i, "tag")?)
}

fn write_tensor(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let tag = tag(ctx, 3)?;
        let serialized = scalar_string(ctx, 4, "summary_metadata")?;
        let mut metadata = pb::SummaryMetadata::default();
        // As in TensorFlow, invalid metadata is used as far as it can be parsed.
        let _ = metadata.merge(serialized);
        let content = Content::Tensor(ctx.input(2)?.to_proto()?);
        let metadata = Some(metadata);
        let value = pb::summary::Value { metadata, ..value(tag, content) };
        write_values(ctx, vec![value])
    })
}

fn write_raw(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let mut values = Vec::new();
        for serialized in ctx.input(2)?.strings()? {
            let summary = pb::Summary::decode_from(&mut serialized.clone())
                .map_err(|e| err!(DataLoss, "Bad tf.compat.v1.Summary binary proto: {e}"))?;
            values.extend(summary.value);
        }
        write_values(ctx, values)
    })
}

fn write_scalar(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let tag = tag(ctx, 2)?;
        let tensor = ctx.input(3)?;
        ensure!(
            tensor.num_elements() == 1,
            InvalidArgument,
            "value must be a scalar, got shape {}",
            tensor.shape()
        );
        let mut number = 0.0;
        for_each_number(tensor, |x| {
            number = x as f32;
            Ok(())
        })?;
        write_values(ctx, vec![value(tag, Content::SimpleValue(number))])
    })
}

fn write_histogram(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let tag = tag(ctx, 2)?;
        let mut tensor = ctx.input(3)?.clone();
        if tensor.dtype() == DType::Bool {
            let flags = tensor.as_slice::<bool>()?;
            let mut numbers = ctx.allocate(DType::UInt8, tensor.shape().clone())?;
            let bytes = numbers.as_mut_slice::<u8>()?;
            bytes.iter_mut().zip(flags).for_each(|(byte, &flag)| *byte = flag.into());
            tensor = numbers;
        }
        let value = histogram_value(tag, &tensor)?;
        write_values(ctx, vec![value])
    })
}

fn write_image(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let max_images = init.attrs().int("max_images")?;
    AnyKernel::new(move |ctx| {
        let tag = tag(ctx, 2)?;
        let color: &Tensor = ctx.input(4)?;
        ensure!(
            color.rank() == 1,
            InvalidArgument,
            "bad_color must be a vector, got shape {}",
            color.shape()
        );
        let values = image_values(ctx, &tag, ctx.input(3)?, max_images, color.as_slice()?)?;
        write_values(ctx, values)
    })
}

fn write_audio(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let max_outputs = init.attrs().int("max_outputs")?;
    AnyKernel::new(move |ctx| {
        let tag = tag(ctx, 2)?;
        let rate = ctx.input(4)?;
        ensure!(
            rate.num_elements() == 1,
            InvalidArgument,
            "sample_rate must be a scalar, got shape {}",
            rate.shape()
        );
        let values =
            audio_values(ctx, &tag, ctx.input(3)?, rate.as_slice::<f32>()?[0], max_outputs)?;
        write_values(ctx, values)
    })
}

fn write_graph(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let serialized = scalar_string(ctx, 2, "tensor")?;
        pb::GraphDef::decode_from(&mut serialized.clone())
            .map_err(|e| err!(DataLoss, "Bad tf.GraphDef binary proto: {e}"))?;
        write(ctx, What::GraphDef(serialized))
    })
}

fn import_event(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let event = pb::Event::decode_from(&mut scalar_string(ctx, 1, "event")?)
            .map_err(|e| err!(DataLoss, "Bad tf.Event binary proto: {e}"))?;
        write_event(ctx, &event)
    })
}
