//! The ids in a path. An id that is not valid UTF-8 is answered like any other unknown one. UUIDs are compared
//! without case; they are stored and shown in lower case, as RFC 9562 writes them.

use axum::extract::{FromRequestParts, Path};
use axum::response::Response;
use http::request::Parts;
use quiver_config::{ChangeMode, Problem, Result};

use super::response::Answer;

/// The path parameters in order: name and value.
pub(crate) struct Ids(pub(crate) Vec<(String, String)>);

impl<S: Send + Sync> FromRequestParts<S> for Ids {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> std::result::Result<Self, Self::Rejection> {
        match Path::<Vec<(String, String)>>::from_request_parts(parts, state).await {
            Ok(Path(ids)) => Ok(Self(ids.into_iter().map(|(part, id)| in_one_case(part, id)).collect())),
            Err(_) => Err(Answer::of_problem(&Problem::not_found("\u{fffd}")).into_response(None)),
        }
    }
}

/// Lower-cases UUIDs. Names of groups and namespaces are left alone, whatever they look like.
fn in_one_case(part: String, id: String) -> (String, String) {
    let id = if matches!(part.as_str(), "namespace" | "name") { id } else { uuid_of(&id).unwrap_or(id) };
    (part, id)
}

/// Refuses query parameters of an operation that has none except `dryRun`, which all operations have.
///
/// # Errors
/// `INVALID_PARAMETER`.
pub(crate) fn no_parameters(query: Option<&str>) -> Result<()> {
    let mut given = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    match given.find(|(key, value)| key != "dryRun" || !matches!(value.as_ref(), "true" | "false")) {
        Some((key, _)) if key == "dryRun" => Err(Problem::parameter("`dryRun` must be true or false")),
        Some((key, _)) => Err(Problem::parameter(format!("unknown parameter `{key}`"))),
        None => Ok(()),
    }
}

/// Whether a query string asks for a change or for a dry run.
pub(crate) fn change_mode(query: Option<&str>) -> ChangeMode {
    let mut given = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    let is_dry = given.any(|(key, value)| key == "dryRun" && value == "true");
    if is_dry { ChangeMode::DryRun } else { ChangeMode::Apply }
}

/// The stored form of a UUID.
///
/// # Errors
/// `INVALID_VALUE`: it is not a UUID.
pub(crate) fn uuid_of(id: &str) -> Result<String> {
    let hex = |part: &str, len| part.len() == len && part.bytes().all(|b| b.is_ascii_hexdigit());
    let parts: Vec<&str> = id.split('-').collect();
    let lengths = [8, 4, 4, 4, 12];
    let sane = parts.len() == 5 && parts.iter().zip(lengths).all(|(part, len)| hex(part, len));
    if sane { Ok(id.to_ascii_lowercase()) } else { Err(Problem::field("/id", "INVALID_VALUE", "must be a UUID")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_passed_over() {
        assert!(no_parameters(None).is_ok() && no_parameters(Some("dryRun=true&")).is_ok());
        for wrong in ["a", "bogus=1", "dryRun=maybe", "dryRun=true&x="] {
            assert!(no_parameters(Some(wrong)).is_err_and(|problem| problem.code == "INVALID_PARAMETER"), "{wrong}");
        }
    }

    #[test]
    fn uuids_are_kept_in_lower_case() {
        let (capitals, kept) = ("0191D0A0-7C3E-7ABC-8DEF-0123456789AB", "0191d0a0-7c3e-7abc-8def-0123456789ab");
        let of = |part: &str, id: &str| in_one_case(part.to_owned(), id.to_owned()).1;
        assert_eq!(uuid_of(capitals).ok().as_deref(), Some(kept));
        assert_eq!((of("id", capitals).as_str(), of("entity", kept).as_str()), (kept, kept));
        // The name of a group may look like a UUID and is not one.
        assert_eq!((of("name", capitals).as_str(), of("id", "Cart").as_str()), (capitals, "Cart"));
        assert!(uuid_of("{0191d0a0-7c3e-7abc-8def-0123456789ab}").is_err());
    }

    #[test]
    fn dry_runs_are_asked_for_by_one_word() {
        for (query, expected) in [
            (None, false),
            (Some(""), false),
            (Some("dryRun"), false),
            (Some("dryRun="), false),
            (Some("dryRun=false"), false),
            (Some("dryRun=TRUE"), false),
            (Some("dryrun=true"), false),
            (Some("dryRun=1"), false),
            (Some("dryRun=true"), true),
            (Some("dry%52un=%74rue"), true),
            // If two values contradict each other it is a dry run.
            (Some("dryRun=false&dryRun=true"), true),
        ] {
            assert_eq!(change_mode(query).is_dry_run(), expected, "{query:?}");
        }
    }

    #[test]
    fn what_is_wrong_with_parameters_is_named() {
        for (query, expected) in [
            ("dryrun=true", "unknown parameter `dryrun`"),
            ("dryRun=", "`dryRun` must be true or false"),
            ("dryRun=True", "`dryRun` must be true or false"),
            ("a%20b=1", "unknown parameter `a b`"),
            ("=1", "unknown parameter ``"),
            ("dryRun=true&limit=5&x=1", "unknown parameter `limit`"),
        ] {
            assert_eq!(no_parameters(Some(query)).unwrap_err().detail, expected, "{query}");
        }
        for fine in ["", "&", "dryRun=false", "dryRun=true&dryRun=true"] {
            assert!(no_parameters(Some(fine)).is_ok(), "{fine}");
        }
    }

    #[test]
    fn what_is_no_uuid() {
        let good = "0191d0a0-7c3e-7abc-8def-0123456789ab";
        for wrong in [
            "",
            "-",
            "0191d0a07c3e7abc8def0123456789ab",
            "0191d0a0-7c3e-7abc-8def-0123456789a",
            "0191d0a0-7c3e-7abc-8def-0123456789abc",
            "0191d0a-07c3e-7abc-8def-0123456789ab",
            "0191d0a0-7c3e-7abc-8def-0123456789ag",
            "0191d0a0-7c3e-7abc-8def-0123456789ab-",
            " 0191d0a0-7c3e-7abc-8def-0123456789ab",
            "urn:uuid:0191d0a0-7c3e-7abc-8def-0123456789ab",
        ] {
            let problem = uuid_of(wrong).unwrap_err();
            assert_eq!((&*problem.errors[0].field, problem.errors[0].code), ("/id", "INVALID_VALUE"), "{wrong}");
        }
        assert_eq!(uuid_of(good).unwrap(), good);
    }
}
