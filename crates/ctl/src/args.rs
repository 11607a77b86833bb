//! Arguments that several verbs take, and the parsers of their values.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};
use protocol::ids::OP_ID_MAX;
use protocol::message::KIND_MAX;

use crate::Error;
use crate::show::time;

/// Flags of every verb.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// The pool [env: POOL_NAME] [default: default]
    #[arg(long, global = true, value_name = "NAME")]
    pub pool: Option<OsString>,
    /// The socket of poold [env: POOL_SOCKET]
    #[arg(long, global = true, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Print JSON: one document, or one per line
    #[arg(long, global = true)]
    pub json: bool,
    /// Print only what a script needs
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Print more on standard error
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,
    /// Time limit for an answer; 0 or off: none [default: 10s; off for verbs that wait or follow]
    #[arg(long, global = true, value_name = "DUR", value_parser = limit)]
    pub timeout: Option<Limit>,
    /// Colours; auto also respects NO_COLOR
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub color: Colour,
}

/// The use of colours; `Auto` means on a terminal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Colour {
    #[default]
    Auto,
    Always,
    Never,
}

/// A limit on waiting; `None` is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limit(pub Option<Duration>);

fn limit(text: &str) -> Result<Limit, String> {
    if text == "off" {
        return Ok(Limit(None));
    }
    time::parse_duration(text).map(|duration| Limit(Some(duration).filter(|d| !d.is_zero())))
}

/// The operation id of a change, which makes repeating the command safe.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Repeat {
    /// Id of this operation: repeating it under the same id changes nothing and gives the same answer
    #[arg(long, value_name = "ID", value_parser = op_id)]
    pub op_id: Option<String>,
}

fn op_id(text: &str) -> Result<String, String> {
    let fits = (1..=OP_ID_MAX).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
    if fits {
        Ok(text.to_owned())
    } else {
        Err(format!("1 to {OP_ID_MAX} printable ASCII characters without blanks"))
    }
}

/// Parses `KEY=VALUE`.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write it like KEY=VALUE")?;
    if key.is_empty() { Err("the key is empty".into()) } else { Ok((key.to_owned(), value.to_owned())) }
}

/// Returns the labels that sessions must have, or get.
///
/// # Errors
/// Usage: two values for one label, which no session can have.
pub(crate) fn labels(labels: &[(String, String)]) -> Result<BTreeMap<String, String>, Error> {
    let mut all = BTreeMap::new();
    for (key, value) in labels {
        if let Some(before) = all.insert(key.clone(), value.clone()).filter(|before| before != value) {
            let why = format!("no session has two values of a label: {key}={before} and {key}={value}");
            return Err(Error::usage(why));
        }
    }
    Ok(all)
}

/// Parses the kind of a message.
pub(crate) fn kind(text: &str) -> Result<String, String> {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-';
    let fits = (1..=KIND_MAX).contains(&text.len()) && text.bytes().all(allowed);
    if fits && !text.starts_with(['_', '-']) {
        Ok(text.to_owned())
    } else {
        Err(format!("1 to {KIND_MAX} of a-z, 0-9, '_' and '-', the first a letter or digit"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_limit_has_two_spellings() {
        assert_eq!(limit("0"), Ok(Limit(None)));
        assert_eq!(limit("off"), Ok(Limit(None)));
        assert_eq!(limit("1m"), Ok(Limit(Some(Duration::from_secs(60)))));
    }

    #[test]
    fn operation_ids_have_a_rule() {
        assert!(op_id(&"x".repeat(64)).is_ok());
        assert!(
            op_id("").is_err()
                && op_id("a b").is_err()
                && op_id(&"x".repeat(65)).is_err()
                && op_id("é").is_err()
        );
    }

    #[test]
    fn a_label_has_one_value() {
        let found = |text: &[&str]| labels(&text.iter().map(|one| pair(one).unwrap()).collect::<Vec<_>>());
        assert_eq!(found(&["a=1", "b=", "a=1"]).unwrap().len(), 2);
        assert!(found(&["a=1", "b=", "a=2"]).unwrap_err().to_string().ends_with("a=1 and a=2"));
    }
}
