//! Commands over TLS.

use waypost_testkit::peers::Scratch;

use crate::harness::{Server, ask};

#[test]
fn commands_speak_tls_to_whom_they_trust() {
    let home = Scratch::new("program");
    let (certificate, key) = (home.path().join("cert.pem"), home.path().join("key.pem"));
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    std::fs::write(&certificate, made.cert.pem()).expect("written");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("written");
    let server = Server::start(&[
        "--set",
        &format!("tls.server.certPath={}", certificate.display()),
        "--set",
        &format!("tls.server.keyPath={}", key.display()),
        "--set",
        "tls.server.mode=enforcing",
    ]);
    assert_eq!(server.ask("check --tls --tls-insecure").code, 0);
    let trusting = server.ask(&format!("check --tls --tls-ca {}", certificate.display()));
    assert_eq!(trusting.code, 0, "{}", trusting.err);
    let plain = server.ask("check");
    assert_eq!(plain.code, 3);
    assert!(plain.sentence().contains("--tls"), "{}", plain.err);

    let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    std::fs::write(&certificate, other.cert.pem()).expect("written");
    let stranger = server.ask(&format!("check --tls --tls-ca {}", certificate.display()));
    assert_eq!(stranger.code, 3, "a certificate of somebody else: {}", stranger.err);
    let missing = ask("check --tls --tls-ca /nowhere/ca.pem");
    assert_eq!(missing.code, 2);
    assert!(missing.sentence().contains("/nowhere/ca.pem"), "{}", missing.err);
}

#[test]
fn a_check_of_the_configuration_reads_the_certificate_and_its_key() {
    let home = Scratch::new("program");
    let (certificate, key) = (home.path().join("cert.pem"), home.path().join("key.pem"));
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    let check = format!(
        "config check --set tls.server.certPath={} --set tls.server.keyPath={}",
        certificate.display(),
        key.display()
    );
    let missing = ask(&check);
    assert_eq!((missing.code, missing.out.as_str()), (2, ""));
    assert!(missing.sentence().contains("cert.pem"), "{}", missing.err);

    std::fs::write(&certificate, made.cert.pem()).expect("written");
    std::fs::write(&key, other.signing_key.serialize_pem()).expect("written");
    let strangers = ask(&check);
    assert_eq!((strangers.code, strangers.out.as_str()), (2, ""));
    assert!(strangers.sentence().contains("does not belong to the certificate"), "{}", strangers.err);

    std::fs::write(&key, made.signing_key.serialize_pem()).expect("written");
    let pair = ask(&check);
    assert_eq!((pair.code, pair.err.as_str()), (0, ""));
}

#[test]
fn required_client_certificates_beside_plain_connections_are_warned_of_at_the_start_and_by_a_check() {
    let home = Scratch::new("program");
    let (certificate, key) = (home.path().join("cert.pem"), home.path().join("key.pem"));
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    std::fs::write(&certificate, made.cert.pem()).expect("written");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("written");
    let set = [
        "--set".to_owned(),
        format!("tls.server.certPath={}", certificate.display()),
        "--set".to_owned(),
        format!("tls.server.keyPath={}", key.display()),
        "--set".to_owned(),
        format!("tls.server.trustCertPath={}", certificate.display()),
        "--set".to_owned(),
        "tls.server.need.client.auth=require".to_owned(),
    ];
    let told = ask(&format!("config check {}", set.join(" ")));
    assert_eq!(told.code, 0, "{}", told.err);
    assert!(told.err.contains("tls.server.mode = enforcing"), "{}", told.err);
    let mut server = Server::start(&set.each_ref().map(String::as_str));
    server.wait_until("it warns", |server| server.err().contains("does not keep out who speaks no TLS"));
    assert_eq!(server.ask("check").code, 0, "plain connections are served, as was said");
}
