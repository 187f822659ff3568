//! How a registry is told who asks: the challenge of its first answer, and the token that follows from it.

/// What a registry wants before it answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Challenge {
    /// Name and password with each request.
    Basic,
    /// A token from somewhere else.
    Bearer {
        /// Where from.
        realm: String,
        /// For whom.
        service: Option<String>,
        /// To do what.
        scope: Option<String>,
    },
}

impl Challenge {
    /// Of the values of the header `WWW-Authenticate`, the first that can be met; tokens before passwords.
    pub(super) fn of<'a>(headers: impl Iterator<Item = &'a str>) -> Option<Self> {
        let mut basic = None;
        for header in headers {
            let (scheme, rest) = header.split_once(' ').unwrap_or((header, ""));
            if scheme.eq_ignore_ascii_case("basic") {
                basic = Some(Self::Basic);
            }
            if scheme.eq_ignore_ascii_case("bearer") {
                let parameters = parameters(rest);
                let get = |name: &str| {
                    let found = parameters.iter().find(|(key, _)| key == name);
                    found.map(|(_, value)| value.clone())
                };
                if let Some(realm) = get("realm") {
                    return Some(Self::Bearer {
                        realm,
                        service: get("service"),
                        scope: get("scope"),
                    });
                }
            }
        }
        basic
    }
}

/// `name="value"` or `name=value`, with commas between them; commas and quotes may stand in quotes.
fn parameters(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((name, after)) = rest.split_once('=') {
        let name = name.trim_matches([' ', ',', '\t']).to_ascii_lowercase();
        let mut value = String::new();
        let mut characters = after.char_indices();
        let mut end = after.len();
        if after.starts_with('"') {
            characters.next();
            while let Some((at, character)) = characters.next() {
                match character {
                    '"' => {
                        end = at + 1;
                        break;
                    }
                    '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
                    other => value.push(other),
                }
            }
        } else {
            end = after.find(',').unwrap_or(after.len());
            value.push_str(after.get(..end).unwrap_or_default().trim());
        }
        found.push((name, value));
        rest = after.get(end..).unwrap_or_default();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_read() {
        let bearer = |service: Option<&str>, scope: Option<&str>| {
            Some(Challenge::Bearer {
                realm: "https://auth.example/token".to_owned(),
                service: service.map(str::to_owned),
                scope: scope.map(str::to_owned),
            })
        };
        for (headers, challenge) in [
            (
                &[
                    r#"Bearer realm="https://auth.example/token",service="r.example",scope="repository:a/b:pull,push""#,
                ][..],
                bearer(Some("r.example"), Some("repository:a/b:pull,push")),
            ),
            (
                &["bearer realm=https://auth.example/token , service=x"],
                bearer(Some("x"), None),
            ),
            (
                &[
                    "Basic realm=\"x\"",
                    "Bearer Realm=\"https://auth.example/token\"",
                ],
                bearer(None, None),
            ),
            (&["Basic realm=\"x\""], Some(Challenge::Basic)),
            (&["Bearer service=\"x\""], None),
            (&["Negotiate", ""], None),
            (&[], None),
        ] {
            assert_eq!(
                Challenge::of(headers.iter().copied()),
                challenge,
                "{headers:?}"
            );
        }
    }

    #[test]
    fn quotes_in_quotes_and_ends_in_the_middle_do_no_harm() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            parameters(r#"a="b\"c",d=e"#),
            [pair("a", "b\"c"), pair("d", "e")]
        );
        assert_eq!(parameters(r#"a="never ends"#), [pair("a", "never ends")]);
        assert_eq!(parameters("a="), [pair("a", "")]);
    }
}
