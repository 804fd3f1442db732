//! Regular expressions and `LIKE` patterns that differ from row to row (`a ~ b`, `a LIKE b`), and constant ones that
//! take long. DataFusion keeps the compiled expressions of all rows of a batch, some megabytes each, and cannot be
//! cancelled within a row. A function of ours keeps only the last one, with the size limits of the other languages, and
//! stops with its query.

mod wildcards;

use std::sync::Arc;

use arrow::array::{Array as _, AsArray as _, BooleanBuilder, StringViewArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Result, ScalarValue, exec_err, internal_err};
use datafusion::logical_expr::expr::{BinaryExpr, Like, ScalarFunction};
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use quiver_types::matcher::{WatchedRegex, affordable, builder, looks_around};
use quiver_types::{Error, cancellation};

use crate::error::to_datafusion;
use crate::plan_walk::{any_expression, change_expressions, change_nodes};
use wildcards::Wildcards;

/// Constant `LIKE` patterns with more `%` are not run as regular expressions, whose cost per character grows with
/// their number.
const GAPS_MAX: usize = 16;
/// Constant patterns with repetitions (`{1000}`), or of more bytes than this, are cancellable. Others are left for
/// scans to use.
const PLAIN_BYTES: usize = 256;
/// DataFusion's function for `~`; its planner resolves the other names of it.
const REGEXP_LIKE: &str = "regexp_like";
/// The cost of compiling a pattern in steps: a fixed part, and one per byte.
const COMPILE_STEPS: (usize, usize) = (1 << 15, 1 << 11);

/// The rule. It follows type coercion.
#[derive(Debug)]
pub(crate) struct Patterns;

impl AnalyzerRule for Patterns {
    fn name(&self) -> &'static str {
        "patterns"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        change_nodes(plan, &mut |node| {
            if matches!(node, LogicalPlan::Limit(_) | LogicalPlan::TableScan(_)) || !compares(&node)? {
                return Ok(Transformed::no(node));
            }
            change_expressions(node, &mut |e| Ok(watched(e)))
        })
    }
}

/// Whether a node may have patterns to replace.
fn compares(node: &LogicalPlan) -> Result<bool> {
    let compares = |e: &Expr| match e {
        Expr::Like(_) => true,
        Expr::BinaryExpr(binary) => kind_of(binary.op).is_some(),
        Expr::ScalarFunction(call) => call.func.name() == REGEXP_LIKE,
        _ => false,
    };
    any_expression(node, &compares)
}

/// The kind of pattern that an operator matches, and whether it is negated.
fn kind_of(op: Operator) -> Option<(PatternKind, bool)> {
    match op {
        Operator::RegexMatch => Some((PatternKind::Regex { folds: false }, false)),
        Operator::RegexIMatch => Some((PatternKind::Regex { folds: true }, false)),
        Operator::RegexNotMatch => Some((PatternKind::Regex { folds: false }, true)),
        Operator::RegexNotIMatch => Some((PatternKind::Regex { folds: true }, true)),
        Operator::LikeMatch => Some((PatternKind::Like { folds: false }, false)),
        Operator::ILikeMatch => Some((PatternKind::Like { folds: true }, false)),
        Operator::NotLikeMatch => Some((PatternKind::Like { folds: false }, true)),
        Operator::NotILikeMatch => Some((PatternKind::Like { folds: true }, true)),
        _ => None,
    }
}

/// The text of a constant.
fn constant(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(value, _) => value.try_as_str().flatten(),
        _ => None,
    }
}

/// Whether a regular expression looks cheap, and is one that the crate `regex` runs. One with a literal backslash is
/// not: DataFusion turns expressions without special characters into `LIKE`, where the backslash would escape the
/// next character.
pub(crate) fn is_plain(pattern: &str) -> bool {
    pattern.len() <= PLAIN_BYTES && !pattern.contains('{') && !pattern.contains(r"\\") && !looks_around(pattern)
}

