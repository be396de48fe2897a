//! What a launch asks for, merged from its body, its mode and its provider. Pure: no store, clock or randomness.
//!
//! Precedence is launch body over mode over provider, key by key at the top level, never deeper (A19).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serde_json::{Map, Number, Value};

use crate::types::{self, ImageRef, KubeNamespace, MAX_LABEL_VALUE, NodeName, RESERVED_LABEL_PREFIXES};
use crate::wire::{self, EnvVar, LaunchDispatch, MAX_SCRIPT, Workdir};

/// Named values as a provider, mode or launch body gives them.
pub(crate) type Fields = Map<String, Value>;

/// Where fields come from. It decides which are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A provider's kwargs.
    Provider,
    /// A mode's fields.
    Mode,
    /// The body of a launch.
    Launch,
}

/// Fields that all three may set; `name` is accepted and not read (\[L\] S78).
const SHARED: [&str; 6] = ["env", "image", "name", "namespace", "resources", "workdir"];
/// Fields that the documents name and this release has not built.
const LATER: [&str; 7] = ["context", "env_secrets", "image_pull_secrets", "kubeconfig", "node_selector", "service_account", "tolerations"];

impl Origin {
    fn own(self) -> &'static [&'static str] {
        match self {
            Self::Provider => &["cluster", "dispatch"],
            Self::Mode => &[],
            Self::Launch => &["args", "mode", "node", "script", "tags"],
        }
    }

    fn allows(self, field: &str) -> bool {
        SHARED.contains(&field) || self.own().contains(&field)
    }
}

/// A field that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Invalid {
    /// Stable code.
    pub(crate) code: InvalidCode,
    /// The field, with a dot before the key inside it.
    pub(crate) field: String,
    /// What is wrong; never holds a value that could be secret.
    pub(crate) message: String,
    /// What to do.
    pub(crate) cure: Option<String>,
}

/// Codes of [`Invalid`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InvalidCode {
    /// The value is of a wrong kind or breaks a rule.
    InvalidField,
    /// No such field here.
    UnknownField,
    /// Named by the documents, not built yet.
    FieldNotBuilt,
    /// Neither launch, mode nor provider gives an image.
    MissingImage,
    /// No script.
    MissingScript,
}

fn invalid(field: impl Into<String>, message: impl Into<String>) -> Invalid {
    Invalid { code: InvalidCode::InvalidField, field: field.into(), message: message.into(), cure: None }
}

impl Invalid {
    fn cure(mut self, cure: impl Into<String>) -> Self {
        self.cure = Some(cure.into());
        self
    }
}

/// What a launch asks for, checked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Resolved {
    /// The work, as the daemon gets it.
    pub(crate) work: LaunchDispatch,
    /// The node that the caller named.
    pub(crate) node: Option<NodeName>,
}

/// Checks the fields of a provider or a mode when it is stored, so that its owner sees the mistake and not each launcher.
///
/// # Errors
/// [`Invalid`] for the first field that is unknown here or has a value that no launch could use.
pub(crate) fn check(origin: Origin, fields: &Fields) -> Result<(), Invalid> {
    known(origin, fields)?;
    for (field, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
        match field.as_str() {
            "image" => image(value).map(drop)?,
            "namespace" => kube_namespace(value).map(drop)?,
            "env" => env(value).map(drop)?,
            "resources" => resources(value).map(drop)?,
            "workdir" => workdir(value).map(drop)?,
            _ => {}
        }
    }
    Ok(())
}

/// Merges and checks a launch.
///
/// # Errors
/// [`Invalid`] for the first field at fault; the image comes first, since nothing can be done without one (\[L\] S69).
pub(crate) fn resolve(body: &Fields, mode: Option<&Fields>, provider: &Fields) -> Result<Resolved, Invalid> {
    known(Origin::Launch, body)?;
    let given = |field: &str| [Some(body), mode, Some(provider)].into_iter().flatten().find_map(|fields| fields.get(field).filter(|v| !v.is_null()));
    let own = |field: &str| body.get(field).filter(|value| !value.is_null());
    let image = given("image").map(image).transpose()?.ok_or_else(missing_image)?;
    let script = script(own("script"))?;
    let node = match own("node") {
        None => None,
        Some(Value::String(text)) => Some(text.parse::<NodeName>().map_err(|error| invalid("node", error.to_string()))?),
        Some(_) => return Err(invalid("node", "it must be a string: a node's name")),
    };
    let work = LaunchDispatch {
        namespace: given("namespace").map(kube_namespace).transpose()?.map(Into::into),
        image: image.into(),
        script_base64: LaunchDispatch::encode_script(script),
        args: own("args").map(args).transpose()?.unwrap_or_default(),
        env: given("env").map(env).transpose()?.unwrap_or_default(),
        resources: given("resources").map(resources).transpose()?.cloned(),
        labels: own("tags").map(labels).transpose()?.unwrap_or_default(),
        workdir: given("workdir").map(workdir).transpose()?.unwrap_or_default(),
    };
    Ok(Resolved { work, node })
}

