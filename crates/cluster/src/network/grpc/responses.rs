//! Responses that hold tensors, of the master and the worker service.

use std::time::Duration;

use http::{HeaderValue, Response};
use thalweg_kernel::Value;
use thalweg_proto as pb;
use thalweg_rpc::{MessageBody, Pieces, message, response, status, status_with_origin};
use thalweg_runtime::RunMetadata;
use thalweg_tensor::{DType, Error, Result, Shape, Tensor, err};

use crate::master::StepResult;
use crate::master::session::StepOutput;
use crate::network::own_messages::{PartitionEnd, RunGraphResponseExtension};
use crate::network::trace_messages::{StepResponseExtension, StepTrace};
use crate::worker::run_graph_result::RunGraphResult;

/// The error payload by which TensorFlow's workers announce a restart: a map with the type URL of
/// `WorkerPossiblyRestarted`, in base64.
const RESTARTED: HeaderValue = HeaderValue::from_static(
    "Ck4KSnR5cGUuZ29vZ2xlYXBpcy5jb20vdGVuc29yZmxvdy5kaXN0cmlidXRlZF9ydW50aW1lLldvcmtlclBvc3NpYmx5\
     UmVzdGFydGVkEgA=",
);

/// As [`status`], for an error caused by a restart of this task.
pub(crate) fn restarted_status(error: &Error) -> Response<MessageBody> {
    let mut response = status(error);
    response.headers_mut().insert("grpc-status-details-bin", RESTARTED);
    response
}

/// The response of `RunStep`: fetched tensors under their names.
pub(crate) fn run_step_response(
    result: Result<StepResult>,
    errors_in_body: bool,
) -> Response<MessageBody> {
    let result = match result {
        Ok(result) => result,
        Err(e) if errors_in_body => {
            return message(&pb::RunStepResponse {
                status_code: e.code() as i32,
                status_error_message: e.message().to_owned(),
                ..Default::default()
            });
        }
        Err(e) => return status(&e),
    };
    let (tensors, report) = result.ran;
    // Sorted by name, as TensorFlow does; clients look tensors up by name.
    let mut named: Vec<(&String, &Tensor)> = result.fetches.iter().zip(&tensors).collect();
    named.sort_by_key(|(name, _)| *name);
    named.dedup_by_key(|(name, _)| *name);
    let mut pieces = Pieces::default();
    for (name, tensor) in named {
        if let Err(e) = pieces.put_named_tensor(1, name, tensor) {
            return run_step_response(Err(e), errors_in_body);
        }
    }
    // TensorFlow sends it even if it is empty, but only with the last call of a partial run.
    if let Some(report) = report {
        put_report(&mut pieces, &report);
    }
    response(pieces)
}

/// The response of `RunCallable`: tensors in order.
pub(crate) fn run_callable_response(result: Result<StepOutput>) -> Response<MessageBody> {
    let (tensors, report) = match result {
        Ok(ran) => ran,
        Err(e) => return status(&e),
    };
    let mut pieces = Pieces::default();
    for tensor in &tensors {
        if let Err(e) = pieces.put_tensor(1, tensor) {
            return status(&e);
        }
    }
    put_report(&mut pieces, &report);
    response(pieces)
}

/// The report of a step, and what TensorFlow's message does not say of one that was traced.
fn put_report(pieces: &mut Pieces, report: &RunMetadata) {
    pieces.put_message(2, &report.to_proto());
    if let Some(trace) = StepTrace::of(report) {
        pieces.put_fields(&StepResponseExtension { trace: Some(trace) });
    }
}

/// The response of `RunGraph`.
pub(crate) fn run_graph_response(
    result: Result<RunGraphResult>,
    errors_in_body: bool,
) -> Response<MessageBody> {
    let ran = match result {
        Ok(ran) => ran,
        Err(e) if errors_in_body => {
            let mut pieces = Pieces::default();
            pieces.put_fields(&pb::RunGraphResponse {
                status_code: e.code() as i32,
                status_error_message: e.message().to_owned(),
                ..Default::default()
            });
            if let Some(origin) = e.origin() {
                let partition = PartitionEnd { error: Some(origin.into()), ..Default::default() };
                pieces.put_fields(&RunGraphResponseExtension { partition: Some(partition) });
            }
            return response(pieces);
        }
        Err(e) => return status_with_origin(&e),
    };
    let mut pieces = Pieces::default();
    for (key, tensor) in &ran.received {
        if let Err(e) = pieces.put_named_tensor(1, key, tensor) {
            return run_graph_response(Err(e), errors_in_body);
        }
    }
    if !ran.is_partial {
        pieces.put_fields(&ran.report());
    }
    if ran.is_cleaned_up || ran.ended_ns != 0 {
        let partition = PartitionEnd {
            is_cleaned_up: ran.is_cleaned_up,
            error: None,
            began_ns: if ran.ended_ns == 0 { 0 } else { ran.metadata.started_ns },
            ended_ns: ran.ended_ns,
        };
        pieces.put_fields(&RunGraphResponseExtension { partition: Some(partition) });
    }
    response(pieces)
}

