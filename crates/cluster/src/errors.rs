//! Errors of other tasks: the task and the node of the graph where an error arose.

use thalweg_tensor::{Code, Error, Origin};

/// Names the task that reports `error`, if a node failed there. TensorFlow's text begins with the task's
/// name then; errors of a call, and those of nodes that another task reported, keep their text.
pub(crate) fn from_task(task: &str, error: Error) -> Error {
    match error.code() {
        Code::Cancelled | Code::DeadlineExceeded => error,
        _ if error.node().is_some() => error.from_task(task),
        _ => error,
    }
}

/// An error as it came from another task. A task of ours sends the fields of the origin beside the text; in
/// an error of a TensorFlow task they are read from its text here, and nowhere else.
pub(crate) fn received(error: Error) -> Error {
    if error.origin().is_some() {
        return error;
    }
    match origin_in(error.message()) {
        Some(origin) => error.with_shown_origin(origin),
        None => error,
    }
}

/// The first node and the task that TensorFlow's text names.
fn origin_in(text: &str) -> Option<Origin> {
    let (_, rest) = text.split_once("[[{{node ")?;
    let (node, _) = rest.split_once("}}]]")?;
    let task = text.strip_prefix("From ").filter(|rest| rest.starts_with("/job:"));
    let task = task.and_then(|rest| rest.split_once(":\n")).map(|(task, _)| task.to_owned());
    Some(Origin { node: Some(node.to_owned()), function: None, task })
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::err;

    use super::*;

    #[test]
    fn the_first_task_that_reports_a_node_is_named() {
        let text = "boom\n\t [[{{node x}}]]\n\t [[y]]";
        let e = from_task("/job:a", received(err!(Internal, "{text}")));
        assert_eq!(e.message(), format!("From /job:a:\n{text}"));
        assert_eq!((e.node(), e.task()), (Some("x"), Some("/job:a")));
        let again = from_task("/job:b", e.clone());
        assert_eq!(again, e);
        let by_text = from_task("/job:b", received(err!(Internal, "{}", e.message())));
        assert_eq!((by_text.message(), by_text.task()), (e.message(), Some("/job:a")));
        for plain in [
            err!(Unavailable, "the task cannot be reached"),
            err!(DeadlineExceeded, "Deadline Exceeded").at_node("x"),
            err!(Cancelled, "the step was cancelled").at_node("x"),
        ] {
            assert_eq!(from_task("/job:a", plain.clone()), plain);
        }
    }
}
