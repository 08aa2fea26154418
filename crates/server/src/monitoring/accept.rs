//! The format of the figures that an `Accept` header asks for (RFC 9110, 12.5.1).
//!
//! Invariant: OpenMetrics is sent only to clients that name it.

use runtime::metrics::text::Format;

/// Media ranges that are looked at.
const RANGES_MAX: usize = 64;
/// The versions of OpenMetrics that our text is one of: they differ in what we do not write.
const VERSIONS: [&[u8]; 2] = [b"1.0.0", b"0.0.1"];
/// The quality of what says none, in thousandths.
const ALL: u16 = 1000;

/// One media range.
struct Range<'a> {
    media_type: &'a [u8],
    version: Option<&'a [u8]>,
    /// In thousandths.
    quality: u16,
}

impl<'a> Range<'a> {
    fn read(text: &'a [u8]) -> Self {
        let mut parts = text.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let mut range = Self {
            media_type: parts.next().unwrap_or_default(),
            version: None,
            quality: ALL,
        };
        for part in parts {
            let mut pair = part.splitn(2, |byte| *byte == b'=');
            let (name, value) = (pair.next().unwrap_or_default(), pair.next());
            let Some(value) = value.map(<[u8]>::trim_ascii) else {
                continue;
            };
            if name.eq_ignore_ascii_case(b"q") {
                range.quality = quality(value);
            } else if name.eq_ignore_ascii_case(b"version") {
                let plain = value.strip_prefix(b"\"");
                let plain = plain.and_then(|value| value.strip_suffix(b"\""));
                range.version = Some(plain.unwrap_or(value));
            }
        }
        range
    }

    fn is(&self, media_type: &str) -> bool {
        self.media_type.eq_ignore_ascii_case(media_type.as_bytes())
    }

    fn is_open_metrics(&self) -> bool {
        self.is("application/openmetrics-text")
            && self
                .version
                .is_none_or(|version| VERSIONS.contains(&version))
    }
}

/// The quality; text that is no number counts as 1.
fn quality(text: &[u8]) -> u16 {
    let number = std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse::<f32>().ok());
    let number = number.filter(|number| (0.0..=1.0).contains(number));
    number.map_or(ALL, |number| (number * f32::from(ALL)) as u16)
}

/// The format for a client with this `Accept`: OpenMetrics where it is named and nothing else is wanted more.
#[must_use]
pub(crate) fn format(accept: &[u8]) -> Format {
    let ranges = || {
        accept
            .split(|byte| *byte == b',')
            .take(RANGES_MAX)
            .map(Range::read)
    };
    let best = |is_it: &dyn Fn(&Range<'_>) -> bool| {
        let found = ranges().filter(|range| is_it(range));
        found.map(|range| range.quality).max()
    };
    let open = best(&|range| range.is_open_metrics()).unwrap_or(0);
    // The nearest name counts.
    let plain = best(&|range| range.is("text/plain"))
        .or_else(|| best(&|range| range.is("text/*")))
        .or_else(|| best(&|range| range.is("*/*")));
    if open > 0 && open >= plain.unwrap_or(0) {
        Format::OpenMetrics
    } else {
        Format::Prometheus
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_metrics_is_for_who_names_it_and_wants_nothing_more() {
        let prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                          application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,\
                          text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for accept in [
            "application/openmetrics-text",
            "text/html, Application/OpenMetrics-Text ; Version=\"0.0.1\" ; Q=0.001",
            "application/openmetrics-text, text/plain, */*",
            "application/openmetrics-text;q=0.3, text/plain;q=0.2, */*",
            "application/openmetrics-text;q=often",
            prometheus,
        ] {
            assert_eq!(format(accept.as_bytes()), Format::OpenMetrics, "{accept}");
        }
        for accept in [
            "",
            "*/*",
            "application/*",
            "text/plain",
            "application/openmetrics-text;q=0",
            "application/openmetrics-text;q=0., */*",
            "application/openmetrics-text; Q=0.000",
            "application/openmetrics-text;q=0.1, text/plain;q=0.9",
            "application/openmetrics-text;q=0.5, text/*",
            "application/openmetrics-text;q=0.5, */*",
            "application/openmetrics-text;version=2.0.0",
            "application/openmetrics-texts",
        ] {
            assert_eq!(format(accept.as_bytes()), Format::Prometheus, "{accept}");
        }
    }
}
