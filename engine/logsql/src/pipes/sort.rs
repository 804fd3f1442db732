//! `sort`, `first`, `last`: rows in order. `first` and `last` are sorts with a limit; the name is kept for printing.

use std::fmt::{self, Display, Formatter};

use quiver_types::Result;
use quiver_types::logs::TIME;

use super::limit::Limit;
use super::pipe::{At, Order, Output, Pipe, PipeKind, PipeMerge, RowSlice};
use super::syntax::{above_0, limited, names, rank_name, rank_text};
use crate::ops::sort;
use crate::parser::{Parser, PipeDef};
use crate::partial_plan::PartialPlan;
use crate::print::sort_fields;
use crate::required_fields::Needs;
use crate::series_columns::StatsColumns;

/// `sort by (...) [desc] [partition by (...)] [offset N] [limit N] [rank]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sort {
    /// Which of the three was written.
    pub form: SortForm,
    /// Field and whether descending; all fields when empty.
    pub by: Vec<(String, bool)>,
    /// Turns the whole order around.
    pub descending: bool,
    /// Rows left out at the beginning (of each partition).
    pub offset: u64,
    /// At most so many rows (of each partition).
    pub limit: Option<u64>,
    /// Groups with an order and limit of their own.
    pub partition_by: Vec<String>,
    /// The column of the position, from 1.
    pub rank: Option<String>,
}

/// How a sort was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SortForm {
    /// `sort by (a, b desc)`
    Sort,
    /// `first N by (a)`: sorted, and only so many rows
    First,
    /// `last N by (a)`: as `first`, with the order turned around.
    Last,
}

impl Sort {
    fn of(form: SortForm) -> Self {
        Self { form, by: Vec::new(), descending: false, offset: 0, limit: None, partition_by: Vec::new(), rank: None }
    }

    /// `sort by (...)`: fields, and whether each is descending.
    pub(crate) fn by(by: Vec<(String, bool)>) -> Self {
        Self { by, ..Self::of(SortForm::Sort) }
    }

    /// `sort by (_time)`
    pub(crate) fn oldest_first() -> Self {
        Self::by(vec![(TIME.to_owned(), false)])
    }

    /// `sort by (_time desc)`
    pub(crate) fn newest_first() -> Self {
        Self::by(vec![(TIME.to_owned(), true)])
    }

    /// Whether the order is turned around as a whole.
    pub fn is_reversed(&self) -> bool {
        self.descending != matches!(self.form, SortForm::Last)
    }
}

pub(super) const DEFS: &[PipeDef] = &[
    PipeDef {
        names: &["sort", "order"],
        doc: "Puts rows in order; all of them, or the first of each partition.",
        parse,
    },
    PipeDef { names: &["first"], doc: "Gives the first rows of an order.", parse: |p| ends(p, SortForm::First) },
    PipeDef {
        names: &["last"],
        doc: "Gives the last rows of an order, the last one first.",
        parse: |p| ends(p, SortForm::Last),
    },
];

fn parse(parser: &mut Parser<'_>) -> Result<Pipe> {
    let mut sort = Sort::of(SortForm::Sort);
    parse_by(parser, &mut sort)?;
    let mut offset = None;
    while !parser.at_pipe_end() {
        if parser.skip("desc") {
            sort.descending = true;
        } else if parser.skip("asc") {
            sort.descending = false;
        } else if parser.is("limit") && sort.limit.is_none() {
            sort.limit = parser.limit()?;
        } else if offset.is_none() && parser.skip("offset") {
            offset = Some(parser.count("a number of rows after `offset`")?);
        } else if sort.partition_by.is_empty() && parser.skip("partition") {
            parser.skip("by");
            sort.partition_by = parser.fields_in_parens()?;
        } else if sort.rank.is_none() && parser.skip("rank") {
            sort.rank = Some(rank_name(parser)?);
        } else {
            return Err(parser.unexpected("`desc`, `offset`, `limit`, `partition by` or `rank`"));
        }
    }
    if !sort.partition_by.is_empty() && sort.limit.is_none() {
        return Err(parser.unexpected("`limit` beside `partition by`"));
    }
    sort.offset = offset.unwrap_or(0);
    Ok(sort.into())
}

fn parse_by(parser: &mut Parser<'_>, sort: &mut Sort) -> Result<()> {
    if parser.skip("by") || parser.is("(") {
        sort.by = parser.sort_fields()?;
    }
    Ok(())
}

fn ends(parser: &mut Parser<'_>, form: SortForm) -> Result<Pipe> {
    let mut sort = Sort::of(form);
    let counted = !parser.at_pipe_end() && !parser.is_any(&["by", "(", "partition", "rank"]);
    sort.limit = Some(if counted { above_0(parser)? } else { 1 });
    parse_by(parser, &mut sort)?;
    if parser.skip("partition") {
        parser.skip("by");
        sort.partition_by = parser.fields_in_parens()?;
    }
    if parser.skip("rank") {
        sort.rank = Some(rank_name(parser)?);
    }
    Ok(sort.into())
}

