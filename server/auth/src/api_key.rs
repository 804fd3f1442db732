//! API keys: `qvk_`, 12 characters that name the key, `_`, 43 of its secret, 6 of a checksum; all in base62.
//!
//! The checksum lets secret scanners find keys, and refuses a typo without a look-up.

use quiver_types::{Random, random_bytes};

/// How every key begins.
const PREFIX: &str = "qvk_";
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const ID: usize = 12;
const SECRET: usize = 43;
const SUM: usize = 6;
/// Length of a key.
const LENGTH: usize = PREFIX.len() + ID + 1 + SECRET + SUM;

/// CRC-32 of IEEE 802.3.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

/// Writes big-endian bytes in base62, most significant first, padded with `0`.
fn base62(bytes: &[u8], width: usize) -> String {
    let mut number = bytes.to_vec();
    let mut out = vec![b'0'; width];
    for digit in out.iter_mut().rev() {
        let mut rest = 0_u32;
        for byte in &mut number {
            let value = rest * 256 + u32::from(*byte);
            *byte = (value / 62) as u8;
            rest = value % 62;
        }
        *digit = DIGITS[rest as usize];
    }
    String::from_utf8(out).expect("ASCII digits")
}

/// Makes the text of a new API key.
pub fn make(random: &dyn Random) -> String {
    // Nine bytes give 72 bits for 71.5 bits of twelve digits: the highest ones are cut.
    let id = base62(&random_bytes::<9>(random), ID);
    let secret = base62(&random_bytes::<32>(random), SECRET);
    let body = format!("{PREFIX}{id}_{secret}");
    let sum = base62(&crc32(body.as_bytes()).to_be_bytes(), SUM);
    format!("{body}{sum}")
}

/// Makes a secret of a service account.
pub fn make_secret(random: &dyn Random) -> String {
    base62(&random_bytes::<32>(random), SECRET)
}

/// Gives the name of a key whose form and checksum are right.
pub fn id_of(key: &str) -> Option<&str> {
    let rest = key.strip_prefix(PREFIX).filter(|_| key.len() == LENGTH && key.is_ascii())?;
    let (id, tail) = rest.split_at_checked(ID)?;
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric());
    let secret = tail.strip_prefix('_')?;
    let (body, sum) = key.split_at_checked(LENGTH - SUM)?;
    let right = digits(id) && digits(secret) && base62(&crc32(body.as_bytes()).to_be_bytes(), SUM) == sum;
    right.then_some(id)
}

/// Puts a key together from its name and what follows it, or takes the whole key as what follows.
pub(crate) fn of_parts(id: &str, secret: &str) -> Option<String> {
    let key = if secret.starts_with(PREFIX) { secret.to_owned() } else { format!("{PREFIX}{id}_{secret}") };
    (id_of(&key)? == id).then_some(key)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::OsRandom;

    #[test]
    fn forms() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(base62(&[0], 3), "000");
        assert_eq!(base62(&[61], 3), "00z");
        assert_eq!(base62(&[62], 3), "010");
        assert_eq!(base62(&[1, 0], 2), "48");
        let key = make(&OsRandom);
        assert_eq!(key.len(), 66);
        let id = id_of(&key).unwrap().to_owned();
        let secret = key.splitn(3, '_').nth(2).unwrap().to_owned();
        assert_eq!(of_parts(&id, &secret), Some(key.clone()));
        assert_eq!(of_parts(&id, &key), Some(key.clone()));
        assert_eq!(of_parts("000000000000", &key), None);
        assert_eq!(make_secret(&OsRandom).len(), 43);
    }

    proptest! {
        /// A single wrong character is found without a look-up.
        #[test]
        fn typos(at in 0..LENGTH, with in any::<char>()) {
            let key = make(&OsRandom);
            let mut chars: Vec<char> = key.chars().collect();
            prop_assume!(chars[at] != with);
            chars[at] = with;
            let bent: String = chars.into_iter().collect();
            prop_assert_eq!(id_of(&bent), None);
        }

        #[test]
        fn nothing_panics(text in ".{0,80}") {
            id_of(&text);
            of_parts(&text, &text);
        }
    }
}
