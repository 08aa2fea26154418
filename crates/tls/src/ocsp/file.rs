//! A file with a response to be stapled as it is (`ssl_stapling_file`).
//!
//! Not here: whether it is signed, about which certificate, and until when: that is its client's to judge, as in nginx.

use super::RESPONSE_BYTES_MAX;
use crate::error::{Error, cannot_open};
use crate::keys::ReadFile;
use crate::x509::der::{self, Reader};

/// OpenSSL's function that reads it.
const READ: &str = "d2i_OCSP_RESPONSE_bio";
/// OpenSSL's errors, outermost last.
const WRONG_TAG: &str = "068000A8:asn1 encoding routines::wrong tag";
const NESTED: &str = "0688010A:asn1 encoding routines::nested asn1 error";
const FIELD_MISSING: &str = "06800079:asn1 encoding routines::field missing";
const NOT_ENOUGH: &str = "0680008E:asn1 encoding routines::not enough data";
const TOO_LONG: &str = "0680009B:asn1 encoding routines::too long";

/// The response in a file: its first value; what follows it is left out, as by nginx.
///
/// # Errors
/// The file cannot be opened, or does not begin with a response as DER; nginx's sentence.
pub fn from_file(path: &str, file: ReadFile<'_>) -> Result<Vec<u8>, Error> {
    let faulty = |call, reason| Error::StaplingFile {
        call,
        path: path.to_owned(),
        reason,
    };
    let bytes = file(path).map_err(|error| {
        let reason = cannot_open(path, "rb", &error);
        faulty("BIO_new_file", format!(" (SSL: {reason})"))
    })?;
    match first(&bytes) {
        Ok(response) => Ok(response.to_vec()),
        // OpenSSL has no error of its own for this.
        Err(_) if bytes.is_empty() => Err(faulty(READ, String::new())),
        Err(reason) => Err(faulty(READ, format!(" (SSL: {reason})"))),
    }
}

/// The response that `bytes` begin with; else OpenSSL's errors.
fn first(bytes: &[u8]) -> Result<&[u8], String> {
    let value = Reader::new(bytes).next();
    let value = value.ok_or_else(|| format!("error:{NOT_ENOUGH}"))?;
    if value.tag != der::SEQUENCE {
        return Err(format!(
            "error:{WRONG_TAG} error:{NESTED}:Type=OCSP_RESPONSE"
        ));
    }
    if value.whole.len() > RESPONSE_BYTES_MAX {
        return Err(format!("error:{TOO_LONG}"));
    }
    match fields(value.contents) {
        Ok(()) => Ok(value.whole),
        Err((FIELD_MISSING, field)) => Err(format!(
            "error:{FIELD_MISSING}:Field={field}, Type=OCSP_RESPONSE"
        )),
        Err((inner, field)) => Err(format!(
            "error:{inner} error:{NESTED} error:{NESTED}:Field={field}, Type=OCSP_RESPONSE"
        )),
    }
}

/// Checks the fields of a response (RFC 6960, 4.2.1); else the error and the field's name.
fn fields(contents: &[u8]) -> Result<(), (&'static str, &'static str)> {
    let mut outer = Reader::new(contents);
    if outer.is_empty() {
        return Err((FIELD_MISSING, "responseStatus"));
    }
    let status = outer.expect(der::ENUMERATED).and_then(der::unsigned);
    status.ok_or((WRONG_TAG, "responseStatus"))?;
    if outer.is_empty() {
        return Ok(());
    }
    let bytes = outer.expect(der::constructed(0)).and_then(|inside| {
        let mut bytes = Reader::new(der::only(inside, der::SEQUENCE)?);
        bytes.expect(der::OID)?;
        bytes.expect(der::OCTET_STRING)?;
        (bytes.is_empty() && outer.is_empty()).then_some(())
    });
    bytes.ok_or((WRONG_TAG, "responseBytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Vec<u8>, String> {
        let outcome = from_file("/r", &|_| Ok(bytes.to_vec()));
        outcome.map_err(|error| error.to_string())
    }

    #[test]
    fn a_response_is_its_files_first_value() {
        let later = b"\x30\x03\x0a\x01\x03";
        assert_eq!(read(later).unwrap(), later);
        assert_eq!(read(b"\x30\x03\x0a\x01\x03and more").unwrap(), later);
        let full = b"\x30\x0e\x0a\x01\0\xa0\x09\x30\x07\x06\x01\x2a\x04\x02ab";
        assert_eq!(read(full).unwrap(), full);
    }

    /// As nginx 1.31.5 with OpenSSL 3.0 says.
    #[test]
    fn what_is_none_is_refused() {
        let says = |bytes: &[u8]| {
            let said = read(bytes).unwrap_err();
            let rest = said.strip_prefix("d2i_OCSP_RESPONSE_bio(\"/r\") failed");
            rest.unwrap().to_owned()
        };
        let nested = "error:0688010A:asn1 encoding routines::nested asn1 error";
        assert_eq!(says(b""), "");
        let short = " (SSL: error:0680008E:asn1 encoding routines::not enough data)";
        assert_eq!(says(b"hello\n"), short);
        assert_eq!(says(b"\x30\x05\x0a\x01\x03"), short);
        let pem = [&b"-----BEGIN OCSP RESPONSE-----"[..], &[b'\n'; 60]].concat();
        let wrong = "error:068000A8:asn1 encoding routines::wrong tag";
        let of_type = format!(" (SSL: {wrong} {nested}:Type=OCSP_RESPONSE)");
        assert_eq!(says(&pem), of_type);
        let missing = " (SSL: error:06800079:asn1 encoding routines::field missing:Field=responseStatus, \
            Type=OCSP_RESPONSE)";
        assert_eq!(says(b"\x30\0"), missing);
        let field =
            format!(" (SSL: {wrong} {nested} {nested}:Field=responseStatus, Type=OCSP_RESPONSE)");
        assert_eq!(says(b"\x30\x03\x02\x01\x03"), field);
        assert!(says(b"\x30\x05\x0a\x01\0\xa0\0").contains("Field=responseBytes"));
        assert!(says(b"\x30\x06\x0a\x01\x03\x0a\x01\x03").contains("Field=responseBytes"));
    }

    #[test]
    fn a_missing_file_has_nginxs_sentence() {
        let missing = std::io::Error::from_raw_os_error(2);
        let error = from_file("/r", &|_| Err(missing.kind().into())).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("BIO_new_file(\"/r\") failed (SSL: error:8")
        );
        assert!(error.to_string().contains("calling fopen(/r, rb)"));
    }
}
