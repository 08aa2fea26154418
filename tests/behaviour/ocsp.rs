//! OCSP: the status of clients' certificates (`ssl_ocsp`), and responses that are stapled to the server's own
//! (`ssl_stapling`).
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests run on no loop; helpers of tests fail as they do"
)]

use blackbox::ocsp::{Authority, Says};
use blackbox::tls::{Certificate, TlsClient};
use blackbox::{Answer, Exposition, Origin, Server, Site, is_nginx};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// An authority whose responder says what it is told to; `None`: it does not answer.
struct Responder {
    authority: Arc<Authority>,
    says: Arc<Mutex<Option<Says>>>,
    origin: Origin,
}

impl Responder {
    fn start(says: Says) -> Responder {
        let authority = Arc::new(Authority::new("authority.example"));
        let says = Arc::new(Mutex::new(Some(says)));
        let (by, told) = (Arc::clone(&authority), Arc::clone(&says));
        let origin = Origin::start(move |asked| match *told.lock().unwrap() {
            Some(says) => by.answer(asked, says),
            None => Answer::with("503 Service Unavailable", "", ""),
        });
        Responder {
            authority,
            says,
            origin,
        }
    }

    fn says(&self, says: Option<Says>) {
        *self.says.lock().unwrap() = says;
    }

    fn url(&self) -> String {
        format!("http://{}/status", self.origin.address())
    }
}

const CLIENTS: &str = "ssl_certificate a.crt; ssl_certificate_key a.key; ssl_verify_client on;
    ssl_client_certificate authority.crt;";

fn site(responder: &Responder) -> Site {
    let site = Site::new();
    Certificate::of("a.example").write(&site, "a");
    site.secret("authority.crt", &responder.authority.pem());
    site
}

fn ask(client: &TlsClient, port: u16) -> (u16, String) {
    let reply = client.get(port, "a.example", "/").unwrap().reply;
    let verdict = reply.header("x-verify").unwrap_or_default().to_owned();
    (reply.status, verdict)
}

