//! The order in which an answer lists what was counted. The language has no words for it: `sort` compares values as they
//! look, lists compare them as texts.

use std::fmt::{self, Display, Formatter};

use quiver_types::Result;
use quiver_types::logs::TIME;

use super::pipe::{At, Order, Output, PipeKind};
use super::syntax::{limited, names};
use crate::ops::sort::{Sort, SortComparison};
use crate::parser::PipeDef;
use crate::partial_plan::PartialPlan;
use crate::print::word;
use crate::required_fields::Needs;

/// How an answer is ordered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnswerOrder {
    /// The greatest counts first, then by values.
    Counted {
        /// The column of the values.
        value: String,
        /// The column of their counts.
        count: String,
        /// At most so many rows; `None`: all.
        limit: Option<u64>,
    },
    /// Series by series, each in the order of time.
    Series {
        /// Fields whose values together tell one series from another.
        labels: Vec<String>,
    },
    /// Group by group as their values look, each in the order of time.
    Groups {
        /// Fields whose values together make a group.
        fields: Vec<String>,
    },
}

/// It is no pipe by name: requests put it into queries.
pub(super) const DEFS: &[PipeDef] = &[];

impl AnswerOrder {
    fn by(&self) -> Vec<(String, bool)> {
        match self {
            Self::Counted { value, count, .. } => vec![(count.clone(), true), (value.clone(), false)],
            Self::Series { labels: fields } | Self::Groups { fields } => {
                fields.iter().map(String::as_str).chain([TIME]).map(|name| (name.to_owned(), false)).collect()
            }
        }
    }
}

impl Display for AnswerOrder {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Counted { value, count, limit } => {
                write!(f, "counted {} by {}{}", word(value), word(count), limited(*limit))
            }
            Self::Series { labels } => write!(f, "series by ({})", names(labels)),
            Self::Groups { fields } => write!(f, "groups by ({})", names(fields)),
        }
    }
}

impl PipeKind for AnswerOrder {
    fn before(&self, after: &Needs) -> Needs {
        let mut needs = after.clone();
        needs.add_all(self.by().iter().map(|(name, _)| name.as_str()));
        needs
    }

    fn order(&self) -> Order {
        Order::Made
    }

    fn output(&self) -> Output<'_> {
        Output::Same
    }

    fn plan(&self, rows: PartialPlan, _: At<'_>) -> Result<PartialPlan> {
        let (limit, compared) = match self {
            Self::Counted { limit, .. } => (*limit, SortComparison::Top),
            Self::Series { .. } => (None, SortComparison::Texts),
            Self::Groups { .. } => (None, SortComparison::Apart),
        };
        Sort { limit, compared, ..Sort::by(rows.shape.clone(), self.by()) }.plan(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipes::rows::Rows;
    use crate::pipes::testing::run_pipes;

    fn ordered(order: AnswerOrder, rows: &[[(&str, &str); 2]]) -> Vec<String> {
        let rows = rows.iter().map(|row| row.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec());
        run_pipes(vec![Rows(rows.collect()).into(), order.into()])
    }

    #[test]
    fn values_of_equal_counts_are_compared_as_texts() {
        let rows = [("9", "1"), ("10", "1"), ("2KB", "3"), ("1KB", "20"), ("", "1"), ("1e3", "1")];
        let rows = rows.map(|(value, count)| [("v", value), ("n", count)]);
        let counted = |limit| AnswerOrder::Counted { value: "v".to_owned(), count: "n".to_owned(), limit };
        let all = ["n=20 v=1KB", "n=3 v=2KB", "n=1", "n=1 v=10", "n=1 v=1e3", "n=1 v=9"];
        assert_eq!(ordered(counted(None), &rows), all);
        assert_eq!(ordered(counted(Some(4)), &rows), all[..4], "the beginning of the whole list");
        assert_eq!(counted(Some(4)).to_string(), "counted v by n limit 4");
    }

    #[test]
    fn series_are_in_the_order_of_their_labels_and_of_time() {
        let at = |second: &str| format!("2025-01-01T00:00:{second}Z");
        let times = [at("00"), at("00.5"), at("01")];
        let rows = [("9", 2), ("10", 0), ("9", 0), ("", 2), ("9", 1)];
        let rows = rows.map(|(label, time)| [("a", label), (TIME, times[time].as_str())]);
        let shown = |label: &str, time: usize| format!("_time={}{label}", times[time]);
        let expected = [shown("", 2), shown(" a=10", 0), shown(" a=9", 0), shown(" a=9", 1), shown(" a=9", 2)];
        let series = AnswerOrder::Series { labels: vec!["a".to_owned()] };
        assert_eq!(ordered(series, &rows), expected);
    }
}
