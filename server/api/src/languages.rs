//! What the languages say of the expressions of rules.

use quiver_alerting::problem::Place;
use quiver_alerting::rules::{Expressions, Language, ParsedExpr};

/// The languages of this binary.
#[derive(Debug, Clone, Copy, Default)]
pub struct Languages;

impl Expressions for Languages {
    fn parse(&self, language: Language, expr: &str) -> Result<ParsedExpr, (Place, String)> {
        match language {
            Language::Promql => match quiver_promql::parser::parse(expr) {
                Ok(tree) => Ok(ParsedExpr { canonical: quiver_promql::print::print(&tree) }),
                Err(e) => Err((Place { line: e.line, column: e.column }, e.to_string())),
            },
            Language::Logsql => {
                let checked =
                    quiver_logsql::parse(expr).and_then(|query| quiver_logsql::stats_columns(&query).map(|_| query));
                // Its errors tell their place themselves.
                checked
                    .map(|_| ParsedExpr { canonical: expr.to_owned() })
                    .map_err(|e| (Place::default(), e.to_string()))
            }
            Language::Olap => Err((Place::default(), "analytics are not there yet".to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parsed_or_told() {
        let parse = |language, text: &str| Languages.parse(language, text).map(|p| p.canonical);
        assert_eq!(parse(Language::Promql, "sum( up )").as_deref(), Ok("sum(up)"));
        let told = parse(Language::Promql, "test +").expect_err("unfinished");
        assert_eq!((told.0, told.1.contains("unexpected end of input")), (Place { line: 1, column: 7 }, true));
        assert!(parse(Language::Logsql, "error | stats by (app) count() n").is_ok());
        assert!(parse(Language::Logsql, "error").is_err_and(|e| e.1.contains("stats")));
        assert!(parse(Language::Olap, "{}").is_err());
    }
}
