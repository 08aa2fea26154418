//! Behaviour of the whole layer, on real files.

mod closing;
mod copies;
mod in_core;
mod keeping;
mod leaving;
mod own;
mod readdir;
mod sending;
mod trees;
mod unprivileged;

use crate::*;
use std::cell::Cell;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use tokio::runtime::Builder;

pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(Default::default())
        .unwrap();
    runtime.block_on(future)
}

thread_local! {
    /// False: as on kernels before 5.12.
    static HAS_OPENAT2: Cell<bool> = const { Cell::new(true) };
}

/// A layer with one pool, on this thread's runtime.
pub(crate) fn local() -> (Local, Pool) {
    let disk = match HAS_OPENAT2.get() {
        true => Disk::new(Disk::prepare()),
        false => Disk::with(Disk::prepare(), false),
    };
    let pool = disk.define_pool("test", 4, 1000);
    (Local::new(&disk), pool)
}

fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

fn put(path: &Path, contents: &[u8]) {
    std::fs::File::create(path)
        .unwrap()
        .write_all(contents)
        .unwrap();
}

#[test]
fn a_file_is_opened_and_read_and_the_second_time_from_memory() {
    block_on(async {
        let (local, pool) = local();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        put(&path, b"hello");
        let access = Access::new(&pool);
        for _ in 0..2 {
            let file = local.open(bytes(&path), &access).await.unwrap();
            assert_eq!((file.meta().kind, file.meta().len), (FileKind::File, 5));
            assert_eq!(
                &local.read(&file, 0, 100, &access).await.unwrap()[..],
                b"hello"
            );
            assert_eq!(
                &local.read(&file, 3, 100, &access).await.unwrap()[..],
                b"lo"
            );
        }
        let open = local.counts()[Operation::Open as usize];
        assert_eq!(open.offloaded, 1);
        assert_eq!(open.memory, 1);
    });
}

#[test]
fn missing_and_forbidden_files_give_the_errors_of_nginx() {
    block_on(async {
        let (local, pool) = local();
        let dir = tempfile::tempdir().unwrap();
        let access = Access::new(&pool);
        let error = local
            .open(bytes(&dir.path().join("none")), &access)
            .await
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "open() failed (2: No such file or directory)"
        );
        let error = local
            .stat(bytes(&dir.path().join("none")), &access)
            .await
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "stat() failed (2: No such file or directory)"
        );
        let meta = local.stat(bytes(dir.path()), &access).await.unwrap();
        assert_eq!(meta.kind, FileKind::Directory);
    });
}

/// Files older than a tick of the clock, so that they may be kept.
fn settle() {
    std::thread::sleep(std::time::Duration::from_millis(25));
}

/// What a request for this path gets.
async fn get(local: &Local, path: &Path, pool: &Pool) -> Result<Vec<u8>, Error> {
    let access = Access::new(pool);
    let file = local.open(bytes(path), &access).await?;
    Ok(local.read(&file, 0, READ_MAX, &access).await?.to_vec())
}

