//! Version ordinals, which every header carries (`rocketmq-remoting` section 8.2).
//!
//! The number is a position in one long list of released and snapshot versions, not an encoded version.

/// 3.0.11: from here on a registration body is the register-body object, below it is a bare topic table.
pub const V3_0_11: i32 = 37;
/// 4.9.4: from here on callers get standard JSON from a route query.
pub const V4_9_4: i32 = 401;
/// 5.0.0: from here on a deflated registration carries static-topic mappings.
pub const V5_0_0: i32 = 413;
/// 5.3.1: callers above it understand [`GO_AWAY`](crate::code::response::GO_AWAY).
pub const V5_3_1: i32 = 475;
/// 5.5.0: the version that Waypost puts into its own headers.
pub const V5_5_0: i32 = 513;
/// The last position of the list; greater ordinals count as this one.
pub const HIGHER_VERSION: i32 = 612;

/// The version that an ordinal stands for, such as `5.5.0` or `4.9.4-SNAPSHOT`; `unknown (-3)` for a negative
/// one and `higher` from [`HIGHER_VERSION`] on.
#[must_use]
pub fn version_name(ordinal: i32) -> String {
    let Ok(number) = u32::try_from(ordinal) else { return format!("unknown ({ordinal})") };
    if ordinal >= HIGHER_VERSION {
        return String::from("higher");
    }
    // Each version takes two places, the snapshot first. The places before 3.0.1 are betas of 3.0.0.
    let (major, minor, patch, snapshot) = match number {
        0..=15 => (3, 0, 0, number != 15),
        16..=45 => place(3, 0, 1, number.saturating_sub(16)),
        46..=65 => place(3, 1, 0, number.saturating_sub(46)),
        66..=85 => place(3, 2, 0, number.saturating_sub(66)),
        86..=211 => {
            // Nine patches (1 to 9) in each of 3.3 to 3.9.
            let index = number.saturating_sub(86);
            place(3, 3_u32.saturating_add(index / 18), 1, index % 18)
        }
        _ => {
            let index = number.saturating_sub(212);
            place(4_u32.saturating_add(index / 200), (index % 200) / 20, 0, index % 20)
        }
    };
    format!("{major}.{minor}.{patch}{}", if snapshot { "-SNAPSHOT" } else { "" })
}

/// The version `offset` places after the snapshot of `major.minor.first`.
fn place(major: u32, minor: u32, first: u32, offset: u32) -> (u32, u32, u32, bool) {
    (major, minor, first.saturating_add(offset / 2), offset.is_multiple_of(2))
}

#[cfg(test)]
mod tests {
    use super::version_name;

    #[test]
    fn ordinals_name_the_versions_of_the_table() {
        let table = [
            (15, "3.0.0"),
            (17, "3.0.1"),
            (37, "3.0.11"),
            (45, "3.0.15"),
            (79, "3.2.6"),
            (121, "3.4.9"),
            (137, "3.5.8"),
            (211, "3.9.9"),
            (213, "4.0.0"),
            (277, "4.3.2"),
            (293, "4.4.0"),
            (317, "4.5.2"),
            (333, "4.6.0"),
            (399, "4.9.3"),
            (400, "4.9.4-SNAPSHOT"),
            (401, "4.9.4"),
            (409, "4.9.8"),
            (413, "5.0.0"),
            (441, "5.1.4"),
            (475, "5.3.1"),
            (479, "5.3.3"),
            (493, "5.4.0"),
            (513, "5.5.0"),
            (611, "5.9.9"),
            (612, "higher"),
            (9999, "higher"),
            (-1, "unknown (-1)"),
        ];
        for (ordinal, name) in table {
            assert_eq!(version_name(ordinal), name, "ordinal {ordinal}");
        }
    }
}
