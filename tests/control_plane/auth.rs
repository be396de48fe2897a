//! Who may do what: deny by default, and what one may not see does not exist.

use reqwest::Method;
use serde_json::json;

use crate::daemon::Daemon;
use crate::plane::Plane;

/// Every route with a token, by who may use it.
const ROUTES: &[(&str, &str, Who)] = &[
    ("GET", "/v1/clusters", Who::Admin),
    ("POST", "/v1/clusters", Who::Admin),
    ("POST", "/v1/clusters/c/tokens", Who::Admin),
    ("DELETE", "/v1/clusters/c/tokens/x", Who::Admin),
    ("GET", "/v1/daemons", Who::Admin),
    ("GET", "/v1/tokens", Who::Admin),
    ("POST", "/v1/tokens", Who::Admin),
    ("DELETE", "/v1/tokens/x", Who::Admin),
    ("POST", "/v1/namespaces", Who::Admin),
    ("GET", "/v1/namespaces", Who::Anyone),
    ("GET", "/v1/namespaces/NS/providers", Who::Namespace),
    ("POST", "/v1/namespaces/NS/providers", Who::Namespace),
    ("GET", "/v1/namespaces/NS/providers/p", Who::Namespace),
    ("PUT", "/v1/namespaces/NS/providers/p", Who::Namespace),
    ("DELETE", "/v1/namespaces/NS/providers/p", Who::Namespace),
    ("POST", "/v1/namespaces/NS/providers/p/test", Who::Namespace),
    ("POST", "/v1/namespaces/NS/providers/p/launch", Who::Namespace),
    ("GET", "/v1/namespaces/NS/providers/p/instances", Who::Namespace),
    ("GET", "/v1/namespaces/NS/providers/p/instances/lakeshore-00112233", Who::Namespace),
    ("DELETE", "/v1/namespaces/NS/providers/p/instances/lakeshore-00112233", Who::Namespace),
    ("GET", "/v1/namespaces/NS/providers/p/instances/lakeshore-00112233/logs", Who::Namespace),
    ("GET", "/v1/namespaces/NS/modes", Who::Namespace),
    ("POST", "/v1/namespaces/NS/modes", Who::Namespace),
    ("GET", "/v1/namespaces/NS/modes/m", Who::Namespace),
    ("PUT", "/v1/namespaces/NS/modes/m", Who::Namespace),
    ("DELETE", "/v1/namespaces/NS/modes/m", Who::Namespace),
    ("GET", "/v1/namespaces/NS/instances", Who::Namespace),
    ("GET", "/v1/namespaces/NS/instances/lakeshore-00112233", Who::Namespace),
    ("GET", "/v1/namespaces/NS/instances/lakeshore-00112233/logs", Who::Namespace),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Admin,
    Namespace,
    Anyone,
}

fn method(name: &str) -> Method {
    name.parse().expect("a method")
}

async fn as_token(plane: &Plane, route: &(&str, &str, Who), namespace: &str, token: &str) -> crate::plane::Answer {
    let path = route.1.replace("NS", namespace);
    plane.send(plane.request_as(token, method(route.0), &path).json(&json!({}))).await
}

#[tokio::test]
async fn no_route_opens_without_a_valid_token() {
    let plane = Plane::start().await;
    let enrolment = plane.enroll("c1").await;
    let made = plane.post("/v1/tokens", json!({"name": "revoked", "admin": true})).await.expect(201).body;
    plane.delete(&format!("/v1/tokens/{}", made["id"].as_str().expect("an id"))).await.expect(204);
    let revoked = made["token"].as_str().expect("a token");
    let never = format!("lakeshore_{}", "A".repeat(43));
    let http = reqwest::Client::new();
    for route in ROUTES {
        let url = format!("http://{}{}", plane.address, route.1.replace("NS", "default"));
        let bare = plane.send(http.request(method(route.0), &url).json(&json!({}))).await.expect_problem(401, "unauthorized");
        assert_eq!(bare.headers["www-authenticate"], "Bearer");
        let basic = http.request(method(route.0), &url).basic_auth("admin", Some(&plane.token)).json(&json!({}));
        plane.send(basic).await.expect_problem(401, "unauthorized");
        for token in ["", "x", &never, revoked, &enrolment, &plane.token.to_uppercase(), &format!("{}A", plane.token)] {
            let request = http.request(method(route.0), &url).bearer_auth(token).json(&json!({}));
            plane.send(request).await.expect_problem(401, "unauthorized");
        }
    }
    for open in ["/healthz", "/readyz", "/v1/version"] {
        plane.send(http.get(format!("http://{}{open}", plane.address))).await.expect(200);
    }
    for secret in [&plane.token, revoked, &never, &enrolment] {
        assert!(!plane.log().contains(secret), "no token is ever logged");
    }
}

