//! The agents that the pool has an adapter for, and the ways in which a program confirms a prompt.

use std::fmt;
use std::str::FromStr;

/// A word that is none of those expected; the message is for the user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{word:?} is none of {of}")]
pub struct UnknownWord {
    /// The word as it was written.
    pub word: String,
    /// The words that are accepted.
    pub of: &'static str,
}

protocol::names! {
    /// The built-in support for one agent: its hooks, its screen, its transcript, the way in which prompts are
    /// typed.
    #[derive(Default)]
    pub enum Adapter {
        /// Claude Code.
        Claude = "claude",
        /// Codex.
        Codex = "codex",
        /// Gemini CLI.
        Gemini = "gemini",
        /// OpenCode.
        Opencode = "opencode",
        /// Aider.
        Aider = "aider",
        /// Any other program.
        #[default]
        None = "none",
    }
}

impl Adapter {
    /// True if the agent's hooks or its own record tell how a turn ended.
    pub fn tells_how_turns_end(self) -> bool {
        self != Self::Aider
    }

    /// Returns the adapter of a built-in agent kind, and [`Adapter::None`] for every other name.
    pub fn of(agent_kind: &str) -> Self {
        Self::of_name(agent_kind).unwrap_or_default()
    }

    /// True if the agent asks its terminal for bracketed pastes when it is ready for them: it reads earlier
    /// pastes as keys. Observed with Claude Code 2.1.197 (0.3 s after the start hook of a resumed
    /// conversation, 70 ms before its composer is drawn), Codex 0.169.0, Gemini CLI 0.61.0, OpenCode 1.18.33
    /// and Aider 0.86.2.
    pub fn asks_for_pastes(self) -> bool {
        self != Self::None
    }

    /// True if the agent's screen is read by code in [`crate::screen`], not by a description.
    pub fn knows_screen(self) -> bool {
        !matches!(self, Self::Aider | Self::None)
    }

    /// True if the questions that its hook reports are the dialogs on its screen, and nothing reports that one was
    /// answered.
    pub fn asks_on_screen(self) -> bool {
        self == Self::Aider
    }

    /// True if the end of a conversation that the agent reports may be that of one which its user has left, while the
    /// agent goes on: Codex (0.171.0) unloads a conversation a minute after `/new`, and reports its end only then.
    pub fn outlives_conversation(self) -> bool {
        self == Self::Codex
    }

    /// True if the agent reports its start; Aider reports nothing before the end of its first turn.
    pub fn has_start_hook(self) -> bool {
        self != Self::Aider
    }
}

impl fmt::Display for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Adapter {
    type Err = UnknownWord;

    /// Parses the names, and `generic` as [`Adapter::None`].
    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        match word {
            "generic" => Ok(Self::None),
            _ => Self::of_name(word).ok_or_else(|| UnknownWord {
                word: word.to_owned(),
                of: "claude, codex, gemini, opencode, aider, none",
            }),
        }
    }
}

protocol::names! {
    /// The way in which a program confirms that it took a prompt.
    #[derive(Default)]
    pub enum Confirm {
        /// Its hook reports the text of the prompt.
        Hook = "hook",
        /// The text appears on the screen.
        Echo = "echo",
        /// Its shell prompt comes back (OSC 133), or it is again the foreground program of its terminal.
        Prompt = "prompt",
        /// It does not confirm.
        #[default]
        None = "none",
    }
}

impl fmt::Display for Confirm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Confirm {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        Self::of_name(word)
            .ok_or_else(|| UnknownWord { word: word.to_owned(), of: "hook, echo, prompt, none" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_the_same_on_the_command_line_and_in_files() {
        for adapter in Adapter::ALL {
            assert_eq!(adapter.as_str().parse(), Ok(adapter));
            assert_eq!(serde_json::to_value(adapter).unwrap(), adapter.as_str());
            assert_eq!(Adapter::of(adapter.as_str()), adapter);
        }
        for confirm in Confirm::ALL {
            assert_eq!(confirm.as_str().parse(), Ok(confirm));
            assert_eq!(serde_json::to_value(confirm).unwrap(), confirm.as_str());
        }
        assert_eq!("generic".parse(), Ok(Adapter::None));
        assert_eq!(Adapter::of("shell"), Adapter::None);
        let refused = "clade".parse::<Adapter>().unwrap_err().to_string();
        assert_eq!(refused, "\"clade\" is none of claude, codex, gemini, opencode, aider, none");
        "Hook".parse::<Confirm>().unwrap_err();
    }
}
