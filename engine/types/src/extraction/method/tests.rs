use serde_json::json;

use super::*;

fn named(found: &[(Cow<'_, str>, Cow<'_, str>)]) -> String {
    found.iter().map(|(name, value)| format!("{name}:{value}")).collect::<Vec<_>>().join("|")
}

#[test]
fn pairs_of_logfmt() {
    let check = |text: &str, expected: &str| assert_eq!(named(&logfmt(text)), expected, "{text}");
    check("", "");
    check("a=1 b=2", "a:1|b:2");
    check("  a=1   b=2  ", "a:1|b:2");
    // Lines are apart as words are, and the end of one is no part of a value.
    check("a=1\tb=2\nc=3\r\n", "a:1|b:2|c:3");
    check("level=info\nflag\nb=2", "level:info|b:2");
    check("a= b=2", "a:|b:2");
    check("flag a=1 other", "a:1");
    check("=x a=1", "a:1");
    check("a==b", "a:=b");
    check("a=1 a=2", "a:1|a:2");
    check("é=ü", "é:ü");
    check(r#"a="x y" b=1"#, "a:x y|b:1");
    check(r#"a="x"b=1"#, "a:x|b:1");
    check(r#"a="" b="=""#, "a:|b:=");
    check(r#"a="x\"y\\" b=1"#, r#"a:x"y\|b:1"#);
    check(r#"a="\u00e9\n""#, "a:é\n");
    // A quote that nothing ends is a sign of the value.
    check(r#"a="open b=1"#, r#"a:"open|b:1"#);
    check(r#"a=x"y b=1"#, r#"a:x"y|b:1"#);
}

#[test]
fn parts_of_addresses() {
    let check = |text: &str, expected: &str| {
        let told = match parts_of(text) {
            MethodMatch::Address(parts, _) => {
                parts.iter().map(|(n, v)| format!("{n}:{v}")).collect::<Vec<_>>().join(" ")
            }
            _ => "none".to_owned(),
        };
        assert_eq!(told, expected, "{text}");
    };
    check(
        "https://u:p@shop.example:8443/a/b?x=1&y#top",
        "scheme:https host:shop.example port:8443 path:/a/b query:x=1&y fragment:top",
    );
    check("http://[::1]:8080/x", "scheme:http host:[::1] port:8080 path:/x");
    check("http://[::1]/", "scheme:http host:[::1] path:/");
    check("http://h", "scheme:http host:h");
    check("http://h:/x", "scheme:http host:h path:/x");
    check("http://h/a@b:1", "scheme:http host:h path:/a@b:1");
    check("http://h?u=http://other/p", "scheme:http host:h query:u=http://other/p");
    check("http://h#a?b", "scheme:http host:h fragment:a?b");
    check("git+ssh://git@h/r.git", "scheme:git+ssh host:h path:/r.git");
    check(" /cut\n", "path:/cut");
    check("/a b/é?q", "path:/a b/é query:q");
    // An address within a path is none of its own.
    check("/proxy/https://other.example/a?b", "path:/proxy/https://other.example/a query:b");
    for text in ["", "#top", "?a=b", "h/x", "see http://h/x", "://h/x", "1http://h"] {
        check(text, "none");
    }
}

#[test]
fn texts_between_placeholders() {
    let check = |expression: &str, text: &str, expected: &str| {
        let pieces = pattern(expression).unwrap_or_else(|e| panic!("{expression}: {e:?}"));
        let told = match between(text, &pieces) {
            MethodMatch::Named(all) => named(&all),
            _ => "none".to_owned(),
        };
        assert_eq!(told, expected, "{expression} {text}");
    };
    check("<ip> - <user> [", "10.0.0.1 - ann [x", "ip:10.0.0.1|user:ann");
    check("<ip> - <user> [", "10.0.0.1 - ann", "none");
    // The first place at which the text before it stands, and the first after that.
    check("took <ms>ms", "it took 12ms, took 13ms", "ms:12");
    check("<_> x <b>", "1 x 2 x 3", "b:2 x 3");
    check("<> <b>", "1 2", "b:2");
    check("a=<a> ", "a= b", "a:");
    check("a<a>a", "aa", "a:");
    check("a<a>a", "a", "none");
    check("<a>", "", "a:");
    check("é<a>é<b>", "xéyézé", "a:y|b:zé");
    check("<a>,<a>", "1,2", "a:1|a:2");
}

#[test]
fn wrong_patterns_say_why() {
    for (expression, why) in [
        ("<a><b>", "text must stand between two placeholders"),
        ("x <a", "`<` is not closed"),
        ("plain", "must have a placeholder: `<name>`"),
        ("<_> <>", "must have a placeholder: `<name>`"),
    ] {
        let error = pattern(expression).expect_err(expression);
        assert_eq!((error.code, error.message.as_str()), ("INVALID_EXPR", why), "{expression}");
    }
}

fn options(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

#[test]
fn what_is_wrong_with_a_pattern_is_told_in_words() {
    let errors = Method::parse("regex", Some("(?P<a>"), &Map::new()).err().unwrap_or_default();
    assert_eq!(errors.iter().map(|e| &*e.message).collect::<Vec<_>>(), ["unclosed group"]);
}

#[test]
fn what_is_wrong_with_a_method_is_told() {
    let check = |word: &str, expression: Option<&str>, given: Value, expected: &[&str]| {
        let errors = Method::parse(word, expression, &options(&given)).err().unwrap_or_default();
        let mut told: Vec<String> = errors.iter().map(|e| format!("{} {}", e.pointer, e.code)).collect();
        told.sort();
        assert_eq!(told, expected, "{word} {expression:?} {given}");
    };
    let columns = |count: usize| json!({"delimiter": ",", "columns": vec!["a"; count]});
    check("regex", Some("(?P<a>.)"), json!({}), &[]);
    check("regex", Some(""), json!({}), &["/expression REQUIRED"]);
    check("regex", Some("(.)"), json!({}), &["/expression INVALID_VALUE"]);
    check("regex", Some("(?P<a>.)"), json!({"caseSensitive": "no"}), &["/options/caseSensitive INVALID_TYPE"]);
    check("regex", Some(format!("(?P<a>{})", "x".repeat(1024)).as_str()), json!({}), &["/expression INVALID_REGEX"]);
    check("regex", Some("(?P<a>.{1000}){1000}"), json!({}), &["/expression INVALID_REGEX"]);
    check("json", None, json!({"maxDepth": 32}), &[]);
    check("json", None, json!({"maxDepth": 33}), &["/options/maxDepth OUT_OF_RANGE"]);
    check("json", None, json!({"maxDepth": 1.5}), &["/options/maxDepth INVALID_TYPE"]);
    check("json", Some("x"), json!({"a/b": 1}), &["/expression UNSUPPORTED", "/options/a~1b UNKNOWN_FIELD"]);
    check("delimited", None, columns(200), &[]);
    check("delimited", None, columns(0), &["/options/columns OUT_OF_RANGE"]);
    check("delimited", None, columns(201), &["/options/columns OUT_OF_RANGE"]);
    check("delimited", None, json!({}), &["/options/columns REQUIRED", "/options/delimiter REQUIRED"]);
    let wrong = json!({"delimiter": "x".repeat(17), "columns": [1]});
    check("delimited", None, wrong, &["/options/columns INVALID_TYPE", "/options/delimiter OUT_OF_RANGE"]);
    check("template", Some("{a"), json!({}), &["/expression INVALID_TEMPLATE"]);
    check("constant", None, json!({}), &["/expression REQUIRED"]);
    check("urlPart", None, json!({}), &[]);
    check("grok", None, json!({}), &["/method INVALID_VALUE"]);
}

#[test]
fn what_targets_may_take() {
    let check = |word: &str, expression: Option<&str>, given: Value, yes: &[&str], no: &[&str]| {
        let method = Method::parse(word, expression, &options(&given)).unwrap_or_else(|e| panic!("{word}: {e:?}"));
        for &from in yes {
            assert!(method.from(Some(from)).is_ok(), "{word} {from}");
        }
        for &from in no {
            assert!(method.from(Some(from)).is_err(), "{word} {from}");
        }
        let needs = !matches!(word, "constant" | "template");
        assert_eq!((method.from(None).is_err(), method.reads_source()), (needs, needs), "{word}");
    };
    check("regex", Some("(?P<a>.)(.)(?P<b>.)"), json!({}), &["a", "b"], &["c", "1", ""]);
    check("pattern", Some("<a> <_> <b>"), json!({}), &["a", "b"], &["_", "c"]);
    check("delimited", None, json!({"delimiter": ";", "columns": ["a", "_"]}), &["a"], &["_", "b"]);
    check("urlPart", None, json!({}), &["host", "query", "query.a.b"], &["query.", "user", "Host"]);
    check("jsonPath", None, json!({}), &["$", "$.a[0]"], &["a", "$..a"]);
    check("logfmt", None, json!({}), &["anything at all"], &[""]);
    check("constant", Some("c"), json!({}), &[], &["a"]);
    check("template", Some("{a}"), json!({}), &[], &["a"]);
}

#[test]
fn documents_are_flattened_so_far() {
    let flat = |text: &str, depth: usize| {
        let (value, mut found) = (tree(text).expect("a document"), Vec::new());
        flatten(&value, &mut String::new(), depth, &mut |name, value| found.push(format!("{name}:{}", plain(value))));
        found.join("|")
    };
    let text = r#"{"a": {"b": {"c": 1, "d": "x y"}, "e": []}, "f": null, "g": {}, "h": 1.50}"#;
    assert_eq!(flat(text, 1), r#"a:{"b":{"c":1,"d":"x y"},"e":[]}|g:{}|h:1.5"#);
    assert_eq!(flat(text, 2), r#"a.b:{"c":1,"d":"x y"}|a.e:[]|g:{}|h:1.5"#);
    assert_eq!(flat(text, 8), "a.b.c:1|a.b.d:x y|a.e:[]|g:{}|h:1.5");
    assert_eq!(flat(r#"{"": {"a": 1}, "b.c": 2}"#, 8), "a:1|b.c:2");
    assert_eq!(flat("[1, {}]", 8), ":[1,{}]");
    for other in ["", "7", "\"{}\"", "{", "{} x", "null"] {
        assert!(tree(other).is_none(), "{other}");
    }
    assert!(tree(" \n{}").is_some() && is_tree("[") && !is_tree("x{"));
}

#[test]
fn queries_of_addresses() {
    let query = |text: &str, key: &str| match parts_of(text) {
        found @ MethodMatch::Address(..) => found.get(&From::Name(format!("query.{key}"))).map(Cow::into_owned),
        _ => None,
    };
    let address = "https://h/p?a=1&b=2=3&a=4&flag&=x&é=ü#a=5";
    for (key, expected) in [("a", Some("1")), ("b", Some("2=3")), ("flag", Some("")), ("é", Some("ü")), ("c", None)] {
        assert_eq!(query(address, key).as_deref(), expected, "{key}");
    }
    let many: Vec<String> = (0..COLUMNS_MAX + 5).map(|n| format!("k{n}=v")).collect();
    let many = format!("/p?{}", many.join("&"));
    assert_eq!((query(&many, "k199"), query(&many, "k200")), (Some("v".to_owned()), None), "so many are looked at");
}
