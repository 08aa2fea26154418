//! One loop's counters of modules that only some configurations use: compression, passwords, sub-requests, and the
//! headers in which proxies describe their clients.
//!
//! Invariant: labels are the names of these lists; a family is shown where the configuration uses the module, or after
//! its first count.

use disk::metrics::{Histogram, Number, Times};

use super::zones::CLASSES;
use super::{Family, Page};
use crate::after::compression;
use crate::settings::Settings;

/// Declares a list whose members are counted, with their names.
macro_rules! told_apart {
    ($(#[$about:meta])* $List:ident { $($(#[$each:meta])* $Member:ident = $name:literal,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(usize)]
        pub enum $List {
            $($(#[$each])* $Member,)*
        }

        impl $List {
            /// Their names, in their order.
            pub const NAMES: [&str; [$($name),*].len()] = [$($name),*];
        }
    };
}

told_apart! {
    /// Codings of answers on their way.
    Codec {
        /// Compressed with gzip.
        Gzip = "gzip",
        /// With brotli.
        Brotli = "br",
        /// With zstd.
        Zstd = "zstd",
        /// Decompressed, for clients that do not accept gzip.
        Gunzip = "gunzip",
    }
}

told_apart! {
    /// What `auth_basic` has found.
    Password {
        /// It was right.
        Right = "right",
        /// It was found right a short while ago.
        Remembered = "remembered",
        /// None was said.
        Missing = "missing",
        /// Of a user who is not in the file.
        UnknownUser = "unknown_user",
        /// It was wrong.
        Wrong = "wrong",
        /// What the file has cannot be read.
        Unreadable = "unreadable",
        /// It could not be found out: there is no file, or the pool is full.
        Failed = "failed",
    }
}

told_apart! {
    /// Who asks for a sub-request.
    By {
        /// `auth_request`.
        AuthRequest = "auth_request",
        /// `mirror`.
        Mirror = "mirror",
        /// `slice`, for each slice but the first.
        Slice = "slice",
        /// `add_before_body`, `add_after_body`.
        Addition = "addition",
        /// `include` of `ssi`.
        Ssi = "ssi",
        /// `post_action`.
        PostAction = "post_action",
    }
}

told_apart! {
    /// What came before the first request of a connection.
    Prologue {
        /// A header of the PROXY protocol.
        Read = "read",
        /// Something else.
        Broken = "broken",
        /// Not enough, and then nothing more.
        Missing = "missing",
    }
}

told_apart! {
    /// What came of a header in which a trusted proxy names its client.
    Named {
        /// The client's address was replaced.
        Replaced = "replaced",
        /// There is no address in it.
        Invalid = "invalid",
    }
}

/// Classes of status, and one for what has none: it was closed, or was never begun.
const OUTCOMES: usize = CLASSES.len() + 1;
const NO_STATUS: &str = "none";

/// What is counted of a coding.
#[derive(Debug, Default)]
pub struct CodecFigures {
    /// Answers that were begun.
    pub responses: Number,
    /// Bytes that went in.
    pub taken: Number,
    /// Bytes that came out.
    pub given: Number,
    /// Time that it took on the loop, in nanoseconds.
    pub loop_ns: Number,
    /// Processor time that it took in the pool.
    pub pool_ns: Number,
}

/// The figures of one loop.
#[derive(Debug, Default)]
pub struct ModuleFigures {
    codecs: [CodecFigures; Codec::NAMES.len()],
    passwords: [Number; Password::NAMES.len()],
    /// How long it took to check passwords that were not remembered.
    pub checks: Histogram,
    /// Refusals that `auth_delay` held back.
    pub delayed: Number,
    subrequests: [[Number; OUTCOMES]; By::NAMES.len()],
    prologues: [Number; Prologue::NAMES.len()],
    named: [Number; Named::NAMES.len()],
}

impl ModuleFigures {
    /// What is counted of a coding.
    #[must_use]
    pub fn codec(&self, codec: Codec) -> &CodecFigures {
        &self.codecs[codec as usize]
    }

    /// A password was asked for.
    pub fn count_password(&self, found: Password) {
        self.passwords[found as usize].add(1);
    }

    /// A sub-request was answered with this status; `None`: it was closed without one, or could not be made.
    pub fn count_subrequest(&self, by: By, status: Option<u16>) {
        let class = match status {
            Some(status @ 100..=599) => usize::from(status / 100) - 1,
            Some(_) => CLASSES.len() - 1,
            None => CLASSES.len(),
        };
        self.subrequests[by as usize][class].add(1);
    }

    /// A connection began so.
    pub fn count_prologue(&self, came: Prologue) {
        self.prologues[came as usize].add(1);
    }

    /// A trusted proxy said who its client is.
    pub fn count_named(&self, came: Named) {
        self.named[came as usize].add(1);
    }
}

/// What all loops have counted.
#[derive(Debug, Default)]
pub(super) struct ModuleSum {
    /// Responses, bytes in, bytes out, nanoseconds on loops, nanoseconds in the pool.
    codecs: [[u64; 5]; Codec::NAMES.len()],
    passwords: [u64; Password::NAMES.len()],
    checks: Times,
    delayed: u64,
    subrequests: [[u64; OUTCOMES]; By::NAMES.len()],
    prologues: [u64; Prologue::NAMES.len()],
    named: [u64; Named::NAMES.len()],
}

impl ModuleSum {
    /// Adds those of a loop.
    pub fn add(&mut self, figures: &ModuleFigures) {
        for (sum, codec) in self.codecs.iter_mut().zip(&figures.codecs) {
            let numbers = [
                &codec.responses,
                &codec.taken,
                &codec.given,
                &codec.loop_ns,
                &codec.pool_ns,
            ];
            add_each(sum, numbers);
        }
        add_each(&mut self.passwords, &figures.passwords);
        self.checks.merge(&figures.checks);
        self.delayed += figures.delayed.get();
        for (sum, by) in self.subrequests.iter_mut().zip(&figures.subrequests) {
            add_each(sum, by);
        }
        add_each(&mut self.prologues, &figures.prologues);
        add_each(&mut self.named, &figures.named);
    }

    /// Writes them.
    pub fn show(self, page: &mut Page, used: &Used) {
        self.show_codecs(page, used);
        self.show_passwords(page, used);
        let (is_used, counts) = (&used.subrequests, self.subrequests);
        for ((by, counts), is_used) in By::NAMES.iter().zip(counts).zip(is_used) {
            if *is_used || is_any(&counts) {
                let classes = CLASSES.iter().chain([&NO_STATUS]);
                for (class, count) in classes.zip(counts) {
                    page.whole(Family::Subrequests, &[by, class], count);
                }
            }
        }
        if used.has_prologues || is_any(&self.prologues) {
            for (came, count) in Prologue::NAMES.iter().zip(self.prologues) {
                page.whole(Family::ProxyProtocol, &[came], count);
            }
        }
        if used.has_names || is_any(&self.named) {
            for (came, count) in Named::NAMES.iter().zip(self.named) {
                page.whole(Family::RealIp, &[came], count);
            }
        }
    }

    fn show_codecs(&self, page: &mut Page, used: &Used) {
        let all = Codec::NAMES.iter().zip(&self.codecs).zip(&used.codecs);
        for ((codec, counts), is_used) in all {
            if *is_used || is_any(counts) {
                let [responses, taken, given, loop_ns, pool_ns] = *counts;
                page.whole(Family::Compressed, &[codec], responses);
                page.whole(Family::CompressionBytes, &[codec, "in"], taken);
                page.whole(Family::CompressionBytes, &[codec, "out"], given);
                page.nanoseconds(Family::CompressionTook, &[codec, "loop"], loop_ns);
                page.nanoseconds(Family::CompressionTook, &[codec, "pool"], pool_ns);
            }
        }
    }

    fn show_passwords(&self, page: &mut Page, used: &Used) {
        if used.has_passwords || is_any(&self.passwords) {
            for (found, count) in Password::NAMES.iter().zip(self.passwords) {
                page.whole(Family::Passwords, &[found], count);
            }
            page.times(Family::PasswordChecks, &[], self.checks.clone());
        }
        if used.has_delays || self.delayed > 0 {
            page.whole(Family::AuthDelayed, &[], self.delayed);
        }
    }
}

fn add_each<'a>(sums: &mut [u64], numbers: impl IntoIterator<Item = &'a Number>) {
    for (sum, number) in sums.iter_mut().zip(numbers) {
        *sum += number.get();
    }
}

fn is_any(counts: &[u64]) -> bool {
    counts.iter().any(|count| *count > 0)
}

/// What of all that a configuration has.
#[derive(Debug, Default)]
pub(super) struct Used {
    codecs: [bool; Codec::NAMES.len()],
    has_passwords: bool,
    has_delays: bool,
    subrequests: [bool; By::NAMES.len()],
    has_prologues: bool,
    has_names: bool,
}

impl Used {
    /// Looks through a configuration.
    pub fn of(settings: &Settings) -> Self {
        let mut used = Self::default();
        for location in settings.locations() {
            let own = &location.settings;
            let codecs = [
                own.gzip.gzip,
                own.brotli.brotli,
                own.zstd.zstd,
                own.gunzip.gunzip,
            ];
            let subrequests = [
                own.auth_request.auth_request.is_some(),
                own.mirroring.mirror.is_any(),
                own.slicing.slice.0 > 0,
                own.addition.is_any(),
                own.ssi.ssi,
                own.post_action.post_action.is_some(),
            ];
            either(&mut used.codecs, codecs);
            either(&mut used.subrequests, subrequests);
            used.has_passwords |= own.auth_basic.auth_basic.is_some();
            used.has_delays |= own.admission.auth_delay.0 > 0;
            used.has_names |= !own.real_ip.set_real_ip_from.is_empty();
        }
        let entries = settings.listens.entries();
        used.has_prologues = entries.iter().any(|entry| entry.has_proxy_protocol);
        used
    }
}

fn either<const N: usize>(all: &mut [bool; N], more: [bool; N]) {
    for (known, is_used) in all.iter_mut().zip(more) {
        *known |= is_used;
    }
}

impl From<compression::Coding> for Codec {
    fn from(coding: compression::Coding) -> Self {
        match coding {
            compression::Coding::Gzip => Self::Gzip,
            compression::Coding::Brotli => Self::Brotli,
            compression::Coding::Zstd => Self::Zstd,
        }
    }
}
