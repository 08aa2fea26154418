//! The directives outside of every block and in `events`: processes, loops, limits.
//!
//! Not here: `error_log` ([`logs`]). Invariant: an accepted directive does what its text says; one that has no
//! effect here says so in a single warning.

use bytes::Bytes;
use config::{
    Directive, Error, Flag, List, Msec, Number, Offset, PathText, Problem, Scope, Section as _,
    Tree, Value, Word,
};

use super::affinity::Affinity;
use super::pools::{Declared, ThreadPool};
use super::privileges::is_root;
use crate::memory::directives::MemoryBudget;

config::directives! {
    /// Processes.
    ///
    /// The master process reads the configuration, binds the sockets and supervises; one worker process serves, with a
    /// number of event loops, each a thread.
    pub struct Processes in Main {
        /// Sets whether the program runs in the background.
        ///
        /// The command returns when the server is listening and the pid file is written, or with exit code 1.
        daemon: Flag = "on", [MAIN] FLAG;
        /// Sets whether there is a worker process. With `off` one process does everything, with the rights that it was
        /// started with: for development.
        master_process: Flag = "on", [MAIN] FLAG;
        /// Sets the file that holds the process id of the master. It is written when the server is listening.
        pid: PathText = (config::default_paths::PID), [MAIN] 1;
        /// Sets the user and the group (by default the group of the same name, or else the user's own) that the worker
        /// process runs as.
        ///
        /// By default, when started as root: `nobody` and its group. When started by another user, the directive is
        /// ignored with a warning.
        user: Option<User> = none, [MAIN] 1..=2;
        /// Sets the number of event loops: threads of the one worker process, not processes. `auto` means one per CPU.
        ///
        /// Can be changed by a reload; loops that end finish their connections first.
        worker_processes: Loops = "1", [MAIN] 1;
        /// Binds loops to CPUs: one bit mask per loop, the last one for all further loops; or `auto`, one CPU per loop
        /// in turn, which may be followed by a mask of the CPUs to use.
        worker_cpu_affinity: Option<Affinity> = none, [MAIN] 1..;
        /// Sets the priority (nice value, −20 to 19) of the worker process.
        worker_priority: Priority = "0", [MAIN] 1;
        /// Sets the limit of open files (RLIMIT_NOFILE) for each event loop: the worker process gets it times the number of
        /// loops. Without it the worker raises its limit to what the system grants. The hard limit is 4096 higher, as far as the system
        /// lets it: room for the sockets and logs of a new configuration, whatever the connections have taken.
        worker_rlimit_nofile: Option<Number> = none, [MAIN] 1;
        /// Sets the limit of the size of core files (RLIMIT_CORE) of the worker process.
        worker_rlimit_core: Option<Offset> = none, [MAIN] 1;
        /// Sets how long a worker that shuts down gracefully (QUIT, or a reload that needs a new worker) may take; then
        /// the remaining connections are closed. `0` means no limit, as by default.
        worker_shutdown_timeout: Option<Msec> = none, [MAIN] 1;
        /// Sets the working directory of the worker process, where core files are written.
        working_directory: Option<PathText> = none, [MAIN] 1;
        /// Keeps or sets an environment variable for the worker process, which otherwise has only `TZ` and, if not set
        /// here, a `GLIBC_TUNABLES` that suits it.
        env: List<Bytes> = none, [MAIN] 1, syntax "variable[=value]";
        /// Ignored, with one warning for all: nginx modules are machine code for nginx. What is built in needs none;
        /// directives of other modules are refused.
        load_module: List<Module> = none, [MAIN] 1;
        /// Ignored: loops read the time when they need it.
        timer_resolution: Option<Msec> = none, [MAIN] 1;
        /// Ignored: nothing here needs a lock file.
        lock_file: Option<PathText> = none, [MAIN] 1;
        /// Ignored: a failed internal check ends the connection or the worker, and is logged.
        debug_points: Option<DebugPoints> = none, [MAIN] 1;
        /// Ignored: regular expressions always use the just-in-time compiler.
        pcre_jit: Option<Flag> = none, [MAIN] FLAG;
        /// Sets how long a task may keep an event loop busy before this is recorded: the metrics then name the
        /// connection, its request and the phase (`status_json`, `dashboard`), and the error log gets a message (level
        /// `warn`), at most one per second. `0` switches it off. Time in which the kernel ran other threads or programs
        /// on the loop's core does not count: it is counted apart (`freewheel_processor_waits_total`), and logged at
        /// most once a minute (level `notice`).
        stall_threshold: Msec = "10ms", [MAIN] 1;
        /// Sets how much memory the worker process may use besides the kernel's page cache: copies of small files,
        /// windows of responses being fetched, buffers, connections, indexes of caches.
        ///
        /// `auto` is three quarters of the lowest limit: of the control groups (versions 1 and 2, up to the root), of
        /// the process (RLIMIT_AS, RLIMIT_DATA) and of the machine. Copies of what is in the page cache take at most an
        /// eighth of it, regardless of the number of loops. When the budget, a limit or the kernel's pressure shows
        /// that memory is scarce, the server gives up, in this order: these copies, idle buffers, large windows, open
        /// files, storing what it fetches for a cache; and, when a limit is nearly reached, accepting connections at
        /// full speed and keeping idle ones. Requests are still served. Each step is logged (level `notice`) and is in
        /// the metrics (`freewheel_memory_scarcity`).
        memory_budget: MemoryBudget = "auto", [MAIN] 1;
        /// Declares a thread pool for operations that may wait for a disk.
        ///
        /// The pool `default` exists without being declared, with 32 threads per event loop, at most 512, and fewer
        /// where memory is small: one per 2 MiB of the lowest limit, but at least 32. With `max_queue=0` a pool accepts
        /// only as many tasks as it has idle threads.
        thread_pool: List<ThreadPool> = none, [MAIN] 2..=3;
    }
}

