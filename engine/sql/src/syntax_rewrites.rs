//! PostgreSQL syntax that the parser does not accept: `trim(both from x)`, `TABLE x`, `BETWEEN SYMMETRIC`, `= ANY
//! (VALUES …)`, `ORDER BY x USING >`, `EXCLUDE TIES`, `ROWS FROM (…)`, `substring(x SIMILAR p ESCAPE e)` and `interval(2)
//! '…'`. It is removed or replaced by an equivalent in the text, such that everything else keeps its place.

use std::borrow::Cow;

use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};
use quiver_types::Result;

use crate::error::{unreadable, unsupported};

/// A statement as the parser takes it.
///
/// # Errors
/// Invalid: it has no words. Unsupported: it has a clause for which there is no other word.
pub(crate) fn known(text: &str) -> Result<Cow<'_, str>> {
    // Most statements have none of these words.
    let has = |word: &[u8]| text.as_bytes().windows(word.len()).any(|part| part.eq_ignore_ascii_case(word));
    let words: [&[u8]; 10] =
        [b"trim", b"table", b"symmetric", b"values", b"using", b"exclude", b"rows", b"similar", b"interval", b"group"];
    if !words.into_iter().any(has) {
        return Ok(Cow::Borrowed(text));
    }
    let tokens = Tokenizer::new(&PostgreSqlDialect {}, text).tokenize_with_location();
    let mut tokens = tokens.map_err(|e| unreadable(&e.message, e.location))?;
    tokens.retain(|token| !matches!(token.token, Token::Whitespace(_)));
    let is = |at: usize, keywords: &[Keyword]| keywords.iter().any(|keyword| is_word(&tokens, at, *keyword));
    let mut others: Vec<Replacement> = Vec::new();
    for at in 0..tokens.len() {
        others.extend(distinct_groups(&tokens, at)?);
        others.extend(all_groups(&tokens, at));
        unnamed_columns(&tokens, at)?;
        if is(at, &[Keyword::TABLE]) && begins_query(&tokens, at) {
            others.push((at, "table", "SELECT * FROM"));
        }
        let opens = tokens.get(at + 1).is_some_and(|token| token.token == Token::LParen);
        if is(at, &[Keyword::BETWEEN]) && is(at + 1, &[Keyword::SYMMETRIC]) {
            // Nobody negates a condition three times, so that this marks the lower end.
            others.push((at + 1, "symmetric", "NOT NOT NOT"));
        } else if is(at, &[Keyword::BETWEEN]) && is(at + 1, &[Keyword::ASYMMETRIC]) {
            others.push((at + 1, "asymmetric", "          "));
        }
        if is(at, &[Keyword::USING])
            && let Some(order) = tokens.get(at + 1).and_then(|token| order_of(&token.token))
        {
            others.extend([(at, "using", "     "), (at + 1, ">", order)]);
        }
        let ends_frame = at > 0 && is(at - 1, &[Keyword::ROW, Keyword::PRECEDING, Keyword::FOLLOWING]);
        if ends_frame && is(at, &[Keyword::EXCLUDE]) {
            others.extend(excluded(&tokens, at));
        }
        if is_rows_from(&tokens, at) {
            others.extend([(at, "rows", "    "), (at + 1, "from", "unnest"), (at + 2, "(", "(rows_from(), ")]);
        }
        if is(at, &[Keyword::SIMILAR]) && !is(at + 1, &[Keyword::TO]) {
            others.extend(similar_part(&tokens, at));
        }
        if is(at, &[Keyword::INTERVAL]) {
            others.extend(digits_of_interval(&tokens, at));
        }
        // The parser knows subqueries by `SELECT` or `WITH`. Behind `UNION` it reads a query in any case.
        let is_set = is(at, &[Keyword::ANY, Keyword::SOME, Keyword::ALL]) && is_of_value(&tokens, at);
        if is_set
            && opens
            && is(at + 2, &[Keyword::VALUES])
            && let Some(closes) = closing(&tokens, at + 1)
        {
            others.push((at + 2, "values", "SELECT * FROM (VALUES"));
            others.push((closes, ")", ") AS \"values\")"));
        }
        if !is(at, &[Keyword::TRIM]) || !opens {
            continue;
        }
        let first = at + 2;
        let from = first + usize::from(is(first, &[Keyword::BOTH, Keyword::LEADING, Keyword::TRAILING]));
        if is(from, &[Keyword::FROM]) {
            others.push((from, "from", "    "));
        }
    }
    others.sort_by_key(|(at, ..)| *at);
    let (mut out, mut done) = (String::with_capacity(text.len() + 8), 0);
    let mut cursor = Cursor { text, line: 1, column: 1, byte: 0 };
    for (at, word, other) in others {
        // What is added behind the last token stands before comments.
        let begin = match tokens.get(at) {
            Some(token) => cursor.reach(token.span.start),
            None => tokens.last().and_then(|token| cursor.reach(token.span.end)),
        };
        let Some(begin) = begin else { continue };
        out.push_str(text.get(done..begin).unwrap_or_default());
        out.push_str(other);
        done = begin + word.len();
    }
    out.push_str(text.get(done..).unwrap_or_default());
    Ok(Cow::Owned(out))
}

