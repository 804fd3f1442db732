//! Operations of detection rules beyond the contract: tests of patterns and rules (`config-api` 3.1).

use std::borrow::Cow;
use std::sync::Arc;

use axum::Router;
use axum::routing::MethodFilter;
use futures::future::BoxFuture;
use quiver_config::families::{DETECTION_RULES, RUM_DETECTION_RULES, TOO_SLOW};
use quiver_config::{Family, FieldError, Problem, ProblemKind, Result};
use quiver_query::tables::config_columns::{first_of, name_by};
use quiver_types::Domain;
use quiver_types::cancellation::in_one_go;
use quiver_types::condition::{Captures, Condition, ConditionError, FieldName, Fields, NameTemplate};
use quiver_types::detection::{DetectionRule, Sample};
use serde_json::{Map, Value, json};

use super::body_members::{list, only_members};
use super::operation::special_at;
use super::request::Ask;
use super::response::Answer;
use super::telemetry_queries::{self, IS_ERROR, name_of};
use crate::state::AppState;

/// Most texts or examples per test.
const SAMPLES_MAX: usize = 1000;
/// Most spans that a test over stored data shows.
const EXAMPLES_MAX: u64 = 20;

pub(super) fn routes() -> Router<Arc<AppState>> {
    let mut router = Router::new();
    for family in [&DETECTION_RULES, &RUM_DETECTION_RULES] {
        let at = |name: &str| format!("{}/{name}", family.path);
        router = router
            .route(&at("test-pattern"), special_at(family, MethodFilter::POST, test_pattern))
            .route(&at("test"), special_at(family, MethodFilter::POST, test));
    }
    router
}

/// Runs a test over all texts, or fails if evaluation takes too long.
fn of_all<T>(place: &str, look: impl FnOnce() -> T) -> Result<T> {
    in_one_go(look).ok_or_else(|| Problem::field(place, "LIMIT_EXCEEDED", TOO_SLOW))
}

/// Converts errors of a condition, below a field of the body.
pub(super) fn invalid(place: &str, found: Vec<ConditionError>) -> Problem {
    let error = |e: ConditionError| FieldError::new(format!("{place}{}", e.pointer), e.code, e.message);
    Problem::invalid(found.into_iter().map(error).collect())
}

/// A row in which every field has this one text.
struct Input<'a>(&'a str);

impl Fields for Input<'_> {
    fn get(&self, name: &FieldName) -> Option<Cow<'_, str>> {
        matches!(name, FieldName::Bare(key) if key == "input").then_some(Cow::Borrowed(self.0))
    }
}

fn test_pattern<'a>(ask: &'a Ask, _: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.only_parameters(&[])?;
        let body = ask.object()?;
        only_members(&body, &["op", "pattern", "nameTemplate", "inputs", "caseSensitive"])?;
        let leaf = json!({
            "field": "input", "op": body.get("op"), "value": body.get("pattern"),
            "caseSensitive": body.get("caseSensitive"),
        });
        let condition = Condition::parse(&leaf).map_err(|found| {
            let own = |e: ConditionError| ConditionError { pointer: e.pointer.replace("/value", "/pattern"), ..e };
            invalid("", found.into_iter().map(own).collect())
        })?;
        let template = match body.get("nameTemplate") {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(
                NameTemplate::parse(text).map_err(|why| Problem::field("/nameTemplate", "INVALID_TEMPLATE", why))?,
            ),
            Some(_) => return Err(Problem::field("/nameTemplate", "INVALID_TYPE", "must be a text")),
        };
        let inputs = list(&body, "inputs", SAMPLES_MAX)?.iter().enumerate().map(|(n, input)| {
            let no_text = || Problem::field(format!("/inputs/{n}"), "INVALID_TYPE", "must be a text");
            input.as_str().ok_or_else(no_text)
        });
        let inputs: Vec<&str> = inputs.collect::<Result<_>>()?;
        let result = |text: &str| {
            let mut captures = Captures::new();
            let matched = condition.captures(&Input(text), &mut captures);
            let name = template.as_ref().filter(|_| matched).map(|t| t.render(&Input(text), &captures));
            let captures: Map<String, Value> = captures.into_iter().map(|(k, v)| (k, json!(v))).collect();
            json!({"input": text, "matched": matched, "captures": captures, "name": name})
        };
        let results: Vec<Value> = of_all("/inputs", || inputs.into_iter().map(result).collect())?;
        Ok(Answer::ok(json!({"results": results})))
    })
}

