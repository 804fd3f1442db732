//! Whole templates; the expected output is that of Go.

use super::*;

fn run(text: &str, data: &Value) -> Result<String, String> {
    let query = |text: &str| match text {
        "fails" => Err("no such thing".to_owned()),
        _ => Ok(vec![sample("b", 21.0), sample("a", 11.0)]),
    };
    let external_url = "http://testhost:9090/path/prefix";
    let host = TemplateEnvironment {
        query: Some(&query),
        now_ns: 1_353_755_652_000_000_000,
        external_url,
        route_labels: None,
    };
    expand("test", text, data, RULE_FUNCTIONS, &Options { host, ..Options::default() })
}

fn sample(instance: &str, value: f64) -> QueriedSample {
    let labels = quiver_types::LabelSet::from_pairs([("__name__", "m"), ("instance", instance)]);
    QueriedSample { labels, value: Value::Float(value) }
}

fn check(text: &str, data: &Value, expected: &str) {
    assert_eq!(run(text, data).as_deref(), Ok(expected), "{text}");
}

fn fails(text: &str, data: &Value, expected: &str) {
    let got = run(text, data).expect_err(text);
    assert_eq!(got, format!("error executing template test: template: test:{expected}"), "{text}");
}

fn labels() -> Value {
    Value::text_map(MapKind::Texts, [("a", "1"), ("b", "2")])
}

#[test]
fn statements() {
    check("{{if .a}}x{{else}}y{{end}}{{if .c}}x{{else if .b}}z{{end}}", &labels(), "xz");
    check("{{with .c}}{{.}}{{else with .b}}{{.}}{{end}}", &labels(), "2");
    check("{{range $k, $v := .}}{{$k}}={{$v}};{{end}}", &labels(), "a=1;b=2;");
    check("{{range $v := .}}{{if eq $v \"2\"}}{{break}}{{end}}{{$v}}{{end}}", &labels(), "1");
    check("{{range .}}{{if eq . \"1\"}}{{continue}}{{end}}{{.}}{{end}}", &labels(), "2");
    check("{{range $.a.b}}x{{else}}none{{end}}{{range 3}}{{.}}{{end}}", &Value::Nil, "none012");
    check("{{$x := 1}}{{if true}}{{$x = 2}}{{$y := 3}}{{end}}{{$x}}", &Value::Nil, "2");
    check("{{define \"t\"}}<{{.}}>{{end}}{{template \"t\" .a}}{{block \"u\" .b}}[{{.}}]{{end}}", &labels(), "<1>[2]");
    check("a {{- 1 -}} b{{/* c */}} c", &Value::Nil, "a1b c");
    check("{{and 1 0}}{{or 0 \"x\"}}{{not 1}}{{and true 2}}", &Value::Nil, "0xfalse2");
    fails("{{$x = 1}}", &Value::Nil, "1:7: executing \"test\" at <1>: undefined variable: $x");
    fails("{{$x := $x}}", &Value::Nil, "1:8: executing \"test\" at <$x>: undefined variable: $x");
    fails(
        "{{and}}",
        &Value::Nil,
        "1:2: executing \"test\" at <and>: wrong number of args for and: want at least 1 got 0",
    );
    // Counted before they are looked at.
    fails(
        "{{toUpper \"a\" .x.y}}",
        &Value::Nil,
        "1:2: executing \"test\" at <toUpper>: wrong number of args for toUpper: want 1 got 2",
    );
}

#[test]
fn complex_constants() {
    check("{{1i}} {{0i}} {{1+2i}} {{-2.5e1i}} {{010i}}", &Value::Nil, "(0+1i) (0+0i) (1+2i) (0-25i) (0+10i)");
    check("{{printf \"%v %T\" 1.5i 2i}} {{printf \"%.1f\" 1-2i}}", &Value::Nil, "(0+1.5i) complex128 (1.0-2.0i)");
    check("{{if 0i}}x{{else}}y{{end}} {{eq 1i 1i}} {{eq 1i 2i}}", &Value::Nil, "y true false");
}

