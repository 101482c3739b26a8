//! The way to a name server, which can be cut, stopped and led elsewhere, and on which every byte is written down.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What the way does at present.
#[derive(Clone, Copy, Debug)]
struct State {
    server: SocketAddr,
    /// Nothing passes, though connections stay: how a hung server looks.
    held: bool,
    /// Connections that were made before it changed are closed.
    cut: u64,
}

/// Leads to a server; closed on drop.
pub(crate) struct Path {
    pub(crate) address: SocketAddr,
    state: watch::Sender<State>,
    heard: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Path {
    pub(crate) async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let state = watch::Sender::new(State { server, held: false, cut: 0 });
        let heard = Arc::new(Mutex::new(Vec::new()));
        tokio::spawn(accept(listener, state.subscribe(), Arc::clone(&heard)));
        Self { address, state, heard }
    }

    /// Lets nothing pass, or lets it pass again, with what waited.
    pub(crate) fn hold(&self, held: bool) {
        self.state.send_modify(|state| state.held = held);
    }

    /// Closes every connection; later ones lead to `server`.
    pub(crate) fn lead_to(&self, server: SocketAddr) {
        self.state.send_modify(|state| *state = State { server, cut: state.cut + 1, ..*state });
    }

    /// What came over each connection for the server.
    pub(crate) fn heard(&self) -> Vec<Vec<u8>> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn accept(listener: TcpListener, mut state: watch::Receiver<State>, heard: Arc<Mutex<Vec<Vec<u8>>>>) {
    loop {
        let from = tokio::select! {
            accepted = listener.accept() => accepted.expect("a connection").0,
            // The path is gone when the channel is.
            changed = state.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
        };
        let now = *state.borrow();
        let Ok(to) = TcpStream::connect(now.server).await else { continue };
        let number = {
            let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
            heard.push(Vec::new());
            heard.len() - 1
        };
        let ((from_read, from_write), (to_read, to_write)) = (from.into_split(), to.into_split());
        let heard = Arc::clone(&heard);
        let note = move |bytes: &[u8]| {
            let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
            heard[number].extend_from_slice(bytes);
        };
        tokio::spawn(carry(from_read, to_write, state.clone(), now.cut, note));
        tokio::spawn(carry(to_read, from_write, state.clone(), now.cut, |_| {}));
    }
}

/// Carries bytes until one side ends or the path is cut; each write half closes with its carrier.
async fn carry(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut state: watch::Receiver<State>,
    cut: u64,
    note: impl Fn(&[u8]),
) {
    let mut chunk = vec![0; 65_536];
    loop {
        let is_cut = state.clone();
        let count = tokio::select! {
            count = from.read(&mut chunk) => count.unwrap_or(0),
            _ = ended(is_cut, cut) => return,
        };
        let Ok(now) = state.wait_for(|state| !state.held || state.cut != cut).await.map(|state| *state)
        else {
            return;
        };
        if count == 0 || now.cut != cut {
            return;
        }
        note(&chunk[..count]);
        if to.write_all(&chunk[..count]).await.is_err() {
            return;
        }
    }
}

async fn ended(mut state: watch::Receiver<State>, cut: u64) {
    // A path that is gone is cut, too.
    let _ = state.wait_for(|state| state.cut != cut).await;
}
