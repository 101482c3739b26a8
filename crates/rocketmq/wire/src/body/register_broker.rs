use std::borrow::Cow;

use super::{
    BodyError, BodyLimits, DataVersion, Dialect, TopicConfig, TopicQueueMapping, own, read_texts,
    write_comma, write_texts,
};
use crate::header::Header;
use crate::json::{Reader, members, write_string};
use crate::version::{HIGHER_VERSION, V3_0_11, V5_0_0};

/// What a broker announces: its topics and the version of that table.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RegisterBrokerBody<'a> {
    /// The version of the topic table.
    pub data_version: DataVersion,
    /// The topics in the order of the body. Of several with the same key the last one counts.
    pub topics: Vec<TopicConfig<'a>>,
    /// Mappings of static topics by topic, in the order of the body.
    pub mappings: Vec<(Cow<'a, str>, TopicQueueMapping)>,
    /// The broker's filter servers; `None` leaves what is known alone, an empty list removes it.
    pub filter_servers: Option<Vec<String>>,
}

/// How a registration body is laid out; the version of the header decides, and whether the body was deflated.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BodyForm {
    /// Version below 37: the bare topic table and its version as JSON.
    Legacy,
    /// The register-body object as JSON.
    Json,
    /// The layout that is deflated: counted texts.
    Binary {
        /// Whether mappings of static topics are at the end: version 413 and above.
        mappings: bool,
    },
}

impl BodyForm {
    /// The form of the body of this registration (spec 2.3). Deflated bodies are recognised by their bytes,
    /// because 5.x brokers deflate them without saying so (field report D11).
    #[must_use]
    pub fn of(header: &Header<'_>, body: &[u8]) -> Self {
        let version = header.version.min(HIGHER_VERSION);
        let claimed = header.ext.get_bool("compressed") == Some(true);
        if version < V3_0_11 {
            Self::Legacy
        } else if !body.is_empty() && super::is_deflated(body, claimed) {
            Self::Binary { mappings: version >= V5_0_0 }
        } else {
            Self::Json
        }
    }

    /// Mixed into digests of bodies: equal bytes mean the same only in the same form.
    #[must_use]
    pub const fn seed(self) -> u64 {
        match self {
            Self::Legacy => 0,
            Self::Json => 1,
            Self::Binary { mappings: false } => 2,
            Self::Binary { mappings: true } => 3,
        }
    }
}

members::declare!(Outer { FilterServerList = "filterServerList", Wrapper = "topicConfigSerializeWrapper" });
members::declare!(Inner {
    DataVersion = "dataVersion",
    MappingDataVersion = "mappingDataVersion",
    TopicConfigTable = "topicConfigTable",
    TopicQueueMappingDetailMap = "topicQueueMappingDetailMap",
    TopicQueueMappingInfoMap = "topicQueueMappingInfoMap",
});

impl<'a> RegisterBrokerBody<'a> {
    /// Decodes a body that is not deflated, or not any more ([`inflate`](super::inflate)).
    ///
    /// No body at all is a broker without topics. Bytes that are not UTF-8 become U+FFFD, as in the originals;
    /// such a body is copied.
    ///
    /// # Errors
    /// When the body is malformed; nothing of it should be used then.
    pub fn decode(body: &'a [u8], form: BodyForm, limits: &BodyLimits) -> Result<Self, BodyError> {
        if body.is_empty() {
            let filter_servers = (form != BodyForm::Legacy).then(Vec::new);
            return Ok(Self { filter_servers, ..Self::default() });
        }
        let json = match form {
            BodyForm::Binary { mappings } => return super::register_binary::decode(body, mappings, limits),
            BodyForm::Legacy => Self::read_legacy,
            BodyForm::Json => Self::read_json,
        };
        match std::str::from_utf8(body) {
            Ok(text) => json(text, limits),
            Err(_) => {
                let text = String::from_utf8_lossy(body);
                let read = if form == BodyForm::Legacy {
                    RegisterBrokerBody::read_legacy
                } else {
                    RegisterBrokerBody::read_json
                };
                Ok(read(&text, limits)?.into_owned())
            }
        }
    }