#[test]
fn comparisons() {
    check(
        "{{eq 1 1}}{{eq 1 2 3 1}}{{ne \"a\" \"b\"}}{{lt 1 2}}{{le 2 2}}{{gt 1.5 1.0}}{{ge \"b\" \"a\"}}",
        &Value::Nil,
        &"true".repeat(7),
    );
    fails(
        "{{eq 1 1.0}}",
        &Value::Nil,
        "1:2: executing \"test\" at <eq 1 1.0>: error calling eq: incompatible types for comparison: int and float64",
    );
    fails(
        "{{lt true false}}",
        &Value::Nil,
        "1:2: executing \"test\" at <lt true false>: error calling lt: invalid type for comparison",
    );
    fails(
        "{{18446744073709551615}}",
        &Value::Nil,
        "1:2: executing \"test\" at <18446744073709551615>: 18446744073709551615 overflows int",
    );
}

#[test]
fn values_and_fields() {
    check("{{.a}}{{.c}}|{{index . \"b\"}}{{index . \"z\"}}|{{len .}}", &labels(), "1|2|2");
    check("{{ .Foo }}", &Value::Nil, "<no value>");
    check("{{ .Foo.Bar }}", &Value::Nil, "<no value>");
    check("{{ . }}{{ 9223372036854775807 }}", &Value::Uint(u64::MAX), "184467440737095516159223372036854775807");
    check(
        "{{slice \"abcd\" 1 3}}{{print 1 2 \"a\" \"b\"}}{{printf \"%05.1f|%q\" 3.14159 \"x\"}}",
        &Value::Nil,
        "bc1 2ab003.1|\"x\"",
    );
    check("{{html nil}} {{urlquery 'a' nil}}", &Value::Nil, "&lt;no value&gt; 97%3Cno+value%3E");
    check("{{html \"<a>\"}}{{js \"'\"}}{{urlquery \"a b\"}}", &Value::Nil, "&lt;a&gt;\\'a+b");
    check("{{ (args 1).x }}", &labels(), "<no value>");
    let told = run("{{ (args 1).x.y.z }}", &labels()).expect_err("nothing has no fields");
    assert!(told.ends_with(": nil pointer evaluating interface {}.y"), "{told}");
    fails("{{ .a.b.c }}", &labels(), "1:5: executing \"test\" at <.a.b.c>: can't evaluate field b in type string");
    fails(
        "{{ (query \"missing\").banana }}",
        &Value::Nil,
        "1:10: executing \"test\" at <\"missing\">: can't evaluate field banana in type template.queryResult",
    );
}

#[test]
fn functions_of_rules() {
    check(
        "{{ range query \"metric\" | sortByLabel \"instance\" }}{{.Labels.instance}}:{{.Value}}: {{end}}",
        &Value::Nil,
        "a:11: b:21: ",
    );
    check("{{ query \"m\" | first | label \"instance\" }}{{ query \"m\" | first | value }}", &Value::Nil, "b21");
    check("{{define \"x\"}}{{.arg0}} {{.arg1}}{{end}}{{template \"x\" (args 1 \"2\")}}", &Value::Nil, "1 2");
    check("{{ 1700000000.5 | formatTime \"2006-01-02 15:04:05.0\" }}", &Value::Nil, "2023-11-14 22:13:20.5");
    fails(
        "{{ formatTime \"2006\" \"NaN\" }}",
        &Value::Nil,
        "1:3: executing \"test\" at <formatTime \"2006\" \"NaN\">: error calling formatTime: value is NaN or Inf",
    );
    check("{{ (\"-30m\" | parseDuration | toDuration | (now | toTime).Add).UnixMilli }}", &Value::Nil, "1353753852000");
    check(
        "{{ now }} {{ (now | toTime).Format \"Mon Jan 2 15:04:05 2006\" }}",
        &Value::Nil,
        "1.353755652e+09 Sat Nov 24 11:14:12 2012",
    );
    check(
        "{{ reReplaceAll \"(a)b\" \"x$1\" \"ab\" }}{{ match \"a+\" \"aa\" }}{{ title \"aa bb\" }}",
        &Value::Nil,
        "xatrueAa Bb",
    );
    check(
        "{{ pathPrefix }} {{ externalURL }} {{ graphLink \"up{a='b'}\" }}",
        &Value::Nil,
        "/path/prefix http://testhost:9090/path/prefix /graph?g0.expr=up%7Ba%3D%27b%27%7D&g0.tab=0",
    );
    fails(
        "{{ humanize \"one\" }}",
        &Value::Nil,
        "1:3: executing \"test\" at <humanize \"one\">: error calling humanize: strconv.ParseFloat: parsing \"one\": invalid syntax",
    );
    fails(
        "{{ query \"fails\" }}",
        &Value::Nil,
        "1:3: executing \"test\" at <query \"fails\">: error calling query: no such thing",
    );
    fails("a\n  {{ label 1 . }}", &Value::Nil, "2:11: executing \"test\" at <1>: expected string; found 1");
    fails("{{ toUpper 1.5 }}", &Value::Nil, "1:11: executing \"test\" at <1.5>: expected string; found 1.5");
    fails(
        "{{ 1 | toUpper }}",
        &Value::Nil,
        "1:7: executing \"test\" at <toUpper>: wrong type for value; expected string; got int",
    );
}

