//! The language of a peer, which every header carries (`rocketmq-remoting` section 8.1).

/// What a peer says that it is written in. Nothing on the way of a NameServer depends on it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Language {
    /// Java; also what a JSON header without the member means.
    #[default]
    Java,
    /// C++.
    Cpp,
    /// .NET.
    Dotnet,
    /// Python.
    Python,
    /// Delphi.
    Delphi,
    /// Erlang.
    Erlang,
    /// Ruby.
    Ruby,
    /// None of the list.
    Other,
    /// An HTTP gateway.
    Http,
    /// Go.
    Go,
    /// PHP.
    Php,
    /// OpenMessaging.
    Oms,
    /// Rust; unknown to peers older than it.
    Rust,
    /// Node.js; unknown to peers older than it.
    NodeJs,
    /// A name or number that is not in the list. Written as `OTHER`.
    Unknown,
}

impl Language {
    /// All languages that have a number, in the order of their numbers.
    const ALL: [Self; 14] = [
        Self::Java,
        Self::Cpp,
        Self::Dotnet,
        Self::Python,
        Self::Delphi,
        Self::Erlang,
        Self::Ruby,
        Self::Other,
        Self::Http,
        Self::Go,
        Self::Php,
        Self::Oms,
        Self::Rust,
        Self::NodeJs,
    ];

    /// The language with this number in a binary header, or with this ordinal in a JSON one.
    #[must_use]
    pub fn from_number(number: i64) -> Self {
        usize::try_from(number).ok().and_then(|index| Self::ALL.get(index)).copied().unwrap_or(Self::Unknown)
    }

    /// The language with this name in a JSON header; case does not matter.
    #[must_use]
    pub fn from_name(name: &str) -> Self {
        if name == "JAVA" {
            return Self::Java;
        }
        Self::ALL
            .into_iter()
            .find(|language| language.name().eq_ignore_ascii_case(name))
            .unwrap_or(Self::Unknown)
    }

    /// The number in a binary header.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::Java => 0,
            Self::Cpp => 1,
            Self::Dotnet => 2,
            Self::Python => 3,
            Self::Delphi => 4,
            Self::Erlang => 5,
            Self::Ruby => 6,
            Self::Other | Self::Unknown => 7,
            Self::Http => 8,
            Self::Go => 9,
            Self::Php => 10,
            Self::Oms => 11,
            Self::Rust => 12,
            Self::NodeJs => 13,
        }
    }

    /// The name in a JSON header.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Java => "JAVA",
            Self::Cpp => "CPP",
            Self::Dotnet => "DOTNET",
            Self::Python => "PYTHON",
            Self::Delphi => "DELPHI",
            Self::Erlang => "ERLANG",
            Self::Ruby => "RUBY",
            Self::Other | Self::Unknown => "OTHER",
            Self::Http => "HTTP",
            Self::Go => "GO",
            Self::Php => "PHP",
            Self::Oms => "OMS",
            Self::Rust => "RUST",
            Self::NodeJs => "NODE_JS",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Language;

    #[test]
    fn names_and_numbers_are_each_others_inverse() {
        for (number, language) in (0..).zip(Language::ALL) {
            assert_eq!(i64::from(language.number()), number);
            assert_eq!(Language::from_number(number), language);
            assert_eq!(Language::from_name(language.name()), language);
            assert_eq!(Language::from_name(&language.name().to_lowercase()), language);
        }
        assert_eq!(Language::from_number(-1), Language::Unknown);
        assert_eq!(Language::from_number(14), Language::Unknown);
        assert_eq!(Language::from_name("COBOL"), Language::Unknown);
    }
}
