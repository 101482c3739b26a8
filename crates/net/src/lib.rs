//! Listeners, TLS, sessions, limits and drain; knows no protocol.
