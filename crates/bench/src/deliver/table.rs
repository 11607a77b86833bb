//! Tables of the results, with the goals met or missed.

use super::Measured;
use super::agents::Kind;
use super::hooks::{self, Hooks};
use super::live::{Live, OTHERS, Pair};
use super::peers::{self, Peers};
use super::prompt::{self, Way};
use crate::stats::{self, Times};

/// Maximum ratio of a prompt by the pool to the same keys by hand.
const PROMPT_TIMES: f64 = 1.3;
/// Maximum additional delay of the first prompt after a wake, compared with typing by hand, in
/// milliseconds.
const WAKE_MORE_MS: f64 = 300.0;
/// Maximum ratio of a hook to `true`.
const HOOK_TIMES: f64 = 2.0;
/// Maximum delay of the event after the hook's exit, in milliseconds.
const BEYOND_MS: f64 = 5.0;

/// Formats the tables.
pub(super) fn text(measured: &Measured) -> String {
    let Measured { runs, prompts, missing, hooks, live, peers } = measured;
    let [prompts, hooks, live] = [self::prompts(prompts, *runs), self::hooks(hooks), self::live(live)];
    let missing = missing.as_ref().map_or_else(String::new, |why| format!("not measured: {why}\n"));
    format!("{prompts}{missing}\n{hooks}\n{live}\n{}", self::peers(peers, *runs))
}

fn prompts(rows: &[prompt::Row], runs: usize) -> String {
    let mut text = format!(
        "a prompt to an agent, {runs} each in turn, in ms; load {}\nby hand: until the agent's own hooks begin; the pool: \
         until a subscriber knows. Both wait {} ms before Enter; `- wait` is the ratio without it\n\n\
         {:<8}{:<14}{:>9}{:>9}{:>8}{:>8}{:>10}{:>9}{:>8}{:>8}{:>6}\n",
        stats::load(),
        prompt::pause(0).as_millis(),
        "agent",
        "",
        "accepted",
        "p90",
        "x hand",
        "- wait",
        "done",
        "p90",
        "x hand",
        "- wait",
        "lost",
    );
    for row in rows {
        let floor = hand(rows, row.kind);
        let [begun, over] = [&row.begun, &row.over].map(|times| [0.5, 0.9].map(|share| ms(times, share)));
        let [to_begun, to_over] = [ratios(row, floor, |row| &row.begun), ratios(row, floor, |row| &row.over)];
        let way = if row.way == Way::Hand { "by hand" } else { "the pool" };
        text.push_str(&format!(
            "{:<8}{way:<14}{:>9.1}{:>9.1}{:>8.2}{:>8.2}{:>10.1}{:>9.1}{:>8.2}{:>8.2}{:>6}\n",
            row.kind.as_str(),
            begun[0],
            begun[1],
            to_begun[0],
            to_begun[1],
            over[0],
            over[1],
            to_over[0],
            to_over[1],
            row.lost,
        ));
    }
    for row in rows.iter().filter(|row| row.way == Way::Pool) {
        let floor = hand(rows, row.kind);
        let [begun, over] = [ratios(row, floor, |row| &row.begun)[0], ratios(row, floor, |row| &row.over)[0]];
        let met = begun <= PROMPT_TIMES && over <= PROMPT_TIMES && row.lost == 0;
        text.push_str(&format!(
            "{}: a prompt to {} at most {PROMPT_TIMES} x by hand: {begun:.2} and {over:.2}\n",
            verdict(met),
            row.kind.as_str()
        ));
    }
    text
}

