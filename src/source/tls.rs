//! TLS to Postgres: the meaning of `database.sslmode`, and the channel binding of a certificate.

use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use sha2::{Digest, Sha256, Sha384, Sha512};
use x509_cert::der::Decode;

use crate::config::{SslMode, Tls};
use crate::error::Failure;

/// Builds the client side for one connection. Files are read anew each time, so that a renewed
/// certificate is picked up by the next connection.
pub(super) fn client_config(tls: &Tls) -> Result<ClientConfig, Failure> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Arc::new(Verifier::new(tls, &provider)?);
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Failure::internal("choose TLS versions").caused_by(error))?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let Some(cert) = &tls.cert else {
        return Ok(builder.with_no_client_auth());
    };
    let key = tls.key.as_ref().ok_or_else(|| {
        Failure::config("database.sslcert needs database.sslkey beside it").about_access()
    })?;
    builder
        .with_client_auth_cert(certificates("database.sslcert", cert)?, private_key(key)?)
        .map_err(|error| {
            file_failure("database.sslkey", key, "does not fit the certificate").caused_by(error)
        })
}

/// The name to verify, or a configuration failure.
pub(super) fn server_name(host: &str) -> Result<ServerName<'static>, Failure> {
    ServerName::try_from(host.to_owned()).map_err(|error| {
        Failure::config(format!(
            "database.hostname {host:?} is not a name that a certificate can carry"
        ))
        .caused_by(error)
    })
}

/// `tls-server-end-point` of RFC 5929: the certificate hashed with its signature's own digest,
/// where MD5 and SHA-1 count as SHA-256. `None` when the signature has no single digest (Ed25519,
/// RSA-PSS with parameters); then there is no binding.
pub(super) fn server_end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let parsed = x509_cert::Certificate::from_der(certificate).ok()?;
    let sha256 = || Some(Sha256::digest(certificate).to_vec());
    match parsed.signature_algorithm.oid.to_string().as_str() {
        // md5, sha1, sha256 with RSA; sha1, sha256 with ECDSA; sha256 with DSA.
        "1.2.840.113549.1.1.4"
        | "1.2.840.113549.1.1.5"
        | "1.2.840.113549.1.1.11"
        | "1.2.840.10045.4.1"
        | "1.2.840.10045.4.3.2"
        | "2.16.840.1.101.3.4.3.2" => sha256(),
        "1.2.840.113549.1.1.12" | "1.2.840.10045.4.3.3" => {
            Some(Sha384::digest(certificate).to_vec())
        }
        "1.2.840.113549.1.1.13" | "1.2.840.10045.4.3.4" => {
            Some(Sha512::digest(certificate).to_vec())
        }
        _ => None,
    }
}

/// What a failed handshake means. A rustls error arrives wrapped in an I/O error.
pub(super) fn handshake_failure(host: &str, error: std::io::Error) -> Failure {
    let cause = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let advice = match cause {
        Some(rustls::Error::InvalidCertificate(reason)) => match reason {
            CertificateError::UnknownIssuer => {
                "the server's certificate is not signed by a root of database.sslrootcert"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "the server's certificate is for another host name than database.hostname \
                 (names are taken from subjectAltName)"
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "the server's certificate has expired"
            }
            _ => "the server's certificate was refused",
        },
        Some(rustls::Error::AlertReceived(_)) => {
            "the server refused the connection; check database.sslcert and database.sslkey"
        }
        Some(_) => "no common TLS version or cipher, or the peer does not speak TLS",
        None => {
            return Failure::retriable(format!("TLS handshake with {host}")).caused_by(error);
        }
    };
    Failure::config(format!("TLS handshake with {host}: {advice}"))
        .about_access()
        .caused_by(error)
}

fn file_failure(property: &str, path: &Path, what: &str) -> Failure {
    Failure::config(format!("{property} {}: {what}", path.display())).about_access()
}

fn certificates(property: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let bytes = std::fs::read(path)
        .map_err(|error| file_failure(property, path, "cannot be read").caused_by(error))?;
    let found = CertificateDer::pem_slice_iter(&bytes)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| file_failure(property, path, "is not valid PEM"))?;
    if found.is_empty() {
        return Err(file_failure(property, path, "holds no PEM certificate"));
    }
    Ok(found)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, Failure> {
    const PROPERTY: &str = "database.sslkey";
    let bytes = std::fs::read(path)
        .map_err(|error| file_failure(PROPERTY, path, "cannot be read").caused_by(error))?;
    if let Ok(key) = PrivateKeyDer::from_pem_slice(&bytes) {
        return Ok(key);
    }
    PrivateKeyDer::try_from(bytes).map_err(|_| {
        let what = "is neither a PEM nor an unencrypted PKCS#8 DER private key";
        file_failure(PROPERTY, path, what)
    })
}

fn roots(tls: &Tls) -> Result<Vec<CertificateDer<'static>>, Failure> {
    if let Some(path) = &tls.root_cert {
        return certificates("database.sslrootcert", path);
    }
    let system = rustls_native_certs::load_native_certs().certs;
    if system.is_empty() {
        return Err(Failure::config(
            "database.sslmode verifies the server, but neither database.sslrootcert is set nor \
             has the system any root certificates",
        ));
    }
    Ok(system)
}

/// Verifies as much as the mode asks for; the handshake's signature always.
#[derive(Debug)]
struct Verifier {
    mode: SslMode,
    provider: Arc<CryptoProvider>,
    /// `None` for modes that do not look at the chain.
    chain: Option<Arc<WebPkiServerVerifier>>,
    /// The roots themselves: a self-signed server certificate is its own root.
    roots: Vec<CertificateDer<'static>>,
}

impl Verifier {
    fn new(tls: &Tls, provider: &Arc<CryptoProvider>) -> Result<Self, Failure> {
        let mut verifier = Self {
            mode: tls.mode,
            provider: Arc::clone(provider),
            chain: None,
            roots: Vec::new(),
        };
        if !matches!(tls.mode, SslMode::VerifyCa | SslMode::VerifyFull) {
            return Ok(verifier);
        }
        verifier.roots = roots(tls)?;
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(verifier.roots.iter().cloned());
        let chain =
            WebPkiServerVerifier::builder_with_provider(Arc::new(store), Arc::clone(provider))
                .build()
                .map_err(|error| {
                    Failure::config("database.sslrootcert holds no usable root certificate")
                        .about_access()
                        .caused_by(error)
                })?;
        verifier.chain = Some(chain);
        Ok(verifier)
    }

    fn check_pinned(
        &self,
        certificate: &CertificateDer<'_>,
        name: &ServerName<'_>,
    ) -> Result<(), rustls::Error> {
        if self.mode == SslMode::VerifyFull {
            let parsed = rustls::server::ParsedCertificate::try_from(certificate)?;
            rustls::client::verify_server_name(&parsed, name)?;
        }
        Ok(())
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(chain) = &self.chain else {
            return Ok(ServerCertVerified::assertion());
        };
        if self.roots.iter().any(|root| root == end_entity) {
            self.check_pinned(end_entity, server_name)?;
            return Ok(ServerCertVerified::assertion());
        }
        let verdict =
            chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verdict {
            // The name is looked at last, so the chain was found good.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if self.mode == SslMode::VerifyCa => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
