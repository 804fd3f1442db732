//! What the resource of a span says about its origin: the service as it is shown, and its instance.

use quiver_types::spans::Attributes;

/// An instance of a service: its id, else its pod, else its host.
pub(crate) const INSTANCE_KEYS: [&str; 3] = ["service.instance.id", "k8s.pod.name", "host.name"];

/// Gives a service as readers see it.
pub(crate) fn shown(service: &str) -> &str {
    if service.is_empty() { "unknown_service" } else { service }
}

/// Gives the name of the instance that a resource says.
pub(crate) fn instance_of(resource: &[u8]) -> String {
    let get = |wanted: &str| Attributes::read(resource).find(|(key, _)| *key == wanted).map(|(_, v)| v.text());
    INSTANCE_KEYS.iter().find_map(|key| get(key).filter(|t| !t.is_empty())).unwrap_or_default().into_owned()
}

#[cfg(test)]
mod tests {
    use quiver_types::spans::Value as Attribute;

    use super::*;

    #[test]
    fn an_instance_is_the_first_that_a_resource_says() {
        let check = |attributes: &[(&str, Attribute<'_>)], expected: &str| {
            let resource = Attributes::of(attributes.iter().copied());
            assert_eq!(instance_of(resource.bytes()), expected, "{attributes:?}");
        };
        let (id, pod, host) = ("service.instance.id", "k8s.pod.name", "host.name");
        check(&[], "");
        check(&[(host, Attribute::Text("h")), (pod, Attribute::Text("p")), (id, Attribute::Text("i"))], "i");
        check(&[(host, Attribute::Text("h")), (pod, Attribute::Text("p"))], "p");
        check(&[(host, Attribute::Text("h"))], "h");
        check(&[(host, Attribute::Text("h")), (id, Attribute::Text(""))], "h");
        check(&[(id, Attribute::Int(7))], "7");
        check(&[("host", Attribute::Text("h"))], "");
        assert_eq!(instance_of(&[255, 255, 1]), "", "bytes that are none of ours");
    }
}
