//! Creates the first administrator, and resets a password that an operator lost.

use std::io::Write;
use std::path::{Path, PathBuf};

use futures::future::BoxFuture;
use quiver_auth::{OsRandom, PasswordRule, Passwords, api_key};
use quiver_config::families::{ADMIN_ROLE_ID, BINDINGS, USERS};
use quiver_config::{
    AuditEvent, Caller, ChangeMode, Condition, Config, FieldError, ListQuery, Op, Place, Problem, ProblemKind, Result,
    System,
};
use serde_json::{Map, Value, json};

use super::Identities;

/// The name of the first administrator.
const NAME: &str = "admin";
/// The file that holds a generated password.
const FILE: &str = "initial-admin-password";

/// Where the first password comes from.
#[derive(Debug, Clone, Default)]
pub struct FirstPassword {
    /// A file that contains the password.
    pub file: Option<PathBuf>,
    /// The password itself.
    pub text: Option<quiver_auth::Secret>,
    /// The data directory, into which a generated password is written.
    pub data: PathBuf,
}

impl FirstPassword {
    /// Returns the password, and whether it was generated.
    fn get(&self) -> Result<(String, bool)> {
        let refuse = |text: String| Problem::new(ProblemKind::Invalid, "INVALID_VALUE", text);
        let given = match (&self.file, &self.text) {
            (Some(path), _) => {
                let text = quiver_files::read_text(path, quiver_files::SECRET_BYTES_MAX)
                    .map_err(|e| refuse(format!("the first password cannot be read from `{}`: {e}", path.display())))?;
                Some(text.trim_end_matches(['\r', '\n']).to_owned())
            }
            (None, Some(secret)) => Some(secret.expose().to_owned()),
            (None, None) => None,
        };
        match given {
            None => Ok((api_key::make_secret(&OsRandom)[..24].to_owned(), true)),
            Some(password) => match Passwords::check(NAME, &password).map(PasswordRule::said) {
                None => Ok((password, false)),
                Some((_, why)) => Err(refuse(format!("the first password {why}"))),
            },
        }
    }
}

fn map(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// Finds the id of a user by name.
async fn id_of(config: &Config, username: &str) -> Result<Option<String>> {
    let query = ListQuery::parse(&USERS, &[("username".to_owned(), username.to_lowercase())], &[])?;
    let found = config.list(&Place::of(&USERS), &query, &Caller::system()).await?;
    Ok(found.items.first().and_then(|u| u.get("id")).and_then(Value::as_str).map(str::to_owned))
}

/// Creates `admin` with all rights. The role binding is created last, and a start without one does all this again, so
/// that an interrupted start locks nobody out.
pub(super) async fn make_administrator(identities: &Identities, first: &FirstPassword) -> Result<()> {
    let config = &identities.config;
    let (password, made_up) = first.get()?;
    let system = Caller::setup();
    let user = map(json!({"username": NAME, "password": password, "mustChangePassword": made_up}));
    let op = match id_of(config, NAME).await? {
        None => Op::Create { id: None, body: user },
        Some(id) => Op::Patch { id, patch: user, condition: Condition::None },
    };
    let made = config.change(&Place::of(&USERS), &system, op, System::default(), ChangeMode::Apply).await?;
    let id = made.after.map(|e| e.id).unwrap_or_default();
    if made_up {
        tell(&first.data, &password);
    } else {
        tracing::info!("first start: made the user `{NAME}` with the given password");
    }
    let binding = json!({"subject": {"type": "user", "id": id}, "roleId": ADMIN_ROLE_ID, "description": "first start"});
    let op = Op::Create { id: None, body: map(binding) };
    config.change(&Place::of(&BINDINGS), &system, op, System::default(), ChangeMode::Apply).await?;
    Ok(())
}

/// Reports a generated password: once on the terminal, and in a file that only its owner can read.
fn tell(data: &Path, password: &str) {
    use std::os::unix::fs::OpenOptionsExt;
    let path = data.join(FILE);
    let written = quiver_files::refuse_irregular(&path)
        .and_then(|()| std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path));
    let written = written.and_then(|mut file| writeln!(file, "{password}").and_then(|()| file.sync_all()));
    // Not to the log, which others may read and archive.
    let _ = std::io::stderr().write_all(text_of(password, &path, written.is_ok()).as_bytes());
    if let Err(error) = written {
        tracing::warn!(%error, "the first password cannot be written to `{}`", path.display());
    }
}

