//! Functions about the session and the catalog.

use std::str::FromStr;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause,
    FunctionArguments, Ident, ObjectName, Query, SelectItem, SetExpr, TableFactor, Value,
};
use quiver_query::quoting::text as quoted;
use quiver_query::tables::QUIVER_SCHEMA;
use quiver_types::{Error, ErrorKind, Result};

use super::expressions::{arguments, bare, boolean, call, expr, is_null, items_of_text, literal, number, take, text};
use super::patterns::{self, folded};
use super::translator::Translator;
use super::{
    arrays, collecting_aggregates, decimals, empty_queries, encodings, function_rewrites, json_functions,
    json_path_variables, percentiles, set_returning_functions, times, types, windows,
};
use crate::catalog::functions::{CatalogFunction, known};
use crate::catalog::schemas::PG_CATALOG;
use crate::catalog::types::sql_with_modifier;
use crate::error::unsupported;
use crate::session::{DATABASE, SERVER_VERSION};

/// Functions that return definitions, comments or sizes, of which Quiver has none.
const NOTHING: [&str; 17] = [
    "pg_get_function_sqlbody",
    "pg_get_expr",
    "pg_get_viewdef",
    "pg_get_constraintdef",
    "pg_get_indexdef",
    "pg_get_partkeydef",
    "pg_get_ruledef",
    "pg_get_triggerdef",
    "pg_get_serial_sequence",
    "pg_get_statisticsobjdef_columns",
    "obj_description",
    "col_description",
    "shobj_description",
    "inet_server_addr",
    "inet_client_addr",
    "pg_get_function_arg_default",
    "pg_advisory_unlock_all",
];
/// Numbers about objects of the catalog that are not known.
const NO_NUMBERS: [&str; 7] = [
    "pg_database_size",
    "pg_relation_size",
    "pg_table_size",
    "pg_indexes_size",
    "pg_total_relation_size",
    "pg_tablespace_size",
    "pg_stat_get_numscans",
];
/// Privileges that users have on everything they can see.
const READING: [&str; 4] = ["select", "usage", "connect", "execute"];

/// Aggregates of pairs, and sketches: DataFusion ignores their `DISTINCT`.
const NOT_DISTINCT: [&str; 16] = [
    "approx_percentile_cont",
    "corr",
    "covar",
    "covar_pop",
    "covar_samp",
    "quantile_approx",
    "rate",
    "regr_avgx",
    "regr_avgy",
    "regr_count",
    "regr_intercept",
    "regr_r2",
    "regr_slope",
    "regr_sxx",
    "regr_sxy",
    "regr_syy",
];

/// Aggregates whose result does not depend on the order of the values. The planner would pass an `ORDER BY` on as
/// another argument.
const UNORDERED: [&str; 28] = [
    "approx_distinct",
    "approx_median",
    "avg",
    "bit_and",
    "bit_or",
    "bit_xor",
    "bool_and",
    "bool_or",
    "corr",
    "count",
    "count_distinct_approx",
    "covar_pop",
    "covar_samp",
    "every",
    "max",
    "mean",
    "median",
    "min",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "sum",
    "var",
    "var_pop",
    "var_population",
    "var_samp",
    "var_sample",
    "variance",
];

