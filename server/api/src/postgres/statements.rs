//! What a connection keeps between messages: prepared statements, portals and names of savepoints, limited in number and
//! size.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use quiver_sql::{Session, StatementDescription};

use super::command::Command;
use super::error::Fault;
use super::portal::{CursorHoldability, Portal};

/// Most prepared statements per connection.
const STATEMENTS_MAX: usize = 1000;
/// Most bytes of statement texts and portal parameters together.
const BYTES_MAX: usize = 4 << 20;
/// Most portals per connection, since each holds a running query.
const PORTALS_MAX: usize = 16;
/// Bytes that a result column takes besides its name.
const COLUMN_BYTES: usize = 256;
/// Bytes that a savepoint takes besides its name.
const SAVEPOINT_BYTES: usize = 32;

/// Most statements whose types of parameters are known when they are prepared again.
const TYPED_MAX: usize = 8;
/// Most bytes of all of them: a connection that waits keeps them, and may be one of hundreds.
const TYPED_BYTES_MAX: usize = 16 << 10;
/// Bytes that a setting of a session takes besides name and value.
const SETTING_BYTES: usize = 64;
/// How long types are remembered. Not for ever, since columns of the operator's tables may change.
const TYPED_FOR: Duration = Duration::from_secs(10);

/// A prepared statement.
#[derive(Debug)]
pub(super) struct PreparedStatement {
    pub(super) text: String,
    pub(super) command: Command,
    /// Type OIDs declared by the client; 0: not declared.
    pub(super) declared: Vec<u32>,
    /// Its parameters and columns, once a client asked for them.
    pub(super) described: Option<Arc<StatementDescription>>,
}

impl PreparedStatement {
    /// The query that its parameters belong to, which `DECLARE` has behind its `FOR`; `None` for other commands.
    pub(super) fn query(&self) -> Option<&str> {
        match &self.command {
            Command::Query => Some(&self.text),
            Command::Declare(declare) => Some(&declare.query),
            _ => None,
        }
    }

    fn bytes(&self) -> usize {
        self.text.len() + 4 * self.declared.len() + self.described.as_deref().map_or(0, described_bytes)
    }
}

fn described_bytes(described: &StatementDescription) -> usize {
    let columns = described.columns.fields().iter().map(|field| COLUMN_BYTES + field.name().len());
    columns.sum::<usize>() + 4 * described.params.len()
}

/// The types of a statement's parameters. Drivers prepare the same few statements again and again, for each table of a catalog
/// say, and to find the types takes as long as to plan a statement twice.
#[derive(Debug)]
struct TypedStatement {
    text: String,
    declared: Vec<u32>,
    params: Vec<u32>,
    since: Instant,
}

impl TypedStatement {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.text.len() + 4 * (self.declared.len() + self.params.len())
    }
}

fn session_bytes(session: &Session) -> usize {
    let settings = session.settings.iter().map(|(name, value)| SETTING_BYTES + name.len() + value.len());
    session.user.len() + settings.sum::<usize>()
}

/// All prepared statements and portals by name, and savepoints.
#[derive(Debug, Default)]
pub(super) struct SessionObjects {
    statements: HashMap<String, PreparedStatement>,
    portals: HashMap<String, Portal>,
    /// Names of the savepoints of the transaction, in their order.
    savepoints: Vec<String>,
    /// Statements whose parameter types are remembered, the latest last.
    typed: VecDeque<TypedStatement>,
    /// The session as it was when they were described, since its settings decide how names are looked up.
    typed_in: Option<Session>,
}

fn unknown(code: &'static str, what: &str, name: &str) -> Fault {
    Fault::new(code, format!("there is no {what} `{}`", name.escape_debug()))
}

impl SessionObjects {
    /// The bytes that they take.
    pub(super) fn bytes(&self) -> usize {
        self.own_bytes() + self.typed_bytes()
    }

    /// What remembered types take. They may always be forgotten, so they take no room from what a client asks to be kept.
    fn typed_bytes(&self) -> usize {
        let session = self.typed_in.as_ref().map_or(0, session_bytes);
        session + self.typed.iter().map(TypedStatement::bytes).sum::<usize>()
    }

    fn own_bytes(&self) -> usize {
        let statements = self.statements.iter().map(|(name, statement)| name.len() + statement.bytes());
        let savepoints = self.savepoints.iter().map(|name| SAVEPOINT_BYTES + name.len());
        statements.sum::<usize>() + self.portals.values().map(Portal::bytes).sum::<usize>() + savepoints.sum::<usize>()
    }

