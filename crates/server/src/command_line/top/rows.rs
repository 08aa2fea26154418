//! The view as lines of text. A narrow terminal cuts them off on the right, so the columns that matter most stand on
//! the left.

use ratatui::style::{Modifier, Style};
use ratatui::text::Line;

use super::view::{View, plain};

/// Width of the first column.
const NAME: usize = 16;
/// Width of each other column.
const NUMBER: usize = 10;
/// The name of figures that are counted together and have none.
const OTHERS: &str = "(others)";

/// Everything, from the top.
pub(super) fn lines(view: &View, url: &str) -> Vec<Line<'static>> {
    let mut lines = vec![
        title(&format!(
            "freewheel top  {}  (q ends, arrows scroll)",
            plain(url)
        )),
        Line::raw(format!(
            "requests {}  connections {}  jobs that wait {}",
            rate(view.rate("freewheel_loop_requests", &[])),
            number(view.sum("freewheel_loop_connections", &[])),
            number(view.sum("freewheel_pool_queue", &[])),
        )),
        Line::raw(worker(view)),
    ];
    if let Some(why) = &view.gone {
        let text = format!("Gone, asking again (this is old): {}", plain(why));
        let style = Style::new().add_modifier(Modifier::REVERSED);
        lines.insert(1, Line::styled(text, style));
    }
    loops(view, &mut lines);
    zones(view, &mut lines);
    pools(view, &mut lines);
    disks(view, &mut lines);
    files(view, &mut lines);
    caches(view, &mut lines);
    upstreams(view, &mut lines);
    limits(view, &mut lines);
    encodings(view, &mut lines);
    subrequests(view, &mut lines);
    passwords(view, &mut lines);
    handshakes(view, &mut lines);
    streams(view, &mut lines);
    texts("last stalls", &view.stalls, &mut lines);
    texts("last errors", &view.errors, &mut lines);
    lines
}

/// The worker's resources and stalls, and the log lines that were lost.
fn worker(view: &View) -> String {
    let memory = view.sum("freewheel_process_memory_bytes", &[("kind", "anonymous")]);
    let descriptors = |state| view.sum("freewheel_process_descriptors", &[("state", state)]);
    let lost = |outcome| view.rate("freewheel_log_lines", &[("outcome", outcome)]);
    let lost = lost("dropped").zip(lost("failed"));
    format!(
        "processors {}  memory {}  descriptors {} of {}  stalls {}  log lines lost {}",
        share(view.rate("freewheel_process_cpu_seconds", &[])),
        bytes(memory),
        number(descriptors("open")),
        number(descriptors("max")),
        rate(view.rate("freewheel_stalls", &[])),
        rate(lost.map(|(dropped, failed)| dropped + failed)),
    )
}

/// Texts below a title, the newest first, unless there are none.
fn texts(name: &str, all: &[String], lines: &mut Vec<Line<'static>>) {
    if !all.is_empty() {
        lines.extend([Line::raw(""), title(name)]);
        lines.extend(all.iter().rev().cloned().map(Line::raw));
    }
}

fn loops(view: &View, lines: &mut Vec<Line<'static>>) {
    const BLOCKED: &str = "freewheel_event_loop_blocked_seconds";
    let row = |name: &String| {
        let of = [("loop", &name[..])];
        let blocked = view.times(BLOCKED, &of);
        vec![
            name.clone(),
            time(blocked.map(|times| times.p99)),
            time(blocked.map(|times| times.longest)),
            share(view.rate("freewheel_loop_busy_seconds", &of)),
            rate(view.rate("freewheel_loop_requests", &of)),
            number(view.sum("freewheel_loop_connections", &of)),
            time(blocked.map(|times| times.p50)),
            share(view.rate("freewheel_loop_processor_wait_seconds", &of)),
        ]
    };
    let head = [
        "loop",
        "blocked99",
        "longest",
        "busy",
        "requests",
        "conns",
        "blocked50",
        "no CPU",
    ];
    table(&head, view.values(BLOCKED, "loop").iter().map(row), lines);
}

