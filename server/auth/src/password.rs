//! Passwords: rules for new ones, and their hashes (Argon2id). Hashing costs time and memory, so few are computed at
//! once.

use std::sync::Arc;

use argon2::{Algorithm, Argon2, Params, Version};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use quiver_types::{Random, random_bytes};
use subtle::ConstantTimeEq;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use zeroize::Zeroizing;

/// KiB of memory of one hash.
const MEMORY_KIB: u32 = 19_456;
/// Passes over it.
const PASSES: u32 = 2;
/// Hashes at once.
const AT_ONCE: usize = 2;
/// Hashes that wait.
const QUEUE: usize = 64;
/// Most memory that a stored hash may ask for, in KiB.
const MEMORY_KIB_MAX: u32 = 1 << 18;
/// Passwords of twelve characters and more that everybody tries first; shorter ones are refused anyway.
const COMMON: &str = include_str!("common_passwords.txt");
/// Fewest and most characters.
const LENGTH: (usize, usize) = (12, 256);

/// Why a password is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PasswordRule {
    /// Too short or too long.
    Length,
    /// The name of its user.
    IsName,
    /// It is one of the passwords that attackers try first.
    Common,
}

impl PasswordRule {
    /// Gives the word for programs, and a text for people.
    pub fn said(self) -> (&'static str, &'static str) {
        match self {
            Self::Length => ("OUT_OF_RANGE", "must have 12 to 256 characters"),
            Self::IsName => ("INVALID_VALUE", "must not be the user's name"),
            Self::Common => ("INVALID_VALUE", "is among the passwords that everybody tries first"),
        }
    }
}

/// Makes and checks hashes.
#[derive(Debug)]
pub struct Passwords {
    random: Arc<dyn Random>,
    running: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
    /// Written like a hash, of no password: checking it takes as long as checking a real one.
    stand_in: String,
}

/// A place among the few hashes that are made at once; another one takes it when this is dropped.
#[derive(Debug)]
pub struct Turn {
    _running: OwnedSemaphorePermit,
    _waiting: OwnedSemaphorePermit,
}

impl Turn {
    /// Works in this turn. Who goes away meanwhile does not end the work, so the work keeps the turn: else whoever
    /// hangs up at once would have as many hashes made at the same time as he likes.
    async fn run<T: Send + 'static>(self, work: impl FnOnce() -> T + Send + 'static) -> Option<(T, Self)> {
        tokio::task::spawn_blocking(move || (work(), self)).await.ok()
    }
}

impl Passwords {
    /// Draws what stands in for the hashes of unknown users.
    pub fn new(random: Arc<dyn Random>) -> Self {
        let stand_in = phc(&random_bytes(&*random), &random_bytes(&*random));
        let [running, waiting] = [AT_ONCE, AT_ONCE + QUEUE].map(|permits| Arc::new(Semaphore::new(permits)));
        Self { random, running, waiting, stand_in }
    }

    /// Says what is wrong with a new password.
    pub fn check(name: &str, password: &str) -> Option<PasswordRule> {
        let length = password.chars().count();
        if !(LENGTH.0..=LENGTH.1).contains(&length) {
            return Some(PasswordRule::Length);
        }
        let lower = password.to_lowercase();
        if lower == name.to_lowercase() {
            return Some(PasswordRule::IsName);
        }
        COMMON.lines().any(|common| common == lower).then_some(PasswordRule::Common)
    }

    /// Hashes a password; none: too many wait.
    pub async fn hash(&self, password: &str) -> Option<String> {
        let password = Zeroizing::new(password.as_bytes().to_vec());
        let salt = random_bytes::<16>(&*self.random);
        let turn = self.turn().await?;
        turn.run(move || hash(&password, &salt)).await.map(|(hash, _)| hash)
    }

    /// Waits until a hash may be made; none: too many wait.
    pub async fn turn(&self) -> Option<Turn> {
        let waiting = Arc::clone(&self.waiting).try_acquire_owned().ok()?;
        let running = Arc::clone(&self.running).acquire_owned().await.ok()?;
        Some(Turn { _running: running, _waiting: waiting })
    }

    /// Checks a password, and gives the turn back; without a stored hash it takes as long and is wrong.
    pub async fn verify(&self, password: &str, stored: Option<&str>, turn: Turn) -> Option<(bool, Turn)> {
        let password = Zeroizing::new(password.as_bytes().to_vec());
        let known = stored.is_some();
        let stored = stored.unwrap_or(&self.stand_in).to_owned();
        turn.run(move || verify(&password, &stored) && known).await
    }
}

fn argon2(memory_kib: u32, passes: u32, lanes: u32) -> Option<Argon2<'static>> {
    let params = Params::new(memory_kib, passes, lanes, Some(32)).ok()?;
    Some(Argon2::new(Algorithm::Argon2id, Version::V0x13, params))
}

