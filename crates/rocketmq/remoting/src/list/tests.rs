use super::*;

fn told(text: &str) -> Vec<String> {
    read(text).left_out.iter().map(ToString::to_string).collect()
}

#[test]
fn lists_are_read_however_they_are_written() {
    let table = [
        ("a:9876;b:9877", "a:9876;b:9877"),
        ("a", "a:9876"),
        ("a;b;c:1", "a:9876;b:9876;c:1"),
        ("a;;b", "a:9876;b:9876"),
        (";;a:1;;b:2;;", "a:1;b:2"),
        (" a , b:1 ;", "a:9876;b:1"),
        ("a:1,b:2", "a:1;b:2"),
        ("a:1 b:2\tc:3\r\nd:4\n", "a:1;b:2;c:3;d:4"),
        ("a;a:9876;A:9876;a:1", "a:9876;a:1"),
        ("http://h:1", "h:1"),
        ("HTTP://h:1/", "h:1"),
        ("https://h:1;tcp://i:2;j", "h:1;i:2;j:9876"),
        ("http://h", "h:9876"),
        ("http://a:1;b:2", "a:1;b:2"),
        ("http://ignored/mq.example.com:80", "mq.example.com:80"),
        ("http://x.example/y/mq.example.com:80/", "mq.example.com:80"),
        ("::1", "[::1]:9876"),
        ("[::1]", "[::1]:9876"),
        ("[::1]:1;::1:2;2001:db8::1", "[::1]:1;[::1]:2;[2001:db8::1]:9876"),
        ("http://[::1]:1/", "[::1]:1"),
        ("fe80::1%eth0", "[fe80::1%eth0]:9876"),
        ("10.1:1;namesrv-1;mq.7.example", "10.1:1;namesrv-1:9876;mq.7.example:9876"),
    ];
    for (text, expected) in table {
        let reading = read(text);
        assert_eq!(
            (reading.to_string().as_str(), reading.left_out.len()),
            (expected, 0),
            "{text}: {reading:?}"
        );
        assert_eq!(read(expected), reading, "what is printed is read as the same");
    }
}

#[test]
fn nothing_but_separators_is_no_list() {
    for text in ["", " ", ";", " ; ,\n", "\t"] {
        assert!(is_blank(text), "{text:?}");
        assert_eq!(read(text), Reading::default(), "{text:?}");
    }
    assert!(!is_blank("9876"));
}

#[test]
fn a_number_alone_is_told_as_a_mistyped_separator() {
    for (text, meant) in [
        ("127.0.0.2;9876", "127.0.0.2:9876"),
        ("127.0.0.2,9877", "127.0.0.2:9877"),
        ("127.0.0.2 9876", "127.0.0.2:9876"),
        ("127.0.0.2;:9876", "127.0.0.2:9876"),
        ("[::1];9876", "[::1]:9876"),
        ("http://h;9876", "h:9876"),
    ] {
        let reading = read(text);
        assert!(reading.servers.is_empty(), "the host's port is open: {reading:?}");
        assert!(told(text)[0].contains(&format!("did you mean \"{meant}\"?")), "{text}: {:?}", told(text));
    }
    // Nothing is guessed of what stands before a whole address.
    assert_eq!(read("a:1;9876;b").to_string(), "a:1;b:9876");
    assert_eq!(
        told("a:1;9876"),
        ["entry 2 of the name server list: \"9876\" is a port without a host, write host:9876"]
    );
    assert!(told("a;99999")[0].contains("too large"), "{:?}", told("a;99999"));
}

#[test]
fn an_entry_that_is_no_server_is_left_out_with_its_reason() {
    let table = [
        ("a:port", "has the port \"port\"; a port is a number from 0 to 65535; write host:9876"),
        ("a:65536", "has the port \"65536\""),
        ("a:", "has the port \"\""),
        ("a:0", "\"a:0\" has the port 0; write a port from 1 to 65535"),
        ("a:-1", "has the port \"-1\""),
        ("127.0.0.256:9876", "\"127.0.0.256:9876\" is no IPv4 address"),
        ("127.0.0.1.9876", "\"127.0.0.1.9876\" is no IPv4 address"),
        ("127.0.0.1:9876:1", "has the host \"127.0.0.1:9876\""),
        ("[::1", "has broken brackets"),
        ("ftp://h:1", "has the scheme \"ftp\"; write host:9876"),
        ("http://h:1/path", "\"http://h:1/path\" has a path; write host:9876"),
        ("http://", "an address is empty"),
        ("h\u{f6}st", "is neither an IP address nor a name"),
        ("user@h:1", "is neither an IP address nor a name"),
    ];
    for (text, reason) in table {
        assert_eq!(told(text).len(), 1, "{text}");
        assert!(told(text)[0].contains(reason), "{text}: {:?}", told(text));
        let among_others = read(&format!("a:1;{text};b:2"));
        assert_eq!(among_others.to_string(), "a:1;b:2", "{text}");
        assert_eq!(among_others.left_out[0].position, 2, "{text}");
    }
}

#[test]
fn a_file_may_have_one_server_a_line_and_remarks() {
    let text = "\u{feff}# production\r\na:9876; b\r\n\r\n  # c:1\nd:9876 # new; e:1\n;\n";
    let reading = read_file(text);
    assert_eq!((reading.to_string().as_str(), reading.left_out.len()), ("a:9876;b:9876;d:9876", 0));
    assert_eq!(read_file("# nobody\n"), Reading::default());
    assert_eq!(read_file("a # remark\n9876\n").left_out.len(), 1);
}
