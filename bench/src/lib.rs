//! Benchmarks: load generator, floor server, registration and memory probes.
