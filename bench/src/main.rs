//! `waypost-bench`: measures a RocketMQ name server. See `bench/README.md`.

fn main() -> anyhow::Result<()> {
    waypost_bench::run()
}
