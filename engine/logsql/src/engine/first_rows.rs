//! The first rows of a query whose pipes see all rows before they give any.
//!
//! Such a query may fail after its first rows: of two partitions of groups one is complete and given out while the other
//! finds no memory. The answer would be cut off, although nothing of it was due before all of it. So its first rows are held
//! back, and a failure until then is an error like any other.

use std::collections::VecDeque;

use futures::StreamExt as _;
use futures::stream::Stream;
use quiver_types::Result;

use super::Rows;
use crate::ast::Query;

/// Rows that are held back at most, with the batch that passes it.
const HELD_ROWS: usize = 8192;
/// The same in bytes of their batches.
const HELD_BYTES: usize = 1 << 20;

/// Says whether no row of a query is due before all rows were seen.
pub(super) fn gathers(query: &Query) -> bool {
    query.pipes.iter().any(|pipe| !pipe.kind().follows())
}

/// Reads the first rows, up to as many as are held back.
///
/// # Errors
/// That of the stream, if it comes before them.
pub(super) async fn first_of(found: &mut (impl Stream<Item = Result<Rows>> + Unpin + Send)) -> Result<VecDeque<Rows>> {
    let (mut first, mut count, mut bytes) = (VecDeque::new(), 0, 0);
    while count < HELD_ROWS
        && bytes < HELD_BYTES
        && let Some(rows) = found.next().await
    {
        let rows = rows?;
        count += rows.len();
        bytes += rows.batch.get_array_memory_size();
        first.push_back(rows);
    }
    Ok(first)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, StringViewArray};
    use futures::FutureExt as _;
    use futures::stream::iter;
    use quiver_types::{Error, ErrorKind};

    use super::*;
    use crate::parse;
    use crate::rows::{Shape, batch};

    fn rows(count: usize, text: &str) -> Rows {
        let shape = Shape::of_texts(["a"]);
        let texts: ArrayRef = Arc::new(StringViewArray::from_iter_values(std::iter::repeat_n(text, count)));
        let batch = batch(&shape, vec![texts], count).expect("rows");
        Rows { shape: Arc::new(shape), batch, memory: None }
    }

    /// Rows that come before a failure.
    fn failing(good: Vec<Rows>) -> impl Stream<Item = Result<Rows>> + Unpin + Send {
        let failure = Error::new(ErrorKind::LimitExceeded, "no memory");
        iter(good.into_iter().map(Ok).chain([Err(failure)]))
    }

    fn read(mut found: impl Stream<Item = Result<Rows>> + Unpin + Send) -> Result<Vec<usize>> {
        let first = first_of(&mut found).now_or_never().expect("all is there")?;
        Ok(first.iter().map(Rows::len).collect())
    }

    #[test]
    fn a_failure_behind_few_rows_is_all_that_is_told() {
        for good in [vec![], vec![rows(6, "x")], vec![rows(6, "x"), rows(HELD_ROWS - 7, "x")]] {
            assert_eq!(read(failing(good)).expect_err("it fails").kind, ErrorKind::LimitExceeded);
        }
    }

    #[test]
    fn no_more_than_some_rows_are_held_back() {
        assert_eq!(
            read(failing(vec![rows(9, "x"), rows(HELD_ROWS, "x"), rows(1, "x")])).expect("rows"),
            [9, HELD_ROWS]
        );
        let long = "x".repeat(HELD_BYTES);
        assert_eq!(read(failing(vec![rows(1, &long), rows(1, "x")])).expect("rows"), [1]);
        assert_eq!(read(iter([Ok(rows(2, "x")), Ok(rows(3, "x"))])).expect("rows"), [2, 3]);
    }

    #[test]
    fn rows_that_are_given_as_they_come_are_not_held_back() {
        for (query, expected) in [
            ("*", false),
            ("a | fields b, c | filter b:x", false),
            ("* | stats by (a) count() n", true),
            ("* | stats by (a) count() n | fields n", true),
            ("* | uniq by (a)", true),
            ("* | sort by (_time desc) limit 3", true),
        ] {
            assert_eq!(gathers(&parse(query).expect("a query")), expected, "{query}");
        }
    }
}
