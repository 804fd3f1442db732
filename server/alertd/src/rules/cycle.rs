//! One evaluation cycle of a group: its rules in order, or several in parallel if the group asks for it and evaluation
//! slots are free.

use std::sync::Arc;

use quiver_alerting::rules::Group;
use quiver_types::Millis;
use tokio::task::{JoinError, JoinHandle, spawn_blocking};

use super::group::GroupContext;
use super::runner::Runner;

/// Most rules of a group at once.
const AT_ONCE_MAX: usize = 16;

async fn done<T>(task: JoinHandle<T>, asker: &GroupContext) -> Option<T> {
    let told = |error: JoinError| {
        tracing::error!(%error, file = asker.file, group = asker.group, "a rule group met a fault of ours");
    };
    task.await.map_err(told).ok()
}

impl Runner {
    /// Evaluates all rules; none: an evaluation met a fault of ours.
    pub(super) async fn cycle(&self, mut group: Group, at: Millis, asker: &GroupContext) -> Option<Group> {
        let (engine, settings) = (self.engines.engine(asker), Arc::clone(&self.settings));
        let wanted = group.model.concurrency.unwrap_or(1).min(AT_ONCE_MAX).min(group.rules.len());
        // The group has a place; the rules beside the first one take what nobody else needs now.
        let places = || Arc::clone(&self.places).try_acquire_owned().ok();
        let more: Vec<_> = (1..wanted).map_while(|_| places()).collect();
        if more.is_empty() {
            let evaluated = spawn_blocking(move || {
                group.evaluate(at, &settings.setting, &*engine);
                group
            });
            return done(evaluated, asker).await;
        }
        let begun = Arc::clone(&engine);
        let cycle = Arc::new(done(spawn_blocking(move || group.begin(at, &*begun)), asker).await?);
        let work = |_| {
            let (cycle, engine, settings) = (Arc::clone(&cycle), Arc::clone(&engine), Arc::clone(&settings));
            spawn_blocking(move || cycle.evaluate_rules(&settings.setting, &*engine))
        };
        let workers: Vec<_> = (0..=more.len()).map(work).collect();
        for worker in workers {
            // What became of its rule is known at the end.
            let _ = done(worker, asker).await;
        }
        let cycle = Arc::into_inner(cycle)?;
        done(spawn_blocking(move || cycle.finish(&*engine)), asker).await?
    }
}
