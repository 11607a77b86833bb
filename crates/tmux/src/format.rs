//! Formats for tmux's output, each beside its strict parser. They contain only ids, numbers, the pool's own
//! option, and a session's name in the last place. One unexpected line invalidates the whole listing.

use std::collections::BTreeMap;
use std::str::FromStr;

use nix::sys::signal::Signal;
use protocol::tmux::{TmuxPane, TmuxSession};
use protocol::{PaneId, Tag, TmuxSessionId};

use crate::error::{TmuxError, shorten};

/// Format: the number of clients that are attached to a session, including those attached through another session of
/// its group.
macro_rules! attached {
    () => {
        "#{?session_grouped,#{session_group_attached},#{session_attached}}"
    };
}
pub(crate) use attached;

/// Format: `00` for a pane to which no client is attached, and that no client shows through a link to its window.
macro_rules! unattended {
    () => {
        concat!(attached!(), "#{window_active_clients}")
    };
}
pub(crate) use unattended;

/// Format of a session, one a line. After the number of its clients come those that show each of its windows, since a
/// window may be linked into other sessions. Then comes, for a session of a pool, the tag of the incarnation that it
/// was made for: behind `+`, or behind `*` if it no longer has the name that the pool knows. Whatever else a program
/// has put into the option becomes letters.
pub const SESSION: &str = concat!(
    "S\t#{session_id}\t#{session_created}\t",
    attached!(),
    "#{W: #{window_active_clients}}\t#{?@pool_session,",
    "#{?#{==:#{=32:@pool_session} #{session_name},#{@pool_session}},+,*}#{s/[^0-9a-f]/x/;=32:@pool_session},",
    "-}\t#{session_name}"
);

/// Format: true for a pane that runs the program for which it got its tag, and false if a person has started another
/// one in it since (`respawn-pane`). Panes of builds that did not have this option lack it; since 3.8 a dead pane has
/// no pid.
macro_rules! same_program {
    () => {
        "#{||:#{||:#{==:#{@pool_pid},},#{==:#{pane_pid},}},#{==:#{@pool_pid},#{pane_pid}}}"
    };
}
pub(crate) use same_program;

/// Format: the tag of a pane; empty if another program was started in it since.
pub(crate) const TAG: &str = concat!("#{?", same_program!(), ",#{@pool_id},}");

/// Format of a pane, one a line. A program in the pane can set the option to anything, line ends included:
/// it is printed only if it has a tag's length in bytes, and parsed by length. `=` stands for `detached`.
pub const PANE: &str = concat!(
    "P\t#{session_id}\t#{window_id}\t#{pane_id}\t#{pane_pid}\t#{pane_dead}\t#{pane_dead_status}\t",
    "#{pane_dead_signal}\t#{pane_in_mode}\t#{pane_width}\t#{pane_height}\t",
    "#{?#{==:#{@pool_id},detached},=,#{?#{&&:#{==:#{n:@pool_id},32},",
    same_program!(),
    "},+#{@pool_id},-}}"
);

/// Returns the commands that give a pane its tag, for its current program.
pub(crate) fn set_tag<'a>(target: &'a str, tag: &'a str) -> [[&'a str; 6]; 2] {
    [
        ["set-option", "-p", "-t", target, "@pool_id", tag],
        ["set-option", "-pF", "-t", target, "@pool_pid", "#{pane_pid}"],
    ]
}

/// Returns the commands that set the size of a window. Resizing pins the window to its size; without a client it keeps
/// the size even when unpinned.
pub(crate) fn resize_window<'a>(
    target: &'a str,
    [width, height]: [&'a str; 2],
) -> ([&'a str; 7], [&'a str; 6]) {
    (
        ["resize-window", "-t", target, "-x", width, "-y", height],
        ["set-option", "-w", "-u", "-t", target, "window-size"],
    )
}

/// Option of a tmux session in which a pane is or was the pool's; it stays when that pane goes. Its value is the tag of
/// the incarnation that the session was made or adopted for, and the session's name at that time.
pub(crate) const POOLED: &str = "@pool_session";

/// Value of the option in a pane that was given back to its user.
pub(crate) const DETACHED: &str = "detached";

/// Length of a written [`Tag`], in bytes.
const TAG_LEN: usize = 32;