fn zones(view: &View, lines: &mut Vec<Line<'static>>) {
    const REQUESTS: &str = "freewheel_zone_requests";
    let row = |name: &String| {
        let of = [("zone", &name[..])];
        let first_byte = view.times("freewheel_zone_first_byte_seconds", &of);
        let total = view.times("freewheel_zone_request_seconds", &of);
        vec![
            name.clone(),
            rate(view.rate(REQUESTS, &of)),
            time(first_byte.map(|times| times.p99)),
            time(total.map(|times| times.p99)),
            number(view.sum("freewheel_zone_requests_running", &of)),
            rate(view.rate(REQUESTS, &[of[0], ("status", "5xx")])),
            time(first_byte.map(|times| times.p50)),
        ]
    };
    let head = [
        "zone", "requests", "first99", "total99", "running", "5xx", "first50",
    ];
    table(&head, view.values(REQUESTS, "zone").iter().map(row), lines);
}

fn pools(view: &View, lines: &mut Vec<Line<'static>>) {
    const QUEUE: &str = "freewheel_pool_queue";
    let row = |name: &String| {
        let of = [("pool", &name[..])];
        let threads = |state| view.sum("freewheel_pool_threads", &[of[0], ("state", state)]);
        vec![
            name.clone(),
            number(view.sum(QUEUE, &of)),
            time(
                view.times("freewheel_pool_waiting_seconds", &of)
                    .map(|times| times.p99),
            ),
            format!("{}/{}", number(threads("busy")), number(threads("max"))),
            time(
                view.times("freewheel_pool_running_seconds", &of)
                    .map(|times| times.p99),
            ),
            rate(view.rate("freewheel_pool_rejected_jobs", &of)),
        ]
    };
    let head = ["pool", "queue", "wait99", "busy", "run99", "refused"];
    table(&head, view.values(QUEUE, "pool").iter().map(row), lines);
}

fn disks(view: &View, lines: &mut Vec<Line<'static>>) {
    const BYTES: &str = "freewheel_disk_bytes";
    let row = |name: &String| {
        let of = [("mount", &name[..])];
        vec![
            name.clone(),
            time(
                view.times("freewheel_disk_read_seconds", &of)
                    .map(|times| times.p99),
            ),
            time(
                view.times("freewheel_disk_write_seconds", &of)
                    .map(|times| times.p99),
            ),
            bytes(view.rate(BYTES, &of)),
            rate(view.rate("freewheel_disk_errors", &of)),
        ]
    };
    let head = ["disk", "read99", "write99", "bytes/s", "errors"];
    table(&head, view.values(BYTES, "mount").iter().map(row), lines);
}

/// One line per operation; an operation without calls has none.
fn files(view: &View, lines: &mut Vec<Line<'static>>) {
    const ANSWERS: &str = "freewheel_disk_answers";
    let row = |name: &String| {
        let of = [("operation", &name[..])];
        let from = |source| view.sum(ANSWERS, &[of[0], ("source", source)]);
        let all = view.sum(ANSWERS, &of).filter(|all| *all > 0.0);
        let memory = from("memory")
            .zip(from("kept"))
            .map(|(one, other)| one + other);
        vec![
            name.clone(),
            share(memory.zip(all).map(|(memory, all)| memory / all)),
            rate(view.rate(ANSWERS, &[of[0], ("source", "pool")])),
            time(
                view.times("freewheel_disk_call_seconds", &of)
                    .map(|times| times.p99),
            ),
            rate(view.rate("freewheel_disk_call_errors", &of)),
            rate(view.rate(ANSWERS, &[of[0], ("source", "refused")])),
        ]
    };
    let head = ["files", "memory", "by pools", "call99", "errors", "refused"];
    let names = view.values(ANSWERS, "operation");
    let is_done = |name: &&String| {
        let of = [("operation", &name[..])];
        view.sum(ANSWERS, &of) > Some(0.0)
            || view.times("freewheel_disk_call_seconds", &of).is_some()
    };
    table(&head, names.iter().filter(is_done).map(row), lines);
}

fn caches(view: &View, lines: &mut Vec<Line<'static>>) {
    const REQUESTS: &str = "freewheel_cache_requests";
    let row = |name: &String| {
        let of = [("cache", &name[..])];
        let hits = ["HIT", "STALE", "UPDATING", "REVALIDATED"]
            .iter()
            .filter_map(|status| view.sum(REQUESTS, &[of[0], ("status", status)]));
        let hits: f64 = hits.sum();
        let all = view.sum(REQUESTS, &of).filter(|all| *all > 0.0);
        vec![
            name.clone(),
            share(all.map(|all| hits / all)),
            bytes(view.sum("freewheel_cache_size_bytes", &of)),
            bytes(view.sum("freewheel_cache_max_size_bytes", &of)),
            number(view.sum("freewheel_cache_entries", &of)),
            rate(view.rate("freewheel_cache_fills", &of)),
            rate(view.rate("freewheel_cache_followers", &of)),
            rate(view.rate("freewheel_cache_events", &[of[0], ("event", "evicted")])),
        ]
    };
    let head = [
        "cache",
        "hits",
        "size",
        "max",
        "entries",
        "fetches",
        "followers",
        "evicted",
    ];
    table(&head, view.values(REQUESTS, "cache").iter().map(row), lines);
}

