//! `proxy_cache_path`: the caches that a configuration declares.
//!
//! Not here: opening them (`registry`). Invariant: no two have the same name or directory.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use cache::store::StoreKind;
use cache::{Levels, MAX_SIZE_MIN};
use config::{
    Directive, Error, Problem, Scope, Template, TemplatePart, Tree, Word, blocks, parse_msec,
    parse_number, parse_offset, parse_sec, parse_size,
};

use crate::settings::caching::Caching;
use crate::settings::family::Family;
use httpcore::settings::Location;
use httpcore::settings::files::Aio;

/// Caches of one configuration.
pub const ZONES_MAX: usize = 1024;
/// The smallest `keys_zone`: two pages, as nginx has it.
const ZONE_BYTES_MIN: u64 = 8192;
/// Bytes of the directory beside a device, by default and at least, without the journal; and those of the journal for a
/// key, with the one that is being written anew.
const FILES_BYTES_DEFAULT: u64 = 1 << 30;
const FILES_BYTES_MIN: u64 = 16 << 20;
const JOURNAL_BYTES_OF_KEY: u64 = 256;
/// The contexts in which a cache may be named.
const LEVELS: [&str; 3] = ["http", "server", "location"];

blocks! {
    /// Caches.
    pub fn lines in Http {
        /// Declares a cache: its directory and, with `keys_zone`, its name and the maximum number of keys (8000 per
        /// MiB).
        ///
        /// * `levels`: number of hexadecimal digits in each level of subdirectories, from the end of the key's hash.
        /// * `inactive`: entries that were not requested for this time are deleted, fresh or not (10 minutes by
        ///   default).
        /// * `max_size`: limit of the bytes in the directory, never exceeded (space is reserved before it is written).
        ///   `min_free`: space kept free on its file system.
        /// * `store`: `files` (a file for each entry), or `segments`: entries that come whole and have at most 1 MiB lie in
        ///   files of 64 MiB that stay open (less where `max_size` is small), in `segments` below the directory, and are
        ///   evicted in the order of writing, except those that were used since. They take three quarters of
        ///   `max_size`, which has at least 16 MiB, and what other files leave; without `max_size`, as much as the file
        ///   system has beside `min_free`. A directory whose `store` is changed to `files` keeps what lies in its segments;
        ///   `freewheel cache convert` moves that.
        /// * `admission`: `all`, or `second_hit`: a response is stored only if its key was asked for before, as far as 8
        ///   bits for each key of the zone remember that.
        /// * `manager_files`, `manager_sleep`: maximum number of files deleted at once, and the pause after that.
        ///   `loader_threshold` and `loader_sleep`: when the directory has no journal and must be walked, the time of
        ///   one step and the pause after it.
        /// * `loader_files`, `manager_threshold`, `purger`, `purger_files`, `purger_sleep`, `purger_threshold` and
        ///   `use_temp_path` are accepted for compatibility and have no effect: temporary files are always beside their
        ///   destination, and purged entries are always deleted, at the pace of `manager_files` and `manager_sleep`.
        ///
        /// Several directories with `,` between them (`/d1,/d2,/d3`, each an absolute path) are one cache over several disks
        /// (not in nginx): each key has its place on one of them, by a hash of the key and the directory, so that a disk
        /// that is added or removed moves its own share only. `max_size` and the keys are split evenly. Each has a thread
        /// pool of its own, an index and a journal; the keys of one that is out go to the others meanwhile.
        ///
        /// A block device, a partition or a file of a fixed length may be named in place of the directory (not in nginx), with
        /// `files=directory` (one for each device, with `,` between them): small entries lie in segments on the device
        /// itself, without a file system (`store=segments` is implied), read and written past the kernel's page cache by the
        /// thread pool; those that are used often are kept in memory, within `memory_budget`. That directory has the
        /// journal, and the entries that are larger than 1 MiB or come without a length and have more than 256 KiB;
        /// `files_size` is the limit of its bytes (1 GiB and 256 bytes for each key by default), `max_size` that of the
        /// device's (all of it by default, at most 4 TiB). A device that holds anything else is refused, a blank one (zeros in
        /// its first and last MiB) is taken; `freewheel cache format` empties one.
        ///
        /// The directory is created at startup and belongs to the worker's user. Its content is known at once after a
        /// restart (its folder `.freewheel` has a journal). Its disk is accessed by the thread pool that the locations
        /// with this cache name in `aio`, or else by the pool `default`.
        "proxy_cache_path": [HTTP] 2.., syntax "path [levels=levels] [use_temp_path=on|off] keys_zone=name:size [inactive=time] [max_size=size] [min_free=size] [store=files|segments] [files=path] [files_size=size] [admission=all|second_hit] [manager_files=number] [manager_sleep=time] [manager_threshold=time] [loader_files=number] [loader_sleep=time] [loader_threshold=time] [purger=on|off] [purger_files=number] [purger_sleep=time] [purger_threshold=time]";
    }
}

