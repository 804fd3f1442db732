//! Changes of many entities over HTTP.

use http::header;
use quiver_config::families::RESOURCES;
use quiver_config::{FailedItem, ImportMode, ImportOptions, ListQuery, Problem, ProblemKind, Result};
use serde_json::{Map, Value, json};

use super::body_members::only_members;
use super::export::{FORMAT, Form, Writer};
use super::path_ids::uuid_of;
use super::request::{Ask, apart};
use super::response::Answer;
use super::{account_effects, csv, legacy_matchers, yaml};
use crate::request_context::RequestInfo;

/// The ids in a member of a body; `None` if it is missing.
pub(super) fn ids_in(body: &Map<String, Value>, member: &str) -> Result<Option<Vec<String>>> {
    let items = match body.get(member) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Array(items)) => items,
        Some(_) => return Err(Problem::field(format!("/{member}"), "INVALID_TYPE", "must be a list of ids")),
    };
    let no_id = |n: usize| Problem::field(format!("/{member}/{n}"), "INVALID_TYPE", "must be an id");
    let ids = items.iter().enumerate().map(|(n, item)| item.as_str().map(id_of).ok_or_else(|| no_id(n)));
    ids.collect::<Result<_>>().map(Some)
}

/// Like [`ids_in`], but the member is required.
pub(super) fn all_ids_in(body: &Map<String, Value>, member: &str) -> Result<Vec<String>> {
    ids_in(body, member)?.ok_or_else(|| Problem::field(format!("/{member}"), "REQUIRED", "is required"))
}

/// Removes and returns the id of a single object that is sent to a collection.
pub(super) fn own_id(body: &mut Map<String, Value>) -> Result<String> {
    let id = body.remove("id").and_then(|id| id.as_str().map(id_of));
    id.ok_or_else(|| Problem::field("/id", "REQUIRED", "must name the entity"))
}

/// Normalizes an id to its stored form; a text that is no UUID stays as it is and matches nothing.
fn id_of(text: &str) -> String {
    uuid_of(text).unwrap_or_else(|_| text.to_owned())
}

pub(super) fn failed(failed: &[FailedItem]) -> Value {
    let one = |f: &FailedItem| json!({"id": f.id, "code": f.problem.code, "detail": f.problem.detail});
    failed.iter().map(one).collect()
}

/// Whether a filter matched nothing: then there is nothing to do, which is no error, unlike a missing list of ids.
fn found_none(body: &Map<String, Value>, ids: &[String]) -> bool {
    ids.is_empty() && filter_in(body).is_some()
}

/// The filter of a body; null counts as missing, as everywhere.
pub(super) fn filter_in(body: &Map<String, Value>) -> Option<&Value> {
    body.get("filter").filter(|filter| !filter.is_null())
}

impl Ask {
    /// PUT and PATCH of the collection: one object with its id, or several.
    pub(super) async fn put_collection(&self) -> Result<Answer> {
        let mut body = self.object()?;
        let is_put = self.method == http::Method::PUT;
        if let (true, Some(items)) = (is_put, body.get("items")) {
            let Value::Array(items) = items else {
                return Err(Problem::field("/items", "INVALID_TYPE", "must be a list"));
            };
            if let Some(other) = body.keys().find(|key| *key != "items") {
                return Err(Problem::field(format!("/{other}"), "UNKNOWN_FIELD", "there is no such field"));
            }
            let (config, before) = (&self.config, account_effects::accounts(self));
            let done = config.put_many(&self.place, &self.caller, items.clone(), self.mode).await?;
            account_effects::after_many(self, before).await;
            return Ok(Answer::ok(json!({
                "created": done.created, "updated": done.updated, "unchanged": done.unchanged, "items": done.items,
            })));
        }
        let id = own_id(&mut body)?;
        if is_put { self.replace(&id, body).await } else { self.patch(&id, body).await }
    }

    /// `DELETE P?ids=a,b`.
    pub(super) async fn delete_by_ids(&self) -> Result<Answer> {
        let ids = self.ids_asked()?;
        self.deleted(ids).await
    }

