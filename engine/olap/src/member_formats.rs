//! Formats of members as clients read them (`olap-api.md` 6.3): names that all of them know, and patterns of d3 in the form
//! that Cube gives them.

use serde_json::{Value, json};

use crate::model::catalog::MemberKind;

/// Formats that clients know by name.
const KNOWN: [&str; 6] = ["percent", "currency", "number", "id", "imageUrl", "link"];
/// Most digits behind the point that the name of a format may ask for.
const DIGITS_MAX: u8 = 6;

/// Gives a format of the model as `meta` and annotations show it.
pub(crate) fn shown(format: &Value, kind: MemberKind<'_>) -> Value {
    let Some(text) = format.as_str().filter(|text| !KNOWN.contains(text)) else { return format.clone() };
    if let Some(pattern) = pattern(text) {
        return json!({"type": "custom-numeric", "value": pattern, "alias": text});
    }
    let of_values = match kind {
        MemberKind::Measure(measure) => measure.ty.value_type(),
        MemberKind::Dimension(dimension) => dimension.ty.value_type(),
        MemberKind::Segment(_) => return format.clone(),
    };
    match of_values {
        "number" => json!({"type": "custom-numeric", "value": text}),
        "time" => json!({"type": "custom-time", "value": text}),
        _ => format.clone(),
    }
}

/// The pattern behind a name such as `decimal_1`.
fn pattern(name: &str) -> Option<String> {
    let (kind, digits) = match name.split_once('_') {
        Some((kind, digits)) => (kind, digits.parse::<u8>().ok().filter(|n| digits.len() == 1 && *n <= DIGITS_MAX)?),
        None if matches!(name, "decimal" | "abbr" | "accounting") => (name, 2),
        None => return None,
    };
    let fixed = |before: &str| if digits == 0 { format!("{before}.0f") } else { format!("{before}.{digits}~f") };
    match kind {
        "number" | "decimal" => Some(fixed(",")),
        "currency" => Some(fixed("$,")),
        "accounting" => Some(fixed("(,")),
        "percent" if digits == 0 => Some(".0%".to_owned()),
        "percent" => Some(format!(".{digits}~%")),
        "abbr" => Some(format!(".{digits}~s")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::MemberId;
    use crate::model::load::{SourceFile, load};

    #[test]
    fn names_and_patterns() {
        let text = "cubes:
  - name: A
    sql_table: a
    dimensions:
      - {name: at, sql: at, type: time}
      - {name: kind, sql: kind, type: string}
    measures: [{name: count, type: count}, {name: last, type: time, sql: 'max(at)'}]
";
        let file = SourceFile { name: "a.yml".to_owned(), text: text.to_owned(), builtin: false };
        let catalog = load(&[file]).unwrap().0;
        let check = |member: &str, format: Value, expected: Value| {
            let found = catalog.find(&MemberId::new("A", member)).unwrap();
            assert_eq!(shown(&format, found.kind), expected, "{member} {format}");
        };
        let number = |value: &str| json!({"type": "custom-numeric", "value": value});
        let named = |value: &str, alias: &str| json!({"type": "custom-numeric", "value": value, "alias": alias});
        for known in KNOWN {
            check("count", json!(known), json!(known));
        }
        check("count", json!("decimal"), named(",.2~f", "decimal"));
        check("count", json!("number_0"), named(",.0f", "number_0"));
        check("count", json!("currency_3"), named("$,.3~f", "currency_3"));
        check("count", json!("percent_0"), named(".0%", "percent_0"));
        check("count", json!("percent_1"), named(".1~%", "percent_1"));
        check("count", json!("abbr_0"), named(".0~s", "abbr_0"));
        check("count", json!("accounting"), named("(,.2~f", "accounting"));
        check("count", json!("number_7"), number("number_7"));
        check("count", json!("$,.1f"), number("$,.1f"));
        check("at", json!("%Y-%m"), json!({"type": "custom-time", "value": "%Y-%m"}));
        check("last", json!("%H:%M"), json!({"type": "custom-time", "value": "%H:%M"}));
        check("kind", json!("upper"), json!("upper"));
        let link = json!({"type": "link", "label": "Open"});
        check("kind", link.clone(), link);
    }
}
