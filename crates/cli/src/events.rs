//! `thalweg events`: prints the tags and scalars of event files.

use std::io::Write;

use clap::Subcommand;
use serde_json::Value as Json;
use thalweg_formats::events::{EventReader, Scalar, Scalars, event_files};
use thalweg_formats::record::ReadOptions;
use thalweg_storage::ByUrl;
use thalweg_tensor::{Result, err};

use crate::Failure;

/// Read event files (as TensorBoard does): their tags and scalars.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Clone, Debug)]
enum Command {
    /// Print every scalar: tag, step, wall time and value
    Scalars {
        /// An event file, or a folder that is searched recursively
        path: String,
        /// Only this tag; may be repeated
        #[arg(long, value_name = "TAG", help_heading = "Events")]
        tag: Vec<String>,
        /// Print one JSON object per line instead of text
        #[arg(long, conflicts_with = "csv", help_heading = "Output")]
        json: bool,
        /// Print comma-separated values (CSV) instead of text
        #[arg(long, help_heading = "Output")]
        csv: bool,
    },
    /// Print every tag, its kind and its number of events
    Tags {
        /// An event file, or a folder that is searched recursively
        path: String,
        /// Print one JSON object instead of text
        #[arg(long, conflicts_with = "csv", help_heading = "Output")]
        json: bool,
        /// Print comma-separated values (CSV) instead of text
        #[arg(long, help_heading = "Output")]
        csv: bool,
    },
}

#[derive(Clone, Copy, PartialEq)]
enum Format {
    Text,
    Json,
    Csv,
}

impl Format {
    fn of(json: bool, csv: bool) -> Format {
        match (json, csv) {
            (true, _) => Format::Json,
            (_, true) => Format::Csv,
            _ => Format::Text,
        }
    }
}

/// Runs the subcommand.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    match &args.command {
        Command::Scalars { path, tag, json, csv } => {
            scalars(path, tag, Format::of(*json, *csv), out)
        }
        Command::Tags { path, json, csv } => tags(path, Format::of(*json, *csv), out),
    }
}

fn files(storage: &ByUrl, path: &str) -> Result<Vec<String>> {
    let files = event_files(storage, path)?;
    if files.is_empty() {
        return Err(err!(NotFound, "{path}: no event file (*tfevents*) in this folder or below"));
    }
    Ok(files)
}

/// Opens a file that may still be written, so that its last event may be incomplete.
fn open(storage: &ByUrl, file: &str) -> Result<EventReader> {
    let options = ReadOptions { ends_within_header: true, ..Default::default() };
    EventReader::open(storage, file, options)
}

/// Prints the events of one file before the damage that ends it.
fn scalars(
    path: &str,
    wanted: &[String],
    format: Format,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    if format == Format::Csv {
        writeln!(out, "file,tag,step,wall_time,value")?;
    }
    let storage = ByUrl::default();
    for file in files(&storage, path)? {
        let (mut reader, mut scalars) = (open(&storage, &file)?, Scalars::new());
        while let Some(found) = scalars.next(&mut reader)? {
            // Copied, because the reader is also borrowed for the names of the tags.
            let found: Vec<Scalar> = found.to_vec();
            for scalar in &found {
                let tag = scalars.tag(scalar.tag);
                if wanted.is_empty() || wanted.iter().any(|w| w == tag) {
                    write_scalar(&file, tag, scalar, format, out)?;
                }
            }
        }
    }
    Ok(())
}

fn write_scalar(
    file: &str,
    tag: &str,
    scalar: &Scalar,
    format: Format,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let Scalar { step, wall_time, value, .. } = scalar;
    match format {
        Format::Text => writeln!(out, "{step:>10}  {value:<22} {tag}")?,
        Format::Csv => {
            writeln!(out, "{},{},{step},{wall_time},{value}", quoted(file), quoted(tag))?;
        }
        Format::Json => {
            // JSON has no NaN and no infinities.
            let value = match value.is_finite() {
                true => Json::from(*value),
                false => Json::from(value.to_string()),
            };
            let line = serde_json::json!({
                "file": file, "tag": tag, "step": step, "wall_time": wall_time, "value": value,
            });
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}

fn tags(path: &str, format: Format, out: &mut dyn Write) -> Result<(), Failure> {
    if format == Format::Csv {
        writeln!(out, "file,tag,kind,count")?;
    }
    let mut listed = Vec::new();
    let storage = ByUrl::default();
    for file in files(&storage, path)? {
        let (mut reader, mut scalars) = (open(&storage, &file)?, Scalars::new());
        while scalars.next(&mut reader)?.is_some() {}
        let tags = scalars.tags();
        match format {
            Format::Json => {
                let tag = |(tag, (kind, count)): (&String, &(_, u64))| {
                    let kind: thalweg_formats::events::TagKind = *kind;
                    serde_json::json!({"tag": tag, "kind": kind.name(), "count": count})
                };
                let tags: Vec<Json> = tags.iter().map(tag).collect();
                listed.push(serde_json::json!({"file": file, "tags": tags}));
            }
            Format::Csv => {
                for (tag, (kind, count)) in &tags {
                    writeln!(out, "{},{},{},{count}", quoted(&file), quoted(tag), kind.name())?;
                }
            }
            Format::Text => {
                writeln!(out, "{file}")?;
                for (tag, (kind, count)) in &tags {
                    writeln!(out, "{count:>10}  {:<12} {tag}", kind.name())?;
                }
            }
        }
    }
    if format == Format::Json {
        writeln!(out, "{}", serde_json::json!({ "files": listed }))?;
    }
    Ok(())
}

/// A CSV field, quoted if necessary.
fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}
