mod columns;

use datafusion::execution::session_state::SessionStateBuilder;

use super::super::testing::{call, column, draws, shown, text};
use super::*;

/// What a function of a session gives for one row.
fn of(name: &str, args: &[ColumnarValue]) -> Result<ArrayRef> {
    let mut state = SessionStateBuilder::new().with_default_features().build();
    register(&mut state)?;
    call(&state.scalar_functions()[name], args, 1)
}

fn bytes_of(bytes: &[u8]) -> ColumnarValue {
    column(BinaryArray::from(vec![bytes]))
}

fn number_of(number: i64) -> ColumnarValue {
    ColumnarValue::Scalar(ScalarValue::from(number))
}

#[test]
fn parts_and_places() {
    let bytes = b"\x00\xffA".as_slice();
    for (from, count, expected) in [
        (2, None, b"\xffA".as_slice()),
        (2, Some(1), b"\xff"),
        (0, Some(2), b"\x00"),
        (-5, Some(3), b""),
        (-1, None, bytes),
        (i64::MAX, Some(i64::MAX), b""),
        (9, None, b""),
    ] {
        assert_eq!(part(bytes, from, count).unwrap(), expected, "{from} {count:?}");
    }
    assert!(part(bytes, 1, Some(-1)).is_err());
    assert_eq!((place(bytes, b"A"), place(bytes, b""), place(bytes, b"B")), (3, 1, 0));
    assert_eq!(trimmed(b"\x00\xff\x00", b"\x00", true, true), b"\xff");
    assert_eq!(trimmed(b"\x00\xff\x00", b"\x00", false, true), b"\x00\xff");
    assert_eq!(trimmed(b"aba", b"ab", true, false), b"");
    assert!(within(2, 3).is_ok() && within(3, 3).is_err() && within(-1, 3).is_err());
}

#[test]
fn bytes_are_texts_and_back() {
    let bytes = b"\x00\xffA\\".as_slice();
    assert_eq!(escaped(bytes), r"\000\377A\\");
    assert_eq!(unescaped(&escaped(bytes)).unwrap(), bytes);
    for wrong in [r"\", r"\8", r"\400", r"\01"] {
        assert!(unescaped(wrong).is_err(), "{wrong}");
    }
    assert_eq!(encoded("ä", "utf-8").unwrap(), b"\xc3\xa4");
    assert_eq!(encoded("ä", "LATIN1").unwrap(), b"\xe4");
    assert_eq!(decoded(b"\xe4", "latin1").unwrap(), "ä");
    assert!(encoded("€", "LATIN1").is_err() && encoded("a", "KOI8R").is_err());
    assert!(decoded(b"\xff", "UTF8").is_err() && decoded(b"a\x00", "UTF8").is_err());
}

#[test]
fn bytes_and_bits_are_read_and_set() {
    let bytes = || bytes_of(b"\x00\xffA");
    for (name, at, expected) in [
        ("get_byte", 0, "0"),
        ("get_byte", 1, "255"),
        ("get_bit", 7, "0"),
        ("get_bit", 8, "1"),
        ("get_bit", 16, "1"),
        ("get_bit", 17, "0"),
        ("get_bit", 22, "1"),
    ] {
        assert_eq!(shown(&of(name, &[bytes(), number_of(at)]).unwrap()), [Some(expected.to_owned())], "{name} {at}");
    }
    assert_eq!(shown(&of("bit_count", &[bytes()]).unwrap()), [Some("10".to_owned())]);
    for (name, at, new, expected) in [
        ("set_byte", 0, 0x141, b"A\xffA"),
        ("set_byte", 2, -1, b"\x00\xff\xff"),
        ("set_bit", 0, 1, b"\x01\xffA"),
        ("set_bit", 15, 0, b"\x00\x7fA"),
        ("set_bit", 8, 1, b"\x00\xffA"),
    ] {
        let found = of(name, &[bytes(), number_of(at), number_of(new)]).unwrap();
        assert_eq!(found.as_binary::<i32>().value(0), expected, "{name} {at} {new}");
    }
    for (name, args, said) in [
        ("get_byte", vec![bytes(), number_of(3)], "index 3 out of valid range, 0..2"),
        ("get_bit", vec![bytes(), number_of(24)], "index 24 out of valid range, 0..23"),
        ("set_byte", vec![bytes(), number_of(-1), number_of(0)], "index -1 out of valid range, 0..2"),
        ("get_byte", vec![bytes_of(b""), number_of(0)], "index 0 out of valid range, 0..-1"),
        ("set_bit", vec![bytes(), number_of(0), number_of(2)], "new bit must be 0 or 1, not 2"),
        ("get_byte", vec![bytes()], "No function matches `get_byte` of 1 arguments: it takes 2"),
        ("get_byte", vec![bytes(), text("1")], "argument 2 of `get_byte` is no `Utf8`"),
    ] {
        let refused = of(name, &args).unwrap_err().to_string();
        assert!(refused.contains(said), "{name}: {refused}");
    }
    let none = column(BinaryArray::from(vec![None::<&[u8]>]));
    assert_eq!(shown(&of("get_byte", &[none, number_of(99)]).unwrap()), [None], "of nothing there is no place");
}

