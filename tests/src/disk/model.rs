//! A disk as the promises of `fsync` describe it, and no better: what was synced is there after a power cut; of the rest
//! anything may be there, in any order, in sectors of 512 bytes; names last when their folder was synced.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::path::Path;

use rand::RngExt;
use rand::rngs::SmallRng;

use super::trace::{Change, Inode, Trace};

/// What a disk writes at once.
const SECTOR: usize = 512;

/// A file or folder for its whole life (inode numbers are used again).
type Node = usize;

#[derive(Debug, Clone)]
enum Edit {
    Write(u64, Range<usize>),
    Truncate(u64),
}

#[derive(Debug, Clone)]
enum Entry {
    Put(String, Node),
    Remove(String),
    /// Within one folder: both or none.
    Move(String, String, Node),
}

/// A change that no sync has made last yet.
#[derive(Debug, Clone)]
struct Pending<T> {
    /// Place in the order of all changes.
    number: usize,
    kept: Kept,
    what: T,
}

/// What syncs have made of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    /// None has come yet.
    Unsure,
    /// One failed on it: then none will make it last.
    Dropped,
    /// It lasts, but came after one that was dropped, of which nobody knows whether it is below.
    Lasting,
}

impl Kept {
    fn survives(self, chance: f64, random: &mut SmallRng) -> bool {
        self == Self::Lasting || random.random_bool(chance)
    }
}

#[derive(Debug, Default)]
struct Body {
    bytes: Vec<u8>,
    pending: Vec<Pending<Edit>>,
}

#[derive(Debug, Default)]
struct Folder {
    names: BTreeMap<String, Node>,
    pending: Vec<Pending<Entry>>,
    now: BTreeMap<String, Node>,
}

/// See the module.
#[derive(Debug)]
pub struct Disk<'t> {
    trace: &'t Trace,
    next: usize,
    files: HashMap<Node, Body>,
    folders: HashMap<Node, Folder>,
    /// Nodes by inode number, as it stands now.
    nodes: HashMap<Inode, Node>,
    count: Node,
    syncs: HashMap<u64, (Node, usize)>,
    /// Files below this folder are never synced, whatever the disk says.
    lies_about: Option<&'static str>,
    lied_about: HashSet<Node>,
}

const ROOT: Node = 0;

/// How much of what was not synced is there after a cut.
#[derive(Debug, Clone, Copy)]
pub struct Survival {
    /// Chance of each name.
    pub names: f64,
    /// Chance of each write, or of each of its sectors.
    pub writes: f64,
    /// Whether writes tear.
    pub torn: bool,
    /// Whether a file is as long as it was, with zeros where nothing was written.
    pub grown: bool,
}

impl Survival {
    /// Chooses one: nothing, everything, and kinds between.
    pub fn choose(random: &mut SmallRng) -> Self {
        let chance = |random: &mut SmallRng| [0.0, 1.0, 0.1, 0.5, 0.9][random.random_range(0..5)];
        Self {
            names: chance(random),
            writes: chance(random),
            torn: random.random_bool(0.5),
            grown: random.random_bool(0.3),
        }
    }
}

impl Edit {
    fn apply(&self, bytes: &mut Vec<u8>, trace: &Trace) {
        match self {
            Self::Write(at, data) => put(bytes, *at as usize, &trace.bytes[data.clone()]),
            Self::Truncate(length) => bytes.resize(*length as usize, 0),
        }
    }
}

fn put(bytes: &mut Vec<u8>, at: usize, data: &[u8]) {
    if bytes.len() < at + data.len() {
        bytes.resize(at + data.len(), 0);
    }
    bytes[at..at + data.len()].copy_from_slice(data);
}

impl Entry {
    fn apply(&self, names: &mut BTreeMap<String, Node>) {
        match self {
            Self::Put(name, node) => drop(names.insert(name.clone(), *node)),
            Self::Remove(name) => drop(names.remove(name)),
            Self::Move(from, to, node) => {
                names.remove(from);
                names.insert(to.clone(), *node);
            }
        }
    }
}

