//! Field names with a trailing `*`, as pipes use them: what `fields`, `delete` and `rename` do to rows in memory.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use quiver_logsql::ast::{FieldPattern, Pipe};
use quiver_logsql::pipes::fields::Fields;
use quiver_logsql::{QueryScope, parse};
use quiver_query::{Limits, QueryContext, QueryEngine};
use quiver_types::Access;
use serde_json::Value;

use super::memory::{Memory, engine, logsql_over};
use super::{Suite, Verdict, read, text};

/// The suite of this file.
pub(crate) fn suite(folder: &Path) -> Suite<'static> {
    let runner = Runner { runtime: tokio::runtime::Runtime::new().expect("a runtime"), engine: engine() };
    Suite {
        name: "field_name_patterns",
        cases: read(&folder.join("upstream/field_name_patterns.jsonl")),
        run: Box::new(move |case: &Value| run(case, &runner)),
    }
}

/// Runs pipes over one row.
struct Runner {
    runtime: tokio::runtime::Runtime,
    engine: Arc<QueryEngine>,
}

impl Runner {
    /// The names that a row with these names has behind the pipes.
    fn names(&self, names: &[String], pipes: &str) -> Result<Vec<String>, String> {
        let query = parse(&format!("* {pipes}")).map_err(|e| e.to_string())?;
        let row = names.iter().map(|name| (name.clone(), "v".to_owned())).collect();
        let memory = Memory { rows: Arc::new(vec![row]), batch_rows: 1 };
        let logsql = logsql_over(Arc::new(memory), Arc::clone(&self.engine));
        let ctx = QueryContext::new(Access::full(), Limits { timeout: Duration::from_mins(5), ..Limits::default() });
        let found = self.runtime.block_on(logsql.collect(&query, &QueryScope::default(), &ctx));
        let rows = found.map_err(|e| e.to_string())?;
        let mut names: Vec<String> =
            rows.iter().flat_map(|rows| rows.to_texts().expect("texts")).flatten().map(|(name, _)| name).collect();
        names.sort();
        Ok(names)
    }
}

fn run(case: &Value, runner: &Runner) -> Verdict {
    let (test, args) = (text(case, "test"), &case["args"]);
    let outcome = match test {
        "TestIsWildcardFilter" => same(pattern(text(args, "filter")).name().is_none(), args),
        "TestMatchFilter" => same(pattern(text(args, "filter")).matches(text(args, "s")), args),
        "TestMatchFilters" => same(patterns(&args["filters"]).iter().any(|p| p.matches(text(args, "s"))), args),
        "TestMatchAll" => same(patterns(&args["filters"]).iter().any(FieldPattern::is_all), args),
        "TestAppendReplace" => return renamed(args, runner),
        "TestFilter_MatchStringOrWildcard" => kept(args, runner),
        "TestFilter_GetAllowStrings" => allowed(args, runner),
        "TestFilter_GetAllowFilters" | "TestFilter_GetDenyFilters" | "TestFilter_DropBroaderDenyFilters" => {
            return Verdict::Skipped("how a set of names is kept shows nowhere; which names are in it is run");
        }
        "TestFilter_Clone" | "TestFilter_MatchString_NilFilter" => {
            return Verdict::Skipped("about the memory of the reference's own type");
        }
        _ => Err("not known here".to_owned()),
    };
    match outcome {
        Ok(()) => Verdict::Passed,
        Err(e) => Verdict::Failed(format!("{test} {args}: {e}")),
    }
}

fn same(found: bool, args: &Value) -> Result<(), String> {
    if args["resultExpected"] == found { Ok(()) } else { Err(format!("{found}")) }
}

