//! The messages that the commands of `queue` are about.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use protocol::{MessageId, MessageState};

use crate::args::kind;

/// The states of a message that is final.
pub(super) const FINAL: [&str; 4] = ["dead", "done", "cancelled", "expired"];
/// All states of a message.
pub(super) const STATES: [&str; 11] = [
    "queued",
    "claimed",
    "typing",
    "typed",
    "accepted",
    "in_doubt",
    "revoking",
    "done",
    "dead",
    "cancelled",
    "expired",
];

/// Parses one of these states.
pub(super) fn state(words: &'static [&'static str]) -> impl TypedValueParser<Value = MessageState> {
    PossibleValuesParser::new(words).try_map(|word| serde_json::from_value(word.into()))
}

/// Messages given by their ids, or all of a state by a flag.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Selection {
    /// The messages
    #[arg(value_name = "ID")]
    pub ids: Vec<MessageId>,
    /// All of this kind that wait, or with the flag those of them; may be repeated
    #[arg(long, value_parser = kind, conflicts_with = "ids")]
    pub kind: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_can_be_asked_for() {
        let state = |word: &str| serde_json::from_value::<MessageState>(word.into()).unwrap();
        assert!(FINAL.iter().all(|word| state(word).is_final()));
        assert_eq!(STATES.iter().filter(|word| state(word).is_final()).count(), FINAL.len());
    }
}
