use super::*;
use crate::room::TABLES_MAX;

const FULL: i32 = 103;

fn frame(name: &str) -> Frame {
    Frame { bytes: Bytes::copy_from_slice(name.as_bytes()), code: FULL, opaque: 7, oneway: false }
}

fn topics(names: &str) -> Topics {
    let hashes: Vec<u64> = names.bytes().map(u64::from).collect();
    let single = hashes.len() == 1;
    Topics::new(hashes, single)
}

/// A broker says this, which has room.
fn say(outbox: &mut Outbox, frame: Frame, topics: Topics, repeats: bool, second: u64) -> Lost {
    let said = Said { frame, topics, digest: None, repeats };
    outbox.table(said, TABLES_MAX, Millis::new(second * 1_000))
}

/// An outbox of registrations; each is named by its topics, one letter each.
fn outbox(registrations: &[&str]) -> Outbox {
    let mut outbox = Outbox::default();
    for (second, names) in (0..).zip(registrations) {
        say(&mut outbox, frame(names), topics(names), true, second);
    }
    outbox
}

fn names<'a>(frames: impl Iterator<Item = &'a Frame>) -> Vec<String> {
    frames.map(|frame| String::from_utf8(frame.bytes.to_vec()).unwrap()).collect()
}

/// What a server gets that takes everything.
fn heard(outbox: &Outbox, cursor: &mut Cursor) -> Vec<String> {
    let mut heard = Vec::new();
    while let Some(next) = outbox.next(cursor) {
        heard.extend(names([&next.frame].into_iter()));
        Outbox::taken(cursor, next.number);
    }
    heard
}

fn left(registrations: &[&str]) -> Vec<String> {
    names(outbox(registrations).state())
}

#[test]
fn a_table_replaces_what_it_includes() {
    assert_eq!(left(&["abc", "abc"]), ["abc"]);
    assert_eq!(left(&["abc", "a", "bd", "abcd"]), ["abcd"]);
    assert_eq!(left(&["", "ab"]), ["ab"]);
}

#[test]
fn what_a_later_frame_does_not_include_stays() {
    assert_eq!(left(&["abc", "ab"]), ["abc", "ab"]);
    assert_eq!(left(&["abc", "d", "abc"]), ["abc"], "a single topic in front of the table is refused");
    assert_eq!(left(&["abc", "de", "abc"]), ["de", "abc"]);
    assert_eq!(left(&["abc", ""]), ["abc", ""]);
}

#[test]
fn a_single_topic_replaces_only_the_same_single_topic() {
    assert_eq!(left(&["abc", "a", "b", "a"]), ["abc", "b", "a"]);
    assert_eq!(left(&["", "a", "a"]), ["", "a"], "the empty table makes the broker known");
}

#[test]
fn parts_of_a_split_table_replace_earlier_parts_together() {
    assert_eq!(left(&["abc", "def", "abx", "cde", "fg"]), ["abx", "cde", "fg"]);
}

#[test]
fn a_server_gets_each_frame_once_and_all_of_the_state_after_a_reconnect() {
    let mut outbox = outbox(&["abc", "a"]);
    let mut cursor = Cursor::default();
    assert_eq!(heard(&outbox, &mut cursor), ["abc", "a"]);
    assert_eq!(outbox.waiting(&cursor), 0);
    say(&mut outbox, frame("de"), topics("de"), true, 3);
    assert_eq!(outbox.waiting(&cursor), 1);
    assert_eq!(heard(&outbox, &mut cursor), ["de"]);
    Outbox::start_over(&mut cursor);
    assert_eq!(heard(&outbox, &mut cursor), ["abc", "a", "de"]);
}

#[test]
fn a_hung_server_gets_the_frame_that_replaced_the_one_under_way() {
    let mut outbox = outbox(&["abc"]);
    let mut cursor = Cursor::default();
    let under_way = outbox.next(&cursor).unwrap();
    for second in 1..5 {
        say(&mut outbox, frame("abcd"), topics("abcd"), true, second * 30);
        assert_eq!(outbox.len(), 1);
    }
    Outbox::taken(&mut cursor, under_way.number);
    assert_eq!(heard(&outbox, &mut cursor), ["abcd"]);
}

