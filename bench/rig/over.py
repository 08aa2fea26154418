"""What the load speaks to the server under test: HTTP/1.1 in clear, or over TLS, or HTTP/2 (the options --tls and --http2).

With TLS the server listens at a second address, too, so that whoever only looks at its figures does that in clear."""

import os
import re
import ssl
import subprocess

TLS_HOST = "127.0.0.2"
KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]

is_tls = False
is_http2 = False
_covered = set()


def choose(tls, http2):
    """Once, before any server starts."""
    global is_tls, is_http2
    is_tls, is_http2 = tls, http2


def make_key(site, name, kind=KEY):
    """A certificate and its key in the site's directory."""
    files = [os.path.join(site.path, name + ending) for ending in (".pem", ".key")]
    if not os.path.exists(files[0]):
        _make(files, kind)
    return files


def _make(files, kind):
    subprocess.run(["openssl", "req", "-x509", *kind, "-nodes", "-days", "30", "-subj", "/CN=localhost", "-out", files[0], "-keyout", files[1]],
                   check=True, capture_output=True)
    os.chmod(files[1], 0o600)


def renew(site):
    """Another certificate and key in the place of those that the servers show."""
    files = make_key(site, "over")
    new = [file + ".new" for file in files]
    _make(new, KEY)
    for file, other in zip(files, new):
        os.replace(other, file)


def spoil(site):
    """Another certificate alone: the key on disk is not its own. Returns what puts the old one back."""
    files = make_key(site, "over")
    with open(files[0], "rb") as f:
        old = f.read()
    new = [file + ".new" for file in files]
    _make(new, KEY)
    os.replace(new[0], files[0])
    os.remove(new[1])

    def put_back():
        with open(new[0], "wb") as f:
            f.write(old)
        os.replace(new[0], files[0])
    return put_back


def shown(port):
    """The certificate that a server shows."""
    return ssl.get_server_certificate((TLS_HOST, port))


def is_shown(site, port):
    """Whether a server shows the certificate that is on disk now."""
    with open(make_key(site, "over")[0]) as f:
        return ssl.PEM_cert_to_DER_cert(f.read()) == ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate((TLS_HOST, port)))


def cover(site, port, http):
    """The http block of a server that is spoken to so."""
    if not (is_tls or is_http2):
        return http
    lines = "    http2 on;\n" if is_http2 else ""
    if is_tls:
        lines += "    ssl_certificate %s; ssl_certificate_key %s;\n" % tuple(make_key(site, "over"))
        http = re.sub(r"listen 127\.0\.0\.1:%PORT%([^;]*);", r"\g<0> listen " + TLS_HOST + r":%PORT%\1 ssl;", http)
    _covered.add("127.0.0.1:%d" % port)
    return lines + http


def command(address):
    """What the load's command line says of an address, and the address: as it is where it is not that of a server under test."""
    if address not in _covered:
        return [], address
    flags = ["--tls"] * is_tls + ["--http2"] * is_http2
    return flags, address.replace("127.0.0.1", TLS_HOST) if is_tls else address
