//! From what a request shows to who it is and what it may do.

use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use quiver_database::Database;
use quiver_types::{Access, Clock, Domain, Random, Result, Right, Rights, Triple, Vault};

use crate::Secret;
use crate::credentials::Shown;
use crate::directory::{Account, AccountKind, Directory, Key, is_within};
use crate::error::TokenError;
use crate::external::{ExternalIssuer, Externals, Fetch};
use crate::jwt::{Checked, Claims, Expected, Parts, verify};
use crate::keys::{Rotated, SigningKeys};
use crate::password::Passwords;
use crate::seen::{Notes, Seen};
use crate::session::Sessions;
use crate::throttle::Throttle;
use crate::{same, sha256_hex};

/// What our tokens are for.
pub(crate) const AUDIENCE: &str = "platform";

/// What may be tuned.
#[derive(Debug, Clone)]
pub struct AuthSettings {
    /// Whether people's passwords are taken as Basic.
    pub basic_passwords: bool,
    /// Whether analytics takes keys and secrets, too, not only tokens.
    pub olap_api_keys: bool,
    /// Bits of signing keys.
    pub key_bits: u32,
    /// Issuers beside this one.
    pub external: Vec<ExternalIssuer>,
}

impl Default for AuthSettings {
    fn default() -> Self {
        Self { basic_passwords: false, olap_api_keys: false, key_bits: 2048, external: Vec::new() }
    }
}

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
    /// Who.
    pub subject: Subject,
    /// Name that people know the caller by.
    pub name: String,
    /// What it may do at this moment.
    pub rights: Arc<Rights>,
    /// By what.
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

/// What is known of a request, beside what it shows.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The issuer that its address stands for.
    pub issuer: &'a str,
    /// Where from.
    pub ip: Option<IpAddr>,
}

/// Accounts, tokens and rights.
#[derive(Debug)]
pub struct Auth {
    pub(crate) settings: AuthSettings,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) directory: ArcSwap<Directory>,
    pub(crate) keys: SigningKeys,
    pub(crate) sessions: Sessions,
    pub(crate) passwords: Arc<Passwords>,
    pub(crate) throttle: Throttle,
    database: Database,
    /// Tells this server from others over the same database.
    server: String,
    checked: Checked,
    externals: Externals,
    notes: Notes,
}

impl Auth {
    /// Opens the token service.
    ///
    /// # Errors
    /// When the master key does not fit, or the database is gone.
    pub async fn open(
        settings: AuthSettings,
        pool: Database,
        vault: Arc<dyn Vault>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        fetch: Option<Arc<dyn Fetch>>,
    ) -> Result<Self> {
        let keys = SigningKeys::open(pool.clone(), Arc::clone(&vault), Arc::clone(&clock), settings.key_bits).await?;
        let sessions = Sessions::open(pool.clone(), vault, Arc::clone(&random), Arc::clone(&clock)).await?;
        let server = quiver_types::hex(&quiver_types::random_bytes::<8>(&*random));
        Ok(Self {
            externals: Externals::new(settings.external.clone(), fetch),
            settings,
            passwords: Arc::new(Passwords::new(Arc::clone(&random))),
            directory: ArcSwap::default(),
            throttle: Throttle::default(),
            database: pool,
            server,
            checked: Checked::default(),
            notes: Notes::default(),
            clock,
            random,
            keys,
            sessions,
        })
    }

    /// Takes a new picture of all accounts; what it no longer holds acts from the next request on.
    pub fn set_directory(&self, directory: Directory) {
        self.directory.store(Arc::new(directory));
    }

    /// The present picture.
    pub fn directory(&self) -> Arc<Directory> {
        self.directory.load_full()
    }

    /// Makes and checks hashes of passwords.
    pub fn passwords(&self) -> &Arc<Passwords> {
        &self.passwords
    }

