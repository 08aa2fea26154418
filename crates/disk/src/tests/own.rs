//! Files of the server's own, which stay open without a look at their paths.

use super::*;

type Change<'a> = (&'a dyn Fn(), Option<&'a [u8]>);

#[test]
fn an_own_file_stays_open_from_its_first_use_on_and_every_change_of_it_is_seen() {
    let dir = tempfile::tempdir().unwrap();
    let (path, new) = (dir.path().join("a"), dir.path().join("new"));
    let write = || put(&path, b"wri");
    let replace = || {
        put(&new, b"new");
        std::fs::rename(&new, &path).unwrap();
    };
    let remove = || std::fs::remove_file(&path).unwrap();
    let move_away = || std::fs::rename(&path, &new).unwrap();
    let changes: [Change<'_>; 4] = [
        (&write, Some(b"wri")),
        (&replace, Some(b"new")),
        (&remove, None),
        (&move_away, None),
    ];
    for (change, after) in changes {
        put(&path, b"old");
        settle();
        block_on(async {
            let (local, pool) = local();
            let own = Access {
                is_own: true,
                // Also what the request itself has changed is seen.
                moment: 7,
                ..Access::new(&pool)
            };
            let cached = || local.counts()[Operation::Open as usize].cached;
            for uses in 0..3 {
                let file = local.open(bytes(&path), &own).await.unwrap();
                let read = local.read(&file, 0, READ_MAX, &own).await.unwrap();
                assert_eq!((&read[..], cached()), (&b"old"[..], uses));
            }
            change();
            let now = match local.open(bytes(&path), &own).await {
                Ok(file) => Some(local.read(&file, 0, READ_MAX, &own).await.unwrap()),
                Err(error) => {
                    assert_eq!(error.errno(), Some(rustix::io::Errno::NOENT));
                    None
                }
            };
            assert_eq!((now.as_deref(), cached()), (after, 2));
        });
    }
}
