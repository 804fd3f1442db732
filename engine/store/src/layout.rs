//! Where things lie: the data directory with its lock, the keys of objects, the installation's identity object, and
//! the versions of the formats on disk.
//!
//! A data directory belongs to one process (flock on `LOCK`), a store prefix to one installation (`_quiver.json`).

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use parking_lot::Mutex;
use quiver_files::refuse_irregular;
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::{Context, Error, ErrorKind, Result, io_error};

/// Version of everything that this build writes to the object store (parts, commit objects, identity).
pub const STORE_FORMAT: u32 = 1;

/// Folder of the commit objects.
pub const CATALOG_PREFIX: &str = "_catalog";

/// Folder of the epochs: one object for each start of a server.
pub const EPOCH_PREFIX: &str = "_epoch";

/// Key of the identity object.
pub const IDENTITY_KEY: &str = "_quiver.json";

/// The catalog's database in the data directory.
const DATABASE: &str = "quiver.db";
/// The WAL, and the store where none is named, in the data directory.
pub(crate) const WAL: &str = "wal";
const STORE: &str = "store";
/// Parts that wait for their upload.
const SPOOL: &str = "parts";
/// Stands there from the beginning of a restore to its end.
const RESTORING: &str = "RESTORING";
/// Folders that a data directory always has, and what is gone with each.
const FOLDERS: [(&str, &str); 2] = [
    (WAL, "what was acknowledged and is in no part yet"),
    (SPOOL, "what was flushed and is not in the object store yet"),
];

/// The data directory, locked as long as this value lives.
#[derive(Debug)]
pub struct DataDir {
    root: PathBuf,
    // Held for its lock: the kernel drops it with the process.
    _lock: File,
}

impl DataDir {
    /// Opens (creates) and locks a data directory.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] when another process has it, [`ErrorKind::Internal`] when the disk refuses.
    pub fn open(root: &Path) -> Result<Self> {
        create_dir_synced(root)?;
        let path = root.join("LOCK");
        let mut options = OpenOptions::new();
        let lock = refuse_irregular(&path).and_then(|()| options.create(true).truncate(false).write(true).open(&path));
        let mut lock = lock.map_err(|e| io_error(format!("cannot open `{}`", path.display()), e))?;
        if let Err(e) = rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            return Err(if e == rustix::io::Errno::WOULDBLOCK {
                let holder = quiver_files::read_text(&path, 64).ok().and_then(|pid| pid.trim().parse::<u32>().ok());
                let holder = holder.map(|pid| format!(" ({pid})")).unwrap_or_default();
                let text = format!("data directory `{}` is in use by another process{holder}", root.display());
                Error::new(ErrorKind::Conflict, text)
            } else {
                io_error(format!("cannot lock `{}`", path.display()), e.into())
            });
        }
        // For who finds the directory in use.
        let _ = lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id()));
        let is_known = Self::is_known(root);
        for (folder, lost) in FOLDERS {
            let path = root.join(folder);
            let is_missing = !path.is_dir();
            if is_missing {
                refuse_stand_in(&path, lost)?;
            }
            if is_known && is_missing {
                // Nobody can bring it back, and the rest is sound: so the start goes on.
                tracing::warn!(path = %path.display(), "a folder of this installation is missing: {lost} is lost");
            }
            create_dir_synced(&path)?;
        }
        Ok(Self { root: root.to_owned(), _lock: lock })
    }

    /// Says whether a server ever ran over a directory, without making it one: its catalog is there.
    pub fn is_known(root: &Path) -> bool {
        root.join(DATABASE).is_file()
    }

    /// Says whether a server began to write in a directory, whatever became of its catalog: its WAL or its store is there.
    pub fn is_written(root: &Path) -> bool {
        root.join(WAL).is_dir() || root.join(STORE).is_dir()
    }

    /// The directory itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Folder of the WAL's segments.
    pub fn wal(&self) -> PathBuf {
        self.root.join(WAL)
    }

    /// Spool: parts that a remote store does not have yet.
    pub fn parts(&self) -> PathBuf {
        self.root.join(SPOOL)
    }

    /// The object store when it is local and nothing else was said.
    pub fn store(&self) -> PathBuf {
        self.root.join(STORE)
    }

    /// The file that says that a restore was begun. Beside an installation, which is made last, it means nothing.
    pub fn restoring(&self) -> PathBuf {
        self.root.join(RESTORING)
    }

    /// The file `quiver.db`: the database of the catalog.
    pub fn database(&self) -> PathBuf {
        self.root.join(DATABASE)
    }
}