/// A replaced word of a statement: the number of its token, the word, and what is written instead.
type Replacement = (usize, &'static str, &'static str);

/// What stands instead of what the frame of a window leaves out: the tree has no place for that, so that it is a key of the
/// partitions, which the engine knows. None: it is no such frame.
fn excluded(tokens: &[TokenWithSpan], at: usize) -> Vec<Replacement> {
    let is = |at: usize, keyword: Keyword| is_word(tokens, at, keyword);
    let is_others = |token: &TokenWithSpan| token.token.to_string().eq_ignore_ascii_case("others");
    let (mark, first, words): (_, _, &[(&str, &str)]) = if is(at + 1, Keyword::GROUP) {
        ("exclude_group(), ", "PARTITION BY exclude_group() ", &[("group", "     ")])
    } else if is(at + 1, Keyword::TIES) {
        ("exclude_ties(), ", "PARTITION BY exclude_ties() ", &[("ties", "    ")])
    } else if is(at + 1, Keyword::CURRENT) && is(at + 2, Keyword::ROW) {
        let words = &[("current", "       "), ("row", "   ")];
        ("exclude_current_row(), ", "PARTITION BY exclude_current_row() ", words)
    } else if is(at + 1, Keyword::NO) && tokens.get(at + 2).is_some_and(is_others) {
        ("", "", &[("no", "  "), ("others", "      ")])
    } else {
        return Vec::new();
    };
    let Some((keys, has_keys)) = partitions(tokens, at) else { return Vec::new() };
    let key = (keys, "", if has_keys { mark } else { first });
    let words = words.iter().zip(at + 1..).map(|((word, other), at)| (at, *word, *other));
    [key, (at, "exclude", "       ")].into_iter().chain(words).collect()
}

/// Where the keys of partitions stand, or would, in the window of a frame, and whether there are any; none: it is no window.
fn partitions(tokens: &[TokenWithSpan], frame: usize) -> Option<(usize, bool)> {
    let is = |at: usize, keyword: Keyword| is_word(tokens, at, keyword);
    let mut depth = 0_usize;
    for opens in (1..frame).rev() {
        match tokens[opens].token {
            Token::RParen => depth += 1,
            Token::LParen if depth == 0 => {
                let is_window = is(opens - 1, Keyword::OVER) || is(opens - 1, Keyword::AS);
                let clauses = [Keyword::PARTITION, Keyword::ORDER, Keyword::ROWS, Keyword::RANGE, Keyword::GROUPS];
                // The name of another window comes before all.
                let is_built = !clauses.iter().any(|keyword| is(opens + 1, *keyword));
                let first = opens + 1 + usize::from(is_built);
                let has_keys = is(first, Keyword::PARTITION) && is(first + 1, Keyword::BY);
                return is_window.then_some(if has_keys { (first + 2, true) } else { (first, false) });
            }
            Token::LParen => depth -= 1,
            _ => {}
        }
    }
    None
}

/// What stands instead of `GROUP BY DISTINCT`, which leaves out sets of groups that are there already: nothing, if there
/// are no such sets.
fn distinct_groups(tokens: &[TokenWithSpan], at: usize) -> Result<Option<Replacement>> {
    let is = |at: usize, keyword: Keyword| is_word(tokens, at, keyword);
    if !is(at, Keyword::DISTINCT) || at < 2 || !is(at - 1, Keyword::BY) || !is(at - 2, Keyword::GROUP) {
        return Ok(None);
    }
    let makes_sets = |at: usize| is(at, Keyword::ROLLUP) || is(at, Keyword::CUBE) || is(at, Keyword::GROUPING);
    if (at..tokens.len()).any(makes_sets) {
        return Err(unsupported("`GROUP BY DISTINCT` of sets of groups is not supported: write each set once"));
    }
    Ok(Some((at, "distinct", "        ")))
}