/// A name or group as the language reads it in `fields`; the empty name, which stands for `_msg` there, by itself.
fn pattern(text: &str) -> FieldPattern {
    if text.is_empty() {
        return FieldPattern::Name(String::new());
    }
    match parse(&format!("* | fields {}", quoted(text))).map(|query| query.pipes) {
        Ok(pipes) => match pipes.first().and_then(Pipe::downcast_ref::<Fields>) {
            Some(Fields(fields)) if fields.len() == 1 => fields[0].clone(),
            _ => panic!("{text} is read as {pipes:?}"),
        },
        Err(e) => panic!("{text}: {e}"),
    }
}

/// A name or group in the spelling of the language; a star elsewhere than at the end is part of the name.
fn quoted(text: &str) -> String {
    match text.strip_suffix('*') {
        Some("") => "*".to_owned(),
        Some(prefix) => format!("{}*", Value::from(prefix)),
        None => Value::from(text).to_string(),
    }
}

fn patterns(list: &Value) -> Vec<FieldPattern> {
    texts(list).iter().map(|text| pattern(text)).collect()
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().map(|v| v.as_str().unwrap_or_default().to_owned()).collect()
}

/// `rename`: what becomes of a name.
fn renamed(args: &Value, runner: &Runner) -> Verdict {
    let (source, target, name) = (text(args, "srcFilter"), text(args, "dstFilter"), text(args, "s"));
    if source.is_empty() || name.is_empty() {
        return Verdict::Skipped("a field has a name");
    }
    if source.ends_with('*') != target.ends_with('*') {
        return Verdict::Skipped("a group is renamed to a group, a field to a field");
    }
    let pipe = format!("| rename {} as {}", quoted(source), quoted(target));
    match runner.names(&[name.to_owned()], &pipe) {
        Ok(names) if names == [text(args, "resultExpected")] => Verdict::Passed,
        other => Verdict::Failed(format!("{args}: {other:?}")),
    }
}

/// What leaves only the allowed names that are not denied.
fn pipes(args: &Value) -> String {
    let list = |name: &str| texts(&args[name]).iter().map(|text| quoted(text)).collect::<Vec<_>>().join(", ");
    let (allow, deny) = (list("allow"), list("deny"));
    let deny = if deny.is_empty() { String::new() } else { format!("| delete {deny} ") };
    // Nothing is allowed: a field that no row has.
    let allow = if allow.is_empty() { "no_such_field" } else { &allow };
    format!("{deny}| fields {allow}")
}

/// Whether a name, or any name of a group, is left.
fn kept(args: &Value, runner: &Runner) -> Result<(), String> {
    let asked = text(args, "s");
    let names = match asked.strip_suffix('*') {
        None if asked.is_empty() => {
            let listed = |list: &str| patterns(&args[list]).iter().any(|pattern| pattern.matches(""));
            return same(listed("allow") && !listed("deny"), args);
        }
        None => vec![asked.to_owned()],
        // Names of the group: ends of its own, and those that the lists speak of.
        Some(prefix) => ["allow", "deny"]
            .iter()
            .flat_map(|list| texts(&args[*list]))
            .flat_map(|text| {
                let bare = text.trim_end_matches('*').to_owned();
                [bare.clone(), format!("{bare}zz")]
            })
            .chain([prefix.to_owned(), format!("{prefix}zz")])
            .filter(|name| !name.is_empty() && name.starts_with(prefix))
            .collect(),
    };
    same(!runner.names(&names, &pipes(args))?.is_empty(), args)
}

/// Which names are left, where only names are allowed.
fn allowed(args: &Value, runner: &Runner) -> Result<(), String> {
    let mut names = texts(&args["allow"]);
    names.sort();
    if names.iter().any(|name| name.ends_with('*')) {
        // A group may have names without end.
        return if args["okExpected"] == false { Ok(()) } else { Err("a list is expected".to_owned()) };
    }
    let mut wanted = texts(&args["resultExpected"]);
    wanted.sort();
    let found = runner.names(&names, &pipes(args))?;
    if found == wanted { Ok(()) } else { Err(format!("{found:?}")) }
}
