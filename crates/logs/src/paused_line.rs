//! The last line of a log as it was when the output first paused in it: the prompt of a shell, before somebody
//! edits a line behind it.

use std::io;
use std::num::NonZeroU16;
use std::path::Path;

use process::log_writer::times;
use protocol::{Tag, Timestamp, logs};
use vt100::Parser;

use crate::dialect::Dialect;
use crate::emulator::SIZE_MAX;
use crate::log_reader;
use crate::time_index::incarnation_start;

/// Bytes at the end of the log in which the line is looked for.
const BYTES: u64 = 64 * 1024;

/// Bytes at the end of the log in which the sequences of a line editor are looked for, and its line if it began to edit
/// before [`BYTES`]: a job may have written much below that line.
const EDITOR_BYTES: u64 = 1 << 20;

/// The end of a program's screen: the terminal shows the rows from before it again.
const SCREEN_END: &[u8] = b"\x1b[?1049l";

/// A shell begins to edit a line: it enables bracketed pastes anew for each, bash before its prompt, zsh after.
const EDITING: &[u8] = b"\x1b[?2004h";

/// The beginning of both: of [`EDITING`] and of [`EDITED`].
const PASTE_MODE: &[u8] = b"\x1b[?2004";

/// zsh clears the rest of the screen before it draws its prompt.
const PROMPT_BEGIN: &[u8] = b"\x1b[J";

/// A shell has read a line, and runs it.
const EDITED: &[u8] = b"\x1b[?2004l";

/// Shortest pause, in milliseconds: the time index does not tell shorter ones.
const PAUSE_MS: u64 = 1000;

/// A line in which the output paused and then went on.
#[derive(Debug, PartialEq, Eq)]
pub struct PausedLine {
    /// The terminal's row with the cursor, when the output paused.
    pub row: String,
    /// Time at which the output went on.
    pub resumed_at: Timestamp,
    /// True if the line is still being edited although something was written below it.
    pub is_below: bool,
}

/// Returns the last line of this incarnation's output, for a terminal of this size, as it was when the output paused.
/// `None` if no output followed after such a pause, or the log does not tell. `edits_lines`: the program is a shell
/// with a line editor.
pub fn paused_line(
    dir: &Path,
    tag: Tag,
    size: (u16, u16),
    edits_lines: bool,
) -> io::Result<Option<PausedLine>> {
    let entries = times::read(dir)?;
    let Some(begin) = incarnation_start(&entries, tag) else { return Ok(None) };
    let Some(mut found) = last_output(dir, begin, BYTES)? else { return Ok(None) };
    if edits_lines && last(&found.bytes, PASTE_MODE).is_none() {
        let Some(more) = last_output(dir, begin, EDITOR_BYTES)? else { return Ok(None) };
        found = more;
    }
    let LastOutput { from, bytes } = found;
    let end = from + bytes.len() as u64;
    let first = (from == begin).then_some(0);
    let editing = last(&bytes, EDITING);
    // While a shell edits a line, a list of completions or the output of a job may contain newlines.
    let is_edited = editing > last(&bytes, EDITED);
    let before = &bytes[..editing.filter(|_| is_edited).unwrap_or(bytes.len())];
    let Some(line) = after_last(before, b"\n").max(after_last(before, SCREEN_END)).or(first) else {
        return Ok(None);
    };
    let is_below = bytes[before.len()..].contains(&b'\n');
    // An earlier pause belongs to a program that has ended without a newline at its end.
    let start = from + editing.unwrap_or(0).max(line) as u64;
    let pause = entries.windows(2).find(|pair| {
        let [before, after] = [pair[0], pair[1]];
        before.offset > start && after.offset == before.offset && after.at.abs_diff(before.at) >= PAUSE_MS
    });
    let Some([_, resumed]) = pause.filter(|pair| pair[1].offset < end) else { return Ok(None) };
    let to = usize::try_from(resumed.offset.saturating_sub(from)).unwrap_or(usize::MAX);
    let shown = bytes.get(line..to).unwrap_or(&bytes[line..]);
    Ok(Some(PausedLine { row: cursor_row(shown, size), resumed_at: Timestamp(resumed.at), is_below }))
}

