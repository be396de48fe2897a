//! A call to the API server, in Kubernetes' words.

use std::time::Duration;

use http::request::Parts;
use hyper::body::Bytes;
use serde_json::Value;

/// Whether the server was asked yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    Before,
    After,
}

/// A call.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) when: When,
    /// Time since the proxy began.
    pub(crate) at: Duration,
    /// `get`, `list`, `watch`, `create`, `update`, `patch` or `delete`.
    pub(crate) verb: &'static str,
    /// The resource, with its subresource: `pods`, `pods/log`.
    pub(crate) resource: String,
    /// The object's name, from the path or from what is created.
    pub(crate) name: String,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) body: Bytes,
    /// What was answered, as far as it was.
    pub(crate) status: Option<u16>,
}

impl Call {
    pub(super) fn read(head: &Parts, body: Bytes, at: Duration) -> Self {
        let (path, query) = (head.uri.path().to_owned(), head.uri.query().unwrap_or_default().to_owned());
        // /api/v1/…, /apis/GROUP/VERSION/…, each perhaps with namespaces/NAME/ before RESOURCE[/NAME[/SUBRESOURCE]].
        let mut words: Vec<&str> = path.split('/').filter(|word| !word.is_empty()).collect();
        words.drain(..if words.first() == Some(&"api") { 2 } else { 3 }.min(words.len()));
        if words.len() > 2 && words[0] == "namespaces" {
            words.drain(..2);
        }
        let resource = match words[..] {
            [resource, _, sub, ..] => format!("{resource}/{sub}"),
            [resource, ..] => resource.to_owned(),
            [] => String::new(),
        };
        let sent: Value = serde_json::from_slice(&body).unwrap_or_default();
        let name = words.get(1).map_or_else(|| sent["metadata"]["name"].as_str().unwrap_or_default().to_owned(), |&name| name.to_owned());
        let verb = match head.method.as_str() {
            "GET" if query.contains("watch=true") || query.contains("watch=1") => "watch",
            "GET" if words.len() < 2 => "list",
            "GET" => "get",
            "POST" => "create",
            "PUT" => "update",
            "PATCH" => "patch",
            "DELETE" => "delete",
            _ => "other",
        };
        Self { when: When::Before, at, verb, resource, name, path, query, body, status: None }
    }

    pub(crate) fn is(&self, verb: &str, resource: &str) -> bool {
        self.verb == verb && self.resource == resource
    }

    /// Before the server is asked to do this.
    pub(crate) fn before(&self, verb: &str, resource: &str) -> bool {
        self.when == When::Before && self.is(verb, resource)
    }

    /// After the server did this.
    pub(crate) fn after(&self, verb: &str, resource: &str) -> bool {
        self.when == When::After && self.is(verb, resource)
    }

    /// A watch or a log follow, whose answer goes on and on.
    pub(crate) fn streams(&self) -> bool {
        self.verb == "watch" || (self.resource == "pods/log" && self.query.contains("follow=true"))
    }
}
