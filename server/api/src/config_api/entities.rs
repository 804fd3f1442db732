//! Operations on single entities of any family: list, show, create, change, delete, restore.

use http::{Method, header};
use quiver_config::families::ROUTES;
use quiver_config::{ChangeOutcome, ListQuery, Op, Problem, Result, System};
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;

use super::family_operation::OperationKind;
use super::list_body::ListBody;
use super::request::{Ask, NOT_OF_EXPORTS, NOT_OF_IMPORTS};
use super::response::Answer;
use super::{account_effects, path_ids, policy, warnings};

/// How many lists are made at once: the entities of a page take several times its text.
static LISTED: Semaphore = Semaphore::const_new(4);

impl Ask {
    /// Runs an operation of a family.
    pub(super) async fn run(&self, what: OperationKind, id: &str) -> Result<Answer> {
        self.no_unknown_parameters(what)?;
        if self.method.is_safe() {
            self.config.owner_exists(&self.place).await?;
        }
        match (what, self.method.as_str()) {
            (OperationKind::Collection, "GET" | "HEAD") => self.list().await,
            (OperationKind::Collection, "POST") => self.create().await,
            (OperationKind::Collection, "DELETE") => self.delete_by_ids().await,
            (OperationKind::Collection, _) => self.put_collection().await,
            (OperationKind::Entity, "GET" | "HEAD") => self.entity(id).await,
            (OperationKind::Entity, "DELETE") if self.place.family.name == ROUTES.name => {
                policy::delete_route(self, id).await
            }
            (OperationKind::Entity, "DELETE") => self.delete(id).await,
            (OperationKind::Entity, "PATCH") => self.patch(id, self.object()?).await,
            (OperationKind::Entity, _) => self.replace(id, self.object()?).await,
            (OperationKind::History, _) => {
                let history = self.config.history(&self.place, id, &self.caller).await?;
                Ok(Answer::ok(history))
            }
            (OperationKind::Restore, _) => self.restore(id).await,
            (OperationKind::BulkDelete, _) => self.bulk_delete().await,
            (OperationKind::BulkUpdate, _) => self.bulk_update().await,
            (OperationKind::Export, _) => self.export().await,
            (OperationKind::Import, _) => self.import().await,
            (OperationKind::Order, _) => self.order().await,
        }
    }

    /// A change with an unknown parameter is refused: with a misspelt `dryRun` it would take effect.
    fn no_unknown_parameters(&self, what: OperationKind) -> Result<()> {
        match what {
            OperationKind::Collection if self.method.is_safe() => Ok(()),
            OperationKind::Entity if self.method.is_safe() => self.only_parameters(&["fields"]),
            OperationKind::Collection if self.method == Method::DELETE => self.only_parameters(&["ids"]),
            OperationKind::Entity if self.method == Method::DELETE && self.place.family.name == ROUTES.name => {
                self.only_parameters(&["children"])
            }
            OperationKind::Export => self.no_parameters(&NOT_OF_EXPORTS),
            OperationKind::Import => self.no_parameters(&NOT_OF_IMPORTS),
            _ => self.only_parameters(&[]),
        }
    }

    /// Makes a change, and lets it take effect before the response.
    pub(crate) async fn change(&self, op: Op, system: System) -> Result<ChangeOutcome> {
        let done = match self.config.change(&self.place, &self.caller, op, system, self.mode).await {
            Err(problem) if problem.more.contains_key("current") => return Err(self.with_present(problem).await),
            done => done?,
        };
        if !self.mode.is_dry_run() && done.changed {
            self.acts().await;
            account_effects::after(self, &done).await;
        }
        Ok(done)
    }

    /// Adds the present entity to a conflict, as a read shows it: including fields derived from other entities.
    async fn with_present(&self, problem: Problem) -> Problem {
        let id = problem.more["current"]["id"].as_str().unwrap_or_default().to_owned();
        let Ok(present) = self.config.get(&self.place, &id, &self.caller).await else { return problem };
        match self.config.shown(self.place.family, &present).await {
            Ok(shown) => problem.with("current", Value::Object(shown)).with("etag", json!(present.etag())),
            Err(_) => problem,
        }
    }

