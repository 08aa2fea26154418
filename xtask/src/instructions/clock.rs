//! A clock that stands still for a thread in single steps: a step takes up to a tenth of a millisecond, so that by the machine's clock
//! a hot request would last seconds, and whatever is done now and then would be counted with it.
//!
//! The thread reads the time in the page of code that the kernel gives each process (vdso(7)). Where it enters the function there, the
//! tracer answers in its place. Invariant: what the clock says never goes back, and goes on a little with each reading.

use nix::libc::{c_long, timespec, user_regs_struct};
use nix::sys::ptrace;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::time::{Duration, Instant};

/// What reading the clock counts as: that many instructions it has in Linux 6.18.
pub const READING: u64 = 61;
/// How far the clock goes on with each reading.
const GOES_ON: Duration = Duration::from_nanos(100);
/// The kernel's function (vdso(7)).
const FUNCTION: &[u8] = b"__vdso_clock_gettime";
/// More than the page of code has ever had.
const IMAGE_MAX: u64 = 64 << 10;

/// Where the function is, and since when the clock stands still.
pub struct Clock {
    function: u64,
    still: Option<(Instant, u32)>,
}

impl Clock {
    /// That of a process.
    pub fn of(process: Pid) -> Result<Self, String> {
        let start = mapped(process)?;
        let mut image = Vec::new();
        File::open(format!("/proc/{process}/mem"))
            .and_then(|mut memory| {
                memory.seek(SeekFrom::Start(start))?;
                // The page behind it may not be mapped: what was read up to there is kept.
                match memory.take(IMAGE_MAX).read_to_end(&mut image) {
                    Err(error) if image.is_empty() => Err(error),
                    _ => Ok(()),
                }
            })
            .map_err(|error| format!("vdso of {process}: {error}"))?;
        let offset =
            function(&image).ok_or("vdso: the function that reads the clock is not found")?;
        Ok(Clock {
            function: start + offset,
            still: None,
        })
    }

    /// From now on it stands still, or goes on.
    pub fn hold(&mut self, is_still: bool) {
        match is_still {
            true if self.still.is_none() => self.still = Some((Instant::now(), 0)),
            false => self.still = None,
            true => {}
        }
    }

    /// Answers for the kernel's function where a thread is about to enter it and the clock stands still.
    pub fn answer(&mut self, thread: Pid, registers: &user_regs_struct) -> nix::Result<bool> {
        let Some((since, readings)) = &mut self.still else {
            return Ok(false);
        };
        if registers.rip != self.function {
            return Ok(false);
        }
        *readings += 1;
        // The arguments are the clock's number and where the time is to be written (clock_gettime(2); System V ABI).
        let clock = ClockId::from_raw(registers.rdi as i32);
        let time = Duration::from(clock_gettime(clock)?) + GOES_ON * *readings;
        let time = time.saturating_sub(since.elapsed());
        let place = registers.rsi as *mut std::ffi::c_void;
        ptrace::write(thread, place, time.as_secs() as c_long)?;
        let place = place.wrapping_byte_add(std::mem::offset_of!(timespec, tv_nsec));
        ptrace::write(thread, place, c_long::from(time.subsec_nanos()))?;
        let back = ptrace::read(thread, registers.rsp as *mut std::ffi::c_void)?;
        let returned = user_regs_struct {
            rax: 0,
            rip: back as u64,
            rsp: registers.rsp + size_of::<c_long>() as u64,
            ..*registers
        };
        ptrace::setregs(thread, returned)?;
        Ok(true)
    }
}

/// Where the page is.
fn mapped(process: Pid) -> Result<u64, String> {
    let path = format!("/proc/{process}/maps");
    let maps = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]"));
    line.and_then(|line| u64::from_str_radix(line.split_once('-')?.0, 16).ok())
        .ok_or_else(|| format!("{path}: there is no vdso"))
}

/// The offset of the function in the image, an ELF file (elf(5)): found in the table of dynamic symbols.
fn function(image: &[u8]) -> Option<u64> {
    const SECTION: usize = 64;
    const SYMBOL: usize = 24;
    const DYNAMIC_SYMBOLS: u64 = 11;
    let sections = usize::try_from(number(image, 40, 8)?).ok()?;
    let count = usize::try_from(number(image, 60, 2)?).ok()?;
    let section = |index: usize, field: usize, bytes: usize| {
        number(image, sections.checked_add(index * SECTION + field)?, bytes)
    };
    let symbols = (0..count).find(|index| section(*index, 4, 4) == Some(DYNAMIC_SYMBOLS))?;
    let names = usize::try_from(section(symbols, 40, 4)?).ok()?;
    let names = image.get(usize::try_from(section(names, 24, 8)?).ok()?..)?;
    let start = usize::try_from(section(symbols, 24, 8)?).ok()?;
    let bytes = usize::try_from(section(symbols, 32, 8)?).ok()?;
    image
        .get(start..start.checked_add(bytes)?)?
        .chunks_exact(SYMBOL)
        .find_map(|symbol| {
            let name = names.get(usize::try_from(number(symbol, 0, 4)?).ok()?..)?;
            (name.starts_with(FUNCTION) && name.get(FUNCTION.len()) == Some(&0))
                .then(|| number(symbol, 8, 8))?
        })
}

/// A number of so many bytes at an offset.
fn number(image: &[u8], offset: usize, bytes: usize) -> Option<u64> {
    let mut found = [0; 8];
    found[..bytes].copy_from_slice(image.get(offset..offset.checked_add(bytes)?)?);
    Some(u64::from_le_bytes(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_function_is_found_in_this_process() {
        let clock = Clock::of(Pid::this()).unwrap();
        assert!(clock.function > mapped(Pid::this()).unwrap());
    }

    #[test]
    fn what_is_no_elf_file_has_no_function() {
        assert_eq!(function(b""), None);
        assert_eq!(function(&[0xff; 4096]), None);
    }
}