    fn room_for(&self, bytes: usize) -> Result<(), Fault> {
        if self.own_bytes() + bytes <= BYTES_MAX {
            return Ok(());
        }
        let text =
            format!("prepared statements and parameters of a connection have at most {BYTES_MAX} bytes together");
        Err(Fault::new("53400", text))
    }

    /// Stores a statement. An unnamed one replaces the former unnamed one.
    ///
    /// # Errors
    /// The name is taken, or there is no room.
    pub(super) fn prepare(&mut self, name: String, statement: PreparedStatement) -> Result<(), Fault> {
        if name.is_empty() {
            self.statements.remove("");
        } else if self.statements.contains_key(&name) {
            return Err(Fault::new(
                "42P05",
                format!("there is a prepared statement `{}` already", name.escape_debug()),
            ));
        }
        if self.statements.len() >= STATEMENTS_MAX {
            return Err(Fault::new("53400", format!("a connection has at most {STATEMENTS_MAX} prepared statements")));
        }
        self.room_for(name.len() + statement.bytes())?;
        self.statements.insert(name, statement);
        Ok(())
    }

    /// Finds a statement.
    ///
    /// # Errors
    /// There is none of that name.
    pub(super) fn statement(&mut self, name: &str) -> Result<&mut PreparedStatement, Fault> {
        self.statements.get_mut(name).ok_or_else(|| unknown("26000", "prepared statement", name))
    }

    /// The types of a statement's parameters, if it is described, or was bound under another name shortly before.
    pub(super) fn known_params(&self, name: &str, session: &Session, now: Instant) -> Option<Vec<u32>> {
        let statement = self.statements.get(name)?;
        // A description that was already sent to the client stays valid.
        if let Some(described) = &statement.described {
            return Some(described.params.clone());
        }
        let is_it = |typed: &&TypedStatement| {
            typed.text == statement.text
                && typed.declared == statement.declared
                && now.duration_since(typed.since) < TYPED_FOR
        };
        let typed =
            self.typed_in.as_ref().filter(|known| *known == session).and_then(|_| self.typed.iter().find(is_it));
        typed.map(|typed| typed.params.clone())
    }

    /// Stores the types of a statement's parameters, unless it is long.
    pub(super) fn remember_params(&mut self, name: &str, session: &Session, params: &[u32], now: Instant) {
        let Some(statement) = self.statements.get(name) else { return };
        if statement.text.len() + session_bytes(session) > TYPED_BYTES_MAX {
            return;
        }
        let (text, declared) = (statement.text.clone(), statement.declared.clone());
        if self.typed_in.as_ref() != Some(session) {
            self.typed.clear();
            self.typed_in = Some(session.clone());
        }
        self.typed.push_back(TypedStatement { text, declared, params: params.to_vec(), since: now });
        while self.typed.len() > TYPED_MAX || self.typed_bytes() > TYPED_BYTES_MAX {
            self.typed.pop_front();
        }
    }

    /// Stores the description of a statement if there is room; otherwise it is computed each time.
    pub(super) fn describe(&mut self, name: &str, found: &Arc<StatementDescription>) {
        if self.room_for(described_bytes(found)).is_ok()
            && let Some(statement) = self.statements.get_mut(name)
        {
            statement.described = Some(Arc::clone(found));
        }
    }

    /// Stores a portal.
    ///
    /// # Errors
    /// The name is taken, or there is no room.
    pub(super) fn open(&mut self, name: String, portal: Portal) -> Result<(), Fault> {
        if name.is_empty() {
            self.portals.remove("");
        } else if self.portals.contains_key(&name) {
            return Err(Fault::new("42P03", format!("there is a portal `{}` already", name.escape_debug())));
        }
        if self.portals.len() >= PORTALS_MAX {
            return Err(Fault::new("53400", format!("a connection has at most {PORTALS_MAX} portals at once")));
        }
        self.room_for(name.len() + portal.bytes())?;
        self.portals.insert(name, portal);
        Ok(())
    }

    /// Takes a portal out; return it with [`Self::put`] after use.
    ///
    /// # Errors
    /// There is none of that name.
    pub(super) fn take(&mut self, name: &str) -> Result<Portal, Fault> {
        self.portals.remove(name).ok_or_else(|| unknown("34000", "portal", name))
    }

