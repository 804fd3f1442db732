//! Filter operators: validates their values and converts them to conditions (`olap-api.md` 4).

use quiver_types::suggestions::did_you_mean;
use serde_json::Value;

use super::clock::Clock;
use super::error::{Read, err};
use super::filter::{Comparison, Literal, Occurs, Test};
use crate::dates::range::{Point, WallRange};
use crate::dates::zone::{Edge, utc_ns};
use crate::error::Reason;
use crate::model::{Dimension, DimensionType, MeasureType, MemberId};

/// The type as which a member's values are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Text,
    Number,
    Boolean,
    Time,
    /// Whatever the column has: read as a number where the operator goes by numbers, else as a text.
    Open,
}

impl Type {
    pub(super) fn of_dimension(dimension: &Dimension) -> Self {
        match dimension.ty {
            _ if dimension.is_opened => Self::Open,
            DimensionType::Number => Self::Number,
            DimensionType::Boolean => Self::Boolean,
            DimensionType::Time => Self::Time,
            DimensionType::String | DimensionType::Geo | DimensionType::Switch => Self::Text,
        }
    }

    pub(super) fn of_measure(ty: MeasureType) -> Self {
        match ty.value_type() {
            "string" => Self::Text,
            "boolean" => Self::Boolean,
            "time" => Self::Time,
            _ => Self::Number,
        }
    }
}

/// An operator with its unchecked values.
pub(super) struct Operator<'r, 'a> {
    pub(super) clock: Clock,
    pub(super) at: &'r str,
    pub(super) name: &'r str,
    pub(super) ty: Type,
    pub(super) values: &'a [Value],
    pub(super) member: &'r MemberId,
    pub(super) is_measure: bool,
}

impl Operator<'_, '_> {
    /// The condition on the member.
    pub(super) fn test(&self) -> Read<Test> {
        let negated = self.name.starts_with("not");
        match self.name {
            "set" | "notSet" => Ok(Test::Set(!negated)),
            "measureFilter" if self.is_measure => Ok(Test::MeasureFilter),
            "measureFilter" => self.unfit("measures"),
            "equals" | "in" | "notEquals" | "notIn" => {
                self.some()?;
                let null = self.values.iter().any(Value::is_null);
                let given = self.values.iter().enumerate().filter(|(_, v)| !v.is_null());
                let values = given.map(|(i, v)| self.literal(v, i)).collect::<Read<_>>()?;
                Ok(Test::In { values, null, negated })
            }
            "contains" | "notContains" => self.text(Occurs::Within, negated),
            "startsWith" | "notStartsWith" => self.text(Occurs::AtStart, negated),
            "endsWith" | "notEndsWith" => self.text(Occurs::AtEnd, negated),
            "gt" => self.compare(Comparison::Gt),
            "gte" => self.compare(Comparison::Gte),
            "lt" => self.compare(Comparison::Lt),
            "lte" => self.compare(Comparison::Lte),
            "inDateRange" | "notInDateRange" | "onTheDate" => Ok(Test::Range(self.range()?, negated)),
            "beforeDate" | "afterOrOnDate" | "beforeOrOnDate" | "afterDate" => self.date(),
            other => {
                const KNOWN: [&str; 24] = [
                    "equals",
                    "notEquals",
                    "in",
                    "notIn",
                    "contains",
                    "notContains",
                    "startsWith",
                    "notStartsWith",
                    "endsWith",
                    "notEndsWith",
                    "gt",
                    "gte",
                    "lt",
                    "lte",
                    "set",
                    "notSet",
                    "inDateRange",
                    "notInDateRange",
                    "onTheDate",
                    "beforeDate",
                    "afterDate",
                    "afterOrOnDate",
                    "beforeOrOnDate",
                    "measureFilter",
                ];
                let hint = did_you_mean(other, KNOWN);
                err(
                    Reason::UnknownOperator,
                    format!("{}/operator", self.at),
                    format!("unknown operator `{other}`{hint}"),
                )
            }
        }
    }

    fn some(&self) -> Read<&Value> {
        self.values.first().map_or_else(
            || {
                err(
                    Reason::ValuesRequired,
                    format!("{}/values", self.at),
                    format!("operator `{}` needs values", self.name),
                )
            },
            Ok,
        )
    }

    fn unfit<T>(&self, what: &str) -> Read<T> {
        let text = format!("operator `{}` goes by {what}, which `{}` is not", self.name, self.member);
        err(Reason::UnknownOperator, format!("{}/operator", self.at), text)
    }

