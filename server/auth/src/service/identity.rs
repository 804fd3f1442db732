//! Who somebody is, by what, and what may be done with it.

use std::sync::Arc;

use quiver_types::{Access, Domain, Right, Rights, Triple};

use crate::directory::{AccountKind, Key};
use crate::sha256_hex;

/// Who somebody is, for good.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A user or service account of ours.
    Account(AccountKind, String),
    /// Somebody whom another issuer knows: issuer, subject.
    External(String, String),
    /// Access control is off: whoever.
    Anyone,
}

impl Subject {
    /// As audit rows and lists of queries name it.
    pub fn text(&self) -> String {
        match self {
            Self::Account(kind, id) => format!("{}:{id}", kind.word()),
            Self::External(issuer, subject) => format!("oidc:{issuer}:{subject}"),
            Self::Anyone => String::new(),
        }
    }
}

/// By what somebody came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// A token of ours or of another issuer.
    Token,
    /// An API key.
    ApiKey,
    /// Name and secret.
    Basic,
    /// A certificate, with which its connection began.
    Certificate,
    /// Access control is off.
    Off,
}

/// Who calls.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Whose rights these are, for good.
    pub subject: Subject,
    /// Name that people know the caller by.
    pub name: String,
    /// What it may do at this moment.
    pub rights: Arc<Rights>,
    /// By what it came in.
    pub way: Way,
    /// The session of its token; of one without, what names the token itself.
    pub session: Option<String>,
    /// The API key that it showed.
    pub(crate) shown_key: Option<Arc<Key>>,
    /// Its roles at another issuer.
    pub(crate) roles: Arc<[String]>,
}

impl Identity {
    /// Whoever, when access control is off.
    pub fn anyone() -> Self {
        Self {
            subject: Subject::Anyone,
            name: String::new(),
            rights: Arc::new(Rights::full()),
            way: Way::Off,
            session: None,
            shown_key: None,
            roles: Arc::default(),
        }
    }

    /// Somebody who has not said who it is, and may nothing.
    pub fn nobody() -> Self {
        Self { rights: Arc::new(Rights::default()), ..Self::anyone() }
    }

    /// The operator, known by the secret of `/admin`.
    pub fn operator() -> Self {
        let rights = [Triple::everywhere(Right::Admin, Domain::System)].into_iter().collect();
        Self { rights: Arc::new(rights), name: "operator".to_owned(), ..Self::anyone() }
    }

    /// The key that it showed, by the twelve characters that name it.
    pub fn key(&self) -> Option<&str> {
        self.shown_key.as_deref().map(|key| key.key_id.as_str())
    }

    /// When the key that it showed ends, and from which networks it may be used.
    pub fn key_bounds(&self) -> Option<(Option<i64>, &[String])> {
        self.shown_key.as_deref().map(|key| (key.expires_ms, &key.networks[..]))
    }

    /// What it may see of a domain.
    pub fn access(&self, domain: Domain) -> Access {
        self.rights.access(Right::View, domain)
    }
}

/// The id under which a user of another issuer is kept: it follows from what the issuer says, in the form of a UUID.
pub fn external_id(issuer: &str, subject: &str) -> String {
    let hash = sha256_hex(format!("{}:{issuer}:{subject}", issuer.len()).as_bytes());
    let part = |from: usize, to: usize| &hash[from..to];
    format!("{}-{}-8{}-8{}-{}", part(0, 8), part(8, 12), part(13, 16), part(17, 20), part(20, 32))
}
