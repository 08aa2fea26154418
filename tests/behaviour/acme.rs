//! Certificates by ACME, against a small authority: both challenges, accounts, renewal, failures, restarts. Against a real one:
//! `cargo xtask acme`.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests: blocking files, and a failure is a panic"
)]

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use ::acme::keys::KeyKind;
use ::acme::{Identifier, Order};
use blackbox::acme::{AcmeAuthority, Rules};
use blackbox::tls::{Certificate, Seen, TlsClient};
use blackbox::tls_origin::Authority;
use blackbox::{Exposition, Server, Site};

/// Maximum time for what takes a few requests.
const PATIENCE: Duration = Duration::from_secs(20);

fn authority(site: &Site, change: impl FnOnce(&mut Rules)) -> AcmeAuthority {
    let mut rules = Rules {
        http_port: site.port(0),
        tls_port: site.port(1),
        ..Rules::default()
    };
    change(&mut rules);
    let authority = AcmeAuthority::start(rules);
    site.secret("ca.crt", authority.root());
    authority
}

/// The text for `http`: an issuer with more lines, and a server with TLS with more words of `acme_certificate`.
fn http(authority: &AcmeAuthority, issuer: &str, words: &str) -> String {
    format!(
        "resolver 127.0.0.1:1;
         acme_issuer main {{ uri {}; ssl_trusted_certificate ca.crt; state_path %DIR%/state; {issuer} }}
         server {{ listen 127.0.0.1:%PORT%; server_name example.test; return 301 https://$host/;
             location = /metrics {{ metrics; }} }}
         server {{ listen 127.0.0.1:%PORT1% ssl; server_name .example.test ~^x; acme_certificate main {words};
             ssl_certificate $acme_certificate; ssl_certificate_key $acme_certificate_key;
             location / {{ return 200 \"$host $ssl_protocol\"; }} }}
         server {{ listen 127.0.0.1:%PORT2%; location / {{ metrics; }} }}",
        authority.uri()
    )
}

fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    blackbox::until(what, PATIENCE, look)
}

/// What a client sees once there is a certificate.
fn shown(server: &Server, name: &str) -> Seen {
    let port = server.site().port(1);
    until("a certificate", || {
        TlsClient::new(None).get(port, name, "/").ok()
    })
}

fn figure(server: &Server, name: &str) -> Option<f64> {
    let mut connection = server.connect_to(2);
    let reply = connection
        .send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .reply();
    Exposition::read(&reply.text(), false).get(name)
}

/// The file of the only certificate.
fn certificate_file(server: &Server) -> PathBuf {
    let state = std::fs::read_dir(server.site().path("state")).unwrap();
    let mut files = state.flatten().map(|entry| entry.path());
    files
        .find(|path| path.extension().is_some_and(|end| end == "crt"))
        .expect("a certificate")
}

fn has(certificate: &[u8], name: &str) -> bool {
    certificate
        .windows(name.len())
        .any(|window| window == name.as_bytes())
}

#[test]
fn a_certificate_is_got_by_a_token_shown_and_kept() {
    let site = Site::new();
    let authority = authority(&site, |_| ());
    let text = http(&authority, "contact admin@example.test;", "");
    let mut server = Server::start_on(site, "", &text);
    let seen = shown(&server, "example.test");
    assert_eq!(seen.reply.text(), "example.test TLSv1.3");
    assert!(has(&seen.certificate, "www.example.test"));
    assert_eq!(authority.contacts()[0][0], "mailto:admin@example.test");
    let state = server.site().path("state");
    let mode =
        |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    until("the file", || {
        let files = std::fs::read_dir(&state).ok()?;
        let mut names = files.flatten().map(|entry| entry.file_name());
        names
            .any(|name| name.to_string_lossy().ends_with(".crt"))
            .then_some(())
    });
    let file = certificate_file(&server);
    assert_eq!(
        (mode(&state), mode(&file), mode(&file.with_extension("key"))),
        (0o700, 0o600, 0o600)
    );
    let labels = "{issuer=\"main\",certificate=\"www.example.test\"}";
    // The master counts, and tells its worker a moment behind the file.
    until("the count", || {
        let orders = figure(&server, &format!("freewheel_acme_orders_total{labels}"));
        (orders == Some(1.0)).then_some(())
    });
    assert_eq!(
        figure(&server, &format!("freewheel_acme_failures_total{labels}")),
        Some(0.0)
    );
    let end = "freewheel_tls_certificate_end_seconds{certificate=\"www.example.test\"}";
    assert!(figure(&server, end).is_some());
    // Neither a reload nor a restart gets another one.
    server.reload(&text);
    assert_eq!(shown(&server, "example.test").certificate, seen.certificate);
    server.restart();
    assert_eq!(
        shown(&server, "www.example.test").certificate,
        seen.certificate
    );
    assert_eq!((authority.ordered().len(), authority.accounts()), (1, 1));
    // Tokens are gone: the server's own rules hold again.
    assert_eq!(
        server.get("/.well-known/acme-challenge/token-0-0").status,
        301
    );
    server.wait_for(
        "unsupported regular expression in server_name: ~^x",
        "a name",
    );
}

#[test]
fn a_certificate_is_got_by_a_handshake_with_keys_of_other_kinds() {
    for (key, account) in [
        ("rsa", "ecdsa:384"),
        ("ecdsa:384", "rsa"),
        ("ecdsa:521", "ecdsa:521"),
    ] {
        let site = Site::new();
        let authority = authority(&site, |rules| rules.refuses_nonces = true);
        let words = format!("a.example.test b.example.test key={key}");
        let issuer =
            format!("challenge tls-alpn-01; account_key {account}; common_name_in_csr on;");
        let server = Server::start_on(site, "", &http(&authority, &issuer, &words));
        let seen = shown(&server, "a.example.test");
        assert!(has(&seen.certificate, "b.example.test"), "{key}");
        assert_eq!(authority.ordered().len(), 1, "{key}");
    }
}

#[test]
fn without_a_certificate_handshakes_are_refused_and_one_line_says_why() {
    let site = Site::new();
    let authority = authority(&site, |rules| {
        rules.refuses_orders = Some(("rejectedIdentifier", "policy forbids this name"));
    });
    let text = http(&authority, "", "");
    let server = Server::start_on(site, "", &text);
    let said = "policy forbids this name (rejectedIdentifier, 400) while updating certificate, acme issuer: \"main\", order: \"www.example.test-";
    server.wait_for(said, "the authority's words");
    let port = server.site().port(1);
    let refused = TlsClient::new(None)
        .get(port, "example.test", "/")
        .unwrap_err();
    assert!(refused.contains("InternalError"), "{refused}");
    let none = "there is no certificate yet, acme issuer: \"main\"";
    server.wait_for(none, "why a handshake is refused");
    assert_eq!(server.error_log().matches(said).count(), 1);
    assert_eq!(authority.ordered().len(), 1);
    let failures =
        "freewheel_acme_failures_total{issuer=\"main\",certificate=\"www.example.test\"}";
    until("a failure counted", || {
        figure(&server, failures).filter(|count| *count == 1.0)
    });
    // A clear request is served meanwhile.
    assert_eq!(server.get("/").status, 301);
}

#[test]
fn accounts_are_bound_agree_to_terms_and_are_made_anew() {
    let site = Site::new();
    let authority = authority(&site, |rules| {
        rules.external_key = Some("kid-1".to_owned());
        rules.has_terms = true;
        rules.profiles = vec!["short"];
    });
    site.secret("eab", "c2VjcmV0\n");
    let issuer = "external_account_key kid-1 eab; accept_terms_of_service; profile short;";
    let mut server = Server::start_on(site, "", &http(&authority, issuer, ""));
    let first = shown(&server, "example.test").certificate;
    assert_eq!(authority.ordered()[0]["profile"], "short");
    // The account is not valid any more, and the certificate is due.
    authority.deactivate_accounts();
    server.wait_for("certificate issued", "the first certificate");
    let file = until("the file", || {
        Some(certificate_file(&server)).filter(|file| file.exists())
    });
    let old = Certificate::between("example.test", (2019, 2020));
    assert!(server.quit().success());
    std::fs::write(&file, &old.certificate).unwrap();
    std::fs::write(file.with_extension("key"), &old.key).unwrap();
    forget_attempts(&file);
    server.restart();
    server.wait_for(
        "the account is given up, and another one made",
        "another account",
    );
    until("another certificate", || {
        let now = shown(&server, "example.test").certificate;
        (now != first && has(&now, "www.example.test")).then_some(())
    });
    assert_eq!((authority.ordered().len(), authority.accounts()), (2, 2));
}

/// Has the next start order at once.
fn forget_attempts(file: &std::path::Path) {
    let name = file.file_stem().unwrap().to_string_lossy().into_owned();
    std::fs::remove_file(file.with_file_name(format!(".{name}.attempts"))).unwrap();
}

#[test]
fn a_certificate_that_ends_is_renewed_without_a_note_on_the_disk() {
    let site = Site::new();
    let authority = authority(&site, |_| ());
    let mut server = Server::start_on(site, "", &http(&authority, "", ""));
    server.wait_for("certificate issued", "the first certificate");
    let file = until("the file", || {
        Some(certificate_file(&server)).filter(|file| file.exists())
    });
    assert!(server.quit().success());
    let old = Certificate::between("example.test", (2019, 2020));
    std::fs::write(&file, &old.certificate).unwrap();
    std::fs::write(file.with_extension("key"), &old.key).unwrap();
    forget_attempts(&file);
    // In the place of the note: it cannot be written.
    let name = file.file_stem().unwrap().to_string_lossy().into_owned();
    std::fs::create_dir(file.with_file_name(format!(".{name}.attempts"))).unwrap();
    server.restart();
    until("another certificate", || {
        has(
            &shown(&server, "example.test").certificate,
            "www.example.test",
        )
        .then_some(())
    });
    assert_eq!(authority.ordered().len(), 2);
}

#[test]
fn another_authority_issues_another_certificate_at_once() {
    let site = Site::new();
    let staging = authority(&site, |_| ());
    let mut server = Server::start_on(site, "", &http(&staging, "", ""));
    server.wait_for("certificate issued", "the first certificate");
    let first = shown(&server, "example.test").certificate;
    let attempts = certificate_file(&server);
    let name = attempts.file_stem().unwrap().to_string_lossy().into_owned();
    let attempts = attempts.with_file_name(format!(".{name}.attempts"));
    // So that the next order does not wait.
    let noted = until("the note", || {
        let noted = std::fs::read(&attempts).ok()?;
        let mut noted: serde_json::Value = serde_json::from_slice(&noted).ok()?;
        noted["last"] = 0.into();
        (noted["authority"] != 0).then(|| noted.to_string())
    });
    std::fs::write(&attempts, noted).unwrap();
    let real = authority(server.site(), |_| ());
    let text = http(&real, "", "");
    server.reload(&text);
    let second = until("a certificate of the other one", || {
        let now = shown(&server, "example.test").certificate;
        (now != first).then_some(now)
    });
    until("both are issued", || {
        let count = server.error_log().matches("certificate issued").count();
        (count == 2).then_some(())
    });
    // It is known whose it is.
    server.reload(&text);
    server.restart();
    assert_eq!(shown(&server, "example.test").certificate, second);
    assert_eq!((staging.ordered().len(), real.ordered().len()), (1, 1));
}

#[test]
fn terms_that_are_not_agreed_to_are_told_with_their_place() {
    let site = Site::new();
    let authority = authority(&site, |rules| rules.has_terms = true);
    let server = Server::start_on(site, "", &http(&authority, "", ""));
    let said = "agree to the terms (userActionRequired, 403); \"accept_terms_of_service\" agrees to the terms of service, which are at https://localhost:";
    server.wait_for(said, "where the terms are");
}

#[test]
fn a_certificate_that_comes_due_causes_no_storm() {
    const YEAR: i64 = 365 * 24 * 3600;
    type Change = fn(&mut Rules);
    let changes: [Change; 3] = [
        |rules| rules.renewal = Some((1_000_000, 1_000_001)),
        // This machine's clock is wrong, or the authority's.
        |rules| rules.ahead_seconds = -YEAR,
        |rules| rules.ahead_seconds = YEAR,
    ];
    for (index, change) in changes.into_iter().enumerate() {
        let site = Site::new();
        let authority = authority(&site, change);
        let server = Server::start_on(site, "", &http(&authority, "", ""));
        shown(&server, "example.test");
        server.wait_for("the certificate is due as soon as it came", "a warning");
        assert_eq!(authority.ordered().len(), 1);
        let next =
            "freewheel_acme_next_attempt_seconds{issuer=\"main\",certificate=\"www.example.test\"}";
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap();
        until("the next attempt an hour later", || {
            figure(&server, next).filter(|at| *at > now.as_secs_f64() + 3000.0)
        });
        let suggested = "CA suggested renewal window: 1970-01-12";
        let is_told = server.error_log().contains(suggested);
        assert_eq!(is_told, index == 0);
    }
}

#[test]
fn other_certificates_that_are_there_already_are_shown_from_the_first_request_of_a_reload_on() {
    let site = Site::new();
    let authority = authority(&site, |_| ());
    let (two, one) = (
        http(&authority, "", "example.test"),
        http(&authority, "", "other.test"),
    );
    let server = Server::start_on(site, "", &two);
    let first = shown(&server, "example.test").certificate;
    server.reload(&one);
    until("the other one", || {
        has(&shown(&server, "other.test").certificate, "other.test").then_some(())
    });
    server.reload(&two);
    let port = server.site().port(1);
    let seen = TlsClient::new(None).get(port, "example.test", "/").unwrap();
    assert_eq!(seen.certificate, first);
    assert_eq!(authority.ordered().len(), 2);
}

/// So many servers `N.test`, and the text for `http` with them and one with the metrics, at the third port. For each there is a
/// certificate, except for the last `missing`.
fn many(site: &Site, authority: &AcmeAuthority, count: usize, missing: usize) -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    let signer = Authority::new("another authority");
    let chain = signer.issue_for(&["any.test".to_owned()], &key, (-3600, 90 * 24 * 3600));
    let state = site.path("state");
    std::fs::create_dir(&state).unwrap();
    let uri = authority.uri();
    let mut text = format!(
        "resolver 127.0.0.1:1;
         acme_issuer main {{ uri {uri}; ssl_trusted_certificate ca.crt; state_path %DIR%/state; }}
         ssl_certificate $acme_certificate; ssl_certificate_key $acme_certificate_key;
         server {{ listen 127.0.0.1:%PORT%; }}
         server {{ listen 127.0.0.1:%PORT2%; location / {{ metrics; }} }}"
    );
    for number in 0..count {
        let name = format!("{number}.test");
        text += &format!(
            "server {{ listen 127.0.0.1:%PORT1% ssl; server_name {name}; acme_certificate main; return 200 a; }}\n"
        );
        let order = Order {
            identifiers: vec![Identifier::Dns(name)],
            key: KeyKind::default(),
        };
        if number < count - missing {
            let file = |end: &str| state.join(format!("{}.{end}", order.id()));
            std::fs::write(file("crt"), &chain).unwrap();
            std::fs::write(file("key"), key.serialize_pem()).unwrap();
        }
    }
    text
}

#[test]
fn many_certificates_at_an_authority_that_says_nothing_of_renewal_stop_nobody() {
    const COUNT: usize = 600;
    let site = Site::new();
    let authority = authority(&site, |_| ());
    let text = many(&site, &authority, COUNT, 1);
    let server = Server::start_on(site, "", &text);
    // Missing ones come first: afterwards all questions are done.
    shown(&server, &format!("{}.test", COUNT - 1));
    let labels = "{issuer=\"main\",certificate=\"0.test\"}";
    let next = format!("freewheel_acme_next_attempt_seconds{labels}");
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    until("the next question tomorrow", || {
        figure(&server, &next).filter(|at| *at > now.as_secs_f64() + 3600.0)
    });
    assert_eq!(shown(&server, "7.test").reply.status, 200);
    assert_eq!(authority.ordered().len(), 1);
}

#[test]
fn a_new_certificate_does_not_wait_for_answers_about_renewal() {
    let site = Site::new();
    let authority = authority(&site, |rules| {
        rules.renewal = Some((4_000_000_000, 4_000_000_001));
        rules.is_silent_about_renewal = true;
    });
    let text = many(&site, &authority, 3, 1);
    let server = Server::start_on(site, "", &text);
    assert_eq!(shown(&server, "2.test").reply.status, 200);
}

#[test]
fn an_issuer_that_is_gone_has_no_metrics() {
    let site = Site::new();
    let authority = authority(&site, |_| ());
    let server = Server::start_on(site, "", &http(&authority, "", ""));
    let orders = "freewheel_acme_orders_total{issuer=\"main\",certificate=\"www.example.test\"}";
    until("the count", || {
        figure(&server, orders).filter(|count| *count == 1.0)
    });
    server.reload("server { listen 127.0.0.1:%PORT2%; location / { metrics; } }");
    until("no metrics", || {
        figure(&server, orders).is_none().then_some(())
    });
}

#[test]
fn without_a_master_it_is_the_same() {
    let site = Site::new();
    let authority = authority(&site, |_| ());
    let text = http(&authority, "", "");
    let server = Server::start_on(site, "master_process off;", &text);
    assert!(has(
        &shown(&server, "example.test").certificate,
        "example.test"
    ));
}

/// Asserts that `-t` refuses what stands in `http`, with a sentence and a place.
fn refused(http: &str, sentence: &str) {
    let site = Site::new();
    site.configure(&format!("events {{ }} http {{ {http} }}"));
    let (status, said) = site.run(&["-t"]);
    assert!(
        !status.success() && said.contains(sentence),
        "{http}: {said}"
    );
    assert!(said.contains("nginx.conf:1"), "it has a place: {said}");
}

#[test]
fn wrong_issuers_are_refused_in_nginxs_words() {
    const URI: &str = "uri https://localhost/dir;";
    for (lines, sentence) in [
        ("", "acme_issuer: \"uri\" is missing"),
        ("uri ftp://a;", "invalid URI \"ftp://a\" in \"uri\""),
        ("challenge dns-01;", "unsupported challenge: dns-01"),
        ("profile a b;", "invalid parameter \"b\""),
        (
            "challenge http; challenge http;",
            "\"challenge\" directive is duplicate",
        ),
        ("nothing on;", "unknown directive \"nothing\""),
        ("%account_key ecdsa:234;", "account_key: unsupported curve"),
        (
            "%account_key rsa:1024;",
            "account_key: unsupported key size",
        ),
        (
            "%account_key none.key;",
            "acme_issuer: cannot load account key",
        ),
        (
            "%external_account_key k data:%%;",
            "invalid base64url encoded value",
        ),
    ] {
        let lines = match lines.strip_prefix('%') {
            Some(more) => format!("{URI} {more}"),
            None => lines.to_owned(),
        };
        refused(
            &format!("acme_issuer a {{ {lines} }} resolver 127.0.0.1;"),
            sentence,
        );
    }
    let issuer = format!("acme_issuer a {{ {URI} }}");
    refused(&issuer, "acme_issuer: \"resolver\" is not configured");
    refused(
        &format!("{issuer} {issuer}"),
        "\"acme_issuer\" directive is duplicate",
    );
    let zone = "\"acme_shared_zone\" must have \"zone\" parameter";
    refused("acme_shared_zone bad;", zone);
    refused(
        "acme_shared_zone zone=a:x;",
        "acme_shared_zone: invalid zone size \"a:x\"",
    );
    refused(
        "acme_shared_zone zone=a:1k;",
        "acme_shared_zone: zone a is too small",
    );
}

#[test]
fn wrong_certificates_are_refused_in_nginxs_words() {
    for (words, sentence) in [
        ("acme_certificate b a.test;", "issuer \"b\" is missing"),
        (
            "acme_certificate a;",
            "\"acme_certificate\": no identifiers found in \"server_name\"",
        ),
        (
            "server_name www.a.*; acme_certificate a;",
            "invalid server name: unexpected character '*' at position 6",
        ),
        (
            "acme_certificate a *.a.test;",
            "a wildcard needs the challenge dns-01, which is not built",
        ),
        (
            "acme_certificate a a.test key=dsa;",
            "acme_certificate: invalid \"key\" value",
        ),
    ] {
        let issuer = "resolver 127.0.0.1; acme_issuer a { uri https://localhost/dir; }";
        refused(&format!("{issuer} server {{ {words} }}"), sentence);
    }
}
