//! What was typed last into a pane, in an option of the pane: the server writes it in the same queue pass as it types,
//! and types only under a token later than the one there. So a text is typed once, however its sender ends, and whoever
//! comes after it can ask whether it was; asking calls off what is still on its way.
//!
//! A hook of the server's owner may hold the pass up between two of its commands, and whoever sent it may end there: so
//! the token is written before the act, with a mark that says perhaps, and after it.

use protocol::ids::{Tag, Token};

use crate::command::script;
use crate::device::Device;
use crate::error::TmuxError;
use crate::guard::{Answer, Guarded, Needs, PaneRef};

/// The option. Its value is a token as [`Tag::of`] writes it, which sorts as tokens do, and what came of it.
const OPTION: &str = "@pool_typed";
/// Behind a token: it is being done.
const PERHAPS: &str = "?";
/// Behind a token: Enter was pressed too.
const ENTERED: &str = "+";
/// Behind a token: it was called off.
const CALLED_OFF: &str = "-";

/// What a pane tells of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receipt {
    /// Nothing was typed under it, and nothing ever will be.
    CalledOff,
    /// The text was typed, whole; Enter was not pressed.
    Typed,
    /// The text was typed, whole, and Enter was pressed.
    Entered,
    /// It does not tell: it has no receipt, or a later one, or one that says perhaps.
    Unknown,
}

impl Device {
    /// Whether the text of this token was typed. Where it was not, it never will be from here on.
    ///
    /// # Errors
    /// As any call. Safe to repeat.
    pub async fn call_off(&self, pane: PaneRef, token: Token) -> Result<(Answer, Receipt), TmuxError> {
        let target = pane.pane.to_string();
        let off = set(&target, token, CALLED_OFF);
        let off = script([&off.each_ref().map(String::as_str)[..]]);
        let earlier = format!("#{{&&:#{{!=:#{{{OPTION}}},}},{}}}", before(token));
        let value = format!("#{{{OPTION}}}");
        let commands: &[&[&str]] = &[
            &["if-shell", "-F", "-t", &target, &earlier, &off],
            &["display-message", "-p", "-t", &target, &value],
        ];
        let (answer, said) = Guarded { pane, needs: Needs::Ours, commands }.run(self).await?;
        Ok((answer, read(String::from_utf8_lossy(&said).trim_end(), token)))
    }
}

fn read(value: &str, token: Token) -> Receipt {
    match value.strip_prefix(Tag::of(token).to_string().as_str()) {
        Some("") => Receipt::Typed,
        Some(ENTERED) => Receipt::Entered,
        Some(CALLED_OFF) => Receipt::CalledOff,
        _ => Receipt::Unknown,
    }
}

/// True of a pane whose receipt is of before this token, or that has none.
pub(crate) fn before(token: Token) -> String {
    format!("#{{<:#{{{OPTION}}},{}}}", Tag::of(token))
}

/// True of a pane that was typed into under this token last, and Enter was not pressed.
pub(crate) fn without_enter(token: Token) -> String {
    format!("#{{==:#{{{OPTION}}},{}}}", Tag::of(token))
}

/// The commands before and after an act under the token that had to be so.
pub(crate) fn around(needs: Needs, target: &str) -> Option<[[String; 6]; 2]> {
    let around = |token, done| [set(target, token, PERHAPS), set(target, token, done)];
    match needs {
        Needs::Untyped(token) => Some(around(token, "")),
        Needs::Unentered(token) => Some(around(token, ENTERED)),
        Needs::Ours | Needs::Alive | Needs::Open | Needs::Typable | Needs::Unattended => None,
    }
}

/// The command of a pane's beginning: nothing of before this token was typed into it.
pub(crate) fn begins(target: &str, token: Token) -> [String; 6] {
    set(target, token, CALLED_OFF)
}

fn set(target: &str, token: Token, what: &str) -> [String; 6] {
    let value = format!("{}{what}", Tag::of(token));
    ["set-option", "-p", "-t", target, OPTION, &value].map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use protocol::Epoch;

    use super::*;

    #[test]
    fn only_its_own_token_tells_anything() {
        let token = |epoch, n| Token { epoch: Epoch(epoch), n };
        let value = |token: Token, what: &str| format!("{}{what}", Tag::of(token));
        let its = token(2, 10);
        assert_eq!(read(&value(its, ""), its), Receipt::Typed);
        assert_eq!(read(&value(its, ENTERED), its), Receipt::Entered);
        assert_eq!(read(&value(its, CALLED_OFF), its), Receipt::CalledOff);
        for other in ["", "x", &value(its, PERHAPS), &value(token(2, 9), ""), &value(token(3, 1), ENTERED)] {
            assert_eq!(read(other, its), Receipt::Unknown, "{other}");
        }
    }

    #[test]
    fn values_sort_as_tokens_do() {
        let token = |epoch, n| Token { epoch: Epoch(epoch), n };
        let tokens = [token(1, 2), token(1, 10), token(2, 1), token(10, 0), token(255, 9), token(256, 1)];
        for pair in tokens.windows(2) {
            for what in ["", PERHAPS, ENTERED, CALLED_OFF] {
                assert!(format!("{}{what}", Tag::of(pair[0])) < Tag::of(pair[1]).to_string());
                assert!(format!("{}{what}", Tag::of(pair[1])) >= Tag::of(pair[1]).to_string());
            }
        }
    }
}
