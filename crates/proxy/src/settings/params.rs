//! The parameters of requests to a gateway, as a location sets them (`fastcgi_param` and its like).
//!
//! Not here: what is sent of them for a request (`upstream_request::gateway_params`).

use bytes::Bytes;
use config::{Groups, Template};

use crate::settings::directives::RequestSettings;
use crate::settings::family::Family;
use crate::settings::gateways::{FastcgiPass, Param, ScgiPass, UwsgiPass};

/// Prefix of the parameters that stand for header lines.
pub(crate) const HTTP: &[u8] = b"HTTP_";
/// The parameter for `Host`.
pub(crate) const HTTP_HOST: &[u8] = b"HTTP_HOST";

/// The parameters that a location sends.
#[derive(Debug)]
pub struct Params {
    /// Their wire format.
    pub packing: ParamsFormat,
    /// Those that the configuration sets and that are not constantly empty.
    pub(crate) lines: Vec<Param>,
    /// The header lines that the configuration's parameters replace, without `HTTP_`.
    pub(crate) replaced: Vec<Bytes>,
    /// Whether `HTTP_HOST` is not set.
    pub(crate) sends_host: bool,
    /// Whether the client's header lines are sent.
    pub(crate) sends_headers: bool,
    /// The value of `REQUEST_METHOD`, the last one where it is set twice.
    pub(crate) method: Option<Template>,
}

/// The wire format of parameters.
#[derive(Debug, Clone)]
pub enum ParamsFormat {
    /// FastCGI.
    Fastcgi {
        /// `fastcgi_keep_conn`.
        keeps_connection: bool,
        /// `fastcgi_catch_stderr`.
        caught: Vec<Bytes>,
    },
    /// uwsgi.
    Uwsgi {
        /// `uwsgi_modifier1`, `uwsgi_modifier2`.
        modifiers: (u8, u8),
        /// `uwsgi_string`.
        behind: Bytes,
    },
    /// SCGI.
    Scgi,
}

impl Params {
    /// The parameters of a location.
    #[must_use]
    pub fn new(family: Family, settings: &dyn Groups) -> Params {
        let small = |number: u64| u8::try_from(number).unwrap_or(u8::MAX);
        let (packing, set) = match family {
            Family::Uwsgi => {
                let own = settings.own::<UwsgiPass>();
                let modifiers = (small(own.uwsgi_modifier1.0), small(own.uwsgi_modifier2.0));
                let behind = own.uwsgi_string.clone().unwrap_or_default();
                (ParamsFormat::Uwsgi { modifiers, behind }, &own.uwsgi_param)
            }
            Family::Scgi => (ParamsFormat::Scgi, &settings.own::<ScgiPass>().scgi_param),
            Family::Fastcgi | Family::Proxy | Family::Grpc => {
                let own = settings.own::<FastcgiPass>();
                let packing = ParamsFormat::Fastcgi {
                    keeps_connection: own.fastcgi_keep_conn,
                    caught: own.fastcgi_catch_stderr.to_vec(),
                };
                (packing, &own.fastcgi_param)
            }
        };
        let mut params = Params {
            packing,
            lines: Vec::new(),
            replaced: Vec::new(),
            sends_host: true,
            sends_headers: settings.own::<RequestSettings>().proxy_pass_request_headers,
            method: None,
        };
        set.iter().for_each(|line| params.add(line));
        if params.sends_host {
            params.replaced.push(Bytes::from_static(b"HOST"));
        }
        params
    }

    fn add(&mut self, line: &Param) {
        self.sends_host &= !line.name.eq_ignore_ascii_case(HTTP_HOST);
        if line.name.len() > HTTP.len() && line.name.starts_with(HTTP) {
            self.replaced.push(line.name.slice(HTTP.len()..));
            if line.value.source().is_empty() {
                return;
            }
        }
        if line.name == "REQUEST_METHOD" {
            self.method = Some(line.value.clone());
        }
        self.lines.push(line.clone());
    }

    /// Whether the configuration itself asks for ranges (`fastcgi_param HTTP_RANGE $slice_range`). Programs may know
    /// them by another name.
    #[must_use]
    pub fn asks_for_ranges(&self) -> bool {
        let is_slice = |text: &[u8]| memchr::memmem::find(text, b"slice_range").is_some();
        let mut lines = self.lines.iter();
        lines.any(|line| line.name == "HTTP_RANGE" || is_slice(line.value.source()))
    }
}
