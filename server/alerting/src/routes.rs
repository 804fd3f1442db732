//! The routing tree: which alerts go to which receiver, and how they are grouped.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use quiver_types::{LabelSet, MatchOp};
use quiver_yaml::problem::{Code, Place, Problems};
use quiver_yaml::{Fields, Node, pointer};

use crate::labels;
use crate::matcher_fields::{ReadContext, read_match, read_matchers};
use crate::matchers::Matchers;
use crate::matchers::equal_index::EqualIndex;

/// A route as it is written; what is absent is inherited.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RouteConfig {
    /// Its position in the file.
    pub place: Place,
    /// Name of the receiver; the root must name one.
    pub receiver: Option<String>,
    /// Labels to group by; an explicit empty list overrides.
    pub group_by: Option<Vec<String>>,
    /// Group by all labels.
    pub group_by_all: bool,
    /// Matchers, those of `match` and `match_re` included.
    pub matchers: Matchers,
    /// Time before the first message of a group.
    pub group_wait_ms: Option<i64>,
    /// Time between messages of a group.
    pub group_interval_ms: Option<i64>,
    /// Time after which a message is sent again though nothing has changed.
    pub repeat_interval_ms: Option<i64>,
    /// Whether siblings behind it are tried, too.
    pub continues: bool,
    /// Names of intervals in which it is muted.
    pub mute_time_intervals: Vec<String>,
    /// Names of the only intervals in which it is active.
    pub active_time_intervals: Vec<String>,
    /// Labels of the route, templates.
    pub labels: BTreeMap<String, String>,
    /// Routes below it, of which the first that matches takes an alert.
    pub routes: Vec<RouteConfig>,
}

/// Options of a route with what it inherits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RouteOptions {
    /// Name of the receiver that is told.
    pub receiver: String,
    /// Labels to group by; none beside `group_by_all`.
    pub group_by: BTreeSet<String>,
    /// Group by all labels.
    pub group_by_all: bool,
    /// Time before the first message of a group.
    pub group_wait_ms: i64,
    /// Time between messages of a group.
    pub group_interval_ms: i64,
    /// Time after which a message is sent again though nothing has changed.
    pub repeat_interval_ms: i64,
    /// Names of intervals in which it is muted.
    pub mute_time_intervals: Vec<String>,
    /// Names of the only intervals in which it is active.
    pub active_time_intervals: Vec<String>,
    /// Labels, those of its parents included.
    pub labels: BTreeMap<String, String>,
}

impl Default for RouteOptions {
    fn default() -> Self {
        Self {
            receiver: String::new(),
            group_by: BTreeSet::new(),
            group_by_all: false,
            group_wait_ms: 30_000,
            group_interval_ms: 300_000,
            repeat_interval_ms: 14_400_000,
            mute_time_intervals: Vec::new(),
            active_time_intervals: Vec::new(),
            labels: BTreeMap::new(),
        }
    }
}

/// The numbers of the routes that labels take, ascending. Finding them checks every route that no label rules out.
pub type TakenRoutes = HashMap<LabelSet, Box<[usize]>>;

/// A route in the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Its number: children are counted before their parents.
    pub idx: usize,
    /// Matchers of the routes from the root on: the first part of group keys.
    pub key: String,
    /// Options with what it inherits.
    pub options: RouteOptions,
    /// Its own matchers.
    pub matchers: Matchers,
    /// Whether siblings behind it are tried, too.
    pub continues: bool,
    /// Routes below it, in the order in which they are tried.
    pub routes: Vec<Route>,
    /// Which of them may match.
    by_labels: EqualIndex,
}

impl Route {
    /// Builds the tree.
    pub fn new(config: &RouteConfig) -> Self {
        Self::build(config, &RouteOptions::default(), None, &mut 0)
    }

