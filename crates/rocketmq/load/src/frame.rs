//! Frames of the remoting protocol: requests prepared once, answers looked at in place.
//!
//! A frame is its length (32 bits, big-endian, not counting itself), the length of the header (24 bits
//! below a type byte, 0 = JSON), the header, the body.

/// Numbers of requests are written with nine digits, so that a prepared frame can be patched in place.
pub const FIRST_OPAQUE: u32 = 100_000_000;
/// One more than the last number with nine digits.
pub const END_OPAQUE: u32 = 1_000_000_000;
const OPAQUE_DIGITS: usize = 9;

/// The request codes that are sent here.
pub mod code {
    /// A broker announces itself and its topics.
    pub const REGISTER_BROKER: u16 = 103;
    /// A broker leaves.
    pub const UNREGISTER_BROKER: u16 = 104;
    /// The route of one topic.
    pub const ROUTE: u16 = 105;
    /// All clusters and brokers.
    pub const CLUSTER_INFO: u16 = 106;
    /// A broker's heartbeat.
    pub const HEARTBEAT: u16 = 904;
}

/// The version of a 5.5.0 client: it gets standard JSON.
pub const VERSION_5_5_0: u16 = 513;
/// The version that the Go client sends: it gets JSON with bare integer keys.
pub const VERSION_GO: u16 = 317;

/// The header of a request; `body_length` bytes must follow it.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// One of [`code`].
    pub code: u16,
    /// Names and values without characters that JSON escapes.
    pub fields: &'a [(&'a str, &'a str)],
    /// Whether no answer is wanted.
    pub oneway: bool,
    /// The ordinal of the version that the sender says it has.
    pub version: u16,
    /// Bytes of the body.
    pub body_length: usize,
}

impl Head<'_> {
    /// The frame up to the body, and where in it the digits of the request's number stand.
    pub fn encode(&self, opaque: u32) -> (Vec<u8>, usize) {
        let mut header = format!("{{\"code\":{}", self.code);
        if !self.fields.is_empty() {
            header.push_str(",\"extFields\":{");
            for (position, (name, value)) in self.fields.iter().enumerate() {
                let comma = if position == 0 { "" } else { "," };
                header.push_str(&format!("{comma}\"{name}\":\"{value}\""));
            }
            header.push('}');
        }
        let flag = if self.oneway { 2 } else { 0 };
        header.push_str(&format!(",\"flag\":{flag},\"language\":\"JAVA\",\"opaque\":"));
        let opaque_at = 8 + header.len();
        header.push_str(&format!(
            "{opaque:09},\"serializeTypeCurrentRPC\":\"JSON\",\"version\":{}}}",
            self.version
        ));
        let mut bytes = Vec::with_capacity(8 + header.len());
        bytes.extend_from_slice(&((4 + header.len() + self.body_length) as u32).to_be_bytes());
        bytes.extend_from_slice(&(header.len() as u32).to_be_bytes());
        bytes.extend_from_slice(header.as_bytes());
        (bytes, opaque_at)
    }
}

/// A whole request without a body.
#[must_use]
pub fn request(code: u16, fields: &[(&str, &str)], opaque: u32) -> Vec<u8> {
    Head { code, fields, oneway: false, version: VERSION_5_5_0, body_length: 0 }.encode(opaque).0
}

/// Route queries for a list of topics, one behind the other, so that a run of them is one slice.
#[derive(Debug)]
pub struct RouteQueries {
    bytes: Vec<u8>,
    /// Where each frame starts, with one more entry for the end.
    starts: Vec<usize>,
    /// Where the digits stand, from the start of the frame.
    opaque_at: Vec<usize>,
    topics: usize,
}

impl RouteQueries {
    /// Runs of up to `longest_run` queries can be asked for, from every topic on. The names of the topics have no
    /// characters that JSON escapes.
    pub fn new(topics: &[String], version: u16, longest_run: usize) -> Self {
        let mut queries =
            Self { bytes: Vec::new(), starts: vec![0], opaque_at: Vec::new(), topics: topics.len() };
        for position in 0..topics.len() + longest_run {
            let topic = topics[position % topics.len()].as_str();
            let fields = &[("topic", topic)];
            let head = Head { code: code::ROUTE, fields, oneway: false, version, body_length: 0 };
            let (frame, opaque_at) = head.encode(FIRST_OPAQUE);
            queries.bytes.extend_from_slice(&frame);
            queries.starts.push(queries.bytes.len());
            queries.opaque_at.push(opaque_at);
        }
        queries
    }

    /// The number of topics.
    pub fn topics(&self) -> usize {
        self.topics
    }

    /// The frames of `count` queries from the `first` topic on.
    ///
    /// # Panics
    ///
    /// When there is no such topic or run.
    pub fn run(&self, first: usize, count: usize) -> &[u8] {
        &self.bytes[self.starts[first]..self.starts[first + count]]
    }

    /// Appends the query for one topic with its own number.
    ///
    /// # Panics
    ///
    /// When there is no such topic.
    pub fn append(&self, topic: usize, opaque: u32, to: &mut Vec<u8>) {
        let at = to.len() + self.opaque_at[topic];
        to.extend_from_slice(self.run(topic, 1));
        patch_digits(&mut to[at..at + OPAQUE_DIGITS], opaque);
    }
}

/// Overwrites all of `digits` with the decimal digits of `value`.
pub fn patch_digits(digits: &mut [u8], mut value: u32) {
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
    }
}

/// A whole answer.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// The header, undecoded.
    pub header: &'a [u8],
    /// The body; empty for none.
    pub body: &'a [u8],
}

