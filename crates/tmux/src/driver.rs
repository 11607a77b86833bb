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

/// Defines [`Driver`], and implements it for [`Device`] by the methods of the device itself. References in the list
/// have the lifetime of the call.
macro_rules! methods {
    ($(fn $name:ident($($arg:ident: $type:ty),*) -> $answer:ty;)+) => {
        /// A tmux server. Each method corresponds to the method of [`Device`] with its name.
        pub trait Driver: Send + Sync {$(
            #[doc = concat!("See [`Device::", stringify!($name), "`].")]
            fn $name<'a>(&'a self, $($arg: $type),*) -> Call<'a, $answer>;
        )+}

        impl Driver for Device {$(
            fn $name<'a>(&'a self, $($arg: $type),*) -> Call<'a, $answer> {
                // The method of the device itself comes before the one of the trait.
                Box::pin(Self::$name(self, $($arg),*))
            }
        )+}
    };
}

methods! {
    fn check_version() -> ();
    fn observe() -> Listing;
    fn create(create: &'a Create) -> Created;
    fn capture(pane: PaneRef, lines: Lines, ansi: bool) -> (Answer, Vec<u8>);
    fn snapshot(pane: PaneRef) -> PaneSnapshot;
    fn paste(pane: PaneRef, token: Token, text: &'a [u8]) -> Answer;
    fn revoke(pane: PaneRef, token: Token) -> (Answer, Receipt);
    fn input(pane: PaneRef, bytes: &'a [u8]) -> Answer;
    fn enter(pane: PaneRef) -> Answer;
    fn enter_after(pane: PaneRef, token: Token) -> Answer;
    fn keys(pane: PaneRef, keys: &'a [Key]) -> Answer;
    fn peek(pane: PaneRef) -> Answer;
    fn kill_pane(pane: PaneRef) -> Answer;
    fn kill_unattended(pane: PaneRef) -> Answer;
    fn rename(pane: PaneRef, session: TmuxSessionId, name: &'a Name) -> Answer;
    fn rename_left(server: ServerRef, session: TmuxSessionId, names: (&'a Name, &'a Name)) -> ();
    fn release(pane: PaneRef, is_adopted: bool) -> Answer;
    fn adopt(server: ServerRef, session: TmuxSessionId, pane: PaneId, adopt: &'a Adopt) -> Answer;
    fn reopen_log(pane: PaneRef, log: &'a LogOptions, init: &'a Path) -> Answer;
    fn resize(pane: PaneRef, size: Size) -> Answer;
    fn clear_history(pane: PaneRef) -> Answer;
    fn disown(pane: PaneRef) -> Answer;
    fn clients(pane: PaneRef, session: TmuxSessionId) -> Vec<Client>;
    fn viewers(server: ServerRef, terminal: &'a OsBytes) -> Option<Vec<Client>>;
    fn pane_use(server: ServerRef, pane: PaneId) -> PaneUse;
    fn switch_client(server: ServerRef, client: &'a str, session: TmuxSessionId) -> ();
    fn end_if_empty() -> ();
}
