//! The process tree of a session as text.

use std::collections::{BTreeMap, BTreeSet};

use protocol::reply::TreeProcess;

use crate::show::escape;

/// Returns a line per process, indented by its depth.
pub(crate) fn render(processes: &[TreeProcess]) -> String {
    let known: BTreeSet<u32> = processes.iter().map(|process| process.process.pid).collect();
    let mut below: BTreeMap<Option<u32>, Vec<&TreeProcess>> = BTreeMap::new();
    // In reverse, because the stack below pops the last one first.
    for process in processes.iter().rev() {
        let parent = Some(process.parent).filter(|parent| known.contains(parent));
        below.entry(parent).or_default().push(process);
    }
    let mut text = String::new();
    let mut stack: Vec<_> =
        below.remove(&None).unwrap_or_default().into_iter().map(|root| (1, root)).collect();
    while let Some((depth, TreeProcess { process, command, .. })) = stack.pop() {
        let command = escape::line(&command.to_string_lossy());
        text.push_str(&format!("{:width$}{}  {command}\n", "", process.pid, width = 2 * depth));
        let children = below.remove(&Some(process.pid)).unwrap_or_default();
        stack.extend(children.into_iter().map(|child| (depth + 1, child)));
    }
    text
}

#[cfg(test)]
mod tests {
    use protocol::ProcId;

    use super::*;

    fn process(pid: u32, parent: u32, command: &str) -> TreeProcess {
        TreeProcess { process: ProcId { pid, start: 1 }, parent, command: command.into() }
    }

    #[test]
    fn children_stand_under_their_parents() {
        let processes = [
            process(60, 1, "reaper"),
            process(61, 60, "sh"),
            process(70, 60, "b\x1bad"),
            process(62, 61, "make"),
            process(63, 61, "cat"),
            process(64, 62, "cc"),
        ];
        let expected =
            "  60  reaper\n    61  sh\n      62  make\n        64  cc\n      63  cat\n    70  b\\x1bad\n";
        assert_eq!(render(&processes), expected);
        assert_eq!(render(&[]), "");
    }

    #[test]
    fn a_cycle_ends() {
        assert_eq!(render(&[process(1, 1, "itself")]), "");
        assert_eq!(render(&[process(2, 3, "a"), process(3, 2, "b"), process(4, 9, "c")]), "  4  c\n");
    }
}
