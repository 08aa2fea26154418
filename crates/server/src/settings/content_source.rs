//! The source of a location's content, where several lines name one: the last of them, as in nginx.
//!
//! Not here: the order in which the sources are asked ([`crate::steps::content`]); modules that make content of their own.

use config::{Directive, Error, Problem, Scope, Section as _};

use super::locations::Raw;
use super::tables::LocationSettings;

/// Makes of the list of directives the function that lets the last one count.
macro_rules! sources {
    ($($group:ident.$directive:ident)*) => {
        /// Takes away what lines before `line` named, if that names a source.
        fn let_count(line: &Directive, raw: &mut Raw, scope: &mut Scope) {
            if ![$(stringify!($directive)),*].iter().any(|name| line.name == *name) {
                return;
            }
            $(if line.name != stringify!($directive)
                && raw.$group.get().is_some_and(|said| said.$directive.value.is_some())
            {
                raw.$group.edit().$directive = Default::default();
                warn(stringify!($directive), line, scope);
            })*
        }
    };
}

sources! {
    status.stub_status
    status.metrics
    status.status_json
    status.dashboard
    empty_gif.empty_gif
    flv.flv
    mp4.mp4
    proxy.proxy_pass
    fastcgi_pass.fastcgi_pass
    uwsgi_pass.uwsgi_pass
    scgi_pass.scgi_pass
    grpc_pass.grpc_pass
    tunnelling.tunnel_pass
}

fn warn(name: &str, line: &Directive, scope: &mut Scope) {
    let sentence = format!(
        "\"{}\" takes the place of \"{name}\" in this location",
        line.name.display()
    );
    scope.warn(line.error(&Problem::new(sentence)));
}

/// Takes in a line of a level. `Ok(false)`: no table of ours has it.
///
/// # Errors
/// The error, at its place.
pub(crate) fn set(raw: &mut Raw, line: &Directive, scope: &mut Scope) -> Result<bool, Error> {
    let is_ours = LocationSettings::set(raw, line, scope)?;
    let_count(line, raw, scope);
    Ok(is_ours)
}
