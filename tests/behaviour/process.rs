//! Start, signals, end.
#![expect(clippy::disallowed_methods, reason = "tests have no event loop")]

use std::net::TcpListener;
use std::time::Instant;

use blackbox::{PATIENCE, Server, Site, is_nginx, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const ONE: &str = "server { listen 127.0.0.1:%PORT%; return 200 one; }";
const TWO: &str = "server { listen 127.0.0.1:%PORT%; return 200 two; }";

#[test]
fn a_wrong_configuration_is_refused_at_once_with_file_and_line() {
    let site = Site::new();
    site.configure(
        "daemon off;\npid nginx.pid;\nevents { }\nhttp {\n    no_such_directive on;\n}\n",
    );
    let refused = site.start().err().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        refused.stderr.contains("[emerg]")
            && refused
                .stderr
                .contains("unknown directive \"no_such_directive\" in "),
        "{}",
        refused.stderr
    );
    assert!(
        refused.stderr.contains("/nginx.conf:5"),
        "{}",
        refused.stderr
    );
}

#[test]
fn t_tests_and_capital_t_shows() {
    let site = Site::new();
    let text = "daemon off;\npid nginx.pid;\nevents { }\nhttp { include other.conf; }\n";
    site.configure(text);
    #[expect(clippy::disallowed_methods, reason = "a test")]
    std::fs::write(site.path("other.conf"), "# nothing\n").unwrap();
    let (status, said) = site.run(&["-t"]);
    assert!(
        status.success()
            && said.contains("nginx.conf syntax is ok\n")
            && said.contains("nginx.conf test is successful\n"),
        "{said}"
    );
    let (_, said) = site.run(&["-T"]);
    let dump = format!(
        "# configuration file {0}/nginx.conf:\n{text}\n# configuration file {0}/other.conf:\n# nothing\n\n",
        site.path("").display().to_string().trim_end_matches('/')
    );
    assert!(said.starts_with(&dump), "{said}\nexpected\n{dump}");
}

#[test]
fn a_test_sends_no_signal() {
    let server = Server::start(ONE);
    let (status, said) = server.site().run(&["-t", "-s", "stop"]);
    assert!(
        status.success() && said.contains("test is successful"),
        "{said}"
    );
    assert_eq!(server.get("/").text(), "one");
}

#[test]
fn a_parent_that_ignores_the_end_of_children_changes_nothing() {
    let site = Site::new().run_by(&["sh", "-c", "trap '' CHLD; exec \"$0\" \"$@\""]);
    let mut server = Server::start_on(site, "", ONE);
    assert_eq!(server.get("/").text(), "one");
    assert!(server.end(Signal::SIGTERM).success());
}

#[test]
fn warnings_are_in_the_log_once() {
    let server = Server::start(
        "server { listen 127.0.0.1:%PORT%; server_name a; }
         server { listen 127.0.0.1:%PORT%; server_name a; }",
    );
    let warning = "conflicting server name \"a\"";
    server.wait_for(warning, "the warning");
    assert_eq!(server.error_log().matches(warning).count(), 1);
}

#[test]
fn a_reload_takes_the_new_file_and_keeps_the_old_one_if_it_is_wrong() {
    let server = Server::start(ONE);
    assert_eq!(server.get("/").text(), "one");
    server.reload(TWO);
    assert_eq!(server.get("/").text(), "two");
    let good = server.site().fill("pid nginx.pid;");
    server.reload_file(&format!(
        "daemon off; {good} no_such_directive; events {{ }}"
    ));
    server.wait_for("unknown directive \"no_such_directive\"", "a wrong file");
    assert_eq!(server.get("/").text(), "two");
    // The line above is an [emerg], which the end of a test else forbids.
    drop_with_emerg(server);
}

fn drop_with_emerg(mut server: Server) {
    assert!(server.quit().success());
    server.forget_log();
}

#[test]
fn quit_finishes_what_is_in_flight() {
    let mut server = Server::start("server { listen 127.0.0.1:%PORT%; limit_rate 400k; }");
    server.file("a", vec![b'x'; 800_000]);
    let mut connection = server.connect();
    connection.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    connection.read(1000);
    server.signal(Signal::SIGQUIT);
    let rest = connection.rest();
    assert!(rest.len() > 799_000, "{}", rest.len());
    assert!(server.quit().success());
}

