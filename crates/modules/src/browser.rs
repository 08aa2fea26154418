//! `modern_browser`, `ancient_browser`: classify browsers by name and version in `User-Agent`.
//!
//! Not here: the browsers that core directives treat specially ([`httpcore::user_agent`]).

use bytes::Bytes;
use config::{Problem, Scope, Section, Value, Word, directives};
use memchr::memmem;
use message::HeaderId;

use httpcore::request::Request;
use httpcore::user_agent;

/// Maximum number of browsers of one kind at one level.
pub const BROWSERS_MAX: usize = 1024;

/// A browser that `modern_browser` knows: its name, the bytes of a `User-Agent` to skip, the text to search for, and
/// the bytes from the start of that text to the version.
type Mask = (&'static str, usize, &'static [u8], usize);

/// In search order: Opera claims to be others, so it comes first.
const MASKS: [Mask; 5] = [
    ("opera", 0, b"Opera", b"Opera ".len()),
    ("msie", b"Mozilla/4.0 (compatible; ".len(), b"MSIE ", 5),
    ("gecko", b"Mozilla/5.0 (".len(), b"rv:", 3),
    ("safari", b"Mozilla/5.0 (".len(), b"Safari/", 7),
    (
        "konqueror",
        b"Mozilla/5.0 (compatible; ".len(),
        b"Konqueror/",
        10,
    ),
];
const OPERA: usize = 0;
/// No version is as high.
const NEVER: u64 = u64::MAX;

/// A version as one number: six digits for what follows the first dot, as many as nginx compares.
#[derive(Debug, Default)]
struct Version {
    sum: u64,
    part: u64,
    scale: Option<u64>,
}

impl Version {
    fn digit(&mut self, digit: u8) {
        self.part = self
            .part
            .saturating_mul(10)
            .saturating_add(u64::from(digit - b'0'));
    }

    /// The number so far, at a dot or at the end.
    fn settle(&mut self) -> u64 {
        let scale = self.scale.unwrap_or(1_000_000);
        self.sum = self.sum.saturating_add(self.part.saturating_mul(scale));
        (self.part, self.scale) = (0, Some(scale / 100));
        self.sum
    }
}

/// The `modern_browser` lines of one level.
#[derive(Debug, Clone, Default)]
pub struct Modern {
    /// Place in [`MASKS`] and the lowest version, in that order.
    browsers: Vec<(usize, u64)>,
    /// `unlisted`: whether unlisted browsers count as modern.
    takes_unlisted: bool,
}

impl Value for Modern {
    const SYNTAX: &'static str = "browser version | unlisted";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        let mut modern = None;
        Self::set(&mut modern, args, scope)?;
        Ok(modern.unwrap_or_default())
    }

    fn set(slot: &mut Option<Self>, args: &[Word], _: &mut Scope) -> Result<(), Problem> {
        let modern = slot.get_or_insert_default();
        let (name, version) = match args {
            [word] if *word == "unlisted" => {
                modern.takes_unlisted = true;
                return Ok(());
            }
            [name, version] => (name, version),
            _ => return Err(Problem::directive("invalid value").at(0)),
        };
        let is_it = |mask: &Mask| name.bytes().eq_ignore_ascii_case(mask.0.as_bytes());
        let unknown = || Problem::new(format!("unknown browser name \"{}\"", name.display())).at(0);
        let browser = MASKS.iter().position(is_it).ok_or_else(unknown)?;
        let mut lowest = Version::default();
        for byte in version.bytes() {
            match byte {
                b'0'..=b'9' => lowest.digit(*byte),
                b'.' => {
                    lowest.settle();
                }
                _ => {
                    let sentence = format!("invalid browser version \"{}\"", version.display());
                    return Err(Problem::new(sentence).at(1));
                }
            }
        }
        if modern.browsers.len() == BROWSERS_MAX {
            return Err(Problem::new(format!("more than {BROWSERS_MAX} browsers")));
        }
        modern.browsers.push((browser, lowest.settle()));
        Ok(())
    }

    fn absent() -> Option<Self> {
        Some(Self::default())
    }
}

/// The `ancient_browser` lines of one level.
#[derive(Debug, Clone, Default)]
pub struct Ancient {
    /// Texts that an ancient browser's `User-Agent` has.
    texts: Vec<Bytes>,
    /// `netscape4`.
    has_netscape4: bool,
}

