//! Image references in their full form.

use crate::types::{ImageRef, InvalidName};

const DOCKER_HUB: &str = "docker.io";

/// Fills in what a short reference leaves out: registry `docker.io`, its folder `library/`, and the tag `latest`.
///
/// The result is a fixed point and always names its registry, so that neither a node's short-name table nor a local image id
/// (`sha256:…`, bare hex) can make the runtime take another image than the one that was judged.
///
/// **Source:** `ParseNormalizedNamed`, `splitDockerDomain` and `TagNameOnly` in `github.com/distribution/reference`.
///
/// # Errors
/// [`InvalidName`] when `text` holds what no reference can hold. The registry's own grammar is left to the kubelet.
pub fn normalise(text: &str) -> Result<ImageRef, InvalidName> {
    text.parse::<ImageRef>()?;
    let (domain, path) = match text.split_once('/') {
        Some((first, rest)) if is_domain(first) => (if first == "index.docker.io" { DOCKER_HUB } else { first }, rest),
        _ => (DOCKER_HUB, text),
    };
    let folder = if domain == DOCKER_HUB && !path.contains('/') { "library/" } else { "" };
    let last = path.rsplit('/').next().unwrap_or(path);
    let tag = if last.contains([':', '@']) { "" } else { ":latest" };
    format!("{domain}/{folder}{path}{tag}").parse()
}

/// Whether the part before the first slash names a registry and not a folder.
pub(super) fn is_domain(first: &str) -> bool {
    first == "localhost" || first.contains(['.', ':']) || first.bytes().any(|b| b.is_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_short_reference_is_filled_in_as_docker_does() {
        let digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        for (short, full) in [
            ("alpine", "docker.io/library/alpine:latest"),
            ("alpine:3", "docker.io/library/alpine:3"),
            ("library/alpine", "docker.io/library/alpine:latest"),
            ("docker.io/alpine:3", "docker.io/library/alpine:3"),
            ("index.docker.io/alpine:3", "docker.io/library/alpine:3"),
            ("org/tool", "docker.io/org/tool:latest"),
            ("localhost/python:1", "localhost/python:1"),
            ("localhost:5000/python", "localhost:5000/python:latest"),
            ("registry.example:5000/a/b/c", "registry.example:5000/a/b/c:latest"),
            ("Registry/a", "Registry/a:latest"),
            (&format!("alpine@{digest}"), &format!("docker.io/library/alpine@{digest}")),
            (&format!("ghcr.io/a/b:1@{digest}"), &format!("ghcr.io/a/b:1@{digest}")),
            // An image id of the node is not a way around the list of images.
            (digest, &format!("docker.io/library/{digest}")),
            ("0123456789ab", "docker.io/library/0123456789ab:latest"),
        ] {
            assert_eq!(normalise(short).expect("a reference").as_str(), full, "{short}");
        }
    }

    #[test]
    fn what_is_no_reference_is_refused() {
        for bad in ["", " ", "al pine", "alpine\n", "-alpine", "a//b", "a/../b", "alpine;id", "https://docker.io/alpine"] {
            assert!(normalise(bad).is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn a_full_reference_stays_as_it_is(text in "[a-zA-Z0-9.:/@_-]{1,40}") {
            if let Ok(full) = normalise(&text) {
                prop_assert_eq!(normalise(full.as_str()).expect("it was one"), full.clone());
                let (first, _) = full.as_str().split_once('/').expect("a registry");
                prop_assert!(is_domain(first), "{}", full);
            }
        }
    }
}
