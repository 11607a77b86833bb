//! The environment variables of a caller that a new session does not inherit: those of the caller's terminal
//! and session, of its service manager, and of another session of a pool.

/// Patterns of variable names; a final `*` matches any rest. All other variables are inherited, unless the
/// configuration (`[env] pass`, `drop`) or `--clean-env` says otherwise. `--env` sets any variable except
/// those of the pool.
pub const STRIPPED: [&str; 55] = [
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
    // Each session has its own, removed together with it.
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
    // An agent that finds these believes that it runs inside another agent.
    "CLAUDECODE",
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_CODE_SSE_PORT",
    "CODEX_SANDBOX*",
    "GEMINI_CLI",
    "GEMINI_CLI_SYSTEM_DEFAULTS_PATH",
];

/// True if the pattern (a name, or a prefix followed by `*`) matches the name.
pub fn matches(pattern: &str, name: &[u8]) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start.as_bytes()),
        None => name == pattern.as_bytes(),
    }
}

/// True if a session does not inherit the variable of this name.
pub fn is_stripped(name: &[u8]) -> bool {
    STRIPPED.iter().any(|pattern| matches(pattern, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_belongs_to_a_terminal_or_to_a_supervisor_stays_behind() {
        for name in
            ["TMUX", "TMUX_PANE", "TERM", "TERM_PROGRAM", "SHLVL", "_", "POOL_SOCKET", "LISTEN_FDS", "PWD"]
        {
            assert!(is_stripped(name.as_bytes()), "{name}");
        }
        for name in
            ["PATH", "HOME", "ANTHROPIC_API_KEY", "EDITOR", "COLORTERM", "__X", "http_proxy", "VIRTUAL_ENV"]
        {
            assert!(!is_stripped(name.as_bytes()), "{name}");
        }
        assert!(matches("*", b"anything") && !matches("A*", b"BA"));
    }
}
