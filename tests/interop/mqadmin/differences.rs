//! Every difference between the original and Waypost that an operator sees in mqadmin, and why it is wanted.

/// Lines that one side prints and the other does not.
#[derive(Debug)]
pub(super) struct Difference {
    /// Start of the command.
    command: &'static str,
    /// Starts of the lines, with their mark: `-` only the original prints it, `+` only Waypost.
    lines: &'static [&'static str],
    /// Why. For the reader, and for the message about entries that nothing needs.
    #[allow(dead_code, reason = "read by people, and by Debug")]
    reason: &'static str,
}

/// All of them. An entry that nothing needs any more fails the test.
pub(super) const INTENDED: &[Difference] = &[
    Difference {
        command: "getNamesrvConfig",
        lines: &["+ "],
        reason: "319 answers every effective value, so Waypost's own keys stand beside the original's, which are \
                 all there with the same values",
    },
    Difference {
        command: "updateNamesrvConfig -n {ns} -k kvConfigPath",
        lines: &[
            "- Caused by: org.apache.rocketmq.client.exception.MQClientException: CODE: 16 DESC: Can not update config",
            "+ Caused by: org.apache.rocketmq.client.exception.MQClientException: CODE: 16 DESC: Can not update config \
             in black list. kvConfigPath: ",
        ],
        reason: "the same refusal (318, a key that cannot change while running), but the remark names the key and \
                 says what to do",
    },
    Difference {
        command: "updateNamesrvConfig -n {ns} -k noSuchKey",
        lines: REFUSED,
        reason: "the original reports success for an unknown key and changes nothing; Waypost refuses the request \
                 and names the key",
    },
    Difference {
        command: "updateNamesrvConfig -n {ns} -k waitSecondsForService -v many",
        lines: REFUSED,
        reason: "the original reports success for a malformed value and changes nothing; Waypost refuses the request \
                 and says what the value must be",
    },
];

/// How mqadmin shows success on the original and code 1 on Waypost.
const REFUSED: &[&str] = &[
    "- update name server config success!",
    "- noSuchKey : 1",
    "- waitSecondsForService : many",
    "+ org.apache.rocketmq.tools.command.SubCommandException: UpdateNamesrvConfigCommand command failed",
    "+ Caused by: org.apache.rocketmq.client.exception.MQClientException: CODE: 1 DESC: unknown key \"noSuchKey\"",
    "+ Caused by: org.apache.rocketmq.client.exception.MQClientException: CODE: 1 DESC: waitSecondsForService = \"many\"",
    "+ For more information, please visit the url",
];

/// Whether `line` is an intended difference of `command`; remembers which entries were needed.
pub(super) fn intended(command: &str, line: &str, used: &mut [bool]) -> bool {
    let mut is_intended = false;
    for (entry, used) in INTENDED.iter().zip(used) {
        if command.starts_with(entry.command) && entry.lines.iter().any(|start| line.starts_with(start)) {
            *used = true;
            is_intended = true;
        }
    }
    is_intended
}
