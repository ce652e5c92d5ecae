//! AWS Signature Version 4.

use std::fmt::Write;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::settings::Credentials;

const BLOCK_BYTES: usize = 64;

/// The parts of a request that are signed.
pub(super) struct SignedParts<'a> {
    pub(super) method: &'a str,
    /// The encoded path, from `/` on.
    pub(super) path: &'a str,
    /// The encoded, sorted query.
    pub(super) query: &'a str,
    /// Headers with lower-case names, sorted.
    pub(super) headers: &'a [(String, String)],
    pub(super) content_hash: &'a str,
}

/// The value of the `authorization` header. `time` is a [`timestamp`].
pub(super) fn authorization(
    request: &SignedParts<'_>,
    credentials: &Credentials,
    region: &str,
    time: &str,
) -> String {
    let date = &time[..8];
    let scope = format!("{date}/{region}/s3/aws4_request");
    let mut lines = String::new();
    for (name, value) in request.headers {
        let _ = writeln!(lines, "{name}:{}", value.trim());
    }
    let names: Vec<&str> = request.headers.iter().map(|(name, _)| name.as_str()).collect();
    let names = names.join(";");
    let canonical =
        [request.method, request.path, request.query, &lines, &names, request.content_hash]
            .join("\n");
    let hash = hash(canonical.as_bytes());
    let to_sign = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{hash}");
    let mut key = keyed_hash(format!("AWS4{}", credentials.secret_key).as_bytes(), date.as_bytes());
    for part in [region, "s3", "aws4_request"] {
        key = keyed_hash(&key, part.as_bytes());
    }
    let signature = hex(&keyed_hash(&key, to_sign.as_bytes()));
    let key = &credentials.access_key;
    format!("AWS4-HMAC-SHA256 Credential={key}/{scope},SignedHeaders={names},Signature={signature}")
}

/// SHA-256 in hexadecimal.
pub(super) fn hash(content: &[u8]) -> String {
    hex(&Sha256::digest(content).into())
}

fn hex(bytes: &[u8; 32]) -> String {
    let mut text = String::with_capacity(64);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// HMAC-SHA-256 (RFC 2104).
fn keyed_hash(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut block = [0; BLOCK_BYTES];
    match key.len() {
        0..=BLOCK_BYTES => block[..key.len()].copy_from_slice(key),
        _ => block[..32].copy_from_slice(&Sha256::digest(key)),
    }
    let inner = Sha256::new().chain_update(block.map(|b| b ^ 0x36)).chain_update(message);
    let outer = Sha256::new().chain_update(block.map(|b| b ^ 0x5c));
    outer.chain_update(inner.finalize()).finalize().into()
}

/// Percent-encoding of all but letters, digits and `-._~`; `/` is kept in paths.
pub(super) fn encode(text: &str, keeps_slash: bool) -> String {
    let mut encoded = String::with_capacity(text.len());
    for &byte in text.as_bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(byte.into());
            }
            b'/' if keeps_slash => encoded.push('/'),
            _ => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}

/// The encoded query, sorted as the signature requires.
pub(super) fn encode_query(query: &[(&str, String)]) -> String {
    let encoded = |(name, value): &(&str, String)| {
        format!("{}={}", encode(name, false), encode(value, false))
    };
    let mut parts: Vec<String> = query.iter().map(encoded).collect();
    parts.sort();
    parts.join("&")
}

/// The time since 1970 in the form `20130524T000000Z`.
pub(super) fn timestamp(wall: Duration) -> String {
    let seconds = wall.as_secs();
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years that begin in March end with the leap day; 719,468 days lie before 1970.
    let day = days + 719_468;
    let era = day / 146_097;
    let of_era = day % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day_of_month = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}{month:02}{day_of_month:02}T{hour:02}{minute:02}{:02}Z", second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of Amazon's description of the signature.
    fn signature(
        method: &str,
        path: &str,
        query: &str,
        extra: &[(&str, &str)],
        body: &str,
    ) -> String {
        let content_hash = hash(body.as_bytes());
        let mut headers: Vec<(String, String)> = [
            ("host", "examplebucket.s3.amazonaws.com"),
            ("x-amz-content-sha256", &content_hash),
            ("x-amz-date", "20130524T000000Z"),
        ]
        .iter()
        .chain(extra)
        .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
        .collect();
        headers.sort();
        let credentials = Credentials {
            access_key: "AKIAIOSFODNN7EXAMPLE".into(),
            secret_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".into(),
            session_token: None,
        };
        let request =
            SignedParts { method, path, query, headers: &headers, content_hash: &content_hash };
        let value = authorization(&request, &credentials, "us-east-1", "20130524T000000Z");
        value.split("Signature=").nth(1).unwrap().to_owned()
    }

    #[test]
    fn published_signatures() {
        assert_eq!(
            signature("GET", "/test.txt", "", &[("range", "bytes=0-9")], ""),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
        );
        let put = [
            ("date", "Fri, 24 May 2013 00:00:00 GMT"),
            ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
        ];
        let path = format!("/{}", encode("test$file.text", true));
        assert_eq!(
            signature("PUT", &path, "", &put, "Welcome to Amazon S3."),
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"
        );
        assert_eq!(
            signature("GET", "/", &encode_query(&[("lifecycle", String::new())]), &[], ""),
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"
        );
        let query = encode_query(&[("prefix", "J".into()), ("max-keys", "2".into())]);
        assert_eq!(
            signature("GET", "/", &query, &[], ""),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
        );
    }

    #[test]
    fn keyed_hashes_of_rfc_4231() {
        assert_eq!(
            hex(&keyed_hash(&[0x0b; 20], b"Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"
        );
        let long = b"Test Using Larger Than Block-Size Key - Hash Key First";
        assert_eq!(
            hex(&keyed_hash(&[0xaa; 131], long)),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
    }

    #[test]
    fn times() {
        let at = |seconds| timestamp(Duration::from_secs(seconds));
        assert_eq!(at(0), "19700101T000000Z");
        assert_eq!(at(1_369_353_600), "20130524T000000Z");
        assert_eq!(at(951_782_399), "20000228T235959Z");
        assert_eq!(at(951_782_400), "20000229T000000Z");
        assert_eq!(at(4_107_542_399), "21000228T235959Z");
        assert_eq!(at(4_107_542_400), "21000301T000000Z");
    }

    #[test]
    fn special_characters_are_encoded() {
        assert_eq!(encode("a b/ü+~", true), "a%20b/%C3%BC%2B~");
        assert_eq!(encode("a/b", false), "a%2Fb");
    }
}
