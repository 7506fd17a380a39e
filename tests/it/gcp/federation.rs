//! Federation as the guide has it (GC-21): the file is the one that `gcloud` writes, but for the two hosts, which are on loopback here.

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use serde_json::{Value, json};

use super::runbooks::{Gcloud, blocks, commands, filled, said};
use super::{Cloud, PROJECT, TOKEN};

/// Google's two services: another issuer's token for a federated one, and that for the service account's.
async fn google() -> std::net::SocketAddr {
    let exchange = |form: String| async move {
        let has = |pair: &str| form.split('&').any(|given| given == pair);
        let pool = form.contains("%2FworkloadIdentityPools%2Fclusters%2Fproviders%2Fegress&");
        let known = has("subject_token=signed-by-the-cluster");
        let answer = json!({"access_token": "federated", "expires_in": 3600, "token_type": "Bearer"});
        if pool && known { (StatusCode::OK, answer.to_string()) } else { (StatusCode::BAD_REQUEST, form) }
    };
    let impersonate = |headers: HeaderMap| async move {
        let may = headers.get("Authorization").is_some_and(|value| value == "Bearer federated");
        let answer = json!({"accessToken": TOKEN, "expireTime": "2036-01-01T00:00:00Z"});
        if may { (StatusCode::OK, answer.to_string()) } else { (StatusCode::FORBIDDEN, String::new()) }
    };
    let router = Router::new().route("/v1/token", post(exchange)).route("/v1/projects/-/serviceAccounts/{call}", post(impersonate));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_file_that_gcloud_writes_for_a_federation_gives_a_token() {
    const TEST: &str = "gcp::federation::the_file_that_gcloud_writes_for_a_federation_gives_a_token";
    let cloud = Cloud::new().await;
    let Some(gcloud) = Gcloud::new(TEST, format!("http://{}", cloud._server.address)) else { return };
    let all = blocks().into_iter().flat_map(|(_, block)| commands(&filled(&block)));
    let command = all.into_iter().find(|command| command.contains("create-cred-config")).unwrap();
    let wrote = gcloud.shell(&command).await;
    assert!(wrote.status.success(), "{}", said(&wrote));

    let (key, token) = (gcloud.folder.path().join("key.json"), gcloud.folder.path().join("token"));
    let mut file: Value = serde_json::from_slice(&std::fs::read(&key).unwrap()).unwrap();
    assert_eq!(file["credential_source"]["file"], "/var/run/secrets/google/token", "{file}");
    let google = google().await;
    for (field, host) in
        [("token_url", "https://sts.googleapis.com"), ("service_account_impersonation_url", "https://iamcredentials.googleapis.com")]
    {
        let path = file[field].as_str().and_then(|url| url.strip_prefix(host)).unwrap_or_else(|| panic!("{field}: {file}"));
        file[field] = json!(format!("http://{google}{path}"));
    }
    file["credential_source"]["file"] = json!(token);
    std::fs::write(&key, file.to_string()).unwrap();
    std::fs::write(&token, "signed-by-the-cluster\n").unwrap();
    let block = format!("{{project: {PROJECT}, endpoint: \"http://{}\", credentialsFile: {}}}", cloud._server.address, key.display());
    std::fs::write(cloud.site.path("providers.yaml"), format!("providers:\n- {{name: gcp, type: gcp, gcp: {block}}}\n")).unwrap();
    let checked = cloud.check();
    assert!(checked.status.success() && String::from_utf8_lossy(&checked.stdout).contains("Reachable"), "{}", said(&checked));

    // Another's token: refused, and not shown.
    std::fs::write(&token, "sentinel-of-another").unwrap();
    let refused = cloud.check();
    assert!(!refused.status.success() && said(&refused).contains("HTTP 400") && !said(&refused).contains("sentinel"), "{}", said(&refused));
}
