//! TLS and plain bytes on one port, certificates that are replaced, and clients that must show theirs.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use waypost_rocketmq_wire::message::Request;

use crate::harness::{Broker, Client, SOON, Scratch, Server, Settings, envelope, poll_until, route_query};

type Encrypted = Client<StreamOwned<ClientConnection, std::net::TcpStream>>;

/// Signs certificates.
struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, in PEM.
struct Pair {
    certificate: String,
    key: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(params, key).expect("a certificate"))
    }

    fn issue(&self, usage: ExtendedKeyUsagePurpose) -> Pair {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        params.extended_key_usages = vec![usage];
        let certificate = params.signed_by(&key, &self.0).expect("a certificate");
        Pair { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    fn server(&self) -> Pair {
        self.issue(ExtendedKeyUsagePurpose::ServerAuth)
    }

    fn client(&self) -> Pair {
        self.issue(ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn pem(&self) -> String {
        self.0.pem()
    }
}

/// The files that a server reads.
struct Files {
    certificate: PathBuf,
    key: PathBuf,
    _folder: Scratch,
    trust: PathBuf,
}

impl Files {
    fn new(pair: &Pair, trusted: &Authority) -> Self {
        let folder = Scratch::new("tls");
        let [certificate, key, trust] =
            ["server.pem", "server.key", "trust.pem"].map(|name| folder.path().join(name));
        let files = Self { certificate, key, trust, _folder: folder };
        files.replace(pair);
        write_whole(&files.trust, &trusted.pem());
        files
    }

    fn replace(&self, pair: &Pair) {
        write_whole(&self.key, &pair.key);
        write_whole(&self.certificate, &pair.certificate);
    }

    fn settings(&self, mode: &str) -> Settings {
        Settings::new()
            .with("tls.server.mode", mode)
            .with("tls.server.certPath", self.certificate.display())
            .with("tls.server.keyPath", self.key.display())
    }
}

/// As tools that renew certificates do: the file is there whole, or not at all.
fn write_whole(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).and_then(|()| fs::rename(&new, path)).expect("the folder can be written");
}

fn client_config(authority: &Authority, own: Option<&Pair>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_slice(authority.pem().as_bytes()).expect("PEM");
    roots.add(root).expect("a root");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots);
    Arc::new(match own {
        None => builder.with_no_client_auth(),
        Some(pair) => {
            let chain =
                CertificateDer::pem_slice_iter(pair.certificate.as_bytes()).map(|it| it.expect("PEM"));
            let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("PEM");
            builder.with_client_auth_cert(chain.collect(), key).expect("a usable pair")
        }
    })
}

/// A connection that shakes hands with its first bytes.
fn encrypted(plain: Client, config: &Arc<ClientConfig>) -> Encrypted {
    let name = ServerName::try_from("localhost").expect("a name");
    let connection = ClientConnection::new(Arc::clone(config), name).expect("a client");
    Client::over(StreamOwned::new(connection, plain.into_stream()))
}

#[test]
fn permissive_serves_tls_and_plain_bytes_on_one_port() {
    let authority = Authority::new();
    let files = Files::new(&authority.server(), &authority);
    let mut server = Server::start(&files.settings("permissive"));
    let config = client_config(&authority, None);
    let mut broker = encrypted(server.client(), &config);
    Broker::new("broker-a", "10.9.0.1:10911", &["TopicA"]).register(&mut broker);
    let mut plain = server.client();
    let mut secret = encrypted(server.client(), &config);
    for _ in 0..3 {
        assert!(plain.has_route("TopicA") && secret.has_route("TopicA"));
    }
    // Bad bytes inside TLS end it as they do outside.
    secret.send(&envelope(2, b"{}", b""));
    assert_eq!(secret.next(), None);
    // A broker that registered over TLS dies like any other.
    drop(broker);
    let gone = poll_until(SOON, || (!plain.has_route("TopicA")).then_some(()));
    assert!(gone.is_some(), "the route outlives the connection");
    server.assert_alive();
}

#[test]
fn enforcing_closes_plain_connections_and_disabled_closes_tls() {
    let authority = Authority::new();
    let files = Files::new(&authority.server(), &authority);
    let config = client_config(&authority, None);

    let enforcing = Server::start(&files.settings("enforcing"));
    let mut plain = enforcing.client();
    assert_eq!(plain.route("TopicA"), None);
    let mut secret = encrypted(enforcing.client(), &config);
    assert_eq!(secret.call(&Request::new(106)).code, 0);
    enforcing.expect_count("connections_ended_total", "reason=\"preamble_refused\"", 1);
    enforcing.expect_log("connection closed before its first request");

    let mut disabled = Server::start(&files.settings("disabled"));
    let mut secret = encrypted(disabled.client(), &config);
    assert_eq!(secret.route("TopicA"), None);
    disabled.expect_count("connections_ended_total", "reason=\"preamble_refused\"", 1);
    disabled.assert_alive();

    // Permissive without a certificate cannot shake hands either, and says what is missing.
    let bare = Server::with_defaults();
    let mut secret = encrypted(bare.client(), &config);
    assert_eq!(secret.route("TopicA"), None);
    bare.expect_log("this server has no certificate");
}

#[test]
fn clients_must_show_a_certificate_of_the_trusted_authority_where_it_is_required() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let files = Files::new(&authority.server(), &authority);
    let settings = files
        .settings("permissive")
        .with("tls.server.need.client.auth", "require")
        .with("tls.server.trustCertPath", files.trust.display());
    let mut server = Server::start(&settings);
    let own = authority.client();
    let mut known = encrypted(server.client(), &client_config(&authority, Some(&own)));
    assert_eq!(known.call(&Request::new(106)).code, 0);
    for own in [None, Some(stranger.client())] {
        let mut refused = encrypted(server.client(), &client_config(&authority, own.as_ref()));
        assert_eq!(refused.route("TopicA"), None, "served without a certificate that is trusted");
    }
    server.expect_count("connections_ended_total", "reason=\"tls_handshake\"", 2);
    server.expect_count("tls_failed_handshakes_total", "", 2);
    server.assert_alive();
}

