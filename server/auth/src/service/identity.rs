//! The identity of a caller: who it is, how it authenticated, and its rights.

use std::sync::Arc;

use quiver_types::{Access, Domain, Right, Rights, Triple};

use crate::directory::{AccountKind, Key};
use crate::sha256_hex;

/// The permanent identity of a caller.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A local user or service account.
    Account(AccountKind, String),
    /// A user of an external issuer: issuer and subject.
    External(String, String),
    /// Anyone, as access control is off.
    Anyone,
}

impl Subject {
    /// Its text in audit rows and lists of queries.
    pub fn text(&self) -> String {
        match self {
            Self::Account(kind, id) => format!("{}:{id}", kind.word()),
            Self::External(issuer, subject) => format!("oidc:{issuer}:{subject}"),
            Self::Anyone => String::new(),
        }
    }
}

/// How a caller authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthMethod {
    /// A token of ours or of an external issuer.
    Token,
    /// An API key.
    ApiKey,
    /// Basic credentials.
    Basic,
    /// A client certificate of its connection.
    Certificate,
    /// Not at all, as access control is off.
    Off,
}

/// An authenticated caller.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Whose rights these are.
    pub subject: Subject,
    /// Name for display.
    pub name: String,
    /// Its current rights.
    pub rights: Arc<Rights>,
    /// How it authenticated.
    pub way: AuthMethod,
    /// The session of its token; if it has none, the id of the token.
    pub session: Option<String>,
    /// The API key that it used.
    pub(crate) shown_key: Option<Arc<Key>>,
    /// Its roles at an external issuer.
    pub(crate) roles: Arc<[String]>,
}

impl Identity {
    /// Anyone, while access control is off.
    pub fn anyone() -> Self {
        Self {
            subject: Subject::Anyone,
            name: String::new(),
            rights: Arc::new(Rights::full()),
            way: AuthMethod::Off,
            session: None,
            shown_key: None,
            roles: Arc::default(),
        }
    }

    /// A caller without credentials, and without rights.
    pub fn nobody() -> Self {
        Self { rights: Arc::new(Rights::default()), ..Self::anyone() }
    }

    /// The operator, authenticated by the secret for `/admin`.
    pub fn operator() -> Self {
        let rights = [Triple::everywhere(Right::Admin, Domain::System)].into_iter().collect();
        Self { rights: Arc::new(rights), name: "operator".to_owned(), ..Self::anyone() }
    }

    /// The id of the API key that it used, twelve characters.
    pub fn key(&self) -> Option<&str> {
        self.shown_key.as_deref().map(|key| key.key_id.as_str())
    }

    /// Expiry and allowed networks of the API key that it used.
    pub fn key_bounds(&self) -> Option<(Option<i64>, &[String])> {
        self.shown_key.as_deref().map(|key| (key.expires_ms, &key.networks[..]))
    }

    /// What it may see of a domain.
    pub fn access(&self, domain: Domain) -> Access {
        self.rights.access(Right::View, domain)
    }
}

/// The id under which a user of an external issuer is stored: derived from issuer and subject, in the form of a UUID.
pub fn external_id(issuer: &str, subject: &str) -> String {
    let hash = sha256_hex(format!("{}:{issuer}:{subject}", issuer.len()).as_bytes());
    let part = |from: usize, to: usize| &hash[from..to];
    format!("{}-{}-8{}-8{}-{}", part(0, 8), part(8, 12), part(13, 16), part(17, 20), part(20, 32))
}
