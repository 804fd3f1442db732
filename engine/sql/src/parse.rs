//! From text to one statement that only reads, with its parameters in place.

mod behind;
mod explained;
mod patience;
mod repeated;
mod texts;

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::parser::{DFParserBuilder, Statement as DfStatement};
use datafusion::sql::sqlparser::ast::{
    Array, CastKind, DataType as SqlType, Expr, Query, SetExpr, Statement as SqlStatement, TableFactor, TimezoneInfo,
    Value, ValueWithSpan, Visitor, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, Tokenizer};
use quiver_types::{Error, ErrorKind, Result};

use crate::catalog::types::PgType;
use crate::error::{READS_ONLY, of_parser, unreadable};
use crate::walk::{walk, walk_mut};
use crate::wording;

pub(crate) use explained::Explained;
pub(crate) use patience::Patience;
pub(crate) use texts::{keep as keep_texts, literal as text_literal};

/// Longest text of a statement, in bytes.
pub const TEXT_BYTES_MAX: usize = 256 << 10;
/// Most operators of a statement: a chain of them nests as deeply as it is long, and whoever plans it calls himself.
pub(crate) const OPERATORS_MAX: usize = 1_000;
/// Most tables that a statement names.
const TABLES_MAX: usize = 100;
/// `CASE` within `CASE`, as deep as the parser goes.
const CASES_MAX: usize = 45;
/// How deeply brackets and subqueries nest.
const DEPTH_MAX: usize = 50;

/// The value of a parameter.
#[derive(Debug, Clone, PartialEq)]
pub enum Param {
    /// NULL.
    Null,
    /// A boolean.
    Bool(bool),
    /// A number as it is written.
    Number(String),
    /// A text.
    Text(String),
    /// A value of a type, as text; none: NULL.
    Typed(Option<String>, &'static PgType),
    /// A list of values.
    List(Vec<Param>),
    /// None yet: the statement is planned to find of what type it is.
    Open,
}

/// Values of `$1`, `$2`, … and of `$name`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Params {
    positional: Vec<Param>,
    named: HashMap<String, Param>,
}

impl Params {
    /// Values by place.
    pub fn positional(values: Vec<Param>) -> Self {
        Self { positional: values, named: HashMap::new() }
    }

    /// Reads a JSON list or object.
    ///
    /// # Errors
    /// Invalid: it is neither, or a value is a list or an object.
    pub fn of_json(json: &serde_json::Value) -> Result<Self> {
        use serde_json::Value as Json;
        let value = |json: &Json| match json {
            Json::Null => Ok(Param::Null),
            Json::Bool(b) => Ok(Param::Bool(*b)),
            Json::Number(n) => Ok(Param::Number(n.to_string())),
            Json::String(text) => Ok(Param::Text(text.clone())),
            other => Err(Error::invalid(format!("a parameter is a number, a text, a boolean or null, not `{other}`"))),
        };
        match json {
            Json::Array(values) => Ok(Self::positional(values.iter().map(value).collect::<Result<_>>()?)),
            Json::Object(values) => {
                let named = values.iter().map(|(name, json)| Ok((name.clone(), value(json)?)));
                Ok(Self { positional: Vec::new(), named: named.collect::<Result<_>>()? })
            }
            _ => Err(Error::invalid("`params` is a JSON list of values or an object of names and values")),
        }
    }

    /// Refuses values for which a statement of `count` parameters has no place.
    fn fit(&self, count: usize) -> Result<()> {
        let given = self.positional.len();
        if given <= count {
            return Ok(());
        }
        Err(Error::invalid(format!("`params` has {given} values, and the statement has {count} parameters")))
    }

    fn get(&self, placeholder: &str) -> Result<&Param> {
        let name = placeholder.strip_prefix(['$', ':']).unwrap_or(placeholder);
        let found = match name.parse::<usize>() {
            Ok(n) => n.checked_sub(1).and_then(|at| self.positional.get(at)),
            Err(_) => self.named.get(name),
        };
        found.ok_or_else(|| Error::invalid(format!("there is no value for parameter `{placeholder}`")))
    }
}

