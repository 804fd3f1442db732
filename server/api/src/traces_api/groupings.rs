//! Reads what figures are grouped by and what is measured: `by`, `measure` and `groupBy` (`traces-api` 3).

use quiver_traces::ParamError;
use quiver_traces::lists::histogram::{Measure, SplitBy};
use quiver_traces::stats::GroupBy;

use crate::traces_params::place;

/// Values of the parameter `measure`; `avg` is the mean duration.
pub(super) const MEASURES: [&str; 6] = ["count", "errors", "p50", "p95", "p99", "avg"];

/// Reads one of [`MEASURES`].
pub(super) fn measure(word: &str) -> Measure {
    match word {
        "errors" => Measure::Errors,
        "p50" => Measure::Quantile(50),
        "p95" => Measure::Quantile(95),
        "p99" => Measure::Quantile(99),
        "avg" => Measure::Average,
        _ => Measure::Count,
    }
}

/// Reads what series are split by: `service`, `operation`, `status` or `tag:<key>`.
///
/// # Errors
/// The text is none of these.
pub(super) fn split_by(text: Option<&str>) -> Result<SplitBy, ParamError> {
    Ok(match text {
        None => SplitBy::Nothing,
        Some("service") => SplitBy::Service,
        Some("operation") => SplitBy::Operation,
        Some("status") => SplitBy::Status,
        Some(other) => {
            if let Some(key) = other.strip_prefix("tag:").filter(|key| !key.is_empty()) {
                let (place, key) = place(key);
                SplitBy::Tag(place, key.to_owned())
            } else {
                let text = format!("`{other}` is none of service, operation, status, tag:<key>");
                return Err(ParamError::new("by", text));
            }
        }
    })
}

/// Reads up to two groupings of the spans of a trace.
///
/// # Errors
/// More, or an unknown one.
pub(super) fn group_by<'a>(texts: impl Iterator<Item = &'a str>) -> Result<Vec<GroupBy>, ParamError> {
    let wrong = |reason: String| ParamError::new("groupBy", reason);
    let all: Result<Vec<GroupBy>, ParamError> = texts
        .flat_map(|t| t.split(','))
        .map(|text| match text {
            "service" => Ok(GroupBy::Service),
            "operation" => Ok(GroupBy::Operation),
            "kind" => Ok(GroupBy::Kind),
            other => match other.strip_prefix("tag:").filter(|key| !key.is_empty()) {
                Some(key) => {
                    let (place, key) = place(key);
                    Ok(GroupBy::Tag(place, key.to_owned()))
                }
                None => Err(wrong(format!("`{other}` is none of service, operation, kind, tag:<key>"))),
            },
        })
        .collect();
    let all = all?;
    match all.len() {
        0 => Ok(vec![GroupBy::Service]),
        1 | 2 => Ok(all),
        _ => Err(wrong("more than two groupings".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use quiver_types::spans::Place;

    use super::*;

    #[test]
    fn groupings_are_read() {
        let of = |text: &str| group_by(std::iter::once(text));
        assert_eq!(group_by(std::iter::empty()).unwrap(), [GroupBy::Service]);
        assert_eq!(of("kind,tag:a.b").unwrap(), [GroupBy::Kind, GroupBy::Tag(None, "a.b".to_owned())]);
        // The place of a key is read, and not looked for in it.
        let at_resource = GroupBy::Tag(Some(Place::Resource), "host".to_owned());
        assert_eq!(of("operation,tag:resource.host").unwrap(), [GroupBy::Operation, at_resource]);
        let check = |text: &str, expected: &str| {
            let error = of(text).unwrap_err();
            assert_eq!((error.name.as_str(), error.reason.as_str()), ("groupBy", expected), "{text}");
        };
        check("tag:", "`tag:` is none of service, operation, kind, tag:<key>");
        check("service,", "`` is none of service, operation, kind, tag:<key>");
        check("service,kind,operation", "more than two groupings");
    }

    #[test]
    fn what_series_are_split_by() {
        let tag = |place, key: &str| Ok(SplitBy::Tag(place, key.to_owned()));
        assert_eq!(split_by(None), Ok(SplitBy::Nothing));
        assert_eq!(split_by(Some("operation")), Ok(SplitBy::Operation));
        assert_eq!(split_by(Some("tag:resource.host")), tag(Some(Place::Resource), "host"));
        assert_eq!(split_by(Some("tag:http.method")), tag(None, "http.method"));
        for wrong in ["", "tag:", "tags:a", "Service"] {
            assert!(split_by(Some(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn each_measure_has_a_word() {
        use Measure::{Average, Count, Errors, Quantile};
        let expected = [Count, Errors, Quantile(50), Quantile(95), Quantile(99), Average];
        assert_eq!(MEASURES.map(measure), expected);
    }
}
