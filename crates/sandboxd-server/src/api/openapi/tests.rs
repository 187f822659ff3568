//! The document is complete, its examples have the form that it describes, and the kept copy is what is served.

use serde_json::{Value, json};
use std::collections::BTreeSet;

const METHODS: [&str; 5] = ["get", "put", "post", "delete", "patch"];

fn document() -> Value {
    serde_json::to_value(super::document()).expect("JSON")
}

/// The names that are referred to, of schemas or responses.
fn references(value: &Value, kind: &str) -> BTreeSet<String> {
    let prefix = format!("#/components/{kind}/");
    let own = value["$ref"]
        .as_str()
        .and_then(|at| at.strip_prefix(&prefix));
    let mut names: BTreeSet<String> = own.map(str::to_owned).into_iter().collect();
    match value {
        Value::Object(members) => {
            names.extend(members.values().flat_map(|member| references(member, kind)))
        }
        Value::Array(items) => names.extend(items.iter().flat_map(|item| references(item, kind))),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    names
}

/// Every operation: where it stands, and what is said of it.
fn operations(document: &Value) -> Vec<(String, Value)> {
    let paths = document["paths"].as_object().expect("paths");
    let mut all = Vec::new();
    for (path, item) in paths {
        for (method, operation) in item.as_object().expect("an item") {
            assert!(METHODS.contains(&method.as_str()), "{method} {path}");
            all.push((format!("{method} {path}"), operation.clone()));
        }
    }
    all
}

/// What a reference leads to; anything else is itself.
fn at<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    match value["$ref"].as_str() {
        Some(at) => document.pointer(at.trim_start_matches('#')).expect(at),
        None => value,
    }
}

#[test]
fn the_kept_copy_is_what_is_served() {
    let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
    let kept = std::fs::read_to_string(kept).expect("docs/openapi.json");
    assert!(
        kept == crate::api::openapi_document(),
        "docs/openapi.json is not what is served: run `cargo xtask openapi`, and look at the difference"
    );
}

#[test]
fn everything_is_described() {
    let document = document();
    assert_eq!(document["openapi"], "3.1.0");
    let mut names = BTreeSet::new();
    for (place, operation) in operations(&document) {
        let name = operation["operationId"]
            .as_str()
            .expect("a name")
            .to_owned();
        assert!(names.insert(name), "{place}: the name is taken");
        assert!(operation["summary"].is_string(), "{place}: no summary");
        assert!(
            operation["security"].is_array(),
            "{place}: says nothing of tokens"
        );
        for (status, response) in operation["responses"].as_object().expect("answers") {
            let response = at(&document, response);
            let about = response["description"].as_str().unwrap_or_default();
            assert!(!about.is_empty(), "{place} {status}: not described");
            if let Some(json) = response["content"].get("application/json") {
                let shown = json.get("example").is_some() || json.get("examples").is_some();
                assert!(shown, "{place} {status}: no example");
            }
        }
        for parameter in operation["parameters"].as_array().unwrap_or(&Vec::new()) {
            for needed in ["description", "schema", "example"] {
                assert!(
                    parameter.get(needed).is_some(),
                    "{place} {}: no {needed}",
                    parameter["name"]
                );
            }
        }
    }
    assert!(names.len() > 30, "routes are missing: {names:?}");
    for (name, schema) in document["components"]["schemas"]
        .as_object()
        .expect("schemas")
    {
        assert!(schema["description"].is_string(), "{name}: not described");
        for (field, about) in schema["properties"].as_object().into_iter().flatten() {
            assert!(
                about["description"].is_string(),
                "{name}.{field}: not described"
            );
        }
    }
}

#[test]
fn references_lead_somewhere() {
    let document = document();
    for kind in ["schemas", "responses"] {
        let names = references(&document, kind);
        let known = document["components"][kind].as_object().expect(kind);
        let known: BTreeSet<String> = known.keys().cloned().collect();
        assert_eq!(names, known, "{kind}");
    }
}

#[test]
fn answers_have_all_of_their_fields() {
    let document = document();
    let required = |name: &str| {
        document["components"]["schemas"][name]["required"]
            .as_array()
            .expect(name)
            .len()
    };
    assert_eq!(required("SessionInfo"), 12);
    assert_eq!(required("ServicePolicy"), 27);
    assert_eq!(required("FileEntry"), 5);
    let optional = &document["components"]["schemas"]["CreateSession"];
    assert!(optional.get("required").is_none(), "{optional}");
}

#[test]
fn patterns_are_those_of_the_api() {
    let schemas = &document()["components"]["schemas"];
    for (name, field, pattern) in [
        ("CreateSession", "session_id", sandboxd_api::NAME_PATTERN),
        ("CreateSession", "tenant", sandboxd_api::NAME_PATTERN),
        ("RunRequest", "run_id", sandboxd_api::RUN_ID_PATTERN),
    ] {
        assert_eq!(
            schemas[name]["properties"][field]["pattern"], pattern,
            "{name}.{field}"
        );
    }
}

