//! The configuration: its file ([`file`]), the sections with every key ([`sections`]), and what they come to: the core's settings
//! ([`agents`]) and the daemon's own ([`lifecycle`]).

pub(crate) mod agents;
pub(crate) mod file;
pub(crate) mod lifecycle;
pub(crate) mod sections;
pub(crate) mod values;

pub use crate::config::file::Config;
pub(crate) use crate::config::lifecycle::{Cgroup, Life};
pub use crate::config::sections::*;
pub use crate::config::values::ConfigError;

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use protocol::session::Size;

    use super::*;

    #[test]
    fn defaults_are_valid_and_survive_a_round_trip() {
        let config = Config::parse("").unwrap();
        assert_eq!(Config::parse(&config.to_toml().unwrap()).unwrap(), config);
        assert_eq!(config.settings(Path::new("/s"), 0).unwrap().max_sessions, 16);
    }

    #[test]
    fn mistakes_are_named() {
        let says = |text: &str| Config::parse(text).unwrap_err().0;
        assert!(says("[pool]\nmax_session = 3").contains("[pool] max_session; did you mean max_sessions?"));
        assert!(says("[tmuxx]\n").contains("did you mean tmux?"));
        assert!(says("[agents.x]\ncomand = 'y'").contains("did you mean command?"));
        assert!(says("[reaper]\ngrace = 'soon'").contains("duration like 5s"));
        assert!(says("[queue]\nmax_bytes = '1 furlong'").contains("size like 64MiB"));
        assert!(says("[tmux]\nsize = '0x5'").contains("200x50"));
        assert!(says("[pool\n").contains("TOML parse error"));
    }
}
