//! TLS of all listeners: certificate, private key and client authorities are read from files that may change while
//! the server runs.
//!
//! A connection keeps the state of the moment it began. Reloaded files take effect as a whole or not at all, so a new
//! certificate whose key has not been written yet does no harm.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use quiver_types::{Clock, Error, Result};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use xxhash_rust::xxh3::Xxh3;

use self::certificate::Certificate;

mod certificate;

/// Protocols offered in ALPN, by preference. gRPC needs `h2`.
const ALPN: [&[u8]; 2] = [b"h2", b"http/1.1"];
/// The protocol offered on the PostgreSQL port; newer clients require it.
const ALPN_POSTGRES: &[u8] = b"postgresql";
/// Size limit of each file.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Paths of the PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate, followed by the intermediate ones that lead to its authority.
    pub certificate: PathBuf,
    /// Its private key (PKCS#8, PKCS#1 or SEC1, without a passphrase).
    pub key: PathBuf,
    /// Authorities that client certificates are verified against; `None`: clients are not asked for a certificate.
    pub client_ca: Option<PathBuf>,
    /// Whether clients without a certificate are rejected.
    pub client_required: bool,
}

/// The configuration that new connections get.
struct State {
    acceptor: TlsAcceptor,
    postgres: TlsAcceptor,
    /// Hash of the files' contents.
    fingerprint: u128,
}

/// Certificate, key and client authorities of all listeners, reloaded while the server runs.
pub struct Tls {
    files: TlsFiles,
    clock: Arc<dyn Clock>,
    state: ArcSwap<State>,
    /// Why the last reload failed, so that the watch logs it only once.
    refused: Mutex<String>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads all files.
    ///
    /// # Errors
    /// Invalid: a file that cannot be read or has other contents, or a key that does not belong to the certificate.
    pub fn open(files: TlsFiles, clock: Arc<dyn Clock>) -> Result<Arc<Self>> {
        let contents = Contents::read(&files)?;
        let state = ArcSwap::from_pointee(contents.state(&files, clock.now_ms())?);
        Ok(Arc::new(Self { files, clock, state, refused: Mutex::default() }))
    }

    /// Reads all files again and returns whether anything changed. New connections use the new state.
    ///
    /// # Errors
    /// As [`Self::open`]; the old state stays in force then.
    pub fn reload(&self) -> Result<bool> {
        let contents = Contents::read(&self.files)?;
        if contents.fingerprint() == self.state.load().fingerprint {
            self.refused.lock().clear();
            return Ok(false);
        }
        let state = contents.state(&self.files, self.clock.now_ms())?;
        self.state.store(Arc::new(state));
        self.refused.lock().clear();
        tracing::info!(certificate = %self.files.certificate.display(), "certificates were read anew");
        Ok(true)
    }

    /// Reloads the files every so often until the server stops.
    pub fn follow(self: Arc<Self>, every: Duration, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(every) => {}
                }
                let tls = Arc::clone(&self);
                let Ok(Err(error)) = tokio::task::spawn_blocking(move || tls.reload()).await else { continue };
                let text = error.to_string();
                let mut refused = self.refused.lock();
                if *refused != text {
                    tracing::error!("certificates were not read anew, the old ones stay: {text}");
                    *refused = text;
                }
            }
        })
    }

    /// The acceptor for a connection that begins now.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        self.state.load().acceptor.clone()
    }

    /// The acceptor for a connection on the PostgreSQL port.
    pub(crate) fn postgres_acceptor(&self) -> TlsAcceptor {
        self.state.load().postgres.clone()
    }
}

/// The contents of all files, read at one moment.
struct Contents {
    certificate: Vec<u8>,
    key: zeroize::Zeroizing<Vec<u8>>,
    client_ca: Option<Vec<u8>>,
}

fn read(path: &Path, setting: &str) -> Result<Vec<u8>> {
    let cannot = |e: std::io::Error| Error::invalid(format!("cannot read `{}` (`{setting}`): {e}", path.display()));
    quiver_files::read(path, FILE_BYTES_MAX).map_err(cannot)
}

/// Parses the certificates in a PEM file.
fn certificates(pem: &[u8], path: &Path, setting: &str) -> Result<Vec<CertificateDer<'static>>> {
    let wrong =
        |why: &dyn fmt::Display| Error::invalid(format!("`{}` (`{setting}`) is not valid: {why}", path.display()));
    let all: Vec<_> =
        CertificateDer::pem_slice_iter(pem).collect::<std::result::Result<_, _>>().map_err(|e| wrong(&e))?;
    if all.is_empty() {
        return Err(wrong(&"it holds no certificate in PEM"));
    }
    Ok(all)
}

impl Contents {
    fn read(files: &TlsFiles) -> Result<Self> {
        let client_ca = files.client_ca.as_deref().map(|path| read(path, "tls.client_ca_file")).transpose()?;
        Ok(Self {
            certificate: read(&files.certificate, "tls.certificate_file")?,
            key: read(&files.key, "tls.key_file")?.into(),
            client_ca,
        })
    }

    fn fingerprint(&self) -> u128 {
        let mut hash = Xxh3::new();
        for part in [&self.certificate[..], &self.key[..], self.client_ca.as_deref().unwrap_or_default()] {
            hash.update(&part.len().to_le_bytes());
            hash.update(part);
        }
        hash.digest128()
    }

