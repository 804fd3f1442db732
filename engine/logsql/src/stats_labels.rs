//! Which columns of a query that ends in `stats` are labels and which are values: what the Prometheus form needs.

use quiver_types::logs::TIME;
use quiver_types::{Error, ErrorKind, Result};

use std::fmt::Display;

use crate::ast::{FieldPattern, GroupBy, Literal, PatternPair, Pipe, Query, TimeBucket};
use crate::pipes::answer_order::AnswerOrder;

/// The columns of an answer in its Prometheus form.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatsColumns {
    /// Fields that the rows are grouped by: labels of the series.
    pub labels: Vec<String>,
    /// Results of functions: one series for each, under its name.
    pub values: Vec<String>,
}

/// Says why a query has no Prometheus form.
pub(crate) fn refused(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Execution, text)
}

/// Finds the columns of a query that ends in `stats`, through the pipes behind it.
///
/// # Errors
/// Execution: the query does not end in `stats`, or a pipe behind it loses labels or all values.
pub fn stats_columns(query: &Query) -> Result<StatsColumns> {
    let last = query.pipes.iter().rposition(|pipe| matches!(pipe, Pipe::Stats(_)));
    let Some(last) = last else { return Err(refused("the query must have a `stats` pipe")) };
    let mut columns = StatsColumns::default();
    for pipe in &query.pipes[last..] {
        pipe.kind().follow_columns(&mut columns)?;
        if columns.values.is_empty() {
            return Err(refused(format!("`{pipe}` leaves no result of `stats`")));
        }
    }
    Ok(columns)
}

/// Groups each `stats` of a query by time, and each order within it. `offset` is the zone of the steps, as in
/// `by (_time:step offset d)`.
///
/// # Errors
/// Execution: `limit` and `offset`, which would cut series; pipes that lose `_time`; as [`stats_columns`].
pub fn by_step(mut query: Query, step: (i64, &str), offset: Option<(i64, &str)>) -> Result<(Query, StatsColumns)> {
    let literal = |(ns, text): (i64, &str)| Literal::new(ns as f64, text);
    let by_time = || GroupBy {
        field: TIME.to_owned(),
        bucket: Some(TimeBucket::Step(literal(step))),
        offset: offset.map(literal),
    };
    let mut grouped = false;
    for pipe in &mut query.pipes {
        match pipe {
            Pipe::Stats(stats) => {
                grouped = true;
                stats.by_time(by_time());
            }
            Pipe::Sort(sort) if grouped && !sort.partition_by.iter().any(|name| name == TIME) => {
                sort.partition_by.push(TIME.to_owned());
            }
            Pipe::Limit(_) | Pipe::Offset(_) if grouped => {
                return Err(refused(format!("`{pipe}` cannot stand in a query over steps")));
            }
            _ => {}
        }
    }
    let columns = stats_columns(&query)?;
    if columns.labels.iter().any(|label| label == TIME) {
        Ok((query, columns))
    } else {
        Err(refused("the query must keep `_time`"))
    }
}

/// Gives the rows of such a query series by series, each in the order of time, which is no label of theirs.
#[must_use]
pub fn in_series((mut query, mut columns): (Query, StatsColumns)) -> (Query, StatsColumns) {
    columns.labels.retain(|label| label != TIME);
    query.pipes.push(AnswerOrder::Series { labels: columns.labels.clone() }.into());
    (query, columns)
}

impl StatsColumns {
    /// Leaves the columns that a pipe keeps; one that drops a label is refused.
    pub(crate) fn keep(&mut self, pipe: &dyn Display, kept: impl Fn(&String) -> bool) -> Result<()> {
        self.keep_labels(pipe, &kept)?;
        self.values.retain(kept);
        Ok(())
    }

    fn keep_labels(&self, pipe: &dyn Display, kept: impl Fn(&String) -> bool) -> Result<()> {
        match self.labels.iter().find(|label| !kept(label)) {
            Some(label) => Err(refused(format!("`{pipe}` loses `{label}`, by which rows are grouped"))),
            None => Ok(()),
        }
    }

    /// Adds a label that a pipe makes; a column of that name must not be there.
    pub(crate) fn add_label(&mut self, pipe: &dyn Display, name: &str) -> Result<()> {
        if self.labels.iter().chain(&self.values).any(|own| own == name) {
            return Err(refused(format!("`{pipe}` overwrites `{name}`")));
        }
        self.labels.push(name.to_owned());
        Ok(())
    }

    /// Adds a value that a pipe makes; it may replace another value, but no label.
    pub(crate) fn add_value(&mut self, pipe: &dyn Display, name: &str) -> Result<()> {
        if self.labels.iter().any(|label| label == name) {
            return Err(refused(format!("`{pipe}` overwrites `{name}`, by which rows are grouped")));
        }
        if !self.values.iter().any(|value| value == name) {
            self.values.push(name.to_owned());
        }
        Ok(())
    }

