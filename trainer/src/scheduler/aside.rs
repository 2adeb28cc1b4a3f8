//! Learning beside the training step, on a thread of its own.
//!
//! In: what learns (networks, replay) and, after each step, the work to do on it. Out: it again, and what the work
//! showed, to whoever asks; asking waits for the end of the work.
//! Always holds: either the thread has the learner or the policy has it, never both, so that what a decision is made
//! from does not depend on timing: work begun after step t is done before anything of step t + 1 is decided. The thread
//! computes with as many threads as its policy would, so the numbers are those of learning in place, bit for bit.
//! Where the system gives no thread, the work is done in place.

use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

type Work<L, R> = Box<dyn FnOnce(&mut L) -> R + Send>;

/// A learner that works while its policy waits for the next step.
pub(super) struct Aside<L, R> {
    /// `None` while the thread has it.
    learner: Option<Box<L>>,
    /// What the last work showed, until it is taken.
    shown: Option<R>,
    /// Time of all work so far.
    busy: Duration,
    thread: Option<Thread<L, R>>,
}

struct Thread<L, R> {
    work: SyncSender<(Box<L>, Work<L, R>)>,
    done: Receiver<Done<L, R>>,
    handle: JoinHandle<()>,
}

struct Done<L, R> {
    learner: Box<L>,
    shown: R,
    time: Duration,
}

impl<L: Send + 'static, R: Send + 'static> Aside<L, R> {
    pub(super) fn new(learner: L) -> Self {
        Self {
            learner: Some(Box::new(learner)),
            shown: None,
            busy: Duration::ZERO,
            thread: None,
        }
    }

    /// The learner, once its work is done.
    pub(super) fn learner(&mut self) -> &mut L {
        if self.learner.is_none() {
            self.fetch();
        }
        self.learner
            .as_mut()
            .expect("a learner is away only while its thread has it")
    }

    /// What the last work showed; each result is given once.
    pub(super) fn take_shown(&mut self) -> Option<R> {
        self.learner();
        self.shown.take()
    }

    /// Begins work on the learner; a result that nobody took is dropped.
    pub(super) fn begin(&mut self, work: impl FnOnce(&mut L) -> R + Send + 'static) {
        self.learner();
        let Some(learner) = self.learner.take() else {
            return;
        };
        if self.thread.is_none() {
            self.thread = Thread::start();
        }
        let job: (Box<L>, Work<L, R>) = (learner, Box::new(work));
        let left = match &self.thread {
            Some(thread) => thread.work.send(job).map_err(|error| error.0).err(),
            None => Some(job),
        };
        if let Some((learner, work)) = left {
            self.take_in(carry_out(learner, work));
        }
    }

    /// Time of all work that is done, in whatever thread.
    pub(super) fn busy(&self) -> Duration {
        self.busy
    }

    fn fetch(&mut self) {
        let Some(thread) = &self.thread else {
            return;
        };
        if let Ok(done) = thread.done.recv() {
            self.take_in(done);
        } else if let Some(thread) = self.thread.take() {
            // The work has panicked: so does who waits for it.
            drop(thread.work);
            if let Err(panic) = thread.handle.join() {
                resume_unwind(panic);
            }
        }
    }

    fn take_in(&mut self, done: Done<L, R>) {
        self.learner = Some(done.learner);
        self.shown = Some(done.shown);
        self.busy += done.time;
    }
}

impl<L: Send + 'static, R: Send + 'static> Thread<L, R> {
    fn start() -> Option<Self> {
        let (work, jobs) = sync_channel::<(Box<L>, Work<L, R>)>(1);
        let (finished, done) = sync_channel(1);
        let thread = move || {
            while let Ok((learner, work)) = jobs.recv() {
                if finished.send(carry_out(learner, work)).is_err() {
                    break;
                }
            }
        };
        let handle = Builder::new().name("hds-learning".into()).spawn(thread);
        Some(Self {
            work,
            done,
            handle: handle.ok()?,
        })
    }
}

fn carry_out<L, R>(mut learner: Box<L>, work: Work<L, R>) -> Done<L, R> {
    let start = Instant::now();
    let shown = work(&mut learner);
    Done {
        learner,
        shown,
        time: start.elapsed(),
    }
}

impl<L, R> Drop for Aside<L, R> {
    /// Waits for the thread: the tensor library does not bear threads that outlive the program.
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            drop(thread.work);
            drop(thread.done);
            // A panic of its work has been told to who waited, or concerns nobody any more.
            let _ = thread.handle.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    #[test]
    fn work_goes_on_beside_its_owner_and_is_waited_for() {
        let mut aside = Aside::new(vec![1u64]);
        // The work cannot end before the owner has gone on.
        let (go, may_go) = channel::<()>();
        let owner = thread::current().id();
        aside.begin(move |numbers| {
            assert_ne!(thread::current().id(), owner);
            may_go.recv().unwrap();
            numbers.push(2);
            numbers.len()
        });
        go.send(()).unwrap();
        assert_eq!(aside.learner(), &[1, 2]);
        assert_eq!(aside.take_shown(), Some(2));
        assert_eq!(aside.take_shown(), None);
        for n in 3..50 {
            aside.begin(move |numbers| {
                numbers.push(n);
                numbers.len()
            });
        }
        assert_eq!(aside.take_shown(), Some(49));
        assert_eq!(aside.learner().last(), Some(&49));
        assert!(aside.busy() > Duration::ZERO);
    }

    #[test]
    fn a_panic_of_the_work_reaches_who_waits_for_it() {
        let mut aside = Aside::<_, ()>::new(0);
        aside.begin(|_| panic!("the work failed"));
        let caught = catch_unwind(AssertUnwindSafe(|| *aside.learner()));
        let message = caught.unwrap_err();
        assert_eq!(message.downcast_ref(), Some(&"the work failed"));
        drop(aside);
    }

    #[test]
    fn what_is_dropped_while_it_works_ends_first() {
        let (ended, heard) = channel();
        let mut aside = Aside::new(());
        aside.begin(move |()| {
            thread::sleep(Duration::from_millis(20));
            ended.send(()).unwrap();
        });
        drop(aside);
        assert_eq!(heard.try_recv(), Ok(()));
    }
}
