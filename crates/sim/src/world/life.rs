//! The life of a simulated process: its tasks run in an order that the seed decides, and after its death none
//! of them runs again, nor reaches the world.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use world::BoxFuture;
use world::tasks::{Blocking, Tasks};

use crate::rng::Rng;
use crate::trace::Trace;

/// Chances of a delay at each poll of a task, per mille.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Jitter {
    /// Behind all tasks that are ready.
    pub(crate) yields: u64,
    /// By up to 20 ms.
    pub(crate) sleeps: u64,
}

/// A living process.
#[derive(Clone)]
pub(crate) struct Life(Arc<Shared>);

struct Shared {
    dead: AtomicBool,
    jitter: Jitter,
    state: Mutex<State>,
    trace: Trace,
}

struct State {
    rng: Rng,
    tasks: Vec<AbortHandle>,
    /// The task that has panicked.
    panicked: Option<&'static str>,
    /// The end of its standstill.
    still_until: Option<Instant>,
}

impl Life {
    /// Begins a life.
    pub(crate) fn new(rng: Rng, jitter: Jitter, trace: Trace) -> Self {
        let state = Mutex::new(State { rng, tasks: Vec::new(), panicked: None, still_until: None });
        Self(Arc::new(Shared { dead: AtomicBool::new(false), jitter, state, trace }))
    }

    /// True once the process has died.
    pub(crate) fn is_dead(&self) -> bool {
        self.0.dead.load(Ordering::SeqCst)
    }

    /// Returns the task that has panicked.
    pub(crate) fn panicked(&self) -> Option<&'static str> {
        self.state().panicked
    }

    /// Marks the process as dead: from now on it cannot reach the world.
    pub(crate) fn die(&self) {
        self.0.dead.store(true, Ordering::SeqCst);
    }

    /// Stops the process until this time, as SIGSTOP does.
    pub(crate) fn stand_still(&self, until: Instant) {
        self.state().still_until = Some(until);
    }

    /// Returns the end of the standstill, if the process stands still.
    pub(crate) fn still_until(&self) -> Option<Instant> {
        self.state().still_until.filter(|until| Instant::now() < *until)
    }

    /// Kills the process, and returns once all of its tasks are dropped.
    pub(crate) async fn kill(&self) {
        self.die();
        loop {
            let tasks = std::mem::take(&mut self.state().tasks);
            if tasks.iter().all(AbortHandle::is_finished) {
                return;
            }
            tasks.iter().for_each(AbortHandle::abort);
            self.state().tasks.extend(tasks);
            tokio::task::yield_now().await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn delay(&self) -> Delay {
        let Jitter { yields, sleeps } = self.0.jitter;
        let rng = &mut self.state().rng;
        if rng.per_mille(sleeps) {
            Delay::Sleep(Duration::from_millis(rng.between(1, 20)))
        } else if rng.per_mille(yields) {
            Delay::Yield
        } else {
            Delay::None
        }
    }
}

enum Delay {
    None,
    Yield,
    Sleep(Duration),
}

impl Tasks for Life {
    fn spawn(&self, name: &'static str, task: BoxFuture<'static, ()>) {
        if self.is_dead() {
            return;
        }
        let task = Scheduled { life: self.clone(), name, task: Some(task), sleep: None };
        let handle = tokio::spawn(task).abort_handle();
        let tasks = &mut self.state().tasks;
        if tasks.len() >= 256 {
            tasks.retain(|task| !task.is_finished());
        }
        tasks.push(handle);
    }

    fn block(&self, work: Blocking) {
        let life = self.clone();
        let task = async move {
            if !life.is_dead() {
                work();
            }
        };
        self.spawn("blocking", Box::pin(task));
    }
}

/// A task whose polls the seed delays.
struct Scheduled {
    life: Life,
    name: &'static str,
    /// None once it has ended.
    task: Option<BoxFuture<'static, ()>>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Future for Scheduled {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.life.is_dead() {
            self.task = None;
            return Poll::Ready(());
        }
        if let Some(until) = self.life.still_until() {
            let mut sleep = Box::pin(sleep_until(until));
            if sleep.as_mut().poll(context).is_pending() {
                self.sleep = Some(sleep);
                return Poll::Pending;
            }
        }
        match &mut self.sleep {
            Some(sleep) => match sleep.as_mut().poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(()) => self.sleep = None,
            },
            None => match self.life.delay() {
                Delay::None => {}
                Delay::Yield => {
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Delay::Sleep(by) => {
                    let mut sleep = Box::pin(sleep(by));
                    if sleep.as_mut().poll(context).is_pending() {
                        self.sleep = Some(sleep);
                        return Poll::Pending;
                    }
                }
            },
        }
        self.life.0.trace.note(self.name);
        let Some(task) = &mut self.task else { return Poll::Ready(()) };
        // A panic ends the process, as it does in production.
        match catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(())) => {
                self.task = None;
                Poll::Ready(())
            }
            Err(_) => {
                self.task = None;
                self.life.state().panicked.get_or_insert(self.name);
                self.life.die();
                Poll::Ready(())
            }
        }
    }
}
