//! What is wrong with a file of SQLite. SQLite itself says little more than a code, takes an empty file for a new
//! database, and notices that one is cut short only where it reads it; whoever starts a server wants to know which file
//! it is, and what to do.

use std::fs::{File, OpenOptions, metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use sqlx::Error;
use sqlx::sqlite::SqliteError;

/// What is wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The part of a sentence whose subject is the file.
    pub what: String,
    /// Whether the file itself is to blame, so that another one must take its place. Otherwise it is the rights of the
    /// server, or the disk.
    pub is_lost: bool,
}

impl Damage {
    /// Makes that of a file whose content is of no use.
    pub fn lost(what: impl Into<String>) -> Self {
        Self { what: what.into(), is_lost: true }
    }

    fn kept_from(what: impl Into<String>) -> Self {
        Self { what: what.into(), is_lost: false }
    }

    /// Says what to do: what `instead` says if the file is lost.
    pub fn advice(&self, instead: &str) -> String {
        let advice =
            if self.is_lost { instead } else { "see to its owner, its mode, its disk, and how many files may be open" };
        format!("{}; {advice}", self.what)
    }
}

/// What every database begins with.
const MAGIC: &[u8] = b"SQLite format 3\0";
const HEADER_BYTES: u64 = 100;
/// Files up to this size are read once at the start, to see whether they are whole.
pub const CHECKED_BYTES_MAX: u64 = 64 << 20;
/// Finds whether the tables are ours: how many there are, how many of our columns the list of migrations has, and whether
/// it counts them by part, as the configuration does and the catalog does not.
pub const TABLES: &str = "SELECT (SELECT count(*) FROM sqlite_schema), \
    (SELECT count(*) FROM pragma_table_info('migration') WHERE name IN ('number', 'name', 'applied_ms')), \
    (SELECT count(*) FROM pragma_table_info('migration') WHERE name = 'part')";

/// Says whether the answer to [`TABLES`] is that of a database which is new, or has our tables.
pub fn is_ours([tables, columns, parts]: [i64; 3], by_part: bool) -> bool {
    tables == 0 || columns == 3 && (parts == 1) == by_part
}

/// The log that SQLite keeps beside a database.
fn log_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    PathBuf::from(name)
}

fn has_log(path: &Path) -> bool {
    metadata(log_of(path)).is_ok_and(|log| log.len() > 0)
}

/// Says whether a file is there and holds nothing, so that SQLite would begin a new database in it.
pub fn is_empty(path: &Path) -> bool {
    metadata(path).is_ok_and(|file| file.is_file() && file.len() == 0) && !has_log(path)
}

/// Says what is wrong with a file; none: it may be a database, holds nothing and has no log, or is not there.
pub fn damage(path: &Path) -> Option<Damage> {
    let found = match metadata(path) {
        Ok(found) => found,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return None,
        Err(e) => return Some(Damage::kept_from(format!("cannot be opened ({e})"))),
    };
    if found.is_dir() {
        return Some(Damage::lost("is a directory"));
    }
    if !found.is_file() {
        return Some(Damage::lost("is no regular file"));
    }
    // Asked of the system, since modes say nothing of root, and a disk may be read-only.
    let file = match OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => file,
        Err(e) => return Some(Damage::kept_from(format!("cannot be opened to read and write ({e})"))),
    };
    match of_header(file, found.len(), has_log(path)) {
        Ok(what) => what.map(Damage::lost),
        Err(e) => Some(Damage::kept_from(format!("cannot be read ({e})"))),
    }
}

/// Which file a database was opened from.
#[derive(Debug)]
pub struct OpenedFile {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

async fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let file = tokio::fs::metadata(path).await?;
    Ok((file.dev(), file.ino()))
}

impl OpenedFile {
    /// Remembers which file has this name now.
    ///
    /// # Errors
    /// None has it.
    pub async fn at(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), identity: identity(path).await? })
    }

    /// Looks whether the file still has its name. What is written to one without a name is gone with the process.
    ///
    /// # Errors
    /// No file or another one has the name now; the text says which, and what to do.
    pub async fn check(&self) -> io::Result<()> {
        let found = identity(&self.path).await;
        if found.as_ref().is_ok_and(|found| *found == self.identity) {
            return Ok(());
        }
        let what =
            found.map_or_else(|e| format!("is gone ({e})"), |_| "is another file than the one in use".to_owned());
        let text =
            format!("`{}` {what}; put it back, or restart the server to go on with what is there", self.path.display());
        Err(io::Error::other(text))
    }
}

/// What the header says against the length of the file.
fn of_header(file: File, length: u64, has_log: bool) -> io::Result<Option<String>> {
    let mut header = Vec::new();
    file.take(HEADER_BYTES).read_to_end(&mut header)?;
    if header.is_empty() {
        // SQLite deletes the log of an empty file, which may hold all there was.
        return Ok(has_log.then(|| "is empty, but its log is not".to_owned()));
    }
    if !header.starts_with(&MAGIC[..MAGIC.len().min(header.len())]) {
        return Ok(Some("is no SQLite database".to_owned()));
    }
    let number = |at: usize| header.get(at..at + 4).and_then(|bytes| Some(u32::from_be_bytes(bytes.try_into().ok()?)));
    let (Some(changes), Some(pages), Some(of_change)) = (number(24), number(28), number(92)) else {
        return Ok(Some(format!("is cut short: there are {length} bytes of it")));
    };
    let page_bytes = match u64::from(u16::from_be_bytes([header[16], header[17]])) {
        1 => 1 << 16,
        bytes => bytes,
    };
    // The log may hold the rest, and old versions of SQLite kept no count of pages.
    let whole = u64::from(pages) * page_bytes;
    let is_short = length < whole && changes == of_change && !has_log;
    Ok(is_short.then(|| format!("is cut short: there are {length} of its {whole} bytes")))
}

/// Says what an error of SQLite means for its file; none: the file is not at fault.
pub fn fault_of_file(error: &Error) -> Option<Damage> {
    let Error::Database(error) = error else { return None };
    error.try_downcast_ref::<SqliteError>()?;
    // The low byte of the extended code.
    match error.code()?.parse::<u32>().ok()? & 0xff {
        3 | 8 => Some(Damage::kept_from("cannot be written to")),
        10 => Some(Damage::kept_from("cannot be read or written, says the disk")),
        11 => Some(Damage::lost("is damaged")),
        14 => Some(Damage::kept_from("cannot be opened")),
        26 => Some(Damage::lost("is no SQLite database")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_do() {
        assert_eq!(Damage::lost("is damaged").advice("put it back"), "is damaged; put it back");
        let told = Damage::kept_from("cannot be opened").advice("put it back");
        assert_eq!(told, "cannot be opened; see to its owner, its mode, its disk, and how many files may be open");
    }

    #[test]
    fn tables_of_others() {
        assert!(is_ours([0, 0, 0], true) && is_ours([0, 0, 0], false));
        assert!(is_ours([9, 3, 1], true) && is_ours([9, 3, 0], false));
        assert!(!is_ours([9, 3, 1], false) && !is_ours([9, 3, 0], true), "the one is put for the other");
        assert!(!is_ours([1, 0, 0], true) && !is_ours([1, 0, 0], false), "those of another program");
    }
}
