//! Typing into a pane, by way of a tmux buffer: a text is typed into the intended pane, or not at all.
//!
//! Text never appears on a command line, where tmux would split it at `;`, and `send-keys` would lose bytes
//! in a mode. `paste-buffer` into a dead pane crashes tmux up to 3.3a; the guard is in the same queue pass.

use protocol::Token;

use crate::command::{CommandLine, script};
use crate::device::Device;
use crate::error::TmuxError;
use crate::guard::{Answer, Guarded, Nonce, PaneRef, Precondition};
use crate::keys::Key;
use crate::receipt::{self, Receipt};
use crate::version::PASTE_ALTERS;

impl Device {
    /// Pastes bytes unchanged, once under this token, as a bracketed paste if the program asked for those.
    /// The caller filters control bytes: an escape sequence could end the paste early. An empty text is
    /// refused. [`Answer::Already`] if something was typed or revoked under this token or a later one.
    ///
    /// # Errors
    /// As any call; unless the error is [in doubt](TmuxError::in_doubt), certainly nothing was typed.
    /// [`Device::revoke`] resolves the doubt.
    pub async fn paste(&self, pane: PaneRef, token: Token, text: &[u8]) -> Result<Answer, TmuxError> {
        self.put(pane, Precondition::Untyped(token), &["-p"], text).await
    }

    /// Sends bytes as if typed: never as a bracketed paste, and they reach the program in copy mode too.
    ///
    /// # Errors
    /// As any call; unless the error is [in doubt](TmuxError::in_doubt), certainly nothing was typed.
    pub async fn input(&self, pane: PaneRef, bytes: &[u8]) -> Result<Answer, TmuxError> {
        self.put(pane, Precondition::Open, &[], bytes).await
    }

    async fn put(
        &self,
        pane: PaneRef,
        precondition: Precondition,
        how: &[&str],
        text: &[u8],
    ) -> Result<Answer, TmuxError> {
        if text.is_empty() {
            return Err(TmuxError::Refused("an empty text cannot be pasted".to_owned()));
        }
        let nonce = Nonce::new();
        let buffer = format!("pool-{nonce}");
        let guarded = Guarded { pane, precondition, commands: &[] };
        let effect = paste_buffer(&guarded, nonce, &[how, &["-r", "-d", "-b", &buffer]].concat());
        let forget: &[&str] = &["delete-buffer", "-b", &buffer];
        let line = CommandLine::default().then(["load-buffer", "-b", &buffer, "-"]).then(guarded.words(
            &nonce,
            &effect,
            Some(forget),
        ));
        let reply = self.run(&line, Some(text), false).await?;
        let answer = guarded.answer(nonce, &reply.stdout).unwrap_or_else(|| Err(reply.error()))?;
        Ok(answer.0)
    }

    /// Presses Enter: a carriage return, which reaches the program in copy mode too.
    pub async fn enter(&self, pane: PaneRef) -> Result<Answer, TmuxError> {
        self.press_enter(pane, Precondition::Open).await
    }

    /// Presses Enter after the text of this token, once. [`Answer::Already`] if that was not the last text
    /// typed, or Enter was pressed.
    pub async fn enter_after(&self, pane: PaneRef, token: Token) -> Result<Answer, TmuxError> {
        self.press_enter(pane, Precondition::Unentered(token)).await
    }

    async fn press_enter(&self, pane: PaneRef, precondition: Precondition) -> Result<Answer, TmuxError> {
        let nonce = Nonce::new();
        let buffer = format!("pool-{nonce}");
        let guarded = Guarded { pane, precondition, commands: &[] };
        let fill = script([&["set-buffer", "-b", &buffer, "\r"][..]]);
        let paste = paste_buffer(&guarded, nonce, &["-r", "-d", "-b", &buffer]);
        let line = CommandLine::default().then(guarded.words(&nonce, &format!("{fill} ; {paste}"), None));
        let reply = self.run(&line, None, false).await?;
        let answer = guarded.answer(nonce, &reply.stdout).unwrap_or_else(|| Err(reply.error()))?;
        Ok(answer.0)
    }

    /// Returns whether the text of this token was typed, and revokes the token if not: from then on it
    /// never will be.
    ///
    /// # Errors
    /// As any call. Safe to repeat.
    pub async fn revoke(&self, pane: PaneRef, token: Token) -> Result<(Answer, Receipt), TmuxError> {
        let target = pane.pane.to_string();
        let off = receipt::revoked(&target, token);
        let off = script([&off.each_ref().map(String::as_str)[..]]);
        let earlier = receipt::has_older(token);
        let format = receipt::value();
        let commands: &[&[&str]] = &[
            &["if-shell", "-F", "-t", &target, &earlier, &off],
            &["display-message", "-p", "-t", &target, &format],
        ];
        let (answer, value) = Guarded { pane, precondition: Precondition::Ours, commands }.run(self).await?;
        Ok((answer, receipt::read(String::from_utf8_lossy(&value).trim_end(), token)))
    }
    /// Sends keys by name, in order.
    pub async fn keys(&self, pane: PaneRef, keys: &[Key]) -> Result<Answer, TmuxError> {
        let target = pane.pane.to_string();
        let mut send = vec!["send-keys", "-t", &target, "--"];
        send.extend(keys.iter().map(Key::as_str));
        let guarded = Guarded { pane, precondition: Precondition::Typable, commands: &[&send] };
        guarded.run(self).await.map(|(answer, _)| answer)
    }
}

/// Builds a `paste-buffer` that is byte-exact on every version. The receipt and the mark of success are in
/// the same body as the paste: an error in a nested body would not end the outer one.
fn paste_buffer(guarded: &Guarded<'_>, nonce: Nonce, options: &[&str]) -> String {
    let target = guarded.pane.pane.to_string();
    let done = format!("YES {nonce}");
    let receipt = match guarded.precondition {
        Precondition::Untyped(token) => Some(receipt::around_text(&target, token)),
        Precondition::Unentered(token) => Some(receipt::around_enter(&target, token)),
        _ => None,
    };
    let body = |exact: &[&str]| {
        let paste = [&["paste-buffer"][..], exact, options, &["-t", &target]].concat();
        let done: &[&str] = &["display-message", "-p", &done];
        let [before, after] = receipt.as_ref().map_or([None, None], |[before, after]| {
            [before, after].map(|words| Some(words.each_ref().map(String::as_str)))
        });
        let (before, after) =
            (before.as_ref().map(|words| &words[..]), after.as_ref().map(|words| &words[..]));
        script(before.into_iter().chain([&paste[..]]).chain(after).chain([done]))
    };
    script([&["if-shell", "-F", PASTE_ALTERS, &body(&["-S"]), &body(&[])][..]])
}
