//! The interface of a tmux server to its callers, so that tests can replace it.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;

use protocol::{Name, OsBytes, PaneId, TmuxSessionId, Token};

use crate::act::{Client, Lines, PaneUse};
use crate::adopt::Adopt;
use crate::create::{Create, Created, Size};
use crate::device::Device;
use crate::error::TmuxError;
use crate::guard::{Answer, PaneRef, ServerRef};
use crate::keys::Key;
use crate::listing::Listing;
use crate::log_pipe::LogOptions;
use crate::pane_snapshot::PaneSnapshot;
use crate::receipt::Receipt;

/// A call in progress. Dropping it ends the client, but not always the effect.
pub type Call<'a, T> = Pin<Box<dyn Future<Output = Result<T, TmuxError>> + Send + 'a>>;

/// A tmux server. Each method corresponds to the method of [`Device`] with its name.
pub trait Driver: Send + Sync {
    /// See [`Device::check_version`].
    fn check_version(&self) -> Call<'_, ()>;
    /// See [`Device::observe`].
    fn observe(&self) -> Call<'_, Listing>;
    /// See [`Device::create`].
    fn create<'a>(&'a self, create: &'a Create) -> Call<'a, Created>;
    /// See [`Device::capture`].
    fn capture(&self, pane: PaneRef, lines: Lines, ansi: bool) -> Call<'_, (Answer, Vec<u8>)>;
    /// See [`Device::snapshot`].
    fn snapshot(&self, pane: PaneRef) -> Call<'_, PaneSnapshot>;
    /// See [`Device::paste`].
    fn paste<'a>(&'a self, pane: PaneRef, token: Token, text: &'a [u8]) -> Call<'a, Answer>;
    /// See [`Device::revoke`].
    fn revoke(&self, pane: PaneRef, token: Token) -> Call<'_, (Answer, Receipt)>;
    /// See [`Device::input`].
    fn input<'a>(&'a self, pane: PaneRef, bytes: &'a [u8]) -> Call<'a, Answer>;
    /// See [`Device::enter`].
    fn enter(&self, pane: PaneRef) -> Call<'_, Answer>;
    /// See [`Device::enter_after`].
    fn enter_after(&self, pane: PaneRef, token: Token) -> Call<'_, Answer>;
    /// See [`Device::keys`].
    fn keys<'a>(&'a self, pane: PaneRef, keys: &'a [Key]) -> Call<'a, Answer>;
    /// See [`Device::peek`].
    fn peek(&self, pane: PaneRef) -> Call<'_, Answer>;
    /// See [`Device::kill_pane`].
    fn kill_pane(&self, pane: PaneRef) -> Call<'_, Answer>;
    /// See [`Device::kill_unattended`].
    fn kill_unattended(&self, pane: PaneRef) -> Call<'_, Answer>;
    /// See [`Device::rename`].
    fn rename<'a>(&'a self, pane: PaneRef, session: TmuxSessionId, name: &'a Name) -> Call<'a, Answer>;
    /// See [`Device::rename_left`].
    fn rename_left<'a>(
        &'a self,
        server: ServerRef,
        session: TmuxSessionId,
        names: (&'a Name, &'a Name),
    ) -> Call<'a, ()>;
    /// See [`Device::release`].
    fn release(&self, pane: PaneRef, is_adopted: bool) -> Call<'_, Answer>;
    /// See [`Device::adopt`].
    fn adopt<'a>(
        &'a self,
        server: ServerRef,
        session: TmuxSessionId,
        pane: PaneId,
        adopt: &'a Adopt,
    ) -> Call<'a, Answer>;
    /// See [`Device::reopen_log`].
    fn reopen_log<'a>(&'a self, pane: PaneRef, log: &'a LogOptions, init: &'a Path) -> Call<'a, Answer>;
    /// See [`Device::resize`].
    fn resize(&self, pane: PaneRef, size: Size) -> Call<'_, Answer>;
    /// See [`Device::clear_history`].
    fn clear_history(&self, pane: PaneRef) -> Call<'_, Answer>;
    /// See [`Device::disown`].
    fn disown(&self, pane: PaneRef) -> Call<'_, Answer>;
    /// See [`Device::clients`].
    fn clients(&self, pane: PaneRef, session: TmuxSessionId) -> Call<'_, Vec<Client>>;
    /// See [`Device::viewers`].
    fn viewers<'a>(&'a self, server: ServerRef, terminal: &'a OsBytes) -> Call<'a, Option<Vec<Client>>>;
    /// See [`Device::pane_use`].
    fn pane_use(&self, server: ServerRef, pane: PaneId) -> Call<'_, PaneUse>;
    /// See [`Device::switch_client`].
    fn switch_client<'a>(
        &'a self,
        server: ServerRef,
        client: &'a str,
        session: TmuxSessionId,
    ) -> Call<'a, ()>;
    /// See [`Device::end_if_empty`].
    fn end_if_empty(&self) -> Call<'_, ()>;
}

