//! `/thalweg.Peer/Hello`, which returns the address of a task's stream server. TensorFlow's tasks answer
//! UNIMPLEMENTED.

/// The request of `Hello`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct HelloRequest {
    /// The protocol version of the caller.
    #[prost(uint32, tag = "1")]
    pub(crate) version: u32,
}

/// The response of `Hello`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct HelloResponse {
    /// The protocol version of the task.
    #[prost(uint32, tag = "1")]
    pub(crate) version: u32,
    /// The task's incarnation.
    #[prost(fixed64, tag = "2")]
    pub(crate) incarnation: u64,
    /// The abstract name of its unix socket; empty if it has none. The gRPC port accepts streams too.
    #[prost(string, tag = "3")]
    pub(crate) unix_name: String,
    /// The version of the program, for logs.
    #[prost(string, tag = "4")]
    pub(crate) software: String,
}
