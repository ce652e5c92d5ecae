//! A message as it comes in: the frames of a body, bounded, without the prefix.

use bytes::{Buf, Bytes};
use http_body::Body;
use http_body_util::BodyExt;
use thalweg_tensor::{Budget, Result, bail, ensure, err};

use super::rope::Rope;

/// Compressed flag and length.
const PREFIX_LEN: usize = 5;
/// What a piece of a message costs besides its bytes: somebody may send them one by one.
const PIECE_BYTES: usize = 64;

/// What a message may take.
#[derive(Clone, Copy)]
pub(crate) struct Limits<'a> {
    /// Bytes of one message.
    pub(crate) message_bytes_max: usize,
    /// Bytes of all messages that are being received.
    pub(crate) incoming: &'a Budget,
}

/// A message of which a part is there.
pub(crate) struct Coming<'a> {
    limits: Limits<'a>,
    rope: Rope,
    /// The length, once the prefix is there.
    expected: Option<usize>,
    /// Bytes taken from the budget.
    taken: usize,
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        self.limits.incoming.give_back(self.taken);
    }
}

impl<'a> Coming<'a> {
    /// Nothing yet.
    pub(crate) fn new(limits: Limits<'a>) -> Coming<'a> {
        Coming { limits, rope: Rope::default(), expected: None, taken: 0 }
    }

    /// The next bytes.
    pub(crate) fn push(&mut self, data: Bytes) -> Result<()> {
        let bytes = data.len() + PIECE_BYTES;
        self.limits.incoming.take(bytes)?;
        self.taken += bytes;
        self.rope.push(data);
        if self.expected.is_none() && self.rope.remaining() >= PREFIX_LEN {
            self.expected = Some(read_prefix(&mut self.rope, self.limits.message_bytes_max)?);
        }
        ensure!(
            self.expected.is_none_or(|expected| self.rope.remaining() <= expected),
            InvalidArgument,
            "there is more than one message"
        );
        Ok(())
    }

    /// The message, if all of it came.
    pub(crate) fn finish(mut self) -> Result<Rope> {
        let rope = std::mem::take(&mut self.rope);
        match self.expected {
            Some(expected) if rope.remaining() == expected => Ok(rope),
            Some(expected) => bail!(
                InvalidArgument,
                "the message ends after {} of {expected} bytes",
                rope.remaining()
            ),
            None => bail!(InvalidArgument, "there is no message"),
        }
    }
}

/// Reads the one message of a unary call.
pub(crate) async fn read<B>(mut body: B, limits: Limits<'_>) -> Result<Rope>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let mut coming = Coming::new(limits);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| err!(Cancelled, "the request broke off: {e}"))?;
        if let Ok(data) = frame.into_data() {
            coming.push(data)?;
        }
    }
    coming.finish()
}

fn read_prefix(rope: &mut Rope, bytes_max: usize) -> Result<usize> {
    let compressed = rope.get_u8();
    ensure!(compressed == 0, Unimplemented, "compressed messages are not supported");
    let len = rope.get_u32() as usize;
    ensure!(
        len <= bytes_max,
        ResourceExhausted,
        "the message has {len} bytes; at most {bytes_max} are taken"
    );
    Ok(len)
}
