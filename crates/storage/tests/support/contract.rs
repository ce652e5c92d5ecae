//! The contract of `Storage`, checked against every store, and the file formats that are kept there.

use std::sync::Arc;
use std::time::Duration;

use thalweg_formats::checkpoint::{BundleReader, BundleWriter, MergeOptions, WriteOptions, merge};
use thalweg_formats::events::{EventReader, EventWriter, Scalars, event_files, summary};
use thalweg_formats::record::{Compression, ReadOptions, RecordReader, RecordWriter};
use thalweg_formats::storage::{Storage, join};
use thalweg_tensor::{Code, Tensor};

/// Content with a prime period, so that a wrong offset is detected.
pub(crate) fn content(bytes: usize) -> Vec<u8> {
    const PERIOD: u64 = 65_537;
    let period: Vec<u8> = (0..PERIOD).map(|i| (i * i % 251) as u8).collect();
    let mut content = period.repeat(bytes / PERIOD as usize + 1);
    content.truncate(bytes);
    content
}

fn code<T>(result: thalweg_tensor::Result<T>) -> Option<Code> {
    result.err().map(|e| e.code())
}

/// How a store represents folders.
#[allow(dead_code, reason = "each test has one of them")]
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Folders {
    /// Folders, or marker objects.
    Kept,
    /// s3s-fs keeps objects as files: it does not list a folder without any, and asked for a folder
    /// as an object it answers 500.
    OfObjects,
}

/// Checks the whole contract in an existing, empty folder.
pub(crate) fn check(storage: impl Storage + 'static, root: &str, kept: Folders) {
    let shared: Arc<dyn Storage> = Arc::new(storage);
    let storage = &*shared;
    whole_files(storage, &join(root, "whole"));
    reads(storage, &join(root, "reads"));
    folders(storage, &join(root, "folders"), kept);
    names(storage, &join(root, "names"));
    growing_files(storage, &join(root, "growing"));
    errors(storage, &join(root, "mistakes"), kept);
    records(storage, &join(root, "records"));
    events(storage, &join(root, "events"));
    checkpoints(&shared, &join(root, "checkpoints"));
}

fn whole_files(storage: &dyn Storage, root: &str) {
    let path = join(root, "a/b.bin");
    storage.write(&path, b"one").unwrap();
    assert_eq!(&storage.read(&path, 10).unwrap()[..], b"one");
    let found = storage.metadata(&path).unwrap();
    assert_eq!((found.bytes, found.is_folder), (3, false));
    assert!(found.modified > Duration::from_secs(1_600_000_000), "{:?}", found.modified);
    // Until `finish` readers see the old content; a dropped writer leaves nothing.
    let mut file = storage.replace(&path).unwrap();
    file.write(b"another").unwrap();
    file.flush().unwrap();
    assert_eq!(&storage.read(&path, 10).unwrap()[..], b"one");
    drop(file);
    assert_eq!(&storage.read(&path, 10).unwrap()[..], b"one");
    assert_eq!(storage.list(&join(root, "a")).unwrap(), ["b.bin"]);
    let mut file = storage.replace(&path).unwrap();
    file.write(b"another").unwrap();
    file.finish().unwrap();
    assert_eq!(&storage.read(&path, 10).unwrap()[..], b"another");
    assert_eq!(code(storage.read(&path, 3)), Some(Code::ResourceExhausted));
    storage.write(&path, b"").unwrap();
    assert_eq!(storage.read(&path, 3).unwrap().len(), 0);
    storage.remove(&path).unwrap();
    assert!(!storage.exists(&path).unwrap());
}

/// Reads of a file of several upload parts.
fn reads(storage: &dyn Storage, root: &str) {
    let (path, expected) = (join(root, "large"), content(9_000_001));
    storage.create_folder(root).unwrap();
    let mut file = storage.replace(&path).unwrap();
    for part in expected.chunks(1_234_567) {
        file.write(part).unwrap();
    }
    file.finish().unwrap();
    let file = storage.open(&path).unwrap();
    assert_eq!((file.path(), file.size().unwrap()), (&*path, expected.len() as u64));
    assert!(storage.read(&path, usize::MAX).unwrap() == expected, "read as a whole");
    let mut target = vec![0; 100_000];
    let mut read = 0;
    loop {
        let n = file.read_at(read as u64, &mut target).unwrap();
        assert!(target[..n] == expected[read..read + n], "{n} bytes at {read}");
        read += n;
        if n < target.len() {
            break;
        }
    }
    assert_eq!(read, expected.len());
    for at in [0, 1, 8_999_999, 8_388_607, 5_000_000] {
        let n = file.read_at(at as u64, &mut target[..5]).unwrap();
        assert_eq!(target[..n], expected[at..(at + 5).min(expected.len())]);
    }
    assert_eq!(file.read_at(expected.len() as u64, &mut target).unwrap(), 0);
    assert_eq!(file.read_at(1 << 40, &mut target).unwrap(), 0);
    let (to, at) = (join(root, "renamed"), join(root, "x"));
    storage.rename(&path, &to).unwrap();
    assert!(storage.read(&to, usize::MAX).unwrap() == expected, "renamed");
    assert_eq!(code(storage.open(&path)), Some(Code::NotFound));
    storage.write(&at, b"old").unwrap();
    storage.rename(&to, &at).unwrap();
    assert_eq!(storage.metadata(&at).unwrap().bytes, expected.len() as u64);
    assert_eq!(storage.list(root).unwrap(), ["x"]);
}

