//! Log messages of the process: on standard error, as text or JSON, by level and target.
//!
//! The result of a command is not a log message, nor is the error with which it fails; with JSON
//! the error is a message too, so that every line of a log can be parsed.

use std::fmt::{self, Write};
use std::sync::OnceLock;

use clap::ValueEnum;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber, error, warn};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, registry};

/// The prefix of the targets of Thalweg's own messages.
const OWN_TARGET: &str = "thalweg";
/// The environment variables that stand for the flags; child processes get the flags by them.
const FILTER_VARIABLE: &str = "THALWEG_LOG";
const FORMAT_VARIABLE: &str = "THALWEG_LOG_FORMAT";
/// The variable of other Rust programs, used if [`FILTER_VARIABLE`] is not set.
const FALLBACK_VARIABLE: &str = "RUST_LOG";

/// Variables for child processes.
static CHILD_VARIABLES: OnceLock<Vec<(&'static str, String)>> = OnceLock::new();

/// The flags of logging.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Args {
    /// Format of log messages on standard error [default: THALWEG_LOG_FORMAT, or text]
    #[arg(long, global = true, value_name = "FORMAT", value_enum, help_heading = "Logging")]
    log_format: Option<Format>,

    /// Log messages to show: a level (off, error, warn, info, debug, trace), TARGET=LEVEL for some
    /// of them, or several of these with commas [default: THALWEG_LOG, RUST_LOG, or info]
    #[arg(long, global = true, value_name = "FILTER", help_heading = "Logging")]
    log_level: Option<String>,
}

#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq)]
enum Format {
    /// Time, level and a sentence
    #[default]
    Text,
    /// An object per line: timestamp, level, target, message and the message's fields
    Json,
}

/// How the command reports the error with which it fails.
#[derive(Clone, Copy)]
pub(crate) struct FailureOutput(Format);

impl FailureOutput {
    /// `sentence` as the last line on standard error.
    pub(crate) fn report(self, sentence: &dyn fmt::Display) {
        match self.0 {
            Format::Text => eprintln!("thalweg: {sentence}"),
            Format::Json => error!(target: "thalweg::command", "{sentence}"),
        }
    }
}

/// Installs the subscriber that `args` and the environment describe, unless the program has
/// installed one. The error names the invalid flag or variable.
pub(crate) fn start(args: &Args) -> Result<FailureOutput, String> {
    let variable = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
    let format = match (args.log_format, variable(FORMAT_VARIABLE)) {
        (Some(format), _) => format,
        (None, Some(text)) => {
            Format::from_str(&text, false).map_err(|e| format!("{FORMAT_VARIABLE}: {e}"))?
        }
        (None, None) => Format::default(),
    };
    let fallback = variable(FALLBACK_VARIABLE);
    let (filter, refused) = match (&args.log_level, variable(FILTER_VARIABLE), &fallback) {
        (Some(text), _, _) => (parse_filter(text).map_err(|e| format!("--log-level: {e}"))?, None),
        (None, Some(text), _) => {
            (parse_filter(&text).map_err(|e| format!("{FILTER_VARIABLE}: {e}"))?, None)
        }
        // It may be meant for programs with a richer syntax.
        (None, None, Some(text)) => match parse_filter(text) {
            Ok(filter) => (filter, None),
            Err(e) => (parse_filter("")?, Some(e)),
        },
        (None, None, None) => (parse_filter("")?, None),
    };
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        // A closed pipe must not end a server.
        .log_internal_errors(false);
    let layer = match format {
        Format::Text => layer.event_format(Text).boxed(),
        Format::Json => {
            layer.json().flatten_event(true).with_current_span(false).with_span_list(false).boxed()
        }
    };
    let _ = registry().with(layer).with(filter).try_init();
    if let Some(why) = refused {
        warn!(target: "thalweg::command", "{FALLBACK_VARIABLE} has no effect: {why}");
    }
    let word = |format: Format| format.to_possible_value().map(|value| value.get_name().to_owned());
    let flags = [
        args.log_level.clone().map(|text| (FILTER_VARIABLE, text)),
        args.log_format.and_then(word).map(|text| (FORMAT_VARIABLE, text)),
    ];
    let _ = CHILD_VARIABLES.set(flags.into_iter().flatten().collect());
    Ok(FailureOutput(format))
}

