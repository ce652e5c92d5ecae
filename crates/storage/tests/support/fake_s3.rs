//! An S3 server in memory with the needed subset of HTTP and injected faults.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// An injected fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fault {
    /// No fault.
    None,
    /// The connection is closed without a response.
    Drop,
    /// The request is executed, then the connection is closed without a response.
    DropAfter,
    /// This status, with an empty body.
    Status(u16),
    /// The body ends after this many bytes.
    Truncate(usize),
    /// No response; the connection stays open.
    Silence,
}

/// A received request.
#[derive(Clone, Debug)]
pub(crate) struct SeenRequest {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: HashMap<String, String>,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: Vec<u8>,
}

type Decide = Box<dyn FnMut(&SeenRequest) -> Fault + Send>;

#[derive(Default)]
pub(crate) struct State {
    pub(crate) objects: BTreeMap<String, Vec<u8>>,
    pub(crate) uploads: BTreeMap<String, BTreeMap<u32, Vec<u8>>>,
    pub(crate) requests: Vec<String>,
    next_upload: u32,
}

pub(crate) struct FakeS3 {
    pub(crate) endpoint: String,
    pub(crate) state: Arc<Mutex<State>>,
    decide: Arc<Mutex<Decide>>,
}

/// Names in one page of a listing.
const PAGE: usize = 7;

impl FakeS3 {
    pub(crate) fn new() -> FakeS3 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(State::default()));
        let decide: Arc<Mutex<Decide>> =
            Arc::new(Mutex::new(Box::new(|_: &SeenRequest| Fault::None)));
        let (state_of_all, decide_of_all) = (Arc::clone(&state), Arc::clone(&decide));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (state, decide) = (Arc::clone(&state_of_all), Arc::clone(&decide_of_all));
                let stream = stream.unwrap();
                std::thread::spawn(move || serve(&stream, &state, &decide));
            }
        });
        FakeS3 { endpoint, state, decide }
    }

    pub(crate) fn fail(&self, decide: impl FnMut(&SeenRequest) -> Fault + Send + 'static) {
        *self.decide.lock().unwrap() = Box::new(decide);
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().requests)
    }
}

fn serve(stream: &TcpStream, state: &Mutex<State>, decide: &Mutex<Decide>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let seen = read_request(&mut reader)?;
        let fault = (decide.lock().unwrap())(&seen);
        let shown = format!("{} {}", seen.method, seen.path);
        state.lock().unwrap().requests.push(shown);
        match fault {
            Fault::Drop => return None,
            Fault::Status(status) => {
                let mut stream = stream;
                write!(stream, "HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n").ok()?;
                continue;
            }
            Fault::Silence => {
                std::thread::sleep(std::time::Duration::from_secs(30));
                return None;
            }
            _ => {}
        }
        let answer = state.lock().unwrap().answer(&seen);
        if fault == Fault::DropAfter {
            return None;
        }
        let Answer { status, headers, body } = answer;
        let mut head = format!("HTTP/1.1 {status} X\r\n");
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        if seen.method != "HEAD" {
            head += &format!("content-length: {}\r\n", body.len());
        }
        let mut stream = stream;
        let mut sent = format!("{head}\r\n").into_bytes();
        if seen.method != "HEAD" {
            sent.extend_from_slice(&body);
        }
        if let Fault::Truncate(bytes) = fault
            && bytes < body.len()
        {
            sent.truncate(sent.len() - body.len() + bytes);
            stream.write_all(&sent).ok()?;
            return None;
        }
        stream.write_all(&sent).ok()?;
    }
}

fn read_request(reader: &mut BufReader<&TcpStream>) -> Option<SeenRequest> {
    let mut line = String::new();
    if reader.read_line(&mut line).ok()? == 0 {
        return None;
    }
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim().split_once(':') else { break };
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").map_or(0, |text| text.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let query = query.split('&').filter(|part| !part.is_empty());
    let query = query.map(|part| {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        (decode(name), decode(value))
    });
    Some(SeenRequest { method, path: decode(path), query: query.collect(), headers, body })
}

fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut decoded, mut i) = (Vec::new(), 0);
    while i < bytes.len() {
        if bytes[i] == b'%' {
            decoded.push(u8::from_str_radix(&text[i + 1..i + 3], 16).unwrap());
            i += 3;
        } else {
            decoded.push(bytes[i]);
            i += 1;
        }
    }
    String::from_utf8(decoded).unwrap()
}

struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

fn answer(status: u16, body: impl Into<Vec<u8>>) -> Answer {
    Answer { status, headers: Vec::new(), body: body.into() }
}

fn error(status: u16, code: &str) -> Answer {
    answer(status, format!("<Error><Code>{code}</Code><Message>m</Message></Error>"))
}

