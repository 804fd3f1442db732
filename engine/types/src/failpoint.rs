//! Fail points: named places where a test ends the process or makes its work slow (promises D2, D4, D7, L5).
//!
//! Nothing happens at them until [`arm`] is called, which the binary does for its flag `--failpoints` only, with what
//! [`VARIABLE`] says: `<name>[:<n>]` aborts at the n-th hit (default the first), `<name>=sleep:<ms>` sleeps at each hit;
//! several are separated by commas. Each crate lists its names in its `failpoint.rs`. A hit that nothing is armed for is
//! one relaxed load.

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

/// Passes a fail point. Crates pass theirs through their own `failpoint::hit`, which gives their list of names; others
/// are refused in debug builds.
#[inline]
pub fn hit(name: &'static str, list: &[&str]) {
    if ARMED.load(Relaxed) {
        armed(name, list);
    }
}

#[cold]
fn armed(name: &str, list: &[&str]) {
    debug_assert!(list.contains(&name), "fail point `{name}` is not in the list");
    for plan in PLANS.get().into_iter().flatten().filter(|plan| plan.name == name) {
        match plan.action {
            Action::AbortAt(n) => {
                if plan.hits.fetch_add(1, Relaxed) + 1 == n {
                    std::process::abort();
                }
            }
            Action::Sleep(time) => std::thread::sleep(time),
        }
    }
}

fn parse(text: &str) -> Result<Plan> {
    let bad = || Error::invalid(format!("`{text}` is not of the form `<name>[:<n>]` or `<name>=sleep:<ms>`"));
    let (name, action) = if let Some((name, ms)) = text.split_once("=sleep:") {
        (name, Action::Sleep(Duration::from_millis(ms.parse().map_err(|_| bad())?)))
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
        assert!(parse("a:b").is_err() && parse("a=sleep:soon").is_err());
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
