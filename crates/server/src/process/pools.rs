//! `thread_pool`: the pools that a configuration declares, and those that a process then has.
//!
//! Not here: what runs in them (`disk`). Invariant: the pool `default` always exists.

use std::path::Path;

use bytes::Bytes;
use config::{Directive, Error, Problem, Scope, Value, Word};
use disk::Disk;
use disk::memory::limits::{self, Groups};
use disk::pool::{DEFAULT_MAX_QUEUE, DEFAULT_THREADS, THREADS_MAX};
use proxy::caching::caches::open_cache::OWN_POOL;
use runtime::cpu_pool;

use super::directives::Processes;

/// The pool of directives that name none.
const DEFAULT: &str = "default";
/// Maximum number of threads of the pool `default`, if it is not declared.
const DEFAULT_THREADS_MAX: usize = 512;
/// Bytes of the lowest memory limit per thread: a running thread takes some 50 KiB of it, the kernel's part included.
const MEMORY_OF_THREAD: u64 = 2 << 20;
/// Maximum number of pools that one configuration may declare; `default` and those for work without a disk have places of
/// their own.
pub(crate) const POOLS_MAX: usize = disk::POOLS_MAX - 1 - cpu_pool::POOLS.len();

/// `thread_pool`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadPool {
    /// The pool's name.
    pub name: String,
    /// Number of threads.
    pub threads: usize,
    /// Maximum number of tasks that may wait.
    pub max_queue: usize,
}

impl Value for ThreadPool {
    const SYNTAX: &'static str = "name threads=number [max_queue=number]";

    fn parse(args: &[Word], _scope: &mut Scope) -> Result<Self, Problem> {
        let Ok(name) = std::str::from_utf8(args[0].bytes()) else {
            let name = args[0].display();
            let sentence = format!("the name of thread pool \"{name}\" is not UTF-8");
            return Err(Problem::new(sentence).at(0));
        };
        let name = name.to_owned();
        let mut threads = if name == DEFAULT {
            Some(DEFAULT_THREADS)
        } else {
            None
        };
        let mut max_queue = DEFAULT_MAX_QUEUE;
        for (index, word) in args.iter().enumerate().skip(1) {
            let text = word.display();
            let number = |prefix: &str| {
                text.strip_prefix(prefix).map(|digits| {
                    let number = config::parse_number(digits.as_bytes())?;
                    usize::try_from(number).ok()
                })
            };
            if let Some(value) = number("threads=") {
                let value = value.filter(|count| (1..=THREADS_MAX).contains(count));
                let invalid =
                    || Problem::new(format!("invalid threads value \"{text}\"")).at(index);
                threads = Some(value.ok_or_else(invalid)?);
            } else if let Some(value) = number("max_queue=") {
                let invalid =
                    || Problem::new(format!("invalid max_queue value \"{text}\"")).at(index);
                max_queue = value.ok_or_else(invalid)?;
            } else {
                return Err(Problem::new(format!("invalid parameter \"{text}\"")).at(index));
            }
        }
        let missing = || {
            Problem::new(format!(
                "\"thread_pool\" must have \"threads\" parameter for \"{name}\""
            ))
        };
        let threads = threads.ok_or_else(missing)?;
        Ok(Self {
            name,
            threads,
            max_queue,
        })
    }
}

/// The names that were declared so far.
#[derive(Debug, Default)]
pub(crate) struct Declared(Vec<Bytes>);

impl Declared {
    /// Takes in a line `thread_pool`.
    ///
    /// # Errors
    /// A name that was declared already; more pools than the maximum.
    pub(crate) fn add(&mut self, line: &Directive) -> Result<(), Error> {
        let Some(name) = line.args.first() else {
            return Ok(());
        };
        let sentence = if self.0.contains(name.bytes()) {
            format!("duplicate thread pool \"{}\"", name.display())
        } else if self.0.len() == POOLS_MAX {
            format!("too many thread pools, there may be {POOLS_MAX}")
        } else {
            self.0.push(name.bytes().clone());
            return Ok(());
        };
        Err(line.error(&Problem::new(sentence).at(0)))
    }
}

/// The pools that are kept from one reload to the next.
#[derive(Debug, Default)]
pub(crate) struct Kept(Vec<String>);

impl Kept {
    /// A configuration serves from now on. Pools that neither it nor the previous one has are forgotten: requests from
    /// before the reload may still use the previous one's pools.
    pub(crate) fn accept(&mut self, processes: &Processes, disk: &Disk) {
        let names = processes.thread_pool.iter().map(|pool| pool.name.clone());
        let names: Vec<String> = names.collect();
        let is_kept = |name: &String| names.contains(name) || self.0.contains(name);
        disk.keep_pools(|name| {
            name == DEFAULT
                || cpu_pool::POOLS.contains(&name)
                || name.starts_with(OWN_POOL)
                || is_kept(&name.to_owned())
        });
        self.0 = names;
    }
}

/// Defines the pools of a configuration that are not there yet; it may still be refused.
pub(crate) fn define_new_pools(processes: &Processes, disk: &Disk) {
    let is_new = |name: &str| disk.pool(name.as_bytes()).is_none();
    for pool in processes
        .thread_pool
        .iter()
        .filter(|pool| is_new(&pool.name))
    {
        drop(disk.define_pool(&pool.name, pool.threads, pool.max_queue));
    }
    if is_new(DEFAULT) {
        define_pools(processes, disk);
    }
}

/// The pools of a configuration that is served: those that were there get its sizes. One that is not declared has nginx's
/// 32 threads per process, here per loop, but not more than `DEFAULT_THREADS_MAX`.
pub(crate) fn define_pools(processes: &Processes, disk: &Disk) {
    for pool in processes.thread_pool.iter() {
        drop(disk.define_pool(&pool.name, pool.threads, pool.max_queue));
    }
    let is_declared = |name: &str| processes.thread_pool.iter().any(|pool| pool.name == name);
    cpu_pool::restore(disk, is_declared);
    if !is_declared(DEFAULT) {
        let threads = processes.worker_processes.count() * DEFAULT_THREADS;
        let groups = Groups::of(Path::new("/proc"));
        let room = limits::least(&groups).bytes / MEMORY_OF_THREAD;
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        let threads = threads
            .min(DEFAULT_THREADS_MAX)
            .min(room.max(DEFAULT_THREADS));
        drop(disk.define_pool(DEFAULT, threads, DEFAULT_MAX_QUEUE));
    }
}