#[test]
fn clients_are_accepted_by_what_the_responder_says() {
    let responder = Responder::start(Says::Good);
    let http = format!(
        "add_header X-Verify $ssl_client_verify always;
         ssl_ocsp_responder http://none.example/;
         server {{ listen 127.0.0.1:%PORT% ssl; {CLIENTS} ssl_ocsp leaf; ssl_ocsp_responder \"\"; return 200 a; }}"
    );
    let server = Server::start_on(site(&responder), "", &http);
    let port = server.site().port(0);
    let own = responder.authority.issue("c.example", &responder.url());
    let client = TlsClient::new(Some(&own));
    for (says, status, verdict) in [
        (Some(Says::Good), 200, "SUCCESS"),
        (Some(Says::GoodByDelegate), 200, "SUCCESS"),
        (Some(Says::Revoked), 400, "FAILED:certificate revoked"),
        (
            Some(Says::Unknown),
            400,
            "FAILED:certificate status unknown",
        ),
        (
            Some(Says::GoodByStranger),
            400,
            "FAILED:certificate status request failed",
        ),
        (
            Some(Says::GoodBefore),
            400,
            "FAILED:certificate status request failed",
        ),
        (None, 400, "FAILED:certificate status request failed"),
        (Some(Says::Good), 200, "SUCCESS"),
    ] {
        responder.says(says);
        assert_eq!(ask(&client, port), (status, verdict.to_owned()), "{says:?}");
    }
    // Sessions are taken up again; the status is asked for each time.
    assert_eq!(responder.origin.received().len(), 8);
    let target = responder.origin.last().target().to_owned();
    assert!(target.starts_with("/status/M"), "{target}");
    let log = server.error_log();
    if !is_nginx() {
        let line = "OCSP responder sent response with status 503 while requesting certificate status, responder: ";
        assert_eq!(log.matches(line).count(), 1, "{log}");
    }
    assert_eq!(
        log.matches("OCSP_basic_verify() failed").count(),
        1,
        "{log}"
    );
    assert_eq!(
        log.matches("OCSP_check_validity() failed").count(),
        1,
        "{log}"
    );
}

#[test]
fn a_responder_that_cannot_be_asked_accepts_no_client() {
    let responder = Responder::start(Says::Good);
    let http = format!(
        "add_header X-Verify $ssl_client_verify always;
         server {{ listen 127.0.0.1:%PORT% ssl; {CLIENTS} ssl_ocsp on; return 200 a; }}
         server {{ listen 127.0.0.1:%PORT1% ssl; {CLIENTS} ssl_ocsp on;
            ssl_ocsp_responder {}; return 200 b; }}",
        responder.url()
    );
    let server = Server::start_on(site(&responder), "", &http);
    let failed = (400, "FAILED:certificate status request failed".to_owned());
    for (url, sentence) in [
        (
            "https://127.0.0.1/",
            "invalid URL prefix in OCSP responder \"https://127.0.0.1/\" in certificate",
        ),
        (
            "http://ocsp.example/",
            "no resolver defined to resolve ocsp.example",
        ),
        ("http://127.0.0.1:1/", "(111: Connection refused)"),
    ] {
        let own = responder.authority.issue("c.example", url);
        let client = TlsClient::new(Some(&own));
        assert_eq!(ask(&client, server.site().port(0)), failed, "{url}");
        let log = server.error_log();
        assert!(log.contains(sentence), "{log}");
        assert_eq!(
            ask(&client, server.site().port(1)),
            (200, "SUCCESS".to_owned())
        );
    }
    // Its issuer is the one that is trusted: nothing is asked.
    assert_eq!(responder.origin.received().len(), 3);
}

fn metrics(server: &Server) -> Exposition {
    let request = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";
    let reply = server.connect_to(2).send(request).reply();
    Exposition::read(&reply.text(), false)
}

#[test]
fn what_a_responder_said_is_kept_for_all_servers_of_a_zone() {
    let responder = Responder::start(Says::Good);
    let http = format!(
        "add_header X-Verify $ssl_client_verify always; ssl_ocsp_cache shared:status:1m;
         server {{ listen 127.0.0.1:%PORT% ssl; {CLIENTS} ssl_ocsp leaf; return 200 a; }}
         server {{ listen 127.0.0.1:%PORT1% ssl; {CLIENTS} ssl_ocsp on; return 200 a; }}
         server {{ listen 127.0.0.1:%PORT2%; location /metrics {{ metrics; }} }}"
    );
    let server = Server::start_on(site(&responder), "", &http);
    let own = responder.authority.issue("c.example", &responder.url());
    let accepted = (200, "SUCCESS".to_owned());
    assert_eq!(
        ask(&TlsClient::new(Some(&own)), server.site().port(0)),
        accepted
    );
    responder.says(Some(Says::Revoked));
    assert_eq!(
        ask(&TlsClient::new(Some(&own)), server.site().port(1)),
        accepted
    );
    server.reload(&http.replace("200 a", "200 b"));
    assert_eq!(
        ask(&TlsClient::new(Some(&own)), server.site().port(1)),
        accepted
    );
    assert_eq!(responder.origin.received().len(), 1);
    let other = responder.authority.issue("d.example", &responder.url());
    let refused = (400, "FAILED:certificate revoked".to_owned());
    for _ in 0..2 {
        assert_eq!(
            ask(&TlsClient::new(Some(&other)), server.site().port(0)),
            refused
        );
    }
    let page = metrics(&server);
    let count = |outcome| {
        let labels = format!("{{purpose=\"client\",outcome=\"{outcome}\"}}");
        page.get(&format!("freewheel_tls_status_requests_total{labels}"))
    };
    let counts = ["good", "revoked", "cached"].map(count);
    assert_eq!(counts, [Some(1.0), Some(1.0), Some(3.0)]);
}

#[test]
fn connections_with_one_certificate_share_a_question_and_wait_no_longer_than_they_may() {
    let responder = Responder::start(Says::Good);
    let by = Arc::clone(&responder.authority);
    let slow = Origin::start(move |asked| {
        std::thread::sleep(Duration::from_millis(500));
        by.answer(asked, Says::Good)
    });
    let silent = Origin::start(|_| {
        Answer::Talk(Box::new(|stream| {
            std::thread::sleep(Duration::from_secs(20));
            drop(stream);
        }))
    });
    let http = format!(
        "add_header X-Verify $ssl_client_verify always;
         server {{ listen 127.0.0.1:%PORT% ssl; {CLIENTS} ssl_ocsp leaf;
            ssl_ocsp_responder http://{}; return 200 a; }}
         server {{ listen 127.0.0.1:%PORT1% ssl; {CLIENTS} ssl_ocsp leaf; client_header_timeout 1s;
            ssl_ocsp_responder http://{}; return 200 a; }}
         server {{ listen 127.0.0.1:%PORT2%; return 200 clear; }}",
        slow.address(),
        silent.address()
    );
    let server = Server::start_on(site(&responder), "", &http);
    let own = responder.authority.issue("c.example", &responder.url());
    let port = server.site().port(0);
    let asking = || ask(&TlsClient::new(Some(&own)), port);
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..4).map(|_| scope.spawn(asking)).collect();
        // The loop goes on meanwhile.
        slow.wait(1);
        let mut clear = server.connect_to(2);
        assert_eq!(
            clear
                .send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
                .reply()
                .status,
            200
        );
        for one in all {
            assert_eq!(one.join().unwrap(), (200, "SUCCESS".to_owned()));
        }
    });
    if !is_nginx() {
        assert!(slow.received().len() < 4, "{}", slow.received().len());
    }
    let late = TlsClient::new(Some(&own)).get(server.site().port(1), "a.example", "/");
    assert!(late.is_err());
}

/// A site whose server has a certificate of the responder's authority, without that of the authority.
fn stapling_site(responder: &Responder) -> Site {
    let site = Site::new();
    let own = responder.authority.issue("a.example", &responder.url());
    own.write(&site, "a");
    site.secret("authority.crt", &responder.authority.pem());
    site
}

const STAPLING: &str =
    "server { listen 127.0.0.1:%PORT% ssl; ssl_certificate a.crt; ssl_certificate_key a.key;
    ssl_stapling on; ssl_trusted_certificate authority.crt; return 200 a; }";

/// What is stapled in a handshake of a new client.
fn stapled(server: &Server) -> Vec<u8> {
    let seen = TlsClient::new(None).get(server.site().port(0), "a.example", "/");
    seen.unwrap().stapled
}

/// Waits until something is stapled.
fn wait_for_staple(server: &Server) -> Vec<u8> {
    for _ in 0..500 {
        let stapled = stapled(server);
        if !stapled.is_empty() {
            return stapled;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("nothing is stapled: {}", server.error_log());
}

#[test]
fn responses_are_fetched_and_stapled() {
    let responder = Responder::start(Says::Good);
    let server = Server::start_on(stapling_site(&responder), "", STAPLING);
    let first = wait_for_staple(&server);
    assert_eq!(stapled(&server), first);
    // One question, whatever the number of handshakes; the next configuration knows the answer.
    responder.says(None);
    server.reload(&STAPLING.replace("200 a", "200 b"));
    assert_eq!(stapled(&server), first);
    assert_eq!(responder.origin.received().len(), 1);
    for line in [
        "",
        "ssl_stapling_verify on;",
        // Empty names take back those of the level above.
        "ssl_stapling_file \"\"; ssl_stapling_responder \"\";",
    ] {
        responder.says(Some(Says::GoodByDelegate));
        let site = stapling_site(&responder);
        let http = STAPLING.replace("ssl_stapling on;", &format!("ssl_stapling on; {line}"));
        assert!(!wait_for_staple(&Server::start_on(site, "", &http)).is_empty());
    }
}

#[test]
fn what_is_wrong_old_or_foreign_is_not_stapled() {
    for (says, line) in [
        (Some(Says::GoodByStranger), "OCSP_basic_verify() failed"),
        (Some(Says::GoodBefore), "OCSP_check_validity() failed"),
        (
            Some(Says::Revoked),
            "certificate status \"revoked\" in the OCSP response",
        ),
        (
            Some(Says::Unknown),
            "certificate status \"unknown\" in the OCSP response",
        ),
        (None, "OCSP responder sent response with status 503"),
    ] {
        let responder = Responder::start(Says::Good);
        responder.says(says);
        let server = Server::start_on(stapling_site(&responder), "", STAPLING);
        stapled(&server);
        responder.origin.wait(1);
        server.wait_for(", certificate: \"a.crt\"", line);
        let log = server.error_log();
        assert!(log.contains(line), "{log}");
        assert!(stapled(&server).is_empty(), "{says:?}");
        // A responder that has answered is left alone for a while.
        if says.is_some() {
            assert_eq!(responder.origin.received().len(), 1);
        }
    }
}

#[test]
fn a_responder_that_was_not_ready_is_asked_again_at_once() {
    let responder = Responder::start(Says::Good);
    responder.says(None);
    let server = Server::start_on(stapling_site(&responder), "", STAPLING);
    responder.origin.wait(1);
    responder.says(Some(Says::Good));
    // By handshakes within the test's patience: far less than the pause behind an answer.
    assert!(!wait_for_staple(&server).is_empty());
}

#[test]
fn an_answer_about_another_certificate_is_not_stapled() {
    let other = Responder::start(Says::Good);
    // Another authority's responder signs with its own key for what it is asked.
    let responder = Responder::start(Says::Good);
    let site = stapling_site(&responder);
    let line = format!("ssl_stapling on; ssl_stapling_responder {};", other.url());
    let http = STAPLING.replace("ssl_stapling on;", &line);
    let server = Server::start_on(site, "", &http);
    stapled(&server);
    server.wait_for("OCSP_basic_verify() failed", "foreign");
    assert!(stapled(&server).is_empty());
    assert_eq!(responder.origin.received().len(), 0);
    // Unless the configuration trusts the one that signs.
    let site = stapling_site(&responder);
    let trusted = responder.authority.pem() + &other.authority.pem();
    site.secret("authority.crt", &trusted);
    wait_for_staple(&Server::start_on(site, "", &http));
}

#[test]
fn what_cannot_be_asked_for_is_told_when_the_configuration_is_read() {
    let responder = Responder::start(Says::Good);
    let site = site(&responder);
    responder
        .authority
        .issue("b.example", "ftp://a/")
        .write(&site, "b");
    let told = |lines: &str| {
        site.configure(&format!(
            "events {{}} http {{ server {{ listen 127.0.0.1:%PORT% ssl; {lines} }} }}"
        ));
        site.run(&["-t"]).1
    };
    let stapling = "ssl_certificate_key b.key; ssl_certificate b.crt; ssl_stapling on;";
    let zone = "ssl_session_cache shared:a:1m; ssl_ocsp_cache shared:a:1m;";
    for (lines, sentence) in [
        (
            stapling.to_owned(),
            "\"ssl_stapling\" ignored, issuer certificate not found for certificate \"",
        ),
        (
            format!("{stapling} ssl_trusted_certificate authority.crt;"),
            "\"ssl_stapling\" ignored, invalid URL prefix in OCSP responder \"ftp://a/\" in the certificate \"",
        ),
        (
            format!("{CLIENTS} ssl_ocsp on; ssl_ocsp_responder https://a;"),
            "invalid URL prefix in OCSP responder \"https://a\" in \"ssl_ocsp_responder\"",
        ),
        (
            format!("{CLIENTS} ssl_ocsp on; ssl_verify_client optional_no_ca;")
                .replace("ssl_verify_client on;", ""),
            "\"ssl_ocsp\" is incompatible with \"ssl_verify_client optional_no_ca\"",
        ),
        (
            format!("{CLIENTS} ssl_ocsp leaf; {zone}"),
            "the shared memory zone \"a\" is already declared for a different use",
        ),
        (
            format!("{CLIENTS} ssl_ocsp_cache shared:a:1;"),
            "OCSP cache \"shared:a:1\" is too small",
        ),
    ] {
        let text = told(&lines);
        assert!(text.contains(sentence), "{lines}: {text}");
    }
}
