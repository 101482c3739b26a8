use super::*;
use crate::address::HostPort;
use crate::dialer::{DialError, Dialer};
use crate::entrance::{Entered, Entrance, EntranceError};
use crate::preamble::{PreamblePolicy, TlsMode};
use crate::tasks::Tasks;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::Poll;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;

const LIMIT: Duration = Duration::from_secs(20);

/// A folder that goes when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("waypost-net-{}-{test}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A certificate and its key in PEM.
struct Pair {
    certificate: String,
    key: String,
}

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn issue(&self, usage: ExtendedKeyUsagePurpose) -> Pair {
        let key = KeyPair::generate().unwrap();
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).unwrap();
        params.extended_key_usages = vec![usage];
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Pair { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    fn server(&self) -> Pair {
        self.issue(ExtendedKeyUsagePurpose::ServerAuth)
    }
}

fn files(folder: &Folder, pair: &Pair) -> TlsFiles {
    TlsFiles {
        certificate: folder.write("server.pem", &pair.certificate),
        key: folder.write("server.key", &pair.key),
        client_auth: ClientAuth::None,
        client_authorities: None,
    }
}

/// A server that sends back what it reads, one connection after the other.
struct Server {
    address: HostPort,
    tasks: Tasks,
    tls: ServerTls,
}

impl Server {
    async fn start(tls: ServerTls, mode: TlsMode) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = HostPort::from(listener.local_addr().unwrap());
        let trusted_proxies = "loopback".parse().unwrap();
        let policy = PreamblePolicy { tls_mode: mode, tls_available: false, trusted_proxies };
        let entrance = Entrance::new(policy, Some(tls.clone()));
        let tasks = Tasks::new();
        let (stop, children) = (tasks.stop(), tasks.clone());
        tasks.spawn(async move {
            loop {
                let (stream, peer) = tokio::select! {
                    () = stop.requested() => return,
                    accepted = listener.accept() => accepted.unwrap(),
                };
                let entrance = entrance.clone();
                children.spawn(async move { echo(&entrance, stream, peer).await });
            }
        });
        Self { address, tasks, tls }
    }

    async fn stop(self) {
        self.tasks.cancel();
        assert_eq!(self.tasks.drain(LIMIT).await, 0);
    }
}

async fn echo(entrance: &Entrance, stream: TcpStream, peer: SocketAddr) -> Result<(), EntranceError> {
    let Entered { mut stream, source, .. } = entrance.enter(stream, peer).await?;
    if let Some(source) = source {
        stream.write_all(format!("{source} ").as_bytes()).await.map_err(EntranceError::Io)?;
    }
    let mut buffer = [0; 4_096];
    loop {
        let length = stream.read(&mut buffer).await.map_err(EntranceError::Io)?;
        if length == 0 {
            return Ok(());
        }
        stream.write_all(&buffer[..length]).await.map_err(EntranceError::Io)?;
        stream.flush().await.map_err(EntranceError::Io)?;
    }
}

fn dialer(trust: &ServerTrust) -> Dialer {
    Dialer { tls: Some(TlsConnector::new(trust, None).unwrap()), ..Dialer::default() }
}

async fn echoes(stream: &mut Stream, bytes: &[u8]) -> io::Result<()> {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut read = vec![0; bytes.len()];
    let (written, got) = tokio::join!(
        async {
            writer.write_all(bytes).await?;
            writer.flush().await
        },
        reader.read_exact(&mut read)
    );
    written?;
    got?;
    assert!(read == bytes);
    Ok(())
}

#[tokio::test]
async fn plain_and_encrypted_connections_share_a_port() {
    let (folder, authority) = (Folder::new("share"), Authority::new());
    let trusted = ServerTrust::Authorities(folder.write("ca.pem", &authority.0.pem()));
    let tls = ServerTls::load(files(&folder, &authority.server())).unwrap();
    let server = Server::start(tls, TlsMode::Permissive).await;
    let large: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    for (dialer, encrypted) in
        [(Dialer::default(), false), (dialer(&trusted), true), (dialer(&ServerTrust::Anybody), true)]
    {
        let mut stream = dialer.dial(&server.address, LIMIT).await.unwrap();
        assert_eq!(stream.is_encrypted(), encrypted);
        echoes(&mut stream, b"\0\0\0\x01").await.unwrap();
        echoes(&mut stream, &large).await.unwrap();
    }
    assert_eq!(server.tls.counts().handshakes, 2);
    server.stop().await;
}

