//! The paths of the origin, `/SIZE[,OPTION[=VALUE]…]/KEY`, and the bytes behind them.
//!
//! Not the origin and not the checker, which both ask here. Invariant: path and version give every byte of a body.

use std::time::Duration;

/// A prime a little under 1 MiB: nothing that is shifted by a block of any usual size looks right.
const PERIOD: usize = 1_048_573;
/// Of a body, in bytes.
const SIZE_MAX: u64 = 1 << 32;

/// What a path asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wanted {
    /// Of the body, in bytes.
    pub size: u64,
    /// `delay=MS`: before the head.
    pub delay: Duration,
    /// `spread=MS`: the body comes in parts over this time.
    pub spread: Duration,
    /// `age=S`: `Cache-Control: max-age`; none: no such header.
    pub age: Option<u32>,
    /// `tag`: an entity tag, and 304 for who has it.
    pub has_tag: bool,
    /// `turn=MS`: the content is another one every so often; zero: never.
    pub turn: Duration,
    /// `chunked`: no length in the head.
    pub is_chunked: bool,
    /// `cut=N`: every N-th answer ends in the middle; 0: none.
    pub cut: u32,
}

impl Wanted {
    /// None: not a path of the origin.
    pub fn parse(path: &str) -> Option<Wanted> {
        let (options, _) = path.strip_prefix('/')?.split_once('/')?;
        let mut options = options.split(',');
        let mut wanted = Wanted {
            size: options
                .next()?
                .parse()
                .ok()
                .filter(|size| *size <= SIZE_MAX)?,
            ..Wanted::default()
        };
        for option in options {
            let (name, value) = option.split_once('=').unwrap_or((option, "0"));
            let number: u32 = value.parse().ok()?;
            match name {
                "delay" => wanted.delay = Duration::from_millis(number.into()),
                "spread" => wanted.spread = Duration::from_millis(number.into()),
                "age" => wanted.age = Some(number),
                "tag" => wanted.has_tag = true,
                "turn" => wanted.turn = Duration::from_millis(number.into()),
                "chunked" => wanted.is_chunked = true,
                "cut" => wanted.cut = number,
                _ => return None,
            }
        }
        Some(wanted)
    }

    /// Which content it is at this time since 1970.
    pub fn version(&self, now: Duration) -> u64 {
        let turn = u64::try_from(self.turn.as_millis()).unwrap_or(u64::MAX);
        u64::try_from(now.as_millis())
            .unwrap_or(u64::MAX)
            .checked_div(turn)
            .unwrap_or(0)
    }
}

/// The entity tag of a version of a body.
pub fn tag(version: u64, size: u64) -> String {
    format!("\"{version:x}-{size:x}\"")
}

/// Version and size of an entity tag, also a weak one.
pub fn read_tag(tag: &str) -> Option<(u64, u64)> {
    let (version, size) = tag
        .trim_start_matches("W/")
        .trim_matches('"')
        .split_once('-')?;
    Some((
        u64::from_str_radix(version, 16).ok()?,
        u64::from_str_radix(size, 16).ok()?,
    ))
}

/// The bytes of all bodies: each is a place in one endless repetition of random ones.
pub struct Bytes {
    twice: Vec<u8>,
}

impl Default for Bytes {
    fn default() -> Self {
        Bytes::new()
    }
}

impl Bytes {
    /// 2 MiB.
    pub fn new() -> Bytes {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut twice: Vec<u8> = (0..PERIOD)
            .map(|_| {
                // xorshift64*
                state ^= state >> 12;
                state ^= state << 25;
                state ^= state >> 27;
                (state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 56) as u8
            })
            .collect();
        twice.extend_from_within(..);
        Bytes { twice }
    }

    /// Up to `max` bytes of the body of a path from `at` on; at least one, and less than asked for only when `max` is over a megabyte.
    pub fn part(&self, place: usize, at: u64, max: usize) -> &[u8] {
        let start = (place + usize::try_from(at % PERIOD as u64).unwrap_or(0)) % PERIOD;
        &self.twice[start..start + max.min(PERIOD)]
    }
}

/// Where in the repetition the body of a path begins.
pub fn place(path: &str, version: u64) -> usize {
    // FNV-1a
    let mut hash = path
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64 ^ version, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
    hash ^= hash >> 29;
    usize::try_from(hash % PERIOD as u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_says_everything() {
        assert_eq!(
            Wanted::parse("/1024,delay=20,age=60,tag,turn=500,cut=3/a/b"),
            Some(Wanted {
                size: 1024,
                delay: Duration::from_millis(20),
                age: Some(60),
                has_tag: true,
                turn: Duration::from_millis(500),
                cut: 3,
                ..Wanted::default()
            })
        );
        for bad in ["/", "/x/a", "/10", "/10,what/a", "10/a"] {
            assert_eq!(Wanted::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn versions_follow_the_clock_and_tags_name_them() {
        let wanted = Wanted::parse("/10,turn=500/a").expect("a path");
        assert_eq!(wanted.version(Duration::from_millis(1_700)), 3);
        assert_eq!(
            Wanted::parse("/10/a")
                .expect("a path")
                .version(Duration::from_secs(9)),
            0
        );
        assert_eq!(read_tag(&tag(3, 10)), Some((3, 10)));
        assert_eq!(read_tag("W/\"3-a\""), Some((3, 10)));
    }

    #[test]
    fn bodies_differ_by_path_and_version_and_go_on_forever() {
        let bytes = Bytes::new();
        let (one, other) = (place("/10/a", 0), place("/10/a", 1));
        assert_ne!(bytes.part(one, 0, 64), bytes.part(other, 0, 64));
        assert_ne!(bytes.part(one, 0, 64), bytes.part(place("/10/b", 0), 0, 64));
        assert_eq!(bytes.part(one, 10, 10), &bytes.part(one, 0, 20)[10..]);
        assert_eq!(bytes.part(one, PERIOD as u64 + 5, 9), bytes.part(one, 5, 9));
    }
}