    /// Returns a portal taken with [`Self::take`].
    pub(super) fn put(&mut self, name: &str, portal: Portal) {
        self.portals.insert(name.to_owned(), portal);
    }

    /// Removes a statement; gives false if there is none.
    pub(super) fn close_statement(&mut self, name: &str) -> bool {
        self.statements.remove(name).is_some()
    }

    /// Removes a portal; gives false if there is none.
    pub(super) fn close_portal(&mut self, name: &str) -> bool {
        self.portals.remove(name).is_some()
    }

    /// Removes all statements.
    pub(super) fn forget_statements(&mut self) {
        self.statements.clear();
        self.typed.clear();
        self.typed_in = None;
    }

    /// Closes all portals.
    pub(super) fn end_portals(&mut self) {
        self.portals.clear();
    }

    /// Keeps a savepoint, which may have the name of another.
    ///
    /// # Errors
    /// There is no room.
    pub(super) fn save(&mut self, name: String) -> Result<(), Fault> {
        self.room_for(SAVEPOINT_BYTES + name.len())?;
        self.savepoints.push(name);
        Ok(())
    }

    /// Forgets the latest savepoint of that name, and those after it.
    ///
    /// # Errors
    /// There is none of that name.
    pub(super) fn release_savepoint(&mut self, name: &str) -> Result<(), Fault> {
        let at = self.latest_savepoint(name)?;
        self.savepoints.truncate(at);
        Ok(())
    }

    /// Forgets the savepoints after the latest of that name.
    ///
    /// # Errors
    /// There is none of that name.
    pub(super) fn return_to_savepoint(&mut self, name: &str) -> Result<(), Fault> {
        let at = self.latest_savepoint(name)?;
        self.savepoints.truncate(at + 1);
        Ok(())
    }

    fn latest_savepoint(&self, name: &str) -> Result<usize, Fault> {
        let at = self.savepoints.iter().rposition(|known| known == name);
        at.ok_or_else(|| unknown("3B001", "savepoint", name))
    }

    /// Forgets the savepoints of a transaction that ends.
    pub(super) fn end_savepoints(&mut self) {
        self.savepoints.clear();
    }

    /// Closes the portals of a transaction that was committed, except for those declared `WITH HOLD`.
    pub(super) fn commit(&mut self) {
        self.portals.retain(|_, portal| portal.hold != CursorHoldability::No);
        for portal in self.portals.values_mut() {
            portal.hold = CursorHoldability::Kept;
        }
    }

    /// Closes the portals of a transaction that failed or was rolled back.
    pub(super) fn roll_back(&mut self) {
        self.portals.retain(|_, portal| portal.hold == CursorHoldability::Kept);
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field, Schema};

    use super::*;

    /// The columns of a statement may take more memory than its text.
    #[test]
    fn what_is_described_counts() {
        let fields: Vec<Field> = (0..1000).map(|n| Field::new(n.to_string(), DataType::Int64, true)).collect();
        let found = Arc::new(StatementDescription { params: Vec::new(), columns: Arc::new(Schema::new(fields)) });
        let mut kept = SessionObjects::default();
        for n in 0..100 {
            let name = n.to_string();
            kept.prepare(name.clone(), prepared(10)).expect("its text is short");
            kept.describe(&name, &found);
        }
        let described = kept.statements.values().filter(|statement| statement.described.is_some()).count();
        assert!((1..=BYTES_MAX / (1000 * COLUMN_BYTES)).contains(&described), "{described}");
        assert!(kept.bytes() <= BYTES_MAX + 100 * 20);
    }

    fn prepared(bytes: usize) -> PreparedStatement {
        PreparedStatement { text: "x".repeat(bytes), command: Command::Query, declared: Vec::new(), described: None }
    }