#[test]
fn a_missing_key_may_be_an_error() {
    let options = Options { missing_key: MissingKey::Error, ..Options::default() };
    let expand = |data: &Value| expand("test", "{{ .Foo }}", data, RULE_FUNCTIONS, &options).expect_err("missing");
    let prefix = "error executing template test: template: test:1:3: executing \"test\" at <.Foo>:";
    assert_eq!(expand(&Value::Nil), format!("{prefix} nil data; no entry for key \"Foo\""));
    assert_eq!(expand(&labels()), format!("{prefix} map has no entry for key \"Foo\""));
}

#[test]
fn bombs_are_bounded() {
    let told = |text: &str| run(text, &Value::Nil).expect_err(text);
    assert!(told("{{define \"a\"}}{{template \"a\"}}{{end}}{{template \"a\"}}").contains("maximum template depth"));
    assert!(told("{{range 1000000000}}{{end}}").contains("exceeded 100000 steps"));
    // To find one of many variables takes as long as many steps.
    let searched = format!("{}{{{{len (print{})}}}}", "{{$a := 1}}".repeat(20_000), " $".repeat(5000));
    assert!(told(&searched).contains("exceeded 100000 steps"));
    assert!(
        told("{{$x := \"0123456789\"}}{{range 60}}{{$x = printf \"%s%s\" $x $x}}{{end}}").contains("makes too much")
    );
    assert!(told("{{range 60000}}0123456789{{end}}").contains("output exceeds"));
    assert!(told("{{printf \"%10000d\" 1 | printf \"%s%s%s%s%s%s%s%s%s\" }}{{range 1000}}{{printf \"%10000d\" 1 | len}}{{end}}").contains("makes too much"));
    assert!(told("{{reReplaceAll \"(.{1000}){1000}\" \"\" \"a\"}}").contains("regexp"));
    let page =
        "{{$x := \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}}{{range 99}}{{$x = reReplaceAll \".*\" \"$0$0$0$0\" $x}}{{end}}";
    assert!(told(page).contains("makes too much"));
}

fn message() -> Value {
    let alert = |status: &str, name: &str| {
        Value::fields(
            "template.Alert",
            vec![
                ("Status", "status", Value::text(status)),
                ("Labels", "labels", Value::text_map(MapKind::Labels, [("alertname", name), ("job", "j")])),
                ("Annotations", "annotations", Value::text_map(MapKind::Labels, [("summary", "it's <bad>")])),
                ("StartsAt", "startsAt", Value::Time(Time::from_nanos(1_700_000_000_000_000_000))),
                ("EndsAt", "endsAt", Value::Time(Time::zero())),
                ("GeneratorURL", "generatorURL", Value::text("http://g")),
                ("Fingerprint", "fingerprint", Value::text("00")),
            ],
        )
    };
    let common = Value::text_map(MapKind::Labels, [("alertname", "High"), ("job", "j"), ("sev", "page")]);
    Value::fields(
        "template.Data",
        vec![
            ("Receiver", "receiver", Value::text("team x")),
            ("Status", "status", Value::text("firing")),
            (
                "Alerts",
                "alerts",
                Value::list(ListKind::Alerts, vec![alert("firing", "High"), alert("resolved", "Low")]),
            ),
            ("GroupLabels", "groupLabels", Value::text_map(MapKind::Labels, [("job", "j")])),
            ("CommonLabels", "commonLabels", common),
            ("CommonAnnotations", "commonAnnotations", Value::text_map(MapKind::Labels, [("summary", "s")])),
            ("RouteLabels", "routeLabels", Value::text_map(MapKind::Labels, [])),
            ("ExternalURL", "externalURL", Value::text("http://am")),
        ],
    )
}

