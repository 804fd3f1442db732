//! Decides which spans of an assembled trace a query wants.

use std::borrow::Cow;

use quiver_types::spans::{Place, Span, Value, hex, kind_name};

use super::{Aggregate, Check, Expr, Field, Fixed, Intrinsic, Query, Relation, Spanset, Stage, Structure, Term};
use crate::assemble::Trace;
use crate::export::any_value;
use crate::export::internal::STATUS;
use crate::tree::Tree;
use crate::writer::JsonWriter;

/// What a query found in a trace.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// Wanted spans by their place in the trace.
    pub spans: Vec<usize>,
    /// Names and values of the aggregates that were compared.
    pub aggregates: Vec<(String, f64)>,
}

/// A trace that is being looked at.
struct Looked<'t> {
    trace: &'t Trace,
    tree: Tree,
    root: Option<usize>,
}

impl Query {
    /// Gives what it wants of a trace; none when it wants nothing of it.
    pub fn find(&self, trace: &Trace) -> Option<Found> {
        let tree = Tree::of(trace);
        let root = tree.main_root(trace);
        let looked = Looked { trace, tree, root };
        let chosen = looked.chosen(&self.spans);
        let spans: Vec<usize> = (0..trace.spans.len()).filter(|&i| chosen[i]).collect();
        if spans.is_empty() {
            return None;
        }
        let mut found = Found { spans, aggregates: Vec::new() };
        for stage in &self.stages {
            let Stage::Aggregate { function, field, compare, value } = stage else { continue };
            let own = looked.aggregate(*function, field.as_ref(), &found.spans)?;
            if !compare.holds(own, *value) {
                return None;
            }
            found.aggregates.push((aggregate_name(*function, field.as_ref()), own));
        }
        Some(found)
    }

    /// Gives the fields that are asked for of a wanted span, with their values in OTLP/JSON. Those of `select` come
    /// even when the span has none.
    pub(super) fn shown(&self, span: &Span) -> Vec<(String, serde_json::Value)> {
        let selected = self.stages.iter().filter_map(|stage| match stage {
            Stage::Select(fields) => Some(fields),
            Stage::Aggregate { .. } => None,
        });
        let mut fields: Vec<(&Field, bool)> = selected.flatten().map(|field| (field, true)).collect();
        fields.extend(fields_of(&self.spans).into_iter().map(|field| (field, false)));
        let mut out: Vec<(String, serde_json::Value)> = Vec::new();
        for (field, always) in fields {
            if is_told(field) || out.iter().any(|(key, _)| key == field.key()) {
                continue;
            }
            let value = match field {
                Field::Attribute(place, key) => attribute(span, *place, key).map(any_json),
                Field::Intrinsic(i) => intrinsic_text(span, *i).map(|text| any_json(Value::Text(&text))),
            };
            if let Some(value) = value.or_else(|| always.then(|| any_json(Value::Text("nil")))) {
                out.push((field.key().to_owned(), value));
            }
        }
        out
    }

    /// Says whether the name of a span is asked for.
    pub(super) fn shows_name(&self) -> bool {
        let name = Field::Intrinsic(Intrinsic::Name);
        let selects = |stage: &Stage| matches!(stage, Stage::Select(fields) if fields.contains(&name));
        self.stages.iter().any(selects) || fields_of(&self.spans).contains(&&name)
    }
}

/// Whether a field stands in every answer, or belongs to the trace.
fn is_told(field: &Field) -> bool {
    use Intrinsic::{Duration, Name, NestedSetParent, RootName, RootService, SpanId, TraceDuration, TraceId};
    let told = [Duration, Name, NestedSetParent, RootName, RootService, SpanId, TraceDuration, TraceId];
    matches!(field, Field::Intrinsic(i) if told.contains(i))
}

/// A value as OTLP/JSON has it.
pub(super) fn any_json(value: Value<'_>) -> serde_json::Value {
    let mut w = JsonWriter::default();
    any_value(value, &mut w);
    serde_json::from_slice(&w.finish().unwrap_or_default()).unwrap_or_default()
}

