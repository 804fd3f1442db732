//! `set_config(name, value, is_local)`: a query that changes a setting of its connection. The owner of the connection
//! applies the changes before the query runs; the call itself only returns the new value.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, Select, SelectItem, SetExpr, TableFactor, TableWithJoins, Value, Visitor,
};
use quiver_types::{Error, ErrorKind, Result};

use crate::dialect::{arguments, bare};
use crate::names::normal;
use crate::parse::{Params, ReadStatement, parse};
use crate::statement_walk::walk;

const SET_CONFIG: &str = "set_config";

/// What a call sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingChange {
    /// As it is written.
    pub name: String,
    /// None: what was at the beginning.
    pub value: Option<String>,
    /// Whether it holds until the transaction ends, and not as long as the connection.
    pub is_local: bool,
}

/// Counts calls, wherever they stand.
struct Calls(usize);

impl Visitor for Calls {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        self.0 += usize::from(is_call(expr));
        ControlFlow::Continue(())
    }
}

fn is_call(expr: &Expr) -> bool {
    matches!(expr, Expr::Function(Function { name, .. }) if bare(name).as_deref() == Some(SET_CONFIG))
}

/// Finds what a statement sets.
///
/// # Errors
/// Invalid: a call has other arguments than constants. Unsupported: it stands elsewhere than among the outputs of a
/// `SELECT` without `FROM`, or of one that looks that setting up.
pub fn settings(text: &str, params: &Params) -> Result<Vec<SettingChange>> {
    // Hardly any statement has to be read for this.
    if !text.as_bytes().windows(SET_CONFIG.len()).any(|part| part.eq_ignore_ascii_case(SET_CONFIG.as_bytes())) {
        return Ok(Vec::new());
    }
    // What is wrong with it is said when it runs.
    let Ok(read) = parse(text, params) else { return Ok(Vec::new()) };
    let (ReadStatement::Query(query), None) = (read.statement, read.explain) else { return Ok(Vec::new()) };
    let mut calls = Calls(0);
    let _ = walk(&*query, &mut calls);
    let mut found = Vec::new();
    let (mut is_once, mut found_there) = (false, None);
    if let SetExpr::Select(select) = &*query.body {
        is_once = select.from.is_empty() && select.selection.is_none();
        found_there = looked_up(select);
        for item in select.projection.iter().filter(|_| is_once || found_there.is_some()) {
            let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item else { continue };
            if let Expr::Function(call) = expr
                && is_call(expr)
            {
                found.push(setting(call)?);
            }
        }
    }
    let is_that = |set: &SettingChange| found_there.as_ref().is_some_and(|there| *there == set.name);
    if found.len() == calls.0 && (is_once || found.iter().all(is_that)) {
        return Ok(found);
    }
    Err(Error::new(ErrorKind::Unsupported, "`set_config` is an output of its own, of a `SELECT` without `FROM`"))
}

/// The setting that a query looks up in the list of them: with `FROM pg_settings WHERE name = 'x'` clients set `x` where
/// there is such a setting, and here each can be set.
fn looked_up(select: &Select) -> Option<String> {
    let [TableWithJoins { relation: TableFactor::Table { name, .. }, joins }] = select.from.as_slice() else {
        return None;
    };
    let is_list = matches!(bare(name).as_deref(), Some("pg_settings" | "pg_show_all_settings")) && joins.is_empty();
    let Some(Expr::BinaryOp { left, op: BinaryOperator::Eq, right }) = select.selection.as_ref().filter(|_| is_list)
    else {
        return None;
    };
    let is_name = match &**left {
        Expr::Identifier(column) => normal(column) == "name",
        Expr::CompoundIdentifier(parts) => parts.last().is_some_and(|column| normal(column) == "name"),
        _ => false,
    };
    constant(right).flatten().filter(|_| is_name)
}

fn setting(call: &Function) -> Result<SettingChange> {
    let args = arguments(&call.args).unwrap_or_default();
    let args: Vec<Option<Option<String>>> = args.iter().map(constant).collect();
    let known = match args.as_slice() {
        [Some(Some(name)), Some(value), Some(Some(is_local))] => {
            truth(is_local).map(|is_local| (name, value, is_local))
        }
        _ => None,
    };
    let (name, value, is_local) = known.ok_or_else(|| {
        Error::invalid("`set_config` is called as `set_config(name, value, is_local)`, with constants")
    })?;
    Ok(SettingChange { name: name.clone(), value: value.clone(), is_local })
}

/// The truth that a text says.
fn truth(text: &str) -> Option<bool> {
    match text.to_lowercase().as_str() {
        "f" | "false" | "n" | "no" | "off" | "0" => Some(false),
        "t" | "true" | "y" | "yes" | "on" | "1" => Some(true),
        _ => None,
    }
}

