//! Reads an agent's screen: its composer, a dialog in the composer's place, work in progress. The texts are
//! those of Claude Code 2.1.197, Codex 0.169.0, Gemini CLI 0.61.0, OpenCode 1.18.33 and Aider 0.86.2; an
//! unrecognised screen yields no guess.
//!
//! A capture is read into cells ([`Screen`]). One module per agent finds the composer and signs of work;
//! `dialogs` finds dialogs by their words. The screens of Aider and of agents that a user describes are read
//! by [`Patterns`].

mod aider;
mod cells;
mod claude;
mod codex;
mod dialogs;
mod gemini;
mod opencode;
mod patterns;

use cells::Cell;

use crate::adapter::Adapter;

pub use dialogs::{QUESTION, USAGE_LIMIT, answerable_dialogs, choices};
pub use patterns::{Pattern, Patterns, ScreenReading};

/// A screen, as `tmux capture-pane -p -e` prints it.
#[derive(Debug, Clone, Default)]
pub struct Screen {
    lines: Vec<Vec<Cell>>,
    /// The letters alone, without trailing blanks.
    texts: Vec<String>,
}

/// The state of the composer, the place where prompts are typed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Composer {
    /// Free; dim text in it is a placeholder.
    Empty,
    /// It contains text, of which this is the last visible line.
    Holds(String),
    /// A dialog, a list or another part of the agent's screen takes the keys instead.
    Hidden,
    /// Not found.
    #[default]
    Unknown,
}

/// A question of the agent to the person at its terminal, in the composer's place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dialog {
    /// `trust`, `api_key`, `bypass`, `login`, `theme`, `hooks`, `resume`, `mcp`, `imports`, `settings`,
    /// `update`, `model`, `directory`, `permission`, `question` or `usage_limit`; `menu` if it has the form
    /// of a dialog but none of the known texts.
    pub name: String,
    /// Its text, at most [`protocol::activity::ASK_MAX`] bytes.
    pub text: String,
    /// True if the agent may show it before it takes its first prompt.
    pub is_startup: bool,
}

impl Screen {
    /// Reads a capture, with or without colours.
    pub fn new(capture: &[u8]) -> Self {
        let lines = cells::read(capture);
        let text =
            |line: &Vec<Cell>| line.iter().map(|cell| cell.letter).collect::<String>().trim_end().to_owned();
        let texts = lines.iter().map(text).collect();
        Self { lines, texts }
    }

    /// Returns the lines without colours and trailing blanks.
    pub fn lines(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.texts.iter().map(String::as_str)
    }

    /// Returns the row of the last line that is not empty.
    fn bottom(&self) -> Option<usize> {
        self.texts.iter().rposition(|line| !line.is_empty())
    }
}

/// Returns the state of the composer. `cursor` is the column and row of the terminal's cursor, from 0.
pub fn composer(adapter: Adapter, screen: &Screen, cursor: (u16, u16)) -> Composer {
    if dialog(adapter, screen).is_some() {
        return Composer::Hidden;
    }
    let found = match adapter {
        Adapter::Claude => claude::composer(screen).map(|rows| content(&screen.lines[rows])),
        Adapter::Codex => codex::composer(screen, cursor.1.into())
            .map(|rows| content(&screen.lines[rows]))
            .filter(|found| *found != Composer::Empty || cursor.0 <= codex::TEXT_COLUMN),
        Adapter::Gemini => gemini::composer(screen),
        Adapter::Opencode => opencode::composer(screen, cursor),
        Adapter::Aider | Adapter::None => None,
    };
    found.unwrap_or(if is_shown(adapter, screen) { Composer::Hidden } else { Composer::Unknown })
}

/// True if the agent's own screen is shown, so that the agent gets what is typed.
fn is_shown(adapter: Adapter, screen: &Screen) -> bool {
    match adapter {
        Adapter::Claude => claude::is_shown(screen),
        Adapter::Codex => codex::is_shown(screen),
        Adapter::Gemini => gemini::is_shown(screen),
        Adapter::Opencode => opencode::is_shown(screen),
        Adapter::Aider | Adapter::None => false,
    }
}

