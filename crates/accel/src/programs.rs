//! Compiled programs on disk, so that the next process need not compile them again.
//!
//! A file is named after the hash of its key, which says everything that the compiled program depends on,
//! and holds the whole key, so that two keys of one hash are told apart. A program that is loaded is code
//! that runs: the folder and its files must belong to the user of this process (or to root), nobody else
//! may write to them, and nobody else may replace the folder. When the folder grows beyond its bound, the
//! files that were not used for longest are deleted.

use std::fs::{self, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use thalweg_tensor::{Context, Result, ensure, err};

/// Most bytes of the files in a folder of programs.
const FOLDER_BYTES_MAX: u64 = 2 << 30;
/// First bytes of a file; the digit is the version of the format.
const MAGIC: &[u8; 8] = b"thwgprg1";
/// Bytes before the key: magic, length of the key, checksum of the program.
const HEADER_BYTES: usize = 24;
/// Extension of whole files.
const EXTENSION: &str = "program";
/// Extension of files that are being written.
const PARTIAL: &str = "partial";
/// Age after which the process that wrote a partial file has ended without renaming it.
const PARTIAL_AGE_MAX: Duration = Duration::from_secs(3600);

/// A folder of compiled programs.
#[derive(Clone, Debug)]
pub(crate) struct ProgramFolder {
    folder: PathBuf,
}

impl ProgramFolder {
    /// The programs in `folder`, which is made if it is missing. A folder that others may change is
    /// PERMISSION_DENIED.
    pub(crate) fn open(folder: &Path) -> Result<ProgramFolder> {
        let open = || -> Result<ProgramFolder> {
            let failed = |e: io::Error| err!(PermissionDenied, "{e}");
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
            let folder = fs::canonicalize(folder).map_err(failed)?;
            check_folder(&folder)?;
            Ok(ProgramFolder { folder })
        };
        open().context(|| format!("folder of compiled programs {}", folder.display()))
    }

    /// The program of this key, if the folder has it.
    pub(crate) fn read(&self, key: &[u8]) -> Option<Vec<u8>> {
        let path = self.path_of(key);
        match try_read(&path, key) {
            Ok(program) => program,
            Err(e) => {
                let (path, reason) = (path.display(), e.message());
                tracing::warn!(target: "thalweg::accelerator", "{path} is not used: {reason}");
                None
            }
        }
    }

    /// Keeps the program of this key. A failure is logged: the program has been compiled all the same.
    pub(crate) fn write(&self, key: &[u8], program: &[u8]) {
        if let Err(e) = self.try_write(key, program) {
            tracing::warn!(
                target: "thalweg::accelerator",
                "a compiled program could not be kept in {}: {e}",
                self.folder.display()
            );
        }
    }

    /// Deletes the program of this key, which the plugin cannot load.
    pub(crate) fn remove(&self, key: &[u8]) {
        // Another process may have deleted it.
        let _ = fs::remove_file(self.path_of(key));
    }

    fn path_of(&self, key: &[u8]) -> PathBuf {
        self.folder.join(format!("{:016x}.{EXTENSION}", hash(key)))
    }

    fn try_write(&self, key: &[u8], program: &[u8]) -> io::Result<()> {
        /// Tells the files of one process apart.
        static WRITTEN: AtomicU64 = AtomicU64::new(0);
        if key.len() as u64 + program.len() as u64 > FOLDER_BYTES_MAX / 2 {
            return Ok(());
        }
        let (process, n) = (std::process::id(), WRITTEN.fetch_add(1, Ordering::Relaxed));
        let path = self.path_of(key);
        let partial = path.with_extension(format!("{process}-{n}.{PARTIAL}"));
        let mut file =
            fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial)?;
        let mut header = MAGIC.to_vec();
        header.extend((key.len() as u64).to_le_bytes());
        header.extend(hash(program).to_le_bytes());
        let written = [&header, key, program].into_iter().try_for_each(|part| file.write_all(part));
        let renamed = written.and_then(|()| fs::rename(&partial, &path));
        if renamed.is_err() {
            // The error that is reported is the first one.
            let _ = fs::remove_file(&partial);
        }
        renamed?;
        self.shrink(FOLDER_BYTES_MAX)
    }

    /// Deletes the files that were not used for longest, as long as all together have more than `bytes_max`
    /// bytes, and what processes left that ended while they wrote.
    fn shrink(&self, bytes_max: u64) -> io::Result<()> {
        let mut files: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            // Another process may have deleted it.
            let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
            let used = metadata.modified()?;
            if path.extension().is_some_and(|e| e == EXTENSION) {
                files.push((used, metadata.len(), path));
            } else if path.extension().is_some_and(|e| e == PARTIAL)
                && now().duration_since(used).is_ok_and(|age| age > PARTIAL_AGE_MAX)
            {
                remove(&path)?;
            }
        }
        let mut total: u64 = files.iter().map(|(_, size, _)| size).sum();
        files.sort();
        for (_, size, path) in files {
            if total <= bytes_max {
                break;
            }
            remove(&path)?;
            total -= size;
        }
        Ok(())
    }
}

