//! What the JSON readers take: the right sides are what RocketMQ 5.3.3's own classes made of the left sides
//! (with fastjson 1.2.83), except where a comment says otherwise.

use waypost_rocketmq_wire::body::{BodyForm, BodyLimits, DataVersion, RegisterBrokerBody, TopicRouteData};
use waypost_rocketmq_wire::frame::{Frame, FrameLimits, HeaderEncoding};
use waypost_rocketmq_wire::header::{Header, HeaderError, Language};

fn header(text: &str) -> Result<Header<'_>, HeaderError> {
    let frame = Frame { encoding: HeaderEncoding::Json, header: text.as_bytes(), body: b"" };
    Header::decode(&frame, &FrameLimits::default())
}

/// The header's code, version, flag, language, remark and ext fields.
fn shown(text: &str) -> String {
    let header = match header(text) {
        Ok(header) => header,
        Err(error) => return error.kind().to_owned(),
    };
    let mut shown = header.code.to_string();
    for (name, number) in [("version", header.version), ("flag", header.flag), ("opaque", header.opaque)] {
        if number != 0 {
            shown += &format!(" {name}={number}");
        }
    }
    if header.language != Language::Java {
        shown += &format!(" {:?}", header.language);
    }
    if let Some(remark) = &header.remark {
        shown += &format!(" remark={remark:?}");
    }
    if header.ext.is_present() {
        let fields: Vec<String> = header.ext.iter().map(|(key, value)| format!("{key}={value}")).collect();
        shown += &format!(" {{{}}}", fields.join(","));
    }
    shown
}

const REFUSED: &str = "header_json";

