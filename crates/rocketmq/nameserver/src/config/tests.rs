use std::fs;
use std::path::{Path, PathBuf};

use super::*;
use crate::kv::scratch::Scratch;

/// Files and environment of one server. The home folder is its own.
struct World {
    scratch: Scratch,
    file: Option<PathBuf>,
    flags: Vec<(String, String)>,
    environment: Vec<(String, String)>,
}

impl World {
    fn new() -> Self {
        let scratch = Scratch::new();
        let home = scratch.path().to_str().unwrap().to_owned();
        Self { scratch, file: None, flags: Vec::new(), environment: vec![("HOME".to_owned(), home)] }
    }

    fn file(mut self, name: &str, content: &str) -> Self {
        let path = self.scratch.path().join(name);
        fs::write(&path, content).unwrap();
        self.file = Some(path);
        self
    }

    fn runtime(self, content: &str) -> Self {
        fs::create_dir_all(self.runtime_path().parent().unwrap()).unwrap();
        fs::write(self.runtime_path(), content).unwrap();
        self
    }

    fn flag(mut self, key: &str, value: &str) -> Self {
        self.flags.push((key.to_owned(), value.to_owned()));
        self
    }

    fn variable(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    fn runtime_path(&self) -> PathBuf {
        self.scratch.path().join("namesrv/runtime.toml")
    }

    fn load(&self) -> Result<Configuration, ConfigError> {
        Configuration::load(Inputs {
            file: self.file.clone(),
            flags: self.flags.clone(),
            environment: self.environment.clone(),
        })
    }

    #[track_caller]
    fn loaded(&self) -> Configuration {
        self.load().unwrap_or_else(|error| panic!("{error}"))
    }

    /// The text of the only problem, with the scratch folder cut out.
    #[track_caller]
    fn problem(&self) -> String {
        let error = self.load().map(|_| ()).unwrap_err();
        assert_eq!(error.problems.len(), 1, "{error}");
        error.to_string().replace(self.scratch.path().to_str().unwrap(), "DIR")
    }
}

fn source_of(configuration: &Configuration, key: &str) -> Source {
    configuration.show().into_iter().find(|row| row.key == key).unwrap().source
}

fn lines(configuration: &Configuration) -> BTreeMap<String, String> {
    let text = configuration.properties_text();
    properties::parse(&text).unwrap().into_iter().collect()
}

mod sources {
    use super::*;

    #[test]
    fn without_any_source_the_defaults_hold() {
        let world = World::new();
        let configuration = world.loaded();
        let settings = configuration.settings();
        assert_eq!(settings.listen.port, 9876);
        assert_eq!(settings.routes.broker_expire, Duration::from_secs(120));
        assert_eq!(settings.listen.idle, Duration::from_secs(120));
        assert_eq!(settings.files.kv, world.scratch.path().join("namesrv/kvConfig.json"));
        assert_eq!(settings.listen.admin, Some("127.0.0.1:9880".parse().unwrap()));
        assert_eq!(settings.limits.frame, 16 * 1024 * 1024);
        assert_eq!(source_of(&configuration, "listenPort"), Source::Default);
        assert_eq!(configuration.warnings(), []);
    }

    #[test]
    fn each_source_overrides_those_below_it() {
        let mut world = World::new().file("c.toml", "broker_expire_millis = 100001\n");
        let expire = |world: &World| {
            let configuration = world.loaded();
            let source = source_of(&configuration, "brokerExpireMillis").to_string();
            let source = source.replace(world.scratch.path().to_str().unwrap(), "DIR");
            (configuration.settings().routes.broker_expire.as_millis(), source)
        };
        assert_eq!(expire(&world), (100_001, "DIR/c.toml:1".to_owned()));
        world = world.runtime("# one line\nbrokerExpireMillis = 100002\n");
        assert_eq!(expire(&world), (100_002, "DIR/namesrv/runtime.toml:2".to_owned()));
        world = world.variable("WAYPOST_BROKER_EXPIRE_MILLIS", "100003");
        assert_eq!(expire(&world), (100_003, "environment variable WAYPOST_BROKER_EXPIRE_MILLIS".to_owned()));
        world = world.flag("brokerExpireMillis", "100004").flag("broker_expire_millis", "100005");
        assert_eq!(expire(&world), (100_005, "flag broker_expire_millis".to_owned()));
    }

    #[test]
    fn an_empty_variable_counts_as_not_set() {
        let world = World::new().variable("WAYPOST_LISTEN_PORT", "").variable("WAYPOST_ADMIN_LISTEN", "off");
        let configuration = world.loaded();
        assert_eq!(configuration.settings().listen.port, 9876);
        assert_eq!(configuration.settings().listen.admin, None);
    }

    #[test]
    fn rocketmq_home_is_taken_and_its_own_variable_ranks_above() {
        let world = World::new().variable("ROCKETMQ_HOME", "/opt/rocketmq");
        assert_eq!(lines(&world.loaded())["rocketmqHome"], "/opt/rocketmq");
        let world = world.variable("WAYPOST_ROCKETMQ_HOME", "/opt/other");
        assert_eq!(lines(&world.loaded())["rocketmqHome"], "/opt/other");
    }