/// Refuses what stands in the place of a folder, such as a link to a disk that is not mounted: what the folder held is not
/// lost, and nothing that comes now may be written beside it.
fn refuse_stand_in(path: &Path, lost: &str) -> Result<()> {
    let what = match std::fs::symlink_metadata(path) {
        Err(_) => return Ok(()),
        Ok(found) if found.is_symlink() => "is a link that leads to no folder: its disk may not be mounted",
        Ok(_) => "is no folder",
    };
    let text = format!("`{}` {what}; put the folder back, or move this away to start without {lost}", path.display());
    Err(Error::invalid(text))
}

/// Folders whose names this process has made last. Cleared when there are many: one sync more for each is no harm.
static LASTING: LazyLock<Mutex<HashSet<PathBuf>>> = LazyLock::new(Mutex::default);
const LASTING_MAX: usize = 16_384;

/// Creates a directory with all its parents so that its name lasts: the parent is synced even when the directory is
/// there already, once in the life of a process. The one before may have died between making it and syncing it.
///
/// # Errors
/// What the disk says.
pub fn create_dir_synced(path: &Path) -> Result<()> {
    let there = path.is_dir();
    if there && LASTING.lock().contains(path) {
        return Ok(());
    }
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
    if !there {
        // What stands above a folder that is there was synced before that one was made.
        if let Some(parent) = parent {
            create_dir_synced(parent)?;
        }
        match std::fs::create_dir(path) {
            Ok(()) => {}
            // Somebody else was quicker.
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists && path.is_dir() => {}
            Err(e) => return Err(io_error(format!("cannot create directory `{}`", path.display()), e)),
        }
    }
    match sync_dir(parent.unwrap_or(Path::new("."))) {
        // A folder that was made for us, in one that we may not read.
        Err(e) if there && is_denied(&e) => {}
        outcome => outcome?,
    }
    let mut lasting = LASTING.lock();
    if lasting.len() >= LASTING_MAX {
        lasting.clear();
    }
    lasting.insert(path.to_owned());
    Ok(())
}

fn is_denied(error: &Error) -> bool {
    let source = error.source.as_deref().and_then(|e| e.downcast_ref::<std::io::Error>());
    source.is_some_and(|e| e.kind() == std::io::ErrorKind::PermissionDenied)
}

/// Removes an empty directory and syncs its parent; false when it is not empty.
///
/// # Errors
/// What the disk says.
pub fn remove_dir_synced(path: &Path) -> Result<bool> {
    // Before: who creates it anew must sync it anew.
    LASTING.lock().remove(path);
    if std::fs::remove_dir(path).is_err() {
        return Ok(false);
    }
    path.parent().map_or(Ok(()), sync_dir)?;
    Ok(true)
}

/// Syncs a directory, so that names created, renamed or deleted in it last.
///
/// # Errors
/// What the disk says.
pub fn sync_dir(path: &Path) -> Result<()> {
    File::open(path)
        .and_then(|dir| dir.sync_all())
        .map_err(|e| io_error(format!("cannot sync directory `{}`", path.display()), e))
}

/// Gives the key of a commit object.
pub fn commit_key(commit: u64) -> String {
    format!("{CATALOG_PREFIX}/{commit:012}.json")
}

/// Reads the number out of the key of a commit object.
pub fn parse_commit_key(key: &str) -> Option<u64> {
    numbered(key, CATALOG_PREFIX)
}

/// Gives the key of an epoch.
pub fn epoch_key(epoch: u64) -> String {
    format!("{EPOCH_PREFIX}/{epoch:012}.json")
}

/// Reads the number out of the key of an epoch.
pub fn parse_epoch_key(key: &str) -> Option<u64> {
    numbered(key, EPOCH_PREFIX)
}

fn numbered(key: &str, folder: &str) -> Option<u64> {
    let digits = key.strip_prefix(folder)?.strip_prefix('/')?.strip_suffix(".json")?;
    (digits.len() >= 12 && digits.bytes().all(|b| b.is_ascii_digit())).then(|| digits.parse().ok()).flatten()
}

