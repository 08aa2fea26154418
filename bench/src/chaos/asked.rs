//! Paths, `/HOW/SIZE/SEED`, and the bytes behind them.

use bench::content;
use std::sync::OnceLock;

/// Sizes of bodies in bytes: around the buffers that servers have.
pub const SIZES: [u64; 10] = [
    0,
    1,
    300,
    1000,
    4096,
    20_000,
    70_000,
    200_000,
    1 << 20,
    3 << 20,
];
/// Seeds that are asked for again, so that caches have something to keep.
pub const SEEDS: u64 = 60;
/// Bodies of one path, where there are several.
pub const VERSIONS: u64 = 3;
/// Request field: which of them is asked for.
pub const KIND: &str = "x-kind";
/// Response field: which of them it is.
pub const VERSION: &str = "x-version";
/// Apart from all seeds of paths.
const VERSION_STEP: u64 = 1 << 40;

/// How an origin answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// With a length.
    Whole,
    /// Without one.
    Chunked,
    /// The end comes too early; no length.
    Cut,
    /// The end comes before what the length says.
    Short,
    /// In pieces with pauses.
    Slow,
    /// After up to 0.6 s.
    Late,
    /// No answer: the connection or stream is broken off.
    Gone,
    /// As `Gone`, every other time.
    Sometimes,
    /// Before the request's body was read.
    Early,
    /// Status 500.
    Failed,
    /// To be revalidated each time, while the old one may be sent.
    Stale,
    /// Trailers behind it.
    Trailers,
    /// The connection ends behind it.
    Close,
    /// With a longer life, for caches.
    Fresh,
    /// Another body each time, with a tag of its own.
    Changing,
    /// The body that a field of the request asks for (`Vary`).
    Varied,
}

/// All of them, by name.
pub const HOWS: [(&str, How); 16] = [
    ("whole", How::Whole),
    ("chunked", How::Chunked),
    ("cut", How::Cut),
    ("short", How::Short),
    ("slow", How::Slow),
    ("late", How::Late),
    ("gone", How::Gone),
    ("sometimes", How::Sometimes),
    ("early", How::Early),
    ("failed", How::Failed),
    ("stale", How::Stale),
    ("trailers", How::Trailers),
    ("close", How::Close),
    ("fresh", How::Fresh),
    ("changing", How::Changing),
    ("varied", How::Varied),
];

/// What a path asks for.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    /// How it is to be answered.
    pub how: How,
    /// Of the body, in bytes.
    pub size: u64,
    /// Which body.
    pub seed: u64,
}

impl Asked {
    /// None: not such a path.
    pub fn parse(path: &str) -> Option<Asked> {
        let mut parts = path.trim_start_matches('/').split('?').next()?.split('/');
        let (how, size, seed) = (parts.next()?, parts.next()?, parts.next()?);
        let how = HOWS.iter().find(|(name, _)| *name == how)?.1;
        Some(Asked {
            how,
            size: size.parse().ok()?,
            seed: seed.parse().ok()?,
        })
    }

    /// Any of them.
    pub fn any() -> Asked {
        let how = if fastrand::u8(..3) == 0 {
            How::Whole
        } else {
            HOWS[fastrand::usize(..HOWS.len())].1
        };
        let size = SIZES[fastrand::usize(..SIZES.len())];
        Asked {
            how,
            size: if how == How::Slow {
                size.min(200_000)
            } else {
                size
            },
            seed: fastrand::u64(
                ..if fastrand::u8(..3) == 0 {
                    1 << 30
                } else {
                    SEEDS
                },
            ),
        }
    }

    /// The seed of the body of that version.
    pub fn seed_of(&self, version: u64) -> u64 {
        self.seed + version * VERSION_STEP
    }

    /// Without the slash that locations end with.
    pub fn path(&self) -> String {
        let name = HOWS.iter().find(|(_, how)| *how == self.how);
        format!(
            "{}/{}/{}",
            name.map_or("", |(name, _)| name),
            self.size,
            self.seed
        )
    }
}

/// The same for all paths.
fn bytes() -> &'static content::Bytes {
    static BYTES: OnceLock<content::Bytes> = OnceLock::new();
    BYTES.get_or_init(content::Bytes::new)
}

/// Up to `max` bytes of the body of a seed from `at` on, at most a megabyte.
pub fn part(seed: u64, at: u64, max: usize) -> &'static [u8] {
    bytes().part(content::place(&seed.to_string(), 0), at, max)
}

/// The whole of a body, for files.
pub fn whole(seed: u64, size: u64) -> Vec<u8> {
    let mut body = Vec::new();
    while (body.len() as u64) < size {
        let left = usize::try_from(size).unwrap_or(usize::MAX) - body.len();
        body.extend_from_slice(part(seed, body.len() as u64, left));
    }
    body
}

/// Where the first byte stands that is not that of the body.
pub fn difference(seed: u64, at: u64, came: &[u8]) -> Option<u64> {
    let mut done = 0;
    while done < came.len() {
        let wanted = part(seed, at + done as u64, came.len() - done);
        let here = &came[done..done + wanted.len()];
        if here != wanted {
            let first = here
                .iter()
                .zip(wanted)
                .position(|(one, other)| one != other);
            return Some(at + (done + first.unwrap_or(0)) as u64);
        }
        done += wanted.len();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_what_was_asked_for() {
        for (name, how) in HOWS {
            let asked = Asked::parse(&format!("/{name}/300/7?x")).expect("a path");
            assert_eq!((asked.how, asked.size, asked.seed), (how, 300, 7));
            assert_eq!(asked.path(), format!("{name}/300/7"));
        }
        for bad in ["/", "/whole/1", "/what/1/1", "/whole/x/1"] {
            assert!(Asked::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn a_changed_byte_is_found_where_it_stands() {
        let mut came = part(5, 100, 1000).to_vec();
        assert_eq!(difference(5, 100, &came), None);
        came[700] ^= 1;
        assert_eq!(difference(5, 100, &came), Some(800));
        assert_eq!(difference(6, 100, &came), Some(100));
    }
}
