//! Requests written in words: `103 cluster=C name=ba id=0 topics=T:8/8/6 dv=0/1/1 crc` to a frame.

use std::collections::BTreeMap;
use std::io::Write;

use serde_json::{Map, Value, json};

use super::frame::{Header, encode_binary, encode_json, envelope};
use super::text::hex;

/// A request line, cut into words; the values may still hold `{listener}` marks.
#[derive(Debug, Clone)]
pub(super) struct Request {
    /// `None`: the header stands as raw text in `header`.
    pub(super) code: Option<i64>,
    /// The raw header text of a `header '...'` line.
    pub(super) header: Option<String>,
    words: Vec<(String, Option<String>)>,
}

/// A request ready to be sent.
#[derive(Debug)]
pub(super) struct Encoded {
    pub(super) bytes: Vec<u8>,
    /// The number that the answer carries; `None`: the request has none.
    pub(super) opaque: Option<i64>,
}

/// The version that requests carry unless they say another: 5.5.0.
const VERSION: i64 = 513;
/// The flag of a request that wants no answer.
const ONEWAY: i64 = 2;
/// Below this version (3.0.11) the body of a 103 is the bare topic table.
const REGISTER_BODY_SINCE: i64 = 37;
/// From this version (5.0.0) on a compressed body carries static mappings.
const MAPPINGS_SINCE: i64 = 413;

/// Words that stand alone.
const SWITCHES: [&str; 5] = ["oneway", "binary", "noext", "compressed", "crc"];
/// Words that are not ext fields.
const SPECIAL: [&str; 16] = [
    "version",
    "opaque",
    "flag",
    "language",
    "remark",
    "code",
    "topics",
    "dv",
    "mappings",
    "filters",
    "queues",
    "body",
    "hex",
    "crc",
    "compressed",
    "form",
];

impl Request {
    /// Reads the words after the connection's name: a code or `header TEXT`, then `key=value`,
    /// switches, and `-key` to take an earlier word back.
    pub(super) fn parse(words: &[String]) -> Result<Self, String> {
        let (first, rest) = words.split_first().ok_or("a request needs a code")?;
        let (code, header, rest) = if first == "header" {
            let (text, rest) = rest.split_first().ok_or("`header` needs the header's text")?;
            (None, Some(text.clone()), rest)
        } else {
            let code =
                first.parse().map_err(|_| format!("`{first}` is neither a request code nor a verb"))?;
            (Some(code), None, rest)
        };
        let mut request = Self { code, header, words: Vec::new() };
        for word in rest {
            if let Some(key) = word.strip_prefix('-') {
                request.words.retain(|(name, _)| name != key);
                continue;
            }
            let (key, value) = match word.split_once('=') {
                Some((key, value)) => (key, Some(value.to_owned())),
                None if SWITCHES.contains(&word.as_str()) => (word.as_str(), None),
                None => return Err(format!("`{word}` is neither key=value nor one of {SWITCHES:?}")),
            };
            request.words.retain(|(name, _)| name != key);
            request.words.push((key.to_owned(), value));
        }
        request.encode(0, &str::to_owned)?; // what cannot be encoded is a mistake of the line
        Ok(request)
    }

    /// Whether the sender asks for no answer.
    pub(super) fn is_oneway(&self) -> bool {
        self.switch("oneway")
    }

    /// Encodes with a number for the answer, after `fill` replaced the marks in every value.
    pub(super) fn encode(&self, opaque: i64, fill: &dyn Fn(&str) -> String) -> Result<Encoded, String> {
        let body = self.body(fill)?;
        if let Some(text) = &self.header {
            let form = self.number("form")?.map_or(Ok(0), u8::try_from).map_err(|_| "`form` is one byte")?;
            let text = fill(text);
            // `opaque=` says it where the header's text does not, or not in strict JSON.
            let told =
                serde_json::from_str::<Value>(&text).ok().and_then(|header| header.get("opaque")?.as_i64());
            let opaque = self.number("opaque")?.or(told);
            return Ok(Encoded { bytes: envelope(form, text.as_bytes(), &body), opaque });
        }
        let opaque = self.number("opaque")?.unwrap_or(opaque);
        let if_unset = ONEWAY * i64::from(self.is_oneway());
        let header = Header {
            code: self.code.unwrap_or_default(),
            language: self.value("language").unwrap_or("JAVA").to_owned(),
            version: self.version()?,
            opaque,
            flag: self.number("flag")?.unwrap_or(if_unset),
            remark: self.value("remark").map(str::to_owned),
            ext: self.ext(&body, fill)?,
        };
        let encode = if self.switch("binary") { encode_binary } else { encode_json };
        Ok(Encoded { bytes: encode(&header, &body), opaque: Some(opaque) })
    }

