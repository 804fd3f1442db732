//! What `explain` shows besides the plans: whose rows the caller sees, and what the run could skip (`olap-api.md`
//! 12.4).

use quiver_query::quoting;
use quiver_query::tables::DomainAccess;
use serde_json::{Value, json};

use crate::model::catalog::Catalog;
use crate::model::{Model, Reads};
use crate::plan::Tree;

/// The caller's services in the domain of the first model that names one, and the condition on the rows of each model;
/// none where all rows are seen.
pub(crate) fn rights(catalog: &Catalog, tree: Option<&Tree>, access: &DomainAccess, caller: &str) -> Value {
    if access.is_full_everywhere() {
        return json!({"services": ["*"], "predicate": null});
    }
    let models = tree.into_iter().flat_map(Tree::models).filter_map(|name| catalog.models.get(name));
    let models: Vec<&Model> = models.collect();
    let domain = models.iter().find_map(|model| model.row_right.as_ref()).map(|right| right.domain);
    let services = domain.map(|domain| access.get(domain).patterns()).unwrap_or_default();
    let conditions: Vec<String> = models.iter().filter_map(|model| condition(model, access, caller)).collect();
    let predicate = (!conditions.is_empty()).then(|| conditions.join(" AND "));
    json!({"services": services, "predicate": predicate})
}

/// The condition on rows of a model, in words of SQL over its members, as `plan::rights` makes it.
fn condition(model: &Model, access: &DomainAccess, caller: &str) -> Option<String> {
    let Some(right) = &model.row_right else { return Some("FALSE".to_owned()) };
    let is_full = access.is_full(right.domain);
    if right.reads == Reads::Visible || (is_full && !right.deny) {
        return None;
    }
    let member = |name: &String| format!("\"{}\".\"{name}\"", model.common.name);
    let own = right.own.as_ref().filter(|_| !caller.is_empty());
    let own = own.map(|own| format!("{} = {}", member(own), quoting::text(caller)));
    if right.services.is_empty() {
        return Some(own.unwrap_or_else(|| "FALSE".to_owned()));
    }
    let patterns = access.get(right.domain).patterns();
    let visible = |name: &String| {
        let member = member(name);
        let allowed: Vec<String> = patterns.iter().map(|pattern| allows(&member, pattern)).collect();
        if allowed.is_empty() { "FALSE".to_owned() } else { allowed.join(" OR ") }
    };
    let named: Vec<String> = right.services.iter().map(|name| format!("{} IS NOT NULL", member(name))).collect();
    let each = right.services.iter().map(|name| format!("({} IS NULL OR {})", member(name), visible(name)));
    let text = std::iter::once(format!("({})", named.join(" OR "))).chain(each).collect::<Vec<_>>().join(" AND ");
    Some(match own {
        Some(own) => format!("({text} OR {own})"),
        None => text,
    })
}

fn allows(member: &str, pattern: &str) -> String {
    match pattern.strip_suffix('*') {
        Some("") => format!("{member} <> ''"),
        Some(prefix) => format!("starts_with({member}, {})", quoting::text(prefix)),
        None => format!("{member} = {}", quoting::text(pattern)),
    }
}

/// What a run read of what is there; null before one. What is left out within a file are pages of row groups.
pub(crate) fn pruning(totals: &Value) -> Value {
    json!({
        "files": totals["parts_read"],
        "total": totals["parts_total"],
        "rowGroups": totals["pages_read"],
        "bytes": totals["bytes_read"],
    })
}

#[cfg(test)]
mod tests {
    use quiver_types::Access;

    use super::*;
    use crate::model::load::{SourceFile, load};

    fn catalog() -> Catalog {
        let text = "cubes:
  - name: Calls
    sql_table: public.calls
    row_right: {service: [caller, callee], domain: traces}
    dimensions:
      - {name: caller, sql: caller, type: string}
      - {name: callee, sql: callee, type: string}
";
        load(&[SourceFile { name: "calls.yml".to_owned(), text: text.to_owned(), builtin: false }]).unwrap().0
    }

    #[test]
    fn rows_of_calls_need_both_services() {
        let tree = Tree { root: "Calls".to_owned(), edges: Vec::new() };
        let all = rights(&catalog(), Some(&tree), &DomainAccess::full(), "");
        assert_eq!(all, json!({"services": ["*"], "predicate": null}));
        let access = DomainAccess::of(|_| Access::services(["it's"]));
        let some = rights(&catalog(), Some(&tree), &access, "user:a");
        assert_eq!(some["services"], json!(["it's"]));
        let expected = "(\"Calls\".\"caller\" IS NOT NULL OR \"Calls\".\"callee\" IS NOT NULL) \
                        AND (\"Calls\".\"caller\" IS NULL OR \"Calls\".\"caller\" = 'it''s') \
                        AND (\"Calls\".\"callee\" IS NULL OR \"Calls\".\"callee\" = 'it''s')";
        assert_eq!(some["predicate"], expected);
    }
}
