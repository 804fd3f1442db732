//! Silences: they mute matching alerts for a period of time.

use std::collections::BTreeMap;
use std::sync::Arc;

use quiver_types::matcher::{held_bytes, translate};
use quiver_types::{LabelSet, MatchOp, Matcher};

use crate::matchers::Matchers;

/// How long an expired silence is kept.
pub const RETENTION_NS: i64 = 120 * 3600 * 1_000_000_000;
/// Most bytes of names and values of the matchers of one: silences are held for days.
const MATCHERS_BYTES_MAX: usize = 16 << 10;

/// A silence. Times are nanoseconds since 1970.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Silence {
    /// Its id; empty: it is a new one, which [`Silences::set`] gives an id.
    pub id: String,
    /// The matchers that an alert must satisfy to be silenced.
    pub matchers: Matchers,
    /// When it begins to mute; of a new one not before it is made.
    pub starts_at: i64,
    /// When it ends; at this time it mutes no more.
    pub ends_at: i64,
    /// When it was changed last.
    pub updated_at: i64,
    /// Name of the author, as given by the client.
    pub created_by: String,
    /// Why, in words of who made it.
    pub comment: String,
    /// What else there is to say.
    pub description: String,
    /// Free labels, by which lists are filtered.
    pub labels: BTreeMap<String, String>,
    /// What Alertmanager's API keeps beside it.
    pub annotations: BTreeMap<String, String>,
    /// +1 per change.
    pub version: i64,
    /// When it was made.
    pub created_at: i64,
    /// Who changed it last.
    pub updated_by: String,
}

/// State of a silence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SilenceState {
    /// It mutes: its start is reached, its end is not.
    Active,
    /// Its start is not reached.
    Pending,
    /// Its end is reached.
    Expired,
}

impl SilenceState {
    /// Gives the word of the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Pending => "pending",
            Self::Expired => "expired",
        }
    }
}

impl Silence {
    /// Gives its state at a time.
    pub fn state(&self, now: i64) -> SilenceState {
        if now >= self.ends_at {
            SilenceState::Expired
        } else if now < self.starts_at {
            SilenceState::Pending
        } else {
            SilenceState::Active
        }
    }

    /// The services to whose alerts it is limited. The first label of `names` that is not empty names the service of an alert,
    /// so a matcher on a later label counts only if others require the labels before it to be empty.
    pub fn services<'s>(&'s self, names: &'s [String]) -> impl Iterator<Item = &'s str> {
        let equal = move |name: &'s String| {
            let is_equal = move |m: &&'s Matcher| m.op == MatchOp::Equal && m.name == *name;
            self.matchers.iter().filter(is_equal).map(|m| m.value.as_str())
        };
        let last = names.iter().position(|name| !equal(name).any(str::is_empty));
        let reached = last.map_or(names.len(), |last| last + 1);
        names[..reached].iter().flat_map(equal).filter(|service| !service.is_empty())
    }

    /// Says whether it would cover alerts that lack all its labels. What is excluded counts as named, as in Alertmanager:
    /// everything but `env="prod"` may be silenced.
    pub fn names_nothing(&self) -> bool {
        let names = |op| matches!(op, MatchOp::NotEqual | MatchOp::NotRegex);
        self.matchers.iter().all(|m| !names(m.op) && m.matches_empty())
    }

    /// Checks what was sent.
    ///
    /// # Errors
    /// Why it cannot be one.
    pub fn check(&self, now: i64) -> Result<(), String> {
        if self.matchers.is_empty() {
            return Err("invalid silence: at least one matcher required".to_owned());
        }
        if let Some(n) = self.matchers.iter().position(|m| m.name.is_empty()) {
            return Err(format!("invalid silence: invalid label matcher {n} in set 0: invalid label name \"\""));
        }
        if self.matchers.iter().map(|m| m.name.len() + m.value.len()).sum::<usize>() > MATCHERS_BYTES_MAX {
            return Err(format!("invalid silence: its matchers have more than {MATCHERS_BYTES_MAX} bytes"));
        }
        if self.names_nothing() {
            return Err(
                "invalid silence: matcher set 0: at least one matcher must not match the empty string".to_owned()
            );
        }
        if self.ends_at <= self.starts_at {
            return Err("invalid silence: end time must not be before start time".to_owned());
        }
        if self.ends_at <= now {
            return Err("invalid silence: end time can't be in the past".to_owned());
        }
        Ok(())
    }

    /// What it takes in memory, more or less. Its patterns are compiled once more to be measured.
    pub fn bytes(&self) -> usize {
        let texts = [&self.id, &self.created_by, &self.comment, &self.description, &self.updated_by];
        let texts = texts.iter().map(|text| text.len()).sum::<usize>();
        let pairs = self.labels.iter().chain(&self.annotations);
        let labels: usize = pairs.map(|(name, value)| ENTRY_BYTES + name.len() + value.len()).sum();
        let matchers = self.matchers.iter().map(|m| {
            let read = translate(&m.value).ok().filter(|_| m.is_compiled());
            let pattern = read.map_or(0, |text| held_bytes(&text));
            // A list of texts is kept as such, too.
            ENTRY_BYTES + m.name.len() + 2 * m.value.len() + pattern
        });
        size_of::<Self>() + texts + labels + matchers.sum::<usize>()
    }

    /// Says whether a silence can become another in place, or must end so that a new one begins.
    fn can_become(&self, other: &Self, now: i64) -> bool {
        let seconds = |ns: i64| ns.div_euclid(1_000_000_000);
        self.matchers == other.matchers
            && match self.state(now) {
                SilenceState::Active => seconds(self.starts_at) == seconds(other.starts_at) && other.ends_at >= now,
                SilenceState::Pending => other.starts_at >= now,
                SilenceState::Expired => false,
            }
    }
}

