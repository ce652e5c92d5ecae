//! Strings whose memory is charged to a budget.
//!
//! A string of up to [`SHORT_STRING_BYTES`] is paid for by every tensor element that holds it (see
//! [`Slot`]). A longer one carries its charge with it: clones and slices share memory and charge, and
//! the charge ends with the last of them.

use std::sync::Arc;

use bytes::Bytes;

use crate::{Budget, Charge, ResourceHandle, Result, VariantValue, err};

/// The longest string that the charge of an element covers.
pub const SHORT_STRING_BYTES: usize = 32;

/// An element that is an object.
pub(crate) trait Slot {
    /// What a tensor is charged for one element: the handle and the memory of a small object with the
    /// overhead of its allocation.
    const BYTES: usize;
}

impl Slot for Bytes {
    const BYTES: usize = size_of::<Bytes>() + SHORT_STRING_BYTES + 32;
}

impl Slot for ResourceHandle {
    const BYTES: usize = size_of::<ResourceHandle>();
}

impl Slot for VariantValue {
    const BYTES: usize = size_of::<VariantValue>() + 112;
}

/// Memory of a string and the charge for it.
struct Charged<T> {
    content: T,
    _charge: Charge,
}

impl<T: AsRef<[u8]>> AsRef<[u8]> for Charged<T> {
    fn as_ref(&self) -> &[u8] {
        self.content.as_ref()
    }
}

/// A string that holds `charge` until its last clone or slice is dropped.
pub fn with_charge(content: impl AsRef<[u8]> + Send + 'static, charge: Charge) -> Bytes {
    Bytes::from_owner(Charged { content, _charge: charge })
}

/// A copy of `content` as a string that is charged to `budget`, before it is copied.
pub fn copy_string(content: &[u8], budget: &Arc<Budget>) -> Result<Bytes> {
    if content.len() <= SHORT_STRING_BYTES {
        return Ok(Bytes::copy_from_slice(content));
    }
    let charge = Charge::new(budget, content.len())?;
    let mut copy = Vec::new();
    reserve(&mut copy, content.len())?;
    copy.extend_from_slice(content);
    Ok(with_charge(copy, charge))
}

/// `content` as a string that is charged to `budget`.
pub fn charge_string(content: Vec<u8>, budget: &Arc<Budget>) -> Result<Bytes> {
    if content.len() <= SHORT_STRING_BYTES {
        return Ok(content.into());
    }
    let charge = Charge::new(budget, content.capacity())?;
    Ok(with_charge(content, charge))
}

/// Bytes that are appended one after the other and become strings; memory is charged before it is
/// allocated.
#[derive(Debug)]
pub struct StringBuilder {
    content: Vec<u8>,
    /// Pays for the capacity of `content`.
    charge: Charge,
}

impl StringBuilder {
    /// An empty builder that charges `budget`.
    pub fn new(budget: &Arc<Budget>) -> StringBuilder {
        StringBuilder { content: Vec::new(), charge: Charge::empty(budget) }
    }

    /// The budget that is charged.
    pub fn budget(&self) -> &Arc<Budget> {
        self.charge.budget()
    }

    /// Appends `bytes`.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) -> Result<()> {
        self.reserve(bytes.len())?;
        self.content.extend_from_slice(bytes);
        Ok(())
    }

    /// Appends `byte`, `count` times.
    pub fn push_repeated(&mut self, byte: u8, count: usize) -> Result<()> {
        self.reserve(count)?;
        self.content.resize(self.content.len() + count, byte);
        Ok(())
    }

    /// Appends `value` as `Display` formats it.
    pub fn print(&mut self, value: impl std::fmt::Display) -> Result<()> {
        use std::fmt::Write;
        write!(self, "{value}").map_err(|_| err!(ResourceExhausted, "out of memory for a string"))
    }

    /// Allocates memory for `more` bytes.
    #[inline]
    pub fn reserve(&mut self, more: usize) -> Result<()> {
        if more <= self.content.capacity() - self.content.len() { Ok(()) } else { self.grow(more) }
    }

    #[cold]
    fn grow(&mut self, more: usize) -> Result<()> {
        let len = self.content.len();
        let wanted = len.saturating_add(more);
        let capacity =
            wanted.max(self.content.capacity().saturating_mul(2)).max(SHORT_STRING_BYTES);
        // Both copies exist while the content moves.
        let mut charge = Charge::new(self.budget(), capacity)?;
        reserve(&mut self.content, capacity - len)?;
        std::mem::swap(&mut self.charge, &mut charge);
        Ok(())
    }

    /// The bytes so far.
    pub fn as_bytes(&self) -> &[u8] {
        &self.content
    }

    /// The bytes so far, for writing.
    pub fn as_mut_bytes(&mut self) -> &mut [u8] {
        &mut self.content
    }

    /// The bytes so far as a string with a charge of its own; the builder is empty afterwards. The
    /// memory moves into the string if the string fills most of it, and is reused otherwise.
    pub fn take(&mut self) -> Result<Bytes> {
        let (len, capacity) = (self.content.len(), self.content.capacity());
        if len > SHORT_STRING_BYTES && len >= capacity - capacity / 4 {
            let charge = self.charge.split(capacity);
            return Ok(with_charge(std::mem::take(&mut self.content), charge));
        }
        let string = copy_string(&self.content, self.budget())?;
        self.content.clear();
        Ok(string)
    }
}

impl std::fmt::Write for StringBuilder {
    fn write_str(&mut self, s: &str) -> std::fmt::Result {
        self.push(s.as_bytes()).map_err(|_| std::fmt::Error)
    }
}

fn reserve(content: &mut Vec<u8>, more: usize) -> Result<()> {
    content
        .try_reserve_exact(more)
        .map_err(|_| err!(ResourceExhausted, "out of memory for a string of {more} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;

    #[test]
    fn clones_and_slices_share_one_charge() {
        let budget = Budget::new(1000);
        let string = copy_string(&[7; 400], &budget).unwrap();
        let part = string.clone().slice(10..20);
        assert_eq!(budget.used_bytes(), 400);
        assert_eq!(copy_string(&[7; 601], &budget).unwrap_err().code(), Code::ResourceExhausted);
        drop(string);
        assert_eq!((budget.used_bytes(), &part[..]), (400, &[7; 10][..]));
        drop(part);
        assert_eq!(budget.used_bytes(), 0);
        assert_eq!(copy_string(b"short", &budget).unwrap(), "short");
        assert_eq!(budget.used_bytes(), 0);
    }

    #[test]
    fn a_builder_charges_before_it_grows() {
        let budget = Budget::new(1000);
        let mut text = StringBuilder::new(&budget);
        text.push(b"abc").unwrap();
        text.push_repeated(b'-', 2).unwrap();
        text.print(7).unwrap();
        assert_eq!(text.as_bytes(), b"abc--7");
        assert_eq!(text.push_repeated(0, 2000).unwrap_err().code(), Code::ResourceExhausted);
        let e = text.push_repeated(0, usize::MAX).unwrap_err();
        assert_eq!(e.code(), Code::ResourceExhausted);
        assert_eq!(text.take().unwrap(), "abc--7");
        assert_eq!(text.as_bytes(), b"");
        text.push(&[b'x'; 300]).unwrap();
        let long = text.take().unwrap();
        drop(text);
        assert!(budget.used_bytes() >= 300 && long.len() == 300);
        drop(long);
        assert_eq!(budget.used_bytes(), 0);
    }
}