    fn switch(&self, name: &str) -> bool {
        self.words.iter().any(|(key, value)| key == name && value.is_none())
    }

    fn value(&self, name: &str) -> Option<&str> {
        self.words.iter().find(|(key, _)| key == name).and_then(|(_, value)| value.as_deref())
    }

    fn number(&self, name: &str) -> Result<Option<i64>, String> {
        self.value(name)
            .map(|text| text.parse().map_err(|_| format!("`{name}={text}` is no number")))
            .transpose()
    }

    fn version(&self) -> Result<i64, String> {
        Ok(self.number("version")?.unwrap_or(VERSION))
    }

    fn ext(
        &self,
        body: &[u8],
        fill: &dyn Fn(&str) -> String,
    ) -> Result<Option<BTreeMap<String, String>>, String> {
        if self.switch("noext") {
            return Ok(None);
        }
        let mut ext = BTreeMap::new();
        for (key, value) in &self.words {
            let Some(value) = value else { continue };
            if !SPECIAL.contains(&key.as_str()) && !key.starts_with("set.") {
                ext.insert(self.ext_name(key)?.to_owned(), fill(value));
            }
        }
        match self.value("compressed") {
            Some("mislabelled") => ext.insert("compressed".to_owned(), "false".to_owned()),
            Some(other) => ext.insert("compressed".to_owned(), other.to_owned()),
            None if self.switch("compressed") => ext.insert("compressed".to_owned(), "true".to_owned()),
            None => None,
        };
        if self.switch("crc") {
            ext.insert("bodyCrc32".to_owned(), (crc32fast::hash(body) & 0x7fff_ffff).to_string());
        } else if let Some(value) = self.value("crc") {
            ext.insert("bodyCrc32".to_owned(), value.to_owned());
        }
        Ok((!ext.is_empty()).then_some(ext))
    }