#[tokio::test]
async fn what_the_socket_did_not_take_is_sent_while_the_next_request_is_waited_for() {
    let (folder, authority) = (Folder::new("rest"), Authority::new());
    let tls = ServerTls::load(files(&folder, &authority.server())).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = HostPort::from(listener.local_addr().unwrap());
    let dialer = dialer(&ServerTrust::Anybody);
    let (client, server) = tokio::join!(async { dialer.dial(&address, LIMIT).await.unwrap() }, async {
        let (stream, _) = listener.accept().await.unwrap();
        tls.accept(Prefixed::new(bytes::Bytes::new(), stream), LIMIT).await.unwrap()
    });
    let (mut client, mut server) = (client, server);
    // Fills the socket and what TLS holds back, without waiting for either.
    let chunk = vec![7; 64 * 1024];
    let written = std::future::poll_fn(|context| {
        let mut written = 0;
        while let Poll::Ready(count) = Pin::new(&mut server).poll_write(context, &chunk) {
            written += count.unwrap();
        }
        Poll::Ready(written)
    })
    .await;
    assert!(written > 64 * 1024);
    let mut answer = vec![0; written];
    let transfer = async {
        tokio::join!(
            async {
                client.read_exact(&mut answer).await.unwrap();
                client.write_all(b"next").await.unwrap();
                client.flush().await.unwrap();
            },
            async {
                let mut request = [0; 4];
                server.read_exact(&mut request).await.unwrap();
            }
        )
    };
    tokio::time::timeout(LIMIT, transfer).await.expect("the whole answer arrives");
}

