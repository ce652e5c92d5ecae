//! `SessionService`.

use bytes::Bytes;
use http::Response;
use http_body::Body;
use thalweg_proto::tensorflow::serving as pb;
use thalweg_rpc::{FieldPath, MessageBody, Pieces, response};
use thalweg_tensor::{Charge, Result, ensure};

use super::outputs::put_named;
use super::prediction::model_name;
use super::{Call, Services, decode_request, decoded_size};
use crate::inference::{answered_by, session_run, spec_signature};
use crate::metrics::{Api, Entry};

/// Field path from a `SessionRunRequest` to the bytes of its tensors.
const FEEDS: FieldPath = &[2, 2, 4];

impl Services {
    pub(super) async fn session<B>(
        &self,
        method: &str,
        call: Call<B>,
    ) -> Result<Response<MessageBody>>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        ensure!(
            method == "SessionRun",
            Unimplemented,
            "tensorflow.serving.SessionService has no method {method}"
        );
        let rope = self.message(call, FEEDS).await?;
        // Feeds share the message's memory until the response is encoded.
        let bytes = decoded_size::bytes_max(&rope, &decoded_size::SESSION_RUN);
        let _charge = Charge::new(&self.engine.incoming, bytes)?;
        let request: pb::SessionRunRequest = decode_request(rope).await?;
        let engine = &*self.engine;
        let answer = async {
            let servable = engine.store.get(request.model_spec.as_ref())?;
            let (tensors, metadata) = session_run(&servable, &request, &engine.incoming).await?;
            let mut pieces = Pieces::default();
            for (name, tensor) in &tensors {
                put_named(&mut pieces, 1, name, tensor)?;
            }
            pieces.put_message(2, &metadata.to_proto());
            let signature = spec_signature(request.model_spec.as_ref());
            pieces.put_message(3, &answered_by(&servable, signature));
            Ok(response(pieces))
        };
        let name = model_name(request.model_spec.as_ref());
        engine.counted(name, Api::SessionRun, Entry::Grpc, answer).await
    }
}