    fn build(config: &RouteConfig, parent: &RouteOptions, key: Option<&str>, counter: &mut usize) -> Self {
        let mut options = parent.clone();
        options.labels.extend(config.labels.iter().map(|(n, v)| (n.clone(), v.clone())));
        if let Some(receiver) = &config.receiver {
            options.receiver.clone_from(receiver);
        }
        if let Some(names) = &config.group_by {
            options.group_by = names.iter().cloned().collect();
            options.group_by_all = false;
        } else if config.group_by_all {
            // What was inherited means nothing beside all labels.
            options.group_by.clear();
            options.group_by_all = true;
        }
        options.group_wait_ms = config.group_wait_ms.unwrap_or(options.group_wait_ms);
        options.group_interval_ms = config.group_interval_ms.unwrap_or(options.group_interval_ms);
        options.repeat_interval_ms = config.repeat_interval_ms.unwrap_or(options.repeat_interval_ms);
        // Times are not inherited.
        options.mute_time_intervals.clone_from(&config.mute_time_intervals);
        options.active_time_intervals.clone_from(&config.active_time_intervals);
        let key = match key {
            Some(parent) => format!("{parent}/{}", config.matchers),
            None => config.matchers.to_string(),
        };
        let routes = config.routes.iter().map(|child| Self::build(child, &options, Some(&key), counter)).collect();
        let idx = *counter;
        *counter += 1;
        let by_labels = EqualIndex::new(config.routes.iter().map(|child| &child.matchers));
        Self { idx, key, options, matchers: config.matchers.clone(), continues: config.continues, routes, by_labels }
    }

    /// Finds the routes that take an alert, in order; the root takes what nothing else takes.
    pub fn matching<'a>(&'a self, labels: &LabelSet) -> Vec<&'a Self> {
        let mut out = Vec::new();
        self.collect(labels, &mut out);
        out
    }

    /// As [`Self::matching`], where they were found before.
    pub fn matching_known<'a>(&'a self, labels: &LabelSet, known: &TakenRoutes) -> Vec<&'a Self> {
        match known.get(labels) {
            Some(numbers) => self.by_numbers(numbers),
            None => self.matching(labels),
        }
    }

    /// Gives the numbers of the routes that labels take, in order.
    pub fn numbers(&self, labels: &LabelSet) -> Box<[usize]> {
        self.matching(labels).into_iter().map(|route| route.idx).collect()
    }

    /// Finds routes by their numbers.
    pub fn by_numbers(&self, numbers: &[usize]) -> Vec<&Self> {
        numbers.iter().filter_map(|idx| self.at(*idx)).collect()
    }

    /// Gives how many routes there are.
    pub fn count(&self) -> usize {
        self.idx + 1
    }

    /// Finds a route by its number.
    fn at(&self, idx: usize) -> Option<&Self> {
        if self.idx == idx {
            return Some(self);
        }
        // A route is numbered after all routes below it.
        let below = self.routes.partition_point(|child| child.idx < idx);
        self.routes.get(below)?.at(idx)
    }

    fn collect<'a>(&'a self, labels: &LabelSet, out: &mut Vec<&'a Self>) -> bool {
        if !self.matchers.matches(labels) {
            return false;
        }
        let before = out.len();
        for child in self.by_labels.candidates(labels).into_iter().filter_map(|at| self.routes.get(at)) {
            if child.collect(labels, out) && !child.continues {
                break;
            }
        }
        if out.len() == before {
            out.push(self);
        }
        true
    }

    /// Walks the tree, parents first.
    pub fn walk<'a>(&'a self, visit: &mut dyn FnMut(&'a Self)) {
        visit(self);
        self.routes.iter().for_each(|child| child.walk(visit));
    }

    /// Gives the labels by which an alert is grouped here.
    pub fn group_labels(&self, labels: &LabelSet) -> LabelSet {
        let grouped = |name: &str| self.options.group_by_all || self.options.group_by.contains(name);
        LabelSet::from_pairs(labels.iter().filter(|(name, _)| grouped(name)))
    }

    /// Gives about how many bytes the groups take in which an alert is at the routes that take it, if it is alone in them. What
    /// the first of them takes counts with the alert, but for the longest keys.
    pub fn groups_bytes(taken: &[&Self], labels: &LabelSet) -> usize {
        let group = GROUP_BYTES + 2 * labels.canonical().len();
        let keys: usize = taken.iter().map(|route| 2 * route.key.len().saturating_sub(KEY_BYTES)).sum();
        group.saturating_mul(taken.len().saturating_sub(1)).saturating_add(keys)
    }

    /// Gives the key of a group.
    pub fn group_key(&self, group_labels: &LabelSet) -> String {
        format!("{}:{}", self.key, labels::show(group_labels))
    }
}

