//! `poold` is killed repeatedly under clients that send and workers that settle. Every acknowledged message
//! exists exactly once.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::load::{Load, Running};
use super::support::queued;
use crate::harness::{PATIENCE, Pool, number, wait_until};

const CLIENTS: usize = 4;
/// Kills in a normal run; `POOL_KILLS` sets more.
const KILLS: usize = 8;

/// Sends until told to stop; returns key and id of each acknowledged message.
fn send_on(pool: &Pool, client: usize, stop: &AtomicBool) -> Vec<(String, u64)> {
    let mut acknowledged = Vec::new();
    for n in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let key = format!("c{client}-{n}");
        let sent = pool.ctl(&["--timeout", "20s", "send", "web", "--key", &key, &key]);
        match sent.code {
            0 => acknowledged.push((key, sent.text().parse().unwrap())),
            // Outcome unknown, or the queue is full: not counted as acknowledged.
            5..=7 | 9 => {}
            _ => panic!("{sent:?}"),
        }
    }
    acknowledged
}

fn sent(pool: &Pool) -> u64 {
    pool.show("web")["total_requests"].as_u64().unwrap()
}

#[test]
fn d01_every_acknowledged_message_is_there_once_after_many_kills() {
    let kills = number("POOL_KILLS", KILLS);
    let pool = Pool::with("[queue]\nmax_messages = 1000000\n[events]\nkeep = 100000000\n");
    pool.script("web", "exec cat >/dev/null");
    let stop = AtomicBool::new(false);
    let load = Load::default();
    let acknowledged: Vec<(String, u64)> = thread::scope(|scope| {
        let (pool, stop, load) = (&pool, &stop, &load);
        let clients: Vec<_> = (0..CLIENTS).map(|n| scope.spawn(move || send_on(pool, n, stop))).collect();
        let running = (load.start(scope, pool), Running(stop));
        for _ in 0..kills {
            pool.restart_poold();
            let before = (sent(pool), load.done());
            wait_until("something is sent and something worked between two kills", PATIENCE, || {
                sent(pool) > before.0 && load.done() > before.1
            });
        }
        drop(running);
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    assert!(acknowledged.len() > kills, "only {} were sent at all", acknowledged.len());
    pool.restart_poold();
    let mut there: HashMap<String, Vec<u64>> = HashMap::new();
    for (key, id) in queued(&pool) {
        there.entry(key).or_default().push(id);
    }
    for (key, id) in &acknowledged {
        assert_eq!(there.get(key), Some(&vec![*id]), "{key}");
    }
    let doubled: Vec<_> = there.iter().filter(|(_, ids)| ids.len() > 1).collect();
    assert!(doubled.is_empty(), "{doubled:?}");
    assert_eq!(sent(&pool), there.len() as u64);
    load.holds(&pool);
}
