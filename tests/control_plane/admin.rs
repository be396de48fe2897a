//! The folder and the server's own affairs: lock, admin socket, bootstrap token, TLS, stopping.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;

use nymph::control_plane::{NewToken, TokenError, create_token};
use secrecy::ExposeSecret;
use serde_json::json;

use crate::daemon::{Daemon, handshake};
use crate::plane::{Plane, serve};

#[tokio::test]
async fn a_second_process_is_refused_and_the_folder_named() {
    let plane = Plane::start().await;
    let mut second = serve(&plane.data(), "127.0.0.1:0").spawn().expect("the program starts");
    let mut said = String::new();
    second.stderr.take().expect("it is piped").read_to_string(&mut said).expect("text");
    assert!(!second.wait().expect("it ends").success());
    assert!(said.contains("in use by another process") && said.contains(&plane.data().display().to_string()), "{said}");
    plane.get("/readyz").await.expect(200);
}

#[tokio::test]
async fn only_the_owner_can_read_the_folder() {
    let plane = Plane::start().await;
    let mode = |path: std::path::PathBuf| std::fs::metadata(path).expect("it exists").permissions().mode() & 0o777;
    assert_eq!(mode(plane.data()), 0o700);
    for file in ["lakeshore.db", "lakeshore.db-wal", "lock", "admin.sock"] {
        assert_eq!(mode(plane.data().join(file)), 0o600, "{file}");
    }
    assert_eq!(mode(plane.data().join("logs")), 0o700);
}

#[tokio::test]
async fn a_token_is_made_through_a_running_server_too() {
    let plane = Plane::start().await;
    let data = plane.data();
    let request = NewToken { name: "second".into(), admin: false, namespaces: vec!["default".into()] };
    let made = tokio::task::spawn_blocking({
        let (data, request) = (data.clone(), request.clone());
        move || create_token(&data, request)
    });
    let token = made.await.expect("it ends").expect("the server makes it").token.expose_secret().to_owned();
    let rows = plane.send(plane.request_as(&token, reqwest::Method::GET, "/v1/namespaces")).await.expect(200).body;
    assert_eq!(rows[0]["name"], "default");
    for bad in [request, NewToken { name: "third".into(), admin: false, namespaces: vec!["absent".into()] }] {
        let error = create_token(&data, bad).expect_err("it is refused");
        assert!(matches!(error, TokenError::Refused(_)), "{error}");
    }
}

#[tokio::test]
async fn a_token_from_the_bootstrap_file_is_an_admins_until_another_takes_its_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("token");
    let (one, two) = (format!("lakeshore_{}", "A".repeat(43)), format!("lakeshore_{}Q", "B".repeat(42)));
    std::fs::write(&file, format!("{one}\n")).expect("it is written");
    let mut plane = Plane::start_with(&["--bootstrap-token-file", file.to_str().expect("text")]).await;
    let status = async |plane: &Plane, token: &str| plane.send(plane.request_as(token, reqwest::Method::GET, "/v1/tokens")).await.status;
    assert_eq!(status(&plane, &one).await, 200);
    plane.kill();
    plane.run(); // the same token again is no second one
    assert_eq!(plane.get("/v1/tokens").await.expect(200).body.as_array().map(Vec::len), Some(2));
    for (now, before) in [(&two, &one), (&one, &two)] {
        std::fs::write(&file, now).expect("it is written");
        plane.kill();
        plane.run();
        assert_eq!((status(&plane, now).await, status(&plane, before).await), (200, 401));
    }
    std::fs::write(&file, "not a token").expect("it is written");
    plane.kill();
    let mut refused = serve(&plane.data(), "127.0.0.1:0").args(["--bootstrap-token-file", file.to_str().expect("text")]).spawn().expect("it starts");
    let mut said = String::new();
    refused.stderr.take().expect("it is piped").read_to_string(&mut said).expect("text");
    assert!(!refused.wait().expect("it ends").success());
    assert!(said.contains(file.to_str().expect("text")) && !said.contains("not a token"), "{said}");
    plane.run_with(&[]);
}

#[tokio::test]
async fn with_a_certificate_callers_and_daemons_come_by_tls_and_a_new_one_is_taken_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let (cert, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
    let write = || {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).expect("a certificate");
        std::fs::write(&key, made.signing_key.serialize_pem()).expect("it is written");
        std::fs::write(&cert, made.cert.pem()).expect("it is written");
        made.cert.pem()
    };
    let first = write();
    let plane = Plane::start_with(&["--tls-cert", cert.to_str().expect("text"), "--tls-key", key.to_str().expect("text")]).await;
    let port = plane.address.rsplit(':').next().expect("a port").to_owned();
    let status = async |trusted: &str| {
        let ca = reqwest::Certificate::from_pem(trusted.as_bytes()).expect("PEM");
        let client = reqwest::Client::builder().tls_certs_only([ca]).build().expect("a client");
        client.get(format!("https://localhost:{port}/healthz")).send().await.map(|response| response.status().as_u16())
    };
    assert_eq!(status(&first).await.expect("it is trusted"), 200);
    let silent = tokio::net::TcpStream::connect(&plane.address).await.expect("it listens"); // says nothing, holds up nobody
    let second = write();
    let renewed = async {
        while status(&second).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(crate::plane::STUCK, renewed).await.expect("the new certificate is taken up");
    assert!(status(&first).await.is_err(), "the old one is gone");
    std::fs::write(&cert, "broken").expect("it is written");
    assert_eq!(status(&second).await.expect("the last good one stays"), 200);
    drop(silent);
    let plain =
        tokio_tungstenite::client_async(handshake(&plane, "x", "node1"), tokio::net::TcpStream::connect(&plane.address).await.expect("it listens"));
    assert!(plain.await.is_err(), "nothing is served without TLS");
}

#[tokio::test]
async fn sigterm_sends_daemons_away_finishes_what_is_asked_and_exits_with_0() {
    let mut plane = Plane::start().await;
    let token = plane.with_provider().await;
    let mut daemon = Daemon::connect(&plane, &token, "node1").await;
    let launched = plane.launch(json!({"script": ""}));
    let (envelope, _) = daemon.dispatch().await;
    assert!(plane.terminate());
    let close = daemon.closed().await;
    assert_eq!((close.code, close.code.is_terminal()), (nymph::wire::CloseCode::GoAway, false));
    assert_eq!(launched.await.expect("it ends").expect(202).body["instanceId"], envelope.instance.as_str(), "the caller was answered");
}
