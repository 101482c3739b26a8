//! An HTTP page, and where it leads when its server sends elsewhere.

use std::fmt;

use thiserror::Error;
use waypost_net::address::{AddressError, HostPort};

/// The port of an HTTP address that names none.
const HTTP_PORT: u16 = 80;

/// A page of an HTTP server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) host: HostPort,
    /// From the first slash on, with the query.
    pub(crate) path: String,
}

/// Why a redirect is not followed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RedirectFault {
    /// It came from where a redirect had led.
    #[error("it is the second redirect, only one is followed")]
    Second,
    /// It says nothing about where to.
    #[error("it has no Location")]
    NoLocation,
    /// Somewhere else than to a page of HTTP.
    #[error("only http is followed")]
    Scheme,
    /// To no address.
    #[error("{0}")]
    Address(AddressError),
}

impl Page {
    /// The page that `location` means on this one (RFC 9110 section 10.2.2, RFC 3986 section 5.2).
    pub(crate) fn leads_to(&self, location: &str) -> Result<Self, RedirectFault> {
        let location = location.trim().split('#').next().unwrap_or_default();
        if location.is_empty() {
            return Err(RedirectFault::NoLocation);
        }
        if let Some((scheme, rest)) = split_scheme(location) {
            let rest = rest.strip_prefix("//").filter(|_| scheme.eq_ignore_ascii_case("http"));
            return of_authority(rest.ok_or(RedirectFault::Scheme)?);
        }
        if let Some(rest) = location.strip_prefix("//") {
            return of_authority(rest);
        }
        let (here, _) = split_query(&self.path);
        let path = match location.chars().next() {
            Some('/') => location.to_owned(),
            Some('?') => format!("{here}{location}"),
            _ => format!("{}/{location}", here.rsplit_once('/').map_or("", |(folder, _)| folder)),
        };
        Ok(Self { host: self.host.clone(), path: without_dots(&path) })
    }

    /// What the `Host` header says: the port only if it is not HTTP's own.
    pub(crate) fn host_header(&self) -> String {
        let text = self.host.to_string();
        let bare = text.strip_suffix(":80").filter(|_| self.host.port == HTTP_PORT);
        bare.map_or_else(|| text.clone(), str::to_owned)
    }
}

impl fmt::Display for Page {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "http://{}{}", self.host, self.path)
    }
}

fn split_scheme(location: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = location.split_once(':')?;
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'));
    is_scheme.then_some((scheme, rest))
}

fn of_authority(rest: &str) -> Result<Page, RedirectFault> {
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let host = HostPort::parse_with_port(authority, HTTP_PORT).map_err(RedirectFault::Address)?;
    let slash = if path.starts_with('/') { "" } else { "/" };
    Ok(Page { host, path: without_dots(&format!("{slash}{path}")) })
}

fn split_query(path: &str) -> (&str, &str) {
    path.split_at(path.find('?').unwrap_or(path.len()))
}

/// Resolves the segments `.` and `..` of what stands before the query.
fn without_dots(path: &str) -> String {
    let (path, query) = split_query(path);
    let mut kept: Vec<&str> = Vec::new();
    for segment in path.split('/').skip(1) {
        match segment {
            "." => {}
            ".." => drop(kept.pop()),
            segment => kept.push(segment),
        }
    }
    let is_folder = ["/.", "/.."].iter().any(|end| path.ends_with(end)) && !kept.is_empty();
    format!("/{}{}{query}", kept.join("/"), if is_folder { "/" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leads(location: &str) -> Result<String, RedirectFault> {
        let page = Page { host: "old:8080".parse().unwrap(), path: "/rocketmq/nsaddr?x=1".to_owned() };
        page.leads_to(location).map(|page| page.to_string())
    }

    #[test]
    fn every_form_of_a_location_leads_to_its_page() {
        let table = [
            ("http://new/list", "http://new:80/list"),
            ("HTTP://new:81/list?unit=a#part", "http://new:81/list?unit=a"),
            ("http://[::1]:82/", "http://[::1]:82/"),
            ("http://new", "http://new:80/"),
            ("http://new?unit=a", "http://new:80/?unit=a"),
            ("//new/list", "http://new:80/list"),
            ("/list", "http://old:8080/list"),
            ("list", "http://old:8080/rocketmq/list"),
            ("./list?a=http://b", "http://old:8080/rocketmq/list?a=http://b"),
            ("../list", "http://old:8080/list"),
            ("../../../list/..", "http://old:8080/"),
            ("a/b/../.", "http://old:8080/rocketmq/a/"),
            ("?x=2", "http://old:8080/rocketmq/nsaddr?x=2"),
            (" /list ", "http://old:8080/list"),
        ];
        for (location, expected) in table {
            assert_eq!(leads(location).as_deref(), Ok(expected), "{location}");
        }
    }

    #[test]
    fn what_leads_to_no_page_of_http_is_refused() {
        for location in ["https://new/list", "ftp://new/", "http:list", "file:///etc/passwd", "mailto:me"] {
            assert_eq!(leads(location), Err(RedirectFault::Scheme), "{location}");
        }
        for location in ["", " ", "#part"] {
            assert_eq!(leads(location), Err(RedirectFault::NoLocation), "{location}");
        }
        for location in ["http://", "http:///list", "http://new:x/", "http://me:secret@new/"] {
            assert!(matches!(leads(location), Err(RedirectFault::Address(_))), "{location}");
        }
    }

    #[test]
    fn the_host_header_has_no_port_of_http() {
        let header = |host: &str| Page { host: host.parse().unwrap(), path: "/".to_owned() }.host_header();
        assert_eq!(header("a:80"), "a");
        assert_eq!(header("[::80]:80"), "[::80]");
        assert_eq!(header("a:8080"), "a:8080");
    }
}
