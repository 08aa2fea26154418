//! freewheel.conf(5): the whole reference as a man page.
//!
//! Not here: the texts, which are those of the tables. Invariant: every directive and variable stands in it.

use config::default_paths::{CONFIGURATION, PREFIX};
use config::manual::{Chapter, chapters};

use super::mdoc::{Page, escaped, words};
use crate::manual;
use httpcore::handler::Modules;

/// Maximum width of a value beside its title.
const FACT_COLUMNS: usize = 58;

/// The page's text.
pub(super) fn write(modules: Modules) -> String {
    let mut page = Page::new(
        "FREEWHEEL.CONF",
        5,
        "freewheel.conf",
        "configuration of the web server and caching proxy freewheel",
    );
    page.section("DESCRIPTION");
    page.text(DESCRIPTION);
    page.section("DIRECTIVES");
    for chapter in chapters(&crate::process::tables_with(modules)) {
        write_chapter(&chapter, &mut page);
    }
    page.section("VARIABLES");
    page.text(
        "Names are case-insensitive. The configuration defines further variables: `map`, `geo`, `split_clients`, `set`, and named groups of \
         regular expressions in `server_name` and `location`.",
    );
    page.line(".Bl -tag -width Ds");
    for (name, doc) in manual::variables(modules) {
        page.line(&format!(".It Va ${}", escaped(&name)));
        page.text(doc);
    }
    page.line(".El");
    page.section("FILES");
    page.line(".Bl -tag -width Ds");
    let file = std::path::Path::new(PREFIX).join(CONFIGURATION);
    page.line(&format!(".It Pa {}", escaped(&file.to_string_lossy())));
    page.text("The configuration, unless `-c` names another.");
    page.line(".El");
    page.section("EXAMPLES");
    page.text("Files of a directory, and another server behind a cache:");
    page.literal(EXAMPLE);
    page.section("SEE ALSO");
    page.line(".Xr freewheel 8");
    page.end()
}

/// A chapter: its directives are the terms of a list.
fn write_chapter(chapter: &Chapter, page: &mut Page) {
    page.part(&chapter.heading);
    page.text(&chapter.text);
    if chapter.directives.is_empty() {
        return;
    }
    page.line(".Bl -tag -width Ds");
    for directive in &chapter.directives {
        page.line(&format!(".It Ic {}", words(directive.name)));
        let facts = directive.facts.iter();
        let facts: String = facts.map(|(title, text)| fact(title, text)).collect();
        page.literal(&facts);
        page.line(".Pp");
        page.text(&directive.text);
    }
    page.line(".El");
}

/// A title and its value, in as many lines as are needed.
fn fact(title: &str, text: &str) -> String {
    let mut out = format!("{:9}", format!("{title}:"));
    let mut column = 0;
    for word in text.split(' ') {
        if column > 0 && column + 1 + word.len() > FACT_COLUMNS {
            out.push_str("\n         ");
            column = 0;
        }
        out.push(' ');
        out.push_str(word);
        column += 1 + word.len();
    }
    out.push('\n');
    out
}

const DESCRIPTION: &str = "\
The configuration of `freewheel` is written in nginx's language, and means the same; what differs on purpose is in the documentation, on the page of \
differences.

It consists of directives. A simple directive is a name and arguments, ended by `;`. A block is a name, arguments, and directives between `{` and `}`: the \
context of those. `#` begins a comment that ends with the line. An argument with spaces or special characters stands in single or double quotes. Values of many \
directives may have variables in them, `$name` or `${name}`.

Directives that are not in a block are in the context `main`. An inner context inherits what it does not set itself, unless the description says otherwise.

Sizes are bytes, or end in `k`, `m` or `g`. Times are seconds, or end in `ms`, `s`, `m`, `h`, `d`, `w`, `M` (30 days) or `y` (365 days).

`freewheel --explain NAME` shows the description of one directive or variable, `freewheel -t` checks a configuration.";

const EXAMPLE: &str = "\
worker_processes auto;
events { worker_connections 1024; }
http {
    include mime.types;
    proxy_cache_path /var/cache/freewheel keys_zone=one:64m max_size=10g;
    server {
        listen 8080;
        location / { root /srv/www; }
        location /app/ {
            proxy_pass http://127.0.0.1:3000;
            proxy_cache one;
        }
    }
}";
