//! Arbitrary texts arrive in a plain program complete but for the documented filter, and none leaves its
//! paste.

use std::thread;

use crate::harness::{Chance, PATIENCE, Pool, number, wait_until};

/// Number of texts in all; the variable `TEXTS` overrides it.
const TEXTS: usize = 60;
/// Sessions that are typed into side by side; every other one requests bracketed pastes.
const SESSIONS: usize = 4;
/// Start and end of a bracketed paste.
const BRACKETS: (&[u8], &[u8]) = (b"\x1b[200~", b"\x1b[201~");

/// Pieces with a meaning to a shell, tmux, a terminal or an agent.
const PIECES: [&str; 48] = [
    "\x1b[201~",
    "\x1b[200~",
    "\x1b]52;c;eA==\x07",
    "\x1bP+q\x1b\\",
    "\u{9b}201~",
    "\u{9c}",
    "\0",
    "\x01",
    "\x02d",
    "\x03",
    "\x04",
    "\x11\x13",
    "\x15",
    "\x16",
    "\x1a",
    "\x1c",
    "\x7f",
    "\x08",
    "\x0b\x0c",
    "\r",
    "\r\n",
    "\n\r",
    "\n",
    "\n\n\n",
    "\t",
    ";",
    " ; ",
    "\\;",
    "\\",
    "#{pid}",
    "#(touch x)",
    "#[fg=red]",
    "%%",
    "%1",
    "-x",
    "--",
    " -t x",
    "~.",
    "$HOME `id` $(id)",
    "'\"",
    "!ls",
    "/exit",
    "@x",
    "é漢🦀",
    "e\u{301}\u{200d}\u{fe0f}",
    "\u{feff}\u{202e}",
    "\u{85}\u{a0}\u{2028}",
    "plain words ",
];

/// A text of a few pieces, now and then of thousands; never empty after the filter.
fn text(chance: &mut Chance) -> String {
    let most = [1, 4, 12, 12, 40, 40, 40, 400, 4000][chance.below(9)];
    let mut text = String::new();
    for _ in 0..=chance.below(most) {
        match chance.below(6) {
            0 => text.push(char::from_u32(chance.below(0x3000)).unwrap_or('?')),
            _ => text.push_str(PIECES[chance.below(PIECES.len())]),
        }
    }
    // White space alone is refused, and the newline at the end of the input is not sent.
    text.insert(chance.below(2) * text.len(), 'x');
    text + ["", ";", "\n", "\\", " "][chance.below(5)]
}

/// The text after the filter: one kind of line end, no control characters but line feeds and tabs.
fn after_the_rule(text: &str) -> String {
    let mut arrives = String::new();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\r' if letters.peek() == Some(&'\n') => {}
            '\r' => arrives.push('\n'),
            '\n' | '\t' | ' '..='~' | '\u{a0}'.. => arrives.push(letter),
            _ => {}
        }
    }
    arrives
}

/// A session that copies its input to the file `name`, with bracketed pastes if requested.
#[track_caller]
fn reader(pool: &Pool, name: &str, first: &str, brackets: bool) -> String {
    let asks = if brackets { "\\033[?2004h" } else { "" };
    let script = format!("{first}; printf '{asks}ready'; exec cat >{}", pool.path(name).display());
    let id = pool.script(name, &script);
    // Text on the screen proves that tmux has read it and everything before it.
    let ready =
        || pool.show(&id)["current_command"] == "cat" && pool.ok(&["capture", &id]).starts_with("ready");
    wait_until("it reads", PATIENCE, ready);
    id
}

/// Sends `many` texts to a session of its own, checking each as it arrives.
fn send_many(pool: &Pool, seat: usize, many: usize) {
    let name = format!("reader{seat}");
    let brackets = seat.is_multiple_of(2);
    let (open, close): (&[u8], &[u8]) = if brackets { BRACKETS } else { (b"", b"") };
    let out = pool.path(&name);
    let id = reader(pool, &name, "stty raw -echo", brackets);
    let mut chance = Chance::new(seat as u64);
    let (mut before, mut sent) = (0, Vec::new());
    for n in 0..many {
        let text = text(&mut chance);
        let flags: &[&str] = if n.is_multiple_of(3) { &["--raw"] } else { &[] };
        let args = [&["send", "--wait", "done", id.as_str(), "-"], flags].concat();
        drop(pool.ctl_in(&args, format!("{text}\n").as_bytes()).expect(0));
        let wanted = [open, after_the_rule(&text).as_bytes(), close, b"\r"].concat();
        let arrived = pool.await_file(&name, |bytes| bytes.len() >= before + wanted.len());
        assert!(
            arrived[before..] == wanted,
            "{name}, text {n}: {text:?}\nis {:?}",
            String::from_utf8_lossy(&arrived[before..])
        );
        before = arrived.len();
        sent.push(wanted);
    }
    // Nothing came later, and only whole texts came.
    let arrived = std::fs::read(&out).unwrap();
    assert!(arrived == sent.concat());
    let ends = arrived.windows(close.len().max(1)).filter(|part| *part == close).count();
    assert_eq!(ends, if brackets { many } else { 0 });
}

#[test]
fn i01_i02_any_text_arrives_byte_for_byte_and_none_leaves_its_paste() {
    let pool = Pool::new();
    let many = number("TEXTS", TEXTS).div_ceil(SESSIONS);
    thread::scope(|scope| {
        for seat in 0..SESSIONS {
            let pool = &pool;
            thread::Builder::new()
                .name(format!("reader {seat}"))
                .spawn_scoped(scope, move || send_many(pool, seat, many))
                .unwrap();
        }
    });
}

#[test]
fn i02_what_would_leave_the_paste_or_end_the_program_arrives_as_text_or_not_at_all() {
    let pool = Pool::new();
    // A terminal that is not raw: a surviving ^C, ^D, ^Z, ^\ or ^U would end the program or the line.
    let id = reader(&pool, "out", ":", true);
    let text = "one\x03\x04\x1a\x1c\x15 \x1b[201~\u{9b}201~two\x7f\x08\x11\x13";
    drop(pool.ctl_in(&["send", "--wait", "done", &id, "-"], text.as_bytes()).expect(0));
    drop(pool.ctl_in(&["send", "--wait", "done", "--raw", &id, "-"], text.as_bytes()).expect(0));
    let line: &[u8] = b"\x1b[200~one [201~201~two\x1b[201~\n";
    let arrived = pool.await_file("out", |bytes| bytes.len() >= 2 * line.len());
    assert_eq!(String::from_utf8_lossy(&arrived), String::from_utf8_lossy(&line.repeat(2)));
    assert_eq!(pool.lifecycle(&id), "live");
}