#[test]
fn signs_of_life_collapse_to_the_last_and_are_never_resent() {
    let mut outbox = outbox(&["abc"]);
    let mut cursor = Cursor::default();
    for beat in ["one", "two", "three"] {
        outbox.beat(frame(beat), Millis::new(5));
    }
    assert_eq!(heard(&outbox, &mut cursor), ["abc", "three"]);
    Outbox::start_over(&mut cursor);
    assert_eq!(outbox.waiting(&cursor), 1);
    assert_eq!(heard(&outbox, &mut cursor), ["abc"]);
    assert_eq!(outbox.waiting(&cursor), 0, "nothing is shown that is never sent");
    let mut late = Cursor::default();
    say(&mut outbox, frame("abc"), topics("abc"), true, 1);
    assert_eq!(heard(&outbox, &mut late), ["abc"], "a registration says that the broker lives, too");
}

#[test]
fn leaving_makes_everything_before_it_superfluous() {
    let mut outbox = outbox(&["abc", "d"]);
    let mut cursor = Cursor::default();
    let number = outbox.leave(frame("bye"), Millis::new(9));
    assert!(!Outbox::has_taken(&cursor, number));
    say(&mut outbox, frame("ab"), topics("ab"), true, 1);
    assert_eq!(heard(&outbox, &mut cursor), ["bye", "ab"]);
    assert!(Outbox::has_taken(&cursor, number));
    Outbox::start_over(&mut cursor);
    assert_eq!(heard(&outbox, &mut cursor), ["ab"]);
    let number = outbox.leave(frame("bye again"), Millis::new(11));
    Outbox::taken(&mut cursor, number);
    Outbox::start_over(&mut cursor);
    assert_eq!(outbox.waiting(&cursor), 0);
}

#[test]
fn a_topic_that_a_full_round_left_out_is_not_resent_for_ever() {
    let mut outbox = outbox(&["abc"]);
    say(&mut outbox, frame("ab"), topics("ab"), true, 30);
    assert_eq!(names(outbox.state()), ["abc", "ab"]);
    say(&mut outbox, frame("ab"), topics("ab"), true, 90);
    assert_eq!(names(outbox.state()), ["ab"]);
}

#[test]
fn the_table_of_a_broker_that_does_not_repeat_it_stays() {
    let mut outbox = Outbox::default();
    say(&mut outbox, frame("abc"), topics("abc"), false, 0);
    say(&mut outbox, frame("de"), topics("de"), false, 1000);
    assert_eq!(names(outbox.state()), ["abc", "de"]);
}

#[test]
fn a_deleted_topic_is_not_announced_to_a_server_that_comes_back() {
    let mut outbox = outbox(&["abc", "de", "d"]);
    outbox.delete(u64::from(b'd'));
    assert_eq!(names(outbox.state()), ["abc", "de"]);
    outbox.delete(u64::from(b'a'));
    outbox.delete(u64::from(b'a'));
    assert_eq!(names(outbox.state()), ["abc", "de"], "others are in the same frame");
}

#[test]
fn a_body_that_is_known_has_its_topics_known() {
    let mut outbox = Outbox::default();
    let said = Said { frame: frame("abc"), topics: topics("abc"), digest: Some(5), repeats: true };
    outbox.table(said, TABLES_MAX, Millis::ZERO);
    assert_eq!(outbox.known(5), Some(&topics("abc")));
    assert_eq!(outbox.known(6), None);
}

#[test]
fn memory_is_bounded_and_what_is_lost_is_told() {
    let mut outbox = outbox(&["ab"]);
    let mut lost = 0;
    for topic in 0..5_000 {
        let topics = Topics::new(vec![1_000 + topic], true);
        lost += say(&mut outbox, frame("x"), topics, true, 1).frames;
    }
    assert!(outbox.len() <= FRAMES_MAX);
    assert!(lost > 0);
    let big = Frame { bytes: Bytes::from(vec![0; 1024 * 1024]), ..frame("") };
    let said = Said { frame: big, topics: Topics::new(vec![1, 2], false), digest: None, repeats: true };
    let room = cost(1024 * 1024, 2);
    let lost = outbox.table(said, room, Millis::new(2));
    assert!(lost.for_room > 0 && lost.for_room == lost.frames, "{lost:?}");
    assert_eq!(outbox.len(), 1);
    assert_eq!(outbox.bytes(), room);
    assert_eq!(outbox.owners.len(), 2);
    assert!(outbox.owners.capacity() <= OWNERS_KEPT.max(16), "{}", outbox.owners.capacity());
}
