//! Decides which fields of a found span are in the answer: those that the query names.
//!
//! As in Tempo, a field that a condition compares shows only values that satisfy the condition; any other field shows
//! whatever value it has.

use quiver_types::spans::{Place, Value};

use super::ast::{Check, Expr, Query, Relation, Scalar, Spanset, Stage};
use super::evaluation::TraceView;
use super::expressions::Term;
use super::fields::{Field, Intrinsic};
use super::value::FieldValue;

/// When a field that a query names is given.
#[derive(Debug, Clone, Copy)]
enum FieldCondition<'q> {
    /// With every span, also when it has no value (`nil`).
    Always,
    /// With the spans that have a value.
    There,
    /// With the spans that this condition holds for.
    Where(&'q Expr),
}

/// The fields that a query names, those of `select` first.
#[derive(Debug, Default)]
struct QueryFields<'q> {
    fields: Vec<(&'q Field, FieldCondition<'q>)>,
    /// The query looks at the places of spans in their trace.
    has_structure: bool,
}

impl Query {
    /// Gives the fields that are asked for of a wanted span, with their values. Those of `select` come even when
    /// the span has none.
    pub(super) fn shown(&self, looked: &TraceView<'_>, i: usize) -> Vec<(String, FieldValue)> {
        let asked = QueryFields::of(self);
        let mut out: Vec<(String, FieldValue)> = Vec::new();
        for (field, given) in &asked.fields {
            if is_told(field) || out.iter().any(|(key, _)| key == field.key()) {
                continue;
            }
            let value = match given {
                FieldCondition::Always => looked.field_value(field, i).or(Some(FieldValue::Nil)),
                FieldCondition::There => looked.field_value(field, i),
                FieldCondition::Where(_) if asked.has_structure && is_place(field) => looked.field_value(field, i),
                FieldCondition::Where(expr) => {
                    looked.holds(expr, i).then(|| of_holding(looked, expr, field, i)).flatten()
                }
            };
            if let Some(value) = value {
                out.push((field.key().to_owned(), value));
            }
        }
        out
    }

    /// Gives the fields that it names.
    pub(super) fn named_fields(&self) -> Vec<&Field> {
        QueryFields::of(self).fields.into_iter().map(|(field, _)| field).collect()
    }

    /// Says whether the name of a span is asked for.
    pub(super) fn shows_name(&self, looked: &TraceView<'_>, i: usize) -> bool {
        let is_asked = |(field, given): &(&Field, FieldCondition<'_>)| {
            let holds = !matches!(given, FieldCondition::Where(expr) if !looked.holds(expr, i));
            holds && matches!(field, Field::Intrinsic(Intrinsic::Name))
        };
        QueryFields::of(self).fields.iter().any(is_asked)
    }
}

impl<'q> QueryFields<'q> {
    fn of(query: &'q Query) -> Self {
        let mut out = Self::default();
        for stage in &query.stages {
            if let Stage::Select(fields) = stage {
                out.add(fields, FieldCondition::Always);
            }
        }
        out.spans(&query.spans);
        out.stages(&query.stages);
        out
    }

    fn add(&mut self, fields: impl IntoIterator<Item = &'q Field>, given: FieldCondition<'q>) {
        self.fields.extend(fields.into_iter().map(|field| (field, given)));
    }

    fn spans(&mut self, spans: &'q Spanset) {
        match spans {
            Spanset::Filter(expr) => self.expr(expr, true),
            Spanset::Both(relation, left, right) => {
                self.has_structure |= matches!(relation, Relation::Structure { .. });
                // What the right side names comes first: of a structure it is what is wanted.
                self.spans(right);
                self.spans(left);
            }
            Spanset::Piped(spans, stages) => {
                self.spans(spans);
                self.stages(stages);
            }
        }
    }

    fn stages(&mut self, stages: &'q [Stage]) {
        for stage in stages {
            match stage {
                Stage::Select(fields) => self.add(fields, FieldCondition::Always),
                Stage::Filter(expr) => self.expr(expr, true),
                Stage::Within(spans) => self.spans(spans),
                Stage::Scalar(left, _, right) => {
                    self.scalar(left);
                    self.scalar(right);
                }
                Stage::By(term, _) => self.term(term),
                Stage::ByWhether(expr, _) => self.expr(expr, false),
                Stage::Coalesce => {}
            }
        }
    }

    fn scalar(&mut self, scalar: &'q Scalar) {
        match scalar {
            Scalar::Fixed(_) | Scalar::Aggregate(_, None, _) => {}
            Scalar::Aggregate(_, Some(term), _) => self.term(term),
            Scalar::Worked(left, _, right) => {
                self.scalar(left);
                self.scalar(right);
            }
        }
    }

    fn term(&mut self, term: &'q Term) {
        let mut fields = Vec::new();
        term.fields(&mut fields);
        self.add(fields, FieldCondition::There);
    }

    /// Adds what a condition names; `holds` of one that is not below a negation.
    fn expr(&mut self, expr: &'q Expr, holds: bool) {
        let given = if holds { FieldCondition::Where(expr) } else { FieldCondition::There };
        match expr {
            Expr::True | Expr::False => {}
            Expr::And(list) | Expr::Or(list) => list.iter().for_each(|one| self.expr(one, holds)),
            Expr::Not(one) => self.expr(one, false),
            Expr::Is(field, Check::There) => self.add([field], FieldCondition::There),
            Expr::Is(field, _)
            | Expr::Compare(Term::Field(field), _, Term::Fixed(_))
            | Expr::Compare(Term::Fixed(_), _, Term::Field(field)) => self.add([field], given),
            Expr::Compare(left, _, right) => {
                self.term(left);
                self.term(right);
            }
        }
    }
}

/// Gives the value of a field for which a condition holds: of several events or links the first that it holds of.
fn of_holding(looked: &TraceView<'_>, expr: &Expr, field: &Field, i: usize) -> Option<FieldValue> {
    let Expr::Is(_, check) = expr else { return looked.field_value(field, i) };
    if matches!(check, Check::Missing) {
        return Some(FieldValue::Nil);
    }
    let span = looked.span(i);
    let passes = |value: &Value<'_>| match check {
        Check::Passes(test) => test.matches_item(*value),
        Check::Fails(test) => !test.matches_item(*value),
        Check::Missing | Check::There => true,
    };
    match field {
        Field::Attribute(Some(Place::Event), key) => {
            span.events.iter().filter_map(|event| event.attributes.get(key)).find(passes).map(FieldValue::of)
        }
        Field::Attribute(Some(Place::Link), key) => {
            span.links.iter().filter_map(|link| link.attributes.get(key)).find(passes).map(FieldValue::of)
        }
        Field::Intrinsic(Intrinsic::EventName) => {
            span.events.iter().map(|event| Value::Text(&event.name)).find(passes).map(FieldValue::of)
        }
        _ => looked.field_value(field, i),
    }
}

/// Whether a field says where a span lies in its trace.
fn is_place(field: &Field) -> bool {
    use Intrinsic::{NestedSetLeft, NestedSetParent, NestedSetRight};
    matches!(field, Field::Intrinsic(NestedSetLeft | NestedSetParent | NestedSetRight))
}

/// Whether a field stands in every answer, or belongs to the trace.
fn is_told(field: &Field) -> bool {
    use Intrinsic::{Duration, Name, RootName, RootService, SpanId, TraceDuration, TraceId};
    matches!(field, Field::Intrinsic(Duration | Name | RootName | RootService | SpanId | TraceDuration | TraceId))
}