    /// Appends the JSON of the register-body object to `out`, as a 5.x broker writes it.
    pub fn encode_json(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"filterServerList\":");
        match &self.filter_servers {
            // Without the member it would be an empty list, which means something else.
            None => out.extend_from_slice(b"null"),
            Some(servers) => write_texts(out, servers),
        }
        out.extend_from_slice(b",\"topicConfigSerializeWrapper\":");
        self.encode_legacy(out);
        out.push(b'}');
    }

    /// Appends the JSON of the bare topic table to `out`: the form of brokers below 3.0.11, with the members
    /// that came later, which they ignore.
    pub fn encode_legacy(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"dataVersion\":");
        self.data_version.encode(out);
        out.extend_from_slice(b",\"mappingDataVersion\":");
        DataVersion::default().encode(out);
        out.extend_from_slice(b",\"topicConfigTable\":{");
        let mut first = true;
        for topic in &self.topics {
            write_comma(out, &mut first);
            topic.write(out);
        }
        out.extend_from_slice(b"},\"topicQueueMappingDetailMap\":{},\"topicQueueMappingInfoMap\":{");
        first = true;
        for (topic, mapping) in &self.mappings {
            write_comma(out, &mut first);
            write_string(out, topic);
            out.push(b':');
            mapping.encode(Dialect::Legacy, out);
        }
        out.extend_from_slice(b"}}");
    }

    /// Appends the layout that is deflated ([`deflate`](super::deflate)) to `out`. It carries neither
    /// `topic_sys_flag` nor `order`.
    pub fn encode_binary(&self, mappings: bool, out: &mut Vec<u8>) {
        super::register_binary::encode(self, mappings, out);
    }

    /// The same body with texts of its own.
    #[must_use]
    pub fn into_owned<'b>(self) -> RegisterBrokerBody<'b> {
        RegisterBrokerBody {
            data_version: self.data_version,
            topics: self.topics.into_iter().map(TopicConfig::into_owned).collect(),
            mappings: self.mappings.into_iter().map(|(topic, mapping)| (own(topic), mapping)).collect(),
            filter_servers: self.filter_servers,
        }
    }

    fn read_legacy(text: &'a str, limits: &BodyLimits) -> Result<Self, BodyError> {
        let mut body = Self::default();
        let mut reader = Reader::new(text, limits.json_depth);
        reader.object(|reader, key| body.read_inner(reader, &key, limits))?;
        reader.finish()?;
        Ok(body)
    }

    fn read_json(text: &'a str, limits: &BodyLimits) -> Result<Self, BodyError> {
        let mut body = Self { filter_servers: Some(Vec::new()), ..Self::default() };
        let mut reader = Reader::new(text, limits.json_depth);
        reader.object(|reader, key| {
            match Outer::of(&key) {
                Outer::FilterServerList => body.filter_servers = read_texts(reader)?,
                Outer::Wrapper => {
                    reader.object_or_null(|reader, key| body.read_inner(reader, &key, limits))?;
                }
                Outer::Unknown => reader.skip()?,
            }
            Ok::<(), BodyError>(())
        })?;
        reader.finish()?;
        Ok(body)
    }

    fn read_inner(
        &mut self,
        reader: &mut Reader<'a>,
        key: &str,
        limits: &BodyLimits,
    ) -> Result<(), BodyError> {
        let limit = limits.entries_max;
        match Inner::of(key) {
            Inner::DataVersion => self.data_version = DataVersion::read(reader)?,
            Inner::TopicConfigTable => {
                reader.table_or_null(|reader, key| {
                    if self.topics.len() >= limit {
                        return Err(BodyError::TooManyEntries { section: "topics", limit });
                    }
                    self.topics.push(TopicConfig::read(reader, key)?);
                    Ok::<(), BodyError>(())
                })?;
            }
            Inner::TopicQueueMappingInfoMap => {
                reader.table_or_null(|reader, topic| {
                    if self.mappings.len() >= limit {
                        return Err(BodyError::TooManyEntries { section: "mappings", limit });
                    }
                    if !reader.null() {
                        self.mappings.push((topic, TopicQueueMapping::read(reader)?));
                    }
                    Ok::<(), BodyError>(())
                })?;
            }
            Inner::MappingDataVersion | Inner::TopicQueueMappingDetailMap | Inner::Unknown => {
                reader.skip()?;
            }
        }
        Ok(())
    }
}
