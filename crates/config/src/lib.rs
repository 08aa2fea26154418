//! nginx's configuration language: words, blocks, directive tables, inheritance, errors, the manual.
//!
//! Pure: it opens no file, resolves no name and binds no socket. Texts come from a [`TextSource`]; what they mean for
//! sockets, files and host names is up to the server. The steps:
//!
//! 1. [`load_checked`] reads the texts into a [`Tree`] and checks it against the [`Grammar`] of all tables.
//! 2. The server walks the tree. At each level it has a `Raw` of its sections and passes the directives to it
//!    ([`Section::set`]); the values are parsed here, into types that implement [`Value`].
//! 3. Levels are merged from the outside in ([`Section::merge`]) and finished ([`Section::finish`]).
//! 4. [`Scope::check`] checks every variable name that was used.
//!
//! # A table of directives
//!
//! ```
//! use config::{Flag, List, Msec, Scope, Section, Size, Template};
//!
//! config::choices! {
//!     /// How dates are compared.
//!     pub enum Compare {
//!         /// Not at all.
//!         Off = "off",
//!         /// To the second.
//!         Exact = "exact",
//!     }
//! }
//!
//! config::directives! {
//!     /// Static files.
//!     ///
//!     /// How a request's path becomes a file's.
//!     pub struct Files in Location {
//!         /// Sets the directory that requests are answered from.
//!         root: Template = "html", [HTTP | SERVER | LOCATION | LOCATION_IF] 1, syntax "path";
//!         /// Sets how `If-Modified-Since` is compared.
//!         if_modified_since: Compare = "exact", [HTTP | SERVER | LOCATION] 1;
//!         /// Says whether a file's tag is sent.
//!         etag: Flag = "on", [HTTP | SERVER | LOCATION] FLAG;
//!         /// A directive whose name is a keyword, without a default, and not inherited.
//!         return_ as "return": Option<Template> = none, [SERVER | LOCATION] 1, inherit never;
//!     }
//! }
//!
//! config::directives! {
//!     /// Sending.
//!     pub struct Sending in Location {
//!         /// Sets how long a client may take nothing.
//!         send_timeout: Msec = "60s", [HTTP | SERVER | LOCATION] 1;
//!         /// Sets the size of a read.
//!         read_size: Size = "64k", [HTTP | SERVER | LOCATION] 1;
//!         /// A line that may be repeated; an inner level adds to the outer one's.
//!         note: List<Template> = none, [HTTP | SERVER | LOCATION] 1, inherit append;
//!     }
//! }
//!
//! config::sections! {
//!     /// Everything that a location says.
//!     pub struct LocationSettings {
//!         /// Static files.
//!         files: Files,
//!         /// Sending.
//!         sending: Sending,
//!     }
//! }
//!
//! # fn main() -> Result<(), config::Error> {
//! type Raw = <LocationSettings as Section>::Raw;
//!
//! let tree = config::parse_bytes(b"root /srv; note one; location { note two; send_timeout 1m; etag off; }")?;
//! let mut scope = Scope::new();
//! let (mut outer, mut inner) = (Raw::default(), Raw::default());
//! for directive in &tree.directives {
//!     if directive.name == "location" {
//!         for directive in directive.children() {
//!             assert!(LocationSettings::set(&mut inner, directive, &mut scope)?);
//!         }
//!     } else {
//!         assert!(LocationSettings::set(&mut outer, directive, &mut scope)?);
//!     }
//! }
//! LocationSettings::fill(&mut outer, &mut scope)?;
//! let merged = LocationSettings::merge(&outer, inner);
//! let settings = LocationSettings::finish(merged, &mut scope)?;
//!
//! assert_eq!(settings.files.root.literal().unwrap(), "/srv");
//! assert_eq!(settings.sending.send_timeout, Msec(60_000));
//! assert_eq!(settings.sending.note.len(), 2);
//! assert!(!settings.files.etag && settings.files.return_.is_none());
//! # Ok(())
//! # }
//! ```

#![warn(unreachable_pub)]

mod advice;
pub mod default_paths;
mod faults;
mod grammar;
pub mod known;
mod load;
pub mod made;
pub mod manual;
mod section;
mod syntax;
mod table;
mod templates;
mod value;

pub use faults::load_with_faults;
pub use grammar::{Fault, Grammar, Standing, differences};
pub use load::{
    DIRECTIVES_MAX, FILE_BYTES_MAX, INCLUDES_DEEP_MAX, INCLUDES_MAX, Recorded, TextSource, load,
    load_checked, parse_bytes,
};
pub use made::{MadeOfAll, MadeOfLocation};
pub use section::group::Group;
pub use section::own::{Finder, Groups, Own};
pub use section::{Renamed, Section};
pub use syntax::error::{Error, Problem, Voice};
pub use syntax::lexer::{WORD_BYTES_MAX, WORDS_MAX};
pub use syntax::severity::Severity;
pub use syntax::suggest;
pub use syntax::text::{Text, TextOrigin, TextPlace, TextSpan};
pub use syntax::tree::{BLOCKS_DEEP_MAX, Directive, Tree, Word};
pub use table::args::{ANY, Args, FLAG};
pub use table::context::Context;
pub use table::{DirectiveEntry, DirectiveTable, Inherit, InheritanceLevel};
pub use templates::ENVIRONMENT_MAX;
#[doc(hidden)]
pub use value::choice::not_one_of;
pub use value::scope::{Assignable, FAULTS_MAX, Scope, VARIABLES_MAX, Variable, VariableIndex};
pub use value::template::{Template, TemplatePart};
pub use value::variable_set::VariableSet;
pub use value::{
    Append, Bufs, DirectiveSlot, Flag, LIST_MAX, List, Msec, Number, NumberWithin, Offset, OrOff,
    PathText, Placed, Sec, Size, Value, Words, parse_ip, parse_ip_and_port, parse_ipv4, parse_msec,
    parse_network, parse_number, parse_offset, parse_sec, parse_size,
};
