//! Local files: what is asked for, and mistakes.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;

use thalweg_formats::storage::{LocalStorage, NoStorage, Rooted, Storage};
use thalweg_tensor::Code;

/// A folder of its own for one test, gone at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("thalweg-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn files_are_written_read_and_gone() {
    let (folder, storage) = (Folder::new("storage"), LocalStorage::default());
    let path = folder.path("x/y/a.bin");
    storage.write(&path, b"one").unwrap();
    assert_eq!(&storage.read(&path, 3).unwrap()[..], b"one");
    assert_eq!(storage.read(&path, 2).unwrap_err().code(), Code::ResourceExhausted);
    let mut file = storage.append(&path).unwrap();
    file.write(b" two").unwrap();
    assert_eq!(storage.metadata(&path).unwrap().bytes, 3, "not before it is flushed");
    file.flush().unwrap();
    assert_eq!(storage.metadata(&path).unwrap().bytes, 7);
    file.write(&vec![b'x'; 200_000]).unwrap();
    file.write(b"!").unwrap();
    file.finish().unwrap();
    let open = storage.open(&path).unwrap();
    let mut end = [0; 10];
    assert_eq!(open.read_at(200_000, &mut end).unwrap(), 8);
    assert_eq!(&end[..8], b"xxxxxxx!");
    assert_eq!(open.read_at(1 << 40, &mut end).unwrap(), 0);
    storage.rename(&path, &folder.path("b")).unwrap();
    assert!(!storage.exists(&path).unwrap() && storage.exists(&folder.path("b")).unwrap());
    assert!(!storage.exists(&folder.path("b/c")).unwrap());
    let url = format!("file://{}", folder.path("b"));
    assert_eq!(storage.metadata(&url).unwrap().bytes, 200_008);
    storage.remove(&folder.path("b")).unwrap();
    storage.remove_folder(&folder.path("x/y")).unwrap();
    assert_eq!(storage.list(&folder.path("x")).unwrap(), [""; 0]);
    assert!(storage.metadata(&folder.path("x")).unwrap().is_folder);
}

#[test]
fn replacing_is_whole_or_nothing() {
    let (folder, storage) = (Folder::new("replace"), LocalStorage { syncs: false });
    let path = folder.path("a");
    storage.write(&path, b"old").unwrap();
    let mut file = storage.replace(&path).unwrap();
    file.write(b"new").unwrap();
    file.flush().unwrap();
    assert_eq!(&storage.read(&path, 9).unwrap()[..], b"old");
    drop(file);
    assert_eq!(storage.list(&folder.path("")).unwrap(), ["a"]);
    let mut file = storage.replace(&path).unwrap();
    file.write(b"new").unwrap();
    file.finish().unwrap();
    assert_eq!(&storage.read(&path, 9).unwrap()[..], b"new");
    assert_eq!(storage.list(&folder.path("")).unwrap(), ["a"]);
}

#[test]
fn mistakes_name_the_path_and_have_codes() {
    let (folder, storage) = (Folder::new("mistakes"), LocalStorage::default());
    storage.write(&folder.path("file"), b"").unwrap();
    let failures = [
        (storage.read(&folder.path("no"), 9).map(drop), "no", Code::NotFound),
        (storage.read(&folder.path(""), 9).map(drop), "", Code::FailedPrecondition),
        (storage.read(&folder.path("file/x"), 9).map(drop), "file/x", Code::FailedPrecondition),
        (storage.write(&folder.path(""), b""), "", Code::FailedPrecondition),
        (storage.write(&folder.path("file/x"), b""), "file", Code::FailedPrecondition),
        (storage.remove(&folder.path("no")), "no", Code::NotFound),
        (storage.remove_folder(&folder.path("")), "", Code::FailedPrecondition),
        (storage.rename(&folder.path("no"), &folder.path("b")), "no", Code::NotFound),
        (storage.list(&folder.path("no")).map(drop), "no", Code::NotFound),
    ];
    for (result, name, code) in failures {
        let error = result.unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert!(error.message().starts_with(&folder.path(name)), "{error}");
    }
    let elsewhere = storage.read("s3://bucket/key", 9).unwrap_err();
    assert_eq!(elsewhere.code(), Code::Unimplemented, "{elsewhere}");
    assert_eq!(storage.read("/dev/zero", 100_000).unwrap_err().code(), Code::ResourceExhausted);
    assert!(!storage.read("/proc/self/status", 1 << 20).unwrap().is_empty());
    assert_eq!(NoStorage.read("x", 9).unwrap_err().code(), Code::PermissionDenied);
}

#[test]
fn patterns_find_files() {
    let (folder, storage) = (Folder::new("patterns"), LocalStorage::default());
    for name in ["a.txt", "b.txt", "d/a.txt", "d/e/a.txt"] {
        storage.write(&folder.path(name), b"").unwrap();
    }
    let found = |pattern: &str| -> Vec<String> {
        let paths = storage.matching(&folder.path(pattern)).unwrap();
        let root = folder.path("");
        paths.iter().map(|p| p.strip_prefix(&root).unwrap().to_owned()).collect()
    };
    assert_eq!(found("*"), ["a.txt", "b.txt", "d"]);
    assert_eq!(found("*/a.txt"), ["d/a.txt"]);
    assert_eq!(found("*/*/a.*"), ["d/e/a.txt"]);
    assert_eq!(found("a.txt"), ["a.txt"]);
    assert_eq!(found("no/*"), [""; 0]);
    assert_eq!(found("a.txt/*"), [""; 0]);
    assert_eq!(storage.matching("").unwrap(), [""; 0]);
}

#[test]
fn a_root_keeps_others_out() {
    let folder = Folder::new("rooted");
    let plain = LocalStorage::default();
    plain.write(&folder.path("outside"), b"secret").unwrap();
    plain.write(&folder.path("in/side"), b"x").unwrap();
    std::os::unix::fs::symlink(folder.path("outside"), folder.path("in/link")).unwrap();
    let rooted = Rooted::new(&folder.path("in"), plain).unwrap();
    assert_eq!(&rooted.read("side", 9).unwrap()[..], b"x");
    assert_eq!(&rooted.read(&folder.path("in/side"), 9).unwrap()[..], b"x");
    rooted.write("new/a", b"y").unwrap();
    assert_eq!(rooted.matching("*/a").unwrap(), ["./new/a"]);
    for path in ["../outside", "link", "/etc/passwd", &folder.path("outside"), "file:///etc/passwd"]
    {
        assert_eq!(rooted.read(path, 9).unwrap_err().code(), Code::PermissionDenied, "{path}");
        assert_eq!(rooted.write(path, b"").unwrap_err().code(), Code::PermissionDenied, "{path}");
    }
    assert_eq!(&plain.read(&folder.path("outside"), 9).unwrap()[..], b"secret");
}