    /// Says whether somebody shows what analytics takes: a token, unless a setting lets the rest in.
    ///
    /// # Errors
    /// What is wrong with what else was shown: a bad token where a token stands, else that there is none.
    pub fn may_ask_analytics(&self, identity: &Identity) -> Result<(), TokenError> {
        match identity.way {
            Way::Token | Way::Off => Ok(()),
            _ if self.settings.olap_api_keys => Ok(()),
            Way::ApiKey => Err(TokenError::Invalid),
            Way::Basic | Way::Certificate => Err(TokenError::Missing),
        }
    }

    /// Keys that sign.
    pub fn signing_keys(&self) -> &SigningKeys {
        &self.keys
    }

    /// Lets the next key sign.
    ///
    /// # Errors
    /// When the database is gone.
    pub async fn rotate_keys(&self, revoke_old: bool) -> Result<Rotated> {
        let rotated = self.keys.rotate(revoke_old).await?;
        if revoke_old {
            self.checked.clear();
        }
        Ok(rotated)
    }

    /// Looks what other servers over the same database did and saw: keys that sign, sessions that ended, guesses.
    ///
    /// # Errors
    /// When the database is gone.
    pub async fn look(&self) -> Result<()> {
        if self.keys.look().await? {
            self.checked.clear();
        }
        self.sessions.look().await?;
        self.throttle.look(&self.database, &self.server, self.clock.now_ms()).await
    }

    /// Ends all sessions of somebody but one.
    ///
    /// # Errors
    /// When the database is gone.
    pub async fn end_sessions(&self, subject: &Subject, but: Option<&str>) -> Result<()> {
        self.sessions.end_all(&subject.text(), but).await
    }

    /// Says who asks.
    ///
    /// # Errors
    /// See [`TokenError`].
    pub async fn identify(&self, shown: &Shown, request: Request<'_>) -> Result<Identity, TokenError> {
        match shown {
            Shown::Nothing => Err(TokenError::Missing),
            Shown::Token(token) => self.of_token(token.expose(), request).await,
            Shown::ApiKey(key) => self.of_key(key.expose(), request.ip),
            Shown::Basic { name, password } => self.of_basic(name, password, request.ip).await,
        }
    }

    /// Says who asks with a certificate that an authority of ours has signed: the service account of that name.
    ///
    /// # Errors
    /// [`TokenError::Invalid`]: there is none, or it may not act.
    pub fn identify_certificate(&self, name: &str) -> Result<Identity, TokenError> {
        let account = self.directory.load().named(AccountKind::Service, name).cloned().ok_or(TokenError::Invalid)?;
        Ok(Identity { way: Way::Certificate, ..self.of_account(AccountKind::Service, &account.id)? })
    }

    /// An identity of an account of ours that may act.
    fn of_account(&self, kind: AccountKind, id: &str) -> Result<Identity, TokenError> {
        let directory = self.directory.load();
        let account = directory.account(kind, id).filter(|a| a.enabled).ok_or(TokenError::Invalid)?;
        Ok(Identity {
            subject: Subject::Account(kind, id.to_owned()),
            name: account.name.clone(),
            rights: directory.rights(id, self.clock.now_ms()),
            way: Way::Token,
            session: None,
            shown_key: None,
            roles: Arc::default(),
        })
    }

    async fn of_token(&self, token: &str, request: Request<'_>) -> Result<Identity, TokenError> {
        let claims = self.claims(token, request.issuer).await?;
        if claims.issuer != request.issuer {
            return self.of_external(&claims, request.ip);
        }
        let session = claims.session.as_deref().or_else(|| claims.text("jti"));
        if session.is_some_and(|id| self.sessions.is_denied(id)) {
            return Err(TokenError::Invalid);
        }
        // `sub` is the id; which kind stands beside it, in a claim that only clients have.
        let kind = if claims.text("clientId").is_some() { AccountKind::Service } else { AccountKind::User };
        let identity = self.of_account(kind, &claims.subject)?;
        Ok(Identity { session: session.map(str::to_owned), ..identity })
    }

