use std::collections::{BTreeMap, BTreeSet};

use clap::{Arg, ValueEnum};
use clap_complete::{Generator, Shell};

use super::*;

/// Every command that help lists, with its full name.
fn all_commands() -> Vec<(String, Command)> {
    fn below(command: &Command, name: &str, found: &mut Vec<(String, Command)>) {
        found.push((name.to_owned(), command.clone()));
        for child in command.get_subcommands().filter(|c| !c.is_hide_set()) {
            below(child, &format!("{name} {}", child.get_name()), found);
        }
    }
    let mut parser = parser().disable_help_subcommand(true);
    parser.build();
    let mut found = Vec::new();
    below(&parser, "thalweg", &mut found);
    found
}

fn visible(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|arg| !arg.is_hide_set())
}

#[test]
fn clap_finds_no_contradiction() {
    parser().debug_assert();
}

#[test]
fn every_command_is_in_one_group() {
    let parser = parser();
    let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
    grouped.retain(|name| *name != "help");
    grouped.sort_unstable();
    let mut names: Vec<&str> = parser.get_subcommands().map(Command::get_name).collect();
    names.sort_unstable();
    assert_eq!(grouped, names);
}

#[test]
fn help_lists_groups_in_one_sentence_per_command() {
    let text = parser().render_long_help().to_string();
    let first =
        "Run, train and serve TensorFlow graphs and SavedModels on one machine or a cluster\n";
    assert!(text.starts_with(first), "{text}");
    let mut rest = text.as_str();
    for (heading, names) in GROUPS {
        let (_, below) = rest.split_once(&format!("\n{heading}:\n")).expect(heading);
        for (line, name) in below.lines().zip(*names) {
            let (found, about) = line.trim().split_once(' ').expect(line);
            assert_eq!((found, about.trim().is_empty()), (*name, false), "{line}");
            assert!(line.chars().count() <= 100, "{line}");
        }
        rest = below;
    }
    assert!(rest.contains("\nExit codes:\n  0  The command succeeded."), "{rest}");
}

#[test]
fn everything_is_documented() {
    for (name, command) in all_commands() {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        assert!(about.starts_with(|c: char| c.is_ascii_uppercase()), "{name}: {about:?}");
        for arg in visible(&command) {
            let at = format!("{name} {}", arg.get_id());
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.len() > 8, "{at}: {help:?}");
            assert!(!help.ends_with('.'), "{at}: {help:?}");
            let is_own = !matches!(arg.get_id().as_str(), "help" | "version");
            if is_own && !arg.is_positional() {
                assert!(arg.get_help_heading().is_some(), "{at} has no heading");
            }
        }
    }
}

/// One spelling, one meaning: a flag takes the same kind of value in every command.
#[test]
fn a_flag_is_spelled_and_read_alike_everywhere() {
    let is_kebab = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let mut kinds: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, command) in all_commands() {
        for arg in visible(&command).filter(|arg| !arg.is_positional()) {
            let long = arg.get_long().unwrap_or_else(|| panic!("{name} {}", arg.get_id()));
            assert!(long.chars().all(is_kebab), "{name} --{long}");
            assert_eq!(arg.get_visible_aliases().unwrap_or_default(), [""; 0], "{name} --{long}");
            let value = match arg.get_action().takes_values() {
                true => format!("{:?}", arg.get_value_names().unwrap_or_default()),
                false => String::new(),
            };
            kinds.entry(long.to_owned()).or_default().insert(value);
        }
    }
    // A folder of pages or of a run, a file, a prefix of files: what is written.
    let output = kinds.remove("output").unwrap();
    assert_eq!(output.len(), 3, "{output:?}");
    for (flag, kinds) in kinds {
        assert_eq!(kinds.len(), 1, "--{flag} takes {kinds:?}");
    }
}