fn upstreams(view: &View, lines: &mut Vec<Line<'static>>) {
    const REQUESTS: &str = "freewheel_upstream_requests";
    let row = |name: &String| {
        let of = [("upstream", &name[..])];
        vec![
            name.clone(),
            rate(view.rate(REQUESTS, &of)),
            time(
                view.times("freewheel_upstream_header_seconds", &of)
                    .map(|times| times.p99),
            ),
            rate(view.rate(REQUESTS, &[of[0], ("outcome", "failed")])),
            number(view.sum("freewheel_upstream_connections", &of)),
            number(view.sum("freewheel_upstream_peer_failing", &of)),
            rate(view.rate("freewheel_upstream_opened_connections", &of)),
        ]
    };
    let head = [
        "upstream",
        "requests",
        "head99",
        "failed",
        "conns",
        "peers out",
        "opened",
    ];
    table(
        &head,
        view.values(REQUESTS, "upstream").iter().map(row),
        lines,
    );
}

fn limits(view: &View, lines: &mut Vec<Line<'static>>) {
    const REQUESTS: &str = "freewheel_limit_requests";
    let row = |name: &String| {
        let of = [("zone", &name[..])];
        let said = |outcome| rate(view.rate(REQUESTS, &[of[0], ("outcome", outcome)]));
        let used = view.sum("freewheel_limit_zone_used_bytes", &of);
        let size = view.sum("freewheel_limit_zone_size_bytes", &of);
        vec![
            name.clone(),
            said("rejected"),
            said("delayed"),
            said("passed"),
            share(used.zip(size).map(|(used, size)| used / size)),
            number(view.sum("freewheel_limit_zone_keys", &of)),
            rate(view.rate("freewheel_limit_zone_forgotten_keys", &of)),
        ]
    };
    let head = [
        "limit",
        "rejected",
        "delayed",
        "passed",
        "full",
        "keys",
        "forgotten",
    ];
    table(&head, view.values(REQUESTS, "zone").iter().map(row), lines);
}

fn encodings(view: &View, lines: &mut Vec<Line<'static>>) {
    const RESPONSES: &str = "freewheel_compression_responses";
    let row = |name: &String| {
        let of = [("encoding", &name[..])];
        let moved = |direction| {
            let of = [of[0], ("direction", direction)];
            bytes(view.rate("freewheel_compression_bytes", &of))
        };
        vec![
            name.clone(),
            rate(view.rate(RESPONSES, &of)),
            moved("in"),
            moved("out"),
            share(view.rate("freewheel_compression_seconds", &of)),
        ]
    };
    let head = ["encoding", "answers", "in/s", "out/s", "of a CPU"];
    let names = view.values(RESPONSES, "encoding");
    table(&head, names.iter().map(row), lines);
}

fn subrequests(view: &View, lines: &mut Vec<Line<'static>>) {
    const ASKED: &str = "freewheel_subrequests";
    let row = |name: &String| {
        let of = [("kind", &name[..])];
        let came = |status| rate(view.rate(ASKED, &[of[0], ("status", status)]));
        vec![
            name.clone(),
            rate(view.rate(ASKED, &of)),
            came("5xx"),
            came("4xx"),
            came("none"),
        ]
    };
    let head = ["sub-requests", "asked", "5xx", "4xx", "none"];
    table(&head, view.values(ASKED, "kind").iter().map(row), lines);
}

fn passwords(view: &View, lines: &mut Vec<Line<'static>>) {
    const ASKED: &str = "freewheel_auth_basic_requests";
    let row = |name: &String| {
        let of = [("outcome", &name[..])];
        vec![name.replace('_', " "), rate(view.rate(ASKED, &of))]
    };
    let head = ["passwords", "requests"];
    let names = view.values(ASKED, "outcome");
    let is_asked = |name: &&String| view.rate(ASKED, &[("outcome", name)]) > Some(0.0);
    table(&head, names.iter().filter(is_asked).map(row), lines);
}