    fn text(&self, occurs: Occurs, negated: bool) -> Read<Test> {
        if !matches!(self.ty, Type::Text | Type::Open) {
            return self.unfit("texts");
        }
        self.some()?;
        let text = |v: &Value| match v {
            Value::String(s) => Some(s.clone()),
            Value::Number(_) | Value::Bool(_) => Some(v.to_string()),
            _ => None,
        };
        let null = self.values.iter().any(Value::is_null);
        match self.values.iter().filter(|v| !v.is_null()).map(text).collect() {
            Some(values) => Ok(Test::Text { occurs, values, null, negated }),
            None => err(Reason::BadValue, format!("{}/values", self.at), "the values are texts"),
        }
    }

    fn compare(&self, comparison: Comparison) -> Read<Test> {
        let value = self.some()?;
        let ty = if self.ty == Type::Open { Type::Number } else { self.ty };
        if !matches!(ty, Type::Number | Type::Time) && !self.is_measure {
            return self.unfit("numbers and times");
        }
        Ok(Test::Compare(comparison, self.literal_of(ty, value, 0)?))
    }

    fn first_time(&self) -> Read<&Value> {
        if self.ty == Type::Time { self.some() } else { self.unfit("times") }
    }

    /// The range of a pair, or of one text: a day or a phrase. A time alone means its day, as in `dateRange`.
    fn range(&self) -> Read<WallRange> {
        let first = self.first_time()?;
        let whole = if self.values.len() == 1 { first.clone() } else { Value::Array(self.values.to_vec()) };
        self.clock.range(&whole, &format!("{}/values", self.at))
    }

    fn date(&self) -> Read<Test> {
        let first = Value::Array(vec![self.first_time()?.clone()]);
        let range = self.clock.range(&first, &format!("{}/values", self.at))?;
        let tz = self.clock.tz;
        let (start, end) = (utc_ns(tz, range.start_ns, Edge::Start), utc_ns(tz, range.end_ns, Edge::End));
        let (comparison, at) = match self.name {
            "beforeDate" => (Comparison::Lt, start),
            "afterOrOnDate" => (Comparison::Gte, start),
            "beforeOrOnDate" => (Comparison::Lt, end),
            _ => (Comparison::Gte, end),
        };
        Ok(Test::Compare(comparison, Literal::Instant(at)))
    }

    fn literal(&self, value: &Value, i: usize) -> Read<Literal> {
        self.literal_of(self.ty, value, i)
    }

