//! `capture`: the text of a session's screen.

use std::sync::Arc;

use protocol::request::{Capture, Extent};
use protocol::{OsBytes, Refusal, Reply, Response, Session};
use tmux::Answer;
use tmux::act::Lines;

use crate::engine::{Daemon, pane_of};
use crate::host::blocking_pool::Purpose;
use crate::host::files;
use crate::verb::{pane, session_view};

/// Answers with the screen or, if the session does not run, with its saved last screen.
pub(super) async fn capture(daemon: &Arc<Daemon>, asked: Capture) -> Reply {
    let session = session_view::resolve(daemon, asked.session.clone()).await?;
    let pane = session.running().and_then(pane_of);
    let Some(pane) = pane else { return last_screen(daemon, &session, asked.extent).await };
    let lines = match asked.extent {
        Extent::Visible => Lines::Visible,
        Extent::Last(n) => Lines::Last(n),
        Extent::All => Lines::All,
    };
    match daemon.tmux.capture(pane, lines, asked.ansi).await {
        Ok((Answer::Done, screen)) => Ok(Response::Screen(OsBytes(screen))),
        Ok((Answer::Gone, _)) => last_screen(daemon, &session, asked.extent).await,
        other => Err(pane::unseen(other.map(|(answer, _)| answer))),
    }
}

/// Answers with the screen that was kept, without colours, or with its last lines.
async fn last_screen(daemon: &Daemon, session: &Session, extent: Extent) -> Reply {
    let path = daemon.paths.meta_of(session.id).join(files::SCREEN);
    match daemon
        .blocking
        .with_timeout(Purpose::Launch, move || files::read_bounded(&path, files::SCREEN_MAX))
        .await
    {
        Some(Ok(screen)) => Ok(Response::Screen(OsBytes(match extent {
            Extent::Last(lines) => last_lines(&screen, lines),
            Extent::Visible | Extent::All => screen,
        }))),
        _ => Err(Refusal::not_found(format!(
            "{} does not run, and no last screen of it was kept; `poolctl logs` has its output",
            session.name
        ))),
    }
}

/// Returns the last lines of a screen, without the blank ones at its end.
fn last_lines(screen: &[u8], count: u32) -> Vec<u8> {
    let lines: Vec<&[u8]> = screen.split_inclusive(|byte| *byte == b'\n').collect();
    let end = lines.iter().rposition(|line| !line.trim_ascii().is_empty()).map_or(0, |last| last + 1);
    lines[end.saturating_sub(count as usize)..end].concat()
}

#[cfg(test)]
mod tests {
    use super::last_lines;

    #[test]
    fn the_last_lines_of_a_screen_are_those_with_text() {
        let screen = b"1\n\n3\n  \n\n";
        for (count, lines) in [(0, &b""[..]), (1, b"3\n"), (2, b"\n3\n"), (9, b"1\n\n3\n")] {
            assert_eq!(last_lines(screen, count), lines, "{count}");
        }
        assert_eq!(last_lines(b"", 5), b"");
    }
}
