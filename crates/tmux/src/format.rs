//! What tmux is asked to print, and the strict parsers of it, side by side. Only ids, numbers and
//! our own option are asked for, and a session's name, last. Any line that is not exactly as
//! expected spoils the whole listing.

use std::collections::BTreeMap;
use std::str::FromStr;

use protocol::ids::{PaneId, Tag, TmuxSessionId};
use protocol::tmux::{TmuxPane, TmuxSession};

use crate::error::{TmuxError, shorten};

/// One session a line.
pub const SESSION: &str = "S\t#{session_id}\t#{session_created}\t#{session_attached}\t#{session_name}";

/// One pane a line. The option is settable to anything, line ends included, by whoever works in the
/// pane: it is printed only where it has a tag's length in bytes, and read by length. `=` stands for
/// `detached`.
pub const PANE: &str = concat!(
    "P\t#{session_id}\t#{window_id}\t#{pane_id}\t#{pane_pid}\t#{pane_dead}\t#{pane_dead_status}\t",
    "#{pane_dead_signal}\t#{pane_in_mode}\t#{pane_width}\t#{pane_height}\t",
    "#{?#{==:#{@pool_id},detached},=,#{?#{==:#{n:@pool_id},32},+#{@pool_id},-}}"
);

/// What the option says of a pane that was given back.
pub(crate) const DETACHED: &str = "detached";

/// Bytes of a written [`Tag`].
const TAG_LEN: usize = 32;

/// The sessions of a listing, by id.
///
/// # Errors
/// [`TmuxError::Output`] for a line that is not a session, or an id that comes twice.
pub fn sessions(text: &[u8]) -> Result<BTreeMap<TmuxSessionId, TmuxSession>, TmuxError> {
    let mut sessions = BTreeMap::new();
    let mut rest = text;
    while let Some((line, after)) = take_line(rest) {
        let (id, session) = session(line).ok_or_else(|| bad(line))?;
        if sessions.insert(id, session).is_some() {
            return Err(bad(line));
        }
        rest = after;
    }
    if rest.is_empty() { Ok(sessions) } else { Err(bad(rest)) }
}

fn session(line: &[u8]) -> Option<(TmuxSessionId, TmuxSession)> {
    let mut fields = line.splitn(5, |&b| b == b'\t');
    if fields.next()? != b"S" {
        return None;
    }
    let id = field(fields.next())?;
    let created_at = field(fields.next())?;
    let attached = field(fields.next())?;
    let name = String::from_utf8_lossy(fields.next()?).into_owned();
    if name.is_empty() { None } else { Some((id, TmuxSession { name, created_at, attached })) }
}

/// The panes of a listing, by id, without processes and without what only the session `hidden` shows.
/// A pane that several sessions show belongs to the one with the lowest id.
///
/// # Errors
/// [`TmuxError::Output`] for bytes that are not a pane, or for one pane listed with differing facts.
pub fn panes(text: &[u8], hidden: Option<TmuxSessionId>) -> Result<BTreeMap<PaneId, TmuxPane>, TmuxError> {
    let mut panes: BTreeMap<PaneId, TmuxPane> = BTreeMap::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (id, mut pane, after) = pane(rest).ok_or_else(|| bad(rest))?;
        if Some(pane.session) == hidden {
            rest = after;
            continue;
        }
        if let Some(known) = panes.get(&id) {
            let lowest = pane.session.min(known.session);
            pane.session = known.session;
            if pane != *known {
                return Err(bad(rest));
            }
            pane.session = lowest;
        }
        panes.insert(id, pane);
        rest = after;
    }
    Ok(panes)
}

fn pane(text: &[u8]) -> Option<(PaneId, TmuxPane, &[u8])> {
    let mut fields = text.splitn(12, |&b| b == b'\t');
    if fields.next()? != b"P" {
        return None;
    }
    let session = field(fields.next())?;
    let window = field(fields.next())?;
    let id = field(fields.next())?;
    let pid = pane_pid(fields.next()?)?;
    let dead = flag(fields.next()?)?;
    let exit_status = optional(fields.next()?)?;
    let exit_signal = optional(fields.next()?)?;
    let in_mode = field::<u32>(fields.next())? > 0;
    let width = field(fields.next())?;
    let height = field(fields.next())?;
    let (tag, detached, after) = tag(fields.next()?)?;
    let known = TmuxPane {
        tag,
        dead,
        exit_status,
        exit_signal,
        in_mode,
        width,
        height,
        detached,
        ..TmuxPane::bare(session, window, pid)
    };
    Some((id, known, after))
}

/// `-`, `=`, or `+` and 32 bytes of anything; then the line's end. tmux 3.4 and 3.5 print control bytes
/// as escapes, which makes the text longer but leaves no line end in it. The tag, whether the pane was
/// given back, and what follows.
fn tag(text: &[u8]) -> Option<(Option<Tag>, bool, &[u8])> {
    if let Some((sign @ (b"-" | b"="), after)) = take_line(text) {
        return Some((None, sign == b"=", after));
    }
    let text = text.strip_prefix(b"+")?;
    if let Some((value, after)) = text.split_at_checked(TAG_LEN)
        && let Some(after) = after.strip_prefix(b"\n")
    {
        return Some((field(Some(value)), false, after));
    }
    take_line(text).filter(|(value, _)| value.len() > TAG_LEN).map(|(_, after)| (None, false, after))
}

/// A pane that never had a process has no pid; 0 stands for it.
fn pane_pid(text: &[u8]) -> Option<u32> {
    if matches!(text, b"" | b"-1") { Some(0) } else { field(Some(text)) }
}

fn flag(text: &[u8]) -> Option<bool> {
    match text {
        b"0" => Some(false),
        b"1" => Some(true),
        _ => None,
    }
}

fn optional(text: &[u8]) -> Option<Option<i32>> {
    if text.is_empty() { Some(None) } else { field(Some(text)).map(Some) }
}

/// A field in its one spelling: `+7`, ` 7` and `07` are not 7.
pub(crate) fn field<T: FromStr + ToString>(text: Option<&[u8]>) -> Option<T> {
    let text = std::str::from_utf8(text?).ok()?;
    text.parse().ok().filter(|value: &T| value.to_string() == text)
}

/// The next line without its end, and what follows; `None` where no line ends.
pub(crate) fn take_line(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text.iter().position(|&b| b == b'\n')?;
    Some((&text[..end], &text[end + 1..]))
}

pub(crate) fn bad(text: &[u8]) -> TmuxError {
    let line = text.split(|&b| b == b'\n').next().unwrap_or_default();
    TmuxError::Output(shorten(&String::from_utf8_lossy(line).escape_debug().to_string()))
}
