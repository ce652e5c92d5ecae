//! TFRecord files: whole, compressed, damaged in every place.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use thalweg_formats::record::{Compression, Index, ReadOptions, RecordReader, RecordWriter};
use thalweg_formats::storage::MemoryStorage as Memory;
use thalweg_formats::storage::Storage;
use thalweg_tensor::{Code, Result};

const ALL: [Compression; 3] = [Compression::None, Compression::Zlib, Compression::Gzip];

fn records() -> Vec<Vec<u8>> {
    let long = (0..300u32).map(|i| (i * 7) as u8).collect();
    vec![b"one".to_vec(), Vec::new(), long, b"last".to_vec()]
}

fn written(records: &[Vec<u8>], compression: Compression) -> Vec<u8> {
    let storage = Memory::default();
    let mut writer = RecordWriter::new(storage.create("f").unwrap(), compression);
    for record in records {
        writer.write(record).unwrap();
    }
    writer.finish().unwrap();
    storage.content("f")
}

/// Every record of a file, and how reading ended.
fn read(content: &[u8], options: ReadOptions) -> (Vec<Vec<u8>>, Result<()>) {
    let storage = Memory::with("f", content);
    let mut reader = match RecordReader::open(&storage, "f", options) {
        Ok(reader) => reader,
        Err(e) => return (Vec::new(), Err(e)),
    };
    let mut records = Vec::new();
    loop {
        match reader.next_record() {
            Ok(Some(record)) => records.push(record.to_vec()),
            Ok(None) => return (records, Ok(())),
            Err(e) => return (records, Err(e)),
        }
    }
}

fn options(compression: Compression) -> ReadOptions {
    ReadOptions { compression, ..Default::default() }
}

#[test]
fn what_is_written_is_read() {
    for compression in ALL {
        for records in [Vec::new(), vec![vec![7; 3_000_000]], records()] {
            let content = written(&records, compression);
            let (found, end) = read(&content, options(compression));
            assert_eq!(found, records, "{compression:?}");
            end.unwrap();
            if !records.is_empty() {
                assert_eq!(Compression::detect(&content), compression);
            }
        }
    }
}

/// The bytes that TensorFlow 2.21 writes for this record.
#[test]
fn bytes_are_tensorflows() {
    let content = written(&[b"one".to_vec()], Compression::None);
    assert_eq!(content, b"\x03\0\0\0\0\0\0\0\xb0\x99\x49\x0eone\x01\x40\x55\x08");
}

#[test]
fn damage_anywhere_is_an_error_or_harmless() {
    let records = records();
    for compression in ALL {
        let content = written(&records, compression);
        for place in 0..content.len() {
            for bit in [0x01, 0x80] {
                let mut damaged = content.clone();
                damaged[place] ^= bit;
                let (found, end) = read(&damaged, options(compression));
                assert_eq!(found[..], records[..found.len()], "{compression:?} {place}");
                if let Err(e) = end {
                    assert_eq!(e.code(), Code::DataLoss, "{e}");
                    assert!(e.message().starts_with("f: "), "{e}");
                    assert!(e.message().contains("record at byte "), "{e}");
                } else {
                    assert_eq!(found.len(), records.len(), "{compression:?} {place}");
                    assert_ne!(compression, Compression::None, "every byte counts: {place}");
                }
            }
        }
        for length in 0..content.len() {
            let (found, end) = read(&content[..length], options(compression));
            assert_eq!(found[..], records[..found.len()], "{compression:?} {length}");
            match end {
                Err(e) => assert_eq!(e.code(), Code::DataLoss, "{e}"),
                // A file that ends between two records is a shorter file.
                Ok(()) => assert!(compression == Compression::None || length == 0, "{length}"),
            }
        }
    }
}