    #[test]
    fn a_nearly_right_variable_is_warned_about_and_those_of_kubernetes_are_not() {
        let world = World::new()
            .variable("WAYPOST_LISTENPORT", "1")
            .variable("WAYPOST_PORT_9876_TCP_PORT", "9876")
            .variable("WAYPOST_SERVICE_PORT", "9876");
        let warnings: Vec<String> = world.loaded().warnings().iter().map(ToString::to_string).collect();
        assert_eq!(
            warnings,
            [
                "environment variable WAYPOST_LISTENPORT: unknown key \"WAYPOST_LISTENPORT\" has no effect: did you mean \
                 \"WAYPOST_LISTEN_PORT\"?"
            ]
        );
    }

    #[test]
    fn the_name_of_a_file_decides_its_form_and_else_its_content() {
        for (name, content) in [
            ("a.properties", "bindAddress=10.0.0.5"),
            ("a.conf", "bindAddress=10.0.0.5\nlistenPort=9876"),
            ("a.conf", "bindAddress = \"10.0.0.5\""),
            ("noending", "bindAddress : 10.0.0.5"),
            ("a.toml", "bindAddress = '10.0.0.5'"),
        ] {
            let configuration = World::new().file(name, content).loaded();
            assert_eq!(
                configuration.settings().listen.bind_address.to_string(),
                "10.0.0.5",
                "{name}: {content}"
            );
        }
        // Plain numbers and booleans mean the same in both forms: then unknown keys are foreign.
        let configuration = World::new().file("a.conf", "listenPort = 1\nmyOwnKey = true").loaded();
        assert_eq!(lines(&configuration)["myOwnKey"], "true");
    }

    #[test]
    fn tls_keys_are_read_in_every_spelling() {
        for content in [
            "[tls.server]\nmode = 'enforcing'\ncertPath = 'c'\nkeyPath = 'k'\ntrustCertPath = 't'\nneed.client.auth = 'require'",
            "[tls]\nserver.mode = 'enforcing'\nserver.cert_path = 'c'\nserver.key_path = 'k'\nserver.trust_cert_path = 't'\n\
             server.need.client.auth = 'require'",
            "\"tls.server.mode\" = 'enforcing'\n\"tls.server.certPath\" = 'c'\n\"tls.server.keyPath\" = 'k'\n\
             \"tls.server.trustCertPath\" = 't'\n\"tls.server.need.client.auth\" = 'REQUIRE'",
            "tls_server_mode = 'enforcing'\ntls_server_cert_path = 'c'\ntls_server_key_path = 'k'\n\
             tls_server_trust_cert_path = 't'\ntls_server_need_client_auth = 'require'",
        ] {
            let configuration = World::new().file("c.toml", content).loaded();
            let path = |text: &str| Some(PathBuf::from(text));
            let expected = Tls {
                mode: TlsMode::Enforcing,
                certificate: path("c"),
                key: path("k"),
                client_auth: ClientAuth::Require,
                trust: path("t"),
            };
            assert_eq!(configuration.settings().tls, expected);
        }
        let configuration = World::new().variable("WAYPOST_TLS_SERVER_MODE", "disabled").loaded();
        assert_eq!(configuration.settings().tls.mode, TlsMode::Disabled);
    }

    #[test]
    fn networks_are_a_text_or_a_list() {
        for value in ["'10.0.0.0/8, ::1'", "['10.0.0.0/8', '::1']"] {
            let configuration = World::new().file("c.toml", &format!("accessAdmin = {value}")).loaded();
            assert_eq!(lines(&configuration)["accessAdmin"], "10.0.0.0/8,::1/128");
        }
        let configuration = World::new().file("c.toml", "accessAdmin = []").loaded();
        assert!(configuration.settings().access.admin.is_empty());
    }

    #[test]
    fn the_example_file_sets_nothing_and_with_every_comment_removed_the_defaults() {
        let example = example_toml();
        let plain = World::new().file("c.toml", &example).loaded();
        assert_eq!(source_of(&plain, "listenPort"), Source::Default);
        let set: String = example
            .lines()
            .filter(|line| !line.starts_with("# "))
            .map(|line| format!("{}\n", line.trim_start_matches('#')))
            .collect();
        let world = World::new();
        let set = set.replace("$HOME", world.scratch.path().to_str().unwrap());
        let world = world.file("c.toml", &set);
        let configuration = world.loaded();
        for row in configuration.show() {
            let acts = row.effect == Some(Effect::Acts);
            assert_eq!(acts, matches!(row.source, Source::File { line: Some(_), .. }), "{row:?}");
        }
        let mut defaults = World::new();
        defaults.environment.clone_from(&world.environment);
        assert_eq!(configuration.settings(), defaults.loaded().settings());
    }

