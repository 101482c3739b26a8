//! From the text of a value to its type and back.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use waypost_net::host_names::HostNames;
use waypost_net::network::NetworkList;

use super::setting::{Kind, Setting, Unit};

/// A type that a setting can have.
pub(crate) trait Typed: Sized {
    /// What its text must be.
    const KIND: Kind;

    /// Reads a text; the error says what it must be.
    fn parse(setting: &Setting, text: &str) -> Result<Self, String>;

    /// The canonical text, as 319 and `config show` print it.
    fn text(&self, setting: &Setting) -> String;
}

/// Reads a text and writes it again: the `check` of a setting of type `T`.
pub(crate) fn canonical<T: Typed>(setting: &Setting, text: &str) -> Result<String, String> {
    T::parse(setting, text).map(|value| value.text(setting))
}

fn number(setting: &Setting, text: &str) -> Result<i64, String> {
    let (least, most) = setting.bounds;
    let of = match setting.unit {
        Unit::Plain => "",
        Unit::Milliseconds => " of milliseconds",
        Unit::Seconds => " of seconds",
        Unit::Bytes => " of bytes",
    };
    text.trim()
        .parse::<i64>()
        .ok()
        .filter(|number| (least..=most).contains(number))
        .ok_or_else(|| format!("must be a whole number{of} from {least} to {most}"))
}

macro_rules! typed_numbers {
    ($($type:ty),+) => { $(
        impl Typed for $type {
            const KIND: Kind = Kind::Integer;

            fn parse(setting: &Setting, text: &str) -> Result<Self, String> {
                let number = number(setting, text)?;
                Self::try_from(number).map_err(|_| format!("must be at most {}", Self::MAX))
            }

            fn text(&self, _: &Setting) -> String {
                self.to_string()
            }
        }
    )+ };
}

typed_numbers!(u16, u32, usize, i64);

impl Typed for Duration {
    const KIND: Kind = Kind::Integer;

    fn parse(setting: &Setting, text: &str) -> Result<Self, String> {
        let number = u64::try_from(number(setting, text)?).map_err(|_| "must not be negative".to_owned())?;
        Ok(if setting.unit == Unit::Seconds { Self::from_secs(number) } else { Self::from_millis(number) })
    }

    fn text(&self, setting: &Setting) -> String {
        if setting.unit == Unit::Seconds { self.as_secs().to_string() } else { self.as_millis().to_string() }
    }
}

impl Typed for bool {
    const KIND: Kind = Kind::Switch;

    fn parse(_: &Setting, text: &str) -> Result<Self, String> {
        match text.trim().to_ascii_lowercase().as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err("must be true or false".to_owned()),
        }
    }

    fn text(&self, _: &Setting) -> String {
        self.to_string()
    }
}

impl Typed for String {
    const KIND: Kind = Kind::Text;

    fn parse(_: &Setting, text: &str) -> Result<Self, String> {
        // 319 is one line a key: a value of two lines would forge another key.
        if text.chars().any(char::is_control) {
            return Err("must be one line without control characters".to_owned());
        }
        Ok(text.trim().to_owned())
    }

    fn text(&self, _: &Setting) -> String {
        self.clone()
    }
}

impl Typed for PathBuf {
    const KIND: Kind = Kind::Path;

    fn parse(setting: &Setting, text: &str) -> Result<Self, String> {
        let text = String::parse(setting, text)?;
        if text.is_empty() { Err("must be the path of a file".to_owned()) } else { Ok(Self::from(text)) }
    }

    fn text(&self, _: &Setting) -> String {
        self.to_string_lossy().into_owned()
    }
}

impl Typed for Option<PathBuf> {
    const KIND: Kind = Kind::Path;

    fn parse(setting: &Setting, text: &str) -> Result<Self, String> {
        let text = String::parse(setting, text)?;
        Ok(if text.is_empty() { None } else { Some(PathBuf::from(text)) })
    }

