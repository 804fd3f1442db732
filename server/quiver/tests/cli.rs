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
    for word in ["serve", "demo", "check-config", "catalog", "store", "--print-settings", "--version"] {
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
    let (ok, _, errors) = quiver(&["check-config", "--config", &file, "--rbac", "on"]);
    assert!(!ok && errors.contains("rbac.mode"), "{errors}");
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
    let (ok, errors) = armed(&["check-config", "--failpoints"]);
    assert!(!ok && errors.contains("no fail point `no.such-point`"), "{errors}");
}