/// What a name and its value take beside their texts.
const ENTRY_BYTES: usize = 96;

/// All silences by id, those that expired included until they are removed.
#[derive(Debug, Clone, Default)]
pub struct Silences {
    all: BTreeMap<String, Arc<Silence>>,
    /// What each of them takes, and all together.
    bytes_of: BTreeMap<String, usize>,
    bytes: usize,
}

/// What came of setting a silence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetError {
    /// There is none with this id.
    NotFound,
    /// It cannot be one.
    Invalid(String),
}

impl Silences {
    /// Adds or changes a silence; `new_id` is taken where a new one begins, `bytes` are those of [`Silence::bytes`]. Gives
    /// its id.
    ///
    /// # Errors
    /// It cannot be one, or its id is not known.
    pub fn set(&mut self, mut silence: Silence, bytes: usize, new_id: String, now: i64) -> Result<String, SetError> {
        let former = match silence.id.as_str() {
            "" => None,
            id => Some(self.all.get(id).cloned().ok_or(SetError::NotFound)?),
        };
        (silence.updated_at, silence.created_at, silence.version) = (now, now, 1);
        if let Some(former) = former {
            if former.can_become(&silence, now) {
                silence.check(now).map_err(SetError::Invalid)?;
                (silence.created_at, silence.version) = (former.created_at, former.version + 1);
                let id = silence.id.clone();
                self.load(silence);
                return Ok(id);
            }
            // A start in the past counts from now on.
            silence.starts_at = silence.starts_at.max(now);
            silence.check(now).map_err(SetError::Invalid)?;
            self.expire(&former.id, now);
        } else {
            silence.starts_at = silence.starts_at.max(now);
            silence.check(now).map_err(SetError::Invalid)?;
        }
        silence.id.clone_from(&new_id);
        self.put(silence, bytes + new_id.len());
        Ok(new_id)
    }

    /// Ends a silence; says whether there is one.
    pub fn expire(&mut self, id: &str, now: i64) -> bool {
        let Some(silence) = self.all.get_mut(id).map(Arc::make_mut) else { return false };
        match silence.state(now) {
            SilenceState::Expired => return true,
            SilenceState::Active => silence.ends_at = now,
            SilenceState::Pending => (silence.starts_at, silence.ends_at) = (now, now),
        }
        silence.updated_at = now;
        silence.version += 1;
        true
    }

    /// Takes one away, as if it had never been.
    pub fn remove(&mut self, id: &str) {
        self.all.remove(id);
        self.bytes -= self.bytes_of.remove(id).unwrap_or(0);
    }

