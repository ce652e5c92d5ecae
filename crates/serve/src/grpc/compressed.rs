//! Messages that a client compressed: `grpc-encoding: gzip` or `deflate`.

use bytes::{Buf, Bytes};
use http_body::Body;
use http_body_util::BodyExt;
use thalweg_rpc::{ReceiveLimits, Rope};
use thalweg_tensor::{Result, ensure, err};

use crate::inflate::{Encoding, inflate};

/// Compressed flag and length.
const PREFIX_LEN: usize = 5;

/// The encoding of a request's headers; none if its messages are not compressed.
pub(super) fn encoding(headers: &http::HeaderMap) -> Result<Option<Encoding>> {
    match headers.get("grpc-encoding").map(http::HeaderValue::as_bytes) {
        None | Some(b"identity") => Ok(None),
        Some(name) => Encoding::named(name).map(Some).ok_or_else(|| {
            err!(
                Unimplemented,
                "messages compressed with {:?} are not supported; expected gzip or deflate",
                String::from_utf8_lossy(name)
            )
        }),
    }
}

/// Reads the one message of a unary call.
pub(super) async fn read<B>(
    mut body: B,
    limits: ReceiveLimits<'_>,
    encoding: Encoding,
) -> Result<Rope>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let mut taken = IncomingCharge { limits, bytes: 0 };
    let mut received = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| err!(Cancelled, "the request was cut off: {e}"))?;
        let Ok(data) = frame.into_data() else { continue };
        ensure!(
            received.len() + data.len() <= limits.message_bytes_max.saturating_add(PREFIX_LEN),
            ResourceExhausted,
            "the message has more than {} bytes",
            limits.message_bytes_max
        );
        taken.more(data.len())?;
        received.extend_from_slice(&data);
    }
    ensure!(
        received.len() >= PREFIX_LEN,
        InvalidArgument,
        "the call has no message; one is expected"
    );
    let mut message = Bytes::from(received);
    let is_compressed = message.get_u8() == 1;
    let len = message.get_u32() as usize;
    ensure!(
        len == message.len(),
        InvalidArgument,
        "the message should have {len} bytes, {} were received",
        message.len()
    );
    let plain = match is_compressed {
        false => message,
        true => {
            let what = ("the message", &message[..]);
            inflate(what, encoding, limits.message_bytes_max, |bytes| taken.more(bytes))?
        }
    };
    let mut rope = Rope::default();
    rope.push(plain);
    Ok(rope)
}

/// Bytes charged for the message that is being received.
struct IncomingCharge<'a> {
    limits: ReceiveLimits<'a>,
    bytes: usize,
}

impl IncomingCharge<'_> {
    fn more(&mut self, bytes: usize) -> Result<()> {
        self.limits.incoming.take(bytes)?;
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for IncomingCharge<'_> {
    fn drop(&mut self) {
        self.limits.incoming.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::Code;

    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use http_body_util::Full;
    use std::io::Write;
    use thalweg_tensor::Budget;

    fn receive(flag: u8, content: &[u8], max: usize) -> Result<Bytes> {
        let mut bytes = vec![flag];
        bytes.extend_from_slice(&(content.len() as u32).to_be_bytes());
        bytes.extend_from_slice(content);
        let budget = Budget::new(1 << 20);
        let limits = ReceiveLimits { message_bytes_max: max, incoming: &budget };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let body = Full::new(Bytes::from(bytes));
        let mut rope = runtime.block_on(read(body, limits, Encoding::Gzip))?;
        let len = rope.remaining();
        assert_eq!(budget.used_bytes(), 0);
        Ok(rope.copy_to_bytes(len))
    }

    #[test]
    fn messages_are_bounded() {
        let zipped = |len: usize| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(&vec![7; len]).unwrap();
            encoder.finish().unwrap()
        };
        assert_eq!(receive(1, &zipped(1000), 1000).unwrap(), vec![7; 1000]);
        assert_eq!(receive(0, b"plain", 1000).unwrap(), "plain");
        assert_eq!(
            receive(1, &zipped(1001), 1000).err().map(|e| e.code()),
            Some(Code::ResourceExhausted)
        );
        assert_eq!(
            receive(1, &zipped(4 << 20), usize::MAX / 2).err().map(|e| e.code()),
            Some(Code::ResourceExhausted)
        );
        assert_eq!(
            receive(1, b"no gzip", 1000).err().map(|e| e.code()),
            Some(Code::InvalidArgument)
        );
        assert_eq!(
            receive(0, &[0; 2000], 1000).err().map(|e| e.code()),
            Some(Code::ResourceExhausted)
        );
    }

    #[test]
    fn encodings_of_clients() {
        let mut headers = http::HeaderMap::new();
        assert_eq!(encoding(&headers).unwrap(), None);
        for (name, wanted) in [
            ("identity", None),
            ("gzip", Some(Encoding::Gzip)),
            ("deflate", Some(Encoding::Deflate)),
        ] {
            headers.insert("grpc-encoding", name.parse().unwrap());
            assert_eq!(encoding(&headers).unwrap(), wanted);
        }
        headers.insert("grpc-encoding", "zstd".parse().unwrap());
        assert_eq!(encoding(&headers).err().map(|e| e.code()), Some(Code::Unimplemented));
    }
}
