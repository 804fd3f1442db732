//! Conditions of many rules over the same rows: a test that several of them contain needs to be evaluated only once per
//! row.

use std::collections::HashMap;

use super::{Condition, FieldName, Leaf, Node, RequiredText};

/// The distinct tests of several conditions, by number.
#[derive(Debug, Default)]
pub struct SharedTests {
    leaves: Vec<Leaf>,
    /// How many conditions use each test.
    asked: Vec<usize>,
    numbers: HashMap<String, usize>,
}

/// A condition over shared tests.
#[derive(Debug, Clone)]
pub struct SharedCondition(TestTree);

#[derive(Debug, Clone)]
enum TestTree {
    All(Vec<TestTree>),
    Any(Vec<TestTree>),
    Not(Box<TestTree>),
    Test(usize),
}

impl SharedTests {
    /// Adds the tests of a condition. The result matches exactly where the condition does; it evaluates cheap tests
    /// first.
    pub fn add(&mut self, condition: &Condition) -> SharedCondition {
        SharedCondition(self.part(&condition.0).1)
    }

    /// Converts a part of a condition; also returns its estimated cost.
    fn part(&mut self, node: &Node) -> (u32, TestTree) {
        match node {
            Node::All(parts) => self.parts(parts, TestTree::All),
            Node::Any(parts) => self.parts(parts, TestTree::Any),
            Node::Not(inner) => {
                let (cost, part) = self.part(inner);
                (cost, TestTree::Not(Box::new(part)))
            }
            Node::Leaf(leaf) => {
                let next = self.leaves.len();
                let number = *self.numbers.entry(leaf.key()).or_insert(next);
                if number == next {
                    self.leaves.push(Leaf::clone(leaf));
                    self.asked.push(0);
                }
                self.asked[number] += 1;
                (leaf.cost(), TestTree::Test(number))
            }
        }
    }

    fn parts(&mut self, nodes: &[Node], made: fn(Vec<TestTree>) -> TestTree) -> (u32, TestTree) {
        let mut parts: Vec<(u32, TestTree)> = nodes.iter().map(|node| self.part(node)).collect();
        parts.sort_by_key(|(cost, _)| *cost);
        let cost = parts.iter().map(|(cost, _)| cost).sum();
        (cost, made(parts.into_iter().map(|(_, part)| part).collect()))
    }

    /// Number of distinct tests.
    pub fn len(&self) -> usize {
        self.leaves.len()
    }

    /// Tells whether there are no tests.
    pub fn is_empty(&self) -> bool {
        self.leaves.is_empty()
    }

    /// The field that a test examines.
    pub fn field(&self, test: usize) -> &FieldName {
        &self.leaves[test].field
    }

    /// What the field's text must contain for a test to pass, if known.
    pub fn sought(&self, test: usize) -> Option<RequiredText> {
        self.leaves[test].sought()
    }

    /// Whether every text with that content passes, so that the test itself need not be evaluated.
    pub fn is_told(&self, test: usize) -> bool {
        self.leaves[test].is_told()
    }

    /// Tells whether several conditions use a test.
    pub fn is_shared(&self, test: usize) -> bool {
        self.asked[test] > 1
    }

    /// Tells whether the field's text (`None` if the row lacks the field) passes a test.
    pub fn passes(&self, test: usize, found: Option<&str>) -> bool {
        self.leaves[test].passes(found)
    }
}

impl SharedCondition {
    /// Tells whether the condition matches a row; `ask` evaluates its tests.
    pub fn holds(&self, ask: &mut dyn FnMut(usize) -> bool) -> bool {
        self.0.holds(ask)
    }

    /// Tests, among those for which `has` is true, of which at least one passes whenever the condition matches; `None`
    /// if it may match without any.
    pub fn must(&self, has: &dyn Fn(usize) -> bool) -> Option<Vec<usize>> {
        self.0.must(has)
    }

    /// Its only test; `None` if it has several.
    pub fn only(&self) -> Option<usize> {
        if let TestTree::Test(test) = self.0 { Some(test) } else { None }
    }

    /// The tests it uses.
    pub fn tests(&self) -> Vec<usize> {
        let mut found = Vec::new();
        self.0.tests(&mut found);
        found
    }
}

impl TestTree {
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