/// What may follow a `GROUP BY ALL` that groups by all outputs without aggregates.
const BEHIND_GROUPS: [Keyword; 12] = [
    Keyword::HAVING,
    Keyword::WINDOW,
    Keyword::ORDER,
    Keyword::LIMIT,
    Keyword::OFFSET,
    Keyword::FETCH,
    Keyword::FOR,
    Keyword::UNION,
    Keyword::EXCEPT,
    Keyword::INTERSECT,
    Keyword::QUALIFY,
    Keyword::WITH,
];

/// What stands instead of the `ALL` of `GROUP BY ALL a, ROLLUP (b)`, which is so without the word: nothing. None: it is no such
/// word, or no keys follow.
fn all_groups(tokens: &[TokenWithSpan], at: usize) -> Option<Replacement> {
    let is = |at: usize, keyword: Keyword| is_word(tokens, at, keyword);
    if !is(at, Keyword::ALL) || at < 2 || !is(at - 1, Keyword::BY) || !is(at - 2, Keyword::GROUP) {
        return None;
    }
    let has_keys = match tokens.get(at + 1).map(|token| &token.token) {
        Some(Token::LParen | Token::Number(..)) => true,
        Some(Token::Word(_)) => !BEHIND_GROUPS.iter().any(|keyword| is(at + 1, *keyword)),
        _ => false,
    };
    has_keys.then_some((at, "all", "   "))
}

/// Refuses `JOIN … USING (…) AS name`, a name for the columns that are merged.
fn unnamed_columns(tokens: &[TokenWithSpan], at: usize) -> Result<()> {
    let opens = tokens.get(at + 1).is_some_and(|token| token.token == Token::LParen);
    if is_word(tokens, at, Keyword::USING)
        && opens
        && closing(tokens, at + 1).is_some_and(|closes| is_word(tokens, closes + 1, Keyword::AS))
    {
        return Err(unsupported("`USING (…) AS name` is not supported: merged columns have no table before them"));
    }
    Ok(())
}

/// What stands instead of `SIMILAR … ESCAPE …` in a `substring`: the standard's older `FROM … FOR …`, which means the same.
fn similar_part(tokens: &[TokenWithSpan], at: usize) -> Vec<Replacement> {
    // `similar` may also be the name of a column.
    let mut depth = 0_usize;
    let opens = (1..at).rev().find(|before| {
        match tokens[*before].token {
            Token::RParen => depth += 1,
            Token::LParen if depth == 0 => return true,
            Token::LParen => depth -= 1,
            _ => {}
        }
        false
    });
    if !opens.is_some_and(|opens| is_word(tokens, opens - 1, Keyword::SUBSTRING)) {
        return Vec::new();
    }
    depth = 0;
    for (escape, token) in tokens.iter().enumerate().skip(at + 1) {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen if depth == 0 => break,
            Token::RParen => depth -= 1,
            _ if depth == 0 && is_word(tokens, escape, Keyword::ESCAPE) => {
                return vec![(at, "similar", "from   "), (escape, "escape", "for   ")];
            }
            _ => {}
        }
    }
    Vec::new()
}

/// What stands instead of `interval(2) '…'`: the parser forgets the digits of a type before a text, and knows them in a cast.
fn digits_of_interval(tokens: &[TokenWithSpan], at: usize) -> Vec<Replacement> {
    const CASTS: [(&str, &str); 7] = [
        ("0", "::interval(0)"),
        ("1", "::interval(1)"),
        ("2", "::interval(2)"),
        ("3", "::interval(3)"),
        ("4", "::interval(4)"),
        ("5", "::interval(5)"),
        ("6", "::interval(6)"),
    ];
    let token = |at: usize| tokens.get(at).map(|token| &token.token);
    let (Some(Token::LParen), Some(Token::Number(digits, _)), Some(Token::RParen), Some(Token::SingleQuotedString(_))) =
        (token(at + 1), token(at + 2), token(at + 3), token(at + 4))
    else {
        return Vec::new();
    };
    let Some((digit, cast)) = CASTS.iter().find(|(digit, _)| digit == digits) else { return Vec::new() };
    vec![
        (at, "interval", "        "),
        (at + 1, "(", " "),
        (at + 2, *digit, " "),
        (at + 3, ")", " "),
        (at + 5, "", *cast),
    ]
}

