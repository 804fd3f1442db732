//! `SEARCH` and `CYCLE` of recursive common tables. The parser does not know them: they are taken out of the tokens, and put
//! back as outputs of both terms, as the standard defines them. `SEARCH DEPTH FIRST BY a SET s` is a list of the keys up to a
//! row, `BREADTH FIRST` its depth with the key, and `CYCLE a SET c USING p` is true where the key is in the list `p` of those
//! before, behind which nothing is looked for.

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
        while let Some(clause) = reader.clause(behind) {
            clauses.push(clause);
        }
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

    /// The clause that begins here; none, and no step further, if there is none.
    fn clause(&mut self, behind: Location) -> Option<TraversalClause> {
        let begin = self.at;
        let found = self.search().or_else(|| {
            self.at = begin;
            self.cycle()
        });
        if found.is_none() {
            self.at = begin;
        }
        found.map(|(keys, added)| TraversalClause { behind, keys, added })
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
    let places = clause.keys.iter().map(|key| place_of(key, &columns, first)).collect::<Result<Vec<usize>>>()?;
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

/// The place of a column of the common table.
fn place_of(key: &Ident, columns: &[Ident], first: &Select) -> Result<usize> {
    let named = |item: &SelectItem| match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(normal(alias)),
        SelectItem::UnnamedExpr(value) => column_of(value),
        _ => None,
    };
    // A list of columns may leave out the last ones.
    let mut outputs = first.projection.iter().enumerate().map(|(at, item)| match columns.get(at) {
        Some(column) => Some(normal(column)),
        None => named(item),
    });
    let key = normal(key);
    let place = outputs.position(|name| name.as_deref() == Some(key.as_str()));
    place.ok_or_else(|| Error::invalid(format!("column \"{key}\" of a `SEARCH` or `CYCLE` is not in the WITH query")))
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

/// Outputs as a row, behind what begins it.
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
    fn others_are_refused() {
        for text in [
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
