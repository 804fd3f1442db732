//! Test helpers: the folder of the conformance cases, and models from a text.

use std::io::Write as _;
use std::path::PathBuf;

use crate::model::catalog::Catalog;
use crate::model::load::{SourceFile, load};

/// The models of a file.
pub(crate) fn catalog(text: &str) -> Catalog {
    load(&[SourceFile { name: "m.yml".to_owned(), text: text.to_owned(), builtin: false }]).expect("models").0
}

/// The folder of the cases of analytics; where there is none, the summary of the run says so.
pub(crate) fn open_cases() -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os("CONFORMANCE_DIR").unwrap_or_default()).join("olap");
    if folder.is_dir() {
        return Some(folder);
    }
    // Past the capture of what tests print: nobody would see it of a test that passes.
    let _ = writeln!(std::io::stderr(), "SKIPPED: cases of analytics, of which `CONFORMANCE_DIR` has none");
    None
}
