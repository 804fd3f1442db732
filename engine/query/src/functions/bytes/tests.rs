use super::*;

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
