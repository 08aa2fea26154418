//! What tests of several files share.

use std::future::Future;
use std::rc::Rc;

use wire::{KernelTimer, Loop};

/// Runs `test` on a loop of its own.
pub fn on_loop<F: Future<Output = ()>>(test: impl FnOnce(Rc<Loop>) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let owner = Loop::new();
        let driver = tokio::task::spawn_local(owner.wheel.clone().run(KernelTimer::new().unwrap()));
        test(owner).await;
        driver.abort();
    });
}
