use std::sync::Arc;

use arrow::array::{Decimal128Array, DurationNanosecondArray, Int32Array, StringArray, TimestampNanosecondArray};
use arrow::array::{Int32Builder, ListBuilder, StringBuilder, UInt64Array};

use super::*;

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true))).unwrap()
}

/// The values of each row.
fn values(batch: &RecordBatch, binary: bool) -> Vec<Vec<Option<Vec<u8>>>> {
    let mut out = BytesMut::new();
    rows(batch, &vec![binary; batch.num_columns()], &mut out).unwrap();
    let (mut rows, mut rest) = (Vec::new(), &out[..]);
    let number = |bytes: &[u8]| i32::from_be_bytes(bytes[..4].try_into().unwrap());
    while !rest.is_empty() {
        assert_eq!(rest[0], b'D');
        let (row, next) = rest[1..].split_at(number(&rest[1..]) as usize);
        rest = next;
        let mut values = &row[6..];
        let mut cells = Vec::new();
        while !values.is_empty() {
            let len = number(values);
            values = &values[4..];
            cells.push((len >= 0).then(|| values[..len.max(0) as usize].to_vec()));
            values = &values[len.max(0) as usize..];
        }
        assert_eq!(cells.len(), batch.num_columns());
        rows.push(cells);
    }
    rows
}

fn texts(batch: &RecordBatch) -> Vec<Vec<Option<String>>> {
    let text = |cell: Option<Vec<u8>>| cell.map(|bytes| String::from_utf8(bytes).unwrap());
    values(batch, false).into_iter().map(|row| row.into_iter().map(text).collect()).collect()
}

#[test]
fn values_as_text() {
    let mut lists = ListBuilder::new(StringBuilder::new());
    lists.append_value([Some("a"), Some("b \"c\""), None, Some("")]);
    lists.append_null();
    let zone = TimestampNanosecondArray::from(vec![1_741_564_800_500_000_999, -1]).with_timezone("Europe/Berlin");
    let decimals = Decimal128Array::from(vec![-12_34, 5]).with_precision_and_scale(10, 2).unwrap();
    let batch = batch(vec![
        ("i", Arc::new(Int32Array::from(vec![Some(-7), None]))),
        ("f", Arc::new(Float64Array::from(vec![f64::NAN, 0.1]))),
        ("b", Arc::new(BooleanArray::from(vec![true, false]))),
        ("t", Arc::new(StringArray::from(vec!["x", ""]))),
        ("at", Arc::new(zone)),
        ("d", Arc::new(decimals)),
        ("u", Arc::new(UInt64Array::from(vec![u64::MAX, 0]))),
        ("l", Arc::new(lists.finish())),
        ("span", Arc::new(DurationNanosecondArray::from(vec![90_061_500_000_000, -1_000_000]))),
    ]);
    let shown = |row: &[&str]| row.iter().map(|text| Some((*text).to_owned())).collect::<Vec<_>>();
    let rows = texts(&batch);
    let first = [
        "-7",
        "NaN",
        "t",
        "x",
        "2025-03-10 01:00:00.5+01",
        "-12.34",
        "18446744073709551615",
        "{a,\"b \\\"c\\\"\",NULL,\"\"}",
        "1 day 01:01:01.5",
    ];
    assert_eq!(rows[0], shown(&first));
    assert_eq!(rows[1][0], None);
    assert_eq!(rows[1][3].as_deref(), Some(""));
    assert_eq!(rows[1][7], None);
    assert_eq!(rows[1][8].as_deref(), Some("-00:00:00.001"));
}

/// Breaks if `numeric` without digits has the zeros that it is kept with.
#[test]
fn numerics_have_the_decimals_that_they_need() {
    let numerics = Decimal128Array::from(vec![15_000_000_000, -200_000_000_000, 1]).with_precision_and_scale(38, 10);
    let scaled = Decimal128Array::from(vec![150, 200, 1]).with_precision_and_scale(10, 2);
    let batch = batch(vec![("n", Arc::new(numerics.unwrap())), ("s", Arc::new(scaled.unwrap()))]);
    let shown = |row: [&str; 2]| row.map(|text| Some(text.to_owned())).to_vec();
    assert_eq!(texts(&batch), [shown(["1.5", "1.50"]), shown(["-20", "2.00"]), shown(["0.0000000001", "0.01"])]);
    let bytes = values(&batch, true);
    assert_eq!(bytes[0][0].as_deref(), Some(&[0, 2, 0, 0, 0, 0, 0, 1, 0, 1, 0x13, 0x88][..]));
    assert_eq!(bytes[1][0].as_deref(), Some(&[0, 1, 0, 0, 0x40, 0, 0, 0, 0, 20][..]));
}

