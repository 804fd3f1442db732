//! Single steps of business processes (`config-api` 3.4). Each edit is a change of its process.

use std::sync::Arc;

use axum::Router;
use axum::routing::MethodFilter;
use futures::future::BoxFuture;
use quiver_config::families::PROCESSES;
use quiver_config::{Condition, Entity, Op, Problem, Result, System};
use serde_json::{Map, Value, json};

use super::body_members::only_members;
use super::operation::special_at;
use super::request::Ask;
use super::response::Answer;
use crate::state::AppState;

/// How often an edit is retried after concurrent ones.
const TRIES: usize = 20;

pub(super) fn routes() -> Router<Arc<AppState>> {
    let at = |rest: &str| format!("{}/{{id}}/steps{rest}", PROCESSES.path);
    let family = &PROCESSES;
    Router::new()
        .route(&at(""), special_at(family, MethodFilter::GET.or(MethodFilter::POST), collection))
        .route(&at("/order"), special_at(family, MethodFilter::PUT, order))
        .route(
            &at("/{step}"),
            special_at(
                family,
                MethodFilter::GET.or(MethodFilter::PUT).or(MethodFilter::PATCH).or(MethodFilter::DELETE),
                one,
            ),
        )
        .route(&at("/{step}/move"), special_at(family, MethodFilter::POST, move_to))
}

fn steps_of(entity: &Entity) -> Vec<Map<String, Value>> {
    let all = entity.body.get("steps").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    all.iter().filter_map(Value::as_object).cloned().collect()
}

fn place_of(steps: &[Map<String, Value>], id: &str) -> Result<usize> {
    let found = steps.iter().position(|step| step.get("id").and_then(Value::as_str) == Some(id));
    found.ok_or_else(|| Problem::new(quiver_config::ProblemKind::NotFound, "NOT_FOUND", "the process has no such step"))
}

type Edit<'a> = &'a (dyn Fn(&mut Vec<Map<String, Value>>) -> Result<()> + Send + Sync);

impl Ask {
    /// Edits the steps of a process; concurrent changes by others are kept.
    async fn edit(&self, process: &str, edit: Edit<'_>) -> Result<Entity> {
        let asked = self.condition();
        for _ in 0..TRIES {
            let present = self.config.get(&self.place, process, &self.caller).await?;
            if !matches!(asked, Condition::Versions(_)) {
                asked.check(&present)?;
            }
            let mut steps = steps_of(&present);
            edit(&mut steps)?;
            for step in &mut steps {
                step.remove("position");
            }
            let condition = match &asked {
                Condition::Versions(versions) => Condition::Versions(versions.clone()),
                _ => Condition::Versions(vec![present.version]),
            };
            let patch = [("steps".to_owned(), json!(steps))].into_iter().collect();
            let op = Op::Patch { id: process.to_owned(), patch, condition };
            match self.change(op, System::default()).await {
                Err(problem) if problem.code == "VERSION_CONFLICT" && !matches!(asked, Condition::Versions(_)) => {}
                done => return done?.after.ok_or_else(|| Problem::internal("a patch leaves an entity")),
            }
        }
        Err(Problem::new(quiver_config::ProblemKind::Busy, "STORE_BUSY", "the process is being edited by many"))
    }

    /// The step in the body of a request.
    fn step_body(&self) -> Result<Map<String, Value>> {
        let body = self.object()?;
        match body.get("id") {
            Some(_) if self.method == http::Method::POST => {
                Err(Problem::field("/id", "READ_ONLY_FIELD", "is set by the service"))
            }
            _ => Ok(body),
        }
    }
}

fn shown(entity: &Entity, at: usize, status: u16) -> Answer {
    let step = steps_of(entity).get(at).cloned().map_or(Value::Null, Value::Object);
    Answer { status, etag: Some(entity.etag()), ..Answer::ok(step) }
}

/// Makes the fields of errors relative to the step, instead of its process.
fn own(problem: Problem, at: usize) -> Problem {
    let place = format!("/steps/{at}");
    problem.moved(|field| {
        let rest = field.strip_prefix(&place).filter(|rest| rest.is_empty() || rest.starts_with('/'));
        rest.map(str::to_owned)
    })
}

/// Removes and returns the position that a step asks for.
fn place_asked(step: &mut Map<String, Value>) -> Result<Option<usize>> {
    match step.remove("position") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Number(number)) => {
            let why = "must be a place: 0 or more";
            let at = number.as_u64().ok_or_else(|| Problem::field("/position", "OUT_OF_RANGE", why))?;
            Ok(Some(usize::try_from(at).unwrap_or(usize::MAX)))
        }
        Some(_) => Err(Problem::field("/position", "INVALID_TYPE", "must be a number")),
    }
}

