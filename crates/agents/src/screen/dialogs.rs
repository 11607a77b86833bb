//! The known dialogs of each agent, recognised by their texts.

use protocol::bounds::cut_question;

use super::claude::is_rule;
use super::{Dialog, Screen, gemini, one_line, opencode};
use crate::adapter::Adapter;

/// The texts that identify a dialog.
struct KnownDialog {
    adapter: Adapter,
    name: &'static str,
    /// A text in its first line.
    title: &'static str,
    /// Texts in that line or below it, all of which must be there.
    contains: &'static [&'static str],
    is_startup: bool,
}

const fn known(
    adapter: Adapter,
    name: &'static str,
    title: &'static str,
    contains: &'static [&'static str],
    is_startup: bool,
) -> KnownDialog {
    KnownDialog { adapter, name, title, contains, is_startup }
}

/// The name of a dialog in which an agent asks its user questions about its task.
pub const QUESTION: &str = "question";
/// The name of a dialog about the usage limit.
pub const USAGE_LIMIT: &str = "usage_limit";

/// The dialogs of Claude Code 2.1.197, Codex 0.169.0, Gemini CLI 0.61.0 and OpenCode 1.18.33. The title of a
/// dialog that may be higher than a small terminal is a text near its end.
const KNOWN: [KnownDialog; 30] = [
    known(Adapter::Claude, "trust", "Yes, I trust this folder", &["No, exit"], true),
    known(
        Adapter::Claude,
        "api_key",
        "Detected a custom API key",
        &["Do you want to use this API key?"],
        true,
    ),
    known(Adapter::Claude, "bypass", "1. No, exit", &["2. Yes, I accept"], true),
    known(Adapter::Claude, "resume", "Resume from summary", &["Resume full session as-is"], true),
    known(Adapter::Claude, "resume", "Resume session", &["Space to preview"], true),
    known(Adapter::Claude, "login", "Select login method", &["3rd-party platform"], true),
    known(Adapter::Claude, "login", "Paste code here if prompted", &[], true),
    known(Adapter::Claude, "login", "OAuth error", &["Press Enter to retry"], true),
    known(Adapter::Claude, "theme", "Dark mode (ANSI colors only)", &["Syntax theme:"], true),
    known(Adapter::Claude, "mcp", "MCP servers may execute code", &["MCP documentation"], true),
    known(Adapter::Claude, "imports", "Yes, allow external imports", &[], true),
    known(Adapter::Claude, "settings", "Exit and fix manually", &[], true),
    known(Adapter::Claude, USAGE_LIMIT, "What do you want to do?", &["wait for limit to reset"], false),
    known(Adapter::Claude, "permission", "Do you want to", &["1. Yes"], false),
    known(Adapter::Codex, "trust", "Folder access", &["Trust this folder?"], true),
    known(Adapter::Codex, "login", "Welcome to Codex", &["Sign in with ChatGPT"], true),
    known(Adapter::Codex, "login", "Sign in another way", &["Use an OpenAI API key"], true),
    known(Adapter::Codex, "hooks", "Hooks need review", &["Trust all and continue"], true),
    known(Adapter::Codex, "update", "Update available ·", &["Update now"], true),
    known(Adapter::Codex, "model", "Try new model", &["Use existing model"], true),
    known(Adapter::Codex, "directory", "Working directory ·", &["Use current directory"], true),
    known(Adapter::Codex, "resume", "Resume a previous session", &["enter resume"], true),
    known(Adapter::Codex, USAGE_LIMIT, "Approaching rate limits", &["Keep current model"], false),
    known(Adapter::Codex, "permission", "Would you like to", &["Yes, proceed"], false),
    known(Adapter::Codex, QUESTION, "unanswered)", &["enter to submit"], false),
    known(Adapter::Gemini, "trust", "Do you trust the files in this folder?", &["1. Trust folder"], true),
    known(Adapter::Gemini, "login", "How would you like to authenticate", &["1. Sign in with Google"], true),
    known(Adapter::Gemini, USAGE_LIMIT, "Usage limit reached for", &["1. Keep trying"], false),
    known(Adapter::Gemini, "permission", "1. Allow once", &["(esc)"], false),
    known(Adapter::Opencode, "permission", "△ Permission required", &["Allow once", "Reject"], false),
];

