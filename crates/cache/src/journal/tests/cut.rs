//! Frames of which a part was written.

use super::*;

/// A directory with three entries in its journal, and the place of the last log's last frame.
async fn written(
    local: &Local,
    dir: &Path,
    pool: &Pool,
) -> (Arc<Index>, std::path::PathBuf, usize) {
    let (journal, _, index) = open(local, dir, pool).await;
    journal.walked(local, 0).await.unwrap();
    for number in 0..3 {
        fill(&journal, local, &index, number, 1).await;
    }
    journal.write_rest(local).await.unwrap();
    let log = dir.join(FOLDER).join("log.1");
    let before = std::fs::read(&log).unwrap().len();
    let key = known(9, 1).key;
    let begin = JournalRecord::Begin { key, tag: 1 };
    journal.write(local, &[begin]).await.unwrap();
    (index, log, before)
}

#[test]
fn a_frame_that_a_kill_cut_short_hides_nothing() {
    block_on(async {
        let (local, pool) = local();
        let dir = tempfile::tempdir().unwrap();
        let (index, log, before) = written(&local, dir.path(), &pool).await;
        let whole = std::fs::read(&log).unwrap();
        assert!(whole.len() > before + frame::FRAME_HEADER_BYTES);
        for len in before + 1..whole.len() {
            for next in 2..=7 {
                let _ = std::fs::remove_file(log.with_file_name(format!("log.{next}")));
            }
            std::fs::write(&log, &whole[..len]).unwrap();
            // Also once another log stands behind it.
            for _ in 0..2 {
                let (_, recovered, again) = open(&local, dir.path(), &pool).await;
                assert!(recovered.is_complete, "{len}: {recovered:?}");
                assert_eq!(contents(&again), contents(&index));
            }
        }
    });
}

#[test]
fn a_frame_that_a_full_disk_cut_short_hides_nothing_and_a_damaged_one_does() {
    block_on(async {
        let (local, pool) = local();
        let dir = tempfile::tempdir().unwrap();
        let (index, log, before) = written(&local, dir.path(), &pool).await;
        let whole = std::fs::read(&log).unwrap();
        let (front, last) = whole.split_at(before);
        let cut = frame::FRAME_HEADER_BYTES + 5;
        let mut flipped = last.to_vec();
        flipped[cut] ^= 1;
        for (broken, is_complete) in [(&last[..cut], true), (&flipped[..], false)] {
            std::fs::write(&log, [front, broken, last].concat()).unwrap();
            let _ = std::fs::remove_file(log.with_file_name("log.2"));
            let (_, recovered, again) = open(&local, dir.path(), &pool).await;
            assert_eq!(recovered.is_complete, is_complete);
            assert_eq!(recovered.is_damaged, !is_complete);
            assert_eq!(recovered.unfinished, [(known(9, 1).key, 1)]);
            assert_eq!(contents(&again), contents(&index));
        }
    });
}