/// Deletes a file that another process may have deleted.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

#[expect(clippy::disallowed_methods, reason = "the time of a file's last use")]
fn now() -> SystemTime {
    SystemTime::now()
}

/// That only this user can change the folder at this absolute path without links, or put another in its
/// place.
fn check_folder(folder: &Path) -> Result<()> {
    for part in folder.ancestors() {
        let failed = |e: io::Error| err!(PermissionDenied, "{}: {e}", part.display());
        let metadata = fs::metadata(part).map_err(failed)?;
        // In a sticky folder such as /tmp, an entry is renamed by its owner alone.
        let is_sticky = part != folder && metadata.mode() & 0o1000 != 0;
        check_owner(&metadata, is_sticky).context(|| part.display())?;
    }
    Ok(())
}

fn check_owner(metadata: &Metadata, is_sticky: bool) -> Result<()> {
    let (user, owner) = (rustix::process::geteuid().as_raw(), metadata.uid());
    ensure!(
        owner == user || owner == 0,
        PermissionDenied,
        "it belongs to user {owner}, not to {user}, who would run the programs in it"
    );
    let mode = metadata.mode() & 0o7777;
    ensure!(
        mode & 0o022 == 0 || is_sticky,
        PermissionDenied,
        "others may write to it (mode {mode:o}), and programs in it are code; chmod go-w makes it private"
    );
    Ok(())
}

/// The program in a file, if there is the file and it has this key.
fn try_read(path: &Path, key: &[u8]) -> Result<Option<Vec<u8>>> {
    // Nobody else may put anything here, so the name means the same file below.
    let metadata = match fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        metadata => metadata.map_err(|e| err!(PermissionDenied, "{e}"))?,
    };
    ensure!(metadata.is_file(), DataLoss, "it is no file");
    check_owner(&metadata, false)?;
    ensure!(metadata.len() <= FOLDER_BYTES_MAX, DataLoss, "it has {} bytes", metadata.len());
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(|e| err!(PermissionDenied, "{e}"))?;
    let length = usize::try_from(metadata.len()).unwrap_or(usize::MAX);
    bytes
        .try_reserve_exact(length)
        .map_err(|e| err!(ResourceExhausted, "its {length} bytes: {e}"))?;
    (&file).take(metadata.len()).read_to_end(&mut bytes).map_err(|e| err!(DataLoss, "{e}"))?;
    let Some(start) = program_in(&bytes, key)? else { return Ok(None) };
    // The time of the last use decides which files are deleted; without it this one may go too early.
    let _ = file.set_modified(now());
    bytes.drain(..start);
    Ok(Some(bytes))
}

/// Where the program begins in the bytes of a file; `None` if they are that of another key.
fn program_in(bytes: &[u8], key: &[u8]) -> Result<Option<usize>> {
    let cut_off = || err!(DataLoss, "it is cut off");
    let (header, rest) = bytes.split_at_checked(HEADER_BYTES).ok_or_else(cut_off)?;
    let number = |at: usize| {
        header[at..at + 8].iter().rev().fold(0, |n: u64, &byte| n << 8 | u64::from(byte))
    };
    ensure!(header.starts_with(MAGIC), DataLoss, "it is no compiled program");
    let length = usize::try_from(number(8)).unwrap_or(usize::MAX);
    let (its_key, program) = rest.split_at_checked(length).ok_or_else(cut_off)?;
    if its_key != key {
        return Ok(None);
    }
    ensure!(hash(program) == number(16), DataLoss, "it is damaged");
    Ok(Some(HEADER_BYTES + length))
}

