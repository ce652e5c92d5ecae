//! `Assert`, `Print` and other debugging ops.

use std::io::Write;
use std::sync::atomic::{AtomicI64, Ordering};

use thalweg_graph::shape::{self, ShapeContext};
use thalweg_graph::{OpDef, Role, Work, gradient};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{Code, Error, PartialShape, Result, StringBuilder, Tensor, bail, ensure};
use tracing::{Level, error, info, warn};

use crate::array_sources::forward;
use crate::parsing::scalar_string;
use crate::strings::show;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        OpDef::new("Assert", shape::unknown).with_work(Work::none).without_gradient(),
        OpDef::new("Print", shape::unchanged)
            .with_work(Work::fixed::<20>)
            .with_role(Role::Forward)
            .with_gradient(gradient::unchanged),
        OpDef::new("PrintV2", scalar_in).with_work(Work::fixed::<20>),
        OpDef::new("Timestamp", shape::scalar).with_work(Work::none).without_gradient(),
    ],
    kernels: &[
        KernelSpec { op: "Assert", create: assert, is_cheap: true, ..KernelSpec::CPU },
        KernelSpec { op: "Print", create: print, ..KernelSpec::CPU },
        KernelSpec { op: "PrintV2", create: print_v2, ..KernelSpec::CPU },
        KernelSpec { op: "Timestamp", create: timestamp, is_cheap: true, ..KernelSpec::CPU },
    ],
};

fn scalar_in(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(0, "input", 0).map(|_: PartialShape| ())
}

fn assert(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let summarize = init.attrs().int("summarize")?;
    AnyKernel::new(move |ctx| {
        let condition = ctx.input(0)?;
        ensure!(
            condition.rank() == 0,
            InvalidArgument,
            "condition must be a scalar, got shape {}",
            condition.shape()
        );
        if condition.as_slice::<bool>()?[0] {
            return Ok(());
        }
        let mut message = StringBuilder::new(ctx.budget());
        message.push(b"assertion failed: ")?;
        for i in 1..ctx.num_inputs() {
            bracketed(ctx.input(i)?, summarize, &mut message)?;
            message.push(b" ")?;
        }
        let message = String::from_utf8_lossy(message.as_bytes());
        Err(Error::new(Code::InvalidArgument, message.trim_end()))
    })
}

fn bracketed(tensor: &Tensor, summarize: i64, out: &mut StringBuilder) -> Result<()> {
    out.push(b"[")?;
    show::flat(tensor, summarize, out)?;
    out.push(b"]")
}

fn print(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let message = init.attrs().bytes("message")?.clone();
    let (first_n, summarize) = (init.attrs().int("first_n")?, init.attrs().int("summarize")?);
    let calls = AtomicI64::new(0);
    AnyKernel::new(move |ctx| {
        let may_print = first_n < 0
            || calls
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| {
                    (n < first_n).then_some(n + 1)
                })
                .is_ok();
        if may_print {
            let mut line = StringBuilder::new(ctx.budget());
            line.push(&message)?;
            for i in 1..ctx.num_inputs() {
                bracketed(ctx.input(i)?, summarize, &mut line)?;
            }
            line.push(b"\n")?;
            Stream::Stderr.write(ctx, line.as_bytes())?;
        }
        forward(ctx)
    })
}

/// Destination of printed text.
enum Stream {
    Stdout,
    Stderr,
    /// The process's log.
    Log(Level),
    File(String),
}

impl Stream {
    fn parse(name: &str) -> Result<Stream> {
        Ok(match name {
            "stdout" => Stream::Stdout,
            "stderr" => Stream::Stderr,
            "log(info)" => Stream::Log(Level::INFO),
            "log(warning)" => Stream::Log(Level::WARN),
            "log(error)" => Stream::Log(Level::ERROR),
            _ => match name.strip_prefix("file://") {
                Some(path) if !path.is_empty() => Stream::File(path.to_owned()),
                _ => bail!(
                    InvalidArgument,
                    "Unknown output stream: {name}, valid streams are stdout, stderr, log(info), \
                     log(warning), log(error) and file:// with a path"
                ),
            },
        })
    }