fn aggregate_name(function: Aggregate, field: Option<&Field>) -> String {
    let name = match function {
        Aggregate::Count => "count",
        Aggregate::Avg => "avg",
        Aggregate::Min => "min",
        Aggregate::Max => "max",
        Aggregate::Sum => "sum",
    };
    format!("{name}({})", field.map(ToString::to_string).unwrap_or_default())
}

/// Gives the fields that the conditions on the wanted spans name.
fn fields_of(spans: &Spanset) -> Vec<&Field> {
    fn of_expr<'q>(expr: &'q Expr, out: &mut Vec<&'q Field>) {
        match expr {
            Expr::True | Expr::False => {}
            Expr::And(list) | Expr::Or(list) => list.iter().for_each(|one| of_expr(one, out)),
            Expr::Not(one) => of_expr(one, out),
            Expr::Is(field, _) => out.push(field),
            Expr::Compare(left, _, right) => [left, right].into_iter().for_each(|side| side.fields(out)),
        }
    }
    match spans {
        Spanset::Filter(expr) => {
            let mut out = Vec::new();
            of_expr(expr, &mut out);
            out
        }
        Spanset::Both(Relation::Structure { union: false, .. }, _, right) => fields_of(right),
        Spanset::Both(_, left, right) => [fields_of(left), fields_of(right)].concat(),
    }
}