fn folders(storage: &dyn Storage, root: &str, kept: Folders) {
    let deep = join(root, "a/b/c");
    storage.create_folder(&deep).unwrap();
    storage.create_folder(&deep).unwrap();
    if kept == Folders::Kept {
        assert!(storage.metadata(&deep).unwrap().is_folder);
        assert_eq!(storage.list(&deep).unwrap(), [""; 0]);
    }
    storage.write(&join(&deep, "file"), b"x").unwrap();
    // There and back again.
    let moved = join(root, "moved");
    storage.rename(&join(root, "a"), &moved).unwrap();
    assert_eq!(&storage.read(&join(&moved, "b/c/file"), 9).unwrap()[..], b"x");
    assert!(kept == Folders::OfObjects || !storage.exists(&join(root, "a")).unwrap());
    storage.rename(&moved, &join(root, "a")).unwrap();
    assert!(storage.metadata(&deep).unwrap().is_folder);
    assert!(storage.metadata(&join(root, "a")).unwrap().is_folder);
    assert_eq!(storage.list(&join(root, "a")).unwrap(), ["b"]);
    assert_eq!(code(storage.remove_folder(&deep)), Some(Code::FailedPrecondition));
    assert_eq!(storage.list(&deep).unwrap(), ["file"]);
    storage.remove(&join(&deep, "file")).unwrap();
    if kept == Folders::Kept {
        storage.remove_folder(&deep).unwrap();
        assert!(!storage.exists(&deep).unwrap());
    }
}

fn names(storage: &dyn Storage, root: &str) {
    let odd =
        ["a b", "c+d&e=f", "ü", "x%20y", "q?r#s", "train-00000-of-00002", "train-00001-of-00002"];
    for name in odd {
        storage.write(&join(root, name), name.as_bytes()).unwrap();
    }
    for i in 0..25 {
        storage.write(&join(root, &format!("many/{i:02}")), b"").unwrap();
    }
    for name in odd {
        assert_eq!(storage.read(&join(root, name), 99).unwrap(), name.as_bytes(), "{name}");
    }
    let mut listed = storage.list(root).unwrap();
    listed.sort();
    let mut expected: Vec<&str> = odd.into_iter().chain(["many"]).collect();
    expected.sort_unstable();
    assert_eq!(listed, expected);
    let matching = |pattern: &str| storage.matching(&join(root, pattern)).unwrap();
    assert_eq!(matching("train-*-of-*").len(), 2);
    assert_eq!(matching("train-*-of-*")[1], join(root, "train-00001-of-00002"));
    assert_eq!(matching("m*/1[0-4]").len(), 5);
    assert_eq!(matching("many/*").len(), 25);
    assert_eq!(matching("nothing*").len(), 0);
    assert_eq!(matching("x%20y").len(), 1);
}

/// Flushed content is visible, below and above the size of a multipart upload.
fn growing_files(storage: &dyn Storage, root: &str) {
    let (path, expected) = (join(root, "log"), content(10_000_000));
    storage.create_folder(root).unwrap();
    let is = |bytes: usize| {
        let found = storage.read(&path, usize::MAX).unwrap();
        assert!(found == expected[..bytes], "{} of {bytes} bytes", found.len());
    };
    let mut file = storage.create(&path).unwrap();
    is(0);
    let mut written = 0;
    for until in [10, 1000, 8_400_000, 8_400_005] {
        file.write(&expected[written..until]).unwrap();
        file.flush().unwrap();
        file.flush().unwrap();
        is(until);
        written = until;
    }
    file.finish().unwrap();
    is(written);
    let mut file = storage.append(&path).unwrap();
    file.write(&expected[written..]).unwrap();
    file.sync().unwrap();
    is(expected.len());
    file.finish().unwrap();
    storage.create(&path).unwrap().finish().unwrap();
    is(0);
    for until in [7, 19] {
        let mut file = storage.append(&path).unwrap();
        file.write(&expected[if until == 7 { 0 } else { 7 }..until]).unwrap();
        // Dropped without `finish`.
        drop(file);
        is(until);
    }
}

