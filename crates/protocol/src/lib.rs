//! The types of tmux-pool and their encoding on a socket. This page is the specification of the wire
//! protocol: it, the types below and the byte vectors in `tests/golden` suffice to write a client in any
//! language.
//!
//! # Modules
//!
//! In the order in which a call travels: `paths` finds the socket. `blocking` and `aio` connect to it
//! (`connect` has their errors); `peer` checks who is at the other end, and the first frames are those of
//! `hello`. A `request` is checked against `bounds` and encoded by `frame`. The daemon answers with frames of
//! `reply`, or with a `refusal`. What it decides is an `event`, and events are folded into the records that
//! replies and events carry: `session` with its `policy`, `limits` and `usage`, `worker`, `message`, `activity`
//! and `thought`. All of them use `ids`, `text`, `time` and `clock`. `redact` hides secrets in what is displayed;
//! `backoff` and `digest` are the pauses and the digest of all programs.
//!
//! Three more directions: the watcher sends `tmux` states and their `diff`, split by `view_parts`. The reaper
//! takes candidates and returns verdicts (`reap`). Programs in a session speak through files: an init through
//! `job`, an agent's hook through `hook` and the log writer through `logs`; `env` lists the variables that
//! sessions do not inherit.
//!
//! # Socket
//!
//! A pool is one `poold`, one state directory and one Unix stream socket with a path (never an abstract
//! name). In each line, the first variable that is set and not empty decides:
//!
//! - Pool: `POOL_NAME`, else `default`; a [`Name`] of at most 32 characters.
//! - State directory: `POOL_STATE_DIR`, else `$XDG_STATE_HOME/tmux-pool/POOL`, else
//!   `~/.local/state/tmux-pool/POOL`.
//! - Socket: `POOL_SOCKET`, else `run/poold.sock` in the state directory.
//!
//! A program that runs in a session finds `POOL_SOCKET` in its environment. Paths are absolute, and that of
//! the socket fits `sun_path` (107 bytes on Linux, 103 on macOS). See [`paths`].
//!
//! # Trust
//!
//! A client of the socket acts as the pool's user, since it can run programs. The socket therefore serves
//! that user only. The state directory is a real directory of that user with mode 0700, the socket has mode
//! 0600. Both ends ask the kernel for the other's effective user before they read or write the first byte,
//! and hang up if it is another user, root included ([`peer`]). There is no password and no network.
//! Processes of the same user are trusted, but their input is not: everything that arrives is limited in size
//! and checked.
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
//! A length of 0 or over the limit, a payload that is not of the expected type, and bytes after the value end
//! the connection. bincode is compact and contains no names:
//!
//! - `u16`, `u32`, `u64`: one byte below 251. Otherwise the shortest of 251 and 2 bytes, 252 and 4 bytes, 253
//!   and 8 bytes, little endian.
//! - `i32`: as the unsigned number `2n` for n ≥ 0, and `-2n-1` for n < 0.
//! - `u8`, `i8`, `bool`: one byte; `bool` is 0 or 1.
//! - `Option`: 0, or 1 followed by the value.
//! - `String`, `OsBytes`, `Vec`, `BTreeMap`: the number of bytes or items as a `u64`, followed by these; the
//!   items of a map are key, value, key, value. Strings are UTF-8.
//! - Structs, tuples and arrays: their fields in order, with nothing in between.
//! - Enums and `Result`: the position of the variant as a `u32`, counted from 0 in order of declaration (`Ok`
//!   0, `Err` 1), followed by its fields.
//! - Ids: the bare number. A [`Tag`]: its 16 bytes. A [`Token`]: its epoch and its `n`.
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
//! The client speaks first: one frame with a [`Hello`], within 5 seconds. The daemon answers with one frame
//! that contains a [`hello::HelloReply`], which is `Result<`[`Welcome`]`, `[`Refusal`]`>`. These types never
//! change, so any two versions can tell each other which side to upgrade. From then on both sides speak the
//! version of the welcome, which is the smaller of theirs. `epoch` grows with each start of the daemon, `seq`
//! is the last event committed. The connection ends after a refusal.
//!
//! # Roles
//!
//! | role | sends |
//! |---|---|
//! | client | [`Call`]s |
//! | subscriber | one call of [`Request::Subscribe`], [`Request::Watch`] or [`Request::Output`] |
//! | watcher, next_watcher | calls of [`Request::Observe`] and [`Request::WatchingBy`] |
//! | reaper | one call at a time: those of the reaper (see below), or a client's reads |
//! | generator | [`Request::Register`] first, then a client's calls |
//!
//! | role | receives |
//! |---|---|
//! | client, reaper, generator | [`Frame::Reply`], [`Frame::Part`] |
//! | subscriber to events | [`Frame::Event`], [`Frame::Synced`], [`Frame::Lagged`] |
//! | subscriber to tmux | [`Frame::Observed`] |
//! | subscriber to output | [`Frame::Output`], [`Frame::Truncated`], [`Frame::Closed`] |
//! | watcher, next_watcher | [`Frame::Command`], and a reply to each call |
//!
//! A request that the role does not allow is refused, or ends the connection. At most one watcher is
//! connected.
//!
//! # Calls, replies and parts
//!
//! A [`Call`] carries an `id` chosen by the client, from 1, each used once. The answer consists of any number
//! of [`Frame::Part`]s with that id and one final [`Frame::Reply`]. The parts and the `Ok` value of the reply
//! are pieces of one answer of one kind, in order: lists are appended, screens and texts are concatenated
//! ([`Response::append`]). The last piece may be [`Response::Done`]. The documentation of each [`Request`]
//! names its answer. A call that cannot be decoded ends the connection; a refusal with id 0 may give the
//! reason first.
//!
//! A connection has at most 64 calls in progress. The daemon stops reading until one of them is answered, so
//! a client that sends more must keep reading. Calls begin in the order in which they were sent, except that
//! sends, heartbeats and settlements, which are decided at once, may overtake others. Replies arrive in any
//! order: a client that needs one call to follow another waits for the first reply. A client ignores frames
//! with an id that it no longer waits for.
//!
//! A call has one of three outcomes. A [`Response`] is a success. A [`Refusal`] is an [`ErrorCode`] of a
//! closed list with a sentence for people; the call has no further effect unless the sentence says so. After
//! a [`TransportError`] the outcome is unknown.
//!
//! # Durability and operation ids
//!
//! A mutating request (its documentation says so) is answered once its effects are on disk. It needs an
//! operation id ([`OpId`]) chosen by the client. A retry with the same id and request gets the same answer,
//! if need be after waiting for the first attempt to finish; with another request it is refused as
//! `conflict`. A client that lost its connection therefore reconnects and retries. Random ids are remembered
//! for 10 minutes, given ones for 24 hours. A retry of a [`Request::Send`] whose message was removed since, with
//! its session or by a purge, is refused as `not_found`. After a refusal as `storage` the request may be stored
//! nevertheless, so it is retried too.
//!
//! Operations on one session (on its terminal, its processes or its lifecycle) are executed one after the
//! other, in the order of their arrival. An operation belongs to the daemon, not to the connection: it
//! continues when the client disconnects. Reads include the effects of everything answered before.
//!
//! # Locks
//!
//! [`Request::Lock`] waits for a session's lock and holds it, on disk, under a [`Token`] that is larger than
//! all earlier ones. A client that disconnects while it waits gives up its place. Calls with the token as
//! [`Call::lock`], by the holder or by any process that has the token, are executed inside of the lock, one
//! after the other. Operations on the session without the token are refused as `conflict`, and prompts wait,
//! except those that were sent under the lock. Queueing, labels, claims and reads need no lock.
//!
//! The lock is a lease. [`Request::RenewLock`] extends it and [`Request::Unlock`] releases it; the proven
//! death of the requesting process releases it at once. A restart of the daemon restarts the lease. A stale
//! token is refused as `conflict` in any call that changes something.
//!
//! # Messages and workers
//!
//! A message is acknowledged ([`Response::Sent`]) when it is on disk. Messages of a session with the same
//! `kind` are processed one after the other: higher priority first, then in the order in which they were
//! queued; a message that is tried again keeps its place. The daemon types messages of kind `prompt` into the
//! session's pane. All other kinds wait for a worker:
//!
//! 1. [`Request::Claim`] waits for messages and returns them, each under a [`Token`] that is larger than all
//!    earlier tokens, even across restarts. The attempt is counted in the same commit.
//! 2. [`Request::Heartbeat`] within the lease extends it. Deadlines are kept on the daemon's monotonic clock
//!    and start again after a restart of the daemon.
//! 3. [`Request::Ack`] or [`Request::Fail`] with the token settles the message. A stale token is refused as
//!    `conflict` and changes nothing; a retry with the same token gets the same answer.
//!
//! A claim ends with its lease. It ends earlier if its holder is proved dead (at once), or if the holder's
//! connection ends and no heartbeat arrives on another one within 5 seconds.
//!
//! A worker registered as a generator ([`Request::Register`], role generator) agrees to be killed before its
//! message is given to another worker: if it outlives its lease, the message is `revoking` and the reaper is
//! asked to end the worker. All other workers are only fenced off by the token. After `max_attempts` a
//! message is `dead`, and stays to be inspected, retried or purged.
//!
//! Several failures in a row open the circuit [`Breaker`] of a kind. While it is open, single messages are
//! given out as probes from time to time, until one does not fail. [`reply::Sent::held_back`] tells the
//! sender.
//!
//! A message that is sent while another one is processed names that one as its `cause`. It is refused if it
//! has the session and kind of its cause, or if the chain of causes has [`message::HOPS_MAX`] messages. This
//! prevents loops.
//!
//! # Events and subscriptions
//!
//! An [`Event`] is a fact with new values, never with differences: applying all events in order yields the
//! state, and applying an event twice has the same effect as once. Each event has a position in the journal,
//! a [`Seq`] that only grows. [`Request::Events`] reads a part of the journal. [`Request::Subscribe`] has no
//! reply:
//!
//! 1. Without `since` the state comes first, as events with `snapshot` set. With `since` the events of the
//!    journal after that one come first; if the journal no longer reaches back that far, the state comes
//!    instead. On the first `snapshot` frame after one that was none, a reader discards its state.
//! 2. [`Frame::Synced`] names the event after which the changes follow.
//! 3. Every event follows as soon as it is committed, without gaps, until the connection ends.
//!
//! The daemon never waits for a slow subscriber: it sends [`Frame::Lagged`] and disconnects. The subscriber
//! subscribes again with `since` set to the last event that it has.
//!
//! # The watcher
//!
//! The daemon's first frame after the welcome is [`reply::WatcherCommand::Watch`], with the tmux program, its
//! socket and the maximum time between two frames. The watcher sends [`Request::Observe`]: `watcher` is a
//! random number for each run, `seq` counts its frames from 1. The first frame holds a complete
//! [`request::View::Snapshot`], the later ones contain the changes or report that there are none. A snapshot
//! that does not fit a frame is sent in several, with `more` set on all but the last and with `part` numbered
//! from 0; each has its own `seq`, and they are applied together.
//!
//! A change is applied only if a snapshot of the same run came before and `seq` follows that of the previous
//! frame. After a gap, the answer to every frame is [`Response::SendSnapshot`] until the snapshot arrives.
//! [`reply::WatcherCommand::Snapshot`] requests a listing that begins now; the answer carries its number in
//! `asked`. A thing missing in a frame is absent only if the frame is `complete`, that is, made from a
//! listing of the whole server. [`request::View::Alive`] reports that the server answers although nothing was
//! listed. [`Request::WatchingBy`] reports the transport in use. A frame that was processed already is
//! answered and otherwise ignored. A watcher with the role [`Role::NextWatcher`] replaces the connected one,
//! which is told so by a refusal with call id 0.
//!
//! Subscribers that send [`Request::Watch`] receive all of this as [`Frame::Observed`], the state first, with
//! sequence numbers of their own.
//!
//! A listing counts only if it is proved complete. A server about which nothing is known is
//! [`tmux::Server::Unknown`], which never removes anything.
//!
//! # The reaper
//!
//! 1. [`Request::NextCandidate`] waits for something that should be ended, and returns none or one.
//! 2. [`Request::TakeLease`] acquires the session's lock for the candidate's session and tag, or is refused
//!    as `conflict` or `not_found`. Repeated by its holder, it returns the lease as it is now: a user may
//!    have asked for a shorter grace.
//! 3. The reaper checks that the processes and the pane are still those of the lease, ends them and proves
//!    it. It leaves processes that serve others or are to be left, and names them
//!    ([`reap::Outcome::Spared`]).
//! 4. [`Request::Settle`] reports the verdict under the lease's token. A stale token is refused as
//!    `conflict`: the lock has another holder, and the verdict has no effect.
//!
//! A lease ends with its verdict or with the reaper's connection. See [`reap`]. [`Request::Explain`] tells
//! which rules apply to a session and why, [`Request::Reap`] evaluates all rules now, and [`Request::Update`]
//! sets the actions of [`reap::Rule`]s for a session.
//!
//! # Inits of sessions: files and the nudge
//!
//! A session's init outlives the daemon's versions, so it does not speak this protocol. It writes versioned
//! JSON files ([`job`]) in `run`, and may send one fixed frame instead of a hello:
//!
//! ```text
//! 18 00 00 00  50 6f 6f 6c 4e 75 64 67  16 bytes     length 24, "PoolNudg", the tag of the incarnation
//! ```
//!
//! The daemon reads the files of that incarnation and closes the connection without an answer.
//!
//! # Compatibility
//!
//! - [`Hello`], [`Welcome`], [`Refusal`] and the nudge never change. The files only gain fields.
//! - No other type changes either: fields are never added, removed or moved, and variants are never moved. A
//!   new feature is a new variant at the end, together with a new protocol version; the daemon does not send
//!   it to clients of an older version.
//! - A daemon speaks its own version and the previous one ([`hello::OLDEST_VERSION`]).
//! - [`Welcome`] lists as capabilities the abilities that a daemon has beyond its version.
//! - Records on disk use the same encoding and obey the same rules.
//!
//! # Limits
//!
//! | item | limit |
//! |---|---|
//! | payload of a frame | 1 MiB ([`frame::FRAME_MAX`]) |
//! | body of a message | 256 KiB ([`message::BODY_MAX`]) |
//! | idempotency key of a message | 256 bytes ([`message::KEY_MAX`]) |
//! | name of a session or workspace | 64 characters |
//! | name of a pool | 32 characters |
//! | labels of a session | 64, with keys of 63 and values of 1,024 bytes |
//! | operation id given by a user | 64 bytes ([`ids::OP_ID_MAX`]) |
//! | connections | 4,096 |
//! | connections before their hello | 64 |
//! | time for a hello | 5 s ([`connect::HELLO_TIMEOUT`]) |
//! | calls of a connection in progress | 64 |
//!
//! # JSON
//!
//! `poolctl rpc` carries the same types as JSON, with one line for each request and each reply. A request is
//! a [`Request`], such as `"status"` or `{"show":"sess_1"}`, or an object with `request` and optionally `op`
//! (the text of a given operation id) and `lock`. A reply is `{"ok":…}` with a [`Response`], or
//! `{"error":{"code":…,"message":…,"exit":…}}`. The rules:
//!
//! - Structs are objects with every field; an absent value is `null`.
//! - Enums are `"variant"`, or `{"variant":…}` with the field, or with an object of the fields; in
//!   snake_case.
//! - Ids, [`Tag`] and [`Token`] are strings as people write them: `"sess_12"`, `"%7"`, 32 hexadecimal digits,
//!   `"3.17"`. [`Seq`], [`MessageId`] and [`Epoch`] are numbers.
//! - [`OsBytes`] is a string, or `{"hex":"…"}` if it is not UTF-8.
//! - [`OpId`] is `{"named":"…"}`, or `{"random":[…]}` with 16 numbers.
//! - [`Timestamp`] is the number of milliseconds since 1970 in UTC.

