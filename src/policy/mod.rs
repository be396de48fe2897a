//! Layer 1: dispatch → `Admitted` or a rejection that names the rule.
