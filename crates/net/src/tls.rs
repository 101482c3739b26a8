//! TLS: the server's certificate and its reload, and the client's side for tools.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use rustls::crypto::{CryptoProvider, ring};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{InconsistentKeys, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use thiserror::Error;
use tokio::net::TcpStream;
use tracing::{info, warn};

use crate::stream::{Prefixed, Stream, TlsSession};
use crate::tasks::Stop;

mod connector;
pub use connector::{ServerTrust, TlsConnector};

/// How often the files are read to see whether they changed, by default; as the original does.
pub const DEFAULT_RELOAD_PERIOD: Duration = Duration::from_millis(500);

/// Whether clients show a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientAuth {
    /// They are not asked.
    #[default]
    None,
    /// They are asked; a certificate that is shown must be valid.
    Optional,
    /// Without a valid certificate there is no connection.
    Require,
}

/// A text that is no [`ClientAuth`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("\"{text}\" is no client authentication; write none, optional or require")]
pub struct ClientAuthError {
    /// What was given.
    pub text: String,
}

impl FromStr for ClientAuth {
    type Err = ClientAuthError;

    fn from_str(text: &str) -> Result<Self, ClientAuthError> {
        match text.trim().to_ascii_lowercase().as_str() {
            "none" => Ok(Self::None),
            "optional" => Ok(Self::Optional),
            "require" => Ok(Self::Require),
            _ => Err(ClientAuthError { text: text.to_owned() }),
        }
    }
}

impl std::fmt::Display for ClientAuth {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::None => "none",
            Self::Optional => "optional",
            Self::Require => "require",
        })
    }
}

/// The files of a server's identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, followed by those that lead to the authority, in PEM.
    pub certificate: PathBuf,
    /// Its private key, in PEM: PKCS#8, PKCS#1 or SEC1, without a password.
    pub key: PathBuf,
    /// Whether clients show a certificate.
    pub client_auth: ClientAuth,
    /// The authorities of clients, in PEM; needed unless clients are not asked.
    pub client_authorities: Option<PathBuf>,
}

/// Why files give no identity.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}; check the path and the permissions", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file is no PEM, or holds no certificate.
    #[error(
        "{} holds no usable certificate ({reason}); it must be PEM with \"-----BEGIN CERTIFICATE-----\"",
        path.display()
    )]
    NoCertificate {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A file is no PEM, or holds no private key that can be used.
    #[error(
        "{} holds no usable private key ({reason}); it must be PEM with an RSA, ECDSA or Ed25519 key",
        path.display()
    )]
    NoKey {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The key has a password.
    #[error(
        "the private key in {} is encrypted; write it without a password: openssl pkcs8 -topk8 -nocrypt -in {0} \
         -out KEY.pem", path.display()
    )]
    EncryptedKey {
        /// Which file.
        path: PathBuf,
    },
    /// The key is not the certificate's.
    #[error(
        "the key in {} does not belong to the certificate in {}; configure files of one pair",
        key.display(), certificate.display()
    )]
    Mismatch {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
    /// Clients shall be asked for a certificate, but by whom it must be signed is not said.
    #[error(
        "client authentication is \"{client_auth}\" without authorities of the clients; configure the file of \
         their CA certificates, or \"none\""
    )]
    NoAuthorities {
        /// What was asked for.
        client_auth: ClientAuth,
    },
    /// The library does not take what the files hold.
    #[error("TLS cannot be set up: {source}")]
    Library {
        /// What it said.
        source: rustls::Error,
    },
}

/// Why a handshake gave no connection.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// It took too long.
    #[error("the TLS handshake took longer than {0:?}")]
    TimedOut(Duration),
    /// The peers do not agree, or the connection broke.
    #[error("the TLS handshake failed: {0}")]
    Failed(io::Error),
    /// The server's name cannot stand in a certificate.
    #[error("\"{0}\" cannot be the name in a certificate; connect by another name")]
    BadName(String),
}

/// Counters of a [`ServerTls`], for metrics, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsCounts {
    /// Handshakes that gave a connection.
    pub handshakes: u64,
    /// Handshakes that did not.
    pub failed_handshakes: u64,
    /// Times that changed files were taken over.
    pub reloads: u64,
    /// Times that changed files were kept out.
    pub kept_out: u64,
}