/// Whether a function is a form of `regexp_like` that is equivalent to an operator: it is either made cancellable
/// here, or so plain that scans may use it.
pub(crate) fn is_operator(call: &ScalarFunction) -> bool {
    call.func.name() == REGEXP_LIKE
        && match call.args.as_slice() {
            [_, pattern, flags] => constant(pattern).is_some_and(is_plain) && matches!(constant(flags), Some("" | "i")),
            _ => true,
        }
}

/// Replaces an operator by the cancellable function.
fn watched(expr: Expr) -> Transformed<Expr> {
    let (kind, negated, text, pattern) = match &expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => match kind_of(*op) {
            Some((kind, negated)) => (kind, negated, left.as_ref(), right.as_ref()),
            None => return Transformed::no(expr),
        },
        Expr::Like(Like { negated, expr: text, pattern, escape_char: None | Some('\\'), case_insensitive }) => {
            (PatternKind::Like { folds: *case_insensitive }, *negated, text.as_ref(), pattern.as_ref())
        }
        Expr::ScalarFunction(call) if call.func.name() == REGEXP_LIKE => match call.args.as_slice() {
            [text, pattern] => (PatternKind::Regex { folds: false }, false, text, pattern),
            _ => return Transformed::no(expr),
        },
        _ => return Transformed::no(expr),
    };
    let is_null = matches!(pattern, Expr::Literal(value, _) if value.is_null());
    let is_plain = constant(pattern).is_some_and(|pattern| match kind {
        PatternKind::Regex { .. } => is_plain(pattern),
        PatternKind::Like { folds } => Wildcards::new(pattern, folds).gaps() <= GAPS_MAX,
    });
    if is_null || is_plain {
        return Transformed::no(expr);
    }
    let call = kind.function().call(vec![text.clone(), pattern.clone()]);
    Transformed::yes(if negated { Expr::Not(Box::new(call)) } else { call })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum PatternKind {
    Regex { folds: bool },
    Like { folds: bool },
}

impl PatternKind {
    fn function(self) -> ScalarUDF {
        ScalarUDF::from(Matches { kind: self, signature: Signature::any(2, Volatility::Immutable) })
    }

    fn operator(self) -> &'static str {
        match self {
            Self::Regex { folds: false } => "~",
            Self::Regex { folds: true } => "~*",
            Self::Like { folds: false } => "LIKE",
            Self::Like { folds: true } => "ILIKE",
        }
    }
}

/// The functions that the rule inserts; users cannot call them.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    let kinds = [false, true].into_iter().flat_map(|folds| [PatternKind::Regex { folds }, PatternKind::Like { folds }]);
    kinds.map(PatternKind::function)
}

/// A compiled pattern.
enum PatternMatcher {
    Regex(WatchedRegex),
    Like(Wildcards),
}

impl PatternMatcher {
    fn new(kind: PatternKind, pattern: &str) -> Result<Self> {
        match kind {
            PatternKind::Like { folds } => Ok(Self::Like(Wildcards::new(pattern, folds))),
            PatternKind::Regex { folds } => {
                affordable(pattern).map_err(to_datafusion)?;
                let text = if folds { format!("(?i){pattern}") } else { pattern.to_owned() };
                if looks_around(&text) {
                    return WatchedRegex::looking(&text).map(Self::Regex).map_err(to_datafusion);
                }
                let invalid = |e: regex::Error| Error::invalid(format!("`{pattern}` is no regular expression: {e}"));
                let regex = builder(&text).build().map_err(|e| to_datafusion(invalid(e)))?;
                Ok(Self::Regex(WatchedRegex::new(regex)))
            }
        }
    }

    fn matches(&self, text: &str) -> Result<bool> {
        match self {
            Self::Regex(regex) => {
                let is_found = regex.is_match(text);
                regex.outcome().map_err(to_datafusion)?;
                Ok(is_found)
            }
            Self::Like(pattern) => pattern.matches(text).map_or_else(ended, Ok),
        }
    }
}

