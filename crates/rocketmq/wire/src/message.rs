//! Writing whole frames: requests and answers.
//!
//! Writers append to a buffer of the caller and allocate nothing of their own.

use crate::frame::HeaderEncoding;
use crate::header::{FLAG_ONEWAY, FLAG_RESPONSE, Header};
use crate::json::{write_integer, write_string};
use crate::language::Language;
use crate::version::V5_5_0;

/// The longest header that the 24 bits of a frame's header length can say.
const HEADER_LENGTH_MAX: usize = 0x00FF_FFFF;

/// An answer. Its flag is 1 and its language Java, as the originals answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Response<'a> {
    /// One of [`code::response`](crate::code::response).
    pub code: i32,
    /// The request's opaque.
    pub opaque: i32,
    /// The ordinal of our version.
    pub version: i32,
    /// Text for people; leave it out on success.
    pub remark: Option<&'a str>,
    /// Named fields; `Some(&[])` writes an empty table, which is not the same as none.
    pub ext: Option<&'a [(&'a str, &'a str)]>,
    /// The body; empty for none.
    pub body: &'a [u8],
}

impl Response<'_> {
    /// An answer with this code and nothing else, version 5.5.0.
    #[must_use]
    pub fn new(code: i32) -> Self {
        Self { code, opaque: 0, version: V5_5_0, remark: None, ext: None, body: &[] }
    }

    /// Appends the frame to `out`.
    #[inline]
    pub fn write(&self, encoding: HeaderEncoding, out: &mut Vec<u8>) {
        let parts = Parts {
            code: self.code,
            language: Language::Java,
            version: self.version,
            opaque: self.opaque,
            flag: FLAG_RESPONSE,
            remark: self.remark,
            ext: self.ext.map(|ext| ext.iter().copied()),
        };
        parts.write(encoding, self.body, out);
    }
}

/// A request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request<'a> {
    /// One of [`code::request`](crate::code::request).
    pub code: i32,
    /// What the sender is written in.
    pub language: Language,
    /// The ordinal of the sender's version.
    pub version: i32,
    /// Pairs the answer with this request.
    pub opaque: i32,
    /// Whether no answer is wanted.
    pub oneway: bool,
    /// Text for people.
    pub remark: Option<&'a str>,
    /// Named fields; without any, the header has no table.
    pub ext: &'a [(&'a str, &'a str)],
    /// The body; empty for none.
    pub body: &'a [u8],
}

impl Request<'_> {
    /// A request with this code and nothing else, from Java 5.5.0.
    #[must_use]
    pub fn new(code: i32) -> Self {
        Self {
            code,
            language: Language::Java,
            version: V5_5_0,
            opaque: 0,
            oneway: false,
            remark: None,
            ext: &[],
            body: &[],
        }
    }

    /// Appends the frame to `out`.
    pub fn write(&self, encoding: HeaderEncoding, out: &mut Vec<u8>) {
        let parts = Parts {
            code: self.code,
            language: self.language,
            version: self.version,
            opaque: self.opaque,
            flag: if self.oneway { FLAG_ONEWAY } else { 0 },
            remark: self.remark,
            ext: (!self.ext.is_empty()).then(|| self.ext.iter().copied()),
        };
        parts.write(encoding, self.body, out);
    }
}

impl Header<'_> {
    /// Appends a frame with this header and `body` to `out`: what was decoded, passed on.
    pub fn write(&self, encoding: HeaderEncoding, body: &[u8], out: &mut Vec<u8>) {
        // The iterator has to be cloned for a second attempt, so the fields are collected.
        let fields: Vec<(&str, &str)> = self.ext.iter().collect();
        let parts = Parts {
            code: self.code,
            language: self.language,
            version: self.version,
            opaque: self.opaque,
            flag: self.flag,
            remark: self.remark.as_deref(),
            ext: self.ext.is_present().then(|| fields.iter().copied()),
        };
        parts.write(encoding, body, out);
    }
}

/// The fields of a header that is to be written.
struct Parts<'a, E> {
    code: i32,
    language: Language,
    version: i32,
    opaque: i32,
    flag: i32,
    remark: Option<&'a str>,
    ext: Option<E>,
}