/// Names that texts have, too, are theirs where they are called with texts.
#[test]
fn texts_keep_their_functions() {
    for (name, args, expected) in [
        ("octet_length", vec![bytes_of(b"\xff\xc3\xa4")], "3"),
        ("octet_length", vec![text("ä")], "2"),
        ("character_length", vec![bytes_of("ä".as_bytes())], "2"),
        ("character_length", vec![text("ä")], "1"),
        ("bit_length", vec![bytes_of(b"ab")], "16"),
        ("strpos", vec![bytes_of(b"abc"), bytes_of(b"c")], "3"),
        ("strpos", vec![text("äbc"), text("c")], "3"),
    ] {
        assert_eq!(shown(&of(name, &args).unwrap()), [Some(expected.to_owned())], "{name}");
    }
    let part = of("substr", &[bytes_of(b"\x00\x01\x02\x03"), number_of(2), number_of(2)]).unwrap();
    assert_eq!(part.as_binary::<i32>().value(0), b"\x01\x02");
    assert_eq!(shown(&of("substr", &[text("äbc"), number_of(2)]).unwrap()), [Some("bc".to_owned())]);
    let trimmed = of("btrim", &[bytes_of(b"\x00a\x00"), bytes_of(b"\x00")]).unwrap();
    assert_eq!(trimmed.as_binary::<i32>().value(0), b"a");
    assert_eq!(shown(&of("btrim", &[text("  a ")]).unwrap()), [Some("a".to_owned())]);
    let refused = of("substr", &[bytes_of(b"a"), number_of(1), number_of(-1)]).unwrap_err().to_string();
    assert!(refused.contains("negative substring length not allowed"), "{refused}");
}

/// Whatever bytes there are, both written forms read back as these.
#[test]
fn written_bytes_read_back() {
    let mut draw = draws(141);
    for _ in 0..500 {
        let bytes: Vec<u8> = (0..draw(20)).map(|_| draw(256) as u8).collect();
        let written = escaped(&bytes);
        assert!(written.is_ascii() && !written.contains('\0'), "{written}");
        assert_eq!(unescaped(&written).unwrap(), bytes, "{written}");
        if !bytes.contains(&0) {
            let text = decoded(&bytes, "LATIN1").unwrap();
            assert_eq!(text.chars().count(), bytes.len());
            assert_eq!(encoded(&text, "iso_8859_1").unwrap(), bytes);
            assert_eq!(decoded(&encoded(&text, "UTF8").unwrap(), "utf8").unwrap(), text);
        }
        // A place is where a part begins, for each part that is there.
        let (from, count) = (draw(bytes.len() + 1), draw(4));
        let piece = part(&bytes, from as i64 + 1, Some(count as i64)).unwrap();
        assert_eq!(piece, &bytes[from..(from + count).min(bytes.len())]);
        let at = place(&bytes, piece);
        assert!((1..=from + 1).contains(&at) && bytes[at - 1..].starts_with(piece), "{bytes:?} {piece:?}: {at}");
    }
}
