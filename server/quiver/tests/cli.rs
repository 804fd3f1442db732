//! The command line as a user meets it.

use std::process::Command;

fn quiver(args: &[&str]) -> (bool, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_quiver")).args(args).output().expect("the binary runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn help_names_every_command_and_flag() {
    let (ok, out, _) = quiver(&["--help"]);
    assert!(ok);
    for word in [
        "answers PromQL, LogsQL, SQL",
        "serve",
        "demo",
        "check-config",
        "catalog",
        "store",
        "rules",
        "--print-settings",
        "--version",
    ] {
        assert!(out.contains(word), "{word} is missing:\n{out}");
    }
    let (ok, out, _) = quiver(&["serve", "--help"]);
    assert!(ok);
    for flag in ["--config", "--data", "--store", "--http", "--otlp-http", "--otlp-grpc", "--retention", "--rbac"] {
        assert!(out.contains(flag), "{flag} is missing:\n{out}");
    }
    for word in ["QUIVER_SECTION__KEY", "RUST_LOG", "SIGHUP", "--print-settings"] {
        assert!(out.contains(word), "{word} is missing:\n{out}");
    }
}

#[test]
fn printed_settings_are_a_valid_file() {
    let (ok, out, _) = quiver(&["--print-settings"]);
    assert!(ok);
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("quiver.toml");
    std::fs::write(&file, out).expect("writable");
    let file = file.display().to_string();
    let (ok, out, errors) = quiver(&["check-config", "--config", &file]);
    assert!(ok, "{errors}");
    assert!(out.contains("valid"));
    let (ok, _, errors) = quiver(&["check-config", "--config", &file, "--rbac", "maybe"]);
    assert!(!ok && errors.contains("rbac.mode"), "{errors}");
}

/// Names, and ports alone, are no addresses; what is meant is shown.
#[test]
fn addresses_are_shown_as_they_are_written() {
    for (address, port) in [("localhost:29", "29"), (":4318", "4318"), ("9090", "9090"), ("here", "8800")] {
        let (ok, _, errors) = quiver(&["check-config", "--http", address]);
        let meant =
            format!("`http.listen` is `{address}`; it must be an IP address and a port, such as `127.0.0.1:{port}`");
        assert!(!ok && errors.contains(&meant) && errors.contains(&format!("`0.0.0.0:{port}`")), "{errors}");
    }
}

/// A failure to print ends with an error message.
#[test]
fn a_full_disk_takes_no_output() {
    for args in [&["check-config"][..], &["--print-settings"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("the device");
        let output = Command::new(env!("CARGO_BIN_EXE_quiver")).args(args).stdout(full).output().expect("it runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {errors}");
        assert!(errors.starts_with("quiver: the output cannot be written: "), "{args:?}: {errors}");
    }
}

#[test]
fn fail_points_need_their_flag() {
    let armed = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_quiver"));
        let output = command.args(args).env("QUIVER_FAILPOINT", "no.such-point").output().expect("the binary runs");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    // A variable that somebody left behind is nothing to a user.
    assert_eq!(armed(&["check-config"]), (true, String::new()));
    for command in [&["check-config", "--failpoints"][..], &["rules", "check", "--failpoints"]] {
        let (ok, errors) = armed(command);
        assert!(!ok && errors.contains("no fail point `no.such-point`"), "{errors}");
    }
}

const RULES: &str = "groups:\n- name: g\n  rules:\n  - alert: Down\n    expr: up == 0\n    for: 2m\n    annotations: {s: '{{ $labels.i }} is {{ $value }}'}\n  - {record: a, expr: sum(up)}\n";

fn tests_of(value: u8) -> String {
    format!(
        "rule_files: ['r*.yml']\ntests:\n- name: down\n  input_series: [{{series: 'up{{i=\"1\"}}', values: 0x9}}]\n  alert_rule_test: [{{eval_time: 2m, alertname: Down, exp_alerts: [{{exp_labels: {{i: 1}}, exp_annotations: {{s: 1 is 0}}}}]}}]\n  promql_expr_test: [{{expr: a, eval_time: 1m, exp_samples: [{{labels: a, value: {value}}}]}}]\n"
    )
}

#[test]
fn rules_are_checked_and_tested() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("writable");
        path.display().to_string()
    };
    let good = file("rules.yml", RULES);
    let (ok, out, errors) = quiver(&["rules", "check", &good]);
    assert!(ok && out.contains("SUCCESS: 2 rules found"), "{out}{errors}");
    let bad = file("bad.yml", &RULES.replace("sum(up)", "'sum(up) +'"));
    let (ok, out, errors) = quiver(&["rules", "check", &good, &bad]);
    assert!(!ok && out.contains("SUCCESS: 2 rules"), "{out}");
    assert!(errors.contains("bad.yml: 8:") && errors.contains("group \"g\", rule 2, \"a\""), "{errors}");
    let twice = file("twice.yml", &(RULES.to_owned() + "  - {record: a, expr: 1}\n"));
    let code =
        |args: &[&str]| Command::new(env!("CARGO_BIN_EXE_quiver")).args(args).output().expect("runs").status.code();
    assert_eq!(code(&["rules", "check", &twice]), Some(0));
    assert_eq!(code(&["rules", "check", "--lint-fatal", &twice]), Some(3));
    std::fs::remove_file(&twice).expect("there");
    let (ok, out, errors) = quiver(&["rules", "test", &file("tests.yml", &tests_of(0))]);
    assert!(ok && out.contains("SUCCESS"), "{out}{errors}");
    // The store of a test is nobody's: no administrator is made and told of.
    assert!(!errors.contains("password"), "{errors}");
    let (ok, _, errors) = quiver(&["rules", "test", &file("wrong.yml", &tests_of(1))]);
    assert!(
        !ok && errors.contains("expr: \"a\", time: 1m") && errors.contains("exp: {__name__=\"a\"} 1E+00"),
        "{errors}"
    );
    // What a rule writes over, as promtool tells it.
    file("own.yml", "groups: [{name: g, rules: [{record: b, expr: x}, {record: b, expr: 'x + x'}]}]\n");
    let over = "rule_files: [own.yml, none.yml]\ntests: [{input_series: [{series: x, values: '_ 1 2'}], \
                promql_expr_test: [{expr: none, eval_time: 2m}]}]\n";
    let (ok, _, errors) = quiver(&["rules", "test", &file("over.yml", over)]);
    let refused = "    rule: b, time: 1m0s, err: duplicate sample for timestamp 60000; \
                   overrides not allowed: existing 1, new value 2\n";
    assert!(!ok && errors.contains(refused), "{errors}");
    assert!(errors.contains("  WARNING: no file match pattern ") && errors.contains("none.yml\n"), "{errors}");
    let endless = file("endless.yml", "rule_files: ['r[1']\n");
    let (ok, _, errors) = quiver(&["rules", "test", &endless]);
    assert!(!ok && errors.contains("syntax error in pattern `r[1`"), "{errors}");
    let (ok, _, errors) = quiver(&["rules", "check", "/no/such/file.yml"]);
    assert!(!ok && errors.contains("file.yml"), "{errors}");
}

