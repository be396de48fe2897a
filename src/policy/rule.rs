//! The table of rules that the cluster's owner sets. Each is one row: its name is the key in the policy file.

use super::file::PolicyFile;
use super::rejection::{Rejection, RejectionCode};
use crate::types::{ImageRef, KubeNamespace};
use crate::wire::Workdir;

/// What a dispatch asks for, as far as rules decide over it; texts have become types already.
pub(super) struct Asked<'a> {
    pub(super) namespace: &'a KubeNamespace,
    pub(super) image: &'a ImageRef,
    pub(super) workdir: Workdir,
}

/// One rule.
#[derive(Debug)]
pub struct Rule {
    /// Its key in the policy file, and its name in rejections and audit lines.
    pub name: &'static str,
    /// What it decides, in a line.
    pub decides: &'static str,
    check: fn(&PolicyFile, &Asked<'_>) -> Result<(), Denial>,
}

/// What a rule says no to, and what it would say yes to.
struct Denial {
    asked: String,
    allowed: String,
}

/// Every rule, in the order they are asked.
pub const RULES: [Rule; 3] = [
    Rule { name: "run_namespaces", decides: "in which Kubernetes namespaces work may run", check: run_namespaces },
    Rule { name: "images", decides: "which images may run, by patterns over the full reference", check: images },
    Rule { name: "workdir.kinds", decides: "which kinds of workdir may be asked for", check: workdir_kinds },
];

/// Most entries of a list that a message repeats.
const LISTED: usize = 10;

/// Asks every rule.
pub(super) fn check(file: &PolicyFile, asked: &Asked<'_>) -> Result<(), Rejection> {
    for rule in &RULES {
        (rule.check)(file, asked).map_err(|denial| rule.rejection(&denial))?;
    }
    Ok(())
}

impl Rule {
    fn rejection(&self, denial: &Denial) -> Rejection {
        let (name, Denial { asked, allowed }) = (self.name, denial);
        let message = format!(
            "{asked} is not allowed by the policy of the cluster's owner: `{name}` allows {allowed}; \
             only the owner can change that, in the daemon's policy file (chart value `policy`)"
        );
        Rejection { code: RejectionCode::PolicyDenied, rule: name.to_owned(), message }
    }
}

fn run_namespaces(file: &PolicyFile, asked: &Asked<'_>) -> Result<(), Denial> {
    if file.run_namespaces.contains(asked.namespace) {
        return Ok(());
    }
    Err(Denial {
        asked: format!("Kubernetes namespace \"{}\"", asked.namespace),
        allowed: list(file.run_namespaces.iter().map(KubeNamespace::as_str)),
    })
}

fn images(file: &PolicyFile, asked: &Asked<'_>) -> Result<(), Denial> {
    if file.images.iter().any(|pattern| pattern.matches(asked.image.as_str())) {
        return Ok(());
    }
    Err(Denial { asked: format!("image \"{}\"", asked.image), allowed: list(file.images.iter().map(|p| p.as_str())) })
}

fn workdir_kinds(file: &PolicyFile, asked: &Asked<'_>) -> Result<(), Denial> {
    if file.workdir_kinds.contains(&asked.workdir) {
        return Ok(());
    }
    Err(Denial { asked: format!("workdir \"{}\"", kind(asked.workdir)), allowed: list(file.workdir_kinds.iter().map(|k| kind(*k))) })
}

/// A workdir's kind as the policy file spells it.
fn kind(workdir: Workdir) -> &'static str {
    match workdir {
        Workdir::HostPath => "host_path",
        Workdir::None => "none",
    }
}

fn list<'a>(entries: impl ExactSizeIterator<Item = &'a str>) -> String {
    let count = entries.len();
    let shown: Vec<String> = entries.take(LISTED).map(|entry| format!("\"{entry}\"")).collect();
    match (count, shown.is_empty()) {
        (_, true) => "nothing".to_owned(),
        (LISTED.., _) if count > LISTED => format!("{} and {} more", shown.join(", "), count - LISTED),
        _ => shown.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_is_cut_in_a_message() {
        assert_eq!(list(Vec::<&str>::new().into_iter()), "nothing");
        assert_eq!(list(["a", "b"].into_iter()), "\"a\", \"b\"");
        assert!(list(["x"; 12].into_iter()).ends_with("\"x\" and 2 more"));
        assert!(list(["x"; 10].into_iter()).ends_with("\"x\""));
    }
}