    /// Follows a pair of `copy` or `rename`, names or prefixes.
    pub(crate) fn move_pair(&mut self, pipe: &dyn Display, pair: &PatternPair, rename: bool) -> Result<()> {
        if pair.source == pair.target {
            return Ok(());
        }
        let renamed = |name: &str| match (&pair.source, &pair.target) {
            (FieldPattern::Name(source), FieldPattern::Name(target)) => (source == name).then(|| target.clone()),
            (FieldPattern::Prefix(old), FieldPattern::Prefix(new)) => {
                name.strip_prefix(old.as_str()).map(|n| format!("{new}{n}"))
            }
            (FieldPattern::Prefix(old), FieldPattern::Name(target)) => {
                name.starts_with(old.as_str()).then(|| target.clone())
            }
            (FieldPattern::Name(_), FieldPattern::Prefix(_)) => None,
        };
        let labels: Vec<(String, String)> =
            self.labels.iter().filter_map(|name| Some((name.clone(), renamed(name)?))).collect();
        let values: Vec<(String, String)> =
            self.values.iter().filter_map(|name| Some((name.clone(), renamed(name)?))).collect();
        if rename {
            self.labels.retain(|name| renamed(name).is_none());
            self.values.retain(|name| renamed(name).is_none());
        }
        // What no row has still overwrites what it is moved to.
        if let (FieldPattern::Name(_), FieldPattern::Name(target), true) =
            (&pair.source, &pair.target, labels.is_empty() && values.is_empty())
        {
            self.values.retain(|name| name != target);
            return self.keep_labels(pipe, |label| label != target);
        }
        if let (FieldPattern::Prefix(_), FieldPattern::Prefix(target), true) =
            (&pair.source, &pair.target, labels.is_empty() && values.is_empty())
            && self.labels.iter().chain(&self.values).any(|name| name.starts_with(target.as_str()))
        {
            return Err(refused(format!("`{pipe}` may overwrite `{target}*`")));
        }
        for (_, target) in labels {
            self.add_label(pipe, &target)?;
        }
        for (_, target) in values {
            self.add_value(pipe, &target)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(query: &str, labels: Option<&[&str]>) {
        let found = stats_columns(&crate::parse(query).expect(query));
        assert_eq!(
            found.ok().map(|c| c.labels),
            labels.map(|l| l.iter().map(|s| (*s).to_owned()).collect()),
            "{query}"
        );
    }

    #[test]
    fn labels() {
        check("* | count()", Some(&[]));
        check("* | by (x) count() | copy x* y*, y* z*", Some(&["x", "y", "z"]));
        check("* | by (x) count() y | mv y* z* | rm y*", Some(&["x"]));
        check("* | by (x) count() | format 'a<b>' as y", Some(&["x", "y"]));
        check("* | by (a, b) count() | copy a b", None);
        check("* | by (x) count() y | math y*100 as x", None);
        check("* | by (x) count() y | cp a* y*", None);
        check("* | by (x) count() | mv a x", None);
        check("* | count() x | fields y*", None);
        check("* | top 5 by (x)", None);
    }

    #[test]
    fn steps() {
        let stepped = |query: &str| by_step(crate::parse(query).expect(query), (1_000_000_000, "1s"), None);
        let grouped = stepped("* | by (path) rate() r | last 3 by (r)").expect("valid");
        let text = "* | stats by (path, _time:1s) rate() as r | last 3 by (r) partition by (_time)";
        assert_eq!(grouped.0.to_string(), text);
        let (query, columns) = in_series(grouped);
        assert_eq!(query.to_string(), format!("{text} | series by (path)"));
        assert_eq!((columns.labels, columns.values), (vec!["path".to_owned()], vec!["r".to_owned()]));
        assert!(stepped("* | count() | limit 3").is_err());
        assert!(stepped("* | count() | drop _time").is_err());
    }

    #[test]
    fn values_go_with_their_names() {
        let values = |query: &str| stats_columns(&crate::parse(query).expect(query)).expect(query).values.join(" ");
        assert_eq!(values("* | by (x) count() n, sum(a) s | rename n as m"), "s m");
        assert_eq!(values("* | by (x) count() n, count(a) m | copy n as m"), "n m");
        assert_eq!(values("* | by (x) count() n | math n * 2 as d"), "n d");
        let refused = |query: &str, part: &str| {
            let error = stats_columns(&crate::parse(query).expect(query)).expect_err(query);
            assert_eq!(error.kind, ErrorKind::Execution, "{query}");
            assert!(error.message.contains(part), "{query}: {error}");
        };
        refused("*", "the query must have a `stats` pipe");
        refused("* | sort by (a)", "the query must have a `stats` pipe");
        refused("* | by (x) count() n | rename x as n", "overwrites `n`");
        refused("* | by (x) count() n | copy n as x", "overwrites `x`, by which rows are grouped");
        refused("* | by (x) count() n | math n * 2 as x", "overwrites `x`, by which rows are grouped");
    }

    #[test]
    fn steps_have_an_offset_and_one_place() {
        let hour = (3_600_000_000_000, "1h");
        let stepped = |query: &str, offset| by_step(crate::parse(query).expect(query), hour, offset);
        let shown = |query: &str, offset| stepped(query, offset).expect(query).0.to_string();
        let offset = Some((1_800_000_000_000, "30m"));
        assert_eq!(shown("* | count() n", offset), "* | stats by (_time:1h offset 30m) count(*) as n");
        // Its own steps give way.
        assert_eq!(shown("* | by (_time:5m) count() n", None), "* | stats by (_time:1h) count(*) as n");
        // Limits before the first `stats` are no matter.
        assert!(stepped("* | limit 3 | count() n", None).is_ok());
        let refused = stepped("* | count() n | offset 1", None).expect_err("refused");
        assert!(refused.message.contains("cannot stand in a query over steps"), "{refused}");
        assert!(stepped("* | sort by (a)", None).is_err());
    }
}
