//! Fail points: named places where a test ends the process or makes its work slow (promises D2, D4, D7, L5).
//!
//! Nothing happens at them until [`arm`] is called, which the binary does for its flag `--failpoints` only, with what
//! [`VARIABLE`] says: `<name>[:<n>]` aborts at the n-th hit (default the first), `<name>=sleep:<ms>` sleeps at each hit,
//! `<name>=hold:<file>` waits at each hit as long as the file is there, `<name>=panic[:<n>]` panics and
//! `<name>=error[:<n>]` lets the step fail at the first n hits (default all); several are separated by commas. Each crate
//! lists its names in its `failpoint.rs`. A hit that nothing is armed for is one relaxed load.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::{Error, Result};

/// The environment variable that says what to arm.
pub const VARIABLE: &str = "QUIVER_FAILPOINT";

static ARMED: AtomicBool = AtomicBool::new(false);
static PLANS: OnceLock<Vec<Plan>> = OnceLock::new();

#[derive(Debug, PartialEq)]
enum Action {
    AbortAt(u64),
    Sleep(Duration),
    Hold(PathBuf),
    Panic(u64),
    Fail(u64),
}

#[derive(Debug)]
struct Plan {
    name: String,
    action: Action,
    hits: AtomicU64,
}

/// Arms what a text says, once in the life of a process. `lists` are the names that there are.
///
/// # Errors
/// Invalid: no text of that form, a name that is in no list, armed before.
pub fn arm(text: &str, lists: &[&[&str]]) -> Result<()> {
    let plans: Vec<Plan> = text.split(',').map(parse).collect::<Result<_>>()?;
    let known = |name: &str| lists.iter().any(|list| list.contains(&name));
    if let Some(plan) = plans.iter().find(|plan| !known(&plan.name)) {
        return Err(Error::invalid(format!("there is no fail point `{}`", plan.name)));
    }
    PLANS.set(plans).map_err(|_| Error::invalid("fail points are armed already"))?;
    ARMED.store(true, Relaxed);
    Ok(())
}

/// Says whether any is armed: a thread that passes one may stand still there.
#[inline]
pub fn is_armed() -> bool {
    ARMED.load(Relaxed)
}

/// Passes a fail point. Crates pass theirs through their own `failpoint::hit`, which gives their list of names; others
/// are refused in debug builds.
#[inline]
pub fn hit(name: &'static str, list: &[&str]) {
    if is_armed() {
        // Who cannot fail goes on.
        let _ = armed(name, list);
    }
}

/// Passes a fail point at which the step can fail, too.
///
/// # Errors
/// Internal: it is armed so.
#[inline]
pub fn check(name: &'static str, list: &[&str]) -> Result<()> {
    if is_armed() { armed(name, list) } else { Ok(()) }
}

#[cold]
fn armed(name: &str, list: &[&str]) -> Result<()> {
    debug_assert!(list.contains(&name), "fail point `{name}` is not in the list");
    for plan in PLANS.get().into_iter().flatten().filter(|plan| plan.name == name) {
        let hits = plan.hits.fetch_add(1, Relaxed) + 1;
        match &plan.action {
            Action::AbortAt(n) if hits == *n => std::process::abort(),
            Action::Sleep(time) => std::thread::sleep(*time),
            Action::Hold(file) => hold(file),
            Action::Panic(n) => assert!(hits > *n, "fail point `{name}`"),
            Action::Fail(n) if hits <= *n => return Err(Error::internal(format!("fail point `{name}`"))),
            Action::AbortAt(_) | Action::Fail(_) => {}
        }
    }
    Ok(())
}

/// Waits as long as a file is there. Who made it learns by another one, of extension `reached`, that somebody waits:
/// a test that slept instead would have to guess how fast its machine is.
fn hold(file: &Path) {
    if file.exists() {
        // Without it the test fails for want of patience.
        let _ = std::fs::write(file.with_extension("reached"), "");
    }
    while file.exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn parse(text: &str) -> Result<Plan> {
    let bad = || {
        let forms = "`<name>[:<n>]`, `<name>=sleep:<ms>`, `<name>=hold:<file>`, `<name>=panic[:<n>]` or \
                     `<name>=error[:<n>]`";
        Error::invalid(format!("`{text}` is not of the form {forms}"))
    };
    let first = |action: &str, word: &str| -> Option<Result<u64>> {
        match action.strip_prefix(word)? {
            "" => Some(Ok(u64::MAX)),
            n => Some(n.strip_prefix(':').and_then(|n| n.parse().ok()).ok_or_else(bad)),
        }
    };
    let (name, action) = if let Some((name, ms)) = text.split_once("=sleep:") {
        (name, Action::Sleep(Duration::from_millis(ms.parse().map_err(|_| bad())?)))
    } else if let Some((name, file)) = text.split_once("=hold:").filter(|(_, file)| !file.is_empty()) {
        (name, Action::Hold(file.into()))
    } else if let Some((name, action)) = text.split_once('=') {
        let action = match (first(action, "panic"), first(action, "error")) {
            (Some(n), _) => Action::Panic(n?),
            (_, Some(n)) => Action::Fail(n?),
            (None, None) => return Err(bad()),
        };
        (name, action)
    } else if let Some((name, n)) = text.split_once(':') {
        (name, Action::AbortAt(n.parse().map_err(|_| bad())?))
    } else {
        (text, Action::AbortAt(1))
    };
    Ok(Plan { name: name.to_owned(), action, hits: AtomicU64::new(0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        let check = |text: &str, name: &str, action: Action| {
            let plan = parse(text).expect("a plan");
            assert_eq!((plan.name.as_str(), plan.action), (name, action));
        };
        check("flush.after-part", "flush.after-part", Action::AbortAt(1));
        check("flush.after-part:7", "flush.after-part", Action::AbortAt(7));
        check("a=sleep:20", "a", Action::Sleep(Duration::from_millis(20)));
        check("a=hold:/tmp/a:b", "a", Action::Hold("/tmp/a:b".into()));
        check("a.b=panic", "a.b", Action::Panic(u64::MAX));
        check("a.b=error:3", "a.b", Action::Fail(3));
        for bad in ["a:b", "a=sleep:soon", "a=what", "a=hold:", "a=error:x", "a=panic3"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn who_is_held_says_so_and_goes_on() {
        let file = std::env::temp_dir().join(format!("quiver-failpoint-{}", std::process::id()));
        let reached = file.with_extension("reached");
        let _ = std::fs::remove_file(&reached);
        // Nobody holds it.
        hold(&file);
        assert!(!reached.exists());
        std::fs::write(&file, "").expect("writable");
        std::thread::scope(|scope| {
            let held = scope.spawn(|| hold(&file));
            while !reached.exists() {
                std::thread::yield_now();
            }
            assert!(!held.is_finished());
            std::fs::remove_file(&file).expect("ours");
        });
        std::fs::remove_file(&reached).expect("ours");
    }

    #[test]
    fn only_what_is_listed_is_armed() {
        let refused = |text: &str| arm(text, &[&["a", "b"], &["c"]]).unwrap_err().message;
        assert_eq!(refused("d"), "there is no fail point `d`");
        assert_eq!(refused(""), "there is no fail point ``");
        assert!(refused("a,c=sleep:x").contains("`c=sleep:x`"));
        // Nothing was armed, so this is not the end of the test.
        hit("a", &["a", "b"]);
        arm("a=sleep:1,c:2", &[&["a", "b"], &["c"]]).expect("listed");
        hit("a", &["a", "b"]);
        hit("c", &["c"]);
        assert!(refused("a").contains("already"));
    }
}
