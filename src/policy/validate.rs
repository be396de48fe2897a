//! The dispatch's texts become types here, once. What cannot work in any cluster is refused with the field's name.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::admitted::{Admitted, AdmittedWorkdir};
use super::file::PolicyFile;
use super::image;
use super::rejection::{Rejection, from_wire, invalid};
use super::rule::{self, Asked};
use crate::types::{KubeName, KubeNamespace, LABEL_LAKESHORE, RESERVED_LABEL_PREFIXES, ResourceName, label_value, slug};
use crate::wire::{Caller, Dispatch, EnvVar, LaunchDispatch, Work, Workdir};

/// Longest text that a program can be given as one argument or one `NAME=value`, in bytes with its final NUL.
///
/// **Source:** `MAX_ARG_STRLEN` in Linux' `include/uapi/linux/binfmts.h`: 32 pages of 4 KiB. Over it the container cannot start.
pub const MAX_ARGUMENT: usize = 131_072;
/// Longest name of who asked, in characters; it goes into an annotation and every audit line.
const MAX_USER: usize = 253;

/// Validates the dispatch, then asks every rule.
pub(super) fn admit(file: &PolicyFile, dispatch: &Dispatch) -> Result<Admitted, Rejection> {
    let Work::Launch(launch) = &dispatch.work;
    let (caller_namespace, provider, user) = caller(&dispatch.caller)?;
    let namespace = namespace(launch, &file.default_namespace)?;
    let image = image::normalise(&launch.image).map_err(|error| invalid("image", error.to_string()))?;
    let script = launch.script().map_err(|error| from_wire(&error))?;
    let args = args(&launch.args)?;
    let env = env(&launch.env)?;
    let labels = labels(&launch.labels)?;
    let resources = resources(launch.resources.as_ref())?;
    rule::check(file, &Asked { namespace: &namespace, image: &image, workdir: launch.workdir })?;
    let workdir = match launch.workdir {
        Workdir::HostPath => AdmittedWorkdir::HostPath,
        Workdir::None => AdmittedWorkdir::None,
    };
    Ok(Admitted { namespace, image, script, args, env, resources, labels, caller_namespace, provider, user, workdir })
}

fn caller(caller: &Caller) -> Result<(ResourceName, ResourceName, String), Rejection> {
    let name = |field: &str, text: &str| {
        let name: ResourceName = text.parse().map_err(|error| invalid(field, format!("{error}")))?;
        // The slug becomes a label that tells tenants apart: an empty one would be shared.
        if slug(text).is_empty() {
            return Err(invalid(field, format!("{text:?} has no letter or digit of ASCII, so no label can carry it; rename it")));
        }
        Ok(name)
    };
    let (namespace, provider) = (name("caller.namespace", &caller.namespace)?, name("caller.provider", &caller.provider)?);
    let user = &caller.user;
    if user.is_empty() || user.chars().count() > MAX_USER || user.chars().any(char::is_control) {
        return Err(invalid("caller.user", format!("who asks must be named by 1 to {MAX_USER} characters, none of them a control character")));
    }
    Ok((namespace, provider, user.clone()))
}

fn namespace(launch: &LaunchDispatch, default: &KubeNamespace) -> Result<KubeNamespace, Rejection> {
    match &launch.namespace {
        None => Ok(default.clone()),
        Some(text) => text.parse().map_err(|error| invalid("namespace", format!("{error}"))),
    }
}

/// Values may be secret: a message names the position only.
fn args(args: &[String]) -> Result<Vec<String>, Rejection> {
    for (at, arg) in args.iter().enumerate() {
        if arg.contains('\0') {
            return Err(invalid("args", format!("args[{at}] has a NUL byte, which a program argument cannot carry; remove it")));
        }
        if arg.len() >= MAX_ARGUMENT {
            return Err(invalid("args", format!("args[{at}] has {} bytes; a program argument can have {}", arg.len(), MAX_ARGUMENT - 1)));
        }
    }
    Ok(args.to_vec())
}

fn env(env: &[EnvVar]) -> Result<Vec<(String, String)>, Rejection> {
    let mut seen = BTreeSet::new();
    for EnvVar { name, value } in env {
        // Kubernetes' relaxed rule, on by default since 1.32. Source: `IsRelaxedEnvVarName` in apimachinery's util/validation.
        if name.is_empty() || !name.bytes().all(|b| (b' '..=b'~').contains(&b) && b != b'=') {
            let shown: String = name.chars().take(100).collect();
            return Err(invalid("env", format!("{shown:?} cannot name an environment variable: printable ASCII without '=' is expected")));
        }
        if !seen.insert(name) {
            return Err(invalid("env", format!("{} is given twice", shorten(name))));
        }
        if value.contains('\0') {
            let name = shorten(name);
            return Err(invalid("env", format!("the value of {name} has a NUL byte, which the environment cannot carry; remove it")));
        }
        let length = name.len() + 1 + value.len();
        if length >= MAX_ARGUMENT {
            let (name, most) = (shorten(name), MAX_ARGUMENT - 1);
            return Err(invalid("env", format!("{name} and its value take {length} bytes; the environment carries at most {most} in one variable")));
        }
    }
    Ok(env.iter().map(|EnvVar { name, value }| (name.clone(), value.clone())).collect())
}

fn shorten(name: &str) -> String {
    name.chars().take(100).collect()
}

fn labels(labels: &BTreeMap<String, String>) -> Result<BTreeMap<String, String>, Rejection> {
    for (key, value) in labels {
        let (prefix, name) = key.split_once('/').map_or((None, key.as_str()), |(prefix, name)| (Some(prefix), name));
        let valid = label_value(name) == name && prefix.is_none_or(|prefix| prefix.parse::<KubeName>().is_ok());
        let shown = shorten(key);
        if !valid {
            return Err(invalid("labels", format!("{shown:?} is not a label key")));
        }
        if is_reserved(key, prefix) {
            return Err(invalid("labels", format!("label {shown:?} is reserved; only nymph and Kubernetes set it")));
        }
        if !value.is_empty() && label_value(value) != *value {
            return Err(invalid(
                "labels",
                format!("the value of label {shown:?} is not a label value: at most 63 letters, digits, '-', '_' and '.'"),
            ));
        }
    }
    Ok(labels.clone())
}

/// Whether nobody but nymph and Kubernetes may set `key`. A prefix also covers its subdomains, as Kubernetes' own rule does.
fn is_reserved(key: &str, prefix: Option<&str>) -> bool {
    key == LABEL_LAKESHORE
        || RESERVED_LABEL_PREFIXES.iter().any(|reserved| {
            key.starts_with(reserved)
                || match (prefix, reserved.strip_suffix('/')) {
                    (Some(prefix), Some(domain)) => prefix.strip_suffix(domain).is_some_and(|head| head.ends_with('.')),
                    _ => false,
                }
        })
}

fn resources(resources: Option<&Value>) -> Result<Option<Map<String, Value>>, Rejection> {
    match resources {
        None => Ok(None),
        Some(Value::Object(map)) => Ok(Some(map.clone())),
        Some(_) => Err(invalid("resources", "resources must be an object as Kubernetes spells it: {\"limits\": {…}, \"requests\": {…}}")),
    }
}

#[cfg(test)]
#[path = "validate_tests.rs"]
mod tests;
