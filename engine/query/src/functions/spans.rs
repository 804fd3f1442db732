//! Functions over parts of spans: `first_event(events, key)`, `sample_weight(trace_state)`, and `severity_bucket(n, text)` of
//! logs.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, StringArray, StringViewBuilder};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::{exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use super::text_functions::Texts;

/// The event whose attributes say what went wrong.
const EXCEPTION: &str = "exception";

/// `first_event(events, key)`: an attribute of the first event of a span that is named `exception`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct FirstEvent {
    signature: Signature,
}

/// Gives the function.
pub(super) fn first_event() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(FirstEvent { signature: Signature::user_defined(Volatility::Immutable) }))
}

impl ScalarUDFImpl for FirstEvent {
    fn name(&self) -> &'static str {
        "first_event"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            [events @ DataType::List(item), _] if matches!(item.data_type(), DataType::Struct(_)) => {
                Ok(vec![events.clone(), DataType::Utf8])
            }
            _ => plan_err!("`first_event` is called as `first_event(events, key)`"),
        }
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let [events, keys] = args.args.as_slice() else {
            return exec_err!("`first_event` is called as `first_event(events, key)`");
        };
        let (events, keys) = (events.to_array(rows)?, cast(&keys.to_array(rows)?, &DataType::Utf8)?);
        let (Some(events), Some(keys)) = (events.as_list_opt::<i32>(), keys.as_string_opt::<i32>()) else {
            return exec_err!("`first_event` reads events of spans");
        };
        found(events, keys).map(ColumnarValue::Array)
    }
}

fn found(events: &ListArray, wanted: &StringArray) -> Result<ArrayRef> {
    let Some(items) = events.values().as_struct_opt() else { return exec_err!("events are structs") };
    let names = items.column_by_name("name").and_then(|c| c.as_string_opt::<i32>());
    let maps = items.column_by_name("attributes").and_then(|c| c.as_map_opt());
    let (Some(names), Some(maps)) = (names, maps) else { return exec_err!("events have names and attributes") };
    let (Some(keys), Some(values)) = (maps.keys().as_string_opt::<i32>(), maps.values().as_string_opt::<i32>()) else {
        return exec_err!("attributes are texts");
    };
    let (ends, entries) = (events.value_offsets(), maps.value_offsets());
    let mut out = StringViewBuilder::with_capacity(events.len());
    for row in 0..events.len() {
        let own = if events.is_valid(row) { ends[row] as usize..ends[row + 1] as usize } else { 0..0 };
        let first = own.into_iter().find(|&at| names.is_valid(at) && names.value(at) == EXCEPTION);
        let value = first.filter(|&at| maps.is_valid(at) && wanted.is_valid(row)).and_then(|at| {
            let mut own = entries[at] as usize..entries[at + 1] as usize;
            own.find(|&entry| keys.value(entry) == wanted.value(row)).map(|entry| values.value(entry))
        });
        // An empty text is NULL, as in all tables.
        out.append_option(value.filter(|text| !text.is_empty()));
    }
    Ok(Arc::new(out.finish()))
}

/// `sample_weight(trace_state)`: how many spans one stands for, by the sampling threshold `ot=th:` (OpenTelemetry, consistent
/// probability sampling); 1 where there is none.
#[expect(clippy::unnecessary_wraps, reason = "functions of texts stand in one table, and others give NULL")]
pub(super) fn sample_weight(texts: &Texts<'_>) -> Option<f64> {
    Some(quiver_types::spans::sample_weight(texts[0].unwrap_or_default()))
}

/// `severity_bucket(n, text)`: `trace` to `fatal` by the number, else by the text.
pub(super) fn severity_bucket(texts: &Texts<'_>) -> Option<String> {
    const BY_NUMBER: [&str; 6] = ["trace", "debug", "info", "warn", "error", "fatal"];
    const BY_TEXT: [(&str, &str); 9] = [
        ("trace", "trace"),
        ("debug", "debug"),
        ("info", "info"),
        ("warn", "warn"),
        ("warning", "warn"),
        ("err", "error"),
        ("error", "error"),
        ("critical", "fatal"),
        ("fatal", "fatal"),
    ];
    let number = texts[0].and_then(|n| n.parse::<f64>().ok()).filter(|n| (1.0..25.0).contains(n));
    let by_number = number.map(|n| BY_NUMBER[(n as usize - 1) / 4]);
    let by_text = || {
        let text = texts[1]?.to_lowercase();
        BY_TEXT.iter().find(|(word, _)| *word == text).map(|(_, bucket)| *bucket)
    };
    by_number.or_else(by_text).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights() {
        let check = |state: Option<&str>, expected| assert_eq!(sample_weight(&[state]), Some(expected), "{state:?}");
        check(None, 1.0);
        check(Some("x=1,ot=rv:1;th:8"), 2.0);
        check(Some("ot=th:c"), 4.0);
        check(Some("ot=th:0"), 1.0);
        check(Some("ot=th:nothex"), 1.0);
        check(Some("ot=th:ffffffffffffffff"), 1.0);
        check(Some("ot=th:"), 1.0);
        check(Some("ot=th:+8"), 1.0);
        check(Some("ot=th:-8"), 1.0);
        check(Some(" ot= th:8 "), 2.0);
        check(Some("xot=th:8"), 1.0);
        check(Some("ot=th:80"), 2.0);
        check(Some("ot=th:ffffffffffffff"), 72_057_594_037_927_936.0);
        check(Some("ot=rv:1,ot=th:8"), 1.0);
    }

    #[test]
    fn severities() {
        let check = |n, text, expected: Option<&str>| assert_eq!(severity_bucket(&[n, text]).as_deref(), expected);
        check(Some("1"), None, Some("trace"));
        check(Some("12"), Some("fatal"), Some("info"));
        check(Some("24"), None, Some("fatal"));
        check(Some("0"), Some("Warning"), Some("warn"));
        check(None, Some("odd"), None);
        check(Some("25"), Some("ERR"), Some("error"));
        check(Some("-1"), Some("Critical"), Some("fatal"));
        check(Some("4.9"), None, Some("trace"));
        check(Some("24.9"), None, Some("fatal"));
        check(Some("NaN"), Some("debug"), Some("debug"));
        check(Some("x"), Some("TRACE"), Some("trace"));
        check(None, None, None);
    }
}
