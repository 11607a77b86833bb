//! The nouns of tmux-pool, and how they cross a socket. This page is the specification: a client in
//! any language can be written from it, the types below, and the byte vectors in `tests/golden`.
//!
//! # Where the socket is
//!
//! One pool is one `poold`, one state directory and one Unix stream socket with a path, never an
//! abstract name. The first of these that is set and not empty decides:
//!
//! | what | where |
//! |---|---|
//! | pool | `POOL_NAME`, else `default`; a [`Name`] of at most 32 characters |
//! | state directory | `POOL_STATE_DIR`, else `$XDG_STATE_HOME/tmux-pool/POOL`, else `~/.local/state/tmux-pool/POOL` |
//! | socket | `POOL_SOCKET`, else `run/poold.sock` in the state directory |
//!
//! A program that runs in a session finds `POOL_SOCKET` in its environment. Paths are absolute, and a
//! socket's fits `sun_path` (107 bytes on Linux, 103 on macOS). See [`socket`].
//!
//! # Trust
//!
//! Whoever reaches the socket acts as the pool's user: it can run programs. So it serves that one user.
//! The state directory is a real directory of that user, mode 0700, the socket is 0600. Both ends ask
//! the kernel for the other's effective user before the first byte is read or written, and hang up
//! where it is another one, root included ([`peer`]). There is no password and no network. Processes of
//! the same user are trusted; what they send is not: everything that arrives is bounded and checked.
//!
//! # Frames
//!
//! Both directions carry frames and nothing else:
//!
//! ```text
//! byte 0..4   length of the payload: u32, little endian, 1 to 1,048,576 (1 MiB)
//! byte 4..    payload: one value in bincode 2, standard configuration
//! ```
//!
//! A length of 0 or over the limit, a payload that is not the value expected there, and bytes after the
//! value end the connection. bincode is compact and holds no names:
//!
//! | type | bytes |
//! |---|---|
//! | `u16 u32 u64` | below 251: one byte. Else 251 and 2 bytes, 252 and 4, or 253 and 8, little endian; the shortest that holds it |
//! | `i32` | the same, of `2n` for n ≥ 0 and `-2n-1` below |
//! | `u8`, `i8`, `bool` | one byte; `bool` 0 or 1 |
//! | `Option` | 0, or 1 and the value |
//! | `String`, `OsBytes`, `Vec`, `BTreeMap` | the number of bytes or items as `u64`, then they; of a map key, value, key, value; strings are UTF-8 |
//! | struct, tuple, array | the fields in their order, nothing between |
//! | enum, `Result` | the variant's position as `u32`, counted from 0 in the order of declaration (`Ok` 0, `Err` 1), then its fields |
//! | ids | the bare number; a [`Tag`] its 16 bytes; a [`Token`] its epoch and its `n` |
//!
//! ```
//! use protocol::{Hello, Role, frame};
//! let frame = frame::encode(&Hello::new(Role::Client, "default", "poolctl 0.1.0"))?;
//! assert_eq!(frame, b"\x1d\0\0\0\xfcloo\x50\x02\x00\x07default\x0dpoolctl 0.1.0");
//! # Ok::<(), protocol::FrameError>(())
//! ```
//!
//! # Hello and welcome
//!
//! The client speaks first: one frame with a [`Hello`], within 5 seconds. The daemon answers with one
//! frame: [`hello::HelloReply`], which is `Result<`[`Welcome`]`, `[`Refusal`]`>`. Neither type ever
//! changes, so any two versions can tell each other which side to upgrade. The version spoken from then
//! on is the welcome's, the smaller of the two. `epoch` grows at each start of the daemon, `seq` is the
//! last event it had committed. A refusal, or an end without an answer, is the end of the connection.
//!
//! # Roles
//!
//! | role | sends | receives |
//! |---|---|---|
//! | client | [`Call`]s | [`Frame::Reply`], [`Frame::Part`] |
//! | subscriber | one call of [`Request::Subscribe`], or of [`Request::Watch`] | [`Frame::Event`], [`Frame::Synced`], [`Frame::Lagged`]; [`Frame::Observed`] |
//! | watcher, next_watcher | calls of [`Request::Observe`] and [`Request::WatchingBy`] | [`Frame::Ask`], and a reply to each call |
//! | reaper | one call at a time: [`Request::NextCandidate`], [`Request::TakeLease`], [`Request::Settle`], or what a client may read | as a client |
//! | generator | [`Request::Register`] first, then what a client may | as a client |
//!
//! A request that is not the role's is refused, or ends the connection. One watcher is connected at a time.
//!
//! # Calls, replies, parts
//!
//! A [`Call`] carries an `id` that the client chooses, from 1 and each once. Its answer is any number of
//! [`Frame::Part`]s with that id and then one [`Frame::Reply`]. Parts and the `Ok` of the reply are
//! pieces of one answer of one kind, in order: lists are appended, screens and texts concatenated
//! ([`Response::append`]); the last piece may be [`Response::Done`]. [`Request`] says for each variant
//! what answers it. A call that cannot even be read ends the connection; a refusal under id 0 may say
//! why before.
//!
//! At most 64 calls of a connection are under way; the daemon reads no further until one of them is
//! answered, so a client that sends more must not wait with reading. They are begun in the order in
//! which they were sent, but that sends, heartbeats and settlements, which are decided at once, may overtake others; the replies come in any order, so a client that needs one after the other
//! waits for the reply. Frames of an id that nobody waits for any more are skipped.
//!
//! There are three outcomes, kept apart: a [`Response`]; a [`Refusal`], which is an [`ErrorCode`] of a
//! closed list and a sentence for people, and means that nothing further will come of the call unless
//! the sentence says so; and a [`TransportError`], after which nobody knows.
//!
//! # What a reply promises
//!
//! A request that mutates (its documentation says so) is answered after what it did is on disk, and
//! needs an operation id ([`OpId`]) made by the client. The same id with the same request gets the same
//! answer, at once, later, or by waiting for the first to finish; with another request it is refused
//! as `conflict`. So whoever lost a connection connects anew and repeats. Random ids are remembered for
//! 10 minutes, given ones for 24 hours. A refusal as `storage` is the one where what was asked may
//! nevertheless be stored: it is repeated too.
//!
//! What acts on one session (its terminal, its processes, its lifecycle) is done one after the other, in
//! the order in which it arrived. An operation belongs to the daemon, not to the
//! connection: a client that leaves does not stop it. Reads see everything that was answered before.
//!
//! # Locks
//!
//! [`Request::Lock`] waits for a session's lock and holds it, on disk, under a [`Token`] that is larger than every one
//! before. Whoever waits and leaves the connection leaves the line. What the holder, or whoever it gave the token to, asks
//! with the token as [`Call::lock`] is done inside of the lock, one after the other; what acts on the session without it is
//! refused as `conflict`, and prompts wait, but for those that were sent under it. Queueing, labels, claims and reads need
//! no lock. It is a lease: [`Request::RenewLock`] in time keeps it, [`Request::Unlock`] gives it back, the proven death of the
//! process that asked for it frees it at once, a restart of the daemon begins the lease anew. A token that is not the
//! holder's any more is refused as `conflict`, in any call that changes something.
//!
//! # Messages and those who work them
//!
//! A message is acknowledged ([`Response::Sent`]) when it is on disk. Messages of a session with the same
//! `kind` are worked one after the other: higher priority first, then as they were queued; one that is tried
//! again keeps its place. The kind `prompt` is typed into the session's pane by the daemon. All others wait for
//! whoever asks:
//!
//! 1. [`Request::Claim`] gives messages out, each under a [`Token`] that is larger than every token before,
//!    over restarts too. The attempt is counted in the same commit. It waits until there is one.
//! 2. [`Request::Heartbeat`] within the lease keeps it: deadlines are the daemon's, on its monotonic clock, and
//!    begin anew when the daemon was away.
//! 3. [`Request::Ack`] or [`Request::Fail`] with the token settles it. A token that is not the current one is
//!    refused as `conflict` and changes nothing; the same one again gets the same answer.
//!
//! A claim whose holder is proved dead is over at once; one whose connection ended, after 5 seconds unless a heartbeat
//! comes over another; else when its lease is. A holder that registered as a generator ([`Request::Register`],
//! role generator) promises to be ended before its message goes to somebody else: while it lives on past its lease, the
//! message is `revoking`, and the reaper is asked to end it. Any other holder is only fenced off by the token.
//! After `max_attempts` a message is `dead`, and stays to be looked at, retried or purged.
//!
//! Attempts of one kind that fail several times in a row open its [`Breaker`]: then one message now and then is
//! given out as a probe, until one does not fail. [`reply::Sent::held_back`] tells a sender.
//!
//! A message that is sent while another is worked names it as its `cause`. One that would be of the same session and kind as
//! its cause, and one at the end of a chain of [`message::HOPS_MAX`], is refused: nothing feeds itself.
//!
//! # Events and subscriptions
//!
//! An [`Event`] is a fact with new values, never with differences: whoever applies them in order has the
//! state, and applying one twice is applying it once. Each has its place in the journal, a [`Seq`] that
//! only grows. [`Request::Events`] reads a part of the journal. [`Request::Subscribe`] has no reply:
//!
//! 1. Without `since`: the state comes first, as events with `snapshot` set. With it: the journal's
//!    events after that one; where the journal reaches no longer so far back, the state instead.
//!    A reader that gets a `snapshot` frame where the one before was none starts over from nothing.
//! 2. [`Frame::Synced`] with the event after which the changes follow.
//! 3. Every event as soon as it is committed, none left out, until the connection ends.
//!
//! A subscriber that does not keep up is never waited for: it gets [`Frame::Lagged`] and is cut, and
//! subscribes again with `since` at the last event that it has.
//!
//! # The watcher
//!
//! The daemon's first frame after the welcome is [`reply::Ask::Watch`]: which tmux, which socket, how
//! often to speak at least. The watcher sends [`Request::Observe`]: `watcher` is random for each run,
//! `seq` counts its frames from 1. The first holds a whole [`request::View::Snapshot`], the others what
//! changed, or that nothing did. A snapshot that does not fit a frame comes in several with `more` set
//! on all but the last, numbered by `part` from 0; each has its own `seq`, and they are applied together. A change applies only
//! where `seq` is one more than the one before of the same run and a snapshot came earlier; after a gap
//! it is answered with [`Response::SendSnapshot`], and so is every other until the snapshot comes.
//! [`reply::Ask::Snapshot`] wants a listing that begins now; the answer carries its number in `asked`.
//! Nothing follows from what a frame does not name, unless it is `complete`: then it comes of a listing of
//! the whole server. [`request::View::Alive`] says that the server answers and nothing was listed.
//! [`Request::WatchingBy`] says how changes are noticed. A frame that was taken in already is answered and
//! ignored. A watcher that says hello as [`Role::NextWatcher`] takes the place of the one there is, which is
//! told so by a refusal with call id 0.
//!
//! Subscribers that send [`Request::Watch`] get all of this as [`Frame::Observed`], the state first, with
//! numbers of their own.
//!
//! A listing counts only where it is proved complete, and a server about which nothing was learnt is
//! [`tmux::Server::Unknown`]: that never removes anything.
//!
//! # The reaper
//!
//! 1. [`Request::NextCandidate`] waits for something that should be dead: none or one.
//! 2. [`Request::TakeLease`] for its session and tag: the session's lock, or `conflict`, `not_found`.
//! 3. It checks that the processes and the pane are still those of the lease, ends them, and proves it. What serves
//!    others, or is to be left, it leaves and names ([`reap::Outcome::Spared`]).
//! 4. [`Request::Settle`] under the lease's token. A token that is no longer the holder's is refused as
//!    `conflict`: somebody else has decided meanwhile, and the verdict counts for nothing.
//!
//! A lease ends with its verdict or with the reaper's connection. See [`reap`]. Why something is named, or is not:
//! [`Request::Explain`]; that it is looked for now: [`Request::Reap`]; what becomes of a session where a
//! [`reap::Rule`] applies: [`Request::Update`].
//!
//! # Inits of sessions: files and the nudge
//!
//! A session's init outlives every version of the daemon, so it does not speak this protocol. It leaves
//! versioned JSON files ([`job`]) in `run`, and may send one fixed frame in place of a hello:
//!
//! ```text
//! 18 00 00 00  50 6f 6f 6c 4e 75 64 67  16 bytes     length 24, "PoolNudg", the tag of the incarnation
//! ```
//!
//! The daemon looks at the files of that incarnation, does not answer, and closes.
//!
//! # Compatibility
//!
//! - [`Hello`], [`Welcome`], [`Refusal`], the nudge and the files never change, but that files gain fields.
//! - No other type changes either: fields are never added, removed or moved, variants never moved. A new
//!   thing is a new variant at the end, and a new protocol version; the daemon sends it to nobody who
//!   spoke an older one.
//! - A daemon speaks its version and the one before ([`hello::OLDEST_VERSION`]).
//! - [`Welcome`] lists as capabilities, in words, what a daemon can do beyond its version.
//! - Records on disk use the same encoding, so what is stored keeps to the same rule.
//!
//! # Limits
//!
//! | what | how much |
//! |---|---|
//! | payload of a frame | 1 MiB ([`frame::FRAME_MAX`]) |
//! | body of a message, its key | 256 KiB ([`message::BODY_MAX`]), 256 bytes ([`message::KEY_MAX`]) |
//! | name of a session or workspace, of a pool | 64, 32 characters |
//! | labels of a session | 64, keys to 63 bytes, values to 1,024 |
//! | operation id given by a user | 64 bytes ([`ids::OP_ID_MAX`]) |
//! | connections; of them before their hello | 4,096; 64 |
//! | time for a hello | 5 s ([`connect::HELLO_TIMEOUT`]) |
//! | calls of a connection under way | 64 |
//!
//! # JSON
//!
//! `poolctl rpc` carries the same types as JSON, one line a request and one a reply. A request is a
//! [`Request`], `"status"` or `{"show":"sess_1"}`, or an object with `request`, and with `op` (the text of
//! a given operation id) and `lock` where they are wanted. A reply is `{"ok":…}` with a [`Response`] or `{"error":{"code":…,"message":…,"exit":…}}`. The rules:
//!
//! | type | JSON |
//! |---|---|
//! | struct | an object with every field, `null` where there is none |
//! | enum | `"variant"`, or `{"variant":…}` with its field, or its fields as an object; in snake_case |
//! | ids, [`Tag`], [`Token`] | as people write them: `"sess_12"`, `"%7"`, 32 hexadecimal digits, `"3.17"`; [`Seq`], [`MessageId`], [`Epoch`] are numbers |
//! | [`OsBytes`] | a string, or `{"hex":"…"}` where it is not UTF-8 |
//! | [`OpId`] | `{"named":"…"}`, or `{"random":[…]}` with 16 numbers |
//! | [`Timestamp`] | milliseconds since 1970 in UTC, a number |

