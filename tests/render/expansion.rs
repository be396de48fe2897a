//! What the kubelet does to arguments and environment values, written down a second time from Kubernetes' description:
//! `$(NAME)` becomes the variable's value, or stays as it is when there is none; `$$` becomes `$`, so that `$$(NAME)` is a literal `$(NAME)`.
//!
//! **Source:** the tables of `expand_test.go` in `k8s.io/kubernetes/third_party/forked/golang/expansion`, from which the cases below are taken.

use std::collections::BTreeMap;

/// Expands `text` as the kubelet does.
pub(crate) fn expand(text: &str, variables: &BTreeMap<&str, &str>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let mut chars = after.chars();
        rest = match chars.next() {
            Some('$') => {
                out.push('$');
                chars.as_str()
            }
            Some('(') => match chars.as_str().split_once(')') {
                Some((name, rest)) => {
                    match variables.get(name) {
                        Some(value) => out.push_str(value),
                        None => out.push_str(&format!("$({name})")),
                    }
                    rest
                }
                None => {
                    out.push_str("$(");
                    chars.as_str()
                }
            },
            Some(other) => {
                out.push('$');
                out.push(other);
                chars.as_str()
            }
            None => {
                out.push('$');
                ""
            }
        };
    }
    out.push_str(rest);
    out
}

#[test]
fn this_expansion_agrees_with_kubernetes_own_table() {
    let variables = BTreeMap::from([("VAR_A", "A"), ("VAR_B", "B"), ("VAR_C", "C"), ("VAR_REF", "$(VAR_A)"), ("VAR_EMPTY", "")]);
    for (text, expected) in [
        ("$(VAR_A)", "A"),
        ("___$(VAR_B)___", "___B___"),
        ("$(VAR_A)-$(VAR_A)", "A-A"),
        ("$(VAR_REF)-1", "$(VAR_A)-1"),
        ("foo$(VAR_EMPTY)bar", "foobar"),
        ("$(VAR_UNKNOWN)", "$(VAR_UNKNOWN)"),
        ("$$(VAR_A)", "$(VAR_A)"),
        ("$$$(VAR_A)", "$A"),
        ("$$$$(VAR_A)", "$$(VAR_A)"),
        ("foo$$(VAR_A)", "foo$(VAR_A)"),
        ("$VAR_A", "$VAR_A"),
        ("$$", "$"),
        ("$$$", "$$"),
        ("$$$$$$$$$$", "$$$$$"),
        ("foo$", "foo$"),
        ("$(foo$$var)", "$(foo$$var)"),
        ("$(VAR_A", "$(VAR_A"),
        ("$($(VAR_A))", "$($(VAR_A))"),
        ("$)", "$)"),
        ("\n", "\n"),
        ("", ""),
    ] {
        // `$($(VAR_A))`: the name is everything up to the first closing parenthesis.
        assert_eq!(expand(text, &variables), expected, "{text}");
    }
}