    #[test]
    fn a_file_of_the_original_is_taken_as_it_is() {
        let world = World::new().file(
            "namesrv.properties",
            "# ours\nlistenPort = 9976\nrocketmqHome=/opt/rocketmq\nserverWorkerThreads: 16\n\
             useEpollNativeSelector=TRUE\nconnectTimeoutMillis=1000\ntls.test.mode.enable=false\n\
             orderMessageEnable true\ncontrollerType=jRaft\nlistenport=1\nlistenport=2\n",
        );
        let configuration = world.loaded();
        assert_eq!(configuration.settings().listen.port, 9976);
        assert!(configuration.settings().routes.order_message);
        let warnings: Vec<String> = configuration
            .warnings()
            .iter()
            .map(|warning| warning.to_string().replace(world.scratch.path().to_str().unwrap(), "DIR"))
            .collect();
        assert_eq!(
            warnings,
            [
                "DIR/namesrv.properties:9: unknown key \"controllerType\" has no effect: `waypost config reference` lists \
                 every key",
                "DIR/namesrv.properties:11: unknown key \"listenport\" has no effect: did you mean \"listenPort\"?",
            ]
        );
        let lines = lines(&configuration);
        assert_eq!(lines["listenport"], "2");
        assert_eq!(lines["controllerType"], "jRaft");
        assert_eq!(lines["connectTimeoutMillis"], "1000");
        assert_eq!(lines["useEpollNativeSelector"], "true");
    }

    #[test]
    fn what_runtime_toml_hides_is_warned_about() {
        let world =
            World::new().file("c.toml", "enableTopicList = true\n").runtime("enableTopicList = false\n");
        let warning = world.loaded().warnings()[0].to_string();
        let warning = warning.replace(world.scratch.path().to_str().unwrap(), "DIR");
        assert_eq!(
            warning,
            "enableTopicList = \"false\" (DIR/namesrv/runtime.toml:1) hides \"true\" (DIR/c.toml:1); remove the first to \
             use the second"
        );
    }

    #[test]
    fn what_runtime_toml_sets_in_place_of_a_default_is_warned_about() {
        let world = World::new().runtime("brokerExpireMillis = 100000\nenableTopicList = true\n");
        let warnings: Vec<String> = world.loaded().warnings().iter().map(ToString::to_string).collect();
        let expected = format!(
            "brokerExpireMillis = \"100000\" ({}:1) hides \"120000\" (default); remove the first to use the second",
            world.runtime_path().display()
        );
        assert_eq!(warnings, [expected]);
    }

    #[test]
    fn what_a_flag_keeps_from_being_in_force_is_warned_about() {
        let world = World::new()
            .file("c.toml", "brokerExpireMillis = 95000\n")
            .runtime("brokerExpireMillis = 100000\n")
            .flag("brokerExpireMillis", "110000");
        let warnings: Vec<String> = world.loaded().warnings().iter().map(ToString::to_string).collect();
        let expected = format!(
            "brokerExpireMillis = \"100000\" ({}:1) has no effect: flag brokerExpireMillis sets \"110000\" and ranks above it",
            world.runtime_path().display()
        );
        assert_eq!(warnings, [expected]);
    }
}

mod problems {
    use super::*;

    #[test]
    fn a_value_out_of_bounds_names_file_line_key_value_bound_and_next_step() {
        assert_eq!(
            World::new().file("c.toml", "\nlistenPort = 99999\n").problem(),
            "DIR/c.toml:2: listenPort = \"99999\": must be a whole number from 0 to 65535; correct it there and start again"
        );
        assert_eq!(
            World::new().file("c.properties", "waitSecondsForService=soon").problem(),
            "DIR/c.properties:1: waitSecondsForService = \"soon\": must be a whole number of seconds from 0 to 3600; \
             correct it there and start again"
        );
        assert_eq!(
            World::new().variable("WAYPOST_ENABLE_TOPIC_LIST", "yes").problem(),
            "environment variable WAYPOST_ENABLE_TOPIC_LIST: enableTopicList = \"yes\": must be true or false; correct it \
             there and start again"
        );
    }

    #[test]
    fn values_of_the_wrong_kind_are_refused() {
        for (line, reason) in [
            ("listenPort = '9876'", "must be a whole number, written without quotes"),
            ("listenPort = 1.5", "must be a whole number, written without quotes"),
            ("enableTopicList = 'true'", "must be true or false, written without quotes"),
            ("bindAddress = 'namesrv.example.org'", "must be an IP address"),
            ("bindAddress = 10", "must be a text in quotes"),
            ("adminListen = '9880'", "must be an address and a port"),
            ("accessRead = '10.0.0.0/40'", "prefix length"),
            ("accessRead = [1]", "must be a list of texts"),
            ("logLevel = 'loud'", "must be one of error, warn, info, debug, trace"),
            ("kvConfigPath = ''", "must be the path of a file"),
            ("tls_server_mode = 'on'", "must be one of disabled, permissive, enforcing"),
            ("frameMaxLength = 9223372036854775807", "from 4096 to 1073741824"),
            ("frameMaxLength = 99999999999999999999", "must be a smaller number"),
            ("scanNotActiveBrokerInterval = 0", "milliseconds from 10 to 86400000"),
            ("configBlackList = \"a\\nb\"", "one line"),
        ] {
            let problem = World::new().file("c.toml", line).problem();
            assert!(problem.starts_with("DIR/c.toml:1: ") && problem.contains(reason), "{line}: {problem}");
        }
    }

