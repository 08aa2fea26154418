//! The process title that `ps` shows: the arguments, in the memory where the kernel put them, overwritten (proc(5),
//! `cmdline`).

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::process::check_single_threaded;

/// The memory that the kernel shows: the arguments, and the environment after them.
struct ArgumentArea {
    start: usize,
    /// Bytes of the arguments.
    arguments: usize,
    /// Bytes of arguments and environment.
    length: usize,
}

static AREA: OnceLock<ArgumentArea> = OnceLock::new();
/// Bytes that titles have used so far.
static USED: AtomicUsize = AtomicUsize::new(0);

/// The index of `arg_start` among the fields of /proc/self/stat after the name (proc(5): fields 48 to 51; the first one
/// after the name is 3).
const ARG_START: usize = 48 - 3;

/// Prepares for changing the title: moves the environment elsewhere, since titles use its memory. [`std::env::args`]
/// must not be called any more.
///
/// # Errors
/// There is no /proc; `InvalidInput` when the process has more than one thread (others may be reading the environment).
pub fn prepare_title() -> io::Result<()> {
    check_single_threaded("a title with several threads")?;
    if AREA.get().is_some() {
        return Ok(());
    }
    #[expect(
        clippy::disallowed_methods,
        reason = "/proc, and no loop runs in a process with one thread"
    )]
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let place = place(&stat).ok_or(io::ErrorKind::InvalidData)?;
    for (name, value) in std::env::vars_os() {
        // SAFETY: one thread only, so no other thread reads the environment meanwhile.
        unsafe { std::env::set_var(name, value) };
    }
    let _ = AREA.set(place);
    Ok(())
}

fn place(stat: &str) -> Option<ArgumentArea> {
    let (_, behind) = stat.rsplit_once(") ")?;
    let mut fields = behind.split_ascii_whitespace().skip(ARG_START);
    let mut next = || fields.next()?.parse::<usize>().ok();
    let (start, end, environment, last) = (next()?, next()?, next()?, next()?);
    let arguments = end.checked_sub(start)?;
    let end = if environment == end { last } else { end };
    let length = end.checked_sub(start).filter(|length| *length > 1)?;
    (start > 0).then_some(ArgumentArea {
        start,
        arguments,
        length,
    })
}

/// Changes the title, cut to the memory there is. The environment's memory stays untouched if that of the arguments is
/// enough. Does nothing before [`prepare_title`] has succeeded.
pub fn set_title(title: &[u8]) {
    let Some(ArgumentArea {
        start,
        arguments,
        length,
    }) = AREA.get()
    else {
        return;
    };
    let shown = title.len().min(length - 1);
    let used = USED.fetch_max(shown + 1, Ordering::Relaxed);
    let end = used.max(shown + 1).max(*arguments);
    // SAFETY: the kernel has laid out these bytes, writable for as long as the process lives, and reports their
    // address; the environment was moved away, and the last byte stays zero, so that any pointer left finds the end of
    // a string.
    unsafe {
        let place = std::ptr::with_exposed_provenance_mut::<u8>(*start);
        std::ptr::copy_nonoverlapping(title.as_ptr(), place, shown);
        std::ptr::write_bytes(place.add(shown), 0, end - shown);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_is_read_behind_a_name_with_brackets_and_blanks() {
        let fields: Vec<String> = (3..=52).map(|number| number.to_string()).collect();
        let stat = |rest: &str| format!("7 (a) (b c) {rest}\n");
        assert!(
            place(&stat(&fields.join(" "))).is_none(),
            "48 to 49 is one byte"
        );
        let wide = fields.join(" ").replace(" 49 50 51 ", " 60 60 90 ");
        let found = place(&stat(&wide)).expect("both parts");
        assert_eq!((found.start, found.arguments, found.length), (48, 12, 42));
        let apart = fields.join(" ").replace(" 49 50 51 ", " 60 70 90 ");
        let found = place(&stat(&apart)).expect("the arguments");
        assert_eq!((found.start, found.length), (48, 12));
    }
}
