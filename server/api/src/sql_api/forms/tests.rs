//! Response formats, and how they are requested.

use std::sync::Arc;

use arrow::array::{
    Decimal128Array, DurationNanosecondArray, Float64Array, Int64Array, ListArray, StringViewArray,
    TimestampNanosecondArray,
};
use arrow::buffer::OffsetBuffer;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::*;

#[test]
fn maps_have_keys_of_text() {
    let map = |key: DataType| {
        let entries = vec![Field::new("key", key, false), Field::new("value", DataType::Int64, true)];
        let entries = Field::new("entries", DataType::Struct(entries.into()), false);
        Arc::new(Schema::new(vec![Field::new("m", DataType::Map(Arc::new(entries), false), true)]))
    };
    for form in [Form::Json, Form::Lines, Form::Csv] {
        let refused = Writer::new(form, &map(DataType::Int64)).err().expect("no texts");
        assert!(refused.message.contains("column `m`"), "{}", refused.message);
        assert!(Writer::new(form, &map(DataType::Utf8)).is_ok());
    }
    assert!(Writer::new(Form::Arrow, &map(DataType::Int64)).is_ok());
}

fn rows() -> RecordBatch {
    let times = TimestampNanosecondArray::from(vec![Some(1), None]).with_timezone("UTC");
    RecordBatch::try_from_iter_with_nullable([
        ("n", Arc::new(Int64Array::from(vec![i64::MAX, -1])) as ArrayRef, true),
        ("f", Arc::new(Float64Array::from(vec![0.5, f64::NAN])) as ArrayRef, true),
        ("t", Arc::new(StringViewArray::from(vec![Some("a,\"b\""), Some("")])) as ArrayRef, true),
        ("at", Arc::new(times) as ArrayRef, true),
    ])
    .unwrap()
}

fn written(form: Form) -> Vec<u8> {
    let batch = rows();
    let mut writer = Writer::new(form, &batch.schema()).unwrap();
    let mut out = writer.batch(&batch).unwrap().to_vec();
    out.extend_from_slice(&writer.end(&json!({ "rows": 2 })).unwrap());
    out
}

/// Would fail if a piece that waits for a slow client kept what its buffer grew by: with long texts as much again.
#[test]
fn pieces_are_as_large_as_their_text() {
    let texts = StringViewArray::from_iter_values(vec!["x".repeat(250_000); 9]);
    let batch = RecordBatch::try_from_iter([("t", Arc::new(texts) as ArrayRef)]).unwrap();
    for form in [Form::Json, Form::Lines, Form::Csv] {
        let mut writer = Writer::new(form, &batch.schema()).unwrap();
        let piece = Vec::<u8>::from(writer.batch(&batch).unwrap());
        let (bytes, room) = (piece.len(), piece.capacity());
        assert!(bytes > 9 * 250_000 && room <= bytes + SPARE_BYTES, "{form:?}: {bytes} bytes in {room}");
    }
}

#[test]
fn texts() {
    let json: Value = serde_json::from_slice(&written(Form::Json)).unwrap();
    assert_eq!(json["columns"][0], json!({ "name": "n", "type": "bigint" }));
    assert_eq!(json["rows"][0], json!([i64::MAX, 0.5, "a,\"b\"", "1970-01-01T00:00:00.000000001Z"]));
    assert_eq!(json["rows"][1], json!([-1, null, "", null]));
    assert_eq!(json["stats"]["rows"], 2);
    let lines = String::from_utf8(written(Form::Lines)).unwrap();
    assert_eq!(lines.lines().count(), 2);
    assert_eq!(serde_json::from_str::<Value>(lines.lines().next().unwrap()).unwrap()["n"], json!(i64::MAX));
    let csv = String::from_utf8(written(Form::Csv)).unwrap();
    assert_eq!(
        csv,
        "n,f,t,at\r\n9223372036854775807,0.5,\"a,\"\"b\"\"\",1970-01-01T00:00:00.000000001Z\r\n-1,NaN,\"\",\r\n"
    );
}