config::directives! {
    /// Events.
    ///
    /// How the event loops take connections.
    pub struct Events in Events {
        /// Sets how many connections one event loop may hold. When they run out, idle keep-alive connections are
        /// closed, the longest idle first; if there are none, new connections are refused. A number that is not above that of
        /// the listening sockets is an error, as in nginx.
        worker_connections: Connections = "512", [EVENTS] 1;
        /// Sets the event notification method. It is always epoll.
        use_ as "use": Option<Method> = none, [EVENTS] 1;
        /// Ignored: loops always accept all waiting connections, in batches.
        multi_accept: Flag = "off", [EVENTS] FLAG;
        /// Ignored: each loop has sockets of its own, so no mutex is needed.
        accept_mutex: Flag = "off", [EVENTS] FLAG;
        /// Ignored: there is no mutex to wait for.
        accept_mutex_delay: Option<Msec> = none, [EVENTS] 1;
        /// Ignored: disk reads go through thread pools, not through the kernel's asynchronous I/O.
        worker_aio_requests: Option<Number> = none, [EVENTS] 1;
        /// Ignored: there is no debug log of single connections.
        debug_connection: List<Bytes> = none, [EVENTS] 1, syntax "address | CIDR | unix:";
    }
}

config::blocks! {
    /// The events block.
    pub fn blocks in Main {
        /// Contains the directives of how event loops take connections.
        "events": [MAIN] 0 => EVENTS;
    }
}

/// `use`: a method that Linux has; epoll is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Method;

impl Value for Method {
    const SYNTAX: &'static str = "epoll | poll | select";

    fn parse(args: &[Word], _scope: &mut Scope) -> Result<Self, Problem> {
        if Self::SYNTAX.split(" | ").any(|name| args[0] == *name) {
            return Ok(Self);
        }
        let sentence = format!("invalid event type \"{}\"", args[0].display());
        Err(Problem::new(sentence)
            .at(0)
            .hint_that("it is always epoll: remove the line"))
    }
}

/// `worker_connections`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connections(pub u32);

impl Value for Connections {
    const SYNTAX: &'static str = "number";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        match Number::parse(args, scope) {
            Ok(Number(0)) => Err(Problem::new("0 worker_connections are not enough").at(0)),
            Ok(Number(count)) => Ok(Self(u32::try_from(count).unwrap_or(u32::MAX))),
            Err(_) => {
                let sentence = format!("invalid number \"{}\"", args[0].display());
                Err(Problem::new(sentence).at(0))
            }
        }
    }
}