/// Formats the table of wakes.
pub(super) fn wakes(rows: &[prompt::wake::Row]) -> String {
    let mut text = format!(
        "from a wake until the agent has its first prompt, in s; load {}\nby hand: it is started, and typed to once its \
         composer is drawn\n\n{:<10}{:<14}{:>9}{:>9}{:>9}{:>6}\n",
        stats::load(),
        "agent",
        "",
        "p50",
        "p90",
        "x hand",
        "lost",
    );
    for row in rows {
        let floor = ms(&row.times[0], 0.5);
        for (way, (times, lost)) in ["by hand", "the pool"].into_iter().zip(row.times.iter().zip(row.lost)) {
            let [p50, p90] = [0.5, 0.9].map(|share| ms(times, share));
            text.push_str(&format!(
                "{:<10}{way:<14}{:>9.3}{:>9.3}{:>9.2}{lost:>6}\n",
                row.kind.as_str(),
                p50 / 1e3,
                p90 / 1e3,
                p50 / floor,
            ));
        }
    }
    for row in rows {
        let more = ms(&row.times[1], 0.5) - ms(&row.times[0], 0.5);
        text.push_str(&format!(
            "{}: {} has its prompt at most {WAKE_MORE_MS} ms later than by hand: {more:.0}\n",
            verdict(more <= WAKE_MORE_MS && row.lost[1] == 0),
            row.kind.as_str(),
        ));
    }
    text
}

fn hand(rows: &[prompt::Row], kind: Kind) -> Option<&prompt::Row> {
    rows.iter().find(|row| row.kind == kind && row.way == Way::Hand)
}

/// Returns the ratios to typing by hand: of the whole, and without the pause that both make.
fn ratios(row: &prompt::Row, floor: Option<&prompt::Row>, of: fn(&prompt::Row) -> &Times) -> [f64; 2] {
    let (subject, floor) = (ms(of(row), 0.5), floor.map_or(f64::NAN, |floor| ms(of(floor), 0.5)));
    let pause = prompt::pause(0).as_secs_f64() * 1e3;
    [subject / floor, (subject - pause) / (floor - pause)]
}

fn hooks(hooks: &Hooks) -> String {
    let mut text =
        format!("{:<46}{:>9}{:>9}{:>9}\n", "a hook, from spawn to exit, in ms", "p50", "p99", "x true");
    let [nothing, ..] = &hooks.times;
    let floor = ms(nothing, 0.5);
    let mut slowest = ("", 0.0_f64);
    for (kind, times) in hooks::Kind::ALL.into_iter().zip(&hooks.times) {
        let [p50, p99] = [0.5, 0.99].map(|share| ms(times, share));
        let (name, ratio) = (hook(kind), p50 / floor);
        text.push_str(&format!("{name:<46}{p50:>9.2}{p99:>9.2}{ratio:>9.2}\n"));
        if ratio > slowest.1 {
            slowest = (name, ratio);
        }
    }
    let verdict_of_all = verdict(slowest.1 <= HOOK_TIMES);
    text.push_str(&format!(
        "{verdict_of_all}: every hook at most {HOOK_TIMES} x true: {:.2} ({})\n\n",
        slowest.1, slowest.0
    ));
    let Hooks { change, beyond, early, lost, .. } = hooks;
    for (name, times) in [("from its start until a subscriber has it", change), ("after its exit", beyond)] {
        text.push_str(&format!("{name:<46}{:>9.2}{:>9.2}\n", ms(times, 0.5), ms(times, 0.99)));
    }
    let late = ms(beyond, 0.99);
    text + &format!(
        "{}: a subscriber knows at most {BEYOND_MS} ms after the hook (p99): {late:.2}; before its end {early} times, never \
         {lost} times\n",
        verdict(late <= BEYOND_MS && *lost == 0)
    )
}

fn hook(kind: hooks::Kind) -> &'static str {
    match kind {
        hooks::Kind::Nothing => "true",
        hooks::Kind::Outside => "poolctl hook, outside of a session",
        hooks::Kind::Working => "poolctl hook generic: working",
        hooks::Kind::Claude => "poolctl hook claude: working",
        hooks::Kind::Turn => "poolctl hook generic: a turn begins or ends",
        hooks::Kind::Away => "poolctl hook generic, without poold: a file",
    }
}

