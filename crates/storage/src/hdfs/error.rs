//! HDFS exceptions with TensorFlow's codes.

use hdfs_native::HdfsError;
use thalweg_tensor::{Code, Error};

/// The maximum length of an exception's message that is shown, without the Java stack trace.
const SHOWN_MAX: usize = 500;

/// The error of `operation` on `path`.
pub(super) fn failed(path: &str, operation: &str, error: &HdfsError) -> Error {
    let whole = error.to_string();
    let shown: String = whole.lines().next().unwrap_or_default().chars().take(SHOWN_MAX).collect();
    Error::new(code(error), format!("{path}: cannot {operation}: {shown}"))
}

fn code(error: &HdfsError) -> Code {
    match error {
        HdfsError::RPCError(class, _) | HdfsError::FatalRPCError(class, _) => of_exception(class),
        HdfsError::FileNotFound(_) => Code::NotFound,
        HdfsError::AlreadyExists(_) => Code::AlreadyExists,
        HdfsError::IsADirectoryError(_) => Code::FailedPrecondition,
        HdfsError::InvalidPath(_)
        | HdfsError::InvalidArgument(_)
        | HdfsError::UrlParseError(_)
        | HdfsError::XmlParseError(_) => Code::InvalidArgument,
        HdfsError::IOError(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
            Code::PermissionDenied
        }
        HdfsError::IOError(_) | HdfsError::DataTransferError(_) | HdfsError::OperationFailed(_) => {
            Code::Unavailable
        }
        HdfsError::BlocksNotFound(_)
        | HdfsError::ChecksumError
        | HdfsError::ErasureCodingError(_)
        | HdfsError::InvalidRPCResponse(_) => Code::DataLoss,
        HdfsError::SASLError(_) | HdfsError::GSSAPIError(..) | HdfsError::NoSASLMechanism => {
            Code::PermissionDenied
        }
        HdfsError::UnsupportedErasureCodingPolicy(_)
        | HdfsError::UnsupportedFeature(_)
        | HdfsError::TrashNotEnabled => Code::Unimplemented,
        HdfsError::InternalError(_) => Code::Unknown,
    }
}

/// The code of an exception class, by its simple name.
fn of_exception(class: &str) -> Code {
    match class.rsplit(['.', '$']).next().unwrap_or_default() {
        "FileNotFoundException" => Code::NotFound,
        "FileAlreadyExistsException" => Code::AlreadyExists,
        "AccessControlException" | "InvalidToken" | "AuthorizationException" => {
            Code::PermissionDenied
        }
        "ParentNotDirectoryException"
        | "PathIsNotDirectoryException"
        | "PathIsNotEmptyDirectoryException"
        | "SnapshotException" => Code::FailedPrecondition,
        "AlreadyBeingCreatedException"
        | "LeaseExpiredException"
        | "RecoveryInProgressException" => Code::Aborted,
        "SafeModeException" | "StandbyException" | "RetriableException" | "IOException" => {
            Code::Unavailable
        }
        "QuotaExceededException" | "NSQuotaExceededException" | "DSQuotaExceededException" => {
            Code::ResourceExhausted
        }
        "InvalidPathException" | "HadoopIllegalArgumentException" | "IllegalArgumentException" => {
            Code::InvalidArgument
        }
        "UnsupportedOperationException" => Code::Unimplemented,
        _ => Code::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_sentences() {
        let class = "org.apache.hadoop.security.AccessControlException";
        let error = HdfsError::RPCError(class.into(), "no\n\tat a.b.C".into());
        assert_eq!(
            failed("hdfs://h/p", "open it", &error).to_string(),
            format!("PERMISSION_DENIED: hdfs://h/p: cannot open it: RPC error: {class} no")
        );
        assert_eq!(of_exception("a.b$SafeModeException"), Code::Unavailable);
        assert_eq!(of_exception(""), Code::Unknown);
    }
}
