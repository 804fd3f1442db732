//! The spans of a resource by instrumentation scope, for the forms that put them so.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use quiver_types::spans::{Attributes, Span};

/// Scope: name, version, attributes.
pub(super) type ScopeKey<'t> = (&'t str, &'t str, &'t Attributes);

/// Scopes in order of first use, with their spans. A sender may give each span a scope of its own, so they are looked up.
#[derive(Debug, Default)]
pub(super) struct Scopes<'t> {
    list: Vec<(ScopeKey<'t>, Vec<&'t Span>)>,
    places: HashMap<ScopeKey<'t>, usize, FixedState>,
}

impl<'t> Scopes<'t> {
    /// Adds a span to its scope.
    pub(super) fn add(&mut self, span: &'t Span) {
        let c = &*span.context;
        let key: ScopeKey<'t> = (&c.scope_name, &c.scope_version, &c.scope_attributes);
        let Self { list, places } = self;
        let at = *places.entry(key).or_insert_with(|| {
            list.push((key, Vec::new()));
            list.len() - 1
        });
        list[at].1.push(span);
    }

    /// Gives the scopes with their spans.
    pub(super) fn list(&self) -> &[(ScopeKey<'t>, Vec<&'t Span>)] {
        &self.list
    }
}

#[cfg(test)]
mod tests {
    use quiver_types::spans::SpanContext;
    use std::sync::Arc;

    use super::*;
    use crate::assemble::tests::span;

    /// A span of a scope of this name.
    fn of_scope(id: u64, name: &str) -> Span {
        let context = Arc::new(SpanContext { scope_name: name.to_owned(), ..SpanContext::default() });
        Span { context, ..span(id, 0, "a", 2, 1, 2) }
    }

    #[test]
    fn spans_are_put_to_their_scopes_in_order_of_first_use() {
        let spans = [(1, "b"), (2, "a"), (3, "b"), (4, "")].map(|(id, name)| of_scope(id, name));
        let mut scopes = Scopes::default();
        for span in &spans {
            scopes.add(span);
        }
        let names = |spans: &[&Span]| spans.iter().map(|span| span.name.clone()).collect::<Vec<_>>();
        let found: Vec<(&str, Vec<String>)> = scopes.list().iter().map(|(key, of)| (key.0, names(of))).collect();
        let of = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(found, [("b", of(&["op1", "op3"])), ("a", of(&["op2"])), ("", of(&["op4"]))]);
    }

    #[test]
    fn each_span_may_have_a_scope_of_its_own() {
        let name = |id: u64| format!("a library of a rather long name, number {id}");
        let spans: Vec<Span> = (0..60_000).map(|id| of_scope(id, &name(id))).collect();
        let mut scopes = Scopes::default();
        for span in &spans {
            scopes.add(span);
        }
        assert_eq!(scopes.list().len(), spans.len());
    }
}
