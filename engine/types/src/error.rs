//! One small set of error kinds for every crate, and the error that the traits in `source` carry.
//!
//! `server/api` maps a kind to HTTP status and gRPC code once. Messages are for the caller: lower case, no full
//! stop, values in back quotes. The cause chain is for the log only.

use std::sync::Arc;

use crate::brief::brief_text;

/// What a caller can do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The request is malformed; repeating it never helps.
    Invalid,
    /// The request is well formed but cannot be carried out (PromQL: many-to-many match and the like).
    Execution,
    /// No or bad credentials.
    Unauthenticated,
    /// Credentials without the right.
    Forbidden,
    /// The named thing does not exist.
    NotFound,
    /// Another request changed it first.
    Conflict,
    /// The request's body is larger than allowed.
    TooLarge,
    /// The content type or encoding of the request is not supported.
    Unsupported,
    /// A limit of a query or of a sender was exceeded.
    LimitExceeded,
    /// It took longer than allowed.
    Timeout,
    /// The sender of the request stopped sending before its end.
    SenderTimeout,
    /// The caller disconnected, or the server is stopping.
    Cancelled,
    /// Overload or start-up: the same request may succeed later.
    Unavailable,
    /// A stored file is damaged, missing or unreadable; the message names it.
    Damaged,
    /// A bug, or a failure of the server's environment.
    Internal,
}

/// An error with its kind, a message for the caller and a cause for the log.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// What the caller can do.
    pub kind: ErrorKind,
    /// What the caller reads.
    pub message: String,
    /// What the log shows in addition.
    #[source]
    pub source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

/// Result with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Makes an error without a cause. Of a message of more than 4 KiB, its beginning and its end stay.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: brief_text(message.into()), source: None }
    }

    /// Makes an error of kind [`ErrorKind::Invalid`].
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    /// Makes an error of kind [`ErrorKind::Internal`].
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }

    /// Adds the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// Gives the kind.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

/// Says whether a call failed since there is no more room: on the disk, in a quota, or in what the process may write to
/// one file (`ulimit -f`, `LimitFSIZE=`).
pub fn has_no_room(kind: std::io::ErrorKind) -> bool {
    use std::io::ErrorKind as Io;
    matches!(kind, Io::StorageFull | Io::QuotaExceeded | Io::FileTooLarge)
}

/// Says whether a full disk is among the causes of an error.
pub fn disk_is_full(error: &(dyn std::error::Error + 'static)) -> bool {
    let full = |e: &std::io::Error| has_no_room(e.kind()) || e.get_ref().is_some_and(|inner| disk_is_full(inner));
    // Our errors hold their sources in an `Arc` and return that as their source.
    let shared = error.downcast_ref::<Arc<dyn std::error::Error + Send + Sync>>();
    error.downcast_ref::<std::io::Error>().is_some_and(full)
        || shared.is_some_and(|inner| disk_is_full(&**inner))
        || error.source().is_some_and(disk_is_full)
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn messages_are_as_long_as_people_read() {
        let error = Error::invalid(format!("there is no table `{}` at line 1", "z".repeat(1 << 20)));
        assert!(error.message.len() < 1_000, "{}", error.message.len());
        assert!(error.message.starts_with("there is no table `z") && error.message.ends_with("z` at line 1"));
    }

    #[test]
    fn a_full_disk_is_found_wherever_it_lies() {
        let check = |kind: io::ErrorKind, full: bool| {
            let error = Error::internal("cannot write").with_source(io::Error::from(kind));
            assert_eq!(disk_is_full(&error), full, "{kind:?}");
            let hidden = Error::internal("cannot write a part").with_source(io::Error::other(error));
            assert_eq!(disk_is_full(&hidden), full, "{kind:?}");
        };
        check(io::ErrorKind::StorageFull, true);
        check(io::ErrorKind::QuotaExceeded, true);
        check(io::ErrorKind::FileTooLarge, true);
        check(io::ErrorKind::Other, false);
    }
}