/// The three labels by which Kubernetes knows the instances of a provider (\[L\] S89, S92).
pub(crate) fn selector(namespace: &str, provider: &str) -> BTreeMap<String, String> {
    BTreeMap::from([
        (types::LABEL_LAKESHORE.to_owned(), "true".to_owned()),
        (types::LABEL_NAMESPACE.to_owned(), types::slug(namespace)),
        (types::LABEL_PROVIDER.to_owned(), types::slug(provider)),
    ])
}

fn known(origin: Origin, fields: &Fields) -> Result<(), Invalid> {
    let Some(field) = fields.keys().find(|field| !origin.allows(field)) else { return Ok(()) };
    let shown: String = field.chars().take(64).collect();
    if LATER.contains(&field.as_str()) {
        let message = "it is not built in this release".to_owned();
        return Err(Invalid { code: InvalidCode::FieldNotBuilt, field: shown, message, cure: Some("leave it out".into()) });
    }
    let place = match origin {
        Origin::Provider => "a provider",
        Origin::Mode => "a mode",
        Origin::Launch => "a launch",
    };
    let mut allowed: Vec<_> = SHARED.iter().chain(origin.own()).copied().filter(|name| *name != "name").collect();
    allowed.sort_unstable();
    let message = format!("{place} has no such field");
    Err(Invalid { code: InvalidCode::UnknownField, field: shown, message, cure: Some(format!("use one of: {}", allowed.join(", "))) })
}

fn missing_image() -> Invalid {
    Invalid {
        code: InvalidCode::MissingImage,
        field: "image".into(),
        message: "no image is given".into(),
        cure: Some("set image on the launch, its mode or its provider".into()),
    }
}

fn image(value: &Value) -> Result<ImageRef, Invalid> {
    match value {
        Value::String(text) if text.trim().is_empty() => Err(missing_image()),
        Value::String(text) => text.parse().map_err(|error: types::InvalidName| invalid("image", error.to_string())),
        _ => Err(invalid("image", "it must be a string: an image reference")),
    }
}

fn kube_namespace(value: &Value) -> Result<KubeNamespace, Invalid> {
    let text = value.as_str().ok_or_else(|| invalid("namespace", "it must be a string: a Kubernetes namespace"))?;
    text.parse().map_err(|error: types::InvalidName| invalid("namespace", error.to_string()))
}

fn resources(value: &Value) -> Result<&Value, Invalid> {
    let wrong = || {
        let cure = r#"write it as Kubernetes does: {"limits": {"memory": "1Gi"}}"#;
        invalid("resources", "it must be an object").cure(cure)
    };
    value.is_object().then_some(value).ok_or_else(wrong)
}

