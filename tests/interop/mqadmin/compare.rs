//! What an operator sees of an output, freed from what changes with every run.

/// How an output is looked at.
#[derive(Debug, Clone, Copy)]
pub(super) enum View {
    /// Every line.
    Lines,
    /// A table: the first columns; the rest are measured values.
    Table(usize),
    /// `key : value`: the keys; the values are measured.
    Keys,
}

/// The lines that an operator sees, without addresses that differ, without the order of lists.
pub(super) fn visible(view: View, text: &str, addresses: &[(&str, String)]) -> Vec<String> {
    let mut text = without_homes(text);
    for (name, address) in addresses {
        text = text.replace(address.as_str(), &format!("<{name}>"));
        if let Some((_, port)) = address.rsplit_once(':') {
            text = text.replace(port, &format!("<port of {name}>"));
        }
    }
    let mut lines: Vec<String> =
        text.lines().filter(|line| !is_stack_frame(line)).filter_map(|line| seen(view, line)).collect();
    lines.sort();
    lines
}

/// Lines that only one side has: `-` for the original, `+` for the server under test.
pub(super) fn differences(original: &[String], server: &[String]) -> Vec<String> {
    let only = |mark: char, these: &[String], those: &[String]| {
        let mut others = those.to_vec();
        let mut found = Vec::new();
        for line in these {
            match others.iter().position(|other| other == line) {
                Some(position) => drop(others.swap_remove(position)),
                None => found.push(format!("{mark} {line}")),
            }
        }
        found
    };
    let mut found = only('-', original, server);
    found.extend(only('+', server, original));
    found
}

/// Where in mqadmin an error came up is no business of the server.
fn is_stack_frame(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("at ") || (line.starts_with("... ") && line.ends_with(" more"))
}

fn seen(view: View, line: &str) -> Option<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let line = match view {
        View::Lines => words.join(" "),
        // Headings start with a hash sign.
        View::Table(columns) if !line.starts_with('#') => words[..words.len().min(columns)].join(" "),
        View::Table(_) => words.join(" "),
        View::Keys => line.split(':').next()?.split_whitespace().collect::<Vec<_>>().join(" "),
    };
    // The last element of a list has no comma, and which one is the last is free.
    let line = line.trim_end_matches(',').to_owned();
    Some(without_time(&line)).filter(|line| !line.is_empty())
}

/// Replaces the temporary home folders of the servers by a mark.
fn without_homes(text: &str) -> String {
    let start = std::env::temp_dir().join("waypost-").display().to_string();
    let mut parts = text.split(start.as_str());
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let rest = part.find(['/', '\n']).map_or("", |end| &part[end..]);
        text + "<home>" + rest
    })
}

/// Replaces what looks like the date and time of day by a mark.
fn without_time(line: &str) -> String {
    let words = line.split(' ').map(|word| {
        let digits = word.chars().filter(char::is_ascii_digit).count();
        let marks = word.chars().filter(|letter| matches!(letter, '-' | ':' | ',')).count();
        let is_time = digits >= 6 && marks >= 2 && digits + marks == word.chars().count();
        if is_time { "<time>" } else { word }
    });
    words.collect::<Vec<_>>().join(" ")
}