/// Gives the PHC text of a hash.
fn hash(password: &[u8], salt: &[u8; 16]) -> String {
    let mut out = [0_u8; 32];
    let argon2 = argon2(MEMORY_KIB, PASSES, 1).expect("parameters within the bounds of Argon2");
    argon2.hash_password_into(password, salt, &mut out).expect("lengths within the bounds of Argon2");
    phc(salt, &out)
}

/// Writes salt and hash with the parameters of new hashes.
fn phc(salt: &[u8; 16], out: &[u8; 32]) -> String {
    let (salt, out) = (STANDARD_NO_PAD.encode(salt), STANDARD_NO_PAD.encode(out));
    format!("$argon2id$v=19$m={MEMORY_KIB},t={PASSES},p=1${salt}${out}")
}

/// Checks against a PHC text, with its own parameters.
fn verify(password: &[u8], stored: &str) -> bool {
    let check = || {
        let mut parts = stored.strip_prefix("$argon2id$v=19$")?.split('$');
        let (params, salt, expected) = (parts.next()?, parts.next()?, parts.next()?);
        let number = |key: &str| params.split(',').find_map(|p| p.strip_prefix(key)?.parse::<u32>().ok());
        let (memory, passes, lanes) = (number("m=")?, number("t=")?, number("p=")?);
        if memory > MEMORY_KIB_MAX || passes > 64 || lanes > 8 {
            return None;
        }
        let (salt, expected) = (STANDARD_NO_PAD.decode(salt).ok()?, STANDARD_NO_PAD.decode(expected).ok()?);
        let mut out = [0_u8; 32];
        argon2(memory, passes, lanes)?.hash_password_into(password, &salt, &mut out).ok()?;
        Some(bool::from(out[..].ct_eq(&expected)))
    };
    check().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OsRandom;

    #[test]
    fn rules() {
        let check =
            |name: &str, password: &str, expected| assert_eq!(Passwords::check(name, password), expected, "{password}");
        check("ann", "correct horse battery", None);
        check("ann", "short", Some(PasswordRule::Length));
        check("ann", &"x".repeat(257), Some(PasswordRule::Length));
        check("administrator", "Administrator", Some(PasswordRule::IsName));
        check("ann", "Password1234", Some(PasswordRule::Common));
        for common in ["111111111111", "000000000000", "123123123123", "PasswordPassword"] {
            check("ann", common, Some(PasswordRule::Common));
        }
        // Any characters, as long as it is none of these.
        for good in ["äöüäöüäöüäöü", "            ", &"x".repeat(12), &"x".repeat(256), &"🔑".repeat(256)]
        {
            check("ann", good, None);
        }
        check("ann", &"🔑".repeat(257), Some(PasswordRule::Length));
        check("ann", "äöüß änderbar?", None);
    }

    async fn checked(passwords: &Passwords, password: &str, stored: Option<&str>) -> Option<bool> {
        let turn = passwords.turn().await?;
        passwords.verify(password, stored, turn).await.map(|(right, _)| right)
    }

    #[tokio::test]
    async fn hashes() {
        let passwords = Passwords::new(Arc::new(OsRandom));
        let stored = passwords.hash("correct horse").await.unwrap();
        assert!(stored.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{stored}");
        assert_eq!(checked(&passwords, "correct horse", Some(&stored)).await, Some(true));
        assert_eq!(checked(&passwords, "correct horsE", Some(&stored)).await, Some(false));
        assert_eq!(checked(&passwords, "correct horse", None).await, Some(false));
        for broken in ["", "$argon2id$v=19$m=1", "$argon2id$v=19$m=99999999,t=2,p=1$AAAA$AAAA", "$2b$10$x"] {
            assert_eq!(checked(&passwords, "x", Some(broken)).await, Some(false), "{broken}");
        }
        let salt = *b"saltsaltsaltsalt";
        assert_eq!(hash(b"password", &salt), hash(b"password", &salt));
        assert_ne!(hash(b"password", &salt), hash(b"passworD", &salt));
    }

    #[tokio::test]
    async fn the_queue_is_bounded() {
        let passwords = Passwords::new(Arc::new(OsRandom));
        let all: Vec<_> = (0..AT_ONCE + QUEUE).map(|_| passwords.waiting.try_acquire().unwrap()).collect();
        assert_eq!(checked(&passwords, "x", None).await, None);
        drop(all);
        assert_eq!(checked(&passwords, "x", None).await, Some(false));
    }

    #[tokio::test]
    async fn a_hash_keeps_its_turn_though_nobody_waits_for_it() {
        let passwords = Passwords::new(Arc::new(OsRandom));
        let gone = tokio::time::timeout(std::time::Duration::ZERO, passwords.hash("x")).await;
        assert!(gone.is_err());
        assert_eq!(passwords.running.available_permits(), AT_ONCE - 1);
        assert_eq!(passwords.waiting.available_permits(), AT_ONCE + QUEUE - 1);
        let _all = passwords.running.acquire_many(AT_ONCE as u32).await.unwrap();
    }
}