impl<'a> Answer<'a> {
    /// The first answer in `bytes` and its length with the prefix, if it is whole.
    pub fn split(bytes: &'a [u8]) -> Option<(Self, usize)> {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let frame = rest.get(..u32::from_be_bytes(*length) as usize)?;
        let (meta, content) = frame.split_first_chunk::<4>()?;
        let header_length = (u32::from_be_bytes(*meta) & 0x00FF_FFFF) as usize;
        let (header, body) = content.split_at_checked(header_length)?;
        Some((Self { header, body }, 4 + frame.len()))
    }

    /// The response code, 0 for success.
    pub fn code(&self) -> Option<u32> {
        number_after(self.header, b"\"code\":")
    }

    /// The number of the request that this answers.
    pub fn opaque(&self) -> Option<u32> {
        number_after(self.header, b"\"opaque\":")
    }

    /// The header as text, for messages.
    pub fn header_text(&self) -> String {
        String::from_utf8_lossy(self.header).into_owned()
    }
}

fn number_after(text: &[u8], name: &[u8]) -> Option<u32> {
    let at = text.windows(name.len()).position(|window| window == name)? + name.len();
    let digits = text[at..].iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(None, |value: Option<u32>, digit| {
        Some(value.unwrap_or(0).wrapping_mul(10).wrapping_add(u32::from(digit - b'0')))
    })
}

/// How an answer of success starts, from the first byte of its header.
const SUCCESS: &[u8] = b"{\"code\":0,";

/// Counts frames in a stream without keeping any byte of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct FrameCounter {
    /// Bytes of the current frame that are still to come.
    rest: usize,
    /// The bytes of a length that was cut.
    length: [u8; 4],
    length_bytes: usize,
}

/// What a piece of a stream held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Frames that ended in it.
    pub frames: usize,
    /// Frames that started in it and whose code was looked at.
    pub checked: usize,
    /// Of those, how many were no success.
    pub refused: usize,
    /// Frames that started in it and were shorter than the shortest answer.
    pub short: usize,
}

impl FrameCounter {
    /// Reads on in the stream. The code is looked at where the start of the header is in the same piece.
    pub fn feed(&mut self, mut piece: &[u8], shortest: usize) -> Counted {
        let mut counted = Counted::default();
        loop {
            if self.rest > 0 {
                let taken = self.rest.min(piece.len());
                piece = &piece[taken..];
                self.rest -= taken;
                if self.rest > 0 {
                    return counted;
                }
                counted.frames += 1;
            }
            while self.length_bytes < 4 {
                let Some((byte, rest)) = piece.split_first() else { return counted };
                self.length[self.length_bytes] = *byte;
                self.length_bytes += 1;
                piece = rest;
            }
            self.length_bytes = 0;
            self.rest = u32::from_be_bytes(self.length) as usize;
            counted.short += usize::from(self.rest + 4 < shortest);
            if let Some(start) = piece.get(4..4 + SUCCESS.len()) {
                counted.checked += 1;
                counted.refused += usize::from(start != SUCCESS);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(code: u32, opaque: u32, body: &str) -> Vec<u8> {
        let header = format!("{{\"code\":{code},\"flag\":1,\"opaque\":{opaque}}}");
        let mut frame = ((4 + header.len() + body.len()) as u32).to_be_bytes().to_vec();
        frame.extend_from_slice(&(header.len() as u32).to_be_bytes());
        frame.extend_from_slice(header.as_bytes());
        frame.extend_from_slice(body.as_bytes());
        frame
    }

    #[test]
    fn the_counter_finds_every_frame_however_the_stream_is_cut() {
        let mut stream = answer(0, 1, "first");
        stream.extend(answer(17, 2, ""));
        stream.extend(answer(0, 3, "the third"));
        for size in 1..stream.len() {
            let mut counter = FrameCounter::default();
            let frames: usize = stream.chunks(size).map(|piece| counter.feed(piece, 0).frames).sum();
            assert_eq!(frames, 3, "pieces of {size} bytes");
        }
        let whole = FrameCounter::default().feed(&stream, 39);
        assert_eq!(whole, Counted { frames: 3, checked: 3, refused: 1, short: 0 });
        assert_eq!(FrameCounter::default().feed(&stream, 40).short, 1);
    }

    #[test]
    fn a_query_carries_the_number_it_was_given() {
        let queries = RouteQueries::new(&["orders".to_owned(), "stock".to_owned()], VERSION_5_5_0, 4);
        let mut bytes = b"before".to_vec();
        queries.append(1, 123_456_789, &mut bytes);
        let (query, length) = Answer::split(&bytes[6..]).unwrap();
        assert_eq!(length, bytes.len() - 6);
        assert_eq!(query.opaque(), Some(123_456_789));
        assert_eq!(query.code(), Some(105));
        assert!(query.header_text().contains("\"topic\":\"stock\""));
    }

    #[test]
    fn a_run_of_queries_goes_round_the_list_of_topics() {
        let queries = RouteQueries::new(&["orders".to_owned(), "stock".to_owned()], VERSION_5_5_0, 3);
        let counted = FrameCounter::default().feed(queries.run(1, 3), 0);
        assert_eq!(counted.frames, 3);
    }

    #[test]
    fn a_cut_answer_is_no_answer() {
        let frame = answer(0, 7, "body");
        assert!(Answer::split(&frame[..frame.len() - 1]).is_none());
        assert_eq!(Answer::split(&frame).unwrap().0.body, b"body");
    }
}
