//! The requests, one file each, named as the verbs of `poolctl`. Those that act on tmux take the session's lock,
//! decide in a turn, perform the effect, and commit its result in a turn; what the reaper ends is decided in a turn,
//! and waited for. [`dispatch`] is their table, and [`operation`] the frame around those that change something.
//!
//! No verb uses another. Files that several share: [`start`], [`termination`] and [`removal`] of a session, with
//! [`files_in_use`] and [`detached`], and waiting for one in [`transition`]; [`one_turn`] and [`pane`] for whole kinds
//! of verbs; [`session_view`], [`session_usage`], [`message_selection`], [`archived_messages`], [`attention`],
//! [`database`] and [`answer_parts`] for answers; [`caller`].

pub(crate) mod adopt;
mod answer_parts;
pub(crate) mod approve;
mod archived_messages;
mod attach;
mod attention;
mod backup;
pub(crate) mod caller;
mod capture;
mod check;
mod clear;
mod clear_context;
mod compact;
pub(crate) mod config;
mod database;
pub(crate) mod detached;
mod dismiss;
pub(crate) mod dispatch;
mod down;
mod drain;
pub(crate) mod events;
mod export;
mod files_in_use;
mod generators;
mod hook;
mod inbox;
mod input;
mod keys;
mod kill;
mod label;
mod lock;
mod logs;
mod ls;
mod message_selection;
mod new;
mod one_turn;
mod operation;
mod pane;
mod park;
mod pin;
mod prune;
mod queue;
mod reap;
pub(crate) mod removal;
mod rename;
mod resize;
mod restart;
mod restore;
mod rm;
pub(crate) mod send;
mod session_usage;
mod session_view;
mod show;
mod snapshot;
pub(crate) mod start;
mod stats;
mod status;
mod sync;
mod terminal;
mod termination;
mod thought;
mod transition;
mod update;
pub(crate) mod wait;
mod work;
mod worker;