/// Checks whether the query goes on before a pattern is compiled.
///
/// # Errors
///
/// The query has ended.
pub(crate) fn may_compile(pattern: &str) -> Result<()> {
    let (once, each) = COMPILE_STEPS;
    if cancellation::goes_on(once + each.saturating_mul(pattern.len())) { Ok(()) } else { ended() }
}

/// The error for a query that has ended; its client has already been told.
pub(crate) fn ended<T>() -> Result<T> {
    exec_err!("the query has ended")
}

/// Texts for each row; a constant is stored once.
pub(crate) struct Texts {
    texts: StringViewArray,
    is_constant: bool,
}

impl Texts {
    /// Reads an argument.
    ///
    /// # Errors
    ///
    /// It holds no texts.
    pub(crate) fn new(value: &ColumnarValue) -> Result<Self> {
        let (array, is_constant) = match value {
            ColumnarValue::Array(array) => (Arc::clone(array), false),
            ColumnarValue::Scalar(value) => (value.to_array_of_size(1)?, true),
        };
        let texts = cast(&array, &DataType::Utf8View)?;
        if let Some(texts) = texts.as_string_view_opt() {
            Ok(Self { texts: texts.clone(), is_constant })
        } else {
            internal_err!("patterns are compared with texts")
        }
    }

    /// The text of a row; `None` if it is NULL.
    pub(crate) fn get(&self, row: usize) -> Option<&str> {
        let row = if self.is_constant { 0 } else { row };
        self.texts.is_valid(row).then(|| self.texts.value(row))
    }

    /// All stored texts; a constant appears once.
    pub(crate) fn each(&self) -> impl Iterator<Item = Option<&str>> {
        self.texts.iter()
    }
}

/// The function that matches texts against patterns.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Matches {
    kind: PatternKind,
    signature: Signature,
}

impl Matches {
    fn run(&self, texts: &Texts, patterns: &Texts, rows: usize) -> Result<BooleanBuilder> {
        let mut out = BooleanBuilder::with_capacity(rows);
        // Neighbouring rows mostly have the same pattern.
        let mut last: Option<(&str, PatternMatcher)> = None;
        for row in 0..rows {
            let (Some(text), Some(pattern)) = (texts.get(row), patterns.get(row)) else {
                out.append_null();
                continue;
            };
            let compiled = if let Some(known) = last.take().filter(|(of, _)| *of == pattern) {
                last.insert(known)
            } else {
                may_compile(pattern)?;
                last.insert((pattern, PatternMatcher::new(self.kind, pattern)?))
            };
            out.append_value(compiled.1.matches(text)?);
        }
        Ok(out)
    }
}

