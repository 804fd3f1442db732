//! Decides which backups are kept at a place, and deletes the others.
//!
//! After a complete backup, older ones beyond the configured number can be deleted. If damaged parts are missing from a
//! backup, older backups may hold an undamaged copy, as the same part or as the parts that it was merged from. So for
//! each missing part, the newest backup that contains it is kept too. Backups between these two need not be kept: they
//! lack that part as well. Otherwise a single damaged part would keep all backups for ever.

use std::collections::BTreeSet;

use super::keys::{self, backup_of};
use super::manifest::Manifest;
use crate::error::Result;
use crate::layout::parse_part_key;
use crate::object::Storage;
use crate::part::PartId;

/// The lacking parts of which no good backup has been met yet, while backups are visited from the newest to the oldest.
struct Search {
    open: BTreeSet<PartId>,
    found: BTreeSet<PartId>,
}

impl Search {
    /// A search for what the newest backup lacks.
    fn new(newest: &Manifest) -> Self {
        Self { open: newest.lacking.iter().flatten().copied().collect(), found: BTreeSet::new() }
    }

    fn is_over(&self) -> bool {
        self.open.is_empty()
    }

    /// Visits the next older backup, and says whether it has to stay because of what newer ones lack.
    fn needs(&mut self, older: &Manifest) -> bool {
        let holds: BTreeSet<PartId> = older.parts.iter().map(|part| part.id).collect();
        let good: Vec<PartId> = match &older.lacking {
            Some(lacking) => self.open.iter().filter(|id| !lacking.contains(*id)).copied().collect(),
            // Of one that does not say what it lacks, only what it holds is known.
            None => self.open.iter().filter(|id| holds.contains(*id)).copied().collect(),
        };
        let unsure = older.lacking.is_none() && good.len() < self.open.len();
        for id in &good {
            self.open.remove(id);
            self.found.insert(*id);
        }
        if good.is_empty() {
            return unsure;
        }
        // It takes the place of older ones for these parts, so what it lacks itself has to come from them.
        let lacks = older.lacking.iter().flatten().filter(|id| !self.found.contains(*id));
        self.open.extend(lacks.copied());
        true
    }
}

/// Deletes all backups but the newest `keep` and those that may hold what the newest lacks, and the files that none of
/// those that stay names. Gives the number of deleted files.
pub(super) async fn prune(to: &Storage, names: &BTreeSet<String>, keep: usize, newest: &Manifest) -> Result<usize> {
    let mut files: BTreeSet<String> = newest.files.keys().cloned().collect();
    let mut search = Search::new(newest);
    let mut stay: BTreeSet<&str> = names.last().map(String::as_str).into_iter().collect();
    let mut old = Vec::new();
    for (age, name) in names.iter().rev().enumerate().skip(1) {
        if age >= keep && search.is_over() {
            old.push(name);
            continue;
        }
        let manifest = Manifest::read(to, name).await?;
        let needed = search.needs(&manifest);
        if age < keep || needed {
            files.extend(manifest.files.into_keys());
            stay.insert(name);
        } else {
            old.push(name);
        }
    }
    if stay.len() > keep {
        tracing::warn!(backups = stay.len(), "older backups stay, since they may hold what is damaged now");
    }
    to.delete(&old.iter().map(|name| keys::of_manifest(name)).collect::<Vec<_>>()).await?;
    let there = to.list("").await?.into_iter().map(|(key, _)| key);
    let is_of_none = |key: &String| match backup_of(key) {
        Some(backup) => !stay.contains(backup),
        None => parse_part_key(key).is_some() && !files.contains(key),
    };
    let gone: Vec<_> = there.filter(is_of_none).collect();
    to.delete(&gone).await?;
    Ok(gone.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backup::testing::{manifest_of, part};

    fn id(n: u128) -> PartId {
        PartId::from_u128(n)
    }

    fn ids(numbers: &[u128]) -> BTreeSet<PartId> {
        numbers.iter().map(|n| id(*n)).collect()
    }

    /// Makes a backup of parts that lacks others. `None`: it does not say which.
    fn backup(parts: &[u128], lacking: Option<&[u128]>) -> Manifest {
        let parts = parts.iter().map(|n| part(id(*n), Vec::new())).collect();
        Manifest { lacking: lacking.map(ids), ..manifest_of(parts) }
    }

    /// Gives the backups that are needed beside the newest; all are given from the newest to the oldest.
    fn needed(backups: &[Manifest]) -> Vec<usize> {
        let mut search = Search::new(&backups[0]);
        let older = backups.iter().enumerate().skip(1);
        older.filter(|(_, older)| !search.is_over() && search.needs(older)).map(|(age, _)| age).collect()
    }

    #[test]
    fn of_what_is_whole_no_older_one_is_needed() {
        assert_eq!(needed(&[backup(&[1], Some(&[])), backup(&[], Some(&[1])), backup(&[1], Some(&[]))]), [0; 0]);
        assert_eq!(needed(&[backup(&[1], Some(&[])), backup(&[], None)]), [0; 0]);
        assert_eq!(needed(&[backup(&[1], Some(&[2]))]), [0; 0], "there is no other");
    }

    /// Breaks if a single damaged part keeps all backups for ever.
    #[test]
    fn those_that_lack_the_same_may_go() {
        let (good, lacks) = (backup(&[1, 2], Some(&[])), || backup(&[2], Some(&[3])));
        assert_eq!(needed(&[lacks(), good.clone(), good.clone()]), [1]);
        assert_eq!(needed(&[lacks(), lacks(), lacks(), good.clone(), good]), [3]);
    }

    #[test]
    fn each_part_has_its_own_good_one() {
        let whole = backup(&[1, 2], Some(&[]));
        let [first, second] = [backup(&[2], Some(&[1])), backup(&[], Some(&[1, 2]))];
        let all = [second.clone(), second, first.clone(), first, whole.clone(), whole];
        assert_eq!(needed(&all), [2, 4]);
    }

    /// Breaks if what the good one lacks itself goes with an older one.
    #[test]
    fn what_the_good_one_lacks_comes_from_before() {
        let merged = backup(&[], Some(&[9]));
        let before = backup(&[2], Some(&[1]));
        let whole = backup(&[1, 2], Some(&[]));
        assert_eq!(needed(&[merged.clone(), before, whole.clone(), whole.clone()]), [1, 2]);
        // A part that was damaged only for a while is not searched for again.
        let later = backup(&[1], Some(&[2]));
        let all = [backup(&[], Some(&[1, 2])), later, backup(&[2], Some(&[1])), whole.clone(), merged];
        assert_eq!(needed(&all), [1, 2]);
    }

    #[test]
    fn one_that_does_not_say_what_it_lacks_is_trusted_with_what_it_holds() {
        let lacks = || backup(&[], Some(&[1]));
        assert_eq!(needed(&[lacks(), backup(&[1], None), backup(&[1], None)]), [1]);
        // It may hold what part 1 was made of, or lack that.
        assert_eq!(needed(&[lacks(), backup(&[2], None), backup(&[2], Some(&[])), backup(&[2], None)]), [1, 2]);
    }
}
