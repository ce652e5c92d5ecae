//! `/thalweg.Peer/Hello`: how tasks of ours find each other's stream. Other tasks answer UNIMPLEMENTED.

/// Who asks.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct HelloRequest {
    /// The version of the stream that the caller speaks.
    #[prost(uint32, tag = "1")]
    pub(crate) version: u32,
}

/// Where the stream is.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct HelloResponse {
    /// The version of the stream that the task speaks.
    #[prost(uint32, tag = "1")]
    pub(crate) version: u32,
    /// Which start of the task this is.
    #[prost(fixed64, tag = "2")]
    pub(crate) incarnation: u64,
    /// The abstract name of a unix socket; empty if there is none. The gRPC port takes the stream too.
    #[prost(string, tag = "3")]
    pub(crate) unix_name: String,
    /// The version of the program, for people.
    #[prost(string, tag = "4")]
    pub(crate) software: String,
}