/// What a look at the files led to.
#[derive(Debug)]
#[non_exhaustive]
pub enum Reload {
    /// They are as before.
    Unchanged,
    /// They have changed since the last look: the next one decides.
    Unsettled,
    /// New connections get the new certificate.
    Reloaded,
    /// They have changed to something that is no identity; the old one stays.
    KeptOut(TlsError),
}

/// A server's side of TLS. Clones are the same.
#[derive(Clone, Debug)]
pub struct ServerTls {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    files: TlsFiles,
    config: RwLock<Arc<ServerConfig>>,
    watching: Mutex<Watching>,
    handshakes: AtomicU64,
    failed_handshakes: AtomicU64,
    reloads: AtomicU64,
    kept_out: AtomicU64,
}

/// Digests of the files' contents.
#[derive(Debug)]
struct Watching {
    served: u64,
    last_seen: u64,
    kept_out: Option<u64>,
}

impl ServerTls {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// The first file that is not as it must be.
    pub fn load(files: TlsFiles) -> Result<Self, TlsError> {
        let contents = Contents::read(&files)?;
        let served = contents.digest();
        let config = RwLock::new(Arc::new(contents.server_config(&files)?));
        let watching = Mutex::new(Watching { served, last_seen: served, kept_out: None });
        let count = || AtomicU64::new(0);
        let shared = Shared {
            files,
            config,
            watching,
            handshakes: count(),
            failed_handshakes: count(),
            reloads: count(),
            kept_out: count(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Shakes hands as the server, within `limit`.
    ///
    /// # Errors
    ///
    /// Why there is no connection.
    pub async fn accept(
        &self,
        stream: Prefixed<TcpStream>,
        limit: Duration,
    ) -> Result<Stream, HandshakeError> {
        let config = Arc::clone(&self.shared.config.read().unwrap_or_else(PoisonError::into_inner));
        let handshake = tokio_rustls::TlsAcceptor::from(config).accept(stream);
        let outcome = match tokio::time::timeout(limit, handshake).await {
            Ok(Ok(stream)) => Ok(Stream::Tls(Box::new(TlsSession(stream.into())))),
            Ok(Err(error)) => Err(HandshakeError::Failed(error)),
            Err(_) => Err(HandshakeError::TimedOut(limit)),
        };
        let counter = if outcome.is_ok() { &self.shared.handshakes } else { &self.shared.failed_handshakes };
        counter.fetch_add(1, Ordering::Relaxed);
        outcome
    }

    /// All counters.
    pub fn counts(&self) -> TlsCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        TlsCounts {
            handshakes: read(&self.shared.handshakes),
            failed_handshakes: read(&self.shared.failed_handshakes),
            reloads: read(&self.shared.reloads),
            kept_out: read(&self.shared.kept_out),
        }
    }

    /// Looks at the files every `period` until `stop` is requested, and takes over what has changed.
    /// Connections that exist keep the certificate that they began with.
    pub async fn keep_fresh(&self, period: Duration, stop: &Stop) {
        loop {
            tokio::select! {
                biased;
                () = stop.requested() => return,
                () = tokio::time::sleep(period) => {}
            }
            let tls = self.clone();
            // The files may lie on a slow disk; who serves connections does not wait for it.
            let look = tokio::task::spawn_blocking(move || tls.look());
            match look.await {
                Ok(Reload::Reloaded) => {
                    let certificate = &self.shared.files.certificate;
                    info!(certificate = %certificate.display(), "certificate reloaded");
                }
                Ok(Reload::KeptOut(error)) => {
                    warn!(%error, "changed certificate files are not used, the old certificate stays");
                }
                Ok(Reload::Unchanged | Reload::Unsettled) => {}
                Err(error) => warn!(%error, "the look at the certificate files failed"),
            }
        }
    }

    /// Looks at the files once. A change is acted on when two looks in a row saw the same: a file that is
    /// being written is left alone. What was kept out is reported once, until it changes again. Blocks.
    pub fn look(&self) -> Reload {
        let shared = &self.shared;
        let contents = Contents::read(&shared.files);
        let digest = match &contents {
            Ok(contents) => contents.digest(),
            Err(error) => digest_of(&error.to_string()),
        };
        let mut watching = shared.watching.lock().unwrap_or_else(PoisonError::into_inner);
        let settled = std::mem::replace(&mut watching.last_seen, digest) == digest;
        if digest == watching.served {
            watching.kept_out = None;
            return Reload::Unchanged;
        }
        if watching.kept_out == Some(digest) {
            return Reload::Unchanged;
        }
        if !settled {
            return Reload::Unsettled;
        }
        match contents.and_then(|contents| contents.server_config(&shared.files)) {
            Ok(config) => {
                *shared.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
                watching.served = digest;
                watching.kept_out = None;
                shared.reloads.fetch_add(1, Ordering::Relaxed);
                Reload::Reloaded
            }
            Err(error) => {
                watching.kept_out = Some(digest);
                shared.kept_out.fetch_add(1, Ordering::Relaxed);
                Reload::KeptOut(error)
            }
        }
    }
}

/// What the files held when they were read.
struct Contents {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_authorities: Option<Vec<u8>>,
}

impl Contents {
    fn read(files: &TlsFiles) -> Result<Self, TlsError> {
        Ok(Self {
            certificate: read(&files.certificate)?,
            key: read(&files.key)?,
            client_authorities: files.client_authorities.as_deref().map(read).transpose()?,
        })
    }

    fn digest(&self) -> u64 {
        digest_of(&(&self.certificate, &self.key, &self.client_authorities))
    }

    fn server_config(&self, files: &TlsFiles) -> Result<ServerConfig, TlsError> {
        let library = |source| TlsError::Library { source };
        let provider = Arc::new(ring::default_provider());
        let identity = self.identity(files, &provider)?;
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(library)?;
        let builder = if files.client_auth == ClientAuth::None {
            builder.with_no_client_auth()
        } else {
            let no_authorities = TlsError::NoAuthorities { client_auth: files.client_auth };
            let (Some(path), Some(pem)) = (&files.client_authorities, &self.client_authorities) else {
                return Err(no_authorities);
            };
            let roots = Arc::new(roots(path, pem)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
            let verifier = match files.client_auth {
                ClientAuth::Optional => verifier.allow_unauthenticated(),
                ClientAuth::Require | ClientAuth::None => verifier,
            };
            let verifier = verifier
                .build()
                .map_err(|error| TlsError::NoCertificate { path: path.clone(), reason: error.to_string() })?;
            builder.with_client_cert_verifier(verifier)
        };
        Ok(builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(identity))))
    }

    /// The certificate and the key, if they are a pair.
    fn identity(&self, files: &TlsFiles, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
        let chain = certificates(&files.certificate, &self.certificate)?;
        let key = private_key(&files.key, &self.key)?;
        let key = provider
            .key_provider
            .load_private_key(key)
            .map_err(|error| TlsError::NoKey { path: files.key.clone(), reason: error.to_string() })?;
        let identity = CertifiedKey::new(chain, key);
        match identity.keys_match() {
            // A key that does not tell its public half cannot be compared; the handshake will.
            Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(identity),
            Err(rustls::Error::InconsistentKeys(_)) => {
                Err(TlsError::Mismatch { certificate: files.certificate.clone(), key: files.key.clone() })
            }
            Err(error) => {
                Err(TlsError::NoCertificate { path: files.certificate.clone(), reason: error.to_string() })
            }
        }
    }
}

fn digest_of(content: &impl Hash) -> u64 {
    // Only tells whether the operator's own files have changed.
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    hasher.finish()
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|source| TlsError::Read { path: path.to_owned(), source })
}

fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let unusable = |reason: String| TlsError::NoCertificate { path: path.to_owned(), reason };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let chain = chain.map_err(|error| unusable(error.to_string()))?;
    if chain.is_empty() {
        return Err(unusable("there is none".into()));
    }
    Ok(chain)
}

fn private_key(path: &Path, pem: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
    let text = String::from_utf8_lossy(pem);
    if text.contains("BEGIN ENCRYPTED PRIVATE KEY") || text.contains("Proc-Type: 4,ENCRYPTED") {
        return Err(TlsError::EncryptedKey { path: path.to_owned() });
    }
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| {
        let reason = match error {
            rustls_pki_types::pem::Error::NoItemsFound => "there is none".into(),
            error => error.to_string(),
        };
        TlsError::NoKey { path: path.to_owned(), reason }
    })
}

fn roots(path: &Path, pem: &[u8]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path, pem)? {
        roots
            .add(certificate)
            .map_err(|error| TlsError::NoCertificate { path: path.to_owned(), reason: error.to_string() })?;
    }
    Ok(roots)
}

#[cfg(test)]
mod tests;