/// Asks until the file is answered from the table of open files.
async fn warm(local: &Local, path: &Path, pool: &Pool) {
    settle();
    for _ in 0..1000 {
        let before = local.counts()[Operation::Open as usize].cached;
        get(local, path, pool).await.unwrap();
        if local.counts()[Operation::Open as usize].cached > before {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    panic!("never kept");
}

/// Warms `path`, changes something, and asks once more.
fn after_change(dir: &Path, path: &Path, change: impl FnOnce()) -> Result<Vec<u8>, Error> {
    let _ = dir;
    block_on(async {
        let (local, pool) = local();
        warm(&local, path, &pool).await;
        change();
        get(&local, path, &pool).await
    })
}

#[test]
fn the_very_next_request_sees_a_write_a_truncation_a_rename_over_and_an_unlink() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let path = dir.join("a");
    let new = dir.join("new");
    put(&path, b"old");
    assert_eq!(
        after_change(dir, &path, || put(&path, b"wri")).unwrap(),
        b"wri"
    );
    assert_eq!(after_change(dir, &path, || put(&path, b"")).unwrap(), b"");
    put(&path, b"old");
    let replace = || {
        put(&new, b"new");
        std::fs::rename(&new, &path).unwrap();
    };
    assert_eq!(after_change(dir, &path, replace).unwrap(), b"new");
    let error = after_change(dir, &path, || std::fs::remove_file(&path).unwrap()).unwrap_err();
    assert_eq!(error.errno(), Some(rustix::io::Errno::NOENT));
    put(&path, b"old");
    let error = after_change(dir, &path, || std::fs::rename(&path, &new).unwrap()).unwrap_err();
    assert_eq!(error.errno(), Some(rustix::io::Errno::NOENT));
}

#[test]
fn the_very_next_request_sees_a_hard_link_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (path, other, new) = (dir.join("a"), dir.join("b"), dir.join("c"));
    put(&path, b"old");
    std::fs::hard_link(&path, &other).unwrap();
    put(&new, b"new");
    assert_eq!(
        after_change(dir, &path, || std::fs::rename(&new, &path).unwrap()).unwrap(),
        b"new"
    );
}

#[test]
fn the_very_next_request_sees_a_parent_renamed_or_swapped() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (live, next, gone) = (dir.join("live"), dir.join("next"), dir.join("gone"));
    std::fs::create_dir_all(live.join("deep/er")).unwrap();
    std::fs::create_dir_all(next.join("deep/er")).unwrap();
    put(&live.join("deep/er/a"), b"old");
    put(&next.join("deep/er/a"), b"new");
    let path = live.join("deep/er/a");
    let swap = || {
        std::fs::rename(&live, &gone).unwrap();
        std::fs::rename(&next, &live).unwrap();
    };
    assert_eq!(after_change(dir, &path, swap).unwrap(), b"new");
    let error = after_change(dir, &path, || std::fs::rename(&live, &next).unwrap()).unwrap_err();
    assert_eq!(error.errno(), Some(rustix::io::Errno::NOENT));
}

#[test]
fn the_very_next_request_sees_a_switched_symlink() {
    use std::os::unix::fs::symlink;
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    for (name, text) in [("one", b"1"), ("two", b"2")] {
        std::fs::create_dir(dir.join(name)).unwrap();
        put(&dir.join(name).join("a"), text);
    }
    let (current, temporary) = (dir.join("current"), dir.join("temporary"));
    symlink("one", &current).unwrap();
    let switch = |to: &Path| {
        symlink(to, &temporary).unwrap();
        std::fs::rename(&temporary, &current).unwrap();
    };
    // A directory on the way, by a relative and then by an absolute link.
    let path = current.join("a");
    assert_eq!(
        after_change(dir, &path, || switch(Path::new("two"))).unwrap(),
        b"2"
    );
    assert_eq!(
        after_change(dir, &path, || switch(&dir.join("one"))).unwrap(),
        b"1"
    );
    assert_eq!(
        after_change(dir, &path, || switch(&dir.join("two"))).unwrap(),
        b"2"
    );
    let remake = || {
        std::fs::remove_file(&current).unwrap();
        symlink("one", &current).unwrap();
    };
    assert_eq!(after_change(dir, &path, remake).unwrap(), b"1");
    // The file itself.
    let file = dir.join("file");
    symlink("one/a", &file).unwrap();
    let switch = || {
        symlink("two/a", &temporary).unwrap();
        std::fs::rename(&temporary, &file).unwrap();
    };
    assert_eq!(after_change(dir, &file, switch).unwrap(), b"2");
    let move_target = || std::fs::rename(dir.join("two"), dir.join("three")).unwrap();
    assert!(after_change(dir, &file, move_target).is_err());
}