/// Returns the dialog that the screen shows.
pub fn dialog(adapter: Adapter, screen: &Screen) -> Option<Dialog> {
    // Claude Code's composer is recognised by its frame; text in it may look like a dialog.
    let free = adapter == Adapter::Claude && claude::composer(screen).is_some();
    if free { None } else { dialogs::find(adapter, screen) }
}

/// Removes the marks before the lines of a dialog's text, one of which moves with the selection.
pub fn strip_markers(text: &str) -> String {
    let strip = |line: &str| line.trim_start_matches(|c: char| !c.is_alphanumeric()).to_owned();
    text.lines().map(strip).collect::<Vec<_>>().join("\n")
}

/// True if the agent is in the middle of a turn; none if the screen does not tell, for instance behind a
/// dialog.
pub fn is_working(adapter: Adapter, screen: &Screen) -> Option<bool> {
    if dialog(adapter, screen).is_some() {
        return None;
    }
    match adapter {
        Adapter::Claude => claude::is_working(screen),
        Adapter::Codex => codex::is_working(screen),
        Adapter::Gemini => gemini::is_working(screen),
        Adapter::Opencode => opencode::is_working(screen),
        Adapter::Aider | Adapter::None => None,
    }
}

/// Returns the agent's count of its background work: shells, terminals, other agents.
pub fn background(adapter: Adapter, screen: &Screen) -> Option<String> {
    match adapter {
        Adapter::Claude => claude::background(screen),
        Adapter::Codex => codex::background(screen),
        Adapter::Gemini | Adapter::Opencode | Adapter::Aider | Adapter::None => None,
    }
}

/// Returns a part of a line such as `2 shells` if it counts one of these nouns.
fn parse_count(part: &str, nouns: &[&str]) -> Option<String> {
    let part = part.trim();
    let (number, noun) = part.split_once(' ')?;
    let is_positive = number.parse::<u32>().is_ok_and(|number| number > 0);
    (is_positive && nouns.contains(&noun)).then(|| part.to_owned())
}

/// Reads the rows of a composer, of which the first begins with the prompt character.
fn content(rows: &[Vec<Cell>]) -> Composer {
    let typed = rows.iter().enumerate().rev().map(|(index, row)| {
        let prompt = usize::from(index == 0 && !is_shell(row));
        let letters = (prompt..row.len()).filter(|at| is_text(row, *at)).map(|at| row[at].letter);
        letters.collect::<String>().trim().to_owned()
    });
    let mut typed = typed.filter(|line| !line.is_empty());
    typed.next().map_or(Composer::Empty, Composer::Holds)
}

/// True if a letter belongs to typed text. Dim letters do not; an inverted letter is the cursor, which may be
/// on a letter of the text or on the first letter of a placeholder.
fn is_text(row: &[Cell], at: usize) -> bool {
    let on_placeholder = row[at].inverse && row.get(at + 1).is_some_and(|next| next.dim);
    !row[at].dim && !on_placeholder
}

/// True if the composer is in shell mode (`!`); the `!` counts as text in it.
fn is_shell(row: &[Cell]) -> bool {
    row.first().is_some_and(|cell| cell.letter == '!')
}

/// True if a row begins with the composer's prompt character.
fn has_prompt(row: &[Cell], prompt: char) -> bool {
    let begins = row.first().is_some_and(|cell| cell.letter == prompt) || is_shell(row);
    begins && row.get(1).is_none_or(|cell| cell.is_blank())
}

/// Joins lines with single spaces, so that wrapped phrases are found.
fn one_line(lines: &[String]) -> String {
    lines.iter().flat_map(|line| line.split_whitespace()).collect::<Vec<_>>().join(" ")
}
