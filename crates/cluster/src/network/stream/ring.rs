//! Memory that two tasks of one machine share: large tensors go through it a slot at a time, copied in
//! and copied out, which takes less time than the way through a socket.
//!
//! The one who receives makes it and tells its number; the other opens it under that number among the
//! files of the process at the other end of the socket. Which slots are whose is said on the socket, so
//! nothing but bytes of tensors is ever read from this memory, and the end of a task is the end of its
//! socket. Whatever fails on the way to a ring, the socket takes its place.

use std::io;
use std::sync::Arc;

use super::frame::{Offer, SlotRange};
pub(super) use super::slot_set::{SLOTS, SlotSet};

/// Small enough that all slots stay in a cache.
pub(super) const SLOT_BYTES: usize = 512 << 10;
/// Of a whole ring.
pub(super) const BYTES: usize = SLOTS * SLOT_BYTES;
/// Tensors of this size are worth the memory of a ring.
pub(super) const WORTHWHILE_BYTES: u64 = 1 << 20;
/// What is smaller leaves by the socket: a slot has to be filled, named, read and freed.
pub(super) const PLACED_BYTES_MIN: usize = 64 << 10;

pub(super) use system::Ring;

/// Whether a ring has that place.
pub(super) fn has(place: SlotRange) -> bool {
    place.slot < SLOTS && place.count <= SLOT_BYTES
}

#[cfg(target_os = "linux")]
mod system {
    use std::ffi::CStr;
    use std::fs::{File, OpenOptions};
    use std::io;
    use std::os::fd::{AsRawFd, FromRawFd};
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
    use std::ptr::NonNull;

    use super::{BYTES, Offer, SLOT_BYTES, SlotRange, has};

    const NAME: &CStr = c"thalweg-ring";
    /// What the system calls such a file.
    const SHOWN_AS: &str = "/memfd:thalweg-ring (deleted)";
    /// Nobody can make it smaller: whoever touched a page that is gone would be killed.
    const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

    /// The slots, mapped.
    pub(in super::super) struct Ring {
        start: NonNull<u8>,
        offer: Offer,
        /// Open, so that the other process can open it.
        _file: File,
    }

    // SAFETY: the pages are reached through the ring alone in this process, and by any thread.
    unsafe impl Send for Ring {}

    impl Ring {
        /// A new one, all of whose memory is there.
        pub(in super::super) fn make() -> io::Result<Ring> {
            let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
            // SAFETY: the name ends with a zero byte.
            let number = check(unsafe { libc::memfd_create(NAME.as_ptr(), flags) })?;
            // SAFETY: the number is that of a new file, which nobody else has.
            let file = unsafe { File::from_raw_fd(number) };
            // SAFETY: this takes numbers only, of a file that is open.
            match unsafe { libc::posix_fallocate(number, 0, BYTES as libc::off_t) } {
                0 => {}
                code => return Err(io::Error::from_raw_os_error(code)),
            }
            // SAFETY: as above.
            check(unsafe { libc::fcntl(number, libc::F_ADD_SEALS, SEALS) })?;
            Ring::map(file)
        }

        /// The one that a process offers. Fails if there is anything else, which a namespace or a
        /// process with the same number could be the cause of.
        pub(in super::super) fn open(process: i32, offer: Offer) -> io::Result<Ring> {
            let path = format!("/proc/{process}/fd/{}", offer.number);
            // Anything else is not even opened.
            if std::fs::read_link(&path)?.as_os_str() != SHOWN_AS {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            let mut how = OpenOptions::new();
            let file = how.read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path)?;
            // SAFETY: this takes numbers only, of a file that is open.
            let seals = check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) })?;
            let about = file.metadata()?;
            if seals & SEALS != SEALS || (about.len(), about.ino()) != (BYTES as u64, offer.file) {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            Ring::map(file)
        }

        /// Of a file that has all bytes and keeps them.
        fn map(file: File) -> io::Result<Ring> {
            let number = file.as_raw_fd();
            let offer = Offer { number: number as u64, file: file.metadata()?.ino() };
            let may = libc::PROT_READ | libc::PROT_WRITE;
            let how = libc::MAP_SHARED | libc::MAP_POPULATE;
            // SAFETY: the system chooses the place, so no memory of ours is replaced.
            let start = unsafe { libc::mmap(std::ptr::null_mut(), BYTES, may, how, number, 0) };
            if start == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
            Ok(Ring { start, offer, _file: file })
        }

        /// Where another process finds it.
        pub(in super::super) fn offer(&self) -> Offer {
            self.offer
        }

        /// Copies into a slot, which has the room.
        pub(in super::super) fn write(&mut self, slot: usize, bytes: &[u8]) {
            assert!(has(SlotRange { slot, count: bytes.len() }), "a slot is as large as it is");
            // SAFETY: the slot lies within the mapped pages, which no reference of ours points to. The
            // other process may touch it only against the rules; then it gets other bytes, no more.
            unsafe {
                let target = self.start.as_ptr().add(slot * SLOT_BYTES);
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len());
            }
        }

        /// Copies out of a slot, which has as many bytes.
        pub(in super::super) fn read(&self, slot: usize, target: &mut [u8]) {
            assert!(has(SlotRange { slot, count: target.len() }), "a slot is as large as it is");
            // SAFETY: as for `write`; bytes may be anything.
            unsafe {
                let source = self.start.as_ptr().add(slot * SLOT_BYTES);
                std::ptr::copy_nonoverlapping(source, target.as_mut_ptr(), target.len());
            }
        }
    }

    impl Drop for Ring {
        fn drop(&mut self) {
            // SAFETY: these pages were mapped by `map`, and nothing points to them any more.
            unsafe { libc::munmap(self.start.as_ptr().cast(), BYTES) };
        }
    }

    fn check(result: libc::c_int) -> io::Result<libc::c_int> {
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
    }
}

