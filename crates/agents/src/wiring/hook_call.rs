//! The command line of a hook.

use crate::adapter::Adapter;
use crate::shell_word::quoted;

/// A call of `poolctl hook`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HookCall<'a> {
    pub(crate) poolctl: &'a str,
    /// The arguments; none needs quoting in a shell.
    pub(crate) args: Vec<String>,
}

impl<'a> HookCall<'a> {
    pub(crate) fn new(poolctl: &'a str, adapter: Adapter) -> Self {
        Self { poolctl, args: vec!["hook".to_owned(), adapter.as_str().to_owned()] }
    }

    /// Appends an argument.
    pub(crate) fn with(mut self, arg: &str) -> Self {
        self.args.push(arg.to_owned());
        self
    }

    /// Waits for the answer to a permission request for this many milliseconds.
    pub(crate) fn waiting(self, wait_ms: u64) -> Self {
        self.with("--wait").with(&format!("{wait_ms}ms"))
    }

    /// Returns the call as a line for a shell.
    pub(crate) fn line(&self) -> String {
        format!("{} {}", quoted(self.poolctl), self.args.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_word_of_the_shell() {
        let line = |path| HookCall::new(path, Adapter::Codex).line();
        assert_eq!(line("/usr/bin/poolctl"), "/usr/bin/poolctl hook codex");
        assert_eq!(line("/my tools/poolctl"), "'/my tools/poolctl' hook codex");
        assert_eq!(line("/it's/$x`y`/poolctl"), r"'/it'\''s/$x`y`/poolctl' hook codex");
        let waits = HookCall::new("/p", Adapter::Codex).waiting(1500);
        assert_eq!(waits.line(), "/p hook codex --wait 1500ms");
    }
}