    fn text(&self, setting: &Setting) -> String {
        self.as_ref().map_or_else(String::new, |path| path.text(setting))
    }
}

impl Typed for IpAddr {
    const KIND: Kind = Kind::Address;

    fn parse(_: &Setting, text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.eq_ignore_ascii_case("localhost") {
            return Ok(Self::V4(Ipv4Addr::LOCALHOST));
        }
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        bare.parse().map_err(|_| "must be an IP address such as 0.0.0.0, 10.0.0.5 or ::".to_owned())
    }

    fn text(&self, _: &Setting) -> String {
        self.to_string()
    }
}

impl Typed for Option<SocketAddr> {
    const KIND: Kind = Kind::Endpoint;

    fn parse(_: &Setting, text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.is_empty() || text.eq_ignore_ascii_case("off") {
            return Ok(None);
        }
        let text = text.replacen("localhost:", "127.0.0.1:", 1);
        SocketAddr::from_str(&text)
            .map(Some)
            .map_err(|_| "must be an address and a port such as 127.0.0.1:9880, or off".to_owned())
    }

    fn text(&self, _: &Setting) -> String {
        self.map_or_else(|| "off".to_owned(), |endpoint| endpoint.to_string())
    }
}

impl Typed for NetworkList {
    const KIND: Kind = Kind::Networks;

    fn parse(_: &Setting, text: &str) -> Result<Self, String> {
        text.parse::<Self>().map_err(|error| error.to_string())
    }

    fn text(&self, _: &Setting) -> String {
        self.to_string()
    }
}

impl Typed for HostNames {
    const KIND: Kind = Kind::Hosts;

    fn parse(_: &Setting, text: &str) -> Result<Self, String> {
        text.parse::<Self>().map_err(|error| error.to_string())
    }

    fn text(&self, _: &Setting) -> String {
        self.to_string()
    }
}

macro_rules! choices {
    ($( $(#[$about:meta])+ $name:ident { $( $(#[$meaning:meta])+ $variant:ident = $word:literal ),+ $(,)? } )+) => { $(
        $(#[$about])+
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum $name { $( $(#[$meaning])+ $variant ),+ }

        impl $name {
            /// The word that stands for it in configuration.
            #[must_use]
            pub fn word(self) -> &'static str {
                match self { $( Self::$variant => $word ),+ }
            }
        }

        impl Typed for $name {
            const KIND: Kind = Kind::Choice(&[$( $word ),+]);

            fn parse(_: &Setting, text: &str) -> Result<Self, String> {
                match text.trim().to_ascii_lowercase().as_str() {
                    $( $word => Ok(Self::$variant), )+
                    _ => Err(format!("must be one of {}", [$( $word ),+].join(", "))),
                }
            }

            fn text(&self, _: &Setting) -> String {
                self.word().to_owned()
            }
        }
    )+ };
}

choices! {
    /// Whether connections use TLS (spec 4.3).
    TlsMode {
        /// A TLS handshake closes the connection.
        Disabled = "disabled",
        /// TLS and plain text on one port.
        Permissive = "permissive",
        /// A plain connection is closed.
        Enforcing = "enforcing",
    }
    /// Whether TLS clients show a certificate (spec 4.3).
    ClientAuth {
        /// Certificates of clients are not asked for.
        None = "none",
        /// A certificate is checked where the client shows one.
        Optional = "optional",
        /// A client without a certificate is refused.
        Require = "require",
    }
    /// The form of log lines.
    LogFormat {
        /// One line of text an event.
        Text = "text",
        /// One JSON object an event.
        Json = "json",
    }
    /// The least severe events that are logged.
    LogLevel {
        /// What needs an operator.
        Error = "error",
        /// Also what is degraded.
        Warn = "warn",
        /// Also lifecycle and topology.
        Info = "info",
        /// Also what helps to find a fault.
        Debug = "debug",
        /// Everything.
        Trace = "trace",
    }
}
