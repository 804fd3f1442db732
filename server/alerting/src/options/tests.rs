use super::*;

#[test]
fn headers_of_proxies_are_lists() {
    let told = |text: &str| {
        let node = quiver_yaml::read(text).expect(text).remove(0);
        let mut problems = Problems::default();
        http::HTTP.read(&node, "", &mut problems);
        problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    };
    assert_eq!(told("{proxy_connect_header: {}}"), "");
    assert_eq!(told("{proxy_url: 'http://p', proxy_connect_header: {A: [b, 1]}}"), "");
    assert!(told("{proxy_connect_header: {A: [b]}}").contains("must also be configured"));
    for bad in ["x", "[a]", "{A: b}", "{A: [{b: c}]}"] {
        let told = told(&format!("{{proxy_url: 'http://p', proxy_connect_header: {bad}}}"));
        assert!(told.contains("wanted"), "{bad}: {told}");
    }
}

#[test]
fn addresses() {
    for u in ["http://h", "https://u:p@h:80/a?b#c", "http://[::1]:9/", "HTTP://h"] {
        assert_eq!(check_url(u), Ok(()), "{u}");
    }
    for u in [
        "",
        "h",
        "h:80",
        "ftp://h",
        "http://",
        "http:///x",
        "http://h:x",
        "http://h/%zz",
        "http://a b",
        "://x",
        "http://h\n",
    ] {
        assert!(check_url(u).is_err(), "{u}");
    }
    assert_eq!(check_host_port("localhost:25"), Ok(()));
    assert!(check_host_port("localhost").is_err() && check_host_port("h:").is_err());
    assert_eq!(check_template_url("http://h/{{ .Status }}"), Ok(()));
    assert!(check_template_url("http://h/{{ .Status").is_err());
}

/// As Go reads addresses: what stands behind a host is a port, and so begins with a colon.
#[test]
fn hosts_of_addresses() {
    for (url, expected) in [
        ("http://h", ""),
        ("http://h:", ""),
        ("http://[::1]", ""),
        ("http://[::1]:", ""),
        ("http://a@b@c", ""),
        ("http://u:p%40@h", ""),
        ("http://h/a b", ""),
        ("http://h?x=%zz", ""),
        ("http://h/%41%zz?a", "invalid URL escape"),
        ("http://h/%4", "invalid URL escape"),
        ("http://[::1]80", "invalid port \"80\" after host"),
        ("http://[::1]x", "invalid port \"x\" after host"),
        ("http://[::1", "missing ']' in host"),
        ("http://h:8a", "invalid port \":8a\" after host"),
        ("http://a:b:80", "invalid port \":b:80\" after host"),
        ("http://:80", ""),
        ("http://u@", "missing host for URL"),
        ("http://?x", "missing host for URL"),
        ("http:h", "missing host for URL"),
        ("h/x:y", "unsupported scheme \"\" for URL"),
        ("a b:c", "first path segment in URL cannot contain colon"),
        ("FTP://h", "unsupported scheme \"ftp\" for URL"),
        ("http://h\t", "invalid control character in URL"),
        ("http://h`", "invalid character in host name"),
    ] {
        assert_eq!(check_url(url).err().unwrap_or_default(), expected, "{url}");
    }
}

#[test]
fn hosts_with_ports() {
    for (text, expected) in [
        ("", ""),
        ("h:25", ""),
        ("[::1]:25", ""),
        (":25", ""),
        ("h:smtp", ""),
        ("h", "address h: missing port in address"),
        ("::1", "address ::1: missing port in address"),
        ("h:", "address \"h:\": port cannot be empty"),
    ] {
        assert_eq!(check_host_port(text).err().unwrap_or_default(), expected, "{text}");
    }
}

#[test]
fn addresses_that_are_templates() {
    for (text, expected) in [
        ("", ""),
        (SECRET, ""),
        ("{{ .ExternalURL }}", ""),
        ("http://{{ .Receiver }}:x", ""),
        ("h", "invalid URL: unsupported scheme"),
        ("{{", "invalid template syntax: template: :1: "),
        ("{{ nope }}", "invalid template syntax: template: :1: "),
    ] {
        let told = check_template_url(text).err().unwrap_or_default();
        assert!(told.starts_with(expected) && told.is_empty() == expected.is_empty(), "{text}: {told}");
    }
    assert_eq!(is_template("a }} b"), Ok(false));
}

static INNER: Schema = Schema {
    fields: &[FieldDef { name: "a", shape: Shape::Text, default: "x" }, field("b", Shape::Count)],
    check: |options| if options.text("a") == "no" { Err("a must not be no".to_owned()) } else { Ok(()) },
};