#![warn(missing_docs)]

pub mod activity;
#[cfg(feature = "aio")]
pub mod aio;
pub mod backoff;
pub mod blocking;
pub mod bounds;
pub mod clock;
pub mod connect;
pub mod diff;
pub mod digest;
pub mod env;
pub mod event;
mod event_kind;
mod exit;
pub mod frame;
pub mod hello;
pub mod hook;
pub mod ids;
mod incarnation;
pub mod job;
pub mod limits;
pub mod logs;
pub mod message;
pub mod message_reason;
mod names;
mod origin;
pub mod paths;
pub mod peer;
pub mod policy;
pub mod reap;
pub mod redact;
pub mod refusal;
pub mod reply;
pub mod request;
pub mod session;
pub mod standstill;
pub mod text;
pub mod thought;
pub mod time;
pub mod tmux;
mod u64_string;
pub mod usage;
mod variant_lists;
pub mod view_parts;
pub mod worker;

pub use activity::{Activity, ActivityState, Ask, AskKind, Notes, Source};
pub use backoff::Backoff;
pub use connect::{ConnectError, TransportError};
pub use digest::digest;
pub use event::{AgentEvent, Event, Stamped};
pub use frame::FrameError;
pub use hello::{Hello, Role, Welcome};
pub use ids::{
    Epoch, GeneratorId, MessageId, OpId, PaneId, ProcId, Seq, ServerId, SessionId, Tag, TmuxSessionId, Token,
    WindowId,
};
pub use limits::Limits;
pub use message::{Breaker, Claimed, Holder, InDoubt, Message, MessageState, MessageStatus, PROMPT, Step};
pub use message_reason::MessageReason;
pub use paths::Paths;
pub use refusal::{ErrorCode, Refusal};
pub use reply::{Frame, Reply, Response, SessionView};
pub use request::{Call, Request};
pub use session::{Exit, Incarnation, Lifecycle, Reason, Session, Size, Spec};
pub use standstill::{Standstill, StuckLane, StuckReason, UnstuckReason};
pub use text::{Name, OsBytes, SessionRef, counted};
pub use time::{Timestamp, millis};
pub use usage::Usage;
