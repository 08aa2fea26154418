//! Verdicts on chains: each reason in OpenSSL's words.
#![allow(clippy::unwrap_used, reason = "tests")]

mod peer;

use peer::*;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer,
    CidrSubnet, DistinguishedName, DnType, DnValue, ExtendedKeyUsagePurpose, GeneralSubtree, IsCa,
    KeyIdMethod, KeyPair, KeyUsagePurpose, NameConstraints, PKCS_ECDSA_P256_SHA256,
    RevokedCertParams, SanType, SerialNumber, date_time_ymd,
};
use rustls::pki_types::CertificateDer;
use tls::keys;
use tls::verify::{Purpose, Trust};
use tls::x509::certificate::Certificate;
use tls::x509::revocations::RevocationList;

/// 2026-01-01.
const NOW: i64 = 1_767_225_600;

fn verdict_at(trust: &Trust, chain: &[&CertificateDer<'static>], now: i64) -> String {
    let chain: Vec<_> = chain.iter().map(|der| (*der).clone()).collect();
    trust.verdict(&chain, Purpose::Client, now).to_string()
}

fn verdict(trust: &Trust, chain: &[&CertificateDer<'static>]) -> String {
    verdict_at(trust, chain, NOW)
}

fn trust(anchors: &[&Authority], depth: usize) -> Trust {
    Trust::new(anchors.iter().map(|one| one.der()), Vec::new(), depth)
}

#[test]
fn depth_counts_what_stands_between() {
    let root = Authority::new("root");
    let one = root.below("one");
    let two = one.below("two");
    let leaf = two.client("leaf");
    let chain = [&leaf.der, &two.der(), &one.der()];
    assert_eq!(verdict(&trust(&[&root], 2), &chain), "SUCCESS");
    assert_eq!(
        verdict(&trust(&[&root], 1), &chain),
        "FAILED:unable to get local issuer certificate"
    );
    let direct = root.client("direct");
    assert_eq!(verdict(&trust(&[&root], 0), &[&direct.der]), "SUCCESS");
}

#[test]
fn a_chain_goes_up_to_what_is_configured() {
    let root = Authority::new("root");
    let below = root.below("below");
    let leaf = below.client("leaf");
    let presented = [leaf.der.clone(), Authority::new("stray").der(), below.der()];
    let chain = trust(&[&root], 1).chain(&presented, NOW);
    assert_eq!(chain, [leaf.der, below.der(), root.der()]);
}

#[test]
fn what_is_missing_or_unknown() {
    let (root, other) = (Authority::new("root"), Authority::new("other"));
    let below = root.below("below");
    let leaf = below.client("leaf");
    let trusts = trust(&[&root], 9);
    assert_eq!(
        verdict(&trusts, &[&leaf.der]),
        "FAILED:unable to verify the first certificate"
    );
    let others = trust(&[&other], 9);
    let chain = [&leaf.der, &below.der(), &root.der()];
    assert_eq!(
        verdict(&others, &chain),
        "FAILED:self-signed certificate in certificate chain"
    );
    assert_eq!(
        verdict(&others, &chain[..2]),
        "FAILED:unable to get local issuer certificate"
    );
    // A configured authority that is not self-signed is no end, as with nginx.
    assert_eq!(
        verdict(&trust(&[&below], 9), &[&leaf.der]),
        "FAILED:unable to get issuer certificate"
    );
    assert_eq!(
        trusts.verdict(&[], Purpose::Client, NOW).to_string(),
        "NONE"
    );
    let garbage = CertificateDer::from(vec![0x30, 0]);
    assert!(verdict(&trusts, &[&garbage]).starts_with("FAILED:"));
}

#[test]
fn an_impostor_with_the_authoritys_name_is_refused() {
    let root = Authority::new("root");
    let mut params = params("root");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_identifier_method = KeyIdMethod::PreSpecified(vec![1]);
    let impostor = Authority(
        rcgen::CertifiedIssuer::self_signed(params, key(&PKCS_ECDSA_P256_SHA256)).unwrap(),
    );
    let leaf = impostor.client("leaf");
    let trust = trust(&[&root], 9);
    assert!(verdict(&trust, &[&leaf.der]).starts_with("FAILED:"));
    assert!(verdict(&trust, &[&leaf.der, &impostor.der()]).starts_with("FAILED:"));
    let mut changed = root.client("leaf").der.to_vec();
    let last = changed.len() - 1;
    changed[last] ^= 1;
    assert_eq!(
        verdict(&trust, &[&CertificateDer::from(changed)]),
        "FAILED:certificate signature failure"
    );
}

#[test]
fn times() {
    let root = Authority::new("root");
    let mut params = params("leaf");
    params.not_before = date_time_ymd(2025, 1, 1);
    params.not_after = date_time_ymd(2027, 1, 1);
    let leaf = root.issue(&params);
    let trust = trust(&[&root], 1);
    let year = 366 * 86_400;
    assert_eq!(verdict(&trust, &[&leaf.der]), "SUCCESS");
    assert_eq!(
        verdict_at(&trust, &[&leaf.der], NOW - year),
        "FAILED:certificate is not yet valid"
    );
    assert_eq!(
        verdict_at(&trust, &[&leaf.der], NOW + year),
        "FAILED:certificate has expired"
    );
}

#[test]
fn only_authorities_issue() {
    let root = Authority::new("root");
    let mut no_authority = params("not an authority");
    no_authority.is_ca = IsCa::ExplicitNoCa;
    let between = Authority(
        rcgen::CertifiedIssuer::signed_by(no_authority, key(&PKCS_ECDSA_P256_SHA256), &root.0)
            .unwrap(),
    );
    let leaf = between.client("leaf");
    let chain = [&leaf.der, &between.der()];
    assert_eq!(
        verdict(&trust(&[&root], 9), &chain),
        "FAILED:unsuitable certificate purpose"
    );
    let mut narrow = params("narrow");
    narrow.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let narrow = Authority(
        rcgen::CertifiedIssuer::self_signed(narrow, key(&PKCS_ECDSA_P256_SHA256)).unwrap(),
    );
    let below = narrow.below("below");
    let leaf = below.client("leaf");
    let chain = [&leaf.der, &below.der()];
    assert_eq!(
        verdict(&trust(&[&narrow], 9), &chain),
        "FAILED:path length constraint exceeded"
    );
    let mut unsigning = params("unsigning");
    unsigning.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    unsigning.key_usages = vec![KeyUsagePurpose::CrlSign];
    let unsigning = Authority(
        rcgen::CertifiedIssuer::self_signed(unsigning, key(&PKCS_ECDSA_P256_SHA256)).unwrap(),
    );
    let leaf = unsigning.client("leaf");
    assert_eq!(
        verdict(&trust(&[&unsigning], 9), &[&leaf.der]),
        "FAILED:key usage does not include certificate signing"
    );
}

#[test]
fn purposes() {
    let root = Authority::new("root");
    let trust = trust(&[&root], 1);
    let mut params = params("leaf");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let leaf = root.issue(&params);
    assert_eq!(
        verdict(&trust, &[&leaf.der]),
        "FAILED:unsuitable certificate purpose"
    );
    assert_eq!(
        trust.verify(std::slice::from_ref(&leaf.der), Purpose::Server, NOW),
        Ok(())
    );
    params.extended_key_usages = Vec::new();
    params.key_usages = vec![KeyUsagePurpose::KeyEncipherment];
    let leaf = root.issue(&params);
    assert_eq!(
        verdict(&trust, &[&leaf.der]),
        "FAILED:unsuitable certificate purpose"
    );
    assert_eq!(
        trust.verify(std::slice::from_ref(&leaf.der), Purpose::Server, NOW),
        Ok(())
    );
}

#[test]
fn what_openssl_makes_by_default_is_taken() {
    let no_file = |_: &str| unreachable!();
    for text in [
        include_str!("fixtures/v1.crt"),
        include_str!("fixtures/ca.crt"),
    ] {
        let chain = keys::chain(&format!("data:{text}"), &no_file).unwrap();
        let trust = Trust::new(chain.clone(), Vec::new(), 1);
        let later = NOW + 20 * 366 * 86_400;
        assert_eq!(verdict_at(&trust, &[&chain[0]], later), "SUCCESS");
        assert_eq!(
            verdict(&trust, &[&chain[0]]),
            "FAILED:certificate is not yet valid"
        );
        let nothing = Trust::default();
        assert_eq!(
            verdict_at(&nothing, &[&chain[0]], later),
            "FAILED:self-signed certificate"
        );
    }
}

#[test]
fn a_leaf_that_is_an_authority_is_taken() {
    let root = Authority::new("root");
    let below = root.below("below");
    assert_eq!(verdict(&trust(&[&root], 1), &[&below.der()]), "SUCCESS");
}

fn list(authority: &Authority, revoked: &[u64], until: i32) -> RevocationList {
    RevocationList::read(list_der(authority, revoked, (2025, until))).unwrap()
}

fn list_der(authority: &Authority, revoked: &[u64], (from, until): (i32, i32)) -> Vec<u8> {
    let revoked = revoked.iter().map(|serial| RevokedCertParams {
        serial_number: SerialNumber::from(*serial),
        revocation_time: date_time_ymd(2025, 1, 1),
        reason_code: None,
        invalidity_date: None,
    });
    let params = CertificateRevocationListParams {
        this_update: date_time_ymd(from, 1, 1),
        next_update: date_time_ymd(until, 6, 1),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: revoked.collect(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    let list = params.signed_by(&authority.0).unwrap();
    list.der().to_vec()
}

#[test]
fn lists_of_revocations() {
    let root = Authority::new("root");
    let with_serial = |serial: u64| {
        let mut params = params("leaf");
        params.serial_number = Some(SerialNumber::from(serial));
        root.issue(&params)
    };
    let (good, bad) = (with_serial(200), with_serial(300));
    let with = |lists| Trust::new([root.der()], lists, 1);
    let lists = || vec![list(&root, &[1, 300, 70_000], 2030)];
    assert_eq!(lists()[0].revoked(), 3);
    assert_eq!(verdict(&with(lists()), &[&good.der]), "SUCCESS");
    assert_eq!(
        verdict(&with(lists()), &[&bad.der]),
        "FAILED:certificate revoked"
    );
    let two = vec![list(&root, &[300], 2025), list(&root, &[], 2030)];
    assert_eq!(
        verdict(&with(two), &[&bad.der]),
        "FAILED:certificate revoked"
    );
    let old = vec![list(&root, &[], 2025)];
    assert_eq!(
        verdict_at(&with(old), &[&good.der], NOW),
        "FAILED:CRL has expired"
    );
    let other = Authority::new("other");
    let foreign = vec![list(&other, &[], 2030)];
    assert_eq!(
        verdict(&with(foreign), &[&good.der]),
        "FAILED:unable to get certificate CRL"
    );
    let impostor = Authority::new("root");
    let forged = vec![list(&impostor, &[], 2030)];
    assert_eq!(
        verdict(&with(forged), &[&good.der]),
        "FAILED:unable to get certificate CRL"
    );
    let mut forged = list_der(&root, &[], (2025, 2030));
    let last = forged.len() - 1;
    forged[last] ^= 1;
    let forged = vec![RevocationList::read(forged).unwrap()];
    assert_eq!(
        verdict(&with(forged), &[&good.der]),
        "FAILED:CRL signature failure"
    );
}

#[test]
fn the_newest_lists_of_an_issuer_count() {
    let root = Authority::new("root");
    let leaf = |serial: u64| {
        let mut params = params("leaf");
        params.serial_number = Some(SerialNumber::from(serial));
        root.issue(&params)
    };
    let read = |der: Vec<u8>| RevocationList::read(der).unwrap();
    // The newest one stands last, as where a file is appended to.
    let years = (2000..2026).map(|year| {
        let revoked: &[u64] = if year == 2025 { &[300] } else { &[] };
        read(list_der(&root, revoked, (year, 2030)))
    });
    // Before them those of other keys with the same name.
    let others: Vec<_> = (0..20).map(|_| Authority::new("root")).collect();
    let others = others
        .iter()
        .map(|other| read(list_der(other, &[200], (2025, 2030))));
    let trust = Trust::new([root.der()], others.chain(years).collect(), 1);
    assert_eq!(verdict(&trust, &[&leaf(200).der]), "SUCCESS");
    assert_eq!(
        verdict(&trust, &[&leaf(300).der]),
        "FAILED:certificate revoked"
    );
}

#[test]
fn names_stay_within_their_constraints() {
    let mut params = params("narrow");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.name_constraints = Some(NameConstraints {
        permitted_subtrees: vec![
            GeneralSubtree::DnsName("example.org".to_owned()),
            GeneralSubtree::IpAddress(CidrSubnet::from_v4_prefix([10, 0, 0, 0], 8)),
        ],
        excluded_subtrees: vec![GeneralSubtree::DnsName("bad.example.org".to_owned())],
    });
    let root = Authority(
        rcgen::CertifiedIssuer::self_signed(params, key(&PKCS_ECDSA_P256_SHA256)).unwrap(),
    );
    let trust = trust(&[&root], 1);
    let of = |names: Vec<SanType>| {
        let mut params = CertificateParams::default();
        params.subject_alt_names = names;
        verdict(&trust, &[&root.issue(&params).der])
    };
    let dns = |name: &str| SanType::DnsName(name.try_into().unwrap());
    assert_eq!(of(vec![dns("a.example.org")]), "SUCCESS");
    assert_eq!(
        of(vec![dns("a.example.com")]),
        "FAILED:permitted subtree violation"
    );
    assert_eq!(
        of(vec![dns("bad.example.org")]),
        "FAILED:excluded subtree violation"
    );
    assert_eq!(
        of(vec![SanType::IpAddress([10, 1, 1, 1].into())]),
        "SUCCESS"
    );
    assert_eq!(
        of(vec![
            dns("example.org"),
            SanType::IpAddress([11, 1, 1, 1].into())
        ]),
        "FAILED:permitted subtree violation"
    );
    // A certificate without DNS names is for the hosts of its common names.
    let named = |name: &str, names: Vec<SanType>| {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.subject_alt_names = names;
        verdict(&trust, &[&root.issue(&params).der])
    };
    for (name, expected) in [
        ("a.example.org", "SUCCESS"),
        ("A. N. Other", "SUCCESS"),
        ("bank.com", "FAILED:permitted subtree violation"),
        ("*.bank.com", "FAILED:permitted subtree violation"),
        ("bad.example.org", "FAILED:excluded subtree violation"),
    ] {
        assert_eq!(named(name, Vec::new()), expected, "{name}");
    }
    assert_eq!(named("bank.com", vec![dns("example.org")]), "SUCCESS");
}

#[test]
fn mail_addresses_in_subjects_are_constrained_too() {
    let constrained = |constraints: NameConstraints| {
        let mut params = params("narrow");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.name_constraints = Some(constraints);
        let key = key(&PKCS_ECDSA_P256_SHA256);
        Authority(CertifiedIssuer::self_signed(params, key).unwrap())
    };
    let of = |domain: &str| vec![GeneralSubtree::Rfc822Name(domain.to_owned())];
    let permitted = constrained(NameConstraints {
        permitted_subtrees: of("example.org"),
        excluded_subtrees: Vec::new(),
    });
    let excluded = constrained(NameConstraints {
        permitted_subtrees: Vec::new(),
        excluded_subtrees: of("bank.com"),
    });
    let ia5 = |address: &str| DnValue::Ia5String(address.try_into().unwrap());
    let (own, foreign) = ("a@example.org", "ceo@bank.com");
    for (root, address, expected) in [
        (&permitted, ia5(own), "SUCCESS"),
        (
            &permitted,
            ia5(foreign),
            "FAILED:permitted subtree violation",
        ),
        (&excluded, ia5(own), "SUCCESS"),
        (&excluded, ia5(foreign), "FAILED:excluded subtree violation"),
        (
            &excluded,
            DnValue::Utf8String(own.to_owned()),
            "FAILED:unsupported or invalid name syntax",
        ),
    ] {
        let mut params = CertificateParams::default();
        let mail_address = DnType::CustomDnType(vec![1, 2, 840, 113_549, 1, 9, 1]);
        params
            .distinguished_name
            .push(mail_address, address.clone());
        let leaf = root.issue(&params);
        assert_eq!(
            verdict(&trust(&[root], 1), &[&leaf.der]),
            expected,
            "{address:?}"
        );
    }
}

fn distinguished(value: DnValue) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, value);
    name
}

/// The same authority twice: its name in one string type, and as a tool has written it anew.
fn in_two_forms(constraints: Option<NameConstraints>) -> (Authority, Authority) {
    let pem = key(&PKCS_ECDSA_P256_SHA256).serialize_pem();
    let with = |name: DnValue| {
        let mut params = CertificateParams::default();
        params.distinguished_name = distinguished(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.name_constraints.clone_from(&constraints);
        let key = KeyPair::from_pem(&pem).unwrap();
        Authority(CertifiedIssuer::self_signed(params, key).unwrap())
    };
    (
        with(DnValue::PrintableString("Example CA".try_into().unwrap())),
        with(DnValue::Utf8String("example  ca ".to_owned())),
    )
}

#[test]
fn issuers_are_found_by_what_their_names_say() {
    let (own, rewritten) = in_two_forms(None);
    let leaf = rewritten.client("leaf");
    assert_eq!(verdict(&trust(&[&own], 1), &[&leaf.der]), "SUCCESS");
    let with_list = Trust::new([own.der()], vec![list(&own, &[], 2030)], 1);
    assert_eq!(verdict(&with_list, &[&leaf.der]), "SUCCESS");
    let one = Certificate::read(&leaf.der).unwrap();
    assert_eq!(trust(&[&own], 1).issuer_of(&one, &[]), Some(own.der()));
    let presented = [own.der()];
    let found = Trust::default().issuer_of(&one, &presented);
    assert_eq!(found, Some(own.der()));
    let chain = [leaf.der.clone(), own.der()];
    assert_eq!(Trust::default().chain(&chain, NOW), chain);
}

#[test]
fn a_directory_name_is_excluded_whatever_its_string_type() {
    let excluded = distinguished(DnValue::PrintableString("Bad Client".try_into().unwrap()));
    let (root, _) = in_two_forms(Some(NameConstraints {
        permitted_subtrees: Vec::new(),
        excluded_subtrees: vec![GeneralSubtree::DirectoryName(excluded)],
    }));
    for (name, expected) in [
        ("bad CLIENT", "FAILED:excluded subtree violation"),
        ("good client", "SUCCESS"),
    ] {
        let mut params = CertificateParams::default();
        params.distinguished_name = distinguished(DnValue::Utf8String(name.to_owned()));
        let leaf = root.issue(&params);
        assert_eq!(
            verdict(&trust(&[&root], 1), &[&leaf.der]),
            expected,
            "{name}"
        );
    }
}
