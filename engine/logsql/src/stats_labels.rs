//! Which columns of a query that ends in `stats` are labels and which are values: what the Prometheus form needs.

use quiver_types::Result;
use quiver_types::logs::TIME;

use crate::ast::{GroupBy, Literal, Pipe, Query, TimeBucket};
use crate::pipes::answer_order::AnswerOrder;
use crate::pipes::sort::Sort;
use crate::pipes::stats::Stats;
use crate::required_fields::Needs;
use crate::series_columns::{StatsColumns, refused};

/// Finds the columns of a query that ends in `stats`, through the pipes behind it.
///
/// # Errors
/// Execution: the query does not end in `stats`, or a pipe behind it loses labels or all values.
pub fn stats_columns(query: &Query) -> Result<StatsColumns> {
    let last = query.pipes.iter().rposition(Pipe::is::<Stats>);
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

/// Groups each `stats` of a query by time, and each order within it that keeps its first rows only. `offset` is the zone
/// of the steps, as in `by (_time:step offset d)`.
///
/// # Errors
/// Execution: `limit` and `offset`, which would cut series; pipes that lose `_time`, before the last `stats` or behind it;
/// as [`stats_columns`].
pub fn by_step(mut query: Query, step: (i64, &str), offset: Option<(i64, &str)>) -> Result<(Query, StatsColumns)> {
    let literal = |(ns, text): (i64, &str)| Literal::new(ns as f64, text);
    let by_time = || GroupBy {
        field: TIME.to_owned(),
        bucket: Some(TimeBucket::Step(literal(step))),
        offset: offset.map(literal),
    };
    let mut grouped = false;
    for pipe in &mut query.pipes {
        if let Some(stats) = pipe.downcast_mut::<Stats>() {
            grouped = true;
            stats.by_time(by_time());
        } else if grouped && pipe.kind().cut().is_some() {
            return Err(refused(format!("`{pipe}` cannot stand in a query over steps")));
        } else if grouped
            && let Some(sort) = pipe.downcast_mut::<Sort>()
            && sort.limit.is_some_and(|limit| limit > 0)
            && !sort.partition_by.iter().any(|name| name == TIME)
        {
            sort.partition_by.push(TIME.to_owned());
        }
    }
    let columns = stats_columns(&query)?;
    keeps_time_until_stats(&query)?;
    if columns.labels.iter().any(|label| label == TIME) {
        Ok((query, columns))
    } else {
        Err(refused("the query must keep `_time`"))
    }
}

/// Refuses a query whose last `stats` would have rows without the times of the rows that they are made of: there are no
/// steps of these.
fn keeps_time_until_stats(query: &Query) -> Result<()> {
    let last = query.pipes.iter().rposition(Pipe::is::<Stats>).unwrap_or(0);
    let lost = query.pipes[..last].iter().find(|pipe| !pipe.kind().before(&Needs::of([TIME])).has(TIME));
    match lost {
        Some(pipe) => Err(refused(format!("`{pipe}` loses `_time`, so there are no steps behind it"))),
        None => Ok(()),
    }
}

/// Gives the rows of such a query series by series, each in the order of time, which is no label of theirs.
#[must_use]
pub fn in_series((mut query, columns): (Query, StatsColumns)) -> (Query, StatsColumns) {
    let mut columns = columns.with_rows_as_labels();
    columns.labels.retain(|label| label != TIME);
    query.pipes.push(AnswerOrder::Series { labels: columns.labels.clone() }.into());
    (query, columns)
}

#[cfg(test)]
mod tests {
    use quiver_types::ErrorKind;

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
    fn histograms_go_with_their_names() {
        let histograms = |query: &str| {
            let columns = stats_columns(&crate::parse(query).expect(query)).expect(query);
            columns.histograms.join(" ")
        };
        assert_eq!(histograms("* | by (x) histogram(a) h, uniq_values(a) u"), "h");
        assert_eq!(histograms("* | histogram(a) h, count() n | copy h as g, n as m"), "h g");
        assert_eq!(histograms("* | histogram(a) h, count() n | rename n as h"), "");
        assert_eq!(histograms("* | histogram(a) h | math 1 as h"), "");
    }

    /// As in VictoriaLogs since 1.40.
    #[test]
    fn rows_that_stand_for_others_are_labels_beside_numbers() {
        let columns = |query: &str| {
            let columns = stats_columns(&crate::parse(query).expect(query)).map(StatsColumns::with_rows_as_labels);
            columns.map(|c| (c.labels.join(" "), c.values.join(" "))).map_err(|e| e.message)
        };
        let shown = |labels: &str, values: &str| Ok((labels.to_owned(), values.to_owned()));
        let counted = "* | by (a) count() n, row_any(_msg) r";
        assert_eq!(columns(counted), shown("a r", "n"));
        assert_eq!(columns("* | row_min(n, a) r, row_max(n) s, count() n, any(a) x"), shown("r s", "n x"));
        assert_eq!(columns("* | by (a) row_any() r"), shown("a", "r"), "nothing else is there");
        let unpack = "unpack_json from r fields (_msg, b) result_prefix p_";
        assert_eq!(columns(&format!("{counted} | {unpack}")), shown("a r p__msg p_b", "n"));
        assert_eq!(columns(&format!("{counted} | {unpack} | rm r, p_b")), shown("a p__msg", "n"));
        assert_eq!(columns(&format!("{counted} | rename r as s | copy s t")), shown("a s t", "n"));
        assert_eq!(columns(&format!("{counted} | math n * 2 as r")), shown("a", "n r"));
        for refused in ["unpack_json from r", "unpack_json from r fields (b*)", "unpack_json from a fields (b)"] {
            let text = columns(&format!("{counted} | {refused}")).expect_err(refused);
            assert!(text.contains("cannot stand behind `stats`"), "{refused}: {text}");
        }
        let overwritten = columns(&format!("{counted} | unpack_json from r fields (a)")).expect_err("a label");
        assert!(overwritten.contains("overwrites `a`"), "{overwritten}");
        let stepped = by_step(crate::parse(counted).expect(counted), (1_000_000_000, "1s"), None).expect("steps");
        let (query, columns) = in_series(stepped);
        assert!(query.to_string().ends_with("| series by (a, r)"), "{query}");
        assert_eq!((columns.labels.join(" "), columns.values.join(" ")), ("a r".to_owned(), "n".to_owned()));
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

    #[test]
    fn steps_of_sorts() {
        let shown = |query: &str| {
            let hour = (3_600_000_000_000, "1h");
            by_step(crate::parse(query).expect(query), hour, None).expect(query).0.to_string()
        };
        let text = "* | stats by (a, _time:1h) count(*) as n | sort by (n)";
        assert_eq!(shown("* | by (a) count() n | sort by (n) limit 2"), format!("{text} partition by (_time) limit 2"));
        // What keeps all rows counts over all steps.
        assert_eq!(shown("* | by (a) count() n | sort by (n) rank as r"), format!("{text} rank as r"));
    }

    #[test]
    fn ranks_are_values() {
        let columns = |query: &str| stats_columns(&crate::parse(query).expect(query));
        for sort in ["sort by (n) rank as r", "first 3 by (n) rank as r", "last by (n) rank r"] {
            let found = columns(&format!("* | by (x) count() n | {sort}")).expect(sort);
            assert_eq!((found.labels.join(" "), found.values.join(" ")), ("x".to_owned(), "n r".to_owned()), "{sort}");
        }
        assert!(columns("* | by (x) count() n | sort by (n) rank as x").is_err());
    }

    #[test]
    fn steps_need_the_times_of_rows() {
        let stepped = |query: &str| by_step(crate::parse(query).expect(query), (3_600_000_000_000, "1h"), None);
        for kept in [
            "filter b",
            "limit 3",
            "sort by (a)",
            "fields a, _t*",
            "delete a",
            "copy _time as t",
            "time_add 1h",
            "unpack_json",
            "unroll a",
            "uniq by (a, _time)",
            "math _time + 1h as _time",
            "by (b) count() c",
        ] {
            assert!(stepped(&format!("* | {kept} | count() n")).is_ok(), "{kept}");
        }
        for lost in [
            "fields a",
            "delete _*",
            "rename _time as t",
            "copy a as _time",
            "format 'x' as _time",
            "uniq by (a)",
            "top 3 by (a)",
            "generate_sequence 3",
        ] {
            let error = stepped(&format!("* | {lost} | count() n")).expect_err(lost);
            assert_eq!(error.kind, ErrorKind::Execution, "{lost}");
            assert!(error.message.contains("loses `_time`"), "{lost}: {error}");
        }
    }
}