fn text_of(password: &str, path: &Path, is_written: bool) -> String {
    let also = if is_written { format!("; also in {}", path.display()) } else { String::new() };
    format!("first start: user `{NAME}`, password {password} (to be changed first, see docs/identity.md{also})\n")
}

/// The file for a generated password.
pub(super) fn file(data: &Path) -> PathBuf {
    data.join(FILE)
}

/// Deletes the file with the first password: the password was changed.
pub(super) fn forget_file(data: &Path) {
    let _ = std::fs::remove_file(file(data));
}

/// Sets the password of a user directly in the store; for `quiver admin reset-password`.
///
/// # Errors
/// `NOT_FOUND`, and those of the password and the store.
pub fn reset_password<'a>(config: &'a Config, username: &'a str, password: &'a str) -> BoxFuture<'a, Result<()>> {
    Box::pin(async move {
        let system = Caller { name: "quiver admin".to_owned(), ..Caller::system() };
        let place = Place::of(&USERS);
        let id = id_of(config, username).await?;
        let Some(id) = id else { return Err(Problem::not_found(username)) };
        if let Some((code, why)) = Passwords::check(username, password).map(PasswordRule::said) {
            return Err(Problem::invalid(vec![FieldError::new("/password", code, why)]));
        }
        let patch = map(json!({"password": password, "mustChangePassword": false, "enabled": true}));
        let op = Op::Patch { id: id.clone(), patch, condition: Condition::None };
        config.change(&place, &system, op, System::default(), ChangeMode::Apply).await?;
        let event = AuditEvent {
            action: "PASSWORD_CHANGE",
            family: "rbac/users",
            entity_id: Some(id),
            entity_name: Some(username.to_owned()),
            outcome: "ok",
            code: None,
        };
        config.audit(&system, event).await;
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_first_password_is_given_or_made_up() {
        const GOOD: &str = "seven green bottles";
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("password");
        std::fs::write(&path, format!("{GOOD}\r\n")).unwrap();
        let text = |text: &str| Some(quiver_auth::Secret::new(text));
        let given = |file: Option<&Path>, text| {
            FirstPassword { file: file.map(Path::to_owned), text, data: PathBuf::new() }.get()
        };
        assert_eq!(given(None, text(GOOD)).unwrap(), (GOOD.to_owned(), false));
        // The line end is not part of the password, and the file takes precedence over the text.
        assert_eq!(given(Some(path.as_path()), text("another good password")).unwrap(), (GOOD.to_owned(), false));
        let (made, is_made_up) = given(None, None).unwrap();
        assert!(is_made_up && made.len() == 24, "{made}");
        assert_ne!(given(None, None).unwrap().0, made);
        for (file, text, part) in [
            (None, text("short"), "the first password must have"),
            (None, text(""), "the first password must have"),
            (Some(dir.path().join("none")), None, "cannot be read from"),
        ] {
            let problem = given(file.as_deref(), text).unwrap_err();
            assert!(problem.detail.contains(part), "{}", problem.detail);
        }
    }

    #[test]
    fn the_terminal_names_the_file_that_is_there() {
        let path = Path::new("d/initial-admin-password");
        let told = "first start: user `admin`, password x (to be changed first, see docs/identity.md";
        assert_eq!(text_of("x", path, true), format!("{told}; also in d/initial-admin-password)\n"));
        assert_eq!(text_of("x", path, false), format!("{told})\n"));
    }

    #[test]
    fn its_file_is_the_owners_and_goes_with_it() {
        let dir = tempfile::tempdir().unwrap();
        for password in ["a longer one than the next", "the next"] {
            tell(dir.path(), password);
            assert_eq!(std::fs::read_to_string(file(dir.path())).unwrap(), format!("{password}\n"));
        }
        let mode = std::fs::metadata(file(dir.path())).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{mode:o}");
        forget_file(dir.path());
        assert!(!file(dir.path()).exists());
        // There is no file if the password was given.
        forget_file(dir.path());
    }
}
