//! The command line as data: its parser, and the groups in which `thalweg --help` lists commands.

use std::fmt::Write;

use clap::{Command, CommandFactory};

use crate::Cli;

/// Headings of `thalweg --help`, with the names of the commands below each.
pub(crate) const GROUPS: &[(&str, &[&str])] = &[
    ("Run graphs", &["run", "check", "ops", "devices"]),
    ("Train", &["quickstart", "launch"]),
    ("Plan", &["simulate", "calibrate"]),
    ("Serve models", &["serve"]),
    ("Clusters", &["server", "cluster", "health", "dashboard"]),
    ("Files", &["inspect", "checkpoint", "tfrecord", "events"]),
    ("Shell and manual", &["completions", "man", "help"]),
];

/// The exit codes of every command, as `thalweg --help` and the manual page print them.
pub(crate) const EXIT_CODES: &[(&str, &str)] = &[
    ("0", "The command succeeded."),
    (
        "1",
        "The command failed, or what it checked is damaged, unsupported, different or not serving.",
    ),
    ("2", "The arguments, or an environment variable that stands for one, are invalid."),
    ("N", "Only `thalweg launch`: the exit code of the first program that failed."),
];

/// The command line, with help in groups.
pub(crate) fn parser() -> Command {
    let command = Cli::command();
    let groups = groups(&command);
    let exit_codes = exit_codes();
    command
        .help_template(format!(
            "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}{{options}}{{after-help}}"
        ))
        .after_help("`thalweg help COMMAND` describes a command and its flags.")
        .after_long_help(format!(
            "`thalweg help COMMAND` describes a command and its flags.\n\n{exit_codes}"
        ))
}

/// The commands under the headings of [`GROUPS`], each with the first sentence of its help.
fn groups(command: &Command) -> String {
    let styles = command.get_styles();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let names = GROUPS.iter().flat_map(|(_, names)| *names);
    let width = names.map(|name| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (heading, names) in GROUPS {
        let _ = writeln!(text, "{header}{heading}:{header:#}");
        for name in *names {
            let about = match *name {
                "help" => "Print the help of a command".to_owned(),
                name => about(command, name),
            };
            let _ = writeln!(text, "  {literal}{name:width$}{literal:#}  {about}");
        }
        text.push('\n');
    }
    text.push_str(&format!("{header}Options:{header:#}\n"));
    text
}

fn about(command: &Command, name: &str) -> String {
    let command = command.find_subcommand(name);
    command.and_then(Command::get_about).map(ToString::to_string).unwrap_or_default()
}

fn exit_codes() -> String {
    let mut text = "Exit codes:".to_owned();
    for (code, meaning) in EXIT_CODES {
        let _ = write!(text, "\n  {code}  {meaning}");
    }
    text
}

#[cfg(test)]
#[path = "help_tests.rs"]
mod tests;