#[test]
fn messages() {
    let check = |text: &str, expected: &str| {
        let mut templates = default_templates();
        templates.add("m", text).expect(text);
        assert_eq!(templates.run("m", &message(), &Options::default()).as_deref(), Ok(expected), "{text}");
    };
    check("{{ template \"__subject\" . }}", "[FIRING:1] j (High page)");
    check("{{ template \"slack.default.titlelink\" . }}", "http://am/#/alerts?receiver=team+x");
    check("{{ .CommonLabels.Remove (stringSlice \"job\") }}", "alertname=High, sev=page");
    check(
        "{{ .CommonLabels.SortedPairs.Names | join \",\" }} {{ .GroupLabels.Values.Join \":\" }}",
        "alertname,job,sev j",
    );
    check("{{ range .Alerts.Resolved }}{{ .Labels.alertname }}{{ end }}{{ len .Alerts.Firing }}", "Low1");
    check("{{ (index .Alerts 0).StartsAt | tz \"Europe/Paris\" | date \"15:04 MST\" }}", "23:13 CET");
    check(
        "{{ .Alerts.Firing | toJson | len }}{{ dict \"a\" 1 }}{{ list 1 2 }}{{ append (list 1) 2 }}",
        "221map[a:1][1 2][1 2]",
    );
    check("{{ title \"aB cD\" }}{{ trimSpace \" x \" }}{{ .CommonLabels.Nope }}", "Ab Cdx");
}

#[test]
fn labels_of_routes_are_templates() {
    let labels = [("a", "{{ .Status }}-{{ routeLabels \"b\" }}"), ("b", "x"), ("c", "{{ routeLabels \"c\" }}")];
    let labels: BTreeMap<String, String> = labels.map(|(n, v)| (n.to_owned(), v.to_owned())).into();
    let run = |text: &str, labels: RouteLabels<'_>| {
        let mut templates = default_templates();
        templates.add("m", text).expect(text);
        let host = TemplateEnvironment { route_labels: Some(labels), ..TemplateEnvironment::default() };
        templates.run("m", &message(), &Options { host, ..Options::default() })
    };
    let both = "{{ routeLabels \"a\" }}{{ routeLabels \"z\" }}";
    assert_eq!(run(both, RouteLabels::Templates(&labels)).as_deref(), Ok("firing-x"));
    let told = run("{{ routeLabels \"c\" }}", RouteLabels::Templates(&labels)).expect_err("a cycle");
    assert!(told.to_string().contains("route label cycle detected: c -> c"), "{told}");
    // What was rendered is a text, whatever stands in it.
    assert_eq!(run(both, RouteLabels::Texts(&labels)).as_deref(), Ok(labels["a"].as_str()));
}

/// What holds another twice is kept once and written out twice: forty times is a million million.
#[test]
fn what_doubles_is_bounded() {
    let bomb = |made: &str| {
        format!("{{{{$x := {made}}}}}{{{{range 40}}}}{{{{$x = {made} $x $x}}}}{{{{end}}}}{{{{print $x}}}}")
    };
    let told = run(&bomb("args"), &Value::Nil).expect_err("too much");
    assert!(told.contains("error calling args: the template makes too much"), "{told}");
    for made in ["list", "append (list)", "dict \"a\" 1 \"b\" 2"] {
        let text = if made.starts_with("dict") {
            "{{$x := 1}}{{range 40}}{{$x = dict \"a\" $x \"b\" $x}}{{end}}{{toJson $x}}".to_owned()
        } else {
            bomb(made)
        };
        let told = expand("test", &text, &Value::Nil, MESSAGE_FUNCTIONS, &Options::default()).expect_err("too much");
        assert!(told.contains("the template makes too much"), "{made}: {told}");
    }
    check("{{len (args 1 (args 2 3))}}", &Value::Nil, "2");
}

