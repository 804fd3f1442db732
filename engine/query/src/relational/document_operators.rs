//! Operators on JSON documents (PostgreSQL's `jsonb`): DataFusion would apply those of strings. Where the statement
//! itself shows that an operand is JSON, the operator is rewritten before planning. This rule handles columns, whose
//! type is known only in the plan; for expressions over columns the rule [`documents`](super::documents) finds out.

use std::sync::Arc;

use datafusion::common::{DFSchema, ExprSchema as _, Result, ScalarValue};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Expr, Operator, ScalarUDF, binary_expr};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use crate::functions::{Room, are_map_texts, is_document, is_json, of_documents};

/// Functions that give documents.
const MAKERS: [&str; 11] = [
    "json_get",
    "json_get_path",
    "json_known",
    "json_normal",
    "json_value",
    "jsonb_concat",
    "jsonb_insert",
    "jsonb_less",
    "jsonb_less_path",
    "jsonb_set",
    "jsonb_strip_nulls",
];

/// The expression planner for these operators.
#[derive(Debug)]
pub(crate) struct DocumentOperators {
    concat: Arc<ScalarUDF>,
    less: Arc<ScalarUDF>,
    contains: Arc<ScalarUDF>,
    alike: Arc<ScalarUDF>,
}

impl DocumentOperators {
    /// Makes the planner; what its functions make takes memory from `room`.
    pub(crate) fn new(room: &Room) -> Self {
        let of = |name: &str| of_documents(name, room).expect("a function of ours");
        Self {
            concat: of("jsonb_concat"),
            less: of("jsonb_less"),
            contains: of("json_contains"),
            alike: of("json_alike"),
        }
    }
}

/// Whether a value is a document. What it is made of is not looked at, since chains of operators may be long.
fn is_made(value: &Expr, schema: &DFSchema) -> bool {
    match value {
        Expr::Column(column) => schema.field_from_column(column).is_ok_and(|field| is_json(field)),
        Expr::ScalarFunction(call) => MAKERS.contains(&call.func.name()),
        _ => false,
    }
}

/// Whether a value is a column of maps of texts, which clients see as `json`.
fn is_map(value: &Expr, schema: &DFSchema) -> bool {
    let Expr::Column(column) = value else { return false };
    schema.field_from_column(column).is_ok_and(|field| are_map_texts(field.data_type()))
}

/// The value of a text literal.
fn written(value: &Expr) -> Option<&str> {
    match value {
        Expr::Literal(ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)), _) => Some(text),
        Expr::Cast(cast) if cast.field.data_type().is_string() => written(&cast.expr),
        _ => None,
    }
}

/// Whether a literal is an object, an array or a text in quotes. Other documents may be meant as texts.
fn is_structure(value: &Expr) -> bool {
    written(value).is_some_and(|text| text.trim_start().starts_with(['{', '[', '"']) && is_document(text))
}

/// What an operator between documents does.
#[derive(Debug, Clone, Copy)]
pub(super) enum DocumentOperation {
    Concat,
    Less,
    Contains,
    IsContained,
    IsAlike,
    Differs,
}

/// What an operator does; `None`: for all that its operands show, they are no documents.
pub(super) fn operation(op: Operator, left: &Expr, right: &Expr, schema: &DFSchema) -> Option<DocumentOperation> {
    use Operator::{ArrowAt, AtArrow, Eq, Minus, NotEq, StringConcat};
    if !matches!(op, ArrowAt | AtArrow | Eq | Minus | NotEq | StringConcat) {
        return None;
    }
    // Maps have no `=`, as PostgreSQL's `json` has none.
    let is_one = |value: &Expr| is_made(value, schema) || (!matches!(op, Eq | NotEq) && is_map(value, schema));
    let (is_left, is_right) = (is_one(left), is_one(right));
    if !is_left && !is_right {
        return None;
    }
    let are_both = (is_left || is_structure(left)) && (is_right || is_structure(right));
    // `@>` is not defined for plain texts.
    let is_written = |value: &Expr| written(value).is_some_and(is_document);
    let contains = (is_left || is_written(left)) && (is_right || is_written(right));
    // The number of a member may be meant where a value is read: `(document -> 'a') - 1`.
    let is_place = is_left && (written(right).is_some() || matches!(left, Expr::Column(_)));
    match op {
        StringConcat if are_both => Some(DocumentOperation::Concat),
        AtArrow if contains => Some(DocumentOperation::Contains),
        ArrowAt if contains => Some(DocumentOperation::IsContained),
        Minus if is_place => Some(DocumentOperation::Less),
        Eq if are_both => Some(DocumentOperation::IsAlike),
        NotEq if are_both => Some(DocumentOperation::Differs),
        _ => None,
    }
}