    fn ext_name<'a>(&self, key: &'a str) -> Result<&'a str, String> {
        Ok(match key {
            "cluster" if self.code == Some(224) => "cluster",
            "cluster" => "clusterName",
            "name" => "brokerName",
            "addr" => "brokerAddr",
            "id" => "brokerId",
            "ha" => "haServerAddr",
            "timeout" => "heartbeatTimeoutMillis",
            "acting" => "enableActingMaster",
            "zone" => "__ZONE_NAME",
            "zonemode" => "__ZONE_MODE",
            "standard" => "acceptStandardJsonOnly",
            "ns" => "namespace",
            "topic" | "key" | "value" => key,
            other => other
                .strip_prefix("ext.")
                .ok_or_else(|| format!("no word `{other}`; an ext field is `ext.{other}=`"))?,
        })
    }

    fn body(&self, fill: &dyn Fn(&str) -> String) -> Result<Vec<u8>, String> {
        if let Some(text) = self.value("body") {
            return Ok(fill(text).into_bytes());
        }
        if let Some(digits) = self.value("hex") {
            return hex(digits);
        }
        let properties: Vec<_> = self
            .words
            .iter()
            .filter_map(|(key, value)| {
                Some(format!("{}={}\n", key.strip_prefix("set.")?, fill(value.as_deref()?)))
            })
            .collect();
        if !properties.is_empty() {
            return Ok(properties.concat().into_bytes());
        }
        let described = ["topics", "dv", "mappings", "filters"].iter().any(|name| self.value(name).is_some());
        match self.code {
            Some(322) if described => Ok(self.data_version()?.to_string().into_bytes()),
            Some(217) if self.value("queues").is_some() => self.route_body(),
            _ if !described => Ok(Vec::new()),
            _ if self.switch("compressed") || self.value("compressed") == Some("mislabelled") => {
                self.compressed_body()
            }
            _ => self.registration_body(),
        }
    }

    fn data_version(&self) -> Result<Value, String> {
        let numbers: Vec<i64> = self
            .value("dv")
            .unwrap_or("0/0/0")
            .split('/')
            .map(|number| number.parse().map_err(|_| "`dv` is state/timestamp/counter"))
            .collect::<Result<_, _>>()?;
        let [state, timestamp, counter] = numbers[..] else {
            return Err("`dv` is state/timestamp/counter".to_owned());
        };
        Ok(json!({"counter": counter, "stateVersion": state, "timestamp": timestamp}))
    }

    fn registration_body(&self) -> Result<Vec<u8>, String> {
        let mut table = Map::new();
        for topic in self.topics()? {
            table.insert(
                topic.name.clone(),
                json!({
                    "attributes": {}, "order": false, "perm": topic.perm, "readQueueNums": topic.read,
                    "topicFilterType": "SINGLE_TAG", "topicName": topic.name, "topicSysFlag": topic.flags,
                    "writeQueueNums": topic.write,
                }),
            );
        }
        let mappings: Vec<_> = self
            .mappings()?
            .into_iter()
            .map(|(topic, text)| format!("{}:{text}", Value::from(topic)))
            .collect();
        let wrapper = format!(
            "{{\"dataVersion\":{},\"topicConfigTable\":{},\"topicQueueMappingInfoMap\":{{{}}}}}",
            self.data_version()?,
            Value::Object(table),
            mappings.join(",")
        );
        if self.version()? < REGISTER_BODY_SINCE {
            return Ok(wrapper.into_bytes());
        }
        let filters = Value::from(self.filters());
        Ok(format!("{{\"filterServerList\":{filters},\"topicConfigSerializeWrapper\":{wrapper}}}")
            .into_bytes())
    }

    fn compressed_body(&self) -> Result<Vec<u8>, String> {
        let mut plain = Vec::new();
        let mut part = |text: &str| {
            plain.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
            plain.extend(text.as_bytes());
        };
        part(&self.data_version()?.to_string());
        let topics = self.topics()?;
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX).to_be_bytes();
        plain.extend(count(topics.len()));
        for topic in topics {
            // 4.x brokers leave the attributes out.
            let attributes = if self.version()? < MAPPINGS_SINCE { "" } else { " {}" };
            let text = format!(
                "{} {} {} {} SINGLE_TAG{attributes}",
                topic.name, topic.read, topic.write, topic.perm
            );
            plain.extend(count(text.len()));
            plain.extend(text.as_bytes());
        }
        let filters = Value::from(self.filters()).to_string();
        plain.extend(count(filters.len()));
        plain.extend(filters.as_bytes());
        if self.version()? >= MAPPINGS_SINCE {
            let mappings = self.mappings()?;
            plain.extend(count(mappings.len()));
            for (_, text) in mappings {
                plain.extend(count(text.len()));
                plain.extend(text.as_bytes());
            }
        }
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        zlib.write_all(&plain).and_then(|()| zlib.finish()).map_err(|error| error.to_string())
    }

    fn route_body(&self) -> Result<Vec<u8>, String> {
        let mut queues = Vec::new();
        for queue in list(self.value("queues")) {
            let queue = Queues::parse(queue)?;
            queues.push(json!({
                "brokerName": queue.name, "perm": queue.perm, "readQueueNums": queue.read,
                "topicSysFlag": queue.flags, "writeQueueNums": queue.write,
            }));
        }
        Ok(json!({"brokerDatas": [], "filterServerTable": {}, "queueDatas": queues}).to_string().into_bytes())
    }

    fn topics(&self) -> Result<Vec<Queues>, String> {
        list(self.value("topics")).into_iter().map(Queues::parse).collect()
    }

    fn filters(&self) -> Vec<&str> {
        list(self.value("filters"))
    }

    /// `topic:broker:queues:epoch`, with bare integer keys as real brokers write them.
    fn mappings(&self) -> Result<Vec<(&str, String)>, String> {
        list(self.value("mappings"))
            .into_iter()
            .map(|mapping| {
                let parts: Vec<&str> = mapping.split(':').collect();
                let [topic, broker, queues, epoch] = parts[..] else {
                    return Err(format!("`{mapping}`: a mapping is topic:broker:queues:epoch"));
                };
                let queues: u32 = queues.parse().map_err(|_| format!("`{queues}` is no number"))?;
                let ids: Vec<_> = (0..queues).map(|id| format!("{id}:{id}")).collect();
                let text = format!(
                    "{{\"bname\":{},\"currIdMap\":{{{}}},\"dirty\":false,\"epoch\":{epoch},\"scope\":\"__global__\",\
                     \"topic\":{},\"totalQueues\":{queues}}}",
                    Value::from(broker),
                    ids.join(","),
                    Value::from(topic),
                );
                Ok((topic, text))
            })
            .collect()
    }
}

