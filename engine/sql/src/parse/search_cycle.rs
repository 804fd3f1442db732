//! `SEARCH` and `CYCLE` of recursive common tables. The parser does not know them: they are taken out of the tokens, and put
//! back as outputs of both terms, as the standard defines them. `SEARCH DEPTH FIRST BY a SET s` is a list of the keys up to a
//! row, `BREADTH FIRST` its depth with the key, and `CYCLE a SET c USING p` is true where the key is in the list `p` of those
//! before, behind which nothing is looked for.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Cte, Expr, Ident, Query, Select, SelectItem, SetExpr, SetOperator, TableAliasColumnDef,
    TableFactor, VisitorMut,
};
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan};
use quiver_types::{Error, Result};

use super::read_expression;
use crate::error::unsupported;
use crate::names::{normal, parts};
use crate::statement_walk::{refused, walk_mut};

/// What a clause adds.
#[derive(Debug, Clone)]
enum Added {
    /// The list of keys up to a row.
    Depth(Ident),
    /// The depth of a row, and its keys.
    Breadth(Ident),
    /// Whether a row closes a circle, with the two values that say so, and the list of keys before.
    Cycle { mark: Ident, closed: String, open: String, path: Ident },
}

/// A clause behind the bracket that ends a common table.
#[derive(Debug, Clone)]
pub(super) struct TraversalClause {
    /// Where the bracket stands.
    behind: Location,
    keys: Vec<Ident>,
    added: Added,
}

/// The same tokens without the clauses, and these.
pub(super) fn taken(mut tokens: Vec<TokenWithSpan>) -> (Vec<TokenWithSpan>, Vec<TraversalClause>) {
    let mut clauses = Vec::new();
    if !tokens.iter().any(|token| is_word(&token.token, "recursive")) {
        return (tokens, clauses);
    }
    let said: Vec<usize> = (0..tokens.len()).filter(|at| !matches!(tokens[*at].token, Token::Whitespace(_))).collect();
    let mut left_out = Vec::new();
    for (at, place) in said.iter().enumerate().filter(|(_, place)| tokens[**place].token == Token::RParen) {
        let mut reader = Reader { tokens: &tokens, said: &said, at: at + 1 };
        let behind = tokens[*place].span.start;
        // Each at most once, in this order, as in PostgreSQL.
        let found = [reader.clause(Reader::search), reader.clause(Reader::cycle)].into_iter().flatten();
        clauses.extend(found.map(|(keys, added)| TraversalClause { behind, keys, added }));
        if let (true, Some(first), Some(last)) = (reader.at > at + 1, said.get(at + 1), said.get(reader.at - 1)) {
            left_out.push(*first..=*last);
        }
    }
    for range in left_out.into_iter().rev() {
        tokens.drain(range);
    }
    (tokens, clauses)
}

fn is_word(token: &Token, text: &str) -> bool {
    matches!(token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(text))
}

/// Reads tokens one after another.
struct Reader<'t> {
    tokens: &'t [TokenWithSpan],
    said: &'t [usize],
    at: usize,
}

impl Reader<'_> {
    fn token(&self) -> Option<&TokenWithSpan> {
        self.said.get(self.at).map(|at| &self.tokens[*at])
    }

    fn word(&mut self, text: &str) -> Option<()> {
        let is_it = is_word(&self.token()?.token, text);
        self.at += usize::from(is_it);
        is_it.then_some(())
    }

    fn name(&mut self) -> Option<Ident> {
        let TokenWithSpan { token: Token::Word(word), span } = self.token()? else { return None };
        let name = Ident { value: word.value.clone(), quote_style: word.quote_style, span: *span };
        self.at += 1;
        Some(name)
    }

    fn names(&mut self) -> Option<Vec<Ident>> {
        let mut names = vec![self.name()?];
        while self.token()?.token == Token::Comma {
            self.at += 1;
            names.push(self.name()?);
        }
        Some(names)
    }

    fn value(&mut self) -> Option<String> {
        let value = match &self.token()?.token {
            value @ (Token::Word(_) | Token::Number(..) | Token::SingleQuotedString(_)) => value.to_string(),
            _ => return None,
        };
        self.at += 1;
        Some(value)
    }

    /// What is read here; no step further if that is nothing.
    fn clause<T>(&mut self, read: fn(&mut Self) -> Option<T>) -> Option<T> {
        let begin = self.at;
        let found = read(self);
        if found.is_none() {
            self.at = begin;
        }
        found
    }

    fn search(&mut self) -> Option<(Vec<Ident>, Added)> {
        self.word("search")?;
        let is_deep = self.word("depth").is_some();
        if !is_deep {
            self.word("breadth")?;
        }
        self.word("first")?;
        self.word("by")?;
        let keys = self.names()?;
        self.word("set")?;
        let name = self.name()?;
        Some((keys, if is_deep { Added::Depth(name) } else { Added::Breadth(name) }))
    }

    fn cycle(&mut self) -> Option<(Vec<Ident>, Added)> {
        self.word("cycle")?;
        let keys = self.names()?;
        self.word("set")?;
        let mark = self.name()?;
        let (mut closed, mut open) = ("true".to_owned(), "false".to_owned());
        if self.word("to").is_some() {
            closed = self.value()?;
            self.word("default")?;
            open = self.value()?;
        }
        self.word("using")?;
        let path = self.name()?;
        Some((keys, Added::Cycle { mark, closed, open, path }))
    }
}

