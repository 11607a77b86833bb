//! The conditions that `wait --for` names.

use protocol::request::Until;
use protocol::{ActivityState, MessageId};
use regex::bytes::{Regex, RegexBuilder};

/// The conditions of one `--for`.
#[derive(Debug, Clone)]
pub(crate) struct Conditions(pub Vec<Condition>);

/// Something to wait for.
#[derive(Debug, Clone)]
pub(crate) struct Condition {
    /// As the user wrote it.
    pub word: String,
    pub kind: Kind,
}

/// The source that knows about a condition.
#[derive(Debug, Clone)]
pub(crate) enum Kind {
    /// `poold` is asked.
    Daemon(Until),
    /// The session's output is searched.
    Output(Pattern),
}

/// A regular expression; `^` and `$` match at the ends of a line.
#[derive(Debug, Clone)]
pub(crate) struct Pattern(pub Regex);

impl Conditions {
    /// Parses a list with commas. The rest after `output:` is one expression, commas included.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut conditions = Vec::new();
        let mut rest = Some(text);
        while let Some(text) = rest {
            let (word, more) = match text.split_once(',') {
                Some((word, more)) if !text.starts_with("output:") => (word, Some(more)),
                _ => (text, None),
            };
            conditions.push(Condition { word: word.to_owned(), kind: kind(word)? });
            rest = more;
        }
        Ok(Self(conditions))
    }
}

impl Pattern {
    /// Compiles an expression.
    pub(crate) fn new(expression: &str) -> Result<Self, String> {
        if expression.is_empty() {
            return Err("output: needs an expression".into());
        }
        RegexBuilder::new(expression).multi_line(true).build().map(Self).map_err(|error| error.to_string())
    }
}

fn kind(word: &str) -> Result<Kind, String> {
    if let Some(expression) = word.strip_prefix("output:") {
        return Pattern::new(expression).map(Kind::Output);
    }
    if let Some(id) = word.strip_prefix("message:") {
        let id = id.parse::<MessageId>().map_err(|error| error.to_string())?;
        return Ok(Kind::Daemon(Until::Message(id)));
    }
    Ok(Kind::Daemon(match word {
        "idle" => Until::Activity(ActivityState::Idle),
        "busy" => Until::Activity(ActivityState::Busy),
        "attention" => Until::Activity(ActivityState::Attention),
        "error" => Until::Activity(ActivityState::Error),
        "started" => Until::Started,
        "ready" => Until::Ready,
        "exit" => Until::Exit,
        "queue-empty" => Until::QueueEmpty,
        _ => {
            return Err(
                "one of idle, busy, attention, error, started, ready, exit, queue-empty, message:ID, \
                        output:REGEX"
                    .into(),
            );
        }
    }))
}

/// The conditions about output, with their positions.
pub(crate) fn patterns(conditions: &[Condition]) -> Vec<(usize, Pattern)> {
    let pattern = |(at, condition): (usize, &Condition)| match &condition.kind {
        Kind::Output(pattern) => Some((at, pattern.clone())),
        Kind::Daemon(_) => None,
    };
    conditions.iter().enumerate().filter_map(pattern).collect()
}

/// The conditions that `poold` is asked about. Those about the session's end go first: `poold` refuses a wait
/// for an activity that cannot come any more.
pub(crate) fn untils(conditions: &[Condition]) -> Vec<Until> {
    let until = |condition: &Condition| match &condition.kind {
        Kind::Daemon(until) => Some(until.clone()),
        Kind::Output(_) => None,
    };
    let mut untils: Vec<Until> = conditions.iter().filter_map(until).collect();
    untils.sort_by_key(|until| matches!(until, Until::Activity(_)));
    untils
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_must_be_one() {
        assert!(Pattern::new("").is_err() && Pattern::new("(").is_err());
    }
}