#[test]
fn term_leaves_at_once() {
    let mut server = Server::start("server { listen 127.0.0.1:%PORT%; limit_rate 1k; }");
    server.file("a", vec![b'x'; 100_000]);
    let mut connection = server.connect();
    connection.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    connection.read(10);
    assert!(server.end(Signal::SIGTERM).success());
    assert!(!server.site().path("nginx.pid").try_exists().unwrap());
}

#[test]
fn a_stop_during_the_start_is_no_failure() {
    let site = Site::new();
    site.configure(
        "daemon off; pid nginx.pid; error_log logs/error.log notice; events {}
         http { server { listen 127.0.0.1:%PORT%; return 200 one; } }",
    );
    for signal in [Signal::SIGTERM, Signal::SIGQUIT, Signal::SIGINT] {
        let _ = std::fs::remove_file(site.path("logs/error.log"));
        let mut child = site.command().spawn().unwrap();
        until("the first worker's start", PATIENCE, || {
            let log = std::fs::read_to_string(site.path("logs/error.log")).ok()?;
            log.contains("start worker processes").then_some(())
        });
        kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{signal}");
    }
}

#[test]
fn requests_that_a_shutdown_cuts_have_their_lines() {
    let mut server = Server::start_with(
        "worker_shutdown_timeout 300ms;",
        "server { listen 127.0.0.1:%PORT%; limit_rate 100k; }",
    );
    server.file("a", vec![b'x'; 800_000]);
    let mut connection = server.connect();
    connection.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    connection.read(1000);
    assert!(server.end(Signal::SIGQUIT).success());
    assert!(connection.rest().len() < 799_000);
    assert!(
        server
            .read("logs/access.log")
            .contains("\"GET /a HTTP/1.1\" 200 ")
    );
}

#[test]
fn usr1_opens_logs_again() {
    let server = Server::start(ONE);
    server.get("/");
    server.access_log(1);
    #[expect(clippy::disallowed_methods, reason = "a test")]
    std::fs::rename(
        server.site().path("logs/access.log"),
        server.site().path("logs/old.log"),
    )
    .unwrap();
    server.signal(Signal::SIGUSR1);
    while server.read("logs/access.log").is_empty() {
        server.get("/");
    }
    assert!(
        !server.read("logs/old.log").is_empty(),
        "the old file keeps what it had"
    );
}

#[test]
fn usr1_opens_what_can_be_opened() {
    let site = Site::new();
    std::fs::create_dir_all(site.path("logs/apart")).unwrap();
    let server = Server::start_on(
        site,
        "",
        "server { listen 127.0.0.1:%PORT%; location /apart { access_log logs/apart/a.log; } location / { return 200; } }",
    );
    server.get("/");
    server.access_log(1);
    std::fs::remove_dir_all(server.site().path("logs/apart")).unwrap();
    for log in ["access", "error"] {
        let path = |name: String| server.site().path(&name);
        std::fs::rename(
            path(format!("logs/{log}.log")),
            path(format!("logs/{log}.old")),
        )
        .unwrap();
    }
    server.signal(Signal::SIGUSR1);
    while server.read("logs/access.log").is_empty() {
        server.get("/");
    }
    let told = server.read("logs/error.old") + &server.error_log();
    let missing = server
        .site()
        .fill("open() \"%DIR%/logs/apart/a.log\" failed (2: No such file or directory)");
    assert!(told.contains(&missing), "{told}");
    assert!(!server.error_log().is_empty());
    server.forget_log();
}

#[test]
fn a_refused_reload_leaves_the_error_log_where_it_is() {
    let text = |log: &str, key: &str| {
        format!(
            "daemon off; pid nginx.pid; error_log logs/{log}.log notice; events {{ }}
             http {{ limit_req_zone {key} zone=z:1m rate=1r/s; server {{ listen 127.0.0.1:%PORT%; return 200 one; }} }}"
        )
    };
    let mut server = Server::try_start(&text("error", "$uri")).unwrap();
    server.reload_file(&text("other", "$host"));
    server.wait_for(
        "the \"$host\" key while previously it used the \"$uri\" key",
        "the refusal",
    );
    server.quit();
    server.wait_for("gracefully shutting down", "QUIT");
    assert_eq!(server.read("logs/other.log"), "");
    server.forget_log();
}

