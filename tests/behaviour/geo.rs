//! `geo`: values that depend on an address.

use blackbox::{Server, Site};

#[test]
fn an_address_has_a_value() {
    let site = Site::new();
    site.file("../geo.conf", "192.0.2.0/24 included;");
    let server = Server::start_on(
        site,
        "",
        "geo $own { default other; 127.0.0.0/8 loopback; }
         geo $arg_ip $by { default other; 10.0.0.0/8 $literal; include geo.conf; 2001:db8::/32 six;
             255.255.255.255 none; }
         geo $arg_ip $range { ranges; default other; 10.0.0.1-10.0.0.9 nine; }
         geo $forwarded { proxy 127.0.0.1; 127.0.0.0/8 loopback; 192.0.2.0/24 test; default other; }
         geo $recursive { proxy_recursive; proxy 127.0.0.1; proxy 10.0.0.0/8; 192.0.2.0/24 test; default other; }
         server { listen 127.0.0.1:%PORT%;
             location / { return 200 \"$own|$by|$range|$forwarded|$recursive\"; } }
         server { listen unix:%DIR%/unix.sock; location / { return 200 \"$own|$by\"; } }",
    );
    let get = |path: &str, headers: &str| server.get_with(path, headers).text();
    assert_eq!(get("/", ""), "loopback|none|other|loopback|other");
    assert_eq!(
        get("/?ip=10.0.0.1", ""),
        "loopback|$literal|nine|loopback|other"
    );
    assert_eq!(
        get("/?ip=192.0.2.1", ""),
        "loopback|included|other|loopback|other"
    );
    assert_eq!(
        get("/?ip=2001:db8::1", ""),
        "loopback|six|other|loopback|other"
    );
    let forwarded = "X-Forwarded-For: 192.0.2.1\r\n";
    assert_eq!(
        get("/?ip=1.1.1.1", forwarded),
        "loopback|other|other|test|test"
    );
    let proxies = "X-Forwarded-For: 192.0.2.1, 10.0.0.1\r\n";
    assert_eq!(
        get("/?ip=1.1.1.1", proxies),
        "loopback|other|other|other|test"
    );
}

#[test]
fn a_volatile_value_is_found_anew() {
    let server = Server::start(
        "geo $arg_ip $fixed { default other; 10.0.0.0/8 ten; }
         geo $arg_ip $volatile { volatile; default other; 10.0.0.0/8 ten; }
         server { listen 127.0.0.1:%PORT%;
             location / { try_files $fixed$volatile /second?ip=10.0.0.1; }
             location = /second { return 200 \"$fixed|$volatile\"; } }",
    );
    assert_eq!(server.get("/?ip=1.1.1.1").text(), "other|ten");
}
