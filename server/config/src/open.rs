//! Opens a configuration: creates its tables and built-in entities, and adds what older servers did not write.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use futures::future::BoxFuture;
use quiver_database::Database;
use quiver_types::{Clock, Random, Vault};
use tokio::sync::watch;

use crate::config::{Config, next_revision, numbers};
use crate::families::FAMILIES;
use crate::idempotency::forget_lost;
use crate::migrations;
use crate::problem::Result;
use crate::server_checks::{NoChecks, Sealer};

impl Config {
    /// Opens the tables of configuration, and puts in what is built in.
    ///
    /// # Errors
    /// `STORE_BUSY`, `INTERNAL`.
    pub fn open(
        pool: Database,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        vault: Arc<dyn Vault>,
        sealer: Arc<dyn Sealer>,
    ) -> BoxFuture<'static, Result<Self>> {
        Box::pin(async move {
            migrations::migrate_own(&pool, clock.now_ms()).await?;
            forget_lost(&pool).await?;
            let (number, noted) = numbers(&pool).await?;
            let revision = Arc::new(watch::Sender::new(number));
            let config = Self {
                pool,
                clock,
                random,
                vault,
                sealer,
                checks: Arc::new(NoChecks),
                revision,
                noted: Arc::new(AtomicU64::new(noted)),
                lists: Arc::default(),
                memory_bytes: u64::MAX,
                lost_ms: Arc::default(),
                jobs: Arc::default(),
                last_id: Arc::default(),
            };
            config.fill_sort_texts().await?;
            config.fill_values().await?;
            config.put_builtin().await?;
            Ok(config)
        })
    }

    async fn put_builtin(&self) -> Result<()> {
        let mut tx = migrations::begin(&self.pool).await?;
        let mut changed = false;
        for family in FAMILIES {
            for (id, body) in (family.builtin)() {
                changed |= self.put_one_builtin(&mut tx, family, id, body).await?;
            }
        }
        // Servers that run over this database already are told; in a new one there is nothing else yet that they know.
        let told = changed && self.revision() > 0;
        let revision = if told { Some(next_revision(&mut tx).await?) } else { None };
        tx.commit().await?;
        self.tell(revision);
        Ok(())
    }
}