#[test]
fn intervals_are_texts() {
    let lengths: ArrayRef = Arc::new(DurationNanosecondArray::from(vec![Some(90_061_500_000_000), None]));
    let batch = RecordBatch::try_from_iter_with_nullable([("i", lengths, true)]).unwrap();
    let json = r#"{"columns":[{"name":"i","type":"interval"}],"rows":[["1 day 01:01:01.5"],@[null]],"stats":{}}"#;
    for (form, expected) in [
        (Form::Json, json),
        (Form::Lines, r#"{"i":"1 day 01:01:01.5"}@{"i":null}@"#),
        (Form::Csv, "i\r@1 day 01:01:01.5\r@\r@"),
    ] {
        let mut writer = Writer::new(form, &batch.schema()).unwrap();
        let mut out = writer.batch(&batch).unwrap().to_vec();
        out.extend_from_slice(&writer.end(&json!({})).unwrap());
        assert_eq!(String::from_utf8(out).unwrap(), expected.replace('@', "\n"), "{form:?}");
    }
}

/// Those of `numeric`, in lists too; a declared number of digits is kept.
#[test]
fn decimals_have_the_digits_that_they_need() {
    let decimals = |values: Vec<Option<i128>>, precision, scale| {
        Arc::new(Decimal128Array::from(values).with_precision_and_scale(precision, scale).unwrap()) as ArrayRef
    };
    let items = decimals(vec![Some(15_000_000_000), None], 38, 10);
    let field = Arc::new(Field::new_list_field(items.data_type().clone(), true));
    let batch = RecordBatch::try_from_iter([
        ("open", decimals(vec![Some(30_000_000_000)], 38, 10)),
        ("declared", decimals(vec![Some(150)], 10, 2)),
        ("list", Arc::new(ListArray::new(field, OffsetBuffer::from_lengths([2]), items, None)) as ArrayRef),
    ])
    .unwrap();
    for (form, expected) in [
        (Form::Lines, "{\"open\":3,\"declared\":1.50,\"list\":[1.5,null]}\n"),
        (Form::Csv, "open,declared,list\r\n3,1.50,\"[1.5,null]\"\r\n"),
    ] {
        let mut writer = Writer::new(form, &batch.schema()).unwrap();
        assert_eq!(String::from_utf8(writer.batch(&batch).unwrap().to_vec()).unwrap(), expected);
    }
}

#[test]
fn binary_forms_read_back() {
    let bytes = written(Form::Arrow);
    let arrow = arrow::ipc::reader::StreamReader::try_new(&*bytes, None).unwrap();
    assert_eq!(arrow.map(|batch| batch.unwrap().num_rows()).sum::<usize>(), 2);
    let reader = ParquetRecordBatchReaderBuilder::try_new(Bytes::from(written(Form::Parquet))).unwrap();
    assert_eq!(reader.build().unwrap().map(|batch| batch.unwrap().num_rows()).sum::<usize>(), 2);
}

#[test]
fn parquet_refuses_intervals_before_it_begins() {
    let interval = DataType::Interval(arrow::datatypes::IntervalUnit::MonthDayNano);
    let list = DataType::new_list(interval, true);
    let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("i", list, true)]));
    assert!(Writer::new(Form::Parquet, &schema).err().unwrap().message.contains("`i`"));
    assert!(Writer::new(Form::Arrow, &schema).is_ok());
}

/// Breaks if the first rows of a group are encoded however many bytes they have, and if each of many columns has a
/// dictionary: a thousand columns took 200 MB.
#[test]
fn parquet_of_many_columns_is_written_in_small_groups() {
    const COLUMNS: usize = 500;
    let texts: ArrayRef = Arc::new(StringViewArray::from_iter_values((0..200).map(|row| format!("{row:0100}"))));
    let batch = RecordBatch::try_from_iter((0..COLUMNS).map(|at| (format!("c{at}"), Arc::clone(&texts)))).unwrap();
    let mut writer = Writer::new(Form::Parquet, &batch.schema()).unwrap();
    let mut file = writer.batch(&batch).unwrap().to_vec();
    assert!(writer.held_bytes() >= 2 * COLUMNS * GROUP_COLUMN_BYTES, "{} bytes", writer.held_bytes());
    file.extend_from_slice(&writer.end(&json!({})).unwrap());
    let reader = ParquetRecordBatchReaderBuilder::try_new(Bytes::from(file)).unwrap();
    let groups = reader.metadata().row_groups();
    assert_eq!(groups.iter().map(parquet::file::metadata::RowGroupMetaData::num_rows).sum::<i64>(), 200);
    for group in groups {
        assert!(group.total_byte_size() < 2 * GROUP_BYTES as i64, "{} bytes", group.total_byte_size());
        assert!(group.columns().iter().all(|column| column.dictionary_page_offset().is_none()));
    }
    assert!(reader.build().unwrap().all(|rows| rows.unwrap().columns().iter().all(|column| !column.is_empty())));
}

#[test]
fn forms_are_asked_for() {
    let of = |format, accept: &str| {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, accept.parse().unwrap());
        Form::of(format, &headers)
    };
    assert_eq!(of(None, "text/html, text/csv;q=0.9").unwrap(), Form::Csv);
    assert_eq!(of(None, "*/*").unwrap(), Form::Json);
    assert_eq!(of(None, "application/json, text/plain, */*").unwrap(), Form::Json);
    assert_eq!(of(None, "application/vnd.apache.arrow.stream, */*").unwrap(), Form::Arrow);
    assert_eq!(of(None, "application/x-ndjson").unwrap(), Form::Lines);
    assert_eq!(of(None, "text/csv;q=0.5, application/x-ndjson").unwrap(), Form::Lines);
    assert_eq!(of(None, "text/csv; q=0.5, application/json;q=0.4, */*;q=0.1").unwrap(), Form::Csv);
    assert_eq!(of(None, "*/*, Text/CSV").unwrap(), Form::Csv);
    assert_eq!(of(None, "text/csv;q=0, text/html").unwrap(), Form::Json);
    assert_eq!(of(None, "application/json, text/csv, */*").unwrap(), Form::Json);
    assert_eq!(of(Some("parquet"), "text/csv").unwrap(), Form::Parquet);
    assert!(of(Some("xml"), "*/*").unwrap_err().message.contains("ndjson"));
    let empty = RecordBatch::new_empty(Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)])));
    let writer = Writer::new(Form::Json, &empty.schema()).unwrap();
    let json: Value = serde_json::from_slice(&writer.end(&json!({})).unwrap()).unwrap();
    assert_eq!(json["rows"], json!([]));
}

