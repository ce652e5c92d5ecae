//! `thalweg tfrecord`: prints, verifies, splits, merges and repairs TFRecord files.

mod show;

use std::io::Write;

use clap::{Subcommand, ValueEnum};
use thalweg_formats::record::{
    BadRecord, Compression, Index, ReadOptions, RecordReader, RecordWriter,
};

use thalweg_formats::storage::Storage;
use thalweg_storage::ByUrl;
use thalweg_tensor::{Context, Result, ensure, err};

use crate::Failure;

/// Print, verify, split, merge and repair TFRecord files.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Clone, Debug)]
enum Command {
    /// Count the records of files, with checksums verified
    Count {
        /// TFRecord files; compression is detected
        #[arg(required = true)]
        files: Vec<String>,
        /// Print one JSON object instead of text
        #[arg(long, help_heading = "Output")]
        json: bool,
    },
    /// Print records: tf.Example as JSON, others as base64, a line each
    Cat {
        /// A TFRecord file
        file: String,
        /// Number of records to skip first
        #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Records")]
        skip: u64,
        /// Maximum number of records to print [default: all]
        #[arg(long, value_name = "N", help_heading = "Records")]
        limit: Option<u64>,
        /// Print the raw bytes of the records, one after the other
        #[arg(long, help_heading = "Output")]
        raw: bool,
    },
    /// Verify every checksum and report every damaged place; exit 1 if there are any
    Verify {
        /// TFRecord files
        #[arg(required = true)]
        files: Vec<String>,
        /// Print one JSON object instead of text
        #[arg(long, help_heading = "Output")]
        json: bool,
    },
    /// Write offset and length of each record, one line each, to FILE.idx
    Index {
        /// An uncompressed TFRecord file
        file: String,
        /// The index file [default: FILE.idx]
        #[arg(long, alias = "out", value_name = "PATH", help_heading = "Output")]
        output: Option<String>,
    },
    /// Distribute the records of a file over several: PREFIX-00000-of-00004 and so on
    Split {
        /// A TFRecord file
        file: String,
        /// Number of files
        #[arg(long, value_name = "N", help_heading = "Output",
              value_parser = clap::value_parser!(u32).range(1..=1000))]
        shards: u32,
        /// Prefix of the new files
        #[arg(long, alias = "out", value_name = "PREFIX", help_heading = "Output")]
        output: String,
        #[command(flatten)]
        compression: OutputCompression,
    },
    /// Concatenate the records of several files
    Merge {
        /// TFRecord files
        #[arg(required = true)]
        files: Vec<String>,
        /// The new file
        #[arg(long, alias = "out", value_name = "PATH", help_heading = "Output")]
        output: String,
        #[command(flatten)]
        compression: OutputCompression,
    },
    /// Copy the intact records of a damaged file
    SkipBad {
        /// A TFRecord file
        file: String,
        /// The new file
        #[arg(long, alias = "out", value_name = "PATH", help_heading = "Output")]
        output: String,
        /// Maximum number of damaged places to skip [default: unlimited]
        #[arg(long, alias = "budget", value_name = "N", default_value_t = u64::MAX,
              hide_default_value = true, help_heading = "Records")]
        bad_record_limit: u64,
        #[command(flatten)]
        compression: OutputCompression,
    },
}

#[derive(clap::Args, Clone, Debug)]
struct OutputCompression {
    /// Compression of the new file
    #[arg(long, value_name = "KIND", value_enum, default_value_t = Kind::None,
          help_heading = "Output")]
    compression: Kind,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum Kind {
    None,
    Zlib,
    Gzip,
}

impl OutputCompression {
    fn kind(&self) -> Compression {
        match self.compression {
            Kind::None => Compression::None,
            Kind::Zlib => Compression::Zlib,
            Kind::Gzip => Compression::Gzip,
        }
    }
}

