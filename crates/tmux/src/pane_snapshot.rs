//! Snapshot of a pane's terminal, and its size.

use crate::create::Size;
use crate::device::Device;
use crate::error::TmuxError;
use crate::format;
use crate::guard::{Answer, Guarded, Nonce, PaneRef, Precondition};

/// State of a pane's terminal at one moment. Unless [`PaneSnapshot::answer`] is [`Answer::Done`], the other
/// fields are meaningless.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PaneSnapshot {
    /// Result of the guard. A dead pane has a snapshot too.
    pub answer: Answer,
    /// Size of the pane.
    pub size: Size,
    /// Column and row of the cursor, from 0.
    pub cursor: (u16, u16),
    pub cursor_shown: bool,
    /// True if the program uses the alternate screen.
    pub alternate: bool,
    /// True in copy mode or another mode that swallows keys.
    pub in_mode: bool,
    /// True if the pane's terminal is closed.
    pub dead: bool,
    /// True if the program asked for bracketed pastes; `None` before tmux 3.7, which does not tell.
    pub bracketed: Option<bool>,
    /// Title set by the program; the host's name if it set none.
    pub title: String,
    /// Visible lines with their colours, each ended by a line feed.
    pub screen: Vec<u8>,
    /// Time of the last key from each terminal that may type into the pane, in seconds since the Unix epoch. To order
    /// them, one has to know when the clock was set.
    pub typed_at: Vec<u64>,
    /// Time of the session's last activity (creation, attach or key), in seconds since the Unix epoch.
    pub active_at: Option<u64>,
    /// True if no client was ever attached to the session: its last activity is its creation.
    pub never_attached: bool,
    /// True if a client in control mode may type into the pane, which tmux does not count as activity.
    pub has_control_client: bool,
}

/// Format of the facts, in one line, with the title last.
const FACTS: &str = concat!(
    "#{pane_width} #{pane_height} #{cursor_x} #{cursor_y} #{cursor_flag} #{alternate_on} #{pane_in_mode} ",
    "#{pane_dead} #{session_activity} #{session_last_attached} #{bracket_paste_flag}\t#{pane_title}"
);

impl Device {
    /// Takes a snapshot of a pane, in one queue pass.
    pub async fn snapshot(&self, pane: PaneRef) -> Result<PaneSnapshot, TmuxError> {
        let target = pane.pane.to_string();
        let mark = format!("SCREEN {}", Nonce::new());
        let commands: &[&[&str]] = &[
            &["display-message", "-p", "-t", &target, FACTS],
            &["list-clients", "-F", &client(&target)],
            &["display-message", "-p", &mark],
            &["capture-pane", "-p", "-t", &target, "-S", "0", "-e"],
        ];
        let (answer, text) = Guarded { pane, precondition: Precondition::Ours, commands }.run(self).await?;
        match answer {
            Answer::Done => read(&text, &mark).ok_or_else(|| format::malformed(&text)),
            refused => Ok(PaneSnapshot::refused(refused)),
        }
    }

    /// Sets the size of the pane's window, unless a client is attached, checked in the same pass. The next
    /// client to attach imposes its own size as usual.
    ///
    /// # Errors
    /// As any call. Safe to repeat.
    pub async fn resize(&self, pane: PaneRef, size: Size) -> Result<Answer, TmuxError> {
        let (width, height) = (size.width.to_string(), size.height.to_string());
        let target = pane.pane.to_string();
        let (resize, unpin) = format::resize_window(&target, [&width, &height]);
        let guarded = Guarded { pane, precondition: Precondition::Unattended, commands: &[&resize, &unpin] };
        guarded.run(self).await.map(|(answer, _)| answer)
    }
}

impl PaneSnapshot {
    /// Returns the snapshot for a guard that failed.
    pub fn refused(answer: Answer) -> Self {
        Self {
            answer,
            size: Size { width: 0, height: 0 },
            cursor: (0, 0),
            cursor_shown: false,
            alternate: false,
            in_mode: false,
            dead: false,
            bracketed: None,
            title: String::new(),
            screen: Vec::new(),
            typed_at: Vec::new(),
            active_at: None,
            never_attached: false,
            has_control_client: false,
        }
    }
}

/// The line of a client in control mode.
const CONTROL: &[u8] = b"control";