/// A statement that reads.
#[derive(Debug, Clone)]
pub(crate) enum Parsed {
    /// A query, to be planned.
    Query(Box<Query>),
    /// `SHOW TABLES`.
    ShowTables,
    /// `DESCRIBE table`, `SHOW COLUMNS FROM table`.
    Describe(Vec<String>),
}

/// A statement and whether it is to be explained.
#[derive(Debug, Clone)]
pub(crate) struct Read {
    pub(crate) statement: Parsed,
    /// `EXPLAIN`, and how.
    pub(crate) explain: Option<Explained>,
}

/// Reads a statement.
///
/// # Errors
/// Invalid: it cannot be read (with line and column), writes, is none or several, lacks a parameter or has one too many.
/// LimitExceeded: it is too long or too deep.
pub(crate) fn parse(text: &str, params: &Params) -> Result<Read> {
    let mut read = parse_open(text)?;
    match &mut read.statement {
        Parsed::Query(query) => {
            params.fit(params_of(query))?;
            put_params(query, params)?;
        }
        Parsed::ShowTables | Parsed::Describe(_) => params.fit(0)?,
    }
    Ok(read)
}

/// Reads a statement whose parameters have no values.
///
/// # Errors
/// As [`parse`].
pub(crate) fn parse_open(text: &str) -> Result<Read> {
    let words = bounded(text)?;
    let known = wording::known(text)?;
    let text: &str = &known;
    let dialect = Patience::for_words(words);
    let parser = DFParserBuilder::new(text).with_dialect(&dialect).with_recursion_limit(DEPTH_MAX).build();
    let mut parser = parser.map_err(|e| of_parser(&e, None))?;
    let options = explained::options(&mut parser.parser)?;
    let statements = parser.parse_statements();
    // Some errors do not say where; the parser stands behind what it could not read.
    let statements = statements.map_err(|e| match text.split_whitespace().next() {
        // DataFusion has a `COPY` of its own, so PostgreSQL's would be told of a slip within it.
        Some(word) if word.eq_ignore_ascii_case("copy") => not_reading("COPY"),
        _ => {
            let at = parser.parser.get_current_token().span.start;
            // Behind the last word there is no token.
            of_parser(&e, Some(if at.line > 0 { at } else { end_of(text) }))
        }
    })?;
    let mut statements = statements.into_iter();
    let statement = statements.next().ok_or_else(|| Error::invalid("there is no statement"))?;
    if statements.next().is_some() {
        return Err(Error::invalid("one statement at a time: there is more behind `;`"));
    }
    let (statement, explain) = match (statement, options) {
        (DfStatement::Explain(explained), None) => {
            (*explained.statement, Some(Explained { analyze: explained.options.analyze, as_json: false }))
        }
        others => others,
    };
    let mut statement = reading(statement)?;
    if let Parsed::Query(query) = &mut statement {
        only_reads(query)?;
        keep_texts(query);
    }
    Ok(Read { statement, explain })
}

/// Counts the parameters `$1`, `$2`, … of a query: the largest number.
pub(crate) fn params_of(query: &Query) -> usize {
    struct Counter(usize);
    impl Visitor for Counter {
        type Break = ();

        fn pre_visit_value(&mut self, value: &ValueWithSpan) -> ControlFlow<()> {
            if let Value::Placeholder(name) = &value.value
                && let Some(number) = name.strip_prefix('$').and_then(|n| n.parse::<usize>().ok())
            {
                self.0 = self.0.max(number);
            }
            ControlFlow::Continue(())
        }
    }
    let mut counter = Counter(0);
    let _ = walk(query, &mut counter);
    counter.0
}