#[test]
fn forms_have_names_and_media_types() {
    for (form, name, media_type) in FORMS {
        assert_eq!((Form::named(name), form.content_type()), (Some(form), media_type));
        assert_eq!(Form::named(&name.to_uppercase()), None, "names are written small");
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, media_type.to_ascii_uppercase().parse().unwrap());
        assert_eq!(Form::accepted(&headers), form, "media types are written as one likes");
    }
    for other in ["", "jsonl", "text/csv", " csv", "xml"] {
        assert_eq!(Form::named(other), None, "{other}");
    }
    assert_eq!(Form::accepted(&HeaderMap::new()), Form::Json);
}

#[test]
fn several_lines_of_accept_are_one_list() {
    let of = |lines: &[&str]| {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(header::ACCEPT, line.parse().unwrap());
        }
        Form::accepted(&headers)
    };
    assert_eq!(of(&["text/csv;q=0.5", "application/x-ndjson;q=0.6"]), Form::Lines);
    assert_eq!(of(&["text/html", "text/*"]), Form::Csv);
    assert_eq!(of(&["application/*"]), Form::Json);
    assert_eq!(of(&["", ",", "text/csv"]), Form::Csv);
    // A weight that is none is as if it were not there.
    assert_eq!(of(&["text/csv;q=x", "application/json;q=0.9"]), Form::Csv);
    assert_eq!(of(&["text/csv;charset=utf-8;q=0.1, application/json;q=0.2"]), Form::Json);
    assert_eq!(of(&["text/csv;q=0", "*/*;q=0"]), Form::Json);
}

#[test]
fn fields_of_csv_are_quoted_where_they_need_it() {
    let check = |text: &str, expected: &str| {
        let mut out = b"|".to_vec();
        push_quoted(text, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), format!("|{expected}"), "{text:?}");
    };
    check("a", "a");
    check("a b", "a b");
    check(" a ", " a ");
    check("a;b\tc'd", "a;b\tc'd");
    check("é", "é");
    check("", "\"\"");
    check(",", "\",\"");
    check("\"", "\"\"\"\"");
    check("\"a\"", "\"\"\"a\"\"\"");
    check("a\nb", "\"a\nb\"");
    check("a\rb", "\"a\rb\"");
    check("a\r\n", "\"a\r\n\"");
}

#[test]
fn names_of_columns_are_written_as_values_are() {
    let schema: SchemaRef = Arc::new(Schema::new(vec![
        Field::new("a,b", DataType::Int64, true),
        Field::new("\"c\"", DataType::Utf8, true),
    ]));
    let begun = |form: Form| {
        let batch = RecordBatch::new_empty(SchemaRef::clone(&schema));
        let mut writer = Writer::new(form, &schema).unwrap();
        let mut out = writer.batch(&batch).unwrap().to_vec();
        out.extend_from_slice(&writer.end(&json!({})).unwrap());
        String::from_utf8(out).unwrap()
    };
    assert_eq!(begun(Form::Csv), "\"a,b\",\"\"\"c\"\"\"\r\n");
    assert_eq!(begun(Form::Lines), "", "no rows are no lines");
    let json: Value = serde_json::from_str(&begun(Form::Json)).unwrap();
    assert_eq!((&json["columns"][0]["name"], &json["columns"][1]["name"]), (&json!("a,b"), &json!("\"c\"")));
    assert_eq!(json["rows"], json!([]));
}

#[test]
fn rows_of_several_batches_are_one_list() {
    let batch = rows();
    let mut writer = Writer::new(Form::Json, &batch.schema()).unwrap();
    let mut out = Vec::new();
    for _ in 0..3 {
        out.extend_from_slice(&writer.batch(&batch).unwrap());
    }
    out.extend_from_slice(&writer.batch(&batch.slice(0, 0)).unwrap());
    out.extend_from_slice(&writer.end(&json!({ "rows": 6 })).unwrap());
    let json: Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(json["rows"].as_array().map(Vec::len), Some(6));
    assert_eq!((&json["rows"][4], &json["stats"]), (&json["rows"][0], &json!({ "rows": 6 })));
}
