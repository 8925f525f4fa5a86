//! A persistent thread pool for fork-join regions of a few microseconds and up.
//!
//! A region is a number of chunks that are handed out from one counter, so that fast and slow cores share the
//! work. The calling thread works too. Workers that are late for a region are not waited for: a region ends when
//! its chunks are done and every worker that *entered* it has left. Workers spin for a moment between regions of a
//! step and then park.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, Thread};

/// Set in `Shared::state` while workers may enter; the count of workers inside is below it, the region's number above.
const OPEN: u64 = 1 << 31;
const NUMBER_SHIFT: u32 = 32;
/// Rounds of spinning before a worker parks: some tens of microseconds, more than the serial gaps within a step.
const SPINS: u32 = 4_000;
/// The same where threads share cores: who spins there keeps others from working.
const SPINS_WHEN_CROWDED: u32 = 10;

/// A region's work, as the workers see it.
struct Region<'a> {
    run: &'a (dyn Fn(usize, usize) + Sync),
    chunks: usize,
}

struct Shared {
    state: AtomicU64,
    region: AtomicPtr<()>,
    next: AtomicUsize,
    panicked: AtomicBool,
    shutdown: AtomicBool,
    asleep: Vec<AtomicBool>,
    /// Rounds of spinning before giving the core away.
    spins: u32,
}

/// The pool. Dropping it ends its threads.
pub struct Pool {
    shared: Arc<Shared>,
    threads: Vec<Thread>,
    handles: Vec<JoinHandle<()>>,
    /// One region at a time; concurrent callers queue here.
    turn: Mutex<u32>,
}

impl Pool {
    /// A pool in which `threads` threads work, the caller among them.
    pub fn new(threads: usize) -> std::io::Result<Pool> {
        let workers = threads.max(1) - 1;
        let shared = Arc::new(Shared {
            state: AtomicU64::new(0),
            region: AtomicPtr::new(std::ptr::null_mut()),
            next: AtomicUsize::new(0),
            panicked: AtomicBool::new(false),
            shutdown: AtomicBool::new(false),
            asleep: (0..workers).map(|_| AtomicBool::new(false)).collect(),
            spins: if threads > super::threads::runnable() { SPINS_WHEN_CROWDED } else { SPINS },
        });
        let mut pool = Pool { shared, threads: Vec::new(), handles: Vec::new(), turn: Mutex::new(0) };
        for worker in 0..workers {
            let shared = Arc::clone(&pool.shared);
            let handle = std::thread::Builder::new()
                .name(format!("demask-{}", worker + 1))
                .spawn(move || shared.work(worker))?;
            pool.threads.push(handle.thread().clone());
            pool.handles.push(handle);
        }
        Ok(pool)
    }

    /// Threads that work in a region.
    pub fn threads(&self) -> usize {
        self.handles.len() + 1
    }

    /// Calls `run(chunk, thread)` once for every chunk in `0..chunks`; `thread` is below [`Pool::threads`] and no two
    /// calls with the same one overlap. Returns when all are done.
    ///
    /// # Panics
    /// If a call panicked.
    pub fn run(&self, chunks: usize, run: &(dyn Fn(usize, usize) + Sync)) {
        if self.handles.is_empty() || chunks < 2 {
            (0..chunks).for_each(|chunk| run(chunk, 0));
            return;
        }
        let mut turn = self.turn.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        *turn = turn.wrapping_add(1);
        let shared = &*self.shared;
        let region = Region { run, chunks };
        shared.region.store((&raw const region).cast_mut().cast(), Ordering::Relaxed);
        shared.next.store(0, Ordering::Relaxed);
        shared.state.store(u64::from(*turn) << NUMBER_SHIFT | OPEN, Ordering::SeqCst);
        for (asleep, thread) in shared.asleep.iter().zip(&self.threads) {
            if asleep.load(Ordering::SeqCst) && asleep.swap(false, Ordering::SeqCst) {
                thread.unpark();
            }
        }
        // Closes the region on every way out, also when `run` panics on this thread: `region` must outlive its users.
        let close = Close { shared };
        shared.drain(&region, 0);
        drop(close);
        if shared.panicked.swap(false, Ordering::Relaxed) {
            panic!("a worker thread panicked; its message is above");
        }
    }
}

struct Close<'a> {
    shared: &'a Shared,
}

