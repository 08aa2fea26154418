"""Locations for clients and origins that leave at any moment: ways to an origin, each with directives that change how a body travels, and files."""

import os
import re

WAYS = {
    "http1": ("proxy", "proxy_pass http://http1/;", "proxy_http_version 1.1; proxy_set_header Connection '';"),
    "http2": ("proxy", "proxy_pass http://http2/;", "proxy_http_version %HTTP2%;"),
    "tls2": ("proxy", "proxy_pass https://tls/;", "proxy_http_version %HTTP2%;"),
    "tls1": ("proxy", "proxy_pass https://tls/;", "proxy_http_version 1.1; proxy_set_header Connection '';"),
    "fastcgi": ("fastcgi", "fastcgi_pass fastcgi;", "fastcgi_keep_conn on; fastcgi_param REQUEST_METHOD $request_method; fastcgi_param REQUEST_URI $below; fastcgi_param CONTENT_LENGTH $content_length;"
                " fastcgi_param SERVER_PROTOCOL HTTP/1.1;"),
    "uwsgi": ("uwsgi", "uwsgi_pass uwsgi;", "uwsgi_param REQUEST_METHOD $request_method; uwsgi_param REQUEST_URI $below; uwsgi_param CONTENT_LENGTH $content_length;"),
    "scgi": ("scgi", "scgi_pass scgi;", "scgi_param REQUEST_METHOD $request_method; scgi_param REQUEST_URI $below;"),
}
RANGE = {"proxy": "proxy_set_header Range $slice_range;", "fastcgi": "fastcgi_param HTTP_RANGE $slice_range;", "uwsgi": "uwsgi_param HTTP_RANGE $slice_range;", "scgi": "scgi_param HTTP_RANGE $slice_range;"}
# WAY_ is proxy_, fastcgi_, uwsgi_ or scgi_; %RANGE% asks for the slice, %PATH% is the site's directory. `pass`: other servers in the place of the first.
VARIANTS = {
    "plain": "", "unbuffered": "WAY_buffering off;", "streamed": "WAY_request_buffering off;",
    "files": "WAY_cache WAY; WAY_cache_key $request_method$uri; WAY_cache_valid 200 1s;",
    "segments": "WAY_cache segments; WAY_cache_key $request_method$uri; WAY_cache_lock on;",
    "disks": "WAY_cache disks; WAY_cache_key $request_method$uri; WAY_cache_lock on;", "device": "WAY_cache device; WAY_cache_key $request_method$uri; WAY_cache_revalidate on;",
    "updated": "WAY_cache WAY; WAY_cache_key $uri$is_args; WAY_cache_lock on; WAY_cache_background_update on; WAY_cache_use_stale updating error timeout http_500; WAY_cache_revalidate on;"
               " WAY_cache_methods GET HEAD;",
    "slices": "slice 100k; WAY_cache segments; WAY_cache_key $uri$slice_range; %RANGE%",
    "small-slices": "slice 64k; WAY_cache WAY; WAY_cache_key $uri$slice_range; WAY_cache_lock on; %RANGE%",
    "small-buffers": "WAY_buffers 2 4k; WAY_buffer_size 4k; WAY_busy_buffers_size 4k; WAY_temp_file_write_size 8k; WAY_max_temp_file_size 200k;",
    "no-file": "WAY_max_temp_file_size 0;", "server-rate": "WAY_limit_rate 300k;", "client-rate": "limit_rate 300k;",
    "store": "WAY_store %PATH%/store$uri; WAY_store_access all:r;",
    "gzip": "gzip on; gzip_proxied any; gzip_min_length 10;", "sub": "sub_filter 'QQQQQQQQ' 'RRRRRRRR'; sub_filter_once off;", "ssi": "ssi on;",
    "mirror": "mirror /mirror;", "auth": "auth_request /auth;", "intercepted": "WAY_intercept_errors on; error_page 500 502 504 = @failed;",
    "deaf": "WAY_ignore_client_abort on;", "next": "WAY_next_upstream error timeout invalid_header http_503 non_idempotent; WAY_next_upstream_tries 4;",
    "small-upload": "client_body_buffer_size 1k;", "one-buffer": "client_body_in_single_buffer on; client_body_buffer_size 64k;", "upload-file": "client_body_in_file_only clean;",
    "impatient": "WAY_read_timeout 300ms; WAY_connect_timeout 300ms; WAY_send_timeout 300ms;",
}
FILES = {
    "st": "", "stdio": "directio 100k;", "stnosf": "sendfile off;", "stgz": "gzip on; gzip_min_length 10; gzip_types *;", "stsub": "sub_filter 'QQQQQQQQ' 'RRRRRRRR'; sub_filter_types *;",
    "strate": "limit_rate 400k;", "stssi": "ssi on; ssi_types *;", "stchunk": "sendfile_max_chunk 64k; output_buffers 1 8k;", "stinline": "aio off;",
}
HTTP = """    access_log logs/access.log; aio threads; sendfile on; client_max_body_size 50m;
    client_body_temp_path %PATH%/temp/body; proxy_temp_path %PATH%/temp/proxy; fastcgi_temp_path %PATH%/temp/fastcgi; uwsgi_temp_path %PATH%/temp/uwsgi; scgi_temp_path %PATH%/temp/scgi;
    proxy_cache_path %PATH%/files levels=1:2 keys_zone=proxy:2m max_size=60m inactive=10s;
    fastcgi_cache_path %PATH%/fastcgi levels=1:2 keys_zone=fastcgi:2m max_size=60m inactive=10s;
    uwsgi_cache_path %PATH%/uwsgi levels=1:2 keys_zone=uwsgi:2m max_size=60m inactive=10s;
    scgi_cache_path %PATH%/scgi levels=1:2 keys_zone=scgi:2m max_size=60m inactive=10s;
    proxy_cache_path %PATH%/segments keys_zone=segments:2m max_size=300m inactive=10s%OWN%;
%OWN-CACHES%
    upstream http1 { server %http1%; keepalive 16; }
    upstream http2 { server %http2%; keepalive 8; }
    upstream grpc { server %grpc%; keepalive 8; }
    upstream tls { server %tls%; keepalive 8; }
    upstream fastcgi { server %fastcgi%; keepalive 8; }
    upstream uwsgi { server %uwsgi%; }
    upstream scgi { server %scgi%; }
    upstream http1-next { zone one 64k; server %garbage% max_fails=3 fail_timeout=1s; server %http1%; server 127.0.0.1:9; keepalive 4; }
    upstream http2-next { server %garbage% max_fails=2 fail_timeout=1s; server %http2%; keepalive 4; least_conn; }
    upstream tls-next { server %garbage%; server %tls%; server %tls% backup; keepalive 4; }
    upstream fastcgi-next { server %garbage%; server %fastcgi%; keepalive 4; }
    upstream uwsgi-next { server %garbage%; server %uwsgi%; }
    upstream scgi-next { server %garbage%; server %scgi%; }
    map $request_uri $below { ~^/[^/]*(?<rest>/.*)$ $rest; }
    server {
        listen 127.0.0.1:%PORT% reuseport; listen 127.0.0.2:%PORT% ssl; listen 127.0.0.3:%PORT%; http2 on; keepalive_requests 50;
        ssl_certificate %CERTIFICATE%; ssl_certificate_key %KEY%;
        location = /status { stub_status; access_log off; }
        location @failed { return 504; }
        location = /auth { internal; proxy_pass http://http1/auth; proxy_pass_request_body off; proxy_set_header Content-Length ''; proxy_set_header X-Upload ''; }
        location = /mirror { internal; proxy_pass http://http1/whole/1000/1; }
        location /dav/ { alias %PATH%/dav/; dav_methods PUT DELETE; create_full_put_path on; client_body_temp_path %PATH%/temp/dav; }
        location /tunnel/ { proxy_pass http://%echo%; proxy_http_version 1.1; proxy_set_header Connection upgrade; proxy_set_header Upgrade $http_upgrade; }
%LOCATIONS%
    }
"""