    #[test]
    fn an_unknown_key_in_toml_or_a_flag_is_refused_with_a_suggestion() {
        assert_eq!(
            World::new().file("c.toml", "listen_prot = 1").problem(),
            "DIR/c.toml:1: unknown key \"listen_prot\": did you mean \"listen_port\"?"
        );
        assert_eq!(
            World::new().file("c.toml", "[limits]\nframe = 1").problem(),
            "DIR/c.toml:2: unknown key \"limits.frame\": `waypost config reference` lists every key"
        );
        assert_eq!(
            World::new().flag("listenprot", "1").problem(),
            "flag listenprot: unknown key \"listenprot\": did you mean \"listenPort\"?"
        );
    }

    #[test]
    fn one_key_in_two_spellings_is_refused() {
        assert_eq!(
            World::new().file("c.toml", "listen_port = 1\nlistenPort = 2").problem(),
            "DIR/c.toml:2: listenPort is set a second time (first at DIR/c.toml:1); remove one of the two"
        );
    }

    #[test]
    fn broken_syntax_names_the_line() {
        let problem = World::new().file("c.toml", "listenPort = 1\nkvConfigPath=/srv/x\n").problem();
        assert!(
            problem.starts_with("DIR/c.toml:2: ") && problem.contains("name it *.properties"),
            "{problem}"
        );
        let problem = World::new().file("c.properties", "a=b\nlistenPort=\\u12\n").problem();
        assert!(problem.starts_with("DIR/c.properties:2: ") && problem.contains("hexadecimal"), "{problem}");
    }

    #[test]
    fn an_unreadable_file_is_named() {
        let mut world = World::new();
        world.file = Some(world.scratch.path().join("absent.toml"));
        let problem = world.problem();
        assert!(problem.starts_with("DIR/absent.toml: cannot be read: "), "{problem}");
        let world = World::new().file("c.toml", "");
        fs::write(world.file.as_ref().unwrap(), b"listenPort = \xff").unwrap();
        let problem = world.problem();
        assert!(problem.starts_with("DIR/c.toml:1: it is not UTF-8 text (byte 13)"), "{problem}");
    }

    #[test]
    fn a_properties_file_that_is_not_utf8_is_read_as_latin_1_with_a_warning() {
        // "# 端口" in GBK.
        let content = b"# \xb6\xcb\xbf\xda\nlistenPort=1234\nproductEnvName=\xfc\n";
        for name in ["namesrv.properties", "namesrv.conf"] {
            let world = World::new().file(name, "");
            let file = world.file.clone().unwrap();
            fs::write(&file, content).unwrap();
            let configuration = world.loaded();
            assert_eq!(configuration.settings().listen.port, 1234);
            assert_eq!(lines(&configuration)["productEnvName"], "ü");
            assert_eq!(
                configuration.warnings(),
                [Warning::NotUtf8 { path: file.clone(), line: 1, offset: 2 }]
            );
            let told = configuration.warnings()[0].to_string();
            assert!(told.starts_with(&format!("{}:1: byte 2 is not UTF-8", file.display())), "{told}");
        }
    }

    #[test]
    fn a_byte_order_mark_is_passed_over() {
        for (name, content) in [
            ("c.properties", "\u{feff}listenPort=1234\nproductEnvName=端口\n"),
            ("c.conf", "\u{feff}# 端口\r\nlistenPort=1234\r\n"),
            ("c.toml", "\u{feff}listenPort = 1234\n"),
        ] {
            let world = World::new().file(name, content).runtime("\u{feff}enableTopicList = false\n");
            let configuration = world.loaded();
            assert_eq!(configuration.settings().listen.port, 1234, "{name}");
            assert!(
                matches!(configuration.warnings(), [Warning::Hidden { key: "enableTopicList", .. }]),
                "{name}"
            );
            assert_eq!(lines(&configuration)["enableTopicList"], "false");
        }
    }

    #[test]
    fn a_file_in_utf_16_is_refused() {
        let world = World::new().file("c.properties", "");
        fs::write(world.file.as_ref().unwrap(), b"\xff\xfea\0=\0b\0").unwrap();
        assert!(world.problem().contains("it is UTF-16 text"), "{}", world.problem());
    }

    #[test]
    fn controller_cluster_test_and_key_password_are_refused_with_what_to_do() {
        for (line, instead) in [
            ("enableControllerInNamesrv=true", "bin/mqcontroller"),
            ("clusterTest=true", "name server"),
            ("tls.server.keyPassword=secret", "openssl pkey"),
            ("tls.config.file=/etc/rocketmq/tls.properties", "in this file"),
        ] {
            let problem = World::new().file("c.properties", line).problem();
            assert!(
                problem.starts_with("DIR/c.properties:1: ") && problem.contains("is not possible"),
                "{problem}"
            );
            assert!(problem.contains(instead), "{problem}");
        }
        World::new().file("c.properties", "enableControllerInNamesrv=false\nclusterTest = false\n").loaded();
    }