/// Elsewhere the socket does it.
#[cfg(not(target_os = "linux"))]
mod system {
    use std::io;

    use super::Offer;

    /// There is none.
    pub(in super::super) enum Ring {}

    impl Ring {
        pub(in super::super) fn make() -> io::Result<Ring> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub(in super::super) fn open(_: i32, _: Offer) -> io::Result<Ring> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub(in super::super) fn offer(&self) -> Offer {
            match *self {}
        }

        pub(in super::super) fn write(&mut self, _: usize, _: &[u8]) {
            match *self {}
        }

        pub(in super::super) fn read(&self, _: usize, _: &mut [u8]) {
            match *self {}
        }
    }
}

/// The writing side's end: the slots, and which of them may be filled.
pub(super) struct Filling {
    ring: Ring,
    free: Arc<SlotSet>,
}

impl Filling {
    /// Of the ring that a process offers, all of whose slots are free; and these, so that others can
    /// say which are free again.
    pub(super) fn open(process: i32, offer: Offer) -> io::Result<(Filling, Arc<SlotSet>)> {
        let free = Arc::new(SlotSet::all());
        Ok((Filling { ring: Ring::open(process, offer)?, free: free.clone() }, free))
    }

    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// Copies the first of these bytes into a slot; none if all are taken.
    pub(super) fn fill(&mut self, bytes: &[u8]) -> Option<SlotRange> {
        let slot = self.free.take()?;
        let count = bytes.len().min(SLOT_BYTES);
        self.ring.write(slot, &bytes[..count]);
        Some(SlotRange { slot, count })
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn what_one_writes_the_other_reads() {
        let ours = Ring::make().unwrap();
        let mut theirs = Ring::open(std::process::id() as i32, ours.offer()).unwrap();
        for slot in 0..SLOTS {
            theirs.write(slot, &vec![slot as u8 + 1; SLOT_BYTES]);
        }
        drop(theirs);
        for slot in 0..SLOTS {
            let mut got = vec![0; SLOT_BYTES];
            ours.read(slot, &mut got);
            assert!(got.iter().all(|byte| *byte == slot as u8 + 1), "{slot}");
        }
    }

    /// A file that could shrink would kill whoever maps it, and a pipe would hold up who opens it.
    #[test]
    fn only_the_ring_that_is_meant_is_opened() {
        use std::os::fd::AsRawFd;
        use std::os::unix::fs::MetadataExt;
        let own = std::process::id() as i32;
        let kind = |offer: Offer| Ring::open(own, offer).err().map(|e| e.kind());
        let (end, _other) = io::pipe().unwrap();
        let executable = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
        // SAFETY: the name ends with a zero byte.
        let bare = unsafe {
            libc::memfd_create(
                c"thalweg-ring".as_ptr(),
                libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING,
            )
        };
        // SAFETY: the number is that of a new file.
        let bare = unsafe { <std::fs::File as std::os::fd::FromRawFd>::from_raw_fd(bare) };
        bare.set_len(BYTES as u64).unwrap();
        let bare_file = bare.metadata().unwrap().ino();
        let wrong = Some(io::ErrorKind::InvalidInput);
        for (number, file) in [
            (end.as_raw_fd(), 0),
            (executable.as_raw_fd(), executable.metadata().unwrap().ino()),
            (bare.as_raw_fd(), bare_file),
        ] {
            assert_eq!(kind(Offer { number: number as u64, file }), wrong);
        }
        let (ring, other) = (Ring::make().unwrap(), Ring::make().unwrap());
        assert_eq!(kind(Offer { file: other.offer().file, ..ring.offer() }), wrong, "another ring");
        assert_eq!(kind(ring.offer()), None);
        let nowhere = Offer { number: u64::MAX, file: 0 };
        assert_eq!(kind(nowhere), Some(io::ErrorKind::NotFound));
        assert!(Ring::open(0, ring.offer()).is_err(), "a process of another namespace");
    }

    /// Nobody who has the memory can take it away from under the other.
    #[test]
    fn a_ring_keeps_its_pages() {
        let ring = Ring::make().unwrap();
        let path = format!("/proc/self/fd/{}", ring.offer().number);
        let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        assert!(file.set_len(0).is_err() && file.set_len(BYTES as u64 + 1).is_err());
        let mut got = [1];
        ring.read(SLOTS - 1, &mut got);
        assert_eq!(got, [0]);
    }
}
