//! Tests on real control groups, if they can be created on this machine, and on plain files for features that
//! only some kernels have.

use std::process::{Command, Stdio};

use protocol::{Limits, Tag};

use std::fs;
use std::path::Path;

use super::group::{kill_each, members};
use super::*;
use crate::testing::{Running, Scratch, wait_until};
use nix::errno::Errno;

const TAG: Tag = Tag([0xa7; 16]);

fn sleeper() -> Command {
    let mut command = Command::new("sleep");
    command.arg("60").stdin(Stdio::null());
    command
}

/// Marks a group as delegated, as systemd does for `Delegate=yes`.
fn delegate(path: &Path) {
    rustix::fs::setxattr(path, "user.delegate", b"1", rustix::fs::XattrFlags::empty()).unwrap();
}

#[test]
fn a_group_from_its_creation_to_its_removal() {
    let Some(scratch) = Scratch::new() else { return };
    let subtree = Subtree::at(&scratch.0.join("pool")).unwrap();
    let available = subtree.prepare().unwrap();
    assert_eq!(subtree.prepare().unwrap(), available, "idempotent");
    let limits: Limits = "mem=64M,tasks=50,cpu=150%".parse().unwrap();
    let group = subtree.create(TAG, &limits).unwrap();
    assert_eq!(group.path, subtree.path().join("sessions").join(TAG.to_string()));
    let held = |controller: &str| available.iter().any(|name| name == controller);
    for (controller, limit) in [("memory", "mem=64M: "), ("pids", "tasks=50: "), ("cpu", "cpu=150%: ")] {
        let named = group.unenforced.iter().any(|why| why.starts_with(limit));
        assert_ne!(held(controller), named, "{controller}: {available:?} {:?}", group.unenforced);
    }
    assert_eq!((processes(&group.path).unwrap(), is_populated(&group.path).unwrap()), (vec![], false));
    let mut deep = Scratch::run(&group.path.join("made/by/it"), &mut sleeper());
    let mut top = Scratch::run(&group.path, &mut sleeper());
    let mut pids = processes(&group.path).unwrap();
    pids.sort_unstable();
    let mut expected = [deep.id(), top.id()];
    expected.sort_unstable();
    assert_eq!((pids.as_slice(), is_populated(&group.path).unwrap()), (expected.as_slice(), true));
    assert!(contains(TAG, deep.id()) && contains(TAG, top.id()) && !contains(TAG, std::process::id()));
    assert_eq!(remove(&group.path).unwrap_err().raw_os_error(), Some(Errno::EBUSY as i32));
    kill(&group.path).unwrap();
    drop((deep.wait(), top.wait()));
    wait_until("the emptiness", || !is_populated(&group.path).unwrap());
    remove(&group.path).unwrap();
    assert!(!group.path.exists());
    remove(&group.path).unwrap();
    kill(&group.path).unwrap();
    assert_eq!((processes(&group.path).unwrap(), is_populated(&group.path).unwrap()), (vec![], false));
}

#[test]
fn without_cgroup_kill_each_process_is_killed() {
    let Some(scratch) = Scratch::new() else { return };
    let script = "trap '' TERM HUP; while :; do sleep 0.01; done";
    let children =
        ["a", "b/c"].map(|name| Scratch::run(&scratch.0.join(name), Command::new("sh").args(["-c", script])));
    kill_each(&scratch.0).unwrap();
    assert_eq!(processes(&scratch.0).unwrap(), [0; 0]);
    drop(children);
}

#[test]
fn processes_of_the_subtree_move_into_server() {
    let Some(scratch) = Scratch::new() else { return };
    let subtree = Subtree::at(&scratch.0).unwrap();
    let children = [(); 5].map(|()| Scratch::run(&scratch.0, &mut sleeper()));
    subtree.prepare().unwrap();
    assert_eq!(members(&scratch.0).unwrap(), [0; 0]);
    assert_eq!(processes(&scratch.0.join("server")).unwrap().len(), children.len());
}

