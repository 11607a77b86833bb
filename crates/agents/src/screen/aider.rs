//! Aider's screen (0.86.2), described as a user describes that of another agent.

use super::Patterns;

/// A prompt at the end, perhaps with the word of its mode before it; or a question.
pub(super) fn patterns() -> Patterns {
    let pattern = |text: &str| text.parse().ok();
    Patterns {
        composer: pattern(r"^(?:[a-z-]+ ?)*> ?(.*)\z"),
        dialog: pattern(r"^.*\(Y\)es/\(N\)o.*\z"),
        ..Patterns::default()
    }
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
