//! Parameters of a statement: their values, their number, and their substitution.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Array, CastKind, DataType as SqlType, Expr, Query, TimezoneInfo, Value, ValueWithSpan, Visitor, VisitorMut,
};
use datafusion::sql::sqlparser::tokenizer::{Location, Span};
use quiver_types::{Error, Result};

use super::operator_signs;
use super::string_literals::literal as text_literal;
use crate::catalog::types::PgType;
use crate::statement_walk::{walk, walk_mut};

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
    /// A typed value as text; `None` for NULL.
    Typed(Option<String>, &'static PgType),
    /// A list of values.
    List(Vec<Param>),
    /// No value yet: the statement is planned to infer its type.
    Open,
}

/// Values of `$1`, `$2`, … and of `$name`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Params {
    positional: Vec<Param>,
    named: HashMap<String, Param>,
}

impl Params {
    /// Values by position.
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

    /// Refuses more values than the `count` parameters of a statement.
    pub(super) fn fit(&self, count: usize) -> Result<()> {
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

/// The number of parameters `$1`, `$2`, … of a query: the largest index.
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

/// Where the value of a parameter stands that is cast to its type: no place of the statement, as that of any parameter.
const OF_TYPED: Span = Span { start: Location { line: 0, column: 1 }, end: Location { line: 0, column: 1 } };

/// Whether a value is that of a parameter with a type, whose cast the statement does not have.
pub(crate) fn is_typed_param(value: &Expr) -> bool {
    matches!(value, Expr::Value(value) if value.span == OF_TYPED)
}

/// Substitutes values for `$1` and `$name`.
struct Filler<'p>(&'p Params);

/// The expression for a value that is more than a literal.
fn expression(param: &Param) -> Result<Option<Expr>> {
    let literal = |value: Value| Expr::Value(value.into());
    Ok(match param {
        Param::Typed(value, pg_type) => {
            let value = value.as_ref().map_or(Value::Null, |text| text_literal(text.clone()));
            let Some(data_type) = sql_type(pg_type.oid) else { return Ok(Some(literal(value))) };
            let expr = Box::new(Expr::Value(ValueWithSpan { value, span: OF_TYPED }));
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

/// The literal for a value; `None` if it has none.
fn plain(param: &Param) -> Option<Value> {
    Some(match param {
        Param::Null | Param::Typed(None, _) => Value::Null,
        Param::Bool(b) => Value::Boolean(*b),
        Param::Number(number) => Value::Number(number.clone(), false),
        Param::Text(text) | Param::Typed(Some(text), _) => text_literal(text.clone()),
        Param::List(_) | Param::Open => return None,
    })
}

/// The type that a value is cast to; `None` if it stays a text.
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
            Ok(param) => {
                // It gets no location, which marks constants of the statement's text.
                if let Some(found) = plain(param) {
                    *value = found.into();
                }
            }
        }
        ControlFlow::Continue(())
    }
}

/// Substitutes values for parameters.
///
/// # Errors
///
/// Invalid: a parameter has no value.
pub(crate) fn put_params(query: &mut Query, params: &Params) -> Result<()> {
    match walk_mut(query, &mut Filler(params)) {
        ControlFlow::Continue(()) => {}
        ControlFlow::Break(error) => return Err(*error),
    }
    operator_signs::keep(query);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::types::pg_type;
    use crate::parse::{ReadStatement, parse};

    #[test]
    fn parameters_are_values() {
        let params = Params::of_json(&serde_json::json!(["a' or 1=1 --", 5, null, true])).unwrap();
        let read = parse("select $1, $2, $3, $4", &params).unwrap();
        let ReadStatement::Query(query) = read.statement else { panic!("no query") };
        assert_eq!(query.to_string(), "SELECT 'a'' or 1=1 --', 5, NULL, true");
        let named = Params::of_json(&serde_json::json!({"service": "cart"})).unwrap();
        let ReadStatement::Query(query) = parse("select $service", &named).unwrap().statement else {
            panic!("no query")
        };
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
    fn lists_of_lists_are_values() {
        let value = |text: &str| Param::Typed(Some(text.to_owned()), pg_type(23).unwrap());
        let list = Param::List(vec![Param::List(vec![value("1")]), Param::List(vec![value("2")])]);
        let ReadStatement::Query(query) = parse("select $1", &Params::positional(vec![list])).unwrap().statement else {
            panic!("no query")
        };
        let expected = "SELECT ARRAY[ARRAY[CAST('1' AS INTEGER)], ARRAY[CAST('2' AS INTEGER)]]";
        assert_eq!(query.to_string(), expected);
    }
}