/// The directories in the path of a `proxy_cache_path`: several are separated by commas, and each but the first begins
/// with a slash. (A comma elsewhere is part of a name, as in nginx.)
pub fn paths(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(path);
    std::iter::from_fn(move || {
        let path = rest?;
        let (first, behind) = match memchr::memmem::find(path, b",/") {
            Some(at) => (&path[..at], Some(&path[at + 1..])),
            None => (path, None),
        };
        rest = behind;
        Some(first.strip_suffix(b"/").unwrap_or(first))
    })
}

/// What the arguments of a `proxy_cache_path` name: the directories, and the devices, if these are named in their places.
#[must_use]
pub fn places(args: &[Word]) -> (Vec<&[u8]>, Vec<&[u8]>) {
    let path = args.first().map_or(&b""[..], |word| &word.bytes()[..]);
    let path = path.strip_suffix(b"/").unwrap_or(path);
    let mut words = args.iter().skip(1);
    match words.find_map(|word| word.bytes().strip_prefix(b"files=")) {
        None => (paths(path).collect(), Vec::new()),
        Some(files) => (paths(files).collect(), paths(path).collect()),
    }
}

/// The pace of background work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Files at once.
    pub files: usize,
    /// The pause after them.
    pub sleep: Duration,
    /// Maximum time at once.
    pub threshold: Duration,
}

/// A cache as declared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    /// Its name.
    pub name: Bytes,
    /// Its directory: absolute, no slash at the end.
    pub directory: Bytes,
    /// The device that its small entries lie on, beside the directory: an absolute path.
    pub device: Option<Bytes>,
    /// `files_size`; with a device only.
    pub files_bytes: u64,
    /// `levels`.
    pub levels: Levels,
    /// Bytes of `keys_zone`.
    pub zone_bytes: u64,
    /// `max_size`.
    pub max_bytes: Option<u64>,
    /// `min_free`.
    pub min_free_bytes: u64,
    /// `inactive`, in seconds.
    pub inactive: i64,
    /// `loader_*`.
    pub loader: Pace,
    /// `manager_*`.
    pub manager: Pace,
    /// `store`.
    pub store: StoreKind,
    /// Whether a response is stored only if its key was asked for before (`admission=second_hit`).
    pub is_second_hit: bool,
    /// The pool for its maintenance; None: `default`.
    pub pool: Option<Bytes>,
    /// Number of disks that its cache has: so many zones of the same name follow each other, each with a part of the
    /// limits.
    pub disks: usize,
}

slots::slotted!(config::made::WHOLE: Zones);

/// The caches of a configuration.
#[derive(Debug, Default)]
pub struct Zones(Vec<Zone>);