#[test]
fn values_as_bytes() {
    let at = TimestampNanosecondArray::from(vec![946_684_800_000_001_000]).with_timezone("UTC");
    let decimals = Decimal128Array::from(vec![-12_34]).with_precision_and_scale(10, 2).unwrap();
    let batch = batch(vec![
        ("i", Arc::new(Int32Array::from(vec![-7]))),
        ("at", Arc::new(at)),
        ("d", Arc::new(decimals)),
        ("t", Arc::new(StringArray::from(vec!["x"]))),
    ]);
    let row = values(&batch, true).remove(0);
    assert_eq!(row[0].as_deref(), Some(&(-7_i32).to_be_bytes()[..]));
    assert_eq!(row[1].as_deref(), Some(&1_i64.to_be_bytes()[..]));
    assert_eq!(row[2].as_deref(), Some(&[0, 2, 0, 0, 0x40, 0, 0, 2, 0, 12, 0x0d, 0x48][..]));
    assert_eq!(row[3].as_deref(), Some(&b"x"[..]));
}

#[test]
fn maps_are_json_and_forms_fit() {
    let field = Field::new("m", quiver_types::tables::columns::map(), true);
    assert_eq!(type_oid(field.data_type()), 114);
    assert_eq!(forms(&[], 2).unwrap(), [false, false]);
    assert_eq!(forms(&[1], 2).unwrap(), [true, true]);
    assert!(forms(&[1, 0, 1], 2).is_err());
}

#[test]
fn lists_in_lists_are_arrays_of_levels() {
    let lists = |second: &[Option<i32>]| -> RecordBatch {
        let mut lists = ListBuilder::new(ListBuilder::new(Int32Builder::new()));
        lists.values().append_value([Some(1), None]);
        lists.values().append_value(second.iter().copied());
        lists.append(true);
        lists.append(true);
        batch(vec![("l", Arc::new(lists.finish()))])
    };
    let even = lists(&[Some(3), Some(4)]);
    let rows_of = texts(&even);
    assert_eq!(rows_of[0][0].as_deref(), Some("{{1,NULL},{3,4}}"));
    assert_eq!(rows_of[1][0].as_deref(), Some("{}"));
    let bytes = values(&even, true).remove(0).remove(0).unwrap();
    let head: Vec<i32> = bytes.chunks(4).take(9).map(|four| i32::from_be_bytes(four.try_into().unwrap())).collect();
    assert_eq!(head, [2, 1, 23, 2, 1, 2, 1, 4, 1], "levels, NULL, type, lengths with their first places, an item");
    let uneven = lists(&[Some(3)]);
    assert_eq!(texts(&uneven)[0][0].as_deref(), Some("{{1,NULL},{3}}"));
    let mut out = BytesMut::new();
    let refused = rows(&uneven, &[true], &mut out).unwrap_err();
    assert!(refused.message.contains("several lengths"), "{refused}");
    assert!(copied(&uneven, true, &mut out).is_err());
    assert_eq!(out.len(), 0, "half a message would make the error a part of it");
}

/// The messages of an answer: their types and bodies.
fn messages(out: &[u8]) -> Vec<(char, Vec<u8>)> {
    let (mut found, mut rest) = (Vec::new(), out);
    while let Some((kind, behind)) = rest.split_first() {
        let len = u32::from_be_bytes(behind[..4].try_into().unwrap()) as usize;
        found.push((char::from(*kind), behind[4..len].to_vec()));
        rest = &behind[len..];
    }
    found
}

fn form(options: &str) -> Form {
    match crate::postgres::command::read(&format!("copy t to stdout {options}")) {
        Ok(crate::postgres::command::Command::Copy(copy)) => copy.form,
        other => panic!("{options}: {other:?}"),
    }
}

/// Breaks if a client is told of another type, length or name than the values of a column have.
#[test]
fn columns_are_described() {
    let schema = Schema::new(vec![
        Field::new("a", DataType::Int64, true),
        Field::new("b\0c", DataType::Utf8, true),
        Field::new("", DataType::new_list(DataType::Int32, true), true),
    ]);
    let mut out = BytesMut::new();
    describe(&schema, &[true, false, true], &mut out).unwrap();
    let found = messages(&out);
    let [(kind, body)] = &found[..] else { panic!("one message: {found:?}") };
    assert_eq!((*kind, &body[..2]), ('T', &[0, 3][..]));
    let mut expected = vec![0, 3];
    for (name, oid, len, format) in [("a", 20_u32, 8_i16, 1_u16), ("b\u{fffd}c", 25, -1, 0), ("", 1007, -1, 1)] {
        expected.extend(name.as_bytes());
        // A NUL ends the name; a column of no table has no number.
        expected.extend([0; 7]);
        expected.extend(oid.to_be_bytes());
        expected.extend(len.to_be_bytes());
        expected.extend((-1_i32).to_be_bytes());
        expected.extend(format.to_be_bytes());
    }
    assert_eq!(*body, expected);
    let wide: Vec<Field> = (0..32_768).map(|n| Field::new(n.to_string(), DataType::Int64, true)).collect();
    let wide = Schema::new(wide);
    assert_eq!(describe(&wide, &vec![false; 32_768], &mut BytesMut::new()).unwrap_err().code, "54011");
    assert_eq!(lines_follow(&wide, &form(""), &mut BytesMut::new()).unwrap_err().code, "54011");
}

