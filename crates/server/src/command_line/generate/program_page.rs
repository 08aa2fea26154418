//! freewheel(8).
//!
//! Not here: options and commands, which are those of the tables. Invariant: no option is named here alone.

use config::default_paths::{CONFIGURATION, ERROR_LOG, PID, PREFIX};

use super::mdoc::{Page, escaped, words};
use crate::command_line::options;
use crate::command_line::outline::{self, Argument, Form, Value};

/// The page's text.
pub(super) fn write(all: &[Argument], forms: &[Form]) -> String {
    let mut page = Page::new("FREEWHEEL", 8, "freewheel", "web server and caching proxy");
    page.section("SYNOPSIS");
    synopsis(all, forms, &mut page);
    page.section("DESCRIPTION");
    page.text(DESCRIPTION);
    page.line(".Pp");
    page.text("The options, most of which are nginx's:");
    page.line(".Bl -tag -width Ds");
    for option in all {
        item(option, &mut page);
    }
    page.line(".El");
    page.section("COMMANDS");
    for form in outline::leaves(forms) {
        page.part(&format!("freewheel {}", form.words));
        page.text(&format!("{}.", form.about));
        page.line(".Bl -tag -width Ds");
        for argument in &form.arguments {
            item(argument, &mut page);
        }
        page.line(".El");
    }
    page.section("SIGNALS");
    page.text("To the master process, whose number is in the pid file:");
    terms(&mut page, "Dv", SIGNALS);
    page.section("ENVIRONMENT");
    terms(&mut page, "Ev", ENVIRONMENT);
    files(&mut page);
    page.section("EXIT STATUS");
    page.text("0 if all that was asked for is done, else 1; the reason is on standard error.");
    page.section("EXAMPLES");
    page.text("Serves a directory, without a configuration:");
    page.line(".Pp");
    page.line(".Dl freewheel serve /srv/www \\-\\-listen 0.0.0.0:8080");
    page.line(".Pp");
    page.text("Says whether the configuration of an nginx would be accepted:");
    page.line(".Pp");
    page.line(".Dl freewheel \\-t \\-c /etc/nginx/nginx.conf");
    page.section("SEE ALSO");
    page.line(".Xr freewheel.conf 5");
    page.end()
}

fn synopsis(all: &[Argument], forms: &[Form], page: &mut Page) {
    page.line(".Nm");
    for option in all
        .iter()
        .filter(|option| option.names.iter().all(|name| name.len() == 2))
    {
        let names = option.names.last().map_or("", |name| &name[1..]);
        page.line(&format!(".Op Fl {}{}", words(names), placeholder(option)));
    }
    for form in outline::leaves(forms) {
        page.line(".Nm");
        page.line(&format!(".Cm {}", words(&form.words)));
        for argument in &form.arguments {
            page.line(&format!(".{}", in_synopsis(argument)));
        }
    }
    let named = |name: &str| {
        all.iter()
            .find(move |option| option.names.iter().any(|own| own == name))
    };
    for (name, others) in options::CALLS {
        page.line(".Nm");
        if let Some(option) = named(name) {
            page.line(&format!(".Fl {}{}", flag(name), placeholder(option)));
        }
        for option in others.iter().filter_map(|other| named(other)) {
            page.line(&format!(".{}", in_synopsis(option)));
        }
    }
}

/// A name behind `.Fl`, which puts one hyphen before it.
fn flag(name: &str) -> String {
    words(name.strip_prefix('-').unwrap_or(name))
}

fn placeholder(argument: &Argument) -> String {
    match argument.value {
        Value::None => String::new(),
        _ => format!(" Ar {}", words(&argument.placeholder)),
    }
}

/// The macros of an argument in a synopsis, without the full stop of the line.
fn in_synopsis(argument: &Argument) -> String {
    let inner = match argument.names.last() {
        Some(name) => format!("Fl {}{}", flag(name), placeholder(argument)),
        None => placeholder(argument).trim_start().to_owned(),
    };
    let inner = if argument.is_repeated {
        format!("{inner} ...")
    } else {
        inner
    };
    match argument.is_required {
        true => inner,
        false => format!("Op {inner}"),
    }
}

/// An argument as the term of a list, with its description.
fn item(argument: &Argument, page: &mut Page) {
    let names = argument
        .names
        .iter()
        .map(|name| format!("Fl {}", flag(name)));
    let names = names.collect::<Vec<_>>().join(" , ");
    let term = format!("{names}{}", placeholder(argument));
    page.line(&format!(".It {}", term.trim_start()));
    let default = argument.default.as_ref();
    let default = default.map_or_else(String::new, |value| format!(" The default is `{value}`."));
    let about = argument.about.trim_end_matches('.');
    let mut letters = about.chars();
    let first: String = letters
        .next()
        .map(|letter| letter.to_uppercase().collect())
        .unwrap_or_default();
    page.text(&format!("{first}{}.{default}", letters.as_str()));
}

fn terms(page: &mut Page, kind: &str, rows: &[(&str, &str)]) {
    page.line(".Bl -tag -width Ds");
    for (name, text) in rows {
        page.line(&format!(".It {kind} {}", words(name)));
        page.text(text);
    }
    page.line(".El");
}

fn files(page: &mut Page) {
    let below = |path: &str| {
        std::path::Path::new(PREFIX)
            .join(path)
            .to_string_lossy()
            .into_owned()
    };
    page.section("FILES");
    page.line(".Bl -tag -width Ds");
    for (path, text) in [
        (below(CONFIGURATION), "The configuration."),
        (
            below(ERROR_LOG),
            "The error log, unless the configuration names another.",
        ),
        (
            below(PID),
            "The number of the master process, unless the configuration names another file.",
        ),
    ] {
        page.line(&format!(".It Pa {}", escaped(&path)));
        page.text(text);
    }
    page.line(".El");
}

const DESCRIPTION: &str = "\
`freewheel` serves files, passes requests on to other servers and caches their responses, over HTTP/1 and HTTP/2, with and without TLS. Its event loops never \
wait for a disk. It takes nginx's configuration, options and signals: started without a command, it reads its configuration and serves, in the background unless the \
configuration has `daemon off`.";

const SIGNALS: &[(&str, &str)] = &[
    (
        "SIGHUP",
        "Reads the configuration again. A configuration with an error changes nothing.",
    ),
    (
        "SIGQUIT",
        "Ends when the requests in progress are answered.",
    ),
    ("SIGTERM", "Ends at once; `SIGINT` too."),
    ("SIGUSR1", "Opens the logs again."),
    (
        "SIGUSR2",
        "Starts the program anew from its file, beside the running one: an upgrade in place.",
    ),
    (
        "SIGWINCH",
        "During an upgrade: ends the worker when its requests are answered.",
    ),
];

const ENVIRONMENT: &[(&str, &str)] = &[
    (
        "NGINX",
        "The numbers of listening sockets, which a master passes on to the next one in an upgrade.",
    ),
    (
        "NOTIFY_SOCKET",
        "Where systemd is told of readiness, reloads and the number of the master process.",
    ),
    (
        "SOURCE_DATE_EPOCH",
        "The date of the man pages that `--generate` prints, in seconds since 1970.",
    ),
];
