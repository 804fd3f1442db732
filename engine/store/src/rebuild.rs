//! Rebuilds a lost catalog from the store (`quiver catalog rebuild`): the last full list, the commits after it, then
//! the flushed generations above each writer's floor that are there as a whole.
//!
//! A generation counts when one flush of it has all its parts in the store or in the spool: the floor moves past it,
//! and its WAL goes at the next start. One that is incomplete is replayed from its WAL, as are all after it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use futures::TryStreamExt;
use futures::future::LocalBoxFuture;
use quiver_types::{Clock, SystemClock};
use uuid::Uuid;

use crate::catalog::{CommitObject, Rebuilt, Removal, WriterFloor};
use crate::consistency_check::list;
use crate::error::{Error, ErrorKind, Result, io_error};
use crate::identity;
use crate::layout::{CATALOG_PREFIX, commit_key, parse_commit_key, parse_part_key};
use crate::object::Storage;
use crate::offline::Offline;
use crate::part::{PartId, PartMeta, PartOrigin, Place};
use crate::settings::StoreSettings;
use crate::wal::segment;

/// What a rebuild found.
#[derive(Debug, Clone, Default)]
pub struct RebuildReport {
    /// The installation whose catalog was rebuilt.
    pub installation: Uuid,
    /// The last commit of which the store has the object.
    pub last_object: Option<u64>,
    /// Live parts, those adopted included.
    pub parts: usize,
    /// Parts of flushes whose commit object was not in the store yet.
    pub adopted: usize,
    /// Files that look like parts and belong to none that counts; `quiver store check` lists them again.
    pub unknown: Vec<String>,
}

impl fmt::Display for RebuildReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { installation, last_object, parts, adopted, unknown } = self;
        match last_object {
            Some(commit) => writeln!(f, "installation {installation}, up to commit {commit}")?,
            None => writeln!(f, "installation {installation}, without a commit")?,
        }
        list(f, "files of no part that counts (see `quiver store check`)", unknown)?;
        write!(f, "the catalog names {parts} parts again, {adopted} of them adopted from unfinished commits")
    }
}

/// Makes the catalog anew. The server must not run.
///
/// # Errors
/// [`ErrorKind::NotFound`] when the store holds nothing of an installation, [`ErrorKind::Internal`] when a commit
/// object is missing or damaged, [`ErrorKind::Conflict`] when the server runs.
pub async fn rebuild(settings: StoreSettings) -> Result<RebuildReport> {
    rebuild_with(settings, Arc::new(SystemClock), None).await
}

/// The same with a given clock and store.
///
/// # Errors
/// As [`rebuild`].
pub fn rebuild_with(
    settings: StoreSettings,
    clock: Arc<dyn Clock>,
    storage: Option<Storage>,
) -> LocalBoxFuture<'static, Result<RebuildReport>> {
    Box::pin(async move {
        let offline = Offline::open(&settings, clock, storage).await?;
        let report = run(&offline).await;
        offline.catalog.close().await;
        report
    })
}