/// The response for a client that has this version already.
fn known(entity: &Entity) -> Answer {
    Answer { status: 304, etag: Some(entity.etag()), ..Answer::ok(Value::Null) }
}

fn collection<'a>(ask: &'a Ask, ids: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.only_parameters(&[])?;
        if ask.method != http::Method::POST {
            let entity = ask.config.get(&ask.place, &ids[0], &ask.caller).await?;
            if ask.knows(&entity.etag()) {
                return Ok(known(&entity));
            }
            let items = steps_of(&entity);
            let answer = Answer::ok(json!({"items": items, "nextCursor": null}));
            return Ok(Answer { etag: Some(entity.etag()), ..answer });
        }
        let mut body = ask.step_body()?;
        let wanted = place_asked(&mut body)?;
        let present = ask.config.get(&ask.place, &ids[0], &ask.caller).await?;
        let last = steps_of(&present).len();
        let at = wanted.unwrap_or(last).min(last);
        let insert = |steps: &mut Vec<Map<String, Value>>| {
            let at = wanted.unwrap_or(steps.len()).min(steps.len());
            steps.insert(at, body.clone());
            Ok(())
        };
        let entity = ask.edit(&ids[0], &insert).await.map_err(|p| own(p, at))?;
        let name = body.get("name").and_then(Value::as_str).unwrap_or_default().trim();
        let at = steps_of(&entity).iter().position(|s| s.get("name").and_then(Value::as_str) == Some(name));
        let mut answer = shown(&entity, at.unwrap_or_default(), 201);
        let id = answer.body.get("id").and_then(Value::as_str).unwrap_or_default();
        answer.location = Some(format!("{}/{id}", ask.path.trim_end_matches('/')));
        Ok(answer)
    })
}

fn one<'a>(ask: &'a Ask, ids: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.only_parameters(&[])?;
        let present = ask.config.get(&ask.place, &ids[0], &ask.caller).await?;
        let at = place_of(&steps_of(&present), &ids[1])?;
        let id = json!(ids[1]);
        let entity = match ask.method.as_str() {
            "GET" | "HEAD" if ask.knows(&present.etag()) => return Ok(known(&present)),
            "GET" | "HEAD" => present,
            "DELETE" => {
                let remove = |steps: &mut Vec<Map<String, Value>>| {
                    steps.remove(place_of(steps, &ids[1])?);
                    Ok(())
                };
                ask.edit(&ids[0], &remove).await?;
                return Ok(Answer::nothing());
            }
            method => {
                let mut body = ask.step_body()?;
                let to = place_asked(&mut body)?;
                let last = steps_of(&present).len().saturating_sub(1);
                if body.get("id").is_some_and(|other| *other != id) {
                    return Err(Problem::field("/id", "READ_ONLY_FIELD", "is set by the service"));
                }
                let patches = method == "PATCH";
                let change = |steps: &mut Vec<Map<String, Value>>| {
                    let at = place_of(steps, &ids[1])?;
                    let mut step = if patches { steps[at].clone() } else { Map::new() };
                    if patches {
                        quiver_config::json::merge(&mut step, body.clone());
                    } else {
                        step.clone_from(&body);
                    }
                    step.insert("id".to_owned(), id.clone());
                    steps.remove(at);
                    steps.insert(to.unwrap_or(at).min(steps.len()), step);
                    Ok(())
                };
                let at = to.unwrap_or(at).min(last);
                ask.edit(&ids[0], &change).await.map_err(|p| own(p, at))?
            }
        };
        let at = place_of(&steps_of(&entity), &ids[1])?;
        Ok(shown(&entity, at, 200))
    })
}

fn order<'a>(ask: &'a Ask, ids: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.only_parameters(&[])?;
        let body = ask.object()?;
        only_members(&body, &["ids"])?;
        let wanted = super::bulk::all_ids_in(&body, "ids")?;
        let entity = ask
            .edit(&ids[0], &|steps| {
                let sorted: Result<Vec<_>> =
                    wanted.iter().map(|id| place_of(steps, id).map(|at| steps[at].clone())).collect();
                let unique: std::collections::HashSet<&String> = wanted.iter().collect();
                match sorted {
                    Ok(sorted) if sorted.len() == steps.len() && unique.len() == steps.len() => *steps = sorted,
                    _ => {
                        let why = format!("must name each of the {} steps once", steps.len());
                        return Err(Problem::field("/ids", "INVALID_VALUE", why));
                    }
                }
                Ok(())
            })
            .await?;
        let items: Vec<Value> =
            steps_of(&entity).iter().map(|s| json!({"id": s.get("id"), "position": s.get("position")})).collect();
        Ok(Answer { etag: Some(entity.etag()), ..Answer::ok(json!({"items": items})) })
    })
}

