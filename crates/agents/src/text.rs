//! What arrives of a text: how it is written so that an agent takes it for a prompt, and how what it took is compared
//! with what was sent. Measured with Claude Code 2.1.197, Codex 0.169.0, Gemini CLI 0.61.0, OpenCode 1.18.33 and Aider 0.86.2.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use unicode_normalization::char::is_combining_mark;
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

use crate::kind::Adapter;

/// What makes Claude Code leave, blanks around it or not.
const CLAUDE_LEAVES: [&str; 6] = ["exit", "quit", ":q", ":q!", ":wq", ":wq!"];

/// What makes OpenCode leave, blanks around it or not.
const OPENCODE_LEAVES: [&str; 3] = ["exit", "quit", ":q"];

/// What Claude Code writes for a tab.
const CLAUDE_TAB: &str = "    ";

/// With more than two line feeds a paste is kept together by Claude Code, and is then none of the words that make it leave.
const CLAUDE_KEEPS: &str = "\n\n\n";

/// Put before what Gemini CLI would take for a command, and behind the words that make OpenCode leave: it has no width, and is
/// no blank to be taken off.
const KEEPS: &str = "\u{2060}";

/// What Gemini CLI leaves out of what is typed, wherever it stands.
const GEMINI_DROPS: [RangeInclusive<char>; 5] = [
    '\u{200b}'..='\u{200b}',
    '\u{200e}'..='\u{200f}',
    '\u{202a}'..='\u{202e}',
    '\u{2066}'..='\u{2069}',
    '\u{feff}'..='\u{feff}',
];

/// So much of the start of a text is looked for in a report that was cut.
const HEAD: usize = 256;

/// How a text and what an agent says it took are alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Same {
    /// It took the text and nothing else.
    Exact,
    /// It took the text with something around it: somebody's draft.
    Within,
    /// It took the text, or most of it, and not as it is: tabs were lost, or an end of it.
    Altered,
    /// It took something else.
    No,
}

/// The text as it has to be typed for the agent to take it as a prompt, whatever it looks like: without the blanks around
/// it, with one before what would be a command, and one after what would be completed or continued. What arrives is `text`
/// by [`compare`].
#[must_use]
pub fn literal(adapter: Adapter, text: &str) -> String {
    if adapter == Adapter::None || is_blank(text) {
        return text.to_owned();
    }
    let text = &*kept(adapter, text);
    let (leaves, keeps) = leaving(adapter);
    if leaves.contains(&text) {
        return format!("{text}{keeps}");
    }
    let before = match text.chars().next() {
        Some('/') if adapter == Adapter::Gemini => KEEPS,
        // A `{` begins a text of several lines.
        Some('{') if adapter == Adapter::Aider => " ",
        Some('!' | '/') => " ",
        _ => "",
    };
    let after = if open_ended(text) { " " } else { "" };
    format!("{before}{text}{after}")
}

/// The words that end an agent, blanks around them or not, and the text behind such a word that makes a prompt of it.
fn leaving(adapter: Adapter) -> (&'static [&'static str], &'static str) {
    match adapter {
        Adapter::Claude => (&CLAUDE_LEAVES, CLAUDE_KEEPS),
        Adapter::Opencode => (&OPENCODE_LEAVES, KEEPS),
        _ => (&[], ""),
    }
}

/// The text of the `n`th prompt that is typed in a session. Aider does not write a text into its history that is the same
/// as the one before, so that nothing would tell that it took it; it takes off the blanks by which this one differs.
#[must_use]
pub fn distinct(adapter: Adapter, text: Vec<u8>, n: u64) -> Vec<u8> {
    let more = if adapter == Adapter::Aider { n % 7 + 1 } else { 0 };
    text.into_iter().chain((0..more).map(|_| b' ')).collect()
}

/// Whether the end of a text would be completed (`@file`, Codex's `$skill`) or continued (`\`) by the Enter after it.
fn open_ended(text: &str) -> bool {
    let word = text.rsplit(blank).next().unwrap_or(text);
    word.ends_with('\\') || word.contains(['@', '$'])
}

/// Whether there is nothing in it that an agent would take.
#[must_use]
pub fn is_blank(text: &str) -> bool {
    text.chars().all(blank)
}

/// Whether a text that is typed as it stands may be something other than a prompt to the agent: a command (`/…`), a
/// line for the shell (`!…`), a word that ends it. Of such a text no prompt hook may ever tell.
#[must_use]
pub fn is_command(adapter: Adapter, text: &str) -> bool {
    let slash = match adapter {
        Adapter::None => return false,
        Adapter::Claude if CLAUDE_LEAVES.contains(&text.trim_matches(blank)) => {
            return text.matches('\n').count() < CLAUDE_KEEPS.len();
        }
        Adapter::Opencode if OPENCODE_LEAVES.contains(&text.trim_matches(blank)) => return true,
        Adapter::Claude | Adapter::Opencode | Adapter::Aider => text,
        // `\n/word` is a command; ` /word` is none, and `\n!word` neither.
        Adapter::Codex => text.trim_start_matches('\n'),
        // A comment is none; a path is one.
        Adapter::Gemini => {
            let slash =
                kept(adapter, text).strip_prefix('/').is_some_and(|text| !text.starts_with(['/', '*']));
            return text.starts_with('!') || slash;
        }
    };
    text.starts_with('!') || slash.strip_prefix('/').is_some_and(names_command)
}

