//! `thalweg inspect`: identifies a file or folder, describes and verifies it.

mod detect;
mod graphs;
mod records;
mod tensors;

use std::io::Write;

use serde_json::{Map, Value as Json, json};
use thalweg_tensor::{Error, err};

use crate::Failure;

/// Identify, describe and verify a file or folder.
///
/// Graphs, SavedModels, checkpoints and their files, TFRecord files, event files, .npy, .npz and
/// safetensors files are recognized. The exit code is 1 if one is damaged or of unknown kind.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Files, folders or prefixes of checkpoints
    #[arg(required = true)]
    paths: Vec<String>,
    /// Read everything and verify every checksum, not only sizes
    #[arg(long, help_heading = "Checks")]
    verify: bool,
    /// Print one JSON object per path instead of text
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// A description of a path.
#[derive(Default)]
struct Description {
    /// The kind of file.
    kind: &'static str,
    /// A summary: counts and sizes.
    summary: String,
    /// Details as text.
    lines: Vec<String>,
    /// Details as JSON.
    facts: Map<String, Json>,
    /// Problems that were found.
    problems: Vec<String>,
    /// A message if another path was resolved.
    note: Option<String>,
    /// Whether everything was read and every checksum was right.
    is_verified: bool,
}

impl Description {
    fn new(kind: &'static str) -> Description {
        Description { kind, ..Description::default() }
    }

    fn fact(&mut self, name: &str, value: impl Into<Json>) {
        self.facts.insert(name.to_owned(), value.into());
    }

    fn problem(&mut self, error: &Error) {
        self.problems.push(error.message().to_owned());
    }

    fn json(self, path: &str) -> Json {
        let mut all = Map::new();
        all.insert("path".to_owned(), json!(path));
        all.insert("kind".to_owned(), json!(self.kind));
        all.insert("intact".to_owned(), json!(self.problems.is_empty()));
        all.insert("verified".to_owned(), json!(self.is_verified));
        if let Some(note) = self.note {
            all.insert("note".to_owned(), json!(note));
        }
        all.insert("problems".to_owned(), json!(self.problems));
        all.extend(self.facts);
        Json::Object(all)
    }

    fn write(&self, path: &str, out: &mut dyn Write) -> std::io::Result<()> {
        let state = match (self.problems.is_empty(), self.is_verified) {
            (true, true) => "intact, verified",
            (true, false) => "intact by size, not verified",
            (false, _) => "DAMAGED",
        };
        writeln!(out, "{path}: {}, {}: {state}", self.kind, self.summary)?;
        if let Some(note) = &self.note {
            writeln!(out, "  note: {note}")?;
        }
        for problem in &self.problems {
            writeln!(out, "  problem: {problem}")?;
        }
        for line in &self.lines {
            writeln!(out, "  {line}")?;
        }
        Ok(())
    }
}

/// Inspects every path; fails if one of them is damaged or of unknown kind.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let mut broken = 0;
    for path in &args.paths {
        let description = match detect::inspect(path, args.verify) {
            Ok(description) => description,
            Err(e) if args.paths.len() == 1 && !args.json => return Err(e.into()),
            Err(e) => {
                let mut unknown = Description::new("unknown");
                unknown.summary = "of unknown kind".to_owned();
                unknown.problem(&e);
                unknown
            }
        };
        broken += usize::from(!description.problems.is_empty());
        if args.json {
            writeln!(out, "{}", description.json(path))?;
        } else {
            description.write(path, out)?;
        }
    }
    match broken {
        0 => Ok(()),
        n => {
            Err(err!(DataLoss, "{n} of {} paths are damaged or of unknown kind", args.paths.len())
                .into())
        }
    }
}

/// A number of bytes with a unit.
pub(crate) fn bytes_text(bytes: u64) -> String {
    const UNITS: [(&str, f64); 4] = [("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)];
    match UNITS.iter().find(|(_, size)| bytes as f64 >= *size) {
        Some((unit, size)) => format!("{:.1} {unit}", bytes as f64 / size),
        None => format!("{bytes} bytes"),
    }
}

/// A number with a noun, singular or plural.
pub(crate) fn count(number: usize, one: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        n => format!("{n} {one}s"),
    }
}
