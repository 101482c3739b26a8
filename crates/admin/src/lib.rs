//! The HTTP side of the server: metrics, health and the live table.