/// Whether what stands behind a `/` begins with a command's name and not with a path.
fn names_command(text: &str) -> bool {
    let word = text.split(blank).next().unwrap_or(text);
    !word.contains('/')
}

/// Compares what was sent, typed in whichever way, with what the agent says it took. Where that was `cut`, all that there
/// is of it has to be alike.
#[must_use]
pub fn compare(adapter: Adapter, sent: &str, heard: &str, cut: bool) -> Same {
    let (sent, heard) = (key(adapter, sent), key(adapter, heard));
    let heard = if cut { whole_letters(&heard) } else { &heard };
    if *sent == *heard || cut && !heard.is_empty() && sent.starts_with(heard) {
        Same::Exact
    } else if !sent.is_empty() && (heard.contains(&*sent) || cut && begins_within(&sent, heard)) {
        Same::Within
    } else if is_most_of(&sent, heard) {
        Same::Altered
    } else {
        Same::No
    }
}

/// True where the agent heard all visible letters of what was sent, or more than half of them in one piece.
fn is_most_of(sent: &str, heard: &str) -> bool {
    let visible = |text: &str| text.chars().filter(|c| !blank(*c) && !has_no_width(*c)).collect::<String>();
    let (sent, heard) = (visible(sent), visible(heard));
    heard.len() * 2 > sent.len() && sent.contains(&heard)
}

/// A text that is shorter, in bytes and in lines, is shown as it is.
const FOLDED_MIN: usize = 400;
const FOLDED_LINES: usize = 2;
/// What agents show in the place of a long text that was pasted.
const PASTED: [&str; 4] = ["[Pasted text #", "[Pasted Content ", "[Pasted Text: ", "[Pasted ~"];

/// Whether a line that stands in a composer is the end of this text, wrapped wherever that may be, or stands for all of a
/// long one.
#[must_use]
pub fn ends_with_line(text: &str, line: &str) -> bool {
    let seen = |c: &char| !blank(*c) && !has_no_width(*c);
    let mut ends = text.chars().rev().filter(seen);
    let mut line_ends = line.chars().rev().filter(seen).peekable();
    let is_end = line_ends.peek().is_some() && line_ends.all(|c| ends.next() == Some(c));
    let folds = text.len() >= FOLDED_MIN || text.lines().count() > FOLDED_LINES;
    is_end || folds && PASTED.iter().any(|mark| line.trim_start().starts_with(mark))
}

/// What is the same in a text and in what the agent makes of it.
fn key(adapter: Adapter, text: &str) -> Cow<'_, str> {
    if adapter == Adapter::Gemini {
        let text = kept(adapter, text);
        let text = text.strip_prefix(KEEPS).unwrap_or(&text);
        return Cow::Owned(lines(text).replace('\t', CLAUDE_TAB).nfc().collect());
    }
    let text = text.trim_matches(blank);
    let text = if adapter == Adapter::Opencode { text.strip_suffix(KEEPS).unwrap_or(text) } else { text };
    let composes = adapter == Adapter::Claude;
    if !text.contains('\r')
        && !(composes && (text.contains('\t') || is_nfc_quick(text.chars()) != IsNormalized::Yes))
    {
        return Cow::Borrowed(text);
    }
    let mut text = lines(text);
    if composes {
        text = text.replace('\t', CLAUDE_TAB).nfc().collect();
    }
    Cow::Owned(text)
}

fn lines(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\r', "\n")
}

/// The text without the blanks around it, and without what its agent leaves out if there is anything else.
fn kept(adapter: Adapter, text: &str) -> Cow<'_, str> {
    let drops = |c: char| adapter == Adapter::Gemini && GEMINI_DROPS.iter().any(|range| range.contains(&c));
    let trimmed = text.trim_matches(blank);
    if !trimmed.contains(drops) || trimmed.chars().all(|c| drops(c) || blank(c)) {
        return Cow::Borrowed(trimmed);
    }
    Cow::Owned(trimmed.replace(drops, "").trim_matches(blank).to_owned())
}

/// Whether a screen need not show it.
fn has_no_width(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}')
}

/// What both agents take off at the ends: Unicode's white space, and JavaScript's byte order mark.
fn blank(c: char) -> bool {
    c.is_whitespace() || c == '\u{feff}'
}

/// The text without its last letter and the marks on it, of which a cut may have left out some.
fn whole_letters(text: &str) -> &str {
    let text = text.trim_end_matches(is_combining_mark);
    let mut letters = text.chars();
    letters.next_back();
    letters.as_str().trim_end_matches(blank)
}

/// Whether what was sent begins somewhere in what was heard and goes on to its end.
fn begins_within(sent: &str, heard: &str) -> bool {
    let end = (0..=HEAD.min(sent.len())).rev().find(|end| sent.is_char_boundary(*end)).unwrap_or(0);
    let head = &sent[..end];
    heard.find(head).is_some_and(|at| sent.starts_with(&heard[at..]))
}