/// What a group takes beside its labels, which stand in its key and in that of what was told of it.
const GROUP_BYTES: usize = 512;
/// Bytes that the key of a route takes at most without being counted for each group.
const KEY_BYTES: usize = 256;
/// Most levels of nested routes; deeper ones are refused.
const DEPTH_MAX: usize = 60;
/// Bytes that a route takes besides its texts.
const OWN_BYTES: usize = 500;
/// Bytes that an entry of a list or mapping takes besides its texts.
const ENTRY_BYTES: usize = 64;

/// Bytes of what the routes below one inherit.
#[derive(Debug, Clone, Copy, Default)]
struct InheritedBytes {
    receiver: usize,
    group_by: usize,
    labels: usize,
    key: usize,
}

impl RouteConfig {
    /// Reads a route with its children.
    pub fn read(node: &Node, path: &str, reading: &mut ReadContext, problems: &mut Problems) -> Self {
        Self::read_at(node, path, 0, reading, problems)
    }

    fn read_at(node: &Node, path: &str, depth: usize, reading: &mut ReadContext, problems: &mut Problems) -> Self {
        let mut out = Self { place: node.place, ..Self::default() };
        if depth > DEPTH_MAX {
            problems.push(node.problem(path, Code::InvalidValue, format!("routes are nested deeper than {DEPTH_MAX}")));
            return out;
        }
        let Some(mut fields) = Fields::new(node, path, problems) else { return out };
        out.receiver = fields.text("receiver", problems).filter(|r| !r.is_empty());
        out.read_group_by(&mut fields, problems);
        let mut found = read_match(&mut fields, "match", MatchOp::Equal, reading, problems);
        found.extend(read_match(&mut fields, "match_re", MatchOp::Regex, reading, problems));
        found.extend(read_matchers(&mut fields, "matchers", reading, problems));
        out.matchers = Matchers::new(found);
        out.mute_time_intervals = fields.texts("mute_time_intervals", problems).unwrap_or_default();
        out.active_time_intervals = fields.texts("active_time_intervals", problems).unwrap_or_default();
        out.continues = fields.truth("continue", problems).unwrap_or(false);
        out.group_wait_ms = fields.duration_ms("group_wait", problems);
        out.group_interval_ms = fields.duration_ms("group_interval", problems);
        out.repeat_interval_ms = fields.duration_ms("repeat_interval", problems);
        for (name, value) in [("group_interval", out.group_interval_ms), ("repeat_interval", out.repeat_interval_ms)] {
            if value == Some(0) {
                fields.problem(name, Code::OutOfRange, format!("{name} cannot be zero"), problems);
            }
        }
        out.labels = fields.text_map("labels", problems).unwrap_or_default();
        if out.labels.contains_key("") {
            fields.problem("labels", Code::InvalidValue, "invalid label name \"\" in route labels", problems);
        }
        for (name, text) in &out.labels {
            let mut templates = crate::template::Templates::new(crate::template::MESSAGE_FUNCTIONS);
            if let Err(e) = templates.add(name, text) {
                fields.problem("labels", Code::InvalidTemplate, format!("label \"{name}\": {e}"), problems);
            }
        }
        let children = fields.list("routes", problems).unwrap_or_default();
        let children_path = fields.path_of("routes");
        fields.finish(problems);
        let child =
            |(i, node): (usize, &Node)| Self::read_at(node, &pointer(&children_path, i), depth + 1, reading, problems);
        out.routes = children.iter().enumerate().map(child).collect();
        out
    }

    fn read_group_by(&mut self, fields: &mut Fields<'_>, problems: &mut Problems) {
        let Some(names) = fields.texts("group_by", problems) else { return };
        let mut problem = |message: String| fields.problem("group_by", Code::InvalidValue, message, problems);
        self.group_by_all = names.iter().any(|n| n == "...");
        let labels: Vec<String> = names.iter().filter(|n| *n != "...").cloned().collect();
        if labels.iter().any(String::is_empty) {
            problem("invalid label name \"\" in group_by list".to_owned());
        }
        if self.group_by_all && !labels.is_empty() {
            problem("cannot have wildcard group_by (`...`) and other labels at the same time".to_owned());
        }
        let mut seen = HashSet::new();
        labels
            .iter()
            .filter(|name| !seen.insert(name.as_str()))
            .for_each(|name| problem(format!("duplicated label \"{name}\" in group_by")));
        self.group_by = (!self.group_by_all).then_some(labels);
    }