/// A field of each shape.
static ALL: Schema = Schema {
    fields: &[
        text("text", "t"),
        field("secret", Shape::SecretUrl),
        field("url", Shape::Url),
        field("proxy", Shape::ProxyUrl),
        field("address", Shape::HostPort),
        FieldDef { name: "truth", shape: Shape::Truth, default: "true" },
        field("integer", Shape::Integer),
        field("count", Shape::Count),
        FieldDef { name: "duration", shape: Shape::Duration, default: "5m" },
        FieldDef { name: "go", shape: Shape::GoDuration, default: "1.5s" },
        field("word", Shape::Word(&["on", "off"])),
        field("map", Shape::TextMap),
        field("texts", Shape::Texts),
        field("any", Shape::Any),
        field("object", Shape::Object(&INNER)),
        field("objects", Shape::Objects(&INNER)),
        field("named", Shape::ObjectMap(&INNER)),
        field("either", Shape::TextOr("a", &INNER)),
    ],
    check: sound,
};

fn read(text: &str) -> (Options, Vec<String>) {
    let node = quiver_yaml::read(text).expect(text).remove(0);
    let mut problems = Problems::default();
    let options = ALL.read(&node, "/o", &mut problems);
    (options, problems.iter().map(|p| format!("{} {}", p.path, p.message)).collect())
}

#[test]
fn values_of_all_shapes() {
    let (options, problems) = read(
        "{text: 1, secret: <secret>, url: 'http://h', proxy: 'p:1', address: 'h:1', truth: no, integer: -0x10, \
        count: 1_0, duration: 1d, go: 7, word: 'on', map: {a: 1, b: ~}, texts: [a, 2], any: {a: [1, yes]}, \
        object: {b: 2}, objects: [{a: y}, {}], named: {n: {a: z}}, either: w}",
    );
    assert_eq!(problems, Vec::<String>::new());
    assert_eq!((options.text("text"), options.text("secret"), options.text("word")), ("1", "<secret>", "on"));
    assert_eq!((options.masked(), options.object("object").and_then(Options::masked)), (Some("secret"), None));
    assert_eq!((options.truth("truth"), options.integer("integer"), options.integer("count")), (false, -16, 10));
    assert_eq!((options.duration_ns("duration"), options.duration_ns("go")), (Some(86_400_000_000_000), Some(7)));
    let map = options.text_map("map").expect("a map");
    assert_eq!((map["a"].as_str(), map["b"].as_str()), ("1", ""));
    assert_eq!(options.value("texts"), Some(&OptionValue::Texts(vec!["a".to_owned(), "2".to_owned()])));
    assert_eq!(options.value("any"), Some(&OptionValue::Any(serde_json::json!({"a": [1, true]}))));
    let object = options.object("object").expect("an object");
    assert_eq!(
        (object.text("a"), object.integer("b"), object.is_given("a"), object.is_given("b")),
        ("x", 2, false, true)
    );
    assert_eq!(options.objects("objects").iter().map(|o| o.text("a")).collect::<Vec<_>>(), ["y", "x"]);
    let Some(OptionValue::ObjectMap(named)) = options.value("named") else { panic!("no map") };
    assert_eq!(named["n"].text("a"), "z");
    assert_eq!(options.object("either").map(|o| o.text("a")), Some("w"));
    // What is asked for as something else is not there.
    assert_eq!((options.text("truth"), options.integer("text"), options.duration_ns("text")), ("", 0, None));
}

#[test]
fn defaults_hold_where_nothing_is_written() {
    for text in ["{}", "{text: ~, truth: ~, duration: ~, go: ~, object: ~, texts: ~}"] {
        let (options, problems) = read(text);
        assert_eq!(problems, Vec::<String>::new(), "{text}");
        assert_eq!(
            (options.text("text"), options.truth("truth"), options.is_given("text")),
            ("t", true, false),
            "{text}"
        );
        let durations = (options.duration_ns("duration"), options.duration_ns("go"));
        assert_eq!(durations, (Some(300_000_000_000), Some(1_500_000_000)), "{text}");
        assert!(options.object("object").is_none() && options.objects("objects").is_empty(), "{text}");
    }
    assert!(read("{text: t}").0.is_given("text"), "though it is the default");
}