/// Breaks if a method costs the same whatever it goes over: a large group makes a template of a line run for minutes.
#[test]
fn methods_cost_as_much_as_they_go_over() {
    let names: Vec<String> = (0..4000).map(|n| format!("l{n}")).collect();
    let labels = Value::text_map(MapKind::Labels, names.iter().map(|name| (name.as_str(), "x")));
    check("{{len .Names}}", &labels, "4000");
    let told = run("{{range 1000}}{{len $.Names}}{{end}}", &labels).expect_err("too much");
    assert!(told.contains("error calling Names: exceeded 100000 steps"), "{told}");
}

#[test]
fn the_page_of_an_email() {
    let mut templates = default_templates();
    templates.add("m", "{{ template \"email.default.html\" . }}").expect("valid");
    let options = Options { budget: Budget { output_max: 1 << 20, ..Budget::default() }, ..Options::default() };
    let page = templates.run_html("m", &message(), &options).expect("a page");
    assert!(
        page.contains("it&#39;s &lt;bad&gt;")
            && page.contains("href=\"http://am/#/alerts?receiver=team%20x\"") == page.contains("team%20x"),
        "{page}"
    );
}

/// One call each, with what Go gives; nothing is known to the template but its own constants.
fn calls(cases: &[(&str, &str)]) {
    for (call, expected) in cases {
        check(&format!("{{{{ {call} }}}}"), &Value::Nil, expected);
    }
}

/// The reason alone for which a call fails.
fn reason(call: &str, data: &Value) -> String {
    let told = run(&format!("{{{{ {call} }}}}"), data).expect_err(call);
    told.rsplit_once(">: ").map_or(told.clone(), |(_, reason)| reason.to_owned())
}

#[test]
fn comparisons_of_all_kinds() {
    calls(&[
        ("eq \"a\" \"a\"", "true"),
        ("eq \"a\" \"b\" \"a\"", "true"),
        ("eq \"a\" \"b\" \"c\"", "false"),
        ("eq true true", "true"),
        ("eq 1.5 1.5", "true"),
        ("eq nil nil", "true"),
        ("eq 1 nil", "false"),
        ("ne 1 2", "true"),
        ("ne true true", "false"),
        ("lt \"a\" \"b\"", "true"),
        ("lt \"B\" \"a\"", "true"),
        ("lt \"10\" \"9\"", "true"),
        ("lt 1.0 1.0", "false"),
        ("le 1.0 1.0", "true"),
        ("gt -1 1", "false"),
        ("gt 2 1", "true"),
        ("ge 2 2", "true"),
        ("ge 1 2", "false"),
        ("eq (len \"abc\") 3", "true"),
        ("lt (parseDurationTime \"1m\") (parseDurationTime \"1h\")", "true"),
    ]);
    for (call, expected) in [
        ("eq 1 \"1\"", "error calling eq: incompatible types for comparison: int and string"),
        ("eq 1 true", "error calling eq: incompatible types for comparison: int and bool"),
        ("ne 1.0 1", "error calling ne: incompatible types for comparison: float64 and int"),
        ("lt 1 \"1\"", "error calling lt: incompatible types for comparison: int and string"),
        ("gt true false", "error calling gt: invalid type for comparison"),
        ("ge nil 1", "error calling ge: invalid type for comparison"),
        ("eq 1", "error calling eq: missing argument for comparison"),
    ] {
        assert_eq!(reason(call, &Value::Nil), expected, "{call}");
    }
}

