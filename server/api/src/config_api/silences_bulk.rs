//! Bulk operations on silences: put and import change all or none, delete and update change each by itself.

use futures::future::BoxFuture;
use quiver_alertd::router::{SilenceDone, SilenceOp};
use quiver_alerting::silences::Silence;
use quiver_config::families::SILENCES;
use quiver_config::{FailedItem, ImportMode, ListQuery, Problem, ProblemKind, ReadOnlyPolicy, Result};
use serde_json::{Map, Value, json};

use super::body_members::only_members;
use super::bulk::{failed, filter_in, ids_in};
use super::path_ids::uuid_of;
use super::request::Ask;
use super::response::Answer;
use super::silence_changes::{patched, rows};
use super::silence_entity::entity;
use super::silence_form::silence;
use super::yaml;

/// Most items per request.
const ITEMS_MAX: usize = 10_000;

fn bounded(count: usize, what: &str) -> Result<()> {
    if count <= ITEMS_MAX {
        return Ok(());
    }
    let text = format!("must have at most {ITEMS_MAX} entries, has {count}");
    Err(Problem::field(format!("/{what}"), "LIMIT_EXCEEDED", text))
}

/// The ids that a body lists, or those that match its filter.
fn named(ask: &Ask, body: &Map<String, Value>) -> Result<Vec<String>> {
    let ids = match (ids_in(body, "ids")?, filter_in(body)) {
        (Some(ids), None) => ids,
        (None, Some(Value::String(filter))) if !filter.is_empty() => {
            let parameters = [("filter".to_owned(), filter.clone())];
            let query = ListQuery::parse(&SILENCES, &parameters, &[])?.everything();
            let found = query.page(&SILENCES, rows(ask)).items;
            let ids = found.iter().filter_map(|row| row.get("id").and_then(Value::as_str).map(str::to_owned));
            // A filter without matches is not an error: there is nothing to do.
            let ids: Vec<String> = ids.collect();
            return bounded(ids.len(), "filter").map(|()| ids);
        }
        (None, Some(other)) if !other.is_string() => {
            return Err(Problem::field("/filter", "INVALID_TYPE", "must be a text"));
        }
        _ => Vec::new(),
    };
    if ids.is_empty() {
        return Err(Problem::field("/ids", "REQUIRED", "must name at least one, by `ids` or by `filter`"));
    }
    bounded(ids.len(), "ids").map(|()| ids)
}

/// Makes the change for one id; `None` if there is nothing to change.
type SilenceOpBuilder<'m> = &'m (dyn Fn(&str) -> Result<Option<SilenceOp>> + Sync);

/// Changes each silence by itself: those that cannot be changed are reported, the others are changed.
async fn change_each(
    ask: &Ask,
    ids: Vec<String>,
    (action, make): (&'static str, SilenceOpBuilder<'_>),
) -> Result<(Vec<String>, Vec<FailedItem>)> {
    let (mut done, mut not, mut ops) = (Vec::new(), Vec::new(), Vec::new());
    for id in ids {
        match make(&id) {
            Ok(Some(op)) => ops.push((id, op)),
            Ok(None) => done.push(id),
            Err(problem) => not.push(FailedItem { id, problem }),
        }
    }
    // Together, since each change waits for the disk; one that meets another's change meanwhile is told.
    let (ids, ops): (Vec<String>, Vec<SilenceOp>) = ops.into_iter().unzip();
    for (id, made) in ids.into_iter().zip(ask.change_each_silence(ops).await?) {
        match made {
            Ok(_) => done.push(id),
            Err(problem) => not.push(FailedItem { id, problem }),
        }
    }
    for one in &not {
        ask.silence_refused(action, Some(&one.id), one.problem.clone()).await;
    }
    Ok((done, not))
}

async fn delete(ask: &Ask, ids: Vec<String>) -> Result<Answer> {
    let make = |id: &str| {
        ask.may_silence(&ask.silence(id)?)?;
        Ok(Some(SilenceOp::Expire { id: id.to_owned(), expected: None }))
    };
    let (done, not) = change_each(ask, ids, ("DELETE", &make)).await?;
    Ok(Answer::ok(json!({"deleted": done, "failed": failed(&not)})))
}

/// `DELETE P?ids=a,b`.
pub(super) async fn delete_by_ids(ask: &Ask) -> Result<Answer> {
    ask.only_parameters(&["ids"])?;
    let ids = ask.ids_asked()?;
    bounded(ids.len(), "ids")?;
    delete(ask, ids).await
}