/// Builds the format of a client that may type into a session that shows the pane: its last activity, or [`CONTROL`].
/// For any other client it is an empty line.
fn client(pane: &str) -> String {
    let shows = format!("#{{m:*<{pane}>*,#{{W:#{{P:<#{{pane_id}}>}}}}}}");
    format!(
        "#{{?#{{==:#{{client_readonly}} {shows},0 1}},#{{?client_control_mode,control,#{{client_activity}}}},}}"
    )
}

pub(crate) fn read(text: &[u8], mark: &str) -> Option<PaneSnapshot> {
    let (facts, mut rest) = format::take_line(text)?;
    let (mut typed_at, mut has_control_client) = (Vec::new(), false);
    loop {
        let (line, after) = format::take_line(rest)?;
        rest = after;
        if line == mark.as_bytes() {
            break;
        }
        has_control_client |= line == CONTROL;
        if !line.is_empty() && line != CONTROL {
            typed_at.push(format::field(Some(line))?);
        }
    }
    let tab = facts.iter().position(|&b| b == b'\t')?;
    let numbers: Vec<&[u8]> = facts[..tab].split(|&b| b == b' ').collect();
    let &[width, height, x, y, shown, alternate, mode, dead, active, attached, bracketed] =
        numbers.as_slice()
    else {
        return None;
    };
    let number = |text: &[u8]| format::field::<u16>(Some(text));
    // The field is a count for modes; it is empty for a pane that never had a value.
    let flag = |text: &[u8]| if text.is_empty() { Some(false) } else { number(text).map(|n| n > 0) };
    Some(PaneSnapshot {
        answer: Answer::Done,
        size: Size { width: number(width)?, height: number(height)? },
        cursor: (number(x)?, number(y)?),
        cursor_shown: flag(shown)?,
        alternate: flag(alternate)?,
        in_mode: flag(mode)?,
        dead: flag(dead)?,
        bracketed: if bracketed.is_empty() { None } else { flag(bracketed) },
        title: String::from_utf8_lossy(&facts[tab + 1..]).into_owned(),
        screen: rest.to_vec(),
        typed_at,
        active_at: format::field(Some(active)),
        never_attached: matches!(attached, b"" | b"0"),
        has_control_client,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: &str = "80 24 3 4 1 0 0 0 1700000005 1700000004 \ttitle of\tit";

    fn snapshot(text: &str) -> Option<PaneSnapshot> {
        read(text.as_bytes(), "MARK")
    }

    #[test]
    fn a_glance_is_read_or_refused() {
        let found = snapshot(&format!("{FACTS}\n\n1700000009\n1700000007\nMARK\n\x1b[31mred\n\n")).unwrap();
        assert_eq!((found.size, found.cursor), (Size { width: 80, height: 24 }, (3, 4)));
        assert_eq!((found.cursor_shown, found.alternate, found.in_mode), (true, false, false));
        assert_eq!(
            (found.title.as_str(), found.typed_at),
            ("title of\tit", vec![1_700_000_009, 1_700_000_007])
        );
        assert_eq!((found.screen.as_slice(), found.bracketed), (&b"\x1b[31mred\n\n"[..], None));
        let second = snapshot("80 24 3 4 0 1 2 1   0\tx\nMARK\n").unwrap();
        assert_eq!(
            (second.bracketed, second.in_mode, second.dead, second.typed_at),
            (Some(false), true, true, Vec::new())
        );
        assert_eq!((found.active_at, second.active_at), (Some(1_700_000_005), None));
        assert_eq!((found.never_attached, second.never_attached), (false, true));
        let control = snapshot(&format!("{FACTS}\n1700000003\ncontrol\nMARK\n")).unwrap();
        assert_eq!((control.typed_at, control.has_control_client), (vec![1_700_000_003], true));
        for bad in ["", "MARK\n", "80 24 3 4 1 0 0 5 \tx\nMARK\n", "80 24 3 4 1 0 0 0 5  \tx\nsoon\nMARK\n"] {
            assert_eq!(snapshot(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_screen_that_looks_like_the_mark_is_a_screen() {
        let found = snapshot(&format!("{FACTS}\nMARK\nMARK\n")).unwrap();
        assert_eq!(found.screen, b"MARK\n");
    }
}