/// Runs the subcommand.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let storage = ByUrl::default();
    match &args.command {
        Command::Count { files, json } => count(&storage, &named(&storage, files)?, *json, out),
        Command::Cat { file, skip, limit, raw } => {
            let mut reader = open(&storage, file, 0)?;
            show::cat(&mut reader, *skip, *limit, *raw, out)
        }
        Command::Verify { files, json } => verify(&storage, &named(&storage, files)?, *json, out),
        Command::Index { file, output: path } => {
            let path = path.clone().unwrap_or_else(|| format!("{file}.idx"));
            let index = Index::build(&storage, file)?;
            storage.write(&path, index.to_text().as_bytes())?;
            Ok(writeln!(out, "{} records of {file} in {path}", index.entries.len())?)
        }
        Command::Split { file, shards, output: prefix, compression } => {
            split(&storage, file, *shards, prefix, compression.kind(), out)
        }
        Command::Merge { files, output: path, compression } => {
            merge(&storage, &named(&storage, files)?, path, compression.kind(), out)
        }
        Command::SkipBad { file, output: path, bad_record_limit, compression } => {
            skip_bad(&storage, file, path, *bad_record_limit, compression.kind(), out)
        }
    }
}

/// The files of the arguments. The shell has expanded patterns, except for URLs.
fn named(storage: &ByUrl, arguments: &[String]) -> Result<Vec<String>> {
    let mut files = Vec::new();
    for argument in arguments {
        if !ByUrl::is_url(argument) || !argument.contains(['*', '?', '[']) {
            files.push(argument.clone());
            continue;
        }
        let found = storage.matching(argument)?;
        ensure!(!found.is_empty(), NotFound, "{argument}: no file matches it");
        files.extend(found);
    }
    Ok(files)
}

fn open(storage: &dyn Storage, path: &str, bad_records_max: u64) -> Result<RecordReader> {
    RecordReader::open_any(storage, path, ReadOptions { bad_records_max, ..Default::default() })
}

/// The number of records and bytes of a file.
#[derive(Default)]
struct Totals {
    records: u64,
    bytes: u64,
}

impl Totals {
    fn of(reader: &mut RecordReader) -> Result<Totals> {
        let mut totals = Totals::default();
        while let Some(record) = reader.next_record()? {
            totals.records += 1;
            totals.bytes += record.len() as u64;
        }
        Ok(totals)
    }
}

fn compression_name(compression: Compression) -> &'static str {
    match compression {
        Compression::None => "none",
        Compression::Zlib => "zlib",
        Compression::Gzip => "gzip",
    }
}

fn count(
    storage: &dyn Storage,
    files: &[String],
    json: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let mut all = Totals::default();
    let mut listed = Vec::new();
    for file in files {
        let mut reader = open(storage, file, 0)?;
        let compression = compression_name(reader.compression());
        let totals = Totals::of(&mut reader)?;
        all.records += totals.records;
        all.bytes += totals.bytes;
        if json {
            listed.push(serde_json::json!({
                "file": file,
                "records": totals.records,
                "bytes": totals.bytes,
                "compression": compression,
            }));
        } else {
            writeln!(out, "{:>10} {file}", totals.records)?;
        }
    }
    if json {
        let all = serde_json::json!({"records": all.records, "bytes": all.bytes, "files": listed});
        writeln!(out, "{all}")?;
    } else if files.len() > 1 {
        writeln!(out, "{:>10} in all", all.records)?;
    }
    Ok(())
}