async fn run(offline: &Offline) -> Result<RebuildReport> {
    let objects: BTreeMap<String, u64> = offline.storage.list("").await?.into_iter().collect();
    let mut state = State::read(offline, &objects).await?;
    // What was damaged in the spool when its commit was told may have come up later.
    for (_, part) in state.live.values_mut() {
        if part.place == Place::Spool && part.files.iter().all(|f| objects.get(&f.key) == Some(&f.bytes)) {
            part.place = Place::Store;
        }
    }
    let stored = identity::stored(&offline.storage).await?.map(|i| i.installation);
    let installation = match (stored, state.installation) {
        (Some(a), Some(b)) if a != b => {
            let text = format!("the store's identity is `{a}`, its commit objects are those of `{b}`");
            return Err(Error::new(ErrorKind::Conflict, text));
        }
        (Some(id), _) | (None, Some(id)) => id,
        (None, None) => {
            let text = format!("the store `{}` holds nothing of an installation", offline.storage.url());
            return Err(Error::new(ErrorKind::NotFound, text));
        }
    };
    let spool = offline.spool_files()?;
    let unnamed = OrphanParts::read(offline, &state, &objects, &spool).await?;
    let wal = wal_generations(offline)?;
    let adopted = adopt(&mut state, unnamed.flushed, &wal);
    let mut named: HashSet<&str> = HashSet::new();
    for part in state.live.values().map(|(_, p)| p).chain(adopted.iter()).chain(state.removed.iter().map(|r| &r.part)) {
        named.extend(part.files.iter().map(|f| f.key.as_str()));
    }
    let files = objects.keys().chain(spool.keys()).filter(|k| parse_part_key(k).is_some());
    let unknown: BTreeSet<String> = files.filter(|k| !named.contains(k.as_str())).cloned().collect();
    let report = RebuildReport {
        installation,
        last_object: state.commits.last().map(|(commit, _)| *commit),
        parts: state.live.len() + adopted.len(),
        adopted: adopted.len(),
        unknown: unknown.into_iter().collect(),
    };
    let spooled = |p: &PartMeta| p.files.iter().any(|f| spool.contains_key(&f.key));
    let rebuilt = Rebuilt {
        installation,
        commits: state.commits.clone(),
        live: state.live.values().map(|(added, p)| (*added, p.clone(), spooled(p))).collect(),
        removed: state.removed.iter().map(|r| Removal { spooled: spooled(&r.part), ..r.clone() }).collect(),
        adopted,
        floors: state.floors.iter().map(|(&writer, &floor)| WriterFloor { writer, floor }).collect(),
    };
    offline.catalog.replace(&rebuilt).await?;
    if stored.is_none() {
        identity::write(&offline.storage, installation).await?;
    }
    Ok(report)
}

/// Says what to do about a commit object without which the others cannot be read.
fn put_back(mut error: Error) -> Error {
    error.message.push_str("; put it back from a copy of the store, or restore a backup (`quiver restore`)");
    error
}

/// What the commit objects say together.
#[derive(Debug, Default)]
struct State {
    installation: Option<Uuid>,
    /// Numbers of all objects, ascending, and when they were committed.
    commits: Vec<(u64, i64)>,
    /// Live parts with the commit that added them, as far as it is known.
    live: BTreeMap<PartId, (u64, PartMeta)>,
    /// Removed parts, whose files may still be there.
    removed: Vec<Removal>,
    floors: BTreeMap<Uuid, u64>,
}

impl State {
    async fn read(offline: &Offline, objects: &BTreeMap<String, u64>) -> Result<Self> {
        let folder = format!("{CATALOG_PREFIX}/");
        let keys = objects.range(folder.clone()..).map(|(key, _)| key).take_while(|key| key.starts_with(&folder));
        let mut state = Self::default();
        let mut started = false;
        let mut previous = None;
        let mut broken = None;
        let mut read = offline.commit_objects(keys.filter_map(|key| parse_commit_key(key)).collect());
        while let Some((commit, body)) = read.try_next().await? {
            let key = commit_key(commit);
            let body = body.ok_or_else(|| Error::new(ErrorKind::Internal, format!("commit object `{key}` is gone")))?;
            let object = match CommitObject::parse(&key, &body) {
                Ok(object) => object,
                // Like one that is missing, it is not needed once there is a full list.
                Err(error) if error.kind == ErrorKind::Internal => {
                    tracing::warn!(%key, %error, "a commit object cannot be read");
                    broken = Some(error);
                    continue;
                }
                Err(error) => return Err(error),
            };
            if object.full {
                broken = None;
            }
            state.commits.push((commit, object.committed_ms));
            let follows = previous.is_none_or(|p| p + 1 == commit);
            previous = Some(commit);
            if !object.full && !started {
                continue;
            }
            if !object.full && !follows {
                let missing = commit_key(commit - 1);
                return Err(put_back(broken.unwrap_or_else(|| {
                    Error::internal(format!("commit object `{missing}` is missing, those after it cannot be read"))
                })));
            }
            started = true;
            state.apply(object);
        }
        if let Some(error) = broken {
            return Err(put_back(error));
        }
        if !state.commits.is_empty() && !started {
            let text = "the store has commit objects, but no full list among them: the first one is missing";
            return Err(put_back(Error::internal(text)));
        }
        Ok(state)
    }