impl Looked<'_> {
    /// Says of each span whether a set holds it.
    fn chosen(&self, spans: &Spanset) -> Vec<bool> {
        match spans {
            Spanset::Filter(expr) => self.trace.spans.iter().map(|span| self.holds(expr, span)).collect(),
            Spanset::Both(relation, left, right) => {
                let (left, right) = (self.chosen(left), self.chosen(right));
                let either = || left.iter().zip(&right).map(|(a, b)| *a || *b).collect();
                match relation {
                    Relation::Or => either(),
                    Relation::And if left.contains(&true) && right.contains(&true) => either(),
                    Relation::And => vec![false; left.len()],
                    Relation::Structure { kind, negated, union } => {
                        self.structure(*kind, *negated, *union, &left, &right)
                    }
                }
            }
        }
    }

    fn structure(&self, kind: Structure, negated: bool, union: bool, left: &[bool], right: &[bool]) -> Vec<bool> {
        let lies = self.lies(kind, left);
        let mut out: Vec<bool> = right.iter().zip(&lies).map(|(own, lies)| *own && *lies != negated).collect();
        if union {
            // Those of the left to which one of the right lies so.
            let back = match kind {
                Structure::Descendant => Structure::Ancestor,
                Structure::Child => Structure::Parent,
                Structure::Ancestor => Structure::Descendant,
                Structure::Parent => Structure::Child,
                Structure::Sibling => Structure::Sibling,
            };
            let lies = self.lies(back, right);
            (0..out.len()).for_each(|i| out[i] |= left[i] && lies[i]);
        }
        out
    }

    /// Says of each span whether it lies so to one of a set.
    fn lies(&self, kind: Structure, of: &[bool]) -> Vec<bool> {
        let tree = &self.tree;
        let mut order: Vec<usize> = (0..of.len()).collect();
        order.sort_by_key(|&i| tree.depth[i]);
        let mut out = vec![false; of.len()];
        match kind {
            Structure::Child => {
                (0..of.len()).for_each(|i| out[i] = tree.parent[i].is_some_and(|p| of[p]));
            }
            Structure::Parent => {
                (0..of.len()).for_each(|i| out[i] = tree.children[i].iter().any(|&c| of[c]));
            }
            Structure::Descendant => {
                for i in order {
                    out[i] = tree.parent[i].is_some_and(|p| of[p] || out[p]);
                }
            }
            Structure::Ancestor => {
                for i in order.into_iter().rev() {
                    out[i] = tree.children[i].iter().any(|&c| of[c] || out[c]);
                }
            }
            Structure::Sibling => {
                for children in &tree.children {
                    let chosen = children.iter().filter(|&&c| of[c]).count();
                    children.iter().for_each(|&c| out[c] = chosen > usize::from(of[c]));
                }
            }
        }
        out
    }

    fn holds(&self, expr: &Expr, span: &Span) -> bool {
        match expr {
            Expr::True => true,
            Expr::False => false,
            Expr::And(all) => all.iter().all(|one| self.holds(one, span)),
            Expr::Or(any) => any.iter().any(|one| self.holds(one, span)),
            Expr::Not(one) => !self.holds(one, span),
            Expr::Is(field, check) => self.is(field, check, span),
            Expr::Compare(left, compare, right) => match (self.worked_out(left, span), self.worked_out(right, span)) {
                (Some(left), Some(right)) => left.compares(*compare, &right),
                _ => false,
            },
        }
    }

    /// Works a term out; none where a field has no value, or arithmetic no number.
    fn worked_out(&self, term: &Term, span: &Span) -> Option<Fixed> {
        let text = |text: &str| (!text.is_empty()).then(|| Fixed::Text(text.to_owned()));
        let field = match term {
            Term::Fixed(fixed) => return Some(fixed.clone()),
            Term::Worked(left, sign, right) => {
                let (left, right) = (self.worked_out(left, span)?, self.worked_out(right, span)?);
                let number = sign.of(left.number()?, right.number()?);
                return number.is_finite().then_some(Fixed::Number(number));
            }
            Term::Field(field) => field,
        };
        match field {
            Field::Attribute(place, key) => attribute(span, *place, key).map(Fixed::of),
            Field::Intrinsic(Intrinsic::Duration) => Some(Fixed::Number(span.duration() as f64)),
            Field::Intrinsic(Intrinsic::TraceDuration) => {
                Some(Fixed::Number(self.trace.end().saturating_sub(self.trace.start()) as f64))
            }
            Field::Intrinsic(Intrinsic::NestedSetParent) => {
                Some(Fixed::Number(if span.parent.is_none() { -1.0 } else { 0.0 }))
            }
            Field::Intrinsic(Intrinsic::RootName) => text(self.root.map_or("", |r| &self.trace.spans[r].name)),
            Field::Intrinsic(Intrinsic::RootService) => {
                text(self.root.map_or("", |r| self.trace.spans[r].service_shown()))
            }
            Field::Intrinsic(Intrinsic::TraceId) => text(&hex(&self.trace.id)),
            Field::Intrinsic(intrinsic) => intrinsic_text(span, *intrinsic).map(|t| Fixed::Text(t.into_owned())),
        }
    }

    fn is(&self, field: &Field, check: &Check, span: &Span) -> bool {
        let one = |value: Option<Value<'_>>| match check {
            Check::Passes(test) => value.is_some_and(|v| test.matches(v)),
            Check::Fails(test) => value.is_some_and(|v| !test.matches(v)),
            Check::Missing => value.is_none(),
            Check::There => value.is_some(),
        };
        let any = |values: Vec<Value<'_>>| match check {
            Check::Missing => values.is_empty(),
            _ => values.into_iter().any(|v| one(Some(v))),
        };
        let text = |text: &str| one((!text.is_empty()).then_some(Value::Text(text)));
        match field {
            Field::Attribute(Some(Place::Event), key) => {
                any(span.events.iter().filter_map(|e| e.attributes.get(key)).collect())
            }
            Field::Attribute(Some(Place::Link), key) => {
                any(span.links.iter().filter_map(|l| l.attributes.get(key)).collect())
            }
            Field::Attribute(place, key) => one(attribute(span, *place, key)),
            Field::Intrinsic(Intrinsic::Duration) => one(Some(Value::Int(span.duration()))),
            Field::Intrinsic(Intrinsic::NestedSetParent) => {
                one(Some(Value::Int(if span.parent.is_none() { -1 } else { 0 })))
            }
            Field::Intrinsic(Intrinsic::TraceDuration) => {
                one(Some(Value::Int(self.trace.end().saturating_sub(self.trace.start()))))
            }
            Field::Intrinsic(Intrinsic::RootName) => text(self.root.map_or("", |r| &self.trace.spans[r].name)),
            Field::Intrinsic(Intrinsic::RootService) => {
                text(self.root.map_or("", |r| self.trace.spans[r].service_shown()))
            }
            Field::Intrinsic(Intrinsic::TraceId) => text(&hex(&self.trace.id)),
            Field::Intrinsic(Intrinsic::EventName) => any(span.events.iter().map(|e| Value::Text(&e.name)).collect()),
            Field::Intrinsic(Intrinsic::EventSince) => {
                any(span.events.iter().map(|e| Value::Int(e.time.saturating_sub(span.start))).collect())
            }
            Field::Intrinsic(i @ (Intrinsic::LinkTraceId | Intrinsic::LinkSpanId)) => {
                let ids: Vec<String> = (span.links.iter())
                    .map(|l| if *i == Intrinsic::LinkTraceId { hex(&l.trace_id) } else { hex(&l.span_id) })
                    .collect();
                any(ids.iter().map(|id| Value::Text(id)).collect())
            }
            Field::Intrinsic(intrinsic) => text(&intrinsic_text(span, *intrinsic).unwrap_or_default()),
        }
    }

    /// Gives an aggregate of some spans; none when none of them has the field.
    fn aggregate(&self, function: Aggregate, field: Option<&Field>, spans: &[usize]) -> Option<f64> {
        let number = |&i: &usize| {
            let span = &self.trace.spans[i];
            match field? {
                Field::Attribute(place, key) => attribute(span, *place, key)?.number(),
                Field::Intrinsic(Intrinsic::Duration) => Some(span.duration() as f64),
                Field::Intrinsic(Intrinsic::TraceDuration) => {
                    Some(self.trace.end().saturating_sub(self.trace.start()) as f64)
                }
                Field::Intrinsic(_) => None,
            }
        };
        if function == Aggregate::Count {
            return Some(spans.len() as f64);
        }
        let numbers: Vec<f64> = spans.iter().filter_map(number).collect();
        let sum: f64 = numbers.iter().sum();
        match function {
            _ if numbers.is_empty() => None,
            Aggregate::Avg => Some(sum / numbers.len() as f64),
            Aggregate::Min => numbers.into_iter().reduce(f64::min),
            Aggregate::Max => numbers.into_iter().reduce(f64::max),
            _ => Some(sum),
        }
    }
}

