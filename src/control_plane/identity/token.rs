//! A projected ServiceAccount token (a JWT in compact form, RFC 7519), checked.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::keys::KeySet;
use super::{MAX_TOKEN, SKEW};
use crate::control_plane::store::Account;
use crate::types::Placement;

/// Longest text of a token that is repeated, in characters.
const MAX_SHOWN: usize = 128;

/// Why a proof is not accepted. The words are for the control plane's side: who was refused is told none of them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    #[error("no identity token was shown")]
    Missing,
    #[error("the identity token is longer than {MAX_TOKEN} bytes")]
    TooLong,
    #[error("the identity token is malformed: {0}")]
    Malformed(&'static str),
    #[error("the identity token names the key {0:?}, which is none of the recorded ones")]
    UnknownKey(String),
    #[error("the identity token says that it is signed by {0:?}, which is not what its key signs by")]
    Algorithm(String),
    #[error("the identity token's signature is wrong")]
    Signature,
    #[error("the identity token is of the issuer {0:?}, another one than recorded")]
    Issuer(String),
    #[error("the identity token is for the audience {0:?}, not for this control plane")]
    Audience(String),
    #[error("the identity token expired at {0}")]
    Expired(Timestamp),
    #[error("the identity token is not valid before {0}")]
    NotYet(Timestamp),
    #[error("the identity token is of the ServiceAccount {found}, and the recorded one is {wanted}")]
    Account { found: Account, wanted: Account },
    #[error("the identity token is not bound to a Pod")]
    NoPod,
    #[error("the identity token is bound to the node {found:?}, and the daemon says that it is {wanted}")]
    Node { found: String, wanted: String },
}

/// What a token must say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected<'a> {
    pub(crate) audience: &'a str,
    /// The recorded account of the role; `None` where none is recorded yet.
    pub(crate) account: Option<&'a Account>,
    pub(crate) placement: &'a Placement,
    pub(crate) now: Timestamp,
}

/// Who a token proves its bearer to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verified {
    pub(crate) account: Account,
    pub(crate) node_uid: Option<String>,
    pub(crate) pod: String,
    pub(crate) pod_uid: String,
    pub(crate) expires: Timestamp,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: String,
    #[serde(default)]
    crit: Option<serde_json::Value>,
}

/// **Source:** `pkg/serviceaccount/claims.go` in Kubernetes.
#[derive(Deserialize)]
struct Claims {
    iss: String,
    sub: String,
    aud: Audience,
    exp: i64,
    #[serde(default)]
    nbf: Option<i64>,
    #[serde(default)]
    iat: Option<i64>,
    #[serde(rename = "kubernetes.io")]
    kubernetes: Kubernetes,
}

/// RFC 7519: a list, or one alone.
#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

#[derive(Deserialize)]
struct Kubernetes {
    namespace: String,
    serviceaccount: Named,
    #[serde(default)]
    pod: Option<Named>,
    #[serde(default)]
    node: Option<Named>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
    #[serde(default)]
    uid: Option<String>,
}

/// Checks a token. Nothing in it is believed before its signature is.
///
/// # Errors
/// [`Refused`]: the first thing that is wrong.
pub(crate) fn verify(token: &str, keys: &KeySet, expected: &Expected<'_>) -> Result<Verified, Refused> {
    if token.len() > MAX_TOKEN {
        return Err(Refused::TooLong);
    }
    let (message, signature) = token.rsplit_once('.').ok_or(Refused::Malformed("it has no three parts"))?;
    let (header, payload) = message.split_once('.').filter(|(_, rest)| !rest.contains('.')).ok_or(Refused::Malformed("it has no three parts"))?;
    let header: Header = part(header, "its header")?;
    if header.crit.is_some() {
        return Err(Refused::Malformed("its header wants an extension"));
    }
    let key = keys.key(&header.kid).ok_or_else(|| Refused::UnknownKey(shown(&header.kid)))?;
    if key.algorithm() != header.alg {
        return Err(Refused::Algorithm(shown(&header.alg)));
    }
    let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| Refused::Malformed("its signature"))?;
    if !key.verifies(message.as_bytes(), &signature) {
        return Err(Refused::Signature);
    }
    check(part(payload, "its claims")?, keys.issuer(), expected)
}

fn part<T: DeserializeOwned>(text: &str, what: &'static str) -> Result<T, Refused> {
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| Refused::Malformed(what))?;
    serde_json::from_slice(&bytes).map_err(|_| Refused::Malformed(what))
}

fn check(claims: Claims, issuer: &str, expected: &Expected<'_>) -> Result<Verified, Refused> {
    if claims.iss != issuer {
        return Err(Refused::Issuer(shown(&claims.iss)));
    }
    let audiences = match claims.aud {
        Audience::One(one) => vec![one],
        Audience::Many(many) => many,
    };
    if !audiences.iter().any(|audience| audience == expected.audience) {
        return Err(Refused::Audience(shown(&audiences.join(", "))));
    }
    let expires = check_times(claims.exp, claims.nbf, claims.iat, expected.now)?;
    let Kubernetes { namespace, serviceaccount, pod, node } = claims.kubernetes;
    let account = Account { namespace, name: serviceaccount.name };
    if claims.sub != format!("system:serviceaccount:{}:{}", account.namespace, account.name) {
        return Err(Refused::Malformed("its subject is not the ServiceAccount that it names"));
    }
    if let Some(wanted) = expected.account.filter(|wanted| **wanted != account) {
        return Err(Refused::Account { found: account, wanted: wanted.clone() });
    }
    let Some(Named { name: pod, uid: Some(pod_uid) }) = pod else { return Err(Refused::NoPod) };
    if let Some(wanted) = expected.placement.node() {
        let found = node.as_ref().map_or("", |node| node.name.as_str());
        if found != wanted.as_str() {
            return Err(Refused::Node { found: shown(found), wanted: wanted.to_string() });
        }
    }
    Ok(Verified { account, node_uid: node.and_then(|node| node.uid), pod, pod_uid, expires })
}

fn check_times(exp: i64, nbf: Option<i64>, iat: Option<i64>, now: Timestamp) -> Result<Timestamp, Refused> {
    let time = |seconds| Timestamp::from_second(seconds).map_err(|_| Refused::Malformed("its times"));
    let expires = time(exp)?;
    if now.as_second() >= exp.saturating_add(SKEW) {
        return Err(Refused::Expired(expires));
    }
    match nbf.into_iter().chain(iat).find(|from| now.as_second() < from.saturating_sub(SKEW)) {
        Some(from) => Err(Refused::NotYet(time(from)?)),
        None => Ok(expires),
    }
}

fn shown(text: &str) -> String {
    text.chars().take(MAX_SHOWN).collect()
}
