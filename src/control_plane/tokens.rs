//! The two kinds of bearer token: how they are made, recognised and stored (as SHA-256 only).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Who a token lets in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// Daemons of one cluster.
    Enrolment,
    /// A person or program that calls the REST interface.
    Caller,
}

/// Random bytes in a token: as many as its hash has.
const RANDOM_BYTES: usize = 32;

impl TokenKind {
    fn prefix(self) -> &'static str {
        match self {
            Self::Enrolment => "nymph_enrol_",
            Self::Caller => "lakeshore_",
        }
    }

    /// Draws a new token of this kind.
    ///
    /// # Errors
    /// When the system gives no randomness.
    pub(crate) fn generate(self) -> Result<SecretString, getrandom::Error> {
        let mut bytes = [0; RANDOM_BYTES];
        getrandom::fill(&mut bytes)?;
        Ok(format!("{}{}", self.prefix(), URL_SAFE_NO_PAD.encode(bytes)).into())
    }

    /// The hash of a well-formed token of this kind; `None` for any other text.
    pub(crate) fn hash(self, text: &str) -> Option<TokenHash> {
        let random = text.strip_prefix(self.prefix())?;
        let bytes = URL_SAFE_NO_PAD.decode(random).ok()?;
        (bytes.len() == RANDOM_BYTES).then(|| TokenHash(Sha256::digest(text.as_bytes()).into()))
    }

    /// The hash of a token that [`TokenKind::generate`] made.
    pub(crate) fn hash_of(token: &SecretString) -> TokenHash {
        TokenHash(Sha256::digest(token.expose_secret().as_bytes()).into())
    }
}

/// SHA-256 of a token: what the store holds of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenHash(pub(crate) [u8; 32]);

impl TokenHash {
    /// Compares with stored bytes in constant time.
    pub(crate) fn matches(&self, stored: &[u8]) -> bool {
        self.0.as_slice().ct_eq(stored).into()
    }
}

/// An id for something in the store: 16 lower-case hex digits.
///
/// # Errors
/// When the system gives no randomness.
pub(crate) fn new_id() -> Result<String, getrandom::Error> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes)?;
    Ok(crate::types::hex(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_recognised_by_its_own_kind_only() {
        let token = TokenKind::Caller.generate().expect("randomness");
        let text = token.expose_secret();
        assert_eq!(text.len(), "lakeshore_".len() + 43);
        let hash = TokenKind::Caller.hash(text).expect("it is well formed");
        assert!(hash.matches(&TokenKind::hash_of(&token).0));
        assert!(TokenKind::Enrolment.hash(text).is_none());
        for bad in ["", "lakeshore_", &text[..text.len() - 1], &format!("{text}A"), &format!(" {text}"), &text.to_uppercase()] {
            assert!(TokenKind::Caller.hash(bad).is_none(), "{bad:?}");
        }
        assert!(!hash.matches(&TokenKind::hash_of(&TokenKind::Caller.generate().expect("randomness")).0));
    }
}