/// Applies what began before `number`, and keeps the rest.
fn settle<T: Clone>(pending: &mut Vec<Pending<T>>, number: usize, mut apply: impl FnMut(&T)) {
    let mut after_dropped = false;
    pending.retain_mut(|p| {
        after_dropped |= p.kept == Kept::Dropped;
        let lasts = p.number < number && p.kept == Kept::Unsure;
        match (lasts, after_dropped) {
            (true, true) => p.kept = Kept::Lasting,
            (true, false) => apply(&p.what),
            (false, _) => return true,
        }
        after_dropped
    });
}

fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

impl<'t> Disk<'t> {
    /// An empty disk before the first change of a trace.
    pub fn new(trace: &'t Trace) -> Self {
        Self {
            trace,
            next: 0,
            files: HashMap::new(),
            folders: HashMap::from([(ROOT, Folder::default())]),
            nodes: HashMap::new(),
            count: 1,
            syncs: HashMap::new(),
            lies_about: None,
            lied_about: HashSet::new(),
        }
    }

    /// Makes it a disk that says that files of a folder are synced and does nothing: what tests must notice.
    #[must_use]
    pub fn lying_about(self, folder: &'static str) -> Self {
        Self { lies_about: Some(folder), ..self }
    }

    /// Makes all changes before `number` (an index of [`Trace::changes`]).
    pub fn advance(&mut self, number: usize) {
        while self.next < number {
            self.apply(self.next);
            self.next += 1;
        }
    }

    fn walk(&self, path: &str) -> Node {
        path.split('/').filter(|name| !name.is_empty()).fold(ROOT, |at, name| self.folders[&at].now[name])
    }

    fn enter(&mut self, number: usize, folder: &str, entry: Entry) {
        let node = self.walk(folder);
        let folder = self.folders.get_mut(&node).expect("a folder");
        entry.apply(&mut folder.now);
        folder.pending.push(Pending { number, kept: Kept::Unsure, what: entry });
    }

    fn born(&mut self, inode: Inode) -> Node {
        let node = self.count;
        self.count += 1;
        self.nodes.insert(inode, node);
        node
    }

    fn apply(&mut self, number: usize) {
        let (change, _) = &self.trace.changes[number];
        match change {
            Change::Root(inode) => drop(self.nodes.insert(*inode, ROOT)),
            Change::Create(path, inode) => {
                let node = self.born(*inode);
                self.files.insert(node, Body::default());
                let (folder, name) = split(path);
                if self.lies_about == Some(folder) {
                    self.lied_about.insert(node);
                }
                self.enter(number, folder, Entry::Put(name.to_owned(), node));
            }
            Change::Mkdir(path, inode) => {
                let node = self.born(*inode);
                self.folders.insert(node, Folder::default());
                let (folder, name) = split(path);
                self.enter(number, folder, Entry::Put(name.to_owned(), node));
            }
            Change::Write(inode, at, data) => self.edit(number, *inode, Edit::Write(*at, data.clone())),
            Change::Truncate(inode, length) => self.edit(number, *inode, Edit::Truncate(*length)),
            Change::SyncBegin(inode, token) => {
                let node = self.nodes[inode];
                self.syncs.insert(*token, (node, number));
            }
            Change::SyncEnd(token) => self.synced(*token),
            Change::SyncFailed(inode) => {
                let node = self.nodes[inode];
                if let Some(file) = self.files.get_mut(&node) {
                    let unsure = file.pending.iter_mut().filter(|p| p.kept == Kept::Unsure);
                    unsure.for_each(|p| p.kept = Kept::Dropped);
                }
                // Names are the file system's own: one that cannot write its journal stops, and does not say later that
                // all is well. They stay as unsure as they were.
            }
            Change::Rename(from, to) => {
                let node = self.walk(from);
                let ((folder, name), (to_folder, to_name)) = (split(from), split(to));
                if folder == to_folder {
                    self.enter(number, folder, Entry::Move(name.to_owned(), to_name.to_owned(), node));
                } else {
                    self.enter(number, to_folder, Entry::Put(to_name.to_owned(), node));
                    self.enter(number, folder, Entry::Remove(name.to_owned()));
                }
            }
            Change::Link(from, to) => {
                let (node, (folder, name)) = (self.walk(from), split(to));
                self.enter(number, folder, Entry::Put(name.to_owned(), node));
            }
            Change::Unlink(path) | Change::Rmdir(path) => {
                let (folder, name) = split(path);
                self.enter(number, folder, Entry::Remove(name.to_owned()));
            }
        }
    }