    /// Checks a token; remembers those that are good.
    pub(crate) async fn claims(&self, token: &str, issuer: &str) -> Result<Arc<Claims>, TokenError> {
        let now_ms = self.clock.now_ms();
        if let Some(claims) = self.checked.get(token, issuer, now_ms) {
            return Ok(claims);
        }
        let parts = Parts::read(token)?;
        let claims = match parts.issuer() {
            Some(by) if by == issuer => {
                let key = self.keys.verifier(&parts.kid, now_ms).ok_or(TokenError::Invalid)?;
                let audiences = [AUDIENCE.to_owned()];
                verify(token, parts, &key, Expected { issuer, audiences: &audiences, own: true }, now_ms)?
            }
            Some(_) => self.externals.verify(parts, token, now_ms).await?,
            None => return Err(TokenError::Invalid),
        };
        let claims = Arc::new(claims);
        self.checked.put(token, issuer, &claims, now_ms);
        Ok(claims)
    }

    /// The session in an id token of ours, however old, and whose it is.
    pub(crate) fn session_of_hint(&self, token: &str, issuer: &str) -> Option<(String, String)> {
        let parts = Parts::read(token).ok()?;
        let key = self.keys.verifier(&parts.kid, self.clock.now_ms())?;
        let said = parts.signed_by(token, &key)?;
        let text = |name: &str| said.get(name).and_then(serde_json::Value::as_str);
        let ours = text("iss") == Some(issuer) && text("typ") == Some("ID");
        Some((text("sid").filter(|_| ours)?.to_owned(), text("sub")?.to_owned()))
    }

    /// Waits for what is worth keeping of those who came by, and takes it.
    pub async fn seen(&self) -> Vec<Seen> {
        self.notes.take().await
    }

    /// Somebody whom another issuer knows: what its roles there give, and what is bound to the user that it is here.
    fn of_external(&self, claims: &Claims, ip: Option<IpAddr>) -> Result<Identity, TokenError> {
        let (name, roles) = self.externals.name_and_roles(claims).ok_or(TokenError::Invalid)?;
        let subject = Subject::External(claims.issuer.clone(), claims.subject.clone());
        let id = external_id(&claims.issuer, &claims.subject);
        let rights = self.external_rights(&id, &roles)?;
        if self.directory.load().account(AccountKind::User, &id).is_none() {
            let text = |claim: &str| claims.text(claim).map(str::to_owned);
            self.notes.user(&id, self.clock.now_ms(), || Seen::User {
                id: id.clone(),
                issuer: claims.issuer.clone(),
                name: name.clone(),
                email: text("email"),
                display_name: text("name"),
                ip,
            });
        }
        Ok(Identity {
            subject,
            name,
            rights: Arc::new(rights),
            way: Way::Token,
            session: None,
            shown_key: None,
            roles: roles.into(),
        })
    }

    /// # Errors
    /// [`TokenError::Invalid`]: the user is disabled here.
    fn external_rights(&self, id: &str, roles: &[String]) -> Result<Rights, TokenError> {
        let (directory, now_ms) = (self.directory.load(), self.clock.now_ms());
        let by_roles = directory.rights_of_roles(roles, now_ms);
        match directory.account(AccountKind::User, id) {
            None => Ok(by_roles),
            Some(account) if !account.enabled => Err(TokenError::Invalid),
            Some(_) => {
                let own = directory.rights(id, now_ms);
                Ok(by_roles.triples().iter().chain(own.triples()).cloned().collect())
            }
        }
    }

    fn of_key(&self, text: &str, ip: Option<IpAddr>) -> Result<Identity, TokenError> {
        let directory = self.directory.load();
        let key = crate::apikey::id_of(text).and_then(|id| directory.key(id)).ok_or(TokenError::Invalid)?;
        let right = same(&sha256_hex(text.as_bytes()), key.hash.expose());
        let from_here = key.networks.is_empty() || ip.is_some_and(|ip| is_within(ip, &key.networks));
        if !right || !from_here {
            return Err(TokenError::Invalid);
        }
        let identity = self.of_known_key(key)?;
        self.notes.key(key, ip, self.clock.now_ms());
        Ok(identity)
    }

