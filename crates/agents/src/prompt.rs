//! The text of a prompt: escapes it so that an agent takes it as a prompt, and compares it with the text that
//! the agent reports. Measured with Claude Code 2.1.197, Codex 0.169.0, Gemini CLI 0.61.0, OpenCode 1.18.33
//! and Aider 0.86.2.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use unicode_normalization::char::is_combining_mark;
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

use crate::adapter::Adapter;
use crate::attached_images::are_attached;

/// The words that end Claude Code, with or without blanks around them.
const CLAUDE_EXIT_WORDS: [&str; 6] = ["exit", "quit", ":q", ":q!", ":wq", ":wq!"];

/// The words that end OpenCode, with or without blanks around them.
const OPENCODE_EXIT_WORDS: [&str; 3] = ["exit", "quit", ":q"];

/// The text by which Claude Code and Gemini CLI replace a tab.
const TAB: &str = "    ";

/// Suffix that makes a prompt of a word that ends Claude Code: a paste with more than two line feeds is never
/// taken for one.
const EXIT_GUARD: &str = "\n\n\n";

/// The word joiner U+2060, which has no width and is not trimmed. As a prefix it keeps Gemini CLI from taking
/// a text for a command; as a suffix it makes a prompt of a word that ends OpenCode.
const WORD_JOINER: &str = "\u{2060}";

/// The characters that Gemini CLI removes from its input, wherever they are.
const GEMINI_REMOVED: [RangeInclusive<char>; 5] = [
    '\u{200b}'..='\u{200b}',
    '\u{200e}'..='\u{200f}',
    '\u{202a}'..='\u{202e}',
    '\u{2066}'..='\u{2069}',
    '\u{feff}'..='\u{feff}',
];

/// Length of a text's beginning that is searched for in a report that was cut, in bytes.
const HEAD: usize = 256;

/// The result of comparing a text that was sent with the text that the agent reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextMatch {
    /// The agent took the text and nothing else.
    Exact,
    /// The agent took the text with other text around it, for instance a draft of its user.
    Surrounded,
    /// The agent took the text or most of it, but changed: without tabs, or without an end.
    Altered,
    /// The agent took another text.
    Different,
}

/// Returns the text to type for the agent to take `text` as a prompt, even if it looks like a command:
/// without the blanks around it, with a blank before a command, and one after an end that would be completed
/// or continued. By [`compare`] the text that arrives is an exact match of `text`.
pub fn escape(adapter: Adapter, text: &str) -> String {
    if adapter == Adapter::None || is_blank(text) {
        return text.to_owned();
    }
    let text = &*trim(adapter, text);
    let (words, guard) = exit_words(adapter);
    if words.contains(&text) {
        return format!("{text}{guard}");
    }
    let before = match text.chars().next() {
        Some('/') if adapter == Adapter::Gemini => WORD_JOINER,
        // `{` begins an input of several lines.
        Some('{') if adapter == Adapter::Aider => " ",
        Some('!' | '/') => " ",
        _ => "",
    };
    let after = if open_ended(text) { " " } else { "" };
    format!("{before}{text}{after}")
}

/// Returns the words that end an agent, and the suffix that makes a prompt of such a word.
fn exit_words(adapter: Adapter) -> (&'static [&'static str], &'static str) {
    match adapter {
        Adapter::Claude => (&CLAUDE_EXIT_WORDS, EXIT_GUARD),
        Adapter::Opencode => (&OPENCODE_EXIT_WORDS, WORD_JOINER),
        _ => (&[], ""),
    }
}

/// Maximum number of blanks behind a prompt for Aider.
const BLANKS_MAX: u64 = 63;

/// Returns the text of the prompt that is typed under the number `n`, which for Aider differs from the previous one
/// by trailing blanks. Aider removes the blanks, but would not write a repeated text into its history, and so
/// not confirm it.
pub fn make_distinct(adapter: Adapter, text: Vec<u8>, n: u64) -> Vec<u8> {
    let more = if adapter == Adapter::Aider { n % BLANKS_MAX + 1 } else { 0 };
    text.into_iter().chain((0..more).map(|_| b' ')).collect()
}

/// True if Enter after the text would complete its end (`@file`, Codex's `$skill`) or continue it (`\`).
fn open_ended(text: &str) -> bool {
    let word = text.rsplit(blank).next().unwrap_or(text);
    word.ends_with('\\') || word.contains(['@', '$'])
}

/// True if the text is empty for an agent.
pub fn is_blank(text: &str) -> bool {
    text.chars().all(blank)
}

/// True if the agent may take the unescaped text for something other than a prompt: a command (`/…`), a line
/// for the shell (`!…`), a word that ends it. No hook need report such a text.
pub fn is_command(adapter: Adapter, text: &str) -> bool {
    let slash = match adapter {
        Adapter::None => return false,
        Adapter::Claude if CLAUDE_EXIT_WORDS.contains(&text.trim_matches(blank)) => {
            return text.matches('\n').count() < EXIT_GUARD.len();
        }
        Adapter::Opencode if OPENCODE_EXIT_WORDS.contains(&text.trim_matches(blank)) => return true,
        Adapter::Claude | Adapter::Opencode | Adapter::Aider => text,
        // `\n/word` is a command; ` /word` and `\n!word` are not.
        Adapter::Codex => text.trim_start_matches('\n'),
        // A path is taken for a command; a comment (`//`, `/*`) is not.
        Adapter::Gemini => {
            let slash =
                trim(adapter, text).strip_prefix('/').is_some_and(|text| !text.starts_with(['/', '*']));
            return text.starts_with('!') || slash;
        }
    };
    text.starts_with('!') || slash.strip_prefix('/').is_some_and(names_command)
}

