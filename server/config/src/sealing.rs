//! Encrypts texts that hold secrets and are stored elsewhere, by the vault of the configuration.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use crate::config::Config;

impl Config {
    /// Seals a text under a name; only the same name opens it.
    pub fn seal_text(&self, name: &str, text: &str) -> String {
        BASE64_STANDARD.encode(self.vault.seal(name, text.as_bytes()))
    }

    /// Opens a text that was sealed under a name; none: it was not, or by other keys.
    pub fn open_text(&self, name: &str, sealed: &str) -> Option<String> {
        let bytes = BASE64_STANDARD.decode(sealed).ok()?;
        String::from_utf8(self.vault.open(name, &bytes)?).ok()
    }
}