/// Refuses what would nest too deeply before anything is built of it; gives how many words there are.
fn bounded(text: &str) -> Result<usize> {
    let refused = |text: String| Err(Error::new(ErrorKind::LimitExceeded, text));
    if text.len() > TEXT_BYTES_MAX {
        return refused(format!(
            "a statement of {} bytes is too long, at most {TEXT_BYTES_MAX} are allowed",
            text.len()
        ));
    }
    let tokens = Tokenizer::new(&PostgreSqlDialect {}, text).tokenize();
    let tokens = tokens.map_err(|e| unreadable(&e.message, e.location))?;
    let joins = |token: &Token| match token {
        Token::Word(word) => matches!(
            word.keyword,
            Keyword::AND
                | Keyword::OR
                | Keyword::XOR
                | Keyword::DIV
                | Keyword::UNION
                | Keyword::INTERSECT
                | Keyword::EXCEPT
                | Keyword::MINUS
                | Keyword::NOT
        ),
        Token::Whitespace(_)
        | Token::Comma
        | Token::Period
        | Token::LParen
        | Token::RParen
        | Token::Number(..)
        | Token::SingleQuotedString(_)
        | Token::Placeholder(_)
        | Token::SemiColon => false,
        _ => true,
    };
    let operators = behind::operators(&tokens, joins);
    if operators > OPERATORS_MAX {
        return refused(format!(
            "a statement with {operators} operators is too deep, at most {OPERATORS_MAX} are allowed; `IN (…)` takes long lists"
        ));
    }
    behind::few(&tokens)?;
    texts::readable_names(&tokens)?;
    // The parser takes back what it tried where it gives up for want of levels, and then tells of a word that is well there.
    let (mut cases, mut deepest) = (0_usize, 0);
    for token in &tokens {
        match token {
            Token::Word(word) if word.keyword == Keyword::CASE => cases += 1,
            Token::Word(word) if word.keyword == Keyword::END => cases = cases.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(cases);
    }
    if deepest > CASES_MAX {
        return refused(format!("`CASE` stands {deepest} deep in others, at most {CASES_MAX} are allowed"));
    }
    let selects = |token: &&Token| matches!(token, Token::Word(word) if word.keyword == Keyword::SELECT);
    if tokens.iter().filter(selects).count() > TABLES_MAX {
        return refused(format!("a statement has at most {TABLES_MAX} selects"));
    }
    Ok(tokens.len())
}

/// The place behind the last letter of a text.
fn end_of(text: &str) -> Location {
    let text = text.trim_end();
    let last = text.rsplit('\n').next().unwrap_or_default();
    Location { line: text.split('\n').count() as u64, column: last.chars().count() as u64 + 1 }
}

fn not_reading(what: &str) -> Error {
    Error::invalid(format!(
        "`{what}` is not allowed: {READS_ONLY}; write `SELECT`, `WITH`, `VALUES`, `EXPLAIN`, `SHOW TABLES` or `DESCRIBE`"
    ))
}

/// The first two words of a statement, as its name.
fn name_of(text: &str) -> String {
    text.split_whitespace().take(2).collect::<Vec<_>>().join(" ").to_uppercase()
}

fn reading(statement: DfStatement) -> Result<Parsed> {
    let statement = match statement {
        DfStatement::Statement(statement) => *statement,
        other => return Err(not_reading(&name_of(&other.to_string()))),
    };
    match statement {
        SqlStatement::Query(query) => Ok(Parsed::Query(query)),
        SqlStatement::ShowTables { .. } => Ok(Parsed::ShowTables),
        SqlStatement::ExplainTable { table_name, .. } => Ok(Parsed::Describe(parts(&table_name))),
        SqlStatement::ShowColumns { show_options, .. } => {
            let name = show_options.show_in.and_then(|show| show.parent_name).map(|name| parts(&name));
            name.map(Parsed::Describe).ok_or_else(|| Error::invalid("`SHOW COLUMNS` needs `FROM` and a table"))
        }
        other => Err(not_reading(&name_of(&other.to_string()))),
    }
}

/// The parts of a name, unquoted ones in lower case.
pub(crate) fn parts(name: &datafusion::sql::sqlparser::ast::ObjectName) -> Vec<String> {
    name.0.iter().filter_map(|part| part.as_ident()).map(normal).collect()
}

/// A name as tables and columns have it.
pub(crate) fn normal(ident: &datafusion::sql::sqlparser::ast::Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() }
}

