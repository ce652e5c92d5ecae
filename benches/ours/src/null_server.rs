//! A server that reads steps, discards them, and answers all of them with one buffer.
//!
//! It bounds the rate at which a client can send and receive: HTTP/2 frames on a blocking socket,
//! parsed only as far as flow control requires. `thalweg-null-server ANSWER` takes the file with
//! the RunStep response. It recognizes a request by its first bytes: they do or do not contain the
//! session handle that the server issued.
#![expect(clippy::disallowed_methods, reason = "a thread for each connection is all it has")]

use std::io::{BufWriter, IoSlice, Read, Result, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

const PREFACE_LEN: usize = 24;
const FRAME_BYTES: u32 = 1 << 20;
const WINDOW_BYTES: u32 = 1 << 30;
/// Flow-control credit is returned after this many bytes.
const CREDIT_BYTES: u32 = 4 << 20;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GO_AWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

const HANDLE: &[u8; 16] = b"null-server-0000";
/// CreateSessionResponse with that handle.
const CREATED: &[u8] = b"\x0a\x10null-server-0000";
/// `:status 200`, `content-type application/grpc`; literal fields without indexing.
const RESPONSE_HEADERS: &[u8] = b"\x88\x00\x0ccontent-type\x10application/grpc";
const TRAILERS: &[u8] = b"\x00\x0bgrpc-status\x010";

fn main() -> Result<()> {
    let path = std::env::args().nth(1).unwrap_or_default();
    let answer: Arc<[u8]> = std::fs::read(path)?.into();
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("listening on {}", listener.local_addr()?);
    for stream in listener.incoming() {
        let (stream, answer) = (stream?, answer.clone());
        // A client that disconnects ends only its own connection.
        std::thread::spawn(move || Connection::new(stream, answer)?.serve());
    }
    Ok(())
}

/// A response being sent; the rest waits for the client's flow-control window.
struct Answering {
    stream: u32,
    message: Arc<[u8]>,
    sent: usize,
    window: i64,
}

struct Connection {
    input: TcpStream,
    output: BufWriter<TcpStream>,
    answer: Arc<[u8]>,
    /// First bytes and length of the current request.
    request: Vec<u8>,
    request_len: usize,
    answering: Option<Answering>,
    window: i64,
    stream_window: i64,
    frame_max: usize,
    used: u32,
}

impl Connection {
    fn new(stream: TcpStream, answer: Arc<[u8]>) -> Result<Connection> {
        stream.set_nodelay(true)?;
        Ok(Connection {
            input: stream.try_clone()?,
            output: BufWriter::with_capacity(1 << 16, stream),
            answer,
            request: Vec::new(),
            request_len: 0,
            answering: None,
            window: 65_535,
            stream_window: 65_535,
            frame_max: 16_384,
            used: 0,
        })
    }

    fn serve(mut self) -> Result<()> {
        let mut buffer = vec![0; FRAME_BYTES as usize + 256];
        self.input.read_exact(&mut buffer[..PREFACE_LEN])?;
        let mut settings = Vec::new();
        // Initial window size and maximum frame size.
        for (id, value) in [(4u16, WINDOW_BYTES), (5, FRAME_BYTES)] {
            settings.extend(id.to_be_bytes());
            settings.extend(value.to_be_bytes());
        }
        self.frame(SETTINGS, 0, 0, &settings)?;
        self.frame(WINDOW_UPDATE, 0, 0, &WINDOW_BYTES.to_be_bytes())?;
        loop {
            self.output.flush()?;
            let mut header = [0; 9];
            self.input.read_exact(&mut header)?;
            let [a, b, c, kind, flags, stream @ ..] = header;
            let stream = u32::from_be_bytes(stream) & 0x7fff_ffff;
            let len = u32::from_be_bytes([0, a, b, c]) as usize;
            if len > buffer.len() {
                return Ok(());
            }
            self.input.read_exact(&mut buffer[..len])?;
            if kind == GO_AWAY {
                return Ok(());
            }
            self.take(kind, flags, stream, &buffer[..len])?;
        }
    }

    fn take(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Result<()> {
        match kind {
            DATA => {
                let missing = 64usize.saturating_sub(self.request.len()).min(payload.len());
                self.request.extend(&payload[..missing]);
                self.request_len += payload.len();
                self.credit(stream, payload.len() as u32)?;
                if flags & END_STREAM != 0 {
                    self.begin_answer(stream)?;
                }
            }
            SETTINGS if flags & ACK == 0 => {
                for setting in payload.chunks_exact(6) {
                    let value =
                        u32::from_be_bytes([setting[2], setting[3], setting[4], setting[5]]);
                    match u16::from_be_bytes([setting[0], setting[1]]) {
                        4 => {
                            // The change also applies to the response being sent.
                            let more = i64::from(value) - self.stream_window;
                            self.stream_window += more;
                            if let Some(answering) = &mut self.answering {
                                answering.window += more;
                            }
                        }
                        5 => self.frame_max = value as usize,
                        _ => {}
                    }
                }
                self.frame(SETTINGS, ACK, 0, &[])?;
                self.send()?;
            }
            PING if flags & ACK == 0 => self.frame(PING, ACK, 0, payload)?,
            WINDOW_UPDATE => {
                let bytes: [u8; 4] = payload.try_into().unwrap_or_default();
                let more = i64::from(u32::from_be_bytes(bytes) & 0x7fff_ffff);
                match &mut self.answering {
                    Some(answering) if answering.stream == stream => answering.window += more,
                    _ if stream == 0 => self.window += more,
                    _ => {}
                }
                self.send()?;
            }
            RESET if self.answering.as_ref().is_some_and(|a| a.stream == stream) => {
                self.answering = None;
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the flow-control credit that the client has used, in larger units.
    fn credit(&mut self, stream: u32, used: u32) -> Result<()> {
        self.used += used;
        if self.used >= CREDIT_BYTES {
            let credit = self.used.to_be_bytes();
            self.frame(WINDOW_UPDATE, 0, 0, &credit)?;
            self.frame(WINDOW_UPDATE, 0, stream, &credit)?;
            self.used = 0;
        }
        Ok(())
    }

    fn begin_answer(&mut self, stream: u32) -> Result<()> {
        let has_handle = self.request.get(7..23) == Some(&HANDLE[..]);
        let message: Arc<[u8]> = match has_handle {
            // Only the handle: CloseSession.
            true if self.request_len == 5 + 2 + HANDLE.len() => prefixed(&[]),
            true => self.answer.clone(),
            false => prefixed(CREATED),
        };
        (self.request_len, self.request) = (0, Vec::new());
        self.frame(HEADERS, END_HEADERS, stream, RESPONSE_HEADERS)?;
        self.answering = Some(Answering { stream, message, sent: 0, window: self.stream_window });
        self.send()
    }

    /// Sends as much of the response as the windows allow.
    fn send(&mut self) -> Result<()> {
        let Some(mut answering) = self.answering.take() else { return Ok(()) };
        while answering.sent < answering.message.len() {
            let left = (answering.message.len() - answering.sent) as i64;
            let len = left.min(answering.window).min(self.window).min(self.frame_max as i64);
            if len <= 0 {
                self.answering = Some(answering);
                return Ok(());
            }
            let part = &answering.message[answering.sent..answering.sent + len as usize];
            self.frame(DATA, 0, answering.stream, part)?;
            answering.sent += len as usize;
            answering.window -= len;
            self.window -= len;
        }
        self.frame(HEADERS, END_HEADERS | END_STREAM, answering.stream, TRAILERS)
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Result<()> {
        let [_, a, b, c] = (payload.len() as u32).to_be_bytes();
        let [d, e, f, g] = stream.to_be_bytes();
        let header = [a, b, c, kind, flags, d, e, f, g];
        if payload.len() < 4096 {
            self.output.write_all(&header)?;
            return self.output.write_all(payload);
        }
        // Sent from the buffer without a copy.
        self.output.flush()?;
        let stream = self.output.get_mut();
        let written = stream.write_vectored(&[IoSlice::new(&header), IoSlice::new(payload)])?;
        if written < header.len() {
            stream.write_all(&header[written..])?;
        }
        stream.write_all(&payload[written.saturating_sub(header.len())..])
    }
}

/// A message with gRPC's length prefix.
fn prefixed(message: &[u8]) -> Arc<[u8]> {
    let len = (message.len() as u32).to_be_bytes();
    [&[0], &len[..], message].concat().into()
}
