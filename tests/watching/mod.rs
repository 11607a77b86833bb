//! Observation of tmux by the pool: every change at once, the true state of the server, nothing of the user's
//! touched; adoption; and a watcher's stream, recorded, replayed, damaged.

mod adopt;
mod adopt_beside;
mod events;
mod feed;
mod files;
mod hidden;
mod means;
mod own_socket;
mod provenance;
mod scale;
mod server;
mod support;
mod watchers;
