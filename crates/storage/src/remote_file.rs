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
const KEPT_MAX: usize = 4;

/// A range request in flight.
pub(crate) type Fetching = Pin<Box<dyn Future<Output = Result<Bytes>> + Send>>;

/// A remote file.
pub(crate) trait Ranges: Send + Sync + 'static {
    /// Fetches `bytes` bytes from offset `begin`, which the file has.
    fn fetch(self: Arc<Self>, begin: u64, bytes: usize) -> Fetching;
}

/// A remote file, open for reading.
pub(crate) struct RemoteFile<R> {
    path: String,
    size: u64,
    source: Arc<R>,
    driver: Driver,
    ahead: Mutex<Ahead>,
}

#[derive(Default)]
struct Ahead {
    kept: VecDeque<Range>,
    /// The offset at which a sequential reader reaches the end of the cached ranges.
    next: u64,
    /// The number of consecutive sequential reads.
    in_order: u32,
    /// The range request from there on.
    coming: Option<Coming>,
}

struct Range {
    begin: u64,
    content: Bytes,
}

struct Coming {
    begin: u64,
    bytes: usize,
    content: Pending<Bytes>,
}

impl<R: Ranges> RemoteFile<R> {
    pub(crate) fn new(path: &str, size: u64, source: R, driver: Driver) -> RemoteFile<R> {
        let (path, source) = (path.to_owned(), Arc::new(source));
        RemoteFile { path, size, source, driver, ahead: Mutex::default() }
    }

    fn start(&self, begin: u64, bytes: usize) -> Coming {
        let content = self.driver.start(self.source.clone().fetch(begin, bytes));
        Coming { begin, bytes, content }
    }