    #[test]
    fn values_that_contradict_each_other_are_refused() {
        for (content, key) in [
            ("tls_server_cert_path = 'c'", "tls.server.certPath"),
            ("tls_server_key_path = 'k'", "tls.server.keyPath"),
            ("tls_server_mode = 'enforcing'", "tls.server.mode"),
            ("tls_server_need_client_auth = 'optional'", "tls.server.need.client.auth"),
            ("frameMaxLength = 100000000\nunfinishedFrameMemory = 99999999", "unfinishedFrameMemory"),
            ("kvValueMax = 10000\nkvTotalMax = 9999", "kvTotalMax"),
        ] {
            let problem = World::new().file("c.toml", content).problem();
            assert!(
                problem.starts_with("DIR/c.toml:") && problem.contains(&format!(": {key} = ")),
                "{problem}"
            );
        }
    }

    #[test]
    fn all_problems_are_told_at_once() {
        let world = World::new()
            .file("c.toml", "listenPort = -1\nlogLevel = 'x'\nunknown_key = 1\n")
            .variable("WAYPOST_LISTEN_PORT", "x")
            .flag("enableTopicList", "1");
        let error = world.load().map(|_| ()).unwrap_err();
        assert_eq!(error.problems.len(), 5, "{error}");
        assert_eq!(error.to_string().lines().count(), 5);
    }

    #[test]
    fn runtime_toml_holds_only_what_can_change_while_running() {
        let problem = World::new().runtime("listenPort = 1\n").problem();
        assert!(problem.contains("runtime.toml:1: listenPort cannot be changed while running"), "{problem}");
    }

    #[test]
    fn a_damaged_runtime_file_stops_the_start_and_says_what_to_do() {
        let problem = World::new().runtime("enableTopicList = true\nenable").problem();
        assert!(problem.starts_with("DIR/namesrv/runtime.toml:2: "), "{problem}");
        assert!(problem.contains("remove the file"), "{problem}");
        let world = World::new().runtime("");
        fs::write(world.runtime_path(), b"\xff").unwrap();
        assert!(world.problem().contains("it is not UTF-8 text (byte 0); correct it, or remove the file"));
    }

    #[test]
    fn a_short_expiry_and_a_slow_scan_are_accepted_with_a_warning() {
        let world =
            World::new().flag("brokerExpireMillis", "89999").flag("scanNotActiveBrokerInterval", "90000");
        assert_eq!(
            world.loaded().warnings(),
            [Warning::ShortExpiry { millis: 89_999 }, Warning::SlowScan { scan: 90_000, expire: 89_999 }]
        );
        assert_eq!(World::new().flag("brokerExpireMillis", "90000").loaded().warnings(), []);
    }

    #[test]
    fn plain_connections_beside_required_client_certificates_are_warned_about() {
        let warnings = |lines: &str| {
            let content = format!("tls_server_trust_cert_path = 'ca.pem'\n{lines}");
            World::new().file("c.toml", &content).loaded().warnings().to_vec()
        };
        let identity = "tls_server_cert_path = 'c.pem'\ntls_server_key_path = 'k.pem'\n";
        let require = format!("{identity}tls_server_need_client_auth = 'require'\n");
        let told = warnings(&require);
        assert_eq!(told.len(), 1, "{told:?}");
        let told = told[0].to_string();
        for part in ["\"permissive\" serves TLS and plain", "tls.server.mode = enforcing", "none or optional"]
        {
            assert!(told.contains(part), "{part}: {told}");
        }
        let told = warnings(&format!("{require}tls_server_mode = 'disabled'\n"));
        assert!(told[0].to_string().contains("serves plain connections only"), "{told:?}");
        let told = warnings("tls_server_need_client_auth = 'require'\n");
        assert!(told[0].to_string().contains("serves plain connections only"), "{told:?}");
        assert_eq!(warnings(&format!("{require}tls_server_mode = 'enforcing'\n")), []);
        assert_eq!(warnings(&format!("{identity}tls_server_need_client_auth = 'optional'\n")), []);
    }
}

mod answer_319 {
    use super::*;

    /// The output of a fresh Java NameServer 5.x (spec 4.4).
    const JAVA: &str = "\
bindAddress=0.0.0.0
clientRequestThreadPoolNums=8
clientRequestThreadPoolQueueCapacity=50000
clusterTest=false
configBlackList=configBlackList;configStorePath;kvConfigPath
configStorePath=HOME/namesrv/namesrv.properties
defaultThreadPoolNums=16
defaultThreadPoolQueueCapacity=10000
deleteTopicWithBrokerRegistration=false
enableAllTopicList=true
enableControllerInNamesrv=false
enableShutdownGracefully=false
enableTopicList=true
kvConfigPath=HOME/namesrv/kvConfig.json
listenPort=9876
needWaitForService=false
notifyMinBrokerIdChanged=false
orderMessageEnable=false
productEnvName=center
returnOrderTopicConfigToBroker=true
rocketmqHome=/opt/rocketmq
scanNotActiveBrokerInterval=5000
serverAsyncSemaphoreValue=64
serverCallbackExecutorThreads=0
serverChannelMaxIdleTimeSeconds=120
serverNettyWorkerGroupEnable=true
serverOnewaySemaphoreValue=256
serverPooledByteBufAllocatorEnable=true
serverSelectorThreads=3
serverSocketBacklog=1024
serverSocketRcvBufSize=0
serverSocketSndBufSize=0
serverWorkerThreads=8
shutdownWaitTimeSeconds=30
supportActingMaster=false
unRegisterBrokerQueueCapacity=3000
useEpollNativeSelector=false
waitSecondsForService=45
writeBufferHighWaterMark=0
writeBufferLowWaterMark=0
";