#[test]
fn older_and_tensorflows_spellings_are_accepted() {
    let same = |canonical: &str, other: &str| {
        let matches = |line: &str| {
            let words = std::iter::once("thalweg").chain(line.split(' '));
            let parsed = parser().try_get_matches_from(words);
            let parsed = parsed.unwrap_or_else(|e| panic!("{line}: {e}"));
            // The indices of arguments are not compared: hidden spellings may be longer.
            format!(
                "{:?}",
                <Cli as clap::FromArgMatches>::from_arg_matches(&parsed).unwrap().command
            )
        };
        assert_eq!(matches(canonical), matches(other));
    };
    for (canonical, other) in [
        ("run g --feed x=1 --fetch y", "run g --input x=1 --output y"),
        ("run g --saved-model-tags serve,gpu", "run g --tag serve --tag gpu"),
        ("health --server a:1", "health --address a:1"),
        ("launch --log-dir d -- x", "launch --logs d -- x"),
        ("cluster up --state-dir d", "cluster --state d up"),
        ("server --job-name ps --task-index 1", "server --job ps --task 1"),
        ("server --job-name ps --task-index 1", "server --job_name=ps --task_index=1"),
        ("server --no-sync", "server --unsynced"),
        (
            "server --startup-timeout 1 --heartbeat-timeout 2 --session-timeout 3",
            "server --startup-wait 1 --silence-limit 2 --orphan-limit 3",
        ),
        ("quickstart --no-kill --batch-size 7", "quickstart --undisturbed --batch 7"),
        ("quickstart --output d", "quickstart --folder d"),
        ("tfrecord index f --output o", "tfrecord index f --out o"),
        (
            "tfrecord skip-bad f --output o --bad-record-limit 3",
            "tfrecord skip-bad f --out o --budget 3",
        ),
        ("serve --port 0 --http-port 0", "serve --port any --http-port any"),
        ("serve --transition resource-preserving", "serve --transition resources"),
        (
            "serve --connection-limit 1 --message-limit 2 --body-limit 3 --idle-timeout 4",
            "serve --max_connections=1 --max_message_mb=2 --max_body_mb=3 --idle_seconds=4",
        ),
        ("serve --write-timeout 5 --drain-timeout 6", "serve --answer_seconds=5 --drain_seconds=6"),
        ("serve --http-timeout-ms 5", "serve --rest_api_timeout_in_ms=5"),
        ("serve --enable-cors", "serve --rest_api_enable_cors_support"),
    ] {
        same(canonical, other);
    }
}

/// Every flag of `serve` that TensorFlow Serving has is accepted with underscores too.
#[test]
fn tensorflow_servings_underscores_are_accepted() {
    let parser = parser();
    let serve = parser.find_subcommand("serve").unwrap();
    for flag in visible(serve).filter(|arg| arg.get_action().takes_values()) {
        let long = flag.get_long().unwrap();
        let is_ours = [
            "http-port",
            "http-timeout-ms",
            "enable-cors",
            "connection-limit",
            "message-limit",
            "body-limit",
            "idle-timeout",
            "write-timeout",
            "drain-timeout",
            "accelerator-memory",
            "program-cache",
            "log-format",
            "log-level",
        ]
        .contains(&long);
        if long.contains('-') && !is_ours {
            let aliases = flag.get_all_aliases().unwrap_or_default();
            assert!(aliases.contains(&long.replace('-', "_").as_str()), "--{long}: {aliases:?}");
        }
    }
}

#[test]
fn completions_name_every_command_and_flag() {
    let mut parser = parser();
    parser.set_bin_name("thalweg");
    parser.build();
    for shell in Shell::value_variants() {
        let mut script = Vec::new();
        shell.try_generate(&parser, &mut script).unwrap();
        let script = String::from_utf8(script).unwrap();
        for (name, command) in all_commands() {
            assert!(script.contains(command.get_name()), "{shell}: {name}");
            for long in visible(&command).filter_map(Arg::get_long) {
                assert!(script.contains(long), "{shell}: {name} --{long}");
            }
        }
    }
}

#[test]
fn ports_mean_the_same_everywhere() {
    let parse = |line: &str| {
        let words = std::iter::once("thalweg").chain(line.split(' '));
        parser().try_get_matches_from(words)
    };
    for command in ["server --port", "serve --port", "serve --http-port"] {
        for good in ["0", "1", "65535"] {
            assert!(parse(&format!("{command} {good}")).is_ok(), "{command} {good}");
        }
        for bad in ["65536", "-1", "http", "1.5"] {
            let error = parse(&format!("{command}={bad}")).unwrap_err().to_string();
            let hint = "a port is a number from 0 to 65535; 0 picks a free one";
            assert!(error.contains(hint), "{command} {bad}: {error}");
        }
    }
    for pair in ["--no-grpc --no-http", "--http-port 1 --rest_api_port 2"] {
        let error = parse(&format!("serve {pair}")).unwrap_err();
        assert_eq!(error.kind(), clap::error::ErrorKind::ArgumentConflict, "{pair}");
    }
}
