//! PostgreSQL's dialect with a limit on backtracking. A word such as `CAST`, `SUBSTRING` or `NOT` that cannot be
//! parsed as an operator is parsed again as a function name, with everything in its parentheses; so is a parenthesis
//! that contains no subquery. Thirty of them nested around one mistake, or fifty around valid text, were parsed a
//! billion times, from a kilobyte of text; so were the arguments of thirty nested function calls.

use std::any::TypeId;
use std::cell::Cell;

use datafusion::sql::sqlparser::ast::{Expr, UnaryOperator};
use datafusion::sql::sqlparser::dialect::{Dialect, PostgreSqlDialect, Precedence};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;
use quiver_types::cancellation;

/// Operands that a statement may always have, repeated ones included.
const OPERANDS_MIN: usize = 10_000;
/// How often a word may be parsed on average before backtracking stops, and before parsing ends.
const AGAIN_MAX: usize = 2;
const ENDS: usize = 4;
/// The cost of parsing one operand, in steps of some nanoseconds.
const STEPS: usize = 1_000;

/// The dialect for one statement.
#[derive(Debug)]
pub(crate) struct Patience {
    /// The most operands that the statement can have: each is a word.
    words: usize,
    /// Operands parsed so far.
    read: Cell<usize>,
}

impl Patience {
    /// The dialect for a statement of this number of words.
    pub(crate) fn for_words(words: usize) -> Self {
        Self { words, read: Cell::new(0) }
    }

    /// Whether more than `times` the words of the statement have been parsed.
    fn is_over(&self, times: usize) -> bool {
        self.read.get() > OPERANDS_MIN + self.words * times
    }

    /// `@ x`, `~ x`, `|/ x` and `||/ x`, which bind less than sums in PostgreSQL: `@ x - 5` is that of the difference. The parser
    /// itself has them bind more.
    fn parse_sign(&self, parser: &mut Parser<'_>) -> Option<Result<Expr, ParserError>> {
        let op = match parser.peek_token_ref().token {
            Token::AtSign => UnaryOperator::PGAbs,
            Token::Tilde => UnaryOperator::BitwiseNot,
            Token::PGSquareRoot => UnaryOperator::PGSquareRoot,
            Token::PGCubeRoot => UnaryOperator::PGCubeRoot,
            _ => return None,
        };
        parser.advance_token();
        let operand = parser.parse_subexpr(self.prec_value(Precedence::PgOther));
        Some(operand.map(|operand| {
            // Parentheses keep the operand together when a part of the statement is printed and parsed again.
            let whole = match operand {
                sum @ Expr::BinaryOp { .. } => Expr::Nested(Box::new(sum)),
                other => other,
            };
            Expr::UnaryOp { op, expr: Box::new(whole) }
        }))
    }
}

/// Delegates methods to PostgreSQL's dialect.
macro_rules! as_postgres {
    ($($asked:ident)+) => {
        $(fn $asked(&self) -> bool {
            PostgreSqlDialect {}.$asked()
        })+
    };
}

impl Dialect for Patience {
    fn parse_prefix(&self, parser: &mut Parser<'_>) -> Option<Result<Expr, ParserError>> {
        self.read.set(self.read.get() + 1);
        // This is the only error after which the parser does not backtrack.
        if self.is_over(ENDS) || !cancellation::goes_on(STEPS) {
            return Some(Err(ParserError::RecursionLimitExceeded));
        }
        self.parse_sign(parser)
    }

    fn is_reserved_for_identifier(&self, word: Keyword) -> bool {
        self.is_over(AGAIN_MAX) || PostgreSqlDialect {}.is_reserved_for_identifier(word)
    }

    /// Disabled: arguments would be parsed first as a name and again as a value, and nested ones exponentially often.
    /// The names that exist (`days => 1`) are plain words.
    fn supports_named_fn_args_with_expr_name(&self) -> bool {
        false
    }

    /// `days := 1`, the older form of `days => 1`, which sqlparser's PostgreSQL dialect lacks.
    fn supports_named_fn_args_with_assignment_operator(&self) -> bool {
        true
    }

    /// Text literals on consecutive lines are one text, which sqlparser's PostgreSQL dialect lacks.
    fn supports_string_literal_concatenation_with_newline(&self) -> bool {
        true
    }

    /// `x::text COLLATE "C"`: the parser itself reads `COLLATE` only behind operands without such a cast.
    fn parse_infix(&self, parser: &mut Parser<'_>, left: &Expr, _: u8) -> Option<Result<Expr, ParserError>> {
        if !parser.parse_keyword(Keyword::COLLATE) {
            return None;
        }
        let collation = parser.parse_object_name(false);
        Some(collation.map(|collation| Expr::Collate { expr: Box::new(left.clone()), collation }))
    }

    // All else is as in PostgreSQL's dialect.

    fn dialect(&self) -> TypeId {
        TypeId::of::<PostgreSqlDialect>()
    }