/// The field that names the service or application of a rule.
pub(super) fn owner_of(family: &Family) -> &'static str {
    if family.name == RUM_DETECTION_RULES.name { "application" } else { "service" }
}

/// Why the rule that a body names cannot be read: the id is wrong only where nothing has it.
fn of_rule_id(id: &str, problem: Problem) -> Problem {
    match problem.kind {
        ProblemKind::NotFound => Problem::field("/ruleId", "UNKNOWN_REFERENCE", format!("there is no entity `{id}`")),
        _ => problem,
    }
}

impl Ask {
    /// The rule to test: given in the body, or a stored one.
    pub(super) async fn tested(&self, body: &Map<String, Value>) -> Result<Map<String, Value>> {
        match (body.get("rule"), body.get("ruleId")) {
            (Some(Value::Object(rule)), None) => {
                self.config.checked(self.place.family, &self.caller, rule.clone()).map_err(|p| p.below("/rule"))
            }
            (None, Some(Value::String(id))) => {
                let entity = self.config.get(&self.place, id, &self.caller).await;
                Ok(entity.map_err(|problem| of_rule_id(id, problem))?.shown())
            }
            (None, None) => Err(Problem::field("/rule", "REQUIRED", "a `rule` or a `ruleId` is required")),
            (Some(_), Some(_)) => Err(Problem::field("/ruleId", "INVALID_VALUE", "a `rule` or a `ruleId`, not both")),
            (Some(_), None) => Err(Problem::field("/rule", "INVALID_TYPE", "must be an object")),
            (None, Some(_)) => Err(Problem::field("/ruleId", "INVALID_TYPE", "must be an id")),
        }
    }
}

fn test<'a>(ask: &'a Ask, _: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.only_parameters(&[])?;
        let body = ask.object()?;
        only_members(&body, &["rule", "ruleId", "samples", "start", "end", "limit"])?;
        let owner = owner_of(ask.place.family);
        let tested = ask.tested(&body).await?;
        let id = tested.get("id").and_then(Value::as_str).unwrap_or_default();
        let rule = DetectionRule::of_json(id, &tested, owner).map_err(|found| invalid("/rule", found))?;
        if !body.contains_key("samples") {
            return ask.test_stored(&body, &tested, &rule).await;
        }
        if let Some(key) = ["start", "end", "limit"].into_iter().find(|key| body.contains_key(*key)) {
            return Err(Problem::field(
                format!("/{key}"),
                "INVALID_VALUE",
                "goes with stored spans, not with `samples`",
            ));
        }
        let mut samples = Vec::new();
        for (n, sample) in list(&body, "samples", SAMPLES_MAX)?.iter().enumerate() {
            let read = Sample::parse(sample, owner, &["expectName"]);
            samples.push(read.map_err(|(at, code, why)| Problem::field(format!("/samples/{n}{at}"), code, why))?);
        }
        let others: Vec<DetectionRule> = ask.earlier_rules(&rule).await?.into_iter().map(|(rule, _)| rule).collect();
        let mut names: Vec<(String, u64)> = Vec::new();
        let (mut matched, mut results, mut shadowed) = (0_u64, Vec::new(), Vec::<(String, u64)>::new());
        of_all("/samples", || {
            for sample in &samples {
                let name = rule.name_of_sample(sample);
                results.push(json!({"matched": name.is_some(), "name": name}));
                let Some(name) = name else { continue };
                matched += 1;
                count(&mut names, name);
                if let Some(earlier) = others.iter().find(|other| other.name_of_sample(sample).is_some()) {
                    count(&mut shadowed, earlier.id.clone());
                }
            }
        })?;
        let shadowed: Vec<Value> = shadowed.iter().map(|(id, n)| json!({"ruleId": id, "count": n})).collect();
        let named: Vec<Value> =
            names.iter().map(|(name, n)| json!({"name": name, "count": n, "p95Ms": null, "errorRate": null})).collect();
        Ok(Answer::ok(json!({
            "scanned": samples.len(), "matched": matched, "names": named, "examples": [], "shadowedBy": shadowed,
            "results": results,
        })))
    })
}

