//! Configurations as operators have them pass `-t`, or it is named exactly what is not built (`tests/migration/README.md`).
#![expect(clippy::disallowed_methods, reason = "tests have no event loop")]

use blackbox::{Site, is_nginx};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Places of an installation, and where they are below the test's directory.
const PLACES: &[(&str, &str)] = &[
    ("/etc/nginx/mime.types", "%CONF%/mime.types"),
    ("/etc/nginx/fastcgi.conf", "%CONF%/fastcgi.conf"),
    ("/etc/nginx/fastcgi_params", "%CONF%/fastcgi_params"),
    ("/etc/nginx/uwsgi_params", "%CONF%/uwsgi_params"),
    ("/etc/nginx/scgi_params", "%CONF%/scgi_params"),
    ("/etc/nginx/", "%DIR%/"),
    ("/var/log/nginx/", "%DIR%/logs/"),
    ("/var/cache/nginx/", "%DIR%/cache-"),
    ("/var/www/", "%DIR%/html/"),
    ("/srv/media", "%DIR%/html"),
    ("/usr/share/nginx/html", "%DIR%/html"),
    ("/run/nginx.pid", "%DIR%/nginx.pid"),
    ("listen       80;", "listen %PORT%;"),
    ("listen  [::]:80;", "listen [::]:%PORT%;"),
    ("listen 80", "listen %PORT%"),
    ("listen [::]:80", "listen [::]:%PORT%"),
    ("user www-data;", "user root;"),
    ("user nginx;", "user root;"),
    ("user  nginx;", "user root;"),
];

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the tests stand in the project")
        .to_owned()
}

/// Puts the files of `directory` below the site's, with the places of an installation replaced.
fn copy(site: &Site, directory: &Path, below: &str) {
    for entry in std::fs::read_dir(directory).expect("it is there") {
        let path = entry.expect("it can be read").path();
        let name = path.file_name().expect("it has a name").to_string_lossy();
        let place = format!("{below}{name}");
        if path.is_dir() {
            std::fs::create_dir_all(site.path(&place)).expect("the directory is ours");
            copy(site, &path, &format!("{place}/"));
            continue;
        }
        let mut text = std::fs::read_to_string(&path).expect("it is text");
        for (from, to) in PLACES {
            text = text.replace(from, to);
        }
        let conf = project().join("conf").display().to_string();
        let text = site.fill(&text.replace("%CONF%", &conf));
        std::fs::write(site.path(&place), text).expect("the directory is ours");
    }
}

/// What nginx knows and no table of ours has, in the contexts of `http`.
fn not_built() -> BTreeSet<&'static str> {
    let tables = server::process::tables();
    let is_built = |name: &str| {
        let mut tables = tables.iter();
        tables.any(|table| table.named(name.as_bytes()).next().is_some())
    };
    let rows = config::known::all().iter();
    let rows = rows.filter(|row| row.fate == config::known::Fate::NotYet && !is_built(row.name));
    rows.map(|row| row.name).collect()
}

#[test]
fn configurations_of_operators_pass_or_say_what_is_not_built() {
    if is_nginx() {
        return;
    }
    let not_built = not_built();
    let mut checked = 0;
    for entry in std::fs::read_dir(project().join("tests/migration")).expect("it is there") {
        let directory = entry.expect("it can be read").path();
        if !directory.is_dir() {
            continue;
        }
        let site = Site::new();
        copy(&site, &directory, "");
        let (status, said) = site.run(&["-t"]);
        checked += 1;
        let shown = directory.display();
        if status.success() {
            assert!(said.contains("test is successful"), "{shown}: {said}");
            continue;
        }
        let named = not_built.iter().find(|name| {
            said.contains(&format!(
                "\"{name}\" directive of nginx is not built yet in "
            ))
        });
        assert!(
            named.is_some(),
            "{shown}: refused for another reason: {said}"
        );
        assert!(
            said.contains(".conf:"),
            "{shown}: the line is not named: {said}"
        );
    }
    assert_eq!(checked, 12);
}

/// What cannot be taken over is refused with its name and its line, and not passed over.
#[test]
fn what_is_not_there_is_named_with_its_line() {
    if is_nginx() {
        return;
    }
    let site = Site::new();
    let text = "events { }\nhttp {\n    server {\n        listen %PORT% quic;\n    }\n}\n";
    site.configure(text);
    let (status, said) = site.run(&["-t"]);
    assert!(!status.success());
    assert!(said.contains("nginx.conf:4"), "{said}");
    let text = "events { }\nhttp {\n    server {\n        location /memcached {\n            memcached_pass 127.0.0.1:9000;\n        }\n    }\n}\n";
    site.configure(text);
    let (status, said) = site.run(&["-t"]);
    assert!(!status.success());
    assert!(
        said.contains("\"memcached_pass\"") && said.contains("nginx.conf:5"),
        "{said}"
    );
}
