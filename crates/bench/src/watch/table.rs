//! Tables of the results beside their floors, with the goals met or missed.

use super::load::{Load, NAMES, STORM};
use super::{Item, Measured, Row};
use crate::stats;

/// Maximum time of the first event of an absence beyond its commit, in microseconds, by number of sessions.
const ABSENCE_US: [(usize, f64); 2] = [(10, 1_000.0), (1_000, 5_000.0)];
/// Maximum time from the death of a pane's process until its event, in microseconds, with any number of
/// sessions.
const DEATH_US: f64 = 2_000.0;
/// Maximum share of a core of the idle watcher, in percent, by number of sessions.
const IDLE_PERCENT: [(usize, f64); 2] = [(100, 0.1), (1_000, 0.5)];
/// Maximum share of a core that its reads cost the idle server, in percent.
const SERVER_PERCENT: f64 = 0.5;
/// Maximum memory of a watcher of 1,000 sessions, in bytes.
const WATCHER_BYTES: f64 = 16e6;

/// Quantiles of the floors, in microseconds.
struct Floors {
    round_trip: f64,
    exit: f64,
    list: f64,
    append: f64,
    commit: f64,
}

impl Floors {
    fn of(rows: &[Row]) -> Self {
        Self {
            round_trip: p50(rows, Item::RoundTrip),
            exit: p50(rows, Item::Exit),
            list: p50(rows, Item::List),
            append: p50(rows, Item::Append),
            commit: p50(rows, Item::Commit),
        }
    }
}

fn p50(rows: &[Row], item: Item) -> f64 {
    rows.iter().find(|row| row.item == item).map_or(f64::NAN, |row| row.time.quantile_us(0.5))
}

fn label(item: Item) -> &'static str {
    match item {
        Item::RoundTrip => "round trip, control connection",
        Item::Exit => "pidfd of a killed process",
        Item::List => "tmux list-panes -a",
        Item::Append => "4 KiB append + fdatasync",
        Item::Commit => "label change: a commit, answered",
        Item::Kill => "kill-session > session_draining",
        Item::KillForeign => "kill-session > foreign_gone",
        Item::New => "new-session > foreign_seen",
        Item::Rename => "rename-session > session_renamed",
        Item::Death => "kill -9 of init > session_draining",
    }
}

/// Formats the tables.
pub(super) fn text(measured: &Measured) -> String {
    let Measured { sessions, ours, runs, transport, rows, load } = measured;
    let floors = Floors::of(rows);
    let mut text = format!(
        "watching {sessions} sessions, {ours} of them the pool's, by {transport}; {runs} runs each in turn; load {}\n\n\
         {:<35}{:>8}{:>8}{:>8}{:>9}{:>8}{:>9}{:>10}{:>8}{:>7}{:>6}\n",
        stats::load(),
        "p50 and p99 in us",
        "p50",
        "p99",
        "x trip",
        "x pidfd",
        "x list",
        "x fsync",
        "x commit",
        "whole",
        "early",
        "lost",
    );
    for row in rows {
        text.push_str(&line(row, &floors));
        text.push_str(&aim(row, &floors, *sessions));
        text.push('\n');
    }
    text.push_str(
        "\nsubjects: from the end of the tmux client that caused it (0 where the event was early), and `whole`, from \
         its start;\nfrom the signal for the death of a process\n\n",
    );
    text.push_str(&costs(load, *sessions));
    text
}

fn line(row: &Row, floors: &Floors) -> String {
    let p50 = row.time.quantile_us(0.5);
    let whole =
        if row.item.is_floor() { String::new() } else { format!("{:.0}", row.whole.quantile_us(0.5)) };
    let count = |n: usize| if row.item.is_floor() { String::new() } else { n.to_string() };
    format!(
        "{:<35}{p50:>8.0}{:>8.0}{:>8.2}{:>9.2}{:>8.2}{:>9.2}{:>10.2}{whole:>8}{:>7}{:>6}",
        label(row.item),
        row.time.quantile_us(0.99),
        p50 / floors.round_trip,
        p50 / floors.exit,
        p50 / floors.list,
        p50 / floors.append,
        p50 / floors.commit,
        count(row.early),
        count(row.lost),
    )
}

fn aim(row: &Row, floors: &Floors, sessions: usize) -> String {
    let p50 = row.time.quantile_us(0.5);
    let beyond = (p50 - floors.commit).max(0.0);
    match row.item {
        Item::Kill | Item::KillForeign => within(&ABSENCE_US, sessions).map_or_else(String::new, |most| {
            verdict(
                row.lost == 0 && beyond <= most,
                &format!("{beyond:.0} of {most:.0} us beyond its commit"),
            )
        }),
        Item::Death => {
            let what = format!("at most {DEATH_US:.0} us; {beyond:.0} us beyond its commit");
            verdict(row.lost == 0 && p50 <= DEATH_US, &what)
        }
        _ => String::new(),
    }
}

