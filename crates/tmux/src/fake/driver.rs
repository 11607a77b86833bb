//! The driver of the in-memory tmux.

use std::path::Path;

use protocol::{Name, OsBytes, PaneId, TmuxSessionId, Token};

use super::{Fake, not_found};
use crate::act::{Client, Lines, PaneUse};
use crate::adopt::Adopt;
use crate::create::{Create, Created, Size};
use crate::driver::{Call, Driver};
use crate::error::TmuxError;
use crate::guard::{Answer, PaneRef, Precondition, ServerRef};
use crate::keys::Key;
use crate::listing::Listing;
use crate::log_pipe::LogOptions;
use crate::pane_snapshot::PaneSnapshot;
use crate::receipt::Receipt;

impl Driver for Fake {
    fn check_version(&self) -> Call<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn observe(&self) -> Call<'_, Listing> {
        self.call("observe", |state| {
            let server = state.up()?;
            Ok(Listing { server, sessions: state.sessions.clone(), panes: state.panes.clone() })
        })
    }

    fn create<'a>(&'a self, create: &'a Create) -> Call<'a, Created> {
        self.call("create", |state| state.create(create))
    }

    /// Returns the typed text as the screen.
    fn capture(&self, pane: PaneRef, _lines: Lines, _ansi: bool) -> Call<'_, (Answer, Vec<u8>)> {
        self.call("capture", move |state| {
            let answer = state.guarded(pane, Precondition::Ours, |_| Ok(()))?;
            let text = if answer == Answer::Done { state.typed.get(&pane.pane).cloned() } else { None };
            Ok((answer, text.unwrap_or_default()))
        })
    }

    fn snapshot(&self, pane: PaneRef) -> Call<'_, PaneSnapshot> {
        self.call("snapshot", move |state| {
            let answer = state.guarded(pane, Precondition::Ours, |_| Ok(()))?;
            Ok(if answer == Answer::Done { state.snapshot(pane.pane) } else { PaneSnapshot::refused(answer) })
        })
    }

    fn paste<'a>(&'a self, pane: PaneRef, token: Token, text: &'a [u8]) -> Call<'a, Answer> {
        self.call("paste", move |state| match text {
            [] => Err(TmuxError::Refused("an empty text cannot be pasted".to_owned())),
            _ => state.type_in(pane, Precondition::Untyped(token), text),
        })
    }

    fn revoke(&self, pane: PaneRef, token: Token) -> Call<'_, (Answer, Receipt)> {
        self.call("revoke", move |state| {
            let answer = state.guarded(pane, Precondition::Ours, |_| Ok(()))?;
            let known = answer == Answer::Done;
            Ok((answer, if known { state.revoke(pane.pane, token) } else { Receipt::Unknown }))
        })
    }

    fn input<'a>(&'a self, pane: PaneRef, bytes: &'a [u8]) -> Call<'a, Answer> {
        self.call("input", move |state| match bytes {
            [] => Err(TmuxError::Refused("an empty text cannot be pasted".to_owned())),
            _ => state.type_in(pane, Precondition::Open, bytes),
        })
    }

    fn enter(&self, pane: PaneRef) -> Call<'_, Answer> {
        self.call("enter", move |state| state.type_in(pane, Precondition::Open, b"\r"))
    }

    fn enter_after(&self, pane: PaneRef, token: Token) -> Call<'_, Answer> {
        self.call("enter_after", move |state| state.type_in(pane, Precondition::Unentered(token), b"\r"))
    }

    fn keys<'a>(&'a self, pane: PaneRef, keys: &'a [Key]) -> Call<'a, Answer> {
        let names: String = keys.iter().map(|key| format!("<{key}>")).collect();
        self.call("keys", move |state| state.type_in(pane, Precondition::Typable, names.as_bytes()))
    }

    fn peek(&self, pane: PaneRef) -> Call<'_, Answer> {
        self.call("peek", move |state| state.guarded(pane, Precondition::Ours, |_| Ok(())))
    }

    fn kill_pane(&self, pane: PaneRef) -> Call<'_, Answer> {
        self.call("kill_pane", move |state| state.kill(pane, Precondition::Ours))
    }

    fn kill_unattended(&self, pane: PaneRef) -> Call<'_, Answer> {
        self.call("kill_unattended", move |state| state.kill(pane, Precondition::Unattended))
    }

    fn rename<'a>(&'a self, pane: PaneRef, session: TmuxSessionId, name: &'a Name) -> Call<'a, Answer> {
        self.call("rename", move |state| {
            state.guarded(pane, Precondition::Ours, |state| match state.sessions.get(&session) {
                Some(found) if found.made_for != Some(pane.tag) => Ok(()),
                _ => state.rename(session, name),
            })
        })
    }

    fn rename_left<'a>(
        &'a self,
        server: ServerRef,
        session: TmuxSessionId,
        (from, to): (&'a Name, &'a Name),
    ) -> Call<'a, ()> {
        self.call("rename_left", move |state| {
            if state.up()? != server || !state.sessions.contains_key(&session) {
                return Err(not_found(session));
            }
            let has_name = state.sessions.get(&session).is_some_and(|found| found.name == from.as_str());
            if has_name { state.rename(session, to) } else { Ok(()) }
        })
    }

    fn release(&self, pane: PaneRef, _is_adopted: bool) -> Call<'_, Answer> {
        self.call("release", move |state| {
            state.guarded(pane, Precondition::Ours, |state| {
                let found = state.panes.entry(pane.pane);
                found.and_modify(|found| (found.tag, found.detached) = (None, true));
                Ok(())
            })
        })
    }

    fn adopt<'a>(
        &'a self,
        server: ServerRef,
        session: TmuxSessionId,
        pane: PaneId,
        adopt: &'a Adopt,
    ) -> Call<'a, Answer> {
        self.call("adopt", move |state| {
            if state.up()? != server {
                return Ok(Answer::OtherServer);
            }
            Ok(match state.panes.get_mut(&pane) {
                Some(found) if found.session == session && found.dead => Answer::Dead,
                Some(found) if found.session == session => {
                    if found.tag.is_some_and(|tag| tag != adopt.tag) {
                        return Ok(Answer::NotOurs);
                    }
                    let of_pool = state.sessions.entry(session);
                    of_pool.and_modify(|found| (found.pooled, found.made_for) = (true, Some(adopt.tag)));
                    let has_later =
                        || state.receipts.get(&pane).is_some_and(|(token, _)| *token >= adopt.token);
                    if found.tag != Some(adopt.tag) || !has_later() {
                        state.receipts.insert(pane, (adopt.token, Receipt::Revoked));
                    }
                    (found.tag, found.detached) = (Some(adopt.tag), false);
                    Answer::Done
                }
                _ => Answer::Gone,
            })
        })
    }

    fn reopen_log<'a>(&'a self, pane: PaneRef, _: &'a LogOptions, _: &'a Path) -> Call<'a, Answer> {
        self.call("reopen_log", move |state| state.guarded(pane, Precondition::Alive, |_| Ok(())))
    }

    fn resize(&self, pane: PaneRef, size: Size) -> Call<'_, Answer> {
        self.call("resize", move |state| {
            state.guarded(pane, Precondition::Unattended, |state| {
                let found = state.panes.entry(pane.pane);
                found.and_modify(|found| (found.width, found.height) = (size.width, size.height));
                Ok(())
            })
        })
    }

    fn clear_history(&self, pane: PaneRef) -> Call<'_, Answer> {
        self.call("clear_history", move |state| state.guarded(pane, Precondition::Ours, |_| Ok(())))
    }

    /// A pane here has no tag once another program was started in it.
    fn disown(&self, _: PaneRef) -> Call<'_, Answer> {
        self.call("disown", |_| Ok(Answer::NotOurs))
    }

    fn clients(&self, pane: PaneRef, session: TmuxSessionId) -> Call<'_, Vec<Client>> {
        self.call("clients", move |state| {
            if state.up()? != pane.server || !state.sessions.contains_key(&session) {
                return Err(not_found(session));
            }
            let is_its_own = state.sessions[&session].made_for == Some(pane.tag);
            Ok(state.clients.get(&session).filter(|_| is_its_own).cloned().unwrap_or_default())
        })
    }

    /// No program asks from a pane of this server.
    fn viewers<'a>(&'a self, server: ServerRef, _: &'a OsBytes) -> Call<'a, Option<Vec<Client>>> {
        self.call("viewers", move |state| {
            if state.up()? == server {
                Ok(None)
            } else {
                Err(TmuxError::NotFound("another server".to_owned()))
            }
        })
    }

    fn pane_use(&self, server: ServerRef, pane: PaneId) -> Call<'_, PaneUse> {
        self.call("pane_use", move |state| {
            let found = state.panes.get(&pane).filter(|_| state.server == Some(server));
            let session = found.and_then(|found| state.sessions.get(&found.session));
            let found = session.ok_or_else(|| TmuxError::NotFound(format!("no pane {pane}")))?;
            Ok(PaneUse { active_at: found.created_at, piped: state.piped.contains(&pane) })
        })
    }

    fn switch_client<'a>(
        &'a self,
        server: ServerRef,
        client: &'a str,
        session: TmuxSessionId,
    ) -> Call<'a, ()> {
        self.call("switch_client", move |state| {
            if state.up()? == server { state.switch(client, session) } else { Err(not_found(session)) }
        })
    }

    fn end_if_empty(&self) -> Call<'_, ()> {
        self.call("end_if_empty", |state| {
            if state.up().is_ok() && state.sessions.is_empty() {
                state.stop();
            }
            Ok(())
        })
    }
}