fn tag(content: &[u8]) -> String {
    format!("\"{:08x}\"", thalweg_formats::crc32c(content))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

impl State {
    fn answer(&mut self, seen: &SeenRequest) -> Answer {
        let has = |name: &str| seen.query.contains_key(name);
        let is_signed =
            seen.headers.get("authorization").is_some_and(|a| a.contains("Credential=ak/"));
        if !is_signed {
            return error(403, "InvalidAccessKeyId");
        }
        if !seen.path.starts_with("/bucket") {
            return error(404, "NoSuchBucket");
        }
        match seen.method.as_str() {
            "GET" if has("list-type") => self.list(seen),
            "GET" | "HEAD" => self.get(seen),
            "POST" if has("uploads") => {
                self.next_upload += 1;
                let name = format!("u&{}", self.next_upload);
                self.uploads.insert(name.clone(), BTreeMap::new());
                answer(200, format!("<R><UploadId>{}</UploadId></R>", escape(&name)))
            }
            "POST" => self.complete(seen),
            "PUT" => self.put(seen),
            "DELETE" if has("uploadId") => {
                self.uploads.remove(&seen.query["uploadId"]);
                answer(204, "")
            }
            "DELETE" => {
                self.objects.remove(&seen.path);
                answer(204, "")
            }
            _ => error(405, "MethodNotAllowed"),
        }
    }

    fn get(&self, seen: &SeenRequest) -> Answer {
        let Some(content) = self.objects.get(&seen.path) else { return error(404, "NoSuchKey") };
        let mut headers = vec![
            ("etag", tag(content)),
            ("last-modified", "Sun, 06 Nov 2033 08:49:37 GMT".to_owned()),
        ];
        if seen.headers.get("if-match").is_some_and(|wanted| *wanted != tag(content)) {
            return error(412, "PreconditionFailed");
        }
        if seen.method == "HEAD" {
            headers.push(("content-length", content.len().to_string()));
            return Answer { status: 200, headers, body: Vec::new() };
        }
        let (begin, end) = range(&seen.headers["range"], content.len());
        headers.push(("content-range", format!("bytes {begin}-{}/{}", end - 1, content.len())));
        Answer { status: 206, headers, body: content[begin..end].to_vec() }
    }

    fn put(&mut self, seen: &SeenRequest) -> Answer {
        let mut content = seen.body.clone();
        let source = seen.headers.get("x-amz-copy-source");
        if let Some(source) = source {
            let Some(from) = self.objects.get(&decode(source)) else {
                return error(404, "NoSuchKey");
            };
            content = match seen.headers.get("x-amz-copy-source-range") {
                Some(text) => {
                    let (begin, end) = range(text, from.len());
                    from[begin..end].to_vec()
                }
                None => from.clone(),
            };
        }
        let etag = tag(&content);
        match seen.query.get("partNumber") {
            Some(number) => {
                let Some(upload) = self.uploads.get_mut(&seen.query["uploadId"]) else {
                    return error(404, "NoSuchUpload");
                };
                upload.insert(number.parse().unwrap(), content);
            }
            None => drop(self.objects.insert(seen.path.clone(), content)),
        }
        let body = match source {
            Some(_) => {
                format!("<CopyResult><ETag>{}</ETag></CopyResult>", etag.replace('"', "&quot;"))
            }
            None => String::new(),
        };
        Answer { status: 200, headers: vec![("etag", etag)], body: body.into() }
    }

    fn complete(&mut self, seen: &SeenRequest) -> Answer {
        let Some(parts) = self.uploads.remove(&seen.query["uploadId"]) else {
            return error(404, "NoSuchUpload");
        };
        let text = String::from_utf8(seen.body.clone()).unwrap();
        let count = parts.len();
        for (i, (number, content)) in parts.iter().enumerate() {
            let entry = format!(
                "<PartNumber>{number}</PartNumber><ETag>{}</ETag>",
                tag(content).replace('"', "&quot;")
            );
            if !text.contains(&entry) || (i + 1 < count && content.len() < 5 << 20) {
                return error(400, "InvalidPart");
            }
        }
        self.objects.insert(seen.path.clone(), parts.into_values().collect::<Vec<_>>().concat());
        answer(200, "<CompleteMultipartUploadResult/>")
    }

    fn list(&self, seen: &SeenRequest) -> Answer {
        let text = |name: &str| seen.query.get(name).cloned().unwrap_or_default();
        let (prefix, after) = (text("prefix"), text("continuation-token"));
        let max = text("max-keys").parse().unwrap_or(PAGE).min(PAGE);
        let mut entries: Vec<(String, bool)> = Vec::new();
        for path in self.objects.keys() {
            let key = path.strip_prefix("/bucket/").unwrap();
            let Some(rest) = key.strip_prefix(&prefix) else { continue };
            let entry = match rest.find('/').filter(|_| !text("delimiter").is_empty()) {
                Some(end) => (format!("{prefix}{}", &rest[..=end]), true),
                None => (key.to_owned(), false),
            };
            if entry.0 > after && entries.last() != Some(&entry) {
                entries.push(entry);
            }
        }
        let is_truncated = entries.len() > max;
        entries.truncate(max);
        let mut body = format!("<ListBucketResult><IsTruncated>{is_truncated}</IsTruncated>");
        if let Some((last, _)) = entries.last().filter(|_| is_truncated) {
            let last = escape(last);
            body += &format!("<NextContinuationToken>{last}</NextContinuationToken>");
        }
        for (name, is_folder) in entries {
            let name = escape(&name);
            body += &match is_folder {
                true => format!("<CommonPrefixes><Prefix>{name}</Prefix></CommonPrefixes>"),
                false => format!("<Contents><Key>{name}</Key></Contents>"),
            };
        }
        answer(200, body + "</ListBucketResult>")
    }
}

fn range(text: &str, length: usize) -> (usize, usize) {
    let (begin, end) = text.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
    (begin.parse().unwrap(), (end.parse::<usize>().unwrap() + 1).min(length))
}