/// Adds what the clauses say to their common tables.
///
/// # Errors
/// Invalid, Unsupported: a common table has no such column, or another form.
pub(super) fn put(query: &mut Query, clauses: &[TraversalClause]) -> Result<()> {
    struct Tables<'c>(&'c [TraversalClause]);
    impl VisitorMut for Tables<'_> {
        type Break = Box<Error>;

        fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
            for table in query.with.iter_mut().flat_map(|with| &mut with.cte_tables) {
                let end = table.closing_paren_token.0.span.start;
                for clause in self.0.iter().filter(|clause| clause.behind == end) {
                    if let Err(error) = add(table, clause) {
                        return refused(error);
                    }
                }
            }
            ControlFlow::Continue(())
        }
    }
    if clauses.is_empty() {
        return Ok(());
    }
    match walk_mut(query, &mut Tables(clauses)) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

fn of_form() -> Error {
    unsupported(
        "`SEARCH` and `CYCLE` take a common table of two selects that list their outputs, the second of which reads it",
    )
}

fn add(table: &mut Cte, clause: &TraversalClause) -> Result<()> {
    let name = normal(&table.alias.name);
    let columns: Vec<Ident> = table.alias.columns.iter().map(|column| column.name.clone()).collect();
    let SetExpr::SetOperation { op: SetOperator::Union, left, right, .. } = &mut *table.query.body else {
        return Err(of_form());
    };
    let (first, next) = (select_of(left).ok_or_else(of_form)?, select_of(right).ok_or_else(of_form)?);
    let table_name = read_as(next, &name).ok_or_else(of_form)?;
    let places = places_of(&clause.keys, &columns, first)?;
    if !columns.is_empty() {
        // The list of columns may leave out the last ones, behind which the new ones stand.
        for item in first.projection.iter().skip(columns.len()) {
            let name = Ident::with_quote('"', name_of(item).ok_or_else(of_form)?);
            table.alias.columns.push(TableAliasColumnDef { name, data_type: None });
        }
    }
    let (keys, next_keys) = (row_of(first, &places, "")?, row_of(next, &places, "")?);
    let before = |name: &Ident| format!("{table_name}.{name}");
    let mut added: Vec<(&Ident, String, String)> = Vec::new();
    match &clause.added {
        Added::Depth(list) => {
            added.push((list, format!("ARRAY[{keys}]"), format!("{} || ARRAY[{next_keys}]", before(list))));
        }
        Added::Breadth(row) => {
            let depth = format!("get_field({}, 'c0') + 1, ", before(row));
            added.push((row, row_of(first, &places, "0, ")?, row_of(next, &places, &depth)?));
        }
        Added::Cycle { mark, closed, open, path } => {
            let is_closed = format!("CASE WHEN {next_keys} = ANY({}) THEN {closed} ELSE {open} END", before(path));
            added.push((mark, open.clone(), is_closed));
            added.push((path, format!("ARRAY[{keys}]"), format!("{} || ARRAY[{next_keys}]", before(path))));
            let goes_on = read_expression(&format!("{} <> {closed}", before(mark)))?;
            next.selection = Some(match next.selection.take() {
                Some(own) => Expr::BinaryOp {
                    left: Box::new(Expr::Nested(Box::new(own))),
                    op: BinaryOperator::And,
                    right: Box::new(goes_on),
                },
                None => goes_on,
            });
        }
    }
    for (name, begun, followed) in added {
        first.projection.push(SelectItem::ExprWithAlias { expr: read_expression(&begun)?, alias: name.clone() });
        next.projection.push(SelectItem::ExprWithAlias { expr: read_expression(&followed)?, alias: name.clone() });
        if !columns.is_empty() {
            table.alias.columns.push(TableAliasColumnDef { name: name.clone(), data_type: None });
        }
    }
    Ok(())
}

