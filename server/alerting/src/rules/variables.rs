//! Variables of rule templates: those of Prometheus, and those that only vmalert has.

use quiver_types::{LabelSet, Millis};

use super::model::Rule;
use crate::labels::fingerprint;
use crate::template::{Time, Value};

/// Defines the variables before each template.
const DEFINITIONS: &str =
    "{{$labels := .Labels}}{{$externalLabels := .ExternalLabels}}{{$externalURL := .ExternalURL}}{{$value := .Value}}";

/// Variables of vmalert: name, and the field with its value.
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

/// A template preceded by the definitions of its variables. Those of vmalert are added only if it uses them, so that
/// columns in errors of other templates are the same as in Prometheus.
pub(super) fn defined(text: &str) -> String {
    let mut whole = DEFINITIONS.to_owned();
    for &(variable, field) in OWN.iter().filter(|(variable, _)| text.contains(variable)) {
        whole.extend(["{{", variable, " := ", field, "}}"]);
    }
    whole + text
}

/// Whether a template may use variables of vmalert. Other templates get only the fields of Prometheus, since `{{ .
/// }}` shows all of them.
pub(super) fn names_own(text: &str) -> bool {
    text.contains("{{") && OWN.iter().any(|(variable, field)| text.contains(variable) || text.contains(field))
}

/// The fields that only vmalert has: of the rule, of its group, and of the alert, with the time since which it has
/// been active. Without an alert its id is 0 and its time is Go's zero time, as in vmalert's labels.
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
        // Incomplete results are errors here.
        ("IsPartial", "", Value::Bool(false)),
    ]
}