/// What the key `<table>/<yyyy-mm-dd>/<part>.<kind>.parquet` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartKey {
    /// Name of the table.
    pub table: String,
    /// UTC day, as `yyyy-mm-dd`.
    pub day: String,
    /// Id of the part.
    pub part: Uuid,
    /// Kind of file, such as `samples` or `rows`.
    pub kind: String,
}

/// Reads the key of a part's file; `None` for other keys.
pub fn parse_part_key(key: &str) -> Option<PartKey> {
    let mut names = key.split('/');
    let (table, day, file) = (names.next()?, names.next()?, names.next()?);
    if names.next().is_some() || table.is_empty() || table.starts_with('_') {
        return None;
    }
    let (part, kind) = file.strip_suffix(".parquet")?.split_once('.')?;
    let part = Uuid::try_parse(part).ok()?;
    Some(PartKey { table: table.to_owned(), day: day.to_owned(), part, kind: kind.to_owned() })
}

/// The identity object: which installation a store prefix belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Version of the formats in the store.
    pub format: u32,
    /// The installation that the prefix belongs to.
    pub installation: Uuid,
}

impl Identity {
    /// Writes the object's body.
    pub fn to_json(&self) -> String {
        format!("{{\"format\":{},\"installation\":\"{}\"}}\n", self.format, self.installation)
    }

    /// Reads the object's body.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] when it is no identity, or one of a newer format.
    pub fn parse(body: &[u8]) -> Result<Self> {
        let identity: Self = serde_json::from_slice(body).internal(format!("`{IDENTITY_KEY}` is damaged"))?;
        check_format(identity.format, "the store")?;
        Ok(identity)
    }
}

/// The object of an epoch: which process became the store's master, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochObject {
    /// Version of the formats in the store.
    pub format: u32,
    /// The installation that the prefix belongs to.
    pub installation: Uuid,
    /// Its number, from 1.
    pub epoch: u64,
    /// The process, by an id that it gave itself.
    pub process: Uuid,
    /// When it started, Unix milliseconds.
    pub started_ms: i64,
}

impl EpochObject {
    /// Writes the object's body.
    pub fn to_json(&self) -> String {
        let Self { format, installation, epoch, process, started_ms } = self;
        format!(
            "{{\"format\":{format},\"installation\":\"{installation}\",\"epoch\":{epoch},\
             \"process\":\"{process}\",\"started_ms\":{started_ms}}}\n"
        )
    }
}

