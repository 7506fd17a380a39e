//! The signed assertion of a service account (RFC 7523; RS256 of RFC 7518 §3.3). Pure but for the random numbers of the signature.

use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use egress_protocol::{Secret, Timestamp};
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use rustls_pki_types::PrivatePkcs8KeyDer;
use rustls_pki_types::pem::PemObject;
use serde_json::json;

/// Google takes an assertion that lasts an hour at most.
const LASTS: Duration = Duration::from_secs(60 * 60);
/// An assertion from the future is refused, so it is dated back by as much as our clock may be ahead.
const SKEW: Duration = Duration::from_secs(5 * 60);

/// The assertion that `token_uri` takes for a token.
pub(super) fn assertion(
    email: &str,
    key_id: Option<&str>,
    key_pem: &Secret,
    audience: &str,
    scope: &str,
    now: Timestamp,
) -> Result<Secret, String> {
    let key =
        PrivatePkcs8KeyDer::from_pem_slice(key_pem.expose().as_bytes()).map_err(|_| "private_key: is no PKCS #8 key in PEM".to_owned())?;
    let key = RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()).map_err(|_| "private_key: is no RSA key".to_owned())?;
    let issued = (now - SKEW).as_millis() / 1000;
    let expires = issued + i64::try_from(LASTS.as_secs()).unwrap_or(0);
    let mut header = json!({"alg": "RS256", "typ": "JWT"});
    if let Some(key_id) = key_id {
        header["kid"] = json!(key_id);
    }
    let claims = json!({"iss": email, "sub": email, "aud": audience, "scope": scope, "iat": issued, "exp": expires});
    let encode = |value: &serde_json::Value| BASE64URL_NOPAD.encode(value.to_string().as_bytes());
    let signed = format!("{}.{}", encode(&header), encode(&claims));
    let mut signature = vec![0; key.public().modulus_len()];
    key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature)
        .map_err(|_| "private_key: cannot sign".to_owned())?;
    Ok(Secret::new(format!("{signed}.{}", BASE64URL_NOPAD.encode(&signature))))
}

#[cfg(test)]
mod tests {
    use ring::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};

    use super::*;
    use crate::testing::rsa_key;

    #[test]
    fn an_assertion_is_signed_and_is_not_from_the_future_for_a_clock_five_minutes_ahead() {
        let key = rsa_key();
        let now = Timestamp::parse("2026-12-01T12:00:00Z").unwrap();
        let made = assertion("a@p", Some("k1"), &Secret::new(key.pem.clone()), "https://t.example/token", "scope", now).unwrap();
        let parts: Vec<&str> = made.expose().split('.').collect();
        let part =
            |i: usize| -> serde_json::Value { serde_json::from_slice(&BASE64URL_NOPAD.decode(parts[i].as_bytes()).unwrap()).unwrap() };
        assert_eq!(part(0), json!({"alg": "RS256", "typ": "JWT", "kid": "k1"}));
        let claims = part(1);
        assert_eq!((claims["iss"].as_str(), claims["aud"].as_str()), (Some("a@p"), Some("https://t.example/token")));
        let at = |key: &str| claims[key].as_i64().unwrap() * 1000;
        assert_eq!(at("iat"), now.as_millis() - 300_000);
        assert_eq!(at("exp"), now.as_millis() + 3_300_000);
        let signature = BASE64URL_NOPAD.decode(parts[2].as_bytes()).unwrap();
        let signed = format!("{}.{}", parts[0], parts[1]);
        UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, &key.public_der).verify(signed.as_bytes(), &signature).unwrap();
    }

    #[test]
    fn a_key_that_is_none_is_named_and_not_shown() {
        for pem in ["sentinel", "-----BEGIN PRIVATE KEY-----\nc2VudGluZWw=\n-----END PRIVATE KEY-----\n"] {
            let error = assertion("a@p", None, &Secret::new(pem.to_owned()), "aud", "scope", Timestamp::default()).unwrap_err();
            assert!(error.starts_with("private_key:") && !error.contains("sentinel"), "{error}");
        }
    }
}
