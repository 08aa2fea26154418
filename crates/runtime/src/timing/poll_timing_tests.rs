//! Tasks that wake themselves and each other: which one is polled next, judged by the times of their polls.

use std::rc::Rc;

use super::*;

/// The runtime's waker, always the same one.
struct Runtime;

impl Wake for Runtime {
    fn wake(self: Arc<Self>) {}
}

/// A task of this loop that notes the moment of each poll.
fn noting(
    moments: &Rc<RefCell<Vec<u64>>>,
    runtime: &Waker,
) -> (Pin<Box<impl Future<Output = ()>>>, Waker) {
    let seen = Rc::new(RefCell::new(None));
    let (notes, slot) = (Rc::clone(moments), Rc::clone(&seen));
    let mut task = Box::pin(timed(
        Kind::Connection,
        std::future::poll_fn(move |context| {
            notes.borrow_mut().push(moment());
            *slot.borrow_mut() = Some(context.waker().clone());
            Poll::<()>::Pending
        }),
    ));
    let _ = task.as_mut().poll(&mut Context::from_waker(runtime));
    let waker = seen.borrow_mut().take().unwrap();
    (task, waker)
}

/// Number of polls that were counted.
fn polls(figures: &LoopFigures) -> u64 {
    figures.polls.times().count()
}

/// A task that yields at each poll, whatever time the polls before took: without a runtime, nothing asks for events.
fn yielding() -> Pin<Box<impl Future<Output = ()>>> {
    let yields = std::future::poll_fn(|context| {
        WITHIN.set(0);
        ASKED.set(ASKED.get() + 1);
        context.waker().wake_by_ref();
        Poll::<()>::Pending
    });
    Box::pin(timed(Kind::Connection, yields))
}

#[test]
fn who_lets_others_go_first_of_whom_there_is_none_goes_on_in_the_same_poll() {
    let figures = Arc::<LoopFigures>::default();
    enter(Arc::clone(&figures));
    let runtime = Waker::from(Arc::new(Runtime));
    let mut context = Context::from_waker(&runtime);
    let (mut one, mut other) = (yielding(), yielding());
    for so_far in [0, 1, 1, 2, 2] {
        assert!(one.as_mut().poll(&mut context).is_pending());
        assert_eq!(polls(&figures), so_far, "two are one, and no more than two");
    }
    assert!(other.as_mut().poll(&mut context).is_pending());
    assert_eq!(polls(&figures), 3, "another one has come");
    drop(other);
    assert_eq!(polls(&figures), 4);
    assert_eq!(READING.get(), Reading::PollEnd);
    let blocked = figures.blocked.times().count();
    assert_eq!(blocked, 4, "each but for those that went on");
    assert!(one.as_mut().poll(&mut context).is_pending());
    stamp_of_wake(LOOP.get());
    assert_eq!((polls(&figures), READING.get()), (5, Reading::Turn));
}

#[test]
fn who_wakes_a_task_that_is_no_more_begins_no_turn() {
    enter(Arc::default());
    let moments = Rc::default();
    let runtime = Waker::from(Arc::new(Runtime));
    let (gone, late) = noting(&moments, &runtime);
    let (mut task, waker) = noting(&moments, &runtime);
    drop(gone);
    late.wake_by_ref();
    #[expect(clippy::disallowed_methods, reason = "a test")]
    std::thread::sleep(Duration::from_millis(1));
    let before = now_ns();
    waker.wake_by_ref();
    assert!(
        task.as_mut()
            .poll(&mut Context::from_waker(&runtime))
            .is_pending()
    );
    assert!(*moments.borrow().last().unwrap() >= before);
}

#[test]
fn the_moment_is_that_of_the_own_loop_alone() {
    enter(Arc::default());
    let moments = Rc::default();
    let runtime = Waker::from(Arc::new(Runtime));
    let (mut task, waker) = noting(&moments, &runtime);
    let mut poll = || task.as_mut().poll(&mut Context::from_waker(&runtime));
    waker.wake_by_ref();
    assert!(poll().is_pending());
    // Threads that are no loop, or another loop, whose last reading may be old.
    for is_loop in [false, true] {
        let waker = waker.clone();
        let other = std::thread::spawn(move || {
            if is_loop {
                enter(Arc::default());
            }
            waker.wake_by_ref();
        });
        other.join().unwrap();
        assert!(poll().is_pending());
    }
    let moments = moments.borrow();
    assert!(moments[0] > 0, "it was spawned by its loop");
    assert!(moments[1] > 0);
    assert_eq!((moments[2], moments[3]), (0, 0));
}

/// Maximum of polls that the tasks spawned by `spawn` get until the loop asks for events; each poll counts itself.
fn polls_in_a_row(spawn: impl FnOnce(&Rc<Cell<u64>>)) -> u64 {
    enter(Arc::default());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build_local(Default::default())
        .unwrap();
    let most = Cell::new(0);
    runtime.block_on(async {
        let polls = Rc::new(Cell::new(0));
        spawn(&polls);
        for _ in 0..10 {
            // Goes on when the loop has asked for events.
            tokio::task::yield_now().await;
            most.set(most.get().max(polls.take()));
        }
    });
    most.get()
}