/// Looks for parts of a query that write, and counts the tables: those that have a name, and those that are written out.
#[derive(Default)]
struct Writes {
    named: usize,
    written: usize,
}

impl Visitor for Writes {
    type Break = Box<Error>;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Self::Break> {
        if !query.locks.is_empty() {
            return ControlFlow::Break(Box::new(not_reading("FOR UPDATE")));
        }
        match &*query.body {
            SetExpr::Insert(_) => ControlFlow::Break(Box::new(not_reading("INSERT"))),
            SetExpr::Update(_) => ControlFlow::Break(Box::new(not_reading("UPDATE"))),
            SetExpr::Delete(_) => ControlFlow::Break(Box::new(not_reading("DELETE"))),
            SetExpr::Merge(_) => ControlFlow::Break(Box::new(not_reading("MERGE"))),
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_select(&mut self, select: &datafusion::sql::sqlparser::ast::Select) -> ControlFlow<Self::Break> {
        match &select.into {
            Some(_) => ControlFlow::Break(Box::new(not_reading("SELECT INTO"))),
            None => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_relation(&mut self, _: &datafusion::sql::sqlparser::ast::ObjectName) -> ControlFlow<Self::Break> {
        self.named += 1;
        few(self.named, "names")
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<Self::Break> {
        if !matches!(factor, TableFactor::Table { .. } | TableFactor::NestedJoin { .. }) {
            self.written += 1;
        }
        few(self.written, "writes out")
    }
}

/// Goes on while a statement has few tables.
fn few(tables: usize, how: &str) -> ControlFlow<Box<Error>> {
    if tables <= TABLES_MAX {
        return ControlFlow::Continue(());
    }
    let text = format!("a statement {how} at most {TABLES_MAX} tables");
    ControlFlow::Break(Box::new(Error::new(ErrorKind::LimitExceeded, text)))
}

fn only_reads(query: &Query) -> Result<()> {
    match walk(query, &mut Writes::default()) {
        ControlFlow::Continue(()) => repeated::few_tables(query),
        ControlFlow::Break(error) => Err(*error),
    }
}

/// Puts values in place of `$1` and `$name`.
struct Filler<'p>(&'p Params);

/// A value as an expression, where it is more than a literal.
fn expression(param: &Param) -> Result<Option<Expr>> {
    let literal = |value: Value| Expr::Value(value.into());
    Ok(match param {
        Param::Typed(value, pg_type) => {
            let value = value.as_ref().map_or(Value::Null, |text| text_literal(text.clone()));
            let Some(data_type) = sql_type(pg_type.oid) else { return Ok(Some(literal(value))) };
            let expr = Box::new(literal(value));
            Some(Expr::Cast { kind: CastKind::Cast, expr, data_type, array: false, format: None })
        }
        Param::List(items) => {
            let item = |item: &Param| match expression(item)? {
                Some(expr) => Ok(expr),
                None => plain(item).map(literal).ok_or_else(|| Error::internal("a list holds no open parameter")),
            };
            let elem = items.iter().map(item).collect::<Result<_>>()?;
            Some(Expr::Array(Array { elem, named: true }))
        }
        _ => None,
    })
}

/// A value as a literal; none: it has none.
fn plain(param: &Param) -> Option<Value> {
    Some(match param {
        Param::Null | Param::Typed(None, _) => Value::Null,
        Param::Bool(b) => Value::Boolean(*b),
        Param::Number(number) => Value::Number(number.clone(), false),
        Param::Text(text) | Param::Typed(Some(text), _) => text_literal(text.clone()),
        Param::List(_) | Param::Open => return None,
    })
}

/// The type that a value is cast to; none: it stays a text.
fn sql_type(oid: u32) -> Option<SqlType> {
    Some(match oid {
        16 => SqlType::Boolean,
        17 => SqlType::Bytea,
        20 | 26 => SqlType::BigInt(None),
        21 => SqlType::SmallInt(None),
        23 => SqlType::Integer(None),
        700 => SqlType::Real,
        701 | 1700 => SqlType::DoublePrecision,
        18 | 19 | 25 | 114 | 1042 | 1043 | 2950 | 3802 => SqlType::Text,
        1082 => SqlType::Date,
        1083 => SqlType::Time(None, TimezoneInfo::None),
        1114 => SqlType::Timestamp(None, TimezoneInfo::None),
        1184 => SqlType::Timestamp(None, TimezoneInfo::WithTimeZone),
        1186 => SqlType::Interval { fields: None, precision: None },
        _ => return None,
    })
}

impl VisitorMut for Filler<'_> {
    type Break = Box<Error>;

    fn pre_visit_expr(&mut self, place: &mut Expr) -> ControlFlow<Self::Break> {
        let Expr::Value(ValueWithSpan { value: Value::Placeholder(name), .. }) = &*place else {
            return ControlFlow::Continue(());
        };
        match self.0.get(name).and_then(expression) {
            Err(error) => return ControlFlow::Break(Box::new(error)),
            Ok(Some(expr)) => *place = expr,
            Ok(None) => {}
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_value(&mut self, value: &mut ValueWithSpan) -> ControlFlow<Self::Break> {
        let Value::Placeholder(name) = &value.value else { return ControlFlow::Continue(()) };
        match self.0.get(name) {
            Err(error) => return ControlFlow::Break(Box::new(error)),
            Ok(param) => value.value = plain(param).unwrap_or_else(|| value.value.clone()),
        }
        ControlFlow::Continue(())
    }
}

/// Puts values in place of parameters.
///
/// # Errors
/// Invalid: one lacks.
pub(crate) fn put_params(query: &mut Query, params: &Params) -> Result<()> {
    match walk_mut(query, &mut Filler(params)) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> Error {
        parse(text, &Params::default()).expect_err(text)
    }

    #[test]
    fn only_reading_is_allowed() {
        for (text, named) in [
            ("insert into logs values (1)", "INSERT INTO"),
            ("drop table logs", "DROP TABLE"),
            ("create table x as select 1", "CREATE TABLE"),
            ("copy logs to 'x'", "COPY LOGS"),
            ("select 1 into x", "SELECT INTO"),
            ("select 1 from logs for update", "FOR UPDATE"),
            ("set x = 1", "SET X"),
            ("explain delete from logs", "DELETE FROM"),
        ] {
            let error = error(text);
            assert_eq!(error.kind, ErrorKind::Invalid, "{text}: {error}");
            assert!(error.message.contains(&format!("`{named}`")), "{text}: {error}");
        }
        for text in ["select 1", "with a as (select 1) select * from a", "values (1)", "show tables", "describe logs"] {
            parse(text, &Params::default()).unwrap_or_else(|e| panic!("{text}: {e}"));
        }
    }

    #[test]
    fn plans_are_asked_for_with_options() {
        let explain = |text: &str| parse(text, &Params::default()).unwrap_or_else(|e| panic!("{text}: {e}")).explain;
        let asked = |analyze, as_json| Some(Explained { analyze, as_json });
        for (text, expected) in [
            ("explain select 1", asked(false, false)),
            ("explain analyze select 1", asked(true, false)),
            ("EXPLAIN (ANALYZE, VERBOSE, BUFFERS, FORMAT JSON) SELECT 1", asked(true, true)),
            ("explain (analyze off, costs false, timing 0, format 'text') select 1", asked(false, false)),
            ("explain (format json) values (1)", asked(false, true)),
            ("explain (select 1)", asked(false, false)),
        ] {
            assert_eq!(explain(text), expected, "{text}");
        }
        for (wrong, named) in [
            ("explain (memory) select 1", "`memory`"),
            ("explain (format xml) select 1", "FORMAT JSON"),
            ("explain (analyze maybe) select 1", "ON or OFF"),
            ("explain (analyze) explain select 1", "EXPLAIN"),
            ("explain (analyze) delete from logs", "DELETE FROM"),
        ] {
            let error = error(wrong);
            assert!(error.message.contains(named), "{wrong}: {error}");
        }
        assert!(error("explain (memory) select 1").message.ends_with("line 1, column 10"));
    }

    #[test]
    fn cases_in_cases() {
        let nested = |deep: usize| format!("select {}1{}", "case when true then ".repeat(deep), " end".repeat(deep));
        parse(&nested(CASES_MAX), &Params::default()).unwrap();
        for deep in [CASES_MAX + 1, 5_000] {
            let error = error(&nested(deep));
            assert_eq!(error.kind, ErrorKind::LimitExceeded, "{error}");
            assert!(error.message.contains(&format!("{deep} deep")), "{error}");
        }
        // One behind the other is not deep.
        let wide = "case when true then 1 end, ".repeat(100);
        parse(&format!("select {wide} 1"), &Params::default()).unwrap();
    }

    #[test]
    fn errors_have_places() {
        let error = error("select 1,\n  from where");
        assert!(error.message.contains("line 2"), "{error}");
        for (text, place) in [
            ("select 1 +", "line 1, column 11"),
            ("select *\n from logs where ", "line 2, column 17"),
            ("select 'a", "line 1, column 8"),
        ] {
            let error = self::error(text);
            assert!(error.message.ends_with(place), "{error}");
        }
        assert!(self::error("").message.contains("no statement"));
        assert!(self::error("select 1; select 2").message.contains("one statement"));
    }

    #[test]
    fn parameters_are_values() {
        let params = Params::of_json(&serde_json::json!(["a' or 1=1 --", 5, null, true])).unwrap();
        let read = parse("select $1, $2, $3, $4", &params).unwrap();
        let Parsed::Query(query) = read.statement else { panic!("no query") };
        assert_eq!(query.to_string(), "SELECT 'a'' or 1=1 --', 5, NULL, true");
        let named = Params::of_json(&serde_json::json!({"service": "cart"})).unwrap();
        let Parsed::Query(query) = parse("select $service", &named).unwrap().statement else { panic!("no query") };
        assert_eq!(query.to_string(), "SELECT 'cart'");
        assert!(parse("select $4", &params).is_ok());
        for statement in ["select $3", "show tables"] {
            let surplus = parse(statement, &params).unwrap_err();
            assert!(surplus.message.contains("4 values"), "{surplus}");
        }
        assert!(parse("select $9", &params).unwrap_err().message.contains("`$9`"));
        assert!(Params::of_json(&serde_json::json!([[1]])).is_err());
    }

    #[test]
    fn deep_statements_are_refused() {
        let check = |text: String| assert!(parse(&text, &Params::default()).is_err(), "{text:.60}");
        check(format!("select {}1{}", "(".repeat(10_000), ")".repeat(10_000)));
        check(format!("select 1{}", " + 1".repeat(50_000)));
        check(format!("select 1{}", " union all select 1".repeat(5_000)));
        check(format!("select 1 from {}a", "a, ".repeat(5_000)));
        check(format!("select {}", "not ".repeat(5_000)));
        check(format!("select 1 from {}(values (1)) z", "(values (1)) a, ".repeat(5_000)));
        check(format!("select 1 from unnest(array[1]) a{}", " cross join unnest(array[1]) b".repeat(5_000)));
        for chain in ["is null", "is not true", "at time zone 'UTC'", "notnull", "in (true)", "like 'a'", "collate x"] {
            check(format!("select a {}", format!("{chain} ").repeat(5_000)));
        }
        check("x".repeat(TEXT_BYTES_MAX + 1));
    }
}