# Caches that others have not: one over two disks, the second of which is as it should be; one on a device, here a file of its length.
SEGMENTS = " store=segments"
OWN_CACHES = """    proxy_cache_path %PATH%/disk,%OTHER%/disk levels=1:2 keys_zone=disks:2m max_size=60m inactive=10s;
    proxy_cache_path %PATH%/device.img files=%PATH%/device keys_zone=device:2m inactive=10s;"""
DEVICE_BYTES = 384 << 20


def locations(path, only, is_nginx):
    """(prefix, block) of each. `only`: a part of its prefix."""
    found = {}
    for way, (kind, to, begin) in WAYS.items():
        for name, text in VARIANTS.items():
            here, text = to, text.replace("%RANGE%", RANGE[kind]).replace("WAY", kind).replace("cache segments", "cache segments" if kind == "proxy" else "cache " + kind)
            if is_nginx:
                text = re.sub("cache (segments|disks|device);", "cache %s;" % kind, text)
            if name == "next":
                here = re.sub(r"(/?;)$", r"-next\1", here)
            found["/%s-%s/" % (way, name)] = "%s %s %s add_header X-Cache $upstream_cache_status;" % (begin, text, here)
    found["/grpc-plain/"] = "rewrite ^/grpc-plain(/.*)$ $1 break; grpc_pass grpc://grpc;"
    found.update(("/%s/" % name, "alias %PATH%/st/; " + text) for name, text in FILES.items())
    fill = {"%PATH%": path, "%HTTP2%": "1.1" if is_nginx else "2"}
    for prefix, block in found.items():
        for name, value in fill.items():
            block = block.replace(name, value)
        if only in prefix:
            yield prefix, "        location %s { %s }" % (prefix, block)


def http(path, other, certificate, origins, chosen, is_nginx):
    """The http block. `other`: a directory on a disk that is as it should be; `origins`: addresses by name; `chosen`: blocks of locations."""
    text = HTTP.replace("%LOCATIONS%", "\n".join(chosen)).replace("%OWN%", "" if is_nginx else SEGMENTS).replace("%OWN-CACHES%", "" if is_nginx else OWN_CACHES)
    text = text.replace("%PATH%", path).replace("%OTHER%", other)
    text = text.replace("%CERTIFICATE%", certificate[0]).replace("%KEY%", certificate[1])
    # Debian's nginx has no HTTP/2 to servers but gRPC.
    origins = {**origins, "grpc": origins["http2"], "http2": origins["http1" if is_nginx else "http2"]}
    for name, address in origins.items():
        text = text.replace("%%%s%%" % name, address)
    return text


def prepare(path):
    """Directories that a worker may write to."""
    for name in ("store", "dav", "temp", "st"):
        os.makedirs(os.path.join(path, name), exist_ok=True)
        os.chmod(os.path.join(path, name), 0o777)
    with open(os.path.join(path, "device.img"), "wb") as device:
        device.truncate(DEVICE_BYTES)
    os.chmod(path, 0o755)
