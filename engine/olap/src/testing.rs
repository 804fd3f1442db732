//! What tests share: the folder of the conformance cases, and models from a text.

use std::path::PathBuf;

use crate::model::catalog::Catalog;
use crate::model::load::{SourceFile, load};

/// The models of a file.
pub(crate) fn catalog(text: &str) -> Catalog {
    load(&[SourceFile { name: "m.yml".to_owned(), text: text.to_owned(), builtin: false }]).expect("models").0
}

/// The folder of the cases of analytics; says so where there is none.
#[allow(clippy::print_stderr, reason = "a test that is left out must be seen")]
pub(crate) fn open_cases() -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os("CONFORMANCE_DIR")?).join("olap");
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("SKIPPED: there are no cases in `{}` (CONFORMANCE_DIR)", folder.display());
    None
}
