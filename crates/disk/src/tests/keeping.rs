//! Which files stay open, where more are in use than may be kept.

use super::*;
use crate::keeping::open_files::OpenFiles;

const FILES: usize = 1200;
/// A quarter of these for one loop, which shares them with those of other tests.
const DESCRIPTORS: usize = 4000;

/// Opens files in turn. Returns how many were open already.
async fn turn(local: &Local, dir: &Path, files: std::ops::Range<usize>, pool: &Pool) -> u64 {
    let cached = || local.counts()[Operation::Open as usize].cached;
    let before = cached();
    let own = Access {
        is_own: true,
        ..Access::new(pool)
    };
    for number in files {
        let path = dir.join(number.to_string());
        local.open(bytes(&path), &own).await.unwrap();
    }
    cached() - before
}

#[test]
fn of_more_files_than_may_be_kept_some_stay_and_others_take_their_places_when_they_are_used() {
    let dir = tempfile::tempdir().unwrap();
    for number in 0..2 * FILES {
        put(&dir.path().join(number.to_string()), b"a");
    }
    settle();
    block_on(async {
        let (local, pool) = local();
        local.0.files.replace(OpenFiles::new(DESCRIPTORS, None));
        for _ in 0..3 {
            turn(&local, dir.path(), 0..FILES, &pool).await;
        }
        assert!(turn(&local, dir.path(), 0..FILES, &pool).await > 10);
        let others = FILES..2 * FILES;
        assert_eq!(turn(&local, dir.path(), others.clone(), &pool).await, 0);
        for _ in 0..8 {
            turn(&local, dir.path(), others.clone(), &pool).await;
        }
        assert!(turn(&local, dir.path(), others, &pool).await > 10);
    });
}