/// Whether `ROWS FROM (f(…), …)` begins at a place. `rows` may also be a column, behind which a `FROM` has a join in brackets.
fn is_rows_from(tokens: &[TokenWithSpan], at: usize) -> bool {
    let token = |at: usize| tokens.get(at).map(|token| &token.token);
    let behind = [Keyword::FROM, Keyword::JOIN, Keyword::LATERAL];
    let is_table = match at.checked_sub(1).and_then(token) {
        Some(Token::Comma | Token::LParen) => true,
        Some(Token::Word(word)) => word.quote_style.is_none() && behind.contains(&word.keyword),
        _ => false,
    };
    let begins = is_word(tokens, at, Keyword::ROWS)
        && is_word(tokens, at + 1, Keyword::FROM)
        && token(at + 2) == Some(&Token::LParen);
    if !is_table || !begins {
        return false;
    }
    // The name of a function may have a schema.
    let name = |at: usize| matches!(token(at), Some(Token::Word(_)));
    let opens = if token(at + 4) == Some(&Token::Period) { at + 6 } else { at + 4 };
    let is_query = is_word(tokens, at + 3, Keyword::SELECT) || is_word(tokens, at + 3, Keyword::VALUES);
    let is_call = !is_query && name(at + 3) && name(opens - 1) && token(opens) == Some(&Token::LParen);
    let behind = closing(tokens, opens).filter(|_| is_call).and_then(|closes| token(closes + 1));
    matches!(behind, Some(Token::Comma | Token::RParen))
}

/// Whether a word stands at a place, without quotes.
fn is_word(tokens: &[TokenWithSpan], at: usize, keyword: Keyword) -> bool {
    match tokens.get(at).map(|token| &token.token) {
        Some(Token::Word(word)) => word.quote_style.is_none() && word.keyword == keyword,
        _ => false,
    }
}

/// Whether a query begins at a word before a name: the word stands first, in parentheses, behind the list of a `WITH`,
/// behind a `UNION` and the like, or behind `EXPLAIN`.
fn begins_query(tokens: &[TokenWithSpan], at: usize) -> bool {
    if !matches!(tokens.get(at + 1).map(|token| &token.token), Some(Token::Word(_))) {
        return false;
    }
    let Some(before) = at.checked_sub(1).and_then(|before| tokens.get(before)) else { return true };
    let words = [
        Keyword::ALL,
        Keyword::ANALYZE,
        Keyword::DISTINCT,
        Keyword::EXCEPT,
        Keyword::EXPLAIN,
        Keyword::INTERSECT,
        Keyword::UNION,
        Keyword::VERBOSE,
    ];
    match &before.token {
        Token::LParen | Token::RParen => true,
        Token::Word(word) => word.quote_style.is_none() && words.contains(&word.keyword),
        _ => false,
    }
}

/// The order by an operator.
fn order_of(operator: &Token) -> Option<&'static str> {
    match operator {
        Token::Lt => Some("ASC"),
        Token::Gt => Some("DESC"),
        _ => None,
    }
}

/// Whether what stands before a word is no `UNION`, `INTERSECT` or `EXCEPT`.
fn is_of_value(tokens: &[TokenWithSpan], at: usize) -> bool {
    let joins = [Keyword::UNION, Keyword::INTERSECT, Keyword::EXCEPT];
    let before = at.checked_sub(1).and_then(|before| tokens.get(before));
    before.is_some_and(|before| !matches!(&before.token, Token::Word(word) if joins.contains(&word.keyword)))
}

/// The place of the bracket that closes what another one opens; `None` also where none opens.
fn closing(tokens: &[TokenWithSpan], opening: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(opening) {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen if depth == 1 => return Some(at),
            Token::RParen => depth = depth.checked_sub(1)?,
            _ => {}
        }
    }
    None
}

/// A place in a text that goes forward, so that it is gone through once.
struct Cursor<'t> {
    text: &'t str,
    line: u64,
    column: u64,
    byte: usize,
}

impl Cursor<'_> {
    /// The byte of a place that comes next.
    fn reach(&mut self, place: Location) -> Option<usize> {
        while (self.line, self.column) < (place.line, place.column) {
            let letter = self.text.get(self.byte..)?.chars().next()?;
            self.byte += letter.len_utf8();
            (self.line, self.column) = if letter == '\n' { (self.line + 1, 1) } else { (self.line, self.column + 1) };
        }
        Some(self.byte)
    }
}

#[cfg(test)]
mod tests {
    use quiver_types::ErrorKind;

    use super::*;

