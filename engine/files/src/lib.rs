//! Reads files that others put in their places: settings, secrets, certificates, rules, models, objects of a local store.
//!
//! Anything may have such a name. Who opens a pipe waits until somebody writes into it, and a device or a file that grows
//! fills memory; a start or a reload does neither. So what is no regular file is refused, and no file is read without a
//! bound.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Read as _, Result};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

/// Most bytes of a file that holds one key, token, password or address.
pub const SECRET_BYTES_MAX: u64 = 64 << 10;
/// Most bytes of a file that a person writes: rules, policies, templates, models, types of columns.
pub const TEXT_BYTES_MAX: u64 = 16 << 20;

fn irregular() -> Error {
    Error::other("it is no regular file")
}

/// Refuses what stands in the place of a file that is about to be opened, maybe to be written. Links are followed.
///
/// # Errors
/// It is there and no regular file. Why it cannot be looked up says who opens it.
pub fn refuse_irregular(path: &Path) -> Result<()> {
    match std::fs::metadata(path) {
        Ok(found) if !found.is_file() => Err(irregular()),
        _ => Ok(()),
    }
}

/// Opens a regular file to read it, and waits for nobody.
///
/// # Errors
/// It is no regular file, or the system refuses.
pub fn open(path: &Path) -> Result<File> {
    refuse_irregular(path)?;
    // It may have changed since: a pipe that is opened in this way is not waited for.
    let file = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(irregular()) }
}

/// Reads a regular file of at most so many bytes.
///
/// # Errors
/// It is no regular file or larger ([`ErrorKind::InvalidData`]), or the system refuses.
pub fn read(path: &Path, bytes_max: u64) -> Result<Vec<u8>> {
    let file = open(path)?;
    let bytes = file.metadata()?.len();
    // What the system says counts for little: files of `/proc` have no length, and others may grow.
    up_to(file, bytes, bytes_max)
}

/// Reads what a person names on a command line, which may be a pipe or the standard input, up to so many bytes.
///
/// # Errors
/// It is larger ([`ErrorKind::InvalidData`]), or the system refuses.
pub fn read_given(path: &Path, bytes_max: u64) -> Result<Vec<u8>> {
    up_to(File::open(path)?, 0, bytes_max)
}

fn up_to(file: File, stated: u64, bytes_max: u64) -> Result<Vec<u8>> {
    let too_large = || Error::new(ErrorKind::InvalidData, format!("it is larger than {bytes_max} bytes"));
    if stated > bytes_max {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(stated as usize)?;
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max { Err(too_large()) } else { Ok(bytes) }
}

fn text(bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        Error::new(ErrorKind::InvalidData, format!("it is no UTF-8 text: at byte {at} is none"))
    })
}

/// Reads a regular file of at most so many bytes, as text.
///
/// # Errors
/// As [`read`]; and it is no UTF-8.
pub fn read_text(path: &Path, bytes_max: u64) -> Result<String> {
    text(read(path, bytes_max)?)
}

/// Reads what a person names on a command line, as text.
///
/// # Errors
/// As [`read_given`]; and it is no UTF-8.
pub fn read_given_text(path: &Path, bytes_max: u64) -> Result<String> {
    text(read_given(path, bytes_max)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use rustix::fs::{CWD, Mode, mkfifoat};

    use super::*;

    fn refused<T: std::fmt::Debug>(answer: Result<T>) -> String {
        answer.unwrap_err().to_string()
    }

    /// Breaks where somebody is waited for, or memory is filled.
    #[test]
    fn what_is_no_regular_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        mkfifoat(CWD, at("pipe"), Mode::RUSR | Mode::WUSR).unwrap();
        let _listener = UnixListener::bind(at("socket")).unwrap();
        std::fs::create_dir(at("folder")).unwrap();
        symlink("/dev/zero", at("zeroes")).unwrap();
        symlink(at("pipe"), at("link")).unwrap();
        for name in ["pipe", "socket", "folder", "zeroes", "link"] {
            let path = at(name);
            assert_eq!(refused(open(&path)), "it is no regular file", "{name}");
            assert_eq!(refused(read(&path, 100)), "it is no regular file", "{name}");
            assert_eq!(refused(read_text(&path, 100)), "it is no regular file", "{name}");
            assert_eq!(refused(refuse_irregular(&path)), "it is no regular file", "{name}");
        }
    }

    #[test]
    fn regular_files_are_read_up_to_a_bound() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        std::fs::write(&file, "grüße").unwrap();
        symlink(&file, &link).unwrap();
        for path in [&file, &link] {
            assert_eq!(read_text(path, 7).unwrap(), "grüße");
            assert_eq!(read_given_text(path, 7).unwrap(), "grüße");
            for told in [refused(read(path, 6)), refused(read_given(path, 6))] {
                assert_eq!(told, "it is larger than 6 bytes");
            }
            refuse_irregular(path).unwrap();
        }
        // A file of 1 TiB without blocks: nothing of it is read.
        File::options().write(true).open(&file).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(read(&file, TEXT_BYTES_MAX).unwrap_err().kind(), ErrorKind::InvalidData);
        std::fs::write(&file, b"a\xff").unwrap();
        assert_eq!(refused(read_text(&file, 100)), "it is no UTF-8 text: at byte 1 is none");
    }

    /// Files that state no length, devices that a person names, and ones that are not there.
    #[test]
    fn lengths_that_are_not_stated() {
        assert!(!read(Path::new("/proc/self/stat"), SECRET_BYTES_MAX).unwrap().is_empty());
        assert_eq!(refused(read(Path::new("/proc/self/stat"), 5)), "it is larger than 5 bytes");
        assert_eq!(refused(read_given(Path::new("/dev/zero"), 1000)), "it is larger than 1000 bytes");
        assert_eq!(read_given_text(Path::new("/dev/null"), 1000).unwrap(), "");
        let missing = Path::new("/proc/self/nothing");
        refuse_irregular(missing).unwrap();
        for kind in [open(missing).unwrap_err().kind(), read(missing, 1).unwrap_err().kind()] {
            assert_eq!(kind, ErrorKind::NotFound);
        }
    }
}
