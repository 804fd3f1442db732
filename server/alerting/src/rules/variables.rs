//! What templates of rules may name: the variables of Prometheus and those that only vmalert has.

use quiver_types::{LabelSet, Millis};

use super::model::Rule;
use crate::labels::fingerprint;
use crate::template::{Time, Value};

/// Variables that stand before each template of a rule.
const DEFINITIONS: &str =
    "{{$labels := .Labels}}{{$externalLabels := .ExternalLabels}}{{$externalURL := .ExternalURL}}{{$value := .Value}}";

/// vmalert's own: the variable, and the field that it holds.
const OWN: [(&str, &str); 8] = [
    ("$expr", ".Expr"),
    ("$type", ".Type"),
    ("$interval", ".Interval"),
    ("$activeAt", ".ActiveAt"),
    ("$for", ".For"),
    ("$alertID", ".AlertID"),
    ("$groupID", ".GroupID"),
    ("$isPartial", ".IsPartial"),
];

/// Gives a template with the variables that it may use. Those of vmalert stand there only where they are named: columns
/// in errors of all other templates are those of Prometheus.
pub(super) fn defined(text: &str) -> String {
    let mut whole = DEFINITIONS.to_owned();
    for &(variable, field) in OWN.iter().filter(|(variable, _)| text.contains(variable)) {
        whole.extend(["{{", variable, " := ", field, "}}"]);
    }
    whole + text
}

/// Says whether a template may name what only vmalert has. Others run over the fields of Prometheus alone: `{{ . }}` shows
/// all of them.
pub(super) fn names_own(text: &str) -> bool {
    text.contains("{{") && OWN.iter().any(|(variable, field)| text.contains(variable) || text.contains(field))
}

/// Gives the fields that only vmalert has: of a rule, of its group, and of an alert with the time since which it is active.
/// Where there is no alert yet its number is 0 and its time Go's zero, as in labels of vmalert.
pub(super) fn own_fields(
    rule: &Rule,
    interval_ms: Millis,
    group_id: u64,
    alert: Option<(&LabelSet, Millis)>,
) -> [(&'static str, &'static str, Value); OWN.len()] {
    let (id, since) = alert.map_or((0, Time::zero()), |(labels, since)| {
        (fingerprint(labels), Time::from_nanos(i128::from(since) * 1_000_000))
    });
    let duration = |ms: Millis| Value::Duration(ms.saturating_mul(1_000_000));
    [
        ("Expr", "", Value::text(&rule.expr)),
        ("Type", "", Value::text(rule.language.group_type())),
        ("Interval", "", duration(interval_ms)),
        ("ActiveAt", "", Value::Time(since)),
        ("For", "", duration(rule.for_ms)),
        ("AlertID", "", Value::Uint(id)),
        ("GroupID", "", Value::Uint(group_id)),
        // An answer that is not whole is an error here.
        ("IsPartial", "", Value::Bool(false)),
    ]
}
