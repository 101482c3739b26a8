use proptest::prelude::*;

use super::{Header, Reader, read, read_ordinary};

/// Headers that real peers send, and what makes a reader stumble.
const SEEDS: [&str; 5] = [
    r#"{"code":105,"extFields":{"topic":"TopicTest"},"flag":0,"language":"JAVA","opaque":1,"serializeTypeCurrentRPC":"JSON","version":479}"#,
    r#"{"code":17,"flag":1,"language":"JAVA","opaque":-2,"remark":"no route\n","serializeTypeCurrentRPC":"JSON","version":513}"#,
    "{\"code\":105,\"extFields\":{\"AccessKey\":\"\",\"a\":\"\"},\"flag\":0,\"language\":\"CPP\",\"opaque\":0,\"remark\":\"\",\"version\":63}\n",
    r#"{"code":105,"language":"GO","version":317,"opaque":1,"flag":0,"remark":"","extFields":{"topic":"capgo"}}"#,
    r#"{"code":0,"extFields":{},"flag":2147483648,"language":"rust","opaque":1,"version":479}"#,
];

fn both(text: &str, depth: usize) -> (Option<Header<'_>>, Option<Header<'_>>) {
    let mut quick = Header::default();
    let quick = read_ordinary(Reader::new(text, depth), &mut quick).map(|()| quick);
    let mut thorough = Header::default();
    let thorough = read(text, depth, &mut thorough).ok().map(|()| thorough);
    (quick, thorough)
}

#[test]
fn ordinary_headers_take_the_quick_way() {
    let (quick, thorough) = both(SEEDS[0], 64);
    assert!(quick.is_some());
    assert_eq!(quick, thorough);
    let (quick, thorough) = both(SEEDS[2], 64);
    assert!(quick.is_some());
    assert_eq!(quick, thorough);
}

proptest! {
    /// The quick way may give up on anything, but must not see anything else than the thorough one.
    #[test]
    fn the_quick_way_sees_what_the_thorough_way_sees(
        seed in 0..SEEDS.len(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), "[ -~\n]{0,2}", 0_usize..3), 0..4),
        depth in 0_usize..4,
    ) {
        let mut text = String::from(SEEDS[seed]);
        for (at, insert, remove) in edits {
            let at = at.index(text.len() + 1);
            let end = (at + remove).min(text.len());
            text.replace_range(at..end, &insert);
        }
        let (quick, thorough) = both(&text, depth);
        if quick.is_some() {
            prop_assert_eq!(quick, thorough);
        }
    }
}