#[test]
fn bad_records_are_passed_over_within_the_budget() {
    let records: Vec<Vec<u8>> = (0..20u8).map(|i| vec![i; 10 + usize::from(i)]).collect();
    let content = written(&records, Compression::None);
    let offsets: Vec<usize> = {
        let storage = Memory::with("f", &content);
        let index = Index::build(&storage, "f").unwrap();
        index.entries.iter().map(|e| e.offset as usize).collect()
    };
    let mut damaged = content.clone();
    // Data of record 3, the length of record 7, the length's checksum of record 8.
    damaged[offsets[3] + 13] ^= 1;
    damaged[offsets[7] + 2] ^= 1;
    damaged[offsets[8] + 9] ^= 1;
    damaged.truncate(content.len() - 5);
    let good: Vec<Vec<u8>> =
        (0..19usize).filter(|i| ![3, 7, 8].contains(i)).map(|i| records[i].clone()).collect();
    // Record 7 and 8 are one damaged place: nothing tells where the one ends.
    let allowing = |bad_records_max| ReadOptions { bad_records_max, ..Default::default() };
    let (found, end) = read(&damaged, allowing(3));
    end.unwrap();
    assert_eq!(found, good);
    let (found, end) = read(&damaged, allowing(2));
    assert_eq!(found, good);
    assert_eq!(end.unwrap_err().code(), Code::DataLoss);
    let (found, end) = read(&damaged, allowing(0));
    assert_eq!((found.len(), end.unwrap_err().code()), (3, Code::DataLoss));
    let mut reader = RecordReader::open(&Memory::with("f", &damaged), "f", allowing(9)).unwrap();
    while reader.next_record().unwrap().is_some() {}
    let places: Vec<u64> = reader.bad_records().iter().map(|bad| bad.offset).collect();
    assert_eq!(places, [offsets[3] as u64, offsets[7] as u64, offsets[19] as u64]);
    assert_eq!(reader.bad_records()[1].bytes as usize, offsets[9] - offsets[7]);
}

#[test]
fn an_index_leads_to_each_record() {
    let records = records();
    let storage = Memory::with("f", &written(&records, Compression::None));
    let index = Index::build(&storage, "f").unwrap();
    assert_eq!(Index::parse("i", &index.to_text()).unwrap(), index);
    let file = storage.open("f").unwrap();
    for (i, record) in records.iter().enumerate() {
        assert_eq!(&index.record(&*file, i).unwrap()[..], record);
    }
    assert_eq!(index.record(&*file, 4).unwrap_err().code(), Code::OutOfRange);
    for text in ["0", "a b", "1 2 3", "-1 5", "99999999999999999999 1"] {
        assert_eq!(Index::parse("i", text).unwrap_err().code(), Code::DataLoss, "{text}");
    }
    for text in ["0 18", "1 19", "0 99999", "18446744073709551615 30", "0 3"] {
        let wrong = Index::parse("i", text).unwrap();
        assert_eq!(wrong.record(&*file, 0).unwrap_err().code(), Code::DataLoss, "{text}");
    }
    let packed = Memory::with("f", &written(&records, Compression::Gzip));
    assert_eq!(Index::build(&packed, "f").unwrap_err().code(), Code::InvalidArgument);
}

/// A length with a good checksum that no file can hold costs no memory.
#[test]
fn huge_lengths_are_refused() {
    let length = (1u64 << 60).to_le_bytes();
    let mut content = length.to_vec();
    content.extend_from_slice(&thalweg_formats::masked_crc32c(&length).to_le_bytes());
    content.extend_from_slice(&[0; 100]);
    let (found, end) = read(&content, ReadOptions::default());
    assert_eq!((found.len(), end.unwrap_err().code()), (0, Code::DataLoss));
    let storage = Memory::default();
    let mut packed = RecordWriter::new(storage.create("f").unwrap(), Compression::Gzip);
    packed.write(&vec![0; 10_000]).unwrap();
    packed.finish().unwrap();
    let small = ReadOptions { record_bytes_max: 9_999, ..options(Compression::Gzip) };
    let (found, end) = read(&storage.content("f"), small);
    assert_eq!((found.len(), end.unwrap_err().code()), (0, Code::DataLoss));
}

#[test]
fn gzip_members_are_one_file() {
    let mut content = written(&[b"one".to_vec()], Compression::Gzip);
    content.extend(written(&[b"two".to_vec()], Compression::Gzip));
    let (found, end) = read(&content, options(Compression::Gzip));
    end.unwrap();
    assert_eq!(found, [b"one".to_vec(), b"two".to_vec()]);
}
