//! Counters of compression and decompression, by coding.

use disk::metrics::Number;
use runtime::metrics::Page;
use runtime::timing::counters::COUNTERS;
use runtime::{families, label_values};
use slots::slotted;

use super::Coding;
use crate::after::compression::brotli::Brotli;
use crate::after::compression::gunzip::Gunzip;
use crate::after::compression::gzip::Gzip;
use crate::after::compression::zstd::Zstd;
use config::Groups;
use httpcore::handler::metrics::{ModuleMetrics, Shown};

families! {
    /// The families of these counters.
    FAMILIES;
    COMPRESSED Counter "freewheel_compression_responses" "" ["encoding"] "Responses whose compression, or decompression (gunzip), was started.";
    COMPRESSION_REFUSED Counter "freewheel_compression_refused" "" ["encoding"] "Responses that were not compressed with this since compressors have all the memory that they may have.";
    COMPRESSION_BYTES Counter "freewheel_compression_bytes" "bytes" ["encoding", "direction"] "Bytes of these, before and after.";
    COMPRESSION_TOOK Counter "freewheel_compression_seconds" "seconds" ["encoding", "place"] "Time of compression on a loop, which only handles small amounts, and processor time in the pool cpu.";
}

slotted!(COUNTERS: CodecCounters);

/// How they are shown.
pub static METRICS: ModuleMetrics = ModuleMetrics {
    families: FAMILIES,
    show,
};

label_values! {
    /// Codings of answers on their way.
    pub enum Codec {
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

impl From<Coding> for Codec {
    fn from(coding: Coding) -> Self {
        match coding {
            Coding::Gzip => Self::Gzip,
            Coding::Brotli => Self::Brotli,
            Coding::Zstd => Self::Zstd,
        }
    }
}

/// The counters of one loop.
#[derive(Debug, Default)]
pub(super) struct CodecCounters([OfCodec; Codec::ALL.len()]);

/// The counters of one coding.
#[derive(Debug, Default)]
pub(super) struct OfCodec {
    /// Responses that were begun.
    pub responses: Number,
    /// Responses for whose compressor there was no place.
    pub refused: Number,
    /// Bytes of input.
    pub taken: Number,
    /// Bytes of output.
    pub given: Number,
    /// Time that coding took on the loop, in nanoseconds.
    pub loop_ns: Number,
    /// Processor time that it took in the pool, in nanoseconds.
    pub pool_ns: Number,
}

impl CodecCounters {
    /// The counters of a coding.
    #[must_use]
    pub(super) fn of(&self, codec: Codec) -> &OfCodec {
        &self.0[codec as usize]
    }
}

fn show(shown: &Shown<'_>, page: &mut Page) {
    let loops = shown.loops::<CodecCounters>();
    for codec in Codec::ALL {
        let sum = |number: fn(&OfCodec) -> &Number| loops.sum(|all| number(all.of(codec)));
        let responses = sum(|counters| &counters.responses);
        let is_used = || shown.is_any_location(|location| uses(location.groups(), codec));
        let refused = sum(|counters| &counters.refused);
        if responses == 0 && refused == 0 && !is_used() {
            continue;
        }
        let name = codec.name();
        page.whole(&COMPRESSED, &[name], responses);
        if codec != Codec::Gunzip {
            page.whole(&COMPRESSION_REFUSED, &[name], refused);
        }
        page.whole(&COMPRESSION_BYTES, &[name, "in"], sum(|one| &one.taken));
        page.whole(&COMPRESSION_BYTES, &[name, "out"], sum(|one| &one.given));
        let (loop_ns, pool_ns) = (sum(|one| &one.loop_ns), sum(|one| &one.pool_ns));
        page.nanoseconds(&COMPRESSION_TOOK, &[name, "loop"], loop_ns);
        page.nanoseconds(&COMPRESSION_TOOK, &[name, "pool"], pool_ns);
    }
}

fn uses(settings: &dyn Groups, codec: Codec) -> bool {
    match codec {
        Codec::Gzip => settings.own::<Gzip>().gzip,
        Codec::Brotli => settings.own::<Brotli>().brotli,
        Codec::Zstd => settings.own::<Zstd>().zstd,
        Codec::Gunzip => settings.own::<Gunzip>().gunzip,
    }
}