#[test]
fn forms_are_of_all_columns_or_of_each() {
    for (asked, columns, expected) in [
        (&[][..], 0, Ok(vec![])),
        (&[0], 3, Ok(vec![false; 3])),
        (&[1], 0, Ok(vec![])),
        (&[1, 0], 2, Ok(vec![true, false])),
        // As PostgreSQL says when it comes to the values: "unsupported format code".
        (&[2, -1], 2, Err("22023")),
        (&[0, 2], 2, Err("22023")),
        (&[2], 3, Err("22023")),
        (&[2], 0, Ok(vec![])),
        (&[1, 0], 3, Err("08P01")),
        (&[1, 0], 1, Err("08P01")),
    ] {
        assert_eq!(forms(asked, columns).map_err(|fault| fault.code), expected, "{asked:?} {columns}");
    }
}

#[test]
fn rows_are_lines_of_text() {
    let rows_of = batch(vec![
        ("n", Arc::new(Int32Array::from(vec![Some(1), None]))),
        ("a\tb", Arc::new(StringArray::from(vec![Some("x\ty\\\n"), Some("")]))),
    ]);
    let copied = |options: &str| -> Vec<(char, String)> {
        let (mut out, form) = (BytesMut::new(), form(options));
        lines_follow(&rows_of.schema(), &form, &mut out).unwrap();
        lines(&rows_of, &form, &mut out).unwrap();
        let text = |(kind, body): (char, Vec<u8>)| (kind, String::from_utf8(body).unwrap());
        messages(&out).into_iter().map(text).collect()
    };
    let head = |lines: &[&str]| -> Vec<(char, String)> {
        let begun = ('H', "\0\0\u{2}\0\0\0\0".to_owned());
        std::iter::once(begun).chain(lines.iter().map(|line| ('d', format!("{line}\n")))).collect()
    };
    assert_eq!(copied(""), head(&["1\tx\\ty\\\\\\n", "\\N\t"]));
    assert_eq!(copied("(null '', header)"), head(&["n\ta\\tb", "1\tx\\ty\\\\\\n", "\t"]));
    assert_eq!(copied("csv"), head(&["1,\"x\ty\\\n\"", ",\"\""]));
    assert_eq!(copied("csv header delimiter '|'"), head(&["n|a\tb", "1|\"x\ty\\\n\"", "|\"\""]));
    assert_eq!(copied("csv null 'none' force quote *"), head(&["\"1\",\"x\ty\\\n\"", "none,\"\""]));
}

/// Breaks if a type that the protocol has none of is written as something that is not its value.
#[test]
fn types_of_ours_are_those_of_clients() {
    use arrow::array::{
        BinaryArray, Date64Array, DictionaryArray, Int8Array, LargeStringArray, NullArray, Time32SecondArray,
        UInt8Array, UInt32Array,
    };
    use arrow::datatypes::Int32Type;
    let words: DictionaryArray<Int32Type> = vec![Some("x"), None].into_iter().collect();
    let cells = texts(&batch(vec![
        ("tiny", Arc::new(Int8Array::from(vec![-128, 127]))),
        ("byte", Arc::new(UInt8Array::from(vec![255, 0]))),
        ("wide", Arc::new(UInt32Array::from(vec![u32::MAX, 0]))),
        ("huge", Arc::new(UInt64Array::from(vec![u64::MAX, 0]))),
        ("word", Arc::new(words)),
        ("long", Arc::new(LargeStringArray::from(vec!["é", "\u{1f600}"]))),
        ("raw", Arc::new(BinaryArray::from(vec![&[0_u8, 255][..], &[]]))),
        ("day", Arc::new(Date64Array::from(vec![86_400_000, -1]))),
        ("time", Arc::new(Time32SecondArray::from(vec![0, 86_399]))),
        ("none", Arc::new(NullArray::new(2))),
    ]));
    let shown = |row: &[Option<&str>]| row.iter().map(|cell| cell.map(str::to_owned)).collect::<Vec<_>>();
    let first = ["-128", "255", "4294967295", "18446744073709551615", "x", "é", "\\x00ff", "1970-01-02", "00:00:00"];
    assert_eq!(cells[0], shown(&[&first.map(Some)[..], &[None]].concat()));
    let second = [
        Some("127"),
        Some("0"),
        Some("0"),
        Some("0"),
        None,
        Some("\u{1f600}"),
        Some("\\x"),
        None,
        Some("23:59:59"),
        None,
    ];
    for (at, expected) in second.iter().enumerate().filter(|(at, _)| *at != 7) {
        assert_eq!(cells[1][at].as_deref(), *expected, "{at}");
    }
}

