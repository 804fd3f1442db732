//! Shims in C that are loaded between a server and the system (`LD_PRELOAD`).

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles a source file of this folder; the library is named after it and this process.
pub(crate) fn compiled(source: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(source);
    let name = path.file_stem().expect("a file").to_string_lossy().into_owned();
    let out = std::env::temp_dir().join(format!("quiver-{name}-{}.so", std::process::id()));
    let status = Command::new("cc").args(["-O1", "-shared", "-fPIC", "-o"]).arg(&out).arg(&path).status();
    assert!(status.is_ok_and(|s| s.success()), "`cc` compiles {}", path.display());
    out
}