    #[test]
    fn every_line_of_the_original_is_there_and_the_others_are_ours() {
        let world = World::new().variable("ROCKETMQ_HOME", "/opt/rocketmq");
        let text = world.loaded().properties_text().replace(world.scratch.path().to_str().unwrap(), "HOME");
        let is_original = |line: &&str| {
            setting::find(line.split_once('=').unwrap().0).unwrap().origin == setting::Origin::Original
        };
        let mut originals: Vec<&str> = text.lines().filter(is_original).collect();
        // The original leaves TLS to properties of the JVM, which 319 does not show.
        originals.retain(|line| !line.starts_with("tls."));
        assert_eq!(originals, JAVA.lines().collect::<Vec<_>>());
        let mut sorted: Vec<&str> = text.lines().collect();
        sorted.sort_unstable();
        assert_eq!(text.lines().collect::<Vec<_>>(), sorted);
    }

    #[test]
    fn unset_values_are_left_out() {
        let lines = lines(&World::new().loaded());
        for key in ["rocketmqHome", "tls.server.certPath", "connectTimeoutMillis", "tls.server.keyPassword"] {
            assert!(!lines.contains_key(key), "{key}");
        }
        assert_eq!(lines["proxyProtocolTrusted"], "none");
    }

    #[test]
    fn the_store_path_is_the_file_as_in_the_original() {
        let world = World::new().file("c.properties", "configStorePath=/elsewhere\n");
        let path = world.file.clone().unwrap();
        assert_eq!(lines(&world.loaded())["configStorePath"], path.to_str().unwrap());
    }

    #[test]
    fn the_bound_port_replaces_port_0() {
        let mut configuration = World::new().flag("listenPort", "0").loaded();
        configuration.note_bound_port(40_123);
        assert_eq!(lines(&configuration)["listenPort"], "40123");
        let shown = configuration.show().into_iter().find(|row| row.key == "listenPort").unwrap();
        assert_eq!((shown.value.as_str(), shown.source), ("40123", Source::Flag("listenPort".to_owned())));
    }

    #[test]
    fn foreign_keys_keep_their_line_and_secrets_their_secret() {
        let world = World::new().file("c.properties", "my.key = a\\nlistenPort=1\nmyPassword = hunter2\n");
        let lines = lines(&world.loaded());
        assert_eq!(lines["my.key"], "a\nlistenPort=1");
        assert_eq!(lines["myPassword"], "******");
        assert_eq!(lines["listenPort"], "9876");
    }

    #[test]
    fn values_are_escaped_so_that_mqadmin_shows_them() {
        let file = "myPath = C:\\\\users\\\\temp\nmyWord = sch\\u00f6n\nmyTabs = \\ta\\tb\n";
        let text = World::new().file("c.properties", file).loaded().properties_text();
        assert!(text.contains("myPath=C:\\\\users\\\\temp\n"), "{text}");
        let shown: BTreeMap<_, _> = properties::parse(&text).unwrap().into_iter().collect();
        assert_eq!(shown["myPath"], "C:\\users\\temp");
        assert_eq!(shown["myWord"], "sch\u{f6}n");
        assert_eq!(shown["myTabs"], "\ta\tb");
        assert_eq!(properties::read_answer(&text).into_iter().collect::<BTreeMap<_, _>>(), shown);
    }

    #[test]
    fn the_text_can_be_read_as_a_file_of_the_original() {
        let text = World::new().loaded().properties_text();
        let again = World::new().file("c.properties", &text).loaded();
        assert_eq!(again.warnings(), []);
    }
}

mod answer_318 {
    use super::*;

    const NO_PERMISSION: i32 = 16;
    const SYSTEM_ERROR: i32 = 1;

    /// A refusal's code and remark; checks that it changed nothing.
    #[track_caller]
    fn refused(world: &World, body: &[u8]) -> (i32, String) {
        let mut configuration = world.loaded();
        let before = configuration.properties_text();
        let refusal = configuration.update(body).map(|_| ()).unwrap_err();
        assert_eq!(configuration.properties_text(), before);
        assert!(!world.runtime_path().exists());
        (refusal.code(), refusal.to_string())
    }

