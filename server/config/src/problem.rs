//! Errors about a request, as `config-api` section 1.5 words them. The API maps [`ProblemKind`] to an HTTP status.

use quiver_types::brief_text;
use serde_json::{Map, Value, json};

/// Most field errors that one problem lists.
const ERRORS_MAX: usize = 100;
/// Most references that an error lists.
pub(crate) const LISTED_MAX: usize = 100;
/// Longest text of a sender that an error repeats, in characters.
const SHOWN_MAX: usize = 100;

/// The family of a problem; each has one HTTP status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProblemKind {
    /// 400: cannot be read.
    Malformed,
    /// 401: nobody is let in so.
    Unauthenticated,
    /// 403: the right lacks.
    Forbidden,
    /// 404: nothing has the id, or nothing that the caller may see.
    NotFound,
    /// 405: the path has no such method.
    MethodNotAllowed,
    /// 408: the sender was too slow.
    SenderTimeout,
    /// 409: contradicts what is there.
    Conflict,
    /// 412: a condition of the request does not hold.
    Precondition,
    /// 413: larger than allowed.
    TooLarge,
    /// 415: in a form that is not read here.
    UnsupportedMediaType,
    /// 422: can be read and is not valid.
    Invalid,
    /// 429: too often.
    Limited,
    /// 503: the store is busy or gone.
    Busy,
    /// 500: a fault of ours.
    Internal,
}

/// One field that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// JSON Pointer to the field in the body, like `/steps/0/name`.
    pub field: String,
    /// Word that programs may rely on, like `OUT_OF_RANGE`.
    pub code: &'static str,
    /// What is wrong, for people.
    pub message: String,
    /// Where in a text that is the field's value: line and column, both from 1.
    pub place: Option<(u32, u32)>,
}

impl FieldError {
    /// Makes the fault of one field.
    pub fn new(field: impl Into<String>, code: &'static str, message: impl Into<String>) -> Self {
        Self { field: brief_text(field.into()), code, message: brief_text(message.into()), place: None }
    }

    /// Adds where in the text of the field it is; line 0 stands for nowhere.
    #[must_use]
    pub fn at(self, line: u32, column: u32) -> Self {
        Self { place: (line > 0).then_some((line, column)), ..self }
    }
}

/// Why a request was refused.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{detail}")]
pub struct Problem {
    /// Which HTTP status it has.
    pub kind: ProblemKind,
    /// Word that programs may rely on, like `NOT_FOUND`.
    pub code: &'static str,
    /// What is wrong and what can be done, for people (`detail` of RFC 9457).
    pub detail: String,
    /// All fields that are wrong.
    pub errors: Vec<FieldError>,
    /// More members of the problem object.
    pub more: Map<String, Value>,
    /// For the log only.
    pub cause: Option<String>,
    /// Whether the audit log has it.
    pub noted: bool,
}

/// Result with a [`Problem`].
pub type Result<T, E = Problem> = std::result::Result<T, E>;

impl Problem {
    /// Makes a problem.
    pub fn new(kind: ProblemKind, code: &'static str, detail: impl Into<String>) -> Self {
        let detail = brief_text(detail.into());
        Self { kind, code, detail, errors: Vec::new(), more: Map::new(), cause: None, noted: false }
    }

    /// A parameter that cannot be.
    pub fn parameter(detail: impl Into<String>) -> Self {
        Self::new(ProblemKind::Malformed, "INVALID_PARAMETER", detail)
    }

    /// An id that names nothing, or nothing that the caller may see.
    pub fn not_found(id: &str) -> Self {
        Self::new(ProblemKind::NotFound, "NOT_FOUND", format!("nothing has the id `{}`", shown(id)))
    }

    /// A right that lacks; `required` is the triple.
    pub fn forbidden(required: &str) -> Self {
        let text = format!("this needs the right {required}");
        Self::new(ProblemKind::Forbidden, "FORBIDDEN", text).with("required", json!(required))
    }

    /// Fields that are wrong.
    pub fn invalid(mut errors: Vec<FieldError>) -> Self {
        let detail = match &errors[..] {
            [one] => text_of(one),
            many => format!("{} fields are invalid", many.len()),
        };
        errors.truncate(ERRORS_MAX);
        Self { errors, ..Self::new(ProblemKind::Invalid, "VALIDATION_FAILED", detail) }
    }

    /// What would close a circle.
    pub(crate) fn cycle(field: &str, why: &str) -> Self {
        let error = FieldError::new(field, "CYCLE", why);
        Self { errors: vec![error], ..Self::new(ProblemKind::Conflict, "CYCLE", why) }
    }

    /// One field that is wrong.
    pub fn field(field: impl Into<String>, code: &'static str, message: impl Into<String>) -> Self {
        Self::invalid(vec![FieldError::new(field, code, message)])
    }

    /// A fault of ours.
    pub fn internal(cause: impl ToString) -> Self {
        let cause = Some(cause.to_string());
        Self { cause, ..Self::new(ProblemKind::Internal, "INTERNAL", "internal error") }
    }

    /// Adds a member.
    #[must_use]
    pub fn with(mut self, key: &str, value: Value) -> Self {
        self.more.insert(key.to_owned(), value);
        self
    }

