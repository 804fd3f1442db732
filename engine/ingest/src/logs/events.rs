//! Events of Splunk's HTTP Event Collector: JSON objects one after the other, with blanks between them or none.

use quiver_types::logs::RecordMarks;

use super::json::Cursor;
use super::options::{Defaults, FieldOptions};
use super::row_counts::DropReason;
use super::rows::Rows;
use super::time::Stamp;
use super::{DecodedLogs, LogsContext, lossy_body};
use crate::error::Result;

/// Fields that make up the stream where no parameter names others, sorted.
const STREAM_FIELDS: [&str; 3] = ["host", "source", "sourcetype"];

/// Decodes a body. An event that is no JSON ends it: where the next one begins cannot be told. Those before it stay.
///
/// # Errors
/// TooLarge: the rows take too much memory.
pub fn decode(body: &[u8], ctx: &LogsContext) -> Result<DecodedLogs> {
    let text = lossy_body(body)?;
    let mut options = FieldOptions::clone(&ctx.options);
    options.stream.get_or_insert_with(|| Vec::from(STREAM_FIELDS.map(str::to_owned)));
    let ctx = LogsContext { options: options.into(), ..ctx.clone() };
    let mut rows = Rows::new(&ctx, Defaults::EVENTS);
    let (mut json, mut number) = (Cursor::new(&text), 0_u64);
    while !json.at_end() {
        number += 1;
        let read = rows.object(&mut json);
        let fault = match &read {
            Ok(()) => rows.end(Stamp::Arrival, RecordMarks::default()).err().map(|why| why.text().to_owned()),
            Err(fault) => {
                rows.abandon();
                rows.report.drop_row(DropReason::Unreadable);
                Some(format!("invalid JSON at offset {}: {}", fault.offset, fault.what))
            }
        };
        if rows.report.first_fault.is_none() {
            rows.report.first_fault = fault.map(|fault| format!("event {number}: {fault}"));
        }
        if read.is_err() {
            break;
        }
        rows.check_memory()?;
    }
    Ok(DecodedLogs::of(rows))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::Report;
    use super::super::tests::{NOW, context, rows_of};
    use super::*;

    const T0: i64 = 1_741_600_000_000_000_000;

    fn read(query: &[(&str, &str)], body: &str) -> (Vec<Value>, Report) {
        let decoded = decode(body.as_bytes(), &context(query)).expect("room");
        (rows_of(&decoded.batches), decoded.report)
    }

    #[test]
    fn events_one_after_the_other() {
        let body = concat!(
            r#"{"time":1741600000.5,"host":"h","source":"s","sourcetype":"t","index":"main","event":"a","fields":{"x":"y"}}"#,
            r#"{"event":{"message":"b","level":"warn"}}"#,
            "\n \n",
            r#"{"event":{"log":"c"},"time":"1741600001"}"#,
            "\n",
            r#"{"event":5,"time":null}"#,
        );
        let (rows, report) = read(&[], body);
        let stream = json!({"host": "h", "source": "s", "sourcetype": "t"});
        let first = json!({"_time": T0 + 500_000_000, "_msg": "a", "host": "h", "source": "s", "sourcetype": "t",
            "index": "main", "fields.x": "y", "_stream": stream});
        let second = json!({"_time": NOW, "_msg": "b", "event.level": "warn"});
        let third = json!({"_time": T0 + 1_000_000_000, "_msg": "c"});
        assert_eq!(rows, [first, second, third, json!({"_time": NOW, "_msg": "5"})]);
        assert_eq!((report.rows, report.dropped_count()), (4, 0));
        assert_eq!(read(&[], " \n").0, Vec::<Value>::new());
    }

    #[test]
    fn parameters_come_first() {
        let body = r#"{"host":"h","app":"a","event":"e","text":"t","time":1741600000}"#;
        let (rows, _) = read(&[("_stream_fields", "app"), ("_msg_field", "text")], body);
        let (stream, row) = (&rows[0]["_stream"], &rows[0]);
        assert_eq!((stream, &row["_msg"], &row["event"]), (&json!({"app": "a"}), &json!("t"), &json!("e")));
    }

    /// Events before one that is no JSON stay, as with the collector.
    #[test]
    fn what_is_no_event_ends_a_body() {
        for (body, taken, fault) in [
            (r#"{"event":"a"} x {"event":"b"}"#, 1, "event 2: invalid JSON at offset 14: "),
            (r#"{"event":"a"}{"event":"#, 1, "event 2: invalid JSON at offset "),
            (r#"[{"event":"a"}]"#, 0, "event 1: invalid JSON at offset 0: "),
            (r#"{"event":"a","time":"x"}{"event":"b"}"#, 1, "event 1: "),
        ] {
            let (rows, report) = read(&[], body);
            assert_eq!((rows.len(), report.dropped_count()), (taken, 1), "{body}");
            assert_eq!(report.all_faulty(), taken == 0, "{body}");
            assert!(report.first_fault.as_deref().is_some_and(|text| text.starts_with(fault)), "{body}: {report:?}");
        }
    }
}
