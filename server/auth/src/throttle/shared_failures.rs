//! Shares failed logins between servers on one database, so that guessing on each server in turn is no faster than
//! guessing on one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;
use quiver_database::{Database, Error, statement};

use super::{ACCOUNT_MS, Failures, REMEMBERED, sum};

/// Most news written at once.
const AT_ONCE: usize = 500;

/// News about an account or network.
#[derive(Debug, Clone, Copy, Default)]
struct News {
    /// When a login succeeded: earlier failures are forgotten.
    succeeded_ms: Option<i64>,
    /// Failures since then.
    failed: Option<Failures>,
}

/// News for other servers, and failures that they saw.
#[derive(Debug, Default)]
pub(super) struct SharedFailures {
    /// Whether there may be other servers. If nobody reads the news, none are kept.
    is_shared: AtomicBool,
    news: Mutex<HashMap<String, News>>,
    others: Mutex<HashMap<String, Failures>>,
}

/// A row of the table.
struct Heard {
    place: String,
    server: String,
    failures: Failures,
}

impl SharedFailures {
    /// Failures of an account or network on other servers.
    pub(super) fn by_others(&self, place: &str) -> Option<Failures> {
        if self.is_shared.load(Relaxed) { self.others.lock().get(place).copied() } else { None }
    }

    /// Notes failures for the other servers.
    pub(super) fn failed(&self, place: &str, failures: Failures) {
        self.note(place, |news| news.failed = Some(failures));
    }

    /// Notes a success for the other servers, if there were failures before (`failed`).
    pub(super) fn succeeded(&self, place: &str, failed: bool, now_ms: i64) {
        // Most accounts have no failures, and there is nothing to forget.
        if self.others.lock().remove(place).is_some() || failed {
            self.note(place, |news| *news = News { succeeded_ms: Some(now_ms), failed: None });
        }
    }

    fn note(&self, place: &str, change: impl FnOnce(&mut News)) {
        if !self.is_shared.load(Relaxed) {
            return;
        }
        let mut all = self.news.lock();
        if all.len() < REMEMBERED || all.contains_key(place) {
            change(all.entry(place.to_owned()).or_default());
        }
    }

    fn take_one(&self) -> Option<(String, News)> {
        let mut news = self.news.lock();
        let place = news.keys().next().cloned()?;
        news.remove_entry(&place)
    }

    /// Writes the news and reads those of other servers. Returns the accounts that succeeded elsewhere, with the
    /// times.
    pub(super) async fn exchange(
        &self,
        database: &Database,
        server: &str,
        now_ms: i64,
    ) -> Result<HashMap<String, i64>, Error> {
        self.is_shared.store(true, Relaxed);
        let mut told = 0;
        while told < AT_ONCE
            && let Some((place, news)) = self.take_one()
        {
            if let Err(error) = tell(database, server, &place, news).await {
                // News noted meanwhile are newer.
                self.news.lock().entry(place).or_insert(news);
                return Err(error);
            }
            told += 1;
        }
        // Times far in the future come from a clock that was wrong.
        let (since_ms, until_ms) = (now_ms - ACCOUNT_MS, now_ms + ACCOUNT_MS);
        if told > 0 {
            let sql = "DELETE FROM failure WHERE last_ms < ? OR last_ms > ?";
            statement(sql).bind(since_ms).bind(until_ms).execute(database).await?;
        }
        let rows = read(database, server, since_ms, until_ms).await?;
        let (successes, failures): (Vec<Heard>, Vec<Heard>) = rows.into_iter().partition(|row| row.server.is_empty());
        let successes: HashMap<String, i64> =
            successes.into_iter().map(|row| (row.place, row.failures.last_ms)).collect();
        let mut others: HashMap<String, Failures> = HashMap::new();
        for row in failures {
            if successes.get(&row.place).is_none_or(|at| row.failures.last_ms > *at) {
                let seen = others.get(&row.place).map_or(row.failures, |seen| sum(*seen, row.failures));
                others.insert(row.place, seen);
            }
        }
        *self.others.lock() = others;
        Ok(successes)
    }
}

async fn tell(database: &Database, server: &str, place: &str, news: News) -> Result<(), Error> {
    if let Some(at) = news.succeeded_ms {
        let sql = "DELETE FROM failure WHERE place = ? AND server <> '' AND last_ms <= ?";
        statement(sql).bind(place).bind(at).execute(database).await?;
        write(database, "", place, Failures { count: 0, first_ms: at, last_ms: at }).await?;
    }
    match news.failed {
        Some(failures) => write(database, server, place, failures).await,
        None => Ok(()),
    }
}

async fn write(database: &Database, server: &str, place: &str, failures: Failures) -> Result<(), Error> {
    let sql = "INSERT INTO failure (place, server, number, first_ms, last_ms) VALUES (?, ?, ?, ?, ?) \
        ON CONFLICT (place, server) DO UPDATE SET number = excluded.number, first_ms = excluded.first_ms, \
        last_ms = excluded.last_ms";
    let row = statement(sql).bind(place).bind(server).bind(i64::from(failures.count));
    row.bind(failures.first_ms).bind(failures.last_ms).execute(database).await?;
    Ok(())
}

/// The newest rows of other servers.
async fn read(database: &Database, server: &str, since_ms: i64, until_ms: i64) -> Result<Vec<Heard>, Error> {
    let sql = "SELECT place, server, number, first_ms, last_ms FROM failure WHERE server <> ? AND last_ms >= ? \
        AND last_ms <= ? ORDER BY last_ms DESC LIMIT ?";
    let rows = statement(sql).bind(server).bind(since_ms).bind(until_ms);
    let rows = rows.bind(REMEMBERED as i64).fetch_all(database).await?;
    let mut read = Vec::with_capacity(rows.len());
    for row in rows {
        let count = row.try_get::<i64>(2)?.clamp(0, i64::from(u32::MAX)) as u32;
        let failures = Failures { count, first_ms: row.try_get(3)?, last_ms: row.try_get(4)? };
        read.push(Heard { place: row.try_get(0)?, server: row.try_get(1)?, failures });
    }
    Ok(read)
}