/// Checks the `DISTINCT` and `ORDER BY` of an aggregate.
fn gathers(name: &str, args: &mut FunctionArguments) -> Result<()> {
    let FunctionArguments::List(list) = args else { return Ok(()) };
    if list.duplicate_treatment == Some(DuplicateTreatment::Distinct) && NOT_DISTINCT.contains(&name) {
        let text = format!("`{name}(DISTINCT …)` is not supported: it reads a subquery with `SELECT DISTINCT`");
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    if UNORDERED.contains(&name) {
        list.clauses.retain(|clause| !matches!(clause, FunctionArgumentClause::OrderBy(_)));
    }
    Ok(())
}

/// Error text for the normal forms of Unicode.
pub(super) const NORMAL_FORMS: &str =
    "`normalize` and `IS NORMALIZED` are not supported: texts are compared as they were sent";

/// What a call becomes that is rewritten with its order, filter or window; `None` if it is none of these.
fn whole_call(name: &str, function: &Function) -> Result<Option<Expr>> {
    if matches!(name, "percentile_cont" | "percentile_disc")
        && let Some(found) = percentiles::several(name, function)?
    {
        return Ok(Some(found));
    }
    if let Some(found) = percentiles::one_of(name, function)? {
        return Ok(Some(found));
    }
    if let Some(found) = collecting_aggregates::separated(name, function)? {
        return Ok(Some(found));
    }
    Ok(collecting_aggregates::sorted(name, function).or_else(|| json_functions::translate(name, function)))
}

impl Translator<'_> {
    /// Translates a call.
    pub(super) fn function(&mut self, place: &mut Expr) -> Result<()> {
        windows::translate(place)?;
        let Expr::Function(function) = place else { return Ok(()) };
        let Some(name) = bare(&function.name) else { return Ok(()) };
        gathers(&name, &mut function.args)?;
        decimals::keep_digits(&name, &mut function.args);
        if let FunctionArguments::Subquery(query) = &mut function.args
            && name == "array"
        {
            *place = self.list_of(query)?;
            return Ok(());
        }
        if function.name.0.len() > 1 {
            function.name = ObjectName::from(vec![Ident::new(name.clone())]);
        }
        if name == "rate" {
            with_series(&mut function.args);
        }
        let name = patterns::called(name, &function.args);
        if name.starts_with("regexp_") {
            function.name = ObjectName::from(vec![Ident::new(&name)]);
            patterns::in_call(&name, &mut function.args)?;
        }
        if name == "array_remove"
            && let Some(found) = arguments(&function.args).and_then(|args| collecting_aggregates::without_nulls(&args))
        {
            *place = found;
            return Ok(());
        }
        if let Some(all) = of_all(&name) {
            function.name = ObjectName::from(vec![Ident::new(all)]);
        }
        if let Some(found) = whole_call(&name, function)? {
            *place = found;
            return Ok(());
        }
        // What follows knows arguments alone, and would lose these.
        if function.over.is_some() || function.filter.is_some() {
            return Ok(());
        }
        if name == "make_interval" {
            if let Some(found) = times::interval(&function.args)? {
                *place = found;
            }
            return Ok(());
        }
        let Some(mut args) = arguments(&function.args) else { return Ok(()) };
        if self.is_written_otherwise(place, &name, &mut args)? {
            return Ok(());
        }
        if name == "date_trunc" {
            times::dated(&mut args, self.catalog);
        }
        if let Some(found) = self.plain_call(&name, &args)? {
            *place = found;
        }
        Ok(())
    }

    /// `ARRAY(SELECT …)`, which of no rows is an empty list.
    fn list_of(&self, query: &mut Query) -> Result<Expr> {
        if empty_queries::is_empty(query) {
            return expr("make_array()");
        }
        if let Some(list) = set_returning_functions::items_of(query) {
            return Ok(call("or_empty", vec![list]));
        }
        arrays::listed(query, self.aggregates)?;
        Ok(call("or_empty", vec![Expr::Subquery(Box::new(query.clone()))]))
    }

    /// What a call of a name with these arguments becomes; `None` if it stays.
    fn plain_call(&mut self, name: &str, args: &[Expr]) -> Result<Option<Expr>> {
        let found = match self.about_session(name, args)? {
            Some(found) => Some(found),
            None => times::function(name, args)?,
        };
        let found = found.or_else(|| set_returning_functions::output(name, args));
        let found = match found {
            None if name == "mod" => remainder(args),
            None if matches!(name, "num_nulls" | "num_nonnulls") => nulls(name == "num_nulls", args)?,
            None if name == "array_fill" => filled(args),
            None if name == "coalesce" => self.coalesced(args),
            None if name.contains("_extract_path") => at_path(name, args),
            None if name == "ceiling" => Some(call("ceil", args.to_vec())),
            None if matches!(name, "lpad" | "rpad") => padded(name, args)?,
            None => function_rewrites::written(name, args)?,
            found => found,
        };
        match found {
            Some(found) => Ok(Some(found)),
            None => self.about_catalog(name, args),
        }
    }

    /// Writes the variables of a JSON path into it; returns whether there were any.
    fn is_written_otherwise(&mut self, place: &mut Expr, name: &str, args: &mut Vec<Expr>) -> Result<bool> {
        known_here(name, args)?;
        if !json_path_variables::write(name, args)? {
            return Ok(false);
        }
        *place = call(name, std::mem::take(args));
        self.function(place)?;
        Ok(true)
    }

    /// `coalesce(list, '{}')`, whose text literal means an empty list; `None` if there is no such literal.
    fn coalesced(&self, args: &[Expr]) -> Option<Expr> {
        let is_empty = |arg: &Expr| {
            let items = if matches!(arg, Expr::Value(_)) { literal(arg).and_then(items_of_text) } else { None };
            items.is_some_and(|items| items.is_empty())
        };
        if !args.iter().any(is_empty) || !args.iter().any(|arg| arrays::is_list(arg, self.catalog)) {
            return None;
        }
        let list = |arg: &Expr| if is_empty(arg) { call("make_array", Vec::new()) } else { arg.clone() };
        Some(call("coalesce", args.iter().map(list).collect()))
    }

    /// The value of a function about the session; `None` if it is another function.
    pub(super) fn about_session(&mut self, name: &str, args: &[Expr]) -> Result<Option<Expr>> {
        Ok(Some(match (name, args) {
            ("current_user" | "session_user" | "user" | "current_role", []) => text(&self.session.user),
            ("current_database" | "current_catalog", []) => text(DATABASE),
            ("current_schema", []) => match self.catalog.current_schema() {
                Some(schema) => text(schema),
                None => expr("CAST(NULL AS TEXT)")?,
            },
            ("current_schemas", [whole]) => {
                let is_own = matches!(whole, Expr::Value(own) if own.value == Value::Boolean(false));
                // It is looked in first, also where the path does not name it.
                let implied = !is_own && self.catalog.path().all(|schema| schema != PG_CATALOG);
                let schemas = implied.then_some(PG_CATALOG).into_iter().chain(self.catalog.path());
                let schemas: Vec<Expr> = schemas.map(text).collect();
                if schemas.is_empty() { expr("CAST(make_array() AS TEXT[])")? } else { call("make_array", schemas) }
            }
            ("version", []) => text(&version()),
            ("pg_client_encoding" | "getdatabaseencoding", []) => text("UTF8"),
            ("pg_backend_pid", []) => number(i64::from(self.session.backend)),
            ("pg_is_in_recovery" | "pg_is_wal_replay_paused", []) => boolean(false),
            // Statements never block each other.
            ("pg_blocking_pids" | "pg_safe_snapshot_blocking_pids", [_]) => expr("make_array()")?,
            ("pg_my_temp_schema" | "txid_current", []) => number(0),
            ("pg_postmaster_start_time" | "pg_conf_load_time" | "pg_last_xact_replay_timestamp", []) => {
                expr("CAST(NULL AS TIMESTAMP WITH TIME ZONE)")?
            }
            ("inet_server_port" | "inet_client_port", []) => expr("CAST(NULL AS INTEGER)")?,
            ("set_config", [name, _, _]) if is_open(name) => expr("CAST(NULL AS TEXT)")?,
            ("set_config", [_, _, _]) if self.session.backend == 0 => {
                return Err(Error::invalid(
                    "`set_config` needs a connection of PostgreSQL's protocol: there is none here",
                ));
            }
            // The setting has been applied by now, unless the statement is only described.
            ("set_config", [name, _, _]) => match self.setting(name)? {
                Some(value) => text(value),
                None => expr("CAST(NULL AS TEXT)")?,
            },
            // The name is NULL, or a parameter of a statement that is only described.
            ("current_setting", [name] | [name, _]) if is_open(name) => expr("CAST(NULL AS TEXT)")?,
            // The name differs by row, so it is looked up in the table of settings, under names that no statement
            // uses.
            ("current_setting", [name] | [name, _]) if literal(name).is_none() => expr(&format!(
                "(SELECT max(\"setting of\") FROM (SELECT lower(name) AS \"name of\", setting AS \"setting of\" \
                 FROM pg_catalog.pg_settings) AS \"settings of\" WHERE \"name of\" = lower({name}))"
            ))?,
            ("current_setting", [name]) => text(self.setting(name)?.ok_or_else(|| unknown(name))?),
            ("current_setting", [name, _]) => self.setting(name)?.map_or_else(|| Expr::Value(Value::Null.into()), text),
            _ => return Ok(None),
        }))
    }

    /// Translates the function about the session that a `FROM` reads as a row: the query that was made of it is new, so
    /// nothing else visits it. `TypeORM` begins with `SELECT * FROM current_schema()`.
    pub(super) fn about_session_in_from(&mut self, factor: &mut TableFactor) -> Result<()> {
        let TableFactor::Derived { subquery, .. } = factor else { return Ok(()) };
        let SetExpr::Select(select) = &mut *subquery.body else { return Ok(()) };
        let [SelectItem::ExprWithAlias { expr: called, .. }] = select.projection.as_mut_slice() else { return Ok(()) };
        let Expr::Function(function) = &*called else { return Ok(()) };
        let (Some(name), Some(args)) = (bare(&function.name), arguments(&function.args)) else { return Ok(()) };
        if let Some(value) = self.about_session(&name, &args)? {
            *called = value;
        }
        Ok(())
    }

    fn setting(&self, name: &Expr) -> Result<Option<&str>> {
        let name = literal(name).ok_or_else(|| Error::invalid("the name of a setting is a constant"))?;
        Ok(self.session.settings.get(&name.to_lowercase()).map(String::as_str))
    }

    /// The value of a function about the catalog; `None` if it is another function.
    fn about_catalog(&mut self, name: &str, args: &[Expr]) -> Result<Option<Expr>> {
        if NOTHING.contains(&name) {
            return Ok(Some(expr("CAST(NULL AS TEXT)")?));
        }
        if NO_NUMBERS.contains(&name) {
            return Ok(Some(expr("CAST(NULL AS BIGINT)")?));
        }
        Ok(Some(match (name, args) {
            ("pg_size_pretty", [Expr::Cast { expr: size, .. }]) if is_null(size) => expr("CAST(NULL AS TEXT)")?,
            ("pg_get_userbyid", [_]) => text(&self.session.user),
            ("pg_encoding_to_char", [of]) => text(whole_number(of).map_or("UTF8", encodings::name)),
            ("pg_char_to_encoding", [name]) if literal(name).is_some() => {
                number(encodings::number(literal(name).unwrap_or_default()))
            }
            ("format_type", [oid, modifier]) => match (whole_number(oid), whole_number(modifier)) {
                (Some(oid), Some(modifier)) => match sql_with_modifier(oid, modifier) {
                    Some(name) => text(&name),
                    None => self.type_name(&number(i64::from(oid)))?,
                },
                _ => self.type_name(oid)?,
            },
            ("pg_table_is_visible", [oid]) => self.is_visible(oid)?,
            (name, [_]) if name.starts_with("pg_") && name.ends_with("_is_visible") => boolean(true),
            ("pg_tablespace_location", [_]) => text(""),
            ("pg_get_functiondef", [oid]) => {
                let text = |f: &CatalogFunction| {
                    format!("CREATE FUNCTION {QUIVER_SCHEMA}.{}({}) LANGUAGE internal\n", f.name, f.form)
                };
                let names: Vec<_> = known().iter().map(|f| (f.oid, text(f))).collect();
                self.names(oid, &names)?
            }
            ("pg_is_other_temp_schema" | "pg_relation_is_publishable", [_]) => boolean(false),
            ("pg_get_function_result", [oid]) => {
                let of = |f: &CatalogFunction| (f.oid, if f.is_table { "SETOF record" } else { "" });
                let names: Vec<_> = known().iter().map(of).map(|(oid, name)| (oid, name.to_owned())).collect();
                self.names(oid, &names)?
            }
            ("pg_get_function_arguments" | "pg_get_function_identity_arguments", [oid]) => {
                let names: Vec<_> = known().iter().map(|f| (f.oid, f.form.to_owned())).collect();
                self.names(oid, &names)?
            }
            ("array_lower", [list, _]) => expr(&format!("CASE WHEN array_length({list}) > 0 THEN 1 END"))?,
            // An empty list has no length.
            ("array_upper" | "array_length", [list, dimension]) => {
                expr(&format!("nullif(CAST(array_length({list}, {dimension}) AS BIGINT), 0)"))?
            }
            ("parse_ident", [name]) => {
                let name = literal(name).ok_or_else(|| Error::invalid("`parse_ident` takes a constant"))?;
                let parts: Vec<String> = types::split(name).iter().map(|part| quoted(part)).collect();
                expr(&format!("make_array({})", parts.join(", ")))?
            }
            ("to_regtype", [name]) => match literal(name).map(types::type_of) {
                Some(Ok(oid)) => number(oid),
                _ => expr("CAST(NULL AS BIGINT)")?,
            },
            ("to_regclass" | "to_regnamespace", [object]) => {
                let kind = name.trim_start_matches("to_");
                let mut cast = expr(&format!("CAST({object} AS {kind})"))?;
                if self.cast(&mut cast).is_err() {
                    cast = expr("CAST(NULL AS BIGINT)")?;
                }
                take(&mut cast)
            }
            // A caller is the only role that he sees.
            ("pg_has_role", [.., _]) => boolean(true),
            (name, [.., right]) if name.starts_with("has_") && name.ends_with("_privilege") => {
                let right = literal(right).unwrap_or_default().to_lowercase();
                boolean(right.split(',').any(|right| READING.contains(&right.trim())))
            }
            _ => return Ok(None),
        }))
    }

    fn is_visible(&mut self, oid: &Expr) -> Result<Expr> {
        self.count()?;
        let relations = self.catalog.relations();
        let hidden = relations.iter().filter(|relation| self.is_hidden(relation));
        let hidden: Vec<String> = hidden.map(|relation| relation.oid.to_string()).collect();
        if hidden.is_empty() { Ok(boolean(true)) } else { expr(&format!("{oid} NOT IN ({})", hidden.join(", "))) }
    }
}

