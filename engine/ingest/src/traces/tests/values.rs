//! Conversion of values: nested values of OTLP, endpoints and tags of Zipkin.

use super::*;

#[test]
fn nested_values_stay_in_their_form() {
    let nested = r#"{"arrayValue":{"values":[{"stringValue":"a\"b"},{"intValue":"-5"},{"doubleValue":"Infinity"},{"doubleValue":"-Infinity"},{"doubleValue":"NaN"},{"doubleValue":0.5},{"boolValue":false},{"bytesValue":"AQI="},{},{"kvlistValue":{}},{"kvlistValue":{"values":[{"key":"k","value":{}}]}}]}}"#;
    let decoded =
        one(&format!(r#"{{{IDS},"attributes":[{{"key":"l","value":{nested}}},{{"key":"e","value":{{}}}}]}}"#));
    let span = &spans_of(&decoded.batch)[0];
    assert_eq!(span.attributes.get("l"), Some(Value::Json(nested)));
    assert_eq!(span.attributes.get("e"), Some(Value::Text("")));
}

/// Breaks if a number that is too great becomes one below 0.
#[test]
fn whole_numbers_have_64_bits_with_a_sign() {
    let int = |value: &str| format!(r#"{{{IDS},"attributes":[{{"key":"n","value":{{"intValue":{value}}}}}]}}"#);
    for (text, value) in [("\"9223372036854775807\"", i64::MAX), ("-9223372036854775808", i64::MIN), ("\"-1\"", -1)] {
        let decoded = one(&int(text));
        assert_eq!(spans_of(&decoded.batch)[0].attributes.get("n"), Some(Value::Int(value)), "{text}");
    }
    for wrong in ["9223372036854775808", "\"18446744073709551615\"", "-9223372036854775809"] {
        let body = format!(r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{}]}}]}}]}}"#, int(wrong));
        assert!(with(|ctx| decode(TraceFormat::OtlpJson, None, body.as_bytes(), ctx)).is_err(), "{wrong}");
    }
}

/// Keys that stood at the same place in the span before are known; others are read.
#[test]
fn keys_of_spans_one_after_the_other() {
    let span = |n: u8, keys: &[&str]| {
        let attributes: Vec<String> =
            keys.iter().map(|key| format!(r#"{{"key":"{key}","value":{{"intValue":{n}}}}}"#)).collect();
        let ids = IDS.replace("EEE19B7EC3C1B174", &format!("{n:016x}"));
        format!(r#"{{{ids},"attributes":[{}]}}"#, attributes.join(","))
    };
    let lists: [&[&str]; 5] = [&["a", "b", "c"], &["a", "c"], &[], &["a", "b", "c", "d"], &["d", "b"]];
    let spans: Vec<String> = (1..).zip(lists).map(|(n, keys)| span(n, keys)).collect();
    let decoded = one(&spans.join(","));
    let read = spans_of(&decoded.batch);
    assert_eq!(read.len(), lists.len());
    for (n, (span, keys)) in (1_i64..).zip(read.iter().zip(lists)) {
        let mut expected: Vec<_> = keys.iter().map(|key| (*key, Value::Int(n))).collect();
        expected.sort_unstable_by_key(|(key, _)| *key);
        assert_eq!(span.attributes.iter().collect::<Vec<_>>(), expected);
    }
}

fn zipkin_span(members: &str) -> Span {
    let body = format!(r#"[{{"traceId":"1","id":"2",{members}}}]"#);
    let decoded = with(|ctx| decode(TraceFormat::Zipkin, None, body.as_bytes(), ctx)).unwrap();
    assert_eq!(decoded.text(), "");
    spans_of(&decoded.batch).remove(0)
}

#[test]
fn endpoints_and_tags_of_zipkin() {
    let span = zipkin_span(
        r#""timestamp":10,"tags":{"a":1.50,"b":true,"c":null,"d":"x","network.peer.address":"mine"},
        "localEndpoint":{"ipv4":"1.2.3.4","ipv6":"::1","port":0,"x":[]},"remoteEndpoint":{"ipv4":"5.6.7.8","port":"8080"}"#,
    );
    let found: Vec<_> = span.attributes.iter().map(|(key, value)| (key, value.text().into_owned())).collect();
    let expected = [
        ("a", "1.50"),
        ("b", "true"),
        ("c", ""),
        ("d", "x"),
        ("network.local.address", "1.2.3.4"),
        ("network.peer.address", "mine"),
        ("network.peer.port", "8080"),
    ];
    assert_eq!(found, expected.map(|(key, value)| (key, value.to_owned())));
    let span = zipkin_span(r#""localEndpoint":null,"remoteEndpoint":null,"annotations":null,"tags":null,"kind":null"#);
    assert_eq!((span.attributes.is_empty(), span.events.len(), span.kind, span.duration()), (true, 0, 0, 0));
    let kinds = [("server", 2), ("CLIENT", 3), ("Producer", 4), ("CONSUMER", 5), ("", 0), ("internal", 0)];
    for (kind, expected) in kinds {
        assert_eq!(zipkin_span(&format!(r#""timestamp":10,"kind":"{kind}""#)).kind, expected, "{kind}");
    }
    // Where nanoseconds have no room, times end at the last one.
    let span =
        zipkin_span(r#""timestamp":10,"duration":18446744073709551615,"annotations":[{"timestamp":1e18,"value":"x"}]"#);
    assert_eq!((span.start, span.end, span.events[0].time), (10_000, i64::MAX, i64::MAX));
    let body = r#"[{"traceId":"1","id":"2","timestamp":18446744073709551615}]"#;
    let decoded = with(|ctx| decode(TraceFormat::Zipkin, None, body.as_bytes(), ctx)).unwrap();
    assert_eq!(decoded.text(), "1 span: start is in the future (first: \"\")");
}