    fn apply(&mut self, object: CommitObject) {
        let commit = object.commit;
        self.installation = Some(object.installation);
        // A full list names all that is live: what is new in it took the place of what went.
        let dropped = object.added.iter().all(|part| self.live.contains_key(&part.id));
        for id in &object.removed {
            let removed = self.live.remove(id);
            self.removed.extend(removed.map(|(_, part)| Removal { commit, part, spooled: false, dropped }));
        }
        if object.full {
            let before = std::mem::take(&mut self.live);
            self.floors.clear();
            let added = |p: &PartMeta| before.get(&p.id).map_or(commit, |(added, _)| *added);
            self.live = object.added.into_iter().map(|p| (p.id, (added(&p), p))).collect();
        } else {
            self.live.extend(object.added.into_iter().map(|p| (p.id, (commit, p))));
        }
        // Dropped, and brought back.
        self.removed.retain(|r| !self.live.contains_key(&r.part.id));
        self.floors.extend(object.writers.iter().map(|w| (w.writer, w.floor)));
    }

    fn knows(&self, id: PartId) -> bool {
        self.live.contains_key(&id) || self.removed.iter().any(|r| r.part.id == id)
    }
}

/// A flush of a generation: how many parts it has, and those that are there.
type Flushes = BTreeMap<Uuid, (u32, BTreeMap<u32, PartMeta>)>;

/// Whole parts that no commit object names, by writer, generation and flush.
#[derive(Debug, Default)]
struct OrphanParts {
    flushed: BTreeMap<(Uuid, u64), Flushes>,
}

impl OrphanParts {
    async fn read(
        offline: &Offline,
        state: &State,
        objects: &BTreeMap<String, u64>,
        spool: &BTreeMap<String, u64>,
    ) -> Result<Self> {
        let mut unnamed = Self::default();
        for (place, files) in [(Place::Store, objects), (Place::Spool, spool)] {
            for (key, bytes) in files {
                let Some(part_key) = parse_part_key(key) else { continue };
                let main = quiver_types::tables::table(&part_key.table).map(|t| t.files[0].kind);
                if main != Some(part_key.kind.as_str()) || state.knows(part_key.part) {
                    continue;
                }
                let meta = match PartMeta::read(&*offline.io, key, place, *bytes).await {
                    Ok(meta) => meta,
                    Err(e) if matches!(e.kind(), ErrorKind::Internal | ErrorKind::Damaged) => {
                        tracing::warn!(key, error = %e, "not the main file of a whole part");
                        continue;
                    }
                    Err(e) => return Err(e),
                };
                let whole = meta.files.iter().all(|f| files.get(&f.key) == Some(&f.bytes));
                if let PartOrigin::Flushed { writer, generation, flush_id, output, outputs } = meta.origin
                    && whole
                    && meta.id == part_key.part
                {
                    let flush = unnamed.flushed.entry((writer, generation)).or_default().entry(flush_id);
                    // A part that is both in the store and in the spool counts as stored.
                    flush.or_insert_with(|| (outputs, BTreeMap::new())).1.entry(output).or_insert(meta);
                }
            }
        }
        Ok(unnamed)
    }
}

fn wal_generations(offline: &Offline) -> Result<HashMap<Uuid, BTreeSet<u64>>> {
    let dir = offline.dir.wal();
    let error = |e| io_error(format!("cannot list `{}`", dir.display()), e);
    let mut found: HashMap<Uuid, BTreeSet<u64>> = HashMap::new();
    for entry in std::fs::read_dir(&dir).map_err(error)? {
        if let Some((id, _)) = segment::parse_file_name(&entry.map_err(error)?.path()) {
            found.entry(id.writer).or_default().insert(id.number);
        }
    }
    Ok(found)
}