    /// Puts back what was kept.
    pub fn load(&mut self, silence: Silence) {
        let bytes = match self.all.get(&silence.id) {
            // Most changes leave the matchers alone, which are what takes long to measure.
            Some(before) if before.matchers == silence.matchers => {
                let others = |s: &Silence| Silence { matchers: Matchers::default(), ..s.clone() }.bytes();
                let before_bytes = self.bytes_of.get(&silence.id).copied().unwrap_or(0);
                (before_bytes + others(&silence)).saturating_sub(others(before))
            }
            _ => silence.bytes(),
        };
        self.put(silence, bytes);
    }

    fn put(&mut self, silence: Silence, bytes: usize) {
        self.bytes += bytes;
        self.bytes -= self.bytes_of.insert(silence.id.clone(), bytes).unwrap_or(0);
        self.all.insert(silence.id.clone(), Arc::new(silence));
    }

    /// Gives what all of them take, more or less.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Finds a silence.
    pub fn get(&self, id: &str) -> Option<&Silence> {
        self.all.get(id).map(AsRef::as_ref)
    }

    /// Gives how many there are.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// Gives those that mute now, by their ids.
    pub fn active(&self, now: i64) -> Vec<Arc<Silence>> {
        self.all.values().filter(|s| s.state(now) == SilenceState::Active).cloned().collect()
    }

    /// Gives the ids of the silences that cover labels now.
    pub fn silenced_by(&self, labels: &LabelSet, now: i64) -> Vec<&str> {
        let active = self.all.values().filter(|s| s.state(now) == SilenceState::Active);
        active.filter(|s| s.matchers.matches(labels)).map(|s| s.id.as_str()).collect()
    }

    /// Gives all in the order of lists: active ones by their end, then pending ones by their start, then expired ones.
    pub fn listed(&self, now: i64) -> Vec<&Arc<Silence>> {
        let mut out: Vec<&Arc<Silence>> = self.all.values().collect();
        out.sort_by_key(|s| {
            let state = s.state(now);
            let time = match state {
                SilenceState::Active => s.ends_at,
                SilenceState::Pending => s.starts_at,
                SilenceState::Expired => -s.ends_at,
            };
            (state, time)
        });
        out
    }

