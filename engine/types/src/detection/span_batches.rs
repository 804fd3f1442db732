//! Detection over many spans: the rules for a service are determined once, and a test shared by several rules is
//! evaluated once per span.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Candidate, DetectedTransaction, Detector};
use crate::cancellation::{RULE_MAX, Until, Watch};

/// When this many spans have taken longer than [`RULE_MAX`], the remaining ones are not examined.
const LONG_MAX: u32 = 4;

/// How many names of a rule are remembered per service.
const NAMES_MAX: usize = if cfg!(test) { 2 } else { 256 };

/// The state of a test for the current span.
const UNKNOWN: u8 = 0;
const HOLDS: u8 = 1;
const FAILS: u8 = 2;

/// Indexes of rules, in order.
#[derive(Debug, Default)]
struct Places {
    /// The rules for a service.
    all: Vec<usize>,
    /// Those of them that apply to all spans, not only to entry spans.
    any_scope: Vec<usize>,
}

impl Places {
    /// The rules that apply to a span.
    fn of(&self, span: &Candidate<'_>) -> &[usize] {
        if span.is_entry { &self.all } else { &self.any_scope }
    }
}

/// Decides about one span after the other, like [`Detector::decide`].
#[derive(Debug)]
pub struct BatchDetector<'a> {
    asking: RuleEvaluation<'a>,
    until: Arc<Until>,
    watch: Watch,
    /// Number of spans that took too long.
    long: u32,
    /// Whether the last span took too long, or was not examined.
    gave_up: bool,
}

/// The rules, and what is known about the current span.
#[derive(Debug)]
struct RuleEvaluation<'a> {
    detector: &'a Detector,
    /// The rules for each service seen so far.
    places: Vec<Places>,
    by_service: HashMap<String, usize>,
    /// The service of the last span; mostly the next span has the same.
    last: (String, Option<usize>),
    answers: Vec<u8>,
    /// Which screens have been run on the current span.
    screened: Vec<bool>,
    /// The result by service, rule and generated name. The same names recur, and the same name always gives the same
    /// result.
    named: HashMap<(usize, usize), HashMap<String, DetectedTransaction>>,
}

impl<'a> BatchDetector<'a> {
    /// Starts a run over many spans, in which results are reused for similar spans.
    pub fn new(detector: &'a Detector) -> Self {
        let (answers, screened) = (vec![UNKNOWN; detector.tests.len()], vec![false; detector.screens.len()]);
        let (places, by_service, last) = (Vec::new(), HashMap::new(), (String::new(), None));
        let asking = RuleEvaluation { detector, places, by_service, last, answers, screened, named: HashMap::new() };
        let until = Until::new(RULE_MAX);
        let watch = Watch::new(Arc::clone(&until) as _);
        Self { asking, until, watch, long: 0, gave_up: false }
    }

    /// Returns the id of the rule that applies to a span, with what the span belongs to. Returns nothing if its texts
    /// take too long ([`Self::gave_up`]).
    pub fn decide(&mut self, span: &Candidate<'_>) -> Option<(&'a str, Option<DetectedTransaction>)> {
        self.gave_up = self.long >= LONG_MAX;
        let asking = &mut self.asking;
        let service = asking.places_of(span.service);
        // Most spans are not entry spans; if no rule applies there is no time to be limited.
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

    /// Tells whether the last span has no result because it, or earlier ones, took too long.
    pub fn gave_up(&self) -> bool {
        self.gave_up
    }
}

impl<'a> RuleEvaluation<'a> {
    /// Decides about a span; `service` is the number from [`Self::places_of`].
    fn decide(&mut self, span: &Candidate<'_>, service: usize) -> Option<(&'a str, Option<DetectedTransaction>)> {
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
        // Spans of web pages may have the same name and different kinds.
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
        let mut detecting = BatchDetector::new(&detector);
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
            let mut detecting = BatchDetector::new(&many);
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