/// promtool's flags: some tests of a file, lines that differ, a file for CI servers, fields that are not known.
#[test]
fn unit_tests_of_rules_take_flags() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("writable");
        path.display().to_string()
    };
    file("rules.yml", RULES);
    // One more test, which has no name and fails.
    let nameless = "- promql_expr_test: [{expr: vector(1), eval_time: 0, exp_samples: [{value: 2}]}]\n";
    let tests = file("tests.yml", &(tests_of(0) + nameless));
    let run = |args: &[&str]| quiver(&[&["rules", "test", tests.as_str()], args].concat());
    let (ok, _, errors) = run(&[]);
    assert!(!ok && errors.contains("        exp: {} 2E+00\n        got: {} 1E+00"), "{errors}");
    assert!(run(&["--run", "dow"]).0 && run(&["--run", "none", "--run", "^down$"]).0);
    assert!(run(&["--run", "none"]).0);
    let (ok, _, errors) = run(&["--run", "("]);
    assert!(!ok && errors.contains("--run <REGEX>"), "{errors}");
    let junit = dir.path().join("out.xml");
    let (ok, _, errors) = run(&["--diff", "--junit", &junit.display().to_string()]);
    assert!(!ok && errors.contains("        diff:\n          - {} 2E+00\n          + {} 1E+00"), "{errors}");
    let told = std::fs::read_to_string(&junit).expect("a file");
    assert!(told.contains("tests.yml\" tests=\"2\" failures=\"1\" errors=\"0\""), "{told}");
    assert!(
        told.contains("<testcase name=\"down\">") && told.contains("<testcase name=\"unnamed#1\"><failure>"),
        "{told}"
    );
    let (ok, _, errors) = run(&["--debug", "--run", "down"]);
    let told = "DEBUG: Starting test down\nDEBUG: Dump of all data (input_series and rules) at 2m1s:\n";
    assert!(ok && errors.contains(told), "{errors}");
    for series in ["{__name__=\"a\"} =>\n0 @[60000]\n0 @[120000]\n", "{__name__=\"up\", i=\"1\"} =>\n0 @[60000]\n"] {
        assert!(errors.contains(series), "{series} in {errors}");
    }
    assert!(errors.contains("\nDEBUG: Test down finished, took "), "{errors}");
    // What rule files lack each test that reads them tells, and those that do not run read none.
    let unread = file("unread.yml", &tests_of(0).replace("r*.yml", "unread.yml"));
    let (ok, _, errors) = quiver(&["rules", "test", &unread]);
    assert!(!ok && errors.contains("unknown field `rule_files`"), "{errors}");
    assert!(quiver(&["rules", "test", &unread, "--run", "none"]).0);
    std::fs::remove_file(&unread).expect("there");
    let younger = file("younger.yml", &format!("{RULES}  younger: 1\n"));
    let (ok, _, errors) = quiver(&["rules", "check", &younger]);
    assert!(!ok && errors.contains("unknown field `younger`"), "{errors}");
    let (ok, _, errors) = quiver(&["rules", "check", "--ignore-unknown-fields", &younger]);
    assert!(ok, "{errors}");
    std::fs::remove_file(&younger).expect("there");
    let twice = file("twice.yml", &(RULES.to_owned() + "  - {record: a, expr: 1}\n"));
    let (ok, out, errors) = quiver(&["rules", "check", "--lint", "none", "--lint-fatal", &twice]);
    assert!(ok && out.contains("3 rules found"), "{out}{errors}");
}