    /// The ids in the parameter `ids`: at least one, and none empty.
    pub(super) fn ids_asked(&self) -> Result<Vec<String>> {
        let ids: Vec<String> =
            self.parameter("ids")?.unwrap_or_default().split(',').map(|id| id_of(id.trim())).collect();
        if ids.iter().any(String::is_empty) {
            return Err(Problem::parameter("`ids` must name what is to be deleted"));
        }
        Ok(ids)
    }

    async fn deleted(&self, ids: Vec<String>) -> Result<Answer> {
        let before = account_effects::accounts(self);
        let (done, not) = self.config.delete_many(&self.place, &self.caller, ids, self.mode).await?;
        account_effects::after_many(self, before).await;
        Ok(Answer::ok(json!({"deleted": done, "failed": failed(&not)})))
    }

    /// The ids that a body lists, or those that match its filter.
    async fn named(&self, body: &Map<String, Value>) -> Result<Vec<String>> {
        match (ids_in(body, "ids")?, filter_in(body)) {
            (Some(ids), None) => Ok(ids),
            (None, Some(Value::String(filter))) if !filter.is_empty() => {
                let parameters = [("filter".to_owned(), filter.clone())];
                let query = ListQuery::parse(self.place.family, &parameters, &[])?;
                self.config.ids_of(&self.place, &query, &self.caller).await
            }
            (None, Some(other)) if !other.is_string() => {
                Err(Problem::field("/filter", "INVALID_TYPE", "must be a text"))
            }
            _ => Err(Problem::field("/ids", "REQUIRED", "must name at least one, by `ids` or by `filter`")),
        }
    }

    pub(super) async fn bulk_delete(&self) -> Result<Answer> {
        let body = self.object()?;
        only_members(&body, &["ids", "filter"])?;
        match self.named(&body).await? {
            ids if found_none(&body, &ids) => Ok(Answer::ok(json!({"deleted": [], "failed": []}))),
            ids => self.deleted(ids).await,
        }
    }

    pub(super) async fn bulk_update(&self) -> Result<Answer> {
        let body = self.object()?;
        only_members(&body, &["ids", "filter", "patch"])?;
        let patch = match body.get("patch") {
            Some(Value::Object(patch)) => patch,
            None | Some(Value::Null) => return Err(Problem::field("/patch", "REQUIRED", "must be an object")),
            Some(_) => return Err(Problem::field("/patch", "INVALID_TYPE", "must be an object")),
        };
        let ids = self.named(&body).await?;
        if found_none(&body, &ids) {
            return Ok(Answer::ok(json!({"updated": [], "failed": []})));
        }
        let (config, before) = (&self.config, account_effects::accounts(self));
        let (done, not) = config.update_many(&self.place, &self.caller, ids, patch.clone(), self.mode).await?;
        account_effects::after_many(self, before).await;
        Ok(Answer::ok(json!({"updated": done, "failed": failed(&not)})))
    }

    pub(super) async fn export(&self) -> Result<Answer> {
        let form = match self.parameter("format")?.unwrap_or("json") {
            "json" => Form::Json,
            "yaml" => Form::Yaml,
            _ => return Err(Problem::parameter("`format` must be json or yaml")),
        };
        let query = ListQuery::parse(self.place.family, &self.parameters, &["format"])?;
        let _place = self.state.capacity.places.exports.acquire().await.map_err(Problem::internal)?;
        // Until it is sent.
        RequestInfo::note_held(self.state.capacity.bodies.decoding_needed());
        let mut writer = Writer::new(form, self.state.capacity.bodies.decoding());
        let exported = self.config.export(&self.place, &query, &self.caller, &mut writer).await?;
        let sent = Some(writer.end(self.place.family.name, exported));
        Ok(Answer { sent, ..Answer::ok(Value::Null) })
    }