/// A constant as text, through casts; the inner none is NULL.
#[expect(clippy::option_option, reason = "no constant, and the constant NULL")]
fn constant(expr: &Expr) -> Option<Option<String>> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) | Value::Number(text, _) => {
                Some(Some(text.clone()))
            }
            Value::Boolean(value) => Some(Some(value.to_string())),
            Value::Null => Some(None),
            _ => None,
        },
        Expr::Nested(inner) | Expr::Cast { expr: inner, .. } => constant(inner),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::Param;

    #[test]
    fn what_a_statement_sets() {
        let set = |text: &str| settings(text, &Params::default());
        let of = |name: &str, value: Option<&str>, is_local| SettingChange {
            name: name.to_owned(),
            value: value.map(str::to_owned),
            is_local,
        };
        let pair = |name: &str, value: &str| of(name, Some(value), false);
        assert!(set("select 'set'").unwrap().is_empty());
        assert!(set("select 'set_config'").unwrap().is_empty());
        assert_eq!(
            set("SELECT current_setting('jit') AS cur, pg_catalog.SET_CONFIG('jit', 'off', false) AS new").unwrap(),
            [pair("jit", "off")]
        );
        assert_eq!(set("select set_config('timezone', null, 'f')").unwrap(), [of("timezone", None, false)]);
        assert_eq!(set("select set_config('jit', 'off', true)").unwrap(), [of("jit", Some("off"), true)]);
        assert!(set("explain select set_config('jit', 'off', false)").unwrap().is_empty());
        let given = Params::positional(vec![Param::Text("my.own".into()), Param::Text("x".into())]);
        assert_eq!(settings("select set_config($1, $2, false)", &given).unwrap(), [pair("my.own", "x")]);
        for list in ["pg_show_all_settings()", "pg_catalog.pg_settings s"] {
            let looked_up =
                format!("select set_config('bytea_output', 'hex', false) from {list} where name = 'bytea_output'");
            assert_eq!(set(&looked_up).unwrap(), [pair("bytea_output", "hex")], "{looked_up}");
        }
        for (wrong, kind) in [
            ("select set_config('jit', 'off', false) from pg_settings where name = 'other'", ErrorKind::Unsupported),
            ("select set_config('jit', 'off', false) from pg_settings", ErrorKind::Unsupported),
            ("select set_config('jit', 'off', 'maybe')", ErrorKind::Invalid),
            ("select set_config('jit', 'off', false) from logs", ErrorKind::Unsupported),
            ("select upper(set_config('jit', 'off', false))", ErrorKind::Unsupported),
            ("select set_config('jit', upper('off'), false)", ErrorKind::Invalid),
            ("select set_config('jit')", ErrorKind::Invalid),
        ] {
            assert_eq!(set(wrong).unwrap_err().kind, kind, "{wrong}");
        }
    }

    #[test]
    fn constants_are_written_in_many_ways() {
        let set = |text: &str| settings(text, &Params::default());
        for (call, expected) in [
            ("set_config('a', E'b\\'c', 'no')", Some("b'c")),
            ("set_config(('a'), ('b'::text)::text, 'OFF')", Some("b")),
            ("set_config('a', 250, 0)", Some("250")),
            ("set_config('a', true, 'False')", Some("true")),
            ("set_config('a', '', FALSE)", Some("")),
            ("set_config('a', null::text, false) as x", None),
        ] {
            let found = set(&format!("select {call}")).unwrap();
            let [SettingChange { name, value, is_local: false }] = found.as_slice() else {
                panic!("{call}: {found:?}")
            };
            assert_eq!((name.as_str(), value.as_deref()), ("a", expected), "{call}");
        }
        // In the order in which they stand, the same one again, too.
        let found =
            set("select set_config('b', '1', false), 5, set_config('a', '2', false), set_config('b', '3', false)");
        let found: Vec<String> =
            found.unwrap().into_iter().map(|set| format!("{}={}", set.name, set.value.unwrap_or_default())).collect();
        assert_eq!(found, ["b=1", "a=2", "b=3"]);
        // What is wrong with a statement is said when it runs.
        for text in ["select set_config('a', 'b', false", "drop table set_config", "describe set_config", ""] {
            assert!(set(text).unwrap().is_empty(), "{text}");
        }
    }

    #[test]
    fn settings_are_set_once_or_not_at_all() {
        for (wrong, kind) in [
            ("select set_config('a', 'b', false) where true", ErrorKind::Unsupported),
            ("select set_config('a', 'b', false) union all select 'x'", ErrorKind::Unsupported),
            ("values (set_config('a', 'b', false))", ErrorKind::Unsupported),
            ("with x as (select set_config('a', 'b', false)) select 1", ErrorKind::Unsupported),
            ("select (select set_config('a', 'b', false))", ErrorKind::Unsupported),
            ("select 1 order by set_config('a', 'b', false)", ErrorKind::Unsupported),
            // Looked up by another column, another way, or beside another table.
            ("select set_config('a', 'b', false) from pg_settings where setting = 'a'", ErrorKind::Unsupported),
            ("select set_config('a', 'b', false) from pg_settings where name <> 'a'", ErrorKind::Unsupported),
            ("select set_config('a', 'b', false) from pg_settings, logs where name = 'a'", ErrorKind::Unsupported),
            ("select set_config('a', 'b', false) from pg_roles where name = 'a'", ErrorKind::Unsupported),
            ("select set_config(null, 'b', false)", ErrorKind::Invalid),
            ("select set_config('a', 'b', null)", ErrorKind::Invalid),
            ("select set_config('a', set_config('b', 'c', false), false)", ErrorKind::Invalid),
            ("select set_config(name, 'b', false)", ErrorKind::Invalid),
            ("select set_config()", ErrorKind::Invalid),
        ] {
            assert_eq!(settings(wrong, &Params::default()).unwrap_err().kind, kind, "{wrong}");
        }
    }
}
