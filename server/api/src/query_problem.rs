//! Errors of queries as problems of the configuration API (`config-api` 1.5).

use quiver_config::{Problem, ProblemKind};
use quiver_types::{Error, ErrorKind};

/// Converts an error of a query: one that ran out of time, was cancelled or found no place may succeed later (503); the
/// cause of an internal error, and which file is damaged, is not shown; anything else is a limit.
pub(crate) fn query_problem(error: Error) -> Problem {
    match error.kind {
        ErrorKind::Timeout | ErrorKind::Unavailable | ErrorKind::Cancelled => {
            Problem::new(ProblemKind::Busy, "STORE_BUSY", error.message)
        }
        ErrorKind::Damaged | ErrorKind::Internal => Problem::internal(error),
        _ => Problem::new(ProblemKind::Invalid, "LIMIT_EXCEEDED", error.message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_shown_unless_they_are_internal() {
        for (kind, expected, code) in [
            (ErrorKind::Timeout, ProblemKind::Busy, "STORE_BUSY"),
            (ErrorKind::Unavailable, ProblemKind::Busy, "STORE_BUSY"),
            (ErrorKind::Cancelled, ProblemKind::Busy, "STORE_BUSY"),
            (ErrorKind::LimitExceeded, ProblemKind::Invalid, "LIMIT_EXCEEDED"),
            (ErrorKind::Damaged, ProblemKind::Internal, "INTERNAL"),
            (ErrorKind::Internal, ProblemKind::Internal, "INTERNAL"),
        ] {
            let problem = query_problem(Error::new(kind, "what is said"));
            assert_eq!((problem.kind, problem.code), (expected, code), "{kind:?}");
            assert_eq!(problem.detail == "what is said", expected != ProblemKind::Internal, "{}", problem.detail);
        }
    }
}
