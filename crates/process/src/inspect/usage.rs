//! Resource usage of a session: the sum over its processes, or the figures of its control group.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use protocol::{ProcId, Usage};

use crate::bounded_reads::UNANSWERED;
use crate::tree::Table;
use crate::{cgroup, identity};

#[cfg_attr(target_os = "linux", path = "usage/linux.rs")]
#[cfg_attr(target_os = "macos", path = "usage/macos.rs")]
mod system;

/// Usage of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Share {
    /// Memory in bytes.
    memory: u64,
    /// True if `memory` counts shared pages proportionally (PSS); false if it counts them in full (RSS).
    proportional: bool,
    /// CPU time, its own and that of reaped children, in microseconds.
    cpu_us: u64,
}

/// Returns the usage of the init's descendants in this table and of the processes in this control group, without the
/// init itself unless it is the agent. `None` if none of them is alive. The caller fills in disk, log and CPU
/// share. Reading the memory of a large process takes milliseconds, so this must not be called on a thread that others
/// wait for. Of a process that hangs in the kernel with its memory map locked, only the resident memory is known.
pub fn usage(table: &Table, init: ProcId, agent: Option<ProcId>, cgroup: Option<&Path>) -> Option<Usage> {
    let mut ids: BTreeSet<ProcId> =
        table.subtree_ids(init).chain(agent.into_iter().flat_map(|id| table.subtree_ids(id))).collect();
    let inside = cgroup.and_then(|path| cgroup::processes(path).ok()).unwrap_or_default();
    ids.extend(identity::read_each(&inside).into_values().filter_map(|process| process.living()));
    if ids.is_empty() {
        return None;
    }
    if agent != Some(init) {
        ids.remove(&init);
    }
    let by_pid: BTreeMap<u32, ProcId> = ids.into_iter().map(|id| (id.pid, id)).collect();
    let pids: Vec<u32> = by_pid.keys().copied().collect();
    let mut shares: Vec<Share> = Vec::new();
    let share = move |pid| system::share(*by_pid.get(&pid)?);
    UNANSWERED.read_each(&pids, share, |pid, share| {
        shares.extend(share.unwrap_or_else(|| system::unanswered_share(pid)));
    });
    let of_group = cgroup.and_then(group_memory);
    let source = if shares.iter().all(|share| share.proportional) { "pss" } else { "rss" };
    Some(Usage {
        processes: u32::try_from(shares.len()).unwrap_or(u32::MAX),
        memory: of_group.unwrap_or_else(|| shares.iter().map(|share| share.memory).sum()),
        memory_by: if of_group.is_some() { "cgroup" } else { source }.to_owned(),
        cpu_us: cgroup.and_then(group_cpu).unwrap_or_else(|| shares.iter().map(|share| share.cpu_us).sum()),
        ..Usage::default()
    })
}

/// Returns the memory of a group in bytes; `None` without the memory controller.
fn group_memory(group: &Path) -> Option<u64> {
    fs::read_to_string(group.join("memory.current")).ok()?.trim().parse().ok()
}

/// Returns the CPU time of a group in microseconds; reported for every group.
fn group_cpu(group: &Path) -> Option<u64> {
    cgroup::flat_keyed_value(&fs::read_to_string(group.join("cpu.stat")).ok()?, "usage_usec")
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::process::{ChildStdin, Command, Stdio};

    use super::*;
    use crate::testing::{Running, wait_until};

    fn usage(init: ProcId, agent: Option<ProcId>, cgroup: Option<&Path>) -> Option<Usage> {
        super::usage(&Table::read_below(&[init]).unwrap(), init, agent, cgroup)
    }

    /// A shell that computes for a while and then waits for its child, which runs as long as its input is
    /// open.
    fn tree() -> (Running, ProcId, ChildStdin) {
        let mut command = Command::new("sh");
        let script = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; cat <&3 & echo; wait; :";
        command.args(["-c", &format!("exec 3<&0; {script}")]);
        let mut child = Running::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let input = child.stdin.take().unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let id = identity::identify(child.id()).unwrap().unwrap();
        (child, id, input)
    }

    #[test]
    fn the_init_does_not_count_but_a_program_without_one_does() {
        let (mut child, id, input) = tree();
        // The child may still be between fork and exec.
        wait_until("the child", || usage(id, None, None).is_some_and(|below| below.memory > 1 << 12));
        let below = usage(id, None, None).unwrap();
        let all = usage(id, Some(id), None).unwrap();
        assert_eq!((below.processes, all.processes), (1, 2));
        assert!(below.memory < all.memory, "{below:?} {all:?}");
        assert_eq!(all.memory_by, "pss");
        assert!(below.cpu_us < all.cpu_us && all.cpu_us >= 10_000, "the shell computed: {below:?} {all:?}");
        drop(input);
        child.wait().unwrap();
        assert_eq!(usage(id, Some(id), None), None);
    }

    /// The files are in the kernel's format.
    #[test]
    fn a_control_group_has_more() {
        let (_child, id, mut input) = tree();
        let stray = Running::start(Command::new("sleep").arg("60"));
        let group = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| fs::write(group.path().join(file), text).unwrap();
        write("cgroup.procs", &format!("{}\n", stray.id()));
        let found = usage(id, None, Some(group.path())).unwrap();
        assert_eq!((found.processes, found.memory_by.as_str()), (2, "pss"));
        write("cpu.stat", "usage_usec 123456\nuser_usec 1\n");
        write("memory.current", "7654321\n");
        let found = usage(id, None, Some(group.path())).unwrap();
        assert_eq!((found.processes, found.cpu_us, found.memory), (2, 123_456, 7_654_321));
        assert_eq!(found.memory_by, "cgroup");
        input.write_all(b"x").unwrap();
    }

    #[test]
    fn pages_shared_by_many_count_once() {
        let mut command = Command::new("sh");
        command.args(["-c", "for i in 1 2 3 4 5 6 7 8; do sleep 60 & done; echo; wait"]);
        let mut child = Running::start(command.stdout(Stdio::piped()));
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let id = identity::identify(child.id()).unwrap().unwrap();
        wait_until("the sleepers", || usage(id, None, None).is_some_and(|usage| usage.processes == 8));
        let resident = |pid: u32| {
            crate::platform::proc::parse_kib(&fs::read(format!("/proc/{pid}/status")).unwrap(), "VmRSS")
                .unwrap()
                * 1024
        };
        let ids: Vec<ProcId> = Table::read().unwrap().subtree_ids(id).skip(1).collect();
        let each: u64 = ids.iter().map(|id| resident(id.pid)).sum();
        let found = usage(id, None, None).unwrap();
        assert!(found.memory < each / 2, "{} of {each}", found.memory);
        for id in ids {
            let handle = crate::handle::Handle::open(id).unwrap();
            handle.unwrap().signal(nix::sys::signal::Signal::SIGKILL).unwrap();
        }
    }
}
