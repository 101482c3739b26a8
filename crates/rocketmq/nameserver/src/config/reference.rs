//! The reference and the example file, generated from the table.

use std::fmt::Write as _;

use super::setting::{self, Effect, Kind, Origin, Setting};
use super::table::SECTIONS;
use super::update::toml_key;

/// `docs/configuration.md`: every key, from the table. `waypost config reference` prints it.
#[must_use]
pub fn reference_markdown() -> String {
    let mut out = String::from(INTRODUCTION);
    for (title, about) in SECTIONS {
        let _ = write!(out, "\n## {title}\n\n{}\n", paragraph(about));
        for setting in setting::all().filter(|setting| setting.section == *title) {
            entry(&mut out, setting);
        }
    }
    out.push_str(IGNORED);
    for effect in [Effect::Ignored, Effect::IgnoredUnlessSet] {
        out.push_str(match effect {
            Effect::Ignored => "\nReported by request 319 with their defaults, as by the original:\n",
            _ => "\nReported by request 319 only where a file sets them:\n",
        });
        out.push_str("\n| key | default | why it does nothing |\n| --- | --- | --- |\n");
        for setting in setting::all().filter(|setting| setting.effect == effect) {
            let _ = writeln!(
                out,
                "| `{}` | {} | {} |",
                setting.key,
                default_shown(setting),
                paragraph(setting.doc)
            );
        }
    }
    out
}

/// `docs/waypost.example.toml`: every key that acts, commented out, with its default.
#[must_use]
pub fn example_toml() -> String {
    let mut out = String::from(EXAMPLE_INTRODUCTION);
    for (title, about) in SECTIONS {
        let _ = write!(out, "\n# ---- {title} ----\n{}", comment(&paragraph(about)));
        for setting in setting::all().filter(|setting| setting.section == *title) {
            let _ = write!(out, "\n{}", comment(&paragraph(setting.doc)));
            if let Some(bounds) = bounds(setting) {
                out.push_str(&comment(&bounds));
            }
            let _ = writeln!(out, "#{} = {}", example_key(setting), toml_default(setting));
        }
    }
    out
}

const INTRODUCTION: &str = "\
# Configuration

<!-- Generated from the table of settings: `waypost config reference` prints this file. -->

`waypost serve` needs no configuration. Where a value is needed it is taken from, the highest first:

1. flags: `--listen-port 9877`, or `--set KEY=VALUE` for any key;
2. the environment: `WAYPOST_` and the key in capitals, `WAYPOST_LISTEN_PORT=9877`; an empty variable counts as
   not set. `ROCKETMQ_HOME` sets `rocketmqHome`;
3. `runtime.toml` beside the KV file: what was changed while the server ran (`waypost config set`,
   `mqadmin updateNamesrvConfig`);
4. the file that `-c` names: TOML, or a `.properties` file of the Java NameServer as it is. The name decides
   (`*.toml`, `*.properties`); for other names the content does;
5. the default.

`waypost config check -c FILE` says everything that is wrong with a file, `waypost config show` prints every value
with its source.

TOML takes keys in the original's spelling (`listenPort`) and in snake case (`listen_port`); dotted keys are written
in quotes (`\"tls.server.mode\"`), as tables (`[tls.server]`, then `mode`) or in snake case (`tls_server_mode`).
An unknown key stops the start. In a `.properties` file it is warned about once and otherwise left alone, and
request 319 lists it. Numbers have the unit that is given with the key, in every source.

Lists of networks hold addresses and networks separated by commas (`10.0.0.0/8,::1`), and the words `loopback`,
`private`, `any` and `none`; in TOML also as a list of texts.

\"live\" marks keys that request 318 may change while the server runs; the change is in `runtime.toml` and in force
before it is answered. All others come into force at the next start, and 318 refuses them with code 16.
";

const IGNORED: &str = "
## Accepted, no effect

Files of the Java NameServer set these. They are accepted and do nothing here, for the reason given.
";

const EXAMPLE_INTRODUCTION: &str = "\
# An example for `waypost serve -c waypost.toml`. Every key has its default here; take the ones that you change.
# The same keys in the original's spelling (listenPort) and .properties files of the Java NameServer are read too.
# All keys, sources and their order: docs/configuration.md.
";

fn entry(out: &mut String, setting: &Setting) {
    let _ = write!(out, "\n### `{}`\n\n{}\n\n", setting.key, paragraph(setting.doc));
    let mut facts = vec![format!("default {}", default_shown(setting))];
    facts.push(match setting.kind {
        Kind::Choice(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
        kind => bounds(setting).unwrap_or_else(|| kind.label().to_owned()),
    });
    facts.push(format!("TOML `{}`", setting.alias()));
    facts.push(format!("`{}`", setting.environment_name()));
    if setting.is_live() {
        facts.push("**live**".to_owned());
    }
    if setting.origin == Origin::Own {
        facts.push("only in Waypost".to_owned());
    }
    let _ = writeln!(out, "{}", facts.join(" · "));
}

fn bounds(setting: &Setting) -> Option<String> {
    if setting.kind != Kind::Integer {
        return None;
    }
    let (least, most) = setting.bounds;
    let unit = setting.unit.label();
    let space = if unit.is_empty() { "" } else { " " };
    Some(format!("{least} to {most}{space}{unit}"))
}

fn default_shown(setting: &Setting) -> String {
    if setting.default.is_empty() { "none".to_owned() } else { format!("`{}`", setting.default) }
}

/// The lines of a doc comment as one paragraph.
fn paragraph(doc: &str) -> String {
    doc.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A text as comment lines of at most 100 characters.
fn comment(text: &str) -> String {
    const WIDTH: usize = 98;
    let mut out = String::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && line.len() + 1 + word.len() > WIDTH {
            let _ = writeln!(out, "# {line}");
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if !line.is_empty() {
        let _ = writeln!(out, "# {line}");
    }
    out
}

/// Keys with dots keep the original's spelling, which is how the field knows them.
fn example_key(setting: &Setting) -> String {
    if setting.key.contains('.') { toml_key(setting.key) } else { setting.alias() }
}

fn toml_default(setting: &Setting) -> String {
    match setting.kind {
        Kind::Switch | Kind::Integer => setting.default.to_owned(),
        _ => toml::Value::from(setting.default).to_string(),
    }
}
