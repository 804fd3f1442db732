//! Whole columns of bytes, and what is wrong with rows of them.

use super::*;

#[test]
fn places_are_found_in_linear_time() {
    assert_eq!((place(b"", b""), place(b"", b"A"), place(b"aab", b"ab"), place(b"ab", b"abc")), (1, 0, 2, 0));
    // A place that begins everywhere takes no longer for that.
    let (long, part) = (vec![b'a'; 1 << 20], [vec![b'a'; 1 << 19], vec![b'b']].concat());
    assert_eq!(place(&long, &part), 0);
}

#[test]
fn encodings_have_several_names() {
    for name in ["UTF8", "utf-8", "UTF_8", " Utf 8", "unicode"] {
        assert_eq!(Encoding::of(name).unwrap(), Encoding::Utf8, "{name}");
    }
    for name in ["LATIN1", "latin-1", "ISO-8859-1", "iso_8859_1", "ISO88591"] {
        assert_eq!(Encoding::of(name).unwrap(), Encoding::Latin1, "{name}");
    }
    for name in ["", "utf", "utf88", "xutf8", "latin", "latin10", "iso-8859-15", "SQL_ASCII"] {
        let error = Encoding::of(name).unwrap_err().to_string();
        assert!(error.contains(&format!("no encoding `{name}`")), "{error}");
    }
}

/// What a kind gives for three rows of bytes, the second of which is NULL, and constants beside them.
fn three(kind: BytesOperation, others: &[ScalarValue]) -> Result<ArrayRef> {
    let rows: ArrayRef = Arc::new(BinaryArray::from(vec![Some(b"\x00ab\x00".as_slice()), None, Some(b"".as_slice())]));
    let others = others.iter().map(|other| ColumnarValue::Scalar(other.clone()));
    let args: Vec<ColumnarValue> = std::iter::once(ColumnarValue::Array(rows)).chain(others).collect();
    kind.of(&Args::new(kind, &args)?)
}

#[test]
fn rows_are_what_their_bytes_say() {
    let bytes = |kind: BytesOperation, others: &[ScalarValue]| {
        let found = three(kind, others).unwrap();
        found.as_binary::<i32>().iter().map(|row| row.map(<[u8]>::to_vec)).collect::<Vec<_>>()
    };
    let (two, one) = (ScalarValue::from(2_i64), ScalarValue::from(1_i64));
    let all = [Some(b"ab\x00".to_vec()), None, Some(Vec::new())];
    assert_eq!(bytes(BytesOperation::Part, std::slice::from_ref(&two)), all);
    assert_eq!(bytes(BytesOperation::Part, &[two, one]), [Some(b"a".to_vec()), None, Some(Vec::new())]);
    let set = ScalarValue::Binary(Some(vec![0]));
    let trimmed = |begin, end| bytes(BytesOperation::Trimmed { begin, end }, std::slice::from_ref(&set));
    assert_eq!(trimmed(true, true), [Some(b"ab".to_vec()), None, Some(Vec::new())]);
    assert_eq!(trimmed(false, true), [Some(b"\x00ab".to_vec()), None, Some(Vec::new())]);
    // A NULL beside them makes each row NULL, and what is wrong with others is not looked at.
    let none = bytes(BytesOperation::Part, &[ScalarValue::Int64(None), ScalarValue::from(-1_i64)]);
    assert!(none.len() == 3 && none.iter().all(Option::is_none), "{none:?}");
    let numbers = |kind: BytesOperation, others: &[ScalarValue]| {
        let found = three(kind, others).unwrap();
        found.as_primitive::<arrow::datatypes::Int32Type>().iter().collect::<Vec<_>>()
    };
    assert_eq!(numbers(BytesOperation::Length, &[]), [Some(4), None, Some(0)]);
    assert_eq!(numbers(BytesOperation::Bits, &[]), [Some(32), None, Some(0)]);
    assert_eq!(numbers(BytesOperation::Place, &[ScalarValue::Binary(Some(b"b".to_vec()))]), [Some(3), None, Some(0)]);
    let ones = three(BytesOperation::BitCount, &[]).unwrap();
    // `a` is 0x61 and `b` is 0x62.
    assert_eq!(ones.as_primitive::<Int64Type>().iter().collect::<Vec<_>>(), [Some(6), None, Some(0)]);
}

#[test]
fn places_outside_are_refused() {
    let refused = |kind: BytesOperation, others: &[ScalarValue], expected: &str| {
        let error = three(kind, others).unwrap_err().to_string();
        assert!(error.contains(expected), "{kind:?}: {error}");
    };
    let number = |n: i64| ScalarValue::from(n);
    refused(BytesOperation::Byte, &[number(4)], "index 4 out of valid range, 0..3");
    refused(BytesOperation::Bit, &[number(-1)], "index -1 out of valid range, 0..31");
    // The empty one has none at all.
    refused(BytesOperation::Byte, &[number(0)], "index 0 out of valid range, 0..-1");
    refused(BytesOperation::WithBit, &[number(0), number(2)], "new bit must be 0 or 1, not 2");
    refused(BytesOperation::Part, &[number(1), number(-1)], "negative substring length");
    let none = ScalarValue::from("KOI8R");
    refused(BytesOperation::Text, &[none], "no encoding `KOI8R`");
}