    /// Puts what it says below a place of the body: `/items/3`.
    #[must_use]
    pub fn below(self, place: &str) -> Self {
        self.moved(|field| Some(format!("{place}{field}")))
    }

    /// Moves errors to the places that a function gives for theirs; those without one stay where they are.
    #[must_use]
    pub fn moved(mut self, place: impl Fn(&str) -> Option<String>) -> Self {
        let names_place = self.names_place();
        for error in &mut self.errors {
            if let Some(moved) = place(&error.field) {
                error.field = moved;
            }
        }
        if names_place && let [one] = &self.errors[..] {
            self.detail = text_of(one);
        }
        self
    }

    /// Says whether the text begins with the place of the only error: then both are moved together.
    pub fn names_place(&self) -> bool {
        matches!(&self.errors[..], [one] if self.detail == format!("{}: {}", one.field, one.message))
    }

    /// Says which entity it is about, where a request is about several.
    #[must_use]
    pub(crate) fn of(mut self, id: &str) -> Self {
        self.detail.insert_str(0, &format!("`{id}`: "));
        self
    }

    /// Adds the invalid fields of a later change. Unknown references are left out: they may name an entity whose own change
    /// was refused.
    fn join(&mut self, later: Self) {
        let later: Vec<FieldError> = later.errors.into_iter().filter(|e| e.code != "UNKNOWN_REFERENCE").collect();
        if later.is_empty() {
            return;
        }
        let mut errors = std::mem::take(&mut self.errors);
        errors.extend(later);
        let all = Self::invalid(errors);
        (self.detail, self.errors) = (all.detail, all.errors);
    }

    /// The same for an item of many: what is wrong with it as a whole gets its place, too.
    #[must_use]
    pub fn of_item(mut self, place: &str) -> Self {
        if self.errors.is_empty() {
            self.errors.push(FieldError::new("", self.code, self.detail.clone()));
        }
        self.below(place)
    }
}

/// The errors in the changes of one request: the first refusal, with the invalid fields of later ones added.
#[derive(Debug, Default)]
pub(crate) struct InvalidChanges(Option<Problem>);

impl InvalidChanges {
    /// Adds a refusal whose fields already have their position in the request. Returns whether checking later changes can
    /// add anything.
    pub(crate) fn note(&mut self, problem: Problem) -> bool {
        let tells_fields = problem.code == "VALIDATION_FAILED" && !problem.errors.is_empty();
        match &mut self.0 {
            None => self.0 = Some(problem),
            Some(first) if tells_fields => first.join(problem),
            // This error may only be a consequence of an earlier refusal.
            Some(_) => return false,
        }
        tells_fields && self.0.as_ref().is_some_and(|all| all.errors.len() < ERRORS_MAX)
    }

    /// Whether nothing was refused.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Gives the refusal of the request.
    pub(crate) fn into_problem(self) -> Option<Problem> {
        self.0
    }
}

impl From<quiver_database::Error> for Problem {
    fn from(error: quiver_database::Error) -> Self {
        if quiver_database::is_passing(&error) {
            let busy = Self::new(ProblemKind::Busy, "STORE_BUSY", "the configuration store is busy; try again");
            return Self { cause: Some(error.to_string()), ..busy };
        }
        Self::internal(error)
    }
}

/// What a problem with this error alone says.
fn text_of(error: &FieldError) -> String {
    if error.field.is_empty() { error.message.clone() } else { format!("{}: {}", error.field, error.message) }
}

