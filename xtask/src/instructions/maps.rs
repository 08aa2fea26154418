//! What is mapped into the memory of a process (proc_pid_maps(5)), and its contents.

use nix::unistd::Pid;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

/// A part of the memory.
#[derive(Debug)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    /// Whether it may be executed.
    pub is_code: bool,
    /// The file, or what the kernel calls it; empty: neither.
    pub name: String,
}

impl Mapping {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let (start, end) = words.next()?.split_once('-')?;
        let address = |text| u64::from_str_radix(text, 16).ok();
        Some(Mapping {
            start: address(start)?,
            end: address(end)?,
            is_code: words.next()?.contains('x'),
            name: line
                .find(['/', '['])
                .map_or("", |at| &line[at..])
                .to_owned(),
        })
    }

    /// Its bytes, at most so many: up to where nothing is.
    pub fn read(&self, process: Pid, bytes_max: u64) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        File::open(format!("/proc/{process}/mem"))
            .and_then(|mut memory| {
                memory.seek(SeekFrom::Start(self.start))?;
                let most = bytes_max.min(self.end - self.start);
                match memory.take(most).read_to_end(&mut bytes) {
                    Err(error) if bytes.is_empty() => Err(error),
                    _ => Ok(()),
                }
            })
            .map_err(|error| format!("{} of {process}: {error}", self.name))?;
        Ok(bytes)
    }
}

/// All of a process, in the order of their addresses.
pub fn of(process: Pid) -> Result<Vec<Mapping>, String> {
    let path = format!("/proc/{process}/maps");
    let maps = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    Ok(maps.lines().filter_map(Mapping::parse).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_have_spaces() {
        let line = "7f00-8f00 r-xp 00000000 08:01 42      /a program (deleted)";
        let mapping = Mapping::parse(line).unwrap();
        assert_eq!((mapping.start, mapping.end), (0x7f00, 0x8f00));
        assert!(mapping.is_code && mapping.name == "/a program (deleted)");
        assert_eq!(Mapping::parse("1-2 rw-p 0 00:00 0 ").unwrap().name, "");
        assert!(Mapping::parse("nothing").is_none());
    }
}