#[test]
fn values_of_other_shapes_are_refused() {
    for (text, expected) in [
        ("{text: []}", "/o/text wanted a text, got a list"),
        ("{secret: h}", "/o/secret unsupported scheme \"\" for URL"),
        ("{url: <secret>}", "/o/url unsupported scheme \"\" for URL"),
        ("{proxy: 'a b'}", "/o/proxy invalid proxy URL"),
        ("{proxy: ':80'}", "/o/proxy invalid proxy URL"),
        ("{address: h}", "/o/address address h: missing port in address"),
        ("{truth: 1}", "/o/truth wanted true or false, got `1`"),
        ("{truth: 'true'}", "/o/truth wanted true or false, got `true`"),
        ("{integer: a}", "/o/integer wanted a whole number, got `a`"),
        ("{integer: 99999999999999999999}", "/o/integer wanted a whole number, got `99999999999999999999`"),
        ("{count: -1}", "/o/count wanted a whole number from 0, got `-1`"),
        ("{count: {}}", "/o/count wanted a whole number from 0, got a mapping"),
        ("{duration: 5}", "/o/duration not a valid duration string: \"5\""),
        ("{go: 1d}", "/o/go time: unknown unit \"d\" in duration \"1d\""),
        ("{go: 99999999999999999999}", "/o/go wanted a duration, got `99999999999999999999`"),
        ("{word: maybe}", "/o/word `maybe` is none of on, off"),
        ("{map: []}", "/o/map wanted a mapping, got a list"),
        ("{map: {'a/b': []}}", "/o/map/a~1b wanted a text"),
        ("{texts: a}", "/o/texts wanted a list, got `a`"),
        ("{texts: [a, {}]}", "/o/texts/1 wanted a text"),
        ("{object: a}", "/o/object wanted a mapping, got a scalar"),
        ("{object: {c: 1}}", "/o/object/c unknown field `c`"),
        ("{object: {a: 'no'}}", "/o/object a must not be no"),
        // What is wrong with a part says enough.
        ("{object: {a: 'no', b: -1}}", "/o/object/b wanted a whole number from 0, got `-1`"),
        ("{objects: {}}", "/o/objects wanted a list, got a mapping"),
        ("{objects: [{}, {a: 'no'}]}", "/o/objects/1 a must not be no"),
        ("{named: []}", "/o/named wanted a mapping, got a list"),
        ("{named: {n: {a: 'no'}}}", "/o/named/n a must not be no"),
        ("{either: {a: 'no'}}", "/o/either a must not be no"),
        ("{other: 1}", "/o/other unknown field `other`"),
        ("[]", "/o wanted a mapping, got a list"),
    ] {
        assert_eq!(read(text).1, [expected], "{text}");
    }
}

#[test]
fn what_is_inherited() {
    let (from, _) = read("{text: from, url: 'http://h', go: 5, count: 3}");
    let (mut own, _) = read("{url: 'http://own'}");
    own.inherit("url", &from, "url");
    own.inherit("address", &from, "text");
    own.inherit("proxy", &from, "secret");
    assert_eq!((own.text("url"), own.text("address"), own.has("proxy")), ("http://own", "from", false));
    own.inherit_value("count", &from, "count");
    own.inherit_value("go", &from, "go");
    own.inherit_value("map", &from, "map");
    // A default is a value.
    assert_eq!((own.integer("count"), own.duration_ns("go")), (3, Some(1_500_000_000)));
    assert!(own.is_given("count") && own.is_given("address") && !own.is_given("map") && !own.is_given("go"));
    assert_eq!(own.at_most_one(&["url", "proxy"]), Ok(()));
    assert_eq!(own.at_most_one(&["url", "address"]), Err("at most one of url & address must be configured".to_owned()));
    assert_eq!(own.exactly_one(&["proxy", "secret"]), Err("one of proxy or secret must be configured".to_owned()));
    assert_eq!(own.exactly_one(&["proxy", "url"]), Ok(()));
}

/// What looks like a number stays a text where a text is wanted.
#[test]
fn as_json() {
    let json = |text: &str| ALL.json(&quiver_yaml::read(text).expect(text).remove(0));
    for (text, expected) in [
        ("{text: 012, map: {a: yes}, texts: [1]}", r#"{"map":{"a":"yes"},"text":"012","texts":["1"]}"#),
        ("{truth: yes, count: 0x10}", r#"{"count":16,"truth":true}"#),
        ("{go: 5}", r#"{"go":5}"#),
        ("{go: 5s, duration: 1}", r#"{"duration":"1","go":"5s"}"#),
        ("{object: {a: 1, b: 2}}", r#"{"object":{"a":"1","b":2}}"#),
        ("{objects: [{a: 1}], named: {n: {a: 2}}}", r#"{"named":{"n":{"a":"2"}},"objects":[{"a":"1"}]}"#),
        ("{either: 1}", r#"{"either":"1"}"#),
        ("{either: {b: 1}}", r#"{"either":{"b":1}}"#),
        ("{other: 1, text: ~}", r#"{"other":1,"text":null}"#),
    ] {
        let expected: serde_json::Value = serde_json::from_str(expected).expect(expected);
        assert_eq!(json(text), expected, "{text}");
    }
}
