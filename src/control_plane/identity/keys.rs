//! A cluster's key set, as its API server publishes it (RFC 7517).

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm};
use serde::Deserialize;

use super::MAX_KEYS;
use crate::wire::ClusterKeys;

/// Most keys in a set. A cluster has one or two.
const MAX_KEY_COUNT: usize = 32;
/// Longest name of a key, in bytes.
const MAX_KID: usize = 256;
/// Longest issuer, in bytes.
const MAX_ISSUER: usize = 2048;

/// Keys that cannot be recorded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KeysRefused {
    #[error("the key set is longer than {MAX_KEYS} bytes")]
    TooLong,
    #[error("the issuer is empty or longer than {MAX_ISSUER} bytes")]
    Issuer,
    #[error("the key set is no RFC 7517 key set of at most {MAX_KEY_COUNT} keys")]
    Malformed,
    #[error("two keys of the set share a name")]
    SharedName,
    #[error("no key of the set is one that can be used: RSA of 2048 bits and more with RS256, RS384 or RS512; EC with ES256 or ES384")]
    NoneUsable,
}

#[derive(Deserialize)]
struct Jwks {
    keys: Vec<Jwk>,
}

#[derive(Deserialize)]
struct Jwk {
    kid: Option<String>,
    kty: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    used_for: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

/// The bytes of a public key.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Material {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    Point(Vec<u8>),
}

/// A key with the one algorithm that it verifies. The token's header never chooses another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    algorithm: Algorithm,
    material: Material,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Es256,
    Es384,
}

impl Algorithm {
    fn name(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Rs384 => "RS384",
            Self::Rs512 => "RS512",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
        }
    }

    fn rsa(name: &str) -> Option<Self> {
        [Self::Rs256, Self::Rs384, Self::Rs512].into_iter().find(|algorithm| algorithm.name() == name)
    }

    /// The algorithm of a curve, and the length of its coordinates in bytes.
    fn ec(curve: &str) -> Option<(Self, usize)> {
        match curve {
            "P-256" => Some((Self::Es256, 32)),
            "P-384" => Some((Self::Es384, 48)),
            _ => None,
        }
    }
}

impl Key {
    /// `None` for a key of a kind that is not used here: a set may hold such beside others.
    fn read(jwk: &Jwk) -> Option<Self> {
        let bytes = |text: &Option<String>| URL_SAFE_NO_PAD.decode(text.as_deref()?).ok();
        if jwk.used_for.as_deref().is_some_and(|used_for| used_for != "sig") {
            return None;
        }
        match jwk.kty.as_deref()? {
            "RSA" => {
                let algorithm = Algorithm::rsa(jwk.alg.as_deref().unwrap_or("RS256"))?;
                let (n, e) = (bytes(&jwk.n)?, bytes(&jwk.e)?);
                // The limits of what verifies: checked here, so that a set of useless keys is never recorded.
                (256..=1024).contains(&n.len()).then_some(Self { algorithm, material: Material::Rsa { n, e } })
            }
            "EC" => {
                let (algorithm, length) = Algorithm::ec(jwk.crv.as_deref()?)?;
                let (x, y) = (bytes(&jwk.x)?, bytes(&jwk.y)?);
                let fits = x.len() == length && y.len() == length && jwk.alg.as_deref().is_none_or(|alg| alg == algorithm.name());
                fits.then(|| Self { algorithm, material: Material::Point([vec![4], x, y].concat()) }) // uncompressed, SEC 1
            }
            _ => None,
        }
    }

    /// The name of its algorithm, as a token's header says it.
    pub(super) fn algorithm(&self) -> &'static str {
        self.algorithm.name()
    }

    /// Whether the signature over the message is this key's.
    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let rsa = |parameters| match &self.material {
            Material::Rsa { n, e } => RsaPublicKeyComponents { n, e }.verify(parameters, message, signature).is_ok(),
            Material::Point(_) => false,
        };
        let ec = |algorithm: &'static dyn VerificationAlgorithm| match &self.material {
            Material::Point(point) => UnparsedPublicKey::new(algorithm, point).verify(message, signature).is_ok(),
            Material::Rsa { .. } => false,
        };
        match self.algorithm {
            Algorithm::Rs256 => rsa(&signature::RSA_PKCS1_2048_8192_SHA256),
            Algorithm::Rs384 => rsa(&signature::RSA_PKCS1_2048_8192_SHA384),
            Algorithm::Rs512 => rsa(&signature::RSA_PKCS1_2048_8192_SHA512),
            Algorithm::Es256 => ec(&signature::ECDSA_P256_SHA256_FIXED),
            Algorithm::Es384 => ec(&signature::ECDSA_P384_SHA384_FIXED),
        }
    }
}

/// A key set with its issuer. Two are equal when they verify the same tokens, in whatever order the keys were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeySet {
    issuer: String,
    keys: BTreeMap<String, Key>,
}

impl KeySet {
    /// Reads what a daemon said, or what was recorded.
    ///
    /// # Errors
    /// [`KeysRefused`].
    pub(crate) fn read(said: &ClusterKeys) -> Result<Self, KeysRefused> {
        if said.issuer.is_empty() || said.issuer.len() > MAX_ISSUER {
            return Err(KeysRefused::Issuer);
        }
        if said.jwks.to_string().len() > MAX_KEYS {
            return Err(KeysRefused::TooLong);
        }
        let jwks = Jwks::deserialize(&said.jwks).map_err(|_| KeysRefused::Malformed)?;
        if jwks.keys.len() > MAX_KEY_COUNT {
            return Err(KeysRefused::Malformed);
        }
        let mut keys = BTreeMap::new();
        for jwk in &jwks.keys {
            let Some(kid) = jwk.kid.as_ref().filter(|kid| !kid.is_empty() && kid.len() <= MAX_KID) else { continue };
            let Some(key) = Key::read(jwk) else { continue };
            if keys.insert(kid.clone(), key).is_some() {
                return Err(KeysRefused::SharedName);
            }
        }
        if keys.is_empty() { Err(KeysRefused::NoneUsable) } else { Ok(Self { issuer: said.issuer.clone(), keys }) }
    }

    pub(crate) fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Names of the keys that can be used.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.keys.keys().map(String::as_str).collect()
    }

    pub(super) fn key(&self, kid: &str) -> Option<&Key> {
        self.keys.get(kid)
    }
}