    fn identifier_quote_style(&self, identifier: &str) -> Option<char> {
        PostgreSqlDialect {}.identifier_quote_style(identifier)
    }

    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        PostgreSqlDialect {}.is_delimited_identifier_start(ch)
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        PostgreSqlDialect {}.is_identifier_start(ch)
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        PostgreSqlDialect {}.is_identifier_part(ch)
    }

    fn is_custom_operator_part(&self, ch: char) -> bool {
        PostgreSqlDialect {}.is_custom_operator_part(ch)
    }

    fn get_next_precedence(&self, parser: &Parser<'_>) -> Option<Result<u8, ParserError>> {
        PostgreSqlDialect {}.get_next_precedence(parser)
    }

    fn prec_value(&self, precedence: Precedence) -> u8 {
        PostgreSqlDialect {}.prec_value(precedence)
    }

    as_postgres! {
        allow_extract_custom
        allow_extract_single_quotes
        supports_alter_column_type_using
        supports_array_typedef_with_brackets
        supports_bitwise_shift_operators
        supports_comma_separated_trim
        supports_comment_on
        supports_comment_optimizer_hint
        supports_create_index_with_clause
        supports_create_table_like_parenthesized
        supports_empty_projections
        supports_explain_with_utility_options
        supports_factorial_operator
        supports_filter_during_aggregation
        supports_geometric_types
        supports_group_by_expr
        supports_insert_table_alias
        supports_interval_options
        supports_listen_notify
        supports_load_extension
        supports_named_fn_args_with_colon_operator
        supports_nested_comments
        supports_notnull_operator
        supports_numeric_literal_underscores
        supports_select_wildcard_with_alias
        supports_set_names
        supports_string_escape_constant
        supports_unicode_string_literal
        supports_xml_expressions
    }
}

#[cfg(test)]
mod tests {
    use quiver_types::ErrorKind;

    use super::*;
    use crate::parse::{DEPTH_MAX, Params, parse};

    /// Runs something with the stack size of the threads that parse statements.
    fn deeply(work: impl FnOnce() + Send + 'static) {
        let thread = std::thread::Builder::new().stack_size(32 << 20).spawn(work).expect("a thread");
        thread.join().expect("it holds");
    }

    /// Nests something in a number of brackets.
    fn nested(open: &str, within: &str, close: &str, deep: usize) -> String {
        format!("select {}{within}{}", open.repeat(deep), close.repeat(deep))
    }

    #[test]
    fn slips_within_brackets_are_found_at_once() {
        deeply(slips);
    }

    fn slips() {
        for (open, close) in [
            ("cast(", " as text)"),
            ("substring(", " from 1)"),
            ("position('a' in ", ")"),
            ("overlay(", " placing 'b' from 1)"),
            ("trim(", ")"),
            ("ceil(", ")"),
            ("extract(hour from ", ")"),
            ("not (", ")"),
            ("array(", ")"),
            ("1 in ((select ", "))"),
            ("((select * from (select ", ") t))"),
        ] {
            for deep in [5, 30, 45, 2 * DEPTH_MAX] {
                for slip in ["1 2", "1)", "'a' from"] {
                    let text = nested(open, slip, close, deep);
                    let error = parse(&text, &Params::default()).expect_err(&text);
                    assert!(matches!(error.kind, ErrorKind::Invalid | ErrorKind::LimitExceeded), "{text}: {error}");
                }
            }
        }
    }

    #[test]
    fn calls_within_calls_are_read_once() {
        deeply(calls);
    }

    fn calls() {
        for call in ["abs(", "coalesce(2, ", "date_trunc('hour', "] {
            let text = nested(call, "1", ")", 45);
            let dialect = Patience::for_words(200);
            let mut parser = Parser::new(&dialect).try_with_sql(&text).unwrap();
            parser.parse_statement().unwrap_or_else(|e| panic!("{text}: {e}"));
            assert!(dialect.read.get() < 200, "{text}: {} operands were read", dialect.read.get());
        }
        parse("select make_interval(days => 1, hours => abs(2))", &Params::default()).unwrap();
        parse("select make_interval(days := 1, hours := abs(2))", &Params::default()).unwrap();
    }

    #[test]
    fn what_is_too_deep_and_has_no_slip_is_refused() {
        deeply(too_deep);
    }

    fn too_deep() {
        let error = parse(&nested("cast(", "1", " as bigint)", 2 * DEPTH_MAX), &Params::default()).unwrap_err();
        assert_eq!((error.kind, error.message.as_str()), (ErrorKind::LimitExceeded, "the statement nests too deeply"));
        parse(&nested("cast(", "1", " as bigint)", 40), &Params::default()).unwrap();
    }

    #[test]
    fn a_slip_is_told_where_it_is() {
        deeply(places);
    }

    fn places() {
        let error = parse(&nested("cast(", "1 2", " as bigint)", 30), &Params::default()).unwrap_err();
        assert!(error.message.ends_with("found: 2 at line 1, column 160"), "{error}");
    }

    #[test]
    fn words_of_operators_are_names_in_long_lists_too() {
        let names = "position, substring, interval, \"cast\", floor + 1, ceil, convert, ";
        let text = format!("select {}1 from t where position in ({}2)", names.repeat(900), "1, ".repeat(20_000));
        parse(&text, &Params::default()).unwrap();
    }

    #[test]
    fn signs_bind_less_than_sums() {
        let read = |text: &str| {
            let dialect = Patience::for_words(20);
            let mut parser = Parser::new(&dialect).try_with_sql(text).unwrap();
            parser.parse_expr().unwrap().to_string()
        };
        for (text, expected) in [
            ("@ x - 5", "@(x - 5)"),
            ("~ x * 2 | 1", "~(x * 2) | 1"),
            ("|/ 9 + 16 = 5", "|/(9 + 16) = 5"),
            ("- @ -3", "-@-3"),
            ("@ x::int << ~ 2", "@x::INT << ~2"),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }
}
