//! Syntax of Cube's compiler that SQL of models does not have here. It would pass as SQL, and fail with the first query.

use std::sync::LazyLock;

use regex::Regex;

use super::problem::ModelProblem;
use super::{Dimension, Measure, Model, Source};

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("the patterns below compile")
}

static QUOTED: LazyLock<Regex> = LazyLock::new(|| pattern(r#"'(?:[^']|'')*'|"[^"]*""#));
static CONTEXT: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"\{\s*(FILTER_PARAMS|FILTER_GROUP|SECURITY_CONTEXT|COMPILE_CONTEXT)\b"));
static JINJA: LazyLock<Regex> = LazyLock::new(|| pattern(r"\{[{%]"));
static ROWS: LazyLock<Regex> = LazyLock::new(|| pattern(r"\{\s*(\w+)\.sql\(\)\s*\}"));
static BUCKET: LazyLock<Regex> = LazyLock::new(|| pattern(r"\{\s*(\w+\.\w+)\.(\w+)\s*\}"));

/// What to write in place of a time with a granularity.
pub(super) fn of_granularity(time: &str, granularity: &str) -> String {
    format!(
        "`{{{time}.{granularity}}}` has a granularity, which SQL does not know: write `date_trunc('{granularity}', {{{time}}})`"
    )
}

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
    if let Some(found) = ROWS.captures(&plain) {
        return Some(format!("`{{{}.sql()}}` is not supported: write its table or SELECT", &found[1]));
    }
    BUCKET.captures(&plain).map(|found| of_granularity(&found[1], &found[2]))
}

/// Reports texts of models with such syntax.
pub(super) fn check(models: &[Model], problems: &mut Vec<ModelProblem>) {
    for model in models {
        let dimensions = model.dimensions.iter().flat_map(Dimension::templates);
        let measures = model.measures.iter().flat_map(Measure::templates);
        let segments = model.segments.iter().map(|segment| &segment.sql);
        let joins = model.joins.iter().map(|join| &join.sql);
        let rows = model.rows.iter().map(|rows| &rows.sql);
        let templates = dimensions.chain(measures).chain(segments).chain(joins).chain(rows);
        let select = model.source.iter().filter_map(|source| match source {
            Source::Select(sql) => Some((model.common.place, sql.as_str())),
            Source::Table(..) => None,
        });
        for (place, text) in select.chain(templates.map(|template| (template.place, template.text.as_str()))) {
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
        let granularity =
            "`{CUBE.at.year}` has a granularity, which SQL does not know: write `date_trunc('year', {CUBE.at})`";
        check("{CUBE.at.year}", Some(granularity));
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
        assert_eq!(told("date_trunc('year', {at})"), Ok(()));
        for name in ["at", "CUBE.at"] {
            let refused = told(&format!("{{{name}.year}}")).unwrap_err();
            assert!(refused.len() == 1 && refused[0].ends_with(&of_granularity(name, "year")), "{refused:?}");
        }
    }
}
