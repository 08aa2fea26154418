//! A clock that stands still for a thread in single steps: a step takes up to a tenth of a millisecond, so that by the machine's clock
//! a hot request would last seconds, and whatever is done now and then would be counted with it.
//!
//! The thread reads the time in the page of code that the kernel gives each process (vdso(7)), or the processor's counter (RDTSC, Intel
//! SDM). Where it enters the function there, or is about to read the counter, the tracer answers in its place. Invariant: what both say
//! never goes back, and goes on a little with each reading.

use super::maps;
use nix::libc::{c_long, timespec, user_regs_struct};
use nix::sys::ptrace;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use std::collections::HashSet;
use std::path::Path;
use std::time::{Duration, Instant};

/// What reading the clock counts as: that many instructions it has in Linux 6.18.
const READING: u64 = 61;
/// How far the clock goes on with each reading.
const GOES_ON: Duration = Duration::from_nanos(100);
/// The kernel's function (vdso(7)).
const FUNCTION: &[u8] = b"__vdso_clock_gettime";
/// More than the page of code has ever had.
const IMAGE_MAX: u64 = 64 << 10;
/// More than the program's code has.
const CODE_MAX: u64 = 1 << 30;
/// The instruction that reads the counter.
const RDTSC: [u8; 2] = [0x0f, 0x31];
/// What reading the counter counts as: it, and the instruction behind it, which is stepped over with it.
const COUNTER_READING: u64 = 2;
/// How far the counter goes on with each reading: [`GOES_ON`] at 3 GHz.
const COUNTER_GOES_ON: u64 = 300;

/// Where the function is, where the counter may be read, and since when both stand still.
pub struct Clock {
    function: u64,
    /// Each place in the program with the bytes of the instruction. Where a step begins at one, it is the instruction.
    counters: HashSet<u64>,
    still: Option<Still>,
}

/// When the clock stopped.
struct Still {
    since: Instant,
    counter: u64,
    readings: u32,
}

impl Clock {
    /// That of a process.
    pub fn of(process: Pid) -> Result<Self, String> {
        let maps = maps::of(process)?;
        let vdso = maps.iter().find(|mapping| mapping.name == "[vdso]");
        let vdso = vdso.ok_or_else(|| format!("memory of {process}: there is no vdso"))?;
        let offset = function(&vdso.read(process, IMAGE_MAX)?)
            .ok_or("vdso: the function that reads the clock is not found")?;
        let program = std::fs::read_link(format!("/proc/{process}/exe"));
        let program = program.map_err(|error| format!("program of {process}: {error}"))?;
        let is_program = |name: &str| Path::new(name) == program;
        let mut counters = HashSet::new();
        for code in maps
            .iter()
            .filter(|one| one.is_code && is_program(&one.name))
        {
            counters.extend(places(&code.read(process, CODE_MAX)?, code.start));
        }
        Ok(Clock {
            function: vdso.start + offset,
            counters,
            still: None,
        })
    }

    /// From now on it stands still, or goes on.
    pub fn hold(&mut self, is_still: bool) {
        match is_still {
            true if self.still.is_none() => {
                self.still = Some(Still {
                    since: Instant::now(),
                    counter: sys::cycles().unwrap_or(0),
                    readings: 0,
                });
            }
            false => self.still = None,
            true => {}
        }
    }

    /// Answers where a thread is about to enter the kernel's function, or to read the counter, and the clock stands still: what that
    /// counts as.
    pub fn answer(
        &mut self,
        thread: Pid,
        registers: &user_regs_struct,
    ) -> nix::Result<Option<u64>> {
        let is_function = registers.rip == self.function;
        let Some(still) = &mut self.still else {
            return Ok(None);
        };
        if !is_function && !self.counters.contains(&registers.rip) {
            return Ok(None);
        }
        still.readings += 1;
        let (counts_as, returned) = match is_function {
            true => (READING, still.time(thread, registers)?),
            false => (COUNTER_READING, still.count(registers)),
        };
        ptrace::setregs(thread, returned)?;
        Ok(Some(counts_as))
    }
}

impl Still {
    /// The registers as the function leaves them, once it has written the time.
    fn time(&self, thread: Pid, registers: &user_regs_struct) -> nix::Result<user_regs_struct> {
        // The arguments are the clock's number and where the time is to be written (clock_gettime(2); System V ABI).
        let clock = ClockId::from_raw(registers.rdi as i32);
        let time = Duration::from(clock_gettime(clock)?) + GOES_ON * self.readings;
        let time = time.saturating_sub(self.since.elapsed());
        let place = registers.rsi as *mut std::ffi::c_void;
        ptrace::write(thread, place, time.as_secs() as c_long)?;
        let place = place.wrapping_byte_add(std::mem::offset_of!(timespec, tv_nsec));
        ptrace::write(thread, place, c_long::from(time.subsec_nanos()))?;
        let back = ptrace::read(thread, registers.rsp as *mut std::ffi::c_void)?;
        Ok(user_regs_struct {
            rax: 0,
            rip: back as u64,
            rsp: registers.rsp + size_of::<c_long>() as u64,
            ..*registers
        })
    }

    /// The registers as the instruction leaves them: the upper half in one, the lower in another.
    fn count(&self, registers: &user_regs_struct) -> user_regs_struct {
        let (upper, lower) = self.halves();
        user_regs_struct {
            rax: lower,
            rdx: upper,
            rip: registers.rip + RDTSC.len() as u64,
            ..*registers
        }
    }

    fn halves(&self) -> (u64, u64) {
        let count = self.counter + COUNTER_GOES_ON * u64::from(self.readings);
        (count >> 32, count & u64::from(u32::MAX))
    }
}

/// Each address with the bytes of [`RDTSC`] in code that begins at `start`.
fn places(code: &[u8], start: u64) -> impl Iterator<Item = u64> {
    let pairs = code.windows(RDTSC.len()).zip(start..);
    pairs.filter_map(|(bytes, at)| (bytes == RDTSC).then_some(at))
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
        let maps = maps::of(Pid::this()).unwrap();
        let vdso = maps
            .iter()
            .find(|mapping| mapping.name == "[vdso]")
            .unwrap();
        assert!((vdso.start..vdso.end).contains(&clock.function));
    }

    #[test]
    fn the_counter_is_found_in_this_process() {
        let clock = Clock::of(Pid::this()).unwrap();
        assert!(!clock.counters.is_empty(), "this program reads it");
        assert_eq!(
            places(b"\x0f\x31\x0f\x0f\x31", 16).collect::<Vec<_>>(),
            [16, 19]
        );
    }

    #[test]
    fn a_counter_that_stands_still_goes_on_a_little() {
        let still = |readings| Still {
            since: Instant::now(),
            counter: 0x1_ffff_ffff,
            readings,
        };
        assert_eq!(still(1).halves(), (2, COUNTER_GOES_ON - 1));
        assert_eq!(still(2).halves(), (2, 2 * COUNTER_GOES_ON - 1));
    }

    #[test]
    fn what_is_no_elf_file_has_no_function() {
        assert_eq!(function(b""), None);
        assert_eq!(function(&[0xff; 4096]), None);
    }
}