impl Drop for Close<'_> {
    fn drop(&mut self) {
        // After a panic of this thread nobody should start another chunk.
        if std::thread::panicking() {
            self.shared.next.store(usize::MAX / 2, Ordering::Relaxed);
        }
        self.shared.state.fetch_and(!OPEN, Ordering::AcqRel);
        let mut spins = 0u32;
        while self.shared.state.load(Ordering::Acquire) & (OPEN - 1) != 0 {
            spins += 1;
            if spins < self.shared.spins { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
    }
}

impl Shared {
    fn drain(&self, region: &Region<'_>, thread: usize) {
        loop {
            let chunk = self.next.fetch_add(1, Ordering::Relaxed);
            if chunk >= region.chunks {
                return;
            }
            (region.run)(chunk, thread);
        }
    }

    fn work(&self, worker: usize) {
        let mut last = 0;
        let mut spins = 0;
        while !self.shutdown.load(Ordering::Relaxed) {
            let state = self.state.load(Ordering::SeqCst);
            if state & OPEN == 0 || state >> NUMBER_SHIFT == last {
                spins += 1;
                if spins < self.spins {
                    std::hint::spin_loop();
                } else {
                    self.sleep(worker, last);
                    spins = 0;
                }
                continue;
            }
            if self.state.compare_exchange(state, state + 1, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                continue;
            }
            last = state >> NUMBER_SHIFT;
            spins = 0;
            // SAFETY: this thread was counted into an open region, so `Pool::run` (whose stack holds the region) waits
            // in `Close` until the count is given back below; the acquiring exchange makes its writes visible.
            let region = unsafe { &*self.region.load(Ordering::Relaxed).cast::<Region<'_>>() };
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.drain(region, worker + 1)));
            if outcome.is_err() {
                self.panicked.store(true, Ordering::Relaxed);
            }
            self.state.fetch_sub(1, Ordering::AcqRel);
        }
    }

    fn sleep(&self, worker: usize, last: u64) {
        self.asleep[worker].store(true, Ordering::SeqCst);
        // Look again after announcing sleep: a region published in between would otherwise be missed.
        let state = self.state.load(Ordering::SeqCst);
        let news = state & OPEN != 0 && state >> NUMBER_SHIFT != last;
        if !news && !self.shutdown.load(Ordering::SeqCst) {
            std::thread::park();
        }
        self.asleep[worker].store(false, Ordering::SeqCst);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.shutdown.store(true, Ordering::SeqCst);
        for thread in &self.threads {
            thread.unpark();
        }
        for handle in self.handles.drain(..) {
            // A worker that panicked was reported when its region ended.
            let _ = handle.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chunk_runs_once() {
        for threads in [1, 2, 3, 8] {
            let pool = Pool::new(threads).expect("threads start");
            for chunks in [0, 1, 2, 7, 100] {
                let counts: Vec<AtomicUsize> = (0..chunks).map(|_| AtomicUsize::new(0)).collect();
                for _ in 0..50 {
                    pool.run(chunks, &|chunk, thread| {
                        assert!(thread < threads);
                        counts[chunk].fetch_add(1, Ordering::Relaxed);
                    });
                }
                assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 50), "{threads} threads, {chunks} chunks");
            }
        }
    }

    /// Every region reads what the one before wrote, at another place, with sleeps in between now and then.
    #[test]
    fn a_region_sees_what_the_last_one_wrote() {
        for threads in [2, 3, 5] {
            let pool = Pool::new(threads).expect("threads start");
            let len = 37;
            let (mut now, mut next) = (vec![0u64; len], vec![0u64; len]);
            for round in 0..3_000u64 {
                let out = crate::cpu::shared::SharedMut::new(&mut next);
                pool.run(len, &|chunk, _| out.slice(chunk, 1)[0] = now[(chunk + 1) % len] + chunk as u64);
                std::mem::swap(&mut now, &mut next);
                if round % 500 == 0 {
                    std::thread::sleep(std::time::Duration::from_millis(2));
                }
            }
            let mut wanted = vec![0u64; len];
            for _ in 0..3_000 {
                wanted = (0..len).map(|i| wanted[(i + 1) % len] + i as u64).collect();
            }
            assert_eq!(now, wanted, "{threads} threads");
        }
    }

    #[test]
    fn callers_take_turns() {
        let pool = Pool::new(3).expect("threads start");
        let total = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        pool.run(5, &|_, _| {
                            total.fetch_add(1, Ordering::Relaxed);
                        });
                    }
                });
            }
        });
        assert_eq!(total.load(Ordering::Relaxed), 4 * 200 * 5);
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
        let pool = Pool::new(2).expect("threads start");
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            pool.run(64, &|chunk, _| assert!(chunk != 40, "planted"));
        }));
        assert!(outcome.is_err());
        let done = AtomicUsize::new(0);
        pool.run(10, &|_, _| {
            done.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(done.load(Ordering::Relaxed), 10);
    }

    #[test]
    fn workers_wake_from_sleep() {
        let pool = Pool::new(2).expect("threads start");
        let main = std::thread::current().id();
        let helped = AtomicBool::new(false);
        for _ in 0..20 {
            std::thread::sleep(std::time::Duration::from_millis(5));
            pool.run(2, &|_, _| {
                std::thread::sleep(std::time::Duration::from_millis(5));
                if std::thread::current().id() != main {
                    helped.store(true, Ordering::Relaxed);
                }
            });
        }
        assert!(helped.load(Ordering::Relaxed), "no worker ever woke up");
    }
}
