//! Values of rows and expressions over them: as SQL text for models, and evaluated row by row in three-valued logic.

use std::cmp::Ordering;
use std::fmt::Write as _;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Val {
    Null,
    Bool(bool),
    Int(i64),
    Num(f64),
    Text(String),
    /// An instant in milliseconds.
    Time(i64),
    /// Wall time in milliseconds.
    Wall(i64),
}

impl Val {
    pub(crate) fn is_null(&self) -> bool {
        *self == Self::Null
    }

    pub(crate) fn number(&self) -> Option<f64> {
        match self {
            Self::Int(n) => Some(*n as f64),
            Self::Num(n) => Some(*n),
            _ => None,
        }
    }

    /// How two values that are not NULL compare.
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => a.cmp(b),
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
            (Self::Time(a), Self::Time(b)) | (Self::Wall(a), Self::Wall(b)) | (Self::Int(a), Self::Int(b)) => a.cmp(b),
            (a, b) => match (a.number(), b.number()) {
                (Some(a), Some(b)) => a.total_cmp(&b),
                _ => panic!("{a:?} and {b:?} do not compare"),
            },
        }
    }

    /// How rows are ordered: NULL last ascending, first descending.
    pub(crate) fn order(&self, other: &Self, descends: bool) -> Ordering {
        let ascending = match (self.is_null(), other.is_null()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => self.compare(other),
        };
        if descends { ascending.reverse() } else { ascending }
    }
}

/// An expression over a row of joined models; models go by their places in the world.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Ex {
    /// A column of a model.
    Column(usize, String),
    /// A dimension of a model.
    Member(usize, String),
    Int(i64),
    Text(String),
    Equal(Box<Ex>, Box<Ex>),
    Less(Box<Ex>, Box<Ex>),
    And(Box<Ex>, Box<Ex>),
    Or(Box<Ex>, Box<Ex>),
    Not(Box<Ex>),
    IsNull(Box<Ex>),
    Add(Box<Ex>, Box<Ex>),
    /// Cases in their order, and what the others have.
    Case(Vec<(Ex, Ex)>, Option<Box<Ex>>),
}

impl Ex {
    pub(crate) fn column(model: usize, name: &str) -> Self {
        Self::Column(model, name.to_owned())
    }

    /// Writes it as SQL of the model `own`.
    pub(crate) fn sql(&self, own: usize, names: &[String]) -> String {
        let of = |e: &Self| e.sql(own, names);
        match self {
            Self::Column(model, name) if *model == own => format!("{{CUBE}}.{name}"),
            Self::Column(model, name) => format!("{{{}}}.{name}", names[*model]),
            Self::Member(model, name) if *model == own => format!("{{{name}}}"),
            Self::Member(model, name) => format!("{{{}.{name}}}", names[*model]),
            Self::Int(n) => n.to_string(),
            Self::Text(text) => format!("'{}'", text.replace('\'', "''")),
            Self::Equal(a, b) => format!("({} = {})", of(a), of(b)),
            Self::Less(a, b) => format!("({} < {})", of(a), of(b)),
            Self::And(a, b) => format!("({} AND {})", of(a), of(b)),
            Self::Or(a, b) => format!("({} OR {})", of(a), of(b)),
            Self::Not(a) => format!("(NOT {})", of(a)),
            Self::IsNull(a) => format!("({} IS NULL)", of(a)),
            Self::Add(a, b) => format!("({} + {})", of(a), of(b)),
            Self::Case(cases, other) => {
                let mut out = "CASE".to_owned();
                for (when, then) in cases {
                    write!(out, " WHEN {} THEN {}", of(when), of(then)).unwrap();
                }
                if let Some(other) = other {
                    write!(out, " ELSE {}", of(other)).unwrap();
                }
                out + " END"
            }
        }
    }

    /// Calls a function for each model and member that it names.
    pub(crate) fn each(&self, f: &mut dyn FnMut(usize, Option<&str>)) {
        match self {
            Self::Column(model, _) => f(*model, None),
            Self::Member(model, name) => f(*model, Some(name)),
            Self::Int(_) | Self::Text(_) => {}
            Self::Equal(a, b) | Self::Less(a, b) | Self::And(a, b) | Self::Or(a, b) | Self::Add(a, b) => {
                a.each(f);
                b.each(f);
            }
            Self::Not(a) | Self::IsNull(a) => a.each(f),
            Self::Case(cases, other) => {
                for (when, then) in cases {
                    when.each(f);
                    then.each(f);
                }
                if let Some(e) = other {
                    e.each(f);
                }
            }
        }
    }

    /// Its value, given those of columns and of members.
    pub(crate) fn value(
        &self,
        column: &dyn Fn(usize, &str) -> Val,
        member: &mut dyn FnMut(usize, &str) -> Result<Val, String>,
    ) -> Result<Val, String> {
        let truth = |v: Val| match v {
            Val::Bool(is) => Some(is),
            _ => None,
        };
        let of = |is: Option<bool>| is.map_or(Val::Null, Val::Bool);
        Ok(match self {
            Self::Column(model, name) => column(*model, name),
            Self::Member(model, name) => member(*model, name)?,
            Self::Int(n) => Val::Int(*n),
            Self::Text(text) => Val::Text(text.clone()),
            Self::Equal(a, b) | Self::Less(a, b) => {
                let (a, b) = (a.value(column, member)?, b.value(column, member)?);
                let wanted = if matches!(self, Self::Equal(..)) { Ordering::Equal } else { Ordering::Less };
                if a.is_null() || b.is_null() { Val::Null } else { Val::Bool(a.compare(&b) == wanted) }
            }
            Self::And(a, b) | Self::Or(a, b) => {
                let both = (truth(a.value(column, member)?), truth(b.value(column, member)?));
                // The truth that decides alone.
                let strong = matches!(self, Self::Or(..));
                match both {
                    (Some(a), _) if a == strong => Val::Bool(strong),
                    (_, Some(b)) if b == strong => Val::Bool(strong),
                    (Some(_), Some(_)) => Val::Bool(!strong),
                    _ => Val::Null,
                }
            }
            Self::Not(a) => of(truth(a.value(column, member)?).map(|is| !is)),
            Self::IsNull(a) => Val::Bool(a.value(column, member)?.is_null()),
            Self::Add(a, b) => match (a.value(column, member)?, b.value(column, member)?) {
                (Val::Int(a), Val::Int(b)) => Val::Int(a + b),
                (a, b) => a.number().zip(b.number()).map_or(Val::Null, |(a, b)| Val::Num(a + b)),
            },
            Self::Case(cases, other) => {
                for (when, then) in cases {
                    if truth(when.value(column, member)?) == Some(true) {
                        return then.value(column, member);
                    }
                }
                match other {
                    Some(other) => other.value(column, member)?,
                    None => Val::Null,
                }
            }
        })
    }
}
