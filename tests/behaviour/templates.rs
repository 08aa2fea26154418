//! `include_template`: variables of the environment. Freewheel's own.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests: no event loop, and a failure is a panic"
)]

use blackbox::{Server, Site, is_nginx};

const MAIN: &str = "";

fn site(template: &str) -> Site {
    let site = Site::new()
        .with_environment("FW_PORT", "%PORT%")
        .with_environment("FW_TEXT", "a; return 500; } \"x\"");
    std::fs::create_dir(site.path("templates")).unwrap();
    std::fs::write(site.path("templates/site.template"), template).unwrap();
    site
}

const TEMPLATE: &str = "server {
    listen 127.0.0.1:${FW_PORT};
    server_name ${FW_NAME:-localhost};
    location / { return 200 \"${FW_TEXT}|$host|${FW_NONE:-none}\"; }
}
";

#[test]
fn values_are_served_across_reloads() {
    if is_nginx() {
        return;
    }
    let server = Server::start_on(
        site(TEMPLATE),
        MAIN,
        "include_template templates/*.template;",
    );
    let text = "a; return 500; } \"x\"|localhost|none";
    assert_eq!(server.get("/").text(), text);
    server.reload("include_template templates/site.template; add_header X-New 1;");
    let reply = server.get("/");
    assert_eq!(reply.text(), text);
    assert!(reply.header("x-new").is_some());
}

#[test]
fn the_dump_shows_the_result_and_the_error_the_place() {
    if is_nginx() {
        return;
    }
    let site = site(TEMPLATE);
    site.configure("events { } http { include_template templates/*.template; }");
    let (status, text) = site.run(&["-T"]);
    assert!(status.success(), "{text}");
    let listen = site.fill("listen \"127.0.0.1:%PORT%\";");
    assert!(text.contains(&listen), "{text}");
    assert!(
        text.contains("return 200 \"a; return 500; } \\\"x\\\"|$host|none\";"),
        "{text}"
    );
    std::fs::write(
        site.path("templates/site.template"),
        "server { listen 127.0.0.1:${FW_PORT};\n  return 200 ${FW_MISSING}; }",
    )
    .unwrap();
    let (status, text) = site.run(&["-t"]);
    assert!(!status.success());
    assert!(
        text.contains("\"FW_MISSING\" is not set in the environment in "),
        "{text}"
    );
    assert!(text.contains("/templates/site.template:2"), "{text}");
}

#[test]
fn one_process_serves_them_too() {
    if is_nginx() {
        return;
    }
    let server = Server::start_on(
        site(TEMPLATE),
        "master_process off;",
        "include_template templates/*.template;",
    );
    assert!(server.get("/").text().ends_with("|none"));
}