fn live(live: &Live) -> String {
    let others = format!("beside {OTHERS} others");
    let mut text =
        format!("{:<34}{:>16}{:>9}{:>9}{:>9}\n", "output of a program, in ms", "", "p50", "p99", "x tmux");
    for (when, Pair { control, subscriber }) in [("alone", &live.alone), (others.as_str(), &live.beside)] {
        for (who, times) in [("a control client of tmux", control), ("a subscriber of the pool", subscriber)]
        {
            let [p50, p99] = [0.5, 0.99].map(|share| ms(times, share));
            let ratio = p50 / ms(control, 0.5);
            text.push_str(&format!("{who:<34}{when:>16}{p50:>9.2}{p99:>9.2}{ratio:>9.2}\n"));
        }
    }
    let [before, after] = live.idle.map(|share| 100.0 * share);
    text + &format!(
        "poold idle for {} s uses {before:.3} % of a core, and {after:.3} % with {OTHERS} idle subscribers\n",
        live.time.as_secs()
    )
}

fn peers(peers: &Peers, runs: usize) -> String {
    let mut text = format!(
        "{:<30}{:>9}{:>9}{:>9}{:>12}{:>9}{:>6}\n",
        format!("until a program has read it, {runs}"),
        "ms",
        "p90",
        "x hand",
        "sender, ms",
        "p90",
        "lost"
    );
    let hand = peers.rows.first().map_or(f64::NAN, |row| ms(&row.read, 0.5));
    for row in &peers.rows {
        let [read, told] = [&row.read, &row.told].map(|times| [0.5, 0.9].map(|share| ms(times, share)));
        text.push_str(&format!(
            "{:<30}{:>9.1}{:>9.1}{:>9.2}{:>12.1}{:>9.1}{:>6}\n",
            peers::name(row.way),
            read[0],
            read[1],
            read[0] / hand,
            told[0],
            told[1],
            row.lost,
        ));
    }
    text.push_str("sender: until its reply: of `poolctl send` that the agent has it, of others that it was typed or queued\n");
    text + &peers.missing.iter().map(|why| format!("not measured: {why}\n")).collect::<String>()
}

fn ms(times: &Times, share: f64) -> f64 {
    times.quantile_us(share) / 1e3
}

fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "missed" }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn times(ms: u64) -> Times {
        let mut times = Times::default();
        times.push(Duration::from_millis(ms));
        times
    }

    fn row(way: Way, begun: u64, over: u64) -> prompt::Row {
        prompt::Row { kind: Kind::Claude, way, begun: times(begun), over: times(over), lost: 0 }
    }

    #[test]
    fn a_prompt_is_compared_with_the_same_agent_by_hand() {
        let text = |over| prompts(&[row(Way::Hand, 200, 400), row(Way::Pool, 250, over)], 1);
        assert!(
            text(520).contains("met: a prompt to claude at most 1.3 x by hand: 1.25 and 1.30"),
            "{}",
            text(520)
        );
        assert!(text(520).contains("1.25    2.00     520.0"), "{}", text(520));
        assert!(text(525).contains("missed: a prompt to claude"), "{}", text(525));
        let lost = prompt::Row { lost: 1, ..row(Way::Pool, 200, 400) };
        assert!(prompts(&[row(Way::Hand, 200, 400), lost], 1).contains("missed: a prompt"));
    }

    #[test]
    fn every_hook_is_to_be_quick_and_its_word_to_spread() {
        let text = |slow, late| {
            let times_of = [10, 11, 12, slow, 19, 20].map(times);
            hooks(&Hooks { times: times_of, change: times(9), beyond: times(late), early: 3, lost: 0 })
        };
        assert!(text(20, 5).contains("\nmet: every hook at most 2 x true: 2.00"), "{}", text(20, 5));
        assert!(text(21, 5).contains("\nmissed: every hook at most 2 x true: 2.10 (poolctl hook claude"));
        assert!(text(20, 5).contains("\nmet: a subscriber knows"), "{}", text(20, 5));
        assert!(text(20, 6).contains("\nmissed: a subscriber knows"));
    }

    #[test]
    fn others_are_shown_with_what_is_missing() {
        let row = |way, ms| peers::Row { way, read: times(ms), told: times(1), lost: 0 };
        let rows = vec![row(peers::Way::Hand, 160), row(peers::Way::TmuxCli, 1600)];
        let text = peers(&Peers { rows, missing: vec!["cao-server: not on the PATH".to_owned()] }, 1);
        assert!(text.contains("1600.0   1600.0    10.00"), "{text}");
        assert!(text.ends_with("not measured: cao-server: not on the PATH\n"), "{text}");
    }
}
