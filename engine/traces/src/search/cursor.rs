//! The cursor of a page: the last sort key and trace, the window, and which spans had been received.

use std::fmt;

use quiver_types::spans::{TraceId, hex, parse_hex};

/// The position after a page, to continue from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    /// Hash of filter and sort: a cursor is only valid for the search that it came from.
    pub(crate) binds: u64,
    pub(crate) key: i64,
    pub(crate) trace: TraceId,
    /// Unix nanoseconds: spans received later are ignored, so that pages are consistent.
    pub(crate) received: i64,
    pub(crate) range: (i64, i64),
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { binds, key, trace, received, range } = self;
        write!(f, "1.{binds:x}.{key}.{}.{received}.{}.{}", hex(trace), range.0, range.1)
    }
}

impl Cursor {
    /// Parses a cursor; `None` if it is malformed.
    pub fn parse(text: &str) -> Option<Self> {
        let parts: Vec<&str> = text.split('.').collect();
        let ["1", binds, key, trace, received, from, to] = parts.as_slice() else { return None };
        Some(Self {
            binds: u64::from_str_radix(binds, 16).ok()?,
            key: key.parse().ok()?,
            trace: parse_hex(trace)?,
            received: received.parse().ok()?,
            range: (from.parse().ok()?, to.parse().ok()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_come_back() {
        let cursor = Cursor { binds: u64::MAX, key: -5, trace: [7; 16], received: 9, range: (i64::MIN, 3) };
        assert_eq!(Cursor::parse(&cursor.to_string()), Some(cursor));
        for bad in ["", "1.2", "2.0.0.07.0.0.0", "1.x.0.07.0.0.0"] {
            assert_eq!(Cursor::parse(bad), None, "{bad}");
        }
    }
}