    /// PUT of the order: must list exactly the ids that exist.
    pub(super) async fn order(&self) -> Result<Answer> {
        let body = self.object()?;
        only_members(&body, &["ids"])?;
        let ids = all_ids_in(&body, "ids")?;
        let items = self.config.order(&self.place, &self.caller, ids, self.mode).await?;
        self.acts().await;
        Ok(Answer::ok(json!({"items": items})))
    }

    /// The body of an import, in JSON or YAML.
    async fn import_body(&self) -> Result<Map<String, Value>> {
        match self.media_type().as_str() {
            "application/yaml" | "application/x-yaml" | "text/yaml" | "text/x-yaml" => {
                let (body, family) = (self.body.clone(), self.place.family);
                match apart(self.body.len(), move || yaml::read(&body, family)).await? {
                    Value::Object(map) => Ok(map),
                    _ => Err(Problem::field("", "INVALID_TYPE", "the body must be a mapping")),
                }
            }
            _ => self.large_object().await,
        }
    }

    /// Resources in a CSV body.
    async fn csv_body(&self) -> Result<csv::Lines> {
        if self.place.family.name != RESOURCES.name {
            let text = format!("CSV is taken by `{}/import` only; send JSON or YAML", RESOURCES.path);
            return Err(Problem::new(ProblemKind::UnsupportedMediaType, "UNSUPPORTED_MEDIA_TYPE", text));
        }
        let content_type = self.headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok());
        csv::check_parameters(content_type.unwrap_or_default())?;
        let body = self.body.clone();
        let table = apart(self.body.len(), move || csv::Table::read(&body)).await?;
        let kinds = self.config.resource_kinds(&table.types()).await?;
        Ok(table.resources(&kinds))
    }

    /// The items of a body in JSON or YAML.
    pub(super) async fn items(&self) -> Result<Vec<Value>> {
        let mut body = self.import_body().await?;
        if let Some(other) = body.keys().find(|key| !matches!(key.as_str(), "format" | "family" | "items")) {
            return Err(Problem::field(format!("/{other}"), "UNKNOWN_FIELD", "there is no such field"));
        }
        if body.get("format").is_some_and(|f| f.as_str() != Some(FORMAT)) {
            return Err(Problem::field("/format", "INVALID_VALUE", format!("must be `{FORMAT}`")));
        }
        if body.get("family").is_some_and(|f| f.as_str() != Some(self.place.family.name)) {
            let text = format!("this is an export of another family than `{}`", self.place.family.name);
            return Err(Problem::field("/family", "INVALID_VALUE", text));
        }
        match body.remove("items") {
            Some(Value::Array(items)) => Ok(items),
            None | Some(Value::Null) => Err(Problem::field("/items", "REQUIRED", "must be a list")),
            Some(_) => Err(Problem::field("/items", "INVALID_TYPE", "must be a list")),
        }
    }

    /// Adds the keys of resources, which may be derived from other fields: resources are matched by type and key.
    async fn with_keys(&self, items: &mut [Value]) -> Result<()> {
        let type_of = |item: &Value| item.get("typeId").and_then(Value::as_str).map(str::to_owned);
        let kinds = self.config.resource_kinds(&items.iter().filter_map(type_of).collect()).await?;
        for item in items {
            let kind = kinds.iter().find(|kind| type_of(item).as_deref() == Some(&*kind.id));
            let (Some(kind), Value::Object(item)) = (kind, item) else { continue };
            if item.get("key").is_none_or(Value::is_null)
                && let Some(key) = kind.key_of(item)
            {
                item.insert("key".to_owned(), json!(key));
            }
        }
        Ok(())
    }

    pub(super) async fn import(&self) -> Result<Answer> {
        let mode = self.import_mode()?;
        let within = ListQuery::parse(self.place.family, &self.parameters, &["mode"])?;
        if self.media_type() == "text/csv" {
            let mut lines = self.csv_body().await?;
            let items = std::mem::take(&mut lines.items);
            return self.imported(items, mode, &within).await.map_err(|problem| lines.named(problem));
        }
        self.imported(self.items().await?, mode, &within).await
    }

    async fn imported(&self, mut items: Vec<Value>, mode: ImportMode, within: &ListQuery) -> Result<Answer> {
        if self.place.family.name == RESOURCES.name {
            self.with_keys(&mut items).await?;
        }
        legacy_matchers::rewrite(&mut items, self.place.family)?;
        let (config, before) = (&self.config, account_effects::accounts(self));
        let options = ImportOptions { mode, within: Some(within), change_mode: self.mode };
        let done = config.import_many(&self.place, &self.caller, items, options).await?;
        account_effects::after_many(self, before).await;
        let summary = json!({
            "created": done.created, "updated": done.updated, "deleted": done.deleted, "unchanged": done.unchanged,
        });
        Ok(Answer::ok(json!({"summary": summary, "changes": done.changes})))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(value: &Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap_or_default()
    }

    #[test]
    fn ids_are_a_list_of_texts() {
        let uuid = "0123ABCD-0000-0000-0000-000000000000";
        for (body, expected) in [
            (json!({}), None),
            (json!({"ids": null}), None),
            (json!({"ids": []}), Some(vec![])),
            // A text that is no UUID matches nothing, and is reported as it was sent.
            (json!({"ids": [uuid, "Not One"]}), Some(vec![uuid.to_lowercase(), "Not One".to_owned()])),
        ] {
            assert_eq!(ids_in(&map(&body), "ids").unwrap(), expected, "{body}");
        }
        for (body, place) in [(json!({"ids": "a"}), "/ids"), (json!({"ids": ["a", 5]}), "/ids/1")] {
            let problem = ids_in(&map(&body), "ids").unwrap_err();
            assert_eq!((problem.errors[0].field.as_str(), problem.errors[0].code), (place, "INVALID_TYPE"), "{body}");
        }
        assert_eq!(all_ids_in(&Map::new(), "ids").unwrap_err().errors[0].code, "REQUIRED");
    }

    /// Silences are found by the same ids as other entities.
    #[test]
    fn the_id_of_one_object_is_taken_out_of_it() {
        let (capitals, kept) = ("0191D0A0-7C3E-7ABC-8DEF-0123456789AB", "0191d0a0-7c3e-7abc-8def-0123456789ab");
        for (id, expected) in [(capitals, kept), (kept, kept), ("Not One", "Not One"), ("", "")] {
            let mut body = map(&json!({"id": id, "name": "n"}));
            assert_eq!(own_id(&mut body).unwrap(), expected);
            assert_eq!(body, map(&json!({"name": "n"})));
        }
        for body in [json!({}), json!({"id": null}), json!({"id": 7}), json!({"id": ["a"]})] {
            let problem = own_id(&mut map(&body)).unwrap_err();
            assert_eq!((problem.errors[0].field.as_str(), problem.errors[0].code), ("/id", "REQUIRED"), "{body}");
        }
    }

    #[test]
    fn a_filter_that_finds_nothing_leaves_nothing_to_do() {
        let filter = map(&json!({"filter": "name:x"}));
        assert!(found_none(&filter, &[]));
        assert!(!found_none(&filter, &["a".to_owned()]));
        assert!(!found_none(&Map::new(), &[]), "nothing was named at all");
    }

    #[test]
    fn what_failed_is_told_one_by_one() {
        let failures =
            [FailedItem { id: "a".to_owned(), problem: Problem::new(ProblemKind::Conflict, "IN_USE", "is used") }];
        assert_eq!(failed(&failures), json!([{"id": "a", "code": "IN_USE", "detail": "is used"}]));
        assert_eq!(failed(&[]), json!([]));
    }

    #[test]
    fn null_beside_ids_is_no_filter() {
        for (body, expected) in [
            (json!({"ids": [], "filter": null}), false),
            (json!({"ids": []}), false),
            (json!({"filter": "name:x"}), true),
            (json!({"filter": ""}), true),
            (json!({"filter": 5}), true),
        ] {
            let body = map(&body);
            assert_eq!((filter_in(&body).is_some(), found_none(&body, &[])), (expected, expected), "{body:?}");
        }
    }
}
