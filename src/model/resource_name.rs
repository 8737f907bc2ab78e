//! Names of extended resources.

use std::fmt;

/// An extended resource, `prefix/name`, checked by the kubelet's own rule.
///
/// The rule is `IsExtendedResourceName` of
/// <https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/apis/core/v1/helper/helpers.go>: not native, and
/// `requests.<prefix>/<name>` is a qualified name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceName {
    prefix: String,
    name: String,
}

/// Why the kubelet would refuse a resource name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidResourceName {
    /// The name is empty.
    #[error("the resource name is empty; write a name such as sriov_net")]
    Empty,
    /// The name is too long.
    #[error("the resource name `{0}` has {1} characters; the kubelet takes at most 63")]
    TooLong(String, usize),
    /// The name has a character that is not allowed, or a bad first or last one.
    #[error(
        "the resource name `{0}` is refused by the kubelet; use letters, digits, `-`, `_` and `.`, with a letter or digit at both ends"
    )]
    Characters(String),
    /// The prefix is no DNS subdomain.
    #[error(
        "the resource prefix `{0}` is refused by the kubelet; write a DNS name of lower-case letters, digits, `-` and `.`, such as intel.com"
    )]
    Prefix(String),
    /// The prefix belongs to Kubernetes.
    #[error("the resource prefix `{0}` is reserved for Kubernetes; use a domain of your own")]
    Reserved(String),
}

impl ResourceName {
    /// Checks a prefix and a name.
    ///
    /// # Errors
    /// The first rule of the kubelet that is broken.
    pub fn new(prefix: &str, name: &str) -> Result<Self, InvalidResourceName> {
        // 253 characters for a subdomain, less the `requests.` that the kubelet puts before it.
        const MOST_PREFIX: usize = 253 - "requests.".len();
        if name.is_empty() {
            return Err(InvalidResourceName::Empty);
        }
        if name.len() > 63 {
            return Err(InvalidResourceName::TooLong(name.to_owned(), name.chars().count()));
        }
        let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let ends = [name.bytes().next(), name.bytes().last()];
        if !name.bytes().all(inner) || !ends.iter().flatten().all(u8::is_ascii_alphanumeric) {
            return Err(InvalidResourceName::Characters(name.to_owned()));
        }
        if prefix.len() > MOST_PREFIX || !prefix.split('.').all(is_label) {
            return Err(InvalidResourceName::Prefix(prefix.to_owned()));
        }
        if prefix.ends_with("kubernetes.io") || prefix.starts_with("requests.") {
            return Err(InvalidResourceName::Reserved(prefix.to_owned()));
        }
        Ok(Self { prefix: prefix.to_owned(), name: name.to_owned() })
    }

    /// The part before the slash.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The part after the slash.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The variable that carries the device ids: `PCIDEVICE_INTEL_COM_MY_POOL`.
    ///
    /// Consumers (KubeVirt among them) compute this name themselves, so a hyphen stays as it is.
    pub fn variable(&self) -> String {
        variable_name(&self.prefix, &self.name)
    }

    /// [`Self::variable`] with every character that a POSIX identifier may not have made `_`.
    pub fn posix_variable(&self) -> String {
        let posix = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        self.variable().chars().map(posix).collect()
    }
}

/// The variable name for a prefix and a name that need not be valid.
pub fn variable_name(prefix: &str, name: &str) -> String {
    format!("PCIDEVICE_{prefix}_{name}").replace(['.', '/'], "_").to_uppercase()
}

/// A label of RFC 1123.
fn is_label(label: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !label.is_empty() && label.bytes().all(inner) && !label.starts_with('-') && !label.ends_with('-')
}

impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.prefix, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_judged_as_the_kubelet_judges_them() {
        for name in ["a", "a.b", "kae.hpre", "my-pool", "my_pool", "10G", &"a".repeat(63)] {
            assert!(ResourceName::new("intel.com", name).is_ok(), "{name}");
        }
        for name in ["", "region-", "_x", ".x", "a b", "a/b", "ä", &"a".repeat(64)] {
            assert!(ResourceName::new("intel.com", name).is_err(), "{name}");
        }
    }

    #[test]
    fn prefixes_are_judged_as_the_kubelet_judges_them() {
        for prefix in ["intel.com", "openfuyao.com", "x", "a-b.c1"] {
            assert!(ResourceName::new(prefix, "a").is_ok(), "{prefix}");
        }
        for prefix in
            ["", "Intel.com", "a..b", "-a.b", "a/b", "kubernetes.io", "x.kubernetes.io", "requests.x"]
        {
            assert!(ResourceName::new(prefix, "a").is_err(), "{prefix}");
        }
    }

    #[test]
    fn variables_have_the_name_that_consumers_compute() {
        let name = ResourceName::new("my-vendor.io", "net-a.b").unwrap();
        assert_eq!(name.variable(), "PCIDEVICE_MY-VENDOR_IO_NET-A_B");
        assert_eq!(name.posix_variable(), "PCIDEVICE_MY_VENDOR_IO_NET_A_B");
    }
}
