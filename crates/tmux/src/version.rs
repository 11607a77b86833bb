//! Versions of tmux.

use std::cmp::Ordering;
use std::fmt;

/// Oldest supported tmux: has `-N`, `new-session` with several words, and client flags.
pub const OLDEST: Version = Version { major: 3, minor: 2, next: false };

/// Format that is true in servers (3.7 and later) whose `paste-buffer` alters control bytes unless given
/// `-S`; earlier ones reject the flag. Evaluated by the server that pastes, since it may be older than the
/// binary.
pub(crate) const PASTE_ALTERS: &str = "#{m/r:^(next-)?(3\\.([7-9]|[1-9][0-9])|[4-9]\\.),#{version}}";

/// Version of tmux, without its patch letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    /// Major version: the `3` of 3.3a.
    pub major: u16,
    /// Minor version: the second 3 of 3.3a.
    pub minor: u16,
    /// True for a development build (`next-3.8`) of this version.
    pub next: bool,
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.major, self.minor, !self.next).cmp(&(other.major, other.minor, !other.next))
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Version {
    /// Parses `tmux 3.3a`, `tmux next-3.8`, `tmux master`. OpenBSD's own numbers (`openbsd-7.6`) do not
    /// tell tmux's version and give `None`, as does anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let text = text.strip_prefix("tmux ").unwrap_or(text);
        if text == "master" {
            return Some(Self { major: u16::MAX, minor: 0, next: true });
        }
        let (next, numbers) = match text.strip_prefix("next-") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (major, rest) = numbers.split_once('.')?;
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (minor, letter) = rest.split_at(end);
        let known = letter.is_empty() || letter.starts_with(|c: char| c.is_ascii_lowercase() || c == '-');
        let digits = major.bytes().all(|b| b.is_ascii_digit());
        if known && digits {
            Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()?, next })
        } else {
            None
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let next = if self.next { "next-" } else { "" };
        write!(f, "{next}{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_parse_and_order() {
        let version = |text| Version::parse(text).unwrap();
        assert_eq!(version("tmux 3.3a\n"), Version { major: 3, minor: 3, next: false });
        assert_eq!(version("tmux 3.7c"), version("3.7"));
        assert_eq!(version("3.5-rc2"), version("3.5"));
        assert!(version("tmux next-3.8") < version("tmux 3.8"));
        assert!(version("tmux next-3.8") > version("tmux 3.7c"));
        assert!(version("3.10") > version("3.9a"));
        assert!(version("master") > version("4.0"));
        assert!(version("3.2a") >= OLDEST && version("3.1c") < OLDEST);
        assert_eq!(
            (version("tmux 3.7c").to_string(), version("next-3.8").to_string()),
            ("3.7".into(), "next-3.8".into())
        );
        for bad in ["", "tmux", "tmux openbsd-7.6", "3", "3.", ".3", "3.x", "-3.3", "3.3 a", "99999999.1"] {
            assert_eq!(Version::parse(bad), None, "{bad}");
        }
    }
}