/// Gives the value of an attribute; without a place that of the span, else that of its resource.
pub(super) fn attribute<'s>(span: &'s Span, place: Option<Place>, key: &str) -> Option<Value<'s>> {
    let resource = || match key {
        "service.name" => Some(Value::Text(span.service_shown())),
        _ => span.context.resource.get(key),
    };
    match place {
        None => span.attributes.get(key).or_else(resource),
        Some(Place::Span) => span.attributes.get(key),
        Some(Place::Resource) => resource(),
        Some(Place::Scope) => span.context.scope_attributes.get(key),
        Some(Place::Event) => span.events.iter().find_map(|e| e.attributes.get(key)),
        Some(Place::Link) => span.links.iter().find_map(|l| l.attributes.get(key)),
    }
}

/// Gives an intrinsic that is a text; none when it is empty.
pub(super) fn intrinsic_text(span: &Span, intrinsic: Intrinsic) -> Option<Cow<'_, str>> {
    let text: Cow<'_, str> = match intrinsic {
        Intrinsic::Name => span.name.as_str().into(),
        Intrinsic::Status => STATUS[usize::from(span.status).min(2)].into(),
        Intrinsic::StatusMessage => span.status_message.as_str().into(),
        Intrinsic::Kind if span.kind == 0 => "unspecified".into(),
        Intrinsic::Kind => kind_name(span.kind).into(),
        Intrinsic::SpanId => hex(&span.span_id).into(),
        Intrinsic::ParentId => span.parent.map(|p| hex(&p)).unwrap_or_default().into(),
        Intrinsic::EventName => span.events.first().map_or("", |e| e.name.as_str()).into(),
        Intrinsic::LinkTraceId => span.links.first().map(|l| hex(&l.trace_id)).unwrap_or_default().into(),
        Intrinsic::LinkSpanId => span.links.first().map(|l| hex(&l.span_id)).unwrap_or_default().into(),
        Intrinsic::ScopeName => span.context.scope_name.as_str().into(),
        Intrinsic::ScopeVersion => span.context.scope_version.as_str().into(),
        _ => "".into(),
    };
    (!text.is_empty()).then_some(text)
}
