//! SQL statements that select ids, and conditions made of them.

use quiver_database::{Argument, Link, Statement, statement};

use crate::problem::Result;

/// A statement that selects ids.
#[derive(Debug, Clone)]
pub(crate) struct Select {
    pub(super) sql: String,
    pub(super) values: Vec<Argument>,
    /// Whether it returns each id only once.
    pub(super) once: bool,
    /// Whether it scans all values of a field.
    pub(super) scans: bool,
    /// Its condition on a field that has one value per entity.
    pub(super) of: Option<FieldCondition>,
}

/// A condition on the index of a field's values.
#[derive(Debug, Clone)]
pub(crate) struct FieldCondition {
    pub(super) field: String,
    pub(super) condition: String,
    pub(super) values: Vec<Argument>,
}

impl Select {
    pub(super) fn new(sql: String, values: Vec<Argument>) -> Self {
        Self { sql, values, once: true, scans: false, of: None }
    }

    /// Marks that it scans all values of a field.
    pub(super) fn scanning(self) -> Self {
        Self { scans: true, ..self }
    }

    /// The statement for the first rows of a column or expression `what`.
    pub(super) fn first(&self, what: &str, rows: usize) -> Statement {
        let select = statement(format!("SELECT {what} FROM ({} LIMIT ?) AS few", self.sql));
        self.values.iter().cloned().fold(select, Statement::bind).bind(rows as i64)
    }

    pub(super) async fn count<'c>(&self, most: usize, on: impl Into<Link<'c>>) -> Result<usize> {
        let row = self.first("count(*)", most).fetch_one(on).await?;
        Ok(row.try_get::<i64>(0)? as usize)
    }

    pub(super) fn asks(&self, field: &str) -> bool {
        self.of.as_ref().is_some_and(|of| of.field == field)
    }
}

/// What the index tells about a filter: which ids pass, or may pass.
#[derive(Debug, Clone)]
pub(crate) enum IdSelection {
    /// Those that a statement selects.
    Ids(Select),
    /// As `Ids`, for a statement that returns each id once, and many of them: it is cheaper to test each entity.
    Each(Select),
    /// These ids, which a statement returned.
    Listed(Vec<String>),
    All(Vec<IdSelection>),
    Any(Vec<IdSelection>),
    Not(Box<IdSelection>),
}

/// The result of a statement: the number of ids up to a limit, and the ids if they are few.
pub(crate) struct SelectedIds {
    pub(super) count: usize,
    pub(super) ids: Option<Vec<String>>,
}

impl IdSelection {
    fn write_all(list: &[Self], between: &str, walked: Option<&str>, sql: &mut String, arguments: &mut Vec<Argument>) {
        for (n, one) in list.iter().enumerate() {
            sql.push_str(if n == 0 { "(" } else { between });
            one.write(walked, sql, arguments);
        }
        sql.push(')');
    }

    /// Writes ids as a list whose length is rounded up to 1, 10, 100 … by repeating the last one: prepared statements
    /// are cached by their text.
    fn write_list(ids: &[String], sql: &mut String, arguments: &mut Vec<Argument>) {
        let Some(last) = ids.last() else { return sql.push_str("1 = 0") };
        let mut many = 1;
        while many < ids.len() {
            many *= 10;
        }
        sql.push_str("id IN (?");
        sql.push_str(&", ?".repeat(many - 1));
        sql.push(')');
        arguments.extend(ids.iter().chain(std::iter::repeat(last)).take(many).map(Argument::from));
    }

    /// A single statement that selects all ids; `None` if conditions are needed. The database can go through a list
    /// of ids; but with several conditions it would scan the whole family.
    pub(super) fn select(&self) -> Option<Select> {
        match self {
            Self::Ids(select) => Some(select.clone()),
            Self::Any(any) => {
                let parts = any.iter().map(Self::select).collect::<Option<Vec<_>>>()?;
                let scans = parts.iter().any(|part| part.scans);
                let (sql, values): (Vec<String>, Vec<Vec<Argument>>) =
                    parts.into_iter().map(|part| (part.sql, part.values)).unzip();
                Some(Select { once: false, scans, ..Select::new(sql.join(" UNION ALL "), values.concat()) })
            }
            Self::Each(_) | Self::Listed(_) | Self::All(_) | Self::Not(_) => None,
        }
    }

