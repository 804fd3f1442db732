//! Opens files that a policy refers to (`…_file`). Only files below one directory are opened.

use std::path::{Path, PathBuf};

/// The directory, if there is one.
#[derive(Debug, Clone, Default)]
pub struct Files(Option<PathBuf>);

/// Largest file, in bytes.
const BYTES_MAX: u64 = 1 << 20;

impl Files {
    /// Opens files below a directory; without one none is opened.
    pub fn below(dir: Option<PathBuf>) -> Self {
        Self(dir)
    }

    /// Gives the path of a name, which must lie below the directory; links count as what they lead to.
    ///
    /// # Errors
    /// The text of why not.
    pub fn path(&self, name: &str) -> Result<PathBuf, String> {
        let Some(dir) = &self.0 else { return Err(format!("`{name}` is not read: `alerting.files_dir` is not set")) };
        let cannot = |e: std::io::Error| format!("cannot read `{name}`: {e}");
        let (dir, path) = (dir.canonicalize().map_err(cannot)?, dir.join(Path::new(name)));
        let path = path.canonicalize().map_err(cannot)?;
        if !path.starts_with(&dir) {
            return Err(format!("`{name}` is not read: it is not below `alerting.files_dir`"));
        }
        Ok(path)
    }

    /// Reads a file, without the white space at its ends.
    ///
    /// # Errors
    /// The text of why not.
    pub fn read(&self, name: &str) -> Result<String, String> {
        let path = self.path(name)?;
        let cannot = |e: std::io::Error| format!("cannot read `{name}`: {e}");
        quiver_files::read_text(&path, BYTES_MAX).map(|text| text.trim().to_owned()).map_err(cannot)
    }

    /// Gives a secret that stands in a field, or in the file that `<field>_file` names; the empty text where neither does.
    ///
    /// # Errors
    /// The text of why the file is not read.
    pub fn secret(&self, options: &quiver_alerting::options::Options, field: &str) -> Result<String, String> {
        let file = options.text(&format!("{field}_file"));
        if !options.has(field) && !file.is_empty() { self.read(file) } else { Ok(options.text(field).to_owned()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_below() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        std::fs::write(inner.join("a"), " s3cret\n").unwrap();
        std::fs::write(dir.path().join("b"), "outside").unwrap();
        std::os::unix::fs::symlink(dir.path().join("b"), inner.join("link")).unwrap();
        let files = Files::below(Some(inner.clone()));
        assert_eq!(files.read("a").as_deref(), Ok("s3cret"));
        assert_eq!(files.read(&inner.join("a").display().to_string()).as_deref(), Ok("s3cret"));
        for name in ["../b", "link", &dir.path().join("b").display().to_string()] {
            let told = files.read(name).unwrap_err();
            assert!(told.contains("not below"), "{told}");
        }
        assert!(files.read("none").is_err());
        // A message that is sent must not wait for who writes into a pipe, nor read a device for ever.
        std::fs::create_dir(inner.join("folder")).unwrap();
        std::fs::File::create(inner.join("large")).unwrap().set_len(BYTES_MAX + 1).unwrap();
        for (name, why) in [("folder", "it is no regular file"), ("large", "it is larger than 1048576 bytes")] {
            assert_eq!(files.read(name).unwrap_err(), format!("cannot read `{name}`: {why}"));
        }
        assert!(Files::default().read("a").unwrap_err().contains("files_dir"));
    }
}