/// Takes the generations above the floors that are there as a whole, in order, and moves the floors.
fn adopt(
    state: &mut State,
    mut flushed: BTreeMap<(Uuid, u64), Flushes>,
    wal: &HashMap<Uuid, BTreeSet<u64>>,
) -> Vec<PartMeta> {
    let mut adopted = Vec::new();
    let writers: BTreeSet<Uuid> = flushed.keys().map(|(w, _)| *w).chain(wal.keys().copied()).collect();
    for writer in writers {
        let floor = state.floors.get(&writer).copied().unwrap_or(0);
        let in_wal = wal.get(&writer);
        let mut numbers: BTreeSet<u64> =
            flushed.range((writer, floor)..=(writer, u64::MAX)).map(|(k, _)| k.1).collect();
        numbers.extend(in_wal.into_iter().flatten().filter(|&&g| g >= floor));
        for number in numbers {
            let flushes = flushed.remove(&(writer, number)).unwrap_or_default();
            let whole = flushes.into_values().find(|(outputs, parts)| parts.len() as u32 == *outputs);
            match whole {
                Some((_, parts)) => {
                    adopted.extend(parts.into_values());
                    state.floors.insert(writer, number + 1);
                }
                None if in_wal.is_some_and(|g| g.contains(&number)) => break,
                // Neither whole nor in the WAL: it never held anything that was acknowledged, or is lost; what comes
                // after it is not in the WAL either.
                None => {}
            }
        }
    }
    adopted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(commit: u64, full: bool) -> String {
        format!(
            "{{\"format\":1,\"installation\":\"{}\",\"commit\":{commit},\"committed_ms\":1,\"full\":{full},\"added\":[],\
             \"removed\":[],\"writers\":[]}}",
            Uuid::from_u128(1)
        )
    }

    /// The last commit that a rebuild finds in a store with some commit objects.
    async fn last_of(objects: &[(u64, &str)]) -> Result<Option<u64>> {
        let dir = tempfile::tempdir().unwrap();
        for (commit, body) in objects {
            let path = dir.path().join("store").join(commit_key(*commit));
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, body).unwrap();
        }
        let settings = StoreSettings { data_dir: dir.path().to_owned(), ..StoreSettings::default() };
        Box::pin(rebuild(settings)).await.map(|report| report.last_object)
    }

    /// Breaks if one damaged object of long ago makes a catalog unrecoverable, or if it is passed over although the
    /// next ones cannot do without it.
    #[tokio::test]
    async fn damaged_objects() {
        let [zero, one, two, two_full] = [object(0, true), object(1, false), object(2, false), object(2, true)];
        assert_eq!(last_of(&[(0, &*zero), (1, &*one), (2, &*two)]).await.unwrap(), Some(2));
        assert_eq!(last_of(&[(0, &*zero), (1, "{"), (2, &*two_full)]).await.unwrap(), Some(2));
        assert_eq!(last_of(&[(0, ""), (1, &*one), (2, &*two_full)]).await.unwrap(), Some(2));
        for (objects, expected) in [
            (&[(0, &*zero), (1, "{"), (2, &*two)][..], "`_catalog/000000000001.json` is damaged; put it back"),
            (&[(0, &*zero), (1, &*one), (2, "")], "`_catalog/000000000002.json` is damaged; put it back"),
            (&[(0, "\0"), (1, &*one)], "`_catalog/000000000000.json` is damaged; put it back"),
            (
                &[(0, &*zero), (2, &*two)],
                "`_catalog/000000000001.json` is missing, those after it cannot be read; put it back",
            ),
            (&[(1, &*one)], "no full list among them: the first one is missing; put it back"),
        ] {
            let told = last_of(objects).await.unwrap_err();
            assert!(told.message.contains(expected) && told.message.contains("quiver restore"), "{told}");
        }
    }
}