/// True if bracketed pastes are enabled, false if they are disabled, at the end of this incarnation's output; `None` if
/// the log does not tell.
pub fn pastes_enabled(dir: &Path, tag: Tag) -> io::Result<Option<bool>> {
    let Some(bytes) = last_output_of(dir, tag, BYTES)? else { return Ok(None) };
    let set = last(&bytes, EDITING).max(last(&bytes, EDITED));
    let is_known = set > last(&bytes, logs::NOTICE.as_bytes());
    Ok(set.filter(|_| is_known).map(|at| bytes[at..].starts_with(EDITING)))
}

/// True if the output of this incarnation ends with a question of zsh about the line that it has just taken (about a
/// correction, for example): text in the next row, and no prompt. False if the log does not tell.
pub fn asks_about_line(dir: &Path, tag: Tag) -> io::Result<bool> {
    let Some(bytes) = last_output_of(dir, tag, BYTES)? else { return Ok(false) };
    let taken = last(&bytes, EDITED).filter(|at| last(&bytes, EDITING) < Some(*at));
    let Some(taken) = taken else { return Ok(false) };
    let (row, rest) = (&bytes[taken + EDITED.len()..], b"\r\r\n");
    let Some(question) = row.strip_prefix(rest) else { return Ok(false) };
    let is_more = question.contains(&b'\n') || last(question, PROMPT_BEGIN).is_some();
    Ok(question.iter().any(u8::is_ascii_alphabetic) && !is_more)
}

/// True if a shell that had bracketed pastes enabled at this offset has disabled them since, and thus taken its line. A
/// shell that refuses the line, or waits for the rest of it, keeps them enabled. `None` if the log does not tell.
pub fn was_line_taken(dir: &Path, offset: u64) -> io::Result<Option<bool>> {
    let (kept, end) = log_reader::bounds(dir)?;
    // A shell that refuses a line says so, or draws it again.
    if kept > offset || end <= offset {
        return Ok(None);
    }
    let bytes = log_reader::read_range(dir, offset, end.min(offset + BYTES))?;
    let is_known = last(&bytes, logs::NOTICE.as_bytes()).is_none() && end - offset <= BYTES;
    Ok(if last(&bytes, EDITED).is_some() { Some(true) } else { is_known.then_some(false) })
}

/// True if the end of this incarnation's output has the sequences of a shell that edits its lines.
pub fn has_line_editor(dir: &Path, tag: Tag) -> io::Result<bool> {
    let bytes = last_output_of(dir, tag, EDITOR_BYTES)?;
    Ok(bytes.is_some_and(|bytes| last(&bytes, PASTE_MODE).is_some()))
}

/// The end of an incarnation's output.
struct LastOutput {
    /// Its offset in the log.
    from: u64,
    bytes: Vec<u8>,
}

/// Returns the end of the output that begins at this offset, limited to `most` bytes. `None` if the log does not tell,
/// because it was emptied or trimmed meanwhile.
fn last_output(dir: &Path, begin: u64, most: u64) -> io::Result<Option<LastOutput>> {
    let (kept, end) = log_reader::bounds(dir)?;
    if begin > end {
        return Ok(None);
    }
    let from = begin.max(kept).max(end.saturating_sub(most));
    let bytes = log_reader::read_range(dir, from, end)?;
    let is_whole = bytes.len() as u64 == end - from;
    Ok(is_whole.then_some(LastOutput { from, bytes }))
}

/// As [`last_output`], of an incarnation.
fn last_output_of(dir: &Path, tag: Tag, most: u64) -> io::Result<Option<Vec<u8>>> {
    let Some(begin) = incarnation_start(&times::read(dir)?, tag) else { return Ok(None) };
    Ok(last_output(dir, begin, most)?.map(|found| found.bytes))
}

