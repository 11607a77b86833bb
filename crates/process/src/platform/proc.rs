//! Parsers of the files in `/proc/PID` and of macOS's process arguments. They work on bytes, because a
//! process chooses its own name and environment: neither is necessarily UTF-8 or well formed.

use protocol::OsBytes;

/// The fields of `/proc/PID/stat` (`proc_pid_stat(5)`) that are used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat<'a> {
    /// Field 1.
    pub pid: u32,
    /// Field 2 without its parentheses: at most 15 arbitrary bytes.
    pub comm: &'a [u8],
    /// Field 3: one of `R S D Z T t X I`, or a letter of older kernels.
    pub state: u8,
    /// Field 4: parent pid; 0 for none.
    pub ppid: u32,
    /// Field 5: process group id; 0 if the process was released during the read.
    pub pgid: u32,
    /// Field 6: session id; 0 if the process was released during the read.
    pub sid: u32,
    /// Field 7: encoded device number of the controlling terminal; 0 for none.
    pub tty: u32,
    /// Field 8: foreground process group of the controlling terminal, if there is one.
    pub tpgid: Option<u32>,
    /// Fields 14 and 15: CPU time in clock ticks, user and system, of all threads, ended ones included.
    pub cpu: u64,
    /// Fields 16 and 17: CPU time of reaped children, in clock ticks.
    pub cpu_waited: u64,
    /// Field 20: number of threads. With more than one, state `Z` means that only the main thread has ended;
    /// 0 means that the process was released during the read.
    pub threads: u32,
    /// Field 22: start time in clock ticks since boot.
    pub start: u64,
    /// Memory layout of the running program.
    pub image: Image,
}

/// Memory layout of the program that a process runs. Each exec creates a new layout at random addresses, so
/// an unchanged value implies an unchanged program and initial environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Image {
    /// Not readable, as for another user's process.
    Unknown,
    /// No memory: a kernel thread or a zombie.
    None,
    /// An exec is in progress; the environment is not readable yet.
    Unfinished,
    /// Fields 28, 50 and 51: the bottom of the stack, and the start and end of the environment.
    At(u64, u64, u64),
}

/// Parses a `stat` file.
pub fn parse_stat(bytes: &[u8]) -> Option<Stat<'_>> {
    let open = bytes.iter().position(|b| *b == b'(')?;
    let close = bytes.iter().rposition(|b| *b == b')')?;
    let comm = bytes.get(open + 1..close)?;
    let rest = after_name(bytes)?;
    let fields: [&str; 20] = first_fields(rest)?;
    let ticks = |field: &str| field.parse::<u64>().ok();
    Some(Stat {
        pid: std::str::from_utf8(&bytes[..open]).ok()?.trim().parse().ok()?,
        comm,
        state: *fields[0].as_bytes().first()?,
        ppid: fields[1].parse().ok()?,
        pgid: if fields[2] == "-1" { 0 } else { fields[2].parse().ok()? },
        sid: if fields[3] == "-1" { 0 } else { fields[3].parse().ok()? },
        tty: fields[4].parse::<i32>().ok()?.cast_unsigned(),
        tpgid: fields[5].parse().ok(),
        cpu: ticks(fields[11])?.saturating_add(ticks(fields[12])?),
        cpu_waited: ticks(fields[13])?.saturating_add(ticks(fields[14])?),
        threads: fields[17].parse().ok()?,
        start: fields[19].parse().ok()?,
        image: parse_image(rest).unwrap_or(Image::Unknown),
    })
}

/// Parses fields 23 (virtual memory size), 26 (start of the code; 1 if not readable), and those of
/// [`Image::At`].
fn parse_image(fields: &str) -> Option<Image> {
    // Without the newline the last field may be truncated.
    let mut fields = fields.strip_suffix('\n')?.split_ascii_whitespace().map(str::parse::<u64>);
    let mut next = |skip: usize| fields.nth(skip)?.ok();
    let (memory, code, stack, start, end) = (next(20)?, next(2)?, next(1)?, next(21)?, next(0)?);
    Some(match (memory, code, end) {
        (0, ..) => Image::None,
        (_, 1, _) => Image::Unknown,
        (_, 0, _) | (.., 0) => Image::Unfinished,
        _ => Image::At(stack, start, end),
    })
}