fn handshakes(view: &View, lines: &mut Vec<Line<'static>>) {
    const ENDED: &str = "freewheel_tls_handshakes";
    let row = |name: &String| {
        let of = [("outcome", &name[..])];
        vec![name.replace('_', " "), rate(view.rate(ENDED, &of))]
    };
    let names = view.values(ENDED, "outcome");
    let is_any = |name: &&String| view.rate(ENDED, &[("outcome", name)]) > Some(0.0);
    let head = ["TLS handshakes", "ended"];
    table(&head, names.iter().filter(is_any).map(row), lines);
}

fn streams(view: &View, lines: &mut Vec<Line<'static>>) {
    const OPEN: &str = "freewheel_http2_streams_open";
    let open = view.sum(OPEN, &[]);
    let row = vec![
        "all".to_owned(),
        rate(view.rate("freewheel_http2_streams", &[])),
        number(open),
        rate(view.rate("freewheel_http2_resets", &[])),
        rate(view.rate("freewheel_http2_goaways", &[])),
    ];
    let head = ["HTTP/2 streams", "begun", "open", "resets", "goaways"];
    table(&head, open.map(|_| row).into_iter(), lines);
}

/// A table, unless it has no rows.
fn table(head: &[&str], rows: impl Iterator<Item = Vec<String>>, lines: &mut Vec<Line<'static>>) {
    let mut rows = rows.peekable();
    if rows.peek().is_none() {
        return;
    }
    let head: Vec<String> = head.iter().map(|&word| word.to_owned()).collect();
    lines.extend([Line::raw(""), title(&row(&head))]);
    lines.extend(rows.map(|cells| Line::raw(row(&cells))));
}

fn row(cells: &[String]) -> String {
    let name = match cells.first().map_or("", |name| &name[..]) {
        "" => OTHERS.to_owned(),
        name => plain(name),
    };
    let name: String = name.chars().take(NAME).collect();
    let numbers = cells.iter().skip(1).map(|cell| format!("{cell:>NUMBER$}"));
    format!("{name:NAME$}{}", numbers.collect::<String>())
}

fn title(text: &str) -> Line<'static> {
    Line::styled(text.to_owned(), Style::new().add_modifier(Modifier::BOLD))
}