    /// Forgets those that are over for long; gives their ids.
    pub fn forget(&mut self, now: i64) -> Vec<String> {
        let old = |s: &Silence| s.ends_at.saturating_add(RETENTION_NS) < now;
        let ids: Vec<String> = self.all.values().filter(|s| old(s)).map(|s| s.id.clone()).collect();
        for id in &ids {
            self.remove(id);
        }
        ids
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matchers::read;

    fn silence(id: &str, matchers: &str, starts_at: i64, ends_at: i64) -> Silence {
        Silence {
            id: id.to_owned(),
            matchers: Matchers::in_order(read(matchers).expect(matchers).matchers),
            starts_at,
            ends_at,
            updated_at: 0,
            created_by: "me".to_owned(),
            ..Silence::default()
        }
    }

    fn set(all: &mut Silences, silence: Silence, new_id: String, now: i64) -> Result<String, SetError> {
        let bytes = silence.bytes();
        all.set(silence, bytes, new_id, now)
    }

    #[test]
    fn whose_a_silence_is() {
        let names = ["service_name".to_owned(), "service".to_owned()];
        let check = |text: &str, expected: &[&str]| {
            let silence = silence("", text, 0, 1);
            assert_eq!(silence.services(&names).collect::<Vec<_>>(), expected, "{text}");
        };
        check("service_name=cart, a=b", &["cart"]);
        check("service_name=\"\", service=cart", &["cart"]);
        // Alerts of other services may have this label, too.
        check("service=cart", &[]);
        check("service_name=~\"cart|pay\"", &[]);
        check("service_name!=\"\", service=cart", &[]);
        check("service_name=\"\", service=\"\"", &[]);
        check("a=b", &[]);
    }

    #[test]
    fn lives_of_silences() {
        let mut all = Silences::default();
        let labels = LabelSet::from_pairs([("a", "1")]);
        assert_eq!(set(&mut all, silence("", "a=1", 0, 100), "x".into(), 10), Ok("x".into()));
        assert_eq!(all.silenced_by(&labels, 50), ["x"]);
        assert!(all.silenced_by(&labels, 100).is_empty());
        // In place while only its end moves, anew where what it covers changes.
        assert_eq!(set(&mut all, silence("x", "a=1", 0, 200), "y".into(), 20), Ok("x".into()));
        assert_eq!(set(&mut all, silence("x", "a=2", 0, 200), "y".into(), 20), Ok("y".into()));
        let former = all.get("x").map(|s| (s.state(20), s.version, s.created_at));
        assert_eq!(former, Some((SilenceState::Expired, 3, 10)));
        assert!(all.expire("x", 20) && all.get("x").map(|s| s.version) == Some(3), "it is over already");
        assert_eq!(set(&mut all, silence("z", "a=2", 0, 200), "w".into(), 20), Err(SetError::NotFound));
        let listed: Vec<&str> = all.listed(20).iter().map(|s| s.id.as_str()).collect();
        assert_eq!(listed, ["y", "x"]);
        assert!(all.expire("y", 30) && !all.expire("q", 30));
        assert_eq!(all.forget(RETENTION_NS + 31), ["x", "y"]);
    }

    #[test]
    fn the_order_of_matchers_is_kept() {
        let mut all = Silences::default();
        assert_eq!(set(&mut all, silence("", "b=1,a=2", 0, 100), "x".into(), 20), Ok("x".into()));
        assert_eq!(all.get("x").map(|s| s.matchers.to_string()).as_deref(), Some("{b=\"1\",a=\"2\"}"));
        // As in Alertmanager, the same in another order is another silence.
        assert_eq!(set(&mut all, silence("x", "a=2,b=1", 20, 100), "y".into(), 20), Ok("y".into()));
        assert_eq!(set(&mut all, silence("y", "a=2,b=1", 20, 200), "z".into(), 20), Ok("y".into()));
    }

    #[test]
    fn what_they_take_is_counted() {
        let mut all = Silences::default();
        let pattern = format!("a=~\"(x|y){{900}}\",b=\"{}\"", "z".repeat(1000));
        all.load(silence("x", &pattern, 0, 100));
        let one = all.bytes();
        assert!((100_000..2 << 20).contains(&one), "{one} bytes");
        all.load(silence("x", &pattern, 0, 200));
        assert_eq!(all.bytes(), one, "the same again");
        all.load(Silence { comment: "c".repeat(500), ..silence("x", &pattern, 0, 200) });
        assert_eq!(all.bytes(), one + 500);
        let annotations = [("link".to_owned(), "l".repeat(500))].into();
        all.load(Silence { annotations, ..silence("x", &pattern, 0, 200) });
        assert!(all.bytes() > one + 500, "annotations count");
        all.load(Silence { comment: "c".repeat(500), ..silence("x", &pattern, 0, 200) });
        all.load(silence("y", "a=1", 0, 100));
        assert!(all.bytes() < one + 500 + 2000);
        all.remove("x");
        assert!(all.bytes() < 2000);
        all.forget(RETENTION_NS + 101);
        assert_eq!(all.bytes(), 0);
    }

    /// Patterns are measured by whoever holds no lock.
    #[test]
    fn what_was_measured_counts() {
        let mut all = Silences::default();
        assert_eq!(all.set(silence("", "a=~\"(x|y){900}\"", 0, 100), 5000, "xyz".into(), 10), Ok("xyz".into()));
        assert_eq!(all.bytes(), 5003);
        let longer = Silence { comment: "c".repeat(70), ..silence("xyz", "a=~\"(x|y){900}\"", 10, 200) };
        assert_eq!(all.set(longer, 9999, "y".into(), 20), Ok("xyz".into()));
        assert_eq!(all.bytes(), 5073, "what stays is not measured again");
    }

    #[test]
    fn refused() {
        let check =
            |s: Silence, expected: &str| assert!(s.check(10).is_err_and(|e| e.contains(expected)), "{expected}");
        check(silence("", "", 0, 100), "at least one matcher required");
        check(silence("", "a=~\".*\"", 0, 100), "must not match the empty string");
        assert_eq!(silence("", "a!=1", 0, 100).check(10), Ok(()));
        check(silence("", "a=\"\",b=~\"x?\"", 0, 100), "must not match the empty string");
        check(silence("", "a=1", 100, 100), "must not be before start");
        check(silence("", "a=1", 0, 5), "in the past");
        check(silence("", &format!("a=\"{}\"", "x".repeat(17 << 10)), 0, 100), "more than 16384 bytes");
    }

    #[test]
    fn states_at_borders() {
        let s = silence("x", "a=1", 10, 20);
        for (now, expected) in [
            (i64::MIN, SilenceState::Pending),
            (9, SilenceState::Pending),
            (10, SilenceState::Active),
            (19, SilenceState::Active),
            (20, SilenceState::Expired),
            (i64::MAX, SilenceState::Expired),
        ] {
            assert_eq!(s.state(now), expected, "{now}");
        }
        let words = [SilenceState::Active, SilenceState::Pending, SilenceState::Expired].map(SilenceState::as_str);
        assert_eq!(words, ["active", "pending", "expired"]);
    }

    /// What silences everything is refused; what excludes something counts as naming it.
    #[test]
    fn what_names_nothing() {
        for (matchers, expected) in [
            ("a=1", false),
            ("a=\"\"", true),
            ("a=~\".*\"", true),
            ("a=~\".+\"", false),
            ("a=~\"x|\"", true),
            ("a!=1", false),
            ("a!=\"\"", false),
            ("a!~\".+\"", false),
            ("a=\"\",b=~\".*\"", true),
            ("a=\"\",b=1", false),
            ("a=~\".*\",b!=1", false),
        ] {
            assert_eq!(silence("", matchers, 0, 1).names_nothing(), expected, "{matchers}");
        }
    }

    #[test]
    fn refused_in_the_order_of_alertmanager() {
        let check = |s: &Silence, expected: &str| assert_eq!(s.check(10), Err(format!("invalid silence: {expected}")));
        check(&silence("", "", 100, 0), "at least one matcher required");
        let unnamed = Matchers::in_order(["a", "", "b"].map(|n| Matcher::equal(n, "1")).to_vec());
        let unnamed = Silence { matchers: unnamed, ..silence("", "", 0, 100) };
        check(&unnamed, "invalid label matcher 1 in set 0: invalid label name \"\"");
        check(&silence("", "a=\"\"", 100, 0), "matcher set 0: at least one matcher must not match the empty string");
        check(&silence("", "a=1", 100, 99), "end time must not be before start time");
        check(&silence("", "a=1", 100, 100), "end time must not be before start time");
        check(&silence("", "a=1", 0, 10), "end time can't be in the past");
        assert_eq!(silence("", "a=1", 0, 11).check(10), Ok(()));
        // The bytes of names count with those of values.
        let long = |value: usize| silence("", &format!("name=\"{}\"", "x".repeat(value)), 0, 100).check(10);
        assert_eq!(long(MATCHERS_BYTES_MAX - 4), Ok(()));
        assert_eq!(
            long(MATCHERS_BYTES_MAX - 3),
            Err("invalid silence: its matchers have more than 16384 bytes".into())
        );
    }

    /// An active one may move its end, a pending one both ends within the future, an ended one nothing: else another
    /// silence begins and the former one ends.
    #[test]
    fn changed_in_place_or_anew() {
        const S: i64 = 1_000_000_000;
        let check = |former: (i64, i64), changed: (i64, i64), is_same: bool, starts_at: i64| {
            let mut all = Silences::default();
            all.load(silence("x", "a=1", former.0 * S, former.1 * S));
            let id = set(&mut all, silence("x", "a=1", changed.0 * S, changed.1 * S), "y".into(), 50 * S);
            assert_eq!(id.as_deref(), Ok(if is_same { "x" } else { "y" }), "{former:?} {changed:?}");
            let id = id.expect("set");
            assert_eq!(all.get(&id).map(|s| s.starts_at / S), Some(starts_at), "{former:?} {changed:?}");
            let ended = all.get("x").map(|s| s.state(50 * S)) == Some(SilenceState::Expired);
            assert_eq!(ended, !is_same, "{former:?} {changed:?}");
        };
        check((10, 100), (10, 200), true, 10);
        check((10, 100), (10, 51), true, 10);
        check((10, 100), (11, 100), false, 50);
        check((10, 100), (60, 100), false, 60);
        check((60, 100), (70, 200), true, 70);
        check((60, 100), (50, 200), true, 50);
        check((60, 100), (40, 200), false, 50);
        check((10, 20), (10, 100), false, 50);
        // Fractions of a second are lost on the way through clients, and do not count.
        let mut all = Silences::default();
        all.load(silence("x", "a=1", 10 * S + 7, 100 * S));
        assert_eq!(set(&mut all, silence("x", "a=1", 10 * S, 100 * S), "y".into(), 50 * S), Ok("x".into()));
    }

    /// What is refused leaves everything as it was.
    #[test]
    fn refused_changes_change_nothing() {
        let mut all = Silences::default();
        all.load(silence("x", "a=1", 10, 100));
        let before = all.get("x").cloned();
        for (changed, expected) in [
            (silence("x", "a=1", 10, 50), "in the past"),
            (silence("x", "a=2", 10, 40), "must not be before start"),
            (silence("x", "a=\"\"", 10, 200), "must not match the empty string"),
            (silence("x", "", 10, 200), "at least one matcher"),
        ] {
            let Err(SetError::Invalid(told)) = set(&mut all, changed, "y".into(), 50) else { panic!("{expected}") };
            assert!(told.contains(expected), "{told}");
            assert_eq!(all.get("x").cloned(), before, "{expected}");
            assert_eq!(all.get("y"), None);
        }
        assert_eq!(set(&mut all, silence("q", "a=1", 10, 200), "y".into(), 50), Err(SetError::NotFound));
        assert_eq!(all.listed(50).len(), 1);
    }

    #[test]
    fn ended_by_hand() {
        let mut all = Silences::default();
        all.load(silence("active", "a=1", 10, 100));
        all.load(silence("pending", "a=1", 60, 100));
        all.load(silence("expired", "a=1", 10, 20));
        assert!(["active", "pending", "expired"].iter().all(|id| all.expire(id, 50)) && !all.expire("none", 50));
        let times = |id: &str| all.get(id).map(|s| (s.starts_at, s.ends_at, s.updated_at));
        assert_eq!(times("active"), Some((10, 50, 50)));
        assert_eq!(times("pending"), Some((50, 50, 50)));
        assert_eq!(times("expired"), Some((10, 20, 0)), "it was over, so nothing changes");
        assert!(all.silenced_by(&LabelSet::from_pairs([("a", "1")]), 50).is_empty());
    }

    #[test]
    fn listed_and_forgotten() {
        let mut all = Silences::default();
        for (id, from, to) in
            [("e1", 0, 10), ("e2", 0, 20), ("p1", 90, 99), ("p2", 80, 99), ("a1", 0, 99), ("a2", 0, 98)]
        {
            all.load(silence(id, "a=1", from, to));
        }
        let ids = |all: &Silences, now: i64| all.listed(now).iter().map(|s| s.id.clone()).collect::<Vec<_>>().join(" ");
        assert_eq!(ids(&all, 50), "a2 a1 p2 p1 e2 e1");
        assert_eq!(ids(&all, 200), "a1 p1 p2 a2 e2 e1", "all are over: what ended last comes first");
        let labels = LabelSet::from_pairs([("a", "1"), ("b", "2")]);
        assert_eq!(all.silenced_by(&labels, 50), ["a1", "a2"]);
        assert!(all.silenced_by(&LabelSet::from_pairs([("b", "2")]), 50).is_empty());
        assert!(all.forget(RETENTION_NS + 10).is_empty(), "it is kept for the whole time");
        assert_eq!(all.forget(RETENTION_NS + 11), ["e1"]);
        assert_eq!(all.forget(i64::MAX).len(), 5);
        assert_eq!((all.bytes(), all.listed(0).len()), (0, 0));
    }
}