/// Refuses functions that give records of a table's type.
pub(super) fn none_of_records(name: &str) -> Result<()> {
    let of_json = name.strip_prefix("jsonb_").or_else(|| name.strip_prefix("json_"));
    if !matches!(of_json, Some("populate_record" | "populate_recordset")) {
        return Ok(());
    }
    Err(unsupported(format!(
        "`{name}` is not supported: name the columns by `json_to_record(t) AS r(a int, b text)` or `json_to_recordset`"
    )))
}

/// Refuses functions of PostgreSQL that are not here.
fn known_here(name: &str, args: &[Expr]) -> Result<()> {
    match name {
        "normalize" => Err(unsupported(NORMAL_FORMS)),
        "row_to_json" | "array_to_json" if args.len() == 2 => Err(unsupported(format!(
            "`{name}` of several lines is not supported: take `jsonb_pretty`, or one argument"
        ))),
        "row" if args.is_empty() => Err(unsupported("a row without values is not supported, but as a text")),
        _ => none_of_records(name),
    }
}

/// Adds the column that identifies the series of a sample to `rate(value, time)`, which must tell series apart.
fn with_series(args: &mut FunctionArguments) {
    let FunctionArguments::List(list) = args else { return };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(value)), _] = list.args.as_slice() else { return };
    let series = Ident::new("series_id");
    let series = match value {
        Expr::CompoundIdentifier(name) => {
            let table = name.iter().take(name.len().saturating_sub(1)).cloned();
            Expr::CompoundIdentifier(table.chain([series]).collect())
        }
        _ => Expr::Identifier(series),
    };
    list.args.push(FunctionArg::Unnamed(FunctionArgExpr::Expr(series)));
}

