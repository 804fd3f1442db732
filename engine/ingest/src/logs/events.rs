//! Events of Splunk's HTTP Event Collector: JSON objects one after the other, with blanks between them or none, or lines
//! of text.

use quiver_types::logs::RecordMarks;

use super::json::Cursor;
use super::names::MSG_NAME;
use super::options::{Defaults, FieldOptions};
use super::row_counts::DropReason;
use super::rows::Rows;
use super::shared_fields::SharedFields;
use super::time::Stamp;
use super::{DecodedLogs, LogsContext, lossy_body};
use crate::error::Result;

/// Fields that make up the stream where no parameter names others, sorted.
const STREAM_FIELDS: [&str; 3] = ["host", "source", "sourcetype"];

/// Parameters of a request whose body is lines: fields of all of them.
pub const LINE_FIELDS: [&str; 4] = ["host", "source", "sourcetype", "index"];

fn with_stream(ctx: &LogsContext) -> LogsContext {
    let mut options = FieldOptions::clone(&ctx.options);
    options.stream.get_or_insert_with(|| Vec::from(STREAM_FIELDS.map(str::to_owned)));
    LogsContext { options: options.into(), ..ctx.clone() }
}

/// Decodes a body. An event that is no JSON ends it: where the next one begins cannot be told. Those before it stay.
///
/// # Errors
/// TooLarge: the rows take too much memory.
pub fn decode(body: &[u8], ctx: &LogsContext) -> Result<DecodedLogs> {
    let text = lossy_body(body)?;
    let mut rows = Rows::new(&with_stream(ctx), Defaults::EVENTS);
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

/// Decodes a body of lines: each that is not blank is an event of its arrival, with the line as it is as its message.
/// `fields` are those of all of them.
///
/// # Errors
/// TooLarge: the rows take too much memory.
pub fn decode_lines(
    body: &[u8],
    fields: impl IntoIterator<Item = (String, String)>,
    ctx: &LogsContext,
) -> Result<DecodedLogs> {
    let text = lossy_body(body)?;
    let mut rows = Rows::new(&with_stream(ctx), Defaults::RECORDS);
    let mut shared = SharedFields::default();
    fields.into_iter().for_each(|(name, value)| shared.push(name, value));
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        if line.len() > ctx.limits.line_bytes_max {
            rows.lose(DropReason::LongLine);
        }
        shared.add_plain(&mut rows);
        rows.add_plain(MSG_NAME, line);
        // The report counts why a row is dropped; the request continues.
        let _ = rows.end(Stamp::Arrival, RecordMarks::default());
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
    fn lines_are_events_as_they_are() {
        let fields = [("host", "h"), ("index", "main")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        let long = "x".repeat((256 << 10) + 1);
        let body = format!("one\r\n\n  \n{{\"_msg\":\"two\",\"host\":\"x\"}}\n{long}\n\u{1f600} three");
        let decoded = decode_lines(body.as_bytes(), fields.clone(), &context(&[])).expect("room");
        let row =
            |line: &str| json!({"_time": NOW, "_msg": line, "host": "h", "index": "main", "_stream": {"host": "h"}});
        let expected = ["one", "{\"_msg\":\"two\",\"host\":\"x\"}", "\u{1f600} three"].map(row);
        assert_eq!(rows_of(&decoded.batches), expected);
        assert_eq!((decoded.report.dropped_count(), decoded.report.all_faulty()), (1, false));
        let decoded = decode_lines(b"a", fields, &context(&[("_stream_fields", "index")])).expect("room");
        assert_eq!(rows_of(&decoded.batches)[0]["_stream"], json!({"index": "main"}));
        assert_eq!(decode_lines(b" \n", [], &context(&[])).expect("room").report.rows, 0);
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