    #[test]
    fn types_of_parameters_stay_known() {
        let (mut kept, session, now) = (SessionObjects::default(), Session::of("ann"), Instant::now());
        let mut elsewhere = session.clone();
        elsewhere.settings.insert("search_path".to_owned(), "olap".to_owned());
        let prepare = |kept: &mut SessionObjects, bytes: usize| kept.prepare(String::new(), prepared(bytes)).unwrap();
        prepare(&mut kept, 10);
        assert_eq!(kept.known_params("", &session, now), None);
        kept.remember_params("", &session, &[23, 25], now);
        prepare(&mut kept, 11);
        assert_eq!(kept.known_params("", &session, now), None, "it is another statement");
        prepare(&mut kept, 10);
        assert_eq!(kept.known_params("", &session, now), Some(vec![23, 25]));
        assert_eq!(kept.known_params("", &elsewhere, now), None);
        assert_eq!(kept.known_params("", &session, now + TYPED_FOR), None);
        let found = StatementDescription { params: vec![20], columns: Arc::new(Schema::empty()) };
        kept.describe("", &Arc::new(found));
        assert_eq!(kept.known_params("", &session, now), Some(vec![20]), "it is described");
        kept.prepare(String::new(), PreparedStatement { declared: vec![20], ..prepared(10) }).unwrap();
        assert_eq!(kept.known_params("", &session, now), None, "its types are declared");
    }

    #[test]
    fn few_types_stay_known() {
        let (mut kept, session, now) = (SessionObjects::default(), Session::of("ann"), Instant::now());
        for bytes in 1..=TYPED_MAX + 1 {
            kept.prepare(String::new(), prepared(bytes)).unwrap();
            kept.remember_params("", &session, &[23], now);
        }
        for (bytes, known) in [(1, None), (2, Some(vec![23])), (TYPED_MAX + 1, Some(vec![23]))] {
            kept.prepare(String::new(), prepared(bytes)).unwrap();
            assert_eq!(kept.known_params("", &session, now), known, "{bytes}");
        }
        kept.prepare(String::new(), prepared(TYPED_BYTES_MAX)).unwrap();
        kept.remember_params("", &session, &[23], now);
        assert_eq!(kept.known_params("", &session, now), None, "it is long");
        kept.prepare(String::new(), prepared(TYPED_BYTES_MAX / 2)).unwrap();
        kept.remember_params("", &session, &[23], now);
        assert!(kept.typed_bytes() > TYPED_BYTES_MAX / 2 && kept.typed_bytes() <= TYPED_BYTES_MAX);
        assert!(kept.bytes() > TYPED_BYTES_MAX, "both copies of the text count");
        let mut wide = session.clone();
        wide.settings.insert("application_name".to_owned(), "x".repeat(TYPED_BYTES_MAX));
        kept.remember_params("", &wide, &[23], now);
        assert_eq!(kept.known_params("", &wide, now), None, "its settings are long");
        kept.forget_statements();
        kept.prepare(String::new(), prepared(2)).unwrap();
        assert_eq!(kept.known_params("", &session, now), None);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut kept = SessionObjects::default();
        kept.prepare("a".into(), prepared(10)).unwrap();
        assert_eq!(kept.prepare("a".into(), prepared(10)).unwrap_err().code, "42P05");
        kept.prepare(String::new(), prepared(10)).unwrap();
        kept.prepare(String::new(), prepared(10)).unwrap();
        assert_eq!(kept.prepare("b".into(), prepared(BYTES_MAX)).unwrap_err().code, "53400");
        assert_eq!(kept.statement("c").unwrap_err().code, "26000");
        for n in 0..PORTALS_MAX {
            kept.open(n.to_string(), Portal::new(String::new(), Command::Query)).unwrap();
        }
        assert_eq!(kept.open("more".into(), Portal::new(String::new(), Command::Query)).unwrap_err().code, "53400");
        assert!(kept.close_portal("0") && !kept.close_portal("0"));
        kept.end_portals();
        assert_eq!(kept.take("1").map(|_| ()).unwrap_err().code, "34000");
    }

    #[test]
    fn savepoints_go_with_those_before_them() {
        let mut kept = SessionObjects::default();
        for name in ["a", "b", "a", "c"] {
            kept.save(name.into()).unwrap();
        }
        kept.return_to_savepoint("a").unwrap();
        assert_eq!(kept.savepoints, ["a", "b", "a"]);
        assert_eq!(kept.release_savepoint("c").unwrap_err().code, "3B001");
        kept.release_savepoint("a").unwrap();
        kept.release_savepoint("a").unwrap();
        assert_eq!((kept.savepoints.len(), kept.bytes()), (0, 0));
        assert_eq!(kept.save("x".repeat(BYTES_MAX)).unwrap_err().code, "53400");
        kept.save("a".into()).unwrap();
        kept.end_savepoints();
        assert_eq!(kept.bytes(), 0);
    }

