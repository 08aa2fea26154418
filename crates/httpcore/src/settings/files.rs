//! The directives of a location that concern its files: the pool, the system calls, symbolic links, descriptors that are
//! kept.

use std::time::Duration;

use config::{
    Bufs, Flag, Msec, Number, Offset, OrOff, Placed, Problem, Scope, Sec, Size, Template, Value,
    Word, directives, parse_number,
};
use disk::OpenFileCacheSettings;

/// `aio`.
#[derive(Debug, Clone)]
pub enum Aio {
    /// Inline and blocking, as nginx without `aio` (for measurements).
    Off,
    /// With `directio`: O_DIRECT reads in the pool; else as the default.
    On,
    /// In the default pool.
    Default,
    /// In the pool of this name.
    Pool(Template),
}

impl Value for Aio {
    const SYNTAX: &'static str = "on | off | threads[=pool]";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        let word = &args[0];
        match &word.bytes()[..] {
            b"on" => return Ok(Self::On),
            b"off" => return Ok(Self::Off),
            b"threads" => return Ok(Self::Default),
            _ => {}
        }
        let Some(name) = word.bytes().strip_prefix(b"threads=") else {
            return Err(Problem::directive("invalid value").at(0));
        };
        if name.is_empty() {
            return Err(Problem::directive("invalid value").at(0));
        }
        Template::parse(
            &word.bytes().slice(b"threads=".len()..),
            &word.place(),
            scope,
        )
        .map(Self::Pool)
    }
}

/// `disable_symlinks`.
#[derive(Debug, Clone)]
pub enum DisableSymlinks {
    /// Links are followed.
    Off,
    /// Every link is refused.
    On(Option<Template>),
    /// Links whose target has another owner are refused.
    IfNotOwner(Option<Template>),
}

impl Value for DisableSymlinks {
    const SYNTAX: &'static str = "off | on | if_not_owner [from=part]";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        let (mut mode, mut from) = (None, None);
        for (at, word) in args.iter().enumerate() {
            match &word.bytes()[..] {
                own @ (b"off" | b"on" | b"if_not_owner") => mode = Some(own),
                [b'f', b'r', b'o', b'm', b'=', ..] => {
                    let part = word.bytes().slice(b"from=".len()..);
                    from = Some(Template::parse(&part, &word.place(), scope)?);
                }
                _ => {
                    let sentence = format!("invalid parameter \"{}\"", word.display());
                    return Err(Problem::new(sentence).at(at));
                }
            }
        }
        if args.len() > 1 && from.is_none() {
            let [one, other] = [&args[0], &args[1]].map(Word::display);
            return Err(Problem::new(format!(
                "duplicate parameters \"{one} {other}\""
            )));
        }
        // An empty part is none.
        let has_from = from.is_some();
        let from = from.filter(|part| !part.parts().is_empty());
        match mode {
            Some(b"off") if has_from => Err(Problem::new(
                "\"from=\" cannot be used with \"off\" parameter",
            )),
            Some(b"off") => Ok(Self::Off),
            Some(b"on") => Ok(Self::On(from)),
            Some(_) => Ok(Self::IfNotOwner(from)),
            None => Err(Problem::new(
                "\"disable_symlinks\" must have \"off\", \"on\" or \"if_not_owner\" parameter",
            )),
        }
    }
}

/// `disk_timeout`.
#[derive(Debug, Clone, Copy)]
pub struct DiskTimeout(OrOff<Msec>);

impl DiskTimeout {
    /// The limit; `None`: there is none.
    #[must_use]
    pub fn on(&self) -> Option<&Msec> {
        self.0.on()
    }
}

impl Value for DiskTimeout {
    const SYNTAX: &'static str = "time | off";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        match OrOff::<Msec>::parse(args, scope)? {
            OrOff::On(Msec(0)) => Err(Problem::directive(
                "must not be 0, which would leave a disk no time; \"off\" sets no limit",
            )
            .at(0)),
            limit => Ok(Self(limit)),
        }
    }
}

/// `open_file_cache`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFileCache {
    /// Maximum number of descriptors kept, for each loop. 0: the cache is off.
    pub max: u64,
    /// Seconds without a request after which a descriptor is closed.
    pub inactive: u64,
}

impl Value for OpenFileCache {
    const SYNTAX: &'static str = "off | max=N [inactive=time]";

