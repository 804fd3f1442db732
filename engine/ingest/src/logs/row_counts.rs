//! Counts the rows of a request: those stored, and those dropped by reason.

use std::fmt::Write;

/// Why a row was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// Not a record of the format.
    Unreadable,
    /// Its time cannot be read.
    BadTime,
    /// More fields than allowed.
    TooManyFields,
    /// Its line is too long.
    LongLine,
    /// Names and values together are too large.
    LargeRow,
    /// Older than what is kept.
    TooOld,
    /// Too far in the future.
    TooNew,
    /// The sender may not write its service.
    Service,
}

impl DropReason {
    /// All reasons, in the order in which they are counted.
    pub const ALL: [Self; 8] = [
        Self::Unreadable,
        Self::BadTime,
        Self::TooManyFields,
        Self::LongLine,
        Self::LargeRow,
        Self::TooOld,
        Self::TooNew,
        Self::Service,
    ];

    /// The reason as a label value of metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Unreadable => "unreadable",
            Self::BadTime => "bad_time",
            Self::TooManyFields => "too_many_fields",
            Self::LongLine => "long_line",
            Self::LargeRow => "large_row",
            Self::TooOld => "too_old",
            Self::TooNew => "too_new",
            Self::Service => "service",
        }
    }

    /// The reason as a text for the sender.
    pub fn text(self) -> &'static str {
        match self {
            Self::Unreadable => "not a JSON object",
            Self::BadTime => "the time cannot be read (RFC 3339 and Unix times are)",
            Self::TooManyFields => "more than 1000 fields",
            Self::LongLine => "line is longer than 256 KiB",
            Self::LargeRow => "names and values are larger than 2 MiB",
            Self::TooOld => "the time is too far in the past",
            Self::TooNew => "the time is too far in the future",
            Self::Service => "no right to write this service",
        }
    }

    /// Whether the record itself is invalid, and not just its age.
    pub fn is_fault(self) -> bool {
        !matches!(self, Self::TooOld | Self::TooNew)
    }
}

/// Counts of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Rows that were stored.
    pub rows: u64,
    /// Records without fields, which are neither stored nor errors.
    pub empty: u64,
    /// Names that were cut to the maximum length.
    pub cut_names: u64,
    dropped: [u64; DropReason::ALL.len()],
    /// The position of the first invalid record, for the sender.
    pub first_fault: Option<String>,
    /// The first service that the sender may not write; empty for rows without a service.
    pub first_forbidden: Option<String>,
}

impl Report {
    /// Counts a dropped row.
    pub fn drop_row(&mut self, why: DropReason) {
        self.drop_rows(why, 1);
    }

    /// Counts dropped rows.
    pub fn drop_rows(&mut self, why: DropReason, count: u64) {
        self.dropped[why as usize] += count;
    }

    /// Gives the reasons that occurred, with their counts.
    pub fn dropped(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.into_iter().map(|why| (why, self.dropped[why as usize])).filter(|(_, n)| *n > 0)
    }

    /// Gives the number of rows that were not taken.
    pub fn dropped_count(&self) -> u64 {
        self.dropped.iter().sum()
    }

    /// Whether there were records and none could be parsed. Rows beyond a limit were parsed.
    pub fn all_faulty(&self) -> bool {
        let unread = |why| matches!(why, DropReason::Unreadable | DropReason::BadTime);
        let mut dropped = self.dropped().peekable();
        self.rows == 0 && self.empty == 0 && dropped.peek().is_some() && dropped.all(|(why, _)| unread(why))
    }

    /// The number of rows that the sender may not write.
    pub fn forbidden(&self) -> u64 {
        self.dropped[DropReason::Service as usize]
    }

    /// Whether there were rows, and the sender may write none of them.
    pub fn all_forbidden(&self) -> bool {
        let forbidden = self.forbidden();
        self.rows == 0 && self.empty == 0 && forbidden > 0 && forbidden == self.dropped_count()
    }

    /// A text that lists what was dropped; empty if nothing was.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for (why, count) in self.dropped() {
            let separator = if out.is_empty() { "" } else { "; " };
            let _ = write!(out, "{separator}{count} dropped: {}", why.text());
        }
        if let Some(fault) = &self.first_fault {
            let _ = write!(out, "; first fault: {fault}");
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(rows: u64, empty: u64, dropped: &[(DropReason, u64)]) -> Report {
        let mut report = Report { rows, empty, ..Report::default() };
        for (why, count) in dropped {
            report.drop_rows(*why, *count);
        }
        report
    }

    #[test]
    fn what_is_told() {
        let mut told = report(1, 0, &[(DropReason::TooNew, 2), (DropReason::Unreadable, 1), (DropReason::TooNew, 3)]);
        assert_eq!(told.text(), "1 dropped: not a JSON object; 5 dropped: the time is too far in the future");
        assert_eq!(told.dropped_count(), 6);
        told.first_fault = Some("line 3: not a JSON object".to_owned());
        assert!(told.text().ends_with("the future; first fault: line 3: not a JSON object"));
        assert_eq!(report(5, 1, &[]).text(), "");
        let mut words: Vec<&str> = DropReason::ALL.into_iter().map(DropReason::word).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), DropReason::ALL.len(), "reasons are told apart");
        for (place, why) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(why as usize, place, "counts are kept by place");
        }
    }

    #[test]
    fn whole_requests() {
        let check = |rows: u64, empty: u64, dropped: &[(DropReason, u64)], faulty: bool, forbidden: bool| {
            let report = report(rows, empty, dropped);
            assert_eq!((report.all_faulty(), report.all_forbidden()), (faulty, forbidden), "{report:?}");
        };
        check(0, 0, &[], false, false);
        check(0, 0, &[(DropReason::Unreadable, 2)], true, false);
        check(0, 0, &[(DropReason::Unreadable, 2), (DropReason::BadTime, 1)], true, false);
        check(1, 0, &[(DropReason::Unreadable, 2)], false, false);
        check(0, 1, &[(DropReason::Unreadable, 2)], false, false);
        // Rows beyond a limit were parsed.
        check(0, 0, &[(DropReason::Unreadable, 2), (DropReason::LargeRow, 1)], false, false);
        check(0, 0, &[(DropReason::TooOld, 2)], false, false);
        check(0, 0, &[(DropReason::Service, 2)], false, true);
        check(0, 0, &[(DropReason::Service, 2), (DropReason::Unreadable, 1)], false, false);
        check(1, 0, &[(DropReason::Service, 2)], false, false);
        check(0, 1, &[(DropReason::Service, 2)], false, false);
        let faults = DropReason::ALL.into_iter().filter(|why| !why.is_fault()).collect::<Vec<_>>();
        assert_eq!(faults, [DropReason::TooOld, DropReason::TooNew], "ages are no faults of records");
    }
}