#[test]
fn parts_of_lists_and_texts() {
    calls(&[
        ("len \"\"", "0"),
        ("len \"ä\"", "2"),
        ("len (args 1 2)", "2"),
        ("index \"abc\" 1", "98"),
        ("index (args \"x\" \"y\") \"arg1\"", "y"),
        ("index (args (args 7)) \"arg0\" \"arg0\"", "7"),
        ("index \"abc\"", "abc"),
        ("slice \"abcd\"", "abcd"),
        ("slice \"abcd\" 1", "bcd"),
        ("slice \"abcd\" 1 1", ""),
        ("slice \"abcd\" 0 4", "abcd"),
        ("slice \"abcd\" 4", ""),
    ]);
    for (call, expected) in [
        ("index \"abc\" 3", "error calling index: "),
        ("index \"abc\" -1", "error calling index: index out of range: -1"),
        ("index \"abc\" \"a\"", "error calling index: cannot index slice/array with type string"),
        ("index \"abc\" nil", "error calling index: cannot index slice/array with nil"),
        ("index (args 1) 0", "error calling index: value has type int; should be string"),
        ("index nil 0", "error calling index: index of untyped nil"),
        ("index 1 0", "error calling index: can't index item of type int"),
        ("slice \"abcd\" 5", "error calling slice: index out of range: 5"),
        ("slice \"abcd\" 3 2", "error calling slice: invalid slice index: 3 > 2"),
        ("slice \"abcd\" 1 2 3", "error calling slice: cannot 3-index slice a string"),
        ("slice \"abcd\" 1 2 3 4", "error calling slice: too many slice indexes: 4"),
        ("slice nil", "error calling slice: slice of untyped nil"),
        ("slice 1 0", "error calling slice: can't slice item of type int"),
        ("len 1", "error calling len: len of type int"),
        ("len nil", "error calling len: len of nil pointer"),
        ("call nil", "error calling call: call of nil"),
    ] {
        let told = reason(call, &Value::Nil);
        assert!(told.starts_with(expected), "{call}: {told}");
    }
}

#[test]
fn texts_of_rules() {
    calls(&[
        ("toUpper \"aß\"", "Aß"),
        ("toLower \"ÀB\"", "àb"),
        ("title \"foo bar\"", "Foo Bar"),
        ("stripPort \"h:80\"", "h"),
        ("stripPort \"[::1]:80\"", "::1"),
        ("stripPort \"::1\"", "::1"),
        ("stripDomain \"a.b:80\"", "a:80"),
        ("match \"b\" \"abc\"", "true"),
        ("match \"^b\" \"abc\"", "false"),
        ("match \"(?i)B\" \"abc\"", "true"),
        ("reReplaceAll \"b+\" \"x\" \"abbcb\"", "axcx"),
        ("reReplaceAll \"(.)c\" \"${1}y\" \"abc\"", "aby"),
        ("reReplaceAll \"\" \"-\" \"ab\"", "-a-b-"),
        ("reReplaceAll \"z\" \"-\" \"ab\"", "ab"),
        ("humanize 1234567", "1.235M"),
        ("humanize \"0.001\"", "1m"),
        ("humanize1024 1048576", "1Mi"),
        ("humanizeDuration 3661", "1h 1m 1s"),
        ("humanizePercentage 0.1234", "12.34%"),
        ("humanizeTimestamp 0", "1970-01-01 00:00:00 +0000 UTC"),
        ("tableLink \"up\"", "/graph?g0.expr=up&g0.tab=1"),
        ("parseDuration \"1d1h\"", "90000"),
        ("parseDuration \"-1m\"", "-60"),
        ("parseDuration \"1ms\"", "0.001"),
        ("toDuration 1.5", "1.5s"),
        ("toDuration \"90\"", "1m30s"),
        ("(toTime 1).Unix", "1"),
        ("urlQueryEscape \"a b/c\"", "a+b%2Fc"),
        ("queryEscape \"a b\"", "a+b"),
        ("pathEscape \"a b+c:d/\"", "a%20b+c:d%2F"),
        ("htmlEscape \"<\"", "&lt;"),
        ("jsonEscape \"a\\\"b\"", "\"a\\\"b\""),
        ("quotesEscape \"a\\\"b\\n\"", "a\\\"b\\n"),
        ("crlfEscape \"a\\nb\\r\"", "a\\nb\\r"),
        ("contains \"abc\" \"b\"", "true"),
        ("contains \"abc\" \"\"", "true"),
        ("contains \"abc\" \"x\"", "false"),
        ("parseDurationTime \"90s\"", "1m30s"),
        ("formatTime \"15:04\" 3600", "01:00"),
        ("safeHtml \"<b>\"", "<b>"),
    ]);
    for (call, expected) in [
        ("humanize \"\"", "error calling humanize: strconv.ParseFloat: parsing \"\": invalid syntax"),
        ("humanize true", "error calling humanize: can't convert bool to float"),
        ("toTime \"NaN\"", "error calling toTime: value is NaN or Inf"),
        ("parseDuration \"1x\"", "error calling parseDuration: unknown unit \"x\" in duration \"1x\""),
        ("parseDuration \"\"", "error calling parseDuration: empty duration string"),
        ("match \"(\" \"a\"", "error calling match: "),
        ("reReplaceAll \"[\" \"\" \"a\"", "error calling reReplaceAll: "),
        ("first (query \"m\") 1", "wrong number of args for first: want 1 got 2"),
        ("toUpper", "wrong number of args for toUpper: want 1 got 0"),
    ] {
        let told = reason(call, &Value::Nil);
        assert!(told.starts_with(expected), "{call}: {told}");
    }
}