config::choices! {
    /// `debug_points`.
    pub enum DebugPoints {
        /// Stop for a debugger.
        Stop = "stop",
        /// Leave a core file.
        Abort = "abort",
    }
}

/// `user`, by names; the master looks them up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The user.
    pub name: String,
    /// The group, if one is named.
    pub group: Option<String>,
}

impl Value for User {
    const SYNTAX: &'static str = "user [group]";

    fn parse(args: &[Word], _scope: &mut Scope) -> Result<Self, Problem> {
        let name = args[0].display().into_owned();
        let group = args.get(1).map(|word| word.display().into_owned());
        Ok(Self { name, group })
    }

    /// Of a process that cannot change its user nginx only warns, however often the line is repeated.
    fn set(slot: &mut Option<Self>, args: &[Word], scope: &mut Scope) -> Result<(), Problem> {
        if slot.is_some() && is_root() {
            return Err(Problem::duplicate());
        }
        *slot = Some(Self::parse(args, scope)?);
        Ok(())
    }
}

/// `worker_processes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loops {
    /// One per CPU.
    Auto,
    /// So many.
    Count(usize),
}

impl Loops {
    /// How many that is; of `auto` [`Main::settle`] has made a number.
    #[must_use]
    pub fn count(self) -> usize {
        match self {
            Self::Auto => 1,
            Self::Count(count) => count,
        }
        .clamp(1, runtime::LOOPS_MAX)
    }
}

impl Value for Loops {
    const SYNTAX: &'static str = "number | auto";

    fn parse(args: &[Word], _scope: &mut Scope) -> Result<Self, Problem> {
        if args[0] == "auto" {
            return Ok(Self::Auto);
        }
        let count = config::parse_number(args[0].bytes());
        match count.map(|count| usize::try_from(count).unwrap_or(usize::MAX)) {
            Some(count) if count > runtime::LOOPS_MAX => {
                let most = runtime::LOOPS_MAX;
                Err(Problem::directive("invalid value")
                    .at(0)
                    .hint_that(format!("there may be {most} loops")))
            }
            Some(count) => Ok(Self::Count(count)),
            None => Err(Problem::directive("invalid value").at(0)),
        }
    }
}

/// `worker_priority`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Priority(pub i32);

impl Value for Priority {
    const SYNTAX: &'static str = "number";

    fn parse(args: &[Word], _scope: &mut Scope) -> Result<Self, Problem> {
        let text = args[0].display();
        // The kernel takes the nearest that there is, from -20 to 19, as it does for nginx.
        let number = text
            .parse()
            .map_err(|_| Problem::directive("invalid number").at(0))?;
        Ok(Self(number))
    }

    /// In nginx 0 is as if nothing were said.
    fn set(slot: &mut Option<Self>, args: &[Word], scope: &mut Scope) -> Result<(), Problem> {
        if slot.as_ref().is_some_and(|earlier| earlier.0 != 0) {
            return Err(Problem::duplicate());
        }
        *slot = Some(Self::parse(args, scope)?);
        Ok(())
    }
}

/// `load_module`: the file of a module, which is not loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module;

impl Value for Module {
    const SYNTAX: &'static str = "file";

    fn parse(_: &[Word], _scope: &mut Scope) -> Result<Self, Problem> {
        Ok(Self)
    }
}

/// The part of a configuration that the processes need.
#[derive(Debug, Clone)]
pub struct Main {
    /// Outside of every block.
    pub processes: Processes,
    /// In `events`.
    pub events: Events,
}

