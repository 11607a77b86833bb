//! The configuration of the pool's own tmux server. A user's own server is never configured.

/// Returns the text of the configuration file. `history_limit` is in lines. Contains no user-supplied text.
pub fn text(history_limit: u32) -> String {
    format!(
        "# Written by the pool at each start; changes here are lost.\n\
         # The server stays without sessions, and sessions stay without clients.\n\
         set-option -s exit-empty off\n\
         set-option -g destroy-unattached off\n\
         # A program that ended leaves its last screen.\n\
         set-option -g remain-on-exit on\n\
         set-option -gq remain-on-exit-format \"\"\n\
         set-option -g history-limit {history_limit}\n\
         set-option -g default-terminal tmux-256color\n\
         set-option -s escape-time 10\n\
         set-option -s focus-events on\n\
         # The environment of a session comes from its job, not from the attaching client.\n\
         set-option -g update-environment \"\"\n\
         set-option -g set-titles off\n\
         set-option -g status-left \"[#{{session_name}}] \"\n\
         set-option -g status-left-length 66\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_option_a_line() {
        let text = text(50_000);
        assert!(text.lines().all(|line| line.starts_with("# ") || line.starts_with("set-option -")));
        assert!(text.contains("default-terminal tmux-256color\n"));
        assert!(text.contains("history-limit 50000\n") && text.contains("\"[#{session_name}] \""));
    }

    #[test]
    fn the_file_of_the_systemd_unit_is_the_same() {
        let unit = include_str!("../../../scripts/systemd/tmux.conf");
        let options = |text: &str| -> Vec<String> {
            text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
        };
        assert_eq!(options(unit), options(&text(50_000)));
    }
}