#[test]
fn times_and_durations() {
    let at = Value::Time(Time::from_nanos(1_709_210_096_123_456_789));
    for (call, expected) in [
        (".", "2024-02-29 12:34:56.123456789 +0000 UTC"),
        (".Year", "2024"),
        (".Month", "February"),
        ("printf \"%d\" .Month", "2"),
        (".Day", "29"),
        (".Weekday", "Thursday"),
        (".YearDay", "60"),
        (".Hour", "12"),
        (".Minute", "34"),
        (".Second", "56"),
        (".Nanosecond", "123456789"),
        (".Unix", "1709210096"),
        (".UnixMilli", "1709210096123"),
        (".UnixMicro", "1709210096123456"),
        (".UnixNano", "1709210096123456789"),
        (".IsZero", "false"),
        (".Format \"02 Jan 06 15:04 MST\"", "29 Feb 24 12:34 UTC"),
        (".Format \"\"", ""),
        ("(.Add 3600000000000).Hour", "13"),
        ("(.Add (parseDurationTime \"-13h\")).Day", "28"),
        ("(.AddDate 1 0 0).Format \"2006-01-02\"", "2025-03-01"),
        ("(.AddDate 0 0 1).Month", "March"),
        ("(.Truncate (parseDurationTime \"1h\")).Format \"15:04:05.000\"", "12:00:00.000"),
        ("(.Truncate 60000000000).Format \"15:04:05\"", "12:34:00"),
        ("(.Round (parseDurationTime \"1h\")).Format \"15:04:05\"", "13:00:00"),
        ("(.Round 1000000000).Format \"15:04:05.000\"", "12:34:56.000"),
        ("(.Round 0).Nanosecond", "123456789"),
        (".Compare (toTime 0)", "1"),
        ("(toTime 0).Compare .", "-1"),
        (".After (toTime 0)", "true"),
        (".Before (toTime 0)", "false"),
        (".Equal .UTC", "true"),
        ("(.Sub (toTime 1709210096)).Milliseconds", "123"),
        ("(toTime 60).Sub (toTime 0)", "1m0s"),
    ] {
        check(&format!("{{{{ {call} }}}}"), &at, expected);
    }
    calls(&[
        ("(toDuration 90).String", "1m30s"),
        ("(toDuration 90).Minutes", "1.5"),
        ("(toDuration 5400).Hours", "1.5"),
        ("(toDuration 1.5).Seconds", "1.5"),
        ("(toDuration 1.5).Nanoseconds", "1500000000"),
        ("(toDuration 1.5).Microseconds", "1500000"),
        ("(toDuration -1.5).Abs", "1.5s"),
        ("(toDuration 89).Round (toDuration 60)", "1m0s"),
        ("(toDuration 90).Round (toDuration 60)", "2m0s"),
        ("(toDuration -90).Round (toDuration 60)", "-2m0s"),
        ("(toDuration 119).Truncate (toDuration 60)", "1m0s"),
        ("(toDuration 119).Round (toDuration 0)", "1m59s"),
        ("(toDuration 119).Round 60000000000", "2m0s"),
        ("(toDuration 119).Truncate 60000000000", "1m0s"),
    ]);
}