/// Parses the sessions of a listing, by id.
///
/// # Errors
/// [`TmuxError::Output`] for a line that is not a session, or a repeated id.
pub fn sessions(text: &[u8]) -> Result<BTreeMap<TmuxSessionId, TmuxSession>, TmuxError> {
    let mut sessions = BTreeMap::new();
    let mut rest = text;
    while let Some((line, after)) = take_line(rest) {
        let (id, session) = session(line).ok_or_else(|| malformed(line))?;
        if sessions.insert(id, session).is_some() {
            return Err(malformed(line));
        }
        rest = after;
    }
    if rest.is_empty() { Ok(sessions) } else { Err(malformed(rest)) }
}

fn session(line: &[u8]) -> Option<(TmuxSessionId, TmuxSession)> {
    let mut fields = line.splitn(6, |&b| b == b'\t');
    if fields.next()? != b"S" {
        return None;
    }
    let id = field(fields.next())?;
    let created_at = field(fields.next())?;
    let attached = viewers(fields.next()?)?;
    let (sign, tag) = fields.next()?.split_first()?;
    let (pooled, renamed) = match sign {
        b'-' => (false, false),
        b'+' => (true, false),
        b'*' => (true, true),
        _ => return None,
    };
    // Only a tmux session with the mark of a pool (`+` or `*`) has a tag.
    let made_for = field(Some(tag)).filter(|_| pooled);
    let name = String::from_utf8_lossy(fields.next()?).into_owned();
    let session = TmuxSession { name, created_at, attached, pooled, made_for, renamed };
    (!session.name.is_empty()).then_some((id, session))
}

/// Returns the number of clients that are attached to a session, or show one of its windows.
fn viewers(text: &[u8]) -> Option<u32> {
    let mut counts = text.split(|&b| b == b' ').map(|count| field::<u32>(Some(count)));
    let attached = counts.next()??;
    let shown = counts.try_fold(0_u32, |sum, count| sum.checked_add(count?))?;
    Some(attached.max(shown))
}

/// Parses the panes of a listing, by id, without their processes. Panes of the session `hidden` alone are left out,
/// except for a pool's, which somebody has moved there. A pane that several sessions show belongs to the one that a
/// pool made, or has the lowest id.
///
/// # Errors
/// [`TmuxError::Output`] for bytes that are not a pane, or one pane listed with differing facts.
pub fn panes(
    text: &[u8],
    hidden: Option<TmuxSessionId>,
    sessions: &BTreeMap<TmuxSessionId, TmuxSession>,
) -> Result<BTreeMap<PaneId, TmuxPane>, TmuxError> {
    let order = |id: &TmuxSessionId| {
        (Some(*id) == hidden, sessions.get(id).is_none_or(|session| !session.pooled), *id)
    };
    let mut panes: BTreeMap<PaneId, TmuxPane> = BTreeMap::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (id, mut pane, after) = pane(rest).ok_or_else(|| malformed(rest))?;
        if Some(pane.session) == hidden && pane.tag.is_none() {
            rest = after;
            continue;
        }
        if let Some(known) = panes.get(&id) {
            let first = [pane.session, known.session].into_iter().min_by_key(order).unwrap_or(pane.session);
            pane.session = known.session;
            if pane != *known {
                return Err(malformed(rest));
            }
            pane.session = first;
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
    let exit_signal = signal(fields.next()?);
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

/// Parses `-`, `=`, or `+` and 32 bytes of anything, up to the line's end. tmux 3.4 and 3.5 escape control
/// bytes, which makes the text longer but leaves no line end in it. Returns the tag, whether the pane was
/// given back, and the rest of the text.
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

/// Parses a pid; 0 stands for a pane that never had a process.
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

/// Parses the signal that ended a pane's program: a number, or a name on systems whose library has names (macOS). Any
/// other text counts as no signal, so that the rest of the listing stays valid.
fn signal(text: &[u8]) -> Option<i32> {
    let name = std::str::from_utf8(text).ok()?.to_ascii_uppercase();
    name.parse().ok().or_else(|| Some(Signal::from_str(&format!("SIG{name}")).ok()? as i32))
}

/// Parses a field in its canonical spelling: `+7`, ` 7` and `07` are not 7.
pub(crate) fn field<T: FromStr + ToString>(text: Option<&[u8]>) -> Option<T> {
    let text = std::str::from_utf8(text?).ok()?;
    text.parse().ok().filter(|value: &T| value.to_string() == text)
}

/// Splits off the next line, without its line end; `None` if no line is complete.
pub(crate) fn take_line(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text.iter().position(|&b| b == b'\n')?;
    Some((&text[..end], &text[end + 1..]))
}

pub(crate) fn malformed(text: &[u8]) -> TmuxError {
    let line = text.split(|&b| b == b'\n').next().unwrap_or_default();
    TmuxError::Output(shorten(&String::from_utf8_lossy(line).escape_debug().to_string()))
}