impl<'a, E: Iterator<Item = (&'a str, &'a str)>> Parts<'a, E> {
    #[inline]
    fn write(self, encoding: HeaderEncoding, body: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        let (code, language, version) = (self.code, self.language, self.version);
        let (opaque, flag) = (self.opaque, self.flag);
        // Room for an ordinary header and the body, so that the buffer grows once.
        out.reserve(body.len().saturating_add(160));
        out.extend_from_slice(&[0; 8]);
        let header_start = out.len();
        match encoding {
            HeaderEncoding::Json => self.write_json(out),
            HeaderEncoding::Binary => self.write_binary(out),
        }
        let header = out.len().saturating_sub(header_start);
        if header > HEADER_LENGTH_MAX {
            // 24 bits cannot say this length, and a wrong one would shift every later frame.
            out.truncate(start);
            let bare = Parts::<E> { code, language, version, opaque, flag, remark: None, ext: None };
            return bare.write(encoding, body, out);
        }
        let length = header.saturating_add(body.len()).saturating_add(4);
        let [_, high, middle, low] = u32::try_from(header).unwrap_or_default().to_be_bytes();
        let [l0, l1, l2, l3] = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
        if let Some(prefix) = out.get_mut(start..header_start) {
            prefix.copy_from_slice(&[l0, l1, l2, l3, encoding.type_byte(), high, middle, low]);
        }
        out.extend_from_slice(body);
    }

    /// Members in alphabetical order, none for what is absent, as the originals write.
    #[inline]
    fn write_json(self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"code\":");
        write_integer(out, i64::from(self.code));
        if let Some(ext) = self.ext {
            out.extend_from_slice(b",\"extFields\":{");
            for (index, (key, value)) in ext.enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_string(out, key);
                out.push(b':');
                write_string(out, value);
            }
            out.push(b'}');
        }
        out.extend_from_slice(b",\"flag\":");
        write_integer(out, i64::from(self.flag));
        out.extend_from_slice(b",\"language\":\"");
        out.extend_from_slice(self.language.name().as_bytes());
        out.extend_from_slice(b"\",\"opaque\":");
        write_integer(out, i64::from(self.opaque));
        if let Some(remark) = self.remark {
            out.extend_from_slice(b",\"remark\":");
            write_string(out, remark);
        }
        out.extend_from_slice(b",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":");
        write_integer(out, i64::from(self.version));
        out.push(b'}');
    }

    /// Code and version keep their low 16 bits, as in the originals. Fields without key or value are left out.
    fn write_binary(self, out: &mut Vec<u8>) {
        let [.., c0, c1] = self.code.to_be_bytes();
        let [.., v0, v1] = self.version.to_be_bytes();
        out.extend_from_slice(&[c0, c1, self.language.number(), v0, v1]);
        out.extend_from_slice(&self.opaque.to_be_bytes());
        out.extend_from_slice(&self.flag.to_be_bytes());
        let remark = self.remark.unwrap_or_default();
        out.extend_from_slice(&length_bytes(remark.len()));
        out.extend_from_slice(remark.as_bytes());
        let at = out.len();
        out.extend_from_slice(&[0; 4]);
        let ext_start = out.len();
        for (key, value) in self.ext.into_iter().flatten() {
            let Ok(key_length) = i16::try_from(key.len()) else { continue };
            if key_length == 0 || value.is_empty() {
                continue;
            }
            out.extend_from_slice(&key_length.to_be_bytes());
            out.extend_from_slice(key.as_bytes());
            out.extend_from_slice(&length_bytes(value.len()));
            out.extend_from_slice(value.as_bytes());
        }
        let length = length_bytes(out.len().saturating_sub(ext_start));
        if let Some(field) = out.get_mut(at..ext_start) {
            field.copy_from_slice(&length);
        }
    }
}

/// A length as the layout has it. One that does not fit is far over [`HEADER_LENGTH_MAX`], which is caught.
fn length_bytes(length: usize) -> [u8; 4] {
    i32::try_from(length).unwrap_or(i32::MAX).to_be_bytes()
}