    /// Writes it as a condition on rows. `walked`: the rows are those of this field in the index of values, and
    /// conditions on this field test the row itself.
    pub(super) fn write(&self, walked: Option<&str>, sql: &mut String, arguments: &mut Vec<Argument>) {
        if let Self::Ids(Select { of: Some(of), .. }) = self
            && Some(of.field.as_str()) == walked
        {
            sql.push('(');
            sql.push_str(&of.condition);
            sql.push(')');
            arguments.extend(of.values.iter().cloned());
            return;
        }
        if let Some(select) = self.select() {
            sql.push_str("id IN (");
            sql.push_str(&select.sql);
            sql.push(')');
            arguments.extend(select.values);
            return;
        }
        match self {
            Self::All(all) => Self::write_all(all, " AND ", walked, sql, arguments),
            Self::Any(any) => Self::write_all(any, " OR ", walked, sql, arguments),
            Self::Each(select) => {
                sql.push('(');
                sql.push_str(&select.sql);
                sql.push_str(" AND id = walked.id) IS NOT NULL");
                arguments.extend(select.values.iter().cloned());
            }
            Self::Listed(ids) => Self::write_list(ids, sql, arguments),
            Self::Not(inner) => {
                sql.push_str("NOT (");
                inner.write(walked, sql, arguments);
                sql.push(')');
            }
            // It is a statement itself.
            Self::Ids(_) => {}
        }
    }

    pub(super) fn selects(&self, into: &mut Vec<Select>) {
        if let Some(select) = self.select() {
            into.push(select);
            return;
        }
        match self {
            Self::All(list) | Self::Any(list) => list.iter().for_each(|one| one.selects(into)),
            // Excluding few ids means that many remain.
            Self::Not(_) | Self::Ids(_) | Self::Each(_) | Self::Listed(_) => {}
        }
    }

    /// Whether all entities that pass have a value in a field that the condition tests.
    pub(super) fn asks(&self, field: &str) -> bool {
        match self {
            Self::Ids(select) => select.asks(field),
            Self::All(all) => all.iter().any(|one| one.asks(field)),
            Self::Any(_) | Self::Not(_) | Self::Each(_) | Self::Listed(_) => false,
        }
    }

    /// An upper bound of how many pass, from the results of each statement; and the part of the condition that yields
    /// it, with the ids if they are known.
    pub(super) fn least(&self, given: &mut impl Iterator<Item = SelectedIds>) -> (usize, Self) {
        if self.select().is_some() {
            return match given.next() {
                Some(SelectedIds { count, ids: Some(ids) }) => (count, Self::Listed(ids)),
                Some(SelectedIds { count, ids: None }) => (count, self.clone()),
                None => (usize::MAX, self.clone()),
            };
        }
        match self {
            Self::All(all) => {
                let parts: Vec<_> = all.iter().map(|one| one.least(given)).collect();
                let least = parts.into_iter().min_by_key(|(count, _)| *count);
                least.unwrap_or_else(|| (usize::MAX, self.clone()))
            }
            Self::Any(any) => {
                let (counts, parts): (Vec<_>, Vec<_>) = any.iter().map(|one| one.least(given)).unzip();
                (counts.into_iter().fold(0, usize::saturating_add), Self::Any(parts))
            }
            Self::Not(_) | Self::Ids(_) | Self::Each(_) | Self::Listed(_) => (usize::MAX, self.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_few_lengths() {
        let check = |many: usize, expected: (&str, usize)| {
            let ids: Vec<String> = (0..many).map(|n| n.to_string()).collect();
            let (mut sql, mut arguments) = (String::new(), Vec::new());
            IdSelection::Listed(ids.clone()).write(None, &mut sql, &mut arguments);
            assert_eq!((&*sql.replace(", ?", "+"), arguments.len()), expected);
            arguments.dedup();
            assert_eq!(arguments, ids.iter().map(Argument::from).collect::<Vec<_>>());
        };
        check(0, ("1 = 0", 0));
        check(1, ("id IN (?)", 1));
        check(2, ("id IN (?+++++++++)", 10));
        check(10, ("id IN (?+++++++++)", 10));
        check(11, (&format!("id IN (?{})", "+".repeat(99)), 100));
    }

    /// A condition on the field whose values are walked needs no further statement.
    #[test]
    fn the_field_that_is_walked_is_asked_on_the_way() {
        let of =
            FieldCondition { field: "name".to_owned(), condition: "value = ?".to_owned(), values: vec!["3a".into()] };
        let select = Select { of: Some(of), ..Select::new("SELECT 1".to_owned(), vec!["all".into()]) };
        let known = IdSelection::All(vec![
            IdSelection::Ids(select.clone()),
            IdSelection::Not(Box::new(IdSelection::Ids(select))),
        ]);
        let check = |walked: Option<&str>, expected: &str, first: &str| {
            let (mut sql, mut arguments) = (String::new(), Vec::new());
            known.write(walked, &mut sql, &mut arguments);
            assert_eq!((&*sql, arguments), (expected, vec![Argument::from(first); 2]));
        };
        check(Some("name"), "((value = ?) AND NOT ((value = ?)))", "3a");
        check(Some("key"), "(id IN (SELECT 1) AND NOT (id IN (SELECT 1)))", "all");
        check(None, "(id IN (SELECT 1) AND NOT (id IN (SELECT 1)))", "all");
        assert!(known.asks("name") && !known.asks("key"));
    }
}