/// Functions that only messages have, and what those of both do with their values.
#[test]
fn functions_of_messages() {
    let run = |text: &str| expand("test", text, &Value::Nil, MESSAGE_FUNCTIONS, &Options::default());
    for (call, expected) in [
        ("toUpper \"a\"", "A"),
        ("title \"aB\"", "Ab"),
        ("trimSpace \" \\t a b\\n\"", "a b"),
        ("join \",\" (stringSlice \"a\" \"b\")", "a,b"),
        ("join \",\" (stringSlice)", ""),
        ("stringSlice \"a\" \"b\"", "[a b]"),
        ("match \"^a\" \"ab\"", "true"),
        ("reReplaceAll \"(a)\" \"<$1>\" \"aa\"", "<a><a>"),
        ("urlUnescape \"a+b%2F\"", "a b/"),
        ("list 1 \"a\" nil", "[1 a <nil>]"),
        ("len (append (list) 1 2)", "2"),
        ("append (list 1) 2 3", "[1 2 3]"),
        ("dict \"b\" 1 \"a\" 2", "map[a:2 b:1]"),
        ("dict", "map[]"),
        ("toJson (dict \"a\" (list 1 true \"<\"))", "{\"a\":[1,true,\"\\u003c\"]}"),
        ("toJson nil", "null"),
        ("toJson 1.0", "1"),
        ("base64encode \"a?>\"", "YT8-"),
        ("base64decode \"YT8-\"", "a?>"),
        ("humanizeDuration 61", "1m 1s"),
        ("(toDate \"2006-01-02\" \"2024-02-29\").Unix", "1709164800"),
        ("(toDate \"2006-01-02\" \"nonsense\").IsZero", "true"),
        ("date \"2006\" (toDate \"2006-01-02\" \"2024-02-29\")", "2024"),
        ("(mustToDate \"2006-01-02\" \"2024-02-29\" | tz \"America/New_York\").Format \"15:04\"", "19:00"),
        ("routeLabels \"x\"", ""),
        ("now.Unix", "0"),
    ] {
        assert_eq!(run(&format!("{{{{ {call} }}}}")).as_deref(), Ok(expected), "{call}");
    }
    for (call, expected) in [
        ("dict \"a\"", "dict requires an even number of arguments"),
        ("dict 1 2", "dict keys must be strings"),
        ("mustToDate \"2006-01-02\" \"2024-02-30\"", ""),
        ("tz \"Mars\" now", ""),
        ("urlUnescape \"%\"", "invalid URL escape \"%\""),
        ("base64decode \"a\"", "illegal base64 data at input byte"),
        ("base64decode \"_w==\"", "not UTF-8"),
        ("join \",\" \"a\"", ""),
        ("query \"up\"", "function \"query\" not defined"),
        ("humanize 1", "function \"humanize\" not defined"),
    ] {
        let told = run(&format!("{{{{ {call} }}}}")).expect_err(call);
        assert!(told.contains(expected), "{call}: {told}");
    }
}

/// Breaks if each call compiles its regular expression anew: compiling counts as many steps.
#[test]
fn regular_expressions_are_compiled_once() {
    let often = |calls: &str| run(&format!("{{{{range 2000}}}}{calls}{{{{end}}}}"), &Value::Nil);
    let both = "{{if match \"^a\" \"b\"}}x{{end}}{{reReplaceAll \"b\" \"c\" \"b\"}}";
    assert_eq!(often(both), Ok("c".repeat(2000)));
    let told = often("{{if match (printf \"^a%d\" .) \"b\"}}x{{end}}").expect_err("two thousand of them");
    assert!(told.ends_with("exceeded 100000 steps"), "{told}");
    // One that was forgotten is compiled again.
    let many = "{{range 20}}{{if match (printf \"^%d$\" .) \"7\"}}{{.}}{{end}}{{end}}";
    check(&format!("{many}{many}"), &Value::Nil, "77");
}