/// The select that a term is, if it lists its outputs and takes none of its rows away.
fn select_of(term: &mut SetExpr) -> Option<&mut Select> {
    let SetExpr::Select(select) = term else { return None };
    let lists = |item: &SelectItem| matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. });
    (select.distinct.is_none() && select.projection.iter().all(lists)).then_some(&mut **select)
}

/// What the common table is called in the `FROM` of a select.
fn read_as(select: &Select, name: &str) -> Option<Ident> {
    let mut tables = select
        .from
        .iter()
        .flat_map(|from| std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation)));
    tables.find_map(|factor| match factor {
        TableFactor::Table { name: own, alias, args: None, .. } if parts(own).as_slice() == [name] => {
            Some(alias.as_ref().map_or_else(|| Ident::with_quote('"', name), |alias| alias.name.clone()))
        }
        _ => None,
    })
}

/// The places of columns of the common table.
fn places_of(keys: &[Ident], columns: &[Ident], first: &Select) -> Result<Vec<usize>> {
    let mut outputs = HashMap::new();
    for (at, item) in first.projection.iter().enumerate() {
        if let Some(name) = columns.get(at).map(normal).or_else(|| name_of(item)) {
            outputs.entry(name).or_insert(at);
        }
    }
    let mut seen = HashSet::new();
    let place = |key: &Ident| {
        let key = normal(key);
        let fault = |what: &str| Error::invalid(format!("column \"{key}\" of a `SEARCH` or `CYCLE` is {what}"));
        let place = *outputs.get(&key).ok_or_else(|| fault("not in the WITH query"))?;
        if seen.insert(place) { Ok(place) } else { Err(fault("named more than once")) }
    };
    keys.iter().map(place).collect()
}

/// The name of an output.
fn name_of(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(normal(alias)),
        SelectItem::UnnamedExpr(value) => column_of(value),
        _ => None,
    }
}

/// The name of an output without an alias, as far as it is one of a column or a function; others are keys by an alias.
fn column_of(value: &Expr) -> Option<String> {
    match value {
        Expr::Identifier(name) => Some(normal(name)),
        Expr::CompoundIdentifier(names) => names.last().map(normal),
        Expr::Cast { expr, .. } | Expr::Nested(expr) | Expr::Collate { expr, .. } => column_of(expr),
        Expr::Function(call) => parts(&call.name).pop(),
        _ => None,
    }
}

/// The outputs at some positions as the text of a row; `begin` is what stands before its values.
fn row_of(select: &Select, places: &[usize], begin: &str) -> Result<String> {
    let value = |at: &usize| match select.projection.get(*at) {
        Some(SelectItem::UnnamedExpr(value) | SelectItem::ExprWithAlias { expr: value, .. }) => {
            Ok(format!("({value})"))
        }
        _ => Err(of_form()),
    };
    let values = places.iter().map(value).collect::<Result<Vec<String>>>()?;
    Ok(format!("ROW({begin}{})", values.join(", ")))
}

#[cfg(test)]
mod tests {
    use crate::parse::{Params, ReadStatement, parse};

    fn check(text: &str, expected: &str) {
        let read = parse(text, &Params::default()).unwrap_or_else(|e| panic!("{text}: {e}"));
        let ReadStatement::Query(query) = read.statement else { panic!("{text} is no query") };
        assert_eq!(query.to_string(), expected);
    }

    #[test]
    fn clauses_become_outputs() {
        let begin = "with recursive t(n, m) as (select 1, 2 union all select n + 1, u.m from t as u where n < 4)";
        check(
            &format!("{begin} search depth first by n, m set s select * from t order by s"),
            "WITH RECURSIVE t (n, m, s) AS (SELECT 1, 2, ARRAY[ROW((1), (2))] AS s UNION ALL \
             SELECT n + 1, u.m, u.s || ARRAY[ROW((n + 1), (u.m))] AS s FROM t AS u WHERE n < 4) SELECT * FROM t ORDER BY s",
        );
        check(
            &format!("{begin} search breadth first by n set s select s from t"),
            "WITH RECURSIVE t (n, m, s) AS (SELECT 1, 2, ROW(0, (1)) AS s UNION ALL \
             SELECT n + 1, u.m, ROW(get_field(u.s, 'c0') + 1, (n + 1)) AS s FROM t AS u WHERE n < 4) SELECT s FROM t",
        );
        check(
            "with recursive t as (select 1 as n union select n % 3 + 1 from t) cycle n set \"C\" to 'Y' default 'N' using p \
             select * from t",
            "WITH RECURSIVE t AS (SELECT 1 AS n, 'N' AS \"C\", ARRAY[ROW((1))] AS p UNION \
             SELECT n % 3 + 1, CASE WHEN ROW((n % 3 + 1)) = ANY(\"t\".p) THEN 'Y' ELSE 'N' END AS \"C\", \
             \"t\".p || ARRAY[ROW((n % 3 + 1))] AS p FROM t WHERE \"t\".\"C\" <> 'Y') SELECT * FROM t",
        );
    }

