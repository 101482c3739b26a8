//! Which members a reader of an object knows.

/// Declares an enum of the members that a reader of an object knows.
///
/// Keys are matched exactly first, and then as fastjson does: without regard to case, `-` and `_`.
macro_rules! declare {
    ($name:ident { $($variant:ident = $key:literal),+ $(,)? }) => {
        #[derive(Clone, Copy)]
        enum $name { $($variant,)+ Unknown }

        impl $name {
            #[inline]
            fn of(key: &str) -> Self {
                match key {
                    $($key => Self::$variant,)+
                    _ => Self::similar(key),
                }
            }

            #[cold]
            fn similar(key: &str) -> Self {
                $(if $crate::json::members::is_similar(key, $key) { return Self::$variant; })+
                Self::Unknown
            }
        }
    };
}

pub(crate) use declare;

/// Whether two keys differ only in case, `-` and `_`.
pub(crate) fn is_similar(key: &str, known: &str) -> bool {
    simple(key).eq(simple(known))
}

fn simple(key: &str) -> impl Iterator<Item = u8> {
    key.bytes().filter(|byte| !matches!(byte, b'-' | b'_')).map(|byte| byte.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::is_similar;

    #[test]
    fn similar_keys_differ_in_case_and_separators_only() {
        for key in ["topicName", "TOPIC_NAME", "topic-name", "topicname", "_topic_Name-"] {
            assert!(is_similar(key, "topicName"), "{key}");
        }
        for key in ["", "topic", "topicNames", "topic.name", "tópicName"] {
            assert!(!is_similar(key, "topicName"), "{key}");
        }
    }
}
