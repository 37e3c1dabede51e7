//! A throw-away certificate authority.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::cleanup;

/// A certificate authority and the folder with what it signed.
#[derive(Debug)]
pub(crate) struct Authority {
    folder: PathBuf,
}

/// A signed certificate and its key, both PEM files.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Authority {
    /// A new authority, unrelated to any other.
    pub(crate) fn new() -> Self {
        let authority = Self {
            folder: cleanup::folder("authority"),
        };
        openssl(
            &authority.folder,
            "req -x509 -newkey rsa:2048 -nodes -sha256 -days 2 -subj /CN=walpost-test-authority \
             -keyout ca.key -out ca.crt",
        );
        authority
    }

    /// The certificate to trust.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.folder.join("ca.crt")
    }

    /// An RSA identity signed with SHA-256; `host` is the alternative name, DNS or address.
    pub(crate) fn sign(&self, common_name: &str, host: &str) -> Identity {
        self.sign_with(common_name, host, "rsa:2048", "sha256")
    }

    /// An identity with the given `openssl req -newkey` algorithm and signature digest.
    pub(crate) fn sign_with(
        &self,
        common_name: &str,
        host: &str,
        algorithm: &str,
        digest: &str,
    ) -> Identity {
        let stem = super::random::name("signed");
        let kind = if host.parse::<std::net::IpAddr>().is_ok() {
            "IP"
        } else {
            "DNS"
        };
        std::fs::write(
            self.folder.join(format!("{stem}.ext")),
            format!("subjectAltName={kind}:{host}\n"),
        )
        .unwrap();
        openssl(
            &self.folder,
            &format!(
                "req -newkey {algorithm} -nodes -subj /CN={common_name} -keyout {stem}.key \
                 -out {stem}.csr"
            ),
        );
        openssl(
            &self.folder,
            &format!(
                "x509 -req -in {stem}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -{digest} \
                 -days 2 -extfile {stem}.ext -out {stem}.crt"
            ),
        );
        Identity {
            certificate: self.folder.join(format!("{stem}.crt")),
            key: self.folder.join(format!("{stem}.key")),
        }
    }
}

fn openssl(folder: &Path, arguments: &str) {
    let output = Command::new("openssl")
        .args(arguments.split_whitespace())
        .current_dir(folder)
        .output()
        .expect("openssl is installed");
    assert!(
        output.status.success(),
        "openssl {arguments}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}
