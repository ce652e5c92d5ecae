//! HTTP: connections, access, requests and replies. What is answered is in [`crate::api`].

pub(crate) mod access;
pub(crate) mod assets;
pub(crate) mod deadline;
pub(crate) mod query;
pub(crate) mod reply;
pub(crate) mod server;
