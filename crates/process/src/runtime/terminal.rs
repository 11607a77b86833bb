//! The abilities of this process's terminal, by its environment.

use std::env::var_os;
use std::ffi::OsStr;

/// True for a terminal on which control sequences would show as they are.
pub fn is_dumb() -> bool {
    is_dumb_name(var_os("TERM").as_deref())
}

/// True if colours are wanted on a terminal, unless an option says otherwise.
pub fn takes_colours() -> bool {
    !is_dumb() && var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

fn is_dumb_name(term: Option<&OsStr>) -> bool {
    term.is_none_or(|term| term.is_empty() || term == "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_without_a_name_is_dumb() {
        let is_dumb = |term: Option<&str>| is_dumb_name(term.map(OsStr::new));
        assert!([None, Some(""), Some("dumb")].into_iter().all(is_dumb));
        assert!(!["xterm-256color", "dumber"].into_iter().any(|term| is_dumb(Some(term))));
    }
}
