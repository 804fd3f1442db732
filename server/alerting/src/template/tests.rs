//! Whole templates; what is expected is what Go gives.

use super::*;

fn run(text: &str, data: &Value) -> Result<String, String> {
    let query = |text: &str| match text {
        "fails" => Err("no such thing".to_owned()),
        _ => Ok(vec![sample("b", 21.0), sample("a", 11.0)]),
    };
    let external_url = "http://testhost:9090/path/prefix";
    let host = Host { query: Some(&query), now_ns: 1_353_755_652_000_000_000, external_url, route_labels: None };
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
    let run = |text: &str| {
        let mut templates = default_templates();
        templates.add("m", text).expect(text);
        let host = Host { route_labels: Some(&labels), ..Host::default() };
        templates.run("m", &message(), &Options { host, ..Options::default() })
    };
    assert_eq!(run("{{ routeLabels \"a\" }}{{ routeLabels \"z\" }}").as_deref(), Ok("firing-x"));
    assert!(
        run("{{ routeLabels \"c\" }}").expect_err("a cycle").to_string().contains("route label cycle detected: c -> c")
    );
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