    /// A failed write to a standard stream is ignored; only files return errors.
    fn write(&self, ctx: &KernelContext<'_>, text: &[u8]) -> Result<()> {
        match self {
            Stream::Stdout => {
                let mut out = std::io::stdout().lock();
                let _ = out.write_all(text).and_then(|()| out.flush());
            }
            Stream::Stderr => {
                let _ = std::io::stderr().lock().write_all(text);
            }
            Stream::Log(level) => log(*level, ctx, text),
            Stream::File(path) => {
                let storage = &ctx.step().environment().storage;
                storage.create_folder_of(path)?;
                let mut file = storage.append(path)?;
                file.write(text)?;
                file.finish()?;
            }
        }
        Ok(())
    }
}

/// Logs the text as a message, without its last line end.
fn log(level: Level, ctx: &KernelContext<'_>, text: &[u8]) {
    let (node, step) = (ctx.node().name.as_ref() as &str, ctx.step().step_id().number);
    let text = String::from_utf8_lossy(text);
    let text = text.trim_end_matches('\n');
    match level {
        Level::ERROR => error!(target: "thalweg::print", node, step, "{text}"),
        Level::WARN => warn!(target: "thalweg::print", node, step, "{text}"),
        _ => info!(target: "thalweg::print", node, step, "{text}"),
    }
}

fn print_v2(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let stream = Stream::parse(init.attrs().string("output_stream")?)?;
    let end = init.attrs().bytes("end")?.clone();
    AnyKernel::new(move |ctx| {
        let mut text = StringBuilder::new(ctx.budget());
        text.push(&scalar_string(ctx, 0, "input")?)?;
        text.push(&end)?;
        stream.write(ctx, text.as_bytes())
    })
}

fn timestamp(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let seconds = ctx.step().environment().clock.wall().as_secs_f64();
        ctx.set_output(0, Tensor::scalar(seconds))
    })
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::{Code, DType};

    use super::*;
    use crate::testing::{call, code};

    fn assert_that(condition: Tensor, summarize: i64) -> Result<()> {
        call("Assert")
            .input(condition)
            .input(Tensor::vector(&[0i32, 1, 2, 3, 4]).unwrap())
            .input(Tensor::scalar_string(&b"why"[..]))
            .attr("T", &[DType::Int32, DType::String][..])
            .attr("summarize", summarize)
            .run_all()
            .map(|_| ())
    }

    #[test]
    fn a_false_condition_shows_the_data() {
        assert_that(Tensor::scalar(true), 3).unwrap();
        for (summarize, expected) in
            [(3, "assertion failed: [0 1 2...] [why]"), (-1, "assertion failed: [0 1 2 3 4] [why]")]
        {
            let failed = assert_that(Tensor::scalar(false), summarize).unwrap_err();
            assert_eq!((failed.code(), failed.message()), (Code::InvalidArgument, expected));
        }
        assert_eq!(
            code(assert_that(Tensor::vector(&[true]).unwrap(), 3)),
            Some(Code::InvalidArgument)
        );
    }

    #[test]
    fn print_hands_its_input_on() {
        let output = call("Print")
            .input(Tensor::scalar(1.5f32))
            .input(Tensor::scalar(7i32))
            .attr("U", &[DType::Int32][..])
            .attr("message", "a test prints ")
            .run();
        assert_eq!(output.unwrap().scalar_value::<f32>().unwrap(), 1.5);
    }

    #[test]
    fn streams() {
        let print = |stream: &str| {
            let text = Tensor::scalar_string(&b"a test prints"[..]);
            call("PrintV2").input(text).attr("output_stream", stream).run_all()
        };
        assert!(print("stderr").is_ok() && print("log(info)").is_ok());
        for bad in ["", "nowhere", "file://", "log(fatal)"] {
            assert_eq!(print(bad).unwrap_err().code(), Code::InvalidArgument, "{bad}");
        }
        // Tests have no files.
        assert_eq!(print("file:///x").unwrap_err().code(), Code::PermissionDenied);
    }

    #[test]
    fn time_passes_only_outside() {
        assert_eq!(call("Timestamp").run().unwrap().scalar_value::<f64>().unwrap(), 0.0);
    }
}