impl DocumentOperators {
    /// The expression that does it.
    pub(super) fn applied(&self, operation: DocumentOperation, left: Expr, right: Expr) -> Expr {
        let alike = |value: Expr| self.alike.call(vec![value]);
        match operation {
            DocumentOperation::Concat => self.concat.call(vec![left, right]),
            DocumentOperation::Less => self.less.call(vec![left, right]),
            DocumentOperation::Contains => self.contains.call(vec![left, right]),
            DocumentOperation::IsContained => self.contains.call(vec![right, left]),
            DocumentOperation::IsAlike => binary_expr(alike(left), Operator::Eq, alike(right)),
            DocumentOperation::Differs => binary_expr(alike(left), Operator::NotEq, alike(right)),
        }
    }
}

impl ExprPlanner for DocumentOperators {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let op = match expr.op {
            BinaryOperator::ArrowAt => Operator::ArrowAt,
            BinaryOperator::AtArrow => Operator::AtArrow,
            BinaryOperator::Eq => Operator::Eq,
            BinaryOperator::Minus => Operator::Minus,
            BinaryOperator::NotEq => Operator::NotEq,
            BinaryOperator::StringConcat => Operator::StringConcat,
            _ => return Ok(PlannerResult::Original(expr)),
        };
        Ok(match operation(op, &expr.left, &expr.right, schema) {
            Some(operation) => PlannerResult::Planned(self.applied(operation, expr.left, expr.right)),
            None => PlannerResult::Original(expr),
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::answered;

    const OF: &str = r#"(select json_value(column1) as g from (values ('{"x": 1, "y": 2}'))) as t"#;

    #[tokio::test]
    async fn documents_are_changed_and_compared() {
        for (asked, expected) in [
            (r#"g || '{"z": 3}'"#, r#"{"x": 1, "y": 2, "z": 3}"#),
            ("g - 'x'", r#"{"y": 2}"#),
            (r#"g = '{"y":2,"x":1.0}'"#, "true"),
            (r#"g <> '{"y": 2}'"#, "true"),
            ("g = g", "true"),
            (r#"jsonb_concat(g, '[]') || '"z"'"#, r#"[{"x": 1, "y": 2}, "z"]"#),
            (r"jsonb_concat(g, '[1]') @> '1'", "true"),
            (r#"'"x"' <@ jsonb_concat(g, '[1]')"#, "false"),
            // What is no document is a text.
            ("g || ' of a text'", r#"{"x": 1, "y": 2} of a text"#),
            ("coalesce(g, '{}') || ' of a text'", r#"{"x": 1, "y": 2} of a text"#),
            // What is made of documents is one.
            (r#"coalesce(g, '{}') || '{"z": 3}' || '{"w": 4}'"#, r#"{"w": 4, "x": 1, "y": 2, "z": 3}"#),
            (r#"make_array(g)[1] @> '{"x": 1}'"#, "true"),
            (r#"(case when g is not null then g end) = '{"y":2,"x":1.0}'"#, "true"),
            (r#"(select json_value('{"a": 1}')) || '{"z": 3}'"#, r#"{"a": 1, "z": 3}"#),
        ] {
            assert_eq!(answered(&format!("select {asked} from {OF}")).await.unwrap(), [expected], "{asked}");
        }
    }

    #[tokio::test]
    async fn columns_made_of_documents_have_the_operators() {
        for made in ["coalesce(g, '{}')", "array_agg(g)[1]", "unnest(make_array(g))"] {
            let asked = format!(r#"select y || '{{"z": 3}}' from (select {made} as y from {OF}) as u"#);
            assert_eq!(answered(&asked).await.unwrap(), [r#"{"x": 1, "y": 2, "z": 3}"#], "{made}");
        }
    }

    #[tokio::test]
    async fn texts_are_texts() {
        let of = r#"(values ('{"x": 1}')) as t(s)"#;
        for (asked, expected) in [(r"s || '{}'", r#"{"x": 1}{}"#), (r#"s = '{"x":1}'"#, "false")] {
            assert_eq!(answered(&format!("select {asked} from {of}")).await.unwrap(), [expected], "{asked}");
        }
    }
}
