//! How the screen of an agent looks that is known by its description alone: regular expressions, which a user writes.

use std::fmt;
use std::str::FromStr;

use regex::{Regex, RegexBuilder};

use super::{Composer, Dialog, Screen};

/// The longest expression, in bytes.
const PATTERN_MAX: usize = 1024;
/// Most memory that an expression may need once it is compiled, in bytes.
const COMPILED_MAX: usize = 1 << 20;

/// A regular expression, of which `^` and `$` are the ends of lines.
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
    /// Whether a part of it is a group, `(…)`.
    #[must_use]
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

/// What is looked for on the screen, without colours and without the blanks at the ends of lines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Patterns {
    /// The composer; what its last group matched is what it holds. The last match counts.
    pub composer: Option<Pattern>,
    /// It works.
    pub works: Option<Pattern>,
    /// It asks something in the composer's place.
    pub dialog: Option<Pattern>,
    /// What it does in the background; the last group's text is shown.
    pub background: Option<Pattern>,
}

impl Patterns {
    /// Whether it is known where prompts are typed.
    #[must_use]
    pub fn has_composer(&self) -> bool {
        self.composer.is_some()
    }

    /// What stands where prompts are typed, if the cursor is in one of the rows that match: an agent that has taken a prompt may
    /// show it as it stood there. `cursor` is the row of the terminal's cursor, from 0.
    #[must_use]
    pub fn composer(&self, screen: &Screen, cursor: u16) -> Composer {
        let Some(Pattern(composer)) = &self.composer else { return Composer::Unknown };
        if self.dialog(screen).is_some() {
            return Composer::Hidden;
        }
        let text = text(screen);
        let row = |at: usize| text[..at].matches('\n').count();
        let has_cursor = |found: &regex::Captures<'_>| {
            found.get(0).is_some_and(|all| (row(all.start())..=row(all.end())).contains(&cursor.into()))
        };
        let last = composer.captures_iter(&text).last();
        let Some(found) = last.filter(has_cursor) else { return Composer::Unknown };
        match held(&found) {
            "" => Composer::Empty,
            held => Composer::Holds(held.to_owned()),
        }
    }

    /// What it asks.
    #[must_use]
    pub fn dialog(&self, screen: &Screen) -> Option<Dialog> {
        let text = text(screen);
        let found = self.dialog.as_ref()?.0.find_iter(&text).last()?;
        let said = super::dialogs::cut(found.as_str());
        Some(Dialog { name: "menu".to_owned(), text: said, is_startup: false })
    }

    /// Whether it works; nothing where that is not described, or it asks.
    #[must_use]
    pub fn works(&self, screen: &Screen) -> Option<bool> {
        let Pattern(works) = self.works.as_ref()?;
        self.dialog(screen).is_none().then(|| works.is_match(&text(screen)))
    }

    /// What it does in the background.
    #[must_use]
    pub fn background(&self, screen: &Screen) -> Option<String> {
        let text = text(screen);
        let found = self.background.as_ref()?.0.captures_iter(&text).last()?;
        Some(found.iter().flatten().last()?.as_str().trim().to_owned())
    }
}

/// What the last group matched that took part.
fn held<'a>(found: &regex::Captures<'a>) -> &'a str {
    found.iter().skip(1).flatten().last().map_or("", |group| group.as_str()).trim()
}

fn text(screen: &Screen) -> String {
    screen.texts[..screen.bottom().map_or(0, |bottom| bottom + 1)].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let (screen, patterns) = (Screen::new(text.as_bytes()), described());
        let dialog = patterns.dialog(&screen).map(|dialog| dialog.text);
        let bottom = u16::try_from(screen.bottom().unwrap_or(0)).unwrap();
        (patterns.composer(&screen, bottom), patterns.works(&screen), patterns.background(&screen), dialog)
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
        let screen = Screen::new(b"> ");
        let none = Patterns::default();
        assert_eq!((none.composer(&screen, 0), none.works(&screen)), (Composer::Unknown, None));
        assert_eq!((none.dialog(&screen), none.background(&screen)), (None, None));
    }

    #[test]
    fn a_prompt_that_was_taken_and_stands_there_still_is_no_draft() {
        let screen = Screen::new(b"> before\n> the prompt\n");
        assert_eq!(described().composer(&screen, 2), Composer::Unknown, "the cursor is below");
        assert_eq!(described().composer(&screen, 1), Composer::Holds("the prompt".to_owned()));
    }

    #[test]
    fn of_several_groups_the_one_counts_that_matched() {
        let composer = Some("^a> (.*)$|^b> (.*)$".parse().unwrap());
        let patterns = Patterns { composer, ..Patterns::default() };
        assert_eq!(patterns.composer(&Screen::new(b"a> x"), 0), Composer::Holds("x".to_owned()));
    }

    #[test]
    fn a_pattern_is_refused_with_its_reason() {
        assert!("(".parse::<Pattern>().unwrap_err().contains("unclosed group"));
        "".parse::<Pattern>().unwrap_err();
        "a{1000}{1000}{1000}".parse::<Pattern>().unwrap_err();
    }
}