    fn wait(&self, coming: Coming) -> Result<Range> {
        let Coming { begin, bytes, content } = coming;
        let content = content.wait()?;
        ensure!(
            content.len() == bytes,
            DataLoss,
            "{}: {bytes} bytes were asked for at {begin}, {} came",
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
        let mut coming: VecDeque<Coming> = to_start.by_ref().take(PIECES_MAX).collect();
        for piece in target.chunks_mut(PIECE_BYTES) {
            let first = coming.pop_front().expect("one is begun for each that is taken");
            piece.copy_from_slice(&self.wait(first)?.content);
            coming.extend(to_start.next());
        }
        Ok(())
    }

    /// Copies cached bytes from `offset` on; returns their number.
    fn copy_kept(&self, offset: u64, target: &mut [u8]) -> usize {
        let ahead = self.ahead.lock();
        let holds = |r: &&Range| r.begin <= offset && offset - r.begin < r.content.len() as u64;
        let Some(range) = ahead.kept.iter().find(holds) else { return 0 };
        let rest = &range.content[(offset - range.begin) as usize..];
        let read = rest.len().min(target.len());
        target[..read].copy_from_slice(&rest[..read]);
        read
    }

    /// Fetches a range that is not cached, and starts the read-ahead of the next one.
    fn fetch_kept(&self, offset: u64, wanted: usize) -> Result<()> {
        let (coming, in_order) = self.take_or_start(offset, wanted);
        let range = self.wait(coming)?;
        let mut ahead = self.ahead.lock();
        let end = range.begin + range.content.len() as u64;
        if ahead.kept.len() == KEPT_MAX {
            ahead.kept.pop_front();
        }
        ahead.kept.push_back(range);
        (ahead.next, ahead.in_order) = (end, in_order);
        let rest = self.rest(end);
        // One read says nothing; a second where the first ended does.
        if in_order >= 1 && rest > 0 {
            let bytes = (FIRST_BYTES << in_order.min(8)).min(AHEAD_BYTES_MAX).min(rest);
            ahead.coming = Some(self.start(end, bytes));
        }
        Ok(())
    }

    /// The request for the range with `offset`, and the number of sequential reads before it.
    fn take_or_start(&self, offset: u64, wanted: usize) -> (Coming, u32) {
        let mut ahead = self.ahead.lock();
        let in_order = if offset == ahead.next && offset > 0 { ahead.in_order + 1 } else { 0 };
        let holds = |c: &Coming| c.begin <= offset && offset - c.begin < c.bytes as u64;
        if ahead.coming.as_ref().is_some_and(holds)
            && let Some(coming) = ahead.coming.take()
        {
            return (coming, in_order.max(1));
        }
        let bytes = wanted.max(FIRST_BYTES).min(self.rest(offset));
        (self.start(offset, bytes), in_order)
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
            match self.copy_kept(at, &mut target[read..]) {
                0 => self.fetch_kept(at, wanted - read)?,
                copied => read += copied,
            }
        }
        Ok(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_tensor::err;

    /// Remembers what was asked for; fails from some place on.
    struct Counted(Asked, u64);

    type Asked = Arc<Mutex<Vec<(u64, usize)>>>;

    impl Ranges for Counted {
        fn fetch(self: Arc<Self>, begin: u64, bytes: usize) -> Fetching {
            self.0.lock().push((begin, bytes));
            Box::pin(async move {
                if begin >= self.1 {
                    return Err(err!(Unavailable, "no further"));
                }
                Ok(content(begin, bytes).into())
            })
        }
    }

    /// What the file has there: the same again only after a prime number of bytes.
    fn content(begin: u64, bytes: usize) -> Vec<u8> {
        const PERIOD: u64 = 65_537;
        let period: Vec<u8> = (0..PERIOD).map(|i| (i * i % 251) as u8).collect();
        let skipped = (begin % PERIOD) as usize;
        let mut content = period.repeat((skipped + bytes) / PERIOD as usize + 1);
        content.truncate(skipped + bytes);
        content.split_off(skipped)
    }

    fn file(size: u64, fails_at: u64) -> (RemoteFile<Counted>, Asked) {
        let asked = Arc::new(Mutex::default());
        let source = Counted(Arc::clone(&asked), fails_at);
        (RemoteFile::new("x://y", size, source, Driver::new().unwrap()), asked)
    }

    fn check(file: &RemoteFile<Counted>, offset: u64, bytes: usize) {
        let mut target = vec![0; bytes];
        let read = file.read_at(offset, &mut target).unwrap();
        assert_eq!(read, bytes.min(file.rest(offset)));
        assert!(target[..read] == content(offset, read), "{read} bytes at {offset}");
    }

    #[test]
    fn small_reads_in_order_take_few_requests() {
        let size = 40 << 20;
        let (file, asked) = file(size, u64::MAX);
        for begin in (0..size).step_by(100_000) {
            check(&file, begin, 100_000);
        }
        check(&file, size, 10);
        let asked = asked.lock();
        assert!(asked.len() < 15, "{asked:?}");
        assert!(asked.iter().all(|&(begin, bytes)| begin + bytes as u64 <= size));
    }

    #[test]
    fn reads_here_and_there_fetch_no_more_than_they_need() {
        let (file, asked) = file(1 << 30, u64::MAX);
        for i in 0..20u64 {
            check(&file, (i * 7919 * 104_729) % (1 << 30), 1000);
        }
        let asked = asked.lock();
        assert_eq!(asked.len(), 20);
        assert!(asked.iter().all(|&(_, bytes)| bytes <= FIRST_BYTES), "{asked:?}");
    }

    #[test]
    fn large_reads_come_in_pieces() {
        let (file, asked) = file(100 << 20, u64::MAX);
        check(&file, 5, 90 << 20);
        check(&file, 99 << 20, 2 << 20);
        assert_eq!(asked.lock().len(), 12 + 1);
    }

    #[test]
    fn failures_are_told_and_cost_nothing_else() {
        let (file, _) = file(100 << 20, 50 << 20);
        assert!(file.read_at(0, &mut vec![0; 80 << 20]).is_err());
        assert!(file.read_at(51 << 20, &mut [0; 10]).is_err());
        check(&file, 1000, 10);
        // What was begun ahead and failed is told to who comes to it.
        for begin in ((48 << 20)..(50 << 20)).step_by(100_000) {
            check(&file, begin, 50_000);
        }
    }
}