    fn of_known_key(&self, key: &Arc<Key>) -> Result<Identity, TokenError> {
        if key.expires_ms.is_some_and(|end| self.clock.now_ms() >= end) {
            return Err(TokenError::Invalid);
        }
        let owner = self.of_account(key.owner.0, &key.owner.1)?;
        // What the owner lost meanwhile the key lost, too.
        let rights =
            key.rights.as_ref().map_or_else(|| Arc::clone(&owner.rights), |own| Arc::new(own.meet(&owner.rights)));
        Ok(Identity { rights, way: Way::ApiKey, shown_key: Some(Arc::clone(key)), ..owner })
    }

    /// Says who somebody is by now, for work that goes on after it was let in: with what it may do at this moment. That a
    /// token ends meanwhile does not matter; that its session was ended does.
    ///
    /// # Errors
    /// [`TokenError::Invalid`]: the account, key or session is gone.
    pub fn renewed(&self, identity: &Identity) -> Result<Identity, TokenError> {
        if identity.session.as_deref().is_some_and(|id| self.sessions.is_denied(id)) {
            return Err(TokenError::Invalid);
        }
        let directory = self.directory.load();
        let now = match (&identity.subject, identity.key()) {
            (Subject::Anyone, _) => return Ok(identity.clone()),
            (Subject::External(issuer, subject), _) => {
                let rights = self.external_rights(&external_id(issuer, subject), &identity.roles)?;
                return Ok(Identity { rights: Arc::new(rights), ..identity.clone() });
            }
            (_, Some(id)) => self.of_known_key(directory.key(id).ok_or(TokenError::Invalid)?)?,
            (Subject::Account(kind, id), None) => self.of_account(*kind, id)?,
        };
        Ok(Identity { rights: now.rights, ..identity.clone() })
    }

    /// Names of the roles that somebody has: by bindings of the account, and of roles at another issuer.
    pub fn roles_of(&self, identity: &Identity) -> Vec<String> {
        let (directory, now_ms) = (self.directory.load(), self.clock.now_ms());
        let mut roles = match &identity.subject {
            Subject::Account(_, id) => directory.roles(id, now_ms),
            Subject::External(issuer, subject) => {
                let own = directory.roles(&external_id(issuer, subject), now_ms);
                [own, directory.roles_by_roles(&identity.roles, now_ms)].concat()
            }
            Subject::Anyone => Vec::new(),
        };
        roles.sort_unstable();
        roles.dedup();
        roles
    }

    /// Whether the user of another issuer, of whom only the subject is known, is disabled here.
    fn is_disabled_external(&self, subject: &str) -> bool {
        let Some(named) = subject.strip_prefix("oidc:") else { return false };
        let mut issuers = self.settings.external.iter().map(|external| external.issuer.as_str());
        let id = issuers.find_map(|issuer| Some(external_id(issuer, named.strip_prefix(issuer)?.strip_prefix(':')?)));
        let directory = self.directory.load();
        id.is_some_and(|id| directory.account(AccountKind::User, &id).is_some_and(|account| !account.enabled))
    }

    /// Says whether somebody may by now still view all that he once could, in some domain or in all: of work that goes on
    /// in his name. Nobody is said to have lost what cannot be looked up: roles that another issuer gives, and accounts of
    /// a database that is gone.
    pub fn still_shows(&self, subject: &str, rights: &Rights, domain: Option<Domain>) -> bool {
        let directory = self.directory.load();
        let account = subject.split_once(':').and_then(|(word, id)| {
            let kinds = [AccountKind::User, AccountKind::Service];
            kinds.into_iter().find(|kind| kind.word() == word).map(|kind| (kind, id))
        });
        let Some((kind, id)) = account.filter(|_| directory.has_users()) else {
            return !self.is_disabled_external(subject);
        };
        if directory.account(kind, id).is_none_or(|account| !account.enabled) {
            return false;
        }
        directory.rights(id, self.clock.now_ms()).show_all_of(rights, domain)
    }

