//! Syntax of Cube's compiler that SQL of models does not have here. It would pass as SQL, and fail with the first query.

use std::sync::LazyLock;

use regex::Regex;

use super::problem::ModelProblem;
use super::{Model, Source};

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("the patterns below compile")
}

static QUOTED: LazyLock<Regex> = LazyLock::new(|| pattern(r#"'(?:[^']|'')*'|"[^"]*""#));
static CONTEXT: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"\{\s*(FILTER_PARAMS|FILTER_GROUP|SECURITY_CONTEXT|COMPILE_CONTEXT)\b"));
static JINJA: LazyLock<Regex> = LazyLock::new(|| pattern(r"\{[{%]"));
static ROWS: LazyLock<Regex> = LazyLock::new(|| pattern(r"\{\s*(\w+)\.sql\(\)\s*\}"));

/// What is wrong with a text; `None` if nothing is.
fn fault(text: &str) -> Option<String> {
    let plain = QUOTED.replace_all(text, "''");
    if let Some(found) = CONTEXT.captures(&plain) {
        let hint = match &found[1] {
            "SECURITY_CONTEXT" => "rights by row are given with `row_right`",
            "COMPILE_CONTEXT" => "models are the same for all callers",
            _ => "conditions of queries reach the rows without it",
        };
        return Some(format!("`{}` is not supported: {hint}", &found[1]));
    }
    if JINJA.is_match(&plain) {
        return Some("templates (`{{ … }}`, `{% … %}`) are not supported: write the SQL that they make".to_owned());
    }
    let found = ROWS.captures(&plain)?;
    Some(format!("`{{{}.sql()}}` is not supported: write its table or SELECT", &found[1]))
}

/// Reports texts of models with such syntax.
pub(super) fn check(models: &[Model], problems: &mut Vec<ModelProblem>) {
    for model in models {
        let texts = model.templates().map(|template| (template.place, template.text.as_str()));
        let select = model.source.iter().filter_map(|source| match source {
            Source::Select(sql) => Some((model.common.place, sql.as_str())),
            Source::Table(..) => None,
        });
        for (place, text) in select.chain(texts) {
            if let Some(fault) = fault(text) {
                problems.push(ModelProblem::new(model, place, None, fault));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::load::{SourceFile, load};

    #[test]
    fn what_is_told_of_texts() {
        let check = |text: &str, expected: Option<&str>| assert_eq!(fault(text).as_deref(), expected, "{text}");
        check("{CUBE}.a = {B.c} AND ${d} <> '{{x}} {CUBE.at.day}'", None);
        check("SELECT * FROM a WHERE b = '{% if %}' AND \"{{c}}\" > 1", None);
        check(
            "SELECT * FROM a WHERE {FILTER_PARAMS.A.at.filter('at')}",
            Some("`FILTER_PARAMS` is not supported: conditions of queries reach the rows without it"),
        );
        check(
            "${SECURITY_CONTEXT.team.filter('team')}",
            Some("`SECURITY_CONTEXT` is not supported: rights by row are given with `row_right`"),
        );
        check("SELECT * FROM {A.sql()}", Some("`{A.sql()}` is not supported: write its table or SELECT"));
        check("{CUBE.at.year} = {at.year}", None);
        let templates = "templates (`{{ … }}`, `{% … %}`) are not supported: write the SQL that they make";
        check("{{ table('a') }}", Some(templates));
        check("{% if a %} SELECT 1 {% endif %}", Some(templates));
    }

    #[test]
    fn models_with_it_are_refused() {
        let told = |sql: &str| {
            let text = format!(
                "cubes:\n  - name: A\n    sql_table: a\n    dimensions:\n      - {{name: at, sql: at, type: time}}\n      \
                 - {{name: year, sql: \"{sql}\", type: time}}\n"
            );
            let file = SourceFile { name: "m.yml".to_owned(), text, builtin: false };
            load(&[file]).map(|_| ()).map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        for sql in ["date_trunc('year', {at})", "{at.year}", "{CUBE.at.year}", "{A.at.year}"] {
            assert_eq!(told(sql), Ok(()), "{sql}");
        }
        for (sql, expected) in [
            ("{at.yaer}", "`A.at` has no granularity `yaer`; did you mean `year`?"),
            ("{CUBE.ta.year}", "model `A` has no member `ta`; did you mean `at`?"),
            ("{B.at.year}", "there is no model `B`"),
            ("{% if a %}", "write the SQL that they make"),
        ] {
            let refused = told(sql).unwrap_err();
            assert!(refused.len() == 1 && refused[0].ends_with(expected), "{sql}: {refused:?}");
        }
    }
}