#[test]
fn the_very_next_path_of_a_socket_and_real_path_see_a_switched_symlink() {
    use std::os::unix::fs::symlink;
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().canonicalize().unwrap();
    for name in ["one", "two"] {
        std::fs::create_dir(dir.join(name)).unwrap();
        put(&dir.join(name).join("a"), b"so that there is a guard");
    }
    let (current, temporary) = (dir.join("current"), dir.join("temporary"));
    symlink(dir.join("one"), &current).unwrap();
    let path = current.join("a");
    block_on(async {
        let (local, pool) = local();
        warm(&local, &path, &pool).await;
        symlink(dir.join("two"), &temporary).unwrap();
        std::fs::rename(&temporary, &current).unwrap();
        let access = Access::new(&pool);
        let opened = local.open_path(bytes(&path), &access).await.unwrap();
        let opened = std::fs::read_link(format!("/proc/self/fd/{}", opened.number()));
        assert_eq!(opened.unwrap(), dir.join("two/a"));
        // Once more, so that the events are not read by the call above.
        warm(&local, &path, &pool).await;
        symlink(dir.join("one"), &temporary).unwrap();
        std::fs::rename(&temporary, &current).unwrap();
        let real = local.real_path(bytes(&path), &access).await.unwrap();
        assert_eq!(real, bytes(&dir.join("one/a")));
    });
}

#[test]
fn without_openat2_files_are_kept_as_exactly() {
    HAS_OPENAT2.set(false);
    the_very_next_request_sees_a_write_a_truncation_a_rename_over_and_an_unlink();
    the_very_next_request_sees_a_hard_link_replaced();
    the_very_next_request_sees_a_parent_renamed_or_swapped();
    the_very_next_request_sees_a_switched_symlink();
    the_very_next_path_of_a_socket_and_real_path_see_a_switched_symlink();
    a_kept_file_keeps_its_slot_until_it_changes();
    disable_symlinks_refuses_links_behind_its_prefix();
}

#[test]
fn a_kept_file_keeps_its_slot_until_it_changes() {
    block_on(async {
        let (local, pool) = local();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        put(&path, b"old");
        warm(&local, &path, &pool).await;
        let access = Access::new(&pool);
        let file = local.open(bytes(&path), &access).await.unwrap();
        assert_eq!(file.body().as_deref(), Some(&b"old"[..]));
        assert!(file.slot().set(std::rc::Rc::new(7u8)).is_ok());
        let again = local.open(bytes(&path), &access).await.unwrap();
        assert!(again.slot().get().is_some());
        put(&path, b"new");
        let changed = local.open(bytes(&path), &access).await.unwrap();
        assert!(changed.slot().get().is_none());
        // A holder of the old state keeps its metadata.
        assert_eq!(file.meta().len, 3);
    });
}

#[test]
fn with_all_pool_threads_frozen_answers_come_from_memory() {
    block_on(async {
        let (local, pool) = local();
        let dir = tempfile::tempdir().unwrap();
        let paths: Vec<_> = (0..20).map(|n| dir.path().join(n.to_string())).collect();
        paths.iter().for_each(|path| put(path, b"hello"));
        // The first read of each records its time.
        paths.iter().for_each(|path| drop(std::fs::read(path)));
        warm(&local, &paths[0], &pool).await;
        let busy = local.disk().define_pool("busy", 1, 10);
        busy.give_way(CpuJobs::Long);
        let hold = local.disk().hold_pools(PoolKind::Disk);
        let deadline = std::time::Duration::from_secs(5);
        let worked = tokio::time::timeout(deadline, busy.run(Lane::Read, || 2)).await;
        assert_eq!(worked.expect("it reads no disk"), Ok(2));
        for path in &paths {
            let deadline = std::time::Duration::from_secs(5);
            let answer = tokio::time::timeout(deadline, get(&local, path, &pool)).await;
            assert_eq!(
                answer.expect("it waited for a frozen pool").unwrap(),
                b"hello"
            );
        }
        drop(hold);
    });
}