fn workdir(value: &Value) -> Result<Workdir, Invalid> {
    match value.as_str() {
        Some("host_path") => Ok(Workdir::HostPath),
        Some("none") => Ok(Workdir::None),
        _ => Err(invalid("workdir", r#"it must be "host_path" or "none""#)),
    }
}

fn script(value: Option<&Value>) -> Result<&str, Invalid> {
    let missing = || Invalid {
        code: InvalidCode::MissingScript,
        field: "script".into(),
        message: "no script is given".into(),
        cure: Some("send the Python script's text as script".into()),
    };
    let text = value.ok_or_else(missing)?.as_str().ok_or_else(|| invalid("script", "it must be a string: the script's text"))?;
    if let Some(at) = text.find('\0') {
        return Err(invalid("script", format!("it has a NUL byte at offset {at}, which a program argument cannot carry")).cure("remove it"));
    }
    if text.len() > MAX_SCRIPT {
        return Err(invalid("script", format!("it is {} bytes long; the limit is {MAX_SCRIPT}", text.len())));
    }
    Ok(text)
}

fn args(value: &Value) -> Result<Vec<String>, Invalid> {
    let items = value.as_array().ok_or_else(|| invalid("args", "it must be a list of strings"))?;
    let one = |(index, item): (usize, &Value)| match item {
        Value::String(text) if text.contains('\0') => Err(invalid(format!("args.{index}"), "it has a NUL byte, which no argument can carry")),
        Value::String(text) => Ok(text.clone()),
        _ => Err(invalid(format!("args.{index}"), "it must be a string").cure("put it in quotes")),
    };
    items.iter().enumerate().map(one).collect()
}

/// Reads an `env` object: text as it is, numbers and booleans as text, anything else skipped (\[L\] S71).
///
/// `{"$secret": …}` is refused instead of skipped, since losing a secret without a word is worse (A18).
fn env(value: &Value) -> Result<Vec<EnvVar>, Invalid> {
    let map = value.as_object().ok_or_else(|| invalid("env", "it must be an object from name to value"))?;
    let mut env = Vec::with_capacity(map.len());
    for (name, value) in map {
        let field = || format!("env.{}", name.chars().take(64).collect::<String>());
        if !is_env_name(name) {
            let rule = "an environment variable's name has letters, digits and . _ - only, and does not begin with a digit";
            return Err(invalid(field(), rule));
        }
        let value = match value {
            Value::String(text) if text.contains('\0') => return Err(invalid(field(), "its value has a NUL byte, which no variable can carry")),
            Value::Object(object) if object.contains_key("$secret") => {
                let cure = "secrets come as env_secrets, which is not built in this release";
                return Err(invalid(field(), r#"{"$secret": …} is not read inside env"#).cure(cure));
            }
            Value::Null | Value::Array(_) | Value::Object(_) => continue,
            Value::String(_) | Value::Number(_) | Value::Bool(_) => scalar(value),
        };
        env.push(EnvVar { name: name.clone(), value: value.unwrap_or_default() });
    }
    Ok(env)
}

/// **Source:** `IsEnvVarName` in `k8s.io/apimachinery/pkg/util/validation`, the strict form that every supported server takes.
fn is_env_name(name: &str) -> bool {
    let rest = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    name.bytes().next().is_some_and(|b| rest(b) && !b.is_ascii_digit())
        && name.bytes().all(rest)
        && !matches!(name, "." | "..")
        && !name.starts_with("..")
}

/// Makes labels of tags; keys that are reserved after normalising are dropped (\[L\] S90, S91, A24).
fn labels(value: &Value) -> Result<BTreeMap<String, String>, Invalid> {
    let map = value.as_object().ok_or_else(|| invalid("tags", "it must be an object from key to value"))?;
    let mut labels = BTreeMap::new();
    for (tag, value) in map {
        let field = || format!("tags.{}", tag.chars().take(64).collect::<String>());
        let key = types::label_key(tag).ok_or_else(|| invalid(field(), "the key has no letter or digit that a label may have"))?;
        if key == types::LABEL_LAKESHORE || RESERVED_LABEL_PREFIXES.iter().any(|prefix| key.starts_with(prefix)) {
            continue;
        }
        let text = scalar(value).ok_or_else(|| invalid(field(), "the value must be a string, a number or a boolean"))?;
        let label = if types::label_value(&text) == text || text.is_empty() { text } else { types::slug(&text) };
        if label.is_empty() && value.as_str() != Some("") {
            return Err(invalid(field(), format!("nothing of the value can stand in a label: 1 to {MAX_LABEL_VALUE} ASCII letters, digits, . _ -")));
        }
        match labels.entry(key) {
            Entry::Vacant(entry) => drop(entry.insert(label)),
            Entry::Occupied(entry) => return Err(invalid(field(), format!("two tags become the label {:?}", entry.key()))),
        }
    }
    Ok(labels)
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Number(number) => Some(number_text(number)),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// A number as JavaScript prints it, except that integers keep all their digits (A17).
///
/// **Source:** `Number::toString` in ECMA-262: plain digits from 1e-6 up to below 1e21, an exponent elsewhere.
fn number_text(number: &Number) -> String {
    let Some(float) = number.as_f64().filter(|_| number.is_f64()) else { return number.to_string() };
    if float == 0.0 {
        return "0".into(); // JavaScript prints negative zero without its sign
    }
    // Rust's exponent form has the shortest digits that read back as the same number, as JavaScript's has.
    let shortest = format!("{:e}", float.abs());
    let (mantissa, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let digits = mantissa.replace('.', "");
    let point = exponent + 1; // how many digits stand before the decimal point
    let count = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    let zeros = |count: i32| "0".repeat(usize::try_from(count).unwrap_or_default());
    let text = match point {
        22.. | ..=-6 => {
            let (head, tail) = digits.split_at(1);
            let dot = if tail.is_empty() { "" } else { "." };
            format!("{head}{dot}{tail}e{}{}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
        }
        -5..=0 => format!("0.{}{digits}", zeros(-point)),
        _ if point >= count => format!("{digits}{}", zeros(point - count)),
        _ => {
            let (whole, fraction) = digits.split_at(usize::try_from(point).unwrap_or_default());
            format!("{whole}.{fraction}")
        }
    };
    if float < 0.0 { format!("-{text}") } else { text }
}

/// The bytes of a dispatch.
pub(crate) fn encode(namespace: &str, provider: &str, user: &str, work: LaunchDispatch) -> Vec<u8> {
    let caller = wire::Caller { namespace: namespace.into(), provider: provider.into(), user: user.into() };
    wire::Dispatch { version: 1, caller, work: wire::Work::Launch(work) }.encode()
}

#[cfg(test)]
#[path = "launch_tests.rs"]
mod tests;