#[test]
fn numbers_of_headers() {
    for (input, expected) in [
        (r#"{"code":105}"#, "105"),
        (r#"{"code":"105","version":"479","opaque":"7","flag":"1"}"#, "105 version=479 flag=1 opaque=7"),
        (r#"{"code":'105'}"#, "105"),
        (r#"{"code":105.7}"#, "105"),
        (r#"{"code":"105.7"}"#, REFUSED),
        (r#"{"code":""}"#, "0"),
        (r#"{"code":"null"}"#, "0"),
        (r#"{"code":null}"#, "0"),
        (r#"{"code":true}"#, "1"),
        (r#"{"flag":false,"version":true}"#, "0 version=1"),
        (r#"{"code":"abc"}"#, REFUSED),
        (r#"{"code":" 105"}"#, REFUSED),
        (r#"{"code":[1]}"#, REFUSED),
        (r#"{"code":{}}"#, REFUSED),
        (r#"{"code":99999999999}"#, REFUSED),
        (r#"{"code":"99999999999"}"#, REFUSED),
        (r#"{"code":99999999999999999999999}"#, REFUSED),
        (r#"{"code":2147483647,"flag":-2147483648}"#, "2147483647 flag=-2147483648"),
        (r#"{"code":2147483648}"#, REFUSED),
        (r#"{"code":1e2}"#, "100"),
        (r#"{"code":1.}"#, "1"),
        (r#"{"code":1e}"#, REFUSED),
        (r#"{"code":1e99}"#, REFUSED),
        (r#"{"code":"1,050"}"#, "1050"),
        (r#"{"code":105L}"#, "105"),
        (r#"{"code":+105}"#, "105"),
        (r#"{"code":-105}"#, "-105"),
        (r#"{"code":01}"#, "1"),
        (r#"{"code":--1}"#, REFUSED),
        (r#"{"code":0x10}"#, REFUSED),
        (r#"{"flag":"x"}"#, REFUSED),
        (r#"{"version":-1}"#, "0 version=-1"),
        (r#"{"code":105,"code":106}"#, "106"),
        // The originals make an opaque up; here it is 0.
        (r#"{"code":105,"opaque":null}"#, "105"),
    ] {
        assert_eq!(shown(input), expected, "{input}");
    }
}

#[test]
fn languages_of_headers() {
    for (input, expected) in [
        (r#"{"language":"CPP"}"#, "0 Cpp"),
        (r#"{"language":"cpp"}"#, "0 Cpp"),
        (r#"{"language":"COBOL"}"#, "0 Unknown"),
        (r#"{"language":9}"#, "0 Go"),
        (r#"{"language":""}"#, "0 Unknown"),
        (r#"{"language":null}"#, "0 Unknown"),
        // The originals close the connection for these; nothing depends on the language.
        (r#"{"language":99}"#, "0 Unknown"),
        (r#"{"language":-1}"#, "0 Unknown"),
        (r#"{"language":{}}"#, "0 Unknown"),
        (r#"{"language":true}"#, "0 Unknown"),
    ] {
        assert_eq!(shown(input), expected, "{input}");
    }
}

#[test]
fn ext_fields_of_headers() {
    for (input, expected) in [
        (r#"{"extFields":null}"#, "0"),
        (r#"{"extFields":{}}"#, "0 {}"),
        (
            r#"{"remark":5,"extFields":{"a":5,"b":5.50,"c":true,"d":null}}"#,
            "0 remark=\"5\" {a=5,b=5.50,c=true}",
        ),
        (r#"{"extFields":{"e":{"x": 1 , y:'z'},"f":[1, 2,]}}"#, r#"0 {e={"x":1,"y":"z"},f=[1,2]}"#),
        (r#"{"remark":{"a": 1}}"#, r#"0 remark="{\"a\":1}""#),
        (r#"{"extFields":{"a":"1","a":"2"}}"#, "0 {a=1,a=2}"),
        (r#"{"extFields":{"a":"1","b":"2","a":null}}"#, "0 {b=2}"),
        (r#"{"extFields":{"a":undefined,"b":NaN}}"#, "0 {}"),
        (r#"{"extFields":{"$ref":"$.x","a":"b"}}"#, "0 {$ref=$.x,a=b}"),
        (r#"{"extFields":{,"a":"b",,"c":"d",}}"#, "0 {a=b,c=d}"),
        (r#"{"extFields":{"a":""}}"#, "0 {a=}"),
        (r#"{"extFields":{"a":abc}}"#, REFUSED),
        (r#"{"extFields":{"a":"b" "c":"d"}}"#, REFUSED),
        (r#"{"extFields":[]}"#, REFUSED),
        (r#"{"extFields":""}"#, REFUSED),
        (r#"{"extFields":"x"}"#, REFUSED),
        (r#"{"extFields":5}"#, REFUSED),
        // The originals refuse bare numbers as keys here, but not elsewhere.
        (r#"{"extFields":{a:'b',1:"x",-1:"y",$z:"q"}}"#, "0 {a=b,1=x,-1=y,$z=q}"),
    ] {
        assert_eq!(shown(input), expected, "{input}");
    }
    let header =
        header(r#"{"extFields":{"a":"1","b":"TRUE","a":"2","c":"+5","d":"x","e":"99999999999"}}"#).unwrap();
    let ext = &header.ext;
    assert_eq!((ext.get("a"), ext.get("z"), ext.len()), (Some("2"), None, 6));
    assert_eq!((ext.get_bool("b"), ext.get_bool("d"), ext.get_bool("z")), (Some(true), Some(false), None));
    assert_eq!((ext.get_i32("c"), ext.get_i64("d"), ext.get_i32("e")), (Some(5), None, None));
    assert_eq!(ext.get_i64("e"), Some(99_999_999_999));
}

#[test]
fn spellings_of_headers() {
    for (input, expected) in [
        ("{}", "0"),
        ("[]", REFUSED),
        ("null", REFUSED),
        ("\"\"", REFUSED),
        ("5", REFUSED),
        ("", REFUSED),
        ("{code:105,language:'CPP'}", "105 Cpp"),
        ("{'code':105}", "105"),
        (r#"{"CODE":105,"ext_fields":{"a":"b"}}"#, "105 {a=b}"),
        (r#"{"Code":105,"ext-fields":{"a":"b"},"isResponse":1}"#, "105 {a=b}"),
        (r#"{"code":105,"unknown":{1:2,a:'b',"c":[1,{2:3}]},"flag":1}"#, "105 flag=1"),
        (r#"{"code":105,"unknown":undefined,"flag":1}"#, "105 flag=1"),
        (r#"{"code":105,"unknown":abc}"#, REFUSED),
        (r#"{,,"code":105,,"flag":1,}"#, "105 flag=1"),
        (r#"{"code":105 "flag":1}"#, REFUSED),
        (r#"{"code":105,"a":[1,,2,]}"#, "105"),
        (r#"{"code":105,"a":[1 2]}"#, "105"),
        (r#"{"code":105}x"#, REFUSED),
        (r#"{"code":105}}"#, REFUSED),
        (r#"{"code":105},"#, REFUSED),
        (r#"{"code":105"#, REFUSED),
        (r#"{"code":105,"extFields":{"a":"b"}"#, REFUSED),
        ("{\"code\" : 105 ,\t\"flag\" : 2\r\n}\n", "105 flag=2"),
        ("/* c */{\"code\":/*d*/105 // e\n}", "105"),
        ("/* c", REFUSED),
        (r#"{"":1,"code":105}"#, "105"),
        (r#"{"c\u006fde":105}"#, "105"),
        (
            r#"{"code":105,"body":"abc","oneway":true,"type":"RESPONSE_COMMAND","customHeader":{"a":1}}"#,
            "105",
        ),
        (r#"{"code":105,"serializeTypeCurrentRPC":"FOO"}"#, "105"),
    ] {
        assert_eq!(shown(input), expected, "{input}");
    }
}

#[test]
fn escapes() {
    let remark = |text: &str| {
        let input = format!("{{\"remark\":{text}}}");
        header(&input).map(|header| header.remark.map(|remark| remark.into_owned()))
    };
    for (input, expected) in [
        (r#""a\x41\v\0\u00e9\'\/""#, "aA\u{b}\0é'/"),
        (r#""\ud83d\ude00 \ud83d x""#, "😀 \u{fffd} x"),
        (r#""\ude00\ud83d\u0041""#, "\u{fffd}\u{fffd}A"),
        (r#""\"\\\b\t\n\f\r\F\7""#, "\"\\\u{8}\t\n\u{c}\r\u{c}\u{7}"),
        (r#"'it"s'"#, "it\"s"),
        ("'it\\'s'", "it's"),
        ("\"a\nb\u{1}é😀\"", "a\nb\u{1}é😀"),
    ] {
        assert_eq!(remark(input), Ok(Some(expected.to_owned())), "{input}");
    }
    for input in [r#""a\qb""#, r#""a\u12""#, r#""a\u12g4""#, r#""a\x4""#, "\"a", "\"a\\", "'a\""] {
        assert!(remark(input).is_err(), "{input}");
    }
}

/// Topics (name, queues to read and write, permission, flags, order) and mappings of a registration.
fn topics(input: &str) -> Result<Vec<String>, &'static str> {
    let limits = BodyLimits::default();
    let body = RegisterBrokerBody::decode(input.as_bytes(), BodyForm::Json, &limits);
    let body = body.map_err(|error| error.kind())?;
    let topics = body.topics.iter().map(|topic| {
        format!(
            "{}={}:{}:{}:{}:{}:{}",
            topic.key,
            topic.topic_name.as_deref().unwrap_or("null"),
            topic.read_queue_nums,
            topic.write_queue_nums,
            topic.perm,
            topic.topic_sys_flag,
            topic.order
        )
    });
    Ok(topics.collect())
}

#[test]
fn topics_of_registrations() {
    let table = |input: &str| {
        topics(&format!("{{\"topicConfigSerializeWrapper\":{{\"topicConfigTable\":{input}}}}}"))
    };
    for (input, expected) in [
        ("null", ""),
        (r#"{"A":{}}"#, "A=null:16:16:6:0:false"),
        (
            r#"{"A":{"topicName":null,"readQueueNums":null,"perm":null,"order":null}}"#,
            "A=null:16:16:6:0:false",
        ),
        (
            r#"{"A":{"topicName":5,"readQueueNums":"8","writeQueueNums":4.9,"perm":"4","topicSysFlag":true,"order":"true"}}"#,
            "A=5:8:4:4:1:true",
        ),
        (r#"{"A":{"order":1}}"#, "A=null:16:16:6:0:true"),
        (r#"{"A":{"order":"Y"}}"#, "A=null:16:16:6:0:true"),
        (r#"{"A":{"order":2}}"#, "A=null:16:16:6:0:false"),
        (r#"{"A":{"order":1.0}}"#, "A=null:16:16:6:0:true"),
        (r#"{"A":{"order":""}}"#, "A=null:16:16:6:0:false"),
        (r#"{"A":{"readQueueNums":""}}"#, "A=null:16:16:6:0:false"),
        (r#"{"A":{"topicFilterType":"FOO","attributes":null}}"#, "A=null:16:16:6:0:false"),
        (r#"{"A":{"attributes":{"a":"b","c":5}}}"#, "A=null:16:16:6:0:false"),
        (r#"{"A":{"TOPIC_NAME":"A","read_queue_nums":3}}"#, "A=A:3:16:6:0:false"),
        ("{A:{topicName:'A'}}", "A=A:16:16:6:0:false"),
        (r#"{"A":{"topicName":"A",}}"#, "A=A:16:16:6:0:false"),
        // A reference in place of a table is an empty table.
        (r#"{"$ref":"$.a"}"#, ""),
    ] {
        assert_eq!(table(input).map(|topics| topics.join(" ")), Ok(expected.to_owned()), "{input}");
    }
    for input in [
        "[]",
        "\"\"",
        "\"x\"",
        "5",
        r#"{"A":null}"#,
        r#"{"A":[]}"#,
        r#"{"A":""}"#,
        r#"{"A":5}"#,
        r#"{"A":"x"}"#,
        r#"{"A":{"order":"yes"}}"#,
        r#"{"A":{"order":{}}}"#,
        r#"{"A":{"order":abc}}"#,
        r#"{"A":{"readQueueNums":"x"}}"#,
        r#"{"A":{"readQueueNums":99999999999}}"#,
    ] {
        assert!(table(input).is_err(), "{input}");
    }
}

#[test]
fn wrappers_of_registrations() {
    for input in [
        "{}",
        r#"{"topicConfigSerializeWrapper":null}"#,
        r#"{"topicConfigSerializeWrapper":{}}"#,
        r#"{"topicConfigSerializeWrapper":[]}"#,
        r#"{"topicConfigSerializeWrapper":""}"#,
        r#"{"topicConfigSerializeWrapper":{"dataVersion":null}}"#,
        r#"{"topicConfigSerializeWrapper":{"nope":{1:2}},"nope":{3:4}}"#,
        r#"{"topicConfigSerializeWrapper":{"topicQueueMappingDetailMap":{"T":{"hostedQueues":{0:[{"logicOffset":0}]}}}}}"#,
        "{\"filterServerList\":[]}  ",
    ] {
        assert_eq!(topics(input), Ok(Vec::new()), "{input}");
    }
    for input in [
        "[]",
        "null",
        r#"{"topicConfigSerializeWrapper":5}"#,
        r#"{"topicConfigSerializeWrapper":"x"}"#,
        r#"{"topicConfigSerializeWrapper":{"dataVersion":5}}"#,
        r#"{"topicConfigSerializeWrapper":{"dataVersion":{"counter":9223372036854775808}}}"#,
        r#"{"topicConfigSerializeWrapper":{"topicQueueMappingInfoMap":{"T":{"currIdMap":{"x":0}}}}}"#,
        r#"{"topicConfigSerializeWrapper":{"topicQueueMappingInfoMap":{"T":{"currIdMap":[]}}}}"#,
        "{\"filterServerList\":[]}x",
    ] {
        assert!(topics(input).is_err(), "{input}");
    }
    let limits = BodyLimits::default();
    let decode =
        |input: &'static str| RegisterBrokerBody::decode(input.as_bytes(), BodyForm::Json, &limits).unwrap();
    for (input, servers) in [
        ("{}", Some(vec![])),
        (r#"{"filterServerList":null}"#, None),
        (r#"{"filterServerList":""}"#, None),
        (r#"{"filterServerList":["a",5,'b']}"#, Some(vec!["a".to_owned(), "5".to_owned(), "b".to_owned()])),
    ] {
        assert_eq!(decode(input).filter_servers, servers, "{input}");
    }
    let versions = decode(
        r#"{"topicConfigSerializeWrapper":{"dataVersion":{"counter":"3","stateVersion":1e3,"timestamp":7.9}}}"#,
    );
    assert_eq!(versions.data_version, DataVersion { state_version: 1000, timestamp: 7, counter: 3 });
    let mapped = decode(
        r#"{"topicConfigSerializeWrapper":{"topicQueueMappingInfoMap":{"N":null,"T":{"bname":"b","currIdMap":{0:0,"1":"1",'2':2,-3:3},"dirty":1,"epoch":"5","totalQueues":"2"},"U":{"scope":null,"currIdMap":{"$ref":"$.x"}}}}}"#,
    );
    let [(first, mapping), (_, other)] = &mapped.mappings[..] else { panic!("{:?}", mapped.mappings) };
    assert_eq!((first.as_ref(), mapping.bname.as_deref(), mapping.topic.as_deref()), ("T", Some("b"), None));
    assert_eq!((mapping.scope.as_deref(), mapping.dirty, mapping.epoch), (Some("__global__"), true, 5));
    assert_eq!(
        mapping.curr_id_map.iter().map(|(&key, &value)| (key, value)).collect::<Vec<_>>(),
        [(-3, 3), (0, 0), (1, 1), (2, 2)]
    );
    assert_eq!((other.scope.as_deref(), other.curr_id_map.len()), (None, 0));
}

#[test]
fn routes_of_single_topic_registrations() {
    let limits = BodyLimits::default();
    let decode = |input: &str| TopicRouteData::decode(input.as_bytes(), &limits);
    for input in [
        "{}",
        r#"{"brokerDatas":null,"queueDatas":null,"filterServerTable":null}"#,
        r#"{"brokerDatas":[null],"queueDatas":[null]}"#,
        r#"{"filterServerTable":{"a":null}}"#,
    ] {
        assert_eq!(decode(input), Ok(TopicRouteData::default()), "{input}");
    }
    let route = decode(
        r#"{"brokerDatas":[{"brokerAddrs":{0:"a","1":"b",'2':'c',-1:"d",3:null},"brokerName":null}]}"#,
    );
    let addresses: Vec<_> = route.unwrap().broker_datas.remove(0).broker_addrs.into_iter().collect();
    assert_eq!(addresses, [(-1, "d".into()), (0, "a".into()), (1, "b".into()), (2, "c".into())]);
    let error = decode(r#"{"brokerDatas":[{"brokerAddrs":{"x":"a"}}]}"#).unwrap_err();
    assert_eq!(error.kind(), "body_key");
    assert_eq!(error.to_string(), "the key \"x\" of brokerAddrs is not an integer");
    for input in ["[]", "null", r#"{"queueDatas":"x"}"#, r#"{"brokerDatas":[{"brokerAddrs":{" 1":"a"}}]}"#] {
        assert!(decode(input).is_err(), "{input}");
    }
}

#[test]
fn deep_headers_are_refused() {
    let nested =
        |levels: usize| format!("{{\"extFields\":{{\"a\":{}{}}}}}", "[".repeat(levels), "]".repeat(levels));
    assert!(header(&nested(62)).is_ok());
    for levels in [63, 100_000] {
        let text = nested(levels);
        assert!(header(&text).unwrap_err().to_string().contains("deeper than the limit"));
    }
}
