//! Aider's screen (0.86.2), described in the same way as in the configuration.

use std::sync::LazyLock;

use super::Patterns;

/// The composer is a `>` on the last line, with the name of a mode before it in some modes; questions end in
/// `(Y)es/(N)o`.
static PATTERNS: LazyLock<Patterns> = LazyLock::new(|| {
    let pattern = |text: &str| text.parse().ok();
    Patterns {
        composer: pattern(r"^(?:[a-z-]+ ?)*> ?(.*)\z"),
        dialog: pattern(r"^.*\(Y\)es/\(N\)o.*\z"),
        ..Patterns::default()
    }
});

/// Returns the description, compiled once.
pub(super) fn patterns() -> Patterns {
    PATTERNS.clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_of_it_is_one() {
        let patterns = patterns();
        assert!(patterns.composer.is_some() && patterns.dialog.is_some());
    }
}
