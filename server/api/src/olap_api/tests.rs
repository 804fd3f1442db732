use http::Method;

use super::*;

/// What is left of a query, the segments that it asks for, and their places.
type Taken = (Value, Vec<String>, Vec<(String, String)>);

/// Takes segments out of a query; or gives the place and text of what is wrong.
fn taken(mut query: Value) -> Result<Taken, OlapError> {
    let mut asked = Params::read(&Method::GET, &HeaderMap::new(), Some("segment=url"), &[])?;
    let places = platform_segments(&mut query, &mut asked)?;
    let keys = asked.all("segment").map(str::to_owned).collect();
    Ok((query, keys, places))
}

fn places(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(key, place)| ((*key).to_owned(), (*place).to_owned())).collect()
}

#[test]
fn segments_of_the_platform_leave_the_query() {
    let (left, keys, found) =
        taken(json!({"segments": ["platform.b", "Spans.slow", "platform.a", 7], "limit": 1})).unwrap();
    assert_eq!(left, json!({"segments": ["Spans.slow", 7], "limit": 1}));
    // Those of the URL hold as well.
    assert_eq!(keys, ["url", "a", "b"]);
    assert_eq!(found, places(&[("b", "/segments/0"), ("a", "/segments/2")]));
    for untouched in [json!({}), json!({"segments": []}), json!({"segments": "platform.a"}), json!([]), json!(null)] {
        assert_eq!(taken(untouched.clone()).unwrap(), (untouched, vec!["url".to_owned()], vec![]));
    }
}

/// One request reads in one segment, whatever the order in which its queries name it.
#[test]
fn queries_of_a_list_name_the_same_segments() {
    let list = json!([{"segments": ["platform.a", "platform.b"]}, {"segments": ["x", "platform.b", "platform.a"]}]);
    let (left, keys, found) = taken(list).unwrap();
    assert_eq!(left, json!([{"segments": []}, {"segments": ["x"]}]));
    assert_eq!(keys, ["url", "a", "b"]);
    let expected = [("a", "/0/segments/0"), ("b", "/0/segments/1"), ("b", "/1/segments/1"), ("a", "/1/segments/2")];
    assert_eq!(found, places(&expected));
    let twice = json!([{"segments": ["platform.a", "platform.a"]}, {"segments": ["platform.a"]}]);
    assert_eq!(taken(twice).unwrap().1, ["url", "a"]);
    for (first, second) in [
        (json!({"segments": ["platform.a"]}), json!({"segments": ["platform.b"]})),
        (json!({"segments": ["platform.a"]}), json!({})),
        (json!({"segments": []}), json!({"segments": ["platform.a"]})),
    ] {
        match taken(json!([first, second])) {
            Err(OlapError::Query(error)) => {
                assert_eq!((error.reason, &*error.pointer), (Reason::BadValue, "/segments"));
            }
            other => panic!("{first} and {second}: {other:?}"),
        }
    }
}

#[test]
fn a_segment_that_is_not_there_is_told_at_its_place() {
    let named = places(&[("a", "/segments/0"), ("b", "/1/segments/2")]);
    let check =
        |error: Error, places: &[(String, String)], reason: Reason, pointer: &str| match bad_segment(error, places) {
            OlapError::Query(found) => assert_eq!((found.reason, &*found.pointer), (reason, pointer)),
            OlapError::Engine(other) => panic!("{other:?}"),
        };
    check(segments::unknown("b"), &named, Reason::UnknownMember, "/1/segments/2");
    check(segments::unknown("a"), &named, Reason::UnknownMember, "/segments/0");
    // One of the URL has no place in the query.
    check(segments::unknown("url"), &[], Reason::BadValue, "");
    check(Error::invalid("`segment.x` takes one value"), &named, Reason::BadValue, "/segments");
    let down = Error::new(ErrorKind::Unavailable, "gone");
    assert_eq!(bad_segment(down, &named).kind(), ErrorKind::Unavailable);
}

/// RFC 9110 13.1.2: a list, `*`, and weak comparison.
#[test]
fn tags_are_found_in_lists() {
    for (text, known) in [
        ("\"7\"", true),
        ("W/\"7\"", true),
        ("\"1\", \"7\"", true),
        ("\"1\",W/\"7\" ", true),
        ("*", true),
        ("\"77\"", false),
        ("7", false),
        ("\"1\"", false),
        ("", false),
    ] {
        assert_eq!(names(&HeaderValue::from_static(text), "\"7\""), known, "{text}");
    }
    assert!(!names(&HeaderValue::from_bytes(&[0xe9]).unwrap(), "\"7\""));
}