    async fn of_basic(&self, name: &str, password: &Secret, ip: Option<IpAddr>) -> Result<Identity, TokenError> {
        let client = self.client(name, password.expose(), ip);
        match client {
            Err(TokenError::Invalid) if self.settings.basic_passwords => {}
            Err(error) => return Err(error),
            Ok(account) => {
                let identity = self.of_account(AccountKind::Service, &account.id)?;
                return Ok(Identity { way: Way::Basic, ..identity });
            }
        }
        let account = self.person(name, password.expose(), ip).await?;
        if account.must_change {
            return Err(TokenError::Invalid);
        }
        let identity = self.of_account(AccountKind::User, &account.id)?;
        Ok(Identity { way: Way::Basic, ..identity })
    }

    /// Checks the secret of a service account.
    ///
    /// # Errors
    /// [`TokenError::Invalid`], [`TokenError::TooMany`].
    pub(crate) fn client(&self, name: &str, secret: &str, ip: Option<IpAddr>) -> Result<Arc<Account>, TokenError> {
        let now_ms = self.clock.now_ms();
        let throttled = format!("client:{}", bounded(name));
        if let Some(wait_s) = self.throttle.wait_s(&throttled, ip, now_ms) {
            return Err(TokenError::TooMany(wait_s));
        }
        let directory = self.directory.load();
        let account = directory.named(AccountKind::Service, name);
        let given = sha256_hex(secret.as_bytes());
        let right = account.is_some_and(|a| {
            let now = a.hash.as_ref().is_some_and(|hash| same(&given, hash.expose()));
            let old = a.old_hash.as_ref().is_some_and(|(hash, until)| now_ms < *until && same(&given, hash.expose()));
            (now || old) && a.enabled
        });
        if let Some(account) = account.filter(|_| right) {
            self.throttle.succeeded(&throttled, now_ms);
            Ok(Arc::clone(account))
        } else {
            // With people's passwords as Basic the name may be one of theirs: their check counts then.
            if account.is_some() || !self.settings.basic_passwords {
                self.throttle.failed(&throttled, ip, now_ms);
            }
            Err(TokenError::Invalid)
        }
    }

    /// Checks the password of a person, who may not have changed a temporary one yet.
    ///
    /// # Errors
    /// [`TokenError::Invalid`], [`TokenError::TooMany`].
    pub async fn person(&self, name: &str, password: &str, ip: Option<IpAddr>) -> Result<Arc<Account>, TokenError> {
        let throttled = format!("user:{}", bounded(name));
        let may_guess = || match self.throttle.wait_s(&throttled, ip, self.clock.now_ms()) {
            Some(wait_s) => Err(TokenError::TooMany(wait_s)),
            None => Ok(()),
        };
        may_guess()?;
        let turn = self.passwords.turn().await.ok_or(TokenError::TooMany(1))?;
        // Those that came at the same time have failed by now: else as many guesses as the queue takes would be free. The
        // turn lasts until this one is counted, too.
        may_guess()?;
        let account = self.directory.load().named(AccountKind::User, name).cloned();
        let stored = account.as_ref().and_then(|a| a.hash.as_ref()).map(Secret::expose);
        let checked = self.passwords.verify(password, stored, turn).await;
        let (right, _turn) = checked.ok_or(TokenError::TooMany(1))?;
        if let Some(account) = account.filter(|a| right && a.enabled) {
            self.throttle.succeeded(&throttled, self.clock.now_ms());
            Ok(account)
        } else {
            self.throttle.failed(&throttled, ip, self.clock.now_ms());
            Err(TokenError::Invalid)
        }
    }
}

/// The id under which a user of another issuer is kept: it follows from what the issuer says, in the form of a UUID.
pub fn external_id(issuer: &str, subject: &str) -> String {
    let hash = sha256_hex(format!("{}:{issuer}:{subject}", issuer.len()).as_bytes());
    let part = |from: usize, to: usize| &hash[from..to];
    format!("{}-{}-8{}-8{}-{}", part(0, 8), part(8, 12), part(13, 16), part(17, 20), part(20, 32))
}

/// A name as the throttle remembers it: one length for all.
fn bounded(name: &str) -> String {
    let lower: String = name.chars().take(100).flat_map(char::to_lowercase).collect();
    sha256_hex(lower.as_bytes())[..32].to_owned()
}