/// The fields of a rule that decide which spans match.
fn slim(rule: &Map<String, Value>) -> Map<String, Value> {
    const KEYS: [&str; 10] =
        ["id", "name", "priority", "action", "service", "application", "scope", "kind", "condition", "nameTemplate"];
    KEYS.into_iter().filter_map(|key| Some((key.to_owned(), rule.get(key)?.clone()))).collect()
}

fn count(into: &mut Vec<(String, u64)>, key: String) {
    match into.iter_mut().find(|(known, _)| *known == key) {
        Some((_, n)) => *n += 1,
        None => into.push((key, 1)),
    }
}

impl Ask {
    /// Tests a rule on stored spans as if it were the only one, and lists the rules that are evaluated before it.
    async fn test_stored(
        &self,
        body: &Map<String, Value>,
        tested: &Map<String, Value>,
        rule: &DetectionRule,
    ) -> Result<Answer> {
        self.must_see(Domain::Traces)?;
        let owner = owner_of(self.place.family);
        let ((start, end), limit) = (self.window_of(body)?.sql(), telemetry_queries::limit(body.get("limit"), 100)?);
        let others: Vec<Value> = self.earlier_rules(rule).await?.into_iter().map(|(_, body)| body).collect();
        let name = name_of(&name_by(&Value::Object(slim(tested)), owner));
        let in_window = format!("quiver.spans WHERE start_time >= {start} AND start_time < {end}");
        let totals = self.row(format!("SELECT count(*) AS scanned, count({name}) AS matched FROM {in_window}")).await?;
        let names = self
            .rows(format!(
                "SELECT {name} AS name, count(*) AS count, quantile(duration / 1e6, 0.95) AS \"p95Ms\", \
                avg(CASE WHEN {IS_ERROR} THEN 1.0 ELSE 0.0 END) AS \"errorRate\" FROM {in_window} \
                AND {name} IS NOT NULL GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {limit}"
            ))
            .await?;
        let examples = self
            .rows(format!(
                "SELECT trace_id AS \"traceId\", span_id AS \"spanId\", service_name AS {owner}, {name} AS name \
                FROM {in_window} AND {name} IS NOT NULL ORDER BY start_time DESC LIMIT {}",
                limit.min(EXAMPLES_MAX)
            ))
            .await?;
        let shadowed = if others.is_empty() {
            Vec::new()
        } else {
            let others: Vec<Value> =
                others.iter().filter_map(|o| o.as_object().map(|o| Value::Object(slim(o)))).collect();
            let first = name_of(&first_of(&others, owner));
            let text = format!(
                "SELECT {first} AS \"ruleId\", count(*) AS count FROM {in_window} AND {name} IS NOT NULL \
                AND {first} IS NOT NULL GROUP BY 1 ORDER BY 2 DESC, 1"
            );
            self.rows(text).await?
        };
        Ok(Answer::ok(json!({
            "scanned": telemetry_queries::count(&totals, "scanned"), "matched": telemetry_queries::count(&totals, "matched"),
            "names": names, "examples": examples, "shadowedBy": shadowed,
        })))
    }