/// The response of `RecvTensor`; `now` is the wall clock. TensorFlow parses it fastest with the tensor as
/// its last field.
pub(crate) fn recv_tensor_response(result: Result<Value>, now: Duration) -> Response<MessageBody> {
    let value = match result {
        Ok(value) => value,
        Err(e) => return status_with_origin(&e),
    };
    let mut pieces = Pieces::default();
    pieces.put_fields(&pb::RecvTensorResponse {
        is_dead: matches!(value, Value::Dead),
        send_start_micros: now.as_micros() as i64,
        ..Default::default()
    });
    let put = match &value {
        Value::Tensor(tensor) => pieces.put_tensor(1, tensor),
        Value::Dead => Shape::new(&[0])
            .and_then(|shape| Tensor::zeros(DType::Float, shape))
            .and_then(|tensor| pieces.put_tensor(1, &tensor)),
        _ => {
            Err(err!(Internal, "internal error: the rendezvous holds a value that is not a tensor"))
        }
    };
    match put {
        Ok(()) => response(pieces),
        Err(e) => status(&e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http_body_util::BodyExt;
    use prost::Message;

    fn body(response: Response<MessageBody>) -> Vec<u8> {
        let collected = response.into_body().collect();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(collected).unwrap().to_bytes().to_vec()
    }

    #[test]
    fn messages_encoded_in_pieces_decode() {
        let large = Tensor::zeros(DType::Float, Shape::new(&[100, 100]).unwrap()).unwrap();
        let small = Tensor::vector(&[1i64, 2]).unwrap();
        let strings = Tensor::from_strings(
            Shape::new(&[2]).unwrap(),
            vec![Bytes::from_static(b"ab"), Bytes::from_static(b"c")],
        )
        .unwrap();
        let fetches = vec!["s:0".to_owned(), "large:0".to_owned(), "i:0".to_owned()];
        let tensors = vec![strings, large, small.clone()];
        let result = StepResult { fetches, ran: (tensors, Some(RunMetadata::default())) };
        let bytes = body(run_step_response(Ok(result), true));
        assert_eq!(bytes.len() - 5, u32::from_be_bytes(bytes[1..5].try_into().unwrap()) as usize);
        let decoded = pb::RunStepResponse::decode(&bytes[5..]).unwrap();
        let names: Vec<&str> = decoded.tensor.iter().map(|t| t.name.as_str()).collect();
        assert_eq!(names, ["i:0", "large:0", "s:0"]);
        let tensor = |i: usize| {
            Tensor::from_proto(decoded.tensor[i].tensor.as_ref().unwrap(), None).unwrap()
        };
        assert_eq!(tensor(0).as_slice::<i64>().unwrap(), small.as_slice::<i64>().unwrap());
        assert_eq!(tensor(1).shape().to_string(), "[100,100]");
        assert_eq!(tensor(2).strings().unwrap(), ["ab", "c"]);
        let content = &decoded.tensor[2].tensor.as_ref().unwrap().tensor_content;
        assert_eq!(content, &b"\x02\x01abc"[..]);
        assert!(decoded.metadata.is_some());
    }

    #[test]
    fn errors_travel_in_the_body_or_as_status() {
        let bytes = body(run_step_response(Err(err!(NotFound, "no")), true));
        let decoded = pb::RunStepResponse::decode(&bytes[5..]).unwrap();
        assert_eq!((decoded.status_code, &*decoded.status_error_message), (5, "no"));
        let response = run_step_response(Err(err!(NotFound, "50 % \u{e9}\n")), false);
        assert_eq!(response.headers()["grpc-status"], "5");
        assert_eq!(response.headers()["grpc-message"], "50 %25 %C3%A9%0A");
        let response = restarted_status(&err!(Aborted, "gone"));
        let details = &response.headers()["grpc-status-details-bin"];
        assert_eq!((details.len(), details.as_bytes()[details.len() - 1]), (108, b'='));
    }
}
