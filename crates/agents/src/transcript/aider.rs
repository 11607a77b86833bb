//! Aider's history of prompts (0.86.2), in the format of `prompt_toolkit`: a comment with a local time, then
//! each line of the prompt after a `+`. A prompt is written when it is taken; answers are not written.

use super::RecordedPrompt;

/// Returns the complete prompts, oldest first and without a time, because the zone of the local time is
/// unknown.
pub(super) fn prompts(tail: &[u8]) -> Vec<RecordedPrompt> {
    let text = String::from_utf8_lossy(tail);
    let mut lines = text.split('\n').peekable();
    let mut prompts = Vec::new();
    while let Some(line) = lines.next() {
        if !line.starts_with("# ") {
            continue;
        }
        let mut prompt = Vec::new();
        while let Some(line) = lines.next_if(|line| line.starts_with('+')) {
            prompt.push(&line[1..]);
        }
        if !prompt.is_empty() {
            prompts.push(RecordedPrompt { text: prompt.join("\n"), at: None, queued: false });
        }
    }
    prompts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_has_its_lines_as_they_were_typed() {
        let record = b"of one before\n\n# 2026-11-24 02:00:37.845368\n+hello you\n\n# 2026-11-24 02:00:42.6\n+a\tb\n+# c\n++d\n";
        let texts: Vec<String> = prompts(record).into_iter().map(|prompt| prompt.text).collect();
        assert_eq!(texts, ["hello you", "a\tb\n# c\n+d"]);
    }

    #[test]
    fn a_prompt_whose_beginning_was_not_read_is_none() {
        assert!(prompts(b"+the end of one\n").is_empty());
        assert!(prompts(b"# 2026-11-24 02:00:37\n").is_empty());
    }
}