    #[test]
    fn accepted_values_are_in_force_in_319_and_after_a_restart() {
        let world = World::new().file("c.toml", "enable_topic_list = true\n");
        let mut configuration = world.loaded();
        let old = configuration.shared_settings();
        let change = configuration
            .update(b"# comment\nenableTopicList = FALSE\nbrokerExpireMillis : 100000\n")
            .unwrap();
        assert_eq!(
            change.values,
            [
                ChangedValue { key: "enableTopicList", before: "true".into(), after: "false".into() },
                ChangedValue { key: "brokerExpireMillis", before: "120000".into(), after: "100000".into() },
            ]
        );
        assert!(old.routes.topic_list);
        for configuration in [configuration, world.loaded()] {
            assert!(!configuration.settings().routes.topic_list);
            assert_eq!(configuration.settings().routes.broker_expire, Duration::from_secs(100));
            assert_eq!(lines(&configuration)["brokerExpireMillis"], "100000");
            let path: Arc<Path> = Arc::from(world.runtime_path());
            assert_eq!(
                source_of(&configuration, "brokerExpireMillis"),
                Source::Runtime { path, line: Some(4) }
            );
        }
        assert_eq!(fs::read_to_string(world.file.unwrap()).unwrap(), "enable_topic_list = true\n");
    }

    #[test]
    fn later_updates_keep_earlier_ones() {
        let world = World::new();
        let mut configuration = world.loaded();
        configuration.update(b"enableTopicList=false").unwrap();
        configuration.update(b"enableAllTopicList=false").unwrap();
        configuration.update(b"enableTopicList=true").unwrap();
        let routes = &world.loaded().shared_settings().routes;
        assert!(routes.topic_list && !routes.all_topic_list);
    }

    #[test]
    fn nothing_to_set_changes_and_writes_nothing() {
        let world = World::new();
        for body in [&b""[..], b"\n", b"# only a comment\n"] {
            let change = world.loaded().update(body).unwrap();
            assert_eq!(change, Change::default());
        }
        assert!(!world.runtime_path().exists());
    }

    #[test]
    fn a_key_of_the_originals_black_list_refuses_the_whole_request() {
        let world = World::new();
        for body in [
            "configStorePath=/tmp/x",
            "configStore\\u0050ath=/tmp/x",
            "config_store_path=/tmp/x",
            "kvConfigPath=/tmp/x",
            "rocketmqHome=/tmp/x",
            "configBlackList=",
            "enableTopicList=false\nkvConfigPath=/tmp/x",
            "noSuchKey=1\nenableTopicList=maybe\nkvConfigPath=/tmp/x",
        ] {
            let (code, remark) = refused(&world, body.as_bytes());
            assert_eq!(code, NO_PERMISSION, "{body}");
            assert!(remark.starts_with("Can not update config in black list."), "{remark}");
            assert!(remark.contains("set it in the configuration file and restart"), "{remark}");
        }
    }

    #[test]
    fn a_known_key_that_needs_a_restart_is_not_allowed() {
        for key in
            ["listenPort", "accessConfig", "serverWorkerThreads", "adminListen", "enableControllerInNamesrv"]
        {
            let (code, remark) = refused(&World::new(), format!("{key}=true").as_bytes());
            assert_eq!(code, NO_PERMISSION);
            assert_eq!(
                remark,
                format!(
                    "{key} can not be changed while running: set it in the configuration file and restart; nothing was \
                     changed"
                )
            );
        }
    }

    #[test]
    fn the_operators_black_list_is_obeyed() {
        let world = World::new().flag("configBlackList", "enableTopicList; brokerExpireMillis");
        for body in ["enableTopicList=false", "broker_expire_millis=100000", "configBlackList=x"] {
            assert_eq!(refused(&world, body.as_bytes()).0, NO_PERMISSION);
        }
        world.loaded().update(b"enableAllTopicList=false").unwrap();
    }

    #[test]
    fn unknown_keys_and_malformed_values_are_named() {
        let world = World::new();
        for (body, named) in [
            (
                &b"enableTopicLists=false"[..],
                "unknown key \"enableTopicLists\", did you mean \"enableTopicList\"",
            ),
            (b"zzz=1", "unknown key \"zzz\": nothing was changed"),
            (b"=1", "unknown key \"\""),
            (b"enableTopicList=maybe", "enableTopicList = \"maybe\": must be true or false"),
            (b"enableTopicList", "enableTopicList = \"\": must be true or false"),
            (b"brokerExpireMillis=-5", "brokerExpireMillis = \"-5\": must be a whole number of milliseconds"),
            (b"brokerExpireMillis=1e9", "brokerExpireMillis = \"1e9\""),
            (b"brokerExpireMillis=99999999999999999999", "brokerExpireMillis"),
            (b"enableTopicList=false\nbrokerExpireMillis=x", "brokerExpireMillis = \"x\""),
            (b"enableTopicList=\\u12", "string2Properties error: "),
            (b"\xff\xfe", "string2Properties error: the body is not UTF-8"),
        ] {
            let (code, remark) = refused(&world, body);
            assert_eq!(code, SYSTEM_ERROR, "{remark}");
            assert!(remark.contains(named), "{remark}");
        }
    }

    #[test]
    fn what_a_flag_or_the_environment_sets_cannot_be_changed_below_them() {
        let world =
            World::new().flag("enableTopicList", "true").variable("WAYPOST_ENABLE_ALL_TOPIC_LIST", "true");
        let (code, remark) = refused(&world, b"enableTopicList=false");
        assert_eq!(code, NO_PERMISSION);
        assert!(remark.contains("is set by flag enableTopicList"), "{remark}");
        let (_, remark) = refused(&world, b"enableAllTopicList=false");
        assert!(remark.contains("is set by environment variable WAYPOST_ENABLE_ALL_TOPIC_LIST"), "{remark}");
        world.loaded().update(b"enableTopicList=true").unwrap();
    }