/// Cuts a sender's text to what an error may repeat.
pub(crate) fn shown(text: &str) -> String {
    let mut shown: String = text.chars().filter(|c| !c.is_control()).take(SHOWN_MAX).collect();
    if text.chars().count() > SHOWN_MAX {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_field_say_one_place() {
        let problem = Problem::field("/key", "REQUIRED", "is missing").of_item("/items/1");
        assert_eq!((&*problem.detail, &*problem.errors[0].field), ("/items/1/key: is missing", "/items/1/key"));
        assert_eq!(
            &*Problem::field("", "INVALID_TYPE", "the body must be an object").detail,
            "the body must be an object"
        );
        // What is wrong as a whole keeps its text.
        let problem = Problem::new(ProblemKind::Conflict, "DUPLICATE", "is there already").of_item("/items/1");
        assert_eq!((&*problem.detail, &*problem.errors[0].field), ("is there already", "/items/1"));
    }

    #[test]
    fn what_is_wrong_is_counted() {
        let error = |field: &str| FieldError::new(field, "REQUIRED", "is missing");
        for (fields, expected) in [
            (vec![""], "is missing"),
            (vec!["/a"], "/a: is missing"),
            (vec!["/a", "/b"], "2 fields are invalid"),
            (vec![], "0 fields are invalid"),
        ] {
            let problem = Problem::invalid(fields.iter().map(|field| error(field)).collect());
            assert_eq!((problem.detail.as_str(), problem.errors.len()), (expected, fields.len()));
            assert_eq!((problem.kind, problem.code), (ProblemKind::Invalid, "VALIDATION_FAILED"));
        }
        // So many are told, and all of them counted.
        let many = Problem::invalid((0..ERRORS_MAX + 5).map(|n| error(&format!("/{n}"))).collect());
        assert_eq!((many.errors.len(), many.detail.as_str()), (ERRORS_MAX, "105 fields are invalid"));
    }

    #[test]
    fn places_are_put_below_others() {
        let below = |problem: Problem| {
            let problem = problem.below("/items/3");
            (problem.detail.clone(), problem.errors.iter().map(|e| e.field.clone()).collect::<Vec<_>>())
        };
        let told = |detail: &str, fields: &[&str]| {
            (detail.to_owned(), fields.iter().map(|field| (*field).to_owned()).collect::<Vec<_>>())
        };
        let one = || FieldError::new("/a", "REQUIRED", "is missing");
        assert_eq!(
            below(Problem::field("/a", "REQUIRED", "is missing")),
            told("/items/3/a: is missing", &["/items/3/a"])
        );
        let two = Problem::invalid(vec![one(), FieldError::new("/b", "TOO_LONG", "is long")]);
        assert_eq!(below(two), told("2 fields are invalid", &["/items/3/a", "/items/3/b"]));
        // A text that names no place keeps its own words.
        assert_eq!(below(Problem::field("", "INVALID_TYPE", "no object")), told("no object", &["/items/3"]));
        // Elsewhere than below: text and field say one place there, too.
        let moved = |field: &str, to: &str| {
            let problem = Problem::field(field, "REQUIRED", "is missing").moved(|_| Some(to.to_owned()));
            (problem.detail.clone(), problem.errors[0].field.clone())
        };
        assert_eq!(moved("/0/a", "/a"), ("/a: is missing".to_owned(), "/a".to_owned()));
        assert_eq!(moved("/0", ""), ("is missing".to_owned(), String::new()));
        assert_eq!(Problem::field("/0/a", "REQUIRED", "is missing").moved(|_| None).detail, "/0/a: is missing");
        let whole = Problem::new(ProblemKind::Conflict, "DUPLICATE", "is there");
        assert_eq!(below(whole.clone()), told("is there", &[]));
        assert_eq!(whole.of("id-1").detail, "`id-1`: is there");
    }

    #[test]
    fn problems_tell_what_they_may() {
        let fault = Problem::internal("the disk /var/x is gone");
        assert_eq!(
            (fault.kind, fault.code, fault.detail.as_str()),
            (ProblemKind::Internal, "INTERNAL", "internal error")
        );
        assert_eq!(fault.cause.as_deref(), Some("the disk /var/x is gone"), "for the log");
        let forbidden = Problem::forbidden("{edit, logs, *}");
        assert_eq!((forbidden.code, &forbidden.more["required"]), ("FORBIDDEN", &json!("{edit, logs, *}")));
        let missing = Problem::not_found("x");
        assert_eq!((missing.kind, missing.detail.as_str()), (ProblemKind::NotFound, "nothing has the id `x`"));
        let twice = missing.with("a", json!(1)).with("a", json!(2));
        assert_eq!(twice.more["a"], json!(2));
    }

    /// What an error repeats of a sender is short, and in one line.
    #[test]
    fn what_is_shown_of_a_sender() {
        for (text, expected) in [("", ""), ("a b", "a b"), ("a\r\n\tb\u{1b}[0m", "ab[0m"), ("\0", "")] {
            assert_eq!(shown(text), expected, "{text}");
        }
        let whole = "é".repeat(SHOWN_MAX);
        assert_eq!((shown(&whole), shown(&format!("{whole}é"))), (whole.clone(), format!("{whole}…")));
    }

    #[test]
    fn invalid_fields_of_several_changes() {
        let refused = |field: &str, code| Problem::field(field, code, "no");
        let fields = |all: InvalidChanges| {
            let problem = all.into_problem().expect("a refusal");
            let fields: Vec<String> = problem.errors.iter().map(|e| e.field.clone()).collect();
            (problem.code, problem.detail, fields)
        };
        let mut all = InvalidChanges::default();
        assert!(all.is_empty() && all.note(refused("/0/a", "PATTERN")) && !all.is_empty());
        // What it names may be what was refused before.
        assert!(all.note(refused("/1/b", "UNKNOWN_REFERENCE")));
        assert!(all.note(refused("/2/c", "TOO_LONG")));
        assert!(!all.note(Problem::new(ProblemKind::Conflict, "DUPLICATE", "is there already")));
        let expected = vec!["/0/a".to_owned(), "/2/c".to_owned()];
        assert_eq!(fields(all), ("VALIDATION_FAILED", "2 fields are invalid".to_owned(), expected));
        let mut all = InvalidChanges::default();
        assert!(!all.note(Problem::new(ProblemKind::Invalid, "LIMIT_EXCEEDED", "too many").of_item("/items/1")));
        assert_eq!(fields(all).0, "LIMIT_EXCEEDED");
        let mut all = InvalidChanges::default();
        assert_eq!((0..ERRORS_MAX).filter(|n| all.note(refused(&format!("/{n}"), "PATTERN"))).count(), ERRORS_MAX - 1);
    }
}
