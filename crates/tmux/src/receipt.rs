//! Receipt of the last text typed into a pane, kept in an option of the pane. The server writes it in the
//! same queue pass as it types, and types only under a token later than the one there. So a text is typed
//! once, however its sender ends, and a later process can query whether it was; the query revokes a text
//! that is still on its way.
//!
//! A hook of the server's owner can delay the pass between two of its commands, and the sender may end
//! meanwhile. So the token is written twice: before the act with the mark `?`, and after it.

use protocol::{Tag, Token};

/// The option. Its value is a token as written by [`Tag::for_claim`], which sorts as tokens do, followed by
/// one of the marks below.
const OPTION: &str = "@pool_typed";
/// Mark behind a token: the act is in progress.
const PERHAPS: &str = "?";
/// Mark behind a token: Enter was pressed too.
const ENTERED: &str = "+";
/// Mark behind a token: it was revoked.
const REVOKED: &str = "-";

/// State of a token according to its pane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receipt {
    /// Nothing was typed under it, and nothing ever will be.
    Revoked,
    /// The whole text was typed; Enter was not pressed.
    Typed,
    /// The whole text was typed, and Enter was pressed.
    Entered,
    /// The pane does not tell: it has no receipt, a later one, or one of an operation in progress.
    Unknown,
}

pub(crate) fn read(value: &str, token: Token) -> Receipt {
    match value.strip_prefix(Tag::for_claim(token).to_string().as_str()) {
        Some("") => Receipt::Typed,
        Some(ENTERED) => Receipt::Entered,
        Some(REVOKED) => Receipt::Revoked,
        _ => Receipt::Unknown,
    }
}

/// Format: true for a pane whose receipt is older than this token, or missing.
pub(crate) fn before(token: Token) -> String {
    format!("#{{<:#{{{OPTION}}},{}}}", Tag::for_claim(token))
}

/// Format: true for a pane whose last text was typed under this token, without Enter.
pub(crate) fn without_enter(token: Token) -> String {
    format!("#{{==:#{{{OPTION}}},{}}}", Tag::for_claim(token))
}

/// Returns the commands before and after typing a text under this token.
pub(crate) fn around_text(target: &str, token: Token) -> [[String; 6]; 2] {
    [set(target, token, PERHAPS), set(target, token, "")]
}

/// Returns the commands before and after pressing Enter under this token.
pub(crate) fn around_enter(target: &str, token: Token) -> [[String; 6]; 2] {
    [set(target, token, PERHAPS), set(target, token, ENTERED)]
}

/// Returns the command that revokes a token, also the initial value of a new pane.
pub(crate) fn revoked(target: &str, token: Token) -> [String; 6] {
    set(target, token, REVOKED)
}

/// Format of the option's value.
pub(crate) fn value() -> String {
    format!("#{{{OPTION}}}")
}

/// Format: true for a pane with a receipt older than this token.
pub(crate) fn has_older(token: Token) -> String {
    format!("#{{&&:#{{!=:#{{{OPTION}}},}},{}}}", before(token))
}

fn set(target: &str, token: Token, mark: &str) -> [String; 6] {
    let value = format!("{}{mark}", Tag::for_claim(token));
    ["set-option", "-p", "-t", target, OPTION, &value].map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use protocol::Epoch;

    use super::*;

    #[test]
    fn only_its_own_token_tells_anything() {
        let token = |epoch, n| Token { epoch: Epoch(epoch), n };
        let value = |token: Token, mark: &str| format!("{}{mark}", Tag::for_claim(token));
        let its = token(2, 10);
        assert_eq!(read(&value(its, ""), its), Receipt::Typed);
        assert_eq!(read(&value(its, ENTERED), its), Receipt::Entered);
        assert_eq!(read(&value(its, REVOKED), its), Receipt::Revoked);
        for other in ["", "x", &value(its, PERHAPS), &value(token(2, 9), ""), &value(token(3, 1), ENTERED)] {
            assert_eq!(read(other, its), Receipt::Unknown, "{other}");
        }
    }

    #[test]
    fn values_sort_as_tokens_do() {
        let token = |epoch, n| Token { epoch: Epoch(epoch), n };
        let tokens = [token(1, 2), token(1, 10), token(2, 1), token(10, 0), token(255, 9), token(256, 1)];
        for pair in tokens.windows(2) {
            for mark in ["", PERHAPS, ENTERED, REVOKED] {
                assert!(format!("{}{mark}", Tag::for_claim(pair[0])) < Tag::for_claim(pair[1]).to_string());
                assert!(format!("{}{mark}", Tag::for_claim(pair[1])) >= Tag::for_claim(pair[1]).to_string());
            }
        }
    }
}