#[tokio::test]
async fn tls_works_behind_a_proxy_preamble() {
    let (folder, authority) = (Folder::new("proxy"), Authority::new());
    let tls = ServerTls::load(files(&folder, &authority.server())).unwrap();
    let server = Server::start(tls, TlsMode::Enforcing).await;
    let mut stream = TcpStream::connect(server.address.socket_address().unwrap()).await.unwrap();
    stream.write_all(b"PROXY TCP4 192.0.2.1 10.0.0.1 4567 9876\r\n").await.unwrap();
    let connector = TlsConnector::new(&ServerTrust::Anybody, None).unwrap();
    let mut stream = connector.connect(stream, &server.address.host).await.unwrap();
    stream.write_all(b"ping").await.unwrap();
    let mut read = [0; 19];
    stream.read_exact(&mut read).await.unwrap();
    assert_eq!(&read, b"192.0.2.1:4567 ping");
    drop(stream);
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_trusts_another_authority_does_not_connect() {
    let (folder, authority) = (Folder::new("other"), Authority::new());
    let other = ServerTrust::Authorities(folder.write("ca.pem", &Authority::new().0.pem()));
    let tls = ServerTls::load(files(&folder, &authority.server())).unwrap();
    let server = Server::start(tls, TlsMode::Permissive).await;
    let error = dialer(&other).dial(&server.address, LIMIT).await.unwrap_err();
    assert!(matches!(error, DialError::Tls { .. }), "{error:?}");
    server.stop().await;
}

#[tokio::test]
async fn clients_are_asked_for_certificates_as_configured() {
    let (folder, authority) = (Folder::new("clients"), Authority::new());
    let strangers = Authority::new();
    let good = authority.issue(ExtendedKeyUsagePurpose::ClientAuth);
    let bad = strangers.issue(ExtendedKeyUsagePurpose::ClientAuth);
    let good = (folder.write("good.pem", &good.certificate), folder.write("good.key", &good.key));
    let bad = (folder.write("bad.pem", &bad.certificate), folder.write("bad.key", &bad.key));
    let table = [
        (ClientAuth::None, None, true),
        (ClientAuth::Optional, None, true),
        (ClientAuth::Optional, Some(&good), true),
        (ClientAuth::Optional, Some(&bad), false),
        (ClientAuth::Require, None, false),
        (ClientAuth::Require, Some(&good), true),
        (ClientAuth::Require, Some(&bad), false),
    ];
    for (client_auth, identity, connects) in table {
        let mut files = files(&folder, &authority.server());
        files.client_auth = client_auth;
        files.client_authorities = Some(folder.write("ca.pem", &authority.0.pem()));
        let server = Server::start(ServerTls::load(files).unwrap(), TlsMode::Permissive).await;
        let connector = TlsConnector::new(&ServerTrust::Anybody, identity.cloned()).unwrap();
        let dialer = Dialer { tls: Some(connector), ..Dialer::default() };
        // In TLS 1.3 the client learns of its refusal only when it reads.
        let connected = match dialer.dial(&server.address, LIMIT).await {
            Ok(mut stream) => echoes(&mut stream, b"ping").await.is_ok(),
            Err(_) => false,
        };
        assert_eq!(connected, connects, "{client_auth} {identity:?}");
        let counts = server.tls.counts();
        assert_eq!(counts.handshakes + counts.failed_handshakes, 1);
        server.stop().await;
    }
}

#[tokio::test]
async fn a_handshake_that_stops_half_way_is_given_up() {
    let (folder, authority) = (Folder::new("slow"), Authority::new());
    let tls = ServerTls::load(files(&folder, &authority.server())).unwrap();
    let mut entrance = Entrance::new(PreamblePolicy::default(), Some(tls.clone()));
    entrance.handshake_limit = Duration::from_millis(50);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut dialled = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (accepted, peer) = listener.accept().await.unwrap();
    dialled.write_all(b"\x16\x03\x01\x02\x00\x01").await.unwrap();
    let error = entrance.enter(accepted, peer).await.expect_err("too slow");
    assert!(matches!(error, EntranceError::Handshake(HandshakeError::TimedOut(_))), "{error:?}");
    assert_eq!(tls.counts().failed_handshakes, 1);
}

#[test]
fn a_changed_pair_is_taken_over_when_it_has_settled_and_fits() {
    let (folder, authority) = (Folder::new("reload"), Authority::new());
    let (old, new) = (authority.server(), authority.server());
    let tls = ServerTls::load(files(&folder, &old)).unwrap();
    assert!(matches!(tls.look(), Reload::Unchanged));

    folder.write("server.pem", &new.certificate);
    assert!(matches!(tls.look(), Reload::Unsettled));
    assert!(matches!(tls.look(), Reload::KeptOut(TlsError::Mismatch { .. })));
    assert!(matches!(tls.look(), Reload::Unchanged), "it is reported once");

    folder.write("server.key", &new.key);
    assert!(matches!(tls.look(), Reload::Unsettled));
    assert!(matches!(tls.look(), Reload::Reloaded));
    assert!(matches!(tls.look(), Reload::Unchanged));
    let counts = tls.counts();
    assert_eq!((counts.reloads, counts.kept_out), (1, 1));
}

#[test]
fn a_renewed_certificate_of_the_same_key_is_taken_over_alone() {
    let folder = Folder::new("renew");
    let key = KeyPair::generate().unwrap();
    let issue = || CertificateParams::new(vec!["localhost".into()]).unwrap().self_signed(&key).unwrap().pem();
    let pair = Pair { certificate: issue(), key: key.serialize_pem() };
    let tls = ServerTls::load(files(&folder, &pair)).unwrap();
    folder.write("server.pem", &issue());
    assert!(matches!(tls.look(), Reload::Unsettled));
    assert!(matches!(tls.look(), Reload::Reloaded));
}

#[test]
fn deleted_and_damaged_files_leave_the_old_pair_in_use() {
    let (folder, authority) = (Folder::new("damage"), Authority::new());
    let pair = authority.server();
    let files = files(&folder, &pair);
    let tls = ServerTls::load(files.clone()).unwrap();
    fs::remove_file(&files.key).unwrap();
    assert!(matches!(tls.look(), Reload::Unsettled));
    assert!(matches!(tls.look(), Reload::KeptOut(TlsError::Read { .. })));
    folder.write("server.key", &pair.key[..pair.key.len() / 2]);
    assert!(matches!(tls.look(), Reload::Unsettled));
    assert!(matches!(tls.look(), Reload::KeptOut(TlsError::NoKey { .. })));
    folder.write("server.key", &pair.key);
    assert!(matches!(tls.look(), Reload::Unchanged), "it is as it was");
    assert_eq!(tls.counts().reloads, 0);
}

#[tokio::test]
async fn new_connections_get_the_new_certificate_and_old_ones_live_on() {
    let (folder, authority, successor) = (Folder::new("live"), Authority::new(), Authority::new());
    let old = ServerTrust::Authorities(folder.write("old-ca.pem", &authority.0.pem()));
    let new = ServerTrust::Authorities(folder.write("new-ca.pem", &successor.0.pem()));
    let tls = ServerTls::load(files(&folder, &authority.server())).unwrap();
    let server = Server::start(tls.clone(), TlsMode::Permissive).await;
    let stop = server.tasks.stop();
    server.tasks.spawn(async move { tls.keep_fresh(Duration::from_millis(10), &stop).await });
    let mut before = dialer(&old).dial(&server.address, LIMIT).await.unwrap();

    files(&folder, &successor.server());
    let dialer = dialer(&new);
    let renewed = async {
        loop {
            if let Ok(stream) = dialer.dial(&server.address, LIMIT).await {
                return stream;
            }
        }
    };
    let mut after = tokio::time::timeout(LIMIT, renewed).await.expect("the new certificate in time");
    echoes(&mut after, b"after").await.unwrap();
    echoes(&mut before, b"before").await.unwrap();
    assert_eq!(server.tls.counts().reloads, 1);
    drop((before, after));
    server.stop().await;
}

#[test]
fn keys_of_all_forms_are_read() {
    let authority = Authority::new();
    let pair = authority.server();
    let folder = Folder::new("forms");
    ServerTls::load(files(&folder, &pair)).expect("PKCS#8");

    let openssl = |arguments: &[&str]| {
        let run = std::process::Command::new("openssl").args(arguments).current_dir(&folder.0).output();
        match run {
            Ok(output) => output.status.success(),
            Err(_) => {
                assert!(std::env::var("CI").as_deref() != Ok("true"), "openssl is missing");
                eprintln!("not run: keys in other forms, openssl is missing");
                false
            }
        }
    };
    if !openssl(&["ec", "-in", "server.key", "-out", "sec1.key"]) {
        return;
    }
    let sec1 = fs::read_to_string(folder.0.join("sec1.key")).unwrap();
    assert!(sec1.contains("BEGIN EC PRIVATE KEY"));
    let base = files(&folder, &pair);
    ServerTls::load(TlsFiles { key: folder.0.join("sec1.key"), ..base.clone() }).expect("SEC1");

    let request = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"];
    assert!(openssl(&[&request[..], &["-keyout", "rsa8.key", "-out", "rsa.pem"]].concat()));
    assert!(openssl(&["rsa", "-traditional", "-in", "rsa8.key", "-out", "rsa1.key"]));
    let rsa1 = fs::read_to_string(folder.0.join("rsa1.key")).unwrap();
    assert!(rsa1.contains("BEGIN RSA PRIVATE KEY"));
    let rsa = TlsFiles { certificate: folder.0.join("rsa.pem"), ..base.clone() };
    ServerTls::load(TlsFiles { key: folder.0.join("rsa1.key"), ..rsa.clone() }).expect("PKCS#1");
    ServerTls::load(TlsFiles { key: folder.0.join("rsa8.key"), ..rsa }).expect("PKCS#8 of RSA");

    assert!(openssl(&["pkcs8", "-topk8", "-in", "server.key", "-out", "locked.key", "-passout", "pass:x"]));
    let locked = TlsFiles { key: folder.0.join("locked.key"), ..base };
    let error = ServerTls::load(locked).expect_err("it has a password");
    assert!(matches!(error, TlsError::EncryptedKey { .. }), "{error:?}");
}

#[test]
fn files_that_give_no_identity_are_named_with_the_next_step() {
    let (folder, authority) = (Folder::new("errors"), Authority::new());
    let good = files(&folder, &authority.server());
    let other = folder.write("other.key", &authority.server().key);
    let missing = folder.0.join("missing.pem");
    let text = folder.write("text.pem", "this is no PEM");
    let locked = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let locked = folder.write("locked.key", locked);
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let broken = folder.write("broken.pem", broken);
    let with = |change: &dyn Fn(&mut TlsFiles)| {
        let mut files = good.clone();
        change(&mut files);
        ServerTls::load(files).expect_err("no identity").to_string()
    };
    let table = [
        (with(&|files| files.certificate = missing.clone()), "missing.pem: No such file", "check the path"),
        (
            with(&|files| files.certificate = text.clone()),
            "text.pem holds no usable certificate",
            "there is none",
        ),
        (
            with(&|files| files.certificate = broken.clone()),
            "broken.pem holds no usable certificate",
            "must be PEM",
        ),
        (with(&|files| files.key = text.clone()), "text.pem holds no usable private key", "there is none"),
        (
            with(&|files| files.key = locked.clone()),
            "locked.key is encrypted",
            "openssl pkcs8 -topk8 -nocrypt",
        ),
        (with(&|files| files.key = other.clone()), "other.key does not belong to", "files of one pair"),
        (
            with(&|files| files.client_auth = ClientAuth::Require),
            "\"require\" without authorities",
            "CA certificates",
        ),
        (
            with(&|files| {
                files.client_auth = ClientAuth::Optional;
                files.client_authorities = Some(text.clone());
            }),
            "text.pem holds no usable certificate",
            "there is none",
        ),
    ];
    for (error, what, next) in table {
        assert!(error.contains(what) && error.contains(next), "{error}");
    }
}

#[test]
fn client_authentication_is_read_in_any_case() {
    for auth in [ClientAuth::None, ClientAuth::Optional, ClientAuth::Require] {
        assert_eq!(auth.to_string().to_uppercase().parse(), Ok(auth));
    }
    assert!("yes".parse::<ClientAuth>().unwrap_err().to_string().contains("none, optional or require"));
}