#[test]
fn a_read_that_records_its_time_is_not_for_a_loop() {
    block_on(async {
        let (local, pool) = local();
        let dir = tempfile::tempdir().unwrap();
        let (known, path) = (dir.path().join("known"), dir.path().join("a"));
        put(&known, b"so that the mount is");
        warm(&local, &known, &pool).await;
        put(&path, b"hello");
        let flags = rustix::fs::statvfs(dir.path()).unwrap().f_flag;
        let filesystem = local.disk().probe(bytes(dir.path())).filesystem;
        let is_native = filesystem.is_some_and(Filesystem::is_native);
        let mut access = Access::new(&pool);
        let is_for_loops = |access: &Access<'_>| local.try_open(bytes(&path), access).is_ok();
        if is_native && !flags.contains(rustix::fs::StatVfsMountFlags::NOATIME) {
            assert!(!is_for_loops(&access));
        }
        access.noatime = true;
        assert!(is_for_loops(&access));
        access.noatime = false;
        std::fs::read(&path).unwrap();
        assert!(is_for_loops(&access));
    });
}

#[test]
fn disable_symlinks_refuses_links_behind_its_prefix() {
    use std::os::unix::fs::symlink;
    block_on(async {
        let (local, pool) = local();
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        std::fs::create_dir(dir.join("real")).unwrap();
        put(&dir.join("real/a"), b"x");
        symlink("real", dir.join("link")).unwrap();
        symlink("a", dir.join("real/b")).unwrap();
        symlink("link", dir.join("chain")).unwrap();
        let from = bytes(&dir.join("link/")).len();
        let from_chain = bytes(&dir.join("chain/")).len();
        let ask = async |path: &str, symlinks| {
            let access = Access {
                symlinks,
                ..Access::new(&pool)
            };
            let mut answers = Vec::new();
            // Cold (in the pool), then from memory: the answers agree.
            for _ in 0..2 {
                answers.push(
                    local
                        .open(bytes(&dir.join(path)), &access)
                        .await
                        .map(|_| ())
                        .map_err(|e| e.errno()),
                );
            }
            assert_eq!(answers[0], answers[1]);
            answers.remove(0)
        };
        let refused = Err(Some(rustix::io::Errno::LOOP));
        assert_eq!(ask("link/a", Symlinks::Follow).await, Ok(()));
        assert_eq!(ask("real/a", Symlinks::Refuse { from: 0 }).await, Ok(()));
        assert_eq!(ask("link/a", Symlinks::Refuse { from: 0 }).await, refused);
        assert_eq!(ask("real/b", Symlinks::Refuse { from: 0 }).await, refused);
        assert_eq!(ask("link/a", Symlinks::Refuse { from }).await, Ok(()));
        assert_eq!(ask("link/b", Symlinks::Refuse { from }).await, refused);
        // A link before `from` is followed with all that it leads through.
        let behind_chain = Symlinks::Refuse { from: from_chain };
        assert_eq!(ask("chain/a", behind_chain).await, Ok(()));
        assert_eq!(ask("chain/b", behind_chain).await, refused);
        // Same owner everywhere here.
        assert_eq!(
            ask("link/b", Symlinks::RefuseOthers { from: 0 }).await,
            Ok(())
        );
        assert_eq!(
            ask("link/none", Symlinks::RefuseOthers { from: 0 }).await,
            Err(Some(rustix::io::Errno::NOENT))
        );
    });
}

#[test]
fn files_are_made_appended_to_renamed_and_removed_in_the_write_lane() {
    block_on(async {
        let (local, pool) = local();
        let dir = tempfile::tempdir().unwrap();
        let sub = dir.path().join("sub");
        let (path, other) = (sub.join("a"), sub.join("b"));
        local.mkdir(bytes(&sub), 0o755, &pool).await.unwrap();
        local.mkdir(bytes(&sub), 0o755, &pool).await.unwrap();
        let output = local
            .create(bytes(&path), Create::New, 0o644, &pool)
            .await
            .unwrap();
        local
            .append(&output, vec!["hel".into(), "lo".into()], &pool)
            .await
            .unwrap();
        local.sync(&output, &pool).await.unwrap();
        assert!(
            local
                .create(bytes(&path), Create::New, 0o644, &pool)
                .await
                .is_err()
        );
        let log = local
            .create(bytes(&path), Create::Append, 0o644, &pool)
            .await
            .unwrap();
        local.append(&log, vec!["!".into()], &pool).await.unwrap();
        local
            .rename(bytes(&path), bytes(&other), &pool)
            .await
            .unwrap();
        assert_eq!(get(&local, &other, &pool).await.unwrap(), b"hello!");
        local.unlink(bytes(&other), &pool).await.unwrap();
        assert!(get(&local, &other, &pool).await.is_err());
    });
}

