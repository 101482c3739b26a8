//! The client's side of TLS.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::net::TcpStream;

use super::{HandshakeError, TlsError, certificates, private_key, read, roots};
use crate::address::Host;
use crate::stream::{Prefixed, Stream, TlsSession};

/// Whom a client takes for the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerTrust {
    /// Whoever answers, as RocketMQ clients do by default: encrypted, but not authenticated.
    Anybody,
    /// Who has a certificate for the name that is connected to, signed by an authority in this PEM file.
    Authorities(PathBuf),
}

/// Encrypts connections that were dialled. Clones are cheap.
#[derive(Clone, Debug)]
pub struct TlsConnector {
    config: Arc<ClientConfig>,
    verifies: bool,
}

impl TlsConnector {
    /// A connector that shows `identity` (the files of a certificate chain and its key) if it is asked.
    ///
    /// # Errors
    ///
    /// The first file that is not as it must be.
    pub fn new(trust: &ServerTrust, identity: Option<(PathBuf, PathBuf)>) -> Result<Self, TlsError> {
        let library = |source| TlsError::Library { source };
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(library)?;
        let builder = match trust {
            ServerTrust::Anybody => {
                builder.dangerous().with_custom_certificate_verifier(Arc::new(TrustAnybody(provider)))
            }
            ServerTrust::Authorities(path) => builder.with_root_certificates(roots(path, &read(path)?)?),
        };
        let config = match identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = certificates(&certificate, &read(&certificate)?)?;
                let private_key = private_key(&key, &read(&key)?)?;
                builder.with_client_auth_cert(chain, private_key).map_err(|error| match error {
                    rustls::Error::InconsistentKeys(_) => TlsError::Mismatch { certificate, key },
                    source => TlsError::Library { source },
                })?
            }
        };
        let verifies = *trust != ServerTrust::Anybody;
        Ok(Self { config: Arc::new(config), verifies })
    }

    /// Shakes hands as the client of the server that is called `host`. Sets no time limit.
    ///
    /// # Errors
    ///
    /// Why there is no connection.
    pub async fn connect(&self, stream: TcpStream, host: &Host) -> Result<Stream, HandshakeError> {
        let name = match host {
            Host::Ip(address) => ServerName::from(*address),
            Host::Name(name) => match ServerName::try_from(name.clone()) {
                Ok(name) => name,
                Err(_) if self.verifies => return Err(HandshakeError::BadName(name.clone())),
                // It is only shown to the server, which need not look at it.
                Err(_) => ServerName::from(std::net::IpAddr::from([127, 0, 0, 1])),
            },
        };
        let stream = Prefixed::new(bytes::Bytes::new(), stream);
        let connector = tokio_rustls::TlsConnector::from(Arc::clone(&self.config));
        let stream = connector.connect(name, stream).await.map_err(HandshakeError::Failed)?;
        Ok(Stream::Tls(Box::new(TlsSession(stream.into()))))
    }
}

/// Believes every certificate, but checks that the server has its key.
#[derive(Debug)]
struct TrustAnybody(Arc<CryptoProvider>);

impl ServerCertVerifier for TrustAnybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
