//! Images in a prompt: Claude Code (2.1.197) and Codex (0.171.0) attach the file that a path names, and report
//! `[Image #1]` in its place.

/// The beginning of what stands for an image; a number and `]` follow.
const PLACEHOLDER: &str = "[Image #";

/// The ends of the names of images.
const ENDINGS: [&str; 5] = [".png", ".jpg", ".jpeg", ".gif", ".webp"];

/// The characters in which a path may be quoted.
const QUOTES: [char; 2] = ['\'', '"'];

/// True if the report is the text that was sent, but for paths of images, for each of which it has a placeholder. What
/// `visible` removes does not count.
pub(crate) fn are_attached(sent: &str, reported: &str, visible: impl Fn(&str) -> String) -> bool {
    // The text itself may contain what looks like a placeholder.
    let ((sent, literal), (reported, placeholders)) =
        (without_placeholders(sent), without_placeholders(reported));
    let (sent, reported) = (words(&sent, &visible), visible(&reported));
    let (mut sent, mut rest, mut left_out) = (sent.as_slice(), reported.as_str(), 0);
    while let Some((word, more)) = sent.split_first() {
        if let Some(behind) = rest.strip_prefix(word.text.as_str()) {
            (sent, rest) = (more, behind);
        } else if let Some(behind) = behind_image(sent, rest) {
            (sent, left_out) = (behind, left_out + 1);
        } else {
            return false;
        }
    }
    rest.is_empty() && left_out > 0 && left_out + literal == placeholders
}

/// A word of a text, without what cannot be seen.
struct Word {
    text: String,
    line: usize,
}

fn words(text: &str, visible: impl Fn(&str) -> String) -> Vec<Word> {
    let of_line = |(line, text): (usize, &str)| {
        let words = text.split_whitespace().map(|word| Word { text: visible(word), line });
        words.collect::<Vec<_>>()
    };
    text.lines().enumerate().flat_map(of_line).collect()
}

/// Returns the words behind the path of an image at the beginning, if one is there whose next word the report goes on
/// with. A path is in one line, and may contain blanks, whether they are quoted or not.
fn behind_image<'a>(words: &'a [Word], rest: &str) -> Option<&'a [Word]> {
    let first = words.first()?;
    let path = first.text.trim_start_matches(QUOTES);
    (path.starts_with(['/', '~']) || path.starts_with("file://")).then_some(())?;
    let in_line = words.iter().take_while(|word| word.line == first.line).enumerate();
    let mut ends = in_line.filter(|(_, word)| is_end_of_image(&word.text)).map(|(at, _)| &words[at + 1..]);
    ends.find(|behind| match behind.first() {
        Some(next) => rest.starts_with(&next.text) || next.text.trim_start_matches(QUOTES).starts_with('/'),
        None => rest.is_empty(),
    })
}

fn is_end_of_image(word: &str) -> bool {
    let word = word.trim_end_matches(QUOTES).to_ascii_lowercase();
    ENDINGS.iter().any(|end| word.ends_with(end))
}

/// Removes the placeholders, and counts them.
fn without_placeholders(text: &str) -> (String, usize) {
    let mut parts = text.split(PLACEHOLDER);
    let mut left = parts.next().unwrap_or_default().to_owned();
    let mut count = 0;
    for part in parts {
        let after = part.trim_start_matches(|c: char| c.is_ascii_digit());
        match after.strip_prefix(']').filter(|_| after.len() < part.len()) {
            Some(after) => {
                count += 1;
                left.push_str(after);
            }
            None => {
                left.push_str(PLACEHOLDER);
                left.push_str(part);
            }
        }
    }
    (left, count)
}

#[cfg(test)]
mod tests {
    fn are_attached(sent: &str, reported: &str) -> bool {
        let visible = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect();
        super::are_attached(sent, reported, visible)
    }

    #[test]
    fn a_path_of_an_image_is_attached_and_the_rest_of_the_text_is_reported() {
        for (sent, reported) in [
            ("Describe the error in /t/x.png", "[Image #1]Describe the error in"),
            ("/t/x.png", "[Image #1]"),
            ("'/t/x y.PNG'", "[Image #12]"),
            ("\"/t/x y.png\"", "[Image #1]"),
            ("/t/x\\ y.jpeg", "[Image #1]"),
            ("file:///t/x.webp", "[Image #1]"),
            ("/t/Screenshot at 10.00.png", "[Image #1]"),
            ("Describe /t/x y.png now", "[Image #1]Describe now"),
            ("\"quote /t/it (1).png", "[Image #1]\"quote"),
            ("first\n/t/x.png\nlast", "[Image #8]first\nlast"),
            ("compare: /t/x.png /t/y.gif", "[Image #9] [Image #10]compare:"),
            ("it's /t/x.png and /t/missing.png, isn't it", "[Image #2]it's and /t/missing.png, isn't it"),
            ("what is [Image #3] in /t/x.png", "[Image #4]what is [Image #3] in"),
        ] {
            assert!(are_attached(sent, reported), "{sent} | {reported}");
        }
    }

    #[test]
    fn anything_else_is_another_text() {
        for (sent, reported) in [
            ("look at /t/x.png", "[Image #1]look"),
            ("look at /t/x.png", "look at"),
            ("look at /t/x.png", "[Image #1] [Image #2]look at"),
            ("look at it", "[Image #1]look at it"),
            ("look at /t/x.png", "[Image #1]look at this"),
            ("look at /t/x.txt", "[Image #1]look at"),
            ("", "[Image #1]"),
            ("see [Image #1]", "[Image #1]see"),
        ] {
            assert!(!are_attached(sent, reported), "{sent} | {reported}");
        }
    }
}