impl Zones {
    /// Reads a `proxy_cache_path` line.
    ///
    /// # Errors
    /// nginx's sentences.
    pub fn read(
        &mut self,
        line: &Directive,
        prefix: &Path,
        scope: &mut Scope,
    ) -> Result<(), Error> {
        let zone =
            Zone::parse(&line.name, &line.args, prefix).map_err(|problem| line.error(&problem))?;
        let named = scope.name_zone(&zone.name, zone.zone_bytes, &line.name.display());
        named.map_err(|problem| line.error(&problem))?;
        let fail = |sentence: String| Err(line.error(&Problem::new(sentence)));
        if self.named(&zone.name).is_some() {
            let name = String::from_utf8_lossy(&zone.name);
            return fail(format!("duplicate zone \"{name}\""));
        }
        for part in zone.split(prefix) {
            if self.0.iter().any(|other| other.directory == part.directory) {
                let directory = String::from_utf8_lossy(&part.directory);
                return fail(format!("the same path name \"{directory}\" used twice"));
            }
            if let Some(device) = &part.device
                && self
                    .0
                    .iter()
                    .any(|other| other.device.as_ref() == Some(device))
            {
                let device = String::from_utf8_lossy(device);
                return fail(format!("the same path name \"{device}\" used twice"));
            }
            if self.0.len() == ZONES_MAX {
                return fail(format!("too many caches, there may be {ZONES_MAX}"));
            }
            self.0.push(part);
        }
        Ok(())
    }

    /// The caches, in the order in which they were declared.
    #[must_use]
    pub fn all(&self) -> &[Zone] {
        &self.0
    }

    /// The index of the cache with this name; of its first disk, where it has several.
    #[must_use]
    pub fn named(&self, name: &[u8]) -> Option<usize> {
        self.0.iter().position(|zone| zone.name == name)
    }

    /// The cache with this name: a zone for each of its disks; none: there is no such cache.
    #[must_use]
    pub fn disks_of(&self, name: &[u8]) -> &[Zone] {
        match self.named(name) {
            Some(at) => &self.0[at..at + self.0[at].disks],
            None => &[],
        }
    }

    /// Checks that a cache that is named without variables is declared, whether or not requests are passed on there.
    ///
    /// # Errors
    /// `"proxy_cache" zone "x" is unknown`.
    pub fn check(&self, family: Family, caching: &Caching) -> Result<(), Error> {
        let named = &caching.proxy_cache;
        match named.value.on().and_then(Template::literal) {
            Some(name) if self.named(name).is_none() => {
                let name = String::from_utf8_lossy(name);
                let directive = family.renamed("proxy_cache");
                Err(named.error(format!("\"{directive}\" zone \"{name}\" is unknown")))
            }
            _ => Ok(()),
        }
    }

    /// Checks also the caches that are named without effect: at a level whose inner levels all override it, or that has
    /// no server.
    ///
    /// # Errors
    /// `zero size shared memory zone "x"`.
    pub fn check_unused(&self, tree: &Tree) -> Result<(), Error> {
        let mut left: Vec<&Directive> = tree.directives.iter().rev().collect();
        while let Some(line) = left.pop() {
            if LEVELS.iter().any(|level| line.name == *level) {
                left.extend(line.children().iter().rev());
                continue;
            }
            let [named] = &line.args[..] else {
                continue;
            };
            let name = named.bytes();
            let is_name = name[..] != *b"off" && !name.contains(&b'$');
            if is_name && Family::names_cache(&line.name) && self.named(name).is_none() {
                let name = String::from_utf8_lossy(name);
                let sentence = format!("zero size shared memory zone \"{name}\"");
                return Err(Error::without_place(sentence));
            }
        }
        Ok(())
    }

    /// Finds the pool of each cache.
    pub fn settle(&mut self, locations: &[Location], pools: &[Bytes]) {
        for zone in &mut self.0 {
            zone.pool = pool_for(&zone.name, locations, pools);
        }
    }
}

