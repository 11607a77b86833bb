//! The reason for which poold is absent, as its log tells.

/// The record of poold's log that it has started.
const READY: &str = " INFO daemon::run: ready";

/// The last error of a log in one line, which may be of several lines in the log; its last line if there is none, or if
/// poold has started since.
pub(crate) fn last_error(lines: &[String]) -> Option<String> {
    let last = lines.len().checked_sub(1)?;
    let error = lines.iter().rposition(|line| line.contains(" ERROR "));
    let from = error.filter(|from| !lines[*from..].iter().any(|line| line.contains(READY))).unwrap_or(last);
    let rest = lines[from + 1..].iter().take_while(|line| !begins_record(line));
    Some(lines[from..=from].iter().chain(rest).map(|line| line.trim()).collect::<Vec<_>>().join(" "))
}

/// True for the first line of a record in a log, which begins with its time: `2026-11-29T10:20:36.123456Z `.
fn begins_record(line: &str) -> bool {
    let time = line.split(' ').next().unwrap_or_default();
    humantime::parse_rfc3339(time).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_several_lines_is_told_whole() {
        let told =
            |lines: &[&str]| last_error(&lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>());
        let log = [
            "2026-11-29T10:20:31.1Z INFO a: b",
            "2026-11-29T10:20:32.2Z ERROR poold: config.toml: TOML parse error at line 3",
            "  |",
            "3 | bad",
            "no value",
            "2026-11-29T10:20:33.3Z INFO c: d",
            "2026-11-29T10:20:34.4Z  INFO daemon::run: ready pool=default",
        ];
        let whole =
            "2026-11-29T10:20:32.2Z ERROR poold: config.toml: TOML parse error at line 3 | 3 | bad no value";
        assert_eq!(told(&log[..5]).as_deref(), Some(whole));
        assert_eq!(told(&log[..6]).as_deref(), Some(whole), "a record behind it is not of it");
        assert_eq!(told(&log).as_deref(), Some(log[6]), "it is over: poold has started since");
        assert_eq!(told(&log[..1]).as_deref(), Some(log[0]));
    }
}
