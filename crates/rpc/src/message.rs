//! Receiving one message: collects the data frames of a body, charged to a budget, without gRPC's prefix.

use bytes::{Buf, Bytes};
use http_body::Body;
use http_body_util::BodyExt;
use prost::Message;
use thalweg_tensor::{Budget, Result, bail, ensure, err};

use crate::gather::{FieldPath, Gather};
use crate::rope::Rope;

/// Compressed flag and length.
const PREFIX_LEN: usize = 5;
/// Overhead that is charged per data frame: a peer may send one byte in each.
const PIECE_BYTES: usize = 64;

/// Bounds on received messages.
#[derive(Clone, Copy)]
pub struct ReceiveLimits<'a> {
    /// Maximum size of a message in bytes.
    pub message_bytes_max: usize,
    /// Budget of all messages that are being received.
    pub incoming: &'a Budget,
}

/// A message that is being received.
pub(crate) struct MessageReader<'a> {
    limits: ReceiveLimits<'a>,
    path: FieldPath,
    /// Bytes received before the prefix was complete.
    prefix: Rope,
    /// The message and its announced length, once the prefix is complete.
    message: Option<(Gather, usize)>,
    /// Bytes charged to `limits.incoming`.
    charged: usize,
}

impl Drop for MessageReader<'_> {
    fn drop(&mut self) {
        self.limits.incoming.give_back(self.charged);
    }
}

impl<'a> MessageReader<'a> {
    /// An empty message whose tensors are at `path`.
    pub(crate) fn new(limits: ReceiveLimits<'a>, path: FieldPath) -> MessageReader<'a> {
        MessageReader { limits, path, prefix: Rope::default(), message: None, charged: 0 }
    }

    /// Takes the bytes of the next data frame.
    pub(crate) fn push(&mut self, data: Bytes) -> Result<()> {
        let bytes = data.len() + PIECE_BYTES;
        self.limits.incoming.take(bytes)?;
        self.charged += bytes;
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

    /// The message; an error if it is incomplete.
    pub(crate) fn finish(mut self) -> Result<Rope> {
        match self.message.take() {
            Some((message, expected)) if message.len() == expected => Ok(message.finish()),
            Some((message, expected)) => bail!(
                InvalidArgument,
                "the message ends after {} of {expected} bytes",
                message.len()
            ),
            None => bail!(InvalidArgument, "the call has no message; one is expected"),
        }
    }
}

fn push_into(message: &mut Gather, expected: usize, data: Bytes) -> Result<()> {
    ensure!(
        data.len() <= expected - message.len(),
        InvalidArgument,
        "the call has more than one message; one is expected"
    );
    message.push(data)
}

/// Reads the one message of a unary call, whose tensors are at `path`.
pub async fn read<B>(mut body: B, limits: ReceiveLimits<'_>, path: FieldPath) -> Result<Rope>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let mut reader = MessageReader::new(limits, path);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| err!(Cancelled, "the request was cut off: {e}"))?;
        if let Ok(data) = frame.into_data() {
            reader.push(data)?;
        }
    }
    reader.finish()
}

/// Messages with more bytes than this may hold very many fields: I/O threads should not decode them.
const LARGE_BYTES: usize = 1 << 20;

/// Whether decoding the message may take long enough to hold up an I/O thread.
pub fn is_large(rope: &Rope) -> bool {
    rope.remaining() >= LARGE_BYTES
}

/// Decodes a request.
pub fn decode<M: Message + Default>(rope: Rope) -> Result<M> {
    M::decode(rope).map_err(|e| err!(InvalidArgument, "the message cannot be decoded: {e}"))
}

/// Decodes a response.
pub fn decode_response<M: Message + Default>(rope: Rope) -> Result<M> {
    M::decode(rope).map_err(|e| err!(DataLoss, "the response cannot be decoded: {e}"))
}

fn read_prefix(rope: &mut Rope, bytes_max: usize) -> Result<usize> {
    let compressed = rope.get_u8();
    ensure!(compressed == 0, Unimplemented, "compressed messages are not supported");
    let len = rope.get_u32() as usize;
    ensure!(
        len <= bytes_max,
        ResourceExhausted,
        "the message has {len} bytes; at most {bytes_max} are accepted"
    );
    Ok(len)
}
