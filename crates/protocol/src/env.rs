//! What of a caller's environment does not go along into a session: what belongs to the terminal and the session that the
//! caller itself is in, to its service manager, or to another session of a pool.

/// Names of variables; one that ends with `*` stands for all that begin so. Everything else goes along, unless the
/// configuration (`[env] pass`, `drop`) or `--clean-env` says otherwise; `--env` sets any of them but those of the pool.
pub const LEFT: [&str; 55] = [
    "TMUX*",
    "TERM",
    "TERM_*",
    "TERMCAP",
    "TERMINFO",
    "STY",
    "WINDOW",
    "WINDOWID",
    "COLUMNS",
    "LINES",
    "SHLVL",
    "_",
    "PWD",
    "OLDPWD",
    // A session's own, which goes with it.
    "TMPDIR",
    "POOL_*",
    "NOTIFY_SOCKET",
    "LISTEN_*",
    "WATCHDOG_*",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "MAINPID",
    "MANAGERPID",
    "SYSTEMD_EXEC_PID",
    "MEMORY_PRESSURE_*",
    "SSH_TTY",
    "GPG_TTY",
    "KITTY_*",
    "WEZTERM_*",
    "ITERM_*",
    "ALACRITTY_*",
    "GHOSTTY_*",
    "KONSOLE_*",
    "GNOME_TERMINAL_*",
    "WARP_*",
    "VTE_VERSION",
    "WT_SESSION",
    "WT_PROFILE_ID",
    "ZELLIJ*",
    "VSCODE_*",
    "INSIDE_EMACS",
    "NVIM",
    "NVIM_LISTEN_ADDRESS",
    "VIM",
    "VIMRUNTIME",
    "MAKEFLAGS",
    "MFLAGS",
    "MAKELEVEL",
    "BASH_FUNC_*",
    // An agent that finds these takes itself for one that another agent runs.
    "CLAUDECODE",
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_CODE_SSE_PORT",
    "CODEX_SANDBOX*",
    "GEMINI_CLI",
    "GEMINI_CLI_SYSTEM_DEFAULTS_PATH",
];

/// Whether a pattern, a name or a beginning with `*`, stands for this name.
#[must_use]
pub fn matches(pattern: &str, name: &[u8]) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start.as_bytes()),
        None => name == pattern.as_bytes(),
    }
}

/// Whether a variable of this name stays behind.
#[must_use]
pub fn is_left(name: &[u8]) -> bool {
    LEFT.iter().any(|pattern| matches(pattern, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_belongs_to_a_terminal_or_to_a_supervisor_stays_behind() {
        for name in
            ["TMUX", "TMUX_PANE", "TERM", "TERM_PROGRAM", "SHLVL", "_", "POOL_SOCKET", "LISTEN_FDS", "PWD"]
        {
            assert!(is_left(name.as_bytes()), "{name}");
        }
        for name in
            ["PATH", "HOME", "ANTHROPIC_API_KEY", "EDITOR", "COLORTERM", "__X", "http_proxy", "VIRTUAL_ENV"]
        {
            assert!(!is_left(name.as_bytes()), "{name}");
        }
        assert!(matches("*", b"anything") && !matches("A*", b"BA"));
    }
}
