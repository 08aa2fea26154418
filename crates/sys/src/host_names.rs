//! The addresses of host names: getaddrinfo(3).

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr;

/// Looks up the addresses of a host for TCP, in the library's order; where the machine has addresses of one family only,
/// only those of that family (AI_ADDRCONFIG). Waits for files and name servers.
///
/// # Errors
/// `NotFound`: the host has no such address, or could not be looked up.
pub fn addresses_of(name: &CStr) -> io::Result<Vec<IpAddr>> {
    // SAFETY: all-zero is a valid value of this struct of integers and pointers.
    let mut hints: libc::addrinfo = unsafe { std::mem::zeroed() };
    hints.ai_flags = libc::AI_ADDRCONFIG;
    hints.ai_family = libc::AF_UNSPEC;
    hints.ai_socktype = libc::SOCK_STREAM;
    let mut list = ptr::null_mut();
    // SAFETY: name and hints outlive the call, which sets `list` where it returns 0.
    let failure =
        unsafe { libc::getaddrinfo(name.as_ptr(), ptr::null(), &raw const hints, &raw mut list) };
    if failure != 0 {
        return Err(io::ErrorKind::NotFound.into());
    }
    let mut addresses = Vec::new();
    let mut next = list;
    // SAFETY: the list is whole until it is freed, and ends with a null pointer.
    while let Some(entry) = unsafe { next.as_ref() } {
        // SAFETY: `ai_addr` points to an address of the entry's family.
        addresses.extend(unsafe { address(entry) });
        next = entry.ai_next;
    }
    // SAFETY: the list is getaddrinfo's, and nothing points to it any more.
    unsafe { libc::freeaddrinfo(list) };
    Ok(addresses)
}

/// # Safety
/// `ai_addr` points to an address of the family that the entry names.
unsafe fn address(entry: &libc::addrinfo) -> Option<IpAddr> {
    match entry.ai_family {
        libc::AF_INET => {
            // SAFETY: as the caller says.
            let address = unsafe { entry.ai_addr.cast::<libc::sockaddr_in>().read_unaligned() };
            let bits = u32::from_be(address.sin_addr.s_addr);
            Some(Ipv4Addr::from_bits(bits).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as the caller says.
            let address = unsafe { entry.ai_addr.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test")]
    fn a_host_of_the_system_s_files_is_found() {
        let found = addresses_of(c"localhost").unwrap();
        assert!(!found.is_empty() && found.iter().all(IpAddr::is_loopback));
    }
}
