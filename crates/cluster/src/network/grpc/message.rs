//! A message as it comes in: the frames of a body, bounded, without the prefix.

use bytes::{Buf, Bytes};
use http_body::Body;
use http_body_util::BodyExt;
use thalweg_tensor::{Budget, Result, bail, ensure, err};

use super::gather::{Gather, Path};
use super::rope::Rope;

/// Compressed flag and length.
const PREFIX_LEN: usize = 5;
/// What a piece of a message costs besides its bytes: somebody may send them one by one.
const PIECE_BYTES: usize = 64;

/// What a message may take.
#[derive(Clone, Copy)]
pub struct Limits<'a> {
    /// Bytes of one message.
    pub message_bytes_max: usize,
    /// Bytes of all messages that are being received.
    pub incoming: &'a Budget,
}

/// A message of which a part is there.
pub(crate) struct Coming<'a> {
    limits: Limits<'a>,
    path: Path,
    /// What came before the prefix was whole.
    prefix: Rope,
    /// The message and its length, once the prefix is there.
    message: Option<(Gather, usize)>,
    /// Bytes taken from the budget.
    taken: usize,
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        self.limits.incoming.give_back(self.taken);
    }
}

impl<'a> Coming<'a> {
    /// Nothing yet of a message whose tensors are at `path`.
    pub(crate) fn new(limits: Limits<'a>, path: Path) -> Coming<'a> {
        Coming { limits, path, prefix: Rope::default(), message: None, taken: 0 }
    }

    /// The next bytes.
    pub(crate) fn push(&mut self, data: Bytes) -> Result<()> {
        let bytes = data.len() + PIECE_BYTES;
        self.limits.incoming.take(bytes)?;
        self.taken += bytes;
        if let Some((message, expected)) = &mut self.message {
            return push_into(message, *expected, data);
        }
        self.prefix.push(data);
        if self.prefix.remaining() >= PREFIX_LEN {
            let expected = read_prefix(&mut self.prefix, self.limits.message_bytes_max)?;
            let rest = self.prefix.copy_to_bytes(self.prefix.remaining());
            let mut message = Gather::new(self.path, expected);
            push_into(&mut message, expected, rest)?;
            self.message = Some((message, expected));
        }
        Ok(())
    }

    /// The message, if all of it came.
    pub(crate) fn finish(mut self) -> Result<Rope> {
        match self.message.take() {
            Some((message, expected)) if message.len() == expected => Ok(message.finish()),
            Some((message, expected)) => bail!(
                InvalidArgument,
                "the message ends after {} of {expected} bytes",
                message.len()
            ),
            None => bail!(InvalidArgument, "there is no message"),
        }
    }
}

fn push_into(message: &mut Gather, expected: usize, data: Bytes) -> Result<()> {
    ensure!(
        data.len() <= expected - message.len(),
        InvalidArgument,
        "there is more than one message"
    );
    message.push(data)
}

/// Reads the one message of a unary call.
pub async fn read<B>(mut body: B, limits: Limits<'_>, path: Path) -> Result<Rope>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let mut coming = Coming::new(limits, path);
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
