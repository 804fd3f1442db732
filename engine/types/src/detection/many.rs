//! Detection over many spans: which rules are for a service is found once, and what several rules ask of a span is asked once.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Candidate, Detected, Detector};
use crate::watch::{RULE_MAX, Until, Watch};

/// Beyond so many spans that take longer than [`RULE_MAX`] nobody looks at the others.
const LONG_MAX: u32 = 4;

/// Names of a rule for a service that are remembered.
const NAMES_MAX: usize = if cfg!(test) { 2 } else { 256 };

/// What is known of a test of a span.
const UNKNOWN: u8 = 0;
const HOLDS: u8 = 1;
const FAILS: u8 = 2;

/// Places of rules in their order.
#[derive(Debug, Default)]
struct Places {
    /// Those for a service.
    all: Vec<usize>,
    /// Those of them that look at all spans, not at entries only.
    any_scope: Vec<usize>,
}

impl Places {
    /// Those that look at a span.
    fn of(&self, span: &Candidate<'_>) -> &[usize] {
        if span.is_entry { &self.all } else { &self.any_scope }
    }
}

/// Decides about spans one after the other, as [`Detector::decide`] does.
#[derive(Debug)]
pub struct Detecting<'a> {
    asking: Asking<'a>,
    until: Arc<Until>,
    watch: Watch,
    /// Spans that took too long.
    long: u32,
    /// Whether the last one did, or was not looked at.
    gave_up: bool,
}

/// The rules, and what is known of the present span.
#[derive(Debug)]
struct Asking<'a> {
    detector: &'a Detector,
    /// The rules for each service that came up.
    places: Vec<Places>,
    by_service: HashMap<String, usize>,
    /// The service of the last span: mostly that of the next one.
    last: (String, Option<usize>),
    answers: Vec<u8>,
    /// Which screens have told of the present span.
    screened: Vec<bool>,
    /// By service, rule and the name that it gives: what spans belong to. The same names come again and again, and what
    /// became of one once becomes of it always.
    named: HashMap<(usize, usize), HashMap<String, Detected>>,
}

impl<'a> Detecting<'a> {
    /// Begins a round over many spans, in which what was found of one serves those like it.
    pub fn new(detector: &'a Detector) -> Self {
        let (answers, screened) = (vec![UNKNOWN; detector.tests.len()], vec![false; detector.screens.len()]);
        let (places, by_service, last) = (Vec::new(), HashMap::new(), (String::new(), None));
        let asking = Asking { detector, places, by_service, last, answers, screened, named: HashMap::new() };
        let until = Until::new(RULE_MAX);
        let watch = Watch::new(Arc::clone(&until) as _);
        Self { asking, until, watch, long: 0, gave_up: false }
    }

    /// Finds the rule that decides about a span, by its id, and what the span belongs to by it. Texts of a span that take
    /// too long say nothing ([`Self::gave_up`]).
    pub fn decide(&mut self, span: &Candidate<'_>) -> Option<(&'a str, Option<Detected>)> {
        self.gave_up = self.long >= LONG_MAX;
        let asking = &mut self.asking;
        let service = asking.places_of(span.service);
        // Most spans are no entries: what no rule looks at takes no time that is to be watched.
        if self.gave_up || asking.places[service].of(span).is_empty() {
            return None;
        }
        self.until.restart();
        let decided = self.watch.over(|| asking.decide(span, service));
        if self.watch.is_stopped() {
            self.watch = Watch::new(Arc::clone(&self.until) as _);
            self.long += 1;
            self.gave_up = true;
            return None;
        }
        decided
    }

    /// Says whether nothing is known of the last span, since it took too long or others before it did.
    pub fn gave_up(&self) -> bool {
        self.gave_up
    }
}

impl<'a> Asking<'a> {
    /// Decides about a span of a service, of which [`Self::places_of`] gave the number.
    fn decide(&mut self, span: &Candidate<'_>, service: usize) -> Option<(&'a str, Option<Detected>)> {
        let places = self.places[service].of(span);
        let (detector, answers, screened) = (self.detector, &mut self.answers, &mut self.screened);
        answers.fill(UNKNOWN);
        screened.fill(false);
        let mut ask = |test: usize| {
            if let Some(place) = detector.screens.place(test).filter(|place| !screened[*place]) {
                screened[place] = true;
                detector.screens.askers(place).iter().for_each(|asker| answers[*asker] = FAILS);
                if let Some(text) = span.fields.get(detector.screens.field(place)) {
                    detector.screens.find(place, &text, &mut |asker| {
                        answers[asker] = if detector.tests.is_told(asker) { HOLDS } else { UNKNOWN };
                    });
                }
            }
            if answers[test] == UNKNOWN {
                let found = span.fields.get(detector.tests.field(test));
                answers[test] = if detector.tests.passes(test, found.as_deref()) { HOLDS } else { FAILS };
            }
            answers[test] == HOLDS
        };
        let holds =
            |place: &&usize| detector.rules[**place].is_about(span) && detector.conditions[**place].holds(&mut ask);
        let place = *places.iter().find(holds)?;
        let rule = &detector.rules[place];
        let (name, known) = (rule.rendered(span), self.named.entry((service, place)).or_default());
        // Spans of pages may be of one name and of several kinds.
        if let Some(found) = known.get(&name).filter(|found| found.kind == span.kind) {
            return Some((&rule.id, Some(found.clone())));
        }
        let found = detector.found(rule, span, name.clone());
        if let Some(found) = found.as_ref().filter(|_| known.len() < NAMES_MAX) {
            known.insert(name, found.clone());
        }
        Some((&rule.id, found))
    }