/// The pool that the locations with this cache agree on.
fn pool_for(zone: &[u8], locations: &[Location], pools: &[Bytes]) -> Option<Bytes> {
    let mut found: Option<Bytes> = None;
    for location in locations {
        let Some(cache) = location.own::<Caching>().proxy_cache.value.on() else {
            continue;
        };
        let Some(binding) = bind(cache, zone) else {
            continue;
        };
        let Aio::Pool(pool) = &location.settings.files.aio.value else {
            return None;
        };
        let name = fill_in(pool, &binding).filter(|name| pools.contains(name))?;
        if found.as_ref().is_some_and(|other| *other != name) {
            return None;
        }
        found = Some(name);
    }
    found
}

/// The value that a template's one variable must have for the template to be `text`: `cache_$disk` is `cache_2` where
/// `$disk` is `2`. None where it cannot be that text. With several variables nothing is known.
type VariableBinding<'a> = Option<(config::VariableIndex, &'a [u8])>;

fn bind<'a>(template: &Template, text: &'a [u8]) -> Option<VariableBinding<'a>> {
    if let Some(literal) = template.literal() {
        return (literal == text).then_some(None);
    }
    let (before, variable, behind): (&[u8], _, &[u8]) = match template.parts() {
        [TemplatePart::Variable(variable)] => (b"", *variable, b""),
        [
            TemplatePart::Literal(before),
            TemplatePart::Variable(variable),
        ] => (before, *variable, b""),
        [
            TemplatePart::Variable(variable),
            TemplatePart::Literal(behind),
        ] => (b"", *variable, behind),
        [
            TemplatePart::Literal(before),
            TemplatePart::Variable(variable),
            TemplatePart::Literal(behind),
        ] => (before, *variable, behind),
        _ => return Some(None),
    };
    let value = text.strip_prefix(before)?.strip_suffix(behind)?;
    Some(Some((variable, value)))
}

fn fill_in(template: &Template, binding: &VariableBinding<'_>) -> Option<Bytes> {
    let mut text = Vec::new();
    for part in template.parts() {
        match (part, binding) {
            (TemplatePart::Literal(literal), _) => text.extend_from_slice(literal),
            (TemplatePart::Variable(index), Some((known, value))) if index == known => {
                text.extend_from_slice(value);
            }
            _ => return None,
        }
    }
    Some(text.into())
}

const PACE: Pace = Pace {
    files: 100,
    sleep: Duration::from_millis(50),
    threshold: Duration::from_millis(200),
};

impl Zone {
    /// Maximum number of its keys.
    #[must_use]
    pub(crate) fn keys_max(&self) -> usize {
        cache::keys_of_zone(self.zone_bytes)
    }

    fn parse(name: &Word, args: &[Word], prefix: &Path) -> Result<Self, Problem> {
        let path = args.first().map_or(&b""[..], |word| word.bytes());
        let path = path.strip_suffix(b"/").unwrap_or(path);
        let directory = prefix.join(std::ffi::OsStr::from_bytes(path));
        let mut zone = Self {
            name: Bytes::new(),
            directory: Bytes::copy_from_slice(directory.as_os_str().as_bytes()),
            device: None,
            files_bytes: 0,
            levels: Levels::default(),
            zone_bytes: 0,
            max_bytes: None,
            min_free_bytes: 0,
            inactive: 600,
            loader: PACE,
            manager: PACE,
            store: StoreKind::Files,
            is_second_hit: false,
            pool: None,
            disks: 1,
        };
        for (index, word) in args.iter().enumerate().skip(1) {
            zone.set(word).map_err(|problem| problem.at(index))?;
        }
        if zone.name.is_empty() || zone.zone_bytes == 0 {
            let sentence = format!("\"{}\" must have \"keys_zone\" parameter", name.display());
            return Err(Problem::new(sentence));
        }
        zone.set_device(args, prefix)?;
        zone.check_store()?;
        Ok(zone)
    }