    fn parse(args: &[Word], _: &mut Scope) -> Result<Self, Problem> {
        let (mut max, mut inactive, mut is_off) = (0, 60, false);
        for (i, word) in args.iter().enumerate() {
            let invalid = || {
                Problem::new(format!(
                    "invalid \"open_file_cache\" parameter \"{}\"",
                    word.display()
                ))
                .at(i)
            };
            let text = word.bytes();
            if let Some(number) = text.strip_prefix(b"max=") {
                max = parse_number(number)
                    .filter(|n| *n > 0)
                    .ok_or_else(invalid)?;
            } else if let Some(time) = text.strip_prefix(b"inactive=") {
                inactive = config::parse_sec(time).ok_or_else(invalid)?;
            } else if *word == "off" {
                is_off = true;
            } else {
                return Err(invalid());
            }
        }
        match (is_off, max) {
            (true, _) => Ok(Self { max: 0, inactive }),
            (false, 0) => Err(Problem::missing_parameter("max")),
            (false, _) => Ok(Self { max, inactive }),
        }
    }
}

directives! {
    /// Static files.
    pub struct StaticFiles in Location {
        /// Sends `ETag` with files: modification time and size in hexadecimal digits.
        etag: Flag = "on", [HTTP | SERVER | LOCATION] FLAG;
        /// Logs missing files.
        log_not_found: Flag = "on", [HTTP | SERVER | LOCATION] FLAG;
    }
}

directives! {
    /// Reading and sending files.
    pub struct Files in Location {
        /// Sets where file operations that would wait for a disk run: in the named thread pool (the name may contain
        /// variables), with `threads` alone in the pool `default`, which is also the default. What is in memory never
        /// goes through a pool. `on` reads files of `directio` size with O_DIRECT. `off` waits for disks in the event
        /// loop, as nginx does; it exists for comparison.
        aio: Placed<Aio> = "threads", [HTTP | SERVER | LOCATION] 1;
        /// Whether files are written (temporary files, caches) in the pool. They always are.
        aio_write: Flag = "on", [HTTP | SERVER | LOCATION] FLAG;
        /// Limits how long a request waits for a disk at a time (not in nginx). Before the response has begun, it is then
        /// answered with 503 and `Retry-After`; after that, its connection is closed. `off`: it waits for as long as the
        /// disk takes. Of a cache's disk a request needs nothing that the origin does not have: see `proxy_cache_path`.
        disk_timeout: DiskTimeout = "60s", [HTTP | SERVER | LOCATION] 1;
        /// Sends files from the page cache to the socket without copying.
        sendfile: Flag = "off", [HTTP | SERVER | LOCATION | LOCATION_IF] FLAG;
        /// Limits what one connection sends of a file before other connections get their turn. `0` means no limit.
        sendfile_max_chunk: Size = "2m", [HTTP | SERVER | LOCATION] 1;
        /// Reads files of at least this size with O_DIRECT, in the pool.
        directio: OrOff<Offset> = "off", [HTTP | SERVER | LOCATION] 1, syntax "size | off";
        /// Sets the alignment of O_DIRECT reads.
        directio_alignment: Offset = "512", [HTTP | SERVER | LOCATION] 1;
        /// Sets the amount of read-ahead.
        read_ahead: Size = "0", [HTTP | SERVER | LOCATION] 1;
        /// Sets the size of the buffers that a file is read into when it is not sent with `sendfile`. The number has no
        /// effect: one buffer is used at a time.
        output_buffers: Bufs = "2 32k", [HTTP | SERVER | LOCATION] 2;
        /// Refuses paths with symbolic links: all of them (`on`), or those whose target has another owner
        /// (`if_not_owner`). In the part of the path given with `from=` links are followed.
        disable_symlinks: DisableSymlinks = "off", [HTTP | SERVER | LOCATION] 1..=2;
        /// Caches open descriptors and file information for `open_file_cache_valid`, even if the files change
        /// meanwhile. Without it descriptors are cached too, but every request sees the file as it is.
        open_file_cache: OpenFileCache = "off", [HTTP | SERVER | LOCATION] 1..=2;
        /// Sets after what time a cached file is checked again.
        open_file_cache_valid: Sec = "60s", [HTTP | SERVER | LOCATION] 1;
        /// Sets how often a file must be requested within `inactive` for its descriptor to stay open.
        open_file_cache_min_uses: Number = "1", [HTTP | SERVER | LOCATION] 1;
        /// Also caches errors (missing files).
        open_file_cache_errors: Flag = "off", [HTTP | SERVER | LOCATION] FLAG;
    }
}

impl Files {
    /// `open_file_cache` as a setting of the disk layer; `None` when it is off.
    #[must_use]
    pub fn stale(&self) -> Option<OpenFileCacheSettings> {
        let cache = self.open_file_cache;
        (cache.max > 0).then(|| OpenFileCacheSettings {
            max: usize::try_from(cache.max).unwrap_or(usize::MAX),
            inactive: Duration::from_secs(cache.inactive),
            valid: self.open_file_cache_valid.duration(),
            min_uses: u32::try_from(self.open_file_cache_min_uses.0).unwrap_or(u32::MAX),
            errors: self.open_file_cache_errors,
        })
    }
}
