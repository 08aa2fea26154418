"""Kinds of configuration, each with a request for it: patterns, maps, filters, conditions, logs, error pages, kinds of proxying. A location's path begins with the
name of its kind; %ORIGIN% is the bench's origin, %HTML% the folder of files."""

import collections
import random

Kind = collections.namedtuple("Kind", "http location path headers status host")


def kind(location, path="1k.html", headers=(), status=200, http="", host=None):
    """`http`: what the http block needs for it, a whole server as well; `location`: the content of /NAME/; `path`: asked for below
    it, or from the root; `host`: for servers that names choose."""
    return Kind(http, location, path, tuple(headers), status, host)


def _words(seed, size):
    """Text of words, so that there is something to find and to compress."""
    chance = random.Random(seed)
    words = ["".join(chance.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(chance.randint(2, 9))) for _ in range(600)]
    text = ""
    while len(text) < size:
        text += chance.choice(words) + " "
    return text[:size], words


def _lines(count, line):
    return "\n".join(line.replace("@", str(i)) for i in range(count))


TEXT, WORDS = _words(1, 65536)
FILES = {
    "1k.html": TEXT[:1024], "16k.html": TEXT[:16384], "64k.html": TEXT,
    "page.html": "".join("<!--#include virtual=\"/parts/%d.html\" --> text " % i for i in range(10)) + "<!--#echo var=\"uri\" -->",
    "proxied.html": "".join("<!--#include virtual=\"/part/200/%d\" --> text " % i for i in range(10)),
    "failed.html": "failed",
    **{"parts/%d.html" % i: TEXT[200 * i:200 * i + 200] for i in range(10)},
    **{"entries/%03d" % i: "" for i in range(300)},
}
GZIP = ("Accept-Encoding: gzip",)
FILE = "alias %HTML%/;"
PASS = "proxy_pass http://origin/;"
LOG = "$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \"$http_referer\" \"$http_user_agent\" $request_time $connection $host $request_id"