impl Main {
    /// The tables of these directives.
    #[must_use]
    pub fn tables() -> Vec<&'static config::DirectiveTable> {
        let mut tables = Processes::tables();
        tables.extend(Events::tables());
        tables.push(blocks());
        tables
    }

    /// Reads them out of a tree; other directives are passed over.
    ///
    /// # Errors
    /// A wrong value, a second line, no `events` block; at its place. Warnings go to `scope`.
    pub fn read(tree: &Tree, scope: &mut Scope) -> Result<Self, Error> {
        let mut processes = <Processes as config::Section>::Raw::default();
        let mut events = <Events as config::Section>::Raw::default();
        let mut block: Option<&Directive> = None;
        let mut pools = Declared::default();
        for directive in &tree.directives {
            if directive.name == "thread_pool" {
                pools.add(directive)?;
            }
            if directive.name == "events" {
                if block.replace(directive).is_some() {
                    return Err(directive.error(&Problem::duplicate()));
                }
                for inner in directive.children() {
                    Events::set(&mut events, inner, scope)?;
                }
            } else {
                Processes::set(&mut processes, directive, scope)?;
            }
            if let Some(reason) = why_ignored(directive) {
                scope.warn(directive.warning(&Problem::ignored(reason)));
            }
        }
        warn_of_modules(tree, scope);
        for inner in block.map(Directive::children).unwrap_or_default() {
            if let Some(reason) = why_ignored(inner) {
                scope.warn(inner.warning(&Problem::ignored(reason)));
            }
        }
        if block.is_none() {
            let hint = "put a line \"events { }\" outside of every block: its directives all have defaults";
            let error = Error::without_place("no \"events\" section in configuration");
            return Err(error.with_hint(Some(hint)));
        }
        Ok(Self {
            processes: Processes::finish(processes, scope)?,
            events: Events::finish(events, scope)?,
        })
    }

    /// Says what `auto` means where there are so many cores. Warnings go to `scope`.
    pub fn settle(&mut self, cores: usize, scope: &mut Scope) {
        let loops = &mut self.processes.worker_processes;
        if *loops == Loops::Auto {
            *loops = Loops::Count(cores);
        }
        if let Some(Affinity::Masks(masks)) = &self.processes.worker_cpu_affinity
            && ![1, loops.count()].contains(&masks.len())
        {
            scope.warn(Error::without_place(
                "the number of \"worker_processes\" is not equal to the number of \"worker_cpu_affinity\" masks, \
                 using last mask for remaining worker processes",
            ));
        }
    }
}

/// Tells once that modules are not loaded, however many there are: distributions load theirs for everybody.
fn warn_of_modules(tree: &Tree, scope: &mut Scope) {
    let mut lines = tree
        .directives
        .iter()
        .filter(|line| line.name == "load_module");
    let Some(first) = lines.next() else { return };
    let all = match lines.count() {
        0 => "is ignored".to_owned(),
        more => format!("is ignored, here and in {more} more lines"),
    };
    let why =
        "what is built in needs no module, a directive of any other is refused where it stands";
    scope.warn(first.warning(&Problem::directive(format!("{all}: {why}"))));
}

