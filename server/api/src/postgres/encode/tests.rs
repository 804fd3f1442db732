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
    let field = Field::new("m", quiver_types::tables::spans::map(), true);
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
    let refused = rows(&uneven, &[true], &mut BytesMut::new()).unwrap_err();
    assert!(refused.message.contains("several lengths"), "{refused}");
}
