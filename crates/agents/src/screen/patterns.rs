//! Description of an agent's screen by regular expressions, as in the configuration.

use std::fmt;
use std::str::FromStr;

use protocol::Timestamp;
use protocol::bounds::cut_question;
use regex::{Captures, Regex, RegexBuilder};

use super::{Composer, Dialog, Screen, aider};
use crate::adapter::Adapter;

/// The longest expression, in bytes.
const PATTERN_MAX: usize = 1024;
/// The largest compiled size of an expression, in bytes.
const COMPILED_MAX: usize = 1 << 20;

/// A regular expression in which `^` and `$` match at the ends of lines.
#[derive(Debug, Clone)]
pub struct Pattern(Regex);

impl FromStr for Pattern {
    type Err = String;

    fn from_str(expression: &str) -> Result<Self, String> {
        if expression.is_empty() || expression.len() > PATTERN_MAX {
            return Err(format!("a pattern has 1 to {PATTERN_MAX} bytes"));
        }
        let built = RegexBuilder::new(expression).multi_line(true).size_limit(COMPILED_MAX).build();
        built.map(Self).map_err(|error| error.to_string())
    }
}

impl Pattern {
    /// True if it contains a capture group, `(…)`.
    pub fn has_group(&self) -> bool {
        self.0.captures_len() > 1
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl Eq for Pattern {}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}

/// The description of an agent's screen, matched against its text without colours, trailing blanks and empty
/// last lines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Patterns {
    /// The composer; its last group matches the text in it. Of several matches the last one counts.
    pub composer: Option<Pattern>,
    /// A sign that the agent is working.
    pub works: Option<Pattern>,
    /// A question in the composer's place.
    pub dialog: Option<Pattern>,
    /// Background work, described by the last group or, without groups, by the whole match.
    pub background: Option<Pattern>,
}

/// A reading of an agent's screen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScreenReading {
    /// Time of the reading.
    pub at: Timestamp,
    /// The composer, in which prompts are typed.
    pub composer: Composer,
    /// The open dialog.
    pub dialog: Option<Dialog>,
    /// True if the agent is working; none if the screen does not tell.
    pub works: Option<bool>,
    /// The agent's background work.
    pub background: Option<String>,
}

impl Patterns {
    /// Returns the built-in description of an agent's screen; empty for agents that have code instead, and
    /// for [`Adapter::None`].
    pub fn of(adapter: Adapter) -> Self {
        if adapter == Adapter::Aider { aider::patterns() } else { Self::default() }
    }

    /// True if the composer is described.
    pub fn has_composer(&self) -> bool {
        self.composer.is_some()
    }

    /// Reads a screen. `cursor` is the row of the terminal's cursor, from 0.
    pub fn read(&self, screen: &Screen, cursor: u16, at: Timestamp) -> ScreenReading {
        let text = screen.texts[..screen.bottom().map_or(0, |bottom| bottom + 1)].join("\n");
        let dialog = self.dialog(&text);
        let works = self.works.as_ref().filter(|_| dialog.is_none());
        ScreenReading {
            at,
            composer: if dialog.is_some() { Composer::Hidden } else { self.composer(&text, cursor) },
            works: works.map(|Pattern(works)| works.is_match(&text)),
            background: self.background(&text),
            dialog,
        }
    }

    /// Returns the composer if the cursor is in one of the matching rows: an agent may echo a prompt it took
    /// in the same form.
    fn composer(&self, text: &str, cursor: u16) -> Composer {
        let Some(Pattern(composer)) = &self.composer else { return Composer::Unknown };
        let row = |at: usize| text[..at].matches('\n').count();
        let has_cursor = |found: &Captures<'_>| {
            found.get(0).is_some_and(|all| (row(all.start())..=row(all.end())).contains(&cursor.into()))
        };
        let last = composer.captures_iter(text).last();
        let Some(found) = last.filter(has_cursor) else { return Composer::Unknown };
        let held = found.iter().skip(1).flatten().last().map_or("", |group| group.as_str()).trim();
        if held.is_empty() { Composer::Empty } else { Composer::Holds(held.to_owned()) }
    }

    fn dialog(&self, text: &str) -> Option<Dialog> {
        let found = self.dialog.as_ref()?.0.find_iter(text).last()?;
        Some(Dialog { name: "menu".to_owned(), text: cut_question(found.as_str()), is_startup: false })
    }

    fn background(&self, text: &str) -> Option<String> {
        let found = self.background.as_ref()?.0.captures_iter(text).last()?;
        Some(found.iter().flatten().last()?.as_str().trim().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Timestamp = Timestamp(7);

    fn described() -> Patterns {
        let pattern = |text: &str| Some(text.parse().unwrap());
        Patterns {
            composer: pattern(r"^(?:\w+)?> ?(.*)\z"),
            works: pattern("^Waiting for"),
            dialog: pattern(r"^.*\(Y\)es/\(N\)o.*\z"),
            background: pattern(r"^(\d+ jobs)$"),
        }
    }

    fn seen(text: &str) -> (Composer, Option<bool>, Option<String>, Option<String>) {
        let screen = Screen::new(text.as_bytes());
        let bottom = u16::try_from(screen.bottom().unwrap_or(0)).unwrap();
        let seen = described().read(&screen, bottom, AT);
        (seen.composer, seen.works, seen.background, seen.dialog.map(|dialog| dialog.text))
    }

    #[test]
    fn what_is_described_is_seen() {
        let holds = |text: &str| Composer::Holds(text.to_owned());
        assert_eq!(seen("> before\n\nanswer\n> \n\n"), (Composer::Empty, Some(false), None, None));
        assert_eq!(seen("2 jobs\nask> a draft").0, holds("a draft"));
        assert_eq!(seen("2 jobs\n> ").2.as_deref(), Some("2 jobs"));
        assert_eq!(seen("> hello\nWaiting for the model"), (Composer::Unknown, Some(true), None, None));
        let asks = seen("> hello\nAdd it? (Y)es/(N)o [Yes]:");
        assert_eq!(asks, (Composer::Hidden, None, None, Some("Add it? (Y)es/(N)o [Yes]:".into())));
    }

    #[test]
    fn what_is_not_described_is_not_guessed() {
        let seen = Patterns::default().read(&Screen::new(b"> "), 0, AT);
        assert_eq!((seen.composer, seen.works), (Composer::Unknown, None));
        assert_eq!((seen.dialog, seen.background), (None, None));
    }

    #[test]
    fn a_prompt_that_was_taken_and_stands_there_still_is_no_draft() {
        let screen = Screen::new(b"> before\n> the prompt\n");
        assert_eq!(described().read(&screen, 2, AT).composer, Composer::Unknown, "the cursor is below");
        assert_eq!(described().read(&screen, 1, AT).composer, Composer::Holds("the prompt".to_owned()));
    }

    #[test]
    fn of_several_groups_the_one_counts_that_matched() {
        let composer = Some("^a> (.*)$|^b> (.*)$".parse().unwrap());
        let patterns = Patterns { composer, ..Patterns::default() };
        assert_eq!(patterns.read(&Screen::new(b"a> x"), 0, AT).composer, Composer::Holds("x".to_owned()));
    }

    #[test]
    fn a_pattern_is_refused_with_its_reason() {
        assert!("(".parse::<Pattern>().unwrap_err().contains("unclosed group"));
        "".parse::<Pattern>().unwrap_err();
        "a{1000}{1000}{1000}".parse::<Pattern>().unwrap_err();
    }
}
