//! Questions to a name server, asked without any code of the server under test.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

/// No answer of a healthy name server takes longer.
const ANSWER_DEADLINE: Duration = Duration::from_secs(5);

/// The version of a 5.5.0 caller, which is answered in standard JSON.
const CALLER_VERSION: u16 = 513;

/// A larger answer is no answer.
const MAX_FRAME: usize = 16 << 20;

/// One answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// 0 is success; 17 is an unknown topic.
    pub code: i64,
    /// Text for people.
    pub remark: Option<String>,
    /// Header fields.
    pub fields: BTreeMap<String, String>,
    /// Body as it came.
    pub body: Vec<u8>,
}

/// Where a topic lives.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Route {
    /// Address of each broker by name and id.
    pub addresses: BTreeMap<String, BTreeMap<u64, String>>,
    /// Permission and write queues by broker name.
    pub queues: BTreeMap<String, (u64, u64)>,
}

impl Route {
    /// Names of the brokers with at least one address, in order.
    pub fn brokers(&self) -> Vec<&str> {
        self.addresses.iter().filter(|(_, ids)| !ids.is_empty()).map(|(name, _)| name.as_str()).collect()
    }
}

/// Asks one name server, over a new connection each time, so that a killed and restarted server is no special case.
#[derive(Debug, Clone, Copy)]
pub struct Probe(SocketAddr);

impl Probe {
    /// For the server at `address`.
    pub fn new(address: SocketAddr) -> Self {
        Self(address)
    }

    /// The route of `topic` (105); `None` if the server does not know the topic, or is not there.
    pub fn route(&self, topic: &str) -> Option<Route> {
        let answer = self.ask(105, &[("topic", topic)]).ok()?;
        if answer.code != 0 {
            return None;
        }
        let body: Value = serde_json::from_slice(&answer.body).ok()?;
        let mut route = Route::default();
        for broker in body["brokerDatas"].as_array()? {
            route
                .addresses
                .insert(broker["brokerName"].as_str()?.to_owned(), addresses(&broker["brokerAddrs"])?);
        }
        for queue in body["queueDatas"].as_array()? {
            let numbers = (queue["perm"].as_u64()?, queue["writeQueueNums"].as_u64()?);
            route.queues.insert(queue["brokerName"].as_str()?.to_owned(), numbers);
        }
        Some(route)
    }

    /// Every broker name with its addresses by id (106); `None` if the server is not there.
    pub fn brokers(&self) -> Option<BTreeMap<String, BTreeMap<u64, String>>> {
        let answer = self.ask(106, &[]).ok()?;
        let body: Value =
            serde_json::from_str(&quote_bare_keys(&String::from_utf8(answer.body).ok()?)).ok()?;
        let table = body["brokerAddrTable"].as_object()?;
        table.iter().map(|(name, broker)| Some((name.clone(), addresses(&broker["brokerAddrs"])?))).collect()
    }

    /// The addresses by id of one group as its members see them (901); `None` if the server is not there.
    pub fn members(&self, cluster: &str, broker: &str) -> Option<BTreeMap<u64, String>> {
        let answer = self.ask(901, &[("clusterName", cluster), ("brokerName", broker)]).ok()?;
        let body: Value =
            serde_json::from_str(&quote_bare_keys(&String::from_utf8(answer.body).ok()?)).ok()?;
        addresses(&body["brokerMemberGroup"]["brokerAddrs"])
    }

    /// One request without a body and its answer.
    ///
    /// # Errors
    ///
    /// If the server is not there, closes, or does not answer within five seconds.
    pub fn ask(&self, code: u16, fields: &[(&str, &str)]) -> std::io::Result<Answer> {
        let fields: BTreeMap<&str, &str> = fields.iter().copied().collect();
        let header =
            json!({"code": code, "language": "JAVA", "version": CALLER_VERSION, "opaque": 1, "flag": 0,
            "serializeTypeCurrentRPC": "JSON", "extFields": fields})
            .to_string();
        let header_length = u32::try_from(header.len()).map_err(std::io::Error::other)?;
        let mut frame = Vec::with_capacity(header.len() + 8);
        frame.extend((header_length + 4).to_be_bytes());
        frame.extend(header_length.to_be_bytes());
        frame.extend(header.as_bytes());

        let mut stream = TcpStream::connect_timeout(&self.0, ANSWER_DEADLINE)?;
        stream.set_read_timeout(Some(ANSWER_DEADLINE))?;
        stream.write_all(&frame)?;
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let length = u32::from_be_bytes(length) as usize;
        if !(4..=MAX_FRAME).contains(&length) {
            return Err(std::io::Error::other(format!("a frame of {length} bytes")));
        }
        let mut frame = vec![0; length];
        stream.read_exact(&mut frame)?;
        parse(&frame).ok_or_else(|| std::io::Error::other(format!("no answer: {frame:?}")))
    }
}

fn parse(frame: &[u8]) -> Option<Answer> {
    let (meta, rest) = frame.split_first_chunk::<4>()?;
    let header_length = (u32::from_be_bytes(*meta) & 0x00ff_ffff) as usize;
    let (header, body) = rest.split_at_checked(header_length)?;
    let header: Value = serde_json::from_slice(header).ok()?;
    let fields = header["extFields"].as_object().into_iter().flatten();
    Some(Answer {
        code: header["code"].as_i64()?,
        remark: header["remark"].as_str().map(str::to_owned),
        fields: fields.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect(),
        body: body.to_vec(),
    })
}

fn addresses(value: &Value) -> Option<BTreeMap<u64, String>> {
    let object = value.as_object()?;
    object.iter().map(|(id, address)| Some((id.parse().ok()?, address.as_str()?.to_owned()))).collect()
}

/// Puts quotes around the bare integer keys that 106 and 901 have in every version.
fn quote_bare_keys(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 16);
    let (mut in_string, mut escaped, mut previous) = (false, false, ' ');
    for letter in text.chars() {
        let starts_key = !in_string && letter.is_ascii_digit() && matches!(previous, '{' | ',');
        if starts_key {
            quoted.push('"');
        }
        let ends_key = !in_string && letter == ':' && previous.is_ascii_digit();
        if ends_key {
            quoted.push('"');
        }
        quoted.push(letter);
        if in_string {
            in_string = escaped || letter != '"';
            escaped = !escaped && letter == '\\';
        } else {
            in_string = letter == '"';
        }
        previous = letter;
    }
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_keys_get_quotes_and_strings_stay() {
        // Arrays of numbers do not occur in these bodies and would not be told apart.
        let value: Value =
            serde_json::from_str(&quote_bare_keys(r#"{"a":{0:"x:1",12:"y\",3:"},"b":7}"#)).unwrap();
        assert_eq!(value, json!({"a": {"0": "x:1", "12": "y\",3:"}, "b": 7}));
    }
}