KINDS = {
    "a file": kind(FILE),
    "100 locations by pattern": kind(_lines(100, "location ~ ^/100-locations-by-pattern/app@/(\\d+)/[a-z]+\\.php$ { return 200 '@'; }"), "app99/12/index.php"),
    "a map of 2000 texts": kind("return 200 $texts;", "k1500", http="map $uri $texts { default none; %s }" % _lines(2000, "/a-map-of-2000-texts/k@ v@;")),
    "a map of 200 patterns": kind("return 200 $patterns;", "p199/x.y", http="map $uri $patterns { default none; %s }" % _lines(200, "~^/a-map-of-200-patterns/p@/(.*)\\.y$ v@;")),
    "a geo of 10 000 networks": kind("return 200 \"$networks\";", "", http="geo $networks { default none; %s }" % "\n".join("%d.%d.%d.0/24 n;" % (10 + i % 100, i // 100, i % 250) for i in range(10000))),
    "50 rewrites": kind(_lines(50, "rewrite ^/50-rewrites/old@/(.*)$ /new/$1 last;"), "old49/x"),
    "300 names that are patterns": kind("", "/", host="r299.some.net",
                                        http=_lines(300, "server { listen 127.0.0.1:%PORT%; server_name ~^r@\\.(.+)\\.net$; location / { return 200 '@'; } }")),
    "a chain of if": kind(FILE + " if ($http_user_agent ~* '(bot|crawl|spider|curl)') { return 403; } if ($args ~ 'x=(.*)') { return 405; } if ($http_cookie ~* 'id=([^;]+)(?:;|$)') { set $id $1; }",
                          headers=("User-Agent: Mozilla/5.0 (X11; Linux x86_64) Gecko", "Cookie: id=abc")),
    "5 names tried": kind("try_files /n1$uri /n2$uri /n3$uri /n4$uri /1k.html =404;", "x"),
    "100 deny": kind(_lines(100, "deny 10.@.0.0/16;") + " allow all; " + FILE),
    "limits": kind(FILE + " limit_req zone=requests burst=10000 nodelay; limit_conn connections 10000;",
                   http="limit_req_zone $binary_remote_addr zone=requests:10m rate=1000000r/s; limit_conn_zone $binary_remote_addr zone=connections:10m;"),
    "a request too many": kind(FILE + " limit_req zone=few; error_log /dev/null emerg;", status=503, http="limit_req_zone $binary_remote_addr zone=few:1m rate=1r/m;"),
    "referers": kind("valid_referers none *.example.com ~\\.google\\.; if ($invalid_referer) { return 403; } " + FILE, headers=("Referer: http://www.google.com/x",)),
    "auth_request": kind(FILE + " auth_request /allowed;"),
    "an error page": kind("error_log /dev/null emerg; error_page 404 /failed.html; " + FILE, "none", status=404),
    "an error page by name": kind("error_log /dev/null emerg; error_page 404 = @named; " + FILE, "none"),
    "a log of many variables": kind("access_log logs/many.log many;" + FILE, http="log_format many '%s';" % LOG),
    "20 headers": kind(_lines(20, "add_header X-H@ \"$request_id @\";") + FILE),
    "sub_filter": kind(FILE + " sub_filter_types *; sub_filter_once off; sub_filter %s A; sub_filter %s B;" % (WORDS[1], WORDS[2]), "16k.html"),
    "SSI, 10 files": kind(FILE + " ssi on;", "page.html"),
    "SSI, 10 proxied": kind(FILE + " ssi on;", "proxied.html"),
    "texts around": kind(FILE + " addition_types *; add_before_body /parts/1.html; add_after_body /parts/2.html;"),
    "3 ranges": kind(FILE, "64k.html", ("Range: bytes=1000-2000,5000-6000,9000-9999",), status=206),
    "gzip of 1 KiB": kind(FILE + " gzip on; gzip_types *;", headers=GZIP),
    "gzip of 64 KiB": kind(FILE + " gzip on; gzip_types *;", "64k.html", GZIP),
    "a listing": kind("alias %HTML%/entries/; autoindex on;", ""),
    "proxied, headers set": kind(PASS + " proxy_set_header X-Real-IP $remote_addr; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; proxy_set_header X-Forwarded-Proto $scheme; proxy_hide_header ETag;"
                                 " add_header X-Server $upstream_addr;", "1024/x"),
    "proxied, no buffers": kind(PASS + " proxy_buffering off;", "1024/x"),
    "proxied, by variable": kind("set $to origin; proxy_pass http://$to/1024/x;", "x"),
    "proxied, the first fails": kind("proxy_pass http://half/; error_log /dev/null emerg;", "1024/x", http="upstream half { server 127.0.0.1:1 max_fails=0; server %ORIGIN%; keepalive 32; }"),
    "proxied, gzip of 16 KiB": kind(PASS + " gzip on; gzip_types *;", "16384/x", GZIP),
    "a hit, gzip of 1 KiB": kind(PASS + " proxy_cache kinds; proxy_cache_valid 1h; gzip on; gzip_types *;", "1024/x", GZIP),
    "a hit, long key": kind(PASS + " proxy_cache kinds; proxy_cache_valid 1h; proxy_cache_lock on; proxy_cache_key \"$scheme$host$request_uri$http_accept_language$cookie_a\"; add_header X-Cache $upstream_cache_status;",
                            "1024/x", ("Accept-Language: en", "Cookie: a=b")),
}
COMMON = """    access_log off; sendfile on; tcp_nopush on; proxy_http_version 1.1; proxy_set_header Connection "";
    map_hash_max_size 8192; map_hash_bucket_size 128; server_names_hash_max_size 4096; variables_hash_max_size 4096;
    proxy_cache_path %CACHE% keys_zone=kinds:10m;
    upstream origin { server %ORIGIN%; keepalive 64; }
"""
SHARED = """location /new/ { return 200 x; } location = /allowed { internal; return 204; } location @named { return 200 named; }
    location /part/ { proxy_pass http://origin/; }"""


def folder(name):
    """The path of a kind's location."""
    return "/%s/" % "".join(letter if letter.isalnum() else "-" for letter in name)


def http(address, html, cache):
    """The http block with all kinds."""
    locations = ["location %s { %s }" % (folder(name), one.location) for name, one in KINDS.items() if one.location]
    text = COMMON + "\n".join(one.http for one in KINDS.values()) + "\nserver { listen 127.0.0.1:%%PORT%% default_server; %s\n%s }" % (SHARED, "\n".join(locations))
    for key, value in (("%ORIGIN%", address), ("%HTML%", html), ("%CACHE%", cache)):
        text = text.replace(key, value)
    return text


def target(name):
    path = KINDS[name].path
    return path if path.startswith("/") else folder(name) + path