fn verify(
    storage: &dyn Storage,
    files: &[String],
    json: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let mut damaged = 0;
    let mut listed = Vec::new();
    for file in files {
        let mut reader = open(storage, file, u64::MAX)?;
        let (records, failure) = match Totals::of(&mut reader) {
            Ok(totals) => (Some(totals.records), None),
            // A compressed stream that cannot be read any further.
            Err(e) => (None, Some(e)),
        };
        let bad = reader.bad_records();
        damaged += bad.len() + usize::from(failure.is_some());
        if json {
            listed.push(verified(file, records, bad, failure.as_ref()));
            continue;
        }
        for bad in bad {
            writeln!(out, "{} ({} bytes skipped)", bad.error.message(), bad.bytes)?;
        }
        match (records, failure) {
            (Some(records), _) if bad.is_empty() => {
                writeln!(out, "{file}: {records} records, intact")?;
            }
            (Some(records), _) => {
                writeln!(out, "{file}: {records} intact records, {} damaged places", bad.len())?;
            }
            (None, Some(e)) => writeln!(out, "{}", e.message())?,
            (None, None) => {}
        }
    }
    if json {
        writeln!(out, "{}", serde_json::json!({"damaged": damaged, "files": listed}))?;
    }
    match damaged {
        0 => Ok(()),
        n => Err(Failure::Failed(err!(
            DataLoss,
            "{n} damaged place{}",
            if n == 1 { "" } else { "s" }
        ))),
    }
}

fn verified(
    file: &str,
    records: Option<u64>,
    bad: &[BadRecord],
    failure: Option<&thalweg_tensor::Error>,
) -> serde_json::Value {
    let place = |bad: &BadRecord| {
        let what = bad.error.message();
        serde_json::json!({"offset": bad.offset, "bytes": bad.bytes, "what": what})
    };
    let bad: Vec<serde_json::Value> = bad.iter().map(place).collect();
    let failure = failure.map(thalweg_tensor::Error::message);
    serde_json::json!({"file": file, "records": records, "damaged": bad, "failure": failure})
}

fn split(
    storage: &dyn Storage,
    file: &str,
    shards: u32,
    prefix: &str,
    compression: Compression,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let mut reader = open(storage, file, 0)?;
    let mut writers = Vec::new();
    for shard in 0..shards {
        let path = format!("{prefix}-{shard:05}-of-{shards:05}");
        ensure_other(&path, std::slice::from_ref(&file.to_owned()))?;
        writers.push(RecordWriter::new(storage.replace(&path)?, compression));
    }
    let (mut next, mut records) = (0, 0u64);
    while let Some(record) = reader.next_record()? {
        writers[next].write(record)?;
        next = (next + 1) % writers.len();
        records += 1;
    }
    for writer in writers {
        writer.finish()?;
    }
    Ok(writeln!(out, "{records} records of {file} in {shards} files {prefix}-*")?)
}

/// Fails if an output file is also an input.
fn ensure_other(path: &str, files: &[String]) -> Result<()> {
    let full = |path: &str| std::fs::canonicalize(path).ok();
    let is_same = |file: &str| file == path || full(file).is_some() && full(file) == full(path);
    let is_read = files.iter().any(|file| is_same(file));
    ensure!(!is_read, InvalidArgument, "{path} is both an input and the output");
    Ok(())
}

fn merge(
    storage: &dyn Storage,
    files: &[String],
    path: &str,
    compression: Compression,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    ensure_other(path, files)?;
    let mut writer = RecordWriter::new(storage.replace(path)?, compression);
    let mut records = 0u64;
    for file in files {
        let mut reader = open(storage, file, 0)?;
        while let Some(record) = reader.next_record()? {
            writer.write(record)?;
            records += 1;
        }
    }
    writer.finish()?;
    Ok(writeln!(out, "{records} records of {} files in {path}", files.len())?)
}

fn skip_bad(
    storage: &dyn Storage,
    file: &str,
    path: &str,
    bad_records_max: u64,
    compression: Compression,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    ensure_other(path, &[file.to_owned()])?;
    let mut reader = open(storage, file, bad_records_max)?;
    let mut writer = RecordWriter::new(storage.replace(path)?, compression);
    let mut records = 0u64;
    while let Some(record) =
        reader.next_record().context(|| "more damaged places than --bad-record-limit")?
    {
        writer.write(record)?;
        records += 1;
    }
    writer.finish()?;
    for bad in reader.bad_records() {
        writeln!(out, "{} ({} bytes skipped)", bad.error.message(), bad.bytes)?;
    }
    let bad = reader.bad_records().len();
    Ok(writeln!(out, "{records} intact records of {file} in {path}; {bad} damaged places skipped")?)
}
