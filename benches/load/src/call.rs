//! The calling side.

use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::Outcome;

/// Connections that share the calls, as a few busy clients would have.
const CONNECTIONS: usize = 4;
/// Calls that are due within this time begin together. A wake-up for each would cost this process, on the
/// machine of the server, more than the calls; what they wait for it counts.
const TICK: Duration = Duration::from_micros(200);

/// What is to be called, and how.
pub(crate) struct Load {
    pub(crate) address: String,
    pub(crate) method: String,
    pub(crate) message: Vec<u8>,
    pub(crate) seconds: f64,
    pub(crate) in_flight: usize,
    pub(crate) rate: Option<f64>,
}

impl Load {
    /// Calls, and tells as JSON how it went.
    pub(crate) async fn run(&self) -> Outcome<String> {
        let mut callers = Vec::new();
        for _ in 0..CONNECTIONS.min(self.in_flight.max(1)) {
            callers.push(self.connect().await?);
        }
        let begin = Instant::now();
        let end = begin + Duration::from_secs_f64(self.seconds);
        let mut times = match self.rate {
            None => together(&callers, self.in_flight, end).await?,
            Some(rate) => paced(&callers, Duration::from_secs_f64(1.0 / rate), begin, end).await?,
        };
        let seconds = begin.elapsed().as_secs_f64();
        times.sort_unstable();
        let micros = |part: f64| {
            let i = (times.len() as f64 * part) as usize;
            times.get(i.min(times.len().saturating_sub(1))).map_or(0, Duration::as_micros)
        };
        Ok(format!(
            "{{\"calls\": {}, \"seconds\": {seconds}, \"p50_us\": {}, \"p99_us\": {}}}",
            times.len(),
            micros(0.5),
            micros(0.99)
        ))
    }

    async fn connect(&self) -> Outcome<Caller> {
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        let (connection, driver) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        // It ends with its last sender; calls tell of what goes wrong.
        tokio::spawn(driver);
        let mut body = BytesMut::with_capacity(5 + self.message.len());
        body.put_u8(0);
        body.put_u32(u32::try_from(self.message.len())?);
        body.put_slice(&self.message);
        let uri = format!("http://{}{}", self.address, self.method);
        Ok(Caller { connection, uri: uri.parse()?, body: body.freeze() })
    }
}

/// So many calls at once, each followed by the next.
async fn together(callers: &[Caller], in_flight: usize, end: Instant) -> Outcome<Vec<Duration>> {
    let mut running = JoinSet::new();
    for mut caller in callers.iter().cycle().take(in_flight).cloned() {
        running.spawn(async move {
            let mut times = Vec::new();
            while Instant::now() < end {
                times.push(caller.call(Instant::now()).await?);
            }
            Outcome::Ok(times)
        });
    }
    let mut times = Vec::new();
    while let Some(found) = running.join_next().await {
        times.extend(found??);
    }
    Ok(times)
}

/// Calls at even distances, whether or not those before were answered.
async fn paced(
    callers: &[Caller],
    every: Duration,
    begin: Instant,
    end: Instant,
) -> Outcome<Vec<Duration>> {
    // The runtime's timers tick once a millisecond; a thread wakes up closer to the moment.
    let (tell, mut told) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        let mut due = begin;
        while due < end {
            std::thread::sleep(due.saturating_duration_since(Instant::now()).max(TICK));
            let now = Instant::now();
            while due <= now && due < end {
                if tell.send(due).is_err() {
                    return;
                }
                due += every;
            }
        }
    });
    let mut running = JoinSet::new();
    let mut times = Vec::new();
    let mut callers = callers.iter().cycle();
    while let Some(due) = told.recv().await {
        if let Some(mut caller) = callers.next().cloned() {
            running.spawn(async move { caller.call(due).await });
        }
        while let Some(found) = running.try_join_next() {
            times.push(found??);
        }
    }
    while let Some(found) = running.join_next().await {
        times.push(found??);
    }
    Ok(times)
}

/// A connection and what to send over it.
#[derive(Clone)]
struct Caller {
    connection: SendRequest<Full<Bytes>>,
    uri: http::Uri,
    body: Bytes,
}

impl Caller {
    /// Calls once; how long it took since `begin`.
    async fn call(&mut self, begin: Instant) -> Outcome<Duration> {
        let request = Request::post(self.uri.clone())
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(Full::new(self.body.clone()))?;
        let response = self.connection.send_request(request).await?;
        let failed = response.headers().get("grpc-message").cloned();
        let answer = response.into_body().collect().await?;
        let status = answer.trailers().and_then(|trailers| trailers.get("grpc-status"));
        if status.is_none_or(|status| status != "0") {
            return Err(format!("the call failed: {failed:?}").into());
        }
        Ok(begin.elapsed())
    }
}
