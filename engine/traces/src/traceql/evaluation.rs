//! Decides which spans of an assembled trace a query wants.

use std::borrow::Cow;
use std::cell::OnceCell;

use quiver_types::spans::{Place, Span, Value, any_item, hex, is_list, kind_name};

use super::ast::{Aggregate, Check, Expr, Query, Relation, Spanset, Stage, Structure};
use super::expressions::{Compare, ExprValue, Term};
use super::fields::{Field, Intrinsic};
use super::result::{FoundSet, TraceMatch};
use super::value::FieldValue;
use crate::assemble::Trace;
use crate::export::internal::STATUS;
use crate::span_tree::Tree;

/// A trace that is being looked at.
pub(super) struct TraceView<'t> {
    trace: &'t Trace,
    tree: Tree,
    /// The span without a parent; none where it was not received yet.
    root: Option<usize>,
    nested: OnceCell<NestedSetIndex>,
}

/// Numbers by which a span's descendants lie between its left and its right one; 0 where no root leads to it.
struct NestedSetIndex {
    left: Vec<i64>,
    right: Vec<i64>,
}

impl NestedSetIndex {
    fn of(trace: &Trace, tree: &Tree) -> Self {
        let mut out = Self { left: vec![0; trace.spans.len()], right: vec![0; trace.spans.len()] };
        let mut next = 1;
        let roots = tree.roots.iter().rev().filter(|&&root| trace.spans[root].parent.is_none());
        let mut stack: Vec<(usize, bool)> = roots.map(|&root| (root, false)).collect();
        while let Some((i, is_left)) = stack.pop() {
            if is_left {
                out.right[i] = next;
            } else {
                out.left[i] = next;
                stack.push((i, true));
                stack.extend(tree.children[i].iter().rev().map(|&child| (child, false)));
            }
            next += 1;
        }
        out
    }
}

impl Query {
    /// Gives what it wants of a trace; none when it wants nothing of it.
    pub fn find(&self, trace: &Trace) -> Option<TraceMatch> {
        self.find_in(&TraceView::at(trace))
    }

    /// Gives what it wants of a trace that is looked at already.
    pub(super) fn find_in(&self, looked: &TraceView<'_>) -> Option<TraceMatch> {
        let trace = looked.trace;
        let chosen = looked.chosen(&self.spans, None);
        let spans: Vec<usize> = (0..trace.spans.len()).filter(|&i| chosen[i]).collect();
        if spans.is_empty() {
            return None;
        }
        let mut sets = vec![FoundSet { spans, attributes: Vec::new() }];
        for stage in &self.stages {
            sets = stage.run(looked, sets);
        }
        let mut spans: Vec<usize> = sets.iter().flat_map(|set| set.spans.iter().copied()).collect();
        spans.sort_unstable();
        (!spans.is_empty()).then_some(TraceMatch { spans, sets })
    }
}

impl<'t> TraceView<'t> {
    pub(super) fn at(trace: &'t Trace) -> Self {
        let tree = Tree::of(trace);
        let root = tree.main_root(trace).filter(|&root| trace.spans[root].parent.is_none());
        Self { trace, tree, root, nested: OnceCell::new() }
    }