/// Values that are histograms are written as Prometheus writes them, in templates.
#[test]
fn histograms_in_templates_of_rules() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("writable");
        path.display().to_string()
    };
    let annotation = "{{ $value }} {{ query \"h\" | first | value }}";
    file(
        "rules.yml",
        &format!("groups: [{{name: g, rules: [{{alert: A, expr: h, annotations: {{v: '{annotation}'}}}}]}}]\n"),
    );
    let text = "{count:10, sum:6, [-2,-1):4, [-0.001,0.001]:3, (1,2]:1, (4,8]:2}";
    let series = "{{count:10 sum:6 z_bucket:3 z_bucket_w:0.001 buckets:[1 0 2] offset:1 n_buckets:[4] n_offset:1}}x3";
    let tests = format!(
        "rule_files: [rules.yml]\ntests:\n- input_series: [{{series: h, values: '{series}'}}]\n  \
         alert_rule_test: [{{eval_time: 1m, alertname: A, exp_alerts: [{{exp_annotations: {{v: '{text} {text}'}}}}]}}]\n"
    );
    let (ok, _, errors) = quiver(&["rules", "test", &file("tests.yml", &tests)]);
    assert!(ok, "{errors}");
}

#[test]
fn rules_are_checked_from_a_pipe() {
    let dir = tempfile::tempdir().expect("a folder");
    let piped = |text: &str| {
        let path = dir.path().join("piped");
        std::fs::write(&path, text).expect("writable");
        let input = std::fs::File::open(&path).expect("there");
        let mut command = Command::new(env!("CARGO_BIN_EXE_quiver"));
        let output = command.args(["rules", "check"]).stdin(input).output().expect("the binary runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, out, errors) = piped(RULES);
    assert_eq!(code, Some(0), "{errors}");
    assert!(out.starts_with("Checking standard input\n") && out.contains("SUCCESS: 2 rules found"), "{out}");
    let (code, _, errors) = piped(&RULES.replace("sum(up)", "'sum(up) +'"));
    assert_eq!(code, Some(1), "{errors}");
    assert!(errors.starts_with("  FAILED:\n8:"), "{errors}");
}
