//! The master key, with which private keys and other secrets are encrypted.

use std::fmt;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use quiver_types::{Error, Random, Result, Vault, random_bytes};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

/// Length of the master key.
const KEY_BYTES: usize = 32;

/// Encrypts with AES-256-GCM under one key, each time with a nonce of its own.
pub struct MasterVault {
    key: LessSafeKey,
    random: Arc<dyn Random>,
}

impl fmt::Debug for MasterVault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MasterVault")
    }
}

impl MasterVault {
    /// Makes a vault that encrypts with this key (AES-256-GCM).
    pub fn new(key: &[u8; KEY_BYTES], random: Arc<dyn Random>) -> Self {
        let key = UnboundKey::new(&AES_256_GCM, key).expect("a key of its length");
        Self { key: LessSafeKey::new(key), random }
    }

    /// Reads the key from a file, which is made, readable by its owner only, when it is not there.
    ///
    /// # Errors
    /// When the file cannot be read or made, or holds something else.
    pub fn open_file(path: &Path, random: Arc<dyn Random>) -> Result<Self> {
        if let Some(vault) = Self::of_file(path, Arc::clone(&random))? {
            return Ok(vault);
        }
        let key = zeroize::Zeroizing::new(random_bytes::<KEY_BYTES>(&*random));
        write_secret(path, &*key).map_err(|e| {
            Error::invalid(format!("the master key `{}` cannot be written", path.display())).with_source(e)
        })?;
        Ok(Self::new(&key, random))
    }

    /// Reads the key from a file; none: it is not there.
    ///
    /// # Errors
    /// When the file cannot be read, or holds something else.
    pub fn of_file(path: &Path, random: Arc<dyn Random>) -> Result<Option<Self>> {
        let shown = path.display();
        let bytes = match quiver_files::read(path, quiver_files::SECRET_BYTES_MAX) {
            Ok(bytes) => zeroize::Zeroizing::new(bytes),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(Error::invalid(format!("the master key `{shown}` cannot be read")).with_source(error));
            }
        };
        let wrong =
            || Error::invalid(format!("the master key `{shown}` must have {KEY_BYTES} bytes, has {}", bytes.len()));
        let key = zeroize::Zeroizing::new(<[u8; KEY_BYTES]>::try_from(&bytes[..]).map_err(|_| wrong())?);
        Ok(Some(Self::new(&key, random)))
    }
}

/// Writes a file that only its owner reads, and makes it last before anything depends on it.
pub(crate) fn write_secret(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    // Under another name first: who is killed here leaves no half of a key, which no later start could use.
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let unfinished = path.with_file_name(name);
    quiver_files::refuse_irregular(&unfinished)?;
    let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&unfinished, path)?;
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::File::open(folder)?.sync_all()
}

impl Vault for MasterVault {
    fn seal(&self, place: &str, plain: &[u8]) -> Vec<u8> {
        let nonce = random_bytes::<NONCE_LEN>(&*self.random);
        let mut sealed = plain.to_vec();
        let aad = Aad::from(place.as_bytes());
        self.key
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut sealed)
            .expect("texts are far below the limit of AES-GCM");
        [&nonce[..], &sealed].concat()
    }

    fn open(&self, place: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, rest) = sealed.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut bytes = rest.to_vec();
        let plain = self.key.open_in_place(nonce, Aad::from(place.as_bytes()), &mut bytes).ok()?;
        Some(plain.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OsRandom;

    #[test]
    fn only_the_same_place_and_key_open() {
        let vault = |byte| MasterVault::new(&[byte; 32], Arc::new(OsRandom));
        let sealed = vault(1).seal("a", b"text");
        assert_eq!(vault(1).open("a", &sealed).as_deref(), Some(&b"text"[..]));
        assert_eq!(vault(2).open("a", &sealed), None);
        assert_eq!(vault(1).open("b", &sealed), None);
        for i in 0..sealed.len() {
            let mut bent = sealed.clone();
            bent[i] ^= 1;
            assert_eq!(vault(1).open("a", &bent), None, "{i}");
            assert_eq!(vault(1).open("a", &sealed[..i]), None, "{i}");
        }
        assert_ne!(sealed, vault(1).seal("a", b"text"));
    }

    #[test]
    fn what_was_sealed_once_opens() {
        let text = b"\x73\xb3\xb1\x3d\xfc\xd2\x6e\xd2\x3f\x2e\x1e\x8b\x33\xa2\x1e\xd1\xc5\xd0\x86\xd1";
        let sealed = [&[2; NONCE_LEN][..], text].concat();
        let vault = MasterVault::new(&[1; 32], Arc::new(OsRandom));
        assert_eq!(vault.open("a", &sealed).as_deref(), Some(&b"text"[..]));
    }

    #[test]
    fn files() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let sealed = MasterVault::open_file(&path, Arc::new(OsRandom)).unwrap().seal("a", b"text");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let again = MasterVault::open_file(&path, Arc::new(OsRandom)).unwrap();
        assert_eq!(again.open("a", &sealed).as_deref(), Some(&b"text"[..]));
        std::fs::write(&path, b"short").unwrap();
        let error = MasterVault::open_file(&path, Arc::new(OsRandom)).unwrap_err();
        assert!(error.message.contains("must have 32 bytes, has 5"), "{error}");
        // Neither a device is read for ever, nor is another key made.
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        let error = MasterVault::open_file(&path, Arc::new(OsRandom)).unwrap_err();
        assert!(error.message.ends_with("key` cannot be read"), "{error}");
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(dir.path().join("key.new")).unwrap();
        let error = MasterVault::open_file(&path, Arc::new(OsRandom)).unwrap_err();
        assert!(error.message.ends_with("key` cannot be written"), "{error}");
    }
}
