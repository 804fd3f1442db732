//! Changes of many entities over HTTP.

use quiver_config::{Failed, ListQuery, Problem, Result};
use serde_json::{Map, Value, json};

use super::{Answer, Ask};

fn ids_in(body: &Map<String, Value>) -> Result<Option<Vec<String>>> {
    let Some(value) = body.get("ids") else { return Ok(None) };
    let wrong = || Problem::field("/ids", "INVALID_TYPE", "must be a list of ids");
    let items = value.as_array().ok_or_else(wrong)?;
    items.iter().map(|v| v.as_str().map(str::to_owned).ok_or_else(wrong)).collect::<Result<_>>().map(Some)
}

fn failed(failed: &[Failed]) -> Value {
    let one = |f: &Failed| json!({"id": f.id, "code": f.problem.code, "detail": f.problem.detail});
    failed.iter().map(one).collect()
}

impl Ask {
    /// PUT and PATCH on the collection: one object that says its id, or many.
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
            let config = &self.identities.config;
            let done = config.put_many(&self.place, &self.caller, items.clone(), self.dry_run).await?;
            self.acts().await;
            return Ok(Answer::ok(json!({
                "created": done.created, "updated": done.updated, "unchanged": done.unchanged, "items": done.items,
            })));
        }
        let id = body.remove("id").and_then(|id| id.as_str().map(str::to_owned));
        let id = id.ok_or_else(|| Problem::field("/id", "REQUIRED", "must name the entity"))?;
        if is_put { self.replace(&id, body).await } else { self.patch(&id, body).await }
    }

    /// `DELETE P?ids=a,b`.
    pub(super) async fn delete_by_ids(&self) -> Result<Answer> {
        let ids = self.parameters.iter().find(|(key, _)| key == "ids").map(|(_, value)| value.as_str());
        let ids = ids.filter(|ids| !ids.is_empty());
        let ids = ids.ok_or_else(|| Problem::parameter("`ids` must name what is to be deleted"))?;
        self.deleted(ids.split(',').map(|id| id.trim().to_owned()).collect()).await
    }

    async fn deleted(&self, ids: Vec<String>) -> Result<Answer> {
        let (done, not) = self.identities.config.delete_many(&self.place, &self.caller, ids, self.dry_run).await?;
        self.acts().await;
        Ok(Answer::ok(json!({"deleted": done, "failed": failed(&not)})))
    }

    /// The ids that a body names, or those that its filter finds.
    async fn named(&self, body: &Map<String, Value>) -> Result<Vec<String>> {
        match (ids_in(body)?, body.get("filter")) {
            (Some(ids), None) => Ok(ids),
            (None, Some(Value::String(filter))) if !filter.is_empty() => {
                let parameters = [("filter".to_owned(), filter.clone())];
                let query = ListQuery::parse(self.place.family, &parameters, &[])?;
                self.identities.config.ids_of(&self.place, &query, &self.caller).await
            }
            _ => Err(Problem::field("/ids", "REQUIRED", "must name at least one, by `ids` or by `filter`")),
        }
    }

    pub(super) async fn bulk_delete(&self) -> Result<Answer> {
        let ids = self.named(&self.object()?).await?;
        self.deleted(ids).await
    }

    pub(super) async fn bulk_update(&self) -> Result<Answer> {
        let body = self.object()?;
        let Some(Value::Object(patch)) = body.get("patch") else {
            return Err(Problem::field("/patch", "REQUIRED", "must be an object"));
        };
        let ids = self.named(&body).await?;
        let config = &self.identities.config;
        let (done, not) = config.update_many(&self.place, &self.caller, ids, patch.clone(), self.dry_run).await?;
        self.acts().await;
        Ok(Answer::ok(json!({"updated": done, "failed": failed(&not)})))
    }

    pub(super) async fn export(&self) -> Result<Answer> {
        let format = self.parameters.iter().find(|(key, _)| key == "format").map_or("json", |(_, value)| value);
        if format != "json" {
            return Err(Problem::parameter("`format` must be json"));
        }
        let query = ListQuery::parse(self.place.family, &self.parameters, &["format"])?;
        Ok(Answer::ok(self.identities.config.export(&self.place, &query, &self.caller).await?))
    }

    pub(super) async fn import(&self) -> Result<Answer> {
        let mode = self.import_mode()?;
        let body = self.object()?;
        if body.get("family").is_some_and(|f| f.as_str() != Some(self.place.family.name)) {
            let text = format!("this is an export of another family than `{}`", self.place.family.name);
            return Err(Problem::field("/family", "INVALID_VALUE", text));
        }
        let Some(Value::Array(items)) = body.get("items") else {
            return Err(Problem::field("/items", "REQUIRED", "must be a list"));
        };
        let within = ListQuery::parse(self.place.family, &self.parameters, &["mode"])?;
        let config = &self.identities.config;
        let (place, caller, items) = (&self.place, &self.caller, items.clone());
        let done = config.import_many(place, caller, items, mode, Some(&within), self.dry_run).await?;
        self.acts().await;
        let summary = json!({
            "created": done.created, "updated": done.updated, "deleted": done.deleted, "unchanged": done.unchanged,
        });
        Ok(Answer::ok(json!({"summary": summary, "changes": done.changes})))
    }
}