/// Returns the fields from the third on. They start after the last `)`, because the name may contain `)` and
/// blanks.
fn after_name(bytes: &[u8]) -> Option<&str> {
    let close = bytes.iter().rposition(|b| *b == b')')?;
    std::str::from_utf8(&bytes[close + 1..]).ok()
}

/// Parses field 52 of a `stat` file: the `wait(2)` status of a process that has ended. The kernel shows 0 to
/// a reader without permission to trace the process.
pub fn parse_exit_status(stat: &[u8]) -> Option<i32> {
    let fields = after_name(stat)?;
    fields.ends_with('\n').then(|| fields.split_ascii_whitespace().nth(49))??.parse().ok()
}

/// Parses the soft limit of open files in a `limits` file; [`u64::MAX`] for unlimited.
pub fn parse_open_files_max(limits: &[u8]) -> Option<u64> {
    let line = limits.split(|b| *b == b'\n').find_map(|line| line.strip_prefix(b"Max open files "))?;
    match std::str::from_utf8(line).ok()?.split_ascii_whitespace().next()? {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}

/// Parses a value of a file of lines `NAME:   VALUE kB` (`status`, `smaps_rollup`, `meminfo`).
pub fn parse_kib(text: &[u8], name: &str) -> Option<u64> {
    parse_field(text, name)?.strip_suffix("kB")?.trim().parse().ok()
}

/// Returns the value of a field in a file of lines `NAME:   VALUE` (`status`, `meminfo`).
pub(crate) fn parse_field<'a>(text: &'a [u8], name: &str) -> Option<&'a str> {
    let lines = text.split(|b| *b == b'\n');
    let line = lines
        .filter_map(|line| line.strip_prefix(name.as_bytes()))
        .find_map(|line| line.strip_prefix(b":"))?;
    std::str::from_utf8(line).ok()
}

/// Parses the share of the last 10 s in which some program waited, in hundredths of a percent, from a file of
/// `/proc/pressure`.
pub fn parse_pressure(text: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(text).ok()?;
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let (whole, part) =
        some.split_whitespace().find_map(|word| word.strip_prefix("avg10="))?.split_once('.')?;
    let (whole, part): (u32, u32) = (whole.parse().ok()?, part.parse().ok().filter(|_| part.len() == 2)?);
    whole.checked_mul(100)?.checked_add(part)
}

/// Parses the pids in the `children` file of a thread or a `cgroup.procs` file.
pub fn parse_pids(children: &[u8]) -> Vec<u32> {
    let words = children.split(u8::is_ascii_whitespace);
    words.filter_map(|word| std::str::from_utf8(word).ok()?.parse().ok()).collect()
}

/// Parses the arguments in a `cmdline` file.
pub fn parse_cmdline(bytes: &[u8]) -> Vec<OsBytes> {
    let Some(words) = bytes.strip_suffix(b"\0").or((!bytes.is_empty()).then_some(bytes)) else {
        return Vec::new();
    };
    words.split(|b| *b == 0).map(|word| OsBytes(word.to_vec())).collect()
}

/// Parses the arguments in the answer to `KERN_PROCARGS2` of macOS, which consists of the argument count, the
/// program's path, padding, the arguments, and the environment.
pub fn parse_procargs(bytes: &[u8]) -> Option<Vec<OsBytes>> {
    let (count, rest) = bytes.split_first_chunk::<4>()?;
    let count = usize::try_from(i32::from_ne_bytes(*count)).ok()?;
    let path = rest.iter().position(|b| *b == 0)?;
    let padding = rest[path..].iter().position(|b| *b != 0)?;
    let words: Vec<_> = rest[path + padding..].split(|b| *b == 0).take(count).collect();
    (words.len() == count).then(|| words.into_iter().map(|word| OsBytes(word.to_vec())).collect())
}