    fn state(&self, files: &TlsFiles, now_ms: i64) -> Result<State> {
        let chain = certificates(&self.certificate, &files.certificate, "tls.certificate_file")?;
        say_when_it_ends(&chain[0], &files.certificate, now_ms);
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(|e| {
            let what = "it must hold a private key in PEM (PKCS#8, PKCS#1 or SEC1), without a passphrase";
            Error::invalid(format!("`{}` (`tls.key_file`) is not valid: {e}; {what}", files.key.display()))
        })?;
        let internal = |e: rustls::Error| Error::internal("TLS cannot be set up").with_source(e);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_safe_default_protocol_versions().map_err(internal)?;
        let builder = match self.client_roots(files)? {
            None => builder.with_no_client_auth(),
            Some(roots) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let verifier = if files.client_required { verifier } else { verifier.allow_unauthenticated() };
                let verifier = verifier.build().map_err(|e| {
                    Error::invalid(format!("the authorities of `tls.client_ca_file` cannot be used: {e}"))
                })?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|e| {
            let (certificate, key) = (files.certificate.display(), files.key.display());
            let text = format!("`{certificate}` (`tls.certificate_file`) cannot be used with `{key}` (`tls.key_file`)");
            Error::invalid(format!("{text}: {e}"))
        })?;
        let mut postgres = config.clone();
        postgres.alpn_protocols = vec![ALPN_POSTGRES.to_vec()];
        config.alpn_protocols = ALPN.iter().map(|name| name.to_vec()).collect();
        Ok(State {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            postgres: TlsAcceptor::from(Arc::new(postgres)),
            fingerprint: self.fingerprint(),
        })
    }

    fn client_roots(&self, files: &TlsFiles) -> Result<Option<RootCertStore>> {
        let (Some(pem), Some(path)) = (&self.client_ca, &files.client_ca) else { return Ok(None) };
        let mut roots = RootCertStore::empty();
        for certificate in certificates(pem, path, "tls.client_ca_file")? {
            roots.add(certificate).map_err(|e| {
                Error::invalid(format!("`{}` (`tls.client_ca_file`) is not valid: {e}", path.display()))
            })?;
        }
        Ok(Some(roots))
    }
}

/// Warns about a certificate that has expired. It is served all the same: an error in the client explains the problem
/// better than a refused connection.
fn say_when_it_ends(certificate: &CertificateDer<'_>, path: &Path, now_ms: i64) {
    let Some(ends) = Certificate::read(certificate).and_then(|c| c.ends()) else { return };
    if ends.timestamp() <= now_ms / 1000 {
        tracing::error!(certificate = %path.display(), %ends, "the certificate of this server has ended");
    } else {
        tracing::info!(certificate = %path.display(), %ends, "TLS on every port");
    }
}

/// Gives the common name of the subject of a client's certificate, which names a service account. `None` if there is
/// none or more than one, since choosing one would be a guess.
pub(super) fn name_of(certificate: &CertificateDer<'_>) -> Option<Arc<str>> {
    let certificate = Certificate::read(certificate)?;
    let mut names = certificate.common_names().into_iter();
    let name = names.next()?.filter(|name| !name.is_empty())?;
    names.next().is_none().then(|| Arc::from(name))
}

#[cfg(test)]
mod tests {
    use quiver_types::SystemClock;

    use super::*;

    fn fixture(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/certificates").join(name)
    }

    #[test]
    fn what_is_read_anew_holds_as_a_whole() {
        let dir = tempfile::tempdir().unwrap();
        let files = TlsFiles {
            certificate: dir.path().join("c.pem"),
            key: dir.path().join("k.pem"),
            client_ca: Some(fixture("ca.pem")),
            client_required: false,
        };
        let put = |from: &str, to: &Path| std::fs::copy(fixture(from), to).unwrap();
        assert!(Tls::open(files.clone(), Arc::new(SystemClock)).is_err(), "no files yet");
        put("server.pem", &files.certificate);
        put("server.key", &files.key);
        let tls = Tls::open(files.clone(), Arc::new(SystemClock)).unwrap();
        let before = tls.state.load_full();
        assert!(!tls.reload().unwrap());
        // A certificate whose key has not been written yet.
        put("server2.pem", &files.certificate);
        let error = tls.reload().unwrap_err().to_string();
        assert!(error.contains("tls.key_file"), "{error}");
        assert!(Arc::ptr_eq(&before, &tls.state.load_full()));
        put("server2.key", &files.key);
        assert!(tls.reload().unwrap() && !tls.reload().unwrap());
        assert!(!Arc::ptr_eq(&before, &tls.state.load_full()));
    }

    #[test]
    fn names_of_clients() {
        let check = |file: &str, name: Option<&str>| {
            let certificate = CertificateDer::from_pem_slice(&std::fs::read(fixture(file)).unwrap()).unwrap();
            assert_eq!(name_of(&certificate).as_deref(), name, "{file}");
        };
        check("client.pem", Some("edge-agent"));
        check("nameless.pem", None);
        check("two-names.pem", None);
    }
}
