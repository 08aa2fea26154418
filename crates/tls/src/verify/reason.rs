//! Why a peer's certificate is not accepted: OpenSSL's numbers and words, which configurations and logs know.

use std::fmt;

/// A reason. Several may hold; the one that OpenSSL would find last is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The chain ends at a configured certificate that is not self-signed.
    NoIssuer,
    /// No list of revocations is there for an issuer.
    NoRevocationList,
    /// A signature of a certificate is wrong, or of a kind that is not known.
    Signature,
    /// A signature of a list of revocations is wrong.
    RevocationListSignature,
    /// A certificate's time has not come.
    NotYetValid,
    /// A certificate's time is over.
    Expired,
    /// A list's time has not come.
    RevocationListNotYetValid,
    /// A list's time is over.
    RevocationListExpired,
    /// A self-signed certificate that is not configured.
    SelfSigned,
    /// A chain that ends at a self-signed certificate that is not configured.
    SelfSignedInChain,
    /// The issuer of the last certificate is not there.
    NoIssuerLocally,
    /// A lone certificate without its issuer.
    FirstCertificate,
    /// Revoked by a list.
    Revoked,
    /// An issuer that is no authority.
    InvalidAuthority,
    /// More certificates below an authority than it allows.
    PathLength,
    /// A certificate for something else.
    Purpose,
    /// An issuer whose key is not for signing certificates.
    NoCertificateSigning,
    /// A critical extension that is not known.
    CriticalExtension,
    /// An issuer whose key is not for signing lists.
    NoListSigning,
    /// A list for some certificates or some reasons only.
    RevocationListScope,
    /// A name outside of what an authority may name.
    NotPermitted,
    /// A name that an authority must not name.
    Excluded,
    /// A constraint of a kind that is not known.
    ConstraintType,
    /// A constrained name whose form is not known.
    NameSyntax,
    /// No OCSP responder told a certificate's status (`ssl_ocsp`).
    StatusRequest,
    /// Revoked, says an OCSP responder.
    StatusRevoked,
    /// The OCSP responder does not know the certificate.
    StatusUnknown,
    /// A certificate that cannot be read.
    Unreadable,
}

impl Reason {
    /// OpenSSL's number and words.
    fn parts(self) -> (u8, &'static str) {
        match self {
            Self::NoIssuer => (2, "unable to get issuer certificate"),
            Self::NoRevocationList => (3, "unable to get certificate CRL"),
            Self::Signature => (7, "certificate signature failure"),
            Self::RevocationListSignature => (8, "CRL signature failure"),
            Self::NotYetValid => (9, "certificate is not yet valid"),
            Self::Expired => (10, "certificate has expired"),
            Self::RevocationListNotYetValid => (11, "CRL is not yet valid"),
            Self::RevocationListExpired => (12, "CRL has expired"),
            Self::SelfSigned => (18, "self-signed certificate"),
            Self::SelfSignedInChain => (19, "self-signed certificate in certificate chain"),
            Self::NoIssuerLocally => (20, "unable to get local issuer certificate"),
            Self::FirstCertificate => (21, "unable to verify the first certificate"),
            Self::Revoked => (23, "certificate revoked"),
            Self::InvalidAuthority => (79, "invalid CA certificate"),
            Self::PathLength => (25, "path length constraint exceeded"),
            Self::Purpose => (26, "unsuitable certificate purpose"),
            Self::NoCertificateSigning => (32, "key usage does not include certificate signing"),
            Self::CriticalExtension => (34, "unhandled critical extension"),
            Self::NoListSigning => (35, "key usage does not include CRL signing"),
            Self::RevocationListScope => (44, "different CRL scope"),
            Self::NotPermitted => (47, "permitted subtree violation"),
            Self::Excluded => (48, "excluded subtree violation"),
            Self::ConstraintType => (51, "unsupported name constraint type"),
            Self::NameSyntax => (53, "unsupported or invalid name syntax"),
            Self::StatusRequest => (74, "certificate status request failed"),
            Self::StatusRevoked => (23, "certificate revoked"),
            Self::StatusUnknown => (75, "certificate status unknown"),
            Self::Unreadable => (1, "unspecified certificate verification error"),
        }
    }

    /// OpenSSL's number: nginx's log lines have it.
    #[must_use]
    pub fn number(self) -> u8 {
        self.parts().0
    }

    /// Whether it is about what a responder said: nginx's log lines have no number then.
    #[must_use]
    pub fn is_status(self) -> bool {
        matches!(
            self,
            Self::StatusRequest | Self::StatusRevoked | Self::StatusUnknown
        )
    }

    /// Whether `ssl_verify_client optional_no_ca` lets it pass.
    #[must_use]
    pub fn is_optional(self) -> bool {
        matches!(self.number(), 18..=21)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.parts().1)
    }
}
