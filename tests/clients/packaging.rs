//! The container file, checked by its linter.

use std::process::Command;

use quiver_tests::server::{run, tools};

use crate::tools::document;

#[test]
fn the_container_file_has_no_faults() {
    let mut linter = Command::new(tools().join("venv/bin/hadolint"));
    let (code, found, errors) = run(linter.arg("--no-color").arg(document("packaging/Containerfile")));
    assert_eq!(code, Some(0), "{found}{errors}");
}
