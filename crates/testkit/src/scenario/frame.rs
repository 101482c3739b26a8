//! Frames as RocketMQ peers exchange them: this module's own encoder and decoder.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// The header of a frame that a scenario sends.
#[derive(Debug, Clone)]
pub(super) struct Header {
    pub(super) code: i64,
    pub(super) language: String,
    pub(super) version: i64,
    pub(super) opaque: i64,
    pub(super) flag: i64,
    pub(super) remark: Option<String>,
    /// `None`: the frame has no ext map at all.
    pub(super) ext: Option<BTreeMap<String, String>>,
}

/// A frame that a server sent.
#[derive(Debug, Clone)]
pub(super) struct Received {
    /// `JSON` or `ROCKETMQ`.
    pub(super) form: &'static str,
    pub(super) code: i64,
    pub(super) language: String,
    pub(super) version: i64,
    pub(super) opaque: i64,
    pub(super) flag: i64,
    pub(super) remark: Option<String>,
    pub(super) ext: Option<BTreeMap<String, String>>,
    /// Members of a JSON header that the protocol does not know.
    pub(super) unknown: Vec<String>,
    pub(super) body: Vec<u8>,
}

const LANGUAGES: [&str; 14] = [
    "JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS",
    "RUST", "NODE_JS",
];

/// Puts a header text and a body behind the two length words.
pub(super) fn envelope(form: u8, header: &[u8], body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(8 + header.len() + body.len());
    frame.extend(word(4 + header.len() + body.len()));
    frame.extend(word(usize::from(form) << 24 | header.len()));
    frame.extend(header);
    frame.extend(body);
    frame
}

/// Encodes with a JSON header, members in the order that Java peers use.
pub(super) fn encode_json(header: &Header, body: &[u8]) -> Vec<u8> {
    let mut members = vec![format!("\"code\":{}", header.code)];
    if let Some(ext) = &header.ext {
        let inner: Vec<_> = ext
            .iter()
            .map(|(key, value)| format!("{}:{}", Value::from(key.as_str()), Value::from(value.as_str())))
            .collect();
        members.push(format!("\"extFields\":{{{}}}", inner.join(",")));
    }
    members.push(format!("\"flag\":{}", header.flag));
    members.push(format!("\"language\":{}", Value::from(header.language.as_str())));
    members.push(format!("\"opaque\":{}", header.opaque));
    if let Some(remark) = &header.remark {
        members.push(format!("\"remark\":{}", Value::from(remark.as_str())));
    }
    members.push("\"serializeTypeCurrentRPC\":\"JSON\"".to_owned());
    members.push(format!("\"version\":{}", header.version));
    envelope(0, format!("{{{}}}", members.join(",")).as_bytes(), body)
}

/// Encodes with a binary header. Code and version are cut to 16 bits, opaque and flag to 32.
pub(super) fn encode_binary(header: &Header, body: &[u8]) -> Vec<u8> {
    let language = LANGUAGES.iter().position(|name| *name == header.language).unwrap_or(7);
    let mut out = Vec::new();
    out.extend(&header.code.to_be_bytes()[6..]);
    out.extend(&language.to_be_bytes()[7..]);
    out.extend(&header.version.to_be_bytes()[6..]);
    out.extend(&header.opaque.to_be_bytes()[4..]);
    out.extend(&header.flag.to_be_bytes()[4..]);
    let remark = header.remark.as_deref().unwrap_or_default();
    out.extend(word(remark.len()));
    out.extend(remark.as_bytes());
    let mut ext = Vec::new();
    for (key, value) in header.ext.iter().flatten() {
        ext.extend(&key.len().to_be_bytes()[6..]);
        ext.extend(key.as_bytes());
        ext.extend(word(value.len()));
        ext.extend(value.as_bytes());
    }
    out.extend(word(ext.len()));
    out.extend(ext);
    envelope(1, &out, body)
}

fn word(number: usize) -> [u8; 4] {
    u32::try_from(number).unwrap_or(u32::MAX).to_be_bytes()
}

/// The length of the first whole frame in `bytes`, its length word included; `None`: more is to come.
pub(super) fn whole(bytes: &[u8]) -> Option<usize> {
    let length = usize::try_from(u32::from_be_bytes(bytes.get(..4)?.try_into().ok()?)).ok()?;
    (bytes.len() >= 4 + length).then_some(4 + length)
}

/// Decodes one whole frame.
pub(super) fn decode(frame: &[u8]) -> Result<Received, String> {
    let meta = frame.get(4..8).ok_or("shorter than its two length words")?;
    let header_length = usize::from(meta[1]) << 16 | usize::from(meta[2]) << 8 | usize::from(meta[3]);
    let rest = &frame[8..];
    if header_length > rest.len() {
        return Err("the header is longer than the frame".to_owned());
    }
    let (header, body) = rest.split_at(header_length);
    match meta[0] {
        0 => decode_json(header, body),
        1 => decode_binary(header, body),
        other => Err(format!("unknown header form {other}")),
    }
}

