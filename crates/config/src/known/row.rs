//! A row of nginx's grammar, the reasons why a directive is ignored or refused, and the macro that makes the tables.

use crate::table::args::Args;
use crate::table::context::Context;

/// One directive of one nginx module.
#[derive(Clone, Copy, Debug)]
pub struct KnownDirective {
    /// The directive's name.
    pub name: &'static str,
    /// Where nginx allows it.
    pub contexts: Context,
    /// How many arguments nginx takes, and whether a block follows.
    pub args: Args,
    /// nginx's module, named as in its documentation without `ngx_` and `_module`: `http_core`, `stream_proxy`.
    pub module: &'static str,
    /// What becomes of it where no table of ours has it.
    pub fate: Fate,
}

/// What becomes of a directive of nginx that is not implemented here. Each reason is a clause that completes a
/// sentence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Planned; until then a configuration with it is refused.
    NotYet,
    /// What it is for is so without it: accepted without a word, since its line may stay and nothing is missing.
    Met(&'static str),
    /// Ignoring it changes no response, but what it asks for is not done: one warning, with the reason.
    Ignored(&'static str),
    /// Will never be implemented: a configuration with it is refused, with the reason.
    Refused(&'static str),
}

pub(super) const TABLES_GROW: Fate = Fate::Met("Freewheel's tables take the size that they need");
pub(super) const NO_MEMORY_POOLS: Fate =
    Fate::Met("Freewheel does not take memory in pools of a fixed size");
pub(super) const ONE_SEND: Fate =
    Fate::Met("Freewheel always sends the head and what is ready of the body together");
pub(super) const NO_LOW_WATER: Fate =
    Fate::Met("Linux has no low-water mark for sending, and nginx does nothing with it there");
pub(super) const LOOP_BUFFER: Fate =
    Fate::Met("a piece is read into a buffer of its loop, and an idle tunnel holds none");
pub(super) const NO_MUTEX: Fate =
    Fate::Met("each loop has its own listening socket, so there is no mutex to take");
pub(super) const OWN_EVENTS: Fate = Fate::Met("the event loops size their own lists of events");
pub(super) const EPOLL_ONLY: Fate = Fate::Met("Freewheel's loops always use epoll");
pub(super) const ACCEPTS_ALL: Fate =
    Fate::Met("a loop always accepts the connections that are waiting");
pub(super) const ALWAYS_JIT: Fate =
    Fate::Met("regular expressions are always compiled to machine code where PCRE2 can");
pub(super) const NO_DEBUG: Fate =
    Fate::Ignored("Freewheel has no debugging log; nginx without --with-debug ignores it too");
pub(super) const OBSOLETE: Fate = Fate::Ignored("it is obsolete, and nginx ignores it too");
pub(super) const NO_STORED_BODY: Fate = Fate::Ignored(
    "only what passes requests on stores their bodies, and nothing of that is built yet",
);
pub(super) const TEXTS_ARE_READ: Fate =
    Fate::Met("Freewheel sends all parts of a page with commands from memory");
pub(super) const NO_RECYCLED_BUFFERS: Fate = Fate::Met("Freewheel does not recycle buffers");
pub(super) const NO_INTERIM: Fate =
    Fate::Ignored("early hints of servers that requests are passed on to are not passed on yet");
pub(super) const NO_NAMES: Fate =
    Fate::Ignored("nothing that asks for names while it serves is built yet");
pub(super) const NO_KQUEUE: Fate =
    Fate::Met("it is for kqueue, and nginx does nothing with it on Linux");
pub(super) const NO_HTTP2: Fate =
    Fate::Ignored("it has no effect without HTTP/2, which is not built yet");
pub(super) const NO_ECH: Fate = Fate::Refused(
    "the TLS library has no Encrypted Client Hello for servers (https://github.com/rustls/rustls/issues/1980)",
);
pub(super) const NO_OBJECT_CACHE: Fate =
    Fate::Ignored("each file of a certificate is read once for each configuration");
pub(super) const NO_TLS_BEHIND: Fate = Fate::Ignored(
    "it has no effect without TLS to other servers, which is not built yet and without which none is asked over \"https://\"",
);
pub(super) const GZIP_MEMORY: Fate =
    Fate::Met("answers are compressed piece by piece, with the memory that a piece needs");
pub(super) const GZIP_HASH: Fate =
    Fate::Met("the compressor chooses the size of its tables itself");
pub(super) const OTHER_SYSTEM: Fate =
    Fate::Refused("it belongs to an event method of another operating system");
pub(super) const NO_PERFTOOLS: Fate =
    Fate::Refused("the profiler of Google's performance tools is not linked; use perf");
pub(super) const NO_SBRK: Fate =
    Fate::Refused("it watches the heap's break, which this program's allocator does not use");
pub(super) const NO_PERL: Fate = Fate::Refused("there is no Perl interpreter in Freewheel");
pub(super) const NO_ENGINE: Fate =
    Fate::Refused("engines are OpenSSL's, and Freewheel does not use OpenSSL");

/// Turns `"module" { "name": [CONTEXT | …] arguments [block] [=> FATE]; … } …` into `ROWS`. The arguments are as in the
/// `directives!` tables: `1`, `(1..=2)`, `(2..)`, `FLAG`.
macro_rules! rows {
    ($($module:literal {
        $($name:literal: [$($context:ident)|+] $args:tt $($block:ident)? $(=> $fate:ident)?;)*
    })*) => {
        pub(super) const ROWS: &[$crate::known::row::KnownDirective] = &[$($($crate::known::row::KnownDirective {
            name: $name,
            contexts: $crate::table::context::Context::NONE$(.or($crate::table::context::Context::$context))+,
            args: $crate::known::row::arguments!($args)$(.$block())?,
            module: $module,
            fate: $crate::known::row::fate!($($fate)?),
        },)*)*];
    };
}

macro_rules! arguments {
    (FLAG) => {
        $crate::table::args::Args::FLAG
    };
    (($least:literal..=$most:literal)) => {
        $crate::table::args::Args::between($least, $most)
    };
    (($least:literal..)) => {
        $crate::table::args::Args::at_least($least)
    };
    ($count:literal) => {
        $crate::table::args::Args::exactly($count)
    };
}

macro_rules! fate {
    () => {
        $crate::known::row::Fate::NotYet
    };
    ($fate:ident) => {
        $crate::known::row::$fate
    };
}

pub(super) use {arguments, fate, rows};