/// The environment variables that give child processes the logging flags of this one.
pub(crate) fn variables() -> impl Iterator<Item = (&'static str, &'static str)> {
    CHILD_VARIABLES.get().into_iter().flatten().map(|(name, value)| (*name, value.as_str()))
}

/// A bare level is for Thalweg's own messages; those of its dependencies stay at warnings or below.
fn parse_filter(text: &str) -> Result<Targets, String> {
    let mut filter =
        Targets::new().with_default(LevelFilter::WARN).with_target(OWN_TARGET, LevelFilter::INFO);
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        filter = match part.split_once('=') {
            Some((target, level)) => filter.with_target(target, parse_level(level)?),
            None => {
                let level = parse_level(part)?;
                filter.with_target(OWN_TARGET, level).with_default(level.min(LevelFilter::WARN))
            }
        };
    }
    Ok(filter)
}

fn parse_level(word: &str) -> Result<LevelFilter, String> {
    let is_word = word.starts_with(|c: char| c.is_ascii_alphabetic());
    word.parse().ok().filter(|_| is_word).ok_or_else(|| {
        format!("'{word}' is not a level; the levels are off, error, warn, info, debug and trace")
    })
}

/// Time, level and the message. Messages of ours say everything in words; fields are for JSON.
struct Text;

impl<S, N> FormatEvent<S, N> for Text
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        SystemTime.format_time(&mut writer)?;
        write!(writer, " {} ", event.metadata().level())?;
        let has_fields = !event.metadata().target().starts_with(OWN_TARGET);
        let mut line = Line { text: String::new(), has_fields };
        event.record(&mut line);
        // Messages may contain text of clients: control characters are escaped.
        for c in line.text.trim_end().chars() {
            match c.is_control() && c != '\n' && c != '\t' {
                true => write!(writer, "{}", c.escape_default())?,
                false => writer.write_char(c)?,
            }
        }
        writeln!(writer)
    }
}

/// The message of an event, and its other fields where the message does not repeat them.
struct Line {
    text: String,
    has_fields: bool,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let written = match field.name() {
            "message" => write!(self.text, "{value:?} "),
            name if self.has_fields => write!(self.text, "{name}={value:?} "),
            _ => Ok(()),
        };
        written.expect("a String takes all text");
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn a_filter_is_levels_by_target() {
        let shows = |text: &str, target: &str, level: Level| {
            parse_filter(text).unwrap().would_enable(target, &level)
        };
        for (text, own, placement, others) in [
            ("", Level::INFO, Some(Level::INFO), Some(Level::WARN)),
            ("debug", Level::DEBUG, Some(Level::DEBUG), Some(Level::WARN)),
            ("error", Level::ERROR, Some(Level::ERROR), Some(Level::ERROR)),
            ("thalweg::placement=off", Level::INFO, None, Some(Level::WARN)),
            ("warn, h2=trace,", Level::WARN, Some(Level::WARN), Some(Level::TRACE)),
        ] {
            for level in [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE] {
                assert_eq!(shows(text, "thalweg::cluster", level), level <= own, "{text} {level}");
                let expected = placement.is_some_and(|most| level <= most);
                assert_eq!(shows(text, "thalweg::placement", level), expected, "{text} {level}");
                let expected = others.is_some_and(|most| level <= most);
                assert_eq!(shows(text, "h2::codec", level), expected, "{text} {level}");
            }
        }
        assert!(!shows("off", "thalweg::cluster", Level::ERROR));
        assert!(!shows("off", "h2", Level::ERROR));
        for wrong in ["loud", "5", "thalweg=", "h2=all"] {
            let error = parse_filter(wrong).unwrap_err();
            assert!(error.contains("is not a level"), "{error}");
        }
    }
}