/// Returns the place of the last of these sequences.
fn last(bytes: &[u8], sequence: &[u8]) -> Option<usize> {
    bytes.windows(sequence.len()).rposition(|window| window == sequence)
}

/// Returns the place after the last of these sequences.
fn after_last(bytes: &[u8], sequence: &[u8]) -> Option<usize> {
    Some(last(bytes, sequence)? + sequence.len())
}

/// Returns the row of the cursor after this output, on an empty screen.
fn cursor_row(output: &[u8], (rows, columns): (u16, u16)) -> String {
    let size = |n: u16| NonZeroU16::new(n).unwrap_or(NonZeroU16::MIN);
    let columns = columns.min(SIZE_MAX);
    let mut terminal = Parser::new(size(rows.min(SIZE_MAX)), size(columns), 0);
    terminal.process(&Dialect::default().translate(output, columns));
    let screen = terminal.screen();
    screen.rows(0, columns).nth(screen.cursor_position().0.into()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const TAG: &str = "00000000000000000000000000000007";

    /// Returns the line of a log with this output and index.
    fn line(output: &str, index: &[(u64, u64)]) -> Option<PausedLine> {
        let dir = tempfile::tempdir().unwrap();
        let first = format!("{} {} {TAG}\n", index[0].0, index[0].1);
        let rest: String = index[1..].iter().map(|(at, offset)| format!("{at} {offset}\n")).collect();
        fs::write(dir.path().join(logs::CURRENT), output).unwrap();
        fs::write(dir.path().join(logs::TIMES), first + &rest).unwrap();
        paused_line(dir.path(), TAG.parse().unwrap(), (24, 80), true).unwrap()
    }

    fn found(row: &str, at: u64) -> Option<PausedLine> {
        Some(PausedLine { row: row.to_owned(), resumed_at: Timestamp(at), is_below: false })
    }

    #[test]
    fn a_log_that_somebody_emptied_tells_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let tag: Tag = TAG.parse().unwrap();
        fs::write(dir.path().join(logs::TIMES), format!("5000 100 {TAG}\n9000 120\n12000 120\n")).unwrap();
        for output in ["", "$ \x1b[?2004h"] {
            fs::write(dir.path().join(logs::CURRENT), output).unwrap();
            assert_eq!(paused_line(dir.path(), tag, (24, 80), true).unwrap(), None);
            assert_eq!(pastes_enabled(dir.path(), tag).unwrap(), None);
            assert!(!asks_about_line(dir.path(), tag).unwrap());
            assert!(!has_line_editor(dir.path(), tag).unwrap());
            assert_eq!(was_line_taken(dir.path(), 100).unwrap(), None);
        }
    }

    #[test]
    fn the_line_is_the_one_before_the_first_pause_after_the_last_newline() {
        let typed = "out\r\n\x1b[1m$ \x1b[0mabc";
        let prompt = typed.len() as u64 - 3;
        assert_eq!(line(typed, &[(5000, 0), (6000, prompt), (9000, prompt)]), found("$ ", 9000));
        // A second pause is one of the person who types.
        let slow = [(5000, 0), (6000, prompt), (9000, prompt), (9500, prompt + 1), (12_000, prompt + 1)];
        assert_eq!(line(typed, &slow), found("$ ", 9000));
        // The first line has no newline before it.
        assert_eq!(line("$ abc", &[(5000, 0), (6000, 2), (9000, 2)]), found("$ ", 9000));
    }

    #[test]
    fn a_prompt_may_end_with_the_sequence_of_the_editor() {
        // The output before a prompt of zsh 5.9: before a fresh one, and after `cat` was ended by C-d.
        let (fresh, cat) = ("\r\r\x1b[0m\x1b[J", "% cat\r\n\x1b[?2004l\r");
        for before in [fresh, cat] {
            let prompt = format!("{before}host% \x1b[K\x1b[?2004h");
            let (pause, end) = (before.len() as u64, prompt.len() as u64);
            let typed = format!("{prompt}a\x08abc");
            let index = [(5000, 0), (6000, pause), (9000, pause), (9500, end), (12_000, end)];
            assert_eq!(line(&typed, &index), found("host% ", 12_000), "{before:?}");
            assert_eq!(line(&prompt, &index[..3]), None, "{before:?}: nothing is typed yet");
        }
    }

    #[test]
    fn a_line_that_is_edited_goes_on_below_a_list_of_completions() {
        for prompt in ["out\r\n\x1b[?2004h$ ", "\x1b[?2004h~/src\r\n$ ", "out\r\n$ \x1b[?2004h"] {
            let pause = prompt.len() as u64;
            let listed = format!("{prompt}rm b\r\nbeta-1  beta-2\r\n$ rm beta-");
            let index = [(5000, 0), (6000, pause), (9000, pause)];
            let below = found("$ ", 9000).map(|line| PausedLine { is_below: true, ..line });
            assert_eq!(line(&listed, &index), below, "{prompt:?}");
            let run = format!("{listed}\r\n\x1b[?2004l\rgone\r\n\x1b[?2004h$ ");
            assert_eq!(line(&run, &index), None, "{prompt:?}: Enter was pressed since");
        }
    }

    #[test]
    fn a_line_is_found_above_all_that_a_job_has_written_since() {
        let prompt = "out\r\n\x1b[?2004h$ ";
        let pause = prompt.len() as u64;
        let job = format!("{prompt}abc\r\n{}$ abc", "a line of a job\r\n".repeat(10_000));
        let below = found("$ ", 9000).map(|line| PausedLine { is_below: true, ..line });
        assert_eq!(line(&job, &[(5000, 0), (6000, pause), (9000, pause)]), below);
    }

    #[test]
    fn a_question_of_zsh_follows_the_line_that_it_took() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(logs::TIMES), format!("5000 0 {TAG}\n")).unwrap();
        let asked = "\x1b[?2004hlss\x1b[?2004l\r\r\nzsh: correct 'lss' to 'ls' [nyae]? \x07";
        let prompt = "\r\r\x1b[0m\x1b[27m\x1b[24m\x1b[Jvm# \x1b[K";
        let answered = format!("{asked}n\r\nzsh: command not found: lss\r\n{prompt}");
        // A zsh that does not enable bracketed pastes, after another program or zsh itself has disabled them.
        let (other, own) =
            (format!("vim\x1b[?2004l\x1b[?1049l{prompt}"), format!("\x1b[?2004l\r\r\n{prompt}"));
        for (output, asks) in
            [(asked, true), (&answered, false), (&other, false), (&own, false), ("$ ", false)]
        {
            fs::write(dir.path().join(logs::CURRENT), output).unwrap();
            assert_eq!(asks_about_line(dir.path(), TAG.parse().unwrap()).unwrap(), asks, "{output:?}");
        }
    }

    #[test]
    fn the_line_is_taken_once_the_editor_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let prompt = "\x1b[?2004h$ ";
        for (output, taken) in [
            ("(true)\x1b[?2004l\r\n\x1b[?2004h$ ", Some(true)),
            ("(true)\r\nfish: refused\r\n$ (true)", Some(false)),
            ("(true)", Some(false)),
        ] {
            fs::write(dir.path().join(logs::CURRENT), format!("{prompt}{output}")).unwrap();
            assert_eq!(was_line_taken(dir.path(), prompt.len() as u64).unwrap(), taken, "{output:?}");
        }
        let lost = format!("{prompt}(true){}7 bytes of output lost]\r\n$ ", logs::NOTICE);
        fs::write(dir.path().join(logs::CURRENT), lost).unwrap();
        assert_eq!(was_line_taken(dir.path(), prompt.len() as u64).unwrap(), None);
        process::log_writer::clear(dir.path()).unwrap();
        assert_eq!(was_line_taken(dir.path(), prompt.len() as u64).unwrap(), None, "the log was cleared");
    }

    #[test]
    fn a_shell_tells_in_its_log_that_it_edits_its_lines() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(logs::TIMES), format!("5000 0 {TAG}\n")).unwrap();
        for (output, edits) in [("$ read x\r\n", false), ("\x1b[?2004h$ read x\r\n\x1b[?2004l\r", true)] {
            fs::write(dir.path().join(logs::CURRENT), output).unwrap();
            assert_eq!(has_line_editor(dir.path(), TAG.parse().unwrap()).unwrap(), edits);
        }
    }

    #[test]
    fn the_last_sequence_tells_whether_pastes_are_enabled_unless_output_is_missing_since() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(logs::TIMES), format!("5000 0 {TAG}\n")).unwrap();
        let lost = format!("\x1b[?2004l{}7 bytes of output lost]\r\n", logs::NOTICE);
        for (output, enabled) in [
            ("$ ", None),
            ("$ \x1b[?2004h", Some(true)),
            ("$ \x1b[?2004hgti\x1b[?2004l\r\r\nzsh: correct 'gti' to 'git' [nyae]? ", Some(false)),
            ("\x1b[?2004l\x1b[?2004h$ ls", Some(true)),
            (lost.as_str(), None),
        ] {
            fs::write(dir.path().join(logs::CURRENT), output).unwrap();
            assert_eq!(pastes_enabled(dir.path(), TAG.parse().unwrap()).unwrap(), enabled, "{output:?}");
        }
    }

    #[test]
    fn a_pause_of_a_program_that_has_ended_is_none() {
        // `cat` until C-d, `less` until q, in a shell that edits its lines; without a newline after them.
        let (cat, less) = ("$ cat\r\n\x1b[?2004l\r", "$ less f\r\n\x1b[?1049htext\r\n(END)\x1b[?1049l");
        for ended in [cat, less] {
            let pause = ended.len() as u64;
            let prompt = format!("{ended}\x1b[?2004h$ ");
            let end = prompt.len() as u64;
            let paused = [(5000, 0), (6000, pause), (9000, pause)];
            assert_eq!(line(&prompt, &paused), None, "{ended:?}");
            let typed = format!("{prompt}abc");
            let edited = [&paused[..], &[(9500, end), (12_000, end)]].concat();
            assert_eq!(line(&typed, &edited), found("$ ", 12_000), "{ended:?}");
        }
        // A shell that does not edit its lines, after a program with a screen of its own.
        let less = "$ less f\r\n\x1b[?1049htext\r\n(END)\x1b[?1049l$ ";
        let pause = less.len() as u64 - 10;
        assert_eq!(line(less, &[(5000, 0), (6000, pause), (9000, pause)]), None);
        // Output before the prompt, on its row.
        let unended = "$ printf foo\r\n\x1b[?2004l\rfoo\x1b[?2004h$ abc";
        let prompt = unended.len() as u64 - 3;
        assert_eq!(line(unended, &[(5000, 0), (6000, prompt), (9000, prompt)]), found("foo$ ", 9000));
    }

    #[test]
    fn a_line_without_a_pause_is_none() {
        let prompt = "out\r\n$ ";
        let end = prompt.len() as u64;
        assert_eq!(line(prompt, &[(5000, 0)]), None, "nothing came after it");
        assert_eq!(line(prompt, &[(5000, 0), (6000, end), (9000, end)]), None, "nor is it there yet");
        assert_eq!(line(prompt, &[(5000, 0), (6000, 5), (9000, 5)]), None, "the pause was before the prompt");
        assert_eq!(line(prompt, &[(5000, 0), (6000, 6), (6500, 6)]), None, "output that goes on is no pause");
        let run = "out\r\n$ abc\r\n$ ";
        assert_eq!(line(run, &[(5000, 0), (6000, 7), (9000, 7)]), None, "Enter was pressed since");
    }

    #[test]
    fn an_earlier_incarnation_has_no_part_in_the_line() {
        // The output of the earlier incarnation ended without a newline.
        let output = "gone$ abc";
        assert_eq!(line(output, &[(5000, 4), (6000, 6), (9000, 6)]), found("$ ", 9000));
        assert_eq!(line(output, &[(5000, 4), (8000, 4)]), None);
    }
}