#![warn(missing_docs)]

pub mod activity;
#[cfg(feature = "aio")]
pub mod aio;
pub mod blocking;
pub mod bounds;
pub mod clock;
pub mod connect;
pub mod diff;
pub mod env;
pub mod event;
pub mod frame;
pub mod hello;
pub mod hook;
pub mod ids;
pub mod job;
pub mod life;
pub mod logs;
pub mod message;
pub mod parts;
pub mod peer;
pub mod reap;
pub mod redact;
pub mod refusal;
pub mod reply;
pub mod request;
pub mod session;
pub mod socket;
pub mod text;
pub mod thought;
pub mod time;
pub mod tmux;
mod wide;

pub use activity::{Activity, ActivityState, Notes};
pub use connect::{ConnectError, TransportError};
pub use event::{Event, Stamped};
pub use frame::FrameError;
pub use hello::{Hello, Role, Welcome};
pub use ids::{
    Epoch, GeneratorId, MessageId, OpId, PaneId, ProcId, Seq, ServerId, SessionId, Tag, TmuxSessionId, Token,
    WindowId,
};
pub use message::{Breaker, Claimed, Holder, Message, MessageState, MessageStatus, Step};
pub use refusal::{ErrorCode, Refusal};
pub use reply::{Frame, Reply, Response};
pub use request::{Call, Request};
pub use session::{Exit, Incarnation, Lifecycle, Reason, Session, Spec};
pub use text::{Name, OsBytes, SessionRef};
pub use time::Timestamp;