    #[test]
    fn clauses_stand_together_and_keep_conditions() {
        check(
            "with recursive t(n) as (select 1 union all select n + 1 from t) search breadth first by n set s \
             cycle n set c using p select 1",
            "WITH RECURSIVE t (n, s, c, p) AS (SELECT 1, ROW(0, (1)) AS s, false AS c, ARRAY[ROW((1))] AS p UNION ALL \
             SELECT n + 1, ROW(get_field(\"t\".s, 'c0') + 1, (n + 1)) AS s, \
             CASE WHEN ROW((n + 1)) = ANY(\"t\".p) THEN true ELSE false END AS c, \
             \"t\".p || ARRAY[ROW((n + 1))] AS p FROM t WHERE \"t\".c <> true) SELECT 1",
        );
        check(
            "with recursive t as (select 1 as n union select n + 1 from t where n < 4 or n > 9) cycle n set c using p select 1",
            "WITH RECURSIVE t AS (SELECT 1 AS n, false AS c, ARRAY[ROW((1))] AS p UNION \
             SELECT n + 1, CASE WHEN ROW((n + 1)) = ANY(\"t\".p) THEN true ELSE false END AS c, \
             \"t\".p || ARRAY[ROW((n + 1))] AS p FROM t WHERE (n < 4 OR n > 9) AND \"t\".c <> true) SELECT 1",
        );
    }

    /// Outputs are named as columns are, and a list of columns may be shorter than they are.
    #[test]
    fn keys_are_found_by_the_names_of_outputs() {
        check(
            "with recursive t as (select e.id, 1 as d from e union all select e.id, d + 1 from e join t on e.up = t.id) \
             search depth first by id set s select 1",
            "WITH RECURSIVE t AS (SELECT e.id, 1 AS d, ARRAY[ROW((e.id))] AS s FROM e UNION ALL \
             SELECT e.id, d + 1, \"t\".s || ARRAY[ROW((e.id))] AS s FROM e JOIN t ON e.up = t.id) SELECT 1",
        );
        check(
            "with recursive t(a) as (select 1, 2 as b union all select a, b + 1 from t) search depth first by b set s select 1",
            "WITH RECURSIVE t (a, \"b\", s) AS (SELECT 1, 2 AS b, ARRAY[ROW((2))] AS s UNION ALL \
             SELECT a, b + 1, \"t\".s || ARRAY[ROW((b + 1))] AS s FROM t) SELECT 1",
        );
    }

    /// Breaks if a key that is named very often is copied as often: a statement would take gigabytes.
    #[test]
    fn each_key_is_named_once() {
        let begin = "with recursive t as (select 1 as n, 2 as m union all select n + 1, m from t where n < 4)";
        for clause in ["search depth first by n, m, n set s", "cycle n, N set c using p"] {
            let refused = parse(&format!("{begin} {clause} select 1"), &Params::default()).expect_err(clause);
            let expected = "column \"n\" of a `SEARCH` or `CYCLE` is named more than once";
            assert_eq!(refused.message, expected, "{clause}");
        }
    }

    #[test]
    fn others_are_refused() {
        for text in [
            "with recursive t as (select 1 as n union all select n from t) search depth first by n set s \
             search depth first by n set r select 1",
            "with recursive t as (select 1 as n union all select n from t) cycle n set c using p \
             search depth first by n set s select 1",
            "with recursive t as (select 1 as n union all select n + 1 from t where n < 4) search depth first by m set s select 1",
            "with recursive t as (select 1 as n union all select * from t) cycle n set c using p select 1",
            "with recursive t as (select 1 as n union all select n + 1 from t where n < 4) search first by n set s select 1",
            "with t as (select 1 as n) search depth first by n set s select 1",
        ] {
            assert!(parse(text, &Params::default()).is_err(), "{text}");
        }
        check("select 1 from (select 1 as a) search", "SELECT 1 FROM (SELECT 1 AS a) search");
    }
}