/// True if the text after a `/` begins with the name of a command, not with a path.
fn names_command(text: &str) -> bool {
    let word = text.split(blank).next().unwrap_or(text);
    !word.contains('/')
}

/// Compares a text that was sent, escaped or not, with the text that the agent reports to have taken. If the report was
/// `cut`, the part that is there has to match.
pub fn compare(adapter: Adapter, sent: &str, reported: &str, cut: bool) -> TextMatch {
    let (sent, reported) = (normalize(adapter, sent), normalize(adapter, reported));
    let reported = if cut { whole_letters(&reported) } else { &reported };
    let is_same = *sent == *reported
        || cut && !reported.is_empty() && sent.starts_with(reported)
        || matches!(adapter, Adapter::Claude | Adapter::Codex) && are_attached(&sent, reported, visible);
    if is_same {
        TextMatch::Exact
    } else if !sent.is_empty() && (reported.contains(&*sent) || cut && begins_within(&sent, reported)) {
        TextMatch::Surrounded
    } else if is_most_of(&sent, reported) {
        TextMatch::Altered
    } else {
        TextMatch::Different
    }
}

/// True if the report contains all visible letters of the text, or more than half of them in one piece, and
/// nothing else.
fn is_most_of(sent: &str, reported: &str) -> bool {
    let (sent, reported) = (visible(sent), visible(reported));
    reported.len() * 2 > sent.len() && sent.contains(&reported)
}

/// The text without what cannot be seen.
fn visible(text: &str) -> String {
    text.chars().filter(|c| !blank(*c) && !has_no_width(*c)).collect()
}

/// Length in bytes from which agents may show a placeholder for a pasted text.
const FOLDED_MIN: usize = 400;
/// The most lines of a pasted text for which agents show no placeholder.
const UNFOLDED_LINES: usize = 2;
/// The beginnings of the placeholders for long pasted texts.
const PASTED: [&str; 4] = ["[Pasted text #", "[Pasted Content ", "[Pasted Text: ", "[Pasted ~"];

/// True if a line in a composer is the end of this text, wrapped anywhere, or the placeholder of a long text.
pub fn ends_with_line(text: &str, line: &str) -> bool {
    let seen = |c: &char| !blank(*c) && !has_no_width(*c);
    let mut ends = text.chars().rev().filter(seen);
    let mut line_ends = line.chars().rev().filter(seen).peekable();
    let is_end = line_ends.peek().is_some() && line_ends.all(|c| ends.next() == Some(c));
    let folds = text.len() >= FOLDED_MIN || text.lines().count() > UNFOLDED_LINES;
    is_end || folds && PASTED.iter().any(|mark| line.trim_start().starts_with(mark))
}

/// Normalises a text such that a text and the agent's report of it are equal.
fn normalize(adapter: Adapter, text: &str) -> Cow<'_, str> {
    if adapter == Adapter::Gemini {
        let text = trim(adapter, text);
        let text = text.strip_prefix(WORD_JOINER).unwrap_or(&text);
        return Cow::Owned(lines(text).replace('\t', TAB).nfc().collect());
    }
    let text = text.trim_matches(blank);
    let text =
        if adapter == Adapter::Opencode { text.strip_suffix(WORD_JOINER).unwrap_or(text) } else { text };
    let composes = adapter == Adapter::Claude;
    if !text.contains('\r')
        && !(composes && (text.contains('\t') || is_nfc_quick(text.chars()) != IsNormalized::Yes))
    {
        return Cow::Borrowed(text);
    }
    let mut text = lines(text);
    if composes {
        text = text.replace('\t', TAB).nfc().collect();
    }
    Cow::Owned(text)
}

fn lines(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\r', "\n")
}

/// Removes the blanks around a text and, unless nothing would be left, the characters that the agent removes.
fn trim(adapter: Adapter, text: &str) -> Cow<'_, str> {
    let is_removed =
        |c: char| adapter == Adapter::Gemini && GEMINI_REMOVED.iter().any(|range| range.contains(&c));
    let trimmed = text.trim_matches(blank);
    if !trimmed.contains(is_removed) || trimmed.chars().all(|c| is_removed(c) || blank(c)) {
        return Cow::Borrowed(trimmed);
    }
    Cow::Owned(trimmed.replace(is_removed, "").trim_matches(blank).to_owned())
}

/// True if a screen may not show the character.
fn has_no_width(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}')
}

/// True for the characters that agents trim: Unicode white space, and the byte order mark as in JavaScript.
fn blank(c: char) -> bool {
    c.is_whitespace() || c == '\u{feff}'
}

/// Removes the last letter and its combining marks, of which a cut may have removed some.
fn whole_letters(text: &str) -> &str {
    let text = text.trim_end_matches(is_combining_mark);
    let mut letters = text.chars();
    letters.next_back();
    letters.as_str().trim_end_matches(blank)
}

/// True if a beginning of the sent text is the end of the report.
fn begins_within(sent: &str, reported: &str) -> bool {
    let end = (0..=HEAD.min(sent.len())).rev().find(|end| sent.is_char_boundary(*end)).unwrap_or(0);
    let head = &sent[..end];
    reported.find(head).is_some_and(|at| sent.starts_with(&reported[at..]))
}