    fn edit(&mut self, number: usize, inode: Inode, edit: Edit) {
        let file = self.nodes.get(&inode).and_then(|node| self.files.get_mut(node)).expect("a file that was created");
        file.pending.push(Pending { number, kept: Kept::Unsure, what: edit });
    }

    fn synced(&mut self, token: u64) {
        let Some((node, number)) = self.syncs.remove(&token).filter(|sync| !self.lied_about.contains(&sync.0)) else {
            return;
        };
        if let Some(file) = self.files.get_mut(&node) {
            let bytes = &mut file.bytes;
            settle(&mut file.pending, number, |edit: &Edit| edit.apply(bytes, self.trace));
        }
        if let Some(folder) = self.folders.get_mut(&node) {
            let names = &mut folder.names;
            settle(&mut folder.pending, number, |entry: &Entry| entry.apply(names));
        }
    }

    /// Writes the disk below an empty folder as a power cut leaves it.
    pub fn cut(&self, to: &Path, survival: Survival, random: &mut SmallRng) {
        self.cut_folder(ROOT, to, survival, random);
    }

    fn cut_folder(&self, node: Node, to: &Path, survival: Survival, random: &mut SmallRng) {
        let folder = &self.folders[&node];
        let mut names = folder.names.clone();
        for pending in &folder.pending {
            if pending.kept.survives(survival.names, random) {
                pending.what.apply(&mut names);
            }
        }
        for (name, node) in names {
            let path = to.join(&name);
            if self.folders.contains_key(&node) {
                std::fs::create_dir(&path).expect("a folder");
                self.cut_folder(node, &path, survival, random);
            } else {
                std::fs::write(&path, self.cut_file(node, survival, random)).expect("writable");
            }
        }
    }

    fn cut_file(&self, node: Node, survival: Survival, random: &mut SmallRng) -> Vec<u8> {
        let file = &self.files[&node];
        let mut bytes = file.bytes.clone();
        let mut longest = bytes.len();
        for pending in &file.pending {
            match &pending.what {
                Edit::Write(at, data) if survival.torn && pending.kept != Kept::Lasting => {
                    longest = longest.max(*at as usize + data.len());
                    self.tear(&mut bytes, *at as usize, data, survival, random);
                }
                edit => {
                    if let Edit::Write(at, data) = edit {
                        longest = longest.max(*at as usize + data.len());
                    }
                    if pending.kept.survives(survival.writes, random) {
                        edit.apply(&mut bytes, self.trace);
                    }
                }
            }
        }
        if survival.grown {
            bytes.resize(longest.max(bytes.len()), 0);
        }
        bytes
    }

    /// Writes some of the sectors.
    fn tear(&self, bytes: &mut Vec<u8>, at: usize, data: &Range<usize>, survival: Survival, random: &mut SmallRng) {
        let data = &self.trace.bytes[data.clone()];
        let mut from = 0;
        while from < data.len() {
            let to = (((at + from) / SECTOR + 1) * SECTOR - at).min(data.len());
            if random.random_bool(survival.writes) {
                put(bytes, at + from, &data[from..to]);
            }
            from = to;
        }
    }

    /// Gives all files as the running process sees them, by path.
    pub fn now(&self) -> BTreeMap<String, Vec<u8>> {
        let mut found = BTreeMap::new();
        self.list(ROOT, "", &mut found);
        found
    }