#[test]
fn open_file_cache_entries_are_used_for_as_long_as_they_are_valid() {
    use std::time::Duration;
    let hour = Duration::from_secs(3600);
    let usual = OpenFileCacheSettings {
        max: 2,
        inactive: hour,
        valid: hour,
        min_uses: 1,
        errors: true,
    };
    block_on(async {
        let (local, pool) = local();
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let ask = async |name: &str, stale: &OpenFileCache| {
            let access = Access {
                stale: Some(stale),
                ..Access::new(&pool)
            };
            local
                .open(bytes(&dir.join(name)), &access)
                .await
                .map(|file| file.meta().len)
                .map_err(|e| e.to_string())
        };
        let missing = Err("open() failed (2: No such file or directory)".to_owned());
        // An error is believed, a file too, until another entry makes room.
        let stale = OpenFileCache::new(usual);
        assert_eq!(ask("a", &stale).await, missing);
        put(&dir.join("a"), b"123");
        assert_eq!(ask("a", &stale).await, missing);
        put(&dir.join("b"), b"12");
        assert_eq!(ask("b", &stale).await, Ok(2));
        std::fs::remove_file(dir.join("b")).unwrap();
        assert_eq!(ask("b", &stale).await, Ok(2));
        assert_eq!(ask("c", &stale).await, missing);
        assert_eq!(ask("a", &stale).await, Ok(3), "a was used longest ago");
        // Without `errors`, with `valid` over, or with too few uses nothing is believed.
        for settings in [
            OpenFileCacheSettings {
                errors: false,
                ..usual
            },
            OpenFileCacheSettings {
                valid: Duration::ZERO,
                ..usual
            },
            OpenFileCacheSettings {
                inactive: Duration::ZERO,
                ..usual
            },
        ] {
            let stale = OpenFileCache::new(settings);
            let _ = std::fs::remove_file(dir.join("d"));
            assert_eq!(ask("d", &stale).await, missing);
            put(&dir.join("d"), b"1");
            assert_eq!(ask("d", &stale).await, Ok(1));
        }
        let stale = OpenFileCache::new(OpenFileCacheSettings {
            min_uses: 2,
            ..usual
        });
        assert_eq!(ask("d", &stale).await, Ok(1));
        put(&dir.join("d"), b"12");
        assert_eq!(ask("d", &stale).await, Ok(2));
        put(&dir.join("d"), b"123");
        assert_eq!(ask("d", &stale).await, Ok(2), "used twice, so kept");
    });
}

#[test]
fn the_very_next_request_sees_that_a_parent_may_not_be_searched_any_more() {
    use std::os::unix::fs::PermissionsExt;
    block_on(async {
        let (local, pool) = local();
        let dir = tempfile::tempdir().unwrap();
        let parent = dir.path().join("parent");
        std::fs::create_dir(&parent).unwrap();
        let path = parent.join("a");
        put(&path, b"x");
        warm(&local, &path, &pool).await;
        let before = local.counts()[Operation::Open as usize].cached;
        std::fs::set_permissions(&parent, std::fs::Permissions::from_mode(0o0)).unwrap();
        let answer = get(&local, &path, &pool).await;
        // The kernel was asked anew; it lets root in all the same.
        assert_eq!(local.counts()[Operation::Open as usize].cached, before);
        match answer {
            Ok(body) => assert!(rustix::process::geteuid().is_root() && body == b"x"),
            Err(error) => assert_eq!(error.errno(), Some(rustix::io::Errno::ACCESS)),
        }
        std::fs::set_permissions(&parent, std::fs::Permissions::from_mode(0o755)).unwrap();
    });
}
