//! Where the open conformance cases are.

use std::path::PathBuf;

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
