//! A request's message: the frames of its body, bounded, without the prefix.

use bytes::{Buf, Bytes};
use http_body::Body;
use http_body_util::BodyExt;
use thalweg_tensor::{Result, bail, ensure, err};

use super::rope::Rope;

/// Compressed flag and length.
const PREFIX_LEN: usize = 5;

/// Reads the one message of a unary call.
pub(crate) async fn read<B>(mut body: B, bytes_max: usize) -> Result<Rope>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let mut rope = Rope::default();
    let mut expected = None;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| err!(Cancelled, "the request broke off: {e}"))?;
        let Ok(data) = frame.into_data() else { continue };
        rope.push(data);
        if expected.is_none() && rope.remaining() >= PREFIX_LEN {
            expected = Some(read_prefix(&mut rope, bytes_max)?);
        }
        if let Some(expected) = expected {
            ensure!(
                rope.remaining() <= expected,
                InvalidArgument,
                "the request has more than one message"
            );
        }
    }
    match expected {
        Some(expected) if rope.remaining() == expected => Ok(rope),
        Some(expected) => {
            bail!(
                InvalidArgument,
                "the message ends after {} of {expected} bytes",
                rope.remaining()
            )
        }
        None => bail!(InvalidArgument, "the request has no message"),
    }
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
