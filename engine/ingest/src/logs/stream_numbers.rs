//! Numbers the streams and services of a batch. The last one is tried first, since it is the likeliest.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use quiver_types::LogsBatch;

/// Finds streams by their canonical labels.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    table: HashTable<u32>,
    last: Option<u32>,
    hasher: RandomState,
}

impl Streams {
    pub(crate) fn clear(&mut self) {
        self.table.clear();
        self.last = None;
    }

    /// The number of a stream in the batch.
    pub(crate) fn find(&mut self, labels: &[u8], batch: &mut LogsBatch) -> u32 {
        if let Some(last) = self.last
            && batch.labels(last) == labels
        {
            return last;
        }
        let hash = self.hasher.hash_one(labels);
        let found = self.table.find(hash, |&n| batch.labels(n) == labels).copied();
        let number = found.unwrap_or_else(|| {
            let number = batch.push_stream(labels);
            self.table.insert_unique(hash, number, |&n| self.hasher.hash_one(batch.labels(n)));
            number
        });
        self.last = Some(number);
        number
    }
}

/// Finds services by their name.
#[derive(Debug, Default)]
pub(crate) struct Services {
    table: HashTable<u32>,
    last: Option<u32>,
    hasher: RandomState,
}

impl Services {
    pub(crate) fn clear(&mut self) {
        self.table.clear();
        self.last = None;
    }

    /// The number of a service in the batch.
    pub(crate) fn find(&mut self, name: &[u8], services: &mut Vec<Arc<str>>) -> u32 {
        if let Some(last) = self.last
            && services[last as usize].as_bytes() == name
        {
            return last;
        }
        let hash = self.hasher.hash_one(name);
        let found = self.table.find(hash, |&n| services[n as usize].as_bytes() == name).copied();
        let number = found.unwrap_or_else(|| {
            let number = services.len() as u32;
            services.push(String::from_utf8_lossy(name).into());
            self.table.insert_unique(hash, number, |&n| self.hasher.hash_one(services[n as usize].as_bytes()));
            number
        });
        self.last = Some(number);
        number
    }
}
