//! The line "waiting for …" on standard error, shown on a terminal only, not before a second, and not in the
//! background.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use process::runtime::terminal::is_dumb;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::show::out::{ERASE_LINE, PROGRESS_SHOWN, is_in_foreground};
use crate::show::{escape, time};
use crate::threads;

/// Time before the line first appears, and between its updates.
const INTERVAL: Duration = Duration::from_secs(1);

/// Shows the line until it is dropped.
#[derive(Debug)]
pub(crate) struct Progress {
    shown: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Progress {
    /// Shows what is waited for. Does nothing if `quiet`, or if standard error is no terminal that can erase a line.
    pub(crate) fn start(what: &str, quiet: bool) -> Self {
        let what = what.to_owned();
        Self::follow(move || what.clone(), quiet)
    }

    /// As [`Progress::start`], with a function that returns the text for each update.
    pub(crate) fn follow(mut what: impl FnMut() -> String + Send + 'static, quiet: bool) -> Self {
        if quiet || !io::stderr().is_terminal() || is_dumb() {
            return Self { shown: None };
        }
        let (stop, stopped) = mpsc::channel::<()>();
        let thread = threads::start(move || {
            let (started, mut is_drawn) = (Instant::now(), false);
            while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                let text = format!("waiting for {}", escape::line(&what()));
                let line = fitting(&text, &format!(" ({})", time::short(started.elapsed())), columns());
                // In the background, as after a Ctrl-Z, a drawn line is not erased: the shell has its prompt below it.
                is_drawn = is_in_foreground();
                PROGRESS_SHOWN.store(is_drawn, Ordering::Relaxed);
                if is_drawn {
                    drop(write!(io::stderr(), "{ERASE_LINE}{line}"));
                }
            }
            if is_drawn && is_in_foreground() {
                drop(write!(io::stderr(), "{ERASE_LINE}"));
            }
            PROGRESS_SHOWN.store(false, Ordering::Relaxed);
        });
        Self { shown: thread.ok().map(|thread| (stop, thread)) }
    }
}

/// The columns of the terminal, without the last one, in which some terminals wrap.
fn columns() -> usize {
    let size = terminal_size::terminal_size_of(io::stderr());
    size.map_or(79, |(width, _)| usize::from(width.0.saturating_sub(1)))
}

/// The text, cut so that it and its end take one line of this many columns: only that is erased again.
fn fitting(text: &str, end: &str, columns: usize) -> String {
    if text.width() + end.width() <= columns {
        return format!("{text}{end}");
    }
    let mut left = columns.saturating_sub(end.width() + 1);
    let fits = |c: &char| {
        let width = c.width().unwrap_or(0);
        let is_fitting = width <= left;
        left = left.saturating_sub(width);
        is_fitting
    };
    let cut: String = text.chars().take_while(fits).collect();
    format!("{cut}…{end}")
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.shown.take() {
            drop(stop);
            // The thread ends at once. A panic in it is ignored.
            drop(thread.join());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_to_one_line() {
        let fitted = |text: &str| fitting(text, " (2s)", 15);
        assert_eq!(fitted("web: idle"), "web: idle (2s)");
        assert_eq!(fitted("web: attention"), "web: atte… (2s)");
        assert_eq!(fitted("日本語日本語"), "日本語日… (2s)");
        assert_eq!(fitting("web", " (2s)", 3), "… (2s)");
    }
}