    /// The approximate memory of the tree that is built of it, in bytes: each route has what it inherits as its own.
    pub(crate) fn tree_bytes(&self) -> usize {
        self.bytes_below(InheritedBytes::default())
    }

    fn bytes_below(&self, mut inherited: InheritedBytes) -> usize {
        let texts = |names: &[String]| names.iter().map(|name| ENTRY_BYTES + name.len()).sum::<usize>();
        inherited.receiver = self.receiver.as_ref().map_or(inherited.receiver, String::len);
        match &self.group_by {
            Some(names) => inherited.group_by = texts(names),
            None if self.group_by_all => inherited.group_by = 0,
            None => {}
        }
        let labels = self.labels.iter().map(|(name, text)| 2 * ENTRY_BYTES + name.len() + text.len());
        inherited.labels = inherited.labels.saturating_add(labels.sum());
        let matchers = self.matchers.to_string().len();
        inherited.key = inherited.key.saturating_add(1 + matchers);
        let own = OWN_BYTES + matchers + texts(&self.mute_time_intervals) + texts(&self.active_time_intervals);
        let parts = [inherited.receiver, inherited.group_by, inherited.labels, inherited.key];
        let children = self.routes.iter().map(|child| child.bytes_below(inherited));
        parts.into_iter().chain(children).fold(own, usize::saturating_add)
    }

