//! Routes of KServe's REST interface.

use http::Method;
use thalweg_proto::tensorflow::serving::ModelSpec;
use thalweg_tensor::Result;

use super::super::route::{decoded, unknown};
use crate::kserve;

/// A parsed route.
#[derive(Debug, PartialEq)]
pub(super) enum Route {
    Server,
    Live,
    Ready,
    Model(ModelSpec, Verb),
}

/// The operation on a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Metadata,
    Ready,
    Infer,
}

/// `/v2`, `/v2/health/live|ready`, `/v2/models/M[/versions/V][/ready|/infer]`.
pub(super) fn parse(method: &Method, path: &str) -> Result<Route> {
    found(method, path).map_or_else(|| unknown(method, path), Ok)
}

fn found(method: &Method, path: &str) -> Option<Route> {
    let is_read = *method == Method::GET || *method == Method::HEAD;
    let parts: Vec<&str> = path.trim_end_matches('/').split('/').skip(2).take(6).collect();
    let (model, version, verb) = match parts[..] {
        [] if is_read => return Some(Route::Server),
        ["health", "live"] if is_read => return Some(Route::Live),
        ["health", "ready"] if is_read => return Some(Route::Ready),
        ["models", model] => (model, "", ""),
        ["models", model, "versions", version] => (model, version, ""),
        ["models", model, "versions", version, verb] => (model, version, verb),
        ["models", model, verb] => (model, "", verb),
        _ => return None,
    };
    let verb = match verb {
        "" if is_read => Verb::Metadata,
        "ready" if is_read => Verb::Ready,
        "infer" if *method == Method::POST => Verb::Infer,
        _ => return None,
    };
    let (model, version) = (decoded(model)?, decoded(version)?);
    Some(Route::Model(kserve::spec(&model, &version), verb))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        let (get, post) = (Method::GET, Method::POST);
        let model =
            |name: &str, version: &str, verb| Some(Route::Model(kserve::spec(name, version), verb));
        for (method, path, wanted) in [
            (&get, "/v2", Some(Route::Server)),
            (&get, "/v2/", Some(Route::Server)),
            (&get, "/v2/health/live", Some(Route::Live)),
            (&get, "/v2/health/ready", Some(Route::Ready)),
            (&get, "/v2/models/m", model("m", "", Verb::Metadata)),
            (&get, "/v2/models/a%20b/ready", model("a b", "", Verb::Ready)),
            (&post, "/v2/models/m/infer", model("m", "", Verb::Infer)),
            (&get, "/v2/models/m/versions/3", model("m", "3", Verb::Metadata)),
            (&get, "/v2/models/m/versions/3/ready", model("m", "3", Verb::Ready)),
            (&post, "/v2/models/m/versions/x/infer", model("m", "x", Verb::Infer)),
            (&get, "/v2/models/m/infer", None),
            (&post, "/v2/models/m", None),
            (&post, "/v2", None),
            (&get, "/v2/models", None),
            (&get, "/v2/models/m/nothing", None),
            (&post, "/v2/models/m/versions/3/infer/more", None),
            (&get, "/v2/models/%zz", None),
        ] {
            assert_eq!(found(method, path), wanted, "{method} {path}");
        }
    }
}
