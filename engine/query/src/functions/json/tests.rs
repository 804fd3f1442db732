use super::super::testing::{PathStep, call, document, draws, named, one, parts_of, shown, text, texts};
use super::*;

const DOCUMENT: &str = r#" {"a": {"b": [1, "x\"y", null, {"c" : 1.50}]}, "k\n": "", "e": []} "#;

/// A plan that is read elsewhere finds a function by its name.
#[test]
fn operators_have_the_functions_of_the_session() {
    for function in [get(), get_text()] {
        assert!(functions().any(|known| known == function), "{}", function.name());
    }
}

#[test]
fn pieces_stay_as_they_were_written() {
    let check = |place: &str, expected: Option<&str>| {
        assert_eq!(walk(DOCUMENT, &path(place).unwrap()), expected, "{place}");
    };
    check("$.a.b[0]", Some("1"));
    check("$.a.b[1]", Some(r#""x\"y""#));
    check("$.a.b[-1]", Some(r#"{"c" : 1.50}"#));
    check("$.a.b[3].c", Some("1.50"));
    check("$.a.b[4]", None);
    check("$.a.b[-5]", None);
    check("$.a.c", None);
    check("$.a[0]", None);
    check("$.e", Some("[]"));
    check("$.e[0]", None);
    assert_eq!(walk(DOCUMENT, &[Step::Member("k\n".into())]), Some(r#""""#));
    assert_eq!(walk(DOCUMENT, &["a", "b", "0"].map(|step| Step::Either(step.into()))), Some("1"));
    assert_eq!(walk(r#"{"0": 1}"#, &[Step::Item(0)]), None);
    for wrong in ["", "{", "no", "{a: 1}", r#"{"a" 1}"#, r#"{"a": 1"#, r#"{"a": 1} x"#, r#"{"a": x}"#, "[1"] {
        assert_eq!(walk(wrong, &[Step::Either("a".into())]), None, "{wrong}");
    }
    assert_eq!(path("$a"), None);
}

#[test]
fn values_of_maps_are_texts() {
    let mut maps = crate::tables::TextMaps::default();
    maps.push("a", "x\"y");
    maps.end();
    maps.push("b", "2");
    maps.end();
    let maps: ArrayRef = Arc::new(maps.finish().unwrap());
    let keys: ArrayRef = Arc::new(arrow::array::StringViewArray::from(vec!["a"; 2]));
    let found = of_maps(&maps, &keys).unwrap();
    assert_eq!(found.as_string_view().iter().collect::<Vec<_>>(), [Some(r#""x\"y""#), None]);
    let kind = quiver_types::tables::columns::map();
    let get = get();
    assert_eq!(get.inner().coerce_types(&[kind.clone(), DataType::Utf8View]).unwrap(), [kind.clone(), DataType::Utf8]);
    // By a place they are read as the documents that they are, which have no items.
    let by_place = get.inner().coerce_types(&[kind, DataType::Int64]).unwrap();
    assert_eq!(by_place, [quiver_types::tables::columns::map(), DataType::Int64]);
}

#[test]
fn texts_lengths_and_types() {
    assert_eq!(text_of(r#""x\"yä""#).as_deref(), Some("x\"yä"));
    assert_eq!(
        (text_of("null"), text_of("1.50").as_deref(), text_of("\"\"").as_deref()),
        (None, Some("1.50"), Some(""))
    );
    assert_eq!(
        (length("[1, [2, 3], \"]\"]"), length("[]"), length("{}"), length("[1")),
        (Some(3), Some(0), None, None)
    );
    let types = ["{}", " [] ", "\"\"", "true", "null", "-1.5e3"].map(|text| type_of(text).unwrap());
    assert_eq!(types, ["object", "array", "string", "boolean", "null", "number"]);
    assert_eq!((type_of("truth"), type_of("")), (None, None));
}

#[test]
fn documents_are_so_throughout() {
    for text in [DOCUMENT, "1e400", "\"x\"", "null"] {
        assert!(is_document(text), "{text}");
    }
    for text in ["", "{\"a\":}", "{a", "[1,]", "1 2", "'x'"] {
        assert!(!is_document(text), "{text}");
        assert_eq!(document_of(text), None, "{text}");
    }
    for (text, piece) in [(" \t[1, 2]\r\n", "[1, 2]"), ("\" a \"", "\" a \""), ("0", "0")] {
        assert_eq!(document_of(text), Some(piece), "{text:?}");
    }
    assert_eq!(document_of("\u{a0}1"), None);
    let deep = ["[".repeat(10_000), "]".repeat(10_000)].concat();
    assert_eq!(document_of(&deep), Some(deep.as_str()));
}

#[test]
fn columns_say_where_to_look() {
    use arrow::array::StringViewArray;

    let json =
        |asked| Json { name: "f", asked, as_text: true, signature: Signature::user_defined(Volatility::Immutable) };
    let places: ArrayRef = Arc::new(StringViewArray::from(vec![Some("{a, 0}"), None, Some("a")]));
    let get = json(JsonOperation::Path);
    assert_eq!(get.steps(&places, 0), Some(vec![Step::Either("a".into()), Step::Either("0".into())]));
    assert_eq!((get.steps(&places, 1), get.steps(&places, 2)), (None, None));
    assert_eq!(json(JsonOperation::Get).steps(&places, 2), Some(vec![Step::Member("a".into())]));
    let found = json(JsonOperation::Get).coerce_types(&[DataType::Utf8, DataType::Int32]).unwrap();
    assert_eq!(found, [DataType::Utf8View, DataType::Int64]);
    assert!(json(JsonOperation::Get).coerce_types(&[DataType::Int64, DataType::Utf8]).is_err());
    assert!(json(JsonOperation::Length).coerce_types(&[DataType::Utf8, DataType::Utf8]).is_err());
}

/// Breaks if brackets and quotes alone make a document: messages such as `[main] …` begin so.
#[test]
fn what_only_looks_like_json_is_none() {
    for text in ["[main]", "{abc}", "[1,]", "[1, x]", r#"{"a":}"#, "[}", r#"{"a":1,}"#, "[1 2]", "[,]", r#"["\x"]"#] {
        assert_eq!((length(text), type_of(text)), (None, None), "{text}");
    }
    assert_eq!((length(" [[], {}] "), type_of(" [[], {}] ")), (Some(2), Some("array")));
}

#[test]
fn steps_are_those_of_a_list() {
    let asking = Json {
        name: "f",
        asked: JsonOperation::Path,
        as_text: false,
        signature: Signature::user_defined(Volatility::Immutable),
    };
    let check = |place: &str, expected: Option<&[&str]>| {
        let places: ArrayRef = Arc::new(arrow::array::StringViewArray::from(vec![place]));
        let expected =
            expected.map(|steps| steps.iter().map(|step| Step::Either((*step).into())).collect::<Vec<Step<'_>>>());
        assert_eq!(asking.steps(&places, 0), expected, "{place}");
    };
    check("{}", Some(&[]));
    check(" { a , b c } ", Some(&["a", "b c"]));
    check(r#"{a,"b,c","d\"e"}"#, Some(&["a", "b,c", "d\"e"]));
    check(r#"{"null",""}"#, Some(&["null", ""]));
    for wrong in ["{a,NULL}", "{a,}", "{a", "a", "", "{{a}}"] {
        check(wrong, None);
    }
}

#[test]
fn steps_lead_to_pieces_and_texts() {
    let dotted = r#"{"a.b": {"c": 1}, "a": {"b": 2}}"#;
    for (name, document, place, expected) in [
        ("json_get", r#"{"a": {"b": [1, null]}}"#, "a", Some(r#"{"b": [1, null]}"#)),
        ("json_get", r#"{"a":null}"#, "a", Some("null")),
        ("json_get_text", r#"{"a":null}"#, "a", None),
        ("json_get", r#"{"\u0061": 1}"#, "a", Some("1")),
        ("json_get", "[1]", "0", None),
        // Of several members of one name the last counts.
        ("json_get", r#"{"a": 1, "b": 2, "\u0061": 3}"#, "a", Some("3")),
        ("json_get_text", r#"{"a": "x", "a": null}"#, "a", None),
        ("json_get_path", r#"{"a": {"b": 1}, "a": {"c": 2}}"#, "{a,b}", None),
        ("json_extract", r#"{"a": {"b": 1, "b": 2}, "c": 3}"#, "$.a.b", Some("2")),
        ("json_get_text", r#"{"a": "x\ty"}"#, "a", Some("x\ty")),
        ("json_get_path", r#"{"a,b": {"c": [10, 20]}}"#, r#"{"a,b",c,-1}"#, Some("20")),
        ("json_get_path", "[1]", "{}", Some("[1]")),
        ("json_get_path", "[1]", "{x}", None),
        ("json_get_path", r#"{"1": "x"}"#, "{1}", Some("\"x\"")),
        ("json_get_path_text", r#"{"a": ["x", "y"]}"#, "{a,1}", Some("y")),
        ("json_extract", dotted, "a.b", Some(r#"{"c": 1}"#)),
        ("json_extract", dotted, "$.a.b", Some("2")),
        ("json_extract", dotted, r#"$."a.b".c"#, Some("1")),
        ("json_extract", dotted, "$", Some(dotted)),
        ("json_extract", "[1, 2, 3]", "$[ -1 ]", Some("3")),
        ("json_extract", "[1]", "$[x]", None),
        ("json_extract", "[1]", "$[0", None),
        ("json_extract_string", r#"["ä\u00e4"]"#, "$[0]", Some("ää")),
    ] {
        let found = one(&named(functions(), name), &[text(document), text(place)]).unwrap();
        assert_eq!(found.as_deref(), expected, "{name} {document} {place}");
    }
    let items = named(functions(), "json_get");
    for (at, expected) in [(0, Some("1")), (-1, Some("2")), (2, None), (-3, None), (i64::MIN, None), (i64::MAX, None)] {
        let place = ColumnarValue::Scalar(datafusion::common::ScalarValue::from(at));
        assert_eq!(one(&items, &[text("[1,2]"), place]).unwrap().as_deref(), expected, "{at}");
    }
}

#[test]
fn rows_have_documents_and_steps_of_their_own() {
    let documents = texts(&[Some("[1, 2]"), None, Some("no"), Some("{}")]);
    let of = |name: &str, args: &[ColumnarValue]| shown(&call(&named(functions(), name), args, 4).unwrap());
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(of("json_array_length", std::slice::from_ref(&documents)), [some("2"), None, None, None]);
    assert_eq!(of("json_typeof", std::slice::from_ref(&documents)), [some("array"), None, None, some("object")]);
    let members = texts(&[Some(r#"{"a": 1}"#), Some(r#"{"a": 2}"#), Some(r#"{"b": 3}"#), None]);
    assert_eq!(of("json_get", &[members.clone(), text("a")]), [some("1"), some("2"), None, None]);
    let steps = texts(&[Some("a"), None, Some("b"), Some("b")]);
    assert_eq!(of("json_get", &[members, steps]), [some("1"), None, some("3"), None]);
}

#[test]
fn pieces_are_json_and_texts_are_none() {
    let kind: FieldRef = Arc::new(Field::new("a", DataType::Utf8View, true));
    let fields = [Arc::clone(&kind), kind];
    for (name, expected) in [("json_get", true), ("json_extract", true), ("json_get_text", false)] {
        let asked = ReturnFieldArgs { arg_fields: &fields, scalar_arguments: &[None, None] };
        let given = named(functions(), name).return_field_from_args(asked).unwrap();
        assert_eq!(is_json(&given), expected, "{name}");
    }
    let refused =
        |name: &str, types: &[DataType]| named(functions(), name).coerce_types(types).expect_err("refused").to_string();
    let (text, number) = (DataType::Utf8, DataType::Int64);
    for (name, types, said) in [
        ("json_get", vec![text.clone()], "`json_get` takes 2 arguments, not 1"),
        ("json_typeof", vec![], "`json_typeof` reads a text"),
        ("json_get_path", vec![text.clone(), number.clone()], "is told by a text where to look, not by `Int64`"),
        ("json_extract", vec![number, text], "reads texts that hold JSON, and maps of texts, not `Int64`"),
    ] {
        let fault = refused(name, &types);
        assert!(fault.contains(said), "{name}: {fault}");
    }
}

/// Each part of many documents, found by the steps to it, is what another reader finds there.
#[test]
fn parts_are_those_of_another_reader() {
    let mut draw = draws(11);
    for _ in 0..100 {
        let value = document(&mut draw, 3);
        for text in [value.to_string(), format!("{value:#}")] {
            let mut parts = Vec::new();
            parts_of(&value, &[], &mut parts);
            for (way, part) in parts {
                let step = |step: &PathStep<'_>| match step {
                    Ok(name) => Step::Member((*name).to_owned().into()),
                    Err(at) => Step::Item(*at as i64),
                };
                let steps: Vec<Step<'_>> = way.iter().map(step).collect();
                let piece = walk(&text, &steps).unwrap_or_else(|| panic!("{text} has no {way:?}"));
                assert_eq!(&serde_json::from_str::<serde_json::Value>(piece).unwrap(), part, "{text} {way:?}");
                assert_eq!(length(piece), part.as_array().map(|items| items.len() as i64), "{piece}");
                assert_eq!(part.as_str(), text_of(piece).filter(|_| part.is_string()).as_deref(), "{piece}");
            }
        }
    }
}
