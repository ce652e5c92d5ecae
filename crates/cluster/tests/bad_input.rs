//! Malformed and hostile input to a server's port: each client gets an error, and other clients are unaffected.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use support::*;
use thalweg_cluster::TaskOptions;
use thalweg_cluster::grpc::ServerOptions;
use thalweg_proto as pb;
use thalweg_tensor::Code;

/// A response: HTTP status, gRPC status, its message, the body.
struct Reply {
    http: u16,
    status: Option<u16>,
    text: String,
    body: Bytes,
}

/// An HTTP/2 connection without our client, which sends valid requests only.
async fn connected(server: &TestServer) -> http2::SendRequest<Full<Bytes>> {
    let stream = tokio::net::TcpStream::connect(&server.address).await.unwrap();
    let (sender, connection) =
        http2::Builder::new(TokioExecutor::new()).handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// Sends these bytes as the body of a call.
fn post(server: &TestServer, path: &str, content_type: &str, body: Bytes) -> Reply {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut sender = connected(server).await;
        let request = Request::post(format!("http://{}{path}", server.address))
            .header("content-type", content_type)
            .body(Full::new(body))
            .unwrap();
        let response = sender.send_request(request).await.unwrap();
        let (head, body) = response.into_parts();
        let collected = body.collect().await.unwrap();
        let trailers = collected.trailers().cloned().unwrap_or_default();
        let header = |name: &str| {
            let value = head.headers.get(name).or_else(|| trailers.get(name));
            value.map(|v| v.to_str().unwrap().to_owned())
        };
        Reply {
            http: head.status.as_u16(),
            status: header("grpc-status").map(|s| s.parse().unwrap()),
            text: header("grpc-message").unwrap_or_default(),
            body: collected.to_bytes(),
        }
    })
}

fn prefixed(flag: u8, len: u32, message: &[u8]) -> Bytes {
    let mut body = BytesMut::new();
    body.put_u8(flag);
    body.put_u32(len);
    body.put_slice(message);
    body.freeze()
}

/// Calls a method of the master with a message.
fn call(server: &TestServer, method: &str, message: &impl Message) -> Reply {
    let bytes = message.encode_to_vec();
    let body = prefixed(0, bytes.len() as u32, &bytes);
    post(server, &format!("/tensorflow.MasterService/{method}"), "application/grpc", body)
}

#[track_caller]
fn assert_refused(reply: &Reply, code: Code, words: &str) {
    assert_eq!((reply.http, reply.status), (200, Some(code as u16)), "{}", reply.text);
    assert!(reply.text.contains(words), "'{words}' is not in: {}", reply.text);
}

#[test]
fn connections_without_valid_http2() {
    let server = TestServer::new();
    let mut s = scope();
    constant_sum(&mut s);
    let other_session = server.open(&s);
    let mut noise: Vec<u8> = Vec::new();
    let mut state = 1u32;
    for _ in 0..100_000 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        noise.push((state >> 24) as u8);
    }
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    let after_preface = [preface.clone(), noise.clone()].concat();
    // A frame that claims 16 MB, a window update of zero, data of an unopened stream.
    let huge = [preface.clone(), vec![0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1]].concat();
    let window = [preface.clone(), vec![0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0]].concat();
    let unopened = [preface, vec![0, 0, 1, 0, 0, 0, 0, 0, 7, 1]].concat();
    let old = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec();
    for bytes in [noise, after_preface, huge, window, unopened, old, Vec::new()] {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        // The server may hang up before it has read all.
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer) {
            Ok(_) => {}
            Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::ConnectionReset, "{e}"),
        }
        assert_eq!(numbers(&other_session.run(&[], &["sum"], &[]).unwrap()), [3.0]);
    }
    server.assert_alive();
}