    #[test]
    fn words_are_left_out_or_written_as_others() {
        let check = |text: &str, expected: &str| assert_eq!(known(text).unwrap(), expected, "{text}");
        check(
            "select 'ä', trim(both from ' a ')\n, Trim( leading FROM b)",
            "select 'ä', trim(both      ' a ')\n, Trim( leading      b)",
        );
        check("select trim(from a)", "select trim(     a)");
        check("select trim(both 'x' from a), 'trim(from a)'", "select trim(both 'x' from a), 'trim(from a)'");
        check("table a.b order by 1", "SELECT * FROM a.b order by 1");
        check("/* all */ TABLE \"T\"", "/* all */ SELECT * FROM \"T\"");
        check("select * from \"table\"", "select * from \"table\"");
        check(
            "with t as (table a) table t union all table b except (table c)",
            "with t as (SELECT * FROM a) SELECT * FROM t union all SELECT * FROM b except (SELECT * FROM c)",
        );
        check("explain (analyze) table t limit 1", "explain (analyze) SELECT * FROM t limit 1");
        check("explain verbose table t", "explain verbose SELECT * FROM t");
        check("select x in (table t), array(table u)", "select x in (SELECT * FROM t), array(SELECT * FROM u)");
        // What is refused is named as it was written.
        check("drop table t", "drop table t");
        check("select 1 as table", "select 1 as table");
        check("select a between SYMMETRIC 2 and 1", "select a between NOT NOT NOT 2 and 1");
        check("select a between asymmetric 2 and 1", "select a between            2 and 1");
        check("select symmetric from t", "select symmetric from t");
        check("select 1", "select 1");
        check(
            "select a from t join u using (a) order by a using >, b USING <",
            "select a from t join u using (a) order by a       DESC, b       ASC",
        );
        check(
            "select sum(a) over (rows 1 preceding exclude no others)",
            "select sum(a) over (rows 1 preceding                  )",
        );
        check("select * exclude (a) from t", "select * exclude (a) from t");
        let set = "SELECT * FROM (VALUES";
        check(
            "select x = any (values (1), (f(2))) and y <> ALL(Values (3)) from t",
            &format!("select x = any ({set} (1), (f(2))) AS \"values\") and y <> ALL({set} (3)) AS \"values\") from t"),
        );
        check(
            "select x = some (values ((select max(y) from t where z > any (values (1)))))",
            &format!(
                "select x = some ({set} ((select max(y) from t where z > any ({set} (1)) AS \"values\")))) AS \"values\")"
            ),
        );
        check("select 1 union all (values (2))", "select 1 union all (values (2))");
        check("values (any(a))", "values (any(a))");
    }

    #[test]
    fn places_are_counted_in_letters() {
        for (text, expected) in [
            ("select '日本😀', a between symmetric 2 and 1", "select '日本😀', a between NOT NOT NOT 2 and 1"),
            ("select 'a\nb\n', trim(both\r\n from c)", "select 'a\nb\n', trim(both\r\n      c)"),
            ("/* é */\ttable \"T\"\n-- table x", "/* é */\tSELECT * FROM \"T\"\n-- table x"),
            ("select é from t order by é using >", "select é from t order by é       DESC"),
        ] {
            assert_eq!(known(text).unwrap(), expected, "{text}");
        }
        for same in [
            "select 'table', 'a between symmetric', \"values\", $$trim(from a)$$ /* using > */",
            "select a = any (b), table_name, trim(a) from t order by a using >=",
            "select a from t where a in (values (1))",
            "",
        ] {
            assert_eq!(known(same).unwrap(), same);
        }
        let error = known("select 1,\n 'trim").unwrap_err();
        assert_eq!(
            (error.kind, error.message.ends_with(" at line 2, column 2")),
            (ErrorKind::Invalid, true),
            "{error}"
        );
    }