impl Value for Ancient {
    const SYNTAX: &'static str = "text …";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        let mut ancient = None;
        Self::set(&mut ancient, args, scope)?;
        Ok(ancient.unwrap_or_default())
    }

    fn set(slot: &mut Option<Self>, args: &[Word], _: &mut Scope) -> Result<(), Problem> {
        let ancient = slot.get_or_insert_default();
        for word in args {
            if *word == "netscape4" {
                ancient.has_netscape4 = true;
            } else if ancient.texts.len() == BROWSERS_MAX {
                return Err(Problem::new(format!("more than {BROWSERS_MAX} browsers")));
            } else {
                ancient.texts.push(word.bytes().clone());
            }
        }
        Ok(())
    }

    fn absent() -> Option<Self> {
        Some(Self::default())
    }
}

/// A text that replaces an earlier one of the same level.
#[derive(Debug, Clone)]
pub struct BrowserValue(Bytes);

impl Value for BrowserValue {
    const SYNTAX: &'static str = "text";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        Bytes::parse(args, scope).map(Self)
    }

    fn set(slot: &mut Option<Self>, args: &[Word], scope: &mut Scope) -> Result<(), Problem> {
        *slot = Some(Self::parse(args, scope)?);
        Ok(())
    }
}

directives! {
    /// Modern and ancient browsers.
    pub struct Browsers in Location {
        /// Regards a browser (`opera`, `msie`, `gecko`, `safari`, `konqueror`) of at least this version as modern; with
        /// `unlisted`, all browsers that are listed neither here nor in `ancient_browser`.
        modern_browser: Modern = none, [HTTP | SERVER | LOCATION] 1..=2;
        /// Sets the value of `$modern_browser` for modern browsers.
        modern_browser_value: BrowserValue = "1", [HTTP | SERVER | LOCATION] 1;
        /// Regards browsers whose `User-Agent` contains one of these texts as ancient; `netscape4` means Netscape 1 to
        /// 4.
        ancient_browser: Ancient = none, [HTTP | SERVER | LOCATION] 1..;
        /// Sets the value of `$ancient_browser` for ancient browsers.
        ancient_browser_value: BrowserValue = "1", [HTTP | SERVER | LOCATION] 1;
    }
}

httpcore::variables! {
    /// The value of `ancient_browser_value` for browsers that `ancient_browser` lists, otherwise empty.
    "ancient_browser" => memo(ancient).changeable().made_by(&["ancient_browser"]);
    /// The value of `modern_browser_value` for browsers that `modern_browser` lists, otherwise empty.
    "modern_browser" => memo(modern).changeable().made_by(&["modern_browser"]);
    /// `1` for MSIE of any version, otherwise empty.
    "msie" => memo(msie).changeable();
}

fn ancient(request: &Request) -> Option<Bytes> {
    let agent = request.head.get(HeaderId::UserAgent);
    Some(request.location().own::<Browser>().ancient(agent))
}

fn modern(request: &Request) -> Option<Bytes> {
    let agent = request.head.get(HeaderId::UserAgent);
    Some(request.location().own::<Browser>().modern(agent))
}

fn msie(request: &Request) -> Option<Bytes> {
    let agent = request.head.get(HeaderId::UserAgent);
    Some(match agent.map(user_agent::Browser::of) {
        Some(user_agent::Browser::Msie | user_agent::Browser::Msie6) => Bytes::from_static(b"1"),
        _ => Bytes::new(),
    })
}

/// The settings in effect at a location.
#[derive(Debug, Clone)]
pub struct Browser {
    settings: Browsers,
}

config::own!(Browser);

/// By hand, since what one level lists is put in order when it is merged.
impl Section for Browser {
    type Raw = <Browsers as Section>::Raw;

    fn tables() -> Vec<&'static config::DirectiveTable> {
        Browsers::tables()
    }

    fn set(
        raw: &mut Self::Raw,
        directive: &config::Directive,
        scope: &mut Scope,
    ) -> Result<bool, config::Error> {
        Browsers::set(raw, directive, scope)
    }

    fn merge(parent: &Self::Raw, child: Self::Raw) -> Self::Raw {
        Browsers::merge(parent, child)
    }

    fn fill(raw: &mut Self::Raw, scope: &mut Scope) -> Result<(), config::Error> {
        Browsers::fill(raw, scope)
    }

    fn finish(raw: Self::Raw, scope: &mut Scope) -> Result<Self, config::Error> {
        let mut settings = Browsers::finish(raw, scope)?;
        let listed = &mut settings.modern_browser.browsers;
        if !listed.is_empty() && listed.iter().all(|(browser, _)| *browser != OPERA) {
            // Opera may claim to be MSIE, which it is not.
            listed.push((OPERA, NEVER));
        }
        listed.sort_by_key(|(browser, _)| *browser);
        Ok(Self { settings })
    }
}