fn time(seconds: Option<f64>) -> String {
    let Some(seconds) = seconds else {
        return "-".to_owned();
    };
    match seconds {
        s if s < 1e-3 => format!("{:.0} us", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s => format!("{s:.1} s"),
    }
}

fn number(number: Option<f64>) -> String {
    number.map_or("-".to_owned(), |number| {
        scaled(number, 1000.0, ["", "k", "M", "G", "T"])
    })
}

fn rate(number: Option<f64>) -> String {
    number.map_or("-".to_owned(), |number| {
        scaled(number, 1000.0, ["/s", "k/s", "M/s", "G/s", "T/s"])
    })
}

fn bytes(number: Option<f64>) -> String {
    number.map_or("-".to_owned(), |number| {
        scaled(number, 1024.0, ["", "Ki", "Mi", "Gi", "Ti"])
    })
}

fn share(share: Option<f64>) -> String {
    share.map_or("-".to_owned(), |share| format!("{:.1} %", share * 100.0))
}

fn scaled(mut number: f64, step: f64, names: [&str; 5]) -> String {
    let mut at = 0;
    while number >= step && at + 1 < names.len() {
        number /= step;
        at += 1;
    }
    let digits = usize::from(number.fract() != 0.0 && number < 100.0);
    format!("{number:.digits$}{}", names[at])
}

#[cfg(test)]
mod tests {
    use super::super::feed::Told;
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::widgets::Paragraph;

    fn told(name: &str, data: &str) -> Told {
        Told {
            name: name.to_owned(),
            data: serde_json::from_str(data).unwrap(),
        }
    }

    fn view() -> View {
        let mut view = View::default();
        let series = r#"[[0,"freewheel_pool_queue","gauge",{"pool":"slow","lane":"read"}],
            [1,"freewheel_event_loop_blocked_seconds","histogram",{"loop":"0"}],
            [2,"freewheel_loop_requests","counter",{"loop":"0"}],
            [3,"freewheel_zone_requests","counter",{"zone":"site","status":"2xx"}],
            [4,"freewheel_zone_first_byte_seconds","histogram",{"zone":"site"}],
            [5,"freewheel_upstream_requests","counter",{"upstream":"","outcome":"answered"}],
            [6,"freewheel_limit_requests","counter",{"kind":"limit_req","zone":"slow","outcome":"rejected"}],
            [7,"freewheel_limit_zone_used_bytes","gauge",{"kind":"limit_req","zone":"slow"}],
            [8,"freewheel_limit_zone_size_bytes","gauge",{"kind":"limit_req","zone":"slow"}],
            [9,"freewheel_compression_responses","counter",{"encoding":"gzip"}],
            [10,"freewheel_compression_bytes","counter",{"encoding":"gzip","direction":"out"}],
            [11,"freewheel_subrequests","counter",{"kind":"mirror","status":"5xx"}],
            [12,"freewheel_auth_basic_requests","counter",{"outcome":"unknown_user"}],
            [13,"freewheel_disk_answers","counter",{"operation":"open","source":"memory"}],
            [14,"freewheel_disk_answers","counter",{"operation":"open","source":"kept"}],
            [15,"freewheel_disk_answers","counter",{"operation":"open","source":"pool"}],
            [16,"freewheel_disk_answers","counter",{"operation":"fsync","source":"pool"}],
            [17,"freewheel_process_memory_bytes","gauge",{"kind":"anonymous"}],
            [18,"freewheel_tls_handshakes","counter",{"outcome":"timed_out"}],
            [19,"freewheel_http2_streams_open","gauge",{}],
            [4000000000,"x","gauge",{}]]"#;
        view.take(&told("series", series));
        view.take(&told(
            "sample",
            r#"{"t":1000,"v":[1,0,3,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]}"#,
        ));
        view.take(&told(
            "sample",
            r#"{"t":3000,"v":[7,[5,100,2500,30000],4000,20,[20,800,9000,9000],2,6,50,200,8,4096,10,12,4,2,2,0,3145728,14,9]}"#,
        ));
        let stall = r#"[{"at":86465.5,"loop":0,"seconds":0.06,"task":"connection","connection":3,"request":"GET /\u001b",
            "phase":"content","operation":""}]"#;
        view.take(&told("stalls", stall));
        view.take(&told("errors", r#"[["error","a\u001b[2Jb"]]"#));
        view
    }

    #[test]
    fn numbers_stand_in_their_tables() {
        let text: Vec<String> = lines(&view(), "http://a/")
            .iter()
            .map(ToString::to_string)
            .collect();
        let text = text.join("\n");
        assert!(
            text.contains("requests 2k/s  connections -  jobs that wait 7"),
            "{text}"
        );
        assert!(text.contains("\nslow                     7"), "{text}");
        assert!(
            text.contains("\n0                   2.5 ms   30.0 ms"),
            "{text}"
        );
        assert!(
            text.contains("\nsite                  10/s    9.0 ms         -"),
            "{text}"
        );
        assert!(text.contains("\n(others)               1/s"), "{text}");
        assert!(
            text.contains("\nslow                   3/s         -         -    25.0 %"),
            "{text}"
        );
        assert!(
            text.contains("\ngzip                   4/s         -       2Ki"),
            "{text}"
        );
        assert!(
            text.contains("\nmirror                 5/s       5/s"),
            "{text}"
        );
        assert!(text.contains("\nunknown user           6/s"), "{text}");
        assert!(text.contains("\ntimed out              7/s"), "{text}");
        assert!(
            text.contains("\nall                      -         9"),
            "{text}"
        );
        assert!(
            text.contains("\nprocessors -  memory 3Mi  descriptors - of -"),
            "{text}"
        );
        assert!(
            text.contains("\nopen                75.0 %       1/s         -"),
            "{text}"
        );
        assert!(!text.contains("fsync"), "{text}");
        let stall = "00:01:05 UTC 60.0 ms of loop 0: connection *3, content, request: \"GET /?\"";
        assert!(text.contains(stall), "{text}");
        assert!(text.ends_with("a?[2Jb"), "{text}");
        assert!(!text.contains("asking again"), "{text}");
        let mut gone = view();
        gone.gone = Some("\u{1b}refused".to_owned());
        let text = lines(&gone, "http://a/")[1].to_string();
        assert_eq!(text, "Gone, asking again (this is old): ?refused");
        gone.take(&told("begin", "{}"));
        assert_eq!(gone.gone, None);
    }

    #[test]
    fn a_terminal_of_any_size_will_do() {
        for (width, height) in [(1, 1), (20, 5), (200, 60)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            let lines = lines(&view(), "http://a/");
            let drawn = terminal.draw(|frame| {
                frame.render_widget(Paragraph::new(lines).scroll((3, 0)), frame.area());
            });
            assert!(drawn.is_ok());
        }
    }
}
