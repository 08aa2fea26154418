//! An authority that cannot be reached, and certificates that end meanwhile.

use super::*;
use crate::challenge::Challenge;
use crate::keys::KeyKind;

const HOUR: i64 = 3600;

struct Silent;

impl Sink for Silent {
    fn answer(&self, _: &Challenge) -> Result<(), String> {
        Ok(())
    }

    fn withdraw(&self, _: &Challenge) {}

    fn issued(&self, _: &str, _: &str, _: &Issued) {}

    fn figures(&self, _: &str, _: Vec<Figures>) {}

    fn log(&self, _: Level, _: &str) {}
}

fn keeper(jobs: Vec<Job>) -> (Keeper, Sender<Wanted>) {
    let (sender, changes) = mpsc::channel();
    let keeper = Keeper {
        issuer: Arc::new(Issuer::of_test("https://acme.test/")),
        store: Arc::new(Store::new(None)),
        sink: Arc::new(Silent),
        changes,
        jobs,
        told_at: None,
        ask_from: None,
    };
    (keeper, sender)
}

/// A certificate that ends in so many seconds, after four failed attempts.
fn job(name: &str, left: i64) -> Job {
    let order = Order {
        identifiers: vec![Identifier::Dns(name.to_owned())],
        key: KeyKind::default(),
    };
    let issued = Issued {
        chain: Vec::new(),
        key: String::new().into(),
        not_before: unix_now() - left,
        not_after: unix_now() + left,
        renewal_id: None,
    };
    let mut job = Job::new(order, Some(issued), &Store::new(None), false);
    job.attempts.failures = 4;
    job.renew_at = unix_now();
    job
}

#[test]
fn failures_put_off_no_certificate_until_it_has_ended() {
    let jobs = vec![job("a.test", 2400 * HOUR), job("b.test", 8 * HOUR)];
    let (mut keeper, _changes) = keeper(jobs);
    assert!(keeper.attend_to_all());
    let wait = |at: usize| keeper.jobs[at].until_order(Instant::now()).as_secs();
    assert!(wait(0) > 20 * 3600, "{}", wait(0));
    assert!((3000..4000).contains(&wait(1)), "{}", wait(1));
    // The next attempt is one of its own.
    keeper.jobs[1].earliest = Instant::now();
    keeper.jobs[0].earliest = Instant::now() + ATTEMPTS_APART_MAX;
    assert!(keeper.attend_to_all());
    let wait = keeper.jobs[1].until_order(Instant::now()).as_secs();
    assert!((3000..4000).contains(&wait), "{wait}");
}

#[test]
fn a_question_that_fails_is_no_failed_order() {
    let mut asked = job("a.test", 2400 * HOUR);
    asked.renew_at = unix_now() + HOUR;
    asked.ask_at = Some(Instant::now());
    asked.attempts.failures = 0;
    let (mut keeper, _changes) = keeper(vec![asked]);
    assert!(keeper.attend_to_all());
    let job = &keeper.jobs[0];
    assert_eq!((job.attempts.failures, job.failures), (0, 1));
    assert!(job.earliest <= Instant::now());
    assert!(job.ask_at.is_some_and(|at| at > Instant::now()));
}
