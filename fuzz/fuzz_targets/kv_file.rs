#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| waypost_rocketmq_wire::fuzzing::kv_file(input));