fn decode_json(header: &[u8], body: &[u8]) -> Result<Received, String> {
    let mut members: Map<String, Value> =
        serde_json::from_slice(header).map_err(|error| format!("header is no JSON object: {error}"))?;
    let mut number = |name: &str| match members.remove(name) {
        Some(Value::Number(number)) => number.as_i64().ok_or_else(|| format!("`{name}` is no integer")),
        other => Err(format!("`{name}` is no number: {other:?}")),
    };
    let (code, version, opaque, flag) =
        (number("code")?, number("version")?, number("opaque")?, number("flag")?);
    let mut text = |name: &str| match members.remove(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(format!("`{name}` is no text: {other}")),
    };
    let (language, remark, form) = (text("language")?, text("remark")?, text("serializeTypeCurrentRPC")?);
    if form.as_deref() != Some("JSON") {
        return Err(format!("`serializeTypeCurrentRPC` is {form:?} in a JSON header"));
    }
    let ext = match members.remove("extFields") {
        None => None,
        Some(Value::Object(fields)) => Some(
            fields
                .into_iter()
                .map(|(key, value)| match value {
                    Value::String(text) => Ok((key, text)),
                    other => Err(format!("ext value of `{key}` is no text: {other}")),
                })
                .collect::<Result<_, _>>()?,
        ),
        Some(other) => return Err(format!("`extFields` is no object: {other}")),
    };
    Ok(Received {
        form: "JSON",
        code,
        language: language.unwrap_or_default(),
        version,
        opaque,
        flag,
        remark,
        ext,
        unknown: members.into_iter().map(|(key, _)| key).collect(),
        body: body.to_vec(),
    })
}

fn decode_binary(header: &[u8], body: &[u8]) -> Result<Received, String> {
    let mut rest = header;
    let code = signed(take(&mut rest, 2)?);
    let language = signed(take(&mut rest, 1)?);
    let version = signed(take(&mut rest, 2)?);
    let opaque = signed(take(&mut rest, 4)?);
    let flag = signed(take(&mut rest, 4)?);
    let remark_length = length(take(&mut rest, 4)?)?;
    let remark = string(take(&mut rest, remark_length)?)?;
    let ext_length = length(take(&mut rest, 4)?)?;
    if ext_length != rest.len() {
        return Err(format!("the ext map says {ext_length} bytes and has {}", rest.len()));
    }
    let mut ext = BTreeMap::new();
    while !rest.is_empty() {
        let key_length = length(take(&mut rest, 2)?)?;
        let key = string(take(&mut rest, key_length)?)?;
        let value_length = length(take(&mut rest, 4)?)?;
        ext.insert(key, string(take(&mut rest, value_length)?)?);
    }
    Ok(Received {
        form: "ROCKETMQ",
        code,
        language: usize::try_from(language)
            .ok()
            .and_then(|at| LANGUAGES.get(at))
            .map_or_else(|| language.to_string(), |name| (*name).to_owned()),
        version,
        opaque,
        flag,
        remark: (!remark.is_empty()).then_some(remark),
        ext: (!ext.is_empty()).then_some(ext),
        unknown: Vec::new(),
        body: body.to_vec(),
    })
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Result<&'a [u8], String> {
    let (taken, left) = rest.split_at_checked(count).ok_or("the binary header is cut short")?;
    *rest = left;
    Ok(taken)
}

fn signed(bytes: &[u8]) -> i64 {
    let sign = if bytes.first().is_some_and(|byte| *byte >= 0x80) { -1 } else { 0 };
    bytes.iter().fold(sign, |number, byte| number << 8 | i64::from(*byte))
}

fn length(bytes: &[u8]) -> Result<usize, String> {
    usize::try_from(signed(bytes)).map_err(|_| "a negative length in a binary header".to_owned())
}

fn string(bytes: &[u8]) -> Result<String, String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| "text that is not UTF-8 in a binary header".to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::text::{hex, to_hex};
    use super::*;

    fn route_query() -> Header {
        Header {
            code: 105,
            language: "JAVA".to_owned(),
            version: 479,
            opaque: 7,
            flag: 0,
            remark: None,
            ext: Some(BTreeMap::from([("topic".to_owned(), "TopicA".to_owned())])),
        }
    }

    #[test]
    fn the_json_form_is_the_documented_one() {
        let frame = encode_json(&route_query(), b"");
        assert_eq!(to_hex(&frame[..8]), "0000008400000080");
        assert!(frame.ends_with(br#""serializeTypeCurrentRPC":"JSON","version":479}"#));
    }

    #[test]
    fn the_binary_form_is_the_documented_one() {
        let expected = "0000002a01000026006900\
                        01df00000007000000000000000000000011\
                        0005746f70696300000006546f70696341";
        assert_eq!(to_hex(&encode_binary(&route_query(), b"")), expected);
        let back = decode(&hex(expected).unwrap()).unwrap();
        assert_eq!((back.code, back.version, back.opaque), (105, 479, 7));
        assert_eq!(back.ext.unwrap()["topic"], "TopicA");
    }

    #[test]
    fn negative_numbers_survive_the_binary_form() {
        let header = Header { opaque: -1, ..route_query() };
        assert_eq!(decode(&encode_binary(&header, b"")).unwrap().opaque, -1);
    }

    #[test]
    fn a_cut_frame_is_told() {
        let frame = encode_binary(&route_query(), b"");
        assert_eq!(whole(&frame), Some(frame.len()));
        assert_eq!(whole(&frame[..frame.len() - 1]), None);
        assert!(decode(&hex("0000000400000001").unwrap()).is_err());
    }
}