pub(super) fn bulk_delete<'a>(ask: &'a Ask, _: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.only_parameters(&[])?;
        let body = ask.object()?;
        only_members(&body, &["ids", "filter"])?;
        delete(ask, named(ask, &body)?).await
    })
}

pub(super) fn bulk_update<'a>(ask: &'a Ask, _: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.only_parameters(&[])?;
        let body = ask.object()?;
        only_members(&body, &["ids", "filter", "patch"])?;
        let Some(Value::Object(patch)) = body.get("patch") else {
            return Err(Problem::field("/patch", "REQUIRED", "must be an object"));
        };
        let make = |id: &str| {
            let present = ask.silence(id)?;
            ask.may_silence(&present)?;
            let wanted = silence(ask, Some(&present), patched(ask, &present, patch.clone()), ReadOnlyPolicy::Strict)?;
            ask.may_silence(&wanted)?;
            let op = SilenceOp::Set { silence: Box::new(wanted.clone()), id: None, expected: None };
            Ok((wanted != present).then_some(op))
        };
        let (done, not) = change_each(ask, named(ask, &body)?, ("UPDATE", &make)).await?;
        Ok(Answer::ok(json!({"updated": done, "failed": failed(&not)})))
    })
}

pub(super) fn export<'a>(ask: &'a Ask, _: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.no_parameters(&super::request::NOT_OF_EXPORTS)?;
        let format = ask.parameter("format")?.unwrap_or("json");
        if !matches!(format, "json" | "yaml") {
            return Err(Problem::parameter("`format` must be json or yaml"));
        }
        let query = ListQuery::parse(&SILENCES, &ask.parameters, &["format"])?.everything();
        let items = query.page(&SILENCES, rows(ask)).items;
        let exported = json!({"format": "quiver/1", "family": SILENCES.name, "items": items});
        let yaml = (format == "yaml").then(|| yaml::write(&exported));
        Ok(Answer { yaml, ..Answer::ok(exported) })
    })
}

/// An item: the present silence, if any, and the wanted one.
struct Item {
    present: Option<Silence>,
    wanted: Silence,
    id: Option<String>,
}

/// Reads items and matches each with a silence by its id.
fn items(ask: &Ask, list: &[Value], mode: ImportMode, reading: ReadOnlyPolicy) -> Result<Vec<Item>> {
    bounded(list.len(), "items")?;
    let mut all = Vec::with_capacity(list.len());
    for (n, item) in list.iter().enumerate() {
        let below = format!("/items/{n}");
        let read = || -> Result<Item> {
            let Value::Object(body) = item else { return Err(Problem::field("", "INVALID_TYPE", "must be an object")) };
            let mut body = body.clone();
            let id = match body.remove("id") {
                None | Some(Value::Null) => None,
                Some(Value::String(id)) => Some(uuid_of(&id)?),
                Some(_) => return Err(Problem::field("/id", "INVALID_VALUE", "must be an id (a UUID)")),
            };
            let present = id.as_ref().and_then(|id| ask.silence(id).ok());
            if present.is_some() && mode == ImportMode::Create {
                return Err(Problem::new(ProblemKind::Conflict, "DUPLICATE", "there is one already"));
            }
            let wanted = silence(ask, present.as_ref(), body, reading)?;
            for one in present.iter().chain([&wanted]) {
                ask.may_silence(one)?;
            }
            Ok(Item { present, wanted, id })
        };
        all.push(read().map_err(|problem| problem.below(&below))?);
    }
    Ok(all)
}

/// The outcome of a bulk change.
struct Outcome {
    made: Vec<SilenceDone>,
    unchanged: usize,
}

impl Outcome {
    fn count(&self, op: &str) -> usize {
        self.made.iter().filter(|done| op_of(done) == op).count()
    }
}

fn op_of(done: &SilenceDone) -> &'static str {
    match (&done.before, &done.ended) {
        (None, None) => "create",
        (Some(before), _) if before.ends_at > done.after.ends_at && done.after.ends_at == done.after.updated_at => {
            "delete"
        }
        _ => "update",
    }
}

/// Creates or replaces all items and ends the silences in `gone`, all or none.
async fn put(ask: &Ask, items: &[Item], gone: Vec<String>) -> Result<Outcome> {
    let changes = |item: &&Item| item.present.as_ref() != Some(&item.wanted);
    let op = |item: &Item| {
        let id = item.id.clone().filter(|_| item.present.is_none());
        SilenceOp::Set { silence: Box::new(item.wanted.clone()), id, expected: None }
    };
    let numbers: Vec<usize> = items.iter().enumerate().filter(|(_, item)| changes(item)).map(|(n, _)| n).collect();
    let mut ops: Vec<SilenceOp> = numbers.iter().map(|n| op(&items[*n])).collect();
    ops.extend(gone.into_iter().map(|id| SilenceOp::Expire { id, expected: None }));
    let made = ask.change_silences(ops).await.map_err(|(n, problem)| match numbers.get(n) {
        Some(n) => problem.below(&format!("/items/{n}")),
        None => problem,
    })?;
    Ok(Outcome { made, unchanged: items.len() - numbers.len() })
}