/// Refuses formats that are newer than this build.
///
/// # Errors
/// [`ErrorKind::Invalid`] naming both versions.
pub fn check_format(found: u32, what: &str) -> Result<()> {
    if found <= STORE_FORMAT {
        return Ok(());
    }
    let text = format!(
        "{what} has format {found}, this build knows up to {STORE_FORMAT}; start a build that knows format {found}"
    );
    Err(Error::invalid(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Breaks where a disk that is not mounted counts as lost, and a server goes on without what it holds.
    #[test]
    fn what_stands_in_the_place_of_a_folder_is_refused() {
        for folder in [WAL, SPOOL] {
            let dir = tempfile::tempdir().unwrap();
            let away = dir.path().join("away");
            // A directory of its own for each: a lock may last a moment longer, see `unlocked` in the tests of the store.
            let root = |name: &str| {
                let root = dir.path().join(name);
                std::fs::create_dir(&root).unwrap();
                (root.clone(), root.join(folder))
            };
            let (linked, path) = root("linked");
            std::os::unix::fs::symlink(&away, &path).unwrap();
            let told = DataDir::open(&linked).unwrap_err();
            let expected =
                format!("linked/{folder}` is a link that leads to no folder: its disk may not be mounted; put");
            assert!(told.kind() == ErrorKind::Invalid && told.message.contains(&expected), "{told}");
            assert!(!away.exists(), "nothing is made in its place");
            let (file, path) = root("file");
            std::fs::write(path, "").unwrap();
            let told = DataDir::open(&file).unwrap_err();
            assert!(told.message.contains(&format!("file/{folder}` is no folder; put the folder back")), "{told}");
            std::fs::create_dir(&away).unwrap();
            let (mounted, path) = root("mounted");
            std::os::unix::fs::symlink(&away, path).unwrap();
            DataDir::open(&mounted).unwrap();
        }
    }

    /// Breaks where a start waits for somebody who writes into the pipe.
    #[test]
    fn what_stands_in_the_place_of_the_lock_is_refused() {
        use rustix::fs::{CWD, Mode, mkfifoat};

        let dir = tempfile::tempdir().unwrap();
        let lock = dir.path().join("LOCK");
        mkfifoat(CWD, &lock, Mode::RUSR | Mode::WUSR).unwrap();
        for place in ["a pipe", "a folder"] {
            let told = crate::error::chain(&DataDir::open(dir.path()).unwrap_err());
            assert!(
                told.starts_with("cannot open `") && told.ends_with("LOCK`: it is no regular file"),
                "{place}: {told}"
            );
            let _ = std::fs::remove_file(&lock);
            let _ = std::fs::create_dir(&lock);
        }
        std::fs::remove_dir(&lock).unwrap();
        DataDir::open(dir.path()).unwrap();
    }

    #[test]
    fn a_file_is_no_folder() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, "").unwrap();
        for _ in 0..2 {
            let told = create_dir_synced(&path).unwrap_err();
            assert!(told.message.starts_with("cannot create directory `"), "{told}");
        }
        std::fs::remove_file(&path).unwrap();
        create_dir_synced(&path).unwrap();
    }

    #[test]
    fn one_process_per_directory() {
        let dir = tempfile::tempdir().unwrap();
        let first = DataDir::open(&dir.path().join("a/b")).unwrap();
        let second = DataDir::open(&dir.path().join("a/b")).unwrap_err();
        assert_eq!(second.kind(), ErrorKind::Conflict);
        // Its number is told, so that who wants the directory can find it.
        let expected = format!("in use by another process ({})", std::process::id());
        assert!(second.to_string().contains(&expected), "{second}");
        drop(first);
        let again = DataDir::open(&dir.path().join("a/b")).unwrap();
        assert!(!DataDir::is_known(again.root()));
        std::fs::write(again.database(), "").unwrap();
        assert!(DataDir::is_known(again.root()) && !DataDir::is_known(dir.path()));
        assert!(DataDir::is_written(again.root()) && !DataDir::is_written(dir.path()));
    }

    #[test]
    fn keys() {
        assert_eq!(commit_key(7), "_catalog/000000000007.json");
        assert_eq!(parse_commit_key(&commit_key(7)), Some(7));
        assert_eq!(parse_commit_key("_catalog/x.json"), None);
        assert_eq!(parse_epoch_key(&epoch_key(7)), Some(7));
        assert_eq!(parse_epoch_key(&commit_key(7)), None);
        let id = Uuid::now_v7();
        let key = parse_part_key(&format!("metrics/2026-01-02/{id}.samples.parquet")).unwrap();
        assert_eq!((key.part, key.kind.as_str(), key.table.as_str()), (id, "samples", "metrics"));
        for bad in ["_catalog/1/2.parquet", "metrics/x.parquet", "metrics/d/no-id.samples.parquet", "a/b/c/d"] {
            assert_eq!(parse_part_key(bad), None, "{bad}");
        }
    }

    #[test]
    fn newer_formats_are_refused_by_name() {
        let id = Identity { format: STORE_FORMAT, installation: Uuid::now_v7() };
        assert_eq!(Identity::parse(id.to_json().as_bytes()).unwrap(), id);
        let newer = Identity { format: 9, ..id };
        assert!(Identity::parse(newer.to_json().as_bytes()).unwrap_err().to_string().contains("format 9"));
    }

    #[test]
    fn numbers_of_keys_are_read_as_they_are_written() {
        for number in [0, 1, 999_999_999_999, 1_000_000_000_000, u64::MAX] {
            assert_eq!(parse_commit_key(&commit_key(number)), Some(number));
            assert_eq!(parse_epoch_key(&epoch_key(number)), Some(number));
        }
        let bad = [
            "",
            "_catalog",
            "_catalog/",
            "_catalog/.json",
            // Too few digits, a sign, a blank, digits of others, more than there are numbers.
            "_catalog/7.json",
            "_catalog/+00000000007.json",
            "_catalog/ 00000000007.json",
            "_catalog/00000000000٧.json",
            "_catalog/99999999999999999999.json",
            "_catalog/000000000007.json.tmp",
            "_catalog/000000000007",
            "_catalog/x/000000000007.json",
            "/_catalog/000000000007.json",
            "_catalogs/000000000007.json",
        ];
        for key in bad {
            assert_eq!(parse_commit_key(key), None, "{key}");
        }
        // Numbers of more than twelve digits sort behind the others as texts only by their length: lists are by number.
        assert!(commit_key(999_999_999_999) > commit_key(1_000_000_000_000));
    }

    #[test]
    fn keys_of_parts_are_read_as_they_are_written() {
        let id = Uuid::from_u128(0x0190_7a5c_0000_7000_8000_0000_0000_0001);
        for kind in ["series", "samples", "index"] {
            let key = crate::part::part_key("metrics", 20_000, id, kind);
            let read = parse_part_key(&key).unwrap();
            let expected =
                PartKey { table: "metrics".to_owned(), day: "2024-10-04".to_owned(), part: id, kind: kind.to_owned() };
            assert_eq!(read, expected, "{key}");
        }
        for bad in [
            "",
            "metrics",
            "metrics/2024-10-04",
            &format!("metrics/2024-10-04/{id}.parquet"),
            &format!("metrics/2024-10-04/{id}.samples"),
            &format!("metrics/2024-10-04/{id}.samples.parquet.tmp"),
            &format!("metrics/2024-10-04/more/{id}.samples.parquet"),
            &format!("_backup/2024-10-04/{id}.samples.parquet"),
            &format!("/2024-10-04/{id}.samples.parquet"),
            &format!("metrics/2024-10-04/x{id}.samples.parquet"),
        ] {
            assert_eq!(parse_part_key(bad), None, "{bad}");
        }
    }

    #[test]
    fn identities_of_others_and_damaged_ones_are_told_apart() {
        let id = Uuid::from_u128(1);
        let body = Identity { format: 1, installation: id }.to_json();
        assert_eq!(body, format!("{{\"format\":1,\"installation\":\"{id}\"}}\n"));
        for end in 0..body.len() - 2 {
            let error = Identity::parse(&body.as_bytes()[..end]).unwrap_err();
            assert_eq!((error.kind(), &*error.message), (ErrorKind::Internal, "`_quiver.json` is damaged"), "{end}");
        }
        // What later builds may add is not for us.
        let more = format!("{{\"format\":1,\"installation\":\"{id}\",\"since\":7}}");
        assert_eq!(Identity::parse(more.as_bytes()).unwrap().installation, id);
        assert!(check_format(STORE_FORMAT, "x").is_ok() && check_format(0, "x").is_ok());
        let newer = check_format(STORE_FORMAT + 1, "backup `b`").unwrap_err();
        assert_eq!(newer.kind(), ErrorKind::Invalid);
        assert_eq!(
            newer.message,
            "backup `b` has format 2, this build knows up to 1; start a build that knows format 2"
        );
    }

    #[test]
    fn an_epoch_says_who_and_when() {
        let (installation, process) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let object = EpochObject { format: 1, installation, epoch: u64::MAX, process, started_ms: -1 };
        assert_eq!(serde_json::from_str::<EpochObject>(&object.to_json()).unwrap(), object);
    }

    #[test]
    fn folders_are_made_with_all_above_them_and_removed_when_empty() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("a/b/c");
        create_dir_synced(&deep).unwrap();
        create_dir_synced(&deep).unwrap();
        assert!(!remove_dir_synced(&dir.path().join("a/b")).unwrap(), "there is one in it");
        assert!(remove_dir_synced(&deep).unwrap() && !deep.exists());
        assert!(!remove_dir_synced(&deep).unwrap(), "it is gone");
        // It is made anew, though this process has made it once.
        create_dir_synced(&deep).unwrap();
        assert!(deep.is_dir());
        let file = deep.join("file");
        std::fs::write(&file, "").unwrap();
        assert!(!remove_dir_synced(&deep).unwrap() && file.exists());
        let error = create_dir_synced(&file.join("below")).unwrap_err();
        assert!(error.message.starts_with("cannot create directory `"), "{error}");
        assert!(sync_dir(&dir.path().join("nothing")).is_err());
    }
}