fn first_fields<const N: usize>(text: &str) -> Option<[&str; N]> {
    let mut words = text.split_ascii_whitespace();
    let mut out = [""; N];
    for slot in &mut out {
        *slot = words.next()?;
    }
    Some(out)
}

/// Parses the real user id in a `status` file.
pub fn parse_uid(status: &[u8]) -> Option<u32> {
    parse_field(status, "Uid")?.split_ascii_whitespace().next()?.parse().ok()
}

/// Returns the variables in an `environ` file. What has no valid name is left out: macOS has the arguments before them.
pub fn variables(environ: &[u8]) -> Vec<(OsBytes, OsBytes)> {
    let is_name = |name: &[u8]| {
        name.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_')
            && name.first().is_some_and(|b| !b.is_ascii_digit())
    };
    let variable = |entry: &[u8]| {
        let at = entry.iter().position(|b| *b == b'=')?;
        is_name(&entry[..at]).then(|| (OsBytes(entry[..at].to_vec()), OsBytes(entry[at + 1..].to_vec())))
    };
    environ.split(|b| *b == 0).filter_map(variable).collect()
}

/// Returns the value of a variable in an `environ` file; of duplicates the first, as `getenv(3)` does.
pub fn parse_variable<'a>(environ: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let mut entries = environ.split(|b| *b == 0);
    entries.find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TAIL_TO_22: &str = ") S 4 5 6 34816 7 4194304 1 2 3 4 10 11 2 3 20 0 1 0 8123";
    const TAIL: &str = ") S 4 5 6 34816 7 4194304 1 2 3 4 10 11 2 3 20 0 1 0 8123 1 2 3";

    #[test]
    fn a_hostile_name_moves_no_field() {
        for name in ["sh", "", ") S 1 1 1", "a) (b", "x\ny", "(((", ")))"] {
            let text = format!("77 ({name}{TAIL}");
            let stat = parse_stat(text.as_bytes()).unwrap();
            assert_eq!((stat.comm, stat.pid, stat.ppid), (name.as_bytes(), 77, 4), "{text}");
            assert_eq!((stat.pgid, stat.sid, stat.tpgid, stat.threads, stat.start), (5, 6, Some(7), 1, 8123));
            assert_eq!((stat.cpu, stat.cpu_waited), (21, 5));
        }
    }

    #[test]
    fn no_terminal_is_none() {
        let text = format!("1 (init{}", TAIL.replace("34816 7", "0 -1"));
        assert_eq!(parse_stat(text.as_bytes()).unwrap().tpgid, None);
    }

    #[test]
    fn a_process_that_is_being_released_has_no_group() {
        let text =
            format!("9 (x{}", TAIL.replace("4 5 6 34816 7", "0 -1 -1 0 -1").replace("20 0 1", "20 0 0"));
        let stat = parse_stat(text.as_bytes()).unwrap();
        assert_eq!((stat.pgid, stat.sid, stat.threads), (0, 0, 0));
    }

    #[test]
    fn the_status_is_field_52_of_a_whole_file() {
        let text = |status: &str| format!("9 () 1 (x{}{} 33 {status}\n", TAIL, " 0".repeat(25));
        assert_eq!(parse_exit_status(text("1792").as_bytes()), Some(1792));
        assert_eq!(parse_exit_status(text("9 5").as_bytes()), Some(9), "a later kernel may tell more");
        assert_eq!(parse_exit_status(text("").as_bytes()), None);
        assert_eq!(parse_exit_status(text("1792").trim_end().as_bytes()), None, "cut");
    }

    #[test]
    fn the_soft_limit_of_open_files() {
        let text = |n: &str| {
            format!("Limit   Soft\nMax processes 5 6\nMax open files            {n}    9   files\n")
        };
        assert_eq!(parse_open_files_max(text("1024").as_bytes()), Some(1024));
        assert_eq!(parse_open_files_max(text("unlimited").as_bytes()), Some(u64::MAX));
        assert_eq!(parse_open_files_max(b"Max processes 5 6\n"), None);
    }

    #[test]
    fn words_come_back_with_the_empty_ones() {
        let words = |words: &[&str]| words.iter().map(|word| OsBytes::from(*word)).collect::<Vec<_>>();
        assert_eq!(parse_cmdline(b""), []);
        assert_eq!(parse_cmdline(b"\0"), words(&[""]));
        assert_eq!(parse_cmdline(b"sh\0-c\0\0"), words(&["sh", "-c", ""]));
        assert_eq!(parse_cmdline(b"a title"), words(&["a title"]), "rewritten, with no end");
        let mut bytes = 3_i32.to_ne_bytes().to_vec();
        bytes.extend(b"/bin/sh\0\0\0\0sh\0\0x y\0PATH=/bin\0");
        assert_eq!(parse_procargs(&bytes), Some(words(&["sh", "", "x y"])));
        assert_eq!(parse_procargs(&bytes[..16]), None);
        assert_eq!(parse_pids(b"12 7 \n"), [12, 7]);
    }

    #[test]
    fn a_figure_in_kib() {
        let text = b"PssX: 1 kB\nPss:      77 kB\nPss_Dirty:   5 kB\nVmRSS:\tx kB\n";
        assert_eq!(parse_kib(text, "Pss"), Some(77));
        assert_eq!(
            (parse_kib(text, "VmRSS"), parse_kib(text, "Ps"), parse_kib(b"Pss: 5", "Pss")),
            (None, None, None)
        );
    }

    #[test]
    fn the_share_of_time_that_programs_waited() {
        let text = b"some avg10=12.34 avg60=0.50 avg300=0.00 total=9\nfull avg10=1.00 avg60=0.00 avg300=0.00 total=9\n";
        assert_eq!(parse_pressure(text), Some(1234));
        assert_eq!(parse_pressure(b"some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"), Some(0));
        for bad in
            ["", "full avg10=1.00", "some avg60=1.00", "some avg10=1", "some avg10=1.5", "some avg10=-1.00"]
        {
            assert_eq!(parse_pressure(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn the_real_user_id() {
        assert_eq!(parse_uid(b"Name:\tUid:\nUid:\t1000\t0\t0\t0\nGid:\t5\t5\t5\t5\n"), Some(1000));
        assert_eq!(parse_uid(b"Name:\tx\n"), None);
    }

    #[test]
    fn a_variable_is_known_by_its_whole_name() {
        assert_eq!(parse_variable(b"A=1\0B=x=y\0B=z\0", "B"), Some(&b"x=y"[..]));
        assert_eq!(parse_variable(b"B=\0", "B"), Some(&b""[..]));
        for near in [&b"XB=1\0"[..], b"BX=1\0", b"A=B=1\0", b"B\0", b""] {
            assert_eq!(parse_variable(near, "B"), None);
        }
    }

    #[test]
    fn where_a_program_lies_differs_after_each_exec() {
        let text = |memory: u64, code: u64, end: u64| {
            format!("9 () 1 (x{} {memory} 2 3 {code} 27 280{} 490 500 {end} 0\n", TAIL_TO_22, " 0".repeat(20))
        };
        let image = |text: &str| parse_stat(text.as_bytes()).unwrap().image;
        assert_eq!(image(&text(4096, 70, 510)), Image::At(280, 500, 510));
        assert_eq!([image(&text(4096, 1, 0)), image(&text(0, 0, 0))], [Image::Unknown, Image::None]);
        assert_eq!([image(&text(4096, 0, 510)), image(&text(4096, 70, 0))], [Image::Unfinished; 2]);
        assert_eq!(image(text(4096, 70, 510).trim_end()), Image::Unknown, "cut");
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = (parse_stat(&bytes), parse_uid(&bytes), parse_variable(&bytes, "A"), parse_exit_status(&bytes));
            let _ = (parse_open_files_max(&bytes), parse_kib(&bytes, "a"), parse_pressure(&bytes));
            drop((parse_cmdline(&bytes), parse_procargs(&bytes), parse_pids(&bytes)));
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