    /// Walks the tree, children first, with the path of each.
    pub fn walk(&self, path: &str, visit: &mut dyn FnMut(&Self, &str)) {
        for (i, child) in self.routes.iter().enumerate() {
            child.walk(&format!("{path}/routes/{i}"), visit);
        }
        visit(self, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiver_yaml as yaml;

    fn tree(text: &str) -> Route {
        let mut problems = Problems::default();
        let node = yaml::read(text).expect(text).remove(0);
        let config = RouteConfig::read(&node, "/route", &mut ReadContext::default(), &mut problems);
        assert!(problems.is_empty(), "{problems}");
        Route::new(&config)
    }

    #[test]
    fn inherited_options_and_keys() {
        let tree = tree(
            "receiver: a\ngroup_by: [x, y]\nmute_time_intervals: [m]\nlabels: {t: 1}\nroutes:\n- match: {o: A}\n  match_re: {p: 'b|c'}\n  group_wait: 1m\n  continue: true\n  labels: {u: 2}\n  routes:\n  - group_by: [...]\n    matchers: ['q=\"1\"']\n- receiver: z\n  group_by: []\n",
        );
        let check = |labels: &[(&str, &str)], expected: &[&str]| {
            let labels = LabelSet::from_pairs(labels.iter().copied());
            let got: Vec<String> = tree
                .matching(&labels)
                .iter()
                .map(|r| format!("{} {}", r.options.receiver, r.group_key(&r.group_labels(&labels))))
                .collect();
            assert_eq!(got, expected);
        };
        let inner = "{}/{o=\"A\",p=~\"^(?:b|c)$\"}";
        check(&[("o", "A"), ("p", "b"), ("x", "1")], &[&format!("a {inner}:{{x=\"1\"}}"), "z {}/{}:{}"]);
        check(
            &[("o", "A"), ("p", "c"), ("q", "1")],
            &[&format!("a {inner}/{{q=\"1\"}}:{{o=\"A\", p=\"c\", q=\"1\"}}"), "z {}/{}:{}"],
        );
        check(&[("o", "B")], &["z {}/{}:{}"]);
        let child = &tree.routes[0];
        assert_eq!(
            (child.options.group_wait_ms, child.options.mute_time_intervals.len(), child.options.labels.len()),
            (60_000, 0, 2)
        );
        assert_eq!((tree.idx, child.idx, child.routes[0].idx), (3, 1, 0));
        let all = &child.routes[0].options;
        assert_eq!((all.group_by_all, all.group_by.len(), child.options.group_by.len()), (true, 0, 2));
    }

    /// Each route has a copy of what it inherits: few bytes of text can be very many of memory.
    #[test]
    fn memory_of_a_tree() {
        let bytes = |text: &str| {
            let node = yaml::read(text).expect(text).remove(0);
            RouteConfig::read(&node, "", &mut ReadContext::default(), &mut Problems::default()).tree_bytes()
        };
        let (long, children) = ("x".repeat(1000), "{continue: true},".repeat(100));
        for inherited in [format!("receiver: {long}"), format!("group_by: [{long}]"), format!("labels: {{a: {long}}}")]
        {
            let whole = bytes(&format!("{{{inherited}, routes: [{children}]}}"));
            assert!((100_000..200_000 + 101 * OWN_BYTES).contains(&whole), "{inherited}: {whole}");
        }
        // So has the key of a route that of its parents.
        let keyed = bytes(&format!("{{routes: [{{match: {{a: {long}}}, routes: [{children}]}}]}}"));
        assert!((100_000..200_000 + 102 * OWN_BYTES).contains(&keyed), "{keyed}");
        assert!(bytes(&format!("{{receiver: {long}, group_by: [{long}]}}")) < 3 * 1000 + OWN_BYTES);
        let own = "{receiver: a, group_by: [b], group_wait: 1m},".repeat(100);
        let other = bytes(&format!("{{receiver: {long}, group_by: [{long}], routes: [{own}]}}"));
        assert!(other < 100_000, "what it says itself is not inherited: {other}");
    }

    #[test]
    fn refused() {
        let check = |text: &str, expected: &str| {
            let mut problems = Problems::default();
            let node = yaml::read(text).expect(text).remove(0);
            RouteConfig::read(&node, "/route", &mut ReadContext::default(), &mut problems);
            assert!(problems.to_string().contains(expected), "{text}: {problems}");
        };
        check("group_by: [a, ...]", "cannot have wildcard group_by");
        check("group_by: [a, a]", "duplicated label \"a\"");
        check("repeat_interval: 0s", "repeat_interval cannot be zero");
        check("match_re: {a: }", "invalid regexp value for \"a\"");
        check("match_re: {a: '['}", "regular expression");
        check("matchers: ['a']", "1:12: bad matcher format: a");
        check("foo: 1", "unknown field `foo`");
        check("routes: [{group_wait: 1}]", "not a valid duration string: \"1\"");
    }

    /// The tree of Alertmanager's own tests of routes: who is told of what.
    #[test]
    fn alertmanagers_own_tree() {
        let tree = tree(
            "receiver: notify-def\nroutes:\n\
            - match: {owner: team-A}\n  receiver: notify-A\n  routes:\n  \
            - match: {env: testing}\n    receiver: notify-testing\n    group_by: [...]\n  \
            - match: {env: production}\n    receiver: notify-productionA\n    group_wait: 1m\n    continue: true\n  \
            - match_re: {env: 'produ.*', job: '.*'}\n    receiver: notify-productionB\n    group_wait: 30s\n    \
            group_interval: 5m\n    repeat_interval: 1h\n    group_by: [job]\n\
            - match_re: {owner: 'team-(B|C)'}\n  group_by: [foo, bar]\n  group_wait: 2m\n  receiver: notify-BC\n\
            - match: {group_by: role}\n  group_by: [role]\n  routes:\n  \
            - match: {env: testing}\n    receiver: notify-testing\n    routes:\n    \
            - match: {wait: long}\n      group_wait: 2m\n",
        );
        let check = |labels: &[(&str, &str)], expected: &[(&str, &[&str], i64)]| {
            let labels = LabelSet::from_pairs(labels.iter().copied());
            let found = tree.matching(&labels);
            let got: Vec<(&str, Vec<&str>, i64)> = found
                .iter()
                .map(|r| {
                    let by = r.options.group_by.iter().map(String::as_str).collect();
                    (r.options.receiver.as_str(), by, r.options.group_wait_ms / 1000)
                })
                .collect();
            let expected: Vec<(&str, Vec<&str>, i64)> =
                expected.iter().map(|(name, by, wait)| (*name, by.to_vec(), *wait)).collect();
            assert_eq!(got, expected, "{labels:?}");
        };
        let owner = ("owner", "team-A");
        check(&[owner], &[("notify-A", &[], 30)]);
        check(&[owner, ("env", "unset")], &[("notify-A", &[], 30)]);
        check(&[("owner", "team-C")], &[("notify-BC", &["bar", "foo"], 120)]);
        check(&[("owner", "team-X")], &[("notify-def", &[], 30)]);
        check(&[], &[("notify-def", &[], 30)]);
        check(&[owner, ("env", "testing")], &[("notify-testing", &[], 30)]);
        let both: &[(&str, &[&str], i64)] = &[("notify-productionA", &[], 60), ("notify-productionB", &["job"], 30)];
        check(&[owner, ("env", "production")], both);
        check(&[owner, ("env", "produce")], &[("notify-productionB", &["job"], 30)]);
        check(&[("group_by", "role")], &[("notify-def", &["role"], 30)]);
        let role = ("group_by", "role");
        check(&[role, ("env", "testing")], &[("notify-testing", &["role"], 30)]);
        check(&[role, ("env", "testing"), ("wait", "long")], &[("notify-testing", &["role"], 120)]);
        // Names and values are told apart by case.
        check(&[("Owner", "team-A")], &[("notify-def", &[], 30)]);
        check(&[("owner", "Team-A")], &[("notify-def", &[], 30)]);
    }

    #[test]
    fn routes_by_their_numbers() {
        let tree = tree(
            "receiver: r\nroutes:\n- matchers: ['a=1']\n  continue: true\n  routes: [{}, {routes: [{}]}]\n- {}\n\
            - routes: [{}]\n",
        );
        let mut walked = Vec::new();
        tree.walk(&mut |route| walked.push(route));
        assert_eq!((walked.len(), tree.count()), (8, 8));
        for route in walked {
            assert!(tree.at(route.idx).is_some_and(|found| std::ptr::eq(found, route)), "{}", route.idx);
        }
        assert!(tree.at(8).is_none());
        let labels = LabelSet::from_pairs([("a", "1")]);
        let shown = |routes: Vec<&Route>| routes.into_iter().map(|route| route.idx).collect::<Vec<_>>();
        let numbers = tree.numbers(&labels);
        assert_eq!(*numbers, *shown(tree.matching(&labels)));
        let known = TakenRoutes::from([(labels.clone(), Box::from([6, 1]))]);
        assert_eq!(shown(tree.matching_known(&labels, &known)), [6, 1], "they are not looked for");
        assert_eq!(*numbers, *shown(tree.matching_known(&labels, &TakenRoutes::new())));
    }

    #[test]
    fn what_is_inherited() {
        let tree = tree(
            "receiver: r\ngroup_by: [...]\ngroup_wait: 0s\nrepeat_interval: 1h\nlabels: {a: x, b: x}\nroutes:\n\
            - matchers: ['a=1']\n  labels: {b: y}\n  active_time_intervals: [t]\n  routes:\n  - {}\n\
            - group_by: [job]\n",
        );
        let root = &tree.options;
        assert_eq!((root.group_wait_ms, root.group_interval_ms, root.repeat_interval_ms), (0, 300_000, 3_600_000));
        let child = &tree.routes[0].options;
        assert!(child.group_by_all && child.receiver == "r" && child.active_time_intervals == ["t"]);
        assert_eq!((child.labels["a"].as_str(), child.labels["b"].as_str()), ("x", "y"));
        let grandchild = &tree.routes[0].routes[0];
        assert!(grandchild.options.active_time_intervals.is_empty(), "times are of one route");
        assert_eq!((grandchild.options.labels["b"].as_str(), grandchild.options.group_wait_ms), ("y", 0));
        assert_eq!(grandchild.key, "{}/{a=\"1\"}/{}");
        let sibling = &tree.routes[1].options;
        assert!(!sibling.group_by_all, "names take the place of all labels");
        assert_eq!(sibling.group_by.iter().collect::<Vec<_>>(), ["job"]);
        let defaults = Route::new(&RouteConfig::default()).options;
        let times = (defaults.group_wait_ms, defaults.group_interval_ms, defaults.repeat_interval_ms);
        assert_eq!(times, (30_000, 300_000, 14_400_000));
    }

    /// A label by which is grouped and that an alert lacks does not show in its group.
    #[test]
    fn labels_of_groups() {
        let by = |group_by: &str, expected: &str| {
            let tree = tree(&format!("receiver: r\ngroup_by: {group_by}\n"));
            let labels = LabelSet::from_pairs([("a", "1"), ("b", "x\"y"), ("job", "j")]);
            assert_eq!(tree.group_key(&tree.group_labels(&labels)), expected, "{group_by}");
        };
        by("[]", "{}:{}");
        by("[a]", "{}:{a=\"1\"}");
        by("[job, a]", "{}:{a=\"1\", job=\"j\"}");
        by("[a, none]", "{}:{a=\"1\"}");
        by("[none]", "{}:{}");
        by("[b]", "{}:{b=\"x\\\"y\"}");
        by("[...]", "{}:{a=\"1\", b=\"x\\\"y\", job=\"j\"}");
    }

    #[test]
    fn matchers_in_all_forms() {
        let key = |text: &str, expected: &str| assert_eq!(tree(text).key, expected, "{text}");
        key("match: {b: x, a: y}", "{a=\"y\",b=\"x\"}");
        key("match: {a: 1, b: true, c: 1.50}", "{a=\"1\",b=\"true\",c=\"1.50\"}");
        key("match: {a: ''}", "{a=\"\"}");
        key("match_re: {a: 'x|y'}", "{a=~\"^(?:x|y)$\"}");
        key("matchers: ['a=~\"x|y\"', 'b!=1,c!~z']", "{a=~\"x|y\",b!=\"1\",c!~\"z\"}");
        key("matchers: ['{a=1}', '{b=2}']", "{a=\"1\",b=\"2\"}");
        key("matchers: [{name: a, value: x}]", "{a=\"x\"}");
        key("matchers: [{name: a, value: x, isEqual: false}]", "{a!=\"x\"}");
        key("matchers: [{name: a, value: x, isRegex: true}]", "{a=~\"x\"}");
        key("matchers: [{name: a, value: x, isRegex: true, isEqual: false}]", "{a!~\"x\"}");
        key("matchers: [{name: a}]", "{a=\"\"}");
        key("{match: {a: 1}, match_re: {a: 1}, matchers: ['a!=2']}", "{a=\"1\",a!=\"2\",a=~\"^(?:1)$\"}");
        key("{}", "{}");
        let mut reading = ReadContext::default();
        let node = yaml::read("{matchers: ['a=x y'], routes: [{matchers: ['b=\"\\w\"']}]}").expect("valid").remove(0);
        RouteConfig::read(&node, "/route", &mut reading, &mut Problems::default());
        assert_eq!(reading.warnings.len(), 2, "{reading:?}");
    }

    #[test]
    fn refused_with_its_place() {
        let check = |text: &str, path: &str, expected: &str| {
            let mut problems = Problems::default();
            let node = yaml::read(text).expect(text).remove(0);
            RouteConfig::read(&node, "/route", &mut ReadContext::default(), &mut problems);
            let told: Vec<String> = problems.iter().map(|p| format!("{} {}", p.path, p.message)).collect();
            assert_eq!(told.len(), 1, "{text}: {told:?}");
            assert!(told[0].starts_with(&format!("{path} ")) && told[0].contains(expected), "{text}: {told:?}");
        };
        check("group_by: ['']", "/route/group_by", "invalid label name \"\"");
        check("group_interval: 0s", "/route/group_interval", "group_interval cannot be zero");
        check("group_wait: -1s", "/route/group_wait", "not a valid duration");
        check("group_wait: 1.5s", "/route/group_wait", "");
        check("match: [a]", "/route/match", "wanted a mapping, got a list");
        check("match: {'': x}", "/route/match/", "invalid label name \"\"");
        check("match: {a: [x]}", "/route/match/a", "wanted a text");
        check("match: {a/b: [x]}", "/route/match/a~1b", "wanted a text");
        check("matchers: [[x]]", "/route/matchers/0", "wanted a text, got a list");
        check("matchers: ['a=1', 'b']", "/route/matchers/1", "bad matcher format: b");
        check("matchers: ['a=~\"(\"']", "/route/matchers/0", "");
        check("matchers: [{value: x}]", "/route/matchers/0", "a matcher needs a name");
        check("matchers: [{name: a, isregex: true}]", "/route/matchers/0/isregex", "unknown field `isregex`");
        check("labels: {'': x}", "/route/labels", "invalid label name \"\" in route labels");
        check("labels: {a: '{{ .B'}", "/route/labels", "label \"a\": ");
        check("labels: {a: '{{ humanize 1 }}'}", "/route/labels", "function \"humanize\" not defined");
        check("routes: [{}, {continue: maybe}]", "/route/routes/1/continue", "");
        check("routes: [{routes: [{Match: {a: b}}]}]", "/route/routes/0/routes/0/Match", "unknown field `Match`");
    }
}
