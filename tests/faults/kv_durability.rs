//! A put is answered once it is on disk: kill -9 in a storm of puts, and everything that was answered is there.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use waypost_rocketmq_wire::message::Request;

use crate::harness::{Client, Server, Settings, poll_until};

const WRITERS: usize = 8;
const ROUNDS: u64 = 5;

/// What one writer knows of its keys: the value that was answered last, and the one sent after it, if its fate is
/// not known. `None` is a deletion.
type Ledger = BTreeMap<String, (Option<String>, Option<Option<String>>)>;

/// Changes its own keys until the server is gone.
fn write(server: std::net::SocketAddr, writer: usize, round: u64, answered: &AtomicU64, ledger: &mut Ledger) {
    let Ok(mut client) = Client::try_to(server) else { return };
    for step in 0.. {
        let key = format!("writer-{writer}-key-{}", step % 7);
        let value = (step % 5 != 4).then(|| format!("round {round} step {step} \"quoted\" \u{e9}"));
        let mut ext = vec![("namespace", "Storm"), ("key", key.as_str())];
        ext.extend(value.as_deref().map(|value| ("value", value)));
        let code = if value.is_some() { 100 } else { 102 };
        let entry = ledger.entry(key.clone()).or_default();
        entry.1 = Some(value.clone());
        let Some(answer) = client.try_call(&Request { ext: &ext, ..Request::new(code) }) else { return };
        assert_eq!(answer.code, 0, "{answer:?}");
        *ledger.get_mut(&key).expect("it was entered") = (value, None);
        answered.fetch_add(1, Ordering::Relaxed);
    }
}

fn stored(client: &mut Client, key: &str) -> Option<String> {
    let answer = client.call(&Request { ext: &[("namespace", "Storm"), ("key", key)], ..Request::new(101) });
    assert!(matches!(answer.code, 0 | 22), "{answer:?}");
    answer.ext.get("value").cloned()
}

#[test]
fn every_answered_change_survives_kill_9_in_a_storm_of_changes() {
    let mut server = Server::start(&Settings::new());
    let mut ledgers: Vec<Ledger> = vec![Ledger::new(); WRITERS];
    let mut total = 0;
    for round in 0..ROUNDS {
        let answered = AtomicU64::new(0);
        let address = server.address();
        std::thread::scope(|scope| {
            for (writer, ledger) in ledgers.iter_mut().enumerate() {
                let answered = &answered;
                scope.spawn(move || write(address, writer, round, answered, ledger));
            }
            // At a moment that differs from round to round, but always in the middle.
            let enough = 40 + 37 * round;
            let reached = poll_until(Duration::from_secs(30), || {
                (answered.load(Ordering::Relaxed) >= enough).then_some(())
            });
            server.kill();
            assert!(reached.is_some(), "only {answered:?} changes were answered");
        });
        total += answered.load(Ordering::Relaxed);
        server.start_again();
        let mut client = server.client();
        for (key, (last, unknown)) in ledgers.iter_mut().flatten() {
            let found = stored(&mut client, key);
            let fits = found == *last || unknown.as_ref() == Some(&found);
            assert!(
                fits,
                "round {round}, {key}: {found:?} is stored, {last:?} was answered, {unknown:?} was sent"
            );
            (*last, *unknown) = (found, None);
        }
    }
    let left: Vec<_> = std::fs::read_dir(server.home().join("namesrv"))
        .expect("the folder of the file")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    assert!(left.len() <= 3, "temporary files are left: {left:?}");
    eprintln!("{total} changes in {ROUNDS} rounds");
    server.assert_alive();
}

#[test]
fn a_change_that_cannot_be_written_is_answered_as_an_error_and_changes_nothing() {
    let mut server = Server::start(&Settings::new());
    let mut client = server.client();
    let put = |client: &mut Client, value| {
        client.call(&Request {
            ext: &[("namespace", "Storm"), ("key", "K"), ("value", value)],
            ..Request::new(100)
        })
    };
    assert_eq!(put(&mut client, "before").code, 0);
    let folder = server.home().join("namesrv");
    let aside = server.home().join("aside");
    std::fs::rename(&folder, &aside).expect("the folder can be moved");
    std::fs::write(&folder, "no folder").expect("a file can stand in its place");
    let answer = put(&mut client, "lost");
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(answer.remark().contains("kvConfig.json"), "it names the file: {answer:?}");
    assert_eq!(stored(&mut client, "K").as_deref(), Some("before"));
    server.expect_count("kv_write_failures_total", "", 1);

    std::fs::remove_file(&folder)
        .and_then(|()| std::fs::rename(&aside, &folder))
        .expect("it can be put back");
    assert_eq!(put(&mut client, "after").code, 0, "the next change is written again");
    server.kill();
    server.start_again();
    assert_eq!(stored(&mut server.client(), "K").as_deref(), Some("after"));
    server.assert_alive();
}
