//! A cluster's issuer of ServiceAccount tokens, with keys of its own: signs what a test wants signed.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::rsa::{KeyPair as RsaKeyPair, PublicKeyComponents};
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256};
use serde_json::{Value, json};

enum Key {
    Ec(Box<EcdsaKeyPair>),
    Rsa(Box<RsaKeyPair>),
}

pub(crate) struct Issuer {
    pub(crate) url: String,
    kid: String,
    key: Key,
}

fn base64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Issuer {
    /// With a new key, which signs by ES256.
    pub(crate) fn new(url: &str, kid: &str) -> Self {
        let (random, algorithm) = (SystemRandom::new(), &ECDSA_P256_SHA256_FIXED_SIGNING);
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("randomness");
        let key = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).expect("a key");
        Self { url: url.into(), kid: kid.into(), key: Key::Ec(Box::new(key)) }
    }

    /// With the RSA key of the tests, which signs by RS256.
    #[allow(dead_code, reason = "only some of the tests that share this file want RSA")]
    pub(crate) fn rsa(url: &str, kid: &str) -> Self {
        let key = RsaKeyPair::from_pkcs8(include_bytes!("issuer-rsa.pk8")).expect("a key");
        Self { url: url.into(), kid: kid.into(), key: Key::Rsa(Box::new(key)) }
    }

    /// Its public key, as a key set has it.
    pub(crate) fn jwk(&self) -> Value {
        match &self.key {
            Key::Ec(key) => {
                let point = key.public_key().as_ref();
                let (x, y) = (base64(&point[1..33]), base64(&point[33..]));
                json!({"use": "sig", "kty": "EC", "crv": "P-256", "alg": "ES256", "kid": self.kid, "x": x, "y": y})
            }
            Key::Rsa(key) => {
                let PublicKeyComponents::<Vec<u8>> { n, e } = key.public().into();
                json!({"use": "sig", "kty": "RSA", "alg": "RS256", "kid": self.kid, "n": base64(n), "e": base64(e)})
            }
        }
    }

    pub(crate) fn jwks(&self) -> Value {
        json!({ "keys": [self.jwk()] })
    }

    /// Signs the claims as the API server would.
    pub(crate) fn token(&self, claims: &Value) -> String {
        let alg = if matches!(self.key, Key::Ec(_)) { "ES256" } else { "RS256" };
        self.sign(&json!({"alg": alg, "kid": self.kid}), claims)
    }

    /// Signs with the header that it is given.
    pub(crate) fn sign(&self, header: &Value, claims: &Value) -> String {
        let message = format!("{}.{}", base64(header.to_string()), base64(claims.to_string()));
        let random = SystemRandom::new();
        let signature = match &self.key {
            Key::Ec(key) => key.sign(&random, message.as_bytes()).expect("randomness").as_ref().to_vec(),
            Key::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, message.as_bytes(), &mut signature).expect("randomness");
                signature
            }
        };
        format!("{message}.{}", base64(signature))
    }

    /// The claims of a token that is bound to the daemon's Pod `nymph-NODE` on a node, valid for an hour from `now` (seconds).
    pub(crate) fn claims(&self, node: &str, now: i64) -> Value {
        json!({
            "aud": ["lakeshore"],
            "iss": self.url,
            "sub": "system:serviceaccount:nymph-system:nymph",
            "iat": now,
            "nbf": now,
            "exp": now + 3600,
            "jti": "0",
            "kubernetes.io": {
                "namespace": "nymph-system",
                "serviceaccount": {"name": "nymph", "uid": "account-uid"},
                "node": {"name": node, "uid": format!("uid-of-{node}")},
                "pod": {"name": format!("nymph-{node}"), "uid": format!("pod-on-{node}")},
            },
        })
    }
}