fn errors(storage: &dyn Storage, root: &str, kept: Folders) {
    storage.write(&join(root, "file"), b"x").unwrap();
    let missing = join(root, "no/such/file");
    assert_eq!(code(storage.open(&missing)), Some(Code::NotFound));
    assert_eq!(code(storage.metadata(&missing)), Some(Code::NotFound));
    assert_eq!(code(storage.list(&missing)), Some(Code::NotFound));
    assert_eq!(code(storage.remove(&missing)), Some(Code::NotFound));
    assert_eq!(code(storage.remove_folder(&missing)), Some(Code::NotFound));
    assert_eq!(code(storage.rename(&missing, &join(root, "to"))), Some(Code::NotFound));
    assert_eq!(code(storage.list(&join(root, "file"))), Some(Code::FailedPrecondition));
    assert_eq!(code(storage.create_folder(&join(root, "file"))), Some(Code::FailedPrecondition));
    let folder = join(root, "folder");
    storage.write(&join(&folder, "x"), b"").unwrap();
    if kept == Folders::Kept {
        assert_eq!(code(storage.read(&folder, 9)), Some(Code::FailedPrecondition));
    }
    let error = storage.open(&missing).err().unwrap();
    assert!(error.message().contains(&missing), "{error}");
}

fn records(storage: &dyn Storage, root: &str) {
    for (compression, name) in [(Compression::None, "plain"), (Compression::Gzip, "gzip")] {
        let path = join(root, name);
        storage.create_folder(root).unwrap();
        let mut writer = RecordWriter::new(storage.replace(&path).unwrap(), compression);
        let expected: Vec<Vec<u8>> = (0..100).map(|i| content(i * 297)).collect();
        expected.iter().for_each(|record| writer.write(record).unwrap());
        writer.finish().unwrap();
        let options = ReadOptions::default();
        let mut reader = RecordReader::open_any(storage, &path, options).unwrap();
        for record in &expected {
            assert_eq!(reader.next_record().unwrap(), Some(&record[..]));
        }
        assert_eq!(reader.next_record().unwrap(), None);
    }
}

/// Two checkpoint shards are merged; then the checkpoint is replaced.
fn checkpoints(storage: &Arc<dyn Storage>, root: &str) {
    let save = |prefix: &str, name: &str, value: f32| {
        let options = WriteOptions::default();
        let mut writer = BundleWriter::create(storage, prefix, options).unwrap();
        writer.add(name, &Tensor::vector(&vec![value; 100_000]).unwrap()).unwrap();
        writer.finish().unwrap();
    };
    let value = |prefix: &str, name: &str| {
        let reader = BundleReader::open(storage, prefix).unwrap();
        reader.check_sizes().unwrap();
        let read = reader.read(name).unwrap();
        let elements = read.as_slice::<f32>().unwrap();
        assert_eq!(elements.len(), 100_000);
        elements[99_999]
    };
    let parts = [join(root, "tmp/part-0"), join(root, "tmp/part-1")];
    save(&parts[0], "a", 1.0);
    save(&parts[1], "b", 2.0);
    let whole = join(root, "model-1");
    let names = [&*parts[0], &*parts[1]];
    let options = MergeOptions { delete_old_dirs: true, ..MergeOptions::default() };
    merge(storage, &names, &whole, options).unwrap();
    assert_eq!((value(&whole, "a"), value(&whole, "b")), (1.0, 2.0));
    save(&whole, "a", 3.0);
    assert_eq!(value(&whole, "a"), 3.0);
    let reader = BundleReader::open(storage, &whole).unwrap();
    assert_eq!(code(reader.read("b")), Some(Code::NotFound));
    assert_eq!(code(BundleReader::open(storage, &parts[0])), Some(Code::NotFound));
}

fn events(storage: &dyn Storage, root: &str) {
    let now = Duration::from_secs(1_800_000_000);
    let mut writer = EventWriter::create(storage, root, now, "").unwrap();
    for step in 0..5 {
        let value = summary::scalar("loss", step as f32 / 2.0).unwrap();
        writer.summary(now, step, vec![value]).unwrap();
        writer.flush().unwrap();
    }
    let count = || {
        let files = event_files(storage, root).unwrap();
        assert_eq!(files.len(), 1, "{files:?}");
        let mut reader = EventReader::open(storage, &files[0], ReadOptions::default()).unwrap();
        let (mut scalars, mut count) = (Scalars::new(), 0);
        while let Some(found) = scalars.next(&mut reader).unwrap() {
            count += found.len();
        }
        count
    };
    assert_eq!(count(), 5);
    writer.finish().unwrap();
    assert_eq!(count(), 5);
}