#[test]
fn values_as_bytes_have_the_length_of_their_type() {
    let intervals = IntervalMonthDayNanoArray::from(vec![Some(IntervalMonthDayNano::new(14, -3, 5_999)), None]);
    let all = batch(vec![
        ("b", Arc::new(BooleanArray::from(vec![Some(true), None]))),
        ("s", Arc::new(Int16Array::from(vec![i16::MIN, 0]))),
        ("f", Arc::new(Float32Array::from(vec![-0.0, f32::NAN]))),
        ("d", Arc::new(Float64Array::from(vec![0.1, f64::INFINITY]))),
        ("day", Arc::new(Date32Array::from(vec![Some(EPOCH_DAYS), None]))),
        ("time", Arc::new(Time64MicrosecondArray::from(vec![1, 0]))),
        ("at", Arc::new(TimestampMicrosecondArray::from(vec![i64::MIN, EPOCH_US]))),
        ("i", Arc::new(intervals)),
    ]);
    let rows = values(&all, true);
    let first: Vec<Vec<u8>> = rows[0].iter().cloned().map(Option::unwrap).collect();
    let interval = [&5_i64.to_be_bytes()[..], &(-3_i32).to_be_bytes(), &14_i32.to_be_bytes()].concat();
    let expected: [&[u8]; 8] = [
        &[1],
        &i16::MIN.to_be_bytes(),
        &(-0.0_f32).to_be_bytes(),
        &0.1_f64.to_be_bytes(),
        &[0; 4],
        &1_i64.to_be_bytes(),
        // What lies before all times is the first of them.
        &i64::MIN.to_be_bytes(),
        &interval,
    ];
    assert_eq!(first, expected);
    let null: Vec<usize> = rows[1].iter().enumerate().filter(|(_, cell)| cell.is_none()).map(|(at, _)| at).collect();
    assert_eq!(null, [0, 4, 7]);
    assert_eq!(rows[1][6].as_deref(), Some(&[0; 8][..]));
}

#[test]
fn the_first_row_as_texts() {
    let batch = batch(vec![
        ("n", Arc::new(Int32Array::from(vec![Some(7), Some(8)]))),
        ("t", Arc::new(StringArray::from(vec![None, Some("x")]))),
        ("b", Arc::new(BooleanArray::from(vec![false, true]))),
    ]);
    let found: Vec<Option<Bytes>> = super::texts(&batch).unwrap();
    assert_eq!(found, [Some(Bytes::from_static(b"7")), None, Some(Bytes::from_static(b"f"))]);
}

/// Breaks if the header of a binary copy is a message of its own (libpq's readers expect a row in each), where it is
/// missing because there are no rows, or where a value is written as text.
#[test]
fn copies_in_binary_form() {
    let binary = form("with (format binary)");
    let batch = batch(vec![
        ("i", Arc::new(Int32Array::from(vec![Some(7), None]))),
        ("t", Arc::new(StringArray::from(vec!["x", ""]))),
    ]);
    let mut out = BytesMut::new();
    lines_follow(&batch.schema(), &binary, &mut out).unwrap();
    copied(&batch, true, &mut out).unwrap();
    copied(&batch.slice(1, 1), false, &mut out).unwrap();
    copied_all(true, &mut out).unwrap();
    let header = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
    let first = [&header[..], &[0, 2, 0, 0, 0, 4, 0, 0, 0, 7, 0, 0, 0, 1, b'x']].concat();
    let second = vec![0, 2, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
    let expected =
        [('H', vec![1, 0, 2, 0, 1, 0, 1]), ('d', first), ('d', second.clone()), ('d', second), ('d', vec![0xff, 0xff])];
    assert_eq!(messages(&out), expected);
    let mut none = BytesMut::new();
    copied_all(false, &mut none).unwrap();
    assert_eq!(messages(&none), [('d', [&header[..], &[0xff, 0xff]].concat())]);
}