/// The reason why a directive means nothing here, when its value asks for something that is not so anyway.
fn why_ignored(directive: &Directive) -> Option<&'static str> {
    let is_on = directive
        .args
        .first()
        .is_some_and(|word| word.bytes().eq_ignore_ascii_case(b"on"));
    match &directive.name.bytes()[..] {
        b"debug_points" => Some("a failed check ends the connection or the worker, and is logged"),
        b"pcre_jit" if !is_on => Some("regular expressions always use the just-in-time compiler"),
        b"worker_aio_requests" => Some("disk reads go through thread pools"),
        b"debug_connection" => Some("there is no debug log of single connections"),
        b"use" if directive.args.first().is_some_and(|word| *word != "epoll") => {
            Some("the method is always epoll")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Main, String> {
        let tree = config::parse_bytes(text.as_bytes()).map_err(|error| error.to_string())?;
        Main::read(&tree, &mut Scope::new()).map_err(|error| error.sentence().to_owned())
    }

    #[test]
    fn all_modules_are_one_warning() {
        let warnings = |text: &str| -> Vec<String> {
            let tree = config::parse_bytes(text.as_bytes()).unwrap();
            let mut scope = Scope::new();
            Main::read(&tree, &mut scope).unwrap();
            let told = scope.take_warnings();
            told.iter().map(|told| told.sentence().to_owned()).collect()
        };
        let why =
            "what is built in needs no module, a directive of any other is refused where it stands";
        assert_eq!(
            warnings("load_module a.so; load_module b.so; load_module c.so; events { }"),
            [format!(
                "\"load_module\" directive is ignored, here and in 2 more lines: {why}"
            )]
        );
        assert_eq!(
            warnings("load_module a.so; events { }"),
            [format!("\"load_module\" directive is ignored: {why}")]
        );
        assert!(warnings("events { }").is_empty());
    }

    #[test]
    fn defaults_are_nginx_s() {
        let main = read("events { }").unwrap();
        assert!(main.processes.daemon && main.processes.master_process);
        assert_eq!(main.processes.worker_processes, Loops::Count(1));
        assert_eq!(main.events.worker_connections, Connections(512));
    }

    #[test]
    fn values_are_read() {
        let main = read(
            "user www; worker_processes auto; worker_priority -5; thread_pool a threads=4 max_queue=0;
             worker_cpu_affinity 0101 1000; events { use epoll; worker_connections 10; }",
        )
        .unwrap();
        let user = User {
            name: "www".to_owned(),
            group: None,
        };
        assert_eq!(main.processes.user, Some(user));
        assert_eq!(main.processes.worker_processes, Loops::Auto);
        assert_eq!(main.processes.worker_priority, Priority(-5));
        assert_eq!(
            main.processes.worker_cpu_affinity.unwrap().cpus(2, 2),
            [vec![0, 2], vec![3]]
        );
        let pool = ThreadPool {
            name: "a".to_owned(),
            threads: 4,
            max_queue: 0,
        };
        assert_eq!(main.processes.thread_pool.0, [pool]);
    }

    #[test]
    fn masks_that_are_not_one_for_each_loop_are_a_warning() {
        let told = |loops: &str, masks: &str| {
            let lines = format!("worker_processes {loops}; worker_cpu_affinity {masks};");
            let mut scope = Scope::new();
            let mut main = read(&format!("{lines} events {{ }}")).unwrap();
            main.settle(2, &mut scope);
            scope.take_warnings().len()
        };
        assert_eq!([told("4", "01 10"), told("4", "01")], [1, 0]);
    }

    #[test]
    fn wrong_values_have_nginx_s_sentences() {
        let refused = |text: &str| read(&format!("{text} events {{ }}")).unwrap_err();
        assert_eq!(
            refused("worker_processes x;"),
            "\"worker_processes\" directive invalid value"
        );
        assert_eq!(
            refused("worker_priority 4x;"),
            "\"worker_priority\" directive invalid number"
        );
        assert_eq!(
            refused("worker_cpu_affinity 012;"),
            "invalid character \"2\" in \"worker_cpu_affinity\""
        );
        assert_eq!(
            refused("thread_pool a max_queue=1;"),
            "\"thread_pool\" must have \"threads\" parameter for \"a\""
        );
        assert_eq!(
            refused("thread_pool a threads=0;"),
            "invalid threads value \"threads=0\""
        );
        assert_eq!(
            refused("thread_pool a threads=1; thread_pool a threads=2;"),
            "duplicate thread pool \"a\""
        );
        let events = |text: &str| read(&format!("events {{ {text} }}")).unwrap_err();
        assert_eq!(events("use kqueue;"), "invalid event type \"kqueue\"");
        assert_eq!(events("worker_connections x;"), "invalid number \"x\"");
        assert_eq!(
            events("worker_connections 0;"),
            "0 worker_connections are not enough"
        );
        assert_eq!(
            refused("daemon on; daemon off;"),
            "\"daemon\" directive is duplicate"
        );
        // Without root's rights the line is only warned of, however often.
        assert_eq!(read("user a; user b; events { }").is_err(), is_root());
        assert_eq!(
            read("daemon on;").unwrap_err(),
            "no \"events\" section in configuration"
        );
    }

    #[test]
    fn what_means_nothing_here_is_said_once() {
        let tree = config::parse_bytes(
            b"lock_file x; debug_points stop; timer_resolution 1s; pcre_jit off;
              events { accept_mutex on; accept_mutex_delay 1s; multi_accept on; use epoll; }",
        )
        .unwrap();
        let mut scope = Scope::new();
        Main::read(&tree, &mut scope).unwrap();
        assert_eq!(scope.take_warnings().len(), 2);
    }
}