    fn list(&self, node: Node, path: &str, found: &mut BTreeMap<String, Vec<u8>>) {
        for (name, node) in &self.folders[&node].now {
            let path = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
            if let Some(file) = self.files.get(node) {
                let mut bytes = file.bytes.clone();
                file.pending.iter().for_each(|p| p.what.apply(&mut bytes, self.trace));
                found.insert(path, bytes);
            } else {
                self.list(*node, &path, found);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    /// `a` written and synced with its name, then `b` written and renamed to `a` without any sync.
    fn trace() -> Trace {
        let bytes = b"oldnew".to_vec();
        let changes = vec![
            Change::Root(1),
            Change::Create("a".into(), 2),
            Change::Write(2, 0, 0..3),
            Change::SyncBegin(2, 7),
            Change::SyncEnd(7),
            Change::SyncBegin(1, 8),
            Change::SyncEnd(8),
            Change::Create("b".into(), 3),
            Change::Write(3, 0, 3..6),
            Change::Rename("b".into(), "a".into()),
        ];
        Trace { bytes, changes: changes.into_iter().map(|c| (c, 0)).collect() }
    }

    fn left(disk: &Disk<'_>, names: f64, writes: f64) -> BTreeMap<String, Vec<u8>> {
        let dir = tempfile::tempdir().expect("a folder");
        let survival = Survival { names, writes, torn: false, grown: false };
        disk.cut(dir.path(), survival, &mut SmallRng::seed_from_u64(1));
        let entries = std::fs::read_dir(dir.path()).expect("readable").map(|e| e.expect("readable").path());
        let name = |p: &Path| p.file_name().expect("a name").to_string_lossy().into_owned();
        entries.map(|p| (name(&p), std::fs::read(&p).expect("readable"))).collect()
    }

    fn files(of: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
        of.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec())).collect()
    }

    #[test]
    fn only_what_was_synced_is_sure() {
        let trace = trace();
        let mut disk = Disk::new(&trace);
        disk.advance(5);
        assert_eq!(left(&disk, 0.0, 0.0), files(&[]), "the name was not synced");
        disk.advance(7);
        assert_eq!(left(&disk, 0.0, 0.0), files(&[("a", "old")]));
        disk.advance(10);
        assert_eq!(left(&disk, 0.0, 0.0), files(&[("a", "old")]));
        assert_eq!(left(&disk, 1.0, 0.0), files(&[("a", "")]), "a rename before its bytes");
        assert_eq!(left(&disk, 1.0, 1.0), files(&[("a", "new")]));
        assert_eq!(disk.now(), files(&[("a", "new")]));
    }

    #[test]
    fn a_sync_that_failed_is_not_made_good_by_the_next() {
        let bytes = b"x".to_vec();
        let sync = |token| [Change::SyncBegin(1, token), Change::SyncEnd(token)];
        let mut changes = vec![Change::Root(1), Change::Create("a".into(), 2)];
        changes.extend(sync(1));
        changes.extend([Change::Write(2, 0, 0..1), Change::SyncFailed(2), Change::SyncBegin(2, 9), Change::SyncEnd(9)]);
        let trace = Trace { bytes, changes: changes.into_iter().map(|c| (c, 0)).collect() };
        let mut disk = Disk::new(&trace);
        disk.advance(trace.changes.len());
        assert_eq!(left(&disk, 0.0, 0.0), files(&[("a", "")]));
    }

    #[test]
    fn what_lasts_is_not_hidden_by_what_was_dropped_before() {
        let bytes = b"droppedlasting".to_vec();
        let changes = vec![
            Change::Root(1),
            Change::Create("a".into(), 2),
            Change::SyncBegin(1, 1),
            Change::SyncEnd(1),
            Change::Write(2, 0, 0..7),
            Change::SyncFailed(2),
            Change::Write(2, 0, 7..14),
            Change::SyncBegin(2, 2),
            Change::SyncEnd(2),
        ];
        let trace = Trace { bytes, changes: changes.into_iter().map(|c| (c, 0)).collect() };
        let mut disk = Disk::new(&trace);
        disk.advance(trace.changes.len());
        for writes in [0.0, 1.0] {
            assert_eq!(left(&disk, 0.0, writes), files(&[("a", "lasting")]));
        }
    }
}
