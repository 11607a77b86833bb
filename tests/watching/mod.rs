//! How the pool sees tmux: every change at once, the truth about the server, nothing of the user's
//! touched; adoption; and the stream of a watcher, recorded, replayed, damaged.

mod adopt;
mod events;
mod feed;
mod files;
mod hidden;
mod means;
mod own_socket;
mod scale;
mod server;
mod support;
mod watchers;
