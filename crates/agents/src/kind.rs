//! Kinds of agents that the pool knows to speak with.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A word that names nothing; the sentence is for the user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{word:?} is none of {of}")]
pub struct UnknownWord {
    /// What was written.
    pub word: String,
    /// What may be written.
    pub of: &'static str,
}

/// How to speak with an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Adapter {
    /// Claude Code.
    Claude,
    /// Codex.
    Codex,
    /// Gemini CLI.
    Gemini,
    /// OpenCode.
    Opencode,
    /// Aider.
    Aider,
    /// Any other program.
    #[default]
    None,
}

impl Adapter {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Claude, Self::Codex, Self::Gemini, Self::Opencode, Self::Aider, Self::None];

    /// The one of a built-in agent kind; [`Adapter::None`] for every other name.
    #[must_use]
    pub fn of(agent_kind: &str) -> Self {
        Self::ALL.into_iter().find(|adapter| adapter.word() == agent_kind).unwrap_or_default()
    }

    /// True for an agent that asks its terminal for bracketed pastes before it takes any: earlier ones are read as keys.
    /// Seen of Claude Code 2.1.197 (0.3 s after the start hook of a resumed conversation, and 70 ms before its composer
    /// is drawn), Codex 0.169.0, Gemini CLI 0.61.0, OpenCode 1.18.33 and Aider 0.86.2.
    #[must_use]
    pub fn asks_for_pastes(self) -> bool {
        self != Self::None
    }

    /// True for an agent whose screen is known without a description.
    #[must_use]
    pub fn knows_screen(self) -> bool {
        !matches!(self, Self::Aider | Self::None)
    }

    /// False for an agent that reports nothing before its first turn is over.
    #[must_use]
    pub fn has_start_hook(self) -> bool {
        self != Self::Aider
    }

    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Opencode => "opencode",
            Self::Aider => "aider",
            Self::None => "none",
        }
    }
}

impl fmt::Display for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for Adapter {
    type Err = UnknownWord;

    /// The words, and `generic` for [`Adapter::None`].
    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        match word {
            "generic" => Ok(Self::None),
            _ => Self::ALL.into_iter().find(|adapter| adapter.word() == word).ok_or_else(|| UnknownWord {
                word: word.to_owned(),
                of: "claude, codex, gemini, opencode, aider, none",
            }),
        }
    }
}

/// How it is known that a program took a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confirm {
    /// Its own hook says so, with the text.
    Hook,
    /// The text appears on the screen.
    Echo,
    /// Its prompt comes back (OSC 133), or the shell does.
    Prompt,
    /// Not at all.
    #[default]
    None,
}

impl Confirm {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Hook, Self::Echo, Self::Prompt, Self::None];

    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Hook => "hook",
            Self::Echo => "echo",
            Self::Prompt => "prompt",
            Self::None => "none",
        }
    }
}

impl fmt::Display for Confirm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for Confirm {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        Self::ALL
            .into_iter()
            .find(|confirm| confirm.word() == word)
            .ok_or_else(|| UnknownWord { word: word.to_owned(), of: "hook, echo, prompt, none" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_the_same_on_the_command_line_and_in_files() {
        for adapter in Adapter::ALL {
            assert_eq!(adapter.word().parse(), Ok(adapter));
            assert_eq!(serde_json::to_value(adapter).unwrap(), adapter.word());
            assert_eq!(Adapter::of(adapter.word()), adapter);
        }
        for confirm in Confirm::ALL {
            assert_eq!(confirm.word().parse(), Ok(confirm));
            assert_eq!(serde_json::to_value(confirm).unwrap(), confirm.word());
        }
        assert_eq!("generic".parse(), Ok(Adapter::None));
        assert_eq!(Adapter::of("shell"), Adapter::None);
        let refused = "clade".parse::<Adapter>().unwrap_err().to_string();
        assert_eq!(refused, "\"clade\" is none of claude, codex, gemini, opencode, aider, none");
        "Hook".parse::<Confirm>().unwrap_err();
    }
}
