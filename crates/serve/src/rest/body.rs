//! HTTP bodies: size limits and compression.

use std::io::Write;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use flate2::Compression;
use flate2::write::GzEncoder;
use http::HeaderMap;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING};
use http_body::Body;
use http_body_util::BodyExt;
use thalweg_tensor::{Budget, Result, bail, ensure, err};

use super::on_large;
use crate::growing::GrowingCharge;
use crate::inflate::{Encoding, inflate};

/// Shorter answers are not compressed.
const GZIP_BYTES_MIN: usize = 1024;

/// A body with its memory charge.
pub(super) struct Received {
    pub(super) bytes: Bytes,
    _room: GrowingCharge,
}

/// Reads a body of at most `bytes_max` bytes, decompressed.
pub(super) async fn read<B>(
    mut body: B,
    headers: &HeaderMap,
    bytes_max: usize,
    incoming: &Arc<Budget>,
) -> Result<Received>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    // A Content-Length beyond the limit is rejected before the body is read.
    let claimed = body.size_hint().lower();
    if claimed > bytes_max as u64 {
        discard(body, claimed, bytes_max).await;
        bail!(
            ResourceExhausted,
            "the request has {claimed} bytes; at most {bytes_max} are accepted"
        );
    }
    let mut bytes = BytesMut::new();
    let mut charge = GrowingCharge::new(incoming);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| err!(Cancelled, "the request was cut off: {e}"))?;
        let Ok(data) = frame.into_data() else { continue };
        ensure!(
            data.len() <= bytes_max - bytes.len(),
            ResourceExhausted,
            "the request has more than {bytes_max} bytes"
        );
        // Charged as the buffer grows, which doubles.
        if bytes.capacity() - bytes.len() < data.len() {
            charge.add(data.len().max(bytes.len()))?;
        }
        bytes.extend_from_slice(&data);
    }
    let bytes = bytes.freeze();
    let coding = headers.get(CONTENT_ENCODING).map_or(&b""[..], http::HeaderValue::as_bytes);
    let bytes = match &*coding.to_ascii_lowercase() {
        b"" | b"identity" => bytes,
        name => {
            let Some(encoding) = Encoding::named(name) else {
                bail!(
                    InvalidArgument,
                    "Content-Encoding {:?} is not supported; expected gzip or deflate",
                    String::from_utf8_lossy(name)
                )
            };
            return on_large(bytes.len(), move || {
                let take = |bytes| charge.add(bytes);
                let bytes = inflate(("the request", &bytes), encoding, bytes_max, take)?;
                Ok(Received { bytes, _room: charge })
            })
            .await;
        }
    };
    Ok(Received { bytes, _room: charge })
}

/// Reads and drops the rest of a body that is slightly too large: most clients read an answer only
/// after they have sent everything.
async fn discard<B>(mut body: B, claimed: u64, bytes_max: usize)
where
    B: Body<Data = Bytes> + Unpin,
{
    if claimed / 2 <= bytes_max as u64 {
        while let Some(Ok(_)) = body.frame().await {}
    }
}

/// Whether the client accepts a compressed answer.
pub(super) fn accepts_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT_ENCODING);
    let text = accepted.iter().filter_map(|v| v.to_str().ok());
    text.flat_map(|v| v.split(',')).any(|item| {
        let (name, parameters) = item.split_once(';').unwrap_or((item, ""));
        let refused = parameters.trim().replace(' ', "").starts_with("q=0");
        let refused = refused && !parameters.contains("0.");
        matches!(&*name.trim().to_ascii_lowercase(), "gzip" | "*") && !refused
    })
}

/// The body compressed, if that makes it smaller.
pub(super) fn compressed(body: &[u8]) -> Option<Bytes> {
    if body.len() < GZIP_BYTES_MIN {
        return None;
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(body).ok()?;
    encoder.finish().ok().map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::Code;

    use super::*;
    use flate2::write::ZlibEncoder;
    use http_body_util::Full;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    fn receive(bytes: &[u8], encoding: &'static str, max: usize) -> Result<Bytes> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_ENCODING, encoding.parse().unwrap());
        let budget = Budget::new(1 << 20);
        let body = Full::new(Bytes::copy_from_slice(bytes));
        let received = block_on(read(body, &headers, max, &budget))?;
        assert!(budget.used_bytes() >= received.bytes.len());
        let bytes = received.bytes.clone();
        drop(received);
        assert_eq!(budget.used_bytes(), 0);
        Ok(bytes)
    }

    #[test]
    fn bodies_are_bounded() {
        assert_eq!(receive(b"abc", "", 3).unwrap(), "abc");
        assert_eq!(receive(b"abcd", "", 3).err().map(|e| e.code()), Some(Code::ResourceExhausted));
        assert_eq!(receive(b"abc", "br", 3).err().map(|e| e.code()), Some(Code::InvalidArgument));
        let zeros = "0".repeat(1 << 19);
        let small = compressed(zeros.as_bytes()).unwrap();
        assert!(small.len() < 1 << 14, "{}", small.len());
        assert_eq!(receive(&small, "gzip", 1 << 19).unwrap(), zeros.as_bytes());
        assert_eq!(receive(&small, "GZip", 1 << 19).unwrap(), zeros.as_bytes());
        let message = receive(&small, "gzip", 1 << 18).unwrap_err().to_string();
        assert!(message.contains("once it is decompressed"), "{message}");
        // A decompression bomb exceeds the budget if not the limit.
        let bomb = compressed("0".repeat(8 << 20).as_bytes()).unwrap();
        assert_eq!(
            receive(&bomb, "gzip", usize::MAX / 2).err().map(|e| e.code()),
            Some(Code::ResourceExhausted)
        );
        let mut deflated = ZlibEncoder::new(Vec::new(), Compression::fast());
        deflated.write_all(b"abc").unwrap();
        assert_eq!(receive(&deflated.finish().unwrap(), "deflate", 20).unwrap(), "abc");
        assert_eq!(
            receive(b"no gzip", "gzip", 100).err().map(|e| e.code()),
            Some(Code::InvalidArgument)
        );
        assert_eq!(
            receive(&small[..small.len() / 2], "gzip", 1 << 20).err().map(|e| e.code()),
            Some(Code::InvalidArgument)
        );
    }

    #[test]
    fn gzip_is_negotiated() {
        for (value, wanted) in [
            ("gzip", true),
            ("GZIP", true),
            ("deflate, gzip;q=1.0", true),
            ("*", true),
            ("gzip;q=0", false),
            ("gzip;q=0.5", true),
            ("br", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, value.parse().unwrap());
            assert_eq!(accepts_gzip(&headers), wanted, "{value}");
        }
        assert!(compressed(b"short").is_none());
    }
}
