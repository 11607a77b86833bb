//! Parsers of the files in `/proc/PID`, on bytes: a process chooses its own name and environment,
//! so neither is trusted to be text or to be well formed.

/// What `/proc/PID/stat` says (`proc_pid_stat(5)`), as far as it is used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat<'a> {
    /// Field 1.
    pub pid: u32,
    /// Field 2 without its parentheses: at most 15 bytes, any bytes.
    pub comm: &'a [u8],
    /// Field 3: one of `R S D Z T t X I` and older letters.
    pub state: u8,
    /// Field 4: the parent; 0 for none.
    pub ppid: u32,
    /// Field 5: the process group.
    pub pgid: u32,
    /// Field 6: the session.
    pub sid: u32,
    /// Field 8: the foreground group of its terminal, where it has one.
    pub tpgid: Option<u32>,
    /// Field 20. A state of `Z` with more than one means that only the first thread has ended.
    pub threads: u32,
    /// Field 22: clock ticks since boot.
    pub start: u64,
}

/// Parses a `stat` file. The name may hold `)` and blanks, so the fields start after the last `)`.
#[must_use]
pub fn parse_stat(bytes: &[u8]) -> Option<Stat<'_>> {
    let open = bytes.iter().position(|b| *b == b'(')?;
    let close = bytes.iter().rposition(|b| *b == b')')?;
    let comm = bytes.get(open + 1..close)?;
    let rest = std::str::from_utf8(bytes.get(close + 1..)?).ok()?;
    let fields: [&str; 20] = first_fields(rest)?;
    Some(Stat {
        pid: std::str::from_utf8(&bytes[..open]).ok()?.trim().parse().ok()?,
        comm,
        state: *fields[0].as_bytes().first()?,
        ppid: fields[1].parse().ok()?,
        pgid: fields[2].parse().ok()?,
        sid: fields[3].parse().ok()?,
        tpgid: fields[5].parse().ok(),
        threads: fields[17].parse().ok()?,
        start: fields[19].parse().ok()?,
    })
}

fn first_fields<const N: usize>(text: &str) -> Option<[&str; N]> {
    let mut words = text.split_ascii_whitespace();
    let mut out = [""; N];
    for slot in &mut out {
        *slot = words.next()?;
    }
    Some(out)
}

/// The real user id in a `status` file.
#[must_use]
pub fn parse_uid(status: &[u8]) -> Option<u32> {
    let line = status.split(|b| *b == b'\n').find_map(|line| line.strip_prefix(b"Uid:"))?;
    std::str::from_utf8(line).ok()?.split_ascii_whitespace().next()?.parse().ok()
}

/// Whether an `environ` file has exactly this `NAME=value` entry.
#[must_use]
pub fn has_entry(environ: &[u8], entry: &[u8]) -> bool {
    environ.split(|b| *b == 0).any(|found| found == entry)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TAIL: &str = ") S 4 5 6 34816 7 4194304 1 2 3 4 10 11 0 0 20 0 1 0 8123 1 2 3";

    #[test]
    fn a_hostile_name_moves_no_field() {
        for name in ["sh", "", ") S 1 1 1", "a) (b", "x\ny", "(((", ")))"] {
            let text = format!("77 ({name}{TAIL}");
            let stat = parse_stat(text.as_bytes()).unwrap();
            assert_eq!((stat.comm, stat.pid, stat.ppid), (name.as_bytes(), 77, 4), "{text}");
            assert_eq!((stat.pgid, stat.sid, stat.tpgid, stat.threads, stat.start), (5, 6, Some(7), 1, 8123));
        }
    }

    #[test]
    fn no_terminal_is_none() {
        let text = format!("1 (init{}", TAIL.replace("34816 7", "0 -1"));
        assert_eq!(parse_stat(text.as_bytes()).unwrap().tpgid, None);
    }

    #[test]
    fn the_real_user_id() {
        assert_eq!(parse_uid(b"Name:\tUid:\nUid:\t1000\t0\t0\t0\nGid:\t5\t5\t5\t5\n"), Some(1000));
        assert_eq!(parse_uid(b"Name:\tx\n"), None);
    }

    #[test]
    fn an_entry_is_matched_whole() {
        assert!(has_entry(b"A=1\0POOL_INCARNATION=ab\0", b"POOL_INCARNATION=ab"));
        for near in
            [&b"XPOOL_INCARNATION=ab\0"[..], b"POOL_INCARNATION=abc\0", b"A=POOL_INCARNATION=ab\0", b""]
        {
            assert!(!has_entry(near, b"POOL_INCARNATION=ab"));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = (parse_stat(&bytes), parse_uid(&bytes), has_entry(&bytes, b"A=1"));
        }

        #[test]
        fn any_name_comes_back(name in proptest::collection::vec(any::<u8>(), 0..16), start: u64, ppid: u32) {
            let mut bytes = b"9 (".to_vec();
            bytes.extend(&name);
            let tail = TAIL.replace("8123", &start.to_string()).replace(" S 4", &format!(" S {ppid}"));
            bytes.extend(tail.bytes());
            let stat = parse_stat(&bytes).unwrap();
            prop_assert_eq!((stat.comm, stat.ppid, stat.start), (&name[..], ppid, start));
        }

        #[test]
        fn a_cut_file_is_never_misread(cut in 0usize..60) {
            let text = format!("77 (sh{TAIL}");
            let start = text.find("8123").unwrap();
            if let Some(stat) = parse_stat(&text.as_bytes()[..cut.min(text.len())]) {
                prop_assert!(cut > start, "parsed {stat:?} from {cut} bytes");
            }
        }
    }
}
