//! Checks of TLS settings that depend on each other.

use quiver_api::TlsFiles;

use super::Tls;

impl Tls {
    /// What is inconsistent, if anything.
    pub(super) fn wrong(&self) -> Option<&'static str> {
        let given = |file: &str| !file.is_empty();
        let (certificate, key) = (given(&self.certificate_file), given(&self.key_file));
        if certificate != key {
            return Some("`tls.certificate_file` and `tls.key_file` go together");
        }
        if given(&self.client_ca_file) && !certificate {
            return Some("`tls.client_ca_file` needs `tls.certificate_file`");
        }
        (self.client_required && !given(&self.client_ca_file))
            .then_some("`tls.client_required` needs `tls.client_ca_file`")
    }

    /// The files, if TLS is configured.
    pub fn files(&self) -> Option<TlsFiles> {
        if self.certificate_file.is_empty() {
            return None;
        }
        Some(TlsFiles {
            certificate: self.certificate_file.clone().into(),
            key: self.key_file.clone().into(),
            client_ca: Some(&self.client_ca_file).filter(|file| !file.is_empty()).map(Into::into),
            client_required: self.client_required,
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::settings::LoadedSettings;

    #[test]
    fn files() {
        let files = |flags: &[(&str, &str)]| {
            let flags: Vec<_> = flags.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
            LoadedSettings::load(None, std::iter::empty(), &flags).unwrap().settings.tls.files()
        };
        assert_eq!(files(&[]), None);
        let both = [("tls.certificate_file", "c"), ("tls.key_file", "k")];
        let own = files(&both).unwrap();
        assert_eq!((own.certificate.to_str(), own.key.to_str(), own.client_ca), (Some("c"), Some("k"), None));
        let asked = files(&[both[0], both[1], ("tls.client_ca_file", "a"), ("tls.client_required", "true")]).unwrap();
        assert_eq!((asked.client_ca.unwrap().to_str(), asked.client_required), (Some("a"), true));
    }

    #[test]
    fn what_goes_together() {
        let (c, k, a) = (("tls.certificate_file", "c"), ("tls.key_file", "k"), ("tls.client_ca_file", "a"));
        let required = ("tls.client_required", "true");
        for (flags, expected) in [
            (&[][..], ""),
            (&[c, k][..], ""),
            (&[c, k, a][..], ""),
            (&[c, k, a, required][..], ""),
            (&[c][..], "`tls.certificate_file` and `tls.key_file` go together"),
            (&[k, a][..], "`tls.certificate_file` and `tls.key_file` go together"),
            (&[a][..], "`tls.client_ca_file` needs `tls.certificate_file`"),
            (&[required][..], "`tls.client_required` needs `tls.client_ca_file`"),
            (&[c, k, required][..], "`tls.client_required` needs `tls.client_ca_file`"),
        ] {
            let flags: Vec<_> = flags.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
            let told =
                LoadedSettings::load(None, std::iter::empty(), &flags).err().map(|e| e.to_string()).unwrap_or_default();
            assert!(told.ends_with(expected) && told.is_empty() == expected.is_empty(), "{flags:?}: {told}");
        }
    }
}