impl Display for Sort {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self.form {
            SortForm::Sort => "sort",
            SortForm::First => "first",
            SortForm::Last => "last",
        })?;
        if self.form != SortForm::Sort && self.limit != Some(1) {
            write!(f, " {}", self.limit.unwrap_or(1))?;
        }
        if !self.by.is_empty() {
            write!(f, " by ({})", sort_fields(&self.by))?;
        }
        if self.descending {
            f.write_str(" desc")?;
        }
        if !self.partition_by.is_empty() {
            write!(f, " partition by ({})", names(&self.partition_by))?;
        }
        if self.offset > 0 {
            write!(f, " offset {}", self.offset)?;
        }
        if self.form == SortForm::Sort {
            f.write_str(&limited(self.limit))?;
        }
        f.write_str(&rank_text(self.rank.as_deref()))
    }
}

impl PipeKind for Sort {
    fn before(&self, after: &Needs) -> Needs {
        let mut needs = after.clone();
        // How many rows there are does not depend on their order.
        if after.is_empty() && self.partition_by.is_empty() {
            return needs;
        }
        if let Some(rank) = &self.rank {
            needs.remove(rank);
        }
        if self.by.is_empty() {
            needs.add_needs(&Needs::all());
        }
        needs.add_all(self.by.iter().map(|(name, _)| name.as_str()));
        needs.add_all(self.partition_by.iter().map(String::as_str));
        needs
    }

    fn mentions(&self) -> Vec<String> {
        self.rank.iter().cloned().collect()
    }

    fn order(&self) -> Order {
        Order::Made
    }

    fn output(&self) -> Output<'_> {
        if self.rank.is_none() { Output::Same } else { Output::Others }
    }

    fn take_over(&mut self, next: &mut Pipe) -> PipeMerge {
        if self.form != SortForm::Sort || !self.partition_by.is_empty() || self.rank.is_some() {
            return PipeMerge::Apart;
        }
        match (next.kind().cut(), self.limit) {
            // An operator of the best 0 rows does not exist: such a limit stays a pipe of its own.
            (None | Some(RowSlice::Limit(0)), _) => return PipeMerge::Apart,
            (Some(RowSlice::Limit(limit)), own) => self.limit = Some(own.map_or(limit, |own| own.min(limit))),
            (Some(RowSlice::Offset(offset)), Some(limit)) if limit <= offset => {
                return PipeMerge::Others(vec![Limit(0).into()]);
            }
            (Some(RowSlice::Offset(offset)), limit) => {
                self.limit = limit.map(|limit| limit - offset);
                self.offset = self.offset.saturating_add(offset);
            }
        }
        PipeMerge::One
    }

    fn follow_columns(&self, columns: &mut StatsColumns) -> Result<()> {
        self.rank.iter().try_for_each(|rank| columns.add_value(self, rank))
    }

    fn plan(&self, rows: PartialPlan, at: At<'_>) -> Result<PartialPlan> {
        let reversed = self.is_reversed();
        let by = self.by.iter().map(|(name, descending)| (name.clone(), *descending != reversed)).collect();
        let sort = sort::Sort {
            offset: self.offset,
            limit: self.limit,
            partition_by: self.partition_by.clone(),
            rank: self.rank.clone(),
            descending: reversed,
            ..sort::Sort::by(rows.shape.clone(), by)
        };
        sort.with_needs(at.needs).plan(rows)
    }
}

#[cfg(test)]
mod tests {
    use crate::pipes::testing::{gives, reads, refuses};

    #[test]
    fn cases() {
        reads(&[
            ("sort by (a desc, b asc) offset 5 limit 3", "sort by (a desc, b) offset 5 limit 3"),
            (
                "order by (a) desc partition by (b) rank as r limit 2",
                "sort by (a) desc partition by (b) limit 2 rank as r",
            ),
            ("sort (a) | offset 5 | limit 10", "sort by (a) offset 5 limit 10"),
            ("sort by (a) limit 0 offset 2", "sort by (a) offset 2"),
            ("first 3 by (a)", "first 3 by (a)"),
            ("last by (a) partition by (b) rank", "last by (a) partition by (b) rank"),
        ]);
        refuses(&[
            ("sort by (a) x", "`desc`, `offset`, `limit`"),
            ("sort by (a) limit y", "a number of rows after `limit`"),
            ("sort by (a) partition by (b)", "`limit` beside `partition by`"),
            ("sort by (a) limit 0 partition by (b)", "`limit` beside `partition by`"),
            ("first x", "a number greater than 0"),
            ("last 0 by (a)", "a number greater than 0"),
        ]);
        let rows = ["a=10 b=x", "a=9 b=y", "a=2 b=x"];
        gives("sort by (a)", &rows, &["a=2 b=x", "a=9 b=y", "a=10 b=x"]);
        gives("sort by (b desc, a) limit 2 rank as r", &rows, &["a=9 b=y r=1", "a=2 b=x r=2"]);
        gives("sort by (a) offset 1 limit 1", &rows, &["a=9 b=y"]);
        gives("sort by (a) limit 0", &rows, &["a=2 b=x", "a=9 b=y", "a=10 b=x"]);
        gives("sort by (a) limit 1 partition by (b) rank", &rows, &["a=2 b=x rank=1", "a=9 b=y rank=1"]);
        gives("last by (a) partition by (b)", &rows, &["a=10 b=x", "a=9 b=y"]);
        gives("sort desc | limit 1", &rows, &["a=10 b=x"]);
        gives("sort", &["_msg=a _time=2", "_msg=b _time=1"], &["_msg=b _time=1", "_msg=a _time=2"]);
    }
}