/// `name:read/write/perm[/sysflag]`.
struct Queues {
    name: String,
    read: i64,
    write: i64,
    perm: i64,
    flags: i64,
}

impl Queues {
    fn parse(text: &str) -> Result<Self, String> {
        let fault = || format!("`{text}` is not name:read/write/perm[/sysflag]");
        let (name, numbers) = text.rsplit_once(':').ok_or_else(fault)?;
        let numbers: Vec<i64> =
            numbers.split('/').map(|number| number.parse().map_err(|_| fault())).collect::<Result<_, _>>()?;
        let (read, write, perm, flags) = match numbers[..] {
            [read, write, perm] => (read, write, perm, 0),
            [read, write, perm, flags] => (read, write, perm, flags),
            _ => return Err(fault()),
        };
        Ok(Self { name: name.to_owned(), read, write, perm, flags })
    }
}

fn list(text: Option<&str>) -> Vec<&str> {
    text.into_iter().flat_map(|text| text.split(',')).filter(|item| !item.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::frame::decode;
    use super::super::text::words;
    use super::*;

    fn encoded(line: &str) -> Encoded {
        let request = Request::parse(&words(line).unwrap()).unwrap();
        request.encode(1, &|text| text.replace("{b1}", "127.0.0.1:5")).unwrap()
    }

    #[test]
    fn short_names_become_ext_fields() {
        let frame = decode(&encoded("103 cluster=C name=ba addr={b1} id=0 -id ext.x=1").bytes).unwrap();
        let ext: Vec<_> = frame.ext.unwrap().into_iter().collect();
        let expected =
            [("brokerAddr", "127.0.0.1:5"), ("brokerName", "ba"), ("clusterName", "C"), ("x", "1")];
        assert_eq!(ext, expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
    }

    #[test]
    fn compressed_bodies_inflate_to_the_documented_layout() {
        let line = "103 version=413 compressed crc topics=TopicTest:4/4/6,TBW102:8/8/7 dv=0/1700000000000/2";
        let frame = decode(&encoded(line).bytes).unwrap();
        let mut plain = Vec::new();
        std::io::copy(&mut flate2::read::ZlibDecoder::new(&frame.body[..]), &mut plain).unwrap();
        let mut expected =
            b"\0\0\0\x38{\"counter\":2,\"stateVersion\":0,\"timestamp\":1700000000000}".to_vec();
        expected.extend(b"\0\0\0\x02\0\0\0\x1dTopicTest 4 4 6 SINGLE_TAG {}");
        expected.extend(b"\0\0\0\x1aTBW102 8 8 7 SINGLE_TAG {}\0\0\0\x02[]\0\0\0\0");
        assert_eq!(plain, expected);
        let checksum = crc32fast::hash(&frame.body) & 0x7fff_ffff;
        assert_eq!(frame.ext.unwrap()["bodyCrc32"], checksum.to_string());
    }

    #[test]
    fn a_later_word_replaces_an_earlier_one() {
        let frame = decode(&encoded("105 topic=a version=400 topic=b").bytes).unwrap();
        assert_eq!((frame.version, frame.ext.unwrap()["topic"].as_str()), (400, "b"));
    }

    #[test]
    fn unknown_words_are_refused() {
        for line in ["105 topc=a", "105 once", "x topic=a", "103 topics=T:1/2", "103 dv=1/2", ""] {
            assert!(Request::parse(&words(line).unwrap()).is_err(), "{line}");
        }
    }

    #[test]
    fn a_raw_header_keeps_its_text_and_tells_its_number() {
        let sent = encoded(r#"header '{"code":105,"opaque":9}' body=x"#);
        assert_eq!(sent.opaque, Some(9));
        assert!(sent.bytes.ends_with(br#"{"code":105,"opaque":9}x"#));
    }
}