    /// Enabled rules that the caller may see and that are evaluated before this one.
    async fn earlier_rules(&self, rule: &DetectionRule) -> Result<Vec<(DetectionRule, Value)>> {
        let mut all = self.config.all(self.place.family).await?;
        all.retain(|e| self.place.family.is_visible(&self.caller, e) && e.body.get("enabled") == Some(&json!(true)));
        // Older rules come first, in the order of ids; an unsaved rule is the newest.
        let own = all.iter().position(|e| e.id == rule.id).unwrap_or(all.len());
        let owner = owner_of(self.place.family);
        let mut rules: Vec<(DetectionRule, Value)> = Vec::new();
        for (n, entity) in all.iter().enumerate().filter(|(_, e)| e.id != rule.id) {
            let Ok(other) = DetectionRule::of_json(&entity.id, &entity.body, owner) else { continue };
            if other.priority > rule.priority || other.priority == rule.priority && n < own {
                rules.push((other, Value::Object(entity.shown())));
            }
        }
        rules.sort_by_key(|(rule, _)| -rule.priority);
        Ok(rules)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(value: &Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap_or_default()
    }

    fn refusal<T>(result: Result<T>) -> (String, &'static str) {
        let problem = result.err().expect("it is refused");
        (problem.errors[0].field.clone(), problem.errors[0].code)
    }

    #[test]
    fn members_that_nobody_knows_are_refused() {
        let body = map(&json!({"op": "eq", "pattern": null}));
        assert!(only_members(&body, &["op", "pattern"]).is_ok());
        assert!(only_members(&Map::new(), &[]).is_ok());
        assert_eq!(refusal(only_members(&body, &["op"])), ("/pattern".to_owned(), "UNKNOWN_FIELD"));
    }

    #[test]
    fn lists_are_there_and_not_too_long() {
        for (body, code) in [
            (json!({}), "REQUIRED"),
            (json!({"inputs": null}), "REQUIRED"),
            (json!({"inputs": "a"}), "INVALID_TYPE"),
            (json!({"inputs": [1, 2, 3]}), "LIMIT_EXCEEDED"),
        ] {
            assert_eq!(refusal(list(&map(&body), "inputs", 2)), ("/inputs".to_owned(), code), "{body}");
        }
        assert_eq!(list(&map(&json!({"inputs": [1, 2]})), "inputs", 2).unwrap().len(), 2);
    }

    #[test]
    fn what_is_wrong_with_a_condition_is_told_below_its_place() {
        let error = ConditionError { pointer: "/any/1/op".to_owned(), code: "INVALID_VALUE", message: "m".to_owned() };
        let problem = invalid("/rule/condition", vec![error]);
        assert_eq!(problem.errors[0].field, "/rule/condition/any/1/op");
        assert_eq!((problem.errors[0].code, problem.errors[0].message.as_str()), ("INVALID_VALUE", "m"));
    }

    /// Would fail if a database that is busy were taken for a wrong id.
    #[test]
    fn ids_of_nothing_are_wrong() {
        let told = of_rule_id("r1", Problem::not_found("r1"));
        assert_eq!((told.errors[0].field.as_str(), told.errors[0].code), ("/ruleId", "UNKNOWN_REFERENCE"));
        let busy = of_rule_id("r1", Problem::new(ProblemKind::Busy, "STORE_BUSY", "later"));
        assert_eq!((busy.kind, busy.code, busy.errors.len()), (ProblemKind::Busy, "STORE_BUSY", 0));
    }

    #[test]
    fn a_pattern_sees_its_input_alone() {
        let input = Input("text");
        for (name, expected) in [
            (FieldName::Bare("input".to_owned()), Some("text")),
            (FieldName::Bare("other".to_owned()), None),
            (FieldName::Attribute("input".to_owned()), None),
            (FieldName::Intrinsic("span.name"), None),
        ] {
            assert_eq!(input.get(&name).as_deref(), expected, "{name:?}");
        }
    }

    #[test]
    fn rules_and_counts_for_statements() {
        let rule = map(&json!({"id": "r", "description": "long", "nameTemplate": "a", "condition": {}}));
        assert_eq!(slim(&rule), map(&json!({"id": "r", "nameTemplate": "a", "condition": {}})));
        let mut counts = Vec::new();
        for key in ["b", "a", "b"] {
            count(&mut counts, key.to_owned());
        }
        assert_eq!(counts, [("b".to_owned(), 2), ("a".to_owned(), 1)]);
        assert_eq!((owner_of(&DETECTION_RULES), owner_of(&RUM_DETECTION_RULES)), ("service", "application"));
    }
}