#[test]
fn a_replaced_certificate_is_shown_to_new_connections_and_old_ones_live_on() {
    let (old, new) = (Authority::new(), Authority::new());
    let files = Files::new(&old.server(), &old);
    let mut server = Server::start(&files.settings("permissive"));
    let (old_config, new_config) = (client_config(&old, None), client_config(&new, None));
    let mut lasting = encrypted(server.client(), &old_config);
    assert_eq!(lasting.call(&Request::new(106)).code, 0);
    assert_eq!(encrypted(server.client(), &new_config).route("T"), None, "not yet the new one");

    files.replace(&new.server());
    let shown = poll_until(SOON, || encrypted(server.client(), &new_config).route("T"));
    assert!(shown.is_some(), "the new certificate is not shown");
    assert_eq!(lasting.call(&Request::new(106)).code, 0, "an old connection was cut");

    // One that cannot be used leaves the last good one in place, and says so.
    write_whole(&files.certificate, "-----BEGIN CERTIFICATE-----\nnonsense\n");
    let complained = poll_until(SOON, || {
        assert!(encrypted(server.client(), &new_config).route("T").is_some(), "the good certificate is gone");
        let lines = server.log_lines(&files.certificate.display().to_string());
        (!lines.is_empty()).then_some(())
    });
    assert!(complained.is_some(), "nothing says that the certificate cannot be used");
    assert_eq!(lasting.call(&Request::new(106)).code, 0);
    server.expect_count("tls_reloads_total", "", 1);
    server.assert_alive();
}

#[test]
fn broken_handshakes_end_alone() {
    let authority = Authority::new();
    let files = Files::new(&authority.server(), &authority);
    let mut server = Server::start(&files.settings("permissive"));
    let mut secret = encrypted(server.client(), &client_config(&authority, None));
    for garbage in [&b"\x16\x03\x01\x00\x05hello"[..], b"\x16\xff\xff\xff\xff", &[0x16; 5_000]] {
        let mut client = server.client();
        client.send(garbage);
        client.finish_sending();
        // An alert may come; then it is closed.
        let closed = poll_until(SOON, || client.is_closed_within(Duration::from_secs(1)).then_some(()));
        assert!(closed.is_some(), "still open");
        assert_eq!(secret.call(&Request::new(106)).code, 0);
    }
    server.expect_count("tls_failed_handshakes_total", "", 3);
    let mut plain = server.client();
    plain.send(&route_query("T", 1));
    assert_eq!(plain.next().map(|answer| answer.code), Some(17));
    server.assert_alive();
}
