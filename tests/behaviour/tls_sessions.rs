//! Sessions of TLS that clients take up again: of which server's cache and keys, and which not.

use super::tls::{CERTIFICATE, site};

use blackbox::tls::TlsClient;
use blackbox::{Server, is_nginx};

#[test]
fn sessions_are_taken_up_also_after_a_reload() {
    for (cache, tickets) in [
        ("shared:one:1m", "off"),
        ("none", "on"),
        ("shared:two:1m", "on"),
        // A command has the last word.
        ("none", "off; ssl_conf_command Options SessionTicket"),
    ] {
        let (site, ..) = site();
        let http = format!(
            "ssl_session_cache {cache}; ssl_session_tickets {tickets};
             server {{ listen 127.0.0.1:%PORT% ssl; {CERTIFICATE} return 200 $ssl_session_reused; }}"
        );
        let server = Server::start_on(site, "", &http);
        let client = TlsClient::new(None);
        let reused = || {
            let seen = client.get(server.site().port(0), "a.example", "/");
            seen.unwrap().reply.text()
        };
        assert_eq!(reused(), ".", "{cache} {tickets}");
        assert_eq!(reused(), "r", "{cache} {tickets}");
        if !is_nginx() || cache != "none" {
            server.reload(&http);
            assert_eq!(reused(), "r", "{cache} {tickets} after a reload");
        }
    }
}

#[test]
fn servers_without_a_cache_and_keys_have_those_of_the_default_server() {
    for of_default in [
        "ssl_session_cache shared:one:1m; ssl_session_tickets off;",
        "ssl_session_ticket_key keys;",
    ] {
        let (site, ..) = site();
        site.secret("keys", &"k".repeat(80));
        let http = format!(
            "server {{ listen 127.0.0.1:%PORT% ssl; server_name b.example; {CERTIFICATE}
                ssl_session_tickets off; return 200 $ssl_session_reused; }}
             server {{ listen 127.0.0.1:%PORT% ssl; server_name c.example; ssl_certificate b.crt; ssl_certificate_key b.key;
                return 200 $ssl_session_reused; }}
             server {{ listen 127.0.0.1:%PORT% ssl default_server; ssl_reject_handshake on; {of_default} }}"
        );
        let mut server = Server::start_on(site, "", &http);
        let client = TlsClient::new(None);
        let reused = |server: &Server, name| {
            let seen = client.get(server.site().port(0), name, "/");
            seen.unwrap().reply.text()
        };
        let has_cache = of_default.contains("cache");
        let name = if has_cache { "b.example" } else { "c.example" };
        assert_eq!(reused(&server, name), ".", "{of_default}");
        if !has_cache {
            server.restart();
        }
        assert_eq!(reused(&server, name), "r", "{of_default}");
    }
}

/// It may have another certificate the next time.
#[test]
fn a_session_of_a_client_that_was_refused_is_not_taken_up() {
    for version in ["TLSv1.2", "TLSv1.3"] {
        let (site, ..) = site();
        let http = format!(
            "log_format reused '$status $ssl_session_reused'; ssl_protocols {version};
             ssl_session_cache shared:one:1m; ssl_session_tickets off;
             server {{ listen 127.0.0.1:%PORT% ssl; {CERTIFICATE} access_log logs/access.log reused;
                ssl_verify_client on; ssl_client_certificate a.crt;
                location / {{ return 200 ok; }} }}"
        );
        let server = Server::start_on(site, "", &http);
        let client = TlsClient::new(None);
        for _ in 0..2 {
            let seen = client.get(server.site().port(0), "a.example", "/");
            assert_eq!(seen.unwrap().reply.status, 400);
        }
        assert_eq!(server.access_log(2), "400 .\n400 .\n", "{version}");
    }
}