impl Driver for Device {
    fn check_version(&self) -> Call<'_, ()> {
        Box::pin(self.check_version())
    }

    fn observe(&self) -> Call<'_, Listing> {
        Box::pin(self.observe())
    }

    fn create<'a>(&'a self, create: &'a Create) -> Call<'a, Created> {
        Box::pin(self.create(create))
    }

    fn capture(&self, pane: PaneRef, lines: Lines, ansi: bool) -> Call<'_, (Answer, Vec<u8>)> {
        Box::pin(self.capture(pane, lines, ansi))
    }

    fn snapshot(&self, pane: PaneRef) -> Call<'_, PaneSnapshot> {
        Box::pin(self.snapshot(pane))
    }

    fn paste<'a>(&'a self, pane: PaneRef, token: Token, text: &'a [u8]) -> Call<'a, Answer> {
        Box::pin(self.paste(pane, token, text))
    }

    fn revoke(&self, pane: PaneRef, token: Token) -> Call<'_, (Answer, Receipt)> {
        Box::pin(self.revoke(pane, token))
    }

    fn input<'a>(&'a self, pane: PaneRef, bytes: &'a [u8]) -> Call<'a, Answer> {
        Box::pin(self.input(pane, bytes))
    }

    fn enter(&self, pane: PaneRef) -> Call<'_, Answer> {
        Box::pin(self.enter(pane))
    }

    fn enter_after(&self, pane: PaneRef, token: Token) -> Call<'_, Answer> {
        Box::pin(self.enter_after(pane, token))
    }

    fn keys<'a>(&'a self, pane: PaneRef, keys: &'a [Key]) -> Call<'a, Answer> {
        Box::pin(self.keys(pane, keys))
    }

    fn peek(&self, pane: PaneRef) -> Call<'_, Answer> {
        Box::pin(self.peek(pane))
    }

    fn kill_pane(&self, pane: PaneRef) -> Call<'_, Answer> {
        Box::pin(self.kill_pane(pane))
    }

    fn kill_unattended(&self, pane: PaneRef) -> Call<'_, Answer> {
        Box::pin(self.kill_unattended(pane))
    }

    fn rename<'a>(&'a self, pane: PaneRef, session: TmuxSessionId, name: &'a Name) -> Call<'a, Answer> {
        Box::pin(self.rename(pane, session, name))
    }

    fn rename_left<'a>(
        &'a self,
        server: ServerRef,
        session: TmuxSessionId,
        names: (&'a Name, &'a Name),
    ) -> Call<'a, ()> {
        Box::pin(self.rename_left(server, session, names))
    }

    fn release(&self, pane: PaneRef, is_adopted: bool) -> Call<'_, Answer> {
        Box::pin(self.release(pane, is_adopted))
    }

    fn adopt<'a>(
        &'a self,
        server: ServerRef,
        session: TmuxSessionId,
        pane: PaneId,
        adopt: &'a Adopt,
    ) -> Call<'a, Answer> {
        Box::pin(self.adopt(server, session, pane, adopt))
    }

    fn reopen_log<'a>(&'a self, pane: PaneRef, log: &'a LogOptions, init: &'a Path) -> Call<'a, Answer> {
        Box::pin(self.reopen_log(pane, log, init))
    }

    fn resize(&self, pane: PaneRef, size: Size) -> Call<'_, Answer> {
        Box::pin(self.resize(pane, size))
    }

    fn clear_history(&self, pane: PaneRef) -> Call<'_, Answer> {
        Box::pin(self.clear_history(pane))
    }

    fn disown(&self, pane: PaneRef) -> Call<'_, Answer> {
        Box::pin(self.disown(pane))
    }

    fn clients(&self, pane: PaneRef, session: TmuxSessionId) -> Call<'_, Vec<Client>> {
        Box::pin(self.clients(pane, session))
    }

    fn viewers<'a>(&'a self, server: ServerRef, terminal: &'a OsBytes) -> Call<'a, Option<Vec<Client>>> {
        Box::pin(self.viewers(server, terminal))
    }

    fn pane_use(&self, server: ServerRef, pane: PaneId) -> Call<'_, PaneUse> {
        Box::pin(self.pane_use(server, pane))
    }

    fn switch_client<'a>(
        &'a self,
        server: ServerRef,
        client: &'a str,
        session: TmuxSessionId,
    ) -> Call<'a, ()> {
        Box::pin(self.switch_client(server, client, session))
    }

    fn end_if_empty(&self) -> Call<'_, ()> {
        Box::pin(self.end_if_empty())
    }
}