impl ScalarUDFImpl for Matches {
    fn name(&self) -> &'static str {
        match self.kind {
            PatternKind::Regex { folds: false } => "matches_regex",
            PatternKind::Regex { folds: true } => "matches_regex_in_any_case",
            PatternKind::Like { folds: false } => "matches_like",
            PatternKind::Like { folds: true } => "matches_like_in_any_case",
        }
    }

    /// Columns keep the names that they had with the operator.
    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        let [text, pattern] = args else { return internal_err!("a pattern has a text") };
        Ok(format!("{} {} {}", text.schema_name(), self.kind.operator(), pattern.schema_name()))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let is_nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), DataType::Boolean, is_nullable)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [texts, patterns] = args.args.as_slice() else { return internal_err!("a pattern has a text") };
        let (texts, patterns) = (Texts::new(texts)?, Texts::new(patterns)?);
        if texts.is_constant && patterns.is_constant {
            let one = self.run(&texts, &patterns, 1)?.finish();
            return Ok(ColumnarValue::Scalar(ScalarValue::Boolean(one.is_valid(0).then(|| one.value(0)))));
        }
        Ok(ColumnarValue::Array(Arc::new(self.run(&texts, &patterns, args.number_rows)?.finish())))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, StringArray};

    use super::*;

    fn text(value: &str) -> ColumnarValue {
        ColumnarValue::Scalar(ScalarValue::from(value))
    }

    fn run(
        kind: PatternKind,
        texts: &ColumnarValue,
        patterns: &ColumnarValue,
        rows: usize,
    ) -> Result<Vec<Option<bool>>> {
        let function = Matches { kind, signature: Signature::any(2, Volatility::Immutable) };
        let found = function.run(&Texts::new(texts)?, &Texts::new(patterns)?, rows)?.finish();
        Ok(found.iter().collect())
    }

    #[test]
    fn each_row_has_its_pattern() {
        let patterns: ArrayRef = Arc::new(StringArray::from(vec![Some("b+"), Some("b+"), None, Some("^x"), Some("B")]));
        let patterns = ColumnarValue::Array(patterns);
        let found = run(PatternKind::Regex { folds: false }, &text("abbc"), &patterns, 5).expect("valid");
        assert_eq!(found, [Some(true), Some(true), None, Some(false), Some(false)]);
        let found = run(PatternKind::Regex { folds: true }, &text("abbc"), &patterns, 5).expect("valid");
        assert_eq!(found, [Some(true), Some(true), None, Some(false), Some(true)]);
        let patterns: ArrayRef = Arc::new(StringArray::from(vec!["a%", "%B%"]));
        let patterns = ColumnarValue::Array(patterns);
        let found = run(PatternKind::Like { folds: false }, &text("abbc"), &patterns, 2).expect("valid");
        assert_eq!(found, [Some(true), Some(false)]);
        let found = run(PatternKind::Like { folds: true }, &text("abbc"), &patterns, 2).expect("valid");
        assert_eq!(found, [Some(true), Some(true)]);
        assert!(run(PatternKind::Regex { folds: false }, &text("a"), &text("("), 1).is_err());
        let found = run(PatternKind::Regex { folds: true }, &text("aB"), &text("A(?=b)"), 1).expect("valid");
        assert_eq!(found, [Some(true)]);
    }

    /// All regular expressions together would take a gigabyte.
    #[test]
    fn patterns_of_many_rows_are_kept_one_at_a_time() {
        let patterns: Vec<String> = (0..500).map(|n| format!("({n}|x){{0,30}}$")).collect();
        let patterns: ArrayRef = Arc::new(StringArray::from(patterns));
        let found = run(PatternKind::Regex { folds: false }, &text("7"), &ColumnarValue::Array(patterns), 500);
        assert!(found.expect("valid").iter().all(|found| *found == Some(true)));
        let large = text("(\\w{500}){100}");
        let error = run(PatternKind::Regex { folds: false }, &text("a"), &large, 1).expect_err("too large");
        assert!(error.to_string().contains("no regular expression"), "{error}");
    }

    #[test]
    fn constants_that_are_quick_stay_as_they_are() {
        use datafusion::prelude::{col, lit};
        let regex = |pattern: Expr| {
            Expr::BinaryExpr(BinaryExpr::new(Box::new(col("a")), Operator::RegexNotMatch, Box::new(pattern)))
        };
        assert!(!watched(regex(lit("a.*b"))).transformed);
        assert!(watched(regex(lit(r"C:\\x"))).transformed && !watched(regex(lit(r"C:\d"))).transformed);
        assert!(watched(regex(lit("(a{0,100}){0,100}"))).transformed);
        assert!(watched(regex(col("b"))).transformed);
        assert!(watched(regex(lit("a(?=b)"))).transformed && watched(regex(lit(r"(a)\1"))).transformed);
        assert!(!watched(col("a").like(lit("%a%b%"))).transformed);
        assert!(watched(col("a").like(lit("%a".repeat(3000)))).transformed);
        assert!(watched(col("a").not_ilike(col("b"))).transformed);
    }
}