#[test]
fn a_pid_file_that_cannot_be_written_refuses_a_reload_and_another_one_is_moved() {
    let text = |pid: &str| {
        format!(
            "daemon off; pid {pid}; error_log logs/error.log notice; events {{ }}
             http {{ server {{ listen 127.0.0.1:%PORT%; return 200 \"{pid}\"; }} }}"
        )
    };
    let server = Server::try_start(&text("nginx.pid")).unwrap();
    server.reload_file(&text("none/other.pid"));
    server.wait_for(
        "/none/other.pid\" failed (2: No such file or directory)",
        "the refusal",
    );
    assert_eq!(server.get("/").text(), "nginx.pid");
    server.reload_file(&text("other.pid"));
    until("the new configuration", PATIENCE, || {
        (server.get("/").text() == "other.pid").then_some(())
    });
    let is_there = |name: &str| server.site().path(name).exists();
    until("the file's move", PATIENCE, || {
        (is_there("other.pid") && !is_there("nginx.pid")).then_some(())
    });
    server.forget_log();
}

#[test]
fn a_socket_that_a_reload_cannot_have_is_told_once_and_one_that_goes_takes_its_file_along() {
    let text = |listen: &str| {
        format!(
            "daemon off; pid nginx.pid; error_log logs/error.log notice; events {{ }}
             http {{ server {{ listen 127.0.0.1:%PORT%; listen {listen}; return 200 \"{listen}\"; }} }}"
        )
    };
    let server = Server::try_start(&text("unix:%DIR%/one")).unwrap();
    server.reload_file(&text("unix:%DIR%/none/one"));
    server.wait_for(
        "/none/one failed (2: No such file or directory)",
        "the refusal",
    );
    server.reload_file(&text("unix:%DIR%/two"));
    server.wait_for(&server.site().fill("[warn]"), "the warning");
    let told = server.error_log();
    assert_eq!(told.matches("/none/one failed").count(), 1, "{told}");
    let gone = server.site().fill("deleting socket %DIR%/one\n");
    assert!(told.contains(&gone), "{told}");
    assert_eq!(server.get("/").text(), server.site().fill("unix:%DIR%/two"));
    let is_there = |name: &str| server.site().path(name).exists();
    assert_eq!((is_there("one"), is_there("two")), (false, true));
    server.forget_log();
}

#[test]
fn what_was_sent_to_an_address_that_a_reload_removes_is_answered() {
    let text = |listen: &str, said: &str| {
        format!(
            "daemon off; pid nginx.pid; error_log logs/error.log notice; events {{ }}
             http {{ http2 on; server {{ listen 127.0.0.1:%PORT1%; {listen} return 200 {said}; }} }}"
        )
    };
    let server = Server::try_start(&text("listen 127.0.0.1:%PORT%;", "before")).unwrap();
    let ask = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut begun = server.connect();
    begun.send(&ask[..10]);
    let mut kept = server.connect();
    assert_eq!(kept.send(ask).reply().text(), "before");
    let mut silent = server.connect();
    let mut streams = server.connect_http2();
    assert!(streams.read(), "the server's settings");
    // Whatever is accepted behind these shows that they were.
    let other = || server.connect_to(1).send(ask).reply().text();
    assert_eq!(other(), "before");
    server.reload_file(&text("", "after"));
    until("the new configuration", PATIENCE, || {
        (other() == "after").then_some(())
    });
    for (connection, rest) in [(&mut begun, &ask[10..]), (&mut silent, ask)] {
        let reply = connection.send(rest).reply();
        assert_eq!(reply.text(), "before");
        assert!(connection.is_closed());
    }
    // nginx closes these at once.
    if !is_nginx() {
        let stream = streams.get("/");
        assert_eq!(streams.reply(stream).text(), "before");
        assert_eq!(kept.send(ask).reply().text(), "before");
        assert!(kept.is_closed());
    }
}

#[test]
fn signals_that_ask_for_nothing_end_nobody() {
    let server = Server::start(ONE);
    for signal in [Signal::SIGALRM, Signal::SIGIO, Signal::SIGPIPE] {
        server.signal(signal);
    }
    server.signal(Signal::SIGUSR1);
    server.wait_for("reopening logs", "a signal behind them");
    assert_eq!(server.get("/").status, 200);
}

#[test]
fn pools_that_two_configurations_do_not_name_are_gone() {
    let text = |pool: &str| {
        format!(
            "daemon off; pid nginx.pid; error_log logs/error.log notice; thread_pool {pool} threads=2; events {{ }}
             http {{ server {{ listen 127.0.0.1:%PORT%; return 200 {pool}; }} }}"
        )
    };
    let server = Server::try_start(&text("one")).unwrap();
    for pool in ["two", "three"] {
        server.reload_file(&text(pool));
        while server.get("/").text() != pool {}
    }
    server.signal(Signal::SIGUSR1);
    server.wait_for("thread pool \"default\": ", "the figures");
    let log = server.error_log();
    let has = |pool: &str| log.contains(&format!("thread pool \"{pool}\": "));
    assert_eq!([has("one"), has("two"), has("three")], [false, true, true]);
}

#[test]
fn a_pool_of_the_server_s_own_that_is_not_declared_any_more_has_its_own_size_again() {
    if is_nginx() {
        return;
    }
    let http = "server { listen 127.0.0.1:%PORT%; location / { metrics; } }";
    // One thread more than any machine has cores.
    let declared = "thread_pool cpu threads=2000;";
    let server = Server::start_with(declared, http);
    let limit = || {
        let page = blackbox::Exposition::read(&server.get("/").text(), false);
        page.get("freewheel_pool_threads{pool=\"cpu\",state=\"max\"}")
    };
    assert_eq!(limit(), Some(2000.0));
    server.reload_with("", http);
    until("the size of a pool that is not declared", PATIENCE, || {
        limit().filter(|threads| *threads < 2000.0)
    });
}

#[test]
fn an_address_in_use_is_an_error() {
    let server = Server::start(ONE);
    let second = Site::new();
    second.configure(&server.site().fill(
        "daemon off; pid nginx.pid; events { } http { server { listen 127.0.0.1:%PORT%; } }",
    ));
    let refused = second.start().err().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        refused.stderr.contains(&format!(
            "bind() to 127.0.0.1:{} failed (98: Address already in use)",
            server.site().port(0)
        )),
        "{}",
        refused.stderr
    );
}

#[test]
fn version_names_the_behaviour_that_is_followed() {
    let (status, said) = Site::new().run(&["-V"]);
    assert!(
        status.success()
            && said.contains("nginx version: nginx/1.")
            && said.contains("configure arguments:"),
        "{said}"
    );
}

#[test]
fn quit_leaves_connections_the_time_that_they_were_promised() {
    let mut server = Server::start(
        "keepalive_min_timeout 10s; server { listen 127.0.0.1:%PORT%; location / { return 200 x; } }",
    );
    let ask = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut kept = server.connect();
    assert_eq!(
        kept.send(ask).reply().header("connection"),
        Some("keep-alive")
    );
    server.signal(Signal::SIGQUIT);
    server.wait_for("gracefully shutting down", "the signal has come");
    // Still there, and then over: nobody else would keep the worker.
    assert_eq!(kept.send(ask).reply().header("connection"), Some("close"));
    assert!(kept.is_closed());
    assert!(server.quit().success());
}

/// A line of /proc/PID/status of the server's worker.
fn status_of_worker(server: &Server, name: &str) -> u64 {
    let master = server.pid();
    let children = std::fs::read_to_string(format!("/proc/{master}/task/{master}/children"));
    let children = children.expect("the master lives");
    let worker = children.split_whitespace().next().expect("it has a worker");
    let status = std::fs::read_to_string(format!("/proc/{worker}/status")).expect("it lives");
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.unwrap_or_else(|| panic!("no {name} in {status}"))
}

#[test]
fn no_loop_makes_the_table_of_descriptors_grow() {
    if is_nginx() {
        return;
    }
    let server = Server::start("server { listen 127.0.0.1:%PORT%; location / { } }");
    let _connected = server.connect();
    let (soft, _) = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE)
        .expect("it is told");
    assert!(status_of_worker(&server, "FDSize:") >= soft.min(4096));
}

#[test]
fn the_program_is_kept_in_memory_as_far_as_it_may_be() {
    if is_nginx() {
        return;
    }
    let server = Server::start("server { listen 127.0.0.1:%PORT%; location / { } }");
    let (_, most) = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_MEMLOCK)
        .expect("it is told");
    // Its libraries need two or three MiB.
    let locked = status_of_worker(&server, "VmLck:");
    assert!(locked > 1000 || most < 8 << 20, "{locked} KiB");
}

/// What `ps` shows.
fn title(process: i32) -> String {
    let shown = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let text = String::from_utf8_lossy(&shown).replace('\0', " ");
    text.trim_end().to_owned()
}

#[test]
fn ps_tells_the_master_from_its_worker() {
    let server = Server::start("server { listen 127.0.0.1:%PORT%; limit_rate 1k; }");
    server.file("large", vec![b'x'; 1 << 20]);
    let log = server.error_log();
    let line = log
        .lines()
        .find(|line| line.contains("start worker process "))
        .unwrap();
    let worker = line.rsplit(' ').next().unwrap().parse().unwrap();
    let program = if is_nginx() { "nginx" } else { "freewheel" };
    let command = server.site().command();
    let mut typed = vec![command.get_program()];
    typed.extend(command.get_args());
    let typed: Vec<_> = typed.iter().map(|word| word.to_string_lossy()).collect();
    assert_eq!(
        title(server.pid()),
        format!("{program}: master process {}", typed.join(" "))
    );
    assert_eq!(title(worker), format!("{program}: worker process"));
    let mut slow = server.connect();
    slow.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
        .read(100);
    kill(Pid::from_raw(worker), Signal::SIGQUIT).unwrap();
    let leaving = format!("{program}: worker process is shutting down");
    let begun = Instant::now();
    while title(worker) != leaving {
        assert!(begun.elapsed() < PATIENCE, "{}", title(worker));
        std::thread::yield_now();
    }
    drop(slow);
}

#[test]
fn a_low_soft_limit_of_descriptors_does_not_keep_many_loops_from_listening() {
    let site = Site::new().run_by(&["sh", "-c", "ulimit -S -n 64; exec \"$0\" \"$@\""]);
    let http = "server { listen 127.0.0.1:%PORT%; listen 127.0.0.1:%PORT1%; return 200 one; }";
    let main = "worker_processes 32;";
    let server = Server::start_on(site, main, http);
    assert_eq!(server.get("/").text(), "one");
    server.reload_with(main, &http.replace("one", "two"));
    assert_eq!(server.get("/").text(), "two");
}

#[test]
fn a_start_and_a_reload_that_fail_leave_no_directories() {
    let lines = "proxy_cache_path %DIR%/cache keys_zone=c:1m; client_body_temp_path %DIR%/bodies;
         server { listen 127.0.0.1:%PORT1%; location / { proxy_pass http://127.0.0.1:%PORT3%; } }";
    let around = "daemon off; events { } error_log logs/error.log;";
    let left = |site: &Site| {
        let names = ["cache", "bodies", "client_body_temp", "proxy_temp"];
        names.map(|name| site.path(name).exists())
    };
    let site = Site::new();
    let taken = TcpListener::bind(("127.0.0.1", site.port(1))).expect("it is free");
    for (pid, arguments) in [
        ("nginx.pid", &[][..]),
        ("none/nginx.pid", &[]),
        ("none/nginx.pid", &["-t"]),
    ] {
        site.configure(&format!("{around} pid {pid}; http {{ {lines} }}"));
        let (status, said) = site.run(arguments);
        assert!(!status.success(), "{said}");
        assert_eq!(left(&site), [false; 4], "{pid} {arguments:?}");
    }
    let server = Server::start_on(site, "", ONE);
    server.forget_log();
    let text = format!("{around} pid nginx.pid; http {{ {lines} {ONE} }}");
    server.reload_file(&text);
    server.wait_for("still could not bind()", "the refusal");
    // It is told before they go.
    let begun = Instant::now();
    while left(server.site()) != [false; 4] {
        assert!(begun.elapsed() < PATIENCE, "{:?}", left(server.site()));
        std::thread::yield_now();
    }
    server.forget_log();
    drop(taken);
    server.reload_with("", &format!("{lines} {ONE}"));
    assert_eq!(left(server.site()), [true, true, false, true]);
}

#[test]
fn all_lines_of_the_error_log_show_the_local_time() {
    // Without daylight saving; POSIX's sign: 5:30 h east of UTC.
    let site = Site::new().with_environment("TZ", "<+0530>-5:30");
    let hour = || {
        let now = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC);
        let local = now.saturating_add(jiff::Span::new().minutes(330));
        local.strftime("%Y/%m/%d %H:").to_string()
    };
    let before = hour();
    let server = Server::start_on(site, "", ONE);
    server.reload(TWO);
    let (_, said) = server.site().run(&["-t", "-g", "no_such_directive;"]);
    assert!(said.contains("no_such_directive"), "{said}");
    let after = hour();
    let log = server.error_log();
    assert!(log.contains("[emerg]"), "{log}");
    for line in log.lines() {
        assert!(
            line.starts_with(&before) || line.starts_with(&after),
            "{line:?} is not of {before:?}"
        );
    }
    server.forget_log();
}
