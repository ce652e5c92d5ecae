//! `thalweg man`: manual pages of all commands, and the list of commands in the book.

mod markdown;

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Command;
use clap_mangen::Man;
use thalweg_tensor::{Context, err};

use crate::{Failure, files, help};

/// Print a manual page, or write the pages of all commands to a folder.
///
/// `thalweg man | man -l -` shows the page of thalweg, `thalweg man cluster up | man -l -` that of
/// a command. `thalweg man --output ~/.local/share/man/man1` installs all of them for this user.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The command to describe [default: thalweg itself]
    #[arg(value_name = "COMMAND", conflicts_with_all = ["output", "markdown"])]
    command: Vec<String>,

    /// Folder for the pages of all commands, thalweg.1, thalweg-run.1 and so on; it is created
    #[arg(long, value_name = "DIR", help_heading = "Output", conflicts_with = "markdown")]
    output: Option<PathBuf>,

    /// Print the list of commands and flags as Markdown (docs/src/reference/commands.md)
    #[arg(long, help_heading = "Output")]
    markdown: bool,
}

/// Prints or writes the pages.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let parser = built();
    if args.markdown {
        return Ok(markdown::write(&parser, out)?);
    }
    let Some(folder) = &args.output else {
        return Ok(page(find(&parser, &args.command)?, out)?);
    };
    std::fs::create_dir_all(folder)
        .map_err(|e| err!(Unavailable, "--output {}: {e}", folder.display()))?;
    let commands = commands(&parser);
    for command in &commands {
        let mut text = Vec::new();
        page(command, &mut text)?;
        let path = folder.join(format!("{}.1", display_name(command)));
        files::write(&path, &text).context(|| "--output")?;
    }
    Ok(writeln!(out, "{} manual pages in {}", commands.len(), folder.display())?)
}

/// The command line with the full names of all commands.
fn built() -> Command {
    // `help` mirrors every other command, and needs no page.
    let mut parser = help::parser().disable_help_subcommand(true);
    parser.set_bin_name("thalweg");
    parser.build();
    parser
}

/// A command and all below it that help lists, each before those below it.
fn commands(command: &Command) -> Vec<&Command> {
    let below = command.get_subcommands().filter(|c| !c.is_hide_set()).flat_map(commands);
    std::iter::once(command).chain(below).collect()
}

fn find<'a>(parser: &'a Command, names: &[String]) -> Result<&'a Command, Failure> {
    let mut command = parser;
    for name in names {
        command = command.find_subcommand(name).ok_or_else(|| {
            let known: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
            let known = if known.is_empty() { "no commands".to_owned() } else { known.join(", ") };
            let of = command.get_bin_name().unwrap_or("thalweg");
            Failure::Usage(format!("there is no command '{of} {name}'; {of} has {known}"))
        })?;
    }
    Ok(command)
}

/// `thalweg-cluster-up`.
fn display_name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

/// The manual page of one command, in roff.
fn page(command: &Command, out: &mut dyn Write) -> io::Result<()> {
    // The exit codes get a section of their own instead of what follows the help.
    let command = command.clone().after_help(None).after_long_help(None);
    let command = command.subcommand_value_name("COMMAND");
    let name = display_name(&command).to_uppercase();
    let source = concat!("thalweg ", env!("CARGO_PKG_VERSION"));
    Man::new(command).title(name).source(source).manual("Thalweg").render(out)?;
    writeln!(out, ".SH \"EXIT STATUS\"")?;
    for (code, meaning) in help::EXIT_CODES {
        writeln!(out, ".TP\n\\fB{code}\\fR\n{meaning}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page() {
        let parser = built();
        let commands = commands(&parser);
        assert!(commands.len() > 30, "{}", commands.len());
        for command in commands {
            let mut text = Vec::new();
            page(command, &mut text).unwrap();
            let text = String::from_utf8(text).unwrap();
            let name = command.get_bin_name().unwrap();
            let title = format!(".TH {} 1 ", name.replace(' ', "-").to_uppercase());
            assert!(text.lines().any(|line| line.starts_with(&title)), "{title}: {text}");
            for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "\"EXIT STATUS\""] {
                assert!(text.contains(&format!("\n.SH {section}\n")), "{name} has no {section}");
            }
        }
    }

    #[test]
    fn an_unknown_command_is_refused_with_the_known_ones() {
        let parser = built();
        let names = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(find(&parser, &names("cluster up")).unwrap().get_name(), "up");
        for (text, words) in [
            ("clutser", "there is no command 'thalweg clutser'; thalweg has calibrate,"),
            ("cluster left", "there is no command 'thalweg cluster left'; thalweg cluster has up,"),
            ("run x", "thalweg run has no commands"),
        ] {
            let Failure::Usage(sentence) = find(&parser, &names(text)).unwrap_err() else {
                panic!("{text} must be a usage error")
            };
            assert!(sentence.contains(words), "{sentence}");
        }
    }
}