#[test]
fn malformed_messages_are_refused() {
    let server = TestServer::with(
        TaskOptions::default(),
        ServerOptions { message_bytes_max: 1 << 20, ..Default::default() },
    );
    let path = "/tensorflow.MasterService/RunStep";
    let grpc = |body: Bytes| post(&server, path, "application/grpc", body);
    assert_refused(&grpc(Bytes::new()), Code::InvalidArgument, "the call has no message");
    assert_refused(&grpc(prefixed(0, 9, b"short")), Code::InvalidArgument, "after 5 of 9 bytes");
    assert_refused(&grpc(prefixed(0, 1, b"long")), Code::InvalidArgument, "more than one");
    assert_refused(&grpc(prefixed(1, 1, b"x")), Code::Unimplemented, "compressed");
    let oversized = grpc(prefixed(0, u32::MAX, b"x"));
    assert_refused(&oversized, Code::ResourceExhausted, "at most 1048576");
    let noise = grpc(prefixed(0, 4, &[0xff; 4]));
    assert_refused(&noise, Code::InvalidArgument, "cannot be decoded");
    // A field that is longer than the message.
    let lying = grpc(prefixed(0, 6, &[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f]));
    assert_refused(&lying, Code::InvalidArgument, "cannot be decoded");
    assert_eq!(post(&server, path, "application/json", Bytes::new()).http, 415);
    server.assert_alive();
}

#[test]
fn unknown_methods_are_refused() {
    let server = TestServer::new();
    let at = |path: &str| post(&server, path, "application/grpc", prefixed(0, 0, b""));
    let eager = at("/tensorflow.eager.EagerService/CreateContext");
    assert_refused(&eager, Code::Unimplemented, "tf.compat.v1.Session");
    assert_refused(
        &at("/tensorflow.MasterService/Nope"),
        Code::Unimplemented,
        "has no method Nope",
    );
    assert_refused(&at("/some.Service/Method"), Code::Unimplemented, "not a method");
    assert_refused(&at("/"), Code::Unimplemented, "not a method");
    server.assert_alive();
}

fn step(handle: &str) -> pb::RunStepRequest {
    pb::RunStepRequest {
        session_handle: handle.into(),
        fetch: vec!["sum:0".into()],
        store_errors_in_response_body: true,
        ..Default::default()
    }
}

fn step_status(reply: &Reply) -> (i32, String) {
    assert_eq!(reply.status, Some(0), "{}", reply.text);
    let response = pb::RunStepResponse::decode(&reply.body[5..]).unwrap();
    (response.status_code, response.status_error_message)
}

fn created(server: &TestServer, graph: pb::GraphDef) -> Reply {
    let request = pb::CreateSessionRequest { graph_def: Some(graph), ..Default::default() };
    call(server, "CreateSession", &request)
}

fn handle_of(reply: &Reply) -> String {
    assert_eq!(reply.status, Some(0), "{}", reply.text);
    pb::CreateSessionResponse::decode(&reply.body[5..]).unwrap().session_handle
}

#[test]
fn unknown_sessions_and_graph_versions_are_refused() {
    let server = TestServer::new();
    let (code, text) = step_status(&call(&server, "RunStep", &step("0123456789abcdef")));
    assert_eq!((code, &*text), (Code::Aborted as i32, "Session 0123456789abcdef is not found."));
    let mut as_status = step("no");
    as_status.store_errors_in_response_body = false;
    assert_refused(&call(&server, "RunStep", &as_status), Code::Aborted, "is not found");
    let close = pb::CloseSessionRequest { session_handle: "no".into() };
    let reply = call(&server, "CloseSession", &close);
    assert_refused(&reply, Code::Aborted, "Possibly, this master has restarted.");

    let mut s = scope();
    constant_sum(&mut s);
    let handle = handle_of(&created(&server, s.to_graph().to_def()));
    let extend = |version: i64, nodes: usize| {
        let request = pb::ExtendSessionRequest {
            session_handle: handle.clone(),
            graph_def: Some(idle_graph(nodes)),
            current_graph_version: version,
        };
        call(&server, "ExtendSession", &request)
    };
    let words = "Current version is 0 but caller expected 7.";
    assert_refused(&extend(7, 1), Code::Aborted, words);
    assert_eq!(extend(0, 1).status, Some(0));
    assert_refused(&extend(0, 1), Code::Aborted, "Current version is 1 but caller expected 0.");
    assert_refused(&extend(1, 1), Code::InvalidArgument, "created by a previous call");

    // A duplicate request, and an unknown partial run.
    let mut twice = step(&handle);
    twice.request_id = 77;
    assert_eq!(step_status(&call(&server, "RunStep", &twice)).0, 0);
    assert_eq!(step_status(&call(&server, "RunStep", &twice)).0, Code::Aborted as i32);
    let mut partial = step(&handle);
    partial.partial_run_handle = "12".into();
    let (code, text) = step_status(&call(&server, "RunStep", &partial));
    assert_eq!(code, Code::InvalidArgument as i32);
    assert_eq!(text, "Must run PartialRunSetup before performing partial runs");
    server.assert_alive();
}