/// Returns the names of the dialogs that appear unprompted and can be answered with keys: startup dialogs and
/// those about the usage limit. A name is repeated for each form of its dialog.
pub fn answerable_dialogs(adapter: Adapter) -> impl Iterator<Item = &'static str> {
    let is_answerable = |known: &&KnownDialog| known.is_startup || known.name == USAGE_LIMIT;
    KNOWN.iter().filter(move |known| known.adapter == adapter && is_answerable(known)).map(|known| known.name)
}

/// Returns the numbered lines of a dialog's text in order: `› 2. Keep current model`.
pub fn choices(text: &str) -> Vec<(u8, &str)> {
    text.lines().filter_map(choice).collect()
}

fn choice(line: &str) -> Option<(u8, &str)> {
    let (number, said) = line.trim_start_matches(|c: char| !c.is_alphanumeric()).split_once(". ")?;
    let number = number.parse().ok().filter(|number| (1..=9).contains(number))?;
    Some((number, said.trim()))
}

/// Returns the texts of which one is in the last two lines of every dialog of an agent.
fn footers(adapter: Adapter) -> &'static [&'static str] {
    match adapter {
        Adapter::Claude => &[
            "Esc to",
            "esc to close",
            "Enter to close",
            "Press Enter to",
            "enter to open",
            "ctrl+o to toggle",
            "ctrl+s to copy",
            // The dialogs of a first run (theme, login) have no footer: these texts are in their last lines.
            "(ctrl+t to",
            "3rd-party platform",
            "Paste code here if prompted",
        ],
        // `? / esc close` is not one of them: it is below a composer that takes prompts.
        Adapter::Codex => &[
            "esc to cancel",
            "esc cancel",
            "esc back",
            "esc skip",
            "esc new",
            "esc start new",
            "esc exit",
            "esc use session",
            "esc dismiss",
            "esc save",
            "· esc close",
            "q close",
            "Press enter to continue",
            "Press esc to go back",
            "enter submit",
            "enter to submit",
            "esc confirm",
            "enter resume",
            "↵ rewind",
            "reverse-i-search:",
        ],
        // Dialogs of Gemini CLI and OpenCode are recognised by their boxes, those of Aider by patterns.
        Adapter::Gemini | Adapter::Opencode | Adapter::Aider | Adapter::None => &[],
    }
}

/// Returns the dialog at the bottom of a screen.
pub(super) fn find(adapter: Adapter, screen: &Screen) -> Option<Dialog> {
    let boxed = match adapter {
        Adapter::Gemini => Some(gemini::boxed(screen)),
        Adapter::Opencode => Some(opencode::boxed(screen)),
        _ => None,
    };
    if let Some(lines) = boxed {
        return lines.map(|lines| identify(adapter, &lines, 0));
    }
    let bottom = screen.texts.iter().rposition(|line| !line.is_empty() && !is_rule(line))?;
    let lines = &screen.texts[..=bottom];
    let footer = one_line(&lines[bottom.saturating_sub(1)..]);
    if !footers(adapter).iter().any(|words| footer.contains(words)) {
        return None;
    }
    let top = lines.iter().rposition(|line| is_rule(line)).map_or(0, |rule| rule + 1);
    Some(identify(adapter, lines, top))
}

/// Names the dialog in these lines. A dialog that is not known begins at `top`.
fn identify(adapter: Adapter, lines: &[String], top: usize) -> Dialog {
    let known = KNOWN.iter().filter(|known| known.adapter == adapter);
    let mut found = known.filter_map(|known| Some((known, title_row(known, lines)?)));
    let (name, is_startup, start) = match found.next() {
        Some((known, start)) => {
            (known.name, known.is_startup, if adapter == Adapter::Codex { start } else { top.min(start) })
        }
        None => ("menu", false, top),
    };
    Dialog { name: name.to_owned(), text: text(&lines[start..]), is_startup }
}

/// Returns the row of the dialog's title if the lines show the dialog.
fn title_row(known: &KnownDialog, lines: &[String]) -> Option<usize> {
    let start = lines.iter().rposition(|line| line.contains(known.title))?;
    let text = one_line(&lines[start..]);
    known.contains.iter().all(|words| text.contains(words)).then_some(start)
}

/// Joins the lines that are not empty. A text that is too long says that it is cut.
fn text(lines: &[String]) -> String {
    let lines = lines.iter().map(|line| line.trim()).filter(|line| !line.is_empty());
    cut_question(&lines.collect::<Vec<_>>().join("\n"))
}
