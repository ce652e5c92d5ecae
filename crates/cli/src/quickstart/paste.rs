//! Shell commands for the user to paste.

use std::env;
use std::path::{Path, PathBuf};

/// How this program is called: by its name if it is found in PATH, else by its path.
pub(super) fn program() -> String {
    let Ok(program) = env::current_exe() else { return "thalweg".to_owned() };
    let folders = env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = env::split_paths(&folders).collect();
    let here = env::current_dir().unwrap_or_default();
    call(&program, &folders, &here)
}

fn call(program: &Path, folders: &[PathBuf], here: &Path) -> String {
    let name = Path::new(program.file_name().unwrap_or_default());
    let found = folders.iter().map(|folder| folder.join(name)).find(|file| file.is_file());
    let is_found = found.and_then(|file| file.canonicalize().ok()) == program.canonicalize().ok();
    let path = match program.strip_prefix(here) {
        _ if is_found => name.to_owned(),
        // A bare name would be searched in PATH.
        Ok(rest) if !rest.as_os_str().is_empty() => Path::new(".").join(rest),
        _ => program.to_owned(),
    };
    quoted(&path.display().to_string())
}

/// A shell-quoted word.
pub(super) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+:=@%,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shells_take_words_whole() {
        assert_eq!(quoted("/tmp/thalweg-1/model"), "/tmp/thalweg-1/model");
        assert_eq!(quoted("digits=/my models"), "'digits=/my models'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted("$HOME"), "'$HOME'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn a_program_is_called_as_shells_find_it() {
        let program = env::current_exe().unwrap();
        let folder = program.parent().unwrap();
        let name = program.file_name().unwrap().to_str().unwrap();
        let elsewhere = Path::new("/nonexistent");
        assert_eq!(call(&program, &[folder.to_owned()], elsewhere), name);
        assert_eq!(call(&program, &[], folder), format!("./{name}"));
        assert_eq!(call(&program, &[], elsewhere), quoted(program.to_str().unwrap()));
    }
}
