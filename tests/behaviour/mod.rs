//! User-visible behaviour against real processes and a real tmux.

mod attach;
mod exits;
mod hostile;
mod input;
mod ops;
mod persistence;
mod run;
mod secrets;
mod sync;
mod terminal;
mod tree;
mod verbs;
mod words;
