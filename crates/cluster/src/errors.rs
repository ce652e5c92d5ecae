//! Errors as TensorFlow's tasks word them.

use thalweg_tensor::{Code, Error};

/// An error of a task, with the task's name unless another's is there already.
pub(crate) fn from_task(task: &str, error: Error) -> Error {
    match error.code() {
        // These are about the call rather than about the graph.
        Code::Cancelled | Code::DeadlineExceeded => error,
        _ if error.message().contains("[[{{node") && !error.message().starts_with("From /job:") => {
            error.map_message(|message| format!("From {task}:\n{message}"))
        }
        _ => error,
    }
}
