//! Merges several resources into one: references to any of them become references to the one that stays.

use futures::future::BoxFuture;
use quiver_database::statement;
use quiver_types::ChangeMode;
use serde_json::{Value, json};

use crate::change::{Condition, Op, ReadOnlyPolicy, System, Work};
use crate::config::{Config, next_revision};
use crate::entity::find;
use crate::entity_place::Place;
use crate::families::body::text;
use crate::families::{RELATIONSHIPS, RESOURCES};
use crate::family::Caller;
use crate::migrations;
use crate::problem::{Problem, Result};

impl Config {
    /// Moves the relationships of some resources to another one, and deletes them. Gives how many moved, and how many went
    /// because they would have stood twice or led to themselves. All or nothing.
    ///
    /// # Errors
    /// Those of each change; what is refused leaves an audit row.
    pub fn merge_resources<'a>(
        &'a self,
        caller: &'a Caller,
        into: &'a str,
        from: &'a [String],
        mode: ChangeMode,
    ) -> BoxFuture<'a, Result<(usize, usize)>> {
        Box::pin(async move {
            let mut result = self.try_merge(caller, into, from, mode).await;
            if let (Err(problem), false) = (&mut result, mode.is_dry_run()) {
                self.audit_refused(&RESOURCES, caller, "UPDATE", Some(into), problem).await;
            }
            result
        })
    }

    async fn try_merge(
        &self,
        caller: &Caller,
        into: &str,
        from: &[String],
        mode: ChangeMode,
    ) -> Result<(usize, usize)> {
        let (resources, relationships) = (Place::of(&RESOURCES), Place::of(&RELATIONSHIPS));
        let mut tx = migrations::begin(&self.pool).await?;
        let now_ms = self.clock.now_ms();
        let (mut moved, mut folded) = (0, 0);
        for id in from {
            let sql = "SELECT id FROM entity_link WHERE family = ? AND to_family = ? AND to_id = ? ORDER BY id";
            let rows = statement(sql).bind(RELATIONSHIPS.name).bind(RESOURCES.name).bind(id);
            let named: Vec<String> =
                rows.fetch_all(&mut *tx).await?.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
            for relationship in named {
                let Some(entity) = find(&mut tx, RELATIONSHIPS.name, &relationship).await? else { continue };
                let end = |key: &str| match text(&entity.body, key) {
                    end if end == id => into.to_owned(),
                    other => other.to_owned(),
                };
                let (source, target) = (end("sourceId"), end("targetId"));
                let key = json!([text(&entity.body, "typeId"), source, target]).to_string();
                let sql = "SELECT count(*) FROM entity_key WHERE family = ? AND owner = ? AND fields = ? AND value = ?";
                let taken = statement(sql).bind(RELATIONSHIPS.name).bind("").bind("typeId,sourceId,targetId").bind(key);
                let taken: i64 = taken.fetch_one(&mut *tx).await?.try_get(0)?;
                let folds = source == target || taken > 0;
                let op = if folds {
                    Op::Delete { id: relationship, condition: Condition::None }
                } else {
                    let patch = [("sourceId".to_owned(), json!(source)), ("targetId".to_owned(), json!(target))];
                    Op::Patch { id: relationship, patch: patch.into_iter().collect(), condition: Condition::None }
                };
                let mut work =
                    Work { config: self, db: &mut tx, caller, now_ms, reading: ReadOnlyPolicy::Strict, named: None };
                work.apply(&relationships, op, System::default()).await?;
                *(if folds { &mut folded } else { &mut moved }) += 1;
            }
            self.widen_seen(&mut tx, caller, into, id, now_ms).await?;
            let mut work =
                Work { config: self, db: &mut tx, caller, now_ms, reading: ReadOnlyPolicy::Strict, named: None };
            work.apply(&resources, Op::Delete { id: id.clone(), condition: Condition::None }, System::default())
                .await?;
        }
        if mode.is_dry_run() {
            tx.rollback().await?;
            return Ok((moved, folded));
        }
        let revision = next_revision(&mut tx).await?;
        tx.commit().await?;
        self.tell(Some(revision));
        Ok((moved, folded))
    }

    /// The one that stays was seen when any of them was.
    async fn widen_seen(
        &self,
        tx: &mut quiver_database::WriteTransaction,
        caller: &Caller,
        into: &str,
        from: &str,
        now_ms: i64,
    ) -> Result<()> {
        let (Some(kept), Some(gone)) = (find(tx, RESOURCES.name, into).await?, find(tx, RESOURCES.name, from).await?)
        else {
            return Err(Problem::not_found(from));
        };
        let time = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        let both = |key: &str| [time(kept.body.get(key)), time(gone.body.get(key))].into_iter().flatten();
        let mut system = System::default();
        for (key, value) in [("firstSeen", both("firstSeen").min()), ("lastSeen", both("lastSeen").max())] {
            system.body.extend(value.map(|value| (key.to_owned(), json!(value))));
        }
        let op = Op::Patch { id: into.to_owned(), patch: serde_json::Map::new(), condition: Condition::None };
        let mut work = Work { config: self, db: tx, caller, now_ms, reading: ReadOnlyPolicy::Strict, named: None };
        work.apply(&Place::of(&RESOURCES), op, system).await?;
        Ok(())
    }
}
