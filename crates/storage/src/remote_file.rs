//! Remote files read by ranges: large reads in parallel pieces, small ones with read-ahead.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use thalweg_formats::storage::ReadAt;
use thalweg_tensor::{Result, ensure};

use crate::driver::{Driver, Pending};

/// The minimum size of reads that bypass the read-ahead and are fetched in pieces of
/// [`PIECE_BYTES`].
const LARGE_BYTES: usize = 4 << 20;
/// The size of a piece, one request.
const PIECE_BYTES: usize = 8 << 20;
/// The maximum number of concurrent pieces of one read.
const PIECES_MAX: usize = 8;
/// The size of the first read-ahead; it grows with sequential reads.
const FIRST_BYTES: usize = 256 << 10;
/// The maximum size of a read-ahead.
const AHEAD_BYTES_MAX: usize = 8 << 20;
/// The number of cached ranges.
const CACHED_RANGES_MAX: usize = 4;

/// A range request in flight.
pub(crate) type RangeFuture = Pin<Box<dyn Future<Output = Result<Bytes>> + Send>>;

/// Range reads of a remote file.
pub(crate) trait Ranges: Send + Sync + 'static {
    /// Fetches `bytes` bytes from offset `begin`, which the file has.
    fn fetch(self: Arc<Self>, begin: u64, bytes: usize) -> RangeFuture;
}

/// A remote file, open for reading.
pub(crate) struct RemoteFile<R> {
    path: String,
    size: u64,
    source: Arc<R>,
    driver: Driver,
    cache: Mutex<ReadCache>,
}

#[derive(Default)]
struct ReadCache {
    ranges: VecDeque<Range>,
    /// The offset at which a sequential reader reaches the end of the cached ranges.
    next: u64,
    /// The number of consecutive sequential reads.
    sequential_reads: u32,
    /// The read-ahead request from `next` on.
    pending: Option<PendingRange>,
}

struct Range {
    begin: u64,
    content: Bytes,
}

struct PendingRange {
    begin: u64,
    bytes: usize,
    content: Pending<Bytes>,
}

impl<R: Ranges> RemoteFile<R> {
    pub(crate) fn new(path: &str, size: u64, source: R, driver: Driver) -> RemoteFile<R> {
        let (path, source) = (path.to_owned(), Arc::new(source));
        RemoteFile { path, size, source, driver, cache: Mutex::default() }
    }

    fn start(&self, begin: u64, bytes: usize) -> PendingRange {
        let content = self.driver.start(self.source.clone().fetch(begin, bytes));
        PendingRange { begin, bytes, content }
    }

    fn wait(&self, pending: PendingRange) -> Result<Range> {
        let PendingRange { begin, bytes, content } = pending;
        let content = content.wait()?;
        ensure!(
            content.len() == bytes,
            DataLoss,
            "{}: requested {bytes} bytes at offset {begin}, received {}",
            self.path,
            content.len()
        );
        Ok(Range { begin, content })
    }

    fn read_large(&self, offset: u64, target: &mut [u8]) -> Result<()> {
        let sizes: Vec<usize> = target.chunks(PIECE_BYTES).map(<[u8]>::len).collect();
        let mut begin = offset;
        let mut to_start = sizes.into_iter().map(|bytes| {
            begin += bytes as u64;
            self.start(begin - bytes as u64, bytes)
        });
        let mut pending: VecDeque<PendingRange> = to_start.by_ref().take(PIECES_MAX).collect();
        for piece in target.chunks_mut(PIECE_BYTES) {
            let first = pending.pop_front().expect("a request is started for each piece");
            piece.copy_from_slice(&self.wait(first)?.content);
            pending.extend(to_start.next());
        }
        Ok(())
    }

    /// Copies cached bytes from `offset` on; returns their number.
    fn copy_cached(&self, offset: u64, target: &mut [u8]) -> usize {
        let cache = self.cache.lock();
        let holds = |r: &&Range| r.begin <= offset && offset - r.begin < r.content.len() as u64;
        let Some(range) = cache.ranges.iter().find(holds) else { return 0 };
        let rest = &range.content[(offset - range.begin) as usize..];
        let read = rest.len().min(target.len());
        target[..read].copy_from_slice(&rest[..read]);
        read
    }

    /// Fetches a range that is not cached, and starts the read-ahead of the next one.
    fn fetch_uncached(&self, offset: u64, wanted: usize) -> Result<()> {
        let (pending, sequential_reads) = self.take_or_start(offset, wanted);
        let range = self.wait(pending)?;
        let mut cache = self.cache.lock();
        let end = range.begin + range.content.len() as u64;
        if cache.ranges.len() == CACHED_RANGES_MAX {
            cache.ranges.pop_front();
        }
        cache.ranges.push_back(range);
        (cache.next, cache.sequential_reads) = (end, sequential_reads);
        let rest = self.rest(end);
        // Read-ahead starts with the second sequential read.
        if sequential_reads >= 1 && rest > 0 {
            let bytes = (FIRST_BYTES << sequential_reads.min(8)).min(AHEAD_BYTES_MAX).min(rest);
            cache.pending = Some(self.start(end, bytes));
        }
        Ok(())
    }