/// FNV-1a. It names files, and tells those that were cut off or damaged; it is no protection against forgery.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use thalweg_tensor::Code;

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let name = format!("thalweg-programs-{}-{name}", std::process::id());
            Folder(std::env::temp_dir().join(name))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn programs_are_found_by_their_whole_key() {
        let folder = Folder::new("found");
        let programs = ProgramFolder::open(&folder.0.join("a/b")).unwrap();
        assert_eq!(programs.read(b"key"), None);
        programs.write(b"key", b"program");
        assert_eq!(programs.read(b"key").as_deref(), Some(&b"program"[..]));
        programs.write(b"key", b"another");
        assert_eq!(programs.read(b"key").as_deref(), Some(&b"another"[..]));
        // As if the hashes of two keys were equal.
        fs::copy(programs.path_of(b"key"), programs.path_of(b"other")).unwrap();
        assert_eq!(programs.read(b"other"), None);
        programs.remove(b"key");
        assert_eq!(programs.read(b"key"), None);
    }

    #[test]
    fn damaged_files_are_not_used() {
        let folder = Folder::new("damaged");
        let programs = ProgramFolder::open(&folder.0).unwrap();
        programs.write(b"key", b"program");
        let file = programs.path_of(b"key");
        let whole = fs::read(&file).unwrap();
        for length in 0..whole.len() {
            fs::write(&file, &whole[..length]).unwrap();
            assert_eq!(programs.read(b"key"), None, "cut off at {length}");
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            fs::write(&file, &changed).unwrap();
            assert_eq!(programs.read(b"key"), None, "changed at {at}");
        }
    }

    #[test]
    fn what_others_may_write_is_not_used() {
        let folder = Folder::new("others");
        let programs = ProgramFolder::open(&folder.0).unwrap();
        assert_eq!(fs::metadata(&folder.0).unwrap().mode() & 0o777, 0o700);
        programs.write(b"key", b"program");
        let file = programs.path_of(b"key");
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        for mode in [0o620, 0o602] {
            chmod(&file, mode);
            assert_eq!(programs.read(b"key"), None, "{mode:o}");
        }
        chmod(&file, 0o644);
        assert!(programs.read(b"key").is_some());
        // A link leads to what somebody else chose.
        let moved = folder.0.join("moved");
        fs::rename(&file, &moved).unwrap();
        std::os::unix::fs::symlink(&moved, &file).unwrap();
        assert_eq!(programs.read(b"key"), None);
        for mode in [0o770, 0o707, 0o1777] {
            chmod(&folder.0, mode);
            let e = ProgramFolder::open(&folder.0).unwrap_err();
            assert_eq!(e.code(), Code::PermissionDenied, "{mode:o}: {e}");
        }
        // A folder in which others could replace it.
        let inner = folder.0.join("inner");
        chmod(&folder.0, 0o777);
        assert_eq!(ProgramFolder::open(&inner).unwrap_err().code(), Code::PermissionDenied);
        chmod(&folder.0, 0o1777);
        ProgramFolder::open(&inner).unwrap();
    }

    #[test]
    fn the_oldest_files_go_first() {
        let folder = Folder::new("oldest");
        let programs = ProgramFolder::open(&folder.0).unwrap();
        for (age, key) in [b"a", b"b", b"c"].into_iter().enumerate() {
            programs.write(key, &[0; 1000]);
            let file = fs::File::open(programs.path_of(key)).unwrap();
            file.set_modified(now() - Duration::from_secs(1000 - age as u64)).unwrap();
        }
        // Reading makes it the newest.
        programs.read(b"a").unwrap();
        let left_over = folder.0.join(format!("0.1-1.{PARTIAL}"));
        fs::write(&left_over, [0; 10]).unwrap();
        programs.shrink(2500).unwrap();
        assert!(left_over.exists());
        let file = fs::File::open(&left_over).unwrap();
        file.set_modified(now() - PARTIAL_AGE_MAX - Duration::from_secs(1)).unwrap();
        programs.shrink(2500).unwrap();
        assert!(!left_over.exists());
        let there = [b"a", b"b", b"c"].map(|key| programs.read(key).is_some());
        assert_eq!(there, [true, false, true]);
    }
}