/// The function that changes all matching items. DataFusion's function of PostgreSQL's name changes only the first.
fn of_all(name: &str) -> Option<&'static str> {
    Some(match name {
        "array_remove" => "array_remove_all",
        "array_replace" => "array_replace_all",
        _ => return None,
    })
}

/// `lpad` or `rpad` with a negative length: the function would take it for a very large one.
fn padded(name: &str, args: &[Expr]) -> Result<Option<Expr>> {
    let [text, length, fill @ ..] = args else { return Ok(None) };
    if matches!(length, Expr::Value(_)) {
        return Ok(None);
    }
    let length = expr(&format!("CASE WHEN ({length}) < 0 THEN 0 ELSE ({length}) END"))?;
    let mut whole = vec![text.clone(), length];
    whole.extend_from_slice(fill);
    Ok(Some(call(name, whole)))
}

/// `num_nulls` and `num_nonnulls`: counts the arguments that are NULL, or are not.
fn nulls(are_null: bool, args: &[Expr]) -> Result<Option<Expr>> {
    if args.is_empty() {
        return Ok(None);
    }
    let not = if are_null { "" } else { "NOT " };
    let parts: Vec<String> =
        args.iter().map(|arg| format!("CASE WHEN ({arg}) IS {not}NULL THEN 1 ELSE 0 END")).collect();
    expr(&format!("CAST({} AS INTEGER)", parts.join(" + "))).map(Some)
}

