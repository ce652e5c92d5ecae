//! Decoding and encoding, compiled once for all crates.

use bytes::Buf;
use prost::{DecodeError, Message};

/// A message whose decoder and encoder are compiled in this crate: those that are large, or that
/// have a text format.
///
/// [`Message::decode`] and [`Message::encode_to_vec`] are generic over the buffer, so that each crate
/// that calls them compiles the code of the message, and of every message in it, once more for each
/// kind of buffer. For a message as large as a `GraphDef` that is most of what a crate compiles.
pub trait Codec: Message + Default {
    /// Decodes the message from a buffer, which is read to its end. A field of bytes is what
    /// [`Buf::copy_to_bytes`] of the buffer returns.
    fn decode_from(buf: &mut dyn Buf) -> Result<Self, DecodeError>;

    /// Appends the encoded message to `bytes`.
    fn encode_into(&self, bytes: &mut Vec<u8>);

    /// The encoded message.
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.encoded_len());
        self.encode_into(&mut bytes);
        bytes
    }
}

/// Implements [`Codec`].
macro_rules! codecs {
    ($($message:ty),+ $(,)?) => {
        $(impl Codec for $message {
            fn decode_from(buf: &mut dyn Buf) -> Result<Self, DecodeError> {
                Message::decode(buf)
            }

            fn encode_into(&self, bytes: &mut Vec<u8>) {
                self.encode_raw(bytes);
            }
        })+
    };
}

codecs! {
    crate::AttrValue,
    crate::CheckpointState,
    crate::ConfigProto,
    crate::Event,
    crate::FunctionDef,
    crate::GraphDef,
    crate::MetaGraphDef,
    crate::NodeDef,
    crate::RunMetadata,
    crate::SavedModel,
    crate::SignatureDef,
    crate::Summary,
    crate::TensorProto,
    crate::google::protobuf::Any,
    crate::serving::BatchingParameters,
    crate::serving::ModelServerConfig,
    crate::serving::MonitoringConfig,
    crate::summary::Value,
}