/// What is wrong with a value that should have the form of a schema.
fn misfit(document: &Value, form: &Value, value: &Value) -> Option<String> {
    let form = at(document, form);
    let alternatives = form
        .get("oneOf")
        .or_else(|| form.get("anyOf"))
        .and_then(Value::as_array);
    if let Some(alternatives) = alternatives {
        let fits = alternatives
            .iter()
            .any(|one| misfit(document, one, value).is_none());
        return (!fits).then(|| format!("{value} fits none of {form}"));
    }
    if let Some(parts) = form["allOf"].as_array() {
        return parts.iter().find_map(|part| {
            let part = at(document, part);
            let mut own = value.clone();
            if let (Some(members), Some(fields)) =
                (own.as_object_mut(), part["properties"].as_object())
            {
                members.retain(|name, _| fields.contains_key(name));
            }
            misfit(document, part, &own)
        });
    }
    if let Some(allowed) = form["enum"].as_array() {
        return (!allowed.contains(value)).then(|| format!("{value} is none of {allowed:?}"));
    }
    let types: Vec<&str> = match &form["type"] {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => return None,
    };
    let actual = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let number = actual == "integer" && types.contains(&"number");
    if !types.contains(&actual) && !number {
        return Some(format!("{value} is no {types:?}"));
    }
    if let Value::Array(items) = value {
        return items
            .iter()
            .find_map(|item| misfit(document, &form["items"], item));
    }
    let Value::Object(members) = value else {
        return None;
    };
    let needed = form["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    if let Some(missing) = needed.into_iter().find(|name| !members.contains_key(*name)) {
        return Some(format!("{missing} is missing in {value}"));
    }
    members.iter().find_map(|(name, member)| {
        let known = form["properties"]
            .get(name)
            .or_else(|| form.get("additionalProperties"));
        match known {
            Some(Value::Bool(false)) => Some(format!("{name} is unknown")),
            Some(form) => misfit(document, form, member).map(|wrong| format!("{name}: {wrong}")),
            None if form.get("properties").is_some() => Some(format!("{name} is unknown")),
            None => None,
        }
    })
}

#[test]
fn examples_have_the_form_that_is_described() {
    let document = document();
    let mut looked_at = 0;
    for (place, operation) in operations(&document) {
        let bodies = operation["responses"]
            .as_object()
            .expect("answers")
            .values();
        for body in bodies.chain([&operation["requestBody"]]) {
            let body = at(&document, body);
            let Some(json) = body["content"].get("application/json") else {
                continue;
            };
            let several = json["examples"].as_object().into_iter().flatten();
            let examples = several.map(|(_, example)| &example["value"]);
            for example in examples.chain(json.get("example")) {
                looked_at += 1;
                // A request's form is not closed, but an example with a field that nobody reads helps nobody.
                let wrong = misfit(&document, &json["schema"], example);
                assert_eq!(wrong, None, "{place}");
            }
        }
    }
    assert!(looked_at > 100, "{looked_at}");
}

#[test]
fn a_misfit_is_found() {
    let document = document();
    let form = json!({ "$ref": "#/components/schemas/RunResponse" });
    let wrong = |value: Value| misfit(&document, &form, &value);
    let good = json!({
        "stdout": "", "stderr": "", "exit_code": null, "timed_out": true, "output_limited": false, "output_limit": null,
    });
    assert_eq!(wrong(good.clone()), None);
    for (name, value) in [
        ("stdout", json!(1)),
        ("exit_code", json!("0")),
        ("more", json!(1)),
    ] {
        let mut bad = good.clone();
        bad[name] = value;
        assert!(wrong(bad).is_some(), "{name}");
    }
    assert!(wrong(json!({})).is_some());
}

/// The words that `api/error.rs` puts into `X-Error-Code`, each behind its status.
fn codes() -> BTreeSet<String> {
    let table = include_str!("../error.rs");
    let behind = table.split("StatusCode::").skip(1).filter_map(|rest| {
        let (_, rest) = rest.split_once(',')?;
        let (word, _) = rest.trim_start().strip_prefix('"')?.split_once('"')?;
        Some(word.to_owned())
    });
    behind.collect()
}

#[test]
fn every_refusal_is_described() {
    let found = codes();
    assert!(found.len() > 25, "{found:?}");
    let described: BTreeSet<String> = super::described()
        .iter()
        .flat_map(super::describe::Described::codes)
        .map(str::to_owned)
        .collect();
    // Where there is no route, or none by this method, there is nothing to describe; a command that cannot be started is an
    // answer on every route.
    let missing: Vec<&String> = found
        .iter()
        .filter(|code| {
            !["no_route", "method", "not_runnable"].contains(&code.as_str())
                && !described.contains(*code)
        })
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
    // `internal` is no row of the table; the other two stand in functions of it, away from their status.
    let invented: Vec<&String> = described
        .iter()
        .filter(|code| {
            !["internal", "file", "hand_back"].contains(&code.as_str()) && !found.contains(*code)
        })
        .collect();
    assert!(invented.is_empty(), "{invented:?}");
}