/// `PUT P` with several items: known ids are replaced, other items are created.
pub(super) async fn put_many(ask: &Ask, mut body: Map<String, Value>) -> Result<Answer> {
    let Some(Value::Array(list)) = body.remove("items") else {
        return Err(Problem::field("/items", "INVALID_TYPE", "must be a list"));
    };
    if let Some(other) = body.keys().next() {
        return Err(Problem::field(format!("/{other}"), "UNKNOWN_FIELD", "there is no such field"));
    }
    let outcome = match items(ask, &list, ImportMode::Upsert, ReadOnlyPolicy::Strict) {
        Ok(items) => put(ask, &items, Vec::new()).await.map(|outcome| (items, outcome)),
        Err(problem) => Err(problem),
    };
    let (items, outcome) = match outcome {
        Ok(all) => all,
        Err(problem) => return Err(ask.silence_refused("UPDATE", None, problem).await),
    };
    let now = ask.alerts_now();
    let mut made = outcome.made.iter();
    let shown = items.iter().filter_map(|item| {
        let is = if item.present.as_ref() == Some(&item.wanted) { &item.wanted } else { &made.next()?.after };
        Some(json!({"id": is.id, "etag": entity(is, now).etag()}))
    });
    let shown: Vec<Value> = shown.collect();
    Ok(Answer::ok(json!({
        "created": outcome.count("create"), "updated": outcome.count("update"), "unchanged": outcome.unchanged,
        "items": shown,
    })))
}

/// Imports what an export returned.
pub(super) fn import<'a>(ask: &'a Ask, _: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.no_parameters(&super::request::NOT_OF_IMPORTS)?;
        let mode = ask.import_mode()?;
        let list = ask.items().await?;
        let within = ListQuery::parse(&SILENCES, &ask.parameters, &["mode"])?.everything();
        let outcome = match items(ask, &list, mode, ReadOnlyPolicy::Lenient) {
            Ok(items) => put(ask, &items, lacking(ask, &items, mode, &within)).await,
            Err(problem) => Err(problem),
        };
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(problem) => return Err(ask.silence_refused("UPDATE", None, problem).await),
        };
        let now = ask.alerts_now();
        let change = |done: &SilenceDone| {
            let former = done.before.as_ref().or(done.ended.as_ref().map(|(was, _)| was));
            let body = |s: &Silence| entity(s, now).body;
            let diff = quiver_config::diff(&former.map(body).unwrap_or_default(), &body(&done.after));
            json!({"op": op_of(done), "id": done.after.id, "name": done.after.comment, "diff": diff})
        };
        let summary = json!({
            "created": outcome.count("create"), "updated": outcome.count("update"),
            "deleted": outcome.count("delete"), "unchanged": outcome.unchanged,
        });
        let changes: Vec<Value> = outcome.made.iter().map(change).collect();
        Ok(Answer::ok(json!({"summary": summary, "changes": changes})))
    })
}

/// Silences that are missing in the body and must be ended, which the caller needs the right to do.
fn lacking(ask: &Ask, items: &[Item], mode: ImportMode, within: &ListQuery) -> Vec<String> {
    if mode != ImportMode::Replace {
        return Vec::new();
    }
    let found = within.page(&SILENCES, rows(ask)).items;
    let id = |row: &Map<String, Value>| row.get("id").and_then(Value::as_str).map(str::to_owned);
    let known = |id: &String| items.iter().any(|item| item.id.as_ref() == Some(id));
    let may = |id: &String| ask.silence(id).is_ok_and(|s| s.ends_at > ask.alerts_now() && ask.may_silence(&s).is_ok());
    found.iter().filter_map(id).filter(|id| !known(id) && may(id)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_have_a_largest_number_of_items() {
        assert!(bounded(0, "ids").is_ok() && bounded(ITEMS_MAX, "ids").is_ok());
        let problem = bounded(ITEMS_MAX + 1, "items").unwrap_err();
        assert_eq!((problem.errors[0].field.as_str(), problem.errors[0].code), ("/items", "LIMIT_EXCEEDED"));
        assert!(problem.detail.contains("has 10001"), "{}", problem.detail);
    }
}
