//! What an agent's screen shows: whether its composer is free, a dialog that stands in its place, whether it works. Only
//! the words of known versions are known (Claude Code 2.1.197, Codex 0.169.0, Gemini CLI 0.61.0, OpenCode 1.18.33, Aider
//! 0.86.2); what is not recognised is not guessed.

mod aider;
mod cells;
mod claude;
mod codex;
mod dialogs;
mod gemini;
mod opencode;
mod patterns;

use cells::Cell;

use crate::kind::Adapter;

pub use dialogs::{QUESTION, USAGE_LIMIT};
pub use patterns::{Pattern, Patterns, Sight};

/// A screen, as `tmux capture-pane -p -e` prints it.
#[derive(Debug, Clone, Default)]
pub struct Screen {
    lines: Vec<Vec<Cell>>,
    /// The letters alone, without the blanks at the ends of lines.
    texts: Vec<String>,
}

/// What stands in the place where prompts are typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Composer {
    /// It is free; what is drawn faintly there is a placeholder.
    Empty,
    /// Somebody's text, of which this is the last line that is seen.
    Holds(String),
    /// A dialog or a list is in its place, or something else on the agent's screen takes what is typed.
    Hidden,
    /// It was not found.
    Unknown,
}

/// A question of the agent's to the person at its terminal, in the composer's place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dialog {
    /// Which: `trust`, `api_key`, `bypass`, `login`, `theme`, `hooks`, `resume`, `mcp`, `imports`, `settings`, `update`,
    /// `model`, `directory`, `permission`, `usage_limit`; `menu` for one that has the form of a dialog and none of the known
    /// words.
    pub name: String,
    /// What it says, at most [`protocol::activity::ASK_MAX`] bytes.
    pub text: String,
    /// Whether it is asked before the first prompt can be taken.
    pub is_startup: bool,
}

impl Screen {
    /// Reads a capture, with its colours or without.
    #[must_use]
    pub fn new(capture: &[u8]) -> Self {
        let lines = cells::read(capture);
        let text =
            |line: &Vec<Cell>| line.iter().map(|cell| cell.letter).collect::<String>().trim_end().to_owned();
        let texts = lines.iter().map(text).collect();
        Self { lines, texts }
    }

    /// The lines without colours and without the blanks at their ends.
    pub fn lines(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.texts.iter().map(String::as_str)
    }

    /// The row of the last line with something in it.
    fn bottom(&self) -> Option<usize> {
        self.texts.iter().rposition(|line| !line.is_empty())
    }
}

/// What stands where prompts are typed. `cursor` is the column and the row of the terminal's cursor, from 0.
#[must_use]
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

/// Whether the screen is the agent's own, so that what is typed goes to something of the agent's.
fn is_shown(adapter: Adapter, screen: &Screen) -> bool {
    match adapter {
        Adapter::Claude => claude::is_shown(screen),
        Adapter::Codex => codex::is_shown(screen),
        Adapter::Gemini => gemini::is_shown(screen),
        Adapter::Opencode => opencode::is_shown(screen),
        Adapter::Aider | Adapter::None => false,
    }
}

/// The dialog that the screen shows.
#[must_use]
pub fn dialog(adapter: Adapter, screen: &Screen) -> Option<Dialog> {
    // Claude Code's composer is known by itself; what is written in it may look like anything.
    let free = adapter == Adapter::Claude && claude::composer(screen).is_some();
    if free { None } else { dialogs::find(adapter, screen) }
}

/// The names of the dialogs that come up by themselves and take keys as their answer: those that an agent may begin with,
/// and what it asks about its usage limit. Some have more than one form.
pub fn keyed_dialogs(adapter: Adapter) -> impl Iterator<Item = &'static str> {
    dialogs::keyed(adapter)
}

/// The text of a dialog without the marks before its lines, of which one moves with the choice.
#[must_use]
pub fn unmarked(text: &str) -> String {
    let unmarked = |line: &str| line.trim_start_matches(|c: char| !c.is_alphanumeric()).to_owned();
    text.lines().map(unmarked).collect::<Vec<_>>().join("\n")
}

/// The numbers of the choices in the text of a dialog, with what they say.
#[must_use]
pub fn choices(text: &str) -> Vec<(u8, &str)> {
    dialogs::choices(text)
}

/// Whether the agent works; nothing where the screen does not tell, as behind a dialog.
#[must_use]
pub fn works(adapter: Adapter, screen: &Screen) -> Option<bool> {
    if dialog(adapter, screen).is_some() {
        return None;
    }
    match adapter {
        Adapter::Claude => claude::works(screen),
        Adapter::Codex => codex::works(screen),
        Adapter::Gemini => gemini::works(screen),
        Adapter::Opencode => opencode::works(screen),
        Adapter::Aider | Adapter::None => None,
    }
}

/// The agent's own count of its background work: shells, terminals, other agents.
#[must_use]
pub fn background(adapter: Adapter, screen: &Screen) -> Option<String> {
    match adapter {
        Adapter::Claude => claude::background(screen),
        Adapter::Codex => codex::background(screen),
        Adapter::Gemini | Adapter::Opencode | Adapter::Aider | Adapter::None => None,
    }
}

/// The part of a line that counts something, `2 shells`, where it is a count of one of these.
fn counted(part: &str, of: &[&str]) -> Option<String> {
    let part = part.trim();
    let (number, what) = part.split_once(' ')?;
    let counts = number.parse::<u32>().is_ok_and(|number| number > 0);
    (counts && of.contains(&what)).then(|| part.to_owned())
}

/// What the rows of a composer hold, the first with its prompt character: the last line of it.
fn content(rows: &[Vec<Cell>]) -> Composer {
    let typed = rows.iter().enumerate().rev().map(|(index, row)| {
        let prompt = usize::from(index == 0 && !is_shell(row));
        let letters = (prompt..row.len()).filter(|at| is_text(row, *at)).map(|at| row[at].letter);
        letters.collect::<String>().trim().to_owned()
    });
    let mut typed = typed.filter(|line| !line.is_empty());
    typed.next().map_or(Composer::Empty, Composer::Holds)
}

/// Whether a letter is somebody's. What is faint is not; what is inverted is the cursor, which may stand on a letter of a
/// text or on the first one of a placeholder.
fn is_text(row: &[Cell], at: usize) -> bool {
    let on_placeholder = row[at].inverse && row.get(at + 1).is_some_and(|next| next.dim);
    !row[at].dim && !on_placeholder
}

/// Whether the composer takes a line for the shell: then there is something in it that has to go.
fn is_shell(row: &[Cell]) -> bool {
    row.first().is_some_and(|cell| cell.letter == '!')
}

/// Whether a row begins with a composer's prompt character.
fn has_prompt(row: &[Cell], prompt: char) -> bool {
    let begins = row.first().is_some_and(|cell| cell.letter == prompt) || is_shell(row);
    begins && row.get(1).is_none_or(|cell| cell.is_blank())
}

/// Lines as one, so that words are found that were wrapped.
fn one_line(lines: &[String]) -> String {
    lines.iter().flat_map(|line| line.split_whitespace()).collect::<Vec<_>>().join(" ")
}
