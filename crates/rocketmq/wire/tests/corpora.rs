//! The corpora of the fuzz targets, and random and damaged input for them.

use std::path::{Path, PathBuf};

use proptest::prelude::*;
use waypost_rocketmq_wire::fuzzing;

type Target = fn(&[u8]);

const TARGETS: [(&str, Target); 5] = [
    ("frame", fuzzing::frame),
    ("header", fuzzing::header),
    ("bodies", fuzzing::bodies),
    ("properties", fuzzing::properties),
    ("kv_file", fuzzing::kv_file),
];

fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus").join(target);
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.into_iter().map(|file| (file.clone(), std::fs::read(&file).unwrap())).collect()
}

#[test]
fn every_input_of_the_corpora_settles() {
    for (target, run) in TARGETS {
        let corpus = corpus(target);
        assert!(corpus.len() >= 3, "{target}");
        for (file, input) in corpus {
            println!("{}", file.display());
            run(&input);
        }
    }
}

/// An input of a corpus with a few bytes changed, inserted, doubled or cut off.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let inputs: Vec<Vec<u8>> =
        TARGETS.iter().flat_map(|(target, _)| corpus(target)).map(|(_, input)| input).collect();
    let edit = (any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>(), 0..6);
    (prop::sample::select(inputs), prop::collection::vec(edit, 0..6)).prop_map(|(mut input, edits)| {
        for (at, to, byte, kind) in edits {
            if input.is_empty() {
                break;
            }
            let (at, to) = (at.index(input.len()), to.index(input.len()));
            match kind {
                0 => input[at] = byte,
                1 => input.insert(at, byte),
                2 => drop(input.remove(at)),
                3 => input.truncate(at.max(8)),
                4 => input.extend_from_within(at.min(to)..at.max(to).min(at.min(to) + 64)),
                _ => input[at] = b"{}[]\"':,\\0-n"[usize::from(byte) % 12],
            }
        }
        input
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_never_panic(input in prop::collection::vec(any::<u8>(), 0..300)) {
        for (_, run) in TARGETS {
            run(&input);
        }
    }

    #[test]
    fn random_json_never_panics(input in "[{}\\[\\]\"':,\\\\ a-c0-9.nul+e-]{0,60}") {
        for (_, run) in TARGETS {
            run(input.as_bytes());
        }
    }

    #[test]
    fn damaged_input_never_panics(input in damaged()) {
        for (_, run) in TARGETS {
            run(&input);
        }
    }
}