/// Uses up a whole turn.
fn take_a_turn() {
    let begun = now_ns();
    while now_ns() - begun <= turn::TURN_NS {}
}

#[test]
fn who_wakes_himself_has_one_turn_until_the_loop_asks_for_events() {
    for tasks in [1, 2, 4] {
        let most = polls_in_a_row(|polls| {
            for _ in 0..tasks {
                let polls = Rc::clone(polls);
                drop(spawn(
                    Kind::Connection,
                    std::future::poll_fn(move |context| {
                        polls.set(polls.get() + 1);
                        take_a_turn();
                        context.waker().wake_by_ref();
                        Poll::<()>::Pending
                    }),
                ));
            }
        });
        assert!(most <= 3 * tasks, "{most} polls in a row of {tasks}");
    }
}

#[test]
fn a_task_that_is_polled_again_goes_on_in_its_turn() {
    let may_go_on = Rc::new(Cell::new(0));
    let polls = polls_in_a_row(|polls| {
        let (polls, may_go_on) = (Rc::clone(polls), Rc::clone(&may_go_on));
        drop(spawn(
            Kind::Connection,
            std::future::poll_fn(move |context| {
                turn::spend_time();
                if polls.get() > 0 && turn::may_go_on() {
                    may_go_on.set(may_go_on.get() + 1);
                }
                polls.set(polls.get() + 1);
                take_a_turn();
                context.waker().wake_by_ref();
                Poll::<()>::Pending
            }),
        ));
    });
    assert!(polls > 0);
    assert_eq!(may_go_on.get(), 0, "its turn is over");
}

#[test]
fn of_many_tasks_that_never_stop_some_go_on_in_each_turn_and_all_in_the_end() {
    const TASKS: usize = 100;
    const AT_ONCE: usize = 3;
    enter(Arc::default());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build_local(Default::default())
        .unwrap();
    runtime.block_on(async {
        let polls: Rc<Vec<Cell<usize>>> = Rc::new((0..TASKS).map(|_| Cell::new(0)).collect());
        for index in 0..TASKS {
            let polls = Rc::clone(&polls);
            let never_stops = std::future::poll_fn(move |context| {
                polls[index].set(polls[index].get() + 1);
                turn::put_off(context.waker());
                Poll::<()>::Pending
            });
            drop(spawn(Kind::Connection, never_stops));
        }
        let all = || polls.iter().map(Cell::get).sum::<usize>();
        while all() < TASKS {
            tokio::task::yield_now().await;
        }
        for turns in 1..=10 * TASKS / AT_ONCE {
            let before = all();
            tokio::task::yield_now().await;
            let in_turn = all() - before;
            assert!(in_turn <= AT_ONCE + 1, "{in_turn} in turn {turns}");
        }
        let least = polls.iter().map(Cell::get).min().unwrap();
        let most = polls.iter().map(Cell::get).max().unwrap();
        assert!(least >= 9 && most <= least + 1, "{least}, {most}");
    });
}

/// Tasks whose turn is over go on without any event, also where none of them is put off again, and those that were before
/// them have ended.
#[test]
fn all_tasks_that_were_put_off_go_on_in_the_end() {
    const TASKS: usize = 100;
    const PATIENCE: std::time::Duration = std::time::Duration::from_secs(20);
    for (wakes_itself, ended) in [(false, 0), (true, 0), (false, 2 * TASKS)] {
        let (done, all_done) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            enter(Arc::default());
            let runtime = tokio::runtime::Builder::new_current_thread()
                .build_local(Default::default())
                .unwrap();
            runtime.block_on(async {
                for _ in 0..ended {
                    let ends = std::future::poll_fn(|context| {
                        turn::put_off(context.waker());
                        Poll::Ready(())
                    });
                    drop(spawn(Kind::Connection, ends));
                }
                let tasks = (0..TASKS).map(|_| {
                    let mut polls = 0;
                    let twice = std::future::poll_fn(move |context| {
                        polls += 1;
                        if polls > 2 {
                            return Poll::Ready(());
                        }
                        turn::put_off(context.waker());
                        if wakes_itself {
                            context.waker().wake_by_ref();
                        }
                        Poll::Pending
                    });
                    spawn(Kind::Connection, twice)
                });
                for task in tasks.collect::<Vec<_>>() {
                    task.await.unwrap();
                }
            });
            done.send(()).unwrap();
        });
        let outcome = all_done.recv_timeout(PATIENCE);
        assert!(
            outcome.is_ok(),
            "some are not woken, {wakes_itself}, {ended}: {outcome:?}"
        );
    }
}

#[test]
fn a_poll_that_panics_has_ended() {
    let figures = Arc::<LoopFigures>::default();
    enter(Arc::clone(&figures));
    let runtime = Waker::from(Arc::new(Runtime));
    let failing = std::future::poll_fn(|_| -> Poll<()> { panic!("as it was meant to") });
    let mut task = Box::pin(timed(Kind::Upstream, failing));
    let poll = std::panic::AssertUnwindSafe(|| {
        let _ = task.as_mut().poll(&mut Context::from_waker(&runtime));
    });
    assert!(std::panic::catch_unwind(poll).is_err());
    assert_eq!(figures.began_ns.get(), 0, "it looks held");
    assert_eq!(READING.get(), Reading::PollEnd);
}
