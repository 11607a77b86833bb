//! Names of keys. tmux types an unknown word letter by letter, so only known names pass.

use std::fmt;
use std::str::FromStr;

/// Names of keys in tmux's spelling.
const NAMED: [&str; 40] = [
    "Enter", "Escape", "Tab", "BTab", "Space", "BSpace", "Up", "Down", "Left", "Right", "Home", "End",
    "NPage", "PPage", "IC", "DC", "F1", "F2", "F3", "F4", "F5", "F6", "F7", "F8", "F9", "F10", "F11", "F12",
    "KP0", "KP1", "KP2", "KP3", "KP4", "KP5", "KP6", "KP7", "KP8", "KP9", "KPEnter", "KP.",
];

/// Other common names of the same keys.
const OTHERWISE: [(&str, &str); 8] = [
    ("PageDown", "NPage"),
    ("PgDn", "NPage"),
    ("PageUp", "PPage"),
    ("PgUp", "PPage"),
    ("Insert", "IC"),
    ("Delete", "DC"),
    ("Backspace", "BSpace"),
    ("Esc", "Escape"),
];

/// Error: the word is not the name of a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a key: {0:?} (a key is a character, or a name like Enter, Up, F5, with C-, M- or S- before it)")]
pub struct UnknownKey(pub String);

/// A key: one visible character or a name, with modifiers `C-`, `M-`, `S-` before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key(String);

impl Key {
    /// Name of the key in tmux's spelling.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the character that the key adds to a line of text, if it adds one.
    pub fn character(&self) -> Option<char> {
        match self.0.as_str() {
            "Enter" | "KPEnter" => Some('\r'),
            "BSpace" => Some('\u{7f}'),
            "Space" => Some(' '),
            // The keypad gives what is on its key.
            name => match (
                only_character(name.strip_prefix("KP").unwrap_or(name)),
                name.strip_prefix("C-").and_then(only_character),
            ) {
                (Some(character), _) => Some(character),
                (None, Some(letter)) if letter.is_ascii_alphabetic() => {
                    Some(char::from(letter.to_ascii_lowercase() as u8 & 0x1f))
                }
                _ => None,
            },
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Key {
    type Err = UnknownKey;
    fn from_str(text: &str) -> Result<Self, UnknownKey> {
        let unknown = || UnknownKey(text.chars().take(40).collect());
        let (modifiers, base) = split(text);
        let base = canonical(base).ok_or_else(unknown)?;
        // tmux knows control characters for these only; for any other character it would type the word letter by
        // letter.
        let control = modifiers.contains(&'C');
        let has_control = |c: char| c.is_ascii_alphabetic() || "@[\\]^_? ".contains(c);
        let character = only_character(base);
        if control && character.is_some_and(|c| !has_control(c)) {
            return Err(unknown());
        }
        if modifiers.contains(&'S') && character.is_some() {
            return Err(unknown());
        }
        let prefix: String = modifiers.iter().flat_map(|m| [*m, '-']).collect();
        Ok(Self(prefix + base))
    }
}

/// Splits off the modifiers, each at most once.
fn split(text: &str) -> (Vec<char>, &str) {
    let mut modifiers = Vec::new();
    let mut rest = text;
    while let [letter, b'-', _, ..] = rest.as_bytes() {
        let modifier = letter.to_ascii_uppercase() as char;
        if !"CMS".contains(modifier) || modifiers.contains(&modifier) {
            break;
        }
        modifiers.push(modifier);
        rest = &rest[2..];
    }
    (modifiers, rest)
}

fn canonical(base: &str) -> Option<&str> {
    if only_character(base).is_some_and(|c| !c.is_control() && !c.is_whitespace()) {
        return Some(base);
    }
    let other = OTHERWISE.iter().find(|(name, _)| name.eq_ignore_ascii_case(base)).map(|(_, known)| *known);
    other.or_else(|| NAMED.into_iter().find(|name| name.eq_ignore_ascii_case(base)))
}

/// The character that a text consists of.
fn only_character(text: &str) -> Option<char> {
    let mut characters = text.chars();
    characters.next().filter(|_| characters.next().is_none())
}

/// Parses all words as keys.
///
/// # Errors
/// The first word that is not a key.
pub fn parse(words: &[String]) -> Result<Vec<Key>, UnknownKey> {
    words.iter().map(|word| word.parse()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_known_by_their_names() {
        let key = |text: &str| text.parse::<Key>().map(|key| key.0);
        let same = [
            "C-c", "Enter", "Escape", "F1", "F12", "M-x", "Up", "C-M-a", "S-Up", ";", "-", "q", "C-[", "#",
            "é", "M-ß", "語", "😀",
        ];
        for text in same {
            assert_eq!(key(text).as_deref(), Ok(text));
        }
        for (text, name) in [("enter", "Enter"), ("pgdn", "NPage"), ("c-Space", "C-Space"), ("Esc", "Escape")]
        {
            assert_eq!(key(text).as_deref(), Ok(name));
        }
    }

    #[test]
    fn a_key_gives_the_character_that_it_types() {
        let given = |text: &str| text.parse::<Key>().unwrap().character();
        let keys = ["x", "KP1", "KPEnter", "C-U", "F1"].map(given);
        assert_eq!(keys, [Some('x'), Some('1'), Some('\r'), Some('\u{15}'), None]);
    }

    #[test]
    fn words_that_tmux_would_type_or_obey_are_refused() {
        let words = [
            "",
            "-t",
            "-l",
            "%5",
            "hello",
            "Entr",
            "F13",
            "C-",
            "C-C-c",
            "X-a",
            "C-é",
            "S-é",
            "éé",
            "e\u{301}",
            "\u{a0}",
            "\u{9b}",
            "a;",
            " ",
            "\n",
            "C-1",
            "S-a",
            "0x1b",
            "Any",
            "MouseDown1Pane",
            "#{pid}",
            "--",
        ];
        for word in words {
            assert!(word.parse::<Key>().is_err(), "{word:?}");
        }
        let words = ["Up".to_owned(), "Entr".to_owned()];
        assert_eq!(parse(&words), Err(UnknownKey("Entr".to_owned())));
    }
}