    /// With `files=`, the path is a device's, and the directory that.
    fn set_device(&mut self, args: &[Word], prefix: &Path) -> Result<(), Problem> {
        let (directories, devices) = places(args);
        let fail = |sentence: &str| Err(Problem::new(sentence.to_owned()));
        if devices.is_empty() {
            return match self.files_bytes {
                0 => Ok(()),
                _ => fail("\"files_size\" is for a device: name a directory by \"files\""),
            };
        }
        if args.iter().any(|word| word.bytes()[..] == *b"store=files") {
            return fail("\"files\" is for a device, which has \"store=segments\"");
        }
        if directories.len() != devices.len() || directories.iter().any(|path| path.is_empty()) {
            return fail("\"files\" must name a directory for each device");
        }
        self.store = StoreKind::Segments;
        self.disks = devices.len();
        let joined = directories.join(&b","[..]);
        let all = prefix.join(std::ffi::OsStr::from_bytes(&joined));
        let directory = Bytes::copy_from_slice(all.as_os_str().as_bytes());
        self.device = Some(std::mem::replace(&mut self.directory, directory));
        let journal = self.keys_max() as u64 * JOURNAL_BYTES_OF_KEY;
        let least = FILES_BYTES_MIN * self.disks as u64 + journal;
        if self.files_bytes == 0 {
            self.files_bytes = FILES_BYTES_DEFAULT + journal;
        }
        if self.files_bytes < least {
            let least = least.div_ceil(1 << 20);
            return fail(&format!(
                "\"files_size\" must be at least {least}m, for the journal"
            ));
        }
        Ok(())
    }

    fn check_store(&self) -> Result<(), Problem> {
        let is_small = |max: u64| max < MAX_SIZE_MIN;
        match self.store {
            StoreKind::Segments if self.max_bytes.is_some_and(is_small) => {
                let least = (MAX_SIZE_MIN >> 20) * self.disks as u64;
                let sentence =
                    format!("\"max_size\" must be at least {least}m with \"store=segments\"");
                Err(Problem::new(sentence))
            }
            _ => Ok(()),
        }
    }

    /// Its parts: one for each directory of its path.
    fn split(self, prefix: &Path) -> Vec<Self> {
        let whole = self.directory.clone();
        let devices = self.device.clone().unwrap_or_default();
        let all: Vec<_> = paths(&whole).collect();
        let disks = all.len();
        if disks == 1 {
            return vec![self];
        }
        let joined = |path: &[u8]| {
            let path = prefix.join(std::ffi::OsStr::from_bytes(path));
            Bytes::copy_from_slice(path.as_os_str().as_bytes())
        };
        let mut devices = paths(&devices);
        let part = |path: &[u8]| {
            let device = devices.next().filter(|path| !path.is_empty());
            Self {
                directory: joined(path),
                device: device.map(joined),
                files_bytes: self.files_bytes / disks as u64,
                zone_bytes: (self.zone_bytes / disks as u64).max(ZONE_BYTES_MIN),
                max_bytes: self.max_bytes.map(|bytes| bytes / disks as u64),
                disks,
                ..self.clone()
            }
        };
        all.into_iter().map(part).collect()
    }