/// A few bytes can encode a large tensor, which the memory limit refuses.
#[test]
fn a_small_feed_of_a_large_shape() {
    let server = TestServer::with(
        TaskOptions { memory_limit_bytes: 64 << 20, ..Default::default() },
        ServerOptions::default(),
    );
    let mut s = scope();
    placeholder(&mut s, "x");
    let handle = handle_of(&created(&server, s.to_graph().to_def()));
    for (size, expected) in [
        (1i64 << 40, Code::ResourceExhausted),
        (i64::MAX, Code::ResourceExhausted),
        (-5, Code::InvalidArgument),
    ] {
        let dim = pb::tensor_shape_proto::Dim { size, ..Default::default() };
        let tensor = pb::TensorProto {
            dtype: pb::DataType::DtFloat as i32,
            tensor_shape: Some(pb::TensorShapeProto { dim: vec![dim], unknown_rank: false }),
            float_val: vec![1.0],
            ..Default::default()
        };
        let feed = pb::NamedTensorProto { name: "x:0".into(), tensor: Some(tensor) };
        let request = pb::RunStepRequest {
            session_handle: handle.clone(),
            feed: vec![feed],
            fetch: vec!["x:0".into()],
            store_errors_in_response_body: true,
            ..Default::default()
        };
        let (code, text) = step_status(&call(&server, "RunStep", &request));
        assert_eq!(code, expected as i32, "{size}: {text}");
    }
    server.assert_alive();
}

#[test]
fn graphs_larger_than_the_limit() {
    let server = TestServer::with(
        TaskOptions { graph_nodes_max: 1000, ..Default::default() },
        ServerOptions::default(),
    );
    let reply = created(&server, idle_graph(1001));
    assert_refused(&reply, Code::ResourceExhausted, "1001 nodes; a session's may have 1000");
    let handle = handle_of(&created(&server, idle_graph(900)));
    let mut more = idle_graph(101);
    more.node.iter_mut().for_each(|n| n.name.push('b'));
    let request = pb::ExtendSessionRequest {
        session_handle: handle,
        graph_def: Some(more),
        ..Default::default()
    };
    let reply = call(&server, "ExtendSession", &request);
    assert_refused(&reply, Code::ResourceExhausted, "1001 nodes");
    server.assert_alive();
}

/// Creating a session of a million nodes does not block other sessions.
#[test]
#[ignore = "long"]
fn a_graph_of_a_million_nodes() {
    let server = TestServer::new();
    let mut s = scope();
    constant_sum(&mut s);
    let other_session = server.open(&s);
    std::thread::scope(|scope| {
        let large = scope.spawn(|| handle_of(&created(&server, idle_graph(1_000_000))));
        while !large.is_finished() {
            assert_eq!(numbers(&other_session.run(&[], &["sum"], &[]).unwrap()), [3.0]);
        }
        let mut request = step(&large.join().unwrap());
        request.fetch.clear();
        request.target.push("n999999".into());
        assert_eq!(step_status(&call(&server, "RunStep", &request)), (0, String::new()));
    });
}

#[test]
fn a_function_that_calls_itself() {
    let server = TestServer::new();
    let text = r#"
        node { name: "x" op: "Const" attr { key: "dtype" value { type: DT_FLOAT } }
          attr { key: "value" value { tensor { dtype: DT_FLOAT tensor_shape {} float_val: 1 } } } }
        node { name: "call" op: "StatefulPartitionedCall" input: "x"
          attr { key: "Tin" value { list { type: DT_FLOAT } } }
          attr { key: "Tout" value { list { type: DT_FLOAT } } }
          attr { key: "f" value { func { name: "again" } } } }
        library { function {
          signature { name: "again" input_arg { name: "a" type: DT_FLOAT }
            output_arg { name: "r" type: DT_FLOAT } is_stateful: true }
          node_def { name: "inner" op: "StatefulPartitionedCall" input: "a"
            attr { key: "Tin" value { list { type: DT_FLOAT } } }
            attr { key: "Tout" value { list { type: DT_FLOAT } } }
            attr { key: "f" value { func { name: "again" } } } }
          ret { key: "r" value: "inner:output:0" } } }"#;
    let graph: pb::GraphDef = thalweg_proto::text::decode("tensorflow.GraphDef", text).unwrap();
    let mut request = step(&handle_of(&created(&server, graph)));
    request.fetch = vec!["call:0".into()];
    let (code, text) = step_status(&call(&server, "RunStep", &request));
    assert_eq!(code, Code::ResourceExhausted as i32, "{text}");
    assert!(text.contains("more than 100 deep"), "{text}");
    server.assert_alive();
}