    #[test]
    fn what_cannot_be_written_changes_nothing_and_names_the_path() {
        let world = World::new();
        let blocker = world.scratch.path().join("namesrv");
        fs::write(&blocker, "no folder").unwrap();
        let mut configuration = world.loaded();
        let refusal = configuration.update(b"enableTopicList=false").map(|_| ()).unwrap_err();
        assert_eq!(refusal.code(), SYSTEM_ERROR);
        assert!(refusal.to_string().contains(blocker.to_str().unwrap()), "{refusal}");
        assert!(configuration.settings().routes.topic_list);
    }

    #[test]
    fn a_runtime_file_that_cannot_be_read_stops_changes_and_not_the_start() {
        let world = World::new();
        fs::create_dir_all(world.runtime_path()).unwrap();
        let mut configuration = world.loaded();
        assert!(matches!(configuration.warnings(), [Warning::RuntimeUnreadable { .. }]));
        let refusal = configuration.update(b"enableTopicList=false").map(|_| ()).unwrap_err();
        assert!(refusal.to_string().contains("it is not written over"), "{refusal}");
        assert!(configuration.settings().routes.topic_list);
    }

    #[test]
    fn a_short_expiry_is_accepted_with_a_warning() {
        let change = World::new().loaded().update(b"brokerExpireMillis=1000").unwrap();
        assert_eq!(change.warnings[0], Warning::ShortExpiry { millis: 1_000 });
    }

    #[test]
    fn only_warnings_about_the_given_keys_are_answered() {
        let mut configuration = World::new().loaded();
        let change =
            configuration.update(b"brokerExpireMillis=300000\nscanNotActiveBrokerInterval=10500").unwrap();
        let noticed = Duration::from_millis(310_500);
        assert_eq!(change.warnings, [Warning::LongExpiry { millis: 300_000, noticed }]);
        assert!(
            change.warnings[0].to_string().contains("up to 310.5 s, not 125 s"),
            "{}",
            change.warnings[0]
        );
        assert_eq!(configuration.update(b"enableTopicList=false").unwrap().warnings, []);
        assert_eq!(configuration.update(b"brokerExpireMillis=120000").unwrap().warnings, []);
    }

    #[test]
    fn the_keys_that_change_while_running_are_these() {
        let mut live: Vec<&str> = setting::all().filter(|it| it.is_live()).map(|it| it.key).collect();
        live.sort_unstable();
        assert_eq!(
            live,
            [
                "addWritePermRestoresAnnounced",
                "brokerExpireMillis",
                "deleteTopicWithBrokerRegistration",
                "enableAllTopicList",
                "enableTopicList",
                "needWaitForService",
                "notifyMinBrokerIdChanged",
                "orderMessageEnable",
                "refuseBrokerNameInOtherCluster",
                "refuseMasterAddressChange",
                "returnOrderTopicConfigToBroker",
                "scanNotActiveBrokerInterval",
                "strictUnknownCluster",
                "supportActingMaster",
                "waitSecondsForService",
                "wipeSurvivesRegistration",
            ]
        );
    }

    #[test]
    fn every_live_key_can_be_set_and_comes_back_after_a_restart() {
        let world = World::new();
        for setting in setting::all().filter(|it| it.is_live()) {
            let value = match setting.default {
                "true" => "false".to_owned(),
                "false" => "true".to_owned(),
                number => (number.parse::<i64>().unwrap() + 1).to_string(),
            };
            world.loaded().update(format!("{}={value}", setting.key).as_bytes()).unwrap();
            assert_eq!(lines(&world.loaded())[setting.key], value);
        }
    }
}

mod documents {
    use super::*;

    /// Compares a committed document with what the code generates.
    #[track_caller]
    fn committed(name: &str, generated: &str, command: &str) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs").join(name);
        if std::env::var_os("UPDATE_DOCS").is_some() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, generated).unwrap();
        }
        let found = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            found == generated,
            "docs/{name} is not what the table of settings says; run `cargo run -p waypost -- {command} > docs/{name}`, \
             or this test with UPDATE_DOCS=1"
        );
    }

    #[test]
    fn the_committed_reference_is_what_the_table_says() {
        committed("configuration.md", &reference_markdown(), "config reference");
    }

    #[test]
    fn the_committed_example_is_what_the_table_says() {
        committed("waypost.example.toml", &example_toml(), "config example");
    }

    #[test]
    fn the_reference_names_every_key_once_as_a_heading_or_a_row() {
        let reference = reference_markdown();
        for setting in setting::all() {
            let heading = format!("\n### `{}`\n", setting.key);
            let row = format!("\n| `{}` |", setting.key);
            let count = reference.matches(&heading).count() + reference.matches(&row).count();
            assert_eq!(count, 1, "{}", setting.key);
        }
    }
}