fn move_to<'a>(ask: &'a Ask, ids: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.only_parameters(&[])?;
        let body = ask.object()?;
        only_members(&body, &["before", "after", "position"])?;
        if body.len() != 1 {
            return Err(Problem::field("", "INVALID_VALUE", "one of `before`, `after` and `position` is needed"));
        }
        let move_it = |steps: &mut Vec<Map<String, Value>>| {
            let step = steps.remove(place_of(steps, &ids[1])?);
            let named = |key: &str| -> Result<usize> {
                let id = body.get(key).and_then(Value::as_str);
                let id = id.ok_or_else(|| Problem::field(format!("/{key}"), "INVALID_TYPE", "must be an id"))?;
                let why = "the process has no such other step";
                place_of(steps, id).map_err(|_| Problem::field(format!("/{key}"), "UNKNOWN_REFERENCE", why))
            };
            let to = match (body.get("before"), body.get("after")) {
                (Some(_), _) => named("before")?,
                (_, Some(_)) => named("after")? + 1,
                _ => {
                    let at = body.get("position").and_then(Value::as_u64).filter(|n| *n <= steps.len() as u64);
                    let why = format!("must be a place from 0 to {}", steps.len());
                    at.ok_or_else(|| Problem::field("/position", "OUT_OF_RANGE", why))? as usize
                }
            };
            steps.insert(to, step);
            Ok(())
        };
        let entity = ask.edit(&ids[0], &move_it).await?;
        let at = place_of(&steps_of(&entity), &ids[1])?;
        Ok(shown(&entity, at, 200))
    })
}

#[cfg(test)]
mod tests {
    use quiver_config::FieldError;

    use super::*;

    fn map(value: Value) -> Map<String, Value> {
        let Value::Object(map) = value else { panic!("no object: {value}") };
        map
    }

    #[test]
    fn the_place_of_a_step_is_taken_out_of_it() {
        for (position, at) in
            [(json!(null), None), (json!(0), Some(0)), (json!(7), Some(7)), (json!(u64::MAX), Some(usize::MAX))]
        {
            let mut step = map(json!({"name": "pay", "position": position}));
            assert_eq!(place_asked(&mut step).unwrap(), at, "{position}");
            assert_eq!(step, map(json!({"name": "pay"})), "{position}");
        }
        assert_eq!(place_asked(&mut map(json!({"name": "pay"}))).unwrap(), None);
        for (position, code) in [
            (json!(-1), "OUT_OF_RANGE"),
            (json!(1.5), "OUT_OF_RANGE"),
            (json!("1"), "INVALID_TYPE"),
            (json!(true), "INVALID_TYPE"),
            (json!([0]), "INVALID_TYPE"),
        ] {
            let problem = place_asked(&mut map(json!({"position": position}))).unwrap_err();
            assert_eq!((problem.errors[0].field.as_str(), problem.errors[0].code), ("/position", code), "{position}");
        }
    }

    #[test]
    fn steps_are_found_by_their_ids() {
        let steps = [json!({"id": "a"}), json!({}), json!({"id": 7}), json!({"id": "b"})].map(map);
        assert_eq!((place_of(&steps, "a").unwrap(), place_of(&steps, "b").unwrap()), (0, 3));
        for absent in ["", "7", "A"] {
            assert_eq!(place_of(&steps, absent).unwrap_err().code, "NOT_FOUND", "{absent}");
        }
        assert!(place_of(&[], "a").is_err());
    }

    /// Would fail if an error of step 12 were reported for step 1.
    #[test]
    fn errors_stand_at_the_step_that_was_sent() {
        let check = |fields: &[&str], at: usize, detail: &str, expected: &[&str]| {
            let error = |field: &&str| FieldError::new(*field, "REQUIRED", "is needed");
            let found = own(Problem::invalid(fields.iter().map(error).collect()), at);
            let places: Vec<&str> = found.errors.iter().map(|error| error.field.as_str()).collect();
            assert_eq!((found.detail.as_str(), &places[..]), (detail, expected));
        };
        check(&["/steps/1/name"], 1, "/name: is needed", &["/name"]);
        check(&["/steps/12/name"], 1, "/steps/12/name: is needed", &["/steps/12/name"]);
        check(&["/name"], 1, "/name: is needed", &["/name"]);
        check(&["/steps/0/name", "/steps/2/name", "/x"], 2, "3 fields are invalid", &["/steps/0/name", "/name", "/x"]);
    }
}