    fn set(&mut self, word: &Word) -> Result<(), Problem> {
        let text = word.bytes();
        let equals = text.iter().position(|byte| *byte == b'=');
        let (key, value) = text.split_at(equals.map_or(text.len(), |at| at + 1));
        let invalid = || {
            let key = String::from_utf8_lossy(key.strip_suffix(b"=").unwrap_or(key));
            Problem::new(format!("invalid {key} value \"{}\"", word.display()))
        };
        match key {
            b"levels=" => {
                let levels = std::str::from_utf8(value).ok().and_then(Levels::parse);
                self.levels = levels.ok_or_else(|| {
                    Problem::new(format!("invalid \"levels\" \"{}\"", word.display()))
                })?;
            }
            b"keys_zone=" => self.set_keys_zone(text, value, word)?,
            b"use_temp_path=" | b"purger=" if matches!(value, b"on" | b"off") => {}
            b"use_temp_path=" | b"purger=" => {
                let key = String::from_utf8_lossy(&key[..key.len() - 1]);
                return Err(Problem::new(format!(
                    "invalid {key} value \"{}\", it must be \"on\" or \"off\"",
                    word.display()
                )));
            }
            b"inactive=" => {
                let seconds = parse_sec(value).ok_or_else(invalid)?;
                self.inactive = i64::try_from(seconds).unwrap_or(i64::MAX);
            }
            b"max_size=" => self.max_bytes = Some(parse_offset(value).ok_or_else(invalid)?),
            b"min_free=" => self.min_free_bytes = parse_offset(value).ok_or_else(invalid)?,
            b"files=" => {}
            b"files_size=" => {
                let size = parse_offset(value).filter(|size| *size > 0);
                self.files_bytes = size.ok_or_else(invalid)?;
            }
            b"store=" => {
                self.store = match value {
                    b"files" => StoreKind::Files,
                    b"segments" => StoreKind::Segments,
                    _ => return Err(invalid()),
                }
            }
            b"admission=" => {
                self.is_second_hit = match value {
                    b"all" => false,
                    b"second_hit" => true,
                    _ => return Err(invalid()),
                }
            }
            _ => return self.set_pace(key, value, word, &invalid),
        }
        Ok(())
    }

    fn set_keys_zone(&mut self, text: &Bytes, value: &[u8], word: &Word) -> Result<(), Problem> {
        let invalid = || Problem::new(format!("invalid keys zone size \"{}\"", word.display()));
        let colon = value.iter().position(|byte| *byte == b':');
        let colon = colon.ok_or_else(invalid)?;
        let size = parse_size(&value[colon + 1..]).ok_or_else(invalid)?;
        self.name = text.slice_ref(&value[..colon]);
        self.zone_bytes = size;
        if size < ZONE_BYTES_MIN {
            let name = String::from_utf8_lossy(&self.name);
            return Err(Problem::new(format!("keys zone \"{name}\" is too small")));
        }
        Ok(())
    }

    fn set_pace(
        &mut self,
        key: &[u8],
        value: &[u8],
        word: &Word,
        invalid: &dyn Fn() -> Problem,
    ) -> Result<(), Problem> {
        let unknown = || Problem::new(format!("invalid parameter \"{}\"", word.display()));
        let underscore = key.iter().position(|byte| *byte == b'_');
        let (who, what) = key.split_at(underscore.ok_or_else(unknown)?);
        // Parsed only to find errors.
        let mut unused = PACE;
        let pace = match who {
            b"loader" => &mut self.loader,
            b"manager" => &mut self.manager,
            b"purger" => &mut unused,
            _ => return Err(unknown()),
        };
        let time = || parse_msec(value).map(Duration::from_millis);
        match what {
            b"_files=" => {
                let number = parse_number(value).ok_or_else(invalid)?;
                // With none at a time no work would ever be done.
                pace.files = usize::try_from(number).unwrap_or(usize::MAX).max(1);
            }
            b"_sleep=" => pace.sleep = time().ok_or_else(invalid)?,
            b"_threshold=" => pace.threshold = time().ok_or_else(invalid)?,
            _ => return Err(unknown()),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::paths;

    #[test]
    fn a_comma_before_a_slash_separates_directories() {
        let of = |path: &'static str| -> Vec<&str> {
            let all = paths(path.as_bytes());
            all.map(|path| std::str::from_utf8(path).unwrap()).collect()
        };
        assert_eq!(of("/d1"), ["/d1"]);
        assert_eq!(of("/d1/"), ["/d1"]);
        assert_eq!(of("/d1,/d2/,/d3"), ["/d1", "/d2", "/d3"]);
        assert_eq!(of("cache,/d2"), ["cache", "/d2"]);
        assert_eq!(of("/a,b"), ["/a,b"], "a name with a comma");
    }
}