#[tokio::test]
async fn a_token_of_one_namespace_sees_that_one_only_and_administers_nothing() {
    let plane = Plane::start().await;
    plane.post("/v1/namespaces", json!({"name": "mine"})).await.expect(201);
    plane.post("/v1/namespaces", json!({"name": "theirs"})).await.expect(201);
    let token = plane.post("/v1/tokens", json!({"name": "t", "namespaces": ["mine"]})).await.expect(201).body["token"].clone();
    let token = token.as_str().expect("a token");
    for route in ROUTES {
        match route.2 {
            Who::Admin => drop(as_token(&plane, route, "mine", token).await.expect_problem(403, "forbidden")),
            Who::Anyone => drop(as_token(&plane, route, "mine", token).await.expect(200)),
            Who::Namespace => {
                let theirs = as_token(&plane, route, "theirs", token).await.expect_problem(404, "namespace_not_found");
                let absent = as_token(&plane, route, "absent", token).await.expect_problem(404, "namespace_not_found");
                let blank = |answer: &crate::plane::Answer| answer.body.to_string().replace("theirs", "X").replace("absent", "X");
                assert_eq!(blank(&theirs), blank(&absent), "whether it exists is not told");
                let mine = as_token(&plane, route, "mine", token).await;
                assert!(
                    mine.status < 500 && mine.status != 401 && mine.status != 403 && mine.code() != "namespace_not_found",
                    "{route:?}: {}",
                    mine.body
                );
            }
        }
    }
    let listed = plane.send(plane.request_as(token, Method::GET, "/v1/namespaces")).await.expect(200).body;
    assert_eq!(listed.as_array().map(Vec::len), Some(1));
    assert_eq!(listed[0]["name"], "mine");
}

#[tokio::test]
async fn an_idempotency_key_is_its_tokens_own() {
    let plane = Plane::start_with(&["--launch-wait", "20ms"]).await;
    let token = plane.with_provider().await;
    let _daemon = Daemon::connect(&plane, &token, "node1").await;
    let other = plane.post("/v1/tokens", json!({"name": "other", "namespaces": ["default"]})).await.expect(201).body["token"].clone();
    let path = "/v1/namespaces/default/providers/demo/launch";
    let launch = |token: &str| plane.request_as(token, Method::POST, path).header("Idempotency-Key", "same").json(&json!({"script": ""}));
    let one = plane.send(launch(&plane.token)).await.expect(202).body;
    let two = plane.send(launch(other.as_str().expect("a token"))).await.expect(202).body;
    assert_ne!(one["instanceId"], two["instanceId"]);
    assert_eq!((one["requestedBy"].as_str(), two["requestedBy"].as_str()), (Some("tester"), Some("other")));
}

#[tokio::test]
async fn tokens_are_listed_without_their_text() {
    let plane = Plane::start().await;
    let made = plane.post("/v1/tokens", json!({"name": "t", "namespaces": ["default"]})).await.expect(201).body;
    let listed = plane.get("/v1/tokens").await.expect(200).body;
    assert!(!listed.to_string().contains(made["token"].as_str().expect("a token")));
    assert_eq!(listed.as_array().map(Vec::len), Some(2));
    plane.post("/v1/tokens", json!({"name": "t", "admin": true})).await.expect_problem(409, "already_exists");
    plane.post("/v1/tokens", json!({"name": "u", "namespaces": ["absent"]})).await.expect_problem(400, "invalid_field");
    plane.post("/v1/tokens", json!({"name": "u"})).await.expect_problem(400, "invalid_field");
    plane.delete("/v1/tokens/absent").await.expect_problem(404, "token_not_found");
}