/// Requests that are never completed, and responses that are never read.
#[test]
fn clients_that_stop_sending_and_reading() {
    let server = TestServer::new();
    let mut s = scope();
    constant_sum(&mut s);
    let x = placeholder(&mut s, "x");
    s.op("Neg").name("minus").input(x).build().unwrap();
    let handle = handle_of(&created(&server, s.to_graph().to_def()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(&server.address).await.unwrap();
        let (mut sender, connection) = http2::Builder::new(TokioExecutor::new())
            .handshake::<_, http_body_util::Either<Unfinished, Full<Bytes>>>(TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(connection);
        let request = |body| {
            Request::post(format!("http://{}/tensorflow.MasterService/RunStep", server.address))
                .header("content-type", "application/grpc")
                .body(body)
                .unwrap()
        };
        let mut open = Vec::new();
        for _ in 0..50 {
            let body =
                http_body_util::Either::Left(Unfinished(Some(prefixed(0, 1 << 30, b"begun"))));
            open.push(tokio::spawn(sender.send_request(request(body))));
        }
        // Ten answers of 4 MB each that wait to be read.
        let zeros = thalweg_tensor::Tensor::zeros(
            thalweg_tensor::DType::Float,
            thalweg_tensor::Shape::new(&[1 << 20]).unwrap(),
        );
        let feed = pb::NamedTensorProto {
            name: "x:0".into(),
            tensor: Some(zeros.unwrap().to_proto().unwrap()),
        };
        let mut message = step(&handle);
        (message.feed, message.fetch) = (vec![feed], vec!["minus:0".into()]);
        let bytes = message.encode_to_vec();
        let mut unread = Vec::new();
        for _ in 0..10 {
            let body = Full::new(prefixed(0, bytes.len() as u32, &bytes));
            let response = sender.send_request(request(http_body_util::Either::Right(body)));
            unread.push(response.await.unwrap());
        }
        tokio::task::spawn_blocking(|| ()).await.unwrap();
        std::thread::scope(|scope| scope.spawn(|| server.assert_alive()).join().unwrap());
    });
    drop(runtime);
    server.assert_alive();
}

/// The session of a client that disconnects during a step is closed; the session of an idle client is not.
#[test]
fn clients_that_disconnect_during_a_step() {
    let options = ServerOptions { session_timeout: Duration::ZERO, ..Default::default() };
    let server = TestServer::with(TaskOptions::default(), options);
    let mut s = scope();
    let x = placeholder(&mut s, "x");
    queue(&mut s, x);
    let _other_session = server.open(&s);
    let mut request = step(&handle_of(&created(&server, s.to_graph().to_def())));
    request.fetch = vec!["dequeue:0".into()];
    let bytes = request.encode_to_vec();
    let body = Full::new(prefixed(0, bytes.len() as u32, &bytes));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut sender = connected(&server).await;
        let path = format!("http://{}/tensorflow.MasterService/RunStep", server.address);
        let request = Request::post(path).header("content-type", "application/grpc");
        tokio::spawn(sender.send_request(request.body(body).unwrap()));
        while server.master.task().steps() == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    assert_eq!(server.master.session_count(), 2);
    drop(runtime);
    for _ in 0..1000 {
        if server.master.session_count() == 1 && server.master.task().steps() == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{} sessions are still open", server.master.session_count());
}

/// A body that never ends.
struct Unfinished(Option<Bytes>);

impl http_body::Body for Unfinished {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        match self.0.take() {
            Some(bytes) => std::task::Poll::Ready(Some(Ok(http_body::Frame::data(bytes)))),
            None => std::task::Poll::Pending,
        }
    }
}