    fn literal_of(&self, ty: Type, value: &Value, i: usize) -> Read<Literal> {
        let bad = |what: &str| {
            let text = format!("`{}` is {what}, which `{value}` is not", self.member);
            err(Reason::BadValue, format!("{}/values/{i}", self.at), text)
        };
        let text = match value {
            Value::String(s) => s.clone(),
            Value::Number(_) | Value::Bool(_) => value.to_string(),
            Value::Null | Value::Array(_) | Value::Object(_) => return bad("a single value"),
        };
        match ty {
            Type::Text | Type::Open => Ok(Literal::Text(text)),
            Type::Boolean => match text.to_ascii_lowercase().as_str() {
                "true" | "1" => Ok(Literal::Boolean(true)),
                "false" | "0" => Ok(Literal::Boolean(false)),
                _ => bad("a truth value"),
            },
            Type::Number => Literal::number(&text).map_or_else(|| bad("a number"), Ok),
            Type::Time => match Point::parse(&text, self.clock.tz) {
                Some(point) => Ok(Literal::Instant(utc_ns(self.clock.tz, point.range().start_ns, Edge::Start))),
                None => bad("a time"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::model::catalog::Catalog;
    use crate::model::load::{SourceFile, load};
    use crate::query::filter::{Filter, Literal, Test};
    use crate::query::request::Request;

    fn catalog() -> Catalog {
        let text = "cubes:
  - name: A
    sql_table: a
    dimensions:
      - {name: id, sql: id, type: number, primary_key: true, public: true}
      - {name: kind, sql: kind, type: string}
      - {name: at, sql: at, type: time}
      - {name: hidden, sql: x, type: string, public: false}
    measures: [{name: count, type: count}]
    segments: [{name: odd, sql: '{CUBE}.id % 2 = 1'}]
";
        load(&[SourceFile { name: "a.yml".to_owned(), text: text.to_owned(), builtin: false }]).unwrap().0
    }

    #[test]
    fn sub_codes_and_places() {
        let catalog = catalog();
        let check = |query: serde_json::Value, reason: &str, pointer: &str| {
            let error = Request::parse(&query, &catalog, 0).unwrap_err();
            assert_eq!((error.reason.as_str(), error.pointer.as_str()), (reason, pointer), "{query}: {error}");
        };
        let leaf = |filter: serde_json::Value| json!({"measures": ["A.count"], "filters": [filter]});
        check(json!([]), "BAD_VALUE", "");
        check(json!({}), "EMPTY_QUERY", "");
        check(json!({"measures": "A.count"}), "BAD_TYPE", "/measures");
        check(json!({"measures": ["A.cuont"]}), "UNKNOWN_MEMBER", "/measures/0");
        check(json!({"dimensions": ["A.hidden"]}), "UNKNOWN_MEMBER", "/dimensions/0");
        check(json!({"measures": ["B.count"]}), "UNKNOWN_MODEL", "/measures/0");
        check(json!({"dimensions": ["A.count"]}), "WRONG_KIND", "/dimensions/0");
        check(json!({"measures": ["A.count"], "colour": 1}), "UNKNOWN_KEY", "/colour");
        for key in ["limit", "dimensions", "timezone", "order", "filters", "total"] {
            check(json!({"measures": ["A.count"], key: null}), "BAD_TYPE", &format!("/{key}"));
        }
        check(json!({"measures": ["A.count"], "timezone": "Mars"}), "UNKNOWN_TIMEZONE", "/timezone");
        for limit in [json!(50_001), json!(50_001.0), json!(-1), json!(1.5), json!("5"), json!(1e300)] {
            check(json!({"measures": ["A.count"], "limit": limit}), "BAD_LIMIT", "/limit");
        }
        let whole =
            Request::parse(&json!({"measures": ["A.count"], "limit": 5.0, "offset": 2.0}), &catalog, 0).unwrap();
        assert_eq!((whole.queries[0].limit, whole.queries[0].offset), (Some(5), 2));
        check(json!({"measures": ["A.count"], "order": {"A.kind": "asc"}}), "BAD_ORDER", "/order/0");
        check(json!({"dimensions": ["A.at.fortnight"]}), "UNKNOWN_GRANULARITY", "/dimensions/0");
        let error = Request::parse(&json!({"dimensions": ["A.at.Day"]}), &catalog, 0).unwrap_err();
        assert_eq!(error.message, "`A.at` has no granularity `Day`; did you mean `day`?");
        check(
            json!({"measures": ["A.count"], "timeDimensions": [{"dimension": "A.kind"}]}),
            "NOT_TIME",
            "/timeDimensions/0/dimension",
        );
        check(leaf(json!({"member": "A.kind", "operator": "equals"})), "VALUES_REQUIRED", "/filters/0/values");
        check(
            leaf(json!({"member": "A.kind", "operator": "like", "values": ["x"]})),
            "UNKNOWN_OPERATOR",
            "/filters/0/operator",
        );
        check(
            leaf(json!({"member": "A.id", "operator": "gt", "values": ["fast"]})),
            "BAD_VALUE",
            "/filters/0/values/0",
        );
        check(leaf(json!({"member": "A.id", "operator": "gt", "values": ["inf"]})), "BAD_VALUE", "/filters/0/values/0");
        let over = |range: serde_json::Value| json!({"measures": ["A.count"], "timeDimensions": [{"dimension": "A.at", "dateRange": range}]});
        check(over(json!(5)), "BAD_TYPE", "/timeDimensions/0/dateRange");
        check(over(json!([5])), "BAD_TYPE", "/timeDimensions/0/dateRange");
        check(over(json!("last fortnight")), "BAD_DATE_RANGE", "/timeDimensions/0/dateRange");
        check(
            json!({"measures": ["A.count"], "timeDimensions": [{"dimension": "A.at", "compareDateRange": "today"}]}),
            "BAD_TYPE",
            "/timeDimensions/0/compareDateRange",
        );
        check(
            leaf(json!({"member": "A.kind", "operator": "contains", "values": [{}]})),
            "BAD_VALUE",
            "/filters/0/values",
        );
        let mixed = json!([{"member": "A.count", "operator": "set"}, {"member": "A.kind", "operator": "set"}]);
        check(leaf(json!({"or": mixed})), "MIXED_CONDITION", "/filters/0");
        check(
            leaf(json!({"member": "A.kind", "operator": "measureFilter"})),
            "UNKNOWN_OPERATOR",
            "/filters/0/operator",
        );
        let order = json!([{"id": "A.count", "desc": "yes"}]);
        check(json!({"measures": ["A.count"], "order": order}), "BAD_ORDER", "/order");
    }

    /// Guards against chains of thousands of conditions, which overflow the stack of planning.
    #[test]
    fn conditions_and_values_are_bounded() {
        let catalog = catalog();
        let leaf = |operator: &str, values: usize| {
            let values: Vec<String> = (0..values).map(|n| format!("v{n}")).collect();
            json!({"member": "A.kind", "operator": operator, "values": values})
        };
        let read = |filters: serde_json::Value| {
            let query = json!({"measures": ["A.count"], "filters": filters});
            Request::parse(&query, &catalog, 0).map_err(|e| (e.reason.as_str(), e.pointer))
        };
        for operator in ["contains", "notStartsWith", "endsWith"] {
            assert!(read(json!([leaf(operator, 500)])).is_ok(), "{operator}");
            assert_eq!(read(json!([leaf(operator, 501)])).unwrap_err(), ("BAD_VALUE", "/filters/0".to_owned()));
        }
        let two = json!([leaf("contains", 499), {"or": [leaf("equals", 2), leaf("equals", 2)]}]);
        assert_eq!(read(two).unwrap_err(), ("BAD_VALUE", "/filters/1/or/1".to_owned()));
        assert!(read(json!([leaf("in", 50_000)])).is_ok());
        let many = json!([leaf("in", 49_999), leaf("notIn", 2)]);
        assert_eq!(read(many).unwrap_err(), ("BAD_VALUE", "/filters".to_owned()));
    }

    /// Guards against a list of queries that becomes a thousand by comparing ranges.
    #[test]
    fn ranges_of_a_list_are_bounded() {
        let catalog = catalog();
        let read = |ranges: &[usize]| {
            let one = |ranges: &usize| {
                let ranges = vec![json!(["2024-01-01", "2024-01-02"]); *ranges];
                let time = json!({"dimension": "A.at", "granularity": "day", "compareDateRange": ranges});
                json!({"measures": ["A.count"], "timeDimensions": [time]})
            };
            let list: Vec<_> = ranges.iter().map(one).collect();
            Request::parse(&json!(list), &catalog, 0)
                .map(|r| r.queries.len())
                .map_err(|e| (e.reason.as_str(), e.pointer))
        };
        assert_eq!(read(&[16; 4]), Ok(64));
        assert_eq!(read(&[16, 16, 16, 15, 2, 1]), Err(("BAD_VALUE", "/4".to_owned())));
    }

    #[test]
    fn null_stands_beside_texts() {
        let catalog = catalog();
        let check = |values: serde_json::Value, expected: &[&str], is_null: bool| {
            let filter = json!([{"member": "A.kind", "operator": "notContains", "values": values}]);
            let request = Request::parse(&json!({"measures": ["A.count"], "filters": filter}), &catalog, 0).unwrap();
            let Filter::Leaf(leaf) = &request.queries[0].filters[0] else { panic!("a leaf") };
            let Test::Text { values, null, negated: true, .. } = &leaf.test else { panic!("{:?}", leaf.test) };
            assert_eq!((values.iter().map(String::as_str).collect::<Vec<_>>().as_slice(), *null), (expected, is_null));
        };
        check(json!([null]), &[], true);
        check(json!(["a", null, 1, true]), &["a", "1", "true"], true);
        check(json!(["a"]), &["a"], false);
    }

    /// Guards against reusing yesterday's result for a phrase relative to today.
    #[test]
    fn phrases_are_echoed_as_what_they_stand_for() {
        let catalog = catalog();
        let read = |operator: &str, value: &str, now_ns: i64| {
            let filter = json!([{"member": "A.at", "operator": operator, "values": [value]}]);
            Request::parse(&json!({"measures": ["A.count"], "filters": filter}), &catalog, now_ns).unwrap()
        };
        let check = |operator: &str, value: &str, expected: &str| {
            let asked = read(operator, value, 0);
            assert_eq!(asked.queries[0].to_json()["filters"][0]["values"], json!([expected]), "{operator} {value}");
            // It is the same at any time.
            let again = read(operator, expected, i64::MAX / 2);
            let test = |request: &Request| match &request.queries[0].filters[0] {
                Filter::Leaf(leaf) => leaf.test.clone(),
                other => panic!("{other:?}"),
            };
            assert_eq!(test(&asked), test(&again), "{operator} {value}");
        };
        for operator in ["beforeDate", "afterOrOnDate"] {
            check(operator, "today", "1970-01-01T00:00:00.000");
            check(operator, "2026-03-24", "2026-03-24");
        }
        for operator in ["beforeOrOnDate", "afterDate"] {
            check(operator, "today", "1970-01-01T23:59:59.999");
            check(operator, "2026-03-24", "2026-03-24");
        }
    }

    #[test]
    fn values_are_typed() {
        let catalog = catalog();
        let check = |member: &str, value: serde_json::Value, expected: Literal| {
            let filter = json!([{"member": member, "operator": "equals", "values": [value]}]);
            let request = Request::parse(&json!({"measures": ["A.count"], "filters": filter}), &catalog, 0).unwrap();
            let Filter::Leaf(leaf) = &request.queries[0].filters[0] else { panic!("a leaf") };
            assert_eq!(leaf.test, Test::In { values: vec![expected], null: false, negated: false }, "{member} {value}");
        };
        check("A.id", json!("12"), Literal::Integer(12));
        check("A.id", json!(1.5), Literal::Double(1.5));
        check("A.kind", json!(12), Literal::Text("12".to_owned()));
        check("A.at", json!("1970-01-02"), Literal::Instant(86_400_000_000_000));
    }
}