    /// The request for the range with `offset`, and the number of sequential reads before it.
    fn take_or_start(&self, offset: u64, wanted: usize) -> (PendingRange, u32) {
        let mut cache = self.cache.lock();
        let sequential_reads =
            if offset == cache.next && offset > 0 { cache.sequential_reads + 1 } else { 0 };
        let holds = |c: &PendingRange| c.begin <= offset && offset - c.begin < c.bytes as u64;
        if cache.pending.as_ref().is_some_and(holds)
            && let Some(pending) = cache.pending.take()
        {
            return (pending, sequential_reads.max(1));
        }
        let bytes = wanted.max(FIRST_BYTES).min(self.rest(offset));
        (self.start(offset, bytes), sequential_reads)
    }

    fn rest(&self, offset: u64) -> usize {
        usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX)
    }
}

impl<R: Ranges> ReadAt for RemoteFile<R> {
    fn path(&self) -> &str {
        &self.path
    }

    fn size(&self) -> Result<u64> {
        Ok(self.size)
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<usize> {
        let wanted = target.len().min(self.rest(offset));
        let target = &mut target[..wanted];
        if wanted >= LARGE_BYTES {
            self.read_large(offset, target)?;
            return Ok(wanted);
        }
        let mut read = 0;
        while read < wanted {
            let at = offset + read as u64;
            match self.copy_cached(at, &mut target[read..]) {
                0 => self.fetch_uncached(at, wanted - read)?,
                copied => read += copied,
            }
        }
        Ok(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_tensor::{Code, err};

    /// Records the requested ranges; fails from an offset on.
    struct RecordingSource(Requests, u64);

    type Requests = Arc<Mutex<Vec<(u64, usize)>>>;

    impl Ranges for RecordingSource {
        fn fetch(self: Arc<Self>, begin: u64, bytes: usize) -> RangeFuture {
            self.0.lock().push((begin, bytes));
            Box::pin(async move {
                if begin >= self.1 {
                    return Err(err!(Unavailable, "no further"));
                }
                Ok(content(begin, bytes).into())
            })
        }
    }

    /// The file's content: periodic with a prime period, so that a wrong offset is detected.
    fn content(begin: u64, bytes: usize) -> Vec<u8> {
        const PERIOD: u64 = 65_537;
        let period: Vec<u8> = (0..PERIOD).map(|i| (i * i % 251) as u8).collect();
        let skipped = (begin % PERIOD) as usize;
        let mut content = period.repeat((skipped + bytes) / PERIOD as usize + 1);
        content.truncate(skipped + bytes);
        content.split_off(skipped)
    }

    fn file(size: u64, fails_at: u64) -> (RemoteFile<RecordingSource>, Requests) {
        let requests = Arc::new(Mutex::default());
        let source = RecordingSource(Arc::clone(&requests), fails_at);
        (RemoteFile::new("x://y", size, source, Driver::new().unwrap()), requests)
    }

    fn check(file: &RemoteFile<RecordingSource>, offset: u64, bytes: usize) {
        let mut target = vec![0; bytes];
        let read = file.read_at(offset, &mut target).unwrap();
        assert_eq!(read, bytes.min(file.rest(offset)));
        assert!(target[..read] == content(offset, read), "{read} bytes at {offset}");
    }

    #[test]
    fn sequential_small_reads_take_few_requests() {
        let size = 40 << 20;
        let (file, requests) = file(size, u64::MAX);
        for begin in (0..size).step_by(100_000) {
            check(&file, begin, 100_000);
        }
        check(&file, size, 10);
        let requests = requests.lock();
        assert!(requests.len() < 15, "{requests:?}");
        assert!(requests.iter().all(|&(begin, bytes)| begin + bytes as u64 <= size));
    }

    #[test]
    fn random_reads_fetch_no_read_ahead() {
        let (file, requests) = file(1 << 30, u64::MAX);
        for i in 0..20u64 {
            check(&file, (i * 7919 * 104_729) % (1 << 30), 1000);
        }
        let requests = requests.lock();
        assert_eq!(requests.len(), 20);
        assert!(requests.iter().all(|&(_, bytes)| bytes <= FIRST_BYTES), "{requests:?}");
    }

    #[test]
    fn large_reads_are_split_into_pieces() {
        let (file, requests) = file(100 << 20, u64::MAX);
        check(&file, 5, 90 << 20);
        check(&file, 99 << 20, 2 << 20);
        assert_eq!(requests.lock().len(), 12 + 1);
    }

    #[test]
    fn failed_ranges_fail_only_their_readers() {
        let (file, _) = file(100 << 20, 50 << 20);
        for (offset, bytes) in [(0, 80 << 20), (51 << 20, 10)] {
            let e = file.read_at(offset, &mut vec![0; bytes]).unwrap_err();
            assert_eq!((e.code(), e.message()), (Code::Unavailable, "no further"));
        }
        check(&file, 1000, 10);
        // A failed read-ahead fails only a read that reaches it.
        for begin in ((48 << 20)..(50 << 20)).step_by(100_000) {
            check(&file, begin, 50_000);
        }
    }
}
