//! `thalweg completions`: prints the completion script of a shell.

use std::io::Write;

use clap_complete::{Generator, Shell};

use crate::{Failure, help};

/// Print the completion script of a shell.
///
/// For bash: `thalweg completions bash > ~/.local/share/bash-completion/completions/thalweg`.
/// For zsh: `thalweg completions zsh > DIR/_thalweg`, where DIR is in `$fpath`.
/// For fish: `thalweg completions fish > ~/.config/fish/completions/thalweg.fish`.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let mut parser = help::parser();
    // The generators need the names of subcommands with those of their parents.
    parser.set_bin_name("thalweg");
    parser.build();
    Ok(args.shell.try_generate(&parser, out)?)
}
