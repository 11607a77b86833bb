//! Text into a pane, by way of a tmux buffer: a message is typed into the pane that is meant, or not at all.
//!
//! Text never stands on a command line, where tmux would split it at `;`, and `send-keys` would lose
//! bytes in a mode. `paste-buffer` into a dead pane crashes tmux up to 3.3a; the guard is in the same
//! queue pass.

use protocol::ids::Token;

use crate::command::{Line, script};
use crate::device::Device;
use crate::error::TmuxError;
use crate::guard::{Answer, Guarded, Needs, Nonce, PaneRef};
use crate::keys::Key;
use crate::receipt;
use crate::version::PASTE_ALTERS;

impl Device {
    /// Pastes bytes as they are, once under this token; as a bracketed paste where the program asked for those. Filter
    /// control bytes before: an escape sequence could end the paste early. Nothing at all is pasted for no bytes.
    /// [`Answer::Already`] where something was typed, or called off, under this token or a later one.
    ///
    /// # Errors
    /// As any call; unless the error is [in doubt](TmuxError::in_doubt), certainly nothing was typed. One that is can be
    /// [decided](Device::call_off).
    pub async fn paste(&self, pane: PaneRef, token: Token, text: &[u8]) -> Result<Answer, TmuxError> {
        self.put(pane, Needs::Untyped(token), &["-p"], text).await
    }

    /// The same as if typed: never as a bracketed paste, and in copy mode they reach the program too.
    ///
    /// # Errors
    /// As any call; unless the error is [in doubt](TmuxError::in_doubt), certainly nothing was typed.
    pub async fn input(&self, pane: PaneRef, bytes: &[u8]) -> Result<Answer, TmuxError> {
        self.put(pane, Needs::Open, &[], bytes).await
    }

    async fn put(&self, pane: PaneRef, needs: Needs, how: &[&str], text: &[u8]) -> Result<Answer, TmuxError> {
        if text.is_empty() {
            return Err(TmuxError::Refused("an empty text cannot be pasted".to_owned()));
        }
        let nonce = Nonce::new();
        let buffer = format!("pool-{nonce}");
        let guarded = Guarded { pane, needs, commands: &[] };
        let effect = paste_buffer(&guarded, nonce, &[how, &["-r", "-d", "-b", &buffer]].concat());
        let forget: &[&str] = &["delete-buffer", "-b", &buffer];
        let line = Line::default().then(["load-buffer", "-b", &buffer, "-"]).then(guarded.words(
            &nonce,
            &effect,
            Some(forget),
        ));
        let reply = self.run(&line, Some(text), false).await?;
        let answer = guarded.answer(nonce, &reply.stdout).unwrap_or_else(|| Err(reply.error()))?;
        Ok(answer.0)
    }

    /// Presses Enter: a carriage return, which reaches the program in copy mode too.
    ///
    /// # Errors
    /// As for [`Device::input`].
    pub async fn enter(&self, pane: PaneRef) -> Result<Answer, TmuxError> {
        self.press_enter(pane, Needs::Open).await
    }

    /// Presses Enter behind the text of this token, once. [`Answer::Already`] where that is not what was typed last, or
    /// Enter was pressed.
    ///
    /// # Errors
    /// As for [`Device::paste`].
    pub async fn enter_after(&self, pane: PaneRef, token: Token) -> Result<Answer, TmuxError> {
        self.press_enter(pane, Needs::Unentered(token)).await
    }

    async fn press_enter(&self, pane: PaneRef, needs: Needs) -> Result<Answer, TmuxError> {
        let nonce = Nonce::new();
        let buffer = format!("pool-{nonce}");
        let guarded = Guarded { pane, needs, commands: &[] };
        let fill = script([&["set-buffer", "-b", &buffer, "\r"][..]]);
        let paste = paste_buffer(&guarded, nonce, &["-r", "-d", "-b", &buffer]);
        let line = Line::default().then(guarded.words(&nonce, &format!("{fill} ; {paste}"), None));
        let reply = self.run(&line, None, false).await?;
        let answer = guarded.answer(nonce, &reply.stdout).unwrap_or_else(|| Err(reply.error()))?;
        Ok(answer.0)
    }

    /// Sends keys by name, in order.
    ///
    /// # Errors
    /// As for [`Device::input`].
    pub async fn keys(&self, pane: PaneRef, keys: &[Key]) -> Result<Answer, TmuxError> {
        let target = pane.pane.to_string();
        let mut send = vec!["send-keys", "-t", &target, "--"];
        send.extend(keys.iter().map(Key::as_str));
        let guarded = Guarded { pane, needs: Needs::Typable, commands: &[&send] };
        guarded.run(self).await.map(|(answer, _)| answer)
    }
}

/// `paste-buffer`, byte-exact on every version. The receipt and the mark of success stand in the same body as the
/// paste: an error in a nested body would not keep the outer one from going on.
fn paste_buffer(guarded: &Guarded<'_>, nonce: Nonce, options: &[&str]) -> String {
    let target = guarded.pane.pane.to_string();
    let done = format!("YES {nonce}");
    let receipt = receipt::around(guarded.needs, &target);
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
