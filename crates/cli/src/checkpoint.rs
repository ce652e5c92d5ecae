//! `thalweg checkpoint`: lists, verifies, compares and converts checkpoints.

mod convert;
mod diff;
pub(crate) mod source;

use std::io::Write;

use clap::Subcommand;
use serde_json::json;
use source::Source;
use thalweg_tensor::err;

use crate::Failure;
use crate::inspect::count;

/// List, verify, compare and convert checkpoints.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Clone, Debug)]
enum Command {
    /// Check that every file exists and every checksum is right; exit 1 if not
    Verify {
        /// Checkpoints: a prefix, a V1 checkpoint file, a folder; or .npz and .safetensors files
        #[arg(required = true)]
        paths: Vec<String>,
        /// Print one JSON object instead of text
        #[arg(long, help_heading = "Output")]
        json: bool,
    },
    /// Print name, dtype, shape and size of every tensor
    List {
        /// A checkpoint
        path: String,
        /// Print one JSON object instead of text
        #[arg(long, help_heading = "Output")]
        json: bool,
    },
    /// Print the differences of two checkpoints; exit 1 if there are any
    Diff {
        /// A checkpoint
        left: String,
        /// Another checkpoint
        right: String,
        /// Maximum absolute difference of numbers that count as equal
        #[arg(long, default_value_t = 0.0, value_name = "NUMBER", help_heading = "Comparison")]
        tolerance: f64,
        /// Print one JSON object instead of text
        #[arg(long, help_heading = "Output")]
        json: bool,
    },
    /// Write the tensors of a checkpoint in another file format
    Convert {
        /// A checkpoint (V1 or V2), a .npz or a .safetensors file
        input: String,
        /// A checkpoint's prefix, or a path that ends in .npz or .safetensors
        output: String,
        /// Leave out tensors that the output format does not support, and report them
        #[arg(long, help_heading = "Output")]
        skip_unsupported: bool,
        /// Do not sync the files to disk
        #[arg(long, help_heading = "Output")]
        no_sync: bool,
    },
}

/// Runs the subcommand.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    match &args.command {
        Command::Verify { paths, json } => verify(paths, *json, out),
        Command::List { path, json } => list(path, *json, out),
        Command::Diff { left, right, tolerance, json } => {
            diff::run(left, right, *tolerance, *json, out)
        }
        Command::Convert { input, output, skip_unsupported, no_sync } => {
            convert::run(input, output, *skip_unsupported, !no_sync, out)
        }
    }
}

/// Opens a checkpoint; reports on standard error if it resolved another path.
fn open(path: &str) -> Result<Source, Failure> {
    let source = Source::open(path)?;
    if let Some(note) = &source.note {
        eprintln!("thalweg: {note}");
    }
    Ok(source)
}

fn verify(paths: &[String], json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let mut problems = 0;
    let mut listed = Vec::new();
    for path in paths {
        let (path, tensors, whole, bytes, found) = match open(path) {
            Ok(source) => {
                let report = source.verify();
                (source.path.clone(), source.len(), report.intact, report.bytes, report.problems)
            }
            Err(Failure::Failed(e)) => (path.clone(), 0, 0, 0, vec![e]),
            Err(other) => return Err(other),
        };
        problems += found.len();
        let messages: Vec<&str> = found.iter().map(thalweg_tensor::Error::message).collect();
        if json {
            listed.push(json!({
                "path": path, "tensors": tensors, "intact": whole, "bytes": bytes,
                "problems": messages,
            }));
            continue;
        }
        for message in &messages {
            writeln!(out, "{message}")?;
        }
        if found.is_empty() {
            writeln!(out, "{path}: {}, {bytes} bytes, intact", count(tensors, "tensor"))?;
        } else if tensors > 0 {
            writeln!(out, "{path}: {whole} of {tensors} tensors are intact")?;
        }
    }
    if json {
        writeln!(out, "{}", json!({"problems": problems, "checkpoints": listed}))?;
    }
    match problems {
        0 => Ok(()),
        1 => Err(err!(DataLoss, "1 problem").into()),
        n => Err(err!(DataLoss, "{n} problems").into()),
    }
}

fn list(path: &str, json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let source = open(path)?;
    let mut total = 0;
    let mut listed = Vec::new();
    for name in source.names() {
        let info = source.info(&name)?;
        total += info.bytes;
        if json {
            listed.push(json!({
                "name": name, "dtype": info.dtype.name(), "shape": info.shape.dims(),
                "bytes": info.bytes, "slices": info.slices,
            }));
            continue;
        }
        write!(out, "{name} {} {}", info.dtype, info.shape)?;
        if !info.slices.is_empty() {
            write!(out, " in slices {}", info.slices.join(" "))?;
        }
        writeln!(out)?;
    }
    if json {
        let all = json!({
            "path": source.path, "format": source.kind(), "bytes": total, "tensors": listed,
        });
        return Ok(writeln!(out, "{all}")?);
    }
    Ok(writeln!(out, "{} tensors, {total} bytes, {} {}", source.len(), source.kind(), source.path)?)
}
