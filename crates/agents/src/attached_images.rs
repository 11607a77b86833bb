//! Images in a prompt: Claude Code (2.1.197) and Codex (0.171.0) attach the file that a path names, and report
//! `[Image #1]` in its place.

/// The beginning of what stands for an image; a number and `]` follow.
const PLACEHOLDER: &str = "[Image #";

/// The ends of the names of images.
const ENDINGS: [&str; 5] = [".png", ".jpg", ".jpeg", ".gif", ".webp"];

/// True if the report is the text that was sent, but for paths of images, for each of which it has a placeholder. What
/// `visible` removes does not count.
pub(crate) fn are_attached(sent: &str, reported: &str, visible: impl Fn(&str) -> String) -> bool {
    let (reported, attached) = without_placeholders(reported);
    let reported = visible(&reported);
    let mut rest = reported.as_str();
    let mut left_out = 0;
    for (piece, is_image) in pieces(sent) {
        let piece = visible(piece);
        match rest.strip_prefix(piece.as_str()) {
            Some(more) => rest = more,
            None if is_image => left_out += 1,
            None => return false,
        }
    }
    rest.is_empty() && attached > 0 && left_out == attached
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

/// Cuts a text at white space that is neither quoted nor escaped; true for a piece that may be the path of an image.
fn pieces(text: &str) -> Vec<(&str, bool)> {
    let (mut pieces, mut from, mut quote, mut escaped) = (Vec::new(), None, None, false);
    for (at, c) in text.char_indices() {
        let was_escaped = std::mem::take(&mut escaped);
        match (c, quote) {
            _ if was_escaped => {}
            ('\\', _) => escaped = true,
            (c, Some(open)) if c == open => quote = None,
            // Within a word it is an apostrophe.
            ('\'' | '"', None) if from.is_none() => quote = Some(c),
            (c, None) if c.is_whitespace() => {
                pieces.extend(from.take().map(|from| &text[from..at]));
                continue;
            }
            _ => {}
        }
        from.get_or_insert(at);
    }
    pieces.extend(from.map(|from| &text[from..]));
    pieces.into_iter().map(|piece| (piece, is_image(piece))).collect()
}

fn is_image(piece: &str) -> bool {
    let path = piece.trim_matches(['\'', '"']);
    let is_path = path.starts_with(['/', '~']) || path.starts_with("file://");
    let name = path.to_ascii_lowercase();
    is_path && ENDINGS.iter().any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

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
            ("first\n/t/x.png\nlast", "[Image #8]first\nlast"),
            ("compare: /t/x.png /t/y.gif", "[Image #9] [Image #10]compare:"),
            ("it's /t/x.png and /t/missing.png, isn't it", "[Image #2]it's and /t/missing.png, isn't it"),
            ("what is [Image #3] in /t/x.png", "[Image #4]what is [Image #3] in"),
        ] {
            let is_literal = sent.contains(PLACEHOLDER);
            assert_eq!(are_attached(sent, reported), !is_literal, "{sent} | {reported}");
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
        ] {
            assert!(!are_attached(sent, reported), "{sent} | {reported}");
        }
    }
}
