//! Errors of the store: the shared type with its kinds, and conversions of foreign errors.
//!
//! Messages are for the caller; what the disk, SQLite or the object store reported is the source, for the log.

use quiver_types::ReadStats;
use quiver_types::error::has_no_room;
pub use quiver_types::{Error, ErrorKind, Result};

use crate::metrics::METRICS;

/// Gives foreign errors a kind and a message.
pub trait Context<T> {
    /// A fault of ours, or of the disk under us.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] with the foreign error as source.
    fn internal(self, message: impl Into<String>) -> Result<T>;

    /// Something that may work again later (object store, busy database).
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] with the foreign error as source.
    fn unavailable(self, message: impl Into<String>) -> Result<T>;
}

impl<T, E: std::error::Error + Send + Sync + 'static> Context<T> for std::result::Result<T, E> {
    fn internal(self, message: impl Into<String>) -> Result<T> {
        self.map_err(|e| Error::new(ErrorKind::Internal, message).with_source(e))
    }

    fn unavailable(self, message: impl Into<String>) -> Result<T> {
        self.map_err(|e| Error::new(ErrorKind::Unavailable, message).with_source(e))
    }
}

/// Turns an I/O error of the data directory into ours: a full disk is [`ErrorKind::Unavailable`] (it may have room
/// again later), so are descriptors that are all in use; all else is a fault.
pub fn io_error(what: impl Into<String>, error: std::io::Error) -> Error {
    let passes = has_no_room(error.kind()) || is_short_of_resources(&error);
    let kind = if passes { ErrorKind::Unavailable } else { ErrorKind::Internal };
    Error::new(kind, what).with_source(error)
}

/// Says whether a call failed since the process or the machine is out of descriptors or memory, which passes.
pub fn is_short_of_resources(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    let short = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::AGAIN];
    error.raw_os_error().is_some_and(|code| short.iter().any(|e| e.raw_os_error() == code))
}

/// Goes on without a file that could not be read, when the answer can say so.
///
/// # Errors
/// The error itself, when the answer has to be whole or something else went wrong.
pub(crate) fn leave_out(stats: &ReadStats, error: Error) -> Result<()> {
    let text = chain(&error);
    if stats.left_out.note(error)? {
        METRICS.query_files_left_out.inc();
        tracing::error!(error = text, "a file cannot be read; an answer goes without what it holds");
    }
    Ok(())
}

/// Writes an error with its whole chain of causes, for logs.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_no_fault_of_ours() {
        let full = io_error("cannot write", std::io::Error::from(std::io::ErrorKind::StorageFull));
        assert_eq!(full.kind(), ErrorKind::Unavailable);
        let other = io_error("cannot write", std::io::Error::other("no such luck"));
        assert_eq!(other.kind(), ErrorKind::Internal);
        assert_eq!(chain(&other), "cannot write: no such luck");
    }

    #[test]
    fn what_is_short_now_may_be_there_later() {
        use rustix::io::Errno;

        for (errno, kind) in [
            (Errno::MFILE, ErrorKind::Unavailable),
            (Errno::NFILE, ErrorKind::Unavailable),
            (Errno::NOMEM, ErrorKind::Unavailable),
            (Errno::AGAIN, ErrorKind::Unavailable),
            (Errno::NOSPC, ErrorKind::Unavailable),
            (Errno::DQUOT, ErrorKind::Unavailable),
            (Errno::FBIG, ErrorKind::Unavailable),
            (Errno::IO, ErrorKind::Internal),
            (Errno::NOENT, ErrorKind::Internal),
            (Errno::ROFS, ErrorKind::Internal),
        ] {
            let error = std::io::Error::from_raw_os_error(errno.raw_os_error());
            assert_eq!(io_error("cannot write", error).kind(), kind, "{errno:?}");
        }
    }

    #[test]
    fn a_chain_tells_each_cause_once() {
        let inner = std::io::Error::other("the disk is gone");
        let middle: Result<()> = Err(inner).internal("cannot read `a`");
        let outer: Result<()> = middle.unavailable("a part cannot be read");
        let error = outer.unwrap_err();
        assert_eq!((error.kind(), error.to_string()), (ErrorKind::Unavailable, "a part cannot be read".to_owned()));
        assert_eq!(chain(&error), "a part cannot be read: cannot read `a`: the disk is gone");
        // Some errors write their cause along with themselves.
        let repeats =
            Error::internal("no luck: the disk is gone").with_source(std::io::Error::other("the disk is gone"));
        assert_eq!(chain(&repeats), "no luck: the disk is gone");
        assert_eq!(chain(&Error::invalid("alone")), "alone");
    }

    #[test]
    fn files_are_left_out_where_the_answer_can_say_so() {
        let damaged = |key: &str| Error::new(ErrorKind::Damaged, format!("file `{key}` is gone"));
        let stats = ReadStats::default();
        assert_eq!(leave_out(&stats, damaged("a")).unwrap_err().message, "file `a` is gone");
        stats.left_out.allow();
        assert!(leave_out(&stats, damaged("a")).is_ok() && leave_out(&stats, damaged("a")).is_ok());
        let others = [ErrorKind::Unavailable, ErrorKind::Cancelled, ErrorKind::Internal, ErrorKind::LimitExceeded];
        for kind in others {
            assert_eq!(leave_out(&stats, Error::new(kind, "x")).unwrap_err().kind(), kind);
        }
        stats.left_out.close();
        assert!(leave_out(&stats, damaged("b")).is_err(), "nothing more can be told");
    }
}