    #[test]
    fn what_is_held_outlives_a_transaction() {
        let mut kept = SessionObjects::default();
        let open = |kept: &mut SessionObjects, name: &str, hold| {
            let mut portal = Portal::new(String::new(), Command::Query);
            portal.hold = hold;
            kept.open(name.into(), portal).unwrap();
        };
        open(&mut kept, "plain", CursorHoldability::No);
        open(&mut kept, "held", CursorHoldability::Wanted);
        kept.commit();
        open(&mut kept, "later", CursorHoldability::Wanted);
        kept.roll_back();
        let names: Vec<&String> = kept.portals.keys().collect();
        assert_eq!(names, ["held"]);
    }

    #[test]
    fn statements_have_a_greatest_number() {
        let mut kept = SessionObjects::default();
        for n in 0..STATEMENTS_MAX {
            kept.prepare(n.to_string(), prepared(1)).unwrap();
        }
        let full = kept.prepare("more".into(), prepared(1)).unwrap_err();
        assert_eq!((full.code, full.is_fatal()), ("53400", false));
        assert_eq!(kept.prepare(String::new(), prepared(1)).unwrap_err().code, "53400");
        assert!(kept.close_statement("0") && !kept.close_statement("0"));
        kept.prepare(String::new(), prepared(1)).unwrap();
        // The unnamed one is replaced, even if there is no room for another.
        kept.prepare(String::new(), prepared(2)).unwrap();
        assert_eq!(kept.statement("").unwrap().text.len(), 2);
        kept.forget_statements();
        assert_eq!((kept.bytes(), kept.statement("1").unwrap_err().code), (0, "26000"));
        let message = kept.statement("a\nb").unwrap_err().message;
        assert_eq!(message, "there is no prepared statement `a\\nb`");
    }

    #[test]
    fn portals_and_statements_share_their_room() {
        let mut kept = SessionObjects::default();
        let portal = |bytes: usize| Portal::new("x".repeat(10), Command::Query).with_params(Vec::new(), bytes);
        kept.open("p".into(), portal(BYTES_MAX / 2)).unwrap();
        assert_eq!(kept.bytes(), 10 + BYTES_MAX / 2);
        assert_eq!(kept.open("q".into(), portal(BYTES_MAX / 2)).unwrap_err().code, "53400");
        assert_eq!(kept.prepare("s".into(), prepared(BYTES_MAX / 2)).unwrap_err().code, "53400");
        assert_eq!(kept.open("p".into(), portal(1)).unwrap_err().code, "42P03");
        // A portal that was taken and returned is the same one.
        let taken = kept.take("p").unwrap();
        assert_eq!((kept.bytes(), kept.take("p").map(drop).unwrap_err().code), (0, "34000"));
        kept.put("p", taken);
        assert_eq!(kept.bytes(), 10 + BYTES_MAX / 2);
        // There is only one unnamed portal.
        kept.close_portal("p");
        for bytes in [1, 2, 3] {
            kept.open(String::new(), portal(bytes)).unwrap();
            assert_eq!(kept.bytes(), 10 + bytes);
        }
        kept.prepare("s".into(), PreparedStatement { declared: vec![0; 5], ..prepared(7) }).unwrap();
        kept.end_portals();
        assert_eq!(kept.bytes(), "s".len() + 7 + 4 * 5);
    }

    /// Would fail if a failed transaction closed portals of an earlier one, or left its own open.
    #[test]
    fn portals_of_several_transactions() {
        let names = |kept: &SessionObjects| {
            let mut names: Vec<String> = kept.portals.keys().cloned().collect();
            names.sort_unstable();
            names.concat()
        };
        let open = |kept: &mut SessionObjects, name: &str, hold: CursorHoldability| {
            let mut portal = Portal::new(String::new(), Command::Query);
            portal.hold = hold;
            kept.open(name.into(), portal).unwrap();
        };
        let mut kept = SessionObjects::default();
        for (name, hold) in
            [("a", CursorHoldability::No), ("b", CursorHoldability::Wanted), ("c", CursorHoldability::Kept)]
        {
            open(&mut kept, name, hold);
        }
        kept.roll_back();
        assert_eq!(names(&kept), "c");
        open(&mut kept, "d", CursorHoldability::Wanted);
        kept.commit();
        assert_eq!(names(&kept), "cd");
        open(&mut kept, "e", CursorHoldability::Wanted);
        kept.roll_back();
        assert_eq!(names(&kept), "cd", "what was held is kept by a later one, too");
        kept.commit();
        kept.commit();
        assert_eq!(names(&kept), "cd");
    }
}