    /// The number of the rules for a service.
    fn places_of(&mut self, service: &str) -> usize {
        if let (last, Some(number)) = &self.last
            && last == service
        {
            return *number;
        }
        let number = if let Some(number) = self.by_service.get(service) {
            *number
        } else {
            let rules = self.detector.rules.iter().enumerate().filter(|(_, rule)| rule.is_for(service));
            let mut found = Places::default();
            for (place, rule) in rules {
                found.all.push(place);
                if !rule.entries_only {
                    found.any_scope.push(place);
                }
            }
            self.places.push(found);
            self.by_service.insert(service.to_owned(), self.places.len() - 1);
            self.places.len() - 1
        };
        let (last, of_last) = &mut self.last;
        service.clone_into(last);
        *of_last = Some(number);
        number
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::collections::HashSet;

    use proptest::collection::vec;
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::DetectionRule;
    use super::*;
    use crate::condition::{FieldName, Fields};

    struct Span(Vec<(&'static str, &'static str)>);

    impl Fields for Span {
        fn get(&self, name: &FieldName) -> Option<Cow<'_, str>> {
            let name = name.to_string();
            self.0.iter().find(|(key, _)| *key == name).map(|(_, value)| Cow::Borrowed(*value))
        }
    }

    fn rules() -> Vec<DetectionRule> {
        let leaf = |field: &str, op: &str, value: serde_json::Value| json!({"field": field, "op": op, "value": value});
        let cart = leaf("path", "regex", json!(r"^/cart/(?P<cart>\d+)$"));
        let bodies = [
            json!({"service": "*", "condition": leaf("path", "glob", json!("/{area}/**")), "nameTemplate": "{area}",
                "maxNames": 2, "priority": 1}),
            json!({"service": "shop*", "condition": cart, "nameTemplate": "{method} {cart}", "maxNames": 3}),
            json!({"service": "shop-1", "condition": cart, "nameTemplate": "{path}", "scope": "any", "priority": 50}),
            json!({"service": "*", "condition": {"all": [cart, leaf("method", "eq", json!("POST"))]},
                "action": "exclude", "priority": 200}),
            json!({"condition": {"any": [leaf("method", "exists", json!(false)), {"not": cart}]}, "name": "other"}),
        ];
        let rule = |(n, body): (usize, &serde_json::Value)| {
            DetectionRule::of_json(&format!("r{n}"), body.as_object().unwrap(), "service").unwrap()
        };
        bodies.iter().enumerate().map(rule).collect()
    }

    /// What is remembered of a name is not what happened.
    #[test]
    fn one_name_of_several_kinds() {
        let body = json!({"name": "page", "application": "*",
            "condition": {"field": "path", "op": "exists", "value": true}});
        let rule = DetectionRule::of_json("r", body.as_object().unwrap(), "application").unwrap();
        let detector = Detector::new(vec![rule], HashSet::new());
        let mut detecting = Detecting::new(&detector);
        for kind in ["pageLoad", "xhr", "xhr", "pageLoad"] {
            let span = Candidate { service: "web", kind, is_entry: true, fields: &Span(vec![("path", "/")]) };
            let (_, found) = detecting.decide(&span).expect("a rule");
            assert_eq!(found.map(|found| (found.name, found.kind)), Some(("page".to_owned(), kind.to_owned())));
        }
    }

    proptest! {
        /// Many spans belong to what each of them does by itself, folded names included.
        #[test]
        fn many_spans_are_as_one_by_one(
            spans in vec((0..4_usize, any::<bool>(), vec((0..3_usize, 0..5_usize), 0..4)), 1..60),
            key in any::<bool>(),
        ) {
            let keys: HashSet<_> =
                key.then(|| ("shop-1".to_owned(), "GET 1".to_owned())).into_iter().collect();
            let (one, many) = (Detector::new(rules(), keys.clone()), Detector::new(rules(), keys));
            let mut detecting = Detecting::new(&many);
            for (service, is_entry, fields) in spans {
                let value = |n: usize| ["GET", "POST", "/cart/1", "/cart/23", "/pay/card"][n];
                let fields = fields.iter().map(|(key, n)| (["path", "method", "cart"][*key], value(*n))).collect();
                let service = ["", "shop-1", "shop-2", "pay"][service];
                let span = Candidate { service, kind: "", is_entry, fields: &Span(fields) };
                prop_assert_eq!(detecting.decide(&span), one.decide(&span));
            }
            prop_assert_eq!(one.names(), many.names());
        }
    }
}