    #[test]
    fn what_frames_leave_out_is_a_key_of_their_partitions() {
        let check = |text: &str, expected: &str| assert_eq!(known(text).unwrap(), expected, "{text}");
        let blank = |words: &str| " ".repeat(words.len());
        let row = blank(" exclude current row");
        check(
            "select sum(a) over (order by f(a) rows between 1 preceding and current row exclude current row)",
            &format!(
                "select sum(a) over (PARTITION BY exclude_current_row() order by f(a) rows between 1 preceding and current \
                 row{row})"
            ),
        );
        check(
            "select sum(a) over(groups 1 preceding EXCLUDE Group)",
            "select sum(a) over(PARTITION BY exclude_group() groups 1 preceding              )",
        );
        check(
            "select sum(a) over ( partition by b, c range 1 preceding exclude TIES)",
            "select sum(a) over ( partition by exclude_ties(), b, c range 1 preceding             )",
        );
        check(
            "select sum(a) over w from t window w as (groups 1 preceding exclude ties)",
            "select sum(a) over w from t window w as (PARTITION BY exclude_ties() groups 1 preceding             )",
        );
        // The name of the window that it is built on comes first.
        let ties = blank(" exclude ties");
        check(
            "select sum(a) over (\"w\" rows 1 preceding exclude ties)",
            &format!("select sum(a) over (\"w\" PARTITION BY exclude_ties() rows 1 preceding{ties})"),
        );
        check(
            "select sum(a) over (w\norder by b rows current row exclude ties)",
            &format!("select sum(a) over (w\nPARTITION BY exclude_ties() order by b rows current row{ties})"),
        );
        // These are no frames.
        for same in
            ["select following exclude ties", "select (1 following exclude ties)", "select preceding exclude (a)"]
        {
            check(same, same);
        }
    }

    #[test]
    fn rows_of_several_functions_are_lists_side_by_side() {
        let check = |text: &str, expected: &str| assert_eq!(known(text).unwrap(), expected, "{text}");
        check(
            "select * from rows from (f(1, (2)), g()) with ordinality as t(a, b, n)",
            "select * from      unnest (rows_from(), f(1, (2)), g()) with ordinality as t(a, b, n)",
        );
        check(
            "select * from t, lateral ROWS\nFROM(pg_catalog.f(t.a))",
            "select * from t, lateral     \nunnest(rows_from(), pg_catalog.f(t.a))",
        );
        for same in [
            "select 1 rows from (select 1) t",
            "select a, rows from (select 1 as a, 2 as rows) t",
            "select a, rows from (select (1))",
            "select a, rows from (values (1), (2)) t(a)",
            "select a, rows from (f(1) cross join t)",
            "select a, rows from (t cross join u)",
            "select \"rows\" from (f(1))",
        ] {
            check(same, same);
        }
    }

    #[test]
    fn groups_are_different_and_merged_columns_have_no_table() {
        let text = "select a from t group by distinct a, b";
        assert_eq!(known(text).unwrap(), "select a from t group by          a, b");
        let text = "select a from t group by all a, rollup (b)";
        assert_eq!(known(text).unwrap(), "select a from t group by     a, rollup (b)");
        for same in ["select a from t group by all", "select a from t group by all order by 1"] {
            assert_eq!(known(same).unwrap(), same);
        }
        for refused in ["select a from t group by distinct rollup (a), a", "select j.a from t join u using (a, b) as j"]
        {
            assert_eq!(known(refused).unwrap_err().kind, ErrorKind::Unsupported, "{refused}");
        }
        for same in ["select distinct a from t group by a", "select a from t join u using (a) where b = 1"] {
            assert_eq!(known(same).unwrap(), same);
        }
    }

    #[test]
    fn parts_and_digits_have_another_form() {
        let check = |text: &str, expected: &str| assert_eq!(known(text).unwrap(), expected, "{text}");
        check(
            "select substring(f(a) similar 'x' escape '#'), b similar to 'c' escape 'd'",
            "select substring(f(a) from    'x' for    '#'), b similar to 'c' escape 'd'",
        );
        for same in ["select similar from t", "select similar, f(similar, a like 'x' escape '!') from t"] {
            check(same, same);
        }
        check("select Interval(2) '1.234'", "select             '1.234'::interval(2)");
        check("select interval(1) '1' -- 2", "select             '1'::interval(1) -- 2");
        check("select interval (0) '1', a", "select              '1'::interval(0), a");
        check("select interval '1' second(2), x::interval(3)", "select interval '1' second(2), x::interval(3)");
    }

    #[test]
    fn windows_within_windows_are_marked_by_themselves() {
        let text = "select sum(a) over (order by (select max(b) over (rows 1 preceding exclude group)) \
                    rows 1 preceding exclude current row), min(c) over (rows 1 preceding exclude no others)";
        let expected = format!(
            "select sum(a) over (PARTITION BY exclude_current_row() order by (select max(b) over (PARTITION BY \
             exclude_group() rows 1 preceding{})) rows 1 preceding{}), min(c) over (rows 1 preceding{})",
            " ".repeat(" exclude group".len()),
            " ".repeat(" exclude current row".len()),
            " ".repeat(" exclude no others".len()),
        );
        assert_eq!(known(text).unwrap(), expected);
    }
}