#[test]
fn empty_groups_that_are_not_kept_are_removed() {
    let Some(scratch) = Scratch::new() else { return };
    let subtree = Subtree::at(&scratch.0).unwrap();
    subtree.prepare().unwrap();
    let tags = [1, 2, 3].map(|n| Tag([n; 16]));
    let [kept, busy, left] = tags.map(|tag| subtree.create(tag, &Limits::default()).unwrap().path);
    let _running = Scratch::run(&busy.join("below"), &mut sleeper());
    let foreign = scratch.0.join("sessions/foreign");
    for group in [&foreign, &left.join("below")] {
        fs::create_dir(group).unwrap();
    }
    subtree.tags().into_iter().filter(|tag| *tag != tags[0]).for_each(|tag| subtree.remove_if_empty(tag));
    assert_eq!([&kept, &busy, &foreign, &left].map(|path| path.exists()), [true, true, true, false]);
}

#[test]
fn the_servers_group_is_found_before_and_after_it_was_moved() {
    let Some(scratch) = Scratch::new() else { return };
    let unit = scratch.0.join("unit");
    let server = Scratch::run(&unit, &mut sleeper());
    let found = || Subtree::of_server(server.id());
    assert_eq!(found().unwrap_err(), "the tmux server is in no delegated control group");
    delegate(&unit);
    let subtree = found().unwrap();
    assert_eq!(subtree.path(), unit);
    subtree.prepare().unwrap();
    assert!(processes(&unit.join("server")).unwrap().contains(&server.id()));
    assert_eq!(found().unwrap(), subtree);
}

#[test]
fn a_group_delegated_to_others_is_not_used() {
    let Some(scratch) = Scratch::new() else { return };
    delegate(&scratch.0);
    let server = Scratch::run(&scratch.0.join("app.slice/terminal.scope"), &mut sleeper());
    assert!(Subtree::of_server(server.id()).is_err(), "the manager above divides it");
    let unit = scratch.0.join("tmux-pool-tmux@x.service");
    let server = Scratch::run(&unit, &mut sleeper());
    assert_eq!(Subtree::of_server(server.id()).unwrap().path(), unit, "known by its name");
}

#[test]
fn neither_the_root_nor_a_plain_directory_is_used() {
    let plain = tempfile::tempdir().unwrap();
    let says = |path: &Path| Subtree::at(path).unwrap_err();
    assert!(says(plain.path()).contains("not a control group of version 2"));
    let Some(scratch) = Scratch::new() else { return };
    assert!(says(scratch.0.parent().unwrap()).contains("below the root group"));
    assert!(says(&scratch.0.join("a/b")).contains("cannot create"));
}

/// On the files of a group with every controller.
#[test]
fn the_limits_as_the_kernel_wants_them() {
    let plain = tempfile::tempdir().unwrap();
    let group = plain.path().join("sessions").join(TAG.to_string());
    let files = ["memory.max", "memory.swap.max", "memory.oom.group", "pids.max", "cpu.max"];
    fs::create_dir_all(&group).unwrap();
    files.iter().for_each(|file| fs::write(group.join(file), "").unwrap());
    let read = || files.map(|file| fs::read_to_string(group.join(file)).unwrap());
    let create =
        |limits: &str| Subtree::unchecked(plain.path()).create(TAG, &limits.parse().unwrap()).unwrap();
    assert_eq!(create("nice=5").unenforced, [""; 0]);
    assert_eq!(read(), [""; 5], "what is not limited is not touched");
    assert_eq!(create("mem=64M,tasks=50,cpu=150%").unenforced, [""; 0]);
    assert_eq!(read(), ["67108864", "0", "0", "50", "150000 100000"]);
}

#[test]
fn oom_kills_are_counted() {
    let plain = tempfile::tempdir().unwrap();
    assert_eq!(oom_kills(plain.path()), None);
    fs::write(plain.path().join("memory.events"), "low 0\nmax 9\noom 3\noom_kill 2\noom_group_kill 0\n")
        .unwrap();
    assert_eq!(oom_kills(plain.path()), Some(2));
}

#[test]
fn a_process_in_another_group_is_not_contained() {
    let child = Running::start(&mut sleeper());
    assert!(!contains(TAG, child.id()) && !contains(TAG, u32::MAX));
}
