//! Conditions of many rules over the same rows: what several of them ask of a field needs to be asked only once per row.

use std::collections::HashMap;

use super::{Condition, FieldName, Leaf, Node, Sought};

/// The different tests of several conditions, by number.
#[derive(Debug, Default)]
pub struct SharedTests {
    leaves: Vec<Leaf>,
    /// How many conditions ask each.
    asked: Vec<usize>,
    numbers: HashMap<String, usize>,
}

/// A condition over tests that it shares with others.
#[derive(Debug, Clone)]
pub struct SharedCondition(Part);

#[derive(Debug, Clone)]
enum Part {
    All(Vec<Part>),
    Any(Vec<Part>),
    Not(Box<Part>),
    Test(usize),
}

impl SharedTests {
    /// Takes in the tests of a condition. It holds where the condition matches; its cheap tests are asked first.
    pub fn add(&mut self, condition: &Condition) -> SharedCondition {
        SharedCondition(self.part(&condition.0).1)
    }

    /// A part, and about how much time it takes.
    fn part(&mut self, node: &Node) -> (u32, Part) {
        match node {
            Node::All(parts) => self.parts(parts, Part::All),
            Node::Any(parts) => self.parts(parts, Part::Any),
            Node::Not(inner) => {
                let (cost, part) = self.part(inner);
                (cost, Part::Not(Box::new(part)))
            }
            Node::Leaf(leaf) => {
                let next = self.leaves.len();
                let number = *self.numbers.entry(leaf.key()).or_insert(next);
                if number == next {
                    self.leaves.push(Leaf::clone(leaf));
                    self.asked.push(0);
                }
                self.asked[number] += 1;
                (leaf.cost(), Part::Test(number))
            }
        }
    }

    fn parts(&mut self, nodes: &[Node], made: fn(Vec<Part>) -> Part) -> (u32, Part) {
        let mut parts: Vec<(u32, Part)> = nodes.iter().map(|node| self.part(node)).collect();
        parts.sort_by_key(|(cost, _)| *cost);
        let cost = parts.iter().map(|(cost, _)| cost).sum();
        (cost, made(parts.into_iter().map(|(_, part)| part).collect()))
    }

    /// How many different tests there are.
    pub fn len(&self) -> usize {
        self.leaves.len()
    }

    /// Says whether nothing is asked.
    pub fn is_empty(&self) -> bool {
        self.leaves.is_empty()
    }

    /// The field that a test looks at.
    pub fn field(&self, test: usize) -> &FieldName {
        &self.leaves[test].field
    }

    /// What the text of its field must have for a test to pass, where that is known.
    pub fn sought(&self, test: usize) -> Option<Sought> {
        self.leaves[test].sought()
    }

    /// Whether each text that has what is sought passes a test: who has looked for it need not ask.
    pub fn is_told(&self, test: usize) -> bool {
        self.leaves[test].is_told()
    }

    /// Says whether a test is asked more than once.
    pub fn is_shared(&self, test: usize) -> bool {
        self.asked[test] > 1
    }

    /// Says whether the text of its field, none where a row does not have it, passes a test.
    pub fn passes(&self, test: usize, found: Option<&str>) -> bool {
        self.leaves[test].passes(found)
    }
}

impl SharedCondition {
    /// Says whether it holds of a row, about which `ask` answers the tests.
    pub fn holds(&self, ask: &mut dyn FnMut(usize) -> bool) -> bool {
        self.0.holds(ask)
    }

    /// Tests of those that `has` names of which one passes wherever it holds; none: it may hold without any.
    pub fn must(&self, has: &dyn Fn(usize) -> bool) -> Option<Vec<usize>> {
        self.0.must(has)
    }

    /// The test that it is; none: it is more than one.
    pub fn only(&self) -> Option<usize> {
        if let Part::Test(test) = self.0 { Some(test) } else { None }
    }

    /// The tests that it asks.
    pub fn tests(&self) -> Vec<usize> {
        let mut found = Vec::new();
        self.0.tests(&mut found);
        found
    }
}

impl Part {
    fn holds(&self, ask: &mut dyn FnMut(usize) -> bool) -> bool {
        match self {
            Self::All(parts) => parts.iter().all(|part| part.holds(ask)),
            Self::Any(parts) => parts.iter().any(|part| part.holds(ask)),
            Self::Not(part) => !part.holds(ask),
            Self::Test(test) => ask(*test),
        }
    }

    fn must(&self, has: &dyn Fn(usize) -> bool) -> Option<Vec<usize>> {
        match self {
            Self::All(parts) => parts.iter().find_map(|part| part.must(has)),
            Self::Any(parts) => Some(parts.iter().map(|part| part.must(has)).collect::<Option<Vec<_>>>()?.concat()),
            Self::Not(_) => None,
            Self::Test(test) => has(*test).then(|| vec![*test]),
        }
    }

    fn tests(&self, into: &mut Vec<usize>) {
        match self {
            Self::All(parts) | Self::Any(parts) => parts.iter().for_each(|part| part.tests(into)),
            Self::Not(part) => part.tests(into),
            Self::Test(test) => into.push(*test),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Fields;
    use super::super::tests::Row;
    use super::*;

    /// Shared or not, conditions say the same of the same row; tests that ask the same are one.
    #[test]
    fn conditions_share_tests() {
        let leaf = |field: &str, op: &str, value: serde_json::Value| json!({"field": field, "op": op, "value": value});
        let any_case = json!({"field": "_msg", "op": "regex", "value": "REFUSED", "caseSensitive": false});
        let conditions = [
            leaf("_msg", "contains", json!("refused")),
            leaf("_msg", "contains", json!("")),
            json!({"all": [leaf("_msg", "regex", json!("REFUSED")), leaf("level", "eq", json!("error"))]}),
            json!({"all": [any_case, leaf("level", "eq", json!("error"))]}),
            json!({"any": [leaf("x", "exists", json!(true)), {"not": leaf("_msg", "contains", json!("refused"))}]}),
            json!({"not": {"all": [leaf("x", "ne", json!("a")), leaf("level", "in", json!(["info", "error"]))]}}),
            leaf("status", "ge", json!(500)),
        ];
        let rows = [
            Row(&[("_msg", "upstream refused"), ("level", "error"), ("status", "503")]),
            Row(&[("_msg", "ok"), ("level", "info"), ("x", "a"), ("status", "99")]),
            Row(&[]),
        ];
        let compiled: Vec<Condition> = conditions.iter().map(|c| Condition::parse(c).unwrap()).collect();
        let mut tests = SharedTests::default();
        let shared: Vec<SharedCondition> = compiled.iter().map(|condition| tests.add(condition)).collect();
        assert_eq!(tests.len(), 9, "{tests:?}");
        for row in &rows {
            for (n, condition) in compiled.iter().enumerate() {
                let mut ask = |test: usize| tests.passes(test, row.get(tests.field(test)).as_deref());
                assert_eq!(shared[n].holds(&mut ask), condition.matches(row), "{}", conditions[n]);
            }
        }
    }
}