    /// Lets changes take effect for the next request.
    pub(crate) async fn acts(&self) {
        if let Some(identities) = &self.state.identities
            && let Err(problem) = identities.refresh().await
        {
            tracing::warn!(cause = problem.cause, "accounts cannot be read after a change; trying again");
        }
        if let Err(problem) = self.state.effects.refresh(&self.config).await {
            tracing::warn!(cause = problem.cause, "rules cannot be read after a change; trying again");
        }
    }

    async fn list(&self) -> Result<Answer> {
        let query = ListQuery::parse(self.place.family, &self.parameters, &[])?;
        // Released when the text is made and counted.
        let _turn = LISTED.acquire().await;
        let page = self.config.list(&self.place, &query, &self.caller).await?;
        let listed = ListBody::of(page, &self.state.capacity.bodies).await?;
        Ok(Answer { listed: Some(listed), ..Answer::ok(Value::Null) })
    }

    async fn entity(&self, id: &str) -> Result<Answer> {
        let query = ListQuery::parse(self.place.family, &self.parameters, &[])?;
        let entity = self.config.get(&self.place, id, &self.caller).await?;
        let etag = Some(entity.etag());
        if self.knows(&entity.etag()) {
            return Ok(Answer { status: 304, etag, ..Answer::ok(Value::Null) });
        }
        let shown = self.config.shown(self.place.family, &entity).await?;
        Ok(Answer { etag, ..Answer::ok(Value::Object(query.cut(shown))) })
    }

    async fn create(&self) -> Result<Answer> {
        let made = account_effects::made(self);
        let done = self.change(Op::Create { id: None, body: self.object()? }, made.system).await?;
        self.created(&done, made.shown).await
    }

    async fn created(&self, done: &ChangeOutcome, shown: Vec<(&'static str, String)>) -> Result<Answer> {
        let mut answer = self.present(done, 201).await?;
        if let Value::Object(body) = &mut answer.body {
            let id = body.get("id").and_then(Value::as_str).unwrap_or_default();
            let path = self.path.trim_end_matches('/');
            // The path may contain the id in upper case.
            let named = path.rsplit_once('/').filter(|(_, last)| last.eq_ignore_ascii_case(id));
            answer.location = Some(format!("{}/{id}", named.map_or(path, |(base, _)| base)));
            body.extend(shown.into_iter().map(|(key, secret)| (key.to_owned(), json!(secret))));
        }
        Ok(answer)
    }

    /// The response with the entity after a change.
    async fn present(&self, done: &ChangeOutcome, status: u16) -> Result<Answer> {
        let Some(after) = &done.after else { return Ok(Answer { status, ..Answer::ok(Value::Null) }) };
        let shown = self.config.shown(self.place.family, after).await?;
        let warning = warnings::of(self, &shown).await;
        Ok(Answer { status, etag: Some(after.etag()), warning, ..Answer::ok(Value::Object(shown)) })
    }

    pub(super) async fn replace(&self, id: &str, body: Map<String, Value>) -> Result<Answer> {
        if self.headers.get(header::IF_NONE_MATCH).is_some_and(|v| v.as_bytes().trim_ascii() == b"*") {
            let (id, made) = (path_ids::uuid_of(id)?, account_effects::made(self));
            let done = self.change(Op::Create { id: Some(id), body }, made.system).await?;
            return self.created(&done, made.shown).await;
        }
        let op = Op::Replace { id: id.to_owned(), body, condition: self.condition() };
        let done = self.change(op, System::default()).await?;
        self.present(&done, 200).await
    }

    pub(super) async fn patch(&self, id: &str, patch: Map<String, Value>) -> Result<Answer> {
        let op = Op::Patch { id: id.to_owned(), patch, condition: self.condition() };
        let done = self.change(op, System::default()).await?;
        self.present(&done, 200).await
    }

    pub(super) async fn delete(&self, id: &str) -> Result<Answer> {
        let op = Op::Delete { id: id.to_owned(), condition: self.condition() };
        self.change(op, System::default()).await?;
        Ok(Answer { status: 204, ..Answer::ok(Value::Null) })
    }

    async fn restore(&self, id: &str) -> Result<Answer> {
        let op = Op::Restore { id: id.to_owned(), version: self.version()? };
        let done = self.change(op, System::default()).await?;
        self.present(&done, 200).await
    }
}