/// `jsonb_extract_path(document, 'a', 'b')` as an access by a constant path.
fn at_path(name: &str, args: &[Expr]) -> Option<Expr> {
    let function = match name {
        "json_extract_path" | "jsonb_extract_path" => "json_get_path",
        "json_extract_path_text" | "jsonb_extract_path_text" => "json_get_path_text",
        _ => return None,
    };
    let [document, keys @ ..] = args else { return None };
    let key = |key: &Expr| Some(format!("\"{}\"", literal(key)?.replace('\\', "\\\\").replace('"', "\\\"")));
    let keys = keys.iter().map(key).collect::<Option<Vec<_>>>()?;
    // Columns return their contents as stored.
    let is_known = patterns::is_written(document) || matches!(document, Expr::Cast { .. });
    let document = document.clone();
    let document = if is_known && name.starts_with("jsonb") { call("json_normal", vec![document]) } else { document };
    Some(call(function, vec![document, text(&format!("{{{}}}", keys.join(",")))]))
}

/// `array_fill(value, array[2, 3])`: the last length is that of the innermost lists.
fn filled(args: &[Expr]) -> Option<Expr> {
    let [value, lengths] = args else { return None };
    let lengths = match lengths {
        Expr::Array(lengths) => lengths.elem.clone(),
        other => literal(other).and_then(items_of_text)?,
    };
    // Lengths may be written as texts.
    let length = |length: &Expr| match literal(length).and_then(|text| text.parse().ok()) {
        Some(written) => number(written),
        None => length.clone(),
    };
    let list = |inner: Expr, by: &Expr| call("array_repeat", vec![inner, length(by)]);
    (!lengths.is_empty()).then(|| lengths.iter().rev().fold(value.clone(), list))
}

/// A number that is written out and not below zero.
fn whole_number<N: FromStr>(value: &Expr) -> Option<N> {
    match value {
        Expr::Value(value) => match &value.value {
            Value::Number(digits, _) => digits.parse().ok(),
            _ => None,
        },
        _ => None,
    }
}

/// `mod(a, b)` as `a % b`.
fn remainder(args: &[Expr]) -> Option<Expr> {
    let [left, right] = args else { return None };
    let nested = |expr: &Expr| Box::new(Expr::Nested(Box::new(expr.clone())));
    let whole = Expr::BinaryOp { left: nested(left), op: BinaryOperator::Modulo, right: nested(right) };
    Some(Expr::Nested(Box::new(whole)))
}

/// Whether an argument is NULL, or a parameter without a value.
fn is_open(expr: &Expr) -> bool {
    matches!(folded(expr), Some(None))
}

fn unknown(name: &Expr) -> Error {
    Error::invalid(format!("there is no setting `{}`", literal(name).unwrap_or_default()))
}

/// The text of `version()`; clients read the first two words.
pub(crate) fn version() -> String {
    format!("PostgreSQL {SERVER_VERSION} (Quiver {})", env!("CARGO_PKG_VERSION"))
}
