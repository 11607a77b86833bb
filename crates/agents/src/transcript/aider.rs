//! Aider's history of prompts (0.86.2), a file of readline's kind: a time of day without its zone, and each line of the prompt
//! behind a `+`. A prompt is in it as soon as it was taken; answers are not.

use super::Said;

/// The prompts that are whole, oldest first. When they were given is not known.
pub(super) fn prompts(tail: &[u8]) -> Vec<Said> {
    let text = String::from_utf8_lossy(tail);
    let mut lines = text.split('\n').peekable();
    let mut said = Vec::new();
    while let Some(line) = lines.next() {
        if !line.starts_with("# ") {
            continue;
        }
        let mut prompt = Vec::new();
        while let Some(line) = lines.next_if(|line| line.starts_with('+')) {
            prompt.push(&line[1..]);
        }
        if !prompt.is_empty() {
            said.push(Said { text: prompt.join("\n"), at: None, queued: false });
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_has_its_lines_as_they_were_typed() {
        let record = b"of one before\n\n# 2026-11-24 02:00:37.845368\n+hello you\n\n# 2026-11-24 02:00:42.6\n+a\tb\n+# c\n++d\n";
        let texts: Vec<String> = prompts(record).into_iter().map(|said| said.text).collect();
        assert_eq!(texts, ["hello you", "a\tb\n# c\n+d"]);
    }

    #[test]
    fn a_prompt_whose_beginning_was_not_read_is_none() {
        assert!(prompts(b"+the end of one\n").is_empty());
        assert!(prompts(b"# 2026-11-24 02:00:37\n").is_empty());
    }
}
