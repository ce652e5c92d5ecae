//! Protobuf text format (`.pbtxt`): parsing and printing of every message that has a [`Codec`].
//!
//! Writing gives the layout TensorFlow writes: one field a line, repeated fields as repeated lines,
//! maps sorted by key. Reading takes the whole language: lists in brackets, `<` `>`, comments,
//! adjacent strings, expanded `Any`.

mod read;
mod write;

use std::error::Error;
use std::fmt;
use std::sync::LazyLock;

use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};

use crate::Codec;

/// The maximum nesting depth, as in the binary format: the parser recurses.
const DEPTH_MAX: usize = 100;

static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    DescriptorPool::decode(crate::FILE_DESCRIPTOR_SET).expect("build.rs wrote valid descriptors")
});

/// Parses a message; `full_name` is its name with the package, as in `tensorflow.GraphDef`.
///
/// ```
/// let text = r#"node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } }"#;
/// let graph: thalweg_proto::GraphDef = thalweg_proto::text::decode("tensorflow.GraphDef", text)?;
/// assert_eq!(graph.node[0].op, "Placeholder");
/// # Ok::<(), thalweg_proto::text::TextError>(())
/// ```
pub fn decode<M: Codec>(full_name: &str, text: &str) -> Result<M, TextError> {
    let start = |message| TextError { line: 1, column: 1, message };
    let descriptor = descriptor(full_name)
        .ok_or_else(|| start(format!("there is no message named '{full_name}'")))?;
    let message = read::message(descriptor, text)?;
    // The reader counts braces, the decoder counts messages: the latter may still find it too deep.
    let encoded = message.encode_to_vec();
    M::decode_from(&mut encoded.as_slice()).map_err(|error| start(error.to_string()))
}

/// Prints a message; `full_name` is its name with the package.
///
/// # Panics
/// If `full_name` is not the name of `M`, or if the message nests deeper than any that was decoded
/// can.
pub fn encode<M: Codec>(full_name: &str, message: &M) -> String {
    let Some(descriptor) = descriptor(full_name) else {
        panic!("there is no message named '{full_name}'");
    };
    let dynamic = DynamicMessage::decode(descriptor, message.to_bytes().as_slice())
        .unwrap_or_else(|error| panic!("the message is not a '{full_name}': {error}"));
    write::message(&dynamic)
}

fn descriptor(full_name: &str) -> Option<MessageDescriptor> {
    POOL.get_message_by_name(full_name)
}

/// A parse error with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextError {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// What was expected and what was found.
    pub message: String,
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, column, message } = self;
        write!(f, "line {line}, column {column}: {message}")
    }
}

impl Error for TextError {}