/// Returns the limit for this many sessions, if there is one.
fn within(limits: &[(usize, f64)], sessions: usize) -> Option<f64> {
    limits.iter().find(|(most, _)| sessions <= *most).map(|(_, limit)| *limit)
}

fn verdict(met: bool, what: &str) -> String {
    format!("  {}: {what}", if met { "met" } else { "missed" })
}

#[expect(clippy::cast_precision_loss, reason = "megabytes")]
fn costs(load: &Load, sessions: usize) -> String {
    let mut text = format!("{:<13}{:>8}{:>11}{:>9}{:>9}\n", "", "idle %", "storm ms", "RSS MB", "peak MB");
    for (at, name) in NAMES.iter().enumerate() {
        let percent = load.idle[at] * 100.0;
        let (resident, peak) = load.memory[at]
            .map_or((f64::NAN, f64::NAN), |memory| (memory.resident as f64, memory.peak as f64));
        text.push_str(&format!(
            "{name:<13}{percent:>8.3}{:>11.0}{:>9.1}{:>9.1}",
            load.storm.cpu[at].as_secs_f64() * 1e3,
            resident / 1e6,
            peak / 1e6,
        ));
        match at {
            0 => {
                if let Some(most) = within(&IDLE_PERCENT, sessions) {
                    text.push_str(&verdict(percent <= most, &format!("idle at most {most} %")));
                }
                if sessions <= 1_000 {
                    let what = format!("peak under {:.0} MB", WATCHER_BYTES / 1e6);
                    text.push_str(&verdict(peak < WATCHER_BYTES, &what));
                }
            }
            2 => text
                .push_str(&verdict(percent <= SERVER_PERCENT, &format!("idle at most {SERVER_PERCENT} %"))),
            _ => {}
        }
        text.push('\n');
    }
    let storm = &load.storm;
    let lag = storm.lag.map_or("not all were reported".to_owned(), |lag| {
        format!("all reported {:.1} ms after the last command", lag.as_secs_f64() * 1e3)
    });
    text.push_str(&format!("storm: {STORM} creations in {:.2} s; {lag}\n\n", storm.took.as_secs_f64()));
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::Sample;
    use super::super::load::Storm;
    use super::*;
    use crate::usage::Memory;

    fn row(item: Item, us: u64) -> Row {
        let mut row = Row::new(item);
        row.add(Some(Sample::from(Duration::from_micros(us))));
        row
    }

    fn measured(sessions: usize, kill: u64) -> Measured {
        let times = [20, 300, 5000, 100, 400, kill, 300, 300, 300, 2001];
        Measured {
            sessions,
            ours: 5,
            runs: 1,
            transport: "native".to_owned(),
            rows: Item::ALL.into_iter().zip(times).map(|(item, us)| row(item, us)).collect(),
            load: Load {
                idle: [0.0009, 0.0, 0.006],
                memory: [Some(Memory { resident: 4_000_000, peak: 16_000_000 }); 3],
                storm: Storm { cpu: [Duration::from_millis(60); 3], took: Duration::from_secs(2), lag: None },
            },
        }
    }

    fn line_of(text: &str, start: &str) -> String {
        text.lines().find(|line| line.starts_with(start)).unwrap().to_owned()
    }

    #[test]
    fn aims_are_those_of_the_size() {
        let kill = |sessions, us| line_of(&text(&measured(sessions, us)), "kill-session > session_draining");
        assert!(kill(10, 1400).ends_with("  met: 1000 of 1000 us beyond its commit"));
        assert!(kill(10, 1401).contains("missed"));
        assert!(kill(1000, 5400).contains("  met: 5000 of 5000 us"));
        assert!(kill(1000, 5401).contains("missed"));
    }

    #[test]
    fn ratios_and_other_aims() {
        let text = text(&measured(10, 800));
        let kill = line_of(&text, "kill-session > session_draining");
        assert!(kill.contains("   40.00     2.67    0.16     8.00      2.00"), "{kill}");
        assert!(
            line_of(&text, "kill -9").ends_with("missed: at most 2000 us; 1601 us beyond its commit"),
            "{text}"
        );
        let watcher = line_of(&text, "tmux-watch");
        assert!(watcher.contains("met: idle at most 0.1 %") && watcher.contains("missed: peak under 16 MB"));
        assert!(line_of(&text, "tmux server").contains("missed: idle at most 0.5 %"));
        assert!(text.contains("not all were reported"));
    }

    #[test]
    fn what_is_lost_is_not_met() {
        let mut measured = measured(10, 800);
        for row in &mut measured.rows {
            row.add(None);
        }
        let kill = line_of(&text(&measured), "kill-session > session_draining");
        assert!(kill.contains("1  missed"), "{kill}");
    }
}