    pub(super) fn span(&self, i: usize) -> &'t Span {
        &self.trace.spans[i]
    }

    /// The value of a field; none where there is none.
    pub(super) fn field_value(&self, field: &Field, i: usize) -> Option<FieldValue> {
        match field {
            Field::Attribute(place, key) => attribute(&self.trace.spans[i], *place, key).map(FieldValue::of),
            Field::Intrinsic(intrinsic) => match self.number(*intrinsic, i) {
                Some(nanos) if intrinsic.is_duration() => Some(FieldValue::Nanos(nanos)),
                Some(number) => Some(FieldValue::Int(number)),
                // Intrinsics that every span has may be empty, but are never missing.
                None => (self.text(*intrinsic, i).map(FieldValue::text))
                    .or_else(|| intrinsic.is_text_of_all().then(|| FieldValue::text(""))),
            },
        }
    }

    /// What a term is worked out to.
    pub(super) fn term_value(&self, term: &Term, i: usize) -> Option<FieldValue> {
        Some(match term {
            Term::Field(field) => return self.field_value(field, i),
            term => match self.worked_out(term, i)? {
                ExprValue::Number(number) => FieldValue::Double(number),
                ExprValue::Whole(number) => FieldValue::Int(number),
                ExprValue::Nanos(nanos) => FieldValue::Nanos(nanos),
                ExprValue::Text(text) => FieldValue::Text(text),
                ExprValue::Bool(value) => FieldValue::Bool(value),
            },
        })
    }

    /// An intrinsic that is a number.
    fn number(&self, intrinsic: Intrinsic, i: usize) -> Option<i64> {
        let nested = || self.nested.get_or_init(|| NestedSetIndex::of(self.trace, &self.tree));
        Some(match intrinsic {
            Intrinsic::TraceDuration => self.trace.end().saturating_sub(self.trace.start()),
            Intrinsic::ChildCount => self.tree.children[i].len() as i64,
            Intrinsic::NestedSetLeft => nested().left[i],
            Intrinsic::NestedSetRight => nested().right[i],
            Intrinsic::NestedSetParent if self.trace.spans[i].parent.is_none() => -1,
            Intrinsic::NestedSetParent => self.tree.parent[i].map_or(0, |parent| nested().left[parent]),
            of_span => return intrinsic_number(&self.trace.spans[i], of_span),
        })
    }

    /// The number that a field is, as numbers over time count it.
    pub(super) fn figure(&self, field: &Field, i: usize) -> Option<f64> {
        match field {
            Field::Attribute(..) => figure_of(self.span(i), field),
            Field::Intrinsic(intrinsic) => self.number(*intrinsic, i).map(|number| number as f64),
        }
    }

    /// An intrinsic that is a text; none when it is empty.
    fn text(&self, intrinsic: Intrinsic, i: usize) -> Option<Cow<'t, str>> {
        let trace: &'t Trace = self.trace;
        let root = self.root.map(|root| &trace.spans[root]);
        let text: Cow<'t, str> = match intrinsic {
            Intrinsic::RootName => root.map_or("", |root| root.name.as_str()).into(),
            Intrinsic::RootService => root.map_or("", Span::service_shown).into(),
            Intrinsic::TraceId => hex(&trace.id).into(),
            _ => return intrinsic_text(&trace.spans[i], intrinsic),
        };
        (!text.is_empty()).then_some(text)
    }

    /// Says of each span whether a set holds it; with `within` of spans that are among these only, in ascending order.
    pub(super) fn chosen(&self, spans: &Spanset, within: Option<&[usize]>) -> Vec<bool> {
        match spans {
            Spanset::Filter(expr) => {
                let is_within = |i: usize| within.is_none_or(|within| within.binary_search(&i).is_ok());
                (0..self.trace.spans.len()).map(|i| is_within(i) && self.holds(expr, i)).collect()
            }
            Spanset::Both(relation, left, right) => {
                let (left, right) = (self.chosen(left, within), self.chosen(right, within));
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
            Spanset::Piped(spans, stages) => self.left_of(self.chosen(spans, within), stages),
        }
    }

    /// Says of each span whether stages leave it of a set.
    fn left_of(&self, mut chosen: Vec<bool>, stages: &[Stage]) -> Vec<bool> {
        let spans: Vec<usize> = (0..chosen.len()).filter(|&i| chosen[i]).collect();
        if spans.is_empty() {
            return chosen;
        }
        let mut sets = vec![FoundSet { spans, attributes: Vec::new() }];
        for stage in stages {
            sets = stage.run(self, sets);
        }
        chosen.fill(false);
        sets.iter().flat_map(|set| &set.spans).for_each(|&i| chosen[i] = true);
        chosen
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
                // Roots lie beside each other: in Tempo, too, the parent of all of them is none.
                let is_root = |span: &usize| self.trace.spans[*span].parent.is_none();
                let roots: Vec<usize> = tree.roots.iter().copied().filter(is_root).collect();
                for children in tree.children.iter().chain([&roots]) {
                    let chosen = children.iter().filter(|&&c| of[c]).count();
                    for &c in children {
                        out[c] = chosen > usize::from(of[c]);
                    }
                }
            }
        }
        out
    }

    pub(super) fn holds(&self, expr: &Expr, i: usize) -> bool {
        match expr {
            Expr::True => true,
            Expr::False => false,
            Expr::And(all) => all.iter().all(|one| self.holds(one, i)),
            Expr::Or(any) => any.iter().any(|one| self.holds(one, i)),
            Expr::Not(one) => !self.holds(one, i),
            Expr::Is(field, check) => self.is(field, check, i),
            Expr::Compare(left, compare, right) => self.compares(left, *compare, right, i),
        }
    }

    /// Says whether two sides compare so; of a list one item is enough, and to differ from it means from all of them.
    fn compares(&self, left: &Term, compare: Compare, right: &Term, i: usize) -> bool {
        let (own, other) = (self.worked_out(left, i), self.worked_out(right, i));
        let (Some(own), Some(other)) = (own, other) else { return false };
        let to_all = compare == Compare::NotEqual;
        let of_items = |list: &str, holds: &dyn Fn(&ExprValue) -> bool| {
            any_item(list, |item| holds(&ExprValue::of(item)) != to_all).is_some_and(|found| found != to_all)
        };
        match (self.list(left, i), self.list(right, i)) {
            (Some(list), None) => of_items(list, &|item| item.compares(compare, &other)),
            (None, Some(list)) => of_items(list, &|item| own.compares(compare, item)),
            _ => own.compares(compare, &other),
        }
    }

    /// Gives the list that is the value of a field, in OTLP/JSON.
    fn list(&self, term: &Term, i: usize) -> Option<&'t str> {
        let Term::Field(Field::Attribute(place, key)) = term else { return None };
        match attribute(self.span(i), *place, key) {
            Some(Value::Json(json)) if is_list(json) => Some(json),
            _ => None,
        }
    }

    /// Works a term out; none where a field has no value, or arithmetic no number.
    fn worked_out(&self, term: &Term, i: usize) -> Option<ExprValue> {
        match term {
            Term::Fixed(fixed) => Some(fixed.clone()),
            Term::Worked(left, sign, right) => self.worked_out(left, i)?.worked(*sign, &self.worked_out(right, i)?),
            Term::Field(Field::Attribute(place, key)) => {
                attribute(&self.trace.spans[i], *place, key).map(ExprValue::of)
            }
            Term::Field(Field::Intrinsic(intrinsic)) => match self.number(*intrinsic, i) {
                Some(nanos) if intrinsic.is_duration() => Some(ExprValue::Number(nanos as f64)),
                Some(number) => Some(ExprValue::Whole(number)),
                None => {
                    let text = self.text(*intrinsic, i).or_else(|| intrinsic.is_text_of_all().then_some("".into()));
                    text.map(|text| ExprValue::Text(text.into_owned()))
                }
            },
        }
    }

    fn is(&self, field: &Field, check: &Check, i: usize) -> bool {
        let span = &self.trace.spans[i];
        let one = |value: Option<Value<'_>>| match check {
            Check::Passes(test) => value.is_some_and(|v| test.matches_item(v)),
            Check::Fails(test) => value.is_some_and(|v| !test.matches_item(v)),
            Check::Missing => value.is_none(),
            Check::There => value.is_some(),
        };
        let any = |values: Vec<Value<'_>>| match check {
            Check::Missing => values.is_empty(),
            _ => values.into_iter().any(|v| one(Some(v))),
        };
        match field {
            Field::Attribute(Some(Place::Event), key) => {
                any(span.events.iter().filter_map(|e| e.attributes.get(key)).collect())
            }
            Field::Attribute(Some(Place::Link), key) => {
                any(span.links.iter().filter_map(|l| l.attributes.get(key)).collect())
            }
            Field::Attribute(place, key) => one(attribute(span, *place, key)),
            Field::Intrinsic(Intrinsic::EventName) => any(span.events.iter().map(|e| Value::Text(&e.name)).collect()),
            Field::Intrinsic(Intrinsic::EventSince) => {
                any(span.events.iter().map(|e| Value::Int(e.time.saturating_sub(span.start))).collect())
            }
            Field::Intrinsic(link @ (Intrinsic::LinkTraceId | Intrinsic::LinkSpanId)) => {
                let ids: Vec<String> = (span.links.iter())
                    .map(|l| if *link == Intrinsic::LinkTraceId { hex(&l.trace_id) } else { hex(&l.span_id) })
                    .collect();
                any(ids.iter().map(|id| Value::Text(id)).collect())
            }
            Field::Intrinsic(intrinsic) => {
                if let Some(number) = self.number(*intrinsic, i) {
                    one(Some(Value::Int(number)))
                } else {
                    let text = self.text(*intrinsic, i);
                    // Intrinsics that every span has may be empty, but are never `nil`.
                    one(text.as_deref().or(intrinsic.is_text_of_all().then_some("")).map(Value::Text))
                }
            }
        }
    }

    /// Says whether what is worked out of the first span that has a number is a whole one.
    pub(super) fn is_whole(&self, term: &Term, spans: &[usize]) -> bool {
        let first = spans.iter().filter_map(|&i| self.worked_out(term, i)).find(|value| value.number().is_some());
        matches!(first, Some(ExprValue::Whole(_)))
    }

    /// Gives an aggregate of some spans; none when none of them has a number.
    pub(super) fn aggregate(&self, function: Aggregate, term: Option<&Term>, spans: &[usize]) -> Option<f64> {
        let number = |&i: &usize| self.worked_out(term?, i)?.number();
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
pub(crate) fn attribute<'s>(span: &'s Span, place: Option<Place>, key: &str) -> Option<Value<'s>> {
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

/// Gives the number that a field is, where the span alone tells it; a text that is one counts as none.
pub(super) fn figure_of(span: &Span, field: &Field) -> Option<f64> {
    match field {
        Field::Attribute(place, key) => attribute(span, *place, key)?.number().filter(|v| v.is_finite()),
        Field::Intrinsic(intrinsic) => intrinsic_number(span, *intrinsic).map(|number| number as f64),
    }
}

/// Gives an intrinsic that is a number which the span alone tells; of events that of the first.
pub(super) fn intrinsic_number(span: &Span, intrinsic: Intrinsic) -> Option<i64> {
    match intrinsic {
        Intrinsic::Duration => Some(span.duration()),
        Intrinsic::EventSince => span.events.first().map(|event| event.time.saturating_sub(span.start)),
        _ => None,
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
