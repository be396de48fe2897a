//! Names as types: whoever holds one has checked it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A text that breaks the rule of the name it was meant to be.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{text:?} is not a valid {what}: {rule}")]
pub struct InvalidName {
    what: &'static str,
    rule: &'static str,
    text: String,
}

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident, $what:literal, $rule:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[cfg_attr(test, derive(schemars::JsonSchema))]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The text of the name.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = InvalidName;

            fn from_str(text: &str) -> Result<Self, InvalidName> {
                let check: fn(&str) -> bool = $check;
                if check(text) {
                    Ok(Self(text.to_owned()))
                } else {
                    // A hostile text may be long: an error never repeats more than a name could be.
                    Err(InvalidName { what: $what, rule: $rule, text: text.chars().take(300).collect() })
                }
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidName;

            fn try_from(text: String) -> Result<Self, InvalidName> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

/// Whether `text` is a DNS-1123 label. **Source:** `IsDNS1123Label` in `k8s.io/apimachinery/pkg/util/validation`.
fn is_dns_label(text: &str) -> bool {
    let edge = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    (1..=63).contains(&text.len())
        && text.bytes().all(|b| edge(b) || b == b'-')
        && text.bytes().next().is_some_and(edge)
        && text.bytes().next_back().is_some_and(edge)
}

/// Whether `text` is a DNS-1123 subdomain. **Source:** `IsDNS1123Subdomain` in the same file.
fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_dns_label)
}

fn is_instance(text: &str) -> bool {
    text.strip_prefix("lakeshore-").is_some_and(|d| d.len() == 8 && d.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)))
}

fn is_resource(text: &str) -> bool {
    let edge = |c: char| c.is_alphanumeric();
    (1..=100).contains(&text.chars().count())
        && text.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ' '))
        && text.chars().next().is_some_and(edge)
        && text.chars().next_back().is_some_and(edge)
}

fn is_image(text: &str) -> bool {
    // The registry's own grammar is checked by the kubelet; here only what would be read as something else is refused.
    (1..=1024).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b'/' | b':' | b'@' | b'+'))
        && text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
        && !text.contains("//")
        && !text.contains("..")
}

name_type!(
    /// A Kubernetes namespace.
    KubeNamespace, "Kubernetes namespace", "1 to 63 lower-case letters, digits and '-', with a letter or digit at both ends", is_dns_label
);
name_type!(
    /// The name of a Kubernetes object whose kind wants a DNS subdomain (ServiceAccount, Secret…).
    KubeName, "Kubernetes name", "at most 253 lower-case letters, digits, '-' and '.', each part with a letter or digit at both ends", is_dns_subdomain
);
name_type!(
    /// The name of a Node object. Up to 253 characters; labels that carry it are cut and hashed.
    NodeName, "node name", "at most 253 lower-case letters, digits, '-' and '.', each part with a letter or digit at both ends", is_dns_subdomain
);
name_type!(
    /// The name of a launch's Pod, which is its `instanceId` (\[L\] S88, S96).
    InstanceName, "instance id", "'lakeshore-' and 8 lower-case hex digits", is_instance
);
name_type!(
    /// The name of something the control plane stores: a namespace, provider, mode or cluster.
    ResourceName, "name", "1 to 100 letters, digits, spaces, '-', '_' and '.', with a letter or digit at both ends", is_resource
);
name_type!(
    /// An image reference as the kubelet will get it.
    ImageRef, "image reference", "letters, digits and . - _ / : @ +, beginning with a letter or digit", is_image
);

impl InstanceName {
    /// The name for 8 hex digits that came out of [`super::ids::hex`].
    pub(super) fn from_digest(digits: &str) -> Self {
        Self(format!("lakeshore-{digits}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_a_dns_label() {
        for good in ["a", "nymph-runs", "0", &"a".repeat(63)] {
            assert!(good.parse::<KubeNamespace>().is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a.b", "a_b", "a/b", "..", "a\n", &"a".repeat(64)] {
            assert!(bad.parse::<KubeNamespace>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_instance_id_cannot_climb_out_of_a_folder() {
        for bad in ["lakeshore-../../ab", "lakeshore-0123456", "lakeshore-0123456g", "lakeshore-012345678", "Lakeshore-01234567", "."] {
            assert!(bad.parse::<InstanceName>().is_err(), "{bad:?}");
        }
        assert!("lakeshore-0a1b2c3d".parse::<InstanceName>().is_ok());
    }

    #[test]
    fn an_error_never_repeats_a_long_text() {
        let error = "x/".repeat(1_000_000).parse::<KubeNamespace>().expect_err("a slash is refused");
        assert!(error.to_string().len() < 1_000);
    }
}