impl Browser {
    /// `$modern_browser`: empty for ancient ones.
    #[must_use]
    pub fn modern(&self, agent: Option<&[u8]>) -> Bytes {
        match self.is_modern(agent) {
            true => self.settings.modern_browser_value.0.clone(),
            false => Bytes::new(),
        }
    }

    /// `$ancient_browser`: empty for modern ones.
    #[must_use]
    pub fn ancient(&self, agent: Option<&[u8]>) -> Bytes {
        match self.is_modern(agent) {
            true => Bytes::new(),
            false => self.settings.ancient_browser_value.0.clone(),
        }
    }

    fn is_modern(&self, agent: Option<&[u8]>) -> bool {
        let modern = &self.settings.modern_browser;
        let ancient = &self.settings.ancient_browser;
        let Some(agent) = agent else {
            return modern.takes_unlisted;
        };
        for (browser, lowest) in &modern.browsers {
            if let Some(version) = version_of(agent, &MASKS[*browser]) {
                return is_at_least(version, *lowest);
            }
        }
        if !modern.takes_unlisted {
            return false;
        }
        let is_netscape4 = || {
            agent.len() > b"Mozilla/4.72 ".len()
                && agent.starts_with(b"Mozilla/")
                && matches!(agent[8], b'1'..=b'4')
        };
        let has = |text: &Bytes| memmem::find(agent, text).is_some();
        let is_ancient = ancient.has_netscape4 && is_netscape4();
        !is_ancient && !ancient.texts.iter().any(has)
    }
}

/// The text after a browser's name in a `User-Agent`; `None`: the name is missing, or nothing follows it.
fn version_of<'a>(agent: &'a [u8], (_, skipped, text, add): &Mask) -> Option<&'a [u8]> {
    let rest = agent.get(*skipped..)?;
    let at = memmem::find(rest, text)?;
    rest.get(at + add..).filter(|version| !version.is_empty())
}

/// Compares as nginx does: a version is newer as soon as one of its parts says so.
fn is_at_least(text: &[u8], lowest: u64) -> bool {
    let mut version = Version::default();
    for byte in text {
        match byte {
            b'0'..=b'9' => version.digit(*byte),
            b'.' if version.settle() > lowest => return true,
            b'.' => {}
            _ => break,
        }
    }
    version.settle() >= lowest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn browser(text: &str) -> Browser {
        let tree = config::parse_bytes(text.as_bytes()).expect("parses");
        let mut raw = <Browser as Section>::Raw::default();
        let mut scope = Scope::new();
        for line in &tree.directives {
            assert!(Browser::set(&mut raw, line, &mut scope).expect("is right"));
        }
        Browser::finish(raw, &mut scope).expect("is right")
    }

    #[test]
    fn versions_are_compared_part_by_part() {
        let settings = browser("modern_browser gecko 1.0; modern_browser opera 9.0;");
        let is_modern = |agent: &str| !settings.modern(Some(agent.as_bytes())).is_empty();
        assert!(is_modern("Mozilla/5.0 (X11; rv:1.0.0) Gecko/20020610"));
        assert!(!is_modern("Mozilla/5.0 (X11; rv:0.9) Gecko/20020610"));
        assert!(is_modern("Opera/9.01 (X11)"));
        assert!(!is_modern("Mozilla/5.0 (X11; rv:1.8) Opera 8.50"));
        assert!(!is_modern("lynx"));
        assert!(!is_modern(""));
    }

    #[test]
    fn opera_that_claims_to_be_msie_is_not_modern() {
        let settings = browser("modern_browser msie 5.5;");
        let is_modern = |agent: &str| !settings.modern(Some(agent.as_bytes())).is_empty();
        assert!(is_modern(
            "Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1)"
        ));
        assert!(!is_modern(
            "Mozilla/4.0 (compatible; MSIE 6.0; X11) Opera 7.50"
        ));
    }

    #[test]
    fn the_unlisted_and_the_ancient() {
        let settings = browser(
            "modern_browser unlisted; ancient_browser Links Lynx netscape4; ancient_browser_value old;",
        );
        let ancient = |agent: &str| settings.ancient(Some(agent.as_bytes()));
        assert_eq!(ancient("Lynx/2.8"), "old");
        assert_eq!(ancient("Mozilla/4.72 [en] (X11)"), "old");
        assert_eq!(ancient("Mozilla/5.0 (X11) anything"), "");
        assert_eq!(settings.modern(None), "1");
        assert_eq!(browser("").ancient(None), "1");
    }
}
