//! The table of settings: the one place that says which keys exist.
//!
//! An entry that acts stands in [`settings!`] with the field of [`Settings`] that carries it, so
//! a key cannot exist without a typed value nor a value without a key. Keys that are accepted
//! for the sake of files in use and do nothing stand in [`IGNORED`].

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use waypost_net::host_names::HostNames;
use waypost_net::network::NetworkList;

use super::setting::{Applies, Bounds, Effect, Origin, Refusal, Setting, Unit};
use super::typed::{ClientAuth, LogFormat, LogLevel, TlsMode, Typed, canonical};

/// The bounds of what is not a number.
const ANY: Bounds = (0, 0);
/// The largest size of a socket or write buffer: the original's keys are 32 bit.
const BUFFER_MAX: i64 = 1 << 30;
/// A day, the longest period that makes sense for anything here.
const DAY_MILLIS: i64 = 86_400_000;

macro_rules! settings {
    ($(
        $(#[doc = $about:literal])+
        $part:ident: $group:ident $title:literal {
            $(
                $(#[doc = $doc:literal])+
                $field:ident: $type:ty = $key:literal, $default:literal, $bounds:expr, $unit:ident, $applies:ident, $origin:ident;
            )+
        }
    )+) => {
        /// The entries that act, in the order of the reference.
        pub(crate) const ACTING: &[Setting] = &[ $( $(
            Setting {
                key: $key,
                section: $title,
                kind: <$type as Typed>::KIND,
                unit: Unit::$unit,
                bounds: $bounds,
                default: $default,
                applies: Applies::$applies,
                origin: Origin::$origin,
                effect: Effect::Acts,
                refusal: None,
                doc: concat!($($doc, "\n"),+),
                check: canonical::<$type>,
            },
        )+ )+ ];

        /// The sections of what acts: title and purpose.
        pub(crate) const SECTIONS: &[(&str, &str)] = &[ $( ($title, concat!($($about, "\n"),+)), )+ ];

        /// The effective values, typed. Each group is one section of the reference.
        #[derive(Clone, PartialEq, Debug)]
        pub struct Settings {
            $(
                $(#[doc = $about])+
                pub $part: $group,
            )+
        }

        impl Settings {
            /// Reads every field; `text` gives the effective text of a key.
            pub(crate) fn read<'a>(text: impl Fn(&'static str) -> &'a str) -> Self {
                Self { $( $part: $group {
                    $( $field: typed::<$type>($key, text($key)), )+
                } ),+ }
            }
        }

        impl Default for Settings {
            /// The defaults, for a home folder of `.`.
            fn default() -> Self {
                Self::read(|key| super::setting::find(key).map_or("", |setting| setting.default))
            }
        }

        $(
            $(#[doc = $about])+
            #[derive(Clone, PartialEq, Debug)]
            pub struct $group {
                $(
                    $(#[doc = $doc])+
                    #[doc = concat!("\n\n`", $key, "`")]
                    pub $field: $type,
                )+
            }
        )+
    };
}

/// Reads a text that was checked when it was taken from its source.
fn typed<T: Typed>(key: &'static str, text: &str) -> T {
    let setting = super::setting::find(key).expect("invariant: the field's own key is in the table");
    T::parse(setting, text).expect("invariant: every text is checked before it is assigned")
}

settings! {
    /// Where the server listens and how it treats its sockets.
    listen: Listen "Listening" {
        /// The address that the server listens on. `0.0.0.0`, the default, and `::` mean every
        /// address of the machine, IPv4 and IPv6, as they do in Java.
        bind_address: IpAddr = "bindAddress", "0.0.0.0", ANY, Plain, Restart, Original;
        /// The port that the server listens on. 0 takes a free one, which request 319 then tells.
        port: u16 = "listenPort", "9876", (0, 65_535), Plain, Restart, Original;
        /// How many connections may wait to be accepted. The kernel caps it at
        /// `net.core.somaxconn`.
        backlog: u32 = "serverSocketBacklog", "1024", (1, 65_535), Plain, Restart, Original;
        /// Send buffer of each socket; 0 leaves it to the kernel.
        send_buffer: u32 = "serverSocketSndBufSize", "0", (0, BUFFER_MAX), Bytes, Restart, Original;
        /// Receive buffer of each socket; 0 leaves it to the kernel.
        receive_buffer: u32 = "serverSocketRcvBufSize", "0", (0, BUFFER_MAX), Bytes, Restart, Original;
        /// Answers waiting for one reader above which the server reads no further requests from
        /// that connection; 0 means 65536.
        write_high_water: usize = "writeBufferHighWaterMark", "0", (0, BUFFER_MAX), Bytes, Restart, Original;
        /// A connection on which nothing was read or written for so long is closed; 0 never
        /// closes one. A connection that carries brokers is kept until their leases are over, even
        /// if that is later.
        idle: Duration = "serverChannelMaxIdleTimeSeconds", "120", (0, 86_400), Seconds, Restart, Original;
        /// At shutdown, first answer peers newer than 5.3.1 with code 1500 (go away), so that
        /// they move to another server, for `shutdownWaitTimeSeconds`.
        shutdown_gracefully: bool = "enableShutdownGracefully", "false", ANY, Plain, Restart, Original;
        /// How long that phase lasts.
        shutdown_wait: Duration = "shutdownWaitTimeSeconds", "30", (0, 3_600), Seconds, Restart, Original;
        /// Networks whose PROXY protocol preamble is believed: the address in it then counts as
        /// the caller's. Preambles from anywhere else are read and ignored.
        proxy_protocol_trusted: NetworkList = "proxyProtocolTrusted", "none", ANY, Plain, Restart, Own;
        /// Where metrics, health and the JSON interface are served over HTTP; `off` serves none.
        admin: Option<SocketAddr> = "adminListen", "127.0.0.1:9880", ANY, Plain, Restart, Own;
        /// Names by which the live table may be asked for over HTTP, besides IP addresses and
        /// `localhost`. Others are refused: a web page could read the table through the browser of
        /// somebody on this machine (DNS rebinding). Metrics and health answer to any name.
        admin_hosts: HostNames = "adminHosts", "", ANY, Plain, Restart, Own;
    }

    /// TLS on the port that brokers and clients use.
    tls: Tls "TLS" {
        /// `permissive` serves TLS and plain text on one port, `enforcing` closes plain
        /// connections, `disabled` closes TLS handshakes. Without a certificate a TLS handshake
        /// closes the connection: no certificate is made up.
        mode: TlsMode = "tls.server.mode", "permissive", ANY, Plain, Restart, Original;
        /// The server's certificate chain, PEM. Read again when the file changes.
        certificate: Option<PathBuf> = "tls.server.certPath", "", ANY, Plain, Restart, Original;
        /// The certificate's private key, PEM (PKCS#8, PKCS#1 or SEC1), without a password.
        key: Option<PathBuf> = "tls.server.keyPath", "", ANY, Plain, Restart, Original;
        /// Whether clients show a certificate: `none`, `optional` or `require`. This is about TLS
        /// connections; only mode `enforcing` closes plain ones.
        client_auth: ClientAuth = "tls.server.need.client.auth", "none", ANY, Plain, Restart, Original;
        /// The certificate authorities that clients' certificates are checked against, PEM.
        trust: Option<PathBuf> = "tls.server.trustCertPath", "", ANY, Plain, Restart, Original;
    }

    /// What the route table does and what requests answer.
    routes: Routes "Routes" {
        /// A broker that announced no timeout of its own is removed when nothing was heard of it
        /// for so long. Brokers report every 30 s: less than 90000 or more than 120000 is accepted
        /// with a warning. The
        /// connection of a broker lives at least as long, above `serverChannelMaxIdleTimeSeconds` too.
        broker_expire: Duration = "brokerExpireMillis", "120000", (1_000, DAY_MILLIS), Milliseconds, Live, Own;
        /// Time between two looks for brokers that expired.
        scan_interval: Duration = "scanNotActiveBrokerInterval", "5000", (10, DAY_MILLIS), Milliseconds, Live, Original;
        /// Attach the order configuration (KV namespace `ORDER_TOPIC_CONFIG`) to routes.
        order_message: bool = "orderMessageEnable", "false", ANY, Plain, Live, Original;
        /// Answer registrations with the order configuration of all topics.
        order_to_broker: bool = "returnOrderTopicConfigToBroker", "true", ANY, Plain, Live, Original;
        /// Show the smallest slave as master where a group that allows it has lost its master.
        acting_master: bool = "supportActingMaster", "false", ANY, Plain, Live, Original;
        /// Tell the brokers of a group by request 905 when its smallest id changed.
        notify_min_broker_id: bool = "notifyMinBrokerIdChanged", "false", ANY, Plain, Live, Original;
        /// A registration removes the broker's topics that it does not list. Only for brokers
        /// that send every topic in each registration.
        delete_unlisted_topics: bool = "deleteTopicWithBrokerRegistration", "false", ANY, Plain, Live, Original;
        /// Answer request 206, the list of all topics.
        all_topic_list: bool = "enableAllTopicList", "true", ANY, Plain, Live, Original;
        /// Answer requests 224, 311, 312 and 313, the lists of topics of a cluster or unit.
        topic_list: bool = "enableTopicList", "true", ANY, Plain, Live, Original;
        /// After a start, close the connections of clients that ask for routes until
        /// `waitSecondsForService` have passed, so that they keep what they know.
        wait_for_service: bool = "needWaitForService", "false", ANY, Plain, Live, Original;
        /// How long that lasts.
        wait_duration: Duration = "waitSecondsForService", "45", (0, 3_600), Seconds, Live, Original;
        /// Refuse a broker whose name is live in another cluster. The original merges the two
        /// groups; that is counted and warned about either way.
        refuse_name_in_other_cluster: bool = "refuseBrokerNameInOtherCluster", "false", ANY, Plain, Live, Own;
        /// Refuse a master (id 0) from a new address while the old address is live. Counted and
        /// warned about either way.
        refuse_master_change: bool = "refuseMasterAddressChange", "false", ANY, Plain, Live, Own;
        /// A write permission that was wiped (205) stays wiped until it is added again (327). The
        /// original gives it back with the next change of any topic of that broker.
        wipe_survives: bool = "wipeSurvivesRegistration", "false", ANY, Plain, Live, Own;
        /// Adding write permission (327) restores what the broker announced. The original sets
        /// read and write on every topic, also on read-only ones.
        add_restores: bool = "addWritePermRestoresAnnounced", "false", ANY, Plain, Live, Own;
        /// Answer code 1 when the topics of a cluster that does not exist are asked for (224),
        /// instead of an empty list.
        strict_unknown_cluster: bool = "strictUnknownCluster", "false", ANY, Plain, Live, Own;
    }

    /// Who may send which requests. The caller is the address of the connection; an IPv4 address
    /// in IPv6 form counts as IPv4.
    access: Access "Access" {
        /// Networks that may ask: routes, lists, the KV configuration and 319 (requests 101, 105,
        /// 106, 206, 219, 224, 304, 311-313, 319, 901).
        read: NetworkList = "accessRead", "any", ANY, Plain, Restart, Own;
        /// Networks that brokers register from (requests 103, 104, 217, 322, 904).
        broker: NetworkList = "accessBroker", "any", ANY, Plain, Restart, Own;
        /// Networks that may change KV configuration and permissions and delete topics (requests
        /// 100, 102, 205, 216, 327).
        admin: NetworkList = "accessAdmin", "loopback,private", ANY, Plain, Restart, Own;
        /// Networks that may change settings of the running server (request 318).
        config: NetworkList = "accessConfig", "loopback", ANY, Plain, Restart, Own;
        /// Keys that request 318 may not change, separated by `;`, besides those that can not be
        /// changed while running anyway.
        black_list: String = "configBlackList", "configBlackList;configStorePath;kvConfigPath", ANY, Plain, Restart, Original;
    }

    /// What one peer, or all of them, may take. Reaching a limit is answered or closes the
    /// connection, and is counted.
    limits: Limits "Limits" {
        /// Largest frame, its length field included. A larger one closes the connection.
        frame: usize = "frameMaxLength", "16777216", (4_096, 1 << 30), Bytes, Restart, Own;
        /// Largest header inside a frame.
        header: usize = "headerMax", "1048576", (1_024, 1 << 24), Bytes, Restart, Own;
        /// Largest body of a registration after it was inflated.
        inflated_body: usize = "inflatedBodyMax", "268435456", (1 << 20, 1 << 32), Bytes, Restart, Own;
        /// How deep JSON may nest.
        json_depth: usize = "jsonDepthMax", "64", (8, 512), Plain, Restart, Own;
        /// Memory for frames that have begun to arrive, of all connections together. Above it
        /// the connections with the biggest frames wait.
        unfinished_frames: usize = "unfinishedFrameMemory", "1073741824", (1 << 20, 1 << 40), Bytes, Restart, Own;
        /// Answers waiting for one reader above which its connection is closed.
        reader_queue: usize = "readerQueueMax", "33554432", (1 << 16, 1 << 32), Bytes, Restart, Own;
        /// Answers waiting for all readers together. Whoever's answer would pass it is closed.
        reader_queues: usize = "readerQueuesMax", "268435456", (1 << 20, 1 << 40), Bytes, Restart, Own;
        /// Connections. The limit of open files is raised to it at start.
        connections: usize = "connectionsMax", "65536", (1, 10_000_000), Plain, Restart, Own;
        /// Connections of one address; 0 sets no limit.
        connections_per_address: usize = "connectionsPerAddressMax", "0", (0, 10_000_000), Plain, Restart, Own;
        /// Topics. A registration that would pass it is refused.
        topics: usize = "topicsMax", "2000000", (1, 100_000_000), Plain, Restart, Own;
        /// Topics of one registration, and as many mappings of static topics: they are applied
        /// together, while other changes of the table wait. A broker with more registers in parts
        /// (its `enableSplitRegistration`).
        registration_topics: usize = "registrationTopicsMax", "500000", (1, 100_000_000), Plain, Restart, Own;
        /// Registered broker addresses.
        brokers: usize = "brokersMax", "50000", (1, 10_000_000), Plain, Restart, Own;
        /// Length of a topic, broker, cluster or zone name or an address that is registered.
        /// Brokers of RocketMQ take topic names of at most 127 and group names of at most 255.
        name_length: usize = "nameLengthMax", "1024", (64, 65_536), Bytes, Restart, Own;
        /// Entries of the KV configuration, of all namespaces together.
        kv_entries: usize = "kvEntriesMax", "100000", (1, 10_000_000), Plain, Restart, Own;
        /// Length of one value of the KV configuration. Namespaces and keys obey `nameLengthMax`.
        kv_value: usize = "kvValueMax", "1048576", (64, 1 << 26), Bytes, Restart, Own;
        /// Length of all namespaces, keys and values of the KV configuration together. Each
        /// change writes the file anew.
        kv_total: usize = "kvTotalMax", "67108864", (4_096, 1 << 32), Bytes, Restart, Own;
    }

    /// What is kept on disk.
    files: Files "Files" {
        /// The KV configuration, in the original's form, so that a cluster can move over and
        /// back. A damaged file stops the start; `--kv-from-backup` then takes `<file>.bak`. Values
        /// that request 318 set are kept in `runtime.toml` beside it.
        kv: PathBuf = "kvConfigPath", "$HOME/namesrv/kvConfig.json", ANY, Plain, Restart, Original;
    }

    /// What is logged, and how.
    logs: Logs "Logs" {
        /// One line of `text` an event, or one `json` object.
        format: LogFormat = "logFormat", "text", ANY, Plain, Restart, Own;
        /// The least severe events that are logged.
        level: LogLevel = "logLevel", "info", ANY, Plain, Restart, Own;
    }
}

/// The bounds of the original's 32-bit numbers.
const INT: Bounds = (i32::MIN as i64, i32::MAX as i64);

/// The section of keys that 319 reports although they do nothing.
const NO_EFFECT: &str = "Accepted, no effect";
/// The section of keys that 319 reports only where a file sets them.
const NO_EFFECT_CLIENT: &str = "Accepted, no effect, not reported";

const fn ignored<T: Typed>(key: &'static str, default: &'static str, doc: &'static str) -> Setting {
    Setting {
        key,
        section: NO_EFFECT,
        kind: T::KIND,
        unit: Unit::Plain,
        bounds: INT,
        default,
        applies: Applies::Restart,
        origin: Origin::Original,
        effect: Effect::Ignored,
        refusal: None,
        doc,
        check: canonical::<T>,
    }
}

const fn client<T: Typed>(key: &'static str, default: &'static str) -> Setting {
    Setting {
        section: NO_EFFECT_CLIENT,
        effect: Effect::IgnoredUnlessSet,
        ..ignored::<T>(key, default, "Of the original's client, which a Waypost server does not have.\n")
    }
}

const fn refused<T: Typed>(setting: Setting, instead: &'static str) -> Setting {
    let allowed = setting.default;
    Setting { refusal: Some(Refusal { allowed, instead }), ..setting }
}

const POOL: &str = "Waypost has no such pool: requests are answered where they are read.\n";
const QUEUE: &str = "Waypost has no such queue: requests are answered in the order of their connection.\n";
const IO_THREADS: &str = "One thread less than there are cores reads and writes all connections.\n";
const OUTBOUND: &str = "Notices to brokers (905) have their own, fixed limits.\n";

/// The entries that are accepted and do nothing, in the order of the reference.
pub(crate) const IGNORED: &[Setting] = &[
    ignored::<String>(
        "rocketmqHome",
        "",
        "The original's home folder; also taken from `ROCKETMQ_HOME`. Nothing is read from it.\n",
    ),
    ignored::<String>(
        "configStorePath",
        "$HOME/namesrv/namesrv.properties",
        "The original overwrites this file, or the `-c` file, with what request 318 set. Waypost \
         leaves both alone and writes `runtime.toml` beside the KV configuration.\n",
    ),
    ignored::<String>("productEnvName", "center", "Of the cluster test mode.\n"),
    refused::<bool>(
        ignored::<bool>(
            "clusterTest",
            "false",
            "The cluster test mode does not exist here: `true` stops the start.\n",
        ),
        "the cluster test mode does not exist here: remove the key and point the clients of the test \
         environment at its own name server",
    ),
    refused::<bool>(
        ignored::<bool>(
            "enableControllerInNamesrv",
            "false",
            "There is no controller inside: `true` stops the start.\n",
        ),
        "Waypost has no controller inside: remove the key and run the controller of RocketMQ \
         (bin/mqcontroller) as a process of its own; brokers find it by controllerAddr",
    ),
    ignored::<i64>("clientRequestThreadPoolNums", "8", POOL),
    ignored::<i64>("clientRequestThreadPoolQueueCapacity", "50000", QUEUE),
    ignored::<i64>("defaultThreadPoolNums", "16", POOL),
    ignored::<i64>("defaultThreadPoolQueueCapacity", "10000", QUEUE),
    ignored::<i64>("unRegisterBrokerQueueCapacity", "3000", QUEUE),
    ignored::<i64>("serverWorkerThreads", "8", IO_THREADS),
    ignored::<i64>("serverCallbackExecutorThreads", "0", POOL),
    ignored::<i64>("serverSelectorThreads", "3", IO_THREADS),
    ignored::<i64>("serverOnewaySemaphoreValue", "256", OUTBOUND),
    ignored::<i64>("serverAsyncSemaphoreValue", "64", OUTBOUND),
    ignored::<i64>("writeBufferLowWaterMark", "0", "Waypost has only the high mark.\n"),
    ignored::<bool>("serverNettyWorkerGroupEnable", "true", IO_THREADS),
    ignored::<bool>("serverPooledByteBufAllocatorEnable", "true", "Of the original's network library.\n"),
    ignored::<bool>("useEpollNativeSelector", "false", "epoll is always used.\n"),
    Setting {
        effect: Effect::IgnoredUnlessSet,
        ..ignored::<bool>(
            "tls.test.mode.enable",
            "false",
            "Of the original's self-signed certificate; Waypost has none unless one is configured.\n",
        )
    },
    Setting {
        effect: Effect::IgnoredUnlessSet,
        ..ignored::<bool>(
            "tls.server.authClient",
            "true",
            "A certificate that a client shows is always checked when `tls.server.need.client.auth` \
             asks for one.\n",
        )
    },
    Setting {
        effect: Effect::IgnoredUnlessSet,
        ..refused::<String>(
            ignored::<String>("tls.server.keyPassword", "", "Keys with a password can not be read.\n"),
            "keys with a password can not be read: write one without by `openssl pkey -in KEY -out NEW` \
             and set tls.server.keyPath to it",
        )
    },
    Setting {
        effect: Effect::IgnoredUnlessSet,
        ..refused::<String>(
            ignored::<String>("tls.config.file", "", "No second file is read.\n"),
            "no second file is read: set the tls.server.* keys in this file",
        )
    },
    client::<i64>("clientWorkerThreads", "4"),
    client::<i64>("clientCallbackExecutorThreads", "0"),
    client::<i64>("clientOnewaySemaphoreValue", "65535"),
    client::<i64>("clientAsyncSemaphoreValue", "65535"),
    client::<i64>("connectTimeoutMillis", "3000"),
    client::<i64>("channelNotActiveInterval", "60000"),
    client::<bool>("scanAvailableNameSrv", "true"),
    client::<i64>("clientChannelMaxIdleTimeSeconds", "120"),
    client::<i64>("clientSocketSndBufSize", "0"),
    client::<i64>("clientSocketRcvBufSize", "0"),
    client::<bool>("clientPooledByteBufAllocatorEnable", "false"),
    client::<bool>("clientCloseSocketIfTimeout", "true"),
    client::<bool>("useTLS", "false"),
    client::<bool>("tls.enable", "false"),
    client::<String>("socksProxyConfig", "{}"),
    client::<bool>("disableCallbackExecutor", "false"),
    client::<bool>("disableNettyWorkerGroup", "false"),
    client::<i64>("maxReconnectIntervalTimeSeconds", "60"),
    client::<bool>("enableReconnectForGoAway", "true"),
];
