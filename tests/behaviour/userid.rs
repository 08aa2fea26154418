//! `userid`: cookies by which clients are known again.

use blackbox::Server;

const SERVER: &str = "log_format ids '$uid_got|$uid_set';
     map $arg_reset $uid_reset { default $arg_reset; }
     server { listen 127.0.0.1:%PORT%; userid_service 42; access_log logs/access.log ids;
         location / { userid on; add_header X-Ids $uid_got|$uid_set; return 200; }
         location /v1 { userid v1; return 200; }
         location /log { userid log; return 200; }
         location /off { return 200; }
         location /all { userid on; userid_name who; userid_domain .example.org; userid_path /all; userid_expires max;
             userid_flags secure httponly samesite=strict; userid_p3p P; userid_mark m; return 200; }
         location /time { userid on; userid_expires 1d; userid_domain none; userid_p3p none; return 200; } }";

/// The number 42, and what a client was given once.
const OLD: &str = "AAAAKmcvVXMvqwhDAwMDAg";

#[test]
fn a_new_client_gets_a_cookie() {
    let server = Server::start(SERVER);
    let reply = server.get("/");
    let cookie = reply.header("set-cookie").unwrap_or_default();
    assert!(cookie.starts_with("uid=AAAAK"), "{cookie}");
    assert!(cookie.ends_with("==; path=/"), "{cookie}");
    assert_eq!(cookie.len(), "uid=".len() + 24 + "; path=/".len());
    let shown = reply.header("x-ids").unwrap_or_default().to_owned();
    assert!(shown.starts_with("|uid=2A000000"), "{shown}");
    let log = server.access_log(1);
    assert_eq!(log.trim_end(), format!("-{shown}"), "the same in the log");
    let other = server.get("/");
    assert_ne!(other.header("set-cookie"), reply.header("set-cookie"));
    let first_version = server.get("/v1");
    let cookie = first_version.header("set-cookie").unwrap_or_default();
    assert!(cookie.starts_with("uid=KgAAA"), "{cookie}");
    assert_eq!(server.get("/log").header("set-cookie"), None);
    assert_eq!(server.get("/off").header("set-cookie"), None);
}

#[test]
fn a_known_client_keeps_its_cookie() {
    let server = Server::start(SERVER);
    let with = |path: &str, cookie: &str| {
        server.get_with(path, &format!("Cookie: a=b; {cookie}; c=d\r\n"))
    };
    let reply = with("/", &format!("uid={OLD}=="));
    assert_eq!(reply.header("set-cookie"), None);
    let shown = reply.header("x-ids").unwrap_or_default();
    assert_eq!(shown, "uid=2A00000073552F674308AB2F02030303|");
    assert_eq!(
        with("/", &format!("UID={OLD}garbage")).header("set-cookie"),
        None
    );
    for wrong in [
        "uid=short",
        "uid=!!!!!!!!!!!!!!!!!!!!!!!!",
        "uid=AAAAAAAAAAAAAAAAAAAAAA==",
    ] {
        assert!(with("/", wrong).header("set-cookie").is_some(), "{wrong}");
    }
    server.wait_for(
        "client sent too short userid cookie \"a=b; uid=short; c=d\"",
        "one reason",
    );
    server.wait_for("client sent invalid userid cookie", "the other");
    let _ = with("/log", &format!("uid={OLD}=="));
    let log = server.access_log(6);
    assert!(
        log.ends_with("uid=2A00000073552F674308AB2F02030303|-\n"),
        "{log}"
    );
    server.forget_log();
}

#[test]
fn cookies_are_replaced_and_marked() {
    let server = Server::start(SERVER);
    let with = |path: &str, cookie: &str| {
        let reply = server.get_with(path, &format!("Cookie: {cookie}\r\n"));
        reply.header("set-cookie").unwrap_or_default().to_owned()
    };
    let own = format!("uid={OLD}==");
    assert_eq!(with("/?reset=0", &own), "");
    let reset = with("/?reset=1", &own);
    assert!(
        reset.starts_with("uid=AAAAK") && !reset.contains(OLD),
        "{reset}"
    );
    assert!(!with("/?reset=log", &own).is_empty());
    server.wait_for(
        "userid cookie \"uid=2A00000073552F674308AB2F02030303\" was reset",
        "what was replaced",
    );
    let unmarked = format!("who={OLD}==");
    let rest = "; expires=Thu, 31-Dec-37 23:55:55 GMT; domain=.example.org; path=/all; secure; httponly; samesite=strict";
    assert_eq!(with("/all", &unmarked), format!("who={OLD}m={rest}"));
    assert_eq!(with("/all", &format!("who={OLD}m=")), "");
    assert_eq!(
        with("/all", &format!("who={OLD}x=")),
        format!("who={OLD}m={rest}")
    );
    let new = server.get("/all");
    assert_eq!(new.header("p3p"), Some("P"));
    let cookie = new.header("set-cookie").unwrap_or_default();
    assert!(cookie.ends_with(&format!("m={rest}")), "{cookie}");
    let day = server.get("/time");
    assert_eq!(day.header("p3p"), None);
    let cookie = day.header("set-cookie").unwrap_or_default();
    assert!(
        cookie.contains("==; expires=") && cookie.ends_with(" GMT; path=/"),
        "{cookie}"
    );
}
